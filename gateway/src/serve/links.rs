//! Which links there are: a slab with 32-bit names, so that the rest of the process can speak of a
//! link without keeping it alive.

use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use proto::prefetch;

use super::LinkState;

/// Names a link for as long as it lives; used again for another link after that.
///
/// Who ends a link calls [`Server::handle_closed`](super::Server::handle_closed) before
/// [`Links::remove`], so that nothing in the server still means the old link by this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// What the transport keeps per link, as far as the server needs to know it.
pub trait Linked: Send + Sync {
    /// Runs `with` on the link's state under the link's own lock.
    fn with_state(&self, with: &mut dyn FnMut(&mut LinkState));
}

/// Pages through links without knowing what kind of link it is.
pub trait Pages: Send + Sync {
    /// Visits the state of each link from `from` on, in the order of ids, until `visit` breaks.
    fn visit(&self, from: LinkId, visit: &mut dyn FnMut(LinkId, &mut LinkState) -> ControlFlow<()>);
}

/// All live links of this process: a slab under a lock that is held for a few nanoseconds, once per
/// connect and once per close, never per message.
#[derive(Debug)]
pub struct Links<L> {
    slots: RwLock<Slots<L>>,
    capacity: u32,
}

#[derive(Debug)]
struct Slots<L> {
    links: Vec<Option<Arc<L>>>,
    free: Vec<u32>,
}

/// No more links fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no link is free")]
pub struct LinksFull;

/// Slots looked at per turn of the lock by [`Links::for_each`]: so few that what is asked for ahead
/// is still there when it is visited.
const TURN: u32 = 64;

impl<L> Links<L> {
    /// Room for `capacity` links, grown as they come.
    pub fn new(capacity: u32) -> Self {
        let slots = Slots { links: Vec::new(), free: Vec::new() };
        Self { slots: RwLock::new(slots), capacity }
    }

    /// Makes a link that knows its own name.
    ///
    /// # Errors
    ///
    /// [`LinksFull`] when `capacity` links are alive; `make` is not called then.
    pub fn insert_with(&self, make: impl FnOnce(LinkId) -> Arc<L>) -> Result<Arc<L>, LinksFull> {
        let mut slots = self.write();
        if let Some(slot) = slots.free.pop() {
            let link = make(LinkId(slot));
            slots.links[slot as usize] = Some(Arc::clone(&link));
            return Ok(link);
        }
        let slot = u32::try_from(slots.links.len()).map_err(|_| LinksFull)?;
        if slot >= self.capacity {
            return Err(LinksFull);
        }
        let link = make(LinkId(slot));
        slots.links.push(Some(Arc::clone(&link)));
        Ok(link)
    }

    /// The link of that name, if it lives.
    pub fn get(&self, id: LinkId) -> Option<Arc<L>> {
        self.read().links.get(id.0 as usize).cloned().flatten()
    }

    /// Forgets a link; its name may be given to the next one at once.
    pub fn remove(&self, id: LinkId) -> Option<Arc<L>> {
        let mut slots = self.write();
        let link = slots.links.get_mut(id.0 as usize)?.take()?;
        slots.free.push(id.0);
        Some(link)
    }

    /// How many links live.
    pub fn len(&self) -> usize {
        let slots = self.read();
        slots.links.len() - slots.free.len()
    }

    /// Whether no link lives.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Visits each link from `from` on in the order of names, holding the lock only to copy a few
    /// at a time. A link that comes or goes meanwhile may or may not be visited.
    pub fn for_each(
        &self,
        from: LinkId,
        visit: &mut dyn FnMut(LinkId, &Arc<L>) -> ControlFlow<()>,
    ) {
        let mut next = Some(from);
        let mut turn = Vec::with_capacity(TURN as usize);
        while let Some(from) = next {
            next = self.next_from(from, TURN, &mut turn);
            for (id, link) in turn.drain(..) {
                if visit(id, &link).is_break() {
                    return;
                }
            }
        }
    }

