//! Log lines that peers cause: a few per second, and never with their bytes unescaped.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::Counter;

use crate::clock::Seconds;

/// Lets the first [`LINES_PER_SECOND`] lines of each second through and counts the rest.
///
/// ```ignore
/// if metrics.peer_log.allow(now.seconds) {
///     tracing::warn!(peer = %addr, text = %Escaped(text), "refused a message");
/// }
/// ```
pub struct PeerLog {
    /// Second in the upper half, lines in it in the lower.
    window: AtomicU64,
    dropped: Counter,
}

/// A thousand peers that fail in the same way say the same thing; twenty say it well enough.
pub const LINES_PER_SECOND: u32 = 20;

impl PeerLog {
    /// Counts what it leaves out in `dropped`.
    pub fn new(dropped: Counter) -> Self {
        Self { window: AtomicU64::new(0), dropped }
    }

    /// Whether this line may be written.
    pub fn allow(&self, now: Seconds) -> bool {
        let fresh = u64::from(now) << 32;
        let count = |seen: u64| if seen >> 32 == u64::from(now) { seen + 1 } else { fresh + 1 };
        let seen = self
            .window
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |seen| Some(count(seen)))
            .unwrap_or_else(|seen| seen);
        let line = count(seen) & u64::from(u32::MAX);
        let allowed = line <= u64::from(LINES_PER_SECOND);
        if !allowed {
            self.dropped.increment(1);
        }
        allowed
    }
}

impl fmt::Debug for PeerLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerLog")
    }
}

/// What a peer sent, fit for a log line or an answer: control characters and quotes escaped, cut
/// after [`ESCAPED_CHARS`] characters.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'t>(pub &'t str);

/// Long enough to recognise, too short to fill a disk with.
pub const ESCAPED_CHARS: usize = 200;

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, c) in self.0.chars().enumerate() {
            if index == ESCAPED_CHARS {
                return f.write_str("…");
            }
            write!(f, "{}", c.escape_debug())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_twenty_lines() {
        let log = PeerLog::new(Counter::noop());
        let allowed = |second| (0..100).filter(|_| log.allow(second)).count();
        assert_eq!(allowed(7), 20);
        assert_eq!(allowed(8), 20);
        assert_eq!(allowed(8), 0);
    }

    #[test]
    fn peers_cannot_forge_lines() {
        assert_eq!(Escaped("a\nb\u{1b}[31m\"").to_string(), r#"a\nb\u{1b}[31m\""#);
        assert_eq!(Escaped(&"x".repeat(500)).to_string().chars().count(), ESCAPED_CHARS + 1);
    }
}
