//! The page: the state of everything in one line, Rollouts worst first, Tiers, head, replicas.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use render::problem::printable;
use render::rollout::report::{ReplicaLine, RolloutReport};
use render::rollout::verdict::Kind;
use render::rollout::words::moment;

use super::assets;
use super::bars;
use super::card::{self, card_id, fact};
use super::html::Html;
use super::picture::{LinkFacts, Picture};
use super::tiers;
use super::words::{ago, count, number, short, since, time};
use crate::aggregate::Role;
use crate::cli::rollout::style::{clean, glyph};
use crate::drain::Phase;

/// Rollouts that the page shows as cards.
pub const CARDS_MAX: usize = 30;
/// Replicas that the page names.
pub const REPLICAS_MAX: usize = 50;
/// Lines of a refused head's problems that the page shows, and characters of each.
const PROBLEM_LINES_MAX: usize = 30;
const PROBLEM_CHARS_MAX: usize = 400;

/// A page and where in it stands when it was made, which is no change worth telling.
pub(super) struct Page {
    pub(super) html: String,
    pub(super) made_at: Range<usize>,
}

/// Draws it.
pub(super) fn page(picture: &Picture<'_>) -> Page {
    let headline = Headline::of(picture);
    let mut html = Html::document();
    let h = &mut html;
    let mut made_at = 0..0;
    h.el("html", &[("lang", "en")], |h| {
        h.el("head", &[], |h| {
            assets::head(h, &format!("{} · Tidegate", headline.text()), headline.alarm.icon());
            h.void("meta", &[("name", "build"), ("content", assets::build())]);
            h.el("script", &[("src", assets::script_path()), ("defer", "")], |_| {});
        });
        h.el("body", &[], |h| {
            h.line("a", &[("class", "skip"), ("href", "#main")], "Skip to the Rollouts");
            h.el("p", &[("id", "said"), ("class", "hidden"), ("aria-live", "polite")], |_| {});
            h.el("div", &[("id", "lost"), ("hidden", "")], |_| {});
            h.el("div", &[("id", "live")], |h| {
                bars::patterns(h);
                made_at = top(h, picture, &headline);
                h.el("main", &[("id", "main"), ("tabindex", "-1")], |h| {
                    rollouts(h, picture);
                    tiers::section(h, picture);
                    h.el("div", &[("class", "columns")], |h| {
                        head(h, picture);
                        replica(h, picture);
                        replicas(h, picture);
                    });
                });
                foot(h);
            });
        });
    });
    Page { html: html.finish(), made_at }
}

/// How loudly the page speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alarm {
    Critical,
    Warning,
    Well,
}

impl Alarm {
    fn label(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Well => "well",
        }
    }

    fn icon(self) -> &'static str {
        match self {
            Self::Critical => assets::icon_path(assets::Icon::Critical),
            Self::Warning => assets::icon_path(assets::Icon::Warning),
            Self::Well => assets::icon_path(assets::Icon::Well),
        }
    }
}

/// The worst thing there is to say.
struct Headline {
    alarm: Alarm,
    glyph: &'static str,
    words: String,
    kinds: BTreeMap<Kind, u64>,
    unjudged: u64,
}

impl Headline {
    fn of(picture: &Picture<'_>) -> Self {
        let mut kinds: BTreeMap<Kind, u64> = BTreeMap::new();
        for report in picture.reports.values() {
            *kinds.entry(report.verdict.kind).or_default() += 1;
        }
        let known = |id: &&&str| picture.reports.contains_key(**id);
        let unjudged = picture.rollouts.iter().filter(|id| !known(id)).count() as u64;
        let of = |kind: Kind| kinds.get(&kind).copied().filter(|n| *n > 0);
        let all = kinds.values().sum::<u64>() + unjudged;
        let (alarm, glyph, words) = if let Some(n) = of(Kind::Abort) {
            let words = count(n, "Rollout calls for an abort", "Rollouts call for an abort");
            (Alarm::Critical, glyph(Kind::Abort), words)
        } else if let Some(n) = of(Kind::Blocked) {
            let words = count(n, "Rollout is blocked", "Rollouts are blocked");
            (Alarm::Critical, glyph(Kind::Blocked), words)
        } else if picture.head.source.failure.is_some() {
            let words = "The newest head is not in force".to_owned();
            (Alarm::Critical, "!", words)
        } else if !picture.replica.notices.is_empty() {
            (Alarm::Warning, "!", "The evidence is not kept as it should be".to_owned())
        } else if let Some(n) = of(Kind::Inconclusive) {
            let words = count(n, "Rollout lacks evidence", "Rollouts lack evidence");
            (Alarm::Warning, glyph(Kind::Inconclusive), words)
        } else if picture.replica.phase != Phase::Serving {
            (Alarm::Warning, "!", "This replica is leaving".to_owned())
        } else if all == 0 {
            (Alarm::Well, glyph(Kind::Hold), "No Rollout is under way".to_owned())
        } else {
            // Somebody may merge, but need not hurry.
            let on = of(Kind::Advance).unwrap_or(0) + of(Kind::Complete).unwrap_or(0);
            let words = match on {
                0 => "No Rollout calls for attention".to_owned(),
                _ => count(on, "Rollout may go on", "Rollouts may go on"),
            };
            (Alarm::Well, glyph(Kind::Complete), words)
        };
        Self { alarm, glyph, words, kinds, unjudged }
    }

