//! What both roles are made of: source, evidence, operators, proposals.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::bound;
use super::head::{HeadPoller, first_head};
use crate::admin::events::Streams;
use crate::admin::page::Newest;
use crate::admin::sessions::Sessions;
use crate::admin::tokens::AdminTokens;
use crate::admin::{self, Admin};
use crate::admission::Admission;
use crate::aggregate::{self, Aggregator};
use crate::clock::Clock;
use crate::config::{CoreConfig, EvidenceConfig, Place};
use crate::drain::Drain;
use crate::metrics::Metrics;
use crate::propose::{self, Proposer};
use crate::reload;
use crate::serve::{Pages, Server, Settings};
use crate::source::poll::{Early, short};
use crate::source::status::Status;
use crate::source::{Source, git};

/// What a process has before it knows its role.
#[derive(Clone, Copy)]
pub(super) struct Base {
    pub(super) clock: Clock,
    pub(super) metrics: &'static Metrics,
}

impl Base {
    pub(super) fn new() -> Self {
        let (clock, metrics) = (Clock::start(), Metrics::leak());
        let version = env!("CARGO_PKG_VERSION");
        let commit = option_env!("TIDEGATE_BUILD_COMMIT").unwrap_or("unknown");
        metrics.build_info.cell(&[version, commit]).set(1.0);
        Self { clock, metrics }
    }
}

/// Everything that is read before anything listens.
pub(super) struct Core {
    pub(super) base: Base,
    pub(super) config: CoreConfig,
    pub(super) status: Arc<Status>,
    pub(super) server: Arc<Server>,
    pub(super) aggregator: Arc<Aggregator>,
    admin_tokens: Arc<ArcSwap<AdminTokens>>,
    /// Taken before the file was read.
    admin_stamps: Vec<Option<reload::Stamp>>,
    temporaries: Vec<PathBuf>,
}

/// What runs once there is a runtime.
pub(super) struct Work {
    poller: HeadPoller,
    proposer: Option<Proposer>,
}

impl Work {
    /// Asks the poller to look before its time.
    pub(super) fn early(&self) -> Arc<Early> {
        self.poller.early()
    }
}

impl Core {
    /// Reads the operators' tokens, the store, and the first head.
    pub(super) fn prepare(
        base: Base,
        config: CoreConfig,
        evidence: aggregate::Settings,
        settings: Settings,
    ) -> anyhow::Result<(Self, Work)> {
        let Base { clock, metrics } = base;
        let token_file = &config.admin.token_file;
        let admin_stamps = token_file.as_deref().map(stamp).unwrap_or_default();
        let admin_tokens = match token_file {
            Some(file) => AdminTokens::load(file)?,
            None => AdminTokens::OPEN,
        };
        let status = Arc::new(Status::new(config.source.place.kind(), place(&config.source.place)));
        let source = Source::new(&config.source)?;
        let proposals = propose::Parts::prepare(&config.source, config.propose.as_ref())?;
        let proposals_temporary =
            proposals.as_ref().and_then(|parts| parts.worker.repo().temporary());
        let temporaries: Vec<PathBuf> = [source.temporary(), proposals_temporary]
            .into_iter()
            .flatten()
            .map(Path::to_owned)
            .collect();
        let aggregator = Aggregator::open(evidence, metrics, clock.now())?;
        let (server, poller) =
            first_head(source, &config.source, settings, &status, base, &aggregator)?;
        let proposer =
            proposals.map(|parts| Proposer::new(parts, Arc::clone(&aggregator), metrics, clock));
        let core = Self {
            base,
            config,
            status,
            server,
            aggregator,
            admin_tokens: Arc::new(ArcSwap::from_pointee(admin_tokens)),
            admin_stamps,
            temporaries,
        };
        Ok((core, Work { poller, proposer }))
    }

    /// The operators' listener.
    pub(super) async fn listen(&self) -> anyhow::Result<TcpListener> {
        let addr = self.config.admin.listen;
        bound("--admin", addr, TcpListener::bind(addr).await)
    }

    /// Answers operators, follows the source, judges and proposes, until the process ends. `admission`
    /// is of the collectors that connect here, where any do.
    pub(super) fn spawn(
        &self,
        work: Work,
        listener: TcpListener,
        links: Arc<dyn Pages + Send + Sync>,
        drain: Drain,
        admission: Option<Arc<Admission>>,
    ) {
        let Base { clock, metrics } = self.base;
        let admin = Arc::new(Admin {
            server: Arc::clone(&self.server),
            links,
            drain,
            aggregator: Arc::clone(&self.aggregator),
            streams: Streams::default(),
            page: Newest::default(),
            sessions: Sessions::default(),
            admission,
            status: Arc::clone(&self.status),
            tokens: Arc::clone(&self.admin_tokens),
            hosts: self.config.admin.hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            metrics,
            clock,
        });
        tokio::spawn(admin::run(admin, listener));
        tokio::spawn(work.poller.run());
        if let Some(proposer) = work.proposer {
            tokio::spawn(proposer.run());
        }
        tokio::spawn(Arc::clone(&self.aggregator).run(clock));
        if let Some(file) = self.config.admin.token_file.clone() {
            let tokens = Arc::clone(&self.admin_tokens);
            let from = file.clone();
            let load = move || AdminTokens::load(&from).map(|new| tokens.store(Arc::new(new)));
            let seen = self.admin_stamps.clone();
            tokio::spawn(reload::watch("admin_tokens", vec![file], seen, metrics, load));
        }
    }

    /// Takes apart what is left when nothing listens any more.
    pub(super) fn end(self, runtime: Runtime) {
        // Git may be at work for a look or a proposal; nobody waits for it.
        runtime.shutdown_background();
        self.aggregator.close();
        for temporary in self.temporaries {
            // It may be gone already, or git may still write there: best effort.
            let _ = std::fs::remove_dir_all(temporary);
        }
    }

    /// The head in force, in one line for stdout.
    pub(super) fn head_line(&self) -> String {
        let head = self.server.head();
        let commit =
            if head.meta.commit.is_empty() { "(unknown)" } else { short(&head.meta.commit) };
        let (tiers, rollouts) = (head.snapshot.tiers.len(), head.snapshot.rollouts.len());
        format!("head      commit {commit}, Tiers: {tiers}, Rollouts: {rollouts}\n")
    }
}

/// What the flags make of evidence; `replica` is what this process calls itself.
pub(super) fn evidence(config: &EvidenceConfig, replica: Option<&str>) -> aggregate::Settings {
    let EvidenceConfig { store, expect_replicas, grace, forget } = config;
    let millis = |span: &Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let unnamed = aggregate::Settings::default();
    aggregate::Settings {
        replica: replica.map_or(unnamed.replica, Into::into),
        expect_replicas: expect_replicas.get(),
        grace_ms: millis(grace),
        forget_ms: millis(forget),
        store: store.clone(),
        incarnation: unnamed.incarnation,
        role: unnamed.role,
    }
}

/// Of one file, before it is read.
pub(super) fn stamp(file: &Path) -> Vec<Option<reload::Stamp>> {
    vec![reload::Stamp::of(file)]
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
pub(super) fn raise_descriptor_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    getrlimit(Resource::Nofile).current
}

/// When the first of the certificates that are shown ends, for an alert.
#[expect(clippy::cast_precision_loss, reason = "certificates end within 2^53 seconds")]
pub(super) fn show_expiry<const N: usize>(not_after: [Option<i64>; N], metrics: &Metrics) {
    let first = not_after.into_iter().flatten().min();
    metrics.certificate_expiry.replace(first.map(|seconds| (&[][..], seconds as f64)));
}
