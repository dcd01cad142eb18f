//! The files of an estate out of a commit, without a checkout.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use render::tree::{MAX_FILE_BYTES, MAX_FILES, MAX_TREE_BYTES, is_estate_path};

use super::GitError;
use super::command::Git;

/// Output of `ls-tree` and `rev-list` over a whole repository.
pub(crate) const LISTING_BYTES_MAX: u64 = 512 << 20;

/// Links that lead to links, before it is called a loop.
const LINKS_MAX: usize = 8;

/// What a path in a commit is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    oid: String,
    link: bool,
}

/// Every file of the estate in `folder` of `commit`, by its path inside the estate.
pub(crate) fn read(
    git: &Git,
    commit: &str,
    folder: &str,
) -> Result<BTreeMap<String, Arc<[u8]>>, GitError> {
    let entries = list(git, commit, folder)?;
    let wanted: BTreeSet<&str> = entries
        .iter()
        .filter(|(path, entry)| is_estate_path(path) || entry.link)
        .map(|(_, entry)| &*entry.oid)
        .collect();
    if wanted.len() > MAX_FILES {
        let why = format!("an estate has at most {MAX_FILES} files");
        return Err(GitError::File { path: folder.to_owned(), why });
    }
    fetch_missing(git, commit, &wanted)?;
    let mut blobs = blobs(git, &wanted)?;

    // Links may lead to files that are no estate paths themselves.
    let mut targets = BTreeMap::new();
    for (path, entry) in entries.iter().filter(|(path, entry)| entry.link && is_estate_path(path)) {
        targets.insert(path.clone(), follow(path, entry, &entries, &blobs)?);
    }
    let others: BTreeSet<&str> =
        targets.values().map(String::as_str).filter(|oid| !blobs.contains_key(*oid)).collect();
    if !others.is_empty() {
        fetch_missing(git, commit, &others)?;
        blobs.extend(self::blobs(git, &others)?);
    }

    let mut files = BTreeMap::new();
    let mut bytes = 0;
    for (path, entry) in entries.iter().filter(|(path, _)| is_estate_path(path)) {
        let oid = targets.get(path).unwrap_or(&entry.oid);
        let contents = blobs.get(oid).ok_or_else(|| output("git cat-file"))?;
        bytes += contents.len() as u64;
        if contents.len() as u64 > MAX_FILE_BYTES || bytes > MAX_TREE_BYTES {
            let why = format!(
                "past the limit of {MAX_FILE_BYTES} bytes for a file and {MAX_TREE_BYTES} for an \
                 estate"
            );
            return Err(GitError::File { path: path.clone(), why });
        }
        files.insert(path.clone(), Arc::clone(contents));
    }
    Ok(files)
}

/// Blobs and links below `folder`, by their path inside it.
fn list(git: &Git, commit: &str, folder: &str) -> Result<BTreeMap<String, Entry>, GitError> {
    // `commit:folder` fails where there is no such folder, which `-- folder` does not.
    let tree = format!("{commit}:{folder}");
    let listing =
        git.run(&["ls-tree", "-r", "-z", "--full-tree", &tree], Vec::new(), LISTING_BYTES_MAX)?;
    let mut entries = BTreeMap::new();
    for line in listing.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
        // A name that is not UTF-8 cannot be an estate's.
        let Ok(line) = std::str::from_utf8(line) else { continue };
        let (what, path) = line.split_once('\t').ok_or_else(|| output("git ls-tree"))?;
        let mut what = what.split(' ');
        let (Some(mode), Some(kind), Some(oid)) = (what.next(), what.next(), what.next()) else {
            return Err(output("git ls-tree"));
        };
        if kind == "blob" {
            let entry = Entry { oid: oid.to_owned(), link: mode == "120000" };
            entries.insert(path.to_owned(), entry);
        }
    }
    Ok(entries)
}

/// The blob that a link leads to at last (estate.md, decision 16).
fn follow(
    path: &str,
    entry: &Entry,
    entries: &BTreeMap<String, Entry>,
    blobs: &HashMap<String, Arc<[u8]>>,
) -> Result<String, GitError> {
    let fail = |why: &str| GitError::File { path: path.to_owned(), why: why.to_owned() };
    let (mut at, mut entry) = (path.to_owned(), entry);
    for _ in 0..LINKS_MAX {
        if !entry.link {
            return Ok(entry.oid.clone());
        }
        let target = blobs.get(&entry.oid).ok_or_else(|| output("git cat-file"))?;
        let target = std::str::from_utf8(target).map_err(|_| fail("a link to no UTF-8 name"))?;
        at = resolve(&at, target).ok_or_else(|| {
            fail("symbolic link leads out of the estate; put the file inside, or delete the link")
        })?;
        entry = entries.get(&at).ok_or_else(|| fail("a link to a file that is not there"))?;
    }
    Err(fail("a link that leads through too many links"))
}

