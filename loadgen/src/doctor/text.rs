//! The diagnosis for people.

use std::fmt;

use super::{Diagnosis, State};
use crate::floor::{Floor, Speed};

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
        match &self.speed {
            Some(Speed::Floor(floor)) => speed(f, floor)?,
            Some(unknown) => writeln!(f, "speed      {unknown}")?,
            None => {}
        }
        writeln!(f, "{}", if self.fits { "it fits" } else { "it does NOT fit" })
    }
}

fn speed(f: &mut fmt::Formatter<'_>, floor: &Floor) -> fmt::Result {
    writeln!(
        f,
        "speed      a connect costs this kernel at least {:.0} µs ({:.0} in the median batch): {:.0} to connect and accept, {:.0} in epoll, {:.0} for five messages, both ends",
        floor.total_us,
        floor.median_us,
        floor.least.connect_us,
        floor.least.register_us,
        floor.least.exchange_us
    )?;
    writeln!(
        f,
        "           {:.2} times the {:.0} µs of the machine where the figures of docs/performance.md were set; {} processors cannot pass {:.0} connects/s",
        floor.times_slower, floor.reference_us, floor.processors, floor.connects_per_s_max
    )
}
