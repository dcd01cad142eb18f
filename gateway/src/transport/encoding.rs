//! Content codings of plain HTTP: what a body is in, what an answer may be in (H2 to H4).

use std::cell::RefCell;
use std::io::{self, Read};

use flate2::bufread::GzDecoder;
use flate2::{Compress, Compression, Crc, FlushCompress, Status};

/// Answers below this are not worth a compressor's time, and an acknowledgement would only grow.
const GZIP_FROM_BYTES: usize = 256;
/// Bytes inflated between two looks at the budget, and the chance of other tasks to run.
pub(super) const INFLATE_STEP: usize = 64 * 1024;

/// How a request body is coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// As it is.
    Identity,
    /// gzip, one or more members.
    Gzip,
}

impl Coding {
    /// From all values of `Content-Encoding`; `None` for a coding, or a pile of them, that is not
    /// taken here.
    pub(super) fn of_body<'v>(values: impl Iterator<Item = &'v [u8]>) -> Option<Self> {
        let mut codings = values
            .flat_map(|value| value.split(|byte| *byte == b','))
            .map(<[u8]>::trim_ascii)
            .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"));
        let first = codings.next();
        if codings.next().is_some() {
            return None;
        }
        match first {
            None => Some(Self::Identity),
            Some(coding) if is_gzip(coding) => Some(Self::Gzip),
            Some(_) => None,
        }
    }
}

/// Whether `Accept-Encoding` allows gzip. No header means no: there is a client that never recovers
/// from a gzip body that it did not ask for.
pub(super) fn accepts_gzip<'v>(values: impl Iterator<Item = &'v [u8]>) -> bool {
    let (mut gzip, mut any) = (None, None);
    for item in values.flat_map(|value| value.split(|byte| *byte == b',')) {
        let mut parts = item.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let coding = parts.next().unwrap_or_default();
        let allowed = parts.filter_map(quality).next().unwrap_or(true);
        if is_gzip(coding) {
            gzip = Some(allowed);
        } else if coding == b"*" {
            any = Some(allowed);
        }
    }
    gzip.or(any).unwrap_or(false)
}

/// Whether a parameter is a q-value above zero; `None` if it is no q-value. A malformed one is a no:
/// plain bytes hurt nobody.
fn quality(parameter: &[u8]) -> Option<bool> {
    let value = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="))?;
    let number: Option<f32> = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    Some(number.is_some_and(|quality| quality > 0.0 && quality <= 1.0))
}

fn is_gzip(coding: &[u8]) -> bool {
    coding.eq_ignore_ascii_case(b"gzip") || coding.eq_ignore_ascii_case(b"x-gzip")
}

/// Inflates a gzip body step by step, so that its caller can count and yield. What the trailer
/// claims of the size is never believed.
pub(super) struct Inflate<'b> {
    /// Of the member that is being read.
    decoder: GzDecoder<&'b [u8]>,
    members: u32,
}

/// Members of a gzip body. Clients send one; millions of empty ones, twenty bytes each, would keep a
/// thread busy for half a minute without giving a byte to stop at.
const MEMBERS_MAX: u32 = 16;

impl<'b> Inflate<'b> {
    /// Over the whole compressed body.
    pub(super) fn new(body: &'b [u8]) -> Self {
        Self { decoder: GzDecoder::new(body), members: 1 }
    }

    /// Appends at most [`INFLATE_STEP`] bytes to `out`; false when that was the end.
    ///
    /// # Errors
    ///
    /// Whatever is wrong with the gzip stream, a missing end included.
    pub(super) fn step(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        let start = out.len();
        out.resize(start + INFLATE_STEP, 0);
        let mut filled = start;
        let outcome = loop {
            match self.decoder.read(&mut out[filled..]) {
                Ok(0) if filled == out.len() => break Ok(true),
                Ok(0) => match self.next_member() {
                    Ok(true) => {}
                    end => break end,
                },
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        out.truncate(filled);
        outcome
    }

    /// Goes on to the next member; false at the end of the body.
    fn next_member(&mut self) -> io::Result<bool> {
        let rest: &'b [u8] = self.decoder.get_ref();
        if rest.is_empty() {
            return Ok(false);
        }
        if self.members == MEMBERS_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "too many gzip members"));
        }
        self.members += 1;
        self.decoder = GzDecoder::new(rest);
        Ok(true)
    }
}

thread_local! {
    /// A compressor is some 300 kB, so there is one per thread and not one per answer.
    static COMPRESSOR: RefCell<Compress> = RefCell::new(Compress::new(Compression::fast(), false));
}

