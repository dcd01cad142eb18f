//! Many runs, told as counts: what a single one cannot say.

use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::criteria::{Criterion, Levels, NOT_CLAIMED, Summary};
use super::files::{self, Environment, recompute};
use super::{DrillError, Settings, Variant, Verdict};

/// One run of a series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Played {
    /// Its folder.
    pub name: String,
    /// Of its settings.
    pub variant: Variant,
    /// Of its settings.
    pub seed: u64,
    /// What it comes to.
    pub verdict: Verdict,
    /// Why it is void.
    pub void: Vec<String>,
    /// Each criterion.
    pub criteria: Vec<Criterion>,
    /// What was seen.
    pub levels: Levels,
    /// What speaks against its files; empty when they are as they were written.
    pub against: Vec<String>,
}

/// A criterion over the runs that could be judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// P1 to P8.
    pub id: String,
    /// Runs in which it holds.
    pub holds: usize,
    /// Of so many.
    pub of: usize,
    /// Where it does not.
    pub broken_in: Vec<String>,
}

/// The worst of each figure over the runs that could be judged.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Worst {
    /// L0, the least.
    pub modeled_min: i64,
    /// L1, the least.
    pub ready_min: i64,
    /// L2, the least.
    pub routable_min: i64,
    /// L3: probes on the route, all runs together.
    pub probes: u64,
    /// L3: those that were no success, all runs together.
    pub failures: u64,
    /// L3.
    pub longest_gap_ms: f64,
    /// L3.
    pub bound_ms: f64,
    /// L3.
    pub latency_p99_ms: f64,
    /// L3.
    pub latency_max_ms: f64,
    /// L4: all runs together.
    pub links_lost: u64,
    /// L4.
    pub away_p99_ms: f64,
    /// L4.
    pub away_max_ms: f64,
    /// L4: all runs together.
    pub collectors_lost: u64,
    /// L4.
    pub sessions_max: i64,
    /// L4.
    pub delivery_max_ms: f64,
}

/// All runs of one variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// What was measured.
    pub variant: Variant,
    /// Runs that came to an end.
    pub runs: usize,
    /// Every criterion holds.
    pub passed: usize,
    /// A criterion does not hold.
    pub failed: usize,
    /// The instrument was not good enough.
    pub void: usize,
    /// The change could not go on.
    pub waiting: usize,
    /// Runs whose files were changed; not judged.
    pub unverified: usize,
    /// Each criterion.
    pub criteria: Vec<Held>,
    /// The worst of each figure.
    pub worst: Worst,
    /// What may be said.
    pub statement: String,
}

/// What a series comes to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The layout.
    pub schema: String,
    /// Of the first run; seed and variant differ between runs.
    pub settings: Settings,
    /// Of the first run.
    pub kernel: String,
    /// Of the first run.
    pub cpus: usize,
    /// Of every run.
    pub gateway_sha256: String,
    /// By variant.
    pub parts: Vec<Part>,
    /// Every run that came to an end.
    pub runs: Vec<Played>,
    /// Folders of runs that did not.
    pub cut: Vec<String>,
    /// What none of it shows.
    pub not_claimed: Vec<String>,
}

/// Verifies the runs in these folders of `out`, derives each summary again from its raw files, and
/// counts. `cut` names folders of runs that did not come to an end.
///
/// # Errors
/// When there is no run, a file cannot be read, or runs differ in more than seed and variant.
pub fn summarise(out: &Path, names: &[String], cut: &[String]) -> Result<Series, DrillError> {
    let mut runs = Vec::new();
    let mut first: Option<Environment> = None;
    for name in names {
        let folder = out.join(name);
        let (summary, against) = recompute(&folder)?;
        let environment = files::environment(&folder)?;
        let first = first.get_or_insert_with(|| environment.clone());
        if !is_same(first, &environment) {
            return Err(DrillError::Cannot(format!(
                "{name} was made with other settings, or with another gateway, than {}",
                names.first().map_or("", String::as_str)
            )));
        }
        let Summary { settings, verdict, void, criteria, levels, .. } = summary;
        let (variant, seed) = (settings.variant, settings.seed);
        let name = name.clone();
        runs.push(Played { name, variant, seed, verdict, void, criteria, levels, against });
    }
    let Some(first) = first else {
        return Err(DrillError::Cannot(format!("{} has no finished run", out.display())));
    };
    let parts = [Variant::Rollout, Variant::Rollback]
        .into_iter()
        .filter_map(|variant| Part::of(variant, &runs))
        .collect();
    let Environment { settings, kernel, cpus, gateway_sha256, .. } = first;
    Ok(Series {
        schema: "rollout-lab-series/1".to_owned(),
        settings,
        kernel,
        cpus,
        gateway_sha256,
        parts,
        runs,
        cut: cut.to_vec(),
        not_claimed: NOT_CLAIMED.map(str::to_owned).to_vec(),
    })
}

/// Whether two runs may be counted together.
fn is_same(one: &Environment, other: &Environment) -> bool {
    let neutral = |environment: &Environment| {
        let settings = environment.settings.clone();
        Settings { seed: 0, variant: Variant::Rollout, ..settings }
    };
    neutral(one) == neutral(other) && one.gateway_sha256 == other.gateway_sha256
}