    fn text(&self) -> String {
        format!("{} {}", self.glyph, self.words)
    }
}

/// What is wrong, in one line; returns where it says when the page was made.
fn top(h: &mut Html, picture: &Picture<'_>, headline: &Headline) -> Range<usize> {
    let mut made_at = 0..0;
    h.el("header", &[("class", "top"), ("data-alarm", headline.alarm.label())], |h| {
        h.el("div", &[("class", "who")], |h| {
            h.line("strong", &[], "Tidegate");
            h.line("span", &[("class", "replica")], &clean(picture.replica.name));
            h.el("span", &[("id", "asof")], |h| {
                made_at = h.marked(|h| {
                    let clock: String = moment(picture.unix_ms).chars().skip(11).take(8).collect();
                    time(h, picture.unix_ms, &format!("as of {clock} UTC"));
                });
            });
            h.line("span", &[("class", "still")], "Reload to see what changed.");
            if picture.signed_in {
                h.el("form", &[("method", "post"), ("action", "/logout")], |h| {
                    h.line("button", &[("type", "submit")], "Sign out");
                });
            }
        });
        h.el("h1", &[], |h| {
            h.line("span", &[("class", "glyph"), ("aria-hidden", "true")], headline.glyph);
            h.text(&headline.words);
        });
        verdicts(h, picture, headline);
        alerts(h, picture);
    });
    made_at
}

/// How many Rollouts there are of each verdict, and the way to the first.
fn verdicts(h: &mut Html, picture: &Picture<'_>, headline: &Headline) {
    if headline.kinds.is_empty() && headline.unjudged == 0 {
        return;
    }
    let shown = order(picture);
    h.el("ul", &[("class", "verdicts")], |h| {
        for kind in Kind::ALL {
            let Some(n) = headline.kinds.get(&kind) else { continue };
            let first = shown.iter().take(CARDS_MAX).find_map(|entry| {
                entry.report.filter(|report| report.verdict.kind == kind).map(|_| entry.id)
            });
            let words = |h: &mut Html| {
                card::verdict_badge(h, kind);
                h.line("b", &[], &number(*n));
            };
            h.el("li", &[("data-verdict", kind.label())], |h| match first {
                Some(id) => h.el("a", &[("href", &format!("#{}", card_id(id)))], words),
                None => h.el("span", &[], words),
            });
        }
        if headline.unjudged > 0 {
            let words = format!("{} not judged yet", number(headline.unjudged));
            h.line("li", &[("data-verdict", "new")], &words);
        }
    });
}

/// What is wrong beside Rollouts.
fn alerts(h: &mut Html, picture: &Picture<'_>) {
    let failure = picture.head.source.failure.as_ref();
    let leaving = picture.replica.phase != Phase::Serving;
    if failure.is_none() && !leaving && picture.replica.notices.is_empty() {
        return;
    }
    h.el("ul", &[("class", "alerts")], |h| {
        if let Some(failure) = failure {
            h.el("li", &[], |h| {
                h.line("strong", &[], &format!("Head refused ({}) ", clean(failure.reason)));
                since(h, failure.since_unix_ms, picture.unix_ms);
                h.text("; collectors keep commit ");
                h.line("code", &[], &short(&clean(picture.head.commit)));
                h.text(". ");
                h.line("a", &[("href", "#head")], "Why");
            });
        }
        if leaving {
            let phase = phase_words(picture.replica.phase);
            h.line("li", &[], &format!("This replica {phase}; ask another one."));
        }
        for notice in picture.replica.notices {
            h.line("li", &[], &printable(notice));
        }
    });
}

/// A Rollout where it stands in the order of the page.
struct Entry<'a> {
    id: &'a str,
    report: Option<&'a RolloutReport>,
}

