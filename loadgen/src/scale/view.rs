//! What somebody sees while a run goes on: a line that is drawn again and again on a terminal, and a
//! new line now and then elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use crate::clock::{Micros, micros};
use crate::fleet::Progress;
use crate::progress::Bar;

/// Between two lines where there is no terminal.
const PLAIN: Duration = Duration::from_secs(5);

/// One view over all processes.
#[derive(Debug)]
pub(super) struct View {
    bar: Option<Bar>,
    plain: bool,
    next: Micros,
}

impl View {
    pub(super) fn new(collectors: u32, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self {
            bar: (terminal && !quiet).then(|| Bar::new(collectors)),
            plain: !terminal && !quiet,
            next: 0,
        }
    }

    /// Shows how things stand `now`, since the run began.
    pub(super) fn show(&mut self, now: Micros, progress: &Progress) {
        if let Some(bar) = &self.bar {
            bar.show(progress);
        }
        if self.plain && now >= self.next {
            self.next = now.saturating_add(micros(PLAIN));
            eprintln!(
                "{:>6} s  connected {}, offered {}, settled {} of {}, wrong {}",
                now / 1_000_000,
                progress.connected,
                progress.offered,
                progress.settled,
                progress.collectors,
                progress.wrong
            );
        }
    }

    /// Tells that something happens.
    pub(super) fn tell(&self, now: Micros, what: &str) {
        match &self.bar {
            Some(bar) => bar.tell(&format!("{:>6} s  {what}", now / 1_000_000)),
            None if self.plain => eprintln!("{:>6} s  {what}", now / 1_000_000),
            None => {}
        }
    }

    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.clear();
        }
    }
}
