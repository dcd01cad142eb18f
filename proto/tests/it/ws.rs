//! The server's framing, by itself.

use proptest::collection::vec;
use proptest::prelude::*;
use proto::ws::{self, Decoder, Event, Input, Limits, Violation, code};

use crate::bodies::ws::{Outcome, Said, as_a_whole, in_pieces};

const LIMITS: Limits = Limits { message_bytes: 1_000 };

proptest! {
    #[test]
    fn pieces_say_what_the_whole_says(
        stream in vec(frame(), 0..12).prop_map(|frames| frames.concat()),
        sizes in vec(1_usize..400, 0..40),
    ) {
        prop_assert_eq!(in_pieces(&stream, sizes, LIMITS), as_a_whole(&stream, LIMITS));
    }

    #[test]
    fn one_byte_at_a_time_says_what_the_whole_says(
        stream in vec(frame(), 0..6).prop_map(|frames| frames.concat()),
    ) {
        let ones = std::iter::repeat(1);
        prop_assert_eq!(in_pieces(&stream, ones, LIMITS), as_a_whole(&stream, LIMITS));
    }

    #[test]
    fn messages_in_fragments_among_control_frames_arrive(
        messages in vec(vec(vec(any::<u8>(), 0..300), 1..5), 1..5),
        sizes in vec(1_usize..700, 0..40),
    ) {
        let mut stream = vec![];
        let mut expected = vec![];
        for fragments in messages {
            let last = fragments.len() - 1;
            for (at, fragment) in fragments.iter().enumerate() {
                let opcode = if at == 0 { 2 } else { 0 };
                stream.extend(masked(u8::from(at == last) << 7 | opcode, fragment));
                if at < last {
                    stream.extend(masked(0x89, b"p"));
                    expected.push(Said::Ping(b"p".to_vec()));
                }
            }
            expected.push(Said::Message(fragments.concat()));
        }
        let limits = Limits { message_bytes: 1_500 };
        let outcome = in_pieces(&stream, sizes, limits);
        prop_assert_eq!(outcome, Outcome { said: expected, violation: None, idle: true });
    }
}

#[test]
fn what_arrives_whole_is_handed_out_in_place() {
    // As the Go client sends a report: fragments of its 4 kB buffer.
    let report: Vec<u8> = (0..10_000_u32).map(|at| (at % 251) as u8).collect();
    let mut stream = masked(0x82, b"before");
    let mut chunks = report.chunks(4_082).peekable();
    let mut opcode = 0x02;
    while let Some(chunk) = chunks.next() {
        let fin = if chunks.peek().is_none() { 0x80 } else { 0 };
        stream.extend(masked(fin | opcode, chunk));
        if fin == 0 {
            stream.extend(masked(0x8a, b"pong"));
        }
        opcode = 0x00;
    }
    stream.extend(masked(0x82, b"after"));

    let scratch = stream.as_ptr_range();
    let scratch = scratch.start as usize..scratch.end as usize;
    let mut decoder = Decoder::default();
    let mut input = Input::new(&mut stream);
    let mut seen = vec![];
    while let Some(event) = decoder.poll_event(&mut input, Limits::default()).unwrap() {
        let (Event::Message(payload) | Event::Pong(payload)) = event else { panic!("{event:?}") };
        assert!(scratch.contains(&(payload.as_ptr() as usize)));
        seen.push(payload.to_vec());
    }
    assert_eq!(
        seen,
        [&b"before"[..], &b"pong"[..], &b"pong"[..], &report[..], &b"after"[..]]
            .map(<[u8]>::to_vec)
    );
    assert!(decoder.is_idle());
    assert_eq!(decoder.held_bytes(), 0);
}

#[test]
fn a_claimed_length_reserves_nothing() {
    let mut stream = vec![0x82, 0xff, 0, 0, 0, 0, 3, 0xff, 0xff, 0xff, 1, 2, 3, 4];
    stream.extend([0; 100]);
    let mut decoder = Decoder::default();
    let mut input = Input::new(&mut stream);
    assert_eq!(decoder.poll_event(&mut input, Limits::default()), Ok(None));
    assert!(!decoder.is_idle());
    assert!(decoder.held_bytes() <= 2 * 100 + 16 * 1024);
}

#[test]
fn a_message_in_halves_reserves_what_it_needs() {
    let mut stream = masked(0x82, &[7; 60_000]);
    let (first, second) = stream.split_at_mut(30_000);
    let mut decoder = Decoder::default();
    assert_eq!(decoder.poll_event(&mut Input::new(first), Limits::default()), Ok(None));
    assert_eq!(decoder.held_bytes(), 60_000);
    let mut input = Input::new(second);
    assert_eq!(
        decoder.poll_event(&mut input, Limits::default()),
        Ok(Some(Event::Message(&[7; 60_000])))
    );
    assert_eq!(decoder.poll_event(&mut input, Limits::default()), Ok(None));
    assert!(decoder.is_idle());
    assert_eq!(decoder.held_bytes(), 0);
}

