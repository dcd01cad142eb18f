//! An artefact's bytes and its content hash, computed line by line: an implementation of its own,
//! which shares nothing with the code that a gateway runs.

use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

/// One rendered file as a collector must receive it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artefact {
    /// Where it lies in the estate, such as `rendered/data-flow/gateway.yaml`.
    pub path: String,
    /// The file, byte for byte.
    pub bytes: Bytes,
    /// 64 lower-case hex digits: what `config_hash` must be (serving.md, decision 6).
    pub hash: Bytes,
    /// The first 64 bits of the hash with the lowest bit set, so that it is never 0.
    pub short: u64,
    /// Hash and bytes once more, for all who hold it: 8 bytes each.
    pub(crate) content: Arc<Content>,
}

/// A configuration as a collector holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    /// Under which hash it was offered.
    pub(crate) hash: Bytes,
    /// The file.
    pub(crate) body: Bytes,
}

impl Artefact {
    /// Reads one; the caller has refused blank files.
    pub fn new(path: String, bytes: Bytes) -> Self {
        let digest = Sha256::digest(without_stamps(&bytes));
        let mut hash = Vec::with_capacity(64);
        for byte in &digest {
            for nibble in [byte >> 4, byte & 15] {
                hash.push(b"0123456789abcdef"[usize::from(nibble)]);
            }
        }
        let (short, hash) = (short(&hash), Bytes::from(hash));
        let content = Arc::new(Content { hash: hash.clone(), body: bytes.clone() });
        Self { path, bytes, hash, short, content }
    }
}

/// The short form of a hash as it was received, whatever its shape.
pub(crate) fn short(hash: &[u8]) -> u64 {
    hash.iter().take(16).fold(0_u64, |sum, byte| {
        let digit = char::from(*byte).to_digit(16).map_or_else(|| u64::from(byte & 15), u64::from);
        (sum << 4) | digit
    }) | 1
}

/// The bytes without the leading comment block and without the line of the value at
/// `service.telemetry.resource.telecraft.commit` (estate.md, decision 9), which the renderer
/// writes in block style, one key a line.
fn without_stamps(bytes: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(bytes.len());
    let mut in_header = true;
    let mut path: Vec<(usize, String)> = Vec::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        if in_header && line.starts_with(b"#") {
            continue;
        }
        in_header = false;
        let text = String::from_utf8_lossy(line);
        let content = text.trim_start_matches(' ');
        let indent = text.len() - content.len();
        if let Some((key, _)) = content.split_once(':')
            && !content.starts_with(['-', '#'])
        {
            path.retain(|(depth, _)| *depth < indent);
            path.push((indent, key.trim_matches(['"', '\'']).to_owned()));
            if path.iter().map(|(_, key)| key.as_str()).eq(STAMP) {
                continue;
            }
        }
        kept.extend_from_slice(line);
    }
    kept
}

const STAMP: [&str; 4] = ["service", "telemetry", "resource", "telecraft.commit"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_and_the_commit_line_do_not_count() {
        let artefact = |commit: &str| Artefact::new("x".to_owned(), Bytes::from(document(commit)));
        let (one, other) = (artefact("0000000"), artefact("fffffff"));
        assert_ne!(one.bytes, other.bytes);
        assert_eq!(one.hash, other.hash);
        let kept = without_stamps(document("1").as_bytes());
        let lines: Vec<_> = document("1").lines().skip(2).map(str::to_owned).collect();
        let expected: String = lines
            .iter()
            .filter(|line| line.as_str() != "      telecraft.commit: \"1\"")
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(String::from_utf8(kept).unwrap(), expected);
    }

    #[test]
    fn the_same_key_elsewhere_is_content() {
        let text = "processors:\n  resource:\n    telecraft.commit: \"a\"\nservice:\n  telemetry:\n    metrics:\n      telecraft.commit: \"b\"\n";
        assert_eq!(without_stamps(text.as_bytes()), text.as_bytes());
    }

    #[test]
    fn a_comment_after_the_header_is_content() {
        let text = "# head\na: 1\n# here\nb: 2\n";
        assert_eq!(without_stamps(text.as_bytes()), b"a: 1\n# here\nb: 2\n");
    }

    #[test]
    fn the_hash_is_sha256_in_lower_case_hex() {
        let artefact = Artefact::new("x".to_owned(), Bytes::from_static(b"# only\nabc"));
        assert_eq!(
            artefact.hash,
            &b"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"[..]
        );
        assert_eq!(artefact.short, 0xba78_16bf_8f01_cfeb);
    }

    fn document(commit: &str) -> String {
        format!(
            "# Generated\n# Tier a/b, commit {commit}.\nreceivers:\n  otlp:\n    text: |\n      # not a header\nservice:\n  pipelines:\n    traces:\n      receivers:\n        - otlp\n  telemetry:\n    resource:\n      k8s.node.name: ${{env:X}}\n      telecraft.commit: \"{commit}\"\n      telecraft.tier: a/b\n    metrics:\n      level: normal\n"
        )
    }
}
