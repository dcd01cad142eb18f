//! Two links that claim one instance uid (serving.md, decision 13), as a pure state machine.
//!
//! The newcomer is served at once. The old link is pinged: when nothing comes back it is dead, a
//! half-open socket that its collector has left behind, and is dropped. When an answer comes there
//! are two agents, and the newcomer is told another uid with the next reply that it gets; at most
//! once per uid and hour, so that two clones never fight.
//!
//! A new uid is expensive (a supervisor restarts its collector), so it is not given when the doubt
//! is for the agent: when either link ever carried several agents (a bridge answers for all), when
//! the sequence numbers go on where the old link's ended, or when either side polls over HTTP.

use std::collections::VecDeque;

use proto::ids::InstanceUid;
use proto::session::Seconds;

use super::links::LinkId;

/// An old link that has not answered a ping in this time is dead.
pub const PING_SECONDS: Seconds = 5;
/// A uid is replaced at most once in this time.
pub const VERDICT_SECONDS: Seconds = 60 * 60;
/// Contests at one time. Past it a newcomer is served all the same, and both links stay.
pub const CONTESTS_MAX: usize = 4_096;
/// Uids that are remembered as replaced; past it the oldest is forgotten.
pub const VERDICTS_MAX: usize = 16_384;
/// The newcomer's sequence number goes on where the old link's ended when it is at most this far
/// ahead: messages written into a dead socket were counted too.
const CONTINUES_WITHIN: u64 = 16;

/// What the transport has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Under the link's lock call [`Server::handle_pinged`](super::Server::handle_pinged), then
    /// send a ping.
    Ping {
        /// The old link.
        link: LinkId,
        /// The uid that two links claim.
        uid: InstanceUid,
    },
    /// End this link without ceremony: nobody is at the other end.
    Drop {
        /// The old link.
        link: LinkId,
    },
}

/// Contests that are going on, and verdicts of the last hour.
#[derive(Debug, Default)]
pub(super) struct Duplicates {
    contests: Vec<Contest>,
    /// Oldest first.
    replaced: VecDeque<(InstanceUid, Seconds)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Contest {
    uid: InstanceUid,
    old: LinkId,
    /// `None` when the newcomer polls over HTTP.
    new: Option<LinkId>,
    newcomer_sequence: u64,
    /// No new uid, whatever comes of it.
    exempt: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The old link has to be pinged.
    Fresh,
    /// It is being pinged.
    Ordered { at: Seconds },
    /// It was pinged.
    Pinged { at: Seconds },
    /// It answered; the newcomer's next reply tells it another uid.
    Proven,
}

impl Duplicates {
    /// Whether anything is to be looked at when a message or a pong arrives.
    pub(super) fn is_idle(&self) -> bool {
        self.contests.is_empty()
    }

    /// How many uids were found on two living links within the last hour.
    pub(super) fn replaced(&self, now: Seconds) -> usize {
        self.replaced.iter().filter(|(_, at)| now.saturating_sub(*at) < VERDICT_SECONDS).count()
    }

    /// `new` claims the uid of `old`; `new` is `None` when it polls. Returns whether there was room.
    pub(super) fn handle_claim(
        &mut self,
        uid: InstanceUid,
        old: LinkId,
        new: Option<LinkId>,
        newcomer_sequence: u64,
        newcomer_many: bool,
    ) -> bool {
        if self.contests.len() >= CONTESTS_MAX {
            return false;
        }
        let exempt = new.is_none() || newcomer_many;
        let state = State::Fresh;
        self.contests.push(Contest { uid, old, new, newcomer_sequence, exempt, state });
        true
    }

    /// The old link is about to be pinged; this is what it knows of the agent. `sequence` is `None`
    /// when it has no such agent any more.
    pub(super) fn handle_pinged(
        &mut self,
        now: Seconds,
        link: LinkId,
        uid: InstanceUid,
        sequence: Option<u64>,
        many: bool,
    ) {
        let Some(sequence) = sequence else {
            self.contests.retain(|contest| !(contest.old == link && contest.uid == uid));
            return;
        };
        for contest in &mut self.contests {
            if contest.old != link || contest.uid != uid {
                continue;
            }
            let State::Ordered { .. } = contest.state else { continue };
            let ahead = contest.newcomer_sequence.wrapping_sub(sequence);
            contest.exempt |= many || (1..=CONTINUES_WITHIN).contains(&ahead);
            contest.state = State::Pinged { at: now };
        }
    }

