//! The plan file: TOML, strict, with the place of every mistake.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::{Behaviour, Claim, Group, ReconnectReport, Size, Source, Template};
use crate::duration;
use crate::model::Value;

/// A plan that cannot be used, as `file:line:column: text`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {message}")]
pub struct PlanError {
    at: String,
    message: String,
}

impl PlanError {
    pub(crate) fn whole(at: &str, message: impl Into<String>) -> Self {
        Self { at: at.to_owned(), message: message.into() }
    }
}

/// A plan as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawPlan {
    #[serde(default = "one")]
    seed: u64,
    heartbeat: Option<Spanned<String>>,
    heartbeat_jitter_percent: Option<Spanned<u32>>,
    apply_delay: Option<Spanned<String>>,
    apply_delay_max: Option<Spanned<String>>,
    report_applying: Option<bool>,
    effective_config_bytes: Option<Spanned<usize>>,
    #[serde(default)]
    reconnect: ReconnectReport,
    #[serde(default)]
    identifying: BTreeMap<String, Spanned<Raw>>,
    #[serde(default)]
    non_identifying: BTreeMap<String, Spanned<Raw>>,
    group: Option<Vec<Spanned<RawGroup>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGroup {
    name: Spanned<String>,
    count: Option<u32>,
    weight: Option<Spanned<f64>>,
    tier: Option<Spanned<String>>,
    #[serde(default)]
    report_only: bool,
    #[serde(default)]
    identifying: BTreeMap<String, Spanned<Raw>>,
    #[serde(default)]
    non_identifying: BTreeMap<String, Spanned<Raw>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a text, a list of texts, an integer or a boolean")]
enum Raw {
    Text(String),
    List(Vec<String>),
    Integer(i64),
    Truth(bool),
}

fn one() -> u64 {
    1
}

/// Largest effective config that a plan may ask for: what a gateway must take (serving.md 10).
const EFFECTIVE_CONFIG_MAX: usize = 64 << 20;

pub(super) fn parse(text: &str, file: &str) -> Result<(u64, Behaviour, Vec<Group>), PlanError> {
    let place = Place { text, file };
    let raw: RawPlan = toml::from_str(text).map_err(|error| place.toml(&error))?;
    read(&raw, &place)
}

/// Makes sense of a plan that is part of the document at `place`.
pub(super) fn read(
    raw: &RawPlan,
    place: &Place<'_>,
) -> Result<(u64, Behaviour, Vec<Group>), PlanError> {
    let file = place.file;
    let behaviour = place.behaviour(raw)?;
    let Some(raw_groups) = &raw.group else {
        return Err(PlanError::whole(
            file,
            "no [[group]]: a plan needs at least one kind of collector",
        ));
    };
    let mut groups: Vec<Group> = Vec::new();
    for spanned in raw_groups {
        let group = spanned.get_ref();
        if groups.iter().any(|other| other.name == *group.name.get_ref()) {
            return Err(place.error(
                group.name.span(),
                format!("group.name: \"{}\" is there twice", group.name.get_ref()),
            ));
        }
        let size = match (group.count, &group.weight) {
            (Some(count), None) => Size::Count(count),
            (None, Some(weight)) if weight.get_ref().is_finite() && *weight.get_ref() > 0.0 => {
                Size::Weight(*weight.get_ref())
            }
            (None, Some(weight)) => {
                return Err(place.error(weight.span(), "group.weight: must be greater than 0"));
            }
            (Some(_), Some(weight)) => {
                return Err(place.error(
                    weight.span(),
                    "group.weight: a group has either a count or a weight, not both",
                ));
            }
            (None, None) => {
                return Err(place.error(
                    group.name.span(),
                    format!(
                        "group \"{}\" has neither count nor weight: say how many of them there are",
                        group.name.get_ref()
                    ),
                ));
            }
        };
        groups.push(Group {
            name: group.name.get_ref().clone(),
            size,
            claim: group
                .tier
                .as_ref()
                .map(|tier| Claim { tier: tier.get_ref().clone(), at: place.at(&tier.span()) }),
            report_only: group.report_only,
            identifying: place.attributes("identifying", &raw.identifying, &group.identifying)?,
            non_identifying: place.attributes(
                "non_identifying",
                &raw.non_identifying,
                &group.non_identifying,
            )?,
        });
    }
    Ok((raw.seed, behaviour, groups))
}

/// A document, for error texts.
pub(crate) struct Place<'t> {
    /// All of it.
    pub(crate) text: &'t str,
    /// What it is called.
    pub(crate) file: &'t str,
}

