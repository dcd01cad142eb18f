//! What a swarm counts while it goes on.

use hdrhistogram::Histogram;

use crate::clock::Micros;
use crate::heads::Epoch;
use crate::report::Counts;
use crate::shared::Timings;

/// How links ended that were not ours to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ends {
    /// With a Close that says that the server goes away (1001).
    pub going_away: u64,
    /// With another Close.
    pub other_close: u64,
    /// With a FIN and no Close.
    pub fin: u64,
    /// With an RST.
    pub reset: u64,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) live: Counts,
    /// Links up.
    pub(crate) connected: u32,
    /// Collectors that run what the newest head says, told so, and were answered.
    pub(crate) settled: u32,
    /// Links that ended at a server of which that was expected.
    pub(crate) expected_ends: Ends,
    /// Links that ended at any other.
    pub(crate) other_ends: Ends,
    /// Links that a storm reset.
    pub(crate) storm_resets: u64,
    pub(crate) timings: Timings,
    /// When the last right offer of each head came, by epoch.
    pub(crate) last_offers: Vec<Option<Micros>>,
    /// Collectors that take offers.
    served: u64,
    replies: Histogram<u64>,
    offers: Histogram<u64>,
}

/// How far a swarm has come, and what its last half second was like.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Interval {
    pub(crate) started: u64,
    pub(crate) connected: u32,
    pub(crate) ever_connected: u64,
    pub(crate) offered: u64,
    /// Whether everybody who takes offers has had one.
    pub(crate) all_offered: bool,
    pub(crate) offers: u64,
    pub(crate) settled: u32,
    /// Of which head.
    pub(crate) head: Epoch,
    pub(crate) wrong: u64,
    pub(crate) lost: u64,
    pub(crate) messages: u64,
    /// Microseconds and how often, from a message to its reply.
    pub(crate) replies: Vec<(u64, u64)>,
    /// Microseconds and how often, from when a collector should have connected, or a new head was
    /// seen, to its offer.
    pub(crate) offered_after: Vec<(u64, u64)>,
}

impl Figures {
    pub(super) fn new(served: u64) -> Self {
        Self {
            served,
            live: Counts::default(),
            connected: 0,
            settled: 0,
            expected_ends: Ends::default(),
            other_ends: Ends::default(),
            storm_resets: 0,
            timings: Timings::new(),
            last_offers: Vec::new(),
            replies: coarse(),
            offers: coarse(),
        }
    }

    pub(super) fn record_reply(&mut self, after: Micros) {
        self.timings.reply.saturating_record(after);
        self.replies.saturating_record(after);
    }

    pub(super) fn record_first_offer(&mut self, after: Micros) {
        self.timings.connect_to_offer.saturating_record(after);
        self.offers.saturating_record(after);
    }

    pub(super) fn record_change(&mut self, after: Micros) {
        self.timings.change_to_offer.saturating_record(after);
        self.offers.saturating_record(after);
    }

    /// An offer of that head came at that time.
    pub(super) fn note_offer(&mut self, epoch: Epoch, at: Micros) {
        let Ok(number) = usize::try_from(epoch) else { return };
        if self.last_offers.len() <= number {
            self.last_offers.resize(number + 1, None);
        }
        if let Some(last) = self.last_offers.get_mut(number) {
            *last = (*last).max(Some(at));
        }
    }

    /// What happened since the last call, and how things stand.
    pub(super) fn interval(&mut self, head: Epoch) -> Interval {
        let interval = Interval {
            started: self.live.started,
            connected: self.connected,
            ever_connected: self.live.ever_connected,
            offered: self.live.first_offers,
            all_offered: self.live.first_offers >= self.served,
            offers: self.live.offers,
            settled: self.settled,
            head,
            wrong: self.live.wrong,
            lost: self.live.links_lost,
            messages: self.live.messages,
            replies: crate::histogram::pairs(&self.replies),
            offered_after: crate::histogram::pairs(&self.offers),
        };
        self.replies.reset();
        self.offers.reset();
        interval
    }
}

fn coarse() -> Histogram<u64> {
    crate::histogram::new(2)
}
