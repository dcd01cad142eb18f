//! From a cell to its report: counted, judged, braked (rollouts.md, decisions 14 to 16).

use std::fmt;
use std::sync::Arc;

use proto::uplink::HALTS_MAX;
use render::rollout::evidence::{self, Millis, ReportKey, Seat};
use render::rollout::halt::CONDITIONS;
use render::rollout::report::{
    CohortLine, HALTED_MAX, HaltedMember, ProposalState, ReplicaLine, RolloutReport,
};
use render::rollout::verdict::{Kind, Tally, Terms, Times, Verdict, judge};
use render::snapshot::Arm;

use super::cell::{Cell, SHARDS};
use super::replicas::Replicas;
use super::shard::{Member, Shard};
use super::sights::Began;
use super::store::{Brake, CellRow, Kind as Row, row_key};
use crate::metrics::family::Histogram;

/// What of a cell changes with heads and verdicts, not with collectors.
#[derive(Debug)]
pub(super) struct State {
    pub(super) row: CellRow,
    /// `None` while it is not in head.
    pub(super) facts: Option<Facts>,
    /// The `halt` block was edited, and nothing was judged by it yet.
    pub(super) awaits_verdict: bool,
    /// When it came into head; `None` while it is not in it.
    pub(super) entered_ms: Option<Millis>,
    /// Who is on its Tier in this process.
    population: Option<Arc<dyn Population>>,
    /// Digests of the `halt` blocks that it was judged by in this process, newest last.
    judged: Vec<u64>,
    report: Option<Arc<RolloutReport>>,
    listed: Listed,
}

/// What a head says of a Rollout.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) tier: Box<str>,
    pub(super) owner: Box<str>,
    pub(super) from: Box<str>,
    pub(super) to: Box<str>,
    pub(super) head: Box<str>,
    pub(super) base: Box<str>,
    pub(super) cohorts: Vec<CohortLine>,
    pub(super) terms: Terms,
    pub(super) began: Began,
    pub(super) report_key: ReportKey,
    /// Replicas that report this report key, as of the last verdict.
    pub(super) replicas: u32,
    /// Collectors without a place yet, at other processes that report it.
    pub(super) awaited: u64,
}

/// `tidegate_rollout_convergence_seconds` of one Rollout.
#[derive(Debug)]
pub(super) struct Convergence {
    pub(super) to: Arc<Histogram>,
    pub(super) from: Arc<Histogram>,
}

/// What a verdict is made with besides the cell.
pub(super) struct Inputs<'i> {
    pub(super) replicas: &'i Replicas,
    pub(super) notices: &'i [String],
    pub(super) proposal: Option<ProposalState>,
}

/// The collectors of one Tier, counted by whoever serves them.
pub trait Population: fmt::Debug + Send + Sync {
    /// How many there are, by the last place that each was given.
    fn collectors(&self) -> u64;
}

/// Halted members by shard, kept while the shard says that nothing has changed.
#[derive(Debug, Default)]
struct Listed {
    shards: Vec<(u64, Vec<HaltedMember>)>,
    /// There was no room for all, so nothing can be kept.
    cut: bool,
}

impl State {
    pub(super) fn new(row: CellRow) -> Self {
        Self {
            row,
            facts: None,
            awaits_verdict: false,
            entered_ms: None,
            population: None,
            judged: Vec::new(),
            report: None,
            listed: Listed::default(),
        }
    }

    /// The brake in force, for the `halt` block that is in head.
    pub(super) fn brake(&self) -> Option<Brake> {
        self.row.brakes.get(&self.row.halt).copied()
    }

    /// What replicas are told: digests of the `halt` blocks that were judged by, and of those whose
    /// brake is on, the one in head first.
    pub(super) fn told(&self) -> (Vec<u64>, Vec<u64>) {
        let mut brakes: Vec<(bool, Option<Millis>, u64)> = (self.row.brakes.iter())
            .map(|(halt, brake)| (*halt == self.row.halt, brake.left_ms, *halt))
            .collect();
        // Those that left head longest ago come last, should there be no room for all.
        brakes.sort_unstable_by_key(|(in_head, left_ms, _)| {
            (!in_head, left_ms.is_some(), std::cmp::Reverse(*left_ms))
        });
        let braked = brakes.into_iter().map(|(_, _, halt)| halt).take(HALTS_MAX);
        (self.judged.clone(), braked.collect())
    }

