//! The rules once more, as plainly as they can be said: the model keeps everything that ever
//! happened to an agent and looks through all of it for each answer.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Sequence {
    Next,
    Repeat,
    Skip(u64),
    Anew(u64),
}

#[derive(Clone, Debug)]
enum Step {
    Wait(Seconds),
    Message {
        sequence: Sequence,
        capabilities: u64,
        described: bool,
        status: Option<(u8, u8)>,
        budget: bool,
    },
    Push,
    Head {
        base: u8,
        candidate: Option<(u8, u8)>,
    },
    Brake(bool),
    Attributes,
}

/// What happened, in order.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Restarted,
    Described,
    Gap,
    Missing,
    Asked {
        at: Seconds,
    },
    /// `content` 9 is a hash that is nobody's.
    Status {
        at: Seconds,
        content: u8,
        status: u8,
    },
    Offered {
        at: Seconds,
        content: u8,
        in_reply: bool,
    },
    Heard,
}

struct Model {
    exchange: Exchange,
    events: Vec<Event>,
    sequence: Option<u64>,
    capabilities: u64,
}

const FAILED: u8 = 3;
const APPLIED: u8 = 1;

impl Model {
    /// What happened since the last event that `matches`, if there was one.
    fn since(&self, matches: impl Fn(&Event) -> bool) -> Option<(Event, &[Event])> {
        let at = self.events.iter().rposition(matches)?;
        Some((self.events[at], &self.events[at + 1..]))
    }

    fn last_offer(&self) -> Option<(u8, Seconds, bool, &[Event])> {
        let (event, after) =
            self.since(|event| matches!(event, Event::Offered { .. } | Event::Restarted))?;
        match event {
            Event::Offered { at, content, in_reply } => Some((content, at, in_reply, after)),
            _ => None,
        }
    }

    fn unanswered(&self) -> Option<(u8, Seconds, bool)> {
        let (content, at, in_reply, after) = self.last_offer()?;
        let answered = after
            .iter()
            .any(|event| matches!(event, Event::Status { content: said, .. } if *said == content));
        let latest_exchange = in_reply && !after.contains(&Event::Heard);
        (!answered).then_some((content, at, latest_exchange))
    }

    fn reported(&self) -> Option<u8> {
        match self.since(|event| matches!(event, Event::Status { .. }))?.0 {
            Event::Status { content, .. } => Some(content),
            _ => None,
        }
    }

    fn believed(&self) -> Option<u8> {
        if let Some((content, ..)) = self.unanswered() {
            return Some(content);
        }
        let silent = self.capabilities & 0x1000 == 0;
        match self.last_offer() {
            Some((content, ..)) if silent => Some(content),
            _ => self.reported(),
        }
    }

    /// When it may be tried again, how often it was, and whether a try is under way.
    fn failure(&self, content: u8) -> Option<(Seconds, u8, bool)> {
        let mut failure: Option<(Seconds, u8, bool)> = None;
        for event in &self.events {
            match *event {
                Event::Status { content: said, status: APPLIED, .. } if said == content => {
                    failure = None;
                }
                Event::Status { at, content: said, status: FAILED } if said == content => {
                    failure = match failure {
                        None => Some((at + 600, 0, false)),
                        Some((due, tries, _)) => Some((due, tries, false)),
                    };
                }
                Event::Offered { at, content: said, .. } if said == content => {
                    failure = failure.map(|(_, tries, _)| {
                        let wait = (600u64 << (tries + 1).min(20)).min(86_400) as Seconds;
                        (at + wait, tries + 1, true)
                    });
                }
                _ => {}
            }
        }
        failure
    }

    fn serves_candidate(&self, now: Seconds, content: u8, retries: u8) -> bool {
        match self.failure(content) {
            None => true,
            Some((due, tries, _)) if now >= due => tries < retries,
            Some((_, _, trying)) => trying,
        }
    }

