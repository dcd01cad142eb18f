//! How the process is told to end (serving.md decision 14).

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Takes the signals over from now on.
    ///
    /// # Errors
    ///
    /// When the operating system refuses the handlers.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one, and names it.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// From now on the next one ends the process at once: nobody waits for anything any more.
    pub fn exit_at_next(mut self) {
        tokio::spawn(async move {
            let signal = self.next().await;
            tracing::warn!(signal, "exiting at once");
            std::process::exit(EXIT_AT_ONCE);
        });
    }
}

/// Exit code after a second signal: nobody waits for links any more.
pub const EXIT_AT_ONCE: i32 = 130;
