//! The one clock of a drill: CLOCK_MONOTONIC, in nanoseconds since the drill began.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::time::Utc;

/// Nanoseconds since the drill began.
pub type Nanos = u64;

/// Copied freely; all copies agree.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// Begins at zero.
    #[expect(clippy::disallowed_methods, reason = "the drill's clock module")]
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// When `at` is, for tokio's timers.
    pub(crate) fn instant(&self, at: Nanos) -> tokio::time::Instant {
        (self.origin + Duration::from_nanos(at)).into()
    }

    /// The wall clock, for the anchors at both ends.
    #[expect(clippy::disallowed_methods, reason = "the drill's clock module")]
    pub fn utc() -> Utc {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Utc(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}
