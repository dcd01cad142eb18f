//! Lines over time as SVG. They differ in dash and carry their name: colour alone says nothing.

use std::fmt::Write as _;

/// One line: seconds and values, in order of time.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) points: Vec<(f64, f64)>,
}

/// A chart.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub(super) title: &'static str,
    /// What is told at the axis.
    pub(super) unit: &'static str,
    /// Powers of ten are equally far from each other.
    pub(super) logarithmic: bool,
    /// Up to four.
    pub(super) lines: Vec<Line>,
}

/// Something that happened at that second.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) at: f64,
    pub(super) what: String,
}

const WIDTH: f64 = 900.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 44.0;
const PLOT: f64 = 190.0;
const PANEL: f64 = 280.0;

/// Colour and dash of each line: colours of Okabe and Ito, told apart with any kind of sight.
const LINES: [(&str, &str); 4] =
    [("#0072b2", ""), ("#d55e00", "8 3"), ("#009e73", "2 3"), ("#cc79a7", "10 3 2 3")];

/// The panels one below the other over the same seconds, the marks in all of them.
pub(super) fn svg(panels: &[Panel], marks: &[Mark], footer: &str) -> String {
    let height = PANEL * panels.len() as f64 + 30.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    let ends = panels.iter().flat_map(|panel| &panel.lines).filter_map(|line| line.points.last());
    let seconds = ends.map(|(at, _)| *at).fold(1.0, f64::max);
    for (number, panel) in panels.iter().enumerate() {
        draw(&mut out, panel, marks, seconds, PANEL * number as f64);
    }
    // Writing to a string does not fail, here and below.
    let _ = write!(
        out,
        "<text x=\"{LEFT}\" y=\"{:.0}\" fill=\"#555\">{}</text>\n</svg>\n",
        height - 10.0,
        escaped(footer)
    );
    out
}

fn draw(out: &mut String, panel: &Panel, marks: &[Mark], seconds: f64, offset: f64) {
    let values = panel.lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value);
    let most = values.fold(0.0, f64::max).max(1e-9);
    let width = WIDTH - LEFT - RIGHT;
    let (bottom, height) = (offset + TOP + PLOT, PLOT);
    let (least, most) = if panel.logarithmic {
        (0.1, 10_f64.powf(most.log10().ceil()).max(1.0))
    } else {
        (0.0, round_up(most))
    };
    let x = |at: f64| LEFT + width * (at / seconds).clamp(0.0, 1.0);
    let y = |value: f64| {
        let share = if panel.logarithmic {
            (value.max(least) / least).ln() / (most / least).ln()
        } else {
            value / most
        };
        bottom - height * share.clamp(0.0, 1.0)
    };
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{:.0}\" font-size=\"15\" font-weight=\"bold\">{}</text>",
        offset + 24.0,
        escaped(panel.title)
    );
    for value in ticks(least, most, panel.logarithmic) {
        let at = y(value);
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT} {at:.1}H{:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}{}</text>",
            LEFT + width,
            LEFT - 6.0,
            at + 4.0,
            short(value),
            panel.unit
        );
    }
    for step in 0..=6 {
        let at = seconds * f64::from(step) / 6.0;
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{at:.0} s</text>",
            x(at),
            bottom + 16.0
        );
    }
    for mark in marks {
        let at = x(mark.at);
        let _ = writeln!(
            out,
            "<path d=\"M{at:.1} {:.1}V{bottom:.1}\" stroke=\"#888\" stroke-dasharray=\"1 3\"><title>{}</title></path>",
            offset + TOP,
            escaped(&mark.what)
        );
    }
    let mut taken: Vec<f64> = Vec::new();
    for (line, (colour, dash)) in panel.lines.iter().zip(LINES) {
        let mut path = String::new();
        for (number, (at, value)) in line.points.iter().enumerate() {
            let letter = if number == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{:.1} {:.1}", x(*at), y(*value));
        }
        let _ = writeln!(
            out,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>"
        );
        let Some((at, value)) = line.points.last() else { continue };
        let mut below = y(*value) + 4.0;
        while let Some(other) = taken.iter().find(|other| (**other - below).abs() < 14.0) {
            below = other + 14.0;
        }
        taken.push(below);
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{below:.1}\" fill=\"{colour}\">{} {}{}</text>",
            x(*at) + 6.0,
            escaped(line.name),
            short(*value),
            panel.unit
        );
    }
}

/// 1, 2 or 5 with zeros behind it, not less than the value.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|round| *round >= value)
        .unwrap_or(value)
}

fn ticks(least: f64, most: f64, logarithmic: bool) -> Vec<f64> {
    if !logarithmic {
        return (0..=4).map(|step| most * f64::from(step) / 4.0).collect();
    }
    let mut ticks = Vec::new();
    let mut value = least;
    while value <= most * 1.001 && ticks.len() < 12 {
        ticks.push(value);
        value *= 10.0;
    }
    ticks
}

/// A number with few digits.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.3}M", value / 1e6),
        value if value >= 1e4 => format!("{:.0}k", value / 1e3),
        value if value >= 1e3 => format!("{:.1}k", value / 1e3),
        value if value >= 10.0 || value == 0.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_drawn_and_named_and_every_event_is_marked() {
        let line = |name, points: &[(f64, f64)]| Line { name, points: points.to_vec() };
        let panels = [
            Panel {
                title: "links",
                unit: "",
                logarithmic: false,
                lines: vec![
                    line("connected", &[(0.0, 0.0), (10.0, 500_000.0)]),
                    line("offered", &[(0.0, 0.0), (10.0, 500_000.0)]),
                ],
            },
            Panel {
                title: "latency",
                unit: " ms",
                logarithmic: true,
                lines: vec![line("p99", &[(0.0, 0.4), (10.0, 31.0)]), line("none", &[])],
            },
        ];
        let marks = [Mark { at: 5.0, what: "replica 3 <killed>".to_owned() }];
        let drawn = svg(&panels, &marks, "a footer");
        assert_eq!(drawn.matches("fill=\"none\"").count(), 4);
        assert_eq!(drawn.matches("replica 3 &lt;killed&gt;").count(), 2);
        assert!(drawn.contains(">connected 500k<") && drawn.contains(">p99 31 ms<"));
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"));
        assert!(drawn.ends_with("a footer</text>\n</svg>\n"));
    }

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, expected) in [(1.0, 1.0), (499_999.0, 500_000.0), (6.0, 10.0), (0.3, 0.5)] {
            assert!((round_up(value) - expected).abs() < 1e-9 * expected, "{value}");
        }
        assert_eq!(ticks(0.1, 100.0, true).len(), 4);
    }
}
