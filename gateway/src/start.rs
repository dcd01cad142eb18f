//! `gateway serve`: puts the parts together, and takes them apart again.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use render::snapshot::Snapshot;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;

use crate::admin::events::Streams;
use crate::admin::tokens::AdminTokens;
use crate::admin::{self, Admin};
use crate::aggregate::{self, Aggregator};
use crate::cli::serve::{LogFormat, ServeArgs};
use crate::clock::Clock;
use crate::config::{EvidenceConfig, Place, ServeConfig};
use crate::listen::{self, Front, Parts};
use crate::metrics::Metrics;
use crate::propose::{self, Proposer};
use crate::reload;
use crate::serve::{HeadMeta, Links, SESSIONS_MAX, Server, Settings, encode_offer, long_offers};
use crate::shutdown::{EXIT_AT_ONCE, Signals};
use crate::source::poll::{Poller, short};
use crate::source::status::Status;
use crate::source::{Loaded, Source, git};
use crate::tls::Tls;
use crate::tokens::Credentials;
use crate::transport::link::Link;

/// Runs until a signal ends it. Faults before it serves go to stderr: exit code 2 for a usage
/// error, 1 for everything else.
pub fn serve(arguments: ServeArgs) -> ExitCode {
    if let Err(fault) = log(arguments.log_format, &arguments.log) {
        eprintln!("gateway: --log: {fault}");
        return ExitCode::from(2);
    }
    let config = match arguments.resolve() {
        Ok(config) => config,
        Err(error) => {
            eprintln!("gateway: {error}");
            return ExitCode::from(error.exit_code());
        }
    };
    match run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Each error says its cause itself.
            eprintln!("gateway: {error}");
            ExitCode::FAILURE
        }
    }
}

