//! Follows the estate on disk: a cheap look at every file's size and time, and a whole read when
//! two looks agree that something has changed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use render::tree::Tree;

use crate::clock::Micros;
use crate::model::{Model, ModelError};

/// Between two looks; a gateway accepts an estate after two equal reads this far apart
/// (serving.md, decision 16).
pub(crate) const LOOK: Duration = Duration::from_millis(200);

/// Directory levels below `teams` and `rendered` that may hold files; an estate has fewer.
const DEPTH_MAX: u32 = 8;

/// Size and time of each file.
type Look = BTreeMap<PathBuf, (u64, Option<SystemTime>)>;

/// Follows one directory.
#[derive(Debug)]
pub(crate) struct Watcher {
    root: PathBuf,
    read: Look,
    tree: Tree,
    changing: Option<(Look, Micros)>,
}

/// What a look found.
#[derive(Debug)]
pub(crate) enum Seen {
    /// Nothing new, or something that has not settled yet.
    Same,
    /// A new head, first seen at that time.
    Head(Box<Model>, Micros),
    /// A change that cannot be served: the head before stays in force, as it does in a gateway.
    Refused(ModelError),
}

impl Watcher {
    /// Reads the estate once.
    ///
    /// # Errors
    ///
    /// When it cannot be read or cannot be served.
    pub(crate) fn open(root: &Path) -> Result<(Self, Model), ModelError> {
        let look = look(root).map_err(|error| unreadable(root, &error))?;
        let tree = read(root)?;
        let model = Model::read(&tree)?;
        Ok((Self { root: root.to_owned(), read: look, tree, changing: None }, model))
    }

    /// Whether the last look saw something that has to be looked at again.
    pub(crate) fn is_changing(&self) -> bool {
        self.changing.is_some()
    }

    /// Looks once; call it every [`LOOK`]. A file that cannot be read counts as changing.
    pub(crate) fn look(&mut self, now: Micros) -> Seen {
        let Ok(found) = look(&self.root) else {
            self.changing.get_or_insert_with(|| (Look::new(), now));
            return Seen::Same;
        };
        if found == self.read {
            self.changing = None;
            return Seen::Same;
        }
        let (before, first_seen) = self.changing.take().unwrap_or_else(|| (Look::new(), now));
        if before != found {
            self.changing = Some((found, first_seen));
            return Seen::Same;
        }
        let tree = match read(&self.root) {
            Ok(tree) => tree,
            Err(error) => {
                self.read = found;
                return Seen::Refused(error);
            }
        };
        if look(&self.root).ok().as_ref() != Some(&found) {
            self.changing = Some((Look::new(), first_seen));
            return Seen::Same;
        }
        self.read = found;
        if tree.files == self.tree.files {
            return Seen::Same;
        }
        match Model::read(&tree) {
            Ok(model) => {
                self.tree = tree;
                Seen::Head(Box::new(model), first_seen)
            }
            Err(error) => Seen::Refused(error),
        }
    }
}

/// Somebody who looks on behalf of those who then read for themselves.
#[derive(Debug)]
pub(crate) struct Lookout {
    root: PathBuf,
    seen: Option<Look>,
}

impl Lookout {
    /// Looks for the first time; what cannot be read yet counts as a change once it can be.
    pub(crate) fn new(root: PathBuf) -> Self {
        let seen = look(&root).ok();
        Self { root, seen }
    }

    /// Whether files look different from what they did the last time.
    pub(crate) fn sees_change(&mut self) -> bool {
        let Ok(found) = look(&self.root) else { return false };
        let changed = self.seen.as_ref() != Some(&found);
        self.seen = Some(found);
        changed
    }
}

fn read(root: &Path) -> Result<Tree, ModelError> {
    Tree::read_dir(root, &root.display().to_string())
        .map_err(|error| ModelError::Refused(error.to_string()))
}

fn unreadable(root: &Path, error: &io::Error) -> ModelError {
    ModelError::Refused(format!("{}: {error}", root.display()))
}

fn look(root: &Path) -> io::Result<Look> {
    let mut found = Look::new();
    for part in ["teams", "rendered"] {
        let below = root.join(part);
        if below.exists() {
            walk(&below, DEPTH_MAX, &mut found)?;
        }
    }
    Ok(found)
}

fn walk(directory: &Path, depth: u32, found: &mut Look) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let meta = fs::metadata(&path)?;
        if meta.is_dir() {
            if depth > 0 {
                walk(&path, depth - 1, found)?;
            }
        } else {
            found.insert(path, (meta.len(), meta.modified().ok()));
        }
    }
    Ok(())
}

/// A watcher is moved to a blocking thread and back for each look.
pub(crate) async fn look_elsewhere(
    mut watcher: Watcher,
    now: Micros,
) -> Result<(Watcher, Seen), tokio::task::JoinError> {
    tokio::task::spawn_blocking(move || {
        let seen = watcher.look(now);
        (watcher, seen)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_read_once_two_looks_agree_and_dated_by_the_first() {
        let estate = crate::testing::estate();
        let (mut watcher, _) = Watcher::open(estate.path()).unwrap();
        assert!(matches!(watcher.look(0), Seen::Same));
        estate.set_stage(1);
        assert!(matches!(watcher.look(1_000), Seen::Same));
        assert!(matches!(watcher.look(201_000), Seen::Head(_, 1_000)));
        assert!(matches!(watcher.look(401_000), Seen::Same));
    }

    #[test]
    fn a_lookout_sees_each_change_once() {
        let estate = crate::testing::estate();
        let mut lookout = Lookout::new(estate.path().to_owned());
        assert!(!lookout.sees_change());
        estate.set_stage(1);
        assert!(lookout.sees_change());
        assert!(!lookout.sees_change());
        fs::remove_file(estate.path().join("rendered/team/one@next.yaml")).unwrap();
        assert!(lookout.sees_change());
    }

    #[test]
    fn a_look_that_fails_is_to_be_repeated() {
        let estate = crate::testing::estate();
        let (mut watcher, _) = Watcher::open(estate.path()).unwrap();
        let dangling = estate.path().join("teams/dangling.yaml");
        std::os::unix::fs::symlink("nowhere", &dangling).unwrap();
        assert!(matches!(watcher.look(1), Seen::Same));
        assert!(watcher.is_changing());
        fs::remove_file(dangling).unwrap();
        assert!(matches!(watcher.look(2), Seen::Same));
        assert!(!watcher.is_changing());
    }

    #[test]
    fn a_change_that_cannot_be_served_is_told_and_the_next_good_one_is_taken() {
        let estate = crate::testing::estate();
        let (mut watcher, _) = Watcher::open(estate.path()).unwrap();
        estate.set_stage(9);
        assert!(matches!(watcher.look(1), Seen::Same));
        assert!(matches!(watcher.look(2), Seen::Refused(_)));
        assert!(matches!(watcher.look(3), Seen::Same));
        estate.set_stage(1);
        assert!(matches!(watcher.look(4), Seen::Same));
        assert!(matches!(watcher.look(5), Seen::Head(_, 4)));
    }

    #[test]
    fn an_estate_that_cannot_be_served_at_all_is_an_error() {
        let estate = crate::testing::estate();
        fs::remove_file(estate.path().join("rendered/team/one@next.yaml")).unwrap();
        let error = Watcher::open(estate.path()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "rendered/team/one@next.yaml is missing: run `render` in the estate"
        );
    }
}
