//! The role that collectors connect to.

use std::net::SocketAddr;
use std::sync::Arc;

use super::core::{Base, Core, Work, evidence, raise_descriptor_limit, show_expiry, stamp};
use super::{announce, bound};
use crate::aggregate::Role;
use crate::catch_up;
use crate::config::ServeConfig;
use crate::listen::{self, Front, Parts};
use crate::reload;
use crate::serve::{Links, SESSIONS_MAX, Settings};
use crate::shutdown::Signals;
use crate::tls::Tls;
use crate::tokens::Credentials;
use crate::transport::link::Link;
use crate::uplink::dial::{self, Uplinks};
use crate::uplink::tls::{Certificates, Dials};

/// Everything that is read before anything listens.
struct Prepared {
    config: ServeConfig,
    core: Core,
    credentials: Arc<Credentials>,
    tls: Option<Arc<Tls>>,
    uplink: Option<Arc<Certificates<Dials>>>,
    stamps: Stamps,
}

/// Taken before the files were read.
struct Stamps {
    tokens: Vec<Option<reload::Stamp>>,
    tls: Vec<Option<reload::Stamp>>,
    uplink: Vec<Option<reload::Stamp>>,
}

pub(super) fn run(mut config: ServeConfig) -> anyhow::Result<()> {
    let base = Base::new();
    let descriptors = raise_descriptor_limit();
    let stamps = Stamps {
        tokens: config.token_file.as_deref().map(stamp).unwrap_or_default(),
        tls: config.tls.as_ref().map(|tls| reload::stamps(&tls.files())).unwrap_or_default(),
        uplink: config
            .uplink
            .as_ref()
            .map(|uplink| reload::stamps(&uplink.tls.files()))
            .unwrap_or_default(),
    };
    let credentials = match &config.token_file {
        Some(file) => Credentials::load(file)?,
        None => Credentials::OPEN,
    };
    let tls = config.tls.clone().map(Tls::load).transpose()?.map(Arc::new);
    let uplink = config.uplink.as_ref().map(|uplink| Certificates::load(uplink.tls.clone()));
    let uplink = uplink.transpose()?.map(Arc::new);
    show_expiry(expiries(tls.as_deref(), uplink.as_deref()), base.metrics);
    let settings = Settings {
        http_sessions_max: SESSIONS_MAX.min(config.links.max_links.get()),
        ..Settings::default()
    };
    let label = config.instance_label.as_deref();
    let mut evidence = evidence(&config.core.evidence, label);
    if let Some(uplink) = &config.uplink {
        evidence.role = Role::Replica { uplinks: uplink.aggregators.len() };
    } else if evidence.store.is_none() {
        tracing::info!("no --store: failures and brakes of Rollouts die with this process");
    }
    let (core, work) = Core::prepare(base, config.core.clone(), evidence, settings)?;
    if let Some(descriptors) = descriptors
        && config.links.fit(descriptors)
    {
        let links = config.links.max_links;
        tracing::info!(descriptors, links, "the limit of open files allows fewer links than asked");
    }
    let prepared =
        Prepared { credentials: Arc::new(credentials), tls, uplink, stamps, config, core };
    let runtime = crate::runtime::build(prepared.config.core.workers, base.clock)?;
    let ended = runtime.block_on(listen_and_serve(&prepared, work));
    prepared.core.end(runtime);
    ended
}

