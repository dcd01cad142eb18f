//! A new head reaches the links that are connected, off the accept path (spec/serving.md 9).
//!
//! One task walks all links and decides each again with the newest head. It sends at a pace, and
//! yields between steps, so that a connect never waits for it. A head that comes while it walks
//! starts it over: what was offered already is believed, so nothing is sent twice.

use std::sync::Arc;
use std::time::Duration;

use crate::listen::Front;
use crate::serve::LinkId;
use crate::transport::link::Link;

/// Links that are decided before others get the thread. A step is about 20 µs, or 150 where each
/// gets an offer.
const STEP: u32 = 16;
/// The pace is kept in slices of this length, so that a burst is never longer.
const SLICE: Duration = Duration::from_millis(10);
/// By how much slower offers are sent while collectors come in: a connect is to take no more than
/// twice what it takes without a push (P5).
const GIVING_WAY: u32 = 3;

/// Pushes each new head for ever, and what a brake held back when it is released.
pub async fn run(front: Arc<Front>) {
    let mut heads = front.server.heads();
    let mut releases = front.server.aggregator().releases();
    loop {
        let changed = tokio::select! {
            changed = heads.changed() => changed,
            changed = releases.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
        let started = front.clock.elapsed();
        loop {
            heads.mark_unchanged();
            if push(&front, || heads.has_changed().unwrap_or(true)).await == Walk::Finished {
                break;
            }
        }
        front.metrics.push_seconds.record(front.clock.elapsed().saturating_sub(started));
    }
}

/// How a walk over all links ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    Finished,
    /// There is a newer head.
    Outdated,
}

/// Decides every link again, unless a newer head comes meanwhile.
async fn push(front: &Front, mut is_outdated: impl FnMut() -> bool) -> Walk {
    let mut pace = Pace::new(front.limits.push_rate.get(), front.clock.elapsed());
    let mut left = front.links.len();
    let mut next = Some(LinkId(0));
    let mut unfinished = Vec::new();
    while let Some(from) = next {
        if is_outdated() {
            return Walk::Outdated;
        }
        let mut step = step(front, from);
        next = step.next;
        left = left.saturating_sub(step.links);
        unfinished.append(&mut step.unfinished);
        front.metrics.push_pending.set((left + unfinished.len()) as f64);
        pace.rest(front, step.offers).await;
    }
    // Bridges carry so many agents that their offers do not fit into one visit, and read them at
    // their own speed. Who does not read at all is dropped by the sweep.
    while !unfinished.is_empty() {
        let mut left = Vec::new();
        for link in unfinished {
            if is_outdated() {
                return Walk::Outdated;
            }
            let visit = link.redecide(front.clock.now());
            pace.rest(front, visit.offers).await;
            if !visit.finished {
                left.push(link);
            }
        }
        unfinished = left;
        front.metrics.push_pending.set(unfinished.len() as f64);
        if !unfinished.is_empty() {
            tokio::time::sleep(SLICE).await;
        }
    }
    front.metrics.push_pending.set(0.0);
    Walk::Finished
}

/// What one step did.
struct Step {
    links: usize,
    offers: u32,
    /// Links that have to be visited again.
    unfinished: Vec<Arc<Link>>,
    /// Where the next one begins; `None` after the last link.
    next: Option<LinkId>,
}

fn step(front: &Front, from: LinkId) -> Step {
    let now = front.clock.now();
    let mut links = Vec::with_capacity(STEP as usize);
    let next = front.links.next_from(from, STEP, &mut links);
    let mut step = Step { links: links.len(), offers: 0, unfinished: Vec::new(), next };
    for (_, link) in links {
        let visit = link.redecide(now);
        step.offers += visit.offers;
        if !visit.finished {
            step.unfinished.push(link);
        }
    }
    step
}

/// Spreads offers evenly: at most `rate` per second, in slices of [`SLICE`], and slower while
/// collectors come in.
#[derive(Debug)]
struct Pace {
    rate: u32,
    /// When everything sent so far is paid for.
    due: Duration,
}

impl Pace {
    fn new(rate: u32, now: Duration) -> Self {
        Self { rate, due: now }
    }

    /// Lets others have the thread after `offers` more, for as long as the rate demands.
    async fn rest(&mut self, front: &Front, offers: u32) {
        let now = front.clock.elapsed();
        match self.wait(offers, now, front.admission.is_busy(now)) {
            Some(wait) => tokio::time::sleep(wait).await,
            None => tokio::task::yield_now().await,
        }
    }

    /// How long to wait after `offers` more, once that is worth a sleep.
    fn wait(&mut self, offers: u32, now: Duration, give_way: bool) -> Option<Duration> {
        let each = if give_way { GIVING_WAY } else { 1 };
        // What was not used is lost: a pause does not buy a burst.
        self.due = self.due.max(now) + Duration::from_secs(1) * offers * each / self.rate;
        self.due.checked_sub(now).filter(|wait| *wait >= SLICE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_keep_to_the_rate_and_links_without_one_cost_nothing() {
        let mut pace = Pace::new(1_000, Duration::ZERO);
        let now = Duration::ZERO;
        for _ in 0..10_000 {
            assert_eq!(pace.wait(0, now, true), None);
        }
        assert!((4_900..5_100).contains(&sent_in_5_s(pace, now, false)));
    }

    #[test]
    fn while_collectors_come_in_offers_are_a_third_as_fast() {
        let pace = || Pace::new(3_000, Duration::ZERO);
        let sent = sent_in_5_s(pace(), Duration::ZERO, true);
        assert!((4_900..5_100).contains(&sent), "{sent}");
        assert!((14_700..15_300).contains(&sent_in_5_s(pace(), Duration::ZERO, false)));
    }

    fn sent_in_5_s(mut pace: Pace, mut now: Duration, give_way: bool) -> u32 {
        let mut sent = 0;
        while now < Duration::from_secs(5) {
            now += Duration::from_micros(20);
            sent += 16;
            if let Some(wait) = pace.wait(16, now, give_way) {
                assert!(wait < SLICE + Duration::from_millis(16), "{wait:?}");
                now += wait;
            }
        }
        sent
    }

    #[test]
    fn a_pause_does_not_buy_a_burst() {
        let mut pace = Pace::new(1_000, Duration::ZERO);
        let later = Duration::from_secs(60);
        assert_eq!(pace.wait(20, later, false), Some(Duration::from_millis(20)));
    }
}
