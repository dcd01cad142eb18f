//! Shares as pictures. They are SVG, whose sizes are attributes: the page's policy allows no style
//! in markup. Pictures say nothing that the text beside them does not, and are hidden from screen
//! readers.

use super::html::Html;
use super::words::thousandths;

/// Width of every picture in its own units.
const WIDTH: u64 = 1_000;

/// A part of a stacked bar.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The class that gives it its colour.
    pub(super) class: &'static str,
    /// How many.
    pub(super) count: u64,
}

/// Parts beside each other over the whole width, hatched where the class is one that
/// [`is_hatched`]. Parts that are not nothing stay visible, however small.
pub(super) fn stacked(h: &mut Html, parts: &[Part]) {
    bar(h, |h| {
        let widths = widths(parts);
        let mut x = 0;
        for (part, width) in parts.iter().zip(widths) {
            if width > 0 {
                // A gap tells neighbours of like colours apart.
                block(h, part.class, x, width.saturating_sub(2).max(1));
            }
            x += width;
        }
    });
}

/// How much of something is done.
pub(super) fn progress(h: &mut Html, class: &'static str, part: u64, whole: u64) {
    bar(h, |h| block(h, class, 0, thousandths(part, whole)));
}

/// Halted members on a scale with the two lines that they may cross.
pub(super) fn halted(h: &mut Html, failed: u64, dark: u64, aborts_at: u64) {
    let reach = aborts_at.max(failed.saturating_add(dark)).max(1);
    // The last line does not stand on the edge.
    let scale = reach.saturating_add(reach / 4).saturating_add(1);
    bar(h, |h| {
        let end_of_failed = thousandths(failed, scale);
        block(h, "failed", 0, end_of_failed);
        let end = thousandths(failed.saturating_add(dark), scale);
        block(h, "dark", end_of_failed, end - end_of_failed);
        line(h, "block-line", thousandths(1, scale));
        if aborts_at > 0 {
            line(h, "abort-line", thousandths(aborts_at, scale));
        }
    });
}

/// The patterns that hatched parts are filled with; once per page.
pub(super) fn patterns(h: &mut Html) {
    let svg: &[_] =
        &[("class", "patterns"), ("width", "0"), ("height", "0"), ("aria-hidden", "true")];
    h.el("svg", svg, |h| {
        h.el("defs", &[], |h| {
            for class in HATCHED {
                let id = pattern(class);
                let attributes: &[_] = &[
                    ("id", id),
                    ("width", "6"),
                    ("height", "6"),
                    ("patternUnits", "userSpaceOnUse"),
                    ("patternTransform", "rotate(45)"),
                ];
                h.el("pattern", attributes, |h| {
                    h.void("rect", &[("width", "6"), ("height", "6"), ("class", class)]);
                    h.void("rect", &[("width", "2"), ("height", "6"), ("class", "stripe")]);
                });
            }
        });
    });
}

/// Classes whose parts are hatched, so that they are told from their neighbours without colour.
const HATCHED: [&str; 3] = ["taking", "dark", "other"];

/// Whether parts of this class are hatched.
pub(super) fn is_hatched(class: &str) -> bool {
    HATCHED.contains(&class)
}

fn pattern(class: &str) -> &'static str {
    match class {
        "taking" => "hatch-taking",
        "dark" => "hatch-dark",
        _ => "hatch-other",
    }
}

/// A small square of a part's look, for the legend.
pub(super) fn swatch(h: &mut Html, class: &'static str) {
    let svg: &[_] = &[("class", "swatch"), ("viewBox", "0 0 12 12"), ("aria-hidden", "true")];
    h.el("svg", svg, |h| {
        let filled = fill(class);
        let mut attributes = vec![("width", "12"), ("height", "12"), ("class", class)];
        attributes.extend(filled.as_deref().map(|fill| ("fill", fill)));
        h.void("rect", &attributes);
    });
}

fn fill(class: &str) -> Option<String> {
    is_hatched(class).then(|| format!("url(#{})", pattern(class)))
}

fn bar(h: &mut Html, body: impl FnOnce(&mut Html)) {
    let attributes: &[_] = &[("class", "bar"), ("aria-hidden", "true"), ("focusable", "false")];
    h.el("svg", attributes, body);
}

/// Sizes are per cent of the width, so that hatching is not stretched.
fn block(h: &mut Html, class: &'static str, x: u64, width: u64) {
    let (x, width, filled) = (percent(x), percent(width), fill(class));
    let mut attributes = vec![("x", &*x), ("width", &*width), ("height", "100%"), ("class", class)];
    attributes.extend(filled.as_deref().map(|fill| ("fill", fill)));
    h.void("rect", &attributes);
}

fn line(h: &mut Html, class: &'static str, x: u64) {
    // What it lies on may be as dark as the line.
    for (class, width) in [("halo", "7"), (class, "3")] {
        let inset = if width == "3" { "translate(2)" } else { "translate(0)" };
        let x = percent(x);
        let attributes: &[_] = &[
            ("x", &*x),
            ("width", width),
            ("height", "100%"),
            ("transform", inset),
            ("class", class),
        ];
        h.void("rect", attributes);
    }
}

/// Thousandths as a CSS percentage.
fn percent(thousandths: u64) -> String {
    format!("{}.{}%", thousandths / 10, thousandths % 10)
}

/// Widths of parts that are nothing are 0, those of others at least 8; together they are [`WIDTH`].
fn widths(parts: &[Part]) -> Vec<u64> {
    const LEAST: u64 = 8;
    let whole: u128 = parts.iter().map(|part| u128::from(part.count)).sum();
    let share = |count: u64| u128::from(count) * u128::from(WIDTH) / whole.max(1);
    let mut widths: Vec<u64> = parts
        .iter()
        .map(|part| match part.count {
            0 => 0,
            count => u64::try_from(share(count)).unwrap_or(WIDTH).max(LEAST),
        })
        .collect();
    let sum: u64 = widths.iter().sum();
    // The widest takes what rounding left, or gives what the smallest needed.
    if let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > 0) {
        *widest = (*widest + WIDTH).saturating_sub(sum);
    }
    widths
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_fill_the_bar_and_none_vanishes(
            counts in proptest::collection::vec(prop_oneof![Just(0), 1..10_u64, any::<u64>()], 1..6),
        ) {
            let parts: Vec<Part> =
                counts.iter().map(|count| Part { class: "to", count: *count }).collect();
            let widths = widths(&parts);
            if counts.iter().any(|count| *count > 0) {
                prop_assert_eq!(widths.iter().sum::<u64>(), WIDTH);
            }
            for (count, width) in counts.iter().zip(&widths) {
                prop_assert_eq!(*count > 0, *width > 0, "{:?}", widths);
            }
        }
    }

    #[test]
    fn the_abort_line_is_crossed_when_the_members_are() {
        let mut html = Html::default();
        halted(&mut html, 2, 1, 3);
        let html = html.finish();
        assert!(
            html.contains("<rect x=\"0.0%\" width=\"50.0%\" height=\"100%\" class=\"failed\"/>"),
            "{html}"
        );
        let line = "<rect x=\"75.0%\" width=\"3\" height=\"100%\" transform=\"translate(2)\" class=\"abort-line\"/>";
        assert!(html.contains(line), "{html}");
        let mut html = Html::default();
        halted(&mut html, u64::MAX, u64::MAX, 0);
        assert!(!html.finish().contains("abort-line"));
    }
}
