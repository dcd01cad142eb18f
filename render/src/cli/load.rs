//! Loading in the order that decides which error is seen first: teams, catalogue, policy,
//! Blueprints, topology, telemetry.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use render::compile::{self, Commit, Rendered};
use render::estate::{self, Sources, Teams};
use render::finding::Finding;
use render::policy::{Catalogue, Policy};
use render::problem::{Refusal, printable};
use render::tree::Tree;

use super::{Failure, Format, NOT_LOADED, REFUSED};

/// All that a render needs.
pub(super) struct Loaded {
    pub(super) sources: Sources,
    pub(super) catalogue: Catalogue,
    pub(super) policy: Policy,
    /// Found while loading; printed before the render's own.
    pub(super) findings: Vec<Finding>,
}

impl Loaded {
    pub(super) fn read(estate: &Path, catalogue: &Path, format: Format) -> Result<Self, Failure> {
        let not_loaded = |refusal: Refusal| Failure::from_refusal(NOT_LOADED, &refusal, format);
        let tree = read_tree(estate)?;
        let (teams, catalogue, policy) = read_policy(&tree, catalogue, format)?;
        let (sources, findings) = estate::load_sources(&tree, teams).map_err(not_loaded)?;
        Ok(Self { sources, catalogue, policy, findings })
    }

    /// Renders in memory, with the findings of loading before those of rendering.
    pub(super) fn render(self, commit: &Commit, format: Format) -> Result<Rendered, Failure> {
        let rendered = compile::render(&self.sources, &self.catalogue, &self.policy, commit)
            .map_err(|refusal| Failure::from_refusal(REFUSED, &refusal, format))?;
        let mut findings = self.findings;
        findings.extend(rendered.findings);
        Ok(Rendered { files: rendered.files, findings })
    }
}

/// The estate's files; error texts call its root what the user called it.
pub(super) fn read_tree(estate: &Path) -> Result<Tree, Failure> {
    Tree::read_dir(estate, &estate.to_string_lossy())
        .map_err(|error| Failure::not_loaded(error.to_string()))
}

/// Bytes of a Catalogue. All of a distribution's 268 components make 250 kB.
const MAX_CATALOGUE_BYTES: u64 = 16 << 20;

/// All that a palette needs.
pub(super) fn read_policy(
    tree: &Tree,
    catalogue: &Path,
    format: Format,
) -> Result<(Teams, Catalogue, Policy), Failure> {
    let not_loaded = |refusal: Refusal| Failure::from_refusal(NOT_LOADED, &refusal, format);
    let teams = estate::load_teams(tree).map_err(not_loaded)?;
    let file = printable(&catalogue.to_string_lossy()).into_owned();
    let bytes = read_bounded(catalogue, MAX_CATALOGUE_BYTES).map_err(|error| {
        Failure::not_loaded(format!("cannot read the catalogue {file}: {error}"))
    })?;
    let catalogue = Catalogue::parse(&bytes, &file).map_err(not_loaded)?;
    let policy = Policy::load(tree, &teams, &catalogue).map_err(not_loaded)?;
    Ok((teams, catalogue, policy))
}

pub(super) fn commit(text: &str) -> Result<Commit, Failure> {
    Commit::parse(text).map_err(|error| Failure::not_loaded(format!("--commit: {error}")))
}

fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if read as u64 > limit {
        return Err(io::Error::other(format!("it is larger than {limit} bytes")));
    }
    Ok(bytes)
}
