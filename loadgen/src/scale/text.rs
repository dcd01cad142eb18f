//! The outcome for people.

use std::fmt;

use super::outcome::{Event, Figure, Outcome};
use super::protocol::Ends;

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} collectors in {} workers, {} gateways",
            self.collectors, self.workers, self.replicas
        )?;
        let after =
            |value: Option<f64>| value.map_or_else(|| "never".to_owned(), |s| format!("{s:.2} s"));
        writeln!(f, "all connected after    {}", after(self.all_connected_after_s))?;
        writeln!(f, "all offered after      {}", after(self.all_offered_after_s))?;
        writeln!(f, "all settled after      {}", after(self.all_settled_after_s))?;
        writeln!(f, "held for               {:.1} s", self.held_s)?;
        for event in &self.events {
            writeln!(f, "{event}")?;
        }
        ends(f, "ended as expected", &self.expected_ends)?;
        ends(f, "ended otherwise", &self.other_ends)?;
        if self.storm_resets > 0 {
            writeln!(f, "reset by storms        {}", self.storm_resets)?;
        }
        if let Some(floor) = &self.machine.floor {
            writeln!(f, "the kernel's floor     {floor}")?;
        }
        if let Some(floor) = &self.machine.floor_after {
            writeln!(f, "and after the run      {floor}")?;
        }
        self.machine_text(f)?;
        if let Some(report) = &self.report {
            writeln!(f, "\nThe books of all collectors\n{report}")?;
        }
        writeln!(f, "Figures")?;
        for figure in &self.figures {
            writeln!(f, "{figure}")?;
        }
        for problem in &self.problems {
            writeln!(f, "problem: {problem}")?;
        }
        writeln!(f, "{}", if self.all_right { "all right" } else { "NOT right" })
    }
}

impl Outcome {
    fn machine_text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        if let Some(used) = machine.used_bytes() {
            writeln!(
                f,
                "memory of the machine  {:.0} MiB when all had settled, {:.0} bytes a collector (sockets of both ends included); {:.0} MiB at most",
                mebibytes(used),
                used as f64 / f64::from(self.collectors.max(1)),
                mebibytes(
                    machine.available_before_bytes.saturating_sub(machine.available_least_bytes)
                ),
            )?;
        }
        for category in &machine.processes {
            writeln!(
                f,
                "{:<22} {} processes: {:.0} MiB when all had settled, {:.0} at most; {:.1} s user, {:.1} s system",
                category.kind,
                category.count,
                mebibytes(category.settled_bytes),
                mebibytes(category.most_bytes),
                category.cpu_user_s,
                category.cpu_system_s
            )?;
        }
        if let Some(each) = machine.worker_bytes_per_collector {
            writeln!(f, "memory of a collector  {each:.0} bytes in its worker")?;
        }
        Ok(())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {:>8.2} s          {}", self.at_s, self.what)?;
        if let Some(after) = self.last_offer_after_s {
            write!(f, ", last offer read after {after:.2} s")?;
        }
        match self.settled_after_s {
            Some(after) => write!(f, ", all settled again after {after:.2} s"),
            None => f.write_str(", not settled since"),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = if self.unit == "s" { 2 } else { 0 };
        let value = self
            .value
            .map_or_else(|| "not measured".to_owned(), |value| format!("{value:.digits$}"));
        let verdict = if self.holds { "holds" } else { "MISSED" };
        write!(
            f,
            "  {verdict:<6} {:<32} {value} of {:.digits$} {}",
            self.what, self.limit, self.unit
        )?;
        match (self.limit_here, self.holds_here) {
            (Some(limit), Some(holds)) if !self.holds && limit > self.limit => {
                let verdict = if holds { "holds" } else { "missed" };
                write!(f, " ({limit:.digits$} {} at this machine's speed: {verdict})", self.unit)
            }
            _ => Ok(()),
        }
    }
}

fn ends(f: &mut fmt::Formatter<'_>, name: &str, ends: &Ends) -> fmt::Result {
    let Ends { going_away, other_close, fin, reset } = *ends;
    if going_away + other_close + fin + reset == 0 {
        return Ok(());
    }
    writeln!(
        f,
        "{name:<22} {} links: {going_away} with Close 1001, {other_close} with another, {fin} with FIN alone, {reset} reset",
        going_away + other_close + fin + reset
    )
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}
