//! What a run found: figures, and a verdict with its reasons.

mod merge;
mod text;

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::clock::Micros;
use crate::fleet::{Progress, who};
use crate::heads::{Epoch, Head, Heads};
use crate::host;
use crate::ledger::{Closed, Finding, Sums, Wrong};
use crate::model::Arm;
use crate::plan::Plan;
use crate::shared::Timings;

/// Explanations in a report.
const SAMPLES_MAX: usize = 20;
/// A schedule that slips by more than this at its 99th percentile was not kept: latencies are void.
const LATENESS_MAX_MS: f64 = 100.0;
/// A share of all processors above which loadgen itself is what was measured.
const PROCESSOR_SHARE_MAX: f64 = 0.9;

/// Everything that a run found out. Times are in the unit that their names end with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Nothing wrong, nothing lost, nothing extra.
    pub all_right: bool,
    /// What is not right, one sentence each.
    pub problems: Vec<String>,
    /// Why latencies and rates of this run mean nothing, when loadgen was the bottleneck.
    pub figures_void: Option<String>,
    /// Collectors of the plan.
    pub collectors: u32,
    /// Of these, collectors that were connected at least once.
    pub connected: u64,
    /// Collectors that hold what the newest head says.
    pub offered_right: u32,
    /// Offers, replies and other things that were not as they must be.
    pub wrong: u64,
    /// The same by kind.
    pub wrong_by_kind: BTreeMap<Wrong, u64>,
    /// Collectors that accept offers and do not hold what the newest head says.
    pub lost: u32,
    /// Collectors that no selector of the newest head matches; they are offered Unmatched.
    pub unmatched: u32,
    /// Collectors that accept no offers.
    pub report_only: u32,
    /// Right offers.
    pub offers: u64,
    /// Offers of a content that the collector held already.
    pub duplicates: u64,
    /// Replies to nothing.
    pub extra_messages: u64,
    /// Messages that were not answered in time.
    pub unanswered: u64,
    /// Exact acks: uid and capabilities and nothing else.
    pub acks: u64,
    /// Messages sent.
    pub messages_sent: u64,
    /// Requests for full state, due or not.
    pub full_state_requests: u64,
    /// Pings, due or not.
    pub pings: u64,
    /// Bytes of all messages received, with the frame header on a WebSocket.
    pub bytes_received: u64,
    /// Of these, what neither an ack, a right offer, a due request nor a due ping explains.
    pub bytes_received_beyond_acks: u64,
    /// Links that broke.
    pub links_lost: u64,
    /// Attempts to connect that failed.
    pub connect_failures: u64,
    /// Answers 429 and 503.
    pub throttled: u64,
    /// Kept HTTP connections that the server had closed.
    pub http_reopened: u64,
    /// Errors of connections, by text.
    pub errors: BTreeMap<String, u64>,
    /// Every head of the run.
    pub heads: Vec<HeadReport>,
    /// Changes of the estate that could not be served.
    pub heads_refused: u64,
    /// Why, the last time.
    pub last_refusal: Option<String>,
    /// From the intended time of a connect to the first right offer.
    pub connect_to_offer: Latency,
    /// From our first sight of a head to a right offer of it.
    pub change_to_offer: Latency,
    /// From a message to its reply.
    pub reply: Latency,
    /// From the loss of a WebSocket to the next one.
    pub away: Latency,
    /// Until the last first offer.
    pub all_offered_after_s: Option<f64>,
    /// Until every collector had applied its offer and been answered.
    pub all_settled_after_s: Option<f64>,
    /// First offers per second, until the last one.
    pub connects_per_s: Option<f64>,
    /// Messages sent per second over the run.
    pub messages_per_s: f64,
    /// The run, without its farewells.
    pub elapsed_s: f64,
    /// What loadgen itself was like.
    pub own: Own,
    /// The first things that went wrong.
    pub samples: Vec<Sample>,
}

