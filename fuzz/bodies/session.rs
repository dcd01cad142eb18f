//! A connection on which several agents say anything: every message gets one well-formed reply,
//! nothing is offered that must not be, nothing is repeated in a loop.

use std::collections::BTreeMap;

use prost::Message as _;
use proto::capabilities::{AgentCapabilities, SERVER_CAPABILITIES, SERVER_REPORT_FULL_STATE};
use proto::ids::InstanceUid;
use proto::opamp::{ServerErrorResponseType, ServerToAgent};
use proto::peek::{Gathered, Peek};
use proto::session::{
    ContentKey, Desired, DesiredCandidate, Exchange, FULL_STATE_SECONDS_MIN, HeadFields, ReplyHead,
    Seconds, Serving, Session, encode_bad_request, encode_offer,
};

/// `data` is a list of steps: what happens, how many bytes the message has beside its uid, and
/// these.
pub(crate) fn run(data: &[u8]) {
    let mut run = Run { now: 1, session: Session::default(), asked: BTreeMap::new() };
    let mut left = data;
    while let [step, len, rest @ ..] = left {
        let (fields, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        left = rest;
        run.step(*step, fields);
        assert_eq!(run.session.len(), run.session.agents().count());
        assert_eq!(run.session.is_empty(), run.session.agents().next().is_none());
    }
}

struct Run {
    now: Seconds,
    session: Session<u8>,
    /// When each agent was last asked for full state.
    asked: BTreeMap<InstanceUid, Seconds>,
}

impl Run {
    fn step(&mut self, step: u8, fields: &[u8]) {
        // Two bits of time, two of agent, one of exchange, two of what head says, one of the uid.
        self.now += [0, 1, 15, 4_000][usize::from(step & 3)];
        let uid = InstanceUid([1 + (step >> 2 & 3); 16]);
        let exchange = if step & 0x10 == 0 { Exchange::Stream } else { Exchange::Poll };
        let desired = desired(step >> 5 & 3);
        let mut message = vec![];
        if step & 0x80 == 0 {
            message.extend([0x0a, 16]);
            message.extend(uid.0);
        }
        message.extend(fields);

        let mut gathered = Gathered::default();
        let reply = match Peek::parse(&message, &mut gathered) {
            Ok(peek) => self.handle_message(&peek, exchange, &desired),
            Err(error) => {
                let head = error.uid().map_or_else(ReplyHead::anonymous, |uid| {
                    ReplyHead::new(uid, HeadFields::default())
                });
                let body = encode_bad_request(&error.to_string());
                let reply = decode(&head, &body);
                let refusal = reply.error_response.as_ref().unwrap();
                assert_eq!(refusal.r#type(), ServerErrorResponseType::BadRequest);
                assert!(!refusal.error_message.is_empty());
                let exclusive = ServerToAgent {
                    instance_uid: reply.instance_uid.clone(),
                    error_response: reply.error_response.clone(),
                    ..ServerToAgent::default()
                };
                assert_eq!(reply, exclusive);
                return;
            }
        };
        assert_eq!(reply.capabilities, SERVER_CAPABILITIES);
        assert_eq!(reply.error_response, None);
    }

    fn handle_message(
        &mut self,
        peek: &Peek<'_>,
        exchange: Exchange,
        desired: &Desired,
    ) -> ServerToAgent {
        let now = self.now;
        let received =
            self.session.handle_message(now, exchange, peek, |_| None).expect("four agents fit");
        let (agent, news) = (received.agent, received.news);
        assert_eq!(agent.uid(), peek.uid);
        assert_eq!(agent.heard(), now);
        assert_eq!(news.disconnect, peek.disconnect);

        let decision = agent.handle_decision(now, desired, true);
        let content = match decision.serving {
            Serving::Base => desired.base,
            Serving::Candidate => {
                let candidate = desired.candidate.expect("only a candidate is served as one");
                assert!(candidate.retries > 0 || !agent.has_failed(candidate.content));
                candidate.content
            }
        };
        if decision.offer {
            assert!(agent.capabilities().contains(AgentCapabilities::ACCEPTS_REMOTE_CONFIG));
            assert_eq!(agent.offered(), content);
            assert_eq!(agent.believed(), content);
        }
        // A push for the same head right behind the reply has nothing to add.
        let push = agent.handle_decision(now, desired, false);
        assert_eq!((push.serving, push.offer), (decision.serving, false));
        agent.delivery(now, desired);

        let full_state = agent.poll_full_state(now, || true);
        if full_state.is_some() {
            let before = self.asked.insert(peek.uid, now);
            assert!(
                before.is_none_or(|before| now - before >= FULL_STATE_SECONDS_MIN) || news.first
            );
            assert!(agent.poll_full_state(now, || true).is_none());
        }

        let fields = HeadFields {
            full_state: full_state.is_some(),
            new_uid: None,
            capabilities: !decision.offer,
        };
        let head = ReplyHead::new(peek.uid, fields);
        let body = decision.offer.then(|| encode_offer(b"receivers: {}\n", &[b'a'; 64]));
        let reply = decode(&head, body.as_deref().unwrap_or_default());
        assert_eq!(reply.instance_uid, peek.uid.0[..]);
        assert_eq!(reply.flags, u64::from(full_state.is_some()) * SERVER_REPORT_FULL_STATE);
        assert_eq!(reply.remote_config.is_some(), decision.offer);

        if news.disconnect {
            assert!(self.session.handle_disconnect(peek.uid).is_some());
            assert!(self.session.get(peek.uid).is_none());
        }
        reply
    }
}

fn decode(head: &ReplyHead, body: &[u8]) -> ServerToAgent {
    ServerToAgent::decode(&[head.as_slice(), body].concat()[..]).unwrap()
}

/// One of four heads.
fn desired(which: u8) -> Desired {
    // Hashes that a message can name in a few bytes of hex.
    let key = |byte| ContentKey::new(&[byte; 32]);
    let candidate = match which {
        0 => None,
        1 => Some(DesiredCandidate { content: key(0xcc), retries: 2, withheld: true }),
        2 => Some(DesiredCandidate { content: key(0xcc), retries: 0, withheld: false }),
        _ => Some(DesiredCandidate { content: key(0xcc), retries: 2, withheld: false }),
    };
    Desired { base: key(if which == 1 { 0xbb } else { 0xaa }), candidate }
}
