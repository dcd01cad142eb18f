//! Looks at the source early when a collector knows more than this replica (`docs/adr/0009`).

use std::sync::Arc;

use crate::listen::Front;
use crate::serve::EARLY_LOOK_MAX;
use crate::source::poll::Early;

/// Looks whenever the server asks for it, then lets go of the offers that waited for it; for ever.
pub async fn run(front: Arc<Front>, early: Arc<Early>) {
    let server = &front.server;
    server.ahead().enable();
    loop {
        server.ahead().asked().await;
        let before = server.head().generation;
        server.ahead().begin();
        let looked = tokio::time::timeout(EARLY_LOOK_MAX, early.look()).await;
        let links = server.ahead().end();
        let outcome = match looked {
            Err(_) => "late",
            Ok(()) if server.head().generation != before => "newer",
            Ok(()) => "nothing",
        };
        front.metrics.early_looks.count(&[outcome]);
        tracing::debug!(
            outcome,
            held = links.len(),
            "looked early: a collector has what is unknown here"
        );
        for link in links {
            if let Some(link) = front.links.get(link) {
                link.decide_held(front.clock.now());
            }
            tokio::task::yield_now().await;
        }
    }
}
