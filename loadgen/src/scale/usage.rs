//! What the processes of a run take of the machine: looked at again and again, as one that has ended
//! tells nothing any more.

use std::collections::BTreeMap;

use super::outcome::{Category, Machine};
use crate::host;

/// Kinds of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Gateway,
    Worker,
    Coordinator,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateways",
            Self::Worker => "workers",
            Self::Coordinator => "coordinator",
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    kind: Kind,
    resident: u64,
    cpu: (f64, f64),
}

/// All processes so far.
#[derive(Debug)]
pub(super) struct Usage {
    seen: BTreeMap<u32, Seen>,
    most: BTreeMap<Kind, u64>,
    settled: BTreeMap<Kind, u64>,
    before: u64,
    least: u64,
    available_settled: Option<u64>,
}

impl Usage {
    /// Before anything is started.
    pub(super) fn begin() -> Self {
        let available = host::available_bytes();
        let mut usage = Self {
            seen: BTreeMap::new(),
            most: BTreeMap::new(),
            settled: BTreeMap::new(),
            before: available,
            least: available,
            available_settled: None,
        };
        usage.add(std::process::id(), Kind::Coordinator);
        usage
    }

    /// There is another process.
    pub(super) fn add(&mut self, pid: u32, kind: Kind) {
        self.seen.insert(pid, Seen { kind, resident: 0, cpu: (0.0, 0.0) });
    }

    /// Looks at all of them.
    pub(super) fn look(&mut self) {
        for (pid, seen) in &mut self.seen {
            match host::usage_of(*pid) {
                Some((resident, cpu)) => (seen.resident, seen.cpu) = (resident, cpu),
                None => seen.resident = 0, // gone; what it used it has used
            }
        }
        for (kind, resident) in self.resident() {
            let most = self.most.entry(kind).or_default();
            *most = resident.max(*most);
        }
        self.least = self.least.min(host::available_bytes());
    }

    /// All collectors have settled for the first time.
    pub(super) fn settled(&mut self) {
        self.look();
        self.settled = self.resident();
        self.available_settled = Some(host::available_bytes());
    }

    fn resident(&self) -> BTreeMap<Kind, u64> {
        let mut resident = BTreeMap::new();
        for seen in self.seen.values() {
            *resident.entry(seen.kind).or_default() += seen.resident;
        }
        resident
    }

    /// What came of it all.
    pub(super) fn report(&self, worker_bytes_per_collector: Option<f64>) -> Machine {
        let mut processes: BTreeMap<Kind, Category> = BTreeMap::new();
        for seen in self.seen.values() {
            let category = processes.entry(seen.kind).or_default();
            category.kind = seen.kind.name();
            category.count += 1;
            category.cpu_user_s += seen.cpu.0;
            category.cpu_system_s += seen.cpu.1;
        }
        for (kind, category) in &mut processes {
            category.most_bytes = self.most.get(kind).copied().unwrap_or_default();
            category.settled_bytes = self.settled.get(kind).copied().unwrap_or_default();
        }
        Machine {
            floor: None,
            floor_after: None,
            available_before_bytes: self.before,
            available_settled_bytes: self.available_settled,
            available_least_bytes: self.least,
            processes: processes.into_values().collect(),
            worker_bytes_per_collector,
        }
    }
}
