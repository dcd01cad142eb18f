//! What is said to the agents of one transport connection, and remembered of them: sans-IO.
//!
//! A [`Session`] holds every agent of one WebSocket, or the one agent of an HTTP poller. Its owner
//! calls, per message and in this order:
//!
//! 1. [`Session::handle_message`] with what [`Peek`] read. It returns the
//!    [`Agent`] and the [`News`].
//! 2. If the agent described itself: decide where it belongs, and keep that in [`Agent::placed`].
//! 3. [`Agent::handle_decision`] with what it is meant to run, unless that is not known yet.
//! 4. [`Agent::poll_full_state`].
//! 5. Encode exactly one reply ([`ReplyHead`], followed by the offer if there is one).
//! 6. [`Session::handle_disconnect`] if the message said farewell.
//!
//! After a head change, steps 2 and 3 run for each of [`Session::agents_mut`], and only an offer is
//! sent. Time is an argument, in [`Seconds`]. Nothing of a message is kept but fixed-size values:
//! what a peer can make a session grow by is the number of agents ([`AGENTS_MAX`]).

mod agent;
mod content;
mod failures;
mod full_state;
mod reply;

use std::collections::BTreeMap;

pub use agent::{
    Agent, Decision, Delivery, Desired, DesiredCandidate, Exchange, News, REOFFER_SECONDS, Serving,
    UNANSWERED_POLL_SECONDS,
};
pub use content::ContentKey;
pub use failures::{FAILURES_MAX, Failures, RETRY_SECONDS_MAX, RETRY_SECONDS_MIN};
pub use full_state::{FULL_STATE_SECONDS_MAX, FULL_STATE_SECONDS_MIN, FullStateReason};
pub use reply::{ERROR_TEXT_BYTES_MAX, HeadFields, ReplyHead, encode_bad_request, encode_offer};

use crate::ids::InstanceUid;
use crate::peek::Peek;

/// Whole seconds since the process started, from 1; 0 is "never". Lasts 136 years in four bytes.
pub type Seconds = u32;

/// Agents on one connection.
pub const AGENTS_MAX: usize = 16_384;

/// New uids that are remembered per connection until their agents use them.
const ASSIGNED_MAX: usize = 64;

/// The agents of one transport connection. The first one is held in place, others are boxed.
#[derive(Debug)]
pub struct Session<P> {
    first: Option<Agent<P>>,
    more: Option<Box<More<P>>>,
    /// Agents that came, as far as it matters: none, one, several.
    carried: u8,
}

const _: () = assert!(size_of::<Session<()>>() <= 112);

/// What few connections need.
#[derive(Debug)]
struct More<P> {
    agents: BTreeMap<InstanceUid, Agent<P>>,
    /// Uids that were given to agents which have not used them yet, as old and new.
    assigned: Vec<(InstanceUid, InstanceUid)>,
}

/// The agent that a message came from, and what it changed.
#[derive(Debug)]
pub struct Received<'s, P> {
    /// Who sent it.
    pub agent: &'s mut Agent<P>,
    /// What it changed.
    pub news: News,
    /// The uid that this agent had until it took the new one it was given.
    pub renamed_from: Option<InstanceUid>,
}

/// A connection carries [`AGENTS_MAX`] agents already; the message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this connection carries {AGENTS_MAX} agents already")]
pub struct TooManyAgents;

impl<P> Default for Session<P> {
    fn default() -> Self {
        Self { first: None, more: None, carried: 0 }
    }
}

