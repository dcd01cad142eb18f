//! Image references: `[registry/]name[:tag][@digest]`.

use serde::Serialize;

use crate::error::Error;

/// Bytes of an image reference; Docker's own limit on a name is 255.
const REFERENCE_BYTES_MAX: usize = 512;

/// An image reference, taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Image {
    /// The text that was asked for, trimmed.
    pub requested: String,
    /// `sha256:…`, when the reference is pinned.
    pub digest: Option<String>,
    /// The host it comes from; empty when none is named.
    pub registry: String,
    /// The path without host, tag and digest.
    pub name: String,
    /// The tag; `latest` when neither tag nor digest is named.
    pub tag: String,
    /// Whether a digest fixes the content.
    pub pinned: bool,
}

impl Image {
    /// Takes a reference apart.
    ///
    /// # Errors
    /// [`Error::InvalidState`] for one that is empty or malformed.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let requested = text.trim();
        let bad = |why: &str| Error::invalid(format!("image {requested:?}: {why}"));
        if requested.is_empty() {
            return Err(Error::invalid("image is empty"));
        }
        if requested.len() > REFERENCE_BYTES_MAX {
            return Err(Error::invalid("image: longer than 512 bytes"));
        }
        let (rest, digest) = match requested.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (requested, None),
        };
        if let Some(digest) = digest {
            let hex = digest.strip_prefix("sha256:").ok_or_else(|| bad("digest is not sha256"))?;
            if hex.len() != 64 || !hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
            {
                return Err(bad("digest is not 64 hexadecimal digits"));
            }
        }
        let last_slash = rest.rfind('/').map_or(0, |at| at + 1);
        let (path, tag) = match rest[last_slash..].find(':') {
            Some(colon) => (&rest[..last_slash + colon], Some(&rest[last_slash + colon + 1..])),
            None => (rest, None),
        };
        if let Some(tag) = tag
            && (tag.is_empty() || tag.len() > 128 || !tag.bytes().all(is_tag_byte))
        {
            return Err(bad("malformed tag"));
        }
        let (registry, name) = match path.split_once('/') {
            Some((host, name)) if host.contains(['.', ':']) || host == "localhost" => (host, name),
            _ => ("", path),
        };
        let well_formed = name.split('/').all(|part| {
            let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
            ends(part.bytes().next())
                && ends(part.bytes().last())
                && part
                    .bytes()
                    .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-'))
        });
        if !well_formed {
            return Err(bad("malformed name"));
        }
        Ok(Self {
            requested: requested.to_owned(),
            digest: digest.map(str::to_owned),
            registry: registry.to_owned(),
            name: name.to_owned(),
            tag: match (tag, digest) {
                (Some(tag), _) => tag.to_owned(),
                (None, Some(_)) => String::new(),
                (None, None) => "latest".to_owned(),
            },
            pinned: digest.is_some(),
        })
    }
}

fn is_tag_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_taken_apart() {
        let plain = Image::parse(" nginx:1.27-alpine ").unwrap();
        assert_eq!((plain.name.as_str(), plain.tag.as_str()), ("nginx", "1.27-alpine"));
        assert_eq!((plain.registry.as_str(), plain.pinned), ("", false));
        let full = format!("localhost:5000/team/gw:2@sha256:{}", "a".repeat(64));
        let full = Image::parse(&full).unwrap();
        assert_eq!((full.registry.as_str(), full.name.as_str()), ("localhost:5000", "team/gw"));
        assert!(full.pinned);
        assert_eq!(Image::parse("team/gw").unwrap().tag, "latest");
    }

    #[test]
    fn malformed_references_are_refused() {
        for text in ["", "  ", "a b", "a:", "a:b c", "A/b", "a//b", "/a", "a@sha1:00", "a@", ":x"] {
            assert!(Image::parse(text).is_err(), "{text:?}");
        }
    }
}