    /// Something was heard on a link: if it was pinged, its agent lives.
    pub(super) fn handle_alive(&mut self, now: Seconds, link: LinkId) {
        if self.contests.is_empty() {
            return;
        }
        let replaced = &self.replaced;
        let spared = |uid| {
            replaced
                .iter()
                .any(|(known, at)| *known == uid && now.saturating_sub(*at) < VERDICT_SECONDS)
        };
        self.contests.retain_mut(|contest| {
            let State::Pinged { .. } = contest.state else { return true };
            if contest.old != link {
                return true;
            }
            contest.state = State::Proven;
            !contest.exempt && !spared(contest.uid)
        });
    }

    /// Whether the agent that has just sent a message on `link` is to take another uid. Says so
    /// once: whoever asks sends it.
    pub(super) fn take_verdict(
        &mut self,
        now: Seconds,
        link: LinkId,
        uid: InstanceUid,
        many: bool,
    ) -> bool {
        let found = self.contests.iter().position(|contest| {
            contest.state == State::Proven && contest.new == Some(link) && contest.uid == uid
        });
        let Some(at) = found else { return false };
        self.contests.swap_remove(at);
        if many || self.spared(now, uid) {
            return false;
        }
        if self.replaced.len() == VERDICTS_MAX {
            self.replaced.pop_front();
        }
        self.replaced.push_back((uid, now));
        true
    }

    /// A link is gone, and with it every contest that it took part in.
    pub(super) fn handle_closed(&mut self, link: LinkId) {
        self.contests.retain(|contest| contest.old != link && contest.new != Some(link));
    }

    /// Gives out what is to be done by now. Call it about once per second.
    pub(super) fn handle_timeout(&mut self, now: Seconds, orders: &mut Vec<Order>) {
        while let Some((_, at)) = self.replaced.front()
            && now.saturating_sub(*at) >= VERDICT_SECONDS
        {
            self.replaced.pop_front();
        }
        self.contests.retain_mut(|contest| match contest.state {
            State::Fresh => {
                contest.state = State::Ordered { at: now };
                orders.push(Order::Ping { link: contest.old, uid: contest.uid });
                true
            }
            // Whole seconds: more than five of them may be just over four apart.
            State::Pinged { at } if now.saturating_sub(at) > PING_SECONDS => {
                orders.push(Order::Drop { link: contest.old });
                false
            }
            // The transport found no such link.
            State::Ordered { at } => now.saturating_sub(at) <= PING_SECONDS,
            State::Pinged { .. } | State::Proven => true,
        });
        orders.dedup();
    }