    /// It has left head.
    pub(super) fn retire(&mut self) {
        self.facts = None;
        self.entered_ms = None;
        self.population = None;
        self.report = None;
        self.listed = Listed::default();
    }

    fn times(facts: &Facts, now_ms: Millis, evidence_since_ms: Millis) -> Times {
        Times {
            now_ms,
            evidence_since_ms,
            stage_since_ms: facts.began.stage_since_ms,
            stage_since: facts.began.stage_since,
            candidate_since_ms: facts.began.candidate_since_ms,
            soak_since_ms: facts.began.soak_since_ms,
        }
    }
}

impl Convergence {
    pub(super) fn get(&self, arm: Arm) -> &Histogram {
        match arm {
            Arm::To => &self.to,
            Arm::From | Arm::None | Arm::Unmatched => &self.from,
        }
    }
}

impl Cell {
    /// Puts the brake on if what is known now crosses the threshold: between two verdicts.
    #[cold]
    pub(super) fn brake_if_due(&self, now_ms: Millis) {
        let mut state = self.state();
        let Some(facts) = &state.facts else { return };
        if state.brake().is_some() {
            return;
        }
        let awaited = self.awaited(&state, now_ms);
        let tally = Tally { replicas: facts.replicas, awaited, ..self.tally() };
        let since_ms = self.shared().judged_since_ms(now_ms);
        let times = State::times(facts, now_ms, since_ms);
        if judge(&facts.terms, &tally, &times).kind == Kind::Abort {
            self.put_brake(&mut state, now_ms);
        }
    }

    /// Judges the cell as it is now; `None` when it is not in head. Says also whether the report
    /// tells something else than the one before.
    pub(super) fn judge(
        &self,
        now_ms: Millis,
        inputs: Inputs<'_>,
    ) -> Option<(Arc<RolloutReport>, bool)> {
        let mut guard = self.state();
        let state = &mut *guard;
        let facts = state.facts.as_mut()?;
        facts.replicas = inputs.replicas.agreeing(&self.key().rollout, &facts.report_key);
        facts.awaited = inputs.replicas.awaited(&self.key().rollout, &facts.report_key);
        // Whoever put the brake on may have looked at the clock after our caller did.
        let brake_ms = state.row.brakes.get(&state.row.halt).map_or(0, |brake| brake.since_ms);
        let since_ms = self.shared().judged_since_ms(now_ms);
        let now_ms = now_ms.max(brake_ms).max(since_ms).max(facts.began.soak_since_ms);
        let (mut tally, halted) = self.count(now_ms, &mut state.listed);
        let facts = state.facts.as_ref()?.clone();
        tally.replicas = facts.replicas;
        tally.awaited = self.awaited(state, now_ms);
        tally.braked = state.brake().is_some();
        let times = State::times(&facts, now_ms, since_ms);
        let mut verdict = judge(&facts.terms, &tally, &times);
        if verdict.kind == Kind::Abort && !tally.braked {
            self.put_brake(state, now_ms);
            tally.braked = true;
            verdict = judge(&facts.terms, &tally, &times);
        }
        let brake = state.brake();
        state.awaits_verdict = false;
        self.refresh_brake(state);
        if !state.judged.contains(&state.row.halt) {
            if state.judged.len() >= HALTS_MAX {
                state.judged.remove(0);
            }
            state.judged.push(state.row.halt);
            self.halts().note_state(self.shared());
        }

        let key = self.key();
        let hex = |hash: &render::artefact::ContentHash| hash.to_string();
        let report = Arc::new(RolloutReport {
            rollout: key.rollout.to_string(),
            tier: facts.tier.to_string(),
            owner: facts.owner.to_string(),
            from: facts.from.to_string(),
            to: facts.to.to_string(),
            head: facts.head.to_string(),
            origin: key.origin.as_deref().map(str::to_owned),
            base: facts.base.to_string(),
            candidate: hex(&key.candidate),
            cohorts: facts.cohorts,
            terms: facts.terms,
            times,
            tally,
            verdict,
            braked_since_ms: brake.map(|brake| brake.since_ms),
            halted,
            replicas: inputs.replicas.lines(now_ms, &key.rollout, &facts.report_key),
            notices: inputs.notices.to_vec(),
            proposal: inputs.proposal,
        });
        let same = state.report.as_deref().is_some_and(|before| tells_the_same(before, &report));
        state.report = Some(Arc::clone(&report));
        Some((report, !same))
    }

