//! The timeline as a picture.

use super::outcome::{Outcome, Sample};
use super::plot::{Line, Mark, Panel, svg};

impl Outcome {
    /// Connected, offered and settled collectors, latencies and messages over time, with what
    /// happened marked, as SVG.
    pub fn plot(&self) -> String {
        let line = |name, of: fn(&Sample) -> Option<f64>| Line {
            name,
            points: self
                .timeline
                .iter()
                .filter_map(|sample| Some((sample.at_s, of(sample)?)))
                .collect(),
        };
        let panels = [
            Panel {
                title: "Collectors",
                unit: "",
                logarithmic: false,
                lines: vec![
                    line("connected", |sample| Some(sample.connected as f64)),
                    line("offered", |sample| Some(sample.offered as f64)),
                    line("settled", |sample| Some(sample.settled as f64)),
                ],
            },
            Panel {
                title: "Latency of each half second",
                unit: " ms",
                logarithmic: true,
                lines: vec![
                    line("offer p99", |sample| {
                        (sample.offer.count > 0).then_some(sample.offer.p99_ms)
                    }),
                    line("offer p50", |sample| {
                        (sample.offer.count > 0).then_some(sample.offer.p50_ms)
                    }),
                    line("reply p99", |sample| {
                        (sample.reply.count > 0).then_some(sample.reply.p99_ms)
                    }),
                    line("reply p50", |sample| {
                        (sample.reply.count > 0).then_some(sample.reply.p50_ms)
                    }),
                ],
            },
            Panel {
                title: "Messages sent per second",
                unit: "",
                logarithmic: false,
                lines: vec![line("messages", |sample| Some(sample.messages_per_s))],
            },
        ];
        let marks: Vec<Mark> = self
            .events
            .iter()
            .map(|event| Mark { at: event.at_s, what: event.what.clone() })
            .collect();
        let footer = format!(
            "{} collectors, {} gateways, {} workers; {}",
            self.collectors,
            self.replicas,
            self.workers,
            if self.all_right { "all right" } else { "NOT right" }
        );
        svg(&panels, &marks, &footer)
    }
}
