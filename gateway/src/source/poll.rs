//! Looks at a source again and again, and puts in force what is new.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use render::snapshot::CompileError;
use tokio::sync::{Notify, watch};

use super::status::Status;
use super::{Loaded, Source, SourceError};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::metrics::labels::FetchOutcome;

/// Asks a [`Poller`] to look before its time, and waits for that.
#[derive(Debug, Default)]
pub struct Early {
    asked: Notify,
    begun: AtomicU64,
    /// The number of the last look that has ended.
    ended: watch::Sender<u64>,
}

impl Early {
    /// Has the source looked at, and returns when a look has ended that began after this was
    /// called. Never, if the poller is gone.
    pub async fn look(&self) {
        let mut ended = self.ended.subscribe();
        let wanted = self.begun.load(Ordering::SeqCst) + 1;
        self.asked.notify_one();
        // The sender lives in `self`, so the wait cannot end for want of one.
        let _ = ended.wait_for(|ended| *ended >= wanted).await;
    }
}

/// A source and what happens with its heads.
pub struct Poller<P> {
    source: Source,
    put: P,
    status: Arc<Status>,
    clock: Clock,
    metrics: &'static Metrics,
    interval: Duration,
    early: Arc<Early>,
    /// Whether there is a head to fall back on: before that, whoever asked for the look tells.
    in_force: bool,
    /// When the head in force was made, to notice one that is older.
    made_unix_ms: Option<u64>,
}

impl<P> Poller<P>
where
    P: FnMut(Loaded) -> Result<(), CompileError> + Send + 'static,
{
    /// `put` compiles a head and puts it in force, on a blocking thread.
    pub fn new(
        source: Source,
        interval: Duration,
        status: Arc<Status>,
        clock: Clock,
        metrics: &'static Metrics,
        put: P,
    ) -> Self {
        Self {
            source,
            put,
            status,
            clock,
            metrics,
            interval,
            early: Arc::default(),
            in_force: false,
            made_unix_ms: None,
        }
    }

    /// Asks this poller, once it runs, to look before its time.
    pub fn early(&self) -> Arc<Early> {
        Arc::clone(&self.early)
    }

    /// Looks once, blocking, and says whether a new head is in force.
    ///
    /// # Errors
    ///
    /// Why the head in force, if there is one, stays; also kept for `/readyz`, counted and logged.
    pub fn look(&mut self) -> Result<bool, SourceError> {
        let began = self.clock.elapsed();
        let looked = self.source.look();
        let result = looked.and_then(|loaded| match loaded {
            None => Ok(false),
            Some(loaded) => self.install(loaded).map(|()| true),
        });
        let now = self.clock.unix_ms();
        let outcome = match &result {
            Ok(loaded) => {
                if self.status.succeeded(now) {
                    tracing::info!(place = %self.status.place(), "the source can be read again");
                }
                let seconds = self.metrics.head_last_success_timestamp.cell(&[]);
                seconds.set(milliseconds_to_seconds(now));
                if *loaded { FetchOutcome::Loaded } else { FetchOutcome::Unchanged }
            }
            Err(error) => {
                let reason = error.reason();
                self.metrics.head_refused.count(&[reason]);
                let text = error.to_string();
                // The same failure at every look is one line, not one per look.
                if self.status.failed(now, reason, text.clone()) && self.in_force {
                    tracing::error!(
                        place = %self.status.place(), reason, "the head in force stays: {text}"
                    );
                }
                FetchOutcome::Failed
            }
        };
        let took = self.clock.elapsed().saturating_sub(began);
        self.metrics.source_fetch.get(outcome).record(took);
        result
    }

    fn install(&mut self, loaded: Loaded) -> Result<(), SourceError> {
        let Loaded { served, commit_unix_ms, made_unix_ms } = &loaded;
        let (commit_unix_ms, made_unix_ms) = (*commit_unix_ms, *made_unix_ms);
        let commit = served.commit.clone();
        let (tiers, rollouts) = (served.tiers.len(), served.rollouts.len());
        for finding in served.findings() {
            tracing::warn!(commit = %short(&commit), "{finding}");
        }
        (self.put)(loaded)?;
        self.in_force = true;
        if let (Some(before), Some(now)) = (self.made_unix_ms, made_unix_ms)
            && now < before
        {
            self.metrics.head_older.increment(1);
            tracing::warn!(commit = %short(&commit), "the new head is older than the one before");
        }
        self.made_unix_ms = made_unix_ms.or(self.made_unix_ms);
        let kind = self.status.report().kind;
        self.metrics.head_info.replace([(&[short(&commit), kind][..], 1.0)]);
        let seconds = commit_unix_ms.map(|ms| (&[][..], milliseconds_to_seconds(ms)));
        self.metrics.head_commit_timestamp.replace(seconds);
        tracing::info!(commit = %short(&commit), tiers, rollouts, "a new head is in force");
        Ok(())
    }

    /// Looks at every interval, and when asked to, until it is dropped; the first look is one
    /// interval away.
    pub async fn run(mut self) {
        loop {
            let early = Arc::clone(&self.early);
            tokio::select! {
                () = tokio::time::sleep(self.interval) => {}
                () = early.asked.notified() => {}
            }
            let looked = tokio::task::spawn_blocking(move || {
                self.look_guarded();
                self
            });
            match looked.await {
                Ok(poller) => self = poller,
                Err(error) => {
                    tracing::error!(%error, "the source is not looked at any more");
                    return;
                }
            }
        }
    }

    /// A fault of ours in reading one head must not keep the next one out.
    fn look_guarded(&mut self) {
        let number = self.early.begun.fetch_add(1, Ordering::SeqCst) + 1;
        // What went wrong is already logged, counted and kept for /readyz.
        let looked = catch_unwind(AssertUnwindSafe(|| drop(self.look())));
        if looked.is_err() {
            self.metrics.head_refused.count(&["panic"]);
            let text = "a fault of the gateway, see its log; please report it".to_owned();
            self.status.failed(self.clock.unix_ms(), "panic", text);
        }
        self.early.ended.send_replace(number);
    }
}

/// The first twelve characters of a commit: enough for a label or a line.
pub fn short(commit: &str) -> &str {
    commit.char_indices().nth(12).map_or(commit, |(end, _)| &commit[..end])
}

#[expect(clippy::cast_precision_loss, reason = "exact for the next 200,000 years")]
fn milliseconds_to_seconds(unix_ms: u64) -> f64 {
    unix_ms as f64 / 1_000.0
}
