//! The versions that collectors say they are, each kept once: a FAILED comes without a description,
//! and which version it came from is half of why.

use std::sync::{PoisonError, RwLock};

/// Distinct versions that are remembered; a collector of another one has none.
pub const VERSIONS_MAX: usize = 1_024;
/// Bytes of a version that are kept.
pub const VERSION_BYTES_MAX: usize = 64;

/// Which of the remembered versions; [`VersionId::NONE`] is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct VersionId(u16);

/// Versions in the order in which they were first seen.
#[derive(Debug, Default)]
pub(super) struct Versions {
    known: RwLock<Vec<Box<str>>>,
}

impl VersionId {
    pub(super) const NONE: Self = Self(0);
}

impl Versions {
    /// Remembers `version`. There are a handful at a time, so looking through them is quick, and
    /// nothing is written but the first time.
    pub(super) fn remember(&self, version: &str) -> VersionId {
        let version = &version[..version.floor_char_boundary(VERSION_BYTES_MAX)];
        if version.is_empty() {
            return VersionId::NONE;
        }
        let find = |known: &Vec<Box<str>>| known.iter().position(|known| **known == *version);
        let id = |at: usize| VersionId(u16::try_from(at + 1).unwrap_or(0));
        if let Some(at) = find(&self.known.read().unwrap_or_else(PoisonError::into_inner)) {
            return id(at);
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        match find(&known) {
            Some(at) => id(at),
            None if known.len() < VERSIONS_MAX => {
                known.push(version.into());
                id(known.len() - 1)
            }
            None => VersionId::NONE,
        }
    }

    /// The text; empty for [`VersionId::NONE`].
    pub(super) fn text(&self, id: VersionId) -> Box<str> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let at = usize::from(id.0).checked_sub(1);
        at.and_then(|at| known.get(at)).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_is_kept_once_and_no_more_than_the_limit() {
        let versions = Versions::default();
        let first = versions.remember("0.1.0");
        assert_eq!(versions.remember("0.1.0"), first);
        assert_eq!(&*versions.text(first), "0.1.0");
        assert_eq!(versions.remember(""), VersionId::NONE);
        assert_eq!(&*versions.text(VersionId::NONE), "");
        for n in 0..VERSIONS_MAX {
            versions.remember(&format!("1.{n}.0"));
        }
        assert_eq!(versions.remember("2.0.0"), VersionId::NONE);
        assert_eq!(versions.remember("0.1.0"), first);
        let long = Versions::default();
        let id = long.remember(&"é".repeat(100));
        assert_eq!(long.text(id).len(), VERSION_BYTES_MAX);
    }
}
