//! How text is put on a terminal: glyphs, colour, ages, columns. Colour never carries meaning alone.

use std::borrow::Cow;

use render::problem::printable;
use render::rollout::verdict::Kind;

/// Characters of one text that a peer chose: an error, a label.
const TEXT_CHARS_MAX: usize = 160;

/// Whether escape codes may be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// The reader is a terminal that wants colour.
    pub colour: bool,
}

impl Style {
    /// `✖ abort`: one glyph and one word.
    pub fn verdict(self, kind: Kind) -> String {
        let colour = match kind {
            Kind::Abort | Kind::Blocked => RED,
            Kind::Inconclusive => YELLOW,
            Kind::Hold => BLUE,
            Kind::Advance | Kind::Complete => GREEN,
        };
        self.paint(colour, &format!("{} {}", glyph(kind), kind.label()))
    }

    /// For what is looked for first.
    pub fn strong(self, text: &str) -> String {
        self.paint(BOLD, text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// The sign of a verdict, on terminals and on the status page.
pub fn glyph(kind: Kind) -> &'static str {
    match kind {
        Kind::Abort => "✖",
        Kind::Blocked => "■",
        Kind::Inconclusive => "?",
        Kind::Hold => "○",
        Kind::Advance => "▲",
        Kind::Complete => "✔",
    }
}

const BOLD: &str = "1";
const RED: &str = "1;31";
const YELLOW: &str = "1;33";
const BLUE: &str = "1;34";
const GREEN: &str = "1;32";

/// A text that somebody else chose, as one line that moves no cursor, cut where it is too long.
pub fn clean(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        None => printable(text),
        Some((at, _)) => format!("{}…", printable(&text[..at])).into(),
    }
}

/// How long something took or lies back, in its two largest units: `3h 5m`, `12s`.
pub fn age(ms: u64) -> String {
    let seconds = ms / 1_000;
    let (d, h, m, s) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    let two = |large: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit} {small}{small_unit}"),
    };
    match (d, h, m) {
        (0, 0, 0) => format!("{s}s"),
        (0, 0, _) => two(m, "m", s, "s"),
        (0, ..) => two(h, "h", m, "m"),
        _ => two(d, "d", h, "h"),
    }
}

/// `part` of `whole` in percent with one decimal; 0 of 0 is 0.
pub fn percent(part: u64, whole: u64) -> String {
    let tenths = (u128::from(part) * 1_000).checked_div(u128::from(whole)).unwrap_or(0);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// Lines of columns, those that are `left` aligned left, the others right. No line ends in blanks.
pub fn columns(rows: &[Vec<String>], left: impl Fn(usize) -> bool) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        for (at, cell) in row.iter().enumerate() {
            let width = cell.chars().count();
            match widths.get_mut(at) {
                Some(widest) => *widest = width.max(*widest),
                None => widths.push(width),
            }
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = " ".repeat(width - cell.chars().count());
            let between = if at == 0 { "" } else { "  " };
            let (before, after) = if left(at) { ("", gap.as_str()) } else { (gap.as_str(), "") };
            line.extend([between, before, cell.as_str(), after]);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_show_two_units() {
        for (ms, text) in [
            (0, "0s"),
            (999, "0s"),
            (61_000, "1m 1s"),
            (3_600_000, "1h"),
            (3_660_000, "1h 1m"),
            (90_061_000, "1d 1h"),
            (u64::MAX, "213503982334d 14h"),
        ] {
            assert_eq!(age(ms), text);
        }
    }

    #[test]
    fn percents_have_one_decimal_and_survive_zero_and_the_largest() {
        assert_eq!(percent(0, 0), "0.0 %");
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(u64::MAX, u64::MAX), "100.0 %");
    }

    #[test]
    fn what_others_chose_moves_no_cursor() {
        assert_eq!(clean("a\x1b[2J\r\nb\u{202e}\u{9b}1m"), "a\\u{1b}[2J\\r\\nb\\u{202e}\\u{9b}1m");
        assert_eq!(clean(&"é".repeat(161)), format!("{}…", "é".repeat(160)));
    }

    #[test]
    fn colour_is_only_written_where_it_is_wanted() {
        assert_eq!(Style { colour: false }.verdict(Kind::Abort), "✖ abort");
        assert_eq!(Style { colour: true }.verdict(Kind::Abort), "\x1b[1;31m✖ abort\x1b[0m");
        let mut words: Vec<String> = Kind::ALL.map(|kind| Style::default().verdict(kind)).into();
        words.sort();
        words.dedup_by_key(|word| word.chars().next());
        assert_eq!(words.len(), Kind::ALL.len(), "each has a glyph of its own");
    }
}
