//! Frames of the uplink: golden vectors of each format, limits, and any record there and back.

use std::fmt::Write as _;
use std::path::Path;

use proptest::prelude::*;
use proto::uplink::{
    Ack, Conn, Decoder, FORMATS, FRAME_BYTES_MAX, Frame, FrameError, HaltedLine, HeadLine, Hello,
    Kept, Key, LINES_MAX, Line, Observed, RIVALS_MAX, Reading, Record, Rivals, Seat, Stamp, Texts,
    Welcome, Writer, common_format, encode, encode_halted, encode_head, encode_hello, encode_state,
};

use crate::bodies;

fn stamp(n: u64) -> Stamp {
    Stamp { epoch_ms: 1_700_000_000_000 + n, incarnation: 0xfeed_beef, n }
}

fn full_record() -> Record {
    let observed = Observed { seat: Seat::Stage(3), foreign: true, healthy: Some(false) };
    Record {
        failed: Some((stamp(1), 0xabcd_ef01)),
        applied: Some(stamp(2)),
        arm: Some((stamp(3), Reading::Other)),
        conn: Some((stamp(4), Conn::Drained)),
        observed: Some((stamp(5), observed)),
        heard_ms: 1_700_000_000_777,
        first_to_ms: Some(1_700_000_000_123),
        tries: 9,
    }
}

fn line(record: Record) -> Line<'static> {
    Line {
        key: 1,
        identity: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
        uid: 0x1122_3344,
        no_bucket: true,
        record,
        texts: None,
        rivals: Rivals::default(),
    }
}

/// One of each frame, by name.
fn frames(format: u16) -> Vec<(&'static str, Vec<u8>)> {
    let one = |frame: &Frame<'_>| {
        let mut out = Vec::new();
        encode(frame, format, &mut out);
        out
    };
    let with = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        write(&mut out);
        out
    };
    let candidate = [7; 32];
    let key = |origin| Key { index: 1, rollout: "team/canary", origin, candidate: &candidate };
    let welcome = Welcome { format, name: "central", incarnation: 4, now_ms: 1_700_000_000_000 };
    let head = |out: &mut Vec<u8>| {
        let line = |key| HeadLine { key, stage: 2, cohorts: 3, halt: 4, awaited: 5 };
        encode_head("0123abcd", [line(0), line(1)].into_iter(), format, out);
    };
    let records = |out: &mut Vec<u8>| {
        let texts = Texts { label: "host-1", version: "0.158.0", error: "cannot bind: é" };
        let mut writer = Writer::new(17, out);
        writer.push(&line(Record::default()), &[]);
        writer.push(&Line { texts: Some(texts), ..line(full_record()) }, &[(stamp(6), 99)]);
        writer.finish();
    };
    let halted = |out: &mut Vec<u8>| {
        let failed = HaltedLine { key: 0, identity: 5, tries: Some(2) };
        encode_halted(&[failed, HaltedLine { tries: None, ..failed }], out);
    };
    vec![
        (
            "hello",
            with(&|out| encode_hello("edge-1", 3, 1_699_999_999_999, 1_700_000_000_000, out)),
        ),
        ("welcome", one(&Frame::Welcome(welcome))),
        ("refuse", one(&Frame::Refuse("no"))),
        ("key", one(&Frame::Key(key(Some("abcdef"))))),
        ("key_without_origin", one(&Frame::Key(key(None)))),
        ("head", with(&head)),
        ("alive", one(&Frame::Alive)),
        ("records", with(&records)),
        ("ack", one(&Frame::Ack(Ack { seq: 17, kept: Kept::Memory }))),
        ("sync_begin", one(&Frame::SyncBegin)),
        ("sync_end", one(&Frame::SyncEnd { seq: 18 })),
        ("halted", with(&halted)),
        ("state", with(&|out| encode_state(1, &[1, 2], &[3], out))),
        ("bye", one(&Frame::Bye)),
    ]
}

fn golden(format: u16) -> String {
    let path = format!("../fixtures/wire/uplink-{format}.txt");
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap_or_default()
}

#[test]
fn every_frame_is_what_it_was() {
    for format in FORMATS {
        let mut text = String::new();
        for (name, bytes) in frames(format) {
            write!(text, "{name} ").unwrap();
            bytes.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
            text.push('\n');
        }
        assert_eq!(golden(format), text, "format {format}");
    }
}

