//! Nodes: register, heartbeat, drain, loss.

use std::collections::BTreeMap;

use super::{Guarded, MemoryStore};
use crate::error::Error;
use crate::records::{Context, DEFAULT_NAMESPACE, Node, Resources};
use crate::status::{NodeStatus, TaskStatus};
use crate::time::{Id, SECOND, Utc};

/// The oldest agent that may register.
const AGENT_VERSION_MIN: [u64; 3] = [0, 1, 0];

/// What a node says of itself when it registers.
#[derive(Debug, Clone, Default)]
pub struct Registration {
    /// The natural key.
    pub hostname: String,
    /// Where its agent is reached.
    pub advertise_address: String,
    /// What placement constraints look at.
    pub labels: BTreeMap<String, String>,
    /// What the host has.
    pub capacity: Resources,
    /// What tasks may have of it; at most the capacity.
    pub allocatable: Resources,
    /// `major.minor.patch`, or empty.
    pub agent_version: String,
}

/// What a node says of itself from time to time.
#[derive(Debug, Clone, Default)]
pub struct Heartbeat {
    /// Replaces both fields when either is above zero; not checked.
    pub capacity: Resources,
    /// Replaces both fields when either is above zero; not checked.
    pub allocatable: Resources,
    /// Replaces all labels when there are any to say.
    pub labels: Option<BTreeMap<String, String>>,
    /// The node is going away.
    pub shutdown: bool,
}

impl MemoryStore {
    /// Registers a node, or updates the one of the same host name; then reconciles every service.
    ///
    /// # Errors
    /// [`Error::InvalidState`] for an empty host name or address, resources below zero or beyond the
    /// capacity, and an agent that is too old.
    pub fn register_node(&mut self, context: &Context, given: Registration) -> Result<Id, Error> {
        context.check()?;
        if given.hostname.trim().is_empty() || given.advertise_address.trim().is_empty() {
            return Err(Error::invalid("node without host name or address"));
        }
        let (capacity, allocatable) = (given.capacity, given.allocatable);
        if [capacity.cpu, capacity.memory, allocatable.cpu, allocatable.memory]
            .iter()
            .any(|n| *n < 0)
        {
            return Err(Error::invalid("node with resources below zero"));
        }
        if !capacity.holds(allocatable) {
            return Err(Error::invalid("node with more allocatable than capacity"));
        }
        if is_too_old(&given.agent_version)? {
            return Err(Error::invalid(format!("agent {} is too old", given.agent_version)));
        }
        let now = self.clock.read();
        let known = self.nodes.values_mut().find(|node| node.hostname == given.hostname);
        let id = if let Some(node) = known {
            node.advertise_address = given.advertise_address;
            node.labels = given.labels;
            node.capacity = capacity;
            node.allocatable = allocatable;
            node.agent_version = given.agent_version;
            if matches!(node.status, NodeStatus::Unknown | NodeStatus::Offline) {
                node.status = NodeStatus::Ready;
            }
            node.last_heartbeat_at = now;
            node.updated_at = now;
            node.id
        } else {
            let id = self.ids.next();
            self.nodes.insert(
                id,
                Node {
                    id,
                    hostname: given.hostname,
                    advertise_address: given.advertise_address,
                    labels: given.labels,
                    capacity,
                    allocatable,
                    status: NodeStatus::Ready,
                    last_heartbeat_at: now,
                    created_at: now,
                    updated_at: now,
                    agent_version: given.agent_version,
                },
            );
            id
        };
        self.reconcile_all();
        Ok(id)
    }

