//! Peers that speak another format, say who they are not, or say nonsense.

use proptest::prelude::*;
use proto::uplink::{
    Decoder, FRAME_BYTES_MAX, Frame, HeadLine, Hello, Kept, Key, Line, Reading as WireReading,
    Record as WireRecord, Rivals, Stamp, Writer, encode, encode_head,
};

use super::*;
use crate::uplink::SILENCE_MAX;

/// An aggregator, and a peer that says what a test wants.
struct Peer {
    process: Process,
    server: AggregatorUplink,
    now_ms: Millis,
}

impl Peer {
    fn new(certified: Option<&str>) -> Self {
        let mut world = World::new(1, 1);
        let process = world.aggregators.remove(0);
        let now = process.now(world.now_ms);
        let aggregator = Arc::clone(&process.aggregator);
        let server = AggregatorUplink::new(aggregator, certified.map(Into::into), now);
        Self { process, server, now_ms: world.now_ms }
    }

    fn again(&self, certified: Option<&str>) -> AggregatorUplink {
        let now = self.process.now(self.now_ms);
        AggregatorUplink::new(Arc::clone(&self.process.aggregator), certified.map(Into::into), now)
    }

    fn say(&mut self, bytes: &[u8]) -> Result<(), UplinkError> {
        self.server.handle_bytes(self.process.now(self.now_ms), bytes)
    }

    fn hear(&mut self) -> Decoder {
        let mut out = Vec::new();
        while self.server.poll_transmit(self.process.now(self.now_ms), &mut out) {}
        let mut decoder = Decoder::default();
        decoder.push(&out);
        decoder
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.server.handle_disconnected(self.process.now(self.now_ms));
    }
}

fn hello(formats: &[u16], name: &str, incarnation: u32, started_ms: Millis) -> Vec<u8> {
    let formats: Vec<u8> = formats.iter().flat_map(|format| format.to_le_bytes()).collect();
    let hello = Hello { formats: &formats, name, incarnation, started_ms, now_ms: BEGINNING };
    let mut out = Vec::new();
    encode(&Frame::Hello(hello), 2, &mut out);
    out
}

fn refusal(peer: &mut Peer) -> String {
    let mut decoder = peer.hear();
    match decoder.next_frame(2) {
        Ok(Some(Frame::Refuse(reason))) => reason.to_owned(),
        other => panic!("it was not refused: {other:?}"),
    }
}

/// A Key, one record and a head, in a format.
fn batch(process: &Process, format: u16, incarnation: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let candidate = process.cell().key().candidate.0;
    let key = Key { index: 0, rollout: ROLLOUT, origin: None, candidate: &candidate };
    encode(&Frame::Key(key), format, &mut out);
    let line = HeadLine { key: 0, stage: 0, cohorts: 7, halt: 8, awaited: 9 };
    encode_head("c1", [line].into_iter(), format, &mut out);
    let stamp = Stamp { epoch_ms: BEGINNING, incarnation, n: 1 };
    let record = WireRecord { arm: Some((stamp, WireReading::To)), ..WireRecord::default() };
    let line = Line {
        key: 0,
        identity: identity(5).0,
        uid: 1,
        no_bucket: false,
        record,
        texts: None,
        rivals: Rivals::default(),
    };
    let mut writer = Writer::new(1, &mut out);
    writer.push(&line, &[]);
    writer.finish();
    out
}

#[test]
fn the_format_before_the_present_one_is_spoken_too() {
    for (offered, spoken) in [(&[2, 1][..], 2), (&[1], 1), (&[3, 2], 2), (&[9, 1], 1)] {
        let mut peer = Peer::new(None);
        peer.say(&hello(offered, "edge-0", 1, 1)).unwrap();
        let mut decoder = peer.hear();
        let Ok(Some(Frame::Welcome(welcome))) = decoder.next_frame(spoken) else {
            panic!("no Welcome");
        };
        assert_eq!(welcome.format, spoken);
        let bytes = batch(&peer.process, spoken, 1);
        peer.say(&bytes).unwrap();
        assert!(known(&peer.process, 5).is_some());
        let mut decoder = peer.hear();
        let mut kept = None;
        while let Some(frame) = decoder.next_frame(spoken).unwrap() {
            if let Frame::Ack(ack) = frame {
                kept = Some(ack.kept);
            }
        }
        assert_eq!(kept, Some(Kept::Memory));
    }
}

