//! `loadgen rehearse`.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use loadgen::rehearse::{self, GivenGateway, Options};

use super::{Form, gateway_binary, unless_interrupted};

#[derive(Debug, Args)]
pub(super) struct Rehearse {
    /// The scenario (TOML, see docs/rehearsals.md and fixtures/scenarios)
    #[arg(long, value_name = "FILE")]
    scenario: PathBuf,

    /// The gateway's binary; absent, the one beside this binary
    #[arg(long, value_name = "FILE")]
    gateway: Option<PathBuf>,

    /// Operators' address of a gateway that runs already, which serves estate.git in --keep
    #[arg(long, value_name = "URL", requires_all = ["endpoint", "keep"])]
    admin_url: Option<String>,

    /// Collectors' URL of that gateway
    #[arg(id = "endpoint", long = "endpoint", value_name = "URL", requires = "admin_url")]
    endpoint: Option<String>,

    /// Keep the repository, the stores, the bundles and the gateways' log there
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,

    /// Form of what is told
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    output: Form,

    /// Tell nothing on stderr while it goes on
    #[arg(long)]
    quiet: bool,
}

impl Rehearse {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        let output = self.output;
        let options = self.into_options()?;
        let outcome = unless_interrupted(rehearse::run(&options))?;
        output.tell(&outcome)?;
        Ok(outcome.passed)
    }

    fn into_options(self) -> anyhow::Result<Options> {
        let given = match (self.admin_url, self.endpoint) {
            (Some(url), Some(endpoint)) => {
                let admin = url.strip_prefix("http://").unwrap_or(&url).trim_end_matches('/');
                let admin: SocketAddr = admin.parse().with_context(|| {
                    format!("--admin-url: {url} is not http:// with an address and a port")
                })?;
                Some(GivenGateway { admin, endpoint })
            }
            _ => None,
        };
        Ok(Options {
            scenario: self.scenario,
            gateway: gateway_binary(self.gateway)?,
            given,
            keep: self.keep,
            verbose: !self.quiet,
        })
    }
}