fn log(format: LogFormat, filter: &str) -> Result<(), String> {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_new(filter).map_err(|error| error.to_string())?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let installed = match format {
        LogFormat::Text => {
            use std::io::IsTerminal;
            builder.with_ansi(std::io::stderr().is_terminal()).try_init()
        }
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    installed.map_err(|error| error.to_string())
}

/// Everything that is read before anything listens.
struct Prepared {
    config: ServeConfig,
    clock: Clock,
    metrics: &'static Metrics,
    status: Arc<Status>,
    server: Arc<Server>,
    aggregator: Arc<Aggregator>,
    credentials: Arc<Credentials>,
    admin_tokens: Arc<ArcSwap<AdminTokens>>,
    tls: Option<Arc<Tls>>,
    /// Stamps taken before the files were read.
    stamps: Stamps,
}

struct Stamps {
    tokens: Vec<Option<reload::Stamp>>,
    admin_tokens: Vec<Option<reload::Stamp>>,
    tls: Vec<Option<reload::Stamp>>,
}

fn run(mut config: ServeConfig) -> anyhow::Result<()> {
    let clock = Clock::start();
    let metrics = Metrics::leak();
    let version = env!("CARGO_PKG_VERSION");
    let commit = option_env!("TIDEGATE_BUILD_COMMIT").unwrap_or("unknown");
    metrics.build_info.cell(&[version, commit]).set(1.0);
    let descriptors = raise_descriptor_limit();

    let stamp = |file: &Path| vec![reload::Stamp::of(file)];
    let stamps = Stamps {
        tokens: config.token_file.as_deref().map(stamp).unwrap_or_default(),
        admin_tokens: config.admin.token_file.as_deref().map(stamp).unwrap_or_default(),
        tls: config.tls.as_ref().map(|tls| reload::stamps(&tls.files())).unwrap_or_default(),
    };
    let credentials = match &config.token_file {
        Some(file) => Credentials::load(file)?,
        None => Credentials::OPEN,
    };
    let admin_tokens = match &config.admin.token_file {
        Some(file) => AdminTokens::load(file)?,
        None => AdminTokens::OPEN,
    };
    let tls = config.tls.clone().map(Tls::load).transpose()?.map(Arc::new);
    if let Some(tls) = &tls {
        show_expiry(tls, metrics);
    }

    let status = Arc::new(Status::new(config.source.place.kind(), place(&config.source.place)));
    let source = Source::new(&config.source)?;
    let proposals = propose::Parts::prepare(&config.source, config.propose.as_ref())?;
    let proposals_temporary = proposals.as_ref().and_then(|parts| parts.worker.repo().temporary());
    let temporaries: Vec<PathBuf> = [source.temporary(), proposals_temporary]
        .into_iter()
        .flatten()
        .map(Path::to_owned)
        .collect();
    let aggregator = Aggregator::open(evidence(&config), metrics, clock.now())?;
    if config.evidence.store.is_none() {
        tracing::info!("no --store: failures and brakes of Rollouts die with this process");
    }
    let (server, poller) = first_head(source, &config, &status, clock, metrics, &aggregator)?;
    if let Some(descriptors) = descriptors
        && config.links.fit(descriptors)
    {
        let links = config.links.max_links;
        tracing::info!(descriptors, links, "the limit of open files allows fewer links than asked");
    }

    let prepared = Prepared {
        clock,
        metrics,
        status,
        server,
        aggregator: Arc::clone(&aggregator),
        credentials: Arc::new(credentials),
        admin_tokens: Arc::new(ArcSwap::from_pointee(admin_tokens)),
        tls,
        stamps,
        config,
    };
    let runtime = crate::runtime::build(prepared.config.workers, clock)?;
    let proposer = proposals
        .map(|parts| Proposer::new(parts, Arc::clone(&prepared.aggregator), metrics, clock));
    let ended = runtime.block_on(listen_and_serve(prepared, poller, proposer));
    // Git may be at work for a look or a proposal; nobody waits for it.
    runtime.shutdown_background();
    aggregator.close();
    for temporary in temporaries {
        // It may be gone already, or git may still write there: best effort.
        let _ = std::fs::remove_dir_all(temporary);
    }
    ended
}

/// What the flags make of evidence.
fn evidence(config: &ServeConfig) -> aggregate::Settings {
    let EvidenceConfig { store, expect_replicas, grace, forget } = &config.evidence;
    let millis = |span: &Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let unnamed = aggregate::Settings::default();
    aggregate::Settings {
        replica: config.instance_label.as_deref().map_or(unnamed.replica, Into::into),
        expect_replicas: expect_replicas.get(),
        grace_ms: millis(grace),
        forget_ms: millis(forget),
        store: store.clone(),
        incarnation: unnamed.incarnation,
        role: unnamed.role,
    }
}

/// A poller whose heads go to the server.
type HeadPoller =
    Poller<Box<dyn FnMut(Loaded) -> Result<(), render::snapshot::CompileError> + Send>>;

/// Without a head nothing may listen.
fn first_head(
    source: Source,
    config: &ServeConfig,
    status: &Arc<Status>,
    clock: Clock,
    metrics: &'static Metrics,
    aggregator: &Arc<Aggregator>,
) -> anyhow::Result<(Arc<Server>, HeadPoller)> {
    let kind = config.source.place.kind();
    let server: Arc<std::sync::OnceLock<Arc<Server>>> = Arc::default();
    let settings = Settings {
        http_sessions_max: SESSIONS_MAX.min(config.links.max_links.get()),
        ..Settings::default()
    };
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
    let mut poller =
        Poller::new(source, config.source.interval, Arc::clone(status), clock, metrics, put);
    poller.look()?;
    let server = server.get().ok_or_else(|| anyhow::anyhow!("the first look gave no head"))?;
    Ok((Arc::clone(server), poller))
}

async fn listen_and_serve(
    prepared: Prepared,
    poller: HeadPoller,
    proposer: Option<Proposer>,
) -> anyhow::Result<()> {
    let Prepared { config, clock, metrics, server, .. } = &prepared;
    let mut signals = Signals::listen()?;
    let listener =
        bound("--listen", config.listen, listen::bind(config.listen, config.reuse_port))?;
    let admin_listener = TcpListener::bind(config.admin.listen).await;
    let admin_listener = bound("--admin", config.admin.listen, admin_listener)?;
    announce(&prepared, listener.local_addr()?, admin_listener.local_addr()?);

    let capacity = u32::try_from(config.links.max_links.get()).unwrap_or(u32::MAX);
    let links: Arc<Links<Link>> = Arc::new(Links::new(capacity));
    let instance = config
        .instance_label
        .as_ref()
        .map(|label| format!("{label}/{}/{:x}", env!("CARGO_PKG_VERSION"), clock.unix_ms()).into());
    let front = Arc::new(Front::new(Parts {
        server: Arc::clone(server),
        links: Arc::clone(&links),
        limits: config.links.clone(),
        credentials: Arc::clone(&prepared.credentials),
        tls: prepared.tls.clone(),
        instance,
        metrics,
        clock: *clock,
    }));
    let admin = Arc::new(Admin {
        server: Arc::clone(server),
        links,
        drain: front.drain.clone(),
        aggregator: Arc::clone(&prepared.aggregator),
        streams: Streams::default(),
        status: Arc::clone(&prepared.status),
        tokens: Arc::clone(&prepared.admin_tokens),
        hosts: config.admin.hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
        metrics,
        clock: *clock,
    });
    tokio::spawn(admin::run(admin, admin_listener));
    tokio::spawn(poller.run());
    if let Some(proposer) = proposer {
        tokio::spawn(proposer.run());
    }
    tokio::spawn(Arc::clone(&prepared.aggregator).run(*clock));
    watch_files(&prepared);

    let stop = async move {
        let signal = signals.next().await;
        tracing::info!(signal, "draining; a second signal exits at once");
        tokio::spawn(async move {
            let signal = signals.next().await;
            tracing::warn!(signal, "exiting at once");
            std::process::exit(EXIT_AT_ONCE);
        });
    };
    listen::run(front, listener, config.drain, stop).await;
    tracing::info!("drained");
    Ok(())
}

fn bound(
    flag: &str,
    addr: SocketAddr,
    bound: std::io::Result<TcpListener>,
) -> anyhow::Result<TcpListener> {
    bound.map_err(|error| anyhow::anyhow!("cannot listen on {flag} {addr}: {error}"))
}

/// What an operator wants to see on stdout, a line each.
fn announce(prepared: &Prepared, listen: SocketAddr, admin: SocketAddr) {
    let (http, ws) = if prepared.tls.is_some() { ("https", "wss") } else { ("http", "ws") };
    let head = prepared.server.head();
    let commit = if head.meta.commit.is_empty() { "(unknown)" } else { short(&head.meta.commit) };
    let text = format!(
        "serving   {}\n\
         head      commit {commit}, Tiers: {}, Rollouts: {}\n\
         listen    {ws}://{listen}/v1/opamp and {http}://{listen}/v1/opamp\n\
         admin     http://{admin}/\n\
         metrics   http://{admin}/metrics\n",
        prepared.status.place(),
        head.snapshot.tiers.len(),
        head.snapshot.rollouts.len()
    );
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Nobody reads it; that is no reason not to serve.
        tracing::debug!(%error, "cannot write to stdout");
    }
}

