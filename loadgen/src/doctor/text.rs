//! The diagnosis for people.

use std::fmt;

use super::{Diagnosis, State};

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} collectors: {} workers and {} gateways",
            self.collectors, self.workers, self.replicas
        )?;
        for finding in &self.findings {
            let state = match finding.state {
                State::Fits => "fits",
                State::Tight => "tight",
                State::TooSmall => "TOO SMALL",
                State::Unknown => "unknown",
            };
            let value = finding
                .value
                .map_or_else(|| "unlimited or unreadable".to_owned(), |value| value.to_string());
            writeln!(
                f,
                "{state:<10} {:<32} {value} {unit}, needed {} {unit}",
                finding.name,
                finding.needed,
                unit = finding.unit
            )?;
            writeln!(f, "           {}", finding.why)?;
            if !finding.remedy.is_empty() {
                writeln!(f, "           set: {}", finding.remedy)?;
            }
        }
        writeln!(f, "{}", if self.fits { "it fits" } else { "it does NOT fit" })
    }
}
