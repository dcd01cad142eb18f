//! An answer to a FAILED means that it is on the disk (spec/rollouts.md 18).

use std::path::Path;

use gateway::aggregate::{self, Aggregator};
use gateway::clock::Clock;
use gateway::metrics::Metrics;
use render::estate::{Cohort, Halt, Hosts};
use render::rollout::identity;
use render::snapshot::served::{Served, ServedRollout, ServedStage};

use crate::support::message::{Agent, offered, reply};
use crate::support::raw::Raw;
use crate::support::{Gateway, Setup, artefact, artefact_text, estate, snapshot};

/// Every collector of `shop/web` in the Cohort.
fn staged() -> Served {
    let mut served = estate(1);
    let hosts = Hosts { attribute: "host.name".into(), values: vec!["h".into()] };
    let cohort = Cohort { hosts: Some(hosts), ..Cohort::default() };
    let rollout = ServedRollout {
        id: "shop/move".into(),
        tier: "shop/web".into(),
        owner: "shop".into(),
        from: "shop/base@1".into(),
        to: "shop/base@2".into(),
        stage: 0,
        stages: vec![ServedStage { cohort, soak: std::time::Duration::ZERO }],
        hash_attributes: vec!["host.name".into()],
        hash_salt: None,
        identity: Vec::new(),
        hold: false,
        halt: Halt::default(),
        stage_started_ms: None,
        origin: None,
    };
    served.tiers.get_mut("shop/web").unwrap().next = Some(artefact("web", 2));
    served.rollouts.insert("shop/move".into(), rollout);
    served
}

fn start(directory: &Path) -> Gateway {
    let gateway = Setup { store: Some(directory.join("evidence")), ..Setup::default() }.start();
    gateway.install(&staged());
    gateway
}

/// Whether a process that had only the file as it is now would know of the failure.
fn is_on_disk(directory: &Path, agent: &Agent) -> bool {
    let copy = directory.join("copy");
    std::fs::copy(directory.join("evidence"), &copy).unwrap();
    let (clock, metrics) = (Clock::start(), Metrics::leak());
    let settings = aggregate::Settings { store: Some(copy), ..aggregate::Settings::default() };
    let aggregator = Aggregator::open(settings, metrics, clock.now()).unwrap();
    let cells = aggregator.handle_head(clock.now(), &snapshot(&staged()), "");
    let who = identity::plain([("service.name", Some("otelcol"))].into_iter(), &agent.uid);
    cells[0].failed(who).is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn over_a_websocket_and_what_follows_keeps_its_order() {
    let directory = tempfile::tempdir().unwrap();
    let gateway = start(directory.path());
    let mut agent = Agent::new(1);
    let (mut raw, offer) = Raw::served(&gateway, &mut agent, "web").await;
    assert_eq!(offered(&offer), Some(artefact_text("web", 2)));
    raw.send(&agent.failed(&offer)).await;
    raw.send(&agent.heartbeat()).await;
    raw.send(&Agent::new(2).report("kafka", 100)).await;
    let answer = raw.reply().await;
    assert!(is_on_disk(directory.path(), &agent));
    assert_eq!(offered(&answer), Some(artefact_text("web", 1)), "it is served the base");
    let heartbeat = raw.reply().await;
    assert_eq!((&*heartbeat.instance_uid, offered(&heartbeat)), (&agent.uid[..], None));
    assert_eq!(offered(&raw.reply().await), Some(artefact_text("kafka", 1)));
    raw.send(&agent.heartbeat()).await;
    assert_eq!(&*raw.reply().await.instance_uid, &agent.uid);
    assert_eq!(gateway.metric("tidegate_late_acknowledgements_total"), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http() {
    let directory = tempfile::tempdir().unwrap();
    let gateway = start(directory.path());
    let mut agent = Agent::new(1);
    let mut raw = Raw::connect(&gateway).await;
    let (_, _, offer) = super::http::post(&mut raw, "", &agent.report("web", 100)).await;
    let failed = agent.failed(&reply(&offer));
    let (status, _, answer) = super::http::post(&mut raw, "", &failed).await;
    assert!(is_on_disk(directory.path(), &agent));
    assert_eq!((status, offered(&reply(&answer))), (200, Some(artefact_text("web", 1))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_ends_while_its_answer_waits_ends_whole() {
    let directory = tempfile::tempdir().unwrap();
    let gateway = start(directory.path());
    let mut agent = Agent::new(1);
    let (mut raw, offer) = Raw::served(&gateway, &mut agent, "web").await;
    raw.send(&agent.failed(&offer)).await;
    drop(raw);
    gateway.until("it is gone", |gateway| gateway.front.live() == 0).await;
    gateway.until("it is on the disk", |_| is_on_disk(directory.path(), &agent)).await;
}
