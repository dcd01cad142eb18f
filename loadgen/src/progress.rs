//! A line that shows how far a run has come, where there is somebody to see it.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::fleet::Progress;

/// How often it is drawn.
pub const REDRAW: Duration = Duration::from_millis(200);

/// The line; silent when standard error is not a terminal.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// For that many collectors.
    pub fn new(collectors: u32) -> Self {
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(u64::from(collectors)), target);
        if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Shows it.
    pub fn show(&self, progress: &Progress) {
        self.0.set_position(u64::from(progress.settled));
        self.0.set_message(format!(
            "connected {}, offered {}, settled {} of {}, wrong {}, head {}",
            progress.connected,
            progress.offered,
            progress.settled,
            progress.collectors,
            progress.wrong,
            progress.head
        ));
    }

    /// Writes a line above it.
    pub(crate) fn tell(&self, text: &str) {
        self.0.println(text);
    }

    /// Takes it off the screen.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}