impl Played {
    /// Whether it says anything about the gateway.
    fn is_judged(&self) -> bool {
        self.against.is_empty() && self.verdict != Verdict::Void
    }
}

impl Part {
    fn of(variant: Variant, runs: &[Played]) -> Option<Self> {
        let runs: Vec<&Played> = runs.iter().filter(|run| run.variant == variant).collect();
        let judged: Vec<&Played> = runs.iter().copied().filter(|run| run.is_judged()).collect();
        let first = runs.first()?;
        let count = |verdict: Verdict| {
            runs.iter().filter(|run| run.against.is_empty() && run.verdict == verdict).count()
        };
        let criteria =
            first.criteria.iter().map(|criterion| Held::of(&criterion.id, &judged)).collect();
        let worst = Worst::of(&judged);
        let (passed, failed) = (count(Verdict::Passed), count(Verdict::Failed));
        let (void, waiting) = (count(Verdict::Void), count(Verdict::Waiting));
        let total = runs.len();
        let mut statement = format!(
            "{passed} of {total} runs passed, {failed} failed, {void} were void: the instrument was not good enough."
        );
        if waiting > 0 {
            // Writing to a string does not fail.
            let _ = write!(statement, " {waiting} went on waiting.");
        }
        if !judged.is_empty() {
            // Writing to a string does not fail.
            let _ = write!(
                statement,
                " In the {} that could be judged: {} of {} probes on the route were no success during \
the change; the longest time between two successes was {:.1} ms; an outage shorter than {:.1} ms may have \
been missed.",
                judged.len(),
                worst.failures,
                worst.probes,
                worst.longest_gap_ms,
                worst.bound_ms
            );
        }
        Some(Self {
            variant,
            runs: total,
            passed,
            failed,
            void,
            waiting,
            unverified: runs.iter().filter(|run| !run.against.is_empty()).count(),
            criteria,
            worst,
            statement,
        })
    }
}

impl Part {
    /// Runs that say anything about the gateway.
    fn judged(&self) -> usize {
        self.criteria.first().map_or(0, |held| held.of)
    }
}

impl Held {
    fn of(id: &str, judged: &[&Played]) -> Self {
        let holds = |run: &&&Played| run.criteria.iter().any(|one| one.id == id && one.ok);
        let broken = judged.iter().filter(|run| !holds(run)).map(|run| run.name.clone());
        let broken_in: Vec<String> = broken.collect();
        Self {
            id: id.to_owned(),
            holds: judged.len() - broken_in.len(),
            of: judged.len(),
            broken_in,
        }
    }
}

impl Worst {
    fn of(judged: &[&Played]) -> Self {
        let least = |value: fn(&Levels) -> i64| {
            judged.iter().map(|run| value(&run.levels)).min().unwrap_or(0)
        };
        let most = |value: fn(&Levels) -> f64| {
            judged.iter().map(|run| value(&run.levels)).fold(0.0, f64::max)
        };
        let sum = |value: fn(&Levels) -> u64| judged.iter().map(|run| value(&run.levels)).sum();
        Self {
            modeled_min: least(|levels| levels.modeled_min),
            ready_min: least(|levels| levels.ready_min),
            routable_min: least(|levels| levels.routable_min),
            probes: sum(|levels| levels.probes),
            failures: sum(|levels| levels.failures.values().sum()),
            longest_gap_ms: most(|levels| levels.longest_gap_ms),
            bound_ms: most(|levels| levels.bound_ms),
            latency_p99_ms: most(|levels| levels.latency_p99_ms),
            latency_max_ms: most(|levels| levels.latency_max_ms),
            links_lost: sum(|levels| levels.links_lost),
            away_p99_ms: most(|levels| levels.away_p99_ms),
            away_max_ms: most(|levels| levels.away_max_ms),
            collectors_lost: sum(|levels| levels.collectors_lost),
            sessions_max: judged.iter().map(|run| run.levels.sessions_max).max().unwrap_or(0),
            delivery_max_ms: most(|levels| levels.delivery_max_ms),
        }
    }
}

impl Series {
    /// Whether nothing speaks against any run, and whether none failed; and whether every variant
    /// has a run that passed.
    pub fn outcome(&self) -> Verdict {
        let sum = |value: fn(&Part) -> usize| self.parts.iter().map(value).sum::<usize>();
        if sum(|part| part.failed + part.waiting + part.unverified) > 0 {
            Verdict::Failed
        } else if self.parts.iter().any(|part| part.passed == 0) {
            Verdict::Void
        } else {
            Verdict::Passed
        }
    }

