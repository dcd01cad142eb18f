//! Where pending tasks go: one pass plans from a reading of the store, then claims each place.

use std::collections::BTreeMap;

use crate::error::{Error, Kind};
use crate::records::{Constraint, Context, Node, Publication, Resources, Severity, Task, Token};
use crate::rules::Switch;
use crate::status::{NodeStatus, TaskStatus};
use crate::store::MemoryStore;
use crate::time::Id;

/// The first and last port that is given to a service that asks for any.
const PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;

/// A failed task with this in its reason keeps its ports: something else on the node holds them.
const PORT_FAILURE: &str = "port allocation";

/// One claim of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Which task.
    pub task: Id,
    /// Where.
    pub node: Id,
    /// With which ports.
    pub ports: Vec<Publication>,
    /// The task as it was read.
    pub token: Token,
}

/// What a pass would do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Claims, by task.
    pub placements: Vec<Placement>,
    /// Tasks that fit nowhere.
    pub unplaced: Vec<Id>,
}

/// What a pass did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Applied {
    /// Tasks placed.
    pub assigned: usize,
    /// Claims that somebody else was ahead of.
    pub raced: usize,
    /// Tasks that fit nowhere.
    pub unplaced: usize,
}

/// Plans and claims.
///
/// # Errors
/// As [`apply`].
pub fn pass(store: &mut MemoryStore) -> Result<Applied, Error> {
    let plan = plan(store);
    apply(store, &plan)
}

/// Where each pending task would go. Charges every placement at once, so that the plan as a whole
/// fits; looks neither at what is desired of a task nor at how old a heartbeat is.
pub fn plan(store: &MemoryStore) -> Plan {
    let mut offers: Vec<Offer<'_>> = store
        .nodes()
        .filter(|node| node.status == NodeStatus::Ready)
        .map(|node| Offer::of(store, node))
        .collect();
    let mut plan = Plan::default();
    for task in store.tasks().filter(|task| task.actual == TaskStatus::Pending) {
        let request = store.request_of(task.service);
        let best = offers
            .iter_mut()
            .filter(|offer| offer.fits(store, task, request))
            .filter_map(|offer| Some((offer.ports_for(store, task)?, offer)))
            .min_by_key(|(_, offer)| {
                let free = offer.free.minus(request);
                let same = offer.per_service.get(&task.service).copied().unwrap_or(0);
                (std::cmp::Reverse(free.memory), same, offer.tasks, offer.node.id)
            });
        let Some((ports, offer)) = best else {
            plan.unplaced.push(task.id);
            continue;
        };
        offer.free = offer.free.minus(request);
        offer.tasks += 1;
        *offer.per_service.entry(task.service).or_default() += 1;
        offer.taken.extend(ports.iter().map(|port| (port.protocol.clone(), port.published)));
        plan.placements.push(Placement {
            task: task.id,
            node: offer.node.id,
            ports,
            token: task.token(),
        });
    }
    plan
}

/// Claims what was planned. A claim that comes too late is skipped without an event.
///
/// # Errors
/// Any refusal other than a conflict or a missing object ends the pass.
pub fn apply(store: &mut MemoryStore, plan: &Plan) -> Result<Applied, Error> {
    let mut applied = Applied { unplaced: plan.unplaced.len(), ..Applied::default() };
    let context = Context::default();
    for claim in &plan.placements {
        match store.assign_task(&context, claim.task, claim.node, claim.ports.clone(), claim.token)
        {
            Ok(()) => {
                applied.assigned += 1;
                let message = format!("task assigned to node {}", claim.node);
                event(store, Severity::Info, "task.assigned", claim.task, message);
            }
            Err(error) => match error.kind() {
                Kind::Conflict | Kind::NotFound => applied.raced += 1,
                Kind::InvalidState
                | Kind::Duplicate
                | Kind::Admission
                | Kind::Quota
                | Kind::Cancelled
                | Kind::Storage => return Err(error),
            },
        }
    }
    for task in &plan.unplaced {
        let message = "no ready node has room for the task".to_owned();
        event(store, Severity::Warning, "scheduler.unable_to_place", *task, message);
    }
    Ok(applied)
}

/// CPU and memory left on a node by its tasks.
pub fn free_on(store: &MemoryStore, node: Id) -> Option<Resources> {
    store.node(node).ok().map(|node| Offer::of(store, node).free)
}

/// What a node has to give while a plan grows.
struct Offer<'s> {
    node: &'s Node,
    /// May be below zero after a cut of the capacity.
    free: Resources,
    tasks: usize,
    per_service: BTreeMap<Id, usize>,
    taken: Vec<(String, u16)>,
}

impl<'s> Offer<'s> {
    fn of(store: &'s MemoryStore, node: &'s Node) -> Self {
        let mut offer = Self {
            node,
            free: node.allocatable,
            tasks: 0,
            per_service: BTreeMap::new(),
            taken: Vec::new(),
        };
        let processes = store.rules().has(Switch::Processes);
        for task in store.tasks().filter(|task| task.node == Some(node.id)) {
            let costs = if processes { task.has_process() } else { task.is_active() };
            if costs {
                offer.free = offer.free.minus(store.request_of(task.service));
                offer.tasks += 1;
                *offer.per_service.entry(task.service).or_default() += 1;
            }
            let stuck =
                task.actual == TaskStatus::Failed && task.failure_reason.contains(PORT_FAILURE);
            if costs || stuck {
                offer
                    .taken
                    .extend(task.ports.iter().map(|port| (port.protocol.clone(), port.published)));
            }
        }
        offer
    }

    fn fits(&self, store: &MemoryStore, task: &Task, request: Resources) -> bool {
        let constraints = store
            .services()
            .find(|service| service.id == task.service)
            .map_or(&[][..], |service| &service.spec.constraints);
        self.free.holds(request)
            && constraints.iter().all(|constraint| holds(constraint, self.node))
            && store.volume_elsewhere(task.service, self.node.id).is_none()
    }

    /// The ports a task would get here, if they are free.
    fn ports_for(&self, store: &MemoryStore, task: &Task) -> Option<Vec<Publication>> {
        let service = store.services().find(|service| service.id == task.service)?;
        let mut given: Vec<Publication> = Vec::new();
        for port in &service.spec.ports {
            let free = |candidate: u16, given: &[Publication]| {
                !self
                    .taken
                    .iter()
                    .any(|(protocol, taken)| *protocol == port.protocol && *taken == candidate)
                    && !given
                        .iter()
                        .any(|own| own.protocol == port.protocol && own.published == candidate)
            };
            let published = if port.published == 0 {
                PORTS.into_iter().find(|candidate| free(*candidate, &given))?
            } else {
                free(port.published, &given).then_some(port.published)?
            };
            given.push(Publication {
                protocol: port.protocol.clone(),
                published,
                target: port.target,
            });
        }
        Some(given)
    }
}

fn holds(constraint: &Constraint, node: &Node) -> bool {
    let label = node.labels.get(&constraint.key);
    match constraint.operator.as_str() {
        "equals" => label == Some(&constraint.value),
        "not_equals" => label != Some(&constraint.value),
        _ => false,
    }
}

fn event(
    store: &mut MemoryStore,
    severity: Severity,
    kind: &'static str,
    task: Id,
    message: String,
) {
    let namespace = match store.task(&Context::default(), task) {
        Ok(task) => task.namespace.clone(),
        Err(_) => String::new(),
    };
    let object = ("task", task);
    store.emit(severity, "scheduler", kind, object, &namespace, message, BTreeMap::new());
}
