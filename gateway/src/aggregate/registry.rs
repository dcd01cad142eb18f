//! On an aggregator: which replicas are connected. A name belongs to one process at a time, and a
//! process to one connection.

use std::collections::BTreeMap;

use render::rollout::evidence::Millis;

/// Replicas that are connected at one time.
pub const REPLICAS_CONNECTED_MAX: usize = 1_024;

/// Those that are connected, by name.
#[derive(Debug, Default)]
pub(super) struct Registry {
    connected: BTreeMap<Box<str>, Connected>,
    connections: u64,
}

#[derive(Clone, Copy, Debug)]
struct Connected {
    incarnation: u32,
    started_ms: Millis,
    connection: u64,
}

/// A process of a replica that says Hello.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival<'a> {
    pub(crate) name: &'a str,
    pub(crate) incarnation: u32,
    /// By its own clock, as it always said.
    pub(crate) started_ms: Millis,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Admitted {
    pub(super) connection: u64,
    /// A process of the same name whose place it took.
    pub(super) ousted: Option<u32>,
}

/// Why a replica is not talked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The certificate is somebody else's.
    #[error("it calls itself {name:?}, but its certificate is {certified:?}'s")]
    Name {
        /// What it calls itself.
        name: Box<str>,
        /// What the certificate says.
        certified: Box<str>,
    },
    /// It has none.
    #[error("it has no name")]
    NoName,
    /// Two replicas have been given one name.
    #[error("a process that started later has the name {0:?}: give each replica a name of its own")]
    Older(Box<str>),
    /// Two processes have drawn the same number.
    #[error("its incarnation is {0:?}'s: start it again")]
    Incarnation(Box<str>),
    /// There are too many.
    #[error("{REPLICAS_CONNECTED_MAX} replicas are connected, and more are not taken in")]
    Full,
    /// It speaks nothing that is spoken here.
    #[error(
        "it speaks formats {theirs:?}, and this gateway speaks {:?}: upgrade the older one",
        proto::uplink::FORMATS
    )]
    Formats {
        /// What it speaks.
        theirs: Vec<u16>,
    },
}

impl Registry {
    /// A process says Hello. A later one of the same name takes over, and so does a later
    /// connection of the same process.
    ///
    /// # Errors
    /// Another one has the name, or there are too many.
    pub(super) fn admit(&mut self, arrival: Arrival<'_>) -> Result<Admitted, Refusal> {
        let Arrival { name, incarnation, started_ms } = arrival;
        let before = self.connected.get(name).copied();
        let ousted = match before {
            None if self.connected.len() >= REPLICAS_CONNECTED_MAX => return Err(Refusal::Full),
            Some(known) if known.incarnation == incarnation => None,
            Some(known) if known.started_ms > started_ms => {
                return Err(Refusal::Older(name.into()));
            }
            Some(known) => Some(known.incarnation),
            None => None,
        };
        self.connections += 1;
        let connection = self.connections;
        self.connected.insert(name.into(), Connected { incarnation, started_ms, connection });
        Ok(Admitted { connection, ousted })
    }

    /// Whether a connection is still the one of its name.
    pub(super) fn is_current(&self, name: &str, connection: u64) -> bool {
        self.connected.get(name).is_some_and(|known| known.connection == connection)
    }

    /// A connection has ended. Whether it was the one of its name.
    pub(super) fn leave(&mut self, name: &str, connection: u64) -> bool {
        let current = self.is_current(name, connection);
        if current {
            self.connected.remove(name);
        }
        current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(incarnation: u32, started_ms: Millis) -> Arrival<'static> {
        Arrival { name: "edge-1", incarnation, started_ms }
    }

    #[test]
    fn a_later_process_of_a_name_takes_over_and_an_earlier_one_is_refused() {
        let mut registry = Registry::default();
        let first = registry.admit(arrival(1, 100)).unwrap();
        let second = registry.admit(arrival(2, 200)).unwrap();
        assert_eq!(second.ousted, Some(1));
        assert!(!registry.is_current("edge-1", first.connection));
        assert_eq!(registry.admit(arrival(1, 100)), Err(Refusal::Older("edge-1".into())));
        assert!(!registry.leave("edge-1", first.connection));
        assert!(registry.leave("edge-1", second.connection));
        assert_eq!(registry.admit(arrival(1, 100)).unwrap().ousted, None);
    }

    #[test]
    fn a_second_connection_of_a_process_takes_over_from_the_first() {
        let mut registry = Registry::default();
        let first = registry.admit(arrival(1, 100)).unwrap();
        let second = registry.admit(arrival(1, 100)).unwrap();
        assert_eq!(second.ousted, None);
        assert!(!registry.is_current("edge-1", first.connection));
        assert!(registry.is_current("edge-1", second.connection));
    }

    #[test]
    fn no_more_than_so_many_are_connected() {
        let mut registry = Registry::default();
        for at in 0..REPLICAS_CONNECTED_MAX {
            let name = at.to_string();
            registry.admit(Arrival { name: &name, incarnation: 1, started_ms: 1 }).unwrap();
        }
        assert_eq!(registry.admit(arrival(1, 1)), Err(Refusal::Full));
    }
}