    /// Everything for people.
    pub fn markdown(&self) -> String {
        let Settings { collectors, times, tls, .. } = &self.settings;
        let mut text = format!(
            "# A series of drills\n\n{collectors} collectors{}; warm-up {} s, steady {} s, slot held back {} s, a \
revision every {} s{}. {} processors.\n\nKernel: {}\n\nGateway: SHA-256 `{}`\n",
            if *tls { " under TLS" } else { "" },
            times.warm_up_s,
            times.steady_s,
            times.slot_s,
            times.push_s,
            if times.push_in_change { " during the change" } else { "" },
            self.cpus,
            // The rest says who built it.
            self.kernel.split_whitespace().take(3).collect::<Vec<_>>().join(" "),
            self.gateway_sha256
        );
        for part in &self.parts {
            part.tell(&mut text);
        }
        text.push_str(
            "\n## Every run\n\n| run | verdict | why | probes | no success | longest gap, ms | bound, ms | \
back in, ms (max) | sessions |\n|---|---|---|---|---|---|---|---|---|\n",
        );
        for run in &self.runs {
            let broken = run.criteria.iter().filter(|one| !one.ok).map(|one| one.id.as_str());
            let why: Vec<&str> = match run.verdict {
                Verdict::Void => run.void.iter().map(String::as_str).collect(),
                Verdict::Passed | Verdict::Failed | Verdict::Waiting => broken.collect(),
            };
            let why = [why, run.against.iter().map(String::as_str).collect()].concat().join("; ");
            let levels = &run.levels;
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {:.1} | {:.1} | {:.1} | {} |",
                run.name,
                word(run.verdict),
                why.replace('|', "/"),
                levels.probes,
                levels.failures.values().sum::<u64>(),
                levels.longest_gap_ms,
                levels.bound_ms,
                levels.away_max_ms,
                levels.sessions_max
            );
        }
        if !self.cut.is_empty() {
            let _ = writeln!(
                text,
                "\n{} did not come to an end, and are not counted: {}.",
                self.cut.len(),
                self.cut.join(", ")
            );
        }
        let details = self.runs.iter().flat_map(|run| {
            run.criteria
                .iter()
                .filter(|one| !one.ok)
                .map(move |one| format!("- {}, {}: {}\n", run.name, one.id, one.detail))
        });
        let details: String = details.collect();
        if !details.is_empty() {
            let _ = write!(text, "\n## What did not hold\n\n{details}");
        }
        text.push_str("\n## What is not claimed\n\n");
        for one in &self.not_claimed {
            let _ = writeln!(text, "- {one}");
        }
        text
    }
}

impl Part {
    fn tell(&self, text: &mut String) {
        let Worst { modeled_min, ready_min, routable_min, probes, failures, .. } = &self.worst;
        let title = match self.variant {
            Variant::Rollout => "Rollout",
            Variant::Rollback => "Rollback",
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "\n## {title}\n\n{}", self.statement);
        if self.judged() == 0 {
            return;
        }
        text.push_str("\n| criterion | | holds in | not in |\n|---|---|---|---|\n");
        for held in &self.criteria {
            let _ = writeln!(
                text,
                "| {} | {} | {} of {} | {} |",
                held.id,
                in_words(&held.id),
                held.holds,
                held.of,
                held.broken_in.join(", ")
            );
        }
        let worst = &self.worst;
        let rows = [
            ("L0, modeled, least", modeled_min.to_string()),
            ("L1, ready, least", ready_min.to_string()),
            ("L2, in the route's table, least", routable_min.to_string()),
            ("L3, probes without success", format!("{failures} of {probes}")),
            ("L3, longest time between two successes", format!("{:.1} ms", worst.longest_gap_ms)),
            (
                "L3, bound: a shorter outage may have been missed",
                format!("{:.1} ms", worst.bound_ms),
            ),
            (
                "L3, latency from the intended time, p99 / max",
                format!("{:.1} / {:.1} ms", worst.latency_p99_ms, worst.latency_max_ms),
            ),
            ("L4, links that broke, all runs", worst.links_lost.to_string()),
            (
                "L4, from a lost link to the next, p99 / max",
                format!("{:.1} / {:.1} ms", worst.away_p99_ms, worst.away_max_ms),
            ),
            (
                "L4, collectors without the newest revision at the end",
                worst.collectors_lost.to_string(),
            ),
            ("L4, most sessions on one gateway", worst.sessions_max.to_string()),
            ("L4, from a revision to its latest offer", format!("{:.0} ms", worst.delivery_max_ms)),
        ];
        text.push_str("\n| over the runs that could be judged | worst |\n|---|---|\n");
        for (name, value) in rows {
            let _ = writeln!(text, "| {name} | {value} |");
        }
    }
}

/// What a criterion says, in short; in full in a run's own summary.
fn in_words(id: &str) -> &'static str {
    match id {
        "P1" => "no route failure in the steady phases",
        "P2" => "none during the change, successes close together",
        "P3" => "gateways come and leave in order, none dies",
        "P4" => "lost links come back, each once, every message is answered",
        "P5" => "no gateway is crowded",
        "P6" => "every revision arrives, none steps back",
        "P7" => "the model's rows in order, at most four processes",
        "P8" => "a drain closes its links in a trickle",
        _ => "",
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "passed",
        Verdict::Failed => "failed",
        Verdict::Void => "void",
        Verdict::Waiting => "waiting",
    }
}

#[cfg(test)]
mod tests;