#[test]
fn a_replica_of_another_time_is_told_what_is_spoken() {
    let mut peer = Peer::new(None);
    assert!(peer.say(&hello(&[7], "edge-0", 1, 1)).is_err());
    assert!(refusal(&mut peer).contains("[7]"));
}

#[test]
fn a_replica_that_claims_another_name_is_refused() {
    let mut peer = Peer::new(Some("edge-1"));
    assert!(peer.say(&hello(&[2], "edge-0", 1, 1)).is_err());
    assert!(refusal(&mut peer).contains("edge-1"));
    let mut peer = Peer::new(None);
    assert!(peer.say(&hello(&[2], "", 1, 1)).is_err());
}

#[test]
fn a_number_that_belongs_to_another_replica_is_refused() {
    let mut peer = Peer::new(None);
    peer.say(&hello(&[2], "edge-0", 1, 1)).unwrap();
    let mut second = peer.again(None);
    let now = peer.process.now(peer.now_ms);
    assert!(second.handle_bytes(now, &hello(&[2], "edge-1", 1, 1)).is_err());
    second.handle_disconnected(now);
    let own = peer.process.aggregator.incarnation();
    let mut third = peer.again(None);
    assert!(third.handle_bytes(now, &hello(&[2], "edge-1", own, 1)).is_err());
    third.handle_disconnected(now);
}

#[test]
fn a_newer_process_of_a_name_takes_over() {
    let mut peer = Peer::new(None);
    peer.say(&hello(&[2], "edge-0", 1, 100)).unwrap();
    let now = peer.process.now(peer.now_ms);
    let mut newer = peer.again(None);
    newer.handle_bytes(now, &hello(&[2], "edge-0", 2, 200)).unwrap();
    assert!(matches!(peer.say(&[]), Err(UplinkError::Superseded)));
    let mut older = peer.again(None);
    assert!(older.handle_bytes(now, &hello(&[2], "edge-0", 1, 100)).is_err());
    for mut end in [newer, older] {
        end.handle_disconnected(now);
    }
}

#[test]
fn sessions_of_another_process_are_refused() {
    let mut peer = Peer::new(None);
    peer.say(&hello(&[2], "edge-0", 1, 1)).unwrap();
    let bytes = batch(&peer.process, 2, 2);
    assert!(matches!(peer.say(&bytes), Err(UplinkError::OutOfTurn(_))));
    assert_eq!(known(&peer.process, 5), None);
}

#[test]
fn a_frame_that_is_too_long_is_not_waited_for() {
    let mut peer = Peer::new(None);
    peer.say(&hello(&[2], "edge-0", 1, 1)).unwrap();
    let length = u32::try_from(FRAME_BYTES_MAX + 1).unwrap().to_le_bytes();
    assert!(matches!(peer.say(&length), Err(UplinkError::Frame(_))));
}

#[test]
fn who_says_nothing_is_gone() {
    let mut peer = Peer::new(None);
    peer.say(&hello(&[2], "edge-0", 1, 1)).unwrap();
    peer.now_ms += u64::try_from(SILENCE_MAX.as_millis()).unwrap();
    let now = peer.process.now(peer.now_ms);
    assert_eq!(peer.server.poll_timeout(now), std::time::Duration::ZERO);
    assert!(matches!(peer.server.handle_timeout(now), Err(UplinkError::Silent)));
}

proptest! {
    #[test]
    fn nonsense_ends_the_connection_and_nothing_else(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        at in any::<prop::sample::Index>(),
        flip in any::<u8>(),
    ) {
        // Behind a Hello, and as a damaged batch.
        let mut peer = Peer::new(None);
        peer.say(&hello(&[2], "edge-0", 1, 1)).unwrap();
        let _ = peer.say(&bytes);
        let mut peer = Peer::new(None);
        peer.say(&hello(&[2], "edge-0", 1, 1)).unwrap();
        let mut damaged = batch(&peer.process, 2, 1);
        let at = at.index(damaged.len());
        damaged[at] ^= flip;
        let _ = peer.say(&damaged);
        peer.hear();
        peer.process.aggregator.handle_timeout(peer.process.now(peer.now_ms + 1_000));
    }
}