/// What a head asked for and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeadReport {
    /// Its number, from 0.
    pub epoch: Epoch,
    /// Stands for all that it serves: the same in every process.
    pub fingerprint: u64,
    /// First seen that long after the start.
    pub seen_at_s: f64,
    /// Collectors whose content differs from that under the head before, by the model.
    pub content_changed_by_model: u32,
    /// Collectors that this head puts on a candidate and the head before did not, by the model.
    pub members_newly_admitted_by_model: u32,
    /// Offers to collectors that held nothing before.
    pub first_offers: u64,
    /// Collectors that held something and had to be offered something else.
    pub offers_needed: u64,
    /// Of these, offered.
    pub offers: u64,
    /// Of these, not offered because a later head changed their content again.
    pub offers_superseded: u64,
    /// Of these, not offered for no reason.
    pub offers_missing: u64,
    /// Offers of this head to collectors that needed none.
    pub offers_unneeded: u64,
    /// Bytes received while it was the newest head that nothing explains.
    pub bytes_received_beyond_acks: u64,
}

/// A distribution in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "percentiles are named for what they are")]
pub struct Latency {
    pub count: u64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
}

/// The load generator's own condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Own {
    /// Processor time in user mode.
    pub cpu_user_s: f64,
    /// Processor time in the kernel.
    pub cpu_system_s: f64,
    /// Both over elapsed time and processors, 0..=1.
    pub cpu_share: f64,
    /// How late collectors were started, 99th percentile.
    pub connect_lateness_p99_ms: f64,
    /// How late timers were served, 99th percentile; up to 20 ms by design.
    pub timer_lateness_p99_ms: f64,
}

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Which collector.
    pub collector: u32,
    /// Its group in the plan.
    pub group: String,
    /// What it says about itself.
    pub attributes: String,
    /// What kind.
    pub wrong: Wrong,
    /// When, after the start.
    pub at_ms: u64,
    /// Expected and got.
    pub text: String,
}

/// Points in time of a run, and what it has to complain about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    begin: Micros,
    begin_cpu: (f64, f64),
    all_offered: Option<Micros>,
    all_settled: Option<Micros>,
    end: Micros,
    end_cpu: (f64, f64),
    problems: Vec<String>,
}

/// What a report is made of.
pub(crate) struct Ending<'e> {
    pub(crate) plan: &'e Plan,
    pub(crate) heads: &'e Heads,
    pub(crate) counts: Counts,
    pub(crate) timings: &'e Timings,
    pub(crate) errors: BTreeMap<String, u64>,
    /// Links that break are no failure.
    pub(crate) allow_lost_links: bool,
    pub(crate) marks: Marks,
    pub(crate) closed: Vec<Closed>,
    pub(crate) heads_refused: u64,
    pub(crate) last_refusal: Option<String>,
}

/// What is counted while a run goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) started: u64,
    pub(crate) ever_connected: u64,
    pub(crate) links_lost: u64,
    pub(crate) connect_failures: u64,
    pub(crate) throttled: u64,
    pub(crate) reopened: u64,
    pub(crate) first_offers: u64,
    pub(crate) offers: u64,
    pub(crate) wrong: u64,
    pub(crate) messages: u64,
}

impl Marks {
    pub(crate) fn begin(now: Micros) -> Self {
        Self { begin: now, begin_cpu: host::processor_seconds(), ..Self::default() }
    }

    pub(crate) fn look(&mut self, now: Micros, progress: &Progress) {
        if self.all_offered.is_none() && progress.offered >= u64::from(progress.served) {
            self.all_offered = Some(now);
        }
    }

    pub(crate) fn settled(&mut self, now: Micros) {
        self.all_settled.get_or_insert(now);
        self.all_offered.get_or_insert(now);
    }

    /// When all were offered and settled for the first time, where that was seen.
    pub(crate) fn first(&mut self, offered: Option<Micros>, settled: Option<Micros>) {
        self.all_offered = offered.or(settled);
        self.all_settled = settled;
    }