/// `target` as seen from the folder of `path`; `None` when it leads out.
fn resolve(path: &str, target: &str) -> Option<String> {
    if target.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Fetches, in one go, the blobs among `wanted` that the clone does not have.
fn fetch_missing(git: &Git, commit: &str, wanted: &BTreeSet<&str>) -> Result<(), GitError> {
    let arguments = ["rev-list", "--objects", "--no-object-names", "--missing=print", "-1", commit];
    let listing = git.run(&arguments, Vec::new(), LISTING_BYTES_MAX)?;
    let listing = String::from_utf8(listing).map_err(|_| output("git rev-list"))?;
    let missing: Vec<&str> = listing
        .lines()
        .filter_map(|line| line.strip_prefix('?'))
        .filter(|oid| wanted.contains(oid))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    fetch(git, &missing.into_iter().collect())
}

/// Fetches these blobs, in one go.
pub(super) fn fetch(git: &Git, oids: &BTreeSet<&str>) -> Result<(), GitError> {
    let input: String = oids.iter().flat_map(|oid| [*oid, "\n"]).collect();
    // What git itself does for a blob that it misses, but for all of them at once.
    let arguments = [
        "-c",
        "fetch.negotiationAlgorithm=noop",
        "fetch",
        "--quiet",
        "--no-tags",
        "--no-write-fetch-head",
        "--recurse-submodules=no",
        "--filter=blob:none",
        "--stdin",
        "origin",
    ];
    git.run(&arguments, input.into_bytes(), LISTING_BYTES_MAX).map(drop)
}

/// The contents of each blob.
pub(super) fn blobs(
    git: &Git,
    oids: &BTreeSet<&str>,
) -> Result<HashMap<String, Arc<[u8]>>, GitError> {
    let mut input = String::new();
    for oid in oids {
        input.push_str(oid);
        input.push('\n');
    }
    let limit = MAX_TREE_BYTES + LISTING_BYTES_MAX;
    let out = git.run(&["cat-file", "--batch"], input.into_bytes(), limit)?;
    parse_batch(&out).ok_or_else(|| output("git cat-file"))
}

/// `OID blob SIZE\n` contents `\n`, again and again; `None` for anything else.
fn parse_batch(mut out: &[u8]) -> Option<HashMap<String, Arc<[u8]>>> {
    let mut blobs = HashMap::new();
    while !out.is_empty() {
        let end = out.iter().position(|byte| *byte == b'\n')?;
        let mut words = std::str::from_utf8(&out[..end]).ok()?.split(' ');
        let (oid, "blob", size) = (words.next()?, words.next()?, words.next()?) else {
            return None;
        };
        let (contents, rest) = out[end + 1..].split_at_checked(size.parse().ok()?)?;
        blobs.insert(oid.to_owned(), Arc::from(contents));
        out = rest.strip_prefix(b"\n")?;
    }
    Some(blobs)
}

fn output(command: &str) -> GitError {
    GitError::Output { command: command.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_taken_apart_whatever_the_blobs_hold() {
        let blobs = parse_batch(b"aa blob 3\n\n1\n\nbb blob 0\n\n").unwrap();
        assert_eq!(&*blobs["aa"], b"\n1\n");
        assert_eq!(&*blobs["bb"], b"");
        assert!(parse_batch(b"aa missing\n").is_none());
        assert!(parse_batch(b"aa blob 9\nshort\n").is_none());
    }

    #[test]
    fn links_are_resolved_inside_the_estate_only() {
        let from_tier = |target| resolve("teams/a/tiers/b.yaml", target);
        assert_eq!(from_tier("c.yaml").as_deref(), Some("teams/a/tiers/c.yaml"));
        assert_eq!(from_tier("../../x/./y").as_deref(), Some("teams/x/y"));
        assert_eq!(from_tier("../../../../x"), None);
        assert_eq!(from_tier("/etc/passwd"), None);
    }
}