    /// Who is on its Tier, by the head before this one, and has not been given a place under it yet.
    /// Who was not heard for `dark_after` since is not waited for any longer.
    fn awaited(&self, state: &State, now_ms: Millis) -> u64 {
        let waits = state.facts.as_ref().zip(state.entered_ms).is_some_and(|(facts, since_ms)| {
            now_ms < since_ms.saturating_add(facts.terms.dark_after_ms)
        });
        let population = state.population.as_ref().filter(|_| waits);
        let here = population.map_or(0, |tier| tier.collectors().saturating_sub(self.followed()));
        here.saturating_add(state.facts.as_ref().map_or(0, |facts| facts.awaited))
    }

    /// Who is on its Tier in this process and has no place under it yet.
    pub(crate) fn awaits(&self, now_ms: Millis) -> u64 {
        self.awaited(&self.state(), now_ms)
    }

    /// Who is on its Tier in this process, from now on.
    pub fn set_population(&self, population: Arc<dyn Population>) {
        self.state().population = Some(population);
    }

    /// Counts and lists each shard at one moment, so that the list names those that are counted.
    fn count(&self, now_ms: Millis, listed: &mut Listed) -> (Tally, Vec<HaltedMember>) {
        let context = self.context();
        let mut tally = Tally::new(context.terms.stage);
        let mut room = [HALTED_MAX; 2];
        let mut cut = false;
        if listed.cut {
            listed.shards.clear();
        }
        listed.shards.resize_with(SHARDS, Default::default);
        let mut lists = listed.shards.iter_mut();
        self.each_shard(|shard| {
            // A shard that is not there has no list either.
            let (Some(shard), Some((version, lines))) = (shard, lists.next()) else { return };
            shard.count(&mut tally);
            if *version != shard.halted_version() {
                *version = shard.halted_version();
                let meaning = |member: &Member<'_>| context.meaning(now_ms, &member.record);
                *lines = lines_of(shard, &mut room, &mut cut, meaning);
            }
        });
        let all = || listed.shards.iter().flat_map(|(_, lines)| lines);
        listed.cut = cut || all().count() > HALTED_MAX;
        let mut halted: Vec<HaltedMember> = all().cloned().collect();
        halted.sort_unstable_by(|one, other| (rank(one), one).cmp(&(rank(other), other)));
        halted.truncate(HALTED_MAX);
        (tally, halted)
    }

    /// Decision 16: it holds until its key leaves head, and the earliest instant wins.
    fn put_brake(&self, state: &mut State, now_ms: Millis) {
        let halt = state.row.halt;
        state.row.brakes.entry(halt).or_insert(Brake { since_ms: now_ms, left_ms: None });
        self.refresh_brake(state);
        self.halts().note_state(self.shared());
        self.write_row(state, true);
        tracing::warn!(
            rollout = &*self.key().rollout,
            candidate = %self.key().candidate,
            "the abort threshold is crossed: the candidate is offered to nobody new"
        );
    }

    /// Decisions 16 and 17: whether the candidate may be offered to nobody new.
    pub(super) fn refresh_brake(&self, state: &State) {
        let links = &self.shared().links;
        let braked = if self.shared().judges() {
            state.brake().is_some() || state.awaits_verdict
        } else {
            self.above().is_braked(state.row.halt, links.counting(), links.synced())
        };
        self.set_braked(braked);
    }

