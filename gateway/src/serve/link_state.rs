//! What the server keeps per link.

use proto::session::{Exchange, Session};

use super::decide::Placed;
use super::links::LinkId;
use super::registry::Owner;
use crate::tokens::Grant;

/// The agents of one link and what it was let in with. Lives under the link's lock.
///
/// Sized for half a million of them: the first agent lies in here, and what it keeps of its
/// attributes is one allocation.
#[derive(Debug)]
pub struct LinkState {
    pub(super) session: Session<Placed>,
    pub(super) grant: Grant,
    pub(super) owner: Owner,
}

const _: () = assert!(size_of::<Session<Placed>>() <= 176);
const _: () = assert!(size_of::<LinkState>() <= 192);

impl LinkState {
    /// A WebSocket on which nothing was said yet.
    pub fn new(id: LinkId, grant: Grant) -> Self {
        Self { session: Session::default(), grant, owner: Owner::Link(id) }
    }

    /// An agent that polls over HTTP.
    pub(super) fn polling(grant: Grant) -> Self {
        Self { session: Session::default(), grant, owner: Owner::Http }
    }

    /// How many agents are on the link.
    pub fn agents(&self) -> usize {
        self.session.len()
    }

    pub(super) fn exchange(&self) -> Exchange {
        match self.owner {
            Owner::Link(_) => Exchange::Stream,
            Owner::Http => Exchange::Poll,
        }
    }
}