    fn spared(&self, now: Seconds, uid: InstanceUid) -> bool {
        let recent = |at| now.saturating_sub(at) < VERDICT_SECONDS;
        self.replaced.iter().any(|(known, at)| *known == uid && recent(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: InstanceUid = InstanceUid([7; 16]);
    const OLD: LinkId = LinkId(1);
    const NEW: LinkId = LinkId(2);

    fn orders(duplicates: &mut Duplicates, now: Seconds) -> Vec<Order> {
        let mut orders = Vec::new();
        duplicates.handle_timeout(now, &mut orders);
        orders
    }

    /// A contest whose old link, at sequence number 40, was pinged at second 10.
    fn pinged(newcomer_sequence: u64, many: bool) -> Duplicates {
        let mut duplicates = Duplicates::default();
        assert!(duplicates.handle_claim(UID, OLD, Some(NEW), newcomer_sequence, false));
        assert_eq!(orders(&mut duplicates, 10), [Order::Ping { link: OLD, uid: UID }]);
        duplicates.handle_pinged(10, OLD, UID, Some(40), many);
        duplicates
    }

    #[test]
    fn silence_for_five_seconds_means_the_old_link_is_dead() {
        let mut duplicates = pinged(0, false);
        for now in 10..=15 {
            assert_eq!(orders(&mut duplicates, now), []);
        }
        assert_eq!(orders(&mut duplicates, 16), [Order::Drop { link: OLD }]);
        assert!(duplicates.is_idle());
        assert!(!duplicates.take_verdict(17, NEW, UID, false));
    }

    #[test]
    fn an_answer_gives_the_newcomer_another_uid_once() {
        let mut duplicates = pinged(0, false);
        assert!(!duplicates.take_verdict(11, NEW, UID, false), "not proven yet");
        duplicates.handle_alive(11, NEW);
        assert!(!duplicates.take_verdict(11, NEW, UID, false), "only the old link can answer");
        duplicates.handle_alive(12, OLD);
        assert_eq!(orders(&mut duplicates, 30), []);
        assert!(!duplicates.take_verdict(31, OLD, UID, false), "the old one keeps it");
        assert!(duplicates.take_verdict(31, NEW, UID, false));
        assert!(!duplicates.take_verdict(32, NEW, UID, false));
        assert_eq!(duplicates.replaced(32), 1);
    }

    #[test]
    fn a_uid_is_replaced_at_most_once_per_hour() {
        let mut duplicates = pinged(0, false);
        duplicates.handle_alive(12, OLD);
        assert!(duplicates.take_verdict(12, NEW, UID, false));
        let again = |duplicates: &mut Duplicates, now| {
            duplicates.handle_claim(UID, OLD, Some(NEW), 0, false);
            orders(duplicates, now);
            duplicates.handle_pinged(now, OLD, UID, Some(40), false);
            duplicates.handle_alive(now, OLD);
            duplicates.take_verdict(now, NEW, UID, false)
        };
        assert!(!again(&mut duplicates, 13));
        assert!(!again(&mut duplicates, 12 + VERDICT_SECONDS - 1));
        assert!(duplicates.is_idle());
        assert!(again(&mut duplicates, 12 + VERDICT_SECONDS));
    }

    #[test]
    fn the_same_process_keeps_its_uid() {
        for (sequence, same) in [(40, false), (41, true), (56, true), (57, false), (0, false)] {
            let mut duplicates = pinged(sequence, false);
            duplicates.handle_alive(11, OLD);
            assert_eq!(duplicates.take_verdict(11, NEW, UID, false), !same, "{sequence}");
        }
    }

    #[test]
    fn bridges_and_pollers_keep_theirs() {
        let mut old_bridge = pinged(0, true);
        old_bridge.handle_alive(11, OLD);
        assert!(!old_bridge.take_verdict(11, NEW, UID, false));

        let mut new_bridge = pinged(0, false);
        new_bridge.handle_alive(11, OLD);
        assert!(!new_bridge.take_verdict(11, NEW, UID, true));

        let mut poller = Duplicates::default();
        poller.handle_claim(UID, OLD, None, 0, false);
        assert_eq!(orders(&mut poller, 1), [Order::Ping { link: OLD, uid: UID }]);
        poller.handle_pinged(1, OLD, UID, Some(40), false);
        poller.handle_alive(1, OLD);
        assert!(poller.is_idle());
    }

    #[test]
    fn what_is_over_is_forgotten() {
        let mut closed = pinged(0, false);
        closed.handle_closed(OLD);
        assert!(closed.is_idle());
        let mut closed = pinged(0, false);
        closed.handle_closed(NEW);
        assert!(closed.is_idle());

        let mut left = Duplicates::default();
        left.handle_claim(UID, OLD, Some(NEW), 0, false);
        orders(&mut left, 1);
        left.handle_pinged(1, OLD, UID, None, false);
        assert!(left.is_idle(), "the old link has no such agent any more");

        let mut unknown = Duplicates::default();
        unknown.handle_claim(UID, OLD, Some(NEW), 0, false);
        orders(&mut unknown, 1);
        assert_eq!(orders(&mut unknown, 7), []);
        assert!(unknown.is_idle(), "the transport knows no such link");
    }

    #[test]
    fn contests_and_verdicts_have_a_limit() {
        let mut duplicates = Duplicates::default();
        for n in 0..CONTESTS_MAX {
            assert!(duplicates.handle_claim(UID, LinkId(n as u32), Some(NEW), 0, false));
        }
        assert!(!duplicates.handle_claim(UID, OLD, Some(NEW), 0, false));
    }
}
