//! One simulated collector: the [`Agent`] that believes the server, and the [`Ledger`] that does
//! not. Bytes and times in, bytes and times out; links drive it.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use proto::frame::strip_header;
use proto::opamp as wire;

use crate::agent::{Agent, Gone, Habits, Sent};
use crate::clock::Micros;
use crate::faults::{Profile, Runs};
use crate::heads::{Head, Heads};
use crate::ledger::{Ledger, Noted};
use crate::model::{Arm, short};
use crate::plan::Plan;

/// What all collectors of a run share.
#[derive(Clone, Copy, Debug)]
pub struct World<'w> {
    /// Who they are.
    pub plan: &'w Plan,
    /// How they behave.
    pub habits: &'w Habits,
    /// What they must be offered.
    pub heads: &'w Heads,
}

/// One collector.
#[derive(Debug)]
pub struct Collector {
    index: u32,
    agent: Agent,
    ledger: Ledger,
    answered: bool,
    runs: Option<Runs>,
}

/// What a settled collector without remote configuration publishes in place of a content.
pub const REPORTS_ONLY: u64 = u64::MAX;

impl Collector {
    /// Collector `index` of the plan, just started.
    pub fn new(index: u32, unix_ms: u64, rng: fastrand::Rng, plan: &Plan) -> Self {
        let report_only = plan.is_report_only(index);
        Self {
            index,
            agent: Agent::new(unix_ms, report_only, rng),
            ledger: Ledger::new(index, !report_only),
            answered: false,
            runs: None,
        }
    }

    /// Behaves like that.
    pub fn with_profile(mut self, profile: Arc<Profile>) -> Self {
        self.runs = profile.runs;
        self.agent = self.agent.with_profile(profile);
        self
    }

    /// The same collector as another process: a new uid, nothing remembered.
    pub fn handle_restarted(&mut self, unix_ms: u64) {
        self.agent = self.agent.restarted(unix_ms);
        self.ledger.handle_restarted();
        self.answered = false;
    }

    /// Which artefact it runs from now on, if it takes none.
    pub fn set_runs(&mut self, runs: Option<Runs>, world: World<'_>) {
        self.runs = runs;
        self.report_foreign(world);
    }

    /// How it has gone, once nothing is owed to it.
    pub fn gone(&self) -> Option<Gone> {
        self.agent.gone().filter(|_| self.ledger.owed_since().is_none())
    }

    /// How it is going to go, or has gone.
    pub fn going(&self) -> Option<Gone> {
        self.agent.gone()
    }

    /// It is heard again.
    pub fn come_back(&mut self) {
        self.agent.come_back();
    }

    /// How many contents FAILED on it, as far as the server has acknowledged it.
    pub fn failures(&self) -> usize {
        self.ledger.failed()
    }

    fn report_foreign(&mut self, world: World<'_>) {
        let Some(runs) = self.runs.filter(|_| world.plan.is_report_only(self.index)) else {
            return;
        };
        let (_, head) = world.heads.latest();
        let base = head.base(self.index);
        let body = match runs {
            Runs::Base => base.bytes.clone(),
            Runs::Candidate => head.candidate(self.index).unwrap_or(base).bytes.clone(),
            Runs::Other => return,
        };
        self.agent.run_foreign(body);
    }

    /// A link is up.
    pub fn handle_connected(&mut self, world: World<'_>) {
        self.report_foreign(world);
        self.agent.handle_connected(world.habits);
        self.ledger.handle_connected();
    }

    /// The link is gone.
    pub fn handle_disconnected(&mut self) {
        self.agent.handle_disconnected();
        self.ledger.handle_connected();
    }

    /// A WebSocket message of the server came; `frame_bytes` is what it was on the wire.
    pub fn handle_websocket(
        &mut self,
        now: Micros,
        payload: &[u8],
        frame_bytes: usize,
        world: World<'_>,
    ) -> Noted {
        match strip_header(payload) {
            Ok(message) => self.handle_protobuf(now, message, frame_bytes, world),
            Err(error) => {
                self.ledger.handle_undecodable(now, frame_bytes, &error.to_string(), world.heads)
            }
        }
    }

    /// A message came without a header, as over HTTP.
    pub fn handle_protobuf(
        &mut self,
        now: Micros,
        payload: &[u8],
        bytes: usize,
        world: World<'_>,
    ) -> Noted {
        if self.is_ack(payload) {
            self.answered = true;
            return self.ledger.handle_ack(now, bytes, world.heads);
        }
        // A copy of its own, of which the parts of the message are slices.
        let message = match wire::ServerToAgent::decode(Bytes::copy_from_slice(payload)) {
            Ok(message) => message,
            Err(error) => {
                let text = error.to_string();
                return self.ledger.handle_undecodable(now, bytes, &text, world.heads);
            }
        };
        self.answered = true;
        let noted = self.ledger.handle_message(now, self.agent.uid(), &message, bytes, world.heads);
        let arm = message
            .remote_config
            .as_ref()
            .map_or(Arm::Unmatched, |offer| world.heads.arm_of(self.index, &offer.config_hash));
        self.agent.handle_message(now, &message, arm, world.habits);
        self.share(&noted);
        noted
    }

