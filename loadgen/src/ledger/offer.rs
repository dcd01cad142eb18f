//! The form of an offer, and what to say about one that is wrong.

use bytes::Bytes;
use proto::opamp as wire;

use crate::heads::Heads;

/// The body of an offer of exactly the form that serving.md, decision 6, asks for.
pub(crate) fn shape(offer: &wire::AgentRemoteConfig) -> Result<&Bytes, String> {
    let files = offer.config.as_ref().map(|config| &config.config_map);
    let names = || files.map(|files| files.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
    let Some(file) = files.filter(|files| files.len() == 1).and_then(|files| files.get("")) else {
        return Err(format!("an offer with the files {:?}, not one with an empty name", names()));
    };
    if file.content_type != "text/yaml" {
        return Err(format!("content type \"{}\", not text/yaml", file.content_type));
    }
    if file.body.iter().all(u8::is_ascii_whitespace) {
        return Err("an empty body, which stops a collector".to_owned());
    }
    let hash = &offer.config_hash;
    if hash.len() != 64 || !hash.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return Err(format!(
            "config_hash is not 64 lower-case hex digits but {} bytes: {}",
            hash.len(),
            hash.escape_ascii()
        ));
    }
    Ok(&file.body)
}

/// Expected against got, in one sentence, with the first line that differs.
pub(super) fn explain(index: u32, hash: &[u8], body: &Bytes, heads: &Heads) -> String {
    let (epoch, head) = heads.latest();
    let expected = head.expected(index);
    let got_hash = hash.escape_ascii();
    let expected_hash = expected.hash.escape_ascii();
    let difference = if expected.bytes == *body {
        "the body is right".to_owned()
    } else {
        let got: Vec<&[u8]> = body.split(|byte| *byte == b'\n').collect();
        let wanted: Vec<&[u8]> = expected.bytes.split(|byte| *byte == b'\n').collect();
        let line = got.iter().zip(&wanted).position(|(got, wanted)| got != wanted);
        let line = line.unwrap_or_else(|| got.len().min(wanted.len()));
        let show = |lines: &[&[u8]]| {
            lines.get(line).map_or_else(
                || "its end".to_owned(),
                |line| {
                    format!(
                        "\"{}\"",
                        line.iter().take(120).copied().collect::<Vec<_>>().escape_ascii()
                    )
                },
            )
        };
        format!("line {}: expected {}, got {}", line + 1, show(&wanted), show(&got))
    };
    format!(
        "expected {} ({} bytes, hash {expected_hash}) under head {epoch}, got {} bytes, hash {got_hash}; {difference}",
        expected.path,
        expected.bytes.len(),
        body.len()
    )
}