    /// Takes what a node says of itself. If it ends ready, every service is reconciled: after a failed
    /// rollout of the baseline this is what starts the failed version everywhere (F4).
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn heartbeat(
        &mut self,
        context: &Context,
        node: Id,
        given: Heartbeat,
    ) -> Result<(), Error> {
        context.check()?;
        let now = self.clock.peek();
        let held = self.nodes.get_mut(&node).ok_or_else(|| Error::not_found("node", node))?;
        for (new, old) in
            [(given.capacity, &mut held.capacity), (given.allocatable, &mut held.allocatable)]
        {
            if new.cpu > 0 || new.memory > 0 {
                *old = new;
            }
        }
        if let Some(labels) = given.labels {
            held.labels = labels;
        }
        if given.shutdown {
            held.status = NodeStatus::Offline;
        } else if held.status == NodeStatus::Offline {
            held.status = NodeStatus::Ready;
        }
        held.last_heartbeat_at = now;
        held.updated_at = now;
        let ready = held.status == NodeStatus::Ready;
        self.clock.read();
        if ready {
            self.reconcile_all();
        }
        Ok(())
    }

    /// Takes a node out of placement. Its tasks stay. Asks for a window of the default namespace.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::OutsideWindow`], [`Error::InvalidState`] unless it is ready.
    pub fn drain_node(&mut self, context: &Context, node: Id) -> Result<(), Error> {
        context.check()?;
        self.node(node)?;
        self.guarded(context, Guarded::NodeDrain, DEFAULT_NAMESPACE, |store| {
            let now = store.clock.read();
            let held = store.nodes.get_mut(&node).ok_or_else(|| Error::not_found("node", node))?;
            held.status.step(NodeStatus::Draining)?;
            held.status = NodeStatus::Draining;
            held.updated_at = now;
            Ok(())
        })
    }

    /// Declares nodes lost that were silent for more than `timeout_seconds`; their active tasks fail,
    /// unless their service is stateful. Then reconciles every service. Returns the nodes.
    ///
    /// # Errors
    /// [`Error::InvalidState`] unless the timeout is above zero.
    pub fn mark_stale_nodes_offline(
        &mut self,
        context: &Context,
        timeout_seconds: i64,
    ) -> Result<Vec<Id>, Error> {
        context.check()?;
        if timeout_seconds <= 0 {
            return Err(Error::invalid("timeout must be above zero"));
        }
        let now = self.clock.read();
        let since = Utc(now.0.saturating_sub(timeout_seconds.saturating_mul(SECOND)));
        let mut lost = Vec::new();
        for node in self.nodes.values_mut() {
            if matches!(node.status, NodeStatus::Ready | NodeStatus::Draining)
                && node.last_heartbeat_at < since
            {
                node.status = NodeStatus::Offline;
                node.updated_at = now;
                lost.push(node.id);
            }
        }
        let hit: Vec<(Id, bool)> = self
            .tasks
            .values()
            .filter(|task| task.is_active() && task.node.is_some_and(|node| lost.contains(&node)))
            .map(|task| {
                let service = self.services.get(&task.service);
                (task.id, service.is_some_and(|service| service.spec.stateful))
            })
            .collect();
        for (task, stateful) in hit {
            self.write_task(task, |task, now| {
                task.conditions.push("node_lost".to_owned());
                if !stateful {
                    task.desired = TaskStatus::Removed;
                    task.actual = TaskStatus::Failed;
                    "node_lost".clone_into(&mut task.failure_reason);
                    task.finished_at = Some(now);
                }
            });
        }
        self.reconcile_all();
        Ok(lost)
    }
}

fn is_too_old(version: &str) -> Result<bool, Error> {
    if version.is_empty() {
        return Ok(false);
    }
    let malformed =
        || Error::invalid(format!("agent version {version:?} is not major.minor.patch"));
    let mut parts = [0_u64; 3];
    let mut given = version.trim_start_matches('v').split('.');
    for part in &mut parts {
        let text = given.next().ok_or_else(malformed)?;
        *part = text.parse().map_err(|_| malformed())?;
    }
    if given.next().is_some() {
        return Err(malformed());
    }
    Ok(parts < AGENT_VERSION_MIN)
}
