//! One page of the collectors that live here, for people to look at.

use std::fmt;
use std::ops::ControlFlow;
use std::str::FromStr;

use proto::ids::InstanceUid;
use proto::session::{Agent, ContentKey, Delivery};
use render::rollout::evidence::Reading;
use render::snapshot::Arm;

use super::decide::Placed;
use super::head::Head;
use super::links::{LinkId, Pages};
use super::registry::Owner;
use super::{LinkState, Server};
use crate::clock::Now;

/// Collectors on one page.
pub const PAGE_MAX: usize = 1_000;

/// Where a page begins: what [`Page::next`] said, or the default. Its text is opaque.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// WebSockets from a link on, without its first agents.
    Links {
        /// The link.
        from: u32,
        /// Agents of it that were shown already.
        skip: u32,
    },
    /// HTTP sessions.
    Polling {
        /// Which part of them.
        shard: u32,
        /// From which on.
        from: u32,
    },
}

/// A text that is no [`Cursor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor that a page was given with")]
pub struct ParseCursorError;

/// Some of the collectors, in an order that holds while nobody comes or goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The collectors.
    pub rows: Vec<CollectorRow>,
    /// Where the next page begins, `None` when this was the last.
    pub next: Option<Cursor>,
}

/// One collector as its session remembers it. Texts in it are the peer's: escape them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorRow {
    /// What it calls itself.
    pub uid: InstanceUid,
    /// Where it lives.
    pub owner: Owner,
    /// Whether it has described itself; before that it belongs nowhere.
    pub described: bool,
    /// The Tier that its attributes lead to, `None` when Unmatched or not described.
    pub tier: Option<Box<str>>,
    /// The Rollout that stages the Tier.
    pub rollout: Option<Box<str>>,
    /// What it is meant to be served. A Cohort member on which the candidate failed shows
    /// [`Arm::To`] with [`Delivery::Failed`], and is served the base.
    pub arm: Option<Arm>,
    /// What it runs, as far as it can be told; `None` where no Rollout wants to know.
    pub running: Option<Reading>,
    /// It lacks a hash attribute, and no other form admits it.
    pub no_bucket: bool,
    /// How far it is with what it is served.
    pub delivery: Option<Delivery>,
    /// First half of the content hash last offered on this link.
    pub offered: Option<ContentKey>,
    /// First half of the content hash last reported.
    pub reported: Option<ContentKey>,
    /// Its health as last reported.
    pub healthy: Option<bool>,
    /// What it says it can do.
    pub capabilities: u64,
    /// Of its last message.
    pub sequence: u64,
    /// Seconds since its last message.
    pub heard_seconds_ago: u32,
    /// Its values for the attributes that head mentions, by name.
    pub attributes: Vec<(Box<str>, Box<str>)>,
}

impl Default for Cursor {
    fn default() -> Self {
        Self::Links { from: 0, skip: 0 }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Links { from, skip } => write!(f, "w{from}.{skip}"),
            Self::Polling { shard, from } => write!(f, "h{shard}.{from}"),
        }
    }
}

impl FromStr for Cursor {
    type Err = ParseCursorError;

    fn from_str(text: &str) -> Result<Self, ParseCursorError> {
        let (kind, rest) = text.split_at_checked(1).ok_or(ParseCursorError)?;
        let (a, b) = rest.split_once('.').ok_or(ParseCursorError)?;
        let number = |text: &str| text.parse().map_err(|_| ParseCursorError);
        let (a, b) = (number(a)?, number(b)?);
        match kind {
            "w" => Ok(Self::Links { from: a, skip: b }),
            "h" => Ok(Self::Polling { shard: a, from: b }),
            _ => Err(ParseCursorError),
        }
    }
}

impl Server {
    /// At most `limit` collectors, and no more than [`PAGE_MAX`], from a cursor on. Takes each
    /// link's lock for the time of a copy.
    pub fn collectors(&self, links: &dyn Pages, now: Now, from: Cursor, limit: usize) -> Page {
        let head = self.head.load();
        let limit = limit.clamp(1, PAGE_MAX);
        let mut page = Page::default();
        let mut polling = (0, 0);
        match from {
            Cursor::Polling { shard, from } => polling = (shard, from),
            Cursor::Links { from, skip } => {
                links.visit(LinkId(from), &mut |id, link| {
                    let skip = if id.0 == from { skip } else { 0 };
                    for (at, agent) in (0u32..).zip(link.session.agents()).skip(skip as usize) {
                        if page.rows.len() == limit {
                            page.next = Some(Cursor::Links { from: id.0, skip: at });
                            return ControlFlow::Break(());
                        }
                        page.rows.push(row(&head, now, link, agent));
                    }
                    ControlFlow::Continue(())
                });
            }
        }
        if page.next.is_some() {
            return page;
        }
        self.polling.visit(polling, &mut |behind, link| {
            if page.rows.len() == limit {
                page.next = Some(Cursor::Polling { shard: behind.0, from: behind.1 - 1 });
                return false;
            }
            page.rows.extend(link.session.agents().map(|agent| row(&head, now, link, agent)));
            true
        });
        page
    }

    /// One agent, while it is on `link`.
    pub fn collector(&self, link: &LinkState, now: Now, uid: InstanceUid) -> Option<CollectorRow> {
        let agent = link.session.get(uid)?;
        Some(row(&self.head.load(), now, link, agent))
    }
}

fn row(head: &Head, now: Now, link: &LinkState, agent: &Agent<Placed>) -> CollectorRow {
    let placement = agent.placed.placement(head).filter(|_| agent.described());
    let tier = placement.and_then(|placement| placement.tier);
    let tier = tier.and_then(|tier| head.snapshot.tiers.get(tier as usize));
    let rollout = placement.and_then(|placement| placement.rollout);
    let rollout = rollout.and_then(|rollout| head.snapshot.rollouts.get(rollout as usize));
    let attributes = agent.placed.attributes(head);
    let some = |content: ContentKey| content.is_some().then_some(content);
    CollectorRow {
        uid: agent.uid(),
        owner: link.owner,
        described: agent.described(),
        tier: tier.map(|entry| entry.id.clone()),
        rollout: rollout.map(|compiled| compiled.rollout.id.clone()),
        arm: placement.map(|placement| placement.arm),
        running: super::track::reading(head, agent).filter(|_| placement.is_some()),
        no_bucket: placement.is_some_and(|placement| placement.no_bucket),
        delivery: placement.map(|placement| {
            agent.delivery(now.seconds, &head.desired(placement.tier, placement.arm))
        }),
        offered: some(agent.offered()),
        reported: some(agent.reported()),
        healthy: agent.healthy(),
        capabilities: agent.capabilities().0,
        sequence: agent.sequence(),
        heard_seconds_ago: now.seconds.saturating_sub(agent.heard()),
        attributes: attributes.map(|(name, value)| (name.into(), value.into())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_and_other_texts_are_refused() {
        for cursor in [
            Cursor::default(),
            Cursor::Links { from: u32::MAX, skip: 7 },
            Cursor::Polling { shard: 3, from: 99 },
        ] {
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for text in ["", "w", "w1", "x1.2", "w1.2.3", "w-1.2", "é1.2", "w1.99999999999"] {
            assert_eq!(text.parse::<Cursor>(), Err(ParseCursorError), "{text}");
        }
    }
}
