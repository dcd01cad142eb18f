//! `rollout-lab drill` and `rollout-lab drill-report`

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use rollout_lab::drill::{self, Fault, Options, Settings, Summary, Times, Variant, Verdict};

use super::files::Files;

/// Measure the same upgrade on real gateways: processes, a route, collectors, probes.
///
/// Raw records, a summary derived from them alone and a manifest of hashes go to a new folder. Exit
/// code 0: passed, or with --fault as that fault must end; 1: not; 3: void, the instrument was not
/// good enough.
#[derive(Debug, Args)]
pub(super) struct Drill {
    /// A folder that does not exist.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    #[command(flatten)]
    common: Common,

    /// Of ids, uids and choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// What is measured: rollout or rollback.
    #[arg(long, value_name = "VARIANT", value_parser = variant, default_value = "rollout")]
    variant: Variant,

    /// Do one thing wrong; the drill must then not pass.
    #[arg(long, value_name = "FAULT", value_parser = fault)]
    fault: Option<Fault>,
}

/// What is the same for all runs of a series.
#[derive(Debug, Args)]
pub(super) struct Common {
    /// An estate with its rendered files; copied.
    #[arg(long, value_name = "DIR")]
    estate: PathBuf,

    /// The gateway's binary; absent, the one beside this program.
    #[arg(long, value_name = "FILE")]
    gateway: Option<PathBuf>,

    /// Collectors: four fifths on WebSockets, the rest polling.
    #[arg(long, value_name = "N", default_value_t = 600)]
    collectors: u32,

    /// Half a minute in place of three: for CI.
    #[arg(long)]
    short: bool,

    /// Collectors and probes speak TLS to the gateways; the route forwards it unread.
    #[arg(long)]
    tls: bool,
}

impl Common {
    /// Refuses what no drill could be played with.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!((30..=4_000).contains(&self.collectors), "--collectors must be 30 to 4000");
        let gateway = self.gateway()?;
        anyhow::ensure!(
            gateway.is_file(),
            "no gateway at {}; name it with --gateway",
            gateway.display()
        );
        Ok(())
    }

    fn gateway(&self) -> anyhow::Result<PathBuf> {
        Ok(match &self.gateway {
            Some(gateway) => gateway.clone(),
            None => std::env::current_exe()?.with_file_name("gateway"),
        })
    }

    /// The same, for another process.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["--estate".into(), self.estate.clone().into()];
        arguments.extend(["--collectors".into(), self.collectors.to_string().into()]);
        if let Some(gateway) = &self.gateway {
            arguments.extend(["--gateway".into(), gateway.clone().into()]);
        }
        if self.short {
            arguments.push("--short".into());
        }
        if self.tls {
            arguments.push("--tls".into());
        }
        arguments
    }
}

/// Derive a drill's summary from its raw files again, and verify its manifest.
#[derive(Debug, Args)]
pub(super) struct DrillReport {
    /// What `drill --out` made.
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Draw it: the five levels over time, sessions of each gateway, probe latency, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Exit code of a run whose instrument was not good enough.
pub(super) const VOID: u8 = 3;

impl Drill {
    pub(super) fn run(self) -> anyhow::Result<u8> {
        self.common.check()?;
        let Common { estate, collectors, short, tls, .. } = &self.common;
        let options = Options {
            gateway: self.common.gateway()?,
            estate: estate.clone(),
            out: self.out,
            settings: Settings {
                collectors: *collectors,
                seed: self.seed,
                variant: self.variant,
                fault: self.fault,
                times: if *short { Times::SHORT } else { Times::FULL },
                tls: *tls,
            },
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let summary = runtime.block_on(drill::run(&options)).context("no verdict")?;
        tell(&summary);
        Ok(match (summary.verdict, self.fault) {
            (_, Some(fault)) if fault.is_seen_in(&summary) => 0,
            (Verdict::Passed, None) => 0,
            (Verdict::Void, _) => VOID,
            (Verdict::Passed | Verdict::Failed | Verdict::Waiting, _) => 1,
        })
    }
}

impl DrillReport {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        let (summary, against) = drill::recompute(&self.dir)?;
        tell(&summary);
        for text in &against {
            println!("against it: {text}");
        }
        if let Some(plot) = &self.plot {
            Files::new(false).write(plot, &drill::picture(&drill::read(&self.dir)?))?;
        }
        Ok(against.is_empty())
    }
}

fn tell(summary: &Summary) {
    let verdict = format!("{:?}", summary.verdict).to_lowercase();
    println!("{verdict}");
    for why in &summary.void {
        println!("  void: {why}");
    }
    for criterion in &summary.criteria {
        let word = if criterion.ok { "holds" } else { "BROKEN" };
        println!("  {} {word:<6} {}", criterion.id, criterion.detail);
    }
    println!("{}", summary.statement);
    println!("Not claimed:");
    for text in &summary.not_claimed {
        println!("  {text}");
    }
}

pub(super) fn variant(name: &str) -> Result<Variant, String> {
    [Variant::Rollout, Variant::Rollback]
        .into_iter()
        .find(|variant| drill::variant_name(*variant) == name)
        .ok_or_else(|| format!("no variant {name:?}; there are rollout, rollback"))
}

fn fault(name: &str) -> Result<Fault, String> {
    Fault::ALL.into_iter().find(|fault| fault.as_str() == name).ok_or_else(|| {
        let known: Vec<&str> = Fault::ALL.iter().map(|fault| fault.as_str()).collect();
        format!("no fault {name:?}; there are {}", known.join(", "))
    })
}