#[test]
fn many_small_fragments_cost_no_copy_each() {
    // Each fragment ends inside an input, and a ping's payload too.
    let mut decoder = Decoder::default();
    let mut grown = 0;
    let mut held = 0;
    for at in 0..20_000 {
        let opcode = if at == 0 { 0x02 } else { 0x00 };
        let mut frames = [masked(opcode, &[1; 40]), masked(0x89, &vec![2; at % 126])].concat();
        let (first, second) = frames.split_at_mut(50);
        for piece in [first, second] {
            let mut input = Input::new(piece);
            while decoder.poll_event(&mut input, Limits::default()).unwrap().is_some() {}
            grown += usize::from(decoder.held_bytes() != held);
            held = decoder.held_bytes();
        }
    }
    assert!(grown < 20, "{grown}");
}

#[test]
fn what_breaks_the_protocol_is_refused_with_its_code() {
    let start = masked(0x02, b"x");
    let cases: &[(&str, &[u8], Violation, u16)] = &[
        ("RSV1, as compression sets it", &[0xc2], Violation::ReservedBits, 1002),
        ("RSV2", &[0xa2, 0x80, 0, 0, 0, 0], Violation::ReservedBits, 1002),
        ("RSV3", &[0x92, 0x80, 0, 0, 0, 0], Violation::ReservedBits, 1002),
        ("opcode 3", &[0x83], Violation::ReservedOpcode, 1002),
        ("opcode 7", &[0x87], Violation::ReservedOpcode, 1002),
        ("opcode 11", &[0x8b], Violation::ReservedOpcode, 1002),
        ("opcode 15", &[0x8f], Violation::ReservedOpcode, 1002),
        ("text", &[0x81, 0x82, 0, 0, 0, 0, b'h', b'i'], Violation::Text, 1003),
        ("a fragment of text", &[0x01, 0x82, 0, 0, 0, 0, b'h', b'i'], Violation::Text, 1003),
        ("no mask", &[0x82, 0x01, 0x00], Violation::Unmasked, 1002),
        ("ping without mask", &[0x89, 0x00], Violation::Unmasked, 1002),
        ("fragmented ping", &[0x09, 0x80, 0, 0, 0, 0], Violation::FragmentedControl, 1002),
        ("fragmented close", &[0x08, 0x80, 0, 0, 0, 0], Violation::FragmentedControl, 1002),
        ("ping of 126", &[0x89, 0xfe, 0, 126], Violation::LongControl, 1002),
        ("pong of 64-bit length", &[0x8a, 0xff], Violation::LongControl, 1002),
        ("16 bits for 125", &[0x82, 0xfe, 0, 125], Violation::Length, 1002),
        ("64 bits for 65535", &[0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff], Violation::Length, 1002),
        ("top bit of length", &[0x82, 0xff, 0x80, 0, 0, 0, 0, 1, 0, 0], Violation::Length, 1002),
        ("continuation first", &[0x80, 0x80, 0, 0, 0, 0], Violation::Continuation, 1002),
        ("over the limit", &[0x82, 0xfe, 0x03, 0xe9, 0, 0, 0, 0], Violation::TooBig, 1009),
        (
            "far over the limit",
            &[0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0],
            Violation::TooBig,
            1009,
        ),
        ("close of one byte", &masked(0x88, &[3]), Violation::CloseLength, 1002),
        ("close 999", &masked(0x88, &999_u16.to_be_bytes()), Violation::CloseCode, 1002),
        ("close 1004", &masked(0x88, &1004_u16.to_be_bytes()), Violation::CloseCode, 1002),
        ("close 1005", &masked(0x88, &1005_u16.to_be_bytes()), Violation::CloseCode, 1002),
        ("close 1006", &masked(0x88, &1006_u16.to_be_bytes()), Violation::CloseCode, 1002),
        ("close 1015", &masked(0x88, &1015_u16.to_be_bytes()), Violation::CloseCode, 1002),
        ("close 2999", &masked(0x88, &2999_u16.to_be_bytes()), Violation::CloseCode, 1002),
        ("close 5000", &masked(0x88, &5000_u16.to_be_bytes()), Violation::CloseCode, 1002),
        ("close reason", &masked(0x88, &[0x03, 0xe8, 0xff]), Violation::CloseReason, 1007),
        (
            "a message in a message",
            &[&start[..], &masked(0x82, b"y")].concat(),
            Violation::Interleaved,
            1002,
        ),
        (
            "continuation after the end",
            &[masked(0x82, b"x"), masked(0x80, b"y")].concat(),
            Violation::Continuation,
            1002,
        ),
        (
            "fragments over the limit",
            &[masked(0x02, &[0; 600]), masked(0x80, &[0; 401])].concat(),
            Violation::TooBig,
            1009,
        ),
    ];
    for (name, stream, violation, code) in cases {
        let whole = in_pieces(stream, [stream.len()], LIMITS);
        assert_eq!(whole.violation, Some(*violation), "{name}");
        assert_eq!(in_pieces(stream, std::iter::repeat(1), LIMITS), whole, "{name}");
        assert_eq!(violation.code(), *code, "{name}");
    }
}

