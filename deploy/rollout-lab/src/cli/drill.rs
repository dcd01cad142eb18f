//! `rollout-lab drill` and `rollout-lab drill-report`

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use rollout_lab::drill::{self, Fault, Options, Settings, Summary, Times, Variant, Verdict};

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

    /// An estate with its rendered files; copied.
    #[arg(long, value_name = "DIR")]
    estate: PathBuf,

    /// The gateway's binary; absent, the one beside this program.
    #[arg(long, value_name = "FILE")]
    gateway: Option<PathBuf>,

    /// Collectors: four fifths on WebSockets, the rest polling.
    #[arg(long, value_name = "N", default_value_t = 600)]
    collectors: u32,

    /// Of ids, uids and choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// What is measured.
    #[arg(long, value_enum, default_value_t = Measured::Rollout)]
    variant: Measured,

    /// Half a minute in place of three: for CI.
    #[arg(long)]
    short: bool,

    /// Do one thing wrong; the drill must then not pass.
    #[arg(long, value_name = "FAULT", value_parser = fault)]
    fault: Option<Fault>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Measured {
    Rollout,
    Rollback,
}

/// Derive a drill's summary from its raw files again, and verify its manifest.
#[derive(Debug, Args)]
pub(super) struct DrillReport {
    /// What `drill --out` made.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Exit code of a run whose instrument was not good enough.
const VOID: u8 = 3;

impl Drill {
    pub(super) fn run(self) -> anyhow::Result<u8> {
        anyhow::ensure!((30..=4_000).contains(&self.collectors), "--collectors must be 30 to 4000");
        let gateway = match self.gateway {
            Some(gateway) => gateway,
            None => std::env::current_exe()?.with_file_name("gateway"),
        };
        anyhow::ensure!(
            gateway.is_file(),
            "no gateway at {}; name it with --gateway",
            gateway.display()
        );
        let options = Options {
            gateway,
            estate: self.estate,
            out: self.out,
            settings: Settings {
                collectors: self.collectors,
                seed: self.seed,
                variant: match self.variant {
                    Measured::Rollout => Variant::Rollout,
                    Measured::Rollback => Variant::Rollback,
                },
                fault: self.fault,
                times: if self.short { Times::SHORT } else { Times::FULL },
            },
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let summary = runtime.block_on(drill::run(&options)).context("no verdict")?;
        tell(&summary);
        Ok(match (summary.verdict, self.fault) {
            (verdict, Some(fault)) if verdict == fault.expected() => 0,
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

fn fault(name: &str) -> Result<Fault, String> {
    Fault::ALL.into_iter().find(|fault| fault.as_str() == name).ok_or_else(|| {
        let known: Vec<&str> = Fault::ALL.iter().map(|fault| fault.as_str()).collect();
        format!("no fault {name:?}; there are {}", known.join(", "))
    })
}
