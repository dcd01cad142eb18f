//! Where words go: data to stdout, everything else to stderr.

use std::io::{self, ErrorKind, IsTerminal, Write};

use render::problem::printable;

use super::style::Style;

/// Nobody reads stdout any more; what was asked for is done as far as anybody can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderGone;

/// Standard output.
#[derive(Clone, Copy, Debug)]
pub struct Out {
    /// Somebody looks at it.
    pub terminal: bool,
    /// What it takes.
    pub style: Style,
}

impl Out {
    /// As the process was started. No colour without a terminal, with `NO_COLOR`, or on a dumb one.
    pub fn new() -> Self {
        let terminal = io::stdout().is_terminal();
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let dumb = set("TERM").is_some_and(|term| term == "dumb");
        let colour = terminal && !dumb && set("NO_COLOR").is_none();
        Self { terminal, style: Style { colour } }
    }

    /// Writes `text`, all of it, now. A failure that is not the reader's leaving is told.
    ///
    /// # Errors
    /// [`ReaderGone`]: writing more is of no use.
    pub fn print(&self, text: &str) -> Result<(), ReaderGone> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| {
            if error.kind() != ErrorKind::BrokenPipe {
                tell(&format!("cannot write to stdout: {error}"));
            }
            ReaderGone
        })
    }

    /// Replaces what is on the terminal by `text`, as much of it as fits.
    ///
    /// # Errors
    /// As [`Out::print`].
    pub fn redraw(&self, text: &str) -> Result<(), ReaderGone> {
        let lines = rustix::termios::tcgetwinsize(io::stdout())
            .map_or(usize::MAX, |size| usize::from(size.ws_row).max(2) - 1);
        let mut shown = String::from("\x1b[H");
        let all = text.lines().count();
        let fits = if all > lines { lines - 1 } else { all };
        for line in text.lines().take(fits) {
            shown.push_str(line);
            shown.push_str("\x1b[K\n");
        }
        if fits < all {
            shown.push_str(&format!("… {} more lines\x1b[K\n", all - fits));
        }
        shown.push_str("\x1b[J");
        self.print(&shown)
    }

    /// Begins redrawing with an empty screen.
    ///
    /// # Errors
    /// As [`Out::print`].
    pub fn clear(&self) -> Result<(), ReaderGone> {
        self.print("\x1b[2J")
    }
}

impl Default for Out {
    fn default() -> Self {
        Self::new()
    }
}

/// One line on stderr, whatever is in it.
pub fn tell(text: &str) {
    // Where stderr is closed there is nobody to tell.
    let _ = writeln!(io::stderr().lock(), "gateway: {}", printable(text));
}

/// Several lines on stderr, such as a refusal with all its problems.
pub fn tell_lines(text: &str) {
    let lines: Vec<_> = text.lines().map(printable).collect();
    let _ = writeln!(io::stderr().lock(), "gateway: {}", lines.join("\n"));
}