    fn offers(&self, now: Seconds, content: u8, in_reply: bool) -> bool {
        if self.capabilities & 0x2 == 0 {
            return false;
        }
        let reports = self.capabilities & 0x1000 != 0;
        match self.unanswered() {
            Some((offered, at, latest_exchange)) if offered == content => {
                let lost = in_reply && latest_exchange || reports && now - at >= 120;
                return self.exchange == Exchange::Poll && lost;
            }
            _ => {}
        }
        if let Some((due, ..)) = self.failure(content) {
            return now >= due;
        }
        if self.believed() == Some(content) {
            return false;
        }
        match self.last_offer() {
            Some((offered, at, ..)) if offered == content => now - at >= 60,
            _ => true,
        }
    }

    fn need(&self) -> Option<FullStateReason> {
        let Some((_, after)) = self.since(|event| *event == Event::Described) else {
            return Some(FullStateReason::Unknown);
        };
        // A gap is asked about once; a missing attribute until it comes.
        let mut need = None;
        for event in after {
            match event {
                Event::Gap if need.is_none() => need = Some(FullStateReason::Gap),
                Event::Missing if need.is_none() => need = Some(FullStateReason::Attributes),
                Event::Asked { .. } if need == Some(FullStateReason::Gap) => need = None,
                _ => {}
            }
        }
        need
    }

    fn asks(&self, now: Seconds, budget: bool) -> Option<FullStateReason> {
        let need = self.need()?;
        let described = self.events.iter().rposition(|event| *event == Event::Described);
        let in_vain = self.events[described.unwrap_or(0)..]
            .iter()
            .filter(|event| matches!(event, Event::Asked { .. }))
            .count();
        let wait = (10u64 << in_vain.saturating_sub(3).min(20)).min(3_600);
        let last = self.since(|event| matches!(event, Event::Asked { .. }));
        if let Some((Event::Asked { at }, _)) = last
            && u64::from(now - at) < wait
        {
            return None;
        }
        budget.then_some(need)
    }

    fn decide(&mut self, now: Seconds, head: Head, in_reply: bool) -> (Option<u8>, Serving) {
        let braked = |content| {
            let has_it = [self.believed(), self.reported()].contains(&Some(content));
            has_it && self.failure(content).is_none()
        };
        let (content, serving) = match head.candidate {
            Some((content, _)) if head.braked && braked(content) => (content, Serving::Candidate),
            Some((content, retries))
                if !head.braked && self.serves_candidate(now, content, retries) =>
            {
                (content, Serving::Candidate)
            }
            _ => (head.base, Serving::Base),
        };
        let brakes = head.braked && serving == Serving::Candidate;
        let offers = !brakes && self.offers(now, content, in_reply);
        if offers {
            self.events.push(Event::Offered { at: now, content, in_reply });
        }
        (offers.then_some(content), serving)
    }
}

#[derive(Clone, Copy)]
struct Head {
    base: u8,
    candidate: Option<(u8, u8)>,
    braked: bool,
}