#[test]
fn every_golden_frame_is_read_and_written_again_as_it_was() {
    for format in FORMATS {
        let text = golden(format);
        assert_eq!(text.lines().count(), frames(format).len());
        for vector in text.lines() {
            let (name, hex) = vector.split_once(' ').unwrap();
            let bytes: Vec<u8> = (0..hex.len() / 2)
                .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
                .collect();
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            let mut again = Vec::new();
            let frame = decoder.next_frame(format).unwrap().unwrap();
            encode(&frame, format, &mut again);
            assert_eq!(again, bytes, "{name}");
            if let Frame::Head(head) = &frame {
                let awaited = if format >= 2 { 5 } else { 0 };
                assert!(head.lines.iter().all(|line| line.awaited == awaited));
            }
            if let Frame::Records(records) = &frame {
                let lines: Vec<_> = records.lines.iter().map(Result::unwrap).collect();
                assert_eq!((lines[0].record, lines[1].record), (Record::default(), full_record()));
                assert_eq!(lines[1].texts.unwrap().error, "cannot bind: é");
                assert_eq!(lines[1].rivals.iter().collect::<Vec<_>>(), [(stamp(6), 99)]);
            }
            // Each piece of it is waited for, and what is behind it is refused.
            for cut in 0..bytes.len() {
                let mut decoder = Decoder::default();
                decoder.push(&bytes[..cut]);
                assert_eq!(decoder.next_frame(format), Ok(None), "{name} cut at {cut}");
            }
            let mut data = vec![u8::from(format == 1)];
            data.extend_from_slice(&bytes);
            bodies::uplink::run(&data);
        }
    }
}

#[test]
fn what_a_length_promises_must_be_there() {
    for (name, bytes) in frames(2) {
        let body = &bytes[4..];
        for cut in 1..body.len() {
            let mut framed = u32::try_from(cut).unwrap().to_le_bytes().to_vec();
            framed.extend_from_slice(&body[..cut]);
            let mut decoder = Decoder::default();
            decoder.push(&framed);
            let read = decoder.next_frame(2);
            let whole = match &read {
                Ok(Some(Frame::Records(records))) => records.lines.iter().all(|line| line.is_ok()),
                Ok(frame) => frame.is_some(),
                Err(_) => false,
            };
            assert!(!whole, "{name} cut at {cut}: {read:?}");
        }
        if !matches!(name, "hello" | "refuse") {
            let mut more = u32::try_from(body.len() + 1).unwrap().to_le_bytes().to_vec();
            more.extend_from_slice(body);
            more.push(0);
            let mut decoder = Decoder::default();
            decoder.push(&more);
            match decoder.next_frame(2) {
                Ok(Some(Frame::Records(records))) => {
                    assert!(records.lines.iter().any(|line| line.is_err()));
                }
                other => assert_eq!(other, Err(FrameError::TrailingBytes), "{name}"),
            }
        }
    }
}

#[test]
fn the_highest_format_that_both_speak_is_chosen() {
    let common = |formats: &[u16]| {
        let formats: Vec<u8> = formats.iter().flat_map(|format| format.to_le_bytes()).collect();
        let hello = Hello { formats: &formats, name: "", incarnation: 0, started_ms: 0, now_ms: 0 };
        common_format(&hello)
    };
    assert_eq!(common(&[2, 1]), Some(2));
    assert_eq!(common(&[1, 3]), Some(1));
    assert_eq!(common(&[1, 2, 3]), Some(2));
    assert_eq!(common(&[3]), None);
    assert_eq!(common(&[]), None);
}

#[test]
fn a_full_batch_fits_a_frame() {
    let long = "é".repeat(2_000);
    let texts = Texts { label: &long, version: &long, error: &long };
    let rivals = [(stamp(1), 1); RIVALS_MAX];
    let mut out = Vec::new();
    let mut writer = Writer::new(1, &mut out);
    while !writer.is_full() {
        writer.push(&Line { texts: Some(texts), ..line(full_record()) }, &rivals);
    }
    let count = writer.finish();
    assert!(count <= LINES_MAX && out.len() <= FRAME_BYTES_MAX);
    let mut decoder = Decoder::default();
    decoder.push(&out);
    let Ok(Some(Frame::Records(records))) = decoder.next_frame(2) else { panic!("no batch") };
    assert_eq!(records.lines.iter().filter(Result::is_ok).count(), count);
    assert!(records.lines.iter().all(|line| line.is_ok()));
}

