//! How many replicas may be connected, together and from one address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Connections at one time.
pub const CONNECTIONS_MAX: usize = 2_048;
/// Connections from one address at one time: replicas behind one translator share one.
pub const CONNECTIONS_PER_ADDRESS_MAX: usize = 512;

/// Who is connected.
#[derive(Debug, Default)]
pub struct Rooms {
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_address: BTreeMap<IpAddr, usize>,
}

/// One connection's place; free again when dropped.
#[derive(Debug)]
pub struct Room {
    rooms: Arc<Rooms>,
    address: IpAddr,
}

impl Rooms {
    /// A place, if there is one.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Room> {
        let address = address.to_canonical();
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let here = taken.by_address.get(&address).copied().unwrap_or(0);
        if taken.all >= CONNECTIONS_MAX || here >= CONNECTIONS_PER_ADDRESS_MAX {
            return None;
        }
        taken.all += 1;
        taken.by_address.insert(address, here + 1);
        drop(taken);
        Some(Room { rooms: Arc::clone(self), address })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut taken = self.rooms.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        if let Some(here) = taken.by_address.get_mut(&self.address) {
            *here -= 1;
            if *here == 0 {
                taken.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_take_all_the_room_and_all_of_them_no_more_than_there_is() {
        let rooms = Arc::new(Rooms::default());
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let mut held: Vec<Room> = std::iter::from_fn(|| rooms.enter(address(1))).collect();
        assert_eq!(held.len(), CONNECTIONS_PER_ADDRESS_MAX);
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert!(rooms.enter(mapped).is_none(), "the same address");
        for last in 2..20 {
            held.extend(std::iter::from_fn(|| rooms.enter(address(last))));
        }
        assert_eq!(held.len(), CONNECTIONS_MAX);
        held.truncate(CONNECTIONS_PER_ADDRESS_MAX);
        assert!(rooms.enter(address(1)).is_none());
        held.pop();
        assert!(rooms.enter(address(1)).is_some());
        held.clear();
        assert!(rooms.taken.lock().unwrap().by_address.is_empty(), "nothing is remembered");
    }
}