fn watch_files(prepared: &Prepared) {
    let metrics = prepared.metrics;
    if let Some(file) = prepared.config.token_file.clone() {
        let credentials = Arc::clone(&prepared.credentials);
        let load = move || credentials.reload();
        let seen = prepared.stamps.tokens.clone();
        tokio::spawn(reload::watch("tokens", vec![file], seen, metrics, load));
    }
    if let Some(file) = prepared.config.admin.token_file.clone() {
        let tokens = Arc::clone(&prepared.admin_tokens);
        let from = file.clone();
        let load = move || AdminTokens::load(&from).map(|new| tokens.store(Arc::new(new)));
        let seen = prepared.stamps.admin_tokens.clone();
        tokio::spawn(reload::watch("admin_tokens", vec![file], seen, metrics, load));
    }
    if let Some(tls) = prepared.tls.clone() {
        let (files, seen) = (tls.files(), prepared.stamps.tls.clone());
        let load = move || tls.reload().inspect(|()| show_expiry(&tls, metrics));
        tokio::spawn(reload::watch("tls", files, seen, metrics, load));
    }
}

#[expect(clippy::cast_precision_loss, reason = "certificates end within 2^53 seconds")]
fn show_expiry(tls: &Tls, metrics: &Metrics) {
    let seconds = tls.not_after().map(|seconds| (&[][..], seconds as f64));
    metrics.certificate_expiry.replace(seconds);
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
    let each = |family: &crate::metrics::family::GaugeFamily, values: Vec<f64>| {
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

fn place(place: &Place) -> String {
    match place {
        Place::Estate { dir } => dir.display().to_string(),
        Place::Repo { url, .. } => git::url_without_credentials(url),
        Place::Snapshot { file, .. } => file.display().to_string(),
    }
}

/// A link is a descriptor; the soft limit is a default of old times.
///
/// Returns the limit; `None` is unlimited.
fn raise_descriptor_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    getrlimit(Resource::Nofile).current
}
