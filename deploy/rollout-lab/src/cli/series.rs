//! `rollout-lab drill-series`

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use rollout_lab::drill::{self, Series, Variant, Verdict};

use super::drill::{Common, VOID};

/// Runs of one series: seeds times variants times attempts.
const RUNS_MAX: u32 = 1_000;
/// Between two questions whether the machine is quiet.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// Questions before the series gives up: half an hour of them.
const ASK_MAX: u32 = 360;
/// Times that one run may be cut short before the series gives up.
const CUTS_MAX: u32 = 20;

/// Play drills one after another, for several seeds and variants, and count what came of them.
///
/// Each run has a folder of its own; the summary over all is derived from their raw files, each
/// verified as drill-report does it. The same command goes on where it stopped: a run that has ended
/// is not played again. Exit code 0: none failed, and each variant has one that passed; 1: one
/// failed, or files were changed; 2: a run could not end; 3: void.
#[derive(Debug, Args)]
pub(super) struct DrillSeries {
    /// A folder, new or of this series.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    #[command(flatten)]
    common: Common,

    /// Seeds: 1 to so many.
    #[arg(long, value_name = "N", default_value_t = 10)]
    seeds: u32,

    /// What is measured.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = super::drill::variant,
        default_value = "rollout,rollback")]
    variants: Vec<Variant>,

    /// How often a void run is played again; each attempt is kept and listed.
    #[arg(long, value_name = "N", default_value_t = 0)]
    repeat_void: u32,

    /// A shell command asked before each run; while it does not exit with 0, the run waits, half an
    /// hour at most.
    #[arg(long, value_name = "COMMAND")]
    quiet_command: Option<String>,
}

impl DrillSeries {
    pub(super) fn run(self) -> anyhow::Result<u8> {
        let attempts = self.repeat_void.saturating_add(1);
        let count = u32::try_from(self.variants.len()).unwrap_or(u32::MAX);
        let runs = self.seeds.saturating_mul(count).saturating_mul(attempts);
        anyhow::ensure!((1..=RUNS_MAX).contains(&runs), "a series is 1 to {RUNS_MAX} runs");
        self.common.check()?;
        fs::create_dir_all(&self.out)
            .with_context(|| format!("cannot make {}", self.out.display()))?;
        for seed in 1..=self.seeds {
            for variant in &self.variants {
                for attempt in 1..=attempts {
                    let name = run_name(*variant, seed, attempt);
                    self.play(&name, *variant, seed)?;
                    let (summary, _) = drill::recompute(&self.out.join(&name))?;
                    if summary.verdict != Verdict::Void {
                        break;
                    }
                }
            }
        }
        let (names, cut) = folders(&self.out)?;
        let series = drill::summarise(&self.out, &names, &cut)?;
        self.write(&series)?;
        for part in &series.parts {
            println!("{}: {}", drill::variant_name(part.variant), part.statement);
        }
        println!("More in {}", self.out.join("summary.md").display());
        Ok(match series.outcome() {
            Verdict::Passed => 0,
            Verdict::Void => VOID,
            Verdict::Failed | Verdict::Waiting => 1,
        })
    }

    /// Plays one run, unless it has ended before. One that was cut short keeps its folder under
    /// another name.
    fn play(&self, name: &str, variant: Variant, seed: u32) -> anyhow::Result<()> {
        let folder = self.out.join(name);
        if drill::is_finished(&folder) {
            println!("{name} has ended before");
            return Ok(());
        }
        if folder.exists() {
            set_aside(&folder)?;
        }
        self.wait_for_quiet()?;
        println!("{name}");
        let status = Command::new(std::env::current_exe()?)
            .arg("drill")
            .arg("--out")
            .arg(&folder)
            .args(["--seed", &seed.to_string(), "--variant", drill::variant_name(variant)])
            .args(self.common.arguments())
            .status()
            .context("cannot start a drill")?;
        anyhow::ensure!(
            drill::is_finished(&folder),
            "{name} did not come to an end ({status}); the same command goes on from here"
        );
        Ok(())
    }

    fn wait_for_quiet(&self) -> anyhow::Result<()> {
        let Some(command) = &self.quiet_command else { return Ok(()) };
        for _ in 0..ASK_MAX {
            let status =
                Command::new("sh").args(["-c", command]).status().context("--quiet-command")?;
            if status.success() {
                return Ok(());
            }
            std::thread::sleep(ASK_EVERY);
        }
        anyhow::bail!(
            "{command:?} did not call the machine quiet; the same command goes on from here"
        )
    }

    /// Summary for programs and for people, and a picture of the first run of each variant that
    /// says something.
    fn write(&self, series: &Series) -> anyhow::Result<()> {
        let write = |name: &str, text: String| {
            let path = self.out.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        write("summary.json", serde_json::to_string_pretty(series)? + "\n")?;
        write("summary.md", series.markdown())?;
        for part in &series.parts {
            let shown = series
                .runs
                .iter()
                .find(|run| run.variant == part.variant && run.verdict != Verdict::Void);
            if let Some(run) = shown {
                let drawn = drill::picture(&drill::read(&self.out.join(&run.name))?);
                write(&format!("{}.svg", drill::variant_name(part.variant)), drawn)?;
            }
        }
        Ok(())
    }
}

fn run_name(variant: Variant, seed: u32, attempt: u32) -> String {
    let name = format!("{}-{seed:03}", drill::variant_name(variant));
    if attempt == 1 { name } else { format!("{name}-again-{}", attempt - 1) }
}

fn set_aside(folder: &Path) -> anyhow::Result<()> {
    for number in 1..=CUTS_MAX {
        let other = folder.with_extension(format!("cut-{number}"));
        if !other.exists() {
            return fs::rename(folder, &other)
                .with_context(|| format!("cannot rename {}", folder.display()));
        }
    }
    anyhow::bail!("{} was cut short {CUTS_MAX} times", folder.display())
}

/// Runs that have ended, and those that were cut short; each in order.
fn folders(out: &Path) -> anyhow::Result<(Vec<String>, Vec<String>)> {
    let (mut ended, mut cut) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(out)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !entry.file_type()?.is_dir() {
            continue;
        }
        if drill::is_finished(&entry.path()) { ended.push(name) } else { cut.push(name) }
    }
    ended.sort();
    cut.sort();
    Ok((ended, cut))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_was_cut_short_is_set_aside_and_still_listed() {
        let out = tempfile::tempdir().unwrap();
        let first = out.path().join(run_name(Variant::Rollout, 7, 1));
        fs::create_dir(&first).unwrap();
        set_aside(&first).unwrap();
        fs::create_dir(&first).unwrap();
        set_aside(&first).unwrap();
        let again = out.path().join(run_name(Variant::Rollout, 7, 2));
        fs::create_dir(&again).unwrap();
        fs::write(again.join("MANIFEST.sha256"), "").unwrap();
        let (ended, cut) = folders(out.path()).unwrap();
        assert_eq!(ended, ["rollout-007-again-1"]);
        assert_eq!(cut, ["rollout-007.cut-1", "rollout-007.cut-2"]);
    }
}
