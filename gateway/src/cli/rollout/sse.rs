//! Server-sent events, as they are read: bytes in, events out, no socket.

use std::collections::VecDeque;

/// Bytes of one event, and of one line.
const EVENT_BYTES_MAX: usize = 64 << 20;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Its name; empty when it has none.
    pub name: String,
    /// Its data, lines joined by `\n`.
    pub data: String,
}

/// A stream that is none, or too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// Past the limit.
    #[error("an event has more than {EVENT_BYTES_MAX} bytes")]
    TooLong,
    /// Not UTF-8.
    #[error("an event is not UTF-8")]
    NotUtf8,
}

/// Takes a stream apart, however it is cut into pieces.
#[derive(Debug, Default)]
pub struct Parser {
    /// The beginning of a line.
    line: Vec<u8>,
    /// The last byte was a CR: a LF after it belongs to the same end of line.
    after_cr: bool,
    event: Event,
    has_data: bool,
    ready: VecDeque<Event>,
}

impl Parser {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// What the stream breaks; it is of no use after that.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<(), SseError> {
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (text, end) = match piece.split_last() {
                Some((end @ (b'\n' | b'\r'), text)) => (text, Some(*end)),
                _ => (piece, None),
            };
            let second_half = self.after_cr && text.is_empty() && end == Some(b'\n');
            self.after_cr = end == Some(b'\r');
            if second_half {
                continue;
            }
            if self.line.len() + text.len() + self.event.data.len() > EVENT_BYTES_MAX {
                return Err(SseError::TooLong);
            }
            self.line.extend_from_slice(text);
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                self.handle_line(str::from_utf8(&line).map_err(|_| SseError::NotUtf8)?);
            }
        }
        Ok(())
    }

    /// The next event that is whole.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    fn handle_line(&mut self, line: &str) {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            if std::mem::take(&mut self.has_data) {
                self.ready.push_back(event);
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.event.name = value.to_owned(),
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.has_data = true;
                self.event.data.push_str(value);
            }
            // Comments (an empty field), retry, id, and what may come.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events(pieces: &[&[u8]]) -> Vec<Event> {
        let mut parser = Parser::default();
        for piece in pieces {
            parser.handle_bytes(piece).unwrap();
        }
        std::iter::from_fn(|| parser.poll_event()).collect()
    }

    fn event(name: &str, data: &str) -> Event {
        Event { name: name.into(), data: data.into() }
    }

    const STREAM: &str = "retry: 2000\n\n: hello\n\nevent: report\ndata: {\"é\":1}\n\n\
        data:two\r\ndata: lines\r\n\r\nevent: no data\n\ndata\n\nevent: cut";

    #[test]
    fn comments_pass_and_lines_join() {
        let expected = [event("report", "{\"é\":1}"), event("", "two\nlines"), event("", "")];
        assert_eq!(events(&[STREAM.as_bytes()]), expected);
    }

    proptest! {
        #[test]
        fn it_does_not_matter_where_a_stream_is_cut(cuts in prop::collection::vec(0..STREAM.len(), 0..20)) {
            let mut cuts = cuts;
            cuts.extend([0, STREAM.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &STREAM.as_bytes()[cut[0]..cut[1]]).collect();
            prop_assert_eq!(events(&pieces), events(&[STREAM.as_bytes()]));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Parser::default().handle_bytes(&bytes);
        }
    }

    #[test]
    fn what_is_not_text_is_refused() {
        assert_eq!(Parser::default().handle_bytes(b"data: \xff\n"), Err(SseError::NotUtf8));
    }
}