async fn listen_and_serve(prepared: &Prepared, work: Work) -> anyhow::Result<()> {
    let Prepared { config, core, .. } = prepared;
    let Base { clock, metrics } = core.base;
    let mut signals = Signals::listen()?;
    let listener =
        bound("--listen", config.listen, listen::bind(config.listen, config.reuse_port))?;
    if config.reuse_port && listen::migrates_requests() == Some(false) {
        tracing::warn!(
            "--reuse-port: net.ipv4.tcp_migrate_req is 0, so a connection whose handshake is under \
             way when a replica ends is reset; set it to 1 (docs/tuning.md)"
        );
    }
    let admin_listener = core.listen().await?;
    announce(&told(prepared, listener.local_addr()?, admin_listener.local_addr()?));

    let capacity = u32::try_from(config.links.max_links.get()).unwrap_or(u32::MAX);
    let links: Arc<Links<Link>> = Arc::new(Links::new(capacity));
    let instance = config
        .instance_label
        .as_ref()
        .map(|label| format!("{label}/{}/{:x}", env!("CARGO_PKG_VERSION"), clock.unix_ms()).into());
    let front = Arc::new(Front::new(Parts {
        server: Arc::clone(&core.server),
        links: Arc::clone(&links),
        limits: config.links.clone(),
        credentials: Arc::clone(&prepared.credentials),
        tls: prepared.tls.clone(),
        instance,
        metrics,
        clock,
    }));
    let admission = Some(Arc::clone(&front.admission));
    tokio::spawn(catch_up::run(Arc::clone(&front), work.early()));
    core.spawn(work, admin_listener, links, front.drain.clone(), admission);
    watch_files(prepared);

    let stop = async move {
        let signal = signals.next().await;
        tracing::info!(signal, "draining; a second signal exits at once");
        signals.exit_at_next();
    };
    let uplinks = config.uplink.clone().zip(prepared.uplink.clone());
    let uplinks = uplinks.map(|(config, certificates)| {
        let aggregator = Arc::clone(&core.aggregator);
        Uplinks::start(dial::Parts { aggregator, config, certificates, metrics, clock })
    });
    listen::run(front, listener, config.drain, stop).await;
    if let Some(uplinks) = uplinks {
        uplinks.drain().await;
    }
    tracing::info!("drained");
    Ok(())
}

/// What an operator wants to see on stdout, a line each.
fn told(prepared: &Prepared, listen: SocketAddr, admin: SocketAddr) -> String {
    let (http, ws) = if prepared.tls.is_some() { ("https", "wss") } else { ("http", "ws") };
    format!(
        "serving   {}\n\
         {}\
         listen    {ws}://{listen}/v1/opamp and {http}://{listen}/v1/opamp\n\
         admin     http://{admin}/\n\
         metrics   http://{admin}/metrics\n",
        prepared.core.status.place(),
        prepared.core.head_line(),
    )
}

fn watch_files(prepared: &Prepared) {
    let metrics = prepared.core.base.metrics;
    if let Some(file) = prepared.config.token_file.clone() {
        let credentials = Arc::clone(&prepared.credentials);
        let load = move || credentials.reload();
        let seen = prepared.stamps.tokens.clone();
        tokio::spawn(reload::watch("tokens", vec![file], seen, metrics, load));
    }
    if let Some(tls) = prepared.tls.clone() {
        let (files, seen) = (tls.files(), prepared.stamps.tls.clone());
        let uplink = prepared.uplink.clone();
        let load = move || {
            let reloaded = tls.reload();
            reloaded.inspect(|()| show_expiry(expiries(Some(&tls), uplink.as_deref()), metrics))
        };
        tokio::spawn(reload::watch("tls", files, seen, metrics, load));
    }
    if let Some(uplink) = prepared.uplink.clone() {
        let (files, seen) = (uplink.files(), prepared.stamps.uplink.clone());
        let tls = prepared.tls.clone();
        let load = move || {
            let reloaded = uplink.reload();
            reloaded.inspect(|()| show_expiry(expiries(tls.as_deref(), Some(&uplink)), metrics))
        };
        tokio::spawn(reload::watch("uplink", files, seen, metrics, load));
    }
}

fn expiries(tls: Option<&Tls>, uplink: Option<&Certificates<Dials>>) -> [Option<i64>; 2] {
    [tls.and_then(Tls::not_after), uplink.and_then(Certificates::not_after)]
}