/// `parts` as one gzip member; `None` where that would not be smaller.
pub(super) fn gzip(parts: &[&[u8]]) -> Option<Vec<u8>> {
    let plain: usize = parts.iter().map(|part| part.len()).sum();
    if plain < GZIP_FROM_BYTES {
        return None;
    }
    // Member header: deflate, no flags, no time, unknown system (RFC 1952 2.3).
    let mut out = Vec::with_capacity(plain);
    out.extend_from_slice(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]);
    let mut crc = Crc::new();
    COMPRESSOR.with(|compressor| {
        let mut compressor = compressor.try_borrow_mut().ok()?;
        compressor.reset();
        for part in parts {
            crc.update(part);
            deflate(&mut compressor, part, FlushCompress::None, &mut out, plain)?;
        }
        deflate(&mut compressor, &[], FlushCompress::Finish, &mut out, plain)
    })?;
    out.extend_from_slice(&crc.sum().to_le_bytes());
    out.extend_from_slice(&crc.amount().to_le_bytes());
    (out.len() < plain).then_some(out)
}

/// Runs `input` through the compressor; `None` once `out` got as long as `max` or on a fault.
fn deflate(
    compressor: &mut Compress,
    mut input: &[u8],
    flush: FlushCompress,
    out: &mut Vec<u8>,
    max: usize,
) -> Option<()> {
    loop {
        if out.len() >= max {
            return None;
        }
        out.reserve((max - out.len()).min(1_024));
        let before = compressor.total_in();
        let status = compressor.compress_vec(input, out, flush).ok()?;
        let took = usize::try_from(compressor.total_in() - before).ok()?;
        input = &input[took..];
        match (status, flush) {
            (Status::StreamEnd, _) => return Some(()),
            (_, FlushCompress::None) if input.is_empty() => return Some(()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn gzip_is_used_only_where_it_is_allowed() {
        for (header, expected) in [
            ("", false),
            ("gzip", true),
            ("GZIP", true),
            ("x-gzip", true),
            ("deflate, gzip;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip; q=0.000", false),
            ("gzip;q=1.5", false),
            ("gzip;q=what", false),
            ("*", true),
            ("*;q=0", false),
            ("*, gzip;q=0", false),
            ("gzip, *;q=0", true),
            ("identity", false),
            ("br", false),
            ("gzipped", false),
        ] {
            let values = (!header.is_empty()).then_some(header.as_bytes());
            assert_eq!(accepts_gzip(values.into_iter()), expected, "{header}");
        }
    }

    #[test]
    fn a_body_has_one_coding_at_most() {
        for (header, expected) in [
            ("", Some(Coding::Identity)),
            ("identity", Some(Coding::Identity)),
            ("gzip", Some(Coding::Gzip)),
            (" X-GZIP ", Some(Coding::Gzip)),
            ("gzip, gzip", None),
            ("br", None),
            ("identity, gzip", Some(Coding::Gzip)),
        ] {
            assert_eq!(Coding::of_body([header.as_bytes()].into_iter()), expected, "{header}");
        }
    }

    #[test]
    fn compressed_answers_are_read_back_by_another_decoder() {
        let text = "receivers: {otlp: {protocols: {grpc: {}}}}\n".repeat(200);
        let (head, body) = text.as_bytes().split_at(21);
        let gzipped = gzip(&[head, body]).unwrap();
        assert!(gzipped.len() < text.len() / 10, "{}", gzipped.len());
        let mut back = String::new();
        flate2::read::GzDecoder::new(&gzipped[..]).read_to_string(&mut back).unwrap();
        assert_eq!(back, text);
        assert_eq!(gzip(&[head, body]), Some(gzipped), "the compressor starts afresh");
    }

    #[test]
    fn what_does_not_shrink_is_sent_as_it_is() {
        assert_eq!(gzip(&[&[0; 20]]), None);
        let mut random = fastrand::Rng::with_seed(7);
        let noise: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(70_000).collect();
        assert_eq!(gzip(&[&noise]), None);
        assert!(gzip(&[&[0; 70_000]]).is_some());
    }

    #[test]
    fn several_members_inflate_to_one_body() {
        let mut body = member(b"one ");
        body.extend(member(b"two"));
        assert_eq!(inflate(&body).unwrap(), b"one two");
        body.extend(member(b"").repeat(MEMBERS_MAX as usize - 2));
        assert_eq!(inflate(&body).unwrap(), b"one two");
        body.extend(member(b""));
        assert!(inflate(&body).is_err(), "one too many");
    }

    #[test]
    fn a_bomb_comes_in_steps_and_a_lying_trailer_is_a_fault() {
        let bomb = member(&vec![0; 10 << 20]);
        let mut out = Vec::new();
        assert!(Inflate::new(&bomb).step(&mut out).unwrap());
        assert_eq!(out.len(), INFLATE_STEP);
        let mut lying = member(b"small");
        let length = lying.len();
        lying[length - 4..].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(inflate(&lying).is_err());
    }

    #[test]
    fn cut_and_garbled_bodies_are_faults() {
        let body = member(&[7; 1_000]);
        for length in 0..body.len() {
            assert!(inflate(&body[..length]).is_err(), "{length}");
        }
        assert!(inflate(b"this is not gzip").is_err());
    }

    fn member(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn inflate(body: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        let mut inflate = Inflate::new(body);
        while inflate.step(&mut out)? {}
        Ok(out)
    }
}
