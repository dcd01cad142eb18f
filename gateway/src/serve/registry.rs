//! Which link an instance uid lives on.

use dashmap::DashMap;
use proto::ids::InstanceUid;

use super::links::LinkId;

/// Where an agent was heard last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// On a WebSocket.
    Link(LinkId),
    /// Over HTTP.
    Http,
}

/// Four bytes per agent instead of eight.
const HTTP: u32 = u32::MAX;

impl Owner {
    fn pack(self) -> u32 {
        match self {
            Self::Link(link) => link.0,
            Self::Http => HTTP,
        }
    }

    fn unpack(packed: u32) -> Self {
        if packed == HTTP { Self::Http } else { Self::Link(LinkId(packed)) }
    }
}

/// Every agent of this process. Touched when an agent comes and when it goes, never per message.
#[derive(Debug, Default)]
pub(super) struct Registry {
    owners: DashMap<InstanceUid, u32>,
}

impl Registry {
    /// The newest wins; returns who had the uid before, if that was somebody else.
    pub(super) fn insert(&self, uid: InstanceUid, owner: Owner) -> Option<Owner> {
        let before = self.owners.insert(uid, owner.pack()).map(Owner::unpack);
        before.filter(|before| *before != owner)
    }

    /// Forgets the uid, unless it lives elsewhere by now; says which.
    pub(super) fn remove(&self, uid: InstanceUid, owner: Owner) -> bool {
        self.owners.remove_if(&uid, |_, packed| *packed == owner.pack()).is_some()
    }

    pub(super) fn get(&self, uid: &InstanceUid) -> Option<Owner> {
        self.owners.get(uid).map(|packed| Owner::unpack(*packed))
    }

    pub(super) fn len(&self) -> usize {
        self.owners.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_wins_and_an_old_close_is_harmless() {
        let registry = Registry::default();
        let uid = InstanceUid([1; 16]);
        let (old, new) = (Owner::Link(LinkId(4)), Owner::Link(LinkId(5)));
        assert_eq!(registry.insert(uid, old), None);
        assert_eq!(registry.insert(uid, old), None, "it is its own");
        assert_eq!(registry.insert(uid, new), Some(old));
        registry.remove(uid, old);
        assert_eq!(registry.get(&uid), Some(new));
        assert_eq!(registry.insert(uid, Owner::Http), Some(new));
        registry.remove(uid, Owner::Http);
        assert_eq!(registry.get(&uid), None);
        assert_eq!(registry.len(), 0);
    }
}
