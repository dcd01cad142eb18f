//! Step charts as SVG. Lines differ in dash and carry their name at their end: colour alone says
//! nothing.

use std::fmt::Write as _;

/// A line: one value for each position.
#[derive(Debug, Clone)]
pub struct Series {
    /// What it shows.
    pub name: String,
    /// By position.
    pub values: Vec<i64>,
}

/// A chart over positions 0, 1, 2 …
#[derive(Debug, Clone)]
pub struct Panel {
    /// Above it.
    pub title: String,
    /// Below the title.
    pub note: String,
    /// Below each position.
    pub labels: Vec<String>,
    /// Up to six.
    pub series: Vec<Series>,
}

const WIDTH: f64 = 860.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 56.0;
const PLOT: f64 = 170.0;
const PANEL: f64 = 300.0;

/// Colour and dash of each line: colours of Okabe and Ito, told apart with any kind of sight.
const LINES: [(&str, &str); 6] = [
    ("#0072b2", ""),
    ("#d55e00", "8 3"),
    ("#009e73", "2 3"),
    ("#cc79a7", "10 3 2 3"),
    ("#555555", "4 4"),
    ("#e69f00", "1 4"),
];

/// The panels one below the other, with a line of text at the end.
pub fn svg(panels: &[Panel], footer: &str) -> String {
    let height = PANEL * panels.len() as f64 + 34.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    for (number, panel) in panels.iter().enumerate() {
        draw(&mut out, panel, PANEL * number as f64);
    }
    // Writing to a string does not fail.
    let _ = write!(
        out,
        "<text x=\"{LEFT}\" y=\"{}\" fill=\"#555\">{}</text>\n</svg>\n",
        height - 12.0,
        escaped(footer)
    );
    out
}

fn draw(out: &mut String, panel: &Panel, offset: f64) {
    let most = panel.series.iter().flat_map(|one| &one.values).copied().max().unwrap_or(1).max(1);
    let positions = panel.labels.len().max(2);
    let width = WIDTH - LEFT - RIGHT;
    let x = |position: usize| LEFT + width * position as f64 / positions as f64;
    let y = |value: i64| offset + TOP + PLOT * (1.0 - value as f64 / most as f64);
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{}\" font-size=\"15\" font-weight=\"bold\">{}</text>\n\
<text x=\"{LEFT}\" y=\"{}\" fill=\"#555\">{}</text>",
        offset + 22.0,
        escaped(&panel.title),
        offset + 40.0,
        escaped(&panel.note)
    );
    let stride = stride(most);
    for value in (0..=most).step_by(usize::try_from(stride).unwrap_or(1)) {
        let at = y(value);
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT} {at:.1}H{:.1}\" stroke=\"#ddd\"/>\
<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            LEFT + width,
            LEFT - 6.0,
            at + 4.0
        );
    }
    // Labels thin out when there are many.
    let every = positions.div_ceil(12);
    for (position, label) in panel.labels.iter().enumerate().step_by(every) {
        let at = x(position) + 2.0;
        let below = offset + TOP + PLOT + 14.0;
        let _ = writeln!(
            out,
            "<text x=\"{at:.1}\" y=\"{below:.1}\" font-size=\"10\" \
transform=\"rotate(22 {at:.1} {below:.1})\">{}</text>",
            escaped(label)
        );
    }
    let mut taken: Vec<f64> = Vec::new();
    for ((one, (colour, dash)), shift) in panel.series.iter().zip(LINES).zip(0..) {
        // Lines of the same value lie beside each other.
        let nudge = f64::from(shift) * 2.0 - 4.0;
        let mut path = String::new();
        for (position, value) in one.values.iter().enumerate() {
            let command = if position == 0 { 'M' } else { 'L' };
            let at = y(*value) + nudge;
            let _ = write!(path, "{command}{:.1} {at:.1}H{:.1}", x(position), x(position + 1));
        }
        let _ = writeln!(
            out,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" \
stroke-dasharray=\"{dash}\"/>"
        );
        let Some(last) = one.values.last() else { continue };
        let mut at = y(*last) + nudge + 4.0;
        while let Some(other) = taken.iter().find(|other| (**other - at).abs() < 13.0) {
            at = other + 13.0;
        }
        taken.push(at);
        let end = x(one.values.len()) + 6.0;
        let _ = writeln!(
            out,
            "<text x=\"{end:.1}\" y=\"{at:.1}\" fill=\"{colour}\">{} {last}</text>",
            escaped(&one.name)
        );
    }
}

/// Between two lines of the scale: 1, 2 or 5 of a power of ten, at most eight of them.
fn stride(most: i64) -> i64 {
    let mut unit = 1;
    loop {
        for step in [unit, 2 * unit, 5 * unit] {
            if most / step <= 8 {
                return step;
            }
        }
        unit = match unit.checked_mul(10).filter(|unit| *unit <= i64::MAX / 10) {
            Some(unit) => unit,
            None => return most,
        };
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_has_round_steps_and_few_of_them() {
        for (most, expected) in [(1, 1), (4, 1), (8, 1), (10, 2), (44, 5), (45, 10), (356, 50)] {
            assert_eq!(stride(most), expected, "{most}");
        }
        assert!(i64::MAX / stride(i64::MAX) <= 8);
    }

    #[test]
    fn a_panel_has_a_named_line_for_each_series() {
        let series =
            |name: &str, values: &[i64]| Series { name: name.to_owned(), values: values.to_vec() };
        let panel = Panel {
            title: "a < b".to_owned(),
            note: String::new(),
            labels: vec!["one".to_owned(), "two".to_owned()],
            series: vec![series("old", &[3, 2]), series("new", &[0, 1])],
        };
        let drawn = svg(&[panel], "nothing is claimed");
        assert_eq!(drawn.matches("fill=\"none\"").count(), 2);
        assert!(
            drawn.contains("a &lt; b") && drawn.contains(">old 2<") && drawn.contains(">new 1<")
        );
        assert!(drawn.contains("nothing is claimed") && drawn.ends_with("</svg>\n"));
    }
}