    pub(crate) fn end(&mut self, now: Micros) {
        self.end = now;
        self.end_cpu = host::processor_seconds();
    }

    pub(crate) fn complain(&mut self, problem: String) {
        self.problems.push(problem);
    }

    fn since_begin(&self, at: Micros) -> f64 {
        seconds(at.saturating_sub(self.begin))
    }
}

impl Report {
    /// Adds all books up and judges them.
    pub(crate) fn judge(ending: Ending<'_>) -> Self {
        let Ending { plan, timings, counts, marks, closed, .. } = ending;
        let heads = ending.heads.all();
        let tally = Tally::of(&closed, &heads, plan);
        let kind = |wrong| tally.wrongs.get(&wrong).copied().unwrap_or(0);
        let elapsed_s = marks.since_begin(marks.end);
        let own = own(&marks, elapsed_s, &timings.connect_lateness, &timings.timer_lateness);
        let collectors = plan.len();
        let all_offered_after_s = marks.all_offered.map(|at| marks.since_begin(at));
        let mut report = Self {
            all_right: false,
            problems: marks.problems.clone(),
            figures_void: void(&own),
            collectors,
            connected: counts.ever_connected,
            offered_right: tally.offered_right,
            wrong: tally.wrongs.values().sum(),
            wrong_by_kind: tally.wrongs.clone(),
            lost: tally.lost,
            unmatched: tally.unmatched,
            report_only: tally.report_only,
            offers: tally.sums.offers_right,
            duplicates: kind(Wrong::Duplicate),
            extra_messages: kind(Wrong::Extra),
            unanswered: kind(Wrong::Unanswered),
            acks: tally.sums.acks,
            messages_sent: tally.sums.sent,
            full_state_requests: tally.sums.full_state_requests,
            pings: tally.sums.pings,
            bytes_received: tally.sums.bytes_received,
            bytes_received_beyond_acks: tally.sums.bytes_beyond_acks,
            links_lost: counts.links_lost,
            connect_failures: counts.connect_failures,
            throttled: counts.throttled,
            http_reopened: counts.reopened,
            errors: ending.errors,
            heads: tally.heads,
            heads_refused: ending.heads_refused,
            last_refusal: ending.last_refusal,
            connect_to_offer: Latency::of(&timings.connect_to_offer),
            change_to_offer: Latency::of(&timings.change_to_offer),
            reply: Latency::of(&timings.reply),
            away: Latency::of(&timings.away),
            all_offered_after_s,
            all_settled_after_s: marks.all_settled.map(|at| marks.since_begin(at)),
            connects_per_s: all_offered_after_s
                .filter(|after| *after > 0.0)
                .map(|after| f64::from(collectors) / after),
            messages_per_s: rate(tally.sums.sent, elapsed_s),
            elapsed_s,
            own,
            samples: tally.samples,
        };
        report.find_problems(ending.allow_lost_links);
        report.all_right = report.problems.is_empty();
        report
    }

    pub(crate) fn find_problems(&mut self, allow_lost_links: bool) {
        let collectors = u64::from(self.collectors);
        let mut found = Vec::new();
        if self.connected < collectors {
            found.push(format!("{} collectors never connected", collectors - self.connected));
        }
        if self.wrong > 0 {
            let kinds: Vec<String> = self
                .wrong_by_kind
                .iter()
                .map(|(kind, count)| format!("{kind:?} {count}"))
                .collect();
            found.push(format!("{} things went wrong: {}", self.wrong, kinds.join(", ")));
        }
        if self.lost > 0 {
            found.push(format!("{} collectors do not hold what the newest head says", self.lost));
        }
        if self.bytes_received_beyond_acks > 0 {
            found.push(format!(
                "{} bytes beyond acks and right offers",
                self.bytes_received_beyond_acks
            ));
        }
        if self.links_lost > 0 && !allow_lost_links {
            found.push(format!("{} links broke", self.links_lost));
        }
        for head in &self.heads {
            if head.offers_missing > 0 || head.offers_unneeded > 0 {
                found.push(format!(
                    "head {}: {} offers needed, {} made, {} missing, {} to collectors that needed none",
                    head.epoch,
                    head.offers_needed,
                    head.offers,
                    head.offers_missing,
                    head.offers_unneeded
                ));
            }
        }
        self.problems.extend(found);
    }
}

