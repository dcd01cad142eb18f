//! What the tests share.

use std::time::{Duration, Instant};

pub(crate) mod estate;
pub(crate) mod exposition;
pub(crate) mod gateway;
pub(crate) mod git;
pub(crate) mod http;
pub(crate) mod opamp;
pub(crate) mod pki;
pub(crate) mod report;

/// Longest that anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Asks again and again, as another process cannot be told to hurry; panics past [`PATIENCE`].
#[track_caller]
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    #[expect(clippy::disallowed_methods, reason = "a test's patience with another process")]
    let begin = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begin.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