#[test]
fn a_message_of_the_limit_is_taken() {
    let stream = [masked(0x02, &[1; 600]), masked(0x80, &[1; 400])].concat();
    let said = vec![Said::Message(vec![1; 1_000])];
    let expected = Outcome { said, violation: None, idle: true };
    assert_eq!(in_pieces(&stream, [stream.len()], LIMITS), expected);
}

#[test]
fn closes_are_read_and_answered() {
    for (payload, code, reason, answer) in [
        (&b""[..], None, "", &[0x88, 2, 0x03, 0xe8][..]),
        (b"\x03\xe8", Some(code::NORMAL), "", &[0x88, 2, 0x03, 0xe8]),
        (b"\x03\xe9bye", Some(code::GOING_AWAY), "bye", &[0x88, 2, 0x03, 0xe9]),
        (b"\x03\xf4", Some(1012), "", &[0x88, 2, 0x03, 0xf4]),
        (b"\x0b\xb8", Some(3000), "", &[0x88, 2, 0x0b, 0xb8]),
        (b"\x13\x87", Some(4999), "", &[0x88, 2, 0x13, 0x87]),
    ] {
        // What comes behind a close is ignored.
        let mut stream = [masked(0x88, payload), vec![0xff; 20]].concat();
        let mut decoder = Decoder::default();
        let mut input = Input::new(&mut stream);
        let Ok(Some(Event::Close(close))) = decoder.poll_event(&mut input, LIMITS) else {
            panic!("{payload:?}");
        };
        assert_eq!((close.code, close.reason), (code, reason));
        assert_eq!(close.answer().as_ref(), answer);
        assert_eq!(decoder.poll_event(&mut input, LIMITS), Ok(None));
    }
}

#[test]
fn an_idle_link_holds_eight_bytes() {
    assert_eq!(size_of::<Option<Box<Decoder>>>(), 8);
    assert!(Decoder::default().is_idle());
    assert_eq!(Decoder::default().held_bytes(), 0);
    let empty: &mut [u8] = &mut [];
    let mut decoder = Decoder::default();
    assert_eq!(decoder.poll_event(&mut Input::new(empty), Limits::default()), Ok(None));
    assert!(decoder.is_idle());
    assert_eq!(ws::MAX_MESSAGE_BYTES, Limits::default().message_bytes);
}

/// A frame as a client writes it, the first byte as given.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    let mut out = vec![first];
    match payload.len() {
        len @ ..126 => out.push(0x80 | len as u8),
        len @ ..0x1_0000 => {
            out.push(0xfe);
            out.extend((len as u16).to_be_bytes());
        }
        len => {
            out.push(0xff);
            out.extend((len as u64).to_be_bytes());
        }
    }
    out.extend(mask);
    out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    out
}

/// Mostly good frames, and some that are not.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => vec(any::<u8>(), 0..300).prop_map(|payload| masked(0x82, &payload)),
        4 => vec(any::<u8>(), 0..300).prop_map(|payload| masked(0x02, &payload)),
        6 => vec(any::<u8>(), 0..200).prop_map(|payload| masked(0x00, &payload)),
        6 => vec(any::<u8>(), 0..200).prop_map(|payload| masked(0x80, &payload)),
        4 => vec(any::<u8>(), 0..126).prop_map(|payload| masked(0x89, &payload)),
        4 => vec(any::<u8>(), 0..126).prop_map(|payload| masked(0x8a, &payload)),
        1 => (990_u16..5_010, ".{0,20}").prop_map(|(code, reason)| {
            masked(0x88, &[&code.to_be_bytes()[..], reason.as_bytes()].concat())
        }),
        1 => vec(any::<u8>(), 0..126).prop_map(|payload| masked(0x88, &payload)),
        1 => vec(any::<u8>(), 0..20),
    ]
}