fn stamps() -> impl Strategy<Value = Stamp> {
    (0_u64..1 << 48, any::<u32>(), 0_u64..1 << 40).prop_map(|(epoch_ms, incarnation, n)| Stamp {
        epoch_ms,
        incarnation,
        n,
    })
}

fn records() -> impl Strategy<Value = Record> {
    let reading = prop_oneof![
        Just(Reading::Taking),
        Just(Reading::To),
        Just(Reading::From),
        Just(Reading::Other),
        Just(Reading::Unknown)
    ];
    let conn =
        prop_oneof![Just(Conn::Open), Just(Conn::Drained), Just(Conn::Lost), Just(Conn::Left)];
    let seat =
        prop_oneof![any::<u16>().prop_map(Seat::Stage), Just(Seat::Control), Just(Seat::Outside)];
    let observed = (seat, any::<bool>(), any::<Option<bool>>())
        .prop_map(|(seat, foreign, healthy)| Observed { seat, foreign, healthy });
    (
        prop::option::of((stamps(), any::<u32>())),
        prop::option::of(stamps()),
        prop::option::of((stamps(), reading)),
        prop::option::of((stamps(), conn)),
        prop::option::of((stamps(), observed)),
        0_u64..1 << 48,
        prop::option::of(0_u64..1 << 48),
        any::<u8>(),
    )
        .prop_map(|(failed, applied, arm, conn, observed, heard_ms, first_to_ms, tries)| {
            Record { failed, applied, arm, conn, observed, heard_ms, first_to_ms, tries }
        })
}

proptest! {
    #[test]
    fn any_record_is_read_as_it_was_written(
        all in prop::collection::vec((records(), any::<u128>(), any::<u32>(), any::<bool>()), 1..20),
        label in ".{0,40}",
        rivals in prop::collection::vec((stamps(), any::<u32>()), 0..RIVALS_MAX),
    ) {
        let texts = Texts { label: &label, version: "", error: &label };
        let mut out = Vec::new();
        let mut writer = Writer::new(5, &mut out);
        for (at, (record, identity, uid, no_bucket)) in all.iter().enumerate() {
            let texts = (at % 2 == 0).then_some(texts);
            let (identity, uid, no_bucket) = (*identity, *uid, *no_bucket);
            writer.push(&Line { identity, uid, no_bucket, texts, ..line(*record) }, &rivals);
        }
        writer.finish();
        let mut decoder = Decoder::default();
        decoder.push(&out);
        let Ok(Some(Frame::Records(read))) = decoder.next_frame(2) else { panic!("no batch") };
        let read: Result<Vec<_>, _> = read.lines.iter().collect();
        let read = read.unwrap();
        prop_assert_eq!(read.len(), all.len());
        for (at, (line, (record, identity, uid, no_bucket))) in read.iter().zip(&all).enumerate() {
            prop_assert_eq!(line.record, *record);
            prop_assert_eq!((line.identity, line.uid, line.no_bucket), (*identity, *uid, *no_bucket));
            prop_assert_eq!(line.texts, (at % 2 == 0).then_some(texts));
            prop_assert_eq!(line.rivals.iter().collect::<Vec<_>>(), rivals.clone());
        }
    }

    #[test]
    fn any_bytes_are_frames_or_refused(data in prop::collection::vec(any::<u8>(), 0..600)) {
        bodies::uplink::run(&data);
    }

    #[test]
    fn damaged_frames_are_frames_or_refused(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        flip in 1..=u8::MAX,
        pick in any::<u8>(),
    ) {
        let all = frames(FORMATS[usize::from(pick) % 2]);
        let mut data = vec![pick];
        data.extend_from_slice(&all[which.index(all.len())].1);
        let at = 1 + at.index(data.len() - 1);
        data[at] ^= flip;
        bodies::uplink::run(&data);
    }
}
