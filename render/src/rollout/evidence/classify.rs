//! What a record means at a moment (rollouts.md, decisions 7, 9, 11 and 14).

use super::{Conn, Millis, Reading, Record, Seat};
use crate::rollout::halt::{self, Facts, Silence};

/// What a record is judged against; the same for all records of one Rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The moment.
    pub now_ms: Millis,
    /// Index of the active stage; who is admitted by a later one only is nobody yet.
    pub stage: u32,
    /// When the soak of the active stage began (`Times::soak_since_ms`): where the window of
    /// decision 11 opens for who has the candidate already.
    pub soak_since_ms: Millis,
    /// How long the active stage must soak.
    pub soak_ms: Millis,
    /// When the window of the stage, or of the soak, before this one closed, cut at
    /// `soak_since_ms`; 0 when there was none. A silence that began before this soak counts when
    /// it began by then: "a dark member stays halted until it is heard, also over a stage change".
    pub earlier_until_ms: Millis,
    /// Silence of this length is dark.
    pub dark_after_ms: Millis,
    /// What the members of a drained or vanished replica get on top.
    pub grace_ms: Millis,
    /// No silence is counted from before this: process start, or first full sync (decision 9).
    pub evidence_since_ms: Millis,
}

/// The replica whose session a record's newest one is (decision 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It reports.
    Reporting,
    /// It does not, and may come back: what it was the last to hear is as last known.
    Unobserved {
        /// Its last word.
        since_ms: Millis,
    },
    /// It said Bye, or as many replicas report without it as did with it.
    Gone {
        /// Its last word.
        since_ms: Millis,
        /// When that was so; not before `since_ms`.
        at_ms: Millis,
    },
    /// It has been unobserved for longer than `--forget-replica`. Who is gone is not forgotten.
    Forgotten {
        /// Its last word.
        since_ms: Millis,
    },
}

/// What a record means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// It is counted: as a member when its seat is a stage, as control otherwise. All of the flags
    /// below but `foreign`, `left` and `heard_since_soak` are false when it is not.
    pub counts: bool,
    /// Where it sits. A stage past the active one is [`Seat::Outside`].
    pub seat: Seat,
    /// It is read, never offered, never judged.
    pub foreign: bool,
    /// What it runs, as last known.
    pub arm: Reading,
    /// The halt condition that it has.
    pub condition: Option<&'static str>,
    /// It has one that no outage explains: in F.
    pub failed: bool,
    /// It has one that an outage may explain: in D.
    pub dark: bool,
    /// In D, and silent for a third of `dark_after` more: in e where there is a control group to
    /// compare it with (`docs/adr/0010-who-is-compared-with-whom.md`).
    pub long_dark: bool,
    /// Its replica does not report: all this is as last known.
    pub unobserved: bool,
    /// It said farewell.
    pub left: bool,
    /// Of the control group, silent, and its silence began in the window: in C_d.
    pub control_dark: bool,
    /// It was heard since the soak began.
    pub heard_since_soak: bool,
    /// A served member on the candidate or taking it, or dark: in T.
    pub taken: bool,
    /// When it was last heard, as far as anybody can tell; for an open link of a reporting replica
    /// that is now, which is not told here so that a class does not change by the clock alone.
    pub silent_since_ms: Option<Millis>,
    /// When time alone makes this another class; `None` = never. Until just before it, it is this
    /// one, for the same record, context and owner.
    pub next_ms: Option<Millis>,
}

/// What a record means at `context.now_ms`.
///
/// Nothing is allocated. What it means changes when the record, the context or the owner does, and
/// by time alone at [`Class::next_ms`].
pub fn classify(record: &Record, context: &Context, owner: Owner) -> Class {
    let hush = Hush::of(record, context, owner);
    let class = hush.class(record, context, owner, context.now_ms);
    let ripens = if class.left {
        [Some(hush.left_counts_until(context)), None]
    } else {
        [hush.ripe_ms, hush.long_ms(context)]
    };
    let next_ms = ripens.into_iter().flatten().find(|&ripens| {
        ripens > context.now_ms && hush.class(record, context, owner, ripens) != class
    });
    Class { next_ms, ..class }
}

/// The silence of a collector, begun or to come.
struct Hush {
    /// When it was last heard; `None` while an open link of a reporting replica vouches for it.
    heard_ms: Option<Millis>,
    /// When its silence began: taking the candidate is a sign of life too.
    began_ms: Millis,
    /// When its silence is long enough; `None` when time alone never makes it so.
    ripe_ms: Option<Millis>,
}