    /// Copies out the links of the next `slots` slots from `from` on, and says where to go on:
    /// `None` after the last. Each is asked for from memory: of thousands, none has stayed in a cache.
    pub fn next_from(
        &self,
        from: LinkId,
        slots: u32,
        links: &mut Vec<(LinkId, Arc<L>)>,
    ) -> Option<LinkId> {
        let all = self.read();
        let rest = all.links.get(from.0 as usize..).unwrap_or_default();
        let page = rest.get(..slots as usize).unwrap_or(rest);
        for link in page.iter().flatten() {
            prefetch::near_soon(&**link);
        }
        let live = (from.0..).zip(page).filter_map(|(id, link)| Some((LinkId(id), link.clone()?)));
        links.extend(live);
        (page.len() < rest.len()).then(|| LinkId(from.0 + slots))
    }

    fn read(&self) -> RwLockReadGuard<'_, Slots<L>> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Slots<L>> {
        self.slots.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: Linked> Pages for Links<L> {
    fn visit(
        &self,
        from: LinkId,
        visit: &mut dyn FnMut(LinkId, &mut LinkState) -> ControlFlow<()>,
    ) {
        self.for_each(from, &mut |id, link| {
            let mut flow = ControlFlow::Continue(());
            link.with_state(&mut |state| flow = visit(id, state));
            flow
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(links: &Links<u32>) -> Result<u32, LinksFull> {
        links.insert_with(|id| Arc::new(id.0)).map(|link| *link)
    }

    #[test]
    fn a_name_is_used_again_only_after_its_link_is_removed() {
        let links = Links::new(3);
        assert_eq!((insert(&links), insert(&links), insert(&links)), (Ok(0), Ok(1), Ok(2)));
        assert_eq!(insert(&links), Err(LinksFull));
        assert_eq!(links.remove(LinkId(1)).as_deref(), Some(&1));
        assert_eq!(links.remove(LinkId(1)), None);
        assert_eq!(links.len(), 2);
        assert_eq!(insert(&links), Ok(1));
        assert_eq!(insert(&links), Err(LinksFull));
        assert_eq!(links.get(LinkId(7)), None);
    }

    #[test]
    fn visits_in_order_from_a_name_on_and_stops_when_told() {
        let links = Links::new(u32::MAX);
        let turn = TURN as usize;
        for _ in 0..turn * 2 + 5 {
            insert(&links).expect("room");
        }
        links.remove(LinkId(3));
        let mut seen = Vec::new();
        links.for_each(LinkId(2), &mut |id, link| {
            assert_eq!(id.0, **link);
            seen.push(id.0);
            if seen.len() == turn + 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(seen[..3], [2, 4, 5]);
        assert_eq!(seen.len(), turn + 1);
        let mut all = 0;
        links.for_each(LinkId(0), &mut |_, _| {
            all += 1;
            ControlFlow::Continue(())
        });
        assert_eq!(all, links.len());
    }

    #[test]
    fn pages_are_as_long_as_asked_for_and_join() {
        let links = Links::new(u32::MAX);
        for _ in 0..10 {
            insert(&links).expect("room");
        }
        links.remove(LinkId(4));
        for slots in [1, 3, 5, 10, 11] {
            let (mut next, mut seen, mut pages) = (Some(LinkId(0)), Vec::new(), 0);
            while let Some(from) = next {
                let before = seen.len();
                next = links.next_from(from, slots, &mut seen);
                assert!(seen.len() - before <= slots as usize);
                pages += 1;
            }
            let ids: Vec<_> = seen.iter().map(|(id, link)| (id.0, **link)).collect();
            let expected: Vec<_> = (0..10).filter(|id| *id != 4).map(|id| (id, id)).collect();
            assert_eq!((ids, pages), (expected, 10_u32.div_ceil(slots)));
        }
        assert_eq!(links.next_from(LinkId(10), 3, &mut Vec::new()), None);
    }
}