    /// Hands the row to the store.
    pub(super) fn write_row(&self, state: &State, urgent: bool) {
        let Some(store) = &self.shared().store else { return };
        match serde_json::to_vec(&state.row) {
            Ok(row) => store.put_row(row_key(Row::Cell, self.number(), ""), row, urgent),
            Err(error) => tracing::error!(%error, "a row of the store cannot be encoded"),
        }
    }
}

/// Lines of the halted members of one shard, as far as there is room: for those that no outage
/// explains, and for the others.
fn lines_of(
    shard: &Shard,
    room: &mut [usize; 2],
    cut: &mut bool,
    meaning: impl Fn(&Member<'_>) -> evidence::Class,
) -> Vec<HaltedMember> {
    if !shard.has_halted() {
        return Vec::new();
    }
    let mut lines = Vec::new();
    for member in shard.halted() {
        let room = &mut room[usize::from(!member.class.is_failed())];
        if *room == 0 {
            *cut = true;
            continue;
        }
        *room -= 1;
        lines.push(line(&member, &meaning(&member)));
    }
    lines
}

fn line(member: &Member<'_>, meaning: &evidence::Class) -> HaltedMember {
    let text = |part: fn(&super::shard::Text) -> &str| member.text.map_or("", part).to_owned();
    let identity = member.identity.to_string();
    let label = text(|text| &text.label);
    let failed_ms = member.record.failed.map_or(0, |(stamp, _)| stamp.epoch_ms);
    HaltedMember {
        condition: condition(member, meaning).to_owned(),
        error: if member.class.is_failed() { text(|text| &text.error) } else { String::new() },
        version: text(|text| &text.version),
        label: if label.is_empty() { identity.clone() } else { label },
        identity,
        stage: match meaning.seat {
            Seat::Stage(stage) => stage.into(),
            Seat::Control | Seat::Outside => 0,
        },
        since_ms: if member.class.is_failed() {
            failed_ms
        } else {
            meaning.silent_since_ms.unwrap_or(member.record.heard_ms)
        },
    }
}

/// The condition that it has; should time have moved on since it was counted, the first one that
/// counts as it was counted.
fn condition(member: &Member<'_>, meaning: &evidence::Class) -> &'static str {
    let dark = !member.class.is_failed();
    let counted = CONDITIONS.iter().find(|condition| condition.outage_explains() == dark);
    let same = meaning.failed != dark;
    meaning
        .condition
        .filter(|_| same)
        .or_else(|| counted.map(|condition| condition.name()))
        .unwrap_or_default()
}

/// Those that no outage explains come first.
fn rank(line: &HaltedMember) -> bool {
    CONDITIONS
        .iter()
        .any(|condition| condition.name() == line.condition && condition.outage_explains())
}

/// Whether only time has passed between two reports.
pub fn tells_the_same(one: &RolloutReport, other: &RolloutReport) -> bool {
    // All fields by name: a new one must be decided about.
    let RolloutReport {
        rollout,
        tier,
        owner,
        from,
        to,
        head,
        origin,
        base,
        candidate,
        cohorts,
        terms,
        times,
        tally,
        verdict,
        braked_since_ms,
        halted,
        replicas,
        notices,
        proposal,
    } = one;
    let ageless = |line: &ReplicaLine| ReplicaLine { age_ms: 0, ..line.clone() };
    (rollout, tier, owner, from, to)
        == (&other.rollout, &other.tier, &other.owner, &other.from, &other.to)
        && (head, origin, base, candidate)
            == (&other.head, &other.origin, &other.base, &other.candidate)
        && (cohorts, terms, tally) == (&other.cohorts, &other.terms, &other.tally)
        && (braked_since_ms, halted) == (&other.braked_since_ms, &other.halted)
        && (notices, proposal) == (&other.notices, &other.proposal)
        && replicas.iter().map(ageless).eq(other.replicas.iter().map(ageless))
        && Times { now_ms: 0, ..times.clone() } == Times { now_ms: 0, ..other.times.clone() }
        && Verdict { soaked_ms: 0, ..verdict.clone() }
            == Verdict { soaked_ms: 0, ..other.verdict.clone() }
}