/// Sums over all books.
#[derive(Default)]
struct Tally {
    sums: Sums,
    wrongs: BTreeMap<Wrong, u64>,
    offered_right: u32,
    lost: u32,
    unmatched: u32,
    report_only: u32,
    heads: Vec<HeadReport>,
    samples: Vec<Sample>,
}

impl Tally {
    fn of(closed: &[Closed], heads: &[std::sync::Arc<Head>], plan: &Plan) -> Self {
        let mut tally = Self { heads: empty_heads(heads), ..Self::default() };
        let mut books: BTreeMap<u32, &Closed> = BTreeMap::new();
        books.extend(closed.iter().map(|closed| (closed.index, closed)));
        for index in 0..plan.len() {
            let accepts = !plan.is_report_only(index);
            if let Some(last) = heads.last() {
                tally.unmatched += u32::from(last.arm(index) == Arm::Unmatched && accepts);
            }
            tally.report_only += u32::from(!accepts);
            if accepts {
                tally.changes(index, heads);
            }
            let Some(closed) = books.get(&index) else {
                tally.lost += u32::from(accepts);
                continue;
            };
            tally.add(closed);
            tally.sample(closed, plan);
            if accepts {
                let expected = heads.last().map(|head| head.expected(index).short);
                let right = closed.held.is_some() && closed.held == expected;
                tally.offered_right += u32::from(right);
                tally.lost += u32::from(!right);
                tally.deliveries(closed, heads, right);
            }
        }
        tally
    }

    /// What the model says that each head changes for this collector.
    fn changes(&mut self, index: u32, heads: &[std::sync::Arc<Head>]) {
        for (pair, report) in heads.windows(2).zip(self.heads.iter_mut().skip(1)) {
            let changed = pair[0].expected(index).short != pair[1].expected(index).short;
            report.content_changed_by_model += u32::from(changed);
            let admitted =
                pair[0].arm(index) != Arm::Candidate && pair[1].arm(index) == Arm::Candidate;
            report.members_newly_admitted_by_model += u32::from(admitted);
        }
    }

    /// What came of that.
    fn deliveries(&mut self, closed: &Closed, heads: &[std::sync::Arc<Head>], ends_right: bool) {
        let Some(first) = closed.deliveries.first() else { return };
        if let Some(report) = self.head(first.epoch) {
            report.first_offers += 1;
        }
        let mut made: BTreeMap<Epoch, u64> = BTreeMap::new();
        for delivery in &closed.deliveries[1..] {
            *made.entry(delivery.epoch).or_default() += 1;
        }
        let index = closed.index;
        let mut open: Vec<Epoch> = Vec::new();
        for (epoch, pair) in (1..).zip(heads.windows(2)) {
            if epoch <= first.epoch {
                continue;
            }
            let needed = pair[0].expected(index).short != pair[1].expected(index).short;
            let offers = made.remove(&epoch).unwrap_or(0);
            let Some(report) = self.head(epoch) else { continue };
            report.offers_needed += u64::from(needed);
            report.offers += offers.min(u64::from(needed));
            report.offers_unneeded += offers.saturating_sub(u64::from(needed));
            if needed && offers == 0 {
                open.push(epoch);
            }
        }
        // Offers that were left out do not matter when a later one, or none at all, was right.
        let last_change = open.last().copied();
        for epoch in open {
            let superseded = ends_right || Some(epoch) != last_change;
            if let Some(report) = self.head(epoch) {
                report.offers_superseded += u64::from(superseded);
                report.offers_missing += u64::from(!superseded);
            }
        }
    }