impl Place<'_> {
    fn behaviour(&self, raw: &RawPlan) -> Result<Behaviour, PlanError> {
        let defaults = Behaviour::default();
        let heartbeat =
            self.duration("heartbeat", raw.heartbeat.as_ref())?.unwrap_or(defaults.heartbeat);
        if heartbeat.is_zero() {
            let span = raw.heartbeat.as_ref().map_or(0..0, Spanned::span);
            return Err(self.error(span, "heartbeat: must be longer than 0"));
        }
        let shortest = self.duration("apply_delay", raw.apply_delay.as_ref())?;
        let shortest = shortest.unwrap_or(defaults.apply_delay.start);
        let longest = self.duration("apply_delay_max", raw.apply_delay_max.as_ref())?;
        let longest = longest.unwrap_or(shortest);
        if longest < shortest {
            let span = raw.apply_delay_max.as_ref().map_or(0..0, Spanned::span);
            return Err(self.error(span, "apply_delay_max: must not be shorter than apply_delay"));
        }
        let at_most =
            |key: &str, value: Option<&Spanned<usize>>, max: usize, default: usize| match value {
                Some(value) if *value.get_ref() > max => {
                    Err(self.error(value.span(), format!("{key}: must not be greater than {max}")))
                }
                Some(value) => Ok(*value.get_ref()),
                None => Ok(default),
            };
        let jitter = raw.heartbeat_jitter_percent.as_ref();
        if let Some(jitter) = jitter.filter(|jitter| *jitter.get_ref() > 100) {
            return Err(
                self.error(jitter.span(), "heartbeat_jitter_percent: must not be greater than 100")
            );
        }
        Ok(Behaviour {
            heartbeat,
            heartbeat_jitter_percent: jitter.map_or(0, |jitter| *jitter.get_ref()),
            apply_delay: shortest..longest,
            report_applying: raw.report_applying.unwrap_or(defaults.report_applying),
            effective_config_bytes: at_most(
                "effective_config_bytes",
                raw.effective_config_bytes.as_ref(),
                EFFECTIVE_CONFIG_MAX,
                defaults.effective_config_bytes,
            )?,
            reconnect_report: raw.reconnect,
        })
    }

    fn duration(
        &self,
        key: &str,
        value: Option<&Spanned<String>>,
    ) -> Result<Option<Duration>, PlanError> {
        value
            .map(|value| {
                duration::parse(value.get_ref())
                    .map_err(|error| self.error(value.span(), format!("{key}: {error}")))
            })
            .transpose()
    }

    /// The group's own win over those of the whole plan.
    fn attributes(
        &self,
        part: &str,
        all: &BTreeMap<String, Spanned<Raw>>,
        own: &BTreeMap<String, Spanned<Raw>>,
    ) -> Result<Vec<(String, Source)>, PlanError> {
        let mut merged: BTreeMap<&String, &Spanned<Raw>> = all.iter().collect();
        merged.extend(own);
        merged
            .into_iter()
            .map(|(key, raw)| {
                let parse = |text: &String| {
                    Template::parse(text)
                        .map_err(|error| self.error(raw.span(), format!("{part}.\"{key}\": {error}")))
                };
                let source = match raw.get_ref() {
                    Raw::Text(text) => Source::Text(vec![parse(text)?]),
                    Raw::List(texts) if texts.is_empty() => {
                        return Err(self.error(
                            raw.span(),
                            format!("{part}.\"{key}\": the list is empty; its last text is for all that it does not name"),
                        ));
                    }
                    Raw::List(texts) => {
                        Source::Text(texts.iter().map(parse).collect::<Result<_, _>>()?)
                    }
                    Raw::Integer(value) => Source::Fixed(Value::Integer(*value)),
                    Raw::Truth(value) => Source::Fixed(Value::Truth(*value)),
                };
                Ok((key.clone(), source))
            })
            .collect()
    }

    pub(crate) fn toml(&self, error: &toml::de::Error) -> PlanError {
        let Some(span) = error.span() else {
            return PlanError::whole(self.file, error.message());
        };
        // A type error names no key; the line that it is on does.
        let line_start = self.text[..span.start].rfind('\n').map_or(0, |at| at + 1);
        let key = self.text[line_start..span.start].split('=').next().unwrap_or_default().trim();
        let named = key.is_empty() || key.starts_with('[') || error.message().contains(key);
        let message =
            if named { error.message().to_owned() } else { format!("{key}: {}", error.message()) };
        self.error(span, message)
    }

    fn error(&self, span: Range<usize>, message: impl Into<String>) -> PlanError {
        PlanError { at: self.at(&span), message: message.into() }
    }

    fn at(&self, span: &Range<usize>) -> String {
        let before = self.text.get(..span.start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
        format!("{}:{line}:{column}", self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    #[test]
    fn every_key_is_read() {
        let text = r#"
            seed = 7
            heartbeat = "10s"
            heartbeat_jitter_percent = 5
            apply_delay = "100ms"
            apply_delay_max = "1s"
            report_applying = false
            effective_config_bytes = 20000
            reconnect = "full"
            [non_identifying]
            "os.type" = "linux"
            "host.name" = "other"
            [[group]]
            name = "bridge"
            weight = 2.5
            [group.identifying]
            "service.name" = "bridge"
            [group.non_identifying]
            "host.name" = ["bridge-a1", "bridge-{n}"]
            "process.pid" = 4
            [[group]]
            name = "foreign"
            count = 3
            report_only = true
        "#;
        let plan = Plan::parse(text, "p.toml", 10).unwrap();
        assert_eq!(
            *plan.behaviour(),
            Behaviour {
                heartbeat: Duration::from_secs(10),
                heartbeat_jitter_percent: 5,
                apply_delay: Duration::from_millis(100)..Duration::from_secs(1),
                report_applying: false,
                effective_config_bytes: 20_000,
                reconnect_report: ReconnectReport::Full,
            }
        );
        let mut hosts: Vec<_> = (0..10)
            .filter(|index| !plan.is_report_only(*index))
            .map(|index| plan.attributes(index).flat()["host.name"].to_owned())
            .collect();
        hosts.sort();
        let expected =
            ["bridge-1", "bridge-2", "bridge-3", "bridge-4", "bridge-5", "bridge-6", "bridge-a1"];
        assert_eq!(hosts, expected);
    }

    #[test]
    fn mistakes_are_told_with_file_line_column_and_key() {
        let check = |text: &str, expected: &str| {
            let error = Plan::parse(text, "p.toml", 10).unwrap_err().to_string();
            assert_eq!(error, expected, "{text}");
        };
        check(
            "heartbeet = \"1s\"\n",
            "p.toml:1:1: unknown field `heartbeet`, expected one of `seed`, `heartbeat`, `heartbeat_jitter_percent`, `apply_delay`, `apply_delay_max`, `report_applying`, `effective_config_bytes`, `reconnect`, `identifying`, `non_identifying`, `group`",
        );
        check("seed = \"x\"\n", "p.toml:1:8: seed: invalid type: string \"x\", expected u64");
        check(
            "\nheartbeat = \"soon\"\n[[group]]\nname=\"a\"\ncount=10\n",
            "p.toml:2:13: heartbeat: \"soon\" is not a duration: write a number and a unit, such as 500ms, 30s, 2m or 1h",
        );
        check(
            "heartbeat = \"0s\"\n[[group]]\nname=\"a\"\ncount=10\n",
            "p.toml:1:13: heartbeat: must be longer than 0",
        );
        check(
            "apply_delay = \"2s\"\napply_delay_max = \"1s\"\n",
            "p.toml:2:19: apply_delay_max: must not be shorter than apply_delay",
        );
        check("", "p.toml: no [[group]]: a plan needs at least one kind of collector");
        check(
            "[[group]]\nname = \"a\"\n",
            "p.toml:2:8: group \"a\" has neither count nor weight: say how many of them there are",
        );
        check(
            "[[group]]\nname = \"a\"\nweight = 0.0\n",
            "p.toml:3:10: group.weight: must be greater than 0",
        );
        check(
            "[[group]]\nname = \"a\"\ncount = 1\nweight = 1.0\n",
            "p.toml:4:10: group.weight: a group has either a count or a weight, not both",
        );
        check(
            "[[group]]\nname = \"a\"\ncount = 1\n[[group]]\nname = \"a\"\ncount = 1\n",
            "p.toml:5:8: group.name: \"a\" is there twice",
        );
        check(
            "[[group]]\nname = \"a\"\nweight = 1.0\nidentifying = { \"x\" = \"{q}\" }\n",
            "p.toml:4:23: identifying.\"x\": unknown placeholder in \"{q}\": there are {n}, {i}, {n%4} and {i%4}",
        );
        check(
            "[[group]]\nname = \"a\"\nweight = 1.0\n[group.identifying]\nx = []\n",
            "p.toml:5:5: identifying.\"x\": the list is empty; its last text is for all that it does not name",
        );
        check(
            "[[group]]\nname = \"a\"\ncount = 4\n",
            "p.toml: the groups' counts are 4 in all, but --collectors is 10: give one of them a weight in place of its count",
        );
    }
}
