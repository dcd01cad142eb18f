//! What the last looks at the source came to: the detail behind `/readyz`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use render::rollout::words::moment;

/// Shared by the poller, which writes it, and the admin listener, which reads it.
#[derive(Debug)]
pub struct Status {
    kind: &'static str,
    place: String,
    inner: Mutex<Inner>,
}

#[derive(Clone, Debug, Default)]
struct Inner {
    last_success_unix_ms: Option<u64>,
    failure: Option<Failure>,
}

#[derive(Clone, Debug)]
struct Failure {
    reason: &'static str,
    text: String,
    since_unix_ms: u64,
}

/// As `/readyz` and `/api/v1/head` show it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `estate`, `repo` or `snapshot`.
    pub kind: &'static str,
    /// Directory, file, or URL without its credentials.
    pub place: String,
    /// When the place was last read without a fault.
    pub last_success: Option<String>,
    /// The same in milliseconds since 1970.
    #[serde(skip)]
    pub last_success_unix_ms: Option<u64>,
    /// Set while looks fail and the head in force is an older one.
    pub failure: Option<FailureReport>,
}

/// Why the looks fail.
#[derive(Clone, Debug, Serialize)]
pub struct FailureReport {
    /// As in `tidegate_head_refused_total`.
    pub reason: &'static str,
    /// All of it, with every problem found.
    pub detail: String,
    /// When the first of the failing looks began to fail in this way.
    pub since: String,
    /// The same in milliseconds since 1970.
    #[serde(skip)]
    pub since_unix_ms: u64,
}

impl Status {
    /// Nothing was looked at yet. `place` must not hold credentials.
    pub fn new(kind: &'static str, place: String) -> Self {
        Self { kind, place, inner: Mutex::default() }
    }

    /// A look went well; whether one before it had not.
    pub fn succeeded(&self, unix_ms: u64) -> bool {
        let mut inner = self.lock();
        inner.last_success_unix_ms = Some(unix_ms);
        inner.failure.take().is_some()
    }

    /// A look failed; whether that is news.
    pub fn failed(&self, unix_ms: u64, reason: &'static str, text: String) -> bool {
        let mut inner = self.lock();
        let known = inner.failure.as_ref();
        if known.is_some_and(|known| known.reason == reason && known.text == text) {
            return false;
        }
        let since_unix_ms = known
            .filter(|known| known.reason == reason)
            .map_or(unix_ms, |known| known.since_unix_ms);
        inner.failure = Some(Failure { reason, text, since_unix_ms });
        true
    }

    /// For an answer.
    pub fn report(&self) -> Report {
        let inner = self.lock().clone();
        Report {
            kind: self.kind,
            place: self.place.clone(),
            last_success: inner.last_success_unix_ms.map(moment),
            last_success_unix_ms: inner.last_success_unix_ms,
            failure: inner.failure.map(|failure| FailureReport {
                reason: failure.reason,
                detail: failure.text,
                since: moment(failure.since_unix_ms),
                since_unix_ms: failure.since_unix_ms,
            }),
        }
    }

    /// `kind place`, for a line of text.
    pub fn place(&self) -> String {
        format!("{} {}", self.kind, self.place)
    }

    /// Every change is whole, so that a panic elsewhere leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_news_once_and_success_ends_it() {
        let status = Status::new("estate", "dir".to_owned());
        assert!(status.failed(1_000, "invalid", "a".to_owned()));
        assert!(!status.failed(2_000, "invalid", "a".to_owned()));
        assert!(status.failed(3_000, "invalid", "b".to_owned()));
        let failure = status.report().failure.unwrap();
        assert_eq!((&*failure.detail, &*failure.since), ("b", "1970-01-01T00:00:01Z"));
        assert!(status.succeeded(4_000));
        assert!(!status.succeeded(5_000));
        assert!(status.report().failure.is_none());
    }
}