/// Worst first. Not judged yet is worse than well, and better than anything that was judged ill.
fn order<'a>(picture: &'a Picture<'_>) -> Vec<Entry<'a>> {
    let reported =
        picture.reports.iter().map(|(id, report)| Entry { id, report: Some(Arc::as_ref(report)) });
    let unjudged = picture
        .rollouts
        .iter()
        .filter(|id| !picture.reports.contains_key(**id))
        .map(|id| Entry { id, report: None });
    let mut entries: Vec<Entry<'_>> = reported.chain(unjudged).collect();
    let rank = |entry: &Entry<'_>| entry.report.map_or(Kind::Hold, |report| report.verdict.kind);
    entries.sort_by(|one, other| (rank(one), one.id).cmp(&(rank(other), other.id)));
    entries
}

fn rollouts(h: &mut Html, picture: &Picture<'_>) {
    let entries = order(picture);
    h.el("section", &[("aria-labelledby", "rollouts"), ("class", "rollouts")], |h| {
        h.el("h2", &[("id", "rollouts")], |h| {
            h.text("Rollouts ");
            h.line("span", &[("class", "sum")], &format!("{}, worst first", number(entries.len() as u64)));
        });
        if entries.is_empty() {
            h.el("p", &[("class", "empty")], |h| {
                h.text("No Rollout is under way. To stage a change, add ");
                h.line("code", &[], "teams/TEAM/rollouts/NAME.yaml");
                h.text(" to the estate, render and merge it (docs/rollouts.md); count first who would join: ");
                h.line("code", &[], "gateway rollout plan TEAM/NAME");
                h.text(".");
            });
        }
        h.el("div", &[("class", "cards")], |h| {
            for entry in entries.iter().take(CARDS_MAX) {
                match entry.report {
                    Some(report) => card::card(h, report, picture.now_ms),
                    None => card::unjudged(h, entry.id, picture.replica.role),
                }
            }
        });
        let more = entries.len().saturating_sub(CARDS_MAX) as u64;
        if more > 0 {
            h.el("p", &[("class", "more")], |h| {
                h.text(&format!("{}, none worse than these; all of them: ", count(more, "more Rollout", "more Rollouts")));
                h.line("code", &[], "gateway rollout get");
            });
        }
    });
}

fn head(h: &mut Html, picture: &Picture<'_>) {
    let head = &picture.head;
    h.el("section", &[("aria-labelledby", "head"), ("class", "panel")], |h| {
        h.line("h2", &[("id", "head")], "Head");
        h.el("dl", &[("class", "facts")], |h| {
            fact(h, "Commit", |h| {
                let whole = clean(head.commit);
                h.line("code", &[("title", &*whole)], &short(&whole));
            });
            if let Some(at_ms) = head.committed_unix_ms {
                fact(h, "Committed", |h| since(h, at_ms, picture.unix_ms));
            }
            fact(h, "In force", |h| {
                h.text("since ");
                since(h, head.loaded_unix_ms, picture.unix_ms);
            });
            fact(h, "Source", |h| {
                h.text(&format!("{} ", head.source.kind));
                h.line("code", &[], &clean(&head.source.place));
            });
            if let Some(at_ms) = head.source.last_success_unix_ms {
                fact(h, "Last read", |h| since(h, at_ms, picture.unix_ms));
            }
            fact(h, "Holds", |h| {
                let tiers = count(picture.tiers.len() as u64, "Tier", "Tiers");
                let rollouts = count(picture.rollouts.len() as u64, "Rollout", "Rollouts");
                h.text(&format!("{tiers}, {rollouts}"));
            });
        });
        let Some(failure) = &head.source.failure else { return };
        h.el("div", &[("class", "refused")], |h| {
            h.el("p", &[], |h| {
                h.line("strong", &[], "The newest head is refused ");
                h.text(&format!("({}), ", clean(failure.reason)));
                since(h, failure.since_unix_ms, picture.unix_ms);
                h.text(". Mend the estate; the next good head heals it.");
            });
            h.el("ul", &[("class", "problems")], |h| {
                let mut lines = failure.detail.lines().filter(|line| !line.trim().is_empty());
                for line in lines.by_ref().take(PROBLEM_LINES_MAX) {
                    h.line("li", &[], &cut(line.trim()));
                }
                let more = lines.count() as u64;
                if more > 0 {
                    h.line("li", &[], &format!("{} more; see /readyz", number(more)));
                }
            });
        });
    });
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(PROBLEM_CHARS_MAX) {
        None => line.to_owned(),
        Some((at, _)) => format!("{}…", &line[..at]),
    }
}

