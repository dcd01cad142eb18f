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
        let size = rustix::termios::tcgetwinsize(io::stdout());
        let (rows, columns) = size.map_or((usize::MAX, usize::MAX), |size| {
            // A terminal that does not know its size says 0.
            let known = |cells: u16| if cells == 0 { usize::MAX } else { usize::from(cells) };
            (known(size.ws_row), known(size.ws_col))
        });
        self.print(&frame(text, rows, columns))
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

/// Draws over what is on the screen without clearing it first, which would flicker. What does not
/// fit is cut and counted: a line that wraps or scrolls would spoil the next drawing.
fn frame(text: &str, rows: usize, columns: usize) -> String {
    let mut shown = String::from("\x1b[H");
    let all = text.lines().count();
    // The cursor needs a row of its own below.
    let room = rows.saturating_sub(1).max(1);
    let fits = if all > room { room - 1 } else { all };
    for line in text.lines().take(fits) {
        // Only lines of a few words are coloured.
        match line.char_indices().nth(columns) {
            Some(_) if !line.contains('\x1b') => {
                shown.extend(line.chars().take(columns.saturating_sub(1)));
                shown.push('…');
            }
            _ => shown.push_str(line),
        }
        shown.push_str("\x1b[K\n");
    }
    if fits < all {
        shown.push_str(&format!("… {} more lines\x1b[K\n", all - fits));
    }
    shown + "\x1b[J"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_its_screen() {
        let text = "one\ntwo\nthree\nfour\n";
        assert_eq!(frame("a\nb\n", 24, 80), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
        assert_eq!(frame(text, 5, 4), "\x1b[Hone\x1b[K\ntwo\x1b[K\nthr…\x1b[K\nfour\x1b[K\n\x1b[J");
        assert_eq!(frame(text, 4, 80), "\x1b[Hone\x1b[K\ntwo\x1b[K\n… 2 more lines\x1b[K\n\x1b[J");
        for rows in 0..8 {
            let lines = frame(text, rows, 80).lines().count();
            assert!(lines <= rows.max(2), "{rows}");
        }
        assert_eq!(frame("", 0, 0), "\x1b[H\x1b[J");
    }
}
