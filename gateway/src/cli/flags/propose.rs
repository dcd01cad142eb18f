//! How verdicts become branches (rollouts.md, decisions 19, 20 and 23).

use std::path::PathBuf;

use clap::Args;

use super::ConfigError;
use super::source::SourceArgs;
use crate::propose::config::{Author, ForgeConfig, ForgeKind, ProposeConfig};

/// Flags of proposals.
#[derive(Debug, Args)]
pub struct ProposeArgs {
    /// Propose what verdicts say as branches of --repo: one commit each, for people to merge.
    #[arg(long, env = "TIDEGATE_PROPOSE", help_heading = HEADING)]
    #[arg(requires_all = ["repo", "catalogue", "propose_as", "expect_replicas"])]
    pub propose: bool,

    /// Author and committer of these commits, 'Name <mail@example.com>'.
    #[arg(long, value_name = "AUTHOR", env = "TIDEGATE_PROPOSE_AS", help_heading = HEADING)]
    #[arg(value_parser = Author::parse)]
    pub propose_as: Option<Author>,

    /// The Catalogue, a path from the root of --repo: what is proposed is rendered with it.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_CATALOGUE", help_heading = HEADING)]
    #[arg(conflicts_with_all = ["estate", "snapshot"])]
    pub catalogue: Option<String>,

    /// Open a pull request for each branch at this forge [default: the branch is all].
    #[arg(long, value_name = "FORGE", env = "TIDEGATE_FORGE", help_heading = HEADING)]
    #[arg(value_enum, requires_all = ["propose", "forge_token_file"])]
    pub forge: Option<ForgeKind>,

    /// Where the forge is [default: the host of --repo].
    #[arg(long, value_name = "URL", env = "TIDEGATE_FORGE_URL", help_heading = HEADING)]
    #[arg(requires = "forge")]
    pub forge_url: Option<String>,

    /// The repository at the forge [default: the path of --repo].
    #[arg(long, value_name = "OWNER/NAME", env = "TIDEGATE_FORGE_REPO", help_heading = HEADING)]
    #[arg(requires = "forge")]
    pub forge_repo: Option<String>,

    /// The forge's token; read again at each use.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_FORGE_TOKEN_FILE", help_heading = HEADING)]
    #[arg(requires = "forge")]
    pub forge_token_file: Option<PathBuf>,
}

const HEADING: &str = "Proposals";

impl ProposeArgs {
    /// # Errors
    ///
    /// A Catalogue or a forge that cannot be one.
    pub fn resolve(&self, source: &SourceArgs) -> Result<Option<ProposeConfig>, ConfigError> {
        let (true, Some(author), Some(catalogue)) =
            (self.propose, &self.propose_as, &self.catalogue)
        else {
            return Ok(None);
        };
        let usage = |flag, why| ConfigError::Usage { flag, why };
        let catalogue = crate::source::git::check_folder(catalogue)
            .ok()
            .filter(|path| !path.is_empty())
            .ok_or_else(|| {
                usage("--catalogue", format!("'{catalogue}' is not a file inside the repository"))
            })?;
        let forge = match (self.forge, &self.forge_token_file) {
            (Some(kind), Some(token_file)) => Some(
                ForgeConfig::resolve(
                    kind,
                    token_file.clone(),
                    self.forge_url.as_deref(),
                    self.forge_repo.as_deref(),
                    source.repo.as_deref().unwrap_or_default(),
                )
                .map_err(|(flag, why)| usage(flag, why))?,
            ),
            _ => None,
        };
        Ok(Some(ProposeConfig { author: author.clone(), catalogue, forge }))
    }
}