fn replica(h: &mut Html, picture: &Picture<'_>) {
    let replica = &picture.replica;
    h.el("section", &[("aria-labelledby", "replica"), ("class", "panel")], |h| {
        let name = match replica.role {
            Role::Aggregator => "This aggregator",
            Role::Alone | Role::Replica { .. } => "This replica",
        };
        h.line("h2", &[("id", "replica")], name);
        h.el("dl", &[("class", "facts")], |h| {
            fact(h, "Name", |h| h.text(&clean(replica.name)));
            fact(h, "State", |h| h.text(phase_words(replica.phase)));
            if let Role::Replica { uplinks } = replica.role {
                let aggregators = count(uplinks as u64, "aggregator", "aggregators");
                fact(h, "Reports to", |h| h.text(&aggregators));
            }
            fact(h, "Collectors", |h| {
                if replica.role == Role::Aggregator {
                    return h.text("connect to replicas");
                }
                let polling = match replica.polling {
                    0 => String::new(),
                    n => format!(", {} of them polling over HTTP", number(n)),
                };
                h.text(&format!("{}{polling}", number(replica.agents)));
            });
            if let Some(LinkFacts { live, max, rejected }) = replica.links {
                fact(h, "Links", |h| {
                    h.text(&format!("{} of at most {}", number(live), number(max)))
                });
                fact(h, "Admission", |h| match rejected {
                    0 => h.text("nobody was sent away"),
                    n => h.text(&format!("{} sent away since this process started", number(n))),
                });
            }
            fact(h, "Store", |h| match (replica.store, replica.role) {
                (Some(file), _) => h.line("code", &[], &clean(&file.display().to_string())),
                (None, Role::Replica { .. }) => h.text("at its aggregators"),
                (None, _) => h.text("none: halts and brakes die with this process (--store)"),
            });
        });
    });
}

fn phase_words(phase: Phase) -> &'static str {
    match phase {
        Phase::Serving => "serves",
        Phase::Leaving => "leaves: balancers are told, links stay for a moment",
        Phase::Draining => "drains: its links are closed one by one",
        Phase::Drained => "is drained",
    }
}

/// Every process that some Rollout's evidence names.
fn replicas(h: &mut Html, picture: &Picture<'_>) {
    let mut lines: BTreeMap<(&str, &str), (&ReplicaLine, u64)> = BTreeMap::new();
    for report in picture.reports.values() {
        for line in &report.replicas {
            let at_ms = report.times.now_ms.saturating_sub(line.age_ms);
            let known = lines.entry((&*line.name, &*line.incarnation)).or_insert((line, at_ms));
            // Amiss for one Rollout is amiss.
            let better = known.0.reporting && known.0.same_head;
            if better && !(line.reporting && line.same_head) {
                *known = (line, at_ms);
            }
        }
    }
    let mut lines: Vec<_> = lines.into_values().collect();
    lines.sort_by_key(|(line, _)| line.reporting && line.same_head);
    let reporting = lines.iter().filter(|(line, _)| line.reporting).count();
    h.el("section", &[("aria-labelledby", "replicas"), ("class", "panel")], |h| {
        h.el("h2", &[("id", "replicas")], |h| {
            h.text("Evidence ");
            let expected = picture.replica.expect_replicas;
            h.line(
                "span",
                &[("class", "sum")],
                &format!("{reporting} report, {expected} expected"),
            );
        });
        if lines.is_empty() {
            h.line(
                "p",
                &[("class", "empty")],
                "Replicas report about Rollouts; there is none to report about.",
            );
            return;
        }
        h.el("ul", &[("class", "plain")], |h| {
            for (line, at_ms) in lines.iter().take(REPLICAS_MAX) {
                let (class, what) = match (line.reporting, line.same_head) {
                    (false, _) => ("amiss", "does not report"),
                    (true, false) => ("amiss", "serves another head"),
                    (true, true) => ("well", "reports"),
                };
                h.el("li", &[("class", class)], |h| {
                    h.line("b", &[], &clean(&line.name));
                    h.text(&format!(" {what}; last word "));
                    time(h, *at_ms, &ago(picture.now_ms.saturating_sub(*at_ms)));
                });
            }
            let more = lines.len().saturating_sub(REPLICAS_MAX) as u64;
            if more > 0 {
                h.line("li", &[], &format!("and {} more", number(more)));
            }
        });
    });
}

fn foot(h: &mut Html) {
    h.el("footer", &[], |h| {
        h.text(concat!("Tidegate ", env!("CARGO_PKG_VERSION"), " · "));
        let links = [
            ("/api/v1/rollouts", "Rollouts"),
            ("/api/v1/tiers", "Tiers"),
            ("/api/v1/head", "head"),
            ("/readyz", "readiness"),
            ("/metrics", "metrics"),
        ];
        for (at, (href, words)) in links.iter().enumerate() {
            if at > 0 {
                h.text(" · ");
            }
            h.line("a", &[("href", href)], words);
        }
    });
}