    /// Anything but a binary message came.
    pub fn handle_undecodable(
        &mut self,
        now: Micros,
        bytes: usize,
        why: &str,
        world: World<'_>,
    ) -> Noted {
        self.ledger.handle_undecodable(now, bytes, why, world.heads)
    }

    /// A WebSocket ping came.
    pub fn handle_ping(&mut self, now: Micros, bytes: usize, world: World<'_>) -> Noted {
        self.ledger.handle_ping(now, bytes, world.heads)
    }

    /// An HTTP status that no good message should get.
    pub fn handle_http_status(&mut self, now: Micros, status: u16, text: &str) -> Noted {
        self.ledger.handle_http_status(now, status, text)
    }

    /// A deadline of [`Collector::poll_timeout`] has passed.
    pub fn handle_timeout(&mut self, now: Micros, world: World<'_>) -> Noted {
        self.agent.handle_timeout(now);
        let noted = self.ledger.handle_heads(now, world.heads);
        self.share(&noted);
        noted
    }

    /// The run ends.
    pub fn handle_stop(&mut self) {
        self.agent.handle_stop();
    }

    /// The next message, protobuf without a header.
    pub fn poll_transmit(&mut self, now: Micros, world: World<'_>) -> Option<(Sent, Bytes)> {
        let (plan, index) = (world.plan, self.index);
        let (sent, bytes) =
            self.agent.poll_transmit(now, world.habits, || plan.attributes(index))?;
        self.ledger.handle_sent(now, sent);
        if matches!(sent, Sent::Full | Sent::Delta)
            && let Some(hash) = self.agent.failed()
        {
            self.ledger.handle_failed(short(hash));
        }
        Some((sent, bytes))
    }

    /// When [`Collector::handle_timeout`] has something to do.
    pub fn poll_timeout(&self, world: World<'_>) -> Option<Micros> {
        let waits = self.ledger.waits_until(world.heads);
        [self.agent.poll_timeout(), waits].into_iter().flatten().min()
    }

    /// What it has settled on: the short form of the content that is applied and whose report is
    /// acknowledged, or [`REPORTS_ONLY`]; 0 while it applies another; `None` is no news.
    pub fn settled_on(&self, plan: &Plan) -> Option<u64> {
        if plan.is_report_only(self.index) {
            return self.answered.then_some(REPORTS_ONLY);
        }
        if !self.agent.is_settled() {
            return self.agent.applied().is_none().then_some(0);
        }
        let acknowledged = self.ledger.owed_since().is_none();
        self.agent.applied().filter(|_| acknowledged).map(|hash| short(hash))
    }

    /// Whether it runs what a head says, has told so, and was answered.
    pub(crate) fn is_settled_under(&self, head: &Head, plan: &Plan) -> bool {
        let settled = self.ledger.owed_since().is_none() && self.agent.is_settled();
        settled && self.settled_on(plan) == Some(head.settled_on(self.index, plan))
    }

    /// Whether it runs what a head says, told or not.
    pub(crate) fn runs_what_says(&self, head: &Head, plan: &Plan) -> bool {
        let runs = self.agent.applied().map(|hash| short(hash));
        plan.is_report_only(self.index) || runs == Some(head.expected(self.index).short)
    }

    /// When the newest message that is unanswered was sent, if one is.
    pub fn owed_since(&self) -> Option<Micros> {
        self.ledger.owed_since()
    }

    /// The instance uid as text, for the HTTP header.
    pub fn uid_text(&self) -> String {
        self.agent.uid().to_string()
    }

    /// The books, at the end.
    pub fn into_ledger(self) -> Ledger {
        self.ledger
    }

    fn share(&mut self, noted: &Noted) {
        if let Some((_, artefact)) = &noted.right {
            self.agent.share(&artefact.content);
        }
    }

    /// Byte for byte: uid and capabilities, 20 bytes (serving.md, decision 2).
    fn is_ack(&self, payload: &[u8]) -> bool {
        payload.len() == 20
            && payload[..2] == [0x0a, 0x10]
            && payload[2..18] == self.agent.uid().0
            && payload[18..] == [0x38, 0x07]
    }
}

impl Head {
    /// What a collector must publish to be settled under this head.
    pub fn settled_on(&self, index: u32, plan: &Plan) -> u64 {
        if plan.is_report_only(index) { REPORTS_ONLY } else { self.expected(index).short }
    }
}
