//! New heads that change every artefact, in a copy of the estate that belongs to the run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use render::tree::Tree;

use super::options::ScaleError;
use crate::model::Model;

/// A copy of an estate that is changed again and again.
#[derive(Debug)]
pub(super) struct Desk {
    root: PathBuf,
    /// Where files are made before they take their place: outside of the estate.
    fresh: PathBuf,
    /// Each artefact as it was to begin with.
    originals: BTreeMap<PathBuf, Vec<u8>>,
    pushed: u32,
}

impl Desk {
    /// Copies the estate to somewhere below `scratch`, which exists.
    pub(super) fn copy(estate: &Path, scratch: &Path) -> Result<Self, ScaleError> {
        let (root, fresh) = (scratch.join("estate"), scratch.join("fresh"));
        fs::create_dir(&fresh).map_err(|error| cannot(&fresh, &error))?;
        crate::rehearse::copy_estate(estate, &root).map_err(ScaleError::Cannot)?;
        let tree = read(&root)?;
        let artefacts = tree.files.keys().filter(|path| {
            path.starts_with("rendered/")
                && path.ends_with(".yaml")
                && !path.ends_with(".supervisor.yaml")
        });
        let mut originals = BTreeMap::new();
        for path in artefacts {
            let path = root.join(path);
            let bytes = fs::read(&path).map_err(|error| cannot(&path, &error))?;
            originals.insert(path, bytes);
        }
        Ok(Self { root, fresh, originals, pushed: 0 })
    }

    /// The copy.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Changes the content of every artefact: a comment at its end, which is content, as it is not at
    /// the head of the file. Gives what stands for the new head.
    pub(super) fn push(&mut self) -> Result<u64, ScaleError> {
        self.pushed += 1;
        let mut fresh = Vec::new();
        for (number, (path, bytes)) in self.originals.iter().enumerate() {
            let mut bytes = bytes.clone();
            bytes.extend_from_slice(format!("# change {} of a run\n", self.pushed).as_bytes());
            let beside = self.fresh.join(number.to_string());
            fs::write(&beside, bytes).map_err(|error| cannot(&beside, &error))?;
            fresh.push((beside, path));
        }
        // All in a moment: a reader must not take the state in between for a head.
        for (beside, path) in fresh {
            fs::rename(&beside, path).map_err(|error| cannot(path, &error))?;
        }
        let model = Model::read(&read(&self.root)?);
        Ok(model.map_err(|error| ScaleError::Cannot(error.to_string()))?.fingerprint())
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
    fn every_push_changes_the_content_of_every_artefact_and_nothing_else() {
        let estate = crate::testing::estate();
        let copy = tempfile::TempDir::new().unwrap();
        let mut desk = Desk::copy(estate.path(), copy.path()).unwrap();
        let root = desk.root().to_owned();
        let model = || Model::read(&read(&root).unwrap()).unwrap();
        let mut before = model();
        let original = before.fingerprint();
        for _ in 0..3 {
            let fingerprint = desk.push().unwrap();
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
