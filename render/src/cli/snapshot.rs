//! `render snapshot`: what an estate serves as one file (estate.md, decision 13).

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use render::problem::printable;
use render::snapshot::file::{self, signing_key};
use render::snapshot::served;

use super::load::{commit, read_tree};
use super::{Done, Failure, SnapshotArgs, history, report};

pub(super) fn run(arguments: &SnapshotArgs) -> Result<Done, Failure> {
    let stated = arguments.commit.as_deref().map(commit).transpose()?;
    let key = arguments.sign.as_deref().map(read_key).transpose()?;
    let tree = read_tree(&arguments.estate)?;
    let topology = render::estate::load_topology(&tree)
        .map_err(|refusal| Failure::not_loaded(refusal.to_string()))?;
    let stated = stated.as_ref().map(|commit| commit.as_str());
    let mut served = served::from_topology(&topology, &tree, stated)
        .map_err(|refusal| Failure::refused(refusal.to_string()))?;
    let untold = history::fill(&arguments.estate, &mut served);

    let out = printable(&arguments.out.to_string_lossy()).into_owned();
    let failed = |error: file::FileError| Failure::refused(format!("{out}: {error}"));
    let bytes = file::encode(&served, now_ms(), key.as_ref()).map_err(failed)?;
    file::write(&arguments.out, &bytes).map_err(failed)?;

    let signed = if key.is_some() { "signed" } else { "not signed" };
    let mut output = format!(
        "wrote {out}\ncommit {}, {} Tiers, {} Rollouts, {} bytes, {signed}\n",
        served.commit,
        served.tiers.len(),
        served.rollouts.len(),
        bytes.len()
    );
    for id in untold {
        output.push_str(&format!(
            "rollout {id}: no history here, so its stage start and origin are left open\n"
        ));
    }
    output.push_str(&report::finding_lines(&served.findings()));
    Ok(Done::good(output))
}

fn read_key(path: &Path) -> Result<ed25519_dalek::SigningKey, Failure> {
    let shown = path.to_string_lossy();
    let shown = printable(&shown);
    let pem = std::fs::read_to_string(path)
        .map_err(|error| Failure::not_loaded(format!("cannot read the key {shown}: {error}")))?;
    signing_key(&pem).map_err(|error| Failure::not_loaded(format!("{shown}: {error}")))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the edge of the binary; the library is told the time"
)]
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
