//! How much of what lies in the kernel can be read without keeping any of it.
//!
//! While the budget has no room for another half-received message, a link may still read whole ones:
//! else 256 peers that stop half way would silence everybody else's heartbeats.

/// Bytes at the front of `bytes` (frames as a client sends them, from the start of a message) after
/// which nothing is half received. All of them when a frame is malformed: the decoder says so then,
/// and the link ends.
pub(super) fn whole_messages(bytes: &[u8]) -> usize {
    let (mut at, mut whole, mut in_message) = (0, 0, false);
    while let Some(frame) = frame(&bytes[at..]) {
        let Ok(Frame { len, fin, control }) = frame else { return bytes.len() };
        let Some(end) = at.checked_add(len).filter(|end| *end <= bytes.len()) else { break };
        at = end;
        if !control {
            in_message = !fin;
        }
        if !in_message {
            whole = at;
        }
    }
    whole
}

struct Frame {
    /// Header and payload.
    len: usize,
    fin: bool,
    control: bool,
}

/// A frame whose client the decoder will not like.
struct Malformed;

/// The frame that begins here; `None` if its header is not there yet.
fn frame(bytes: &[u8]) -> Option<Result<Frame, Malformed>> {
    let [first, second, rest @ ..] = bytes else { return None };
    if second & 0x80 == 0 {
        return Some(Err(Malformed));
    }
    let (header, payload) = match second & 0x7f {
        126 => (8, u64::from(u16::from_be_bytes(*rest.first_chunk()?))),
        127 => (14, u64::from_be_bytes(*rest.first_chunk()?)),
        short => (6, u64::from(short)),
    };
    // Longer than memory is longer than what is there.
    let len = usize::try_from(payload).unwrap_or(usize::MAX).saturating_add(header);
    Some(Ok(Frame { len, fin: first & 0x80 != 0, control: first & 0x08 != 0 }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proto::ws::{Decoder, Input, Limits};

    use super::*;

    #[test]
    fn a_control_frame_inside_a_message_does_not_end_it() {
        let (begin, ping, end) =
            (client_frame(2, false, 3), client_frame(9, true, 1), client_frame(0, true, 2));
        let bytes = [&ping[..], &begin, &ping].concat();
        assert_eq!(whole_messages(&bytes), ping.len());
        let bytes = [&bytes[..], &end].concat();
        assert_eq!(whole_messages(&bytes), bytes.len());
    }

    #[test]
    fn a_claimed_length_past_all_memory_is_no_whole_message() {
        let frame = [&[0x82, 0xff][..], &[0xff; 8], &[0; 100]].concat();
        assert_eq!(whole_messages(&frame), 0);
    }

    proptest! {
        #[test]
        fn the_decoder_keeps_nothing_of_what_is_called_whole(
            messages in proptest::collection::vec(
                (proptest::collection::vec(0_usize..400, 1..4), any::<bool>()), 0..8),
            cut in 0_usize..4_000,
        ) {
            let mut bytes = Vec::new();
            let mut ends = vec![0];
            for (fragments, ping) in messages {
                let last = fragments.len() - 1;
                for (index, len) in fragments.into_iter().enumerate() {
                    let opcode = if index == 0 { 2 } else { 0 };
                    bytes.extend(client_frame(opcode, index == last, len));
                    if ping && index < last {
                        bytes.extend(client_frame(9, true, 5));
                    }
                }
                ends.push(bytes.len());
            }
            bytes.truncate(cut);
            let whole = whole_messages(&bytes);
            prop_assert_eq!(Some(&whole), ends.iter().rev().find(|end| **end <= bytes.len()));
            let mut decoder = Decoder::default();
            let mut input = Input::new(&mut bytes[..whole]);
            while decoder.poll_event(&mut input, Limits::default()).unwrap().is_some() {}
            prop_assert!(decoder.is_idle());
        }

        #[test]
        fn any_bytes_are_looked_at_within_bounds(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(whole_messages(&bytes) <= bytes.len());
        }
    }

    fn client_frame(opcode: u8, fin: bool, len: usize) -> Vec<u8> {
        let mut frame = vec![opcode | if fin { 0x80 } else { 0 }];
        match u16::try_from(len).unwrap() {
            short @ 0..=125 => frame.push(0x80 | u8::try_from(short).unwrap()),
            long => {
                frame.push(0x80 | 126);
                frame.extend(long.to_be_bytes());
            }
        }
        frame.extend(vec![0; 4 + len]);
        frame
    }
}
