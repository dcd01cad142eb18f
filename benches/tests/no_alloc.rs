//! What the hot path allocates, counted: nothing but what a link keeps of its agent.
#![expect(unsafe_code, reason = "a global allocator can only be written with it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use benches::{heads, messages};
use gateway::aggregate::{self, Aggregator};
use gateway::clock::Now;
use gateway::metrics::Metrics;
use gateway::serve::{HeadMeta, LinkId, LinkState, Outgoing, Server, Settings, encode_offer};
use gateway::tokens::Grant;
use proto::frame::strip_header;
use render::snapshot::{Snapshot, compile};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u32> = const { Cell::new(0) };
}

// SAFETY: every call goes to `System` unchanged; the counter is a `Cell` of this thread that needs
// neither allocation nor a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const NOW: Now = Now { seconds: 1, unix_ms: 1_700_000_000_000 };

fn snapshot(tiers: usize) -> Snapshot {
    compile(&heads::served(tiers).expect("no artefact is blank"), encode_offer).expect("compiles")
}

fn server(tiers: usize) -> Server {
    let settings = Settings::default();
    let metrics = Metrics::leak();
    let aggregator = Aggregator::in_memory(aggregate::Settings::default(), metrics, NOW);
    Server::new(snapshot(tiers), HeadMeta::default(), metrics, settings, aggregator, NOW)
}

fn link(n: u32) -> LinkState {
    LinkState::new(LinkId(n), Grant::default())
}

/// How often `run` allocates.
fn allocations<R>(run: impl FnOnce() -> R) -> (u32, R) {
    let before = ALLOCATIONS.get();
    let result = run();
    (ALLOCATIONS.get() - before, result)
}

fn handle(server: &Server, link: &mut LinkState, framed: &[u8]) -> (u32, Outgoing) {
    allocations(|| server.handle_message(link, NOW, strip_header(framed).expect("a header")))
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| Box::new(1)).0, 1);
    assert_eq!(allocations(|| 1).0, 0);
}

#[test]
fn a_heartbeat_allocates_nothing() {
    let server = server(100);
    let mut link = link(0);
    let (_, first) = handle(&server, &mut link, &messages::described(0, 0, 7));
    assert!(first.body.is_some());
    for sequence in 1..100 {
        let (allocated, reply) = handle(&server, &mut link, &messages::heartbeat(0, sequence));
        assert_eq!((allocated, reply.len()), (0, 20));
    }
}

#[test]
fn a_status_allocates_nothing() {
    let server = server(100);
    let mut link = link(0);
    handle(&server, &mut link, &messages::described(0, 0, 7));
    let tier = &server.head().snapshot.tiers;
    let content = tier.iter().find(|tier| tier.id.ends_with("/tier-00007")).expect("Tier 7");
    let applied = messages::applied(0, 1, &content.base.content.to_hex());
    let (allocated, reply) = handle(&server, &mut link, &applied);
    assert_eq!((allocated, reply.len()), (0, 20));
    assert_eq!(server.tiers().iter().flat_map(|tier| tier.cells()).count(), 1);
}

/// However many Tiers there are: its attributes, and what evidence tells it by under a Rollout.
#[test]
fn a_connect_allocates_what_the_link_keeps_and_nothing_else() {
    for tiers in [10, 2_000] {
        let server = server(tiers);
        let mut links: Vec<_> = (0..2_000).map(link).collect();
        // The first look at a head from a thread allocates that thread's place to look from, and
        // the first collectors under a Rollout the place for its evidence.
        for n in 0..2_000 {
            let first = messages::described(10_000 + n, 0, n as usize % tiers);
            handle(&server, &mut link(10_000 + n), &first);
        }
        let mut worst = 0;
        let (mut exact, mut counted) = (0, 0);
        for (n, link) in (0..).zip(&mut links) {
            let tier = n as usize % tiers;
            let (allocated, reply) = handle(&server, link, &messages::described(n, 0, tier));
            assert!(reply.body.is_some());
            let kept = 1 + u32::from(heads::is_staged(tier));
            assert!(allocated >= kept, "{allocated} of {kept}");
            worst = worst.max(allocated - kept);
            // With two collectors to a Rollout, each is among the first.
            if tiers == 10 || !heads::is_staged(tier) {
                counted += 1;
                exact += u32::from(allocated == kept);
            }
        }
        // The registry of uids grows a shard now and then, and so does the evidence.
        assert!(worst <= 8, "{worst}");
        assert!(exact * 5 >= counted * 4, "{exact} of {counted}");
    }
}

/// A collector under a Rollout that has nothing new to say.
#[test]
fn what_evidence_knows_already_allocates_nothing() {
    let server = server(100);
    let staged = (0..100).find(|tier| heads::is_staged(*tier)).expect("a Rollout");
    let mut link = link(0);
    handle(&server, &mut link, &messages::described(0, 0, staged));
    let head = server.head();
    let id = format!("/tier-{staged:05}");
    let tier = head.snapshot.tiers.iter().find(|tier| tier.id.ends_with(&id)).expect("the Tier");
    let content = tier.base.content.to_hex();
    handle(&server, &mut link, &messages::applied(0, 1, &content));
    for sequence in 2..100 {
        let message = match sequence % 3 {
            0 => messages::heartbeat(0, sequence),
            1 => messages::applied(0, sequence, &content),
            _ => messages::described(0, sequence, staged),
        };
        let (allocated, _) = handle(&server, &mut link, &message);
        assert_eq!(allocated, 0, "message {sequence}");
        server.handle_silence(&mut link, NOW, NOW.seconds, &|| false);
    }
}

#[test]
fn a_description_that_has_not_changed_allocates_nothing() {
    let server = server(100);
    let mut link = link(0);
    handle(&server, &mut link, &messages::described(0, 0, 8));
    let (allocated, _) = handle(&server, &mut link, &messages::described(0, 1, 8));
    assert_eq!(allocated, 0);
    let (allocated, moved) = handle(&server, &mut link, &messages::described(0, 2, 9));
    assert_eq!(allocated, 0, "values of the same length fit where the old ones were");
    assert!(moved.body.is_some());
}

#[test]
fn deciding_again_after_a_head_change_allocates_nothing() {
    let server = server(100);
    let mut links: Vec<_> = (0..100).map(link).collect();
    for (n, link) in (0..).zip(&mut links) {
        handle(&server, link, &messages::described(n, 0, n as usize));
    }
    // The same names are mentioned, other Tiers have moved in front.
    let mut served = heads::served(100).expect("no artefact is blank");
    let first = served.tiers.values().next().expect("a Tier").clone();
    served.tiers.insert("a/a".into(), render::snapshot::served::ServedTier { next: None, ..first });
    let snapshot = compile(&served, encode_offer).expect("compiles");
    server.install(snapshot, HeadMeta::default(), NOW);
    for link in &mut links {
        let mut offers = 0;
        let (allocated, visit) = allocations(|| {
            server.redecide(link, NOW, &mut |_| {
                offers += 1;
                std::ops::ControlFlow::Continue(())
            })
        });
        assert_eq!(allocated, 0);
        assert!(visit.is_continue());
        assert!(offers <= 1);
    }
}