impl Head {
    fn desired(self) -> Desired {
        let candidate = self.candidate.map(|(content, retries)| DesiredCandidate {
            content: key(content),
            retries,
            withheld: self.braked,
        });
        Desired { base: key(self.base), candidate }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let sequence = prop_oneof![
        12 => Just(Sequence::Next),
        2 => Just(Sequence::Repeat),
        2 => (2u64..5).prop_map(Sequence::Skip),
        1 => (0u64..2).prop_map(Sequence::Anew),
    ];
    let capabilities = prop_oneof![
        6 => Just(0u64),
        3 => Just(REPORTS),
        1 => Just(ACCEPTS),
        1 => Just(0x1001u64),
    ];
    let content = prop_oneof![8 => 0u8..3, 1 => Just(9u8)];
    let status = prop::option::of((content, 0u8..5));
    let message = (sequence, capabilities, prop::bool::weighted(0.3), status, any::<bool>());
    let message = message.prop_map(|(sequence, capabilities, described, status, budget)| {
        Step::Message { sequence, capabilities, described, status, budget }
    });
    let head = (0u8..3, prop::option::of((1u8..3, 0u8..3))).prop_map(|(base, candidate)| {
        let candidate = candidate.map(|(next, retries)| ((base + next) % 3, retries));
        Step::Head { base, candidate }
    });
    let step = prop_oneof![
        3 => prop_oneof![0u32..15, 50u32..130, 590u32..1_300, 0u32..100_000].prop_map(Step::Wait),
        12 => message,
        2 => Just(Step::Push),
        2 => head,
        1 => any::<bool>().prop_map(Step::Brake),
        1 => Just(Step::Attributes),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn a_session_does_what_the_model_says(steps in steps(), polls in any::<bool>()) {
        let exchange = if polls { Exchange::Poll } else { Exchange::Stream };
        let mut link = Link::at(1);
        let mut model = Model { exchange, events: vec![], sequence: None, capabilities: 0 };
        let mut head = Head { base: 0, candidate: None, braked: false };
        for step in steps {
            match step {
                Step::Wait(seconds) => link.now += seconds,
                Step::Head { base, candidate } => head = Head { base, candidate, ..head },
                Step::Brake(on) => head.braked = on,
                Step::Attributes => {
                    if let Some(agent) = link.session.get_mut(uid(1)) {
                        agent.require_attributes();
                        model.events.push(Event::Missing);
                    }
                }
                Step::Push => {
                    if link.session.get(uid(1)).is_some_and(Agent::described) {
                        let offered = link.push(&head.desired());
                        let (expected, _) = model.decide(link.now, head, false);
                        prop_assert_eq!(offered, expected.map(key));
                    }
                }
                Step::Message { sequence, capabilities, described, status, budget } => {
                    let last = model.sequence;
                    let number = match (sequence, last) {
                        (Sequence::Next, Some(last)) => last + 1,
                        (Sequence::Next | Sequence::Repeat, None) => 0,
                        (Sequence::Repeat, Some(last)) => last,
                        (Sequence::Skip(more), last) => last.unwrap_or(0) + more,
                        (Sequence::Anew(number), _) => number,
                    };
                    let mut sent = opamp::AgentToServer { capabilities, ..message(number) };
                    if described {
                        sent.agent_description = Some(opamp::AgentDescription::default());
                    }
                    if let Some((content, status)) = status {
                        let hash = if content == 9 { vec![1, 2, 3] } else { hex(content) };
                        sent.remote_config_status = Some(opamp::RemoteConfigStatus {
                            last_remote_config_hash: hash.into(),
                            status: status.into(),
                            error_message: String::new(),
                        });
                    }

                    let bare = number == 0 && capabilities == 0 && !described && status.is_none();
                    let repeated = last == Some(number) && !bare;
                    let follows = last.is_none_or(|last| number == last + 1);
                    let anew = !repeated && !follows && number <= 1 && described;
                    let gap = !repeated && !follows && !anew && !bare;
                    if last.is_none() || capabilities != 0 { model.capabilities = capabilities }
                    if described { model.events.push(Event::Described) }
                    if !repeated { model.events.push(Event::Heard) }
                    if anew { model.events.push(Event::Restarted) }
                    if gap { model.events.push(Event::Gap) }
                    if !(repeated || bare && !follows) { model.sequence = Some(number) }
                    if let Some((content, status)) = status {
                        model.events.push(Event::Status { at: link.now, content, status });
                    }

                    let outcome = link.receive_over(exchange, &sent, &head.desired(), budget);
                    prop_assert_eq!(outcome.news.gap, gap);
                    prop_assert_eq!(outcome.news.repeated, repeated);
                    prop_assert_eq!(outcome.news.restarted, anew);
                    if model.events.contains(&Event::Described) {
                        let (offered, serving) = model.decide(link.now, head, true);
                        prop_assert_eq!(outcome.offered, offered.map(key));
                        prop_assert_eq!(outcome.serving, Some(serving));
                    } else {
                        prop_assert_eq!(outcome.offered, None);
                    }
                    let asked = model.asks(link.now, budget);
                    prop_assert_eq!(outcome.full_state, asked);
                    if asked.is_some() { model.events.push(Event::Asked { at: link.now }) }
                }
            }
        }
    }
}
