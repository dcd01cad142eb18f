//! Frames of the uplink: a stream in pieces says what it says as a whole, what is read can be
//! written and read again, and nothing is held beyond a frame.

use proto::uplink::{Decoder, FORMATS, FRAME_BYTES_MAX, Frame, FrameError, encode};

/// The first byte of `data` picks the format and the size of pieces, the rest is a stream.
pub(crate) fn run(data: &[u8]) {
    let Some((pick, stream)) = data.split_first() else { return };
    let format = FORMATS[usize::from(*pick) % FORMATS.len()];
    let piece = usize::from(*pick / 2) + 1;

    let whole = read(stream, format, stream.len().max(1));
    assert_eq!(whole, read(stream, format, piece));
}

/// Everything that is said, one text per frame, and how it ends.
fn read(stream: &[u8], format: u16, piece: usize) -> (Vec<String>, Option<FrameError>) {
    let mut decoder = Decoder::default();
    let mut said = Vec::new();
    for bytes in stream.chunks(piece) {
        decoder.push(bytes);
        loop {
            match decoder.next_frame(format) {
                Ok(None) => break,
                Ok(Some(frame)) => said.push(text(&frame, format)),
                Err(error) => return (said, Some(error)),
            }
        }
        assert!(decoder.held() <= FRAME_BYTES_MAX + 4);
    }
    (said, None)
}

fn text(frame: &Frame<'_>, format: u16) -> String {
    let mut bytes = Vec::new();
    encode(frame, format, &mut bytes);
    let mut again = Decoder::default();
    again.push(&bytes);
    let read = again.next_frame(format);
    assert_eq!(read.as_ref().ok().and_then(Option::as_ref), Some(frame));
    match frame {
        Frame::Records(records) => {
            let lines: Vec<_> = records.lines.iter().collect();
            assert!(lines.len() <= records.lines.len() + 1);
            let sessions: usize =
                lines.iter().flatten().map(|line| line.rivals.iter().count()).sum();
            format!("{} {sessions} {lines:?}", records.seq)
        }
        Frame::Head(head) => format!("{} {:?}", head.commit, head.lines.iter().collect::<Vec<_>>()),
        Frame::Halted(lines) => {
            let all: Vec<_> = lines.iter().collect();
            assert_eq!(all.len(), lines.len());
            format!("{all:?}")
        }
        Frame::State(state) => {
            let lists = [state.judged, state.braked].map(|list| list.iter().collect::<Vec<u64>>());
            format!("{} {lists:?}", state.key)
        }
        Frame::Hello(hello) => {
            let formats: Vec<u16> = hello.formats().collect();
            format!("{} {} {formats:?}", hello.name, hello.incarnation)
        }
        other => format!("{other:?}"),
    }
}