impl Hush {
    fn of(record: &Record, context: &Context, owner: Owner) -> Self {
        let conn = record.conn.map_or(Conn::Lost, |(_, conn)| conn);
        let vouched_ms = match (conn, owner) {
            // Decision 7: an open link of a reporting replica is heard.
            (Conn::Open, Owner::Reporting) => {
                return Self { heard_ms: None, began_ms: context.now_ms, ripe_ms: None };
            }
            (
                Conn::Open,
                Owner::Unobserved { since_ms }
                | Owner::Gone { since_ms, .. }
                | Owner::Forgotten { since_ms },
            ) => since_ms,
            (Conn::Drained | Conn::Lost | Conn::Left, _) => 0,
        };
        let heard_ms = record.heard_ms.max(vouched_ms);
        let began_ms = heard_ms.max(record.first_to_ms.unwrap_or(0));
        // Decision 9: no silence is counted from before evidence started.
        let counted_from = |from_ms: Millis| {
            from_ms.max(context.evidence_since_ms).saturating_add(context.dark_after_ms)
        };
        let own = match conn {
            Conn::Open => None,
            // Decision 11: a member whose replica drained gets the grace more.
            Conn::Drained => Some(counted_from(began_ms).saturating_add(context.grace_ms)),
            Conn::Lost | Conn::Left => Some(counted_from(began_ms)),
        };
        // What its replica still lived to see is told by it; what came later is told by nobody.
        let told_by = |since_ms: Millis| own.filter(|&own| own <= since_ms);
        let ripe_ms = match owner {
            Owner::Reporting => own,
            // Decision 9: only a replica may report silence.
            Owner::Unobserved { since_ms } | Owner::Forgotten { since_ms } => told_by(since_ms),
            // Decision 9: its links count as lost, and its members may turn dark this much later.
            Owner::Gone { since_ms, at_ms } => told_by(since_ms).or_else(|| {
                let late = counted_from(at_ms).saturating_add(context.grace_ms);
                Some(own.map_or(late, |own| own.max(late)))
            }),
        };
        Self { heard_ms: Some(heard_ms), began_ms, ripe_ms }
    }

    /// When its silence has lasted a third of `dark_after` longer than it takes to be dark.
    fn long_ms(&self, context: &Context) -> Option<Millis> {
        Some(self.ripe_ms?.saturating_add(context.dark_after_ms / 3))
    }

    /// Decision 11: who left leaves *seen* after this.
    fn left_counts_until(&self, context: &Context) -> Millis {
        self.heard_ms.unwrap_or(context.now_ms).saturating_add(context.dark_after_ms)
    }

    /// Whether the silence began in the window of decision 11: from the later of the soak's start
    /// and taking the candidate until soak and `dark_after` are over, never shorter than
    /// `dark_after`; or in the window of an earlier stage.
    fn in_window(&self, record: &Record, context: &Context) -> bool {
        let closes_ms = if self.began_ms >= context.soak_since_ms {
            control_window_closes(context)
        } else {
            context.earlier_until_ms
        };
        let least_ms = record.first_to_ms.unwrap_or(0).saturating_add(context.dark_after_ms);
        self.began_ms <= closes_ms.max(least_ms)
    }

    fn class(&self, record: &Record, context: &Context, owner: Owner, now_ms: Millis) -> Class {
        let observed = record.observed.map(|(_, observed)| observed);
        let foreign = observed.is_some_and(|observed| observed.foreign);
        let seat = match observed.map_or(Seat::Outside, |observed| observed.seat) {
            Seat::Stage(stage) if u32::from(stage) > context.stage => Seat::Outside,
            seat => seat,
        };
        let left = record.conn.is_some_and(|(_, conn)| conn == Conn::Left);
        let silent = !left && self.ripe_ms.is_some_and(|ripe_ms| ripe_ms <= now_ms);
        let heard_since_soak =
            self.heard_ms.is_none_or(|heard_ms| heard_ms >= context.soak_since_ms);
        let arm = record.arm.map_or(Reading::Unknown, |(_, arm)| arm);
        let is_member = matches!(seat, Seat::Stage(_));
        let is_control = seat == Seat::Control && !foreign && !left && heard_since_soak;

        // Decisions 10 to 13: only a served member halts anything.
        let condition = (is_member && !foreign)
            .then(|| {
                halt::first_that_holds(&Facts {
                    failed_now: record.failed_now(),
                    took_candidate: record.took_candidate(),
                    silence: silent.then(|| Silence {
                        began_ms: self.began_ms,
                        in_window: self.in_window(record, context),
                    }),
                })
            })
            .flatten();
        let dark = condition.is_some_and(|condition| condition.outage_explains());
        // Decision 14: of C, those with a silence that began in the window.
        let control_dark = is_control
            && silent
            && self.began_ms >= context.soak_since_ms
            && self.began_ms <= control_window_closes(context);

        // Decision 7, "which records count"; decision 9, who is forgotten expires.
        let expired = if left {
            now_ms >= self.left_counts_until(context)
        } else {
            silent || matches!(owner, Owner::Forgotten { .. })
        };
        let counts = match seat {
            Seat::Stage(_) => condition.is_some() || !expired,
            Seat::Control => is_control && (control_dark || !expired),
            Seat::Outside => false,
        };
        Class {
            counts,
            seat,
            foreign,
            arm,
            condition: condition.map(|condition| condition.name()),
            failed: condition.is_some() && !dark,
            dark,
            long_dark: dark && self.long_ms(context).is_some_and(|long_ms| long_ms <= now_ms),
            unobserved: counts && !left && matches!(owner, Owner::Unobserved { .. }),
            left,
            control_dark,
            heard_since_soak,
            taken: counts
                && is_member
                && !foreign
                && (dark || matches!(arm, Reading::Taking | Reading::To)),
            silent_since_ms: self.heard_ms.map(|_| self.began_ms),
            next_ms: None,
        }
    }
}

/// Where the window closes for who had the candidate when it opened, and for the control group.
fn control_window_closes(context: &Context) -> Millis {
    context.soak_since_ms.saturating_add(context.soak_ms).saturating_add(context.dark_after_ms)
}