impl<P: Default> Session<P> {
    /// Takes in one message. `content_of_raw` translates a raw hash of head into its content hash.
    ///
    /// # Errors
    ///
    /// [`TooManyAgents`], and nothing has changed.
    pub fn handle_message(
        &mut self,
        now: Seconds,
        exchange: Exchange,
        message: &Peek<'_>,
        content_of_raw: impl FnOnce(&[u8; 32]) -> Option<[u8; 32]>,
    ) -> Result<Received<'_, P>, TooManyAgents> {
        let mut first = false;
        let mut renamed_from = None;
        if self.get(message.uid).is_none() {
            renamed_from = self.rename_assigned(message.uid);
            first = renamed_from.is_none();
            if first {
                self.insert(message.uid)?;
            }
        }
        // Found or inserted just above; the error is the only one there is.
        let agent = self.get_mut(message.uid).ok_or(TooManyAgents)?;
        let news = agent.handle_message(now, exchange, first, message, content_of_raw);
        Ok(Received { agent, news, renamed_from })
    }

    fn insert(&mut self, uid: InstanceUid) -> Result<(), TooManyAgents> {
        if self.len() >= AGENTS_MAX {
            return Err(TooManyAgents);
        }
        self.carried = self.carried.saturating_add(1);
        if self.first.is_none() {
            self.first = Some(Agent::new(uid));
        } else {
            self.more_mut().agents.insert(uid, Agent::new(uid));
        }
        Ok(())
    }

    /// An agent that asked for a uid, or was found to share one, speaks under its new one.
    #[cold]
    fn rename_assigned(&mut self, uid: InstanceUid) -> Option<InstanceUid> {
        let more = self.more.as_mut()?;
        let at = more.assigned.iter().position(|(_, new)| *new == uid)?;
        let (old, _) = more.assigned.remove(at);
        if let Some(mut agent) = more.agents.remove(&old) {
            agent.rename(uid);
            more.agents.insert(uid, agent);
        } else {
            self.first.as_mut().filter(|agent| agent.uid() == old)?.rename(uid);
        }
        Some(old)
    }
}

impl<P> Session<P> {
    /// Gives the agent `old` another uid: remembers `new` until it is used, so that the agent is
    /// recognised. A second call for the same agent returns the uid of the first.
    pub fn assign_uid(&mut self, old: InstanceUid, new: InstanceUid) -> InstanceUid {
        let assigned = &mut self.more_mut().assigned;
        if let Some((_, given)) = assigned.iter().find(|(from, _)| *from == old) {
            return *given;
        }
        if assigned.len() == ASSIGNED_MAX {
            assigned.remove(0);
        }
        assigned.push((old, new));
        new
    }

    /// The uid that was given to an agent which has not used it yet.
    pub fn assigned_uid(&self, old: InstanceUid) -> Option<InstanceUid> {
        let assigned = &self.more.as_ref()?.assigned;
        assigned.iter().find(|(from, _)| *from == old).map(|(_, new)| *new)
    }

    /// Forgets an agent that said farewell, and returns what was kept of it. The connection stays.
    pub fn handle_disconnect(&mut self, uid: InstanceUid) -> Option<Agent<P>> {
        if let Some(more) = &mut self.more {
            more.assigned.retain(|(old, _)| *old != uid);
        }
        if self.first.as_ref().is_some_and(|agent| agent.uid() == uid) {
            return self.first.take();
        }
        self.more.as_mut()?.agents.remove(&uid)
    }

    /// An agent by its uid.
    pub fn get(&self, uid: InstanceUid) -> Option<&Agent<P>> {
        match &self.first {
            Some(agent) if agent.uid() == uid => Some(agent),
            _ => self.more.as_ref()?.agents.get(&uid),
        }
    }

    /// An agent by its uid.
    pub fn get_mut(&mut self, uid: InstanceUid) -> Option<&mut Agent<P>> {
        match &mut self.first {
            Some(agent) if agent.uid() == uid => Some(agent),
            _ => self.more.as_mut()?.agents.get_mut(&uid),
        }
    }

    /// Every agent: the first one, then the others in the order of their uids.
    pub fn agents(&self) -> impl Iterator<Item = &Agent<P>> {
        let more = self.more.iter().flat_map(|more| more.agents.values());
        self.first.iter().chain(more)
    }

    /// As [`Session::agents`].
    pub fn agents_mut(&mut self) -> impl Iterator<Item = &mut Agent<P>> {
        let more = self.more.iter_mut().flat_map(|more| more.agents.values_mut());
        self.first.iter_mut().chain(more)
    }

    /// Takes every agent out, when the connection has ended.
    pub fn into_agents(self, take: impl FnMut(Agent<P>)) {
        let more = self.more.into_iter().flat_map(|more| more.agents.into_values());
        self.first.into_iter().chain(more).for_each(take);
    }

    /// How many agents there are.
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.as_ref().map_or(0, |more| more.agents.len())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it ever carried more than one agent: a bridge answers pings for all of its.
    pub fn ever_many(&self) -> bool {
        self.carried > 1
    }

    fn more_mut(&mut self) -> &mut More<P> {
        self.more
            .get_or_insert_with(|| Box::new(More { agents: BTreeMap::new(), assigned: Vec::new() }))
    }
}

#[cfg(test)]
mod tests;