    fn add(&mut self, closed: &Closed) {
        let (sums, all) = (&closed.sums, &mut self.sums);
        all.sent += sums.sent;
        all.acks += sums.acks;
        all.full_state_requests += sums.full_state_requests;
        all.pings += sums.pings;
        all.offers_right += sums.offers_right;
        all.bytes_received += sums.bytes_received;
        all.bytes_beyond_acks += sums.bytes_beyond_acks;
        for (wrong, count) in &closed.wrongs {
            *self.wrongs.entry(*wrong).or_default() += u64::from(*count);
        }
        for (epoch, bytes) in &closed.beyond_by_epoch {
            if let Some(report) = self.head(*epoch) {
                report.bytes_received_beyond_acks += bytes;
            }
        }
    }

    fn sample(&mut self, closed: &Closed, plan: &Plan) {
        // Found in order of judgement; an offer may wait for that.
        let mut findings: Vec<&Finding> = closed.findings.iter().collect();
        findings.sort_by_key(|finding| finding.at);
        for finding in findings {
            if self.samples.len() >= SAMPLES_MAX {
                return;
            }
            self.samples.push(Sample {
                collector: closed.index,
                group: plan.group_name(closed.index).to_owned(),
                attributes: who(plan, closed.index),
                wrong: finding.wrong,
                at_ms: finding.at / 1_000,
                text: finding.text.clone(),
            });
        }
    }

    fn head(&mut self, epoch: Epoch) -> Option<&mut HeadReport> {
        self.heads.get_mut(usize::try_from(epoch).ok()?)
    }
}

fn empty_heads(heads: &[std::sync::Arc<Head>]) -> Vec<HeadReport> {
    (0..)
        .zip(heads)
        .map(|(epoch, head)| HeadReport {
            epoch,
            fingerprint: head.model.fingerprint(),
            seen_at_s: seconds(head.seen_at),
            content_changed_by_model: 0,
            members_newly_admitted_by_model: 0,
            first_offers: 0,
            offers_needed: 0,
            offers: 0,
            offers_superseded: 0,
            offers_missing: 0,
            offers_unneeded: 0,
            bytes_received_beyond_acks: 0,
        })
        .collect()
}

fn own(
    marks: &Marks,
    elapsed_s: f64,
    connect_lateness: &Histogram<u64>,
    timer_lateness: &Histogram<u64>,
) -> Own {
    let cpu_user_s = marks.end_cpu.0 - marks.begin_cpu.0;
    let cpu_system_s = marks.end_cpu.1 - marks.begin_cpu.1;
    let processors = u32::try_from(host::processors()).map_or(1.0, f64::from);
    let available = elapsed_s * processors;
    Own {
        cpu_user_s,
        cpu_system_s,
        cpu_share: if available > 0.0 { (cpu_user_s + cpu_system_s) / available } else { 0.0 },
        connect_lateness_p99_ms: millis(connect_lateness.value_at_quantile(0.99)),
        timer_lateness_p99_ms: millis(timer_lateness.value_at_quantile(0.99)),
    }
}

fn void(own: &Own) -> Option<String> {
    if own.connect_lateness_p99_ms > LATENESS_MAX_MS {
        return Some(format!(
            "collectors were started up to {:.0} ms late (99th percentile): loadgen could not keep its schedule",
            own.connect_lateness_p99_ms
        ));
    }
    (own.cpu_share > PROCESSOR_SHARE_MAX)
        .then(|| format!("loadgen itself took {:.0} % of all processors", own.cpu_share * 100.0))
}

impl Latency {
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let at = |quantile| millis(histogram.value_at_quantile(quantile));
        Self {
            count: histogram.len(),
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: millis(histogram.max()),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "an hour in microseconds has 32 bits")]
fn millis(micros: Micros) -> f64 {
    micros as f64 / 1e3
}

#[expect(clippy::cast_precision_loss, reason = "a run in microseconds has fewer than 53 bits")]
fn seconds(micros: Micros) -> f64 {
    micros as f64 / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "a count of messages has fewer than 53 bits")]
fn rate(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}
