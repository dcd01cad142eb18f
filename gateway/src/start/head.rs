//! How a head gets from the source into force.

use std::sync::{Arc, OnceLock};

use render::snapshot::{CompileError, Snapshot};

use super::core::Base;
use crate::aggregate::Aggregator;
use crate::config::SourceConfig;
use crate::metrics::Metrics;
use crate::metrics::family::GaugeFamily;
use crate::serve::{HeadMeta, Server, Settings, encode_offer, long_offers};
use crate::source::poll::Poller;
use crate::source::status::Status;
use crate::source::{Loaded, Source};

/// A poller whose heads go to the server.
pub(super) type HeadPoller = Poller<Box<dyn FnMut(Loaded) -> Result<(), CompileError> + Send>>;

/// Without a head nothing may listen.
pub(super) fn first_head(
    source: Source,
    config: &SourceConfig,
    settings: Settings,
    status: &Arc<Status>,
    base: Base,
    aggregator: &Arc<Aggregator>,
) -> anyhow::Result<(Arc<Server>, HeadPoller)> {
    let Base { clock, metrics } = base;
    let kind = config.place.kind();
    let server: Arc<OnceLock<Arc<Server>>> = Arc::default();
    let put = {
        let server = Arc::clone(&server);
        let aggregator = Arc::clone(aggregator);
        move |loaded: Loaded| {
            let snapshot = render::snapshot::compile(&loaded.served, encode_offer)?;
            let meta = HeadMeta {
                commit: loaded.served.commit.clone(),
                source: kind.into(),
                loaded_unix_ms: clock.unix_ms(),
                committed_unix_seconds: loaded.commit_unix_ms.map(|ms| ms / 1_000),
            };
            show_rollouts(&snapshot, metrics);
            warn_of_long_offers(&snapshot);
            match server.get() {
                Some(server) => drop(server.install(snapshot, meta, clock.now())),
                None => {
                    server.get_or_init(|| {
                        metrics.head_swaps.increment(1);
                        let (aggregator, now) = (Arc::clone(&aggregator), clock.now());
                        Arc::new(Server::new(snapshot, meta, metrics, settings, aggregator, now))
                    });
                }
            }
            Ok(())
        }
    };
    let put: Box<dyn FnMut(Loaded) -> _ + Send> = Box::new(put);
    let mut poller = Poller::new(source, config.interval, Arc::clone(status), clock, metrics, put);
    poller.look()?;
    let server = server.get().ok_or_else(|| anyhow::anyhow!("the first look gave no head"))?;
    Ok((Arc::clone(server), poller))
}

/// One line per head, however many there are.
fn warn_of_long_offers(snapshot: &Snapshot) {
    let mut long = long_offers(snapshot);
    if let Some((tier, bytes)) = long.next() {
        let (tier, others) = (tier.unwrap_or("(Unmatched)"), long.count());
        tracing::warn!(
            tier,
            bytes,
            others,
            "longer than the 128 KiB that the .NET client takes of a message"
        );
    }
}

/// What a Rollout is, for dashboards; its series go with it.
fn show_rollouts(snapshot: &Snapshot, metrics: &Metrics) {
    let rollouts = || snapshot.rollouts.iter().map(|compiled| &compiled.rollout);
    let infos: Vec<[&str; 4]> = rollouts()
        .map(|rollout| [&*rollout.id, &rollout.tier, &rollout.from, &rollout.to])
        .collect();
    metrics.rollout_info.replace(infos.iter().map(|labels| (&labels[..], 1.0)));
    let ids: Vec<[&str; 1]> = rollouts().map(|rollout| [&*rollout.id]).collect();
    let each = |family: &GaugeFamily, values: Vec<f64>| {
        family.replace(ids.iter().map(|labels| &labels[..]).zip(values));
    };
    each(&metrics.rollout_stage, rollouts().map(|rollout| f64::from(rollout.stage)).collect());
    each(&metrics.rollout_stages, rollouts().map(|rollout| to_f64(rollout.stages.len())).collect());
    let soak = rollouts().map(|rollout| {
        rollout.stages.get(rollout.stage as usize).map_or(0.0, |stage| stage.soak.as_secs_f64())
    });
    each(&metrics.rollout_soak_required, soak.collect());
}

#[expect(clippy::cast_precision_loss, reason = "nobody declares 2^53 stages")]
fn to_f64(count: usize) -> f64 {
    count as f64
}
