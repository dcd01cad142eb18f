//! The role that replicas report to.

use std::net::SocketAddr;
use std::sync::Arc;

use super::announce;
use super::core::{Base, Core, Work, evidence, show_expiry};
use crate::aggregate::Role;
use crate::config::AggregateConfig;
use crate::drain::{Drain, Phase};
use crate::reload;
use crate::serve::{Links, Settings};
use crate::shutdown::Signals;
use crate::transport::link::Link;
use crate::uplink::listen::Listener;
use crate::uplink::tls::Certificates;

pub(super) fn run(config: AggregateConfig) -> anyhow::Result<()> {
    let base = Base::new();
    let AggregateConfig { core, uplink } = config;
    // Before the files are read.
    let stamps = reload::stamps(&uplink.tls.files());
    let certificates = Arc::new(Certificates::load(uplink.tls)?);
    show_expiry([certificates.not_after()], base.metrics);

    let mut evidence = evidence(&core.evidence, Some("aggregator"));
    evidence.role = Role::Aggregator;
    if evidence.store.is_none() {
        tracing::warn!("no --store: failures and brakes of Rollouts die with this process");
    }
    // No collector connects here.
    let settings = Settings { http_sessions_max: 0, agents_max: 0, ..Settings::default() };
    let (core, work) = Core::prepare(base, core, evidence, settings)?;
    let runtime = crate::runtime::build(core.config.workers, base.clock)?;
    let ended = runtime.block_on(async {
        let (Base { clock, metrics }, aggregator) = (base, Arc::clone(&core.aggregator));
        let addr = uplink.listen;
        let listener = Listener::bind(addr, Arc::clone(&certificates), aggregator, metrics, clock)
            .map_err(|error| anyhow::anyhow!("cannot listen on --listen-uplink {addr}: {error}"))?;
        let listener = Arc::new(listener);
        let reloaded = Arc::clone(&listener);
        let files = certificates.files();
        let load = move || {
            certificates.reload().inspect(|()| {
                show_expiry([certificates.not_after()], metrics);
                reloaded.renew();
            })
        };
        tokio::spawn(reload::watch("uplink", files, stamps, metrics, load));
        gather(&core, work, listener).await
    });
    core.end(runtime);
    ended
}

async fn gather(core: &Core, work: Work, listener: Arc<Listener>) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let admin_listener = core.listen().await?;
    let (uplink, admin) = (listener.local_addr()?, admin_listener.local_addr()?);
    let drain = Drain::new();
    let links: Arc<Links<Link>> = Arc::new(Links::new(0));
    core.spawn(work, admin_listener, links, drain.clone(), None);
    announce(&told(core, uplink, admin));
    let gathering = tokio::spawn(Arc::clone(&listener).run());
    let signal = signals.next().await;
    tracing::info!(signal, "telling the replicas, and ending; a second signal exits at once");
    signals.exit_at_next();
    drain.advance(Phase::Leaving);
    listener.close().await;
    drain.advance(Phase::Drained);
    if let Err(error) = gathering.await {
        tracing::error!(%error, "taking in replicas ended before its time");
    }
    Ok(())
}

/// What an operator wants to see on stdout, a line each.
fn told(core: &Core, uplink: SocketAddr, admin: SocketAddr) -> String {
    format!(
        "gathering {}\n\
         {}\
         uplink    quic://{uplink}, with certificates on both ends\n\
         admin     http://{admin}/\n\
         metrics   http://{admin}/metrics\n",
        core.status.place(),
        core.head_line(),
    )
}
