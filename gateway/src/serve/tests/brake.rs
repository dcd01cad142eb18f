//! A candidate that stops by itself: what FAILED is remembered by identity, and past the abort
//! threshold nobody new is offered it (rollouts.md, decisions 16 and 17).

use opamp::RemoteConfigStatuses::{self, Applied, Failed};
use proptest::prelude::*;

use super::*;

const NEXT: &str = "one: next\n";
const BASE: &str = "one: 1\n";
/// Collectors that the Cohort enumerates: the first ones.
const MEMBERS: u32 = 4;
const COLLECTORS: u32 = 6;
/// Evidence is old enough by then for a brake (decision 9).
const SETTLED: u32 = 1_000;

fn staged() -> Estate {
    let hosts: Vec<String> = (0..MEMBERS).map(|n| format!("h{n}")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    Estate::new().tier("a/one", &[("tier", "one")], BASE).rollout(
        "a/one",
        estate::hosts(&hosts),
        NEXT,
    )
}

/// Collector `n` as it calls itself after `starts` starts: a new uid each time, under the same
/// attributes. Every other one has an identifying attribute; the others are known by their host.
fn hello(n: u32, starts: u32, sequence: u64) -> opamp::AgentToServer {
    let host = format!("h{n}");
    let mut message =
        described(n + 100 * starts, sequence, &[("tier", "one"), ("host.name", &host)]);
    if n % 2 == 1
        && let Some(description) = &mut message.agent_description
    {
        description.identifying_attributes = vec![attribute("service.instance.id", &host)];
    }
    message
}

fn status(
    message: opamp::AgentToServer,
    (artefact, status): (&str, RemoteConfigStatuses),
) -> opamp::AgentToServer {
    with_status(message, artefact, status)
}

impl World {
    fn judge(&self) {
        self.server.aggregator().handle_timeout(now(self.now));
    }

    fn is_braked(&self) -> bool {
        self.server.head().evidence.first().is_some_and(|cell| cell.is_braked())
    }
}

/// A world in which one of two members has failed for long enough, and the brake is on.
fn braked() -> World {
    let mut world = World::new(&staged());
    world.now = SETTLED;
    let (one, other) = (world.link(), world.link());
    world.send(one, &status(hello(0, 0, 0), (NEXT, Applied)));
    world.send(other, &status(hello(1, 0, 0), (NEXT, Failed)));
    world.now += 1;
    world.judge();
    assert!(world.is_braked());
    world
}

#[test]
fn past_the_threshold_nobody_new_is_offered_the_candidate() {
    let world = braked();
    let link = world.link();
    assert_eq!(offered(&world.send(link, &hello(2, 0, 0))).as_deref(), Some(BASE));
    assert_eq!(offered(&world.poll(&hello(3, 0, 0))).as_deref(), Some(BASE));
    let unrelated = staged().tier("z/z", &[("tier", "z")], "z: 1\n");
    assert_eq!(world.install(&unrelated), [], "an unrelated merge does not release it");
    let wider = staged().rollout("a/one", estate::hosts(&["h0", "h1", "h2", "h3", "h5"]), NEXT);
    assert_eq!(world.install(&wider), [], "nor does a stage");
    assert!(world.is_braked());
}

#[test]
fn who_runs_the_candidate_keeps_it() {
    let mut world = braked();
    world.now += 60;
    let back = world.link();
    assert_eq!(offered(&world.send(back, &status(hello(0, 1, 0), (NEXT, Applied)))), None);
    assert_eq!(world.install(&staged().tier("z/z", &[("tier", "z")], "z: 1\n")), []);
    let (pending, silent) = (world.link(), hello(2, 0, 0));
    let silent = opamp::AgentToServer { capabilities: ACCEPTS, ..silent };
    assert_eq!(offered(&world.send(pending, &silent)).as_deref(), Some(BASE));
}

#[test]
fn it_ends_when_its_candidate_leaves_head() {
    let world = braked();
    let link = world.link();
    world.send(link, &status(hello(2, 0, 0), (BASE, Applied)));
    let fixed = staged().rollout("a/one", estate::hosts(&["h2"]), "one: fixed\n");
    assert_eq!(world.install(&fixed), [(uid(0), BASE.into()), (uid(2), "one: fixed\n".into())]);
    assert!(!world.is_braked());
}

#[test]
fn a_rollback_brings_exactly_one_offer_of_the_candidate() {
    let mut world = World::new(&staged());
    let mut offers = Vec::new();
    let mut sequence = 0;
    let link = world.link();
    offers.push(offered(&world.send(link, &status(hello(2, 0, 0), (BASE, Applied)))));
    for said in [(NEXT, Failed), (BASE, Applied), (NEXT, Failed), (BASE, Applied)] {
        sequence += 1;
        world.now += 5;
        offers.push(offered(&world.send(link, &status(message(2, sequence), said))));
    }
    world.close(link);
    for starts in 1..4 {
        world.now += 1_000;
        let link = world.link();
        offers.push(offered(&world.send(link, &status(hello(2, starts, 0), (BASE, Applied)))));
        offers.push(offered(&world.send(link, &message(2 + 100 * starts, 1))));
        world.close(link);
        let polls = status(hello(2, starts + 10, 0), (BASE, Applied));
        offers.push(offered(&world.poll(&polls)));
        offers.push(offered(&world.poll(&polls)));
    }
    offers.retain(|offer| offer.as_deref() == Some(NEXT));
    assert_eq!(offers.len(), 1);
}

#[test]
fn a_failure_outlives_the_process_in_the_evidence() {
    let world = World::new(&staged());
    let link = world.link();
    world.send(link, &hello(2, 0, 0));
    world.send(link, &status(message(2, 1), (NEXT, Failed)));

    let evidence = Arc::clone(world.server.aggregator());
    let settings = Settings::default();
    let later = World::on_evidence(&staged(), settings, world.metrics, evidence, 100);
    let link = later.link();
    let again = later.send(link, &status(hello(2, 1, 0), (BASE, Applied)));
    assert_eq!(offered(&again), None);
    assert_eq!(later.census(), ["a/one from failed: 1"]);
    let other = later.link();
    assert_eq!(offered(&later.send(other, &hello(3, 0, 0))).as_deref(), Some(NEXT));
}

#[test]
fn tries_are_counted_over_links() {
    let mut estate = staged();
    estate.0.rollouts.get_mut("a/one").expect("the Rollout").halt.retry_failed = 1;
    let mut world = World::new(&estate);
    let link = world.link();
    world.send(link, &hello(2, 0, 0));
    world.send(link, &status(message(2, 1), (NEXT, Failed)));
    world.send(link, &status(message(2, 2), (BASE, Applied)));
    world.now += 600;
    assert_eq!(offered(&world.send(link, &message(2, 3))).as_deref(), Some(NEXT));
    world.send(link, &status(message(2, 4), (NEXT, Failed)));
    world.close(link);
    for starts in 1..3 {
        world.now += 100_000;
        let link = world.link();
        let back = world.send(link, &status(hello(2, starts, 0), (BASE, Applied)));
        assert_eq!(offered(&back), None);
        world.now += 100_000;
        assert_eq!(offered(&world.send(link, &message(2 + 100 * starts, 1))), None);
        world.close(link);
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// It starts anew, over this transport, and says what it runs.
    Start {
        who: u32,
        polls: bool,
        says: Option<(bool, RemoteConfigStatuses)>,
    },
    Report {
        who: u32,
        next: bool,
        status: RemoteConfigStatuses,
    },
    Heartbeat(u32),
    Close(u32),
    Judge,
    /// A head that changes nothing about the Rollout.
    Unrelated,
    Wait(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = || 0..COLLECTORS;
    let status = || {
        prop_oneof![
            3 => Just(Applied),
            2 => Just(Failed),
            1 => Just(RemoteConfigStatuses::Applying),
        ]
    };
    let says = prop::option::of((any::<bool>(), status()));
    let step = prop_oneof![
        4 => (who(), any::<bool>(), says)
            .prop_map(|(who, polls, says)| Step::Start { who, polls, says }),
        6 => (who(), any::<bool>(), status())
            .prop_map(|(who, next, status)| Step::Report { who, next, status }),
        3 => who().prop_map(Step::Heartbeat),
        1 => who().prop_map(Step::Close),
        2 => Just(Step::Judge),
        1 => Just(Step::Unrelated),
        2 => prop_oneof![0u32..5, 60u32..100, 500u32..2_000].prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..60)
}

/// A collector as the model knows it.
#[derive(Clone, Default)]
struct Known {
    starts: u32,
    link: Option<LinkId>,
    polls: bool,
    sequence: u64,
    /// The candidate failed on it, and it has not said since that it runs it.
    failed: bool,
    /// ... or ever did.
    ever_failed: bool,
    /// The base failed on it once, so that it is offered only now and then.
    base_failed: bool,
    /// What it said last in this life.
    said: Option<(bool, RemoteConfigStatuses)>,
}

impl Known {
    fn say(&mut self, said: (bool, RemoteConfigStatuses)) {
        match said {
            (true, Failed) => (self.failed, self.ever_failed) = (true, true),
            (true, Applied) => self.failed = false,
            (false, Failed) => self.base_failed = true,
            _ => {}
        }
        self.said = Some(said);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn no_offer_passes_the_brake_or_the_memory(steps in steps()) {
        let mut world = World::new(&staged());
        world.now = SETTLED;
        let mut known = vec![Known::default(); COLLECTORS as usize];
        let mut heads = 0;
        for step in steps {
            let braked = world.is_braked();
            let content = |next| if next { NEXT } else { BASE };
            let mut offers: Vec<(u32, Option<String>)> = Vec::new();
            let mut fresh = None;
            match step {
                Step::Wait(seconds) => {
                    world.now += seconds;
                    world.orders();
                }
                Step::Judge => world.judge(),
                Step::Unrelated => {
                    heads += 1;
                    let text = format!("z: {heads}\n");
                    for (who, offer) in world.install(&staged().tier("z/z", &[("tier", "z")], &text)) {
                        let number = u128::from_be_bytes(who.0) as u32 % 100;
                        offers.push((number, Some(offer)));
                    }
                }
                Step::Close(who) => {
                    if let Some(link) = known[who as usize].link.take() {
                        world.close(link);
                    }
                }
                Step::Start { who, polls, says } => {
                    let this = &mut known[who as usize];
                    if let Some(link) = this.link.take() {
                        world.close(link);
                    }
                    this.starts += 1;
                    (this.polls, this.sequence, this.said) = (polls, 0, None);
                    let mut message = hello(who, this.starts, 0);
                    if let Some((next, said)) = says {
                        message = status(message, (content(next), said));
                        this.say((next, said));
                    }
                    let reply = if polls {
                        world.poll(&message)
                    } else {
                        let link = *this.link.insert(world.link());
                        world.send(link, &message)
                    };
                    fresh = Some((who, says));
                    offers.push((who, offered(&reply)));
                }
                Step::Report { who, .. } | Step::Heartbeat(who) => {
                    let this = &mut known[who as usize];
                    if this.starts == 0 || !this.polls && this.link.is_none() {
                        continue;
                    }
                    this.sequence += 1;
                    let mut message = message(who + 100 * this.starts, this.sequence);
                    // A poll may come when its session is over, so it says everything.
                    if this.polls {
                        message = hello(who, this.starts, this.sequence);
                        if let Some((next, said)) = this.said {
                            message = status(message, (content(next), said));
                        }
                    }
                    if let Step::Report { next, status: said, .. } = step {
                        message = status(message, (content(next), said));
                        this.say((next, said));
                    }
                    let reply = match this.link {
                        Some(link) => world.send(link, &message),
                        None => world.poll(&message),
                    };
                    offers.push((who, offered(&reply)));
                }
            }
            for (who, offer) in offers {
                let this = &known[who as usize];
                if offer.as_deref() == Some(NEXT) {
                    prop_assert!(!braked, "past the brake");
                    prop_assert!(!this.failed, "again, to whom it failed on");
                    prop_assert!(who < MEMBERS, "outside the Cohort");
                }
                if who < MEMBERS && braked && this.said == Some((true, Applied)) {
                    prop_assert_eq!(offer, None, "it is left alone");
                } else if fresh == Some((who, None)) {
                    // Its old link's end may have been what put the brake on.
                    let free = !braked && !world.is_braked();
                    if who < MEMBERS && free && !this.ever_failed {
                        prop_assert_eq!(offer.as_deref(), Some(NEXT));
                    } else if (who >= MEMBERS || braked || this.failed) && !this.base_failed {
                        prop_assert_eq!(offer.as_deref(), Some(BASE));
                    }
                }
            }
        }
    }
}

/// A head that brings a Rollout reaches one collector after the other: the first that fails is not
/// all there is.
#[test]
fn one_failure_while_a_head_is_pushed_is_not_one_of_one() {
    let everybody: Vec<String> = (0..20).map(|n| format!("h{n}")).collect();
    let everybody: Vec<&str> = everybody.iter().map(String::as_str).collect();
    // The other Tier has the name kept that the Cohort asks for.
    let base = Estate::new().tier("a/one", &[("tier", "one")], BASE).tier(
        "z/z",
        &[("host.name", "nobody")],
        "z: 1\n",
    );
    let mut world = World::new(&base);
    let links: Vec<_> = (0..20).map(|_| world.link()).collect();
    for (n, link) in (0..).zip(&links) {
        world.send(*link, &status(hello(n, 0, 0), (BASE, Applied)));
    }
    world.now = SETTLED;
    let staged = base.rollout("a/one", estate::hosts(&everybody), NEXT);
    world.server.install(staged.compile(), HeadMeta::default(), now(world.now));
    let fail = |world: &World, n: u32| {
        let link = links[n as usize];
        let decided = world.on(link, |link| {
            let mut ignore = |_| ControlFlow::Continue(());
            world.server.redecide(link, now(world.now), &mut ignore)
        });
        assert!(decided.is_continue());
        world.send(link, &with_status(message(n, 1), NEXT, Failed));
        world.judge();
    };
    let awaited = |world: &World| {
        world.server.aggregator().reports().values().map(|report| report.tally.awaited).sum::<u64>()
    };

    fail(&world, 0);
    assert!(!world.is_braked(), "one of twenty");
    assert_eq!(awaited(&world), 19);
    assert_eq!(world.push().len(), 19);
    world.judge();
    assert_eq!((awaited(&world), world.is_braked()), (0, false));
    fail(&world, 1);
    assert!(world.is_braked(), "two of twenty");
}

#[test]
fn who_says_nothing_for_long_is_not_waited_for() {
    let base = Estate::new().tier("a/one", &[("tier", "one")], BASE);
    let mut world = World::new(&base);
    for n in 0..20 {
        world.poll(&status(hello(n, 0, 0), (BASE, Applied)));
    }
    world.now = SETTLED;
    // Nothing was kept of the name that this Cohort asks for: each is asked at its next poll.
    world.install(&base.rollout("a/one", estate::hosts(&["h0"]), NEXT));
    world.poll(&status(hello(0, 0, 1), (NEXT, Failed)));
    world.judge();
    assert!(!world.is_braked(), "19 others may be members");
    world.now += 91;
    world.poll(&message(0, 2));
    world.judge();
    assert!(world.is_braked(), "nobody else came");
}
