//! Which collector it is, across restarts and uids (rollouts.md, decision 5).
//!
//! XXH3-128 of a tag byte and what identifies the collector; the tag keeps the three ways apart.
//! `fixtures/vectors/identity.json` holds golden vectors.

#[cfg(test)]
mod tests;

use smallvec::SmallVec;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::evidence::Identity;
use crate::snapshot::served::ServedRollout;

/// Identifying attributes taken in without allocating.
pub const INLINE_ATTRIBUTES: usize = 32;

/// Bytes that are hashed at once: a hasher that takes parts costs more to set up than to hash the
/// hundred or two that collectors identify themselves by.
const AT_ONCE_BYTES: usize = 512;

/// Changes with every upgrade, so it identifies nobody.
const VERSION: &str = "service.version";

/// What the hash begins with.
#[derive(Clone, Copy)]
enum Tag {
    /// Identifying attributes, or those that the Rollout names.
    Attributes = 1,
    /// The Rollout's `hash_attributes`.
    HashAttributes = 2,
    /// Nothing but the uid.
    Uid = 3,
}

/// The identity of a collector under a Rollout. The first of these that is there:
///
/// 1. the attributes of the Rollout's `identity` list, all of them, when it has one; without a
///    list, every string identifying attribute but `service.version`;
/// 2. the Rollout's `hash_attributes`, all of them;
/// 3. the uid.
///
/// A missing or empty attribute of a list is not there. The order of a list means nothing: what is
/// hashed is sorted by key. `identifying` is what the collector reports as such, in its order
/// (`None` = not a string; of two with one key the last string counts); `lookup` finds any
/// attribute, identifying or not.
///
/// Allocates nothing for up to [`INLINE_ATTRIBUTES`].
pub fn identity<'a>(
    rollout: &ServedRollout,
    identifying: impl Iterator<Item = (&'a str, Option<&'a str>)> + Clone,
    lookup: impl Fn(&str) -> Option<&'a str>,
    uid: &[u8; 16],
) -> Identity {
    let first = if rollout.identity.is_empty() {
        reported(identifying)
    } else {
        listed(&rollout.identity, &lookup).map(|attributes| hash(Tag::Attributes, attributes))
    };
    first
        .or_else(|| {
            let attributes = listed(&rollout.hash_attributes, &lookup)?;
            Some(hash(Tag::HashAttributes, attributes))
        })
        .unwrap_or_else(|| of_uid(uid))
}

/// The identity of a collector under no Rollout: as [`identity`], without lists.
pub fn plain<'a>(
    identifying: impl Iterator<Item = (&'a str, Option<&'a str>)> + Clone,
    uid: &[u8; 16],
) -> Identity {
    reported(identifying).unwrap_or_else(|| of_uid(uid))
}

type Attributes<'a> = SmallVec<[(&'a str, &'a str); INLINE_ATTRIBUTES]>;

fn reported<'a>(identifying: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> Option<Identity> {
    let mut attributes = Attributes::new();
    for (key, value) in identifying {
        let Some(value) = value else { continue };
        if key != VERSION {
            attributes.push((key, value));
        }
    }
    (!attributes.is_empty()).then(|| hash(Tag::Attributes, attributes))
}

/// The attributes of a list, when there is one and the collector has all of them.
fn listed<'s, 'a: 's>(
    names: &'s [String],
    lookup: &impl Fn(&str) -> Option<&'a str>,
) -> Option<Attributes<'s>> {
    if names.is_empty() {
        return None;
    }
    names
        .iter()
        .map(|name| Some((name.as_str(), lookup(name).filter(|value| !value.is_empty())?)))
        .collect()
}

fn hash(tag: Tag, mut attributes: Attributes<'_>) -> Identity {
    sort_keeping_last(&mut attributes);
    let parts = || attributes.iter().flat_map(|(key, value)| [key, "\0", value, "\0"]);
    let tag = [tag as u8];
    if tag.len() + parts().map(str::len).sum::<usize>() <= AT_ONCE_BYTES {
        let mut bytes = SmallVec::<[u8; AT_ONCE_BYTES]>::new();
        bytes.extend_from_slice(&tag);
        parts().for_each(|part| bytes.extend_from_slice(part.as_bytes()));
        Identity(xxh3_128(&bytes))
    } else {
        let mut hasher = Xxh3::new();
        hasher.update(&tag);
        parts().for_each(|part| hasher.update(part.as_bytes()));
        Identity(hasher.digest128())
    }
}

/// Sorts by key and drops all but the last of one key. The standard library's stable sort may
/// allocate, so few attributes are sorted by insertion.
fn sort_keeping_last(attributes: &mut Attributes<'_>) {
    if attributes.len() > INLINE_ATTRIBUTES {
        attributes.sort_by_key(|(key, _)| *key);
    } else {
        for end in 1..attributes.len() {
            let mut at = end;
            while at > 0 && attributes[at - 1].0 > attributes[at].0 {
                attributes.swap(at - 1, at);
                at -= 1;
            }
        }
    }
    attributes.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        if same {
            kept.1 = later.1;
        }
        same
    });
}

fn of_uid(uid: &[u8; 16]) -> Identity {
    let mut bytes = [Tag::Uid as u8; 17];
    bytes[1..].copy_from_slice(uid);
    Identity(xxh3_128(&bytes))
}
