//! The report for people.

use std::fmt;

use super::{Latency, Report};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "collectors             {}", self.collectors)?;
        writeln!(f, "connected              {}", self.connected)?;
        writeln!(f, "offered right          {}", self.offered_right)?;
        writeln!(f, "wrong                  {}", self.wrong)?;
        for (kind, count) in &self.wrong_by_kind {
            writeln!(f, "  {:<20} {count}", format!("{kind:?}"))?;
        }
        writeln!(f, "lost                   {}", self.lost)?;
        writeln!(f, "unmatched              {}", self.unmatched)?;
        writeln!(f, "report only            {}", self.report_only)?;
        writeln!(f, "duplicates             {}", self.duplicates)?;
        writeln!(f, "extra messages         {}", self.extra_messages)?;
        writeln!(f, "unanswered             {}", self.unanswered)?;
        writeln!(f, "links lost             {}", self.links_lost)?;
        writeln!(
            f,
            "messages sent          {} ({:.0}/s)",
            self.messages_sent, self.messages_per_s
        )?;
        writeln!(f, "acks                   {}", self.acks)?;
        writeln!(f, "full-state requests    {}", self.full_state_requests)?;
        writeln!(f, "bytes received         {}", self.bytes_received)?;
        writeln!(f, "bytes beyond acks      {}", self.bytes_received_beyond_acks)?;
        if self.connect_failures + self.throttled + self.http_reopened > 0 {
            writeln!(
                f,
                "connect failures       {} (throttled {}, HTTP connections reopened {})",
                self.connect_failures, self.throttled, self.http_reopened
            )?;
        }
        for (text, count) in &self.errors {
            writeln!(f, "  {count} x {text}")?;
        }
        self.heads_text(f)?;
        line(f, "connect to offer", &self.connect_to_offer)?;
        line(f, "change to offer", &self.change_to_offer)?;
        line(f, "message to reply", &self.reply)?;
        if self.away.count > 0 {
            line(f, "lost link to next one", &self.away)?;
        }
        let after =
            |value: Option<f64>| value.map_or_else(|| "never".to_owned(), |s| format!("{s:.2} s"));
        writeln!(f, "all offered after      {}", after(self.all_offered_after_s))?;
        writeln!(f, "all settled after      {}", after(self.all_settled_after_s))?;
        if let Some(rate) = self.connects_per_s {
            writeln!(f, "connects and offers    {rate:.0}/s")?;
        }
        writeln!(
            f,
            "loadgen itself         {:.2} s user, {:.2} s system ({:.0} % of all processors), connects late by {:.1} ms, timers by {:.1} ms (p99)",
            self.own.cpu_user_s,
            self.own.cpu_system_s,
            self.own.cpu_share * 100.0,
            self.own.connect_lateness_p99_ms,
            self.own.timer_lateness_p99_ms
        )?;
        if let Some(void) = &self.figures_void {
            writeln!(f, "figures void           {void}")?;
        }
        for sample in &self.samples {
            writeln!(
                f,
                "{:?} at {} ms, collector {} ({}): {}\n  {}",
                sample.wrong,
                sample.at_ms,
                sample.collector,
                sample.group,
                sample.text,
                sample.attributes
            )?;
        }
        for problem in &self.problems {
            writeln!(f, "problem: {problem}")?;
        }
        writeln!(f, "{}", if self.all_right { "all right" } else { "NOT right" })
    }
}

impl Report {
    fn heads_text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for head in &self.heads[1.min(self.heads.len())..] {
            writeln!(
                f,
                "head {:<3} at {:>7.2} s    newly admitted {}, content changed {}; offers needed {}, made {}, superseded {}, missing {}, unneeded {}; bytes beyond acks {}",
                head.epoch,
                head.seen_at_s,
                head.members_newly_admitted_by_model,
                head.content_changed_by_model,
                head.offers_needed,
                head.offers,
                head.offers_superseded,
                head.offers_missing,
                head.offers_unneeded,
                head.bytes_received_beyond_acks
            )?;
        }
        if self.heads_refused > 0 {
            let why = self.last_refusal.as_deref().unwrap_or("unknown");
            writeln!(f, "heads refused          {}, the last because: {why}", self.heads_refused)?;
        }
        Ok(())
    }
}

fn line(f: &mut fmt::Formatter<'_>, name: &str, latency: &Latency) -> fmt::Result {
    if latency.count == 0 {
        return Ok(());
    }
    writeln!(
        f,
        "{name:<22} p50 {:.1} ms, p90 {:.1}, p99 {:.1}, p99.9 {:.1}, max {:.1} ({} times)",
        latency.p50_ms,
        latency.p90_ms,
        latency.p99_ms,
        latency.p999_ms,
        latency.max_ms,
        latency.count
    )
}
