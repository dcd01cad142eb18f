//! New heads that change every artefact, in a copy of the estate that belongs to the run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use render::tree::Tree;

use super::options::ScaleError;
use crate::model::Model;

/// A copy of an estate that is changed again and again.
#[derive(Debug)]
pub(super) struct Desk {
    root: PathBuf,
    /// Where files are made before they take their place: outside of the estate.
    fresh: PathBuf,
    /// The estate as it is.
    tree: Tree,
    /// Each artefact as it was to begin with, by its path within the estate.
    originals: BTreeMap<String, Arc<[u8]>>,
    pushed: u32,
}

/// A head that is written and has not taken its place yet.
#[derive(Debug)]
pub(super) struct Prepared {
    /// Files, and where they belong.
    files: Vec<(PathBuf, PathBuf)>,
    fingerprint: u64,
}

impl Prepared {
    /// Puts all of it into its place in a moment: a reader must not take the state in between for a
    /// head. Gives what stands for the new head.
    pub(super) fn publish(self) -> Result<u64, ScaleError> {
        for (beside, path) in self.files {
            fs::rename(&beside, &path).map_err(|error| cannot(&path, &error))?;
        }
        Ok(self.fingerprint)
    }
}

impl Desk {
    /// Copies the estate to somewhere below `scratch`, which exists.
    pub(super) fn copy(estate: &Path, scratch: &Path) -> Result<Self, ScaleError> {
        let (root, fresh) = (scratch.join("estate"), scratch.join("fresh"));
        fs::create_dir(&fresh).map_err(|error| cannot(&fresh, &error))?;
        crate::rehearse::copy_estate(estate, &root).map_err(ScaleError::Cannot)?;
        let tree = read(&root)?;
        let is_artefact = |path: &str| {
            path.starts_with("rendered/")
                && path.ends_with(".yaml")
                && !path.ends_with(".supervisor.yaml")
        };
        let artefacts = tree.files.iter().filter(|(path, _)| is_artefact(path));
        let originals = artefacts.map(|(path, bytes)| (path.clone(), Arc::clone(bytes))).collect();
        Ok(Self { root, fresh, tree, originals, pushed: 0 })
    }

    /// The copy.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Writes a head that changes the content of every artefact: a comment at its end, which is
    /// content, as it is not at the head of the file. What stands for it is known before anybody can
    /// read it.
    pub(super) fn prepare(&mut self) -> Result<Prepared, ScaleError> {
        self.pushed += 1;
        let mut files = Vec::new();
        for (number, (path, bytes)) in self.originals.iter().enumerate() {
            let mut bytes = bytes.to_vec();
            bytes.extend_from_slice(format!("# change {} of a run\n", self.pushed).as_bytes());
            let beside = self.fresh.join(number.to_string());
            fs::write(&beside, &bytes).map_err(|error| cannot(&beside, &error))?;
            files.push((beside, self.root.join(path)));
            self.tree.files.insert(path.clone(), bytes.into());
        }
        let model = Model::read(&self.tree);
        let model = model.map_err(|error| ScaleError::Cannot(error.to_string()))?;
        Ok(Prepared { files, fingerprint: model.fingerprint() })
    }
}

fn read(root: &Path) -> Result<Tree, ScaleError> {
    Tree::read_dir(root, &root.display().to_string())
        .map_err(|error| ScaleError::Cannot(error.to_string()))
}

fn cannot(path: &Path, error: &std::io::Error) -> ScaleError {
    ScaleError::Cannot(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_head_changes_the_content_of_every_artefact_and_nothing_else_and_all_at_once() {
        let estate = crate::testing::estate();
        let copy = tempfile::TempDir::new().unwrap();
        let mut desk = Desk::copy(estate.path(), copy.path()).unwrap();
        let root = desk.root().to_owned();
        let model = || Model::read(&read(&root).unwrap()).unwrap();
        let mut before = model();
        let original = before.fingerprint();
        for _ in 0..3 {
            let prepared = desk.prepare().unwrap();
            assert_eq!(model().fingerprint(), before.fingerprint(), "nobody sees it yet");
            let fingerprint = prepared.publish().unwrap();
            let after = model();
            assert_eq!(after.fingerprint(), fingerprint);
            assert!(after.places_like(&before));
            for number in 0..6 {
                let place = crate::model::Place::nth(number);
                assert_ne!(after.artefact(place).hash, before.artefact(place).hash, "{number}");
            }
            before = after;
        }
        assert_eq!(Model::read(&read(estate.path()).unwrap()).unwrap().fingerprint(), original);
    }
}
