//! Reads a Catalogue's JSON: strict, every fault collected.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Catalogue, CatalogueComponent, Deprecation, Stability};
use crate::estate::Class;
use crate::policy::json::{Json, Level};
use crate::problem::{Problem, Spot};
use crate::yaml::Pos;

pub(super) struct Reader {
    file: Arc<str>,
    problems: Vec<Problem>,
}

/// The entries of one object by lower-case key, and where it is.
struct Fields<'d> {
    entries: BTreeMap<String, Json<'d>>,
    whole: Json<'d>,
    path: String,
}

impl Reader {
    /// Reads a whole Catalogue, or gives all that is wrong with it.
    pub(super) fn read(bytes: &[u8], file: &str) -> Result<Catalogue, Vec<Problem>> {
        let mut reader = Self { file: file.into(), problems: Vec::new() };
        match reader.document(bytes) {
            Some(catalogue) if reader.problems.is_empty() => Ok(catalogue),
            Some(_) | None => Err(reader.problems),
        }
    }

    fn document(&mut self, bytes: &[u8]) -> Option<Catalogue> {
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
            Err(error) => {
                let line = bytes[..error.valid_up_to()].iter().filter(|b| **b == b'\n').count() + 1;
                let at = Pos { line: u32::try_from(line).unwrap_or(u32::MAX), column: 1 };
                self.say("is not UTF-8", at, "", "save the file as UTF-8");
                return None;
            }
        };
        let root = match Json::parse(text) {
            Ok(root) => root,
            Err(error) => {
                let help = "import the catalogue again, or mend the file by hand";
                self.say(&format!("is not JSON: {}", error.text), error.at, "", help);
                return None;
            }
        };
        let fields = self.object(root, "", &["format_version", "source", "components"])?;
        match fields.entries.get("format_version") {
            None => self.missing(&fields, "format_version"),
            Some(version) => match version.level() {
                Ok(Level::Other("1")) => {}
                Ok(Level::Other(_) | Level::String(_) | Level::Object(_) | Level::Array(_))
                | Err(_) => self.say(
                    "has a format_version that is not the integer 1",
                    version.at(),
                    "format_version",
                    "import the catalogue with a tool that writes format 1",
                ),
            },
        }
        let (repository, reference, commit) = self.source(&fields);
        let components = self.components(&fields);
        let (components, by_type) = self.index(components);
        Some(Catalogue { repository, reference, commit, components, by_type })
    }

    fn source(&mut self, root: &Fields<'_>) -> (String, String, Option<String>) {
        let Some(source) = root.entries.get("source") else {
            self.missing(root, "source");
            return Default::default();
        };
        let known = ["repository", "ref", "commit"];
        let Some(fields) = self.object(*source, "source", &known) else {
            return Default::default();
        };
        let repository = self.required_text(&fields, "repository");
        let reference = self.required_text(&fields, "ref");
        let commit = self.text(&fields, "commit").filter(|commit| !commit.is_empty());
        (repository, reference, commit)
    }

    fn components<'d>(&mut self, root: &Fields<'d>) -> Vec<(CatalogueComponent, Json<'d>, String)> {
        let items = match root.entries.get("components") {
            None => {
                self.missing(root, "components");
                return Vec::new();
            }
            Some(components) => match components.level() {
                Ok(Level::Array(items)) if items.is_empty() => {
                    let help = "list at least one component";
                    self.say("has no components", components.at(), "components", help);
                    return Vec::new();
                }
                Ok(Level::Array(items)) => items,
                Ok(Level::Object(_) | Level::String(_) | Level::Other(_)) | Err(_) => {
                    self.wrong_type(*components, "components", "a list");
                    return Vec::new();
                }
            },
        };
        let mut read = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            let path = format!("components[{index}]");
            if let Some(component) = self.component(item, &path) {
                read.push((component, item, path));
            }
        }
        read
    }

    fn component(&mut self, item: Json<'_>, path: &str) -> Option<CatalogueComponent> {
        let known = [
            "class",
            "type",
            "deprecated_type",
            "module",
            "display_name",
            "description",
            "stability",
            "deprecation",
        ];
        let fields = self.object(item, path, &known)?;
        let class_text = self.required_text(&fields, "class");
        let class = Class::parse(&class_text);
        if class.is_none() && !class_text.is_empty() {
            let classes = Class::ALL.map(Class::as_str).join(", ");
            self.say_at(
                &format!("has a component of class {class_text:?}"),
                &fields,
                "class",
                &format!("use one of {classes}"),
            );
        }
        let kind = self.required_text(&fields, "type");
        let module = self.required_text(&fields, "module");
        let deprecated_type = self.text(&fields, "deprecated_type").filter(|t| !t.is_empty());
        if deprecated_type.as_ref() == Some(&kind) {
            self.say_at(
                &format!("gives {class_text}/{kind} its own type as deprecated_type"),
                &fields,
                "deprecated_type",
                "leave the alias out",
            );
        }
        let stability = self.stability(&fields);
        let deprecation = self.deprecation(&fields, &stability);
        let display_name = self.text(&fields, "display_name").unwrap_or_default();
        let description = self.text(&fields, "description").unwrap_or_default();
        Some(CatalogueComponent {
            class: class?,
            kind,
            deprecated_type,
            module,
            display_name,
            description,
            stability,
            deprecation,
        })
    }

    fn stability(&mut self, component: &Fields<'_>) -> BTreeMap<String, Stability> {
        let mut levels = BTreeMap::new();
        let Some(stability) = component.entries.get("stability") else {
            self.missing(component, "stability");
            return levels;
        };
        let path = format!("{}.stability", component.path);
        let Some(entries) = self.entries(*stability, &path) else { return levels };
        if entries.is_empty() {
            let help = "give at least one signal and its level";
            self.say("has a component without stability", stability.at(), &path, help);
        }
        for (signal, value) in entries {
            let here = format!("{path}.{signal}");
            if signal.is_empty() {
                let help = "name the signal, such as traces";
                self.say("has a stability without a signal name", value.at(), &path, help);
                continue;
            }
            let Some(level) = self.string(value, &here) else { continue };
            match Stability::ALL.into_iter().find(|known| known.as_str() == level) {
                Some(level) => {
                    levels.insert(signal, level);
                }
                None => {
                    let known = Stability::ALL.map(Stability::as_str).join(", ");
                    self.say(
                        &format!("has an unknown stability level {level:?}"),
                        value.at(),
                        &here,
                        &format!("use one of {known}"),
                    );
                }
            }
        }
        levels
    }

    fn deprecation(
        &mut self,
        component: &Fields<'_>,
        stability: &BTreeMap<String, Stability>,
    ) -> BTreeMap<String, Deprecation> {
        let mut notices = BTreeMap::new();
        let path = format!("{}.deprecation", component.path);
        let entries = match component.entries.get("deprecation") {
            Some(deprecation) if !is_null(*deprecation) => self.entries(*deprecation, &path),
            Some(_) | None => None,
        };
        for (signal, value) in entries.unwrap_or_default() {
            let here = format!("{path}.{signal}");
            let Some(fields) = self.object(value, &here, &["date", "migration"]) else {
                continue;
            };
            if stability.get(&signal) != Some(&Stability::Deprecated) {
                let help = "remove the notice, or give the signal the level deprecated";
                let text =
                    format!("has a deprecation notice for {signal:?}, which is not deprecated");
                self.say(&text, value.at(), &here, help);
            }
            let date = self.text(&fields, "date").unwrap_or_default();
            let migration = self.required_text(&fields, "migration");
            notices.insert(signal, Deprecation { date, migration });
        }
        for (signal, level) in stability {
            if *level == Stability::Deprecated && !notices.contains_key(signal) {
                self.say(
                    &format!("deprecates {signal} without a notice"),
                    component.whole.at(),
                    &path,
                    "add a notice with a migration under deprecation",
                );
            }
        }
        notices
    }

    fn index(
        &mut self,
        mut read: Vec<(CatalogueComponent, Json<'_>, String)>,
    ) -> (Vec<CatalogueComponent>, BTreeMap<Class, BTreeMap<String, usize>>) {
        read.sort_by(|(a, ..), (b, ..)| {
            (a.class.as_str(), &a.kind).cmp(&(b.class.as_str(), &b.kind))
        });
        let mut by_type: BTreeMap<Class, BTreeMap<String, usize>> = BTreeMap::new();
        for (index, (component, whole, path)) in read.iter().enumerate() {
            let types = by_type.entry(component.class).or_default();
            if types.contains_key(&component.kind) {
                let text = format!("lists {}/{} twice", component.class, component.kind);
                self.say(&text, whole.at(), path, "keep one of the two");
            } else {
                types.insert(component.kind.clone(), index);
            }
        }
        let real = by_type.clone();
        for (index, (component, whole, path)) in read.iter().enumerate() {
            let Some(alias) = &component.deprecated_type else { continue };
            if *alias == component.kind {
                continue;
            }
            let whose = format!("{}/{}", component.class, component.kind);
            let types = by_type.entry(component.class).or_default();
            if real.get(&component.class).is_some_and(|types| types.contains_key(alias)) {
                let text = format!("gives {whose} the alias {alias:?}, which is a type of its own");
                self.say(
                    &text,
                    whole.at(),
                    &format!("{path}.deprecated_type"),
                    "leave the alias out",
                );
            } else if let Some(first) = types.insert(alias.clone(), index) {
                let first = &read[first].0;
                let text = format!(
                    "gives the alias {alias:?} to {whose} and to {}/{}",
                    first.class, first.kind
                );
                self.say(
                    &text,
                    whole.at(),
                    &format!("{path}.deprecated_type"),
                    "keep one of the two",
                );
            }
        }
        (read.into_iter().map(|(component, _, _)| component).collect(), by_type)
    }

    /// The entries of an object with a closed set of keys.
    fn object<'d>(&mut self, value: Json<'d>, path: &str, known: &[&str]) -> Option<Fields<'d>> {
        let mut entries = BTreeMap::new();
        for (key, child) in self.pairs(value, path)? {
            let lower = key.to_lowercase();
            if known.contains(&lower.as_str()) {
                entries.insert(lower, child);
            } else {
                let here = join(path, &key);
                let help = format!("remove it; the keys here are {}", known.join(", "));
                self.say(&format!("has an unknown field {key:?}"), child.at(), &here, &help);
            }
        }
        Some(Fields { entries, whole: value, path: path.to_owned() })
    }

    /// The entries of any object; of a repeated key the last one.
    fn entries<'d>(&mut self, value: Json<'d>, path: &str) -> Option<BTreeMap<String, Json<'d>>> {
        Some(self.pairs(value, path)?.into_iter().collect())
    }

    fn pairs<'d>(&mut self, value: Json<'d>, path: &str) -> Option<Vec<(String, Json<'d>)>> {
        match value.level() {
            Ok(Level::Object(entries)) => Some(entries),
            Ok(Level::Array(_) | Level::String(_) | Level::Other(_)) | Err(_) => {
                self.wrong_type(value, path, "an object");
                None
            }
        }
    }

    /// An optional text; null counts as absent.
    fn text(&mut self, fields: &Fields<'_>, key: &str) -> Option<String> {
        let value = *fields.entries.get(key)?;
        if is_null(value) {
            return None;
        }
        self.string(value, &join(&fields.path, key))
    }

    /// A text that must be there and not empty; empty when it is not (and said so).
    fn required_text(&mut self, fields: &Fields<'_>, key: &str) -> String {
        match fields.entries.get(key) {
            None => {
                self.missing(fields, key);
                String::new()
            }
            Some(_) => {
                let before = self.problems.len();
                let text = self.text(fields, key).unwrap_or_default();
                if text.is_empty() && self.problems.len() == before {
                    self.say_at(&format!("has an empty {key}"), fields, key, "fill it in");
                }
                text
            }
        }
    }

    fn string(&mut self, value: Json<'_>, path: &str) -> Option<String> {
        match value.level() {
            Ok(Level::String(text)) => Some(text),
            Ok(Level::Object(_) | Level::Array(_) | Level::Other(_)) | Err(_) => {
                self.wrong_type(value, path, "a string");
                None
            }
        }
    }

    fn wrong_type(&mut self, value: Json<'_>, path: &str, want: &str) {
        let what = match value.level() {
            Ok(Level::Object(_)) => "an object",
            Ok(Level::Array(_)) => "a list",
            Ok(Level::String(_)) => "a string",
            Ok(Level::Other(_)) => "a number, a boolean or null",
            Err(_) => "not valid",
        };
        let name = if path.is_empty() { "the document" } else { path };
        self.say(
            &format!("wants {want} at {name}, which is {what}"),
            value.at(),
            path,
            &format!("write {want}"),
        );
    }

    fn missing(&mut self, fields: &Fields<'_>, key: &str) {
        let text = if fields.path.is_empty() {
            format!("has no {key}")
        } else {
            format!("has no {key} in {}", fields.path)
        };
        self.say(&text, fields.whole.at(), &join(&fields.path, key), &format!("add {key}"));
    }

    fn say_at(&mut self, text: &str, fields: &Fields<'_>, key: &str, help: &str) {
        let at = fields.entries.get(key).copied().unwrap_or(fields.whole).at();
        self.say(text, at, &join(&fields.path, key), help);
    }

    fn say(&mut self, text: &str, at: Pos, path: &str, help: &str) {
        self.problems.push(Problem {
            text: format!("{}: {text}", self.file),
            spot: Some(Spot { file: self.file.clone(), pos: Some(at), path: path.to_owned() }),
            help: help.to_owned(),
        });
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn is_null(value: Json<'_>) -> bool {
    matches!(value.level(), Ok(Level::Other("null")))
}
