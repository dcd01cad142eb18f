//! Which artefact a collector runs, from what it reports (rollouts.md, "Foreign path").
//!
//! An APPLIED acknowledgement names it. Where there is none, the wiring of the pipelines that it
//! reports is compared with that of both artefacts: names, and the order of components in each
//! list. What the components are configured to do is not compared, so a candidate that changes
//! settings only cannot be told from its base this way.

use xxhash_rust::xxh3::Xxh3;

use super::evidence::Reading;
use crate::yaml::{self, Node, Value, YamlErrorKind};

/// Bytes of a reported configuration that are read for its wiring; a longer one is not read.
/// Collectors report 2 to 50 kB.
pub const WIRING_BYTES_MAX: usize = 256 * 1024;

/// The lists of a pipeline, in the order in which they are hashed.
const LISTS: [&str; 3] = ["receivers", "processors", "exporters"];

/// The pipelines of a configuration, by digest: equal where each pipeline has the same name and the
/// same components in the same order. The order of pipelines says nothing, and neither does the
/// difference between an empty list and none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wiring(u128);

/// One of the two artefacts that a collector may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side<'a> {
    /// What an APPLIED for it names; compared as it is.
    pub hash: &'a [u8],
    /// `None` when it cannot be read.
    pub wiring: Option<Wiring>,
}

impl Wiring {
    /// Reads a configuration, YAML or JSON. One without pipelines has none of them. `None` when it
    /// cannot be read: longer than [`WIRING_BYTES_MAX`], refused by the parser (also for its depth
    /// or its aliases), more than one document, or a pipeline that is no pipeline.
    pub fn of(config: &[u8]) -> Option<Self> {
        if config.len() > WIRING_BYTES_MAX {
            return None;
        }
        let root = match yaml::parse(config) {
            Ok(root) => root,
            Err(error) if error.kind == YamlErrorKind::Empty => {
                return Some(Self::of_pipelines(&mut []));
            }
            Err(_) => return None,
        };
        let pipelines = root.get("service").and_then(|service| service.get("pipelines"));
        let Some(pipelines) = pipelines.filter(|pipelines| !pipelines.is_null()) else {
            return Some(Self::of_pipelines(&mut []));
        };
        let Value::Mapping(entries) = &pipelines.value else { return None };
        let mut known = Vec::with_capacity(entries.len());
        for (name, body) in entries {
            let mut lists: [&[Node]; 3] = [&[]; 3];
            for (list, name) in lists.iter_mut().zip(LISTS) {
                *list = components(body, name)?;
            }
            known.push((name.as_scalar()?.text.as_str(), lists));
        }
        Some(Self::of_pipelines(&mut known))
    }

    /// Reads an effective configuration of several files, name and body: exactly one that is not
    /// blank, since nobody can say how a collector merges several.
    pub fn of_files<'f>(files: impl IntoIterator<Item = (&'f str, &'f [u8])>) -> Option<Self> {
        let is_blank = |body: &[u8]| body.iter().all(u8::is_ascii_whitespace);
        let mut bodies = files.into_iter().map(|(_, body)| body).filter(|body| !is_blank(body));
        match (bodies.next(), bodies.next()) {
            (Some(body), None) => Self::of(body),
            _ => None,
        }
    }

    fn of_pipelines(pipelines: &mut [(&str, [&[Node]; 3])]) -> Self {
        pipelines.sort_unstable_by_key(|(name, _)| *name);
        let mut hasher = Xxh3::new();
        for (name, lists) in pipelines {
            put(&mut hasher, name);
            for list in lists {
                hasher.update(&(list.len() as u64).to_le_bytes());
                for component in *list {
                    put(&mut hasher, component.as_scalar().map_or("", |name| name.text.as_str()));
                }
            }
        }
        Self(hasher.digest128())
    }
}

/// A text behind its length, so that no two wirings hash the same bytes.
fn put(hasher: &mut Xxh3, text: &str) {
    hasher.update(&(text.len() as u64).to_le_bytes());
    hasher.update(text.as_bytes());
}

/// A list of a pipeline; `None` when it is no list of names.
fn components<'n>(pipeline: &'n Node, list: &str) -> Option<&'n [Node]> {
    if pipeline.is_null() {
        return Some(&[]);
    }
    if !matches!(pipeline.value, Value::Mapping(_)) {
        return None;
    }
    match pipeline.get(list) {
        None => Some(&[]),
        Some(null) if null.is_null() => Some(&[]),
        Some(Node { value: Value::Sequence(names), .. }) => {
            names.iter().all(|name| name.as_scalar().is_some()).then_some(names)
        }
        Some(_) => None,
    }
}

/// Which of the two a collector runs.
///
/// `applied` is the hash that an APPLIED names, `None` for any other status: the hash of a FAILED
/// names what was refused, and APPLYING is not there yet. `effective` is the wiring that it
/// reports, `None` when it reports none or none that can be read. Wiring that both share tells
/// nothing, so it reads [`Reading::Unknown`].
pub fn running(
    applied: Option<&[u8]>,
    effective: Option<Wiring>,
    from: Side<'_>,
    to: Side<'_>,
) -> Reading {
    match applied.filter(|hash| !hash.is_empty()) {
        Some(hash) if hash == to.hash => return Reading::To,
        Some(hash) if hash == from.hash => return Reading::From,
        Some(_) | None => {}
    }
    let (Some(effective), Some(from), Some(to)) = (effective, from.wiring, to.wiring) else {
        return Reading::Unknown;
    };
    match (effective == from, effective == to) {
        (true, true) => Reading::Unknown,
        (false, true) => Reading::To,
        (true, false) => Reading::From,
        (false, false) => Reading::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: &str = "\
service:
  pipelines:
    traces: {receivers: [otlp], processors: [batch, memory], exporters: [out]}
    logs: {receivers: [otlp], exporters: [out]}
";
    const TO: &str = "\
service:
  pipelines:
    traces: {receivers: [otlp], processors: [memory, batch], exporters: [out]}
    logs: {receivers: [otlp], exporters: [out]}
";

    fn wiring(text: &str) -> Option<Wiring> {
        Wiring::of(text.as_bytes())
    }

    fn read(applied: Option<&[u8]>, effective: Option<&str>) -> Reading {
        let from = Side { hash: b"from", wiring: wiring(FROM) };
        let to = Side { hash: b"to", wiring: wiring(TO) };
        running(applied, effective.and_then(wiring), from, to)
    }

    #[test]
    fn f01_an_applied_hash_names_it_and_wiring_does_where_there_is_none() {
        assert_eq!(read(Some(b"to"), None), Reading::To);
        assert_eq!(read(Some(b"from"), None), Reading::From);
        assert_eq!(read(Some(b"from"), Some(TO)), Reading::From, "whatever the wiring says");
        assert_eq!(read(None, Some(TO)), Reading::To);
        assert_eq!(read(None, Some(FROM)), Reading::From);
        assert_eq!(read(None, Some("service: {}")), Reading::Other);
        assert_eq!(read(None, None), Reading::Unknown);
        let same = Side { hash: b"from", wiring: wiring(FROM) };
        let both = running(None, wiring(FROM), same, Side { hash: b"to", ..same });
        assert_eq!(both, Reading::Unknown, "shared wiring distinguishes nothing");
        let neither = running(None, wiring(TO), same, Side { hash: b"to", ..same });
        assert_eq!(neither, Reading::Other);
    }

    #[test]
    fn f03_an_applied_hash_that_is_neither_leaves_it_to_the_wiring() {
        assert_eq!(read(Some(b"another"), Some(TO)), Reading::To);
        assert_eq!(read(Some(b"another"), None), Reading::Unknown);
        assert_eq!(read(Some(b""), Some(FROM)), Reading::From);
    }

    #[test]
    fn f05_the_order_in_a_list_counts_and_that_of_pipelines_does_not() {
        assert_ne!(wiring(FROM), wiring(TO));
        let reordered = "\
service:
  pipelines:
    logs: {exporters: [out], processors: [], receivers: [otlp]}
    traces:
      receivers: [otlp]
      processors: [batch, memory]
      exporters: [out]
";
        assert_eq!(wiring(FROM), wiring(reordered));
        let extra = format!("{FROM}    metrics: {{receivers: [otlp], exporters: [out]}}\n");
        assert_ne!(wiring(FROM), wiring(&extra));
        let named = FROM.replace("traces:", "traces/2:");
        assert_ne!(wiring(FROM), wiring(&named));
    }

    #[test]
    fn an_empty_list_a_null_and_none_are_the_same() {
        let texts = [
            "service: {pipelines: {traces: {receivers: [a], processors: [], exporters: [b]}}}",
            "service: {pipelines: {traces: {receivers: [a], processors: ~, exporters: [b]}}}",
            "service: {pipelines: {traces: {receivers: [a], exporters: [b]}}}",
            r#"{"service": {"pipelines": {"traces": {"receivers": ["a"], "exporters": ["b"]}}}}"#,
            "x: &a [a]\nservice: {pipelines: {traces: {receivers: *a, exporters: [b]}}}",
        ];
        for text in texts {
            assert_eq!(wiring(text), wiring(texts[0]), "{text}");
            assert!(wiring(text).is_some());
        }
        let none =
            ["# nothing\n", "{}", "service:\n", "service: {pipelines: }", "receivers: {a: }"];
        for text in none {
            assert_eq!(wiring(text), wiring("service: {pipelines: {}}"), "{text}");
            assert!(wiring(text).is_some());
        }
        assert_ne!(wiring("service: {pipelines: {traces: }}"), wiring("{}"));
    }

    #[test]
    fn a_component_moved_to_another_list_is_another_wiring() {
        let one = "service: {pipelines: {traces: {receivers: [a, b], exporters: [c]}}}";
        let other =
            "service: {pipelines: {traces: {receivers: [a], processors: [b], exporters: [c]}}}";
        assert_ne!(wiring(one), wiring(other));
    }

    #[test]
    fn what_cannot_be_read_is_unknown() {
        let deep = format!("a: {}1{}", "[".repeat(80), "]".repeat(80));
        let mut laughs = "l0: &l0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..8 {
            let before = vec![format!("*l{}", n - 1); 10].join(", ");
            laughs.push_str(&format!("l{n}: &l{n} [{before}]\n"));
        }
        let long = format!("# {}\n{FROM}", "x".repeat(WIRING_BYTES_MAX));
        let texts = [
            &deep,
            &laughs,
            &long,
            "a: 1\na: 2\n",
            "a: 1\n---\nb: 2\n",
            "service: {pipelines: [traces]}",
            "service: {pipelines: {traces: {receivers: otlp}}}",
            "service: {pipelines: {traces: {receivers: [{otlp: 1}]}}}",
            "service: {pipelines: {traces: otlp}}",
            "{",
        ];
        for text in texts {
            assert_eq!(wiring(text), None, "{}", &text[..text.len().min(60)]);
        }
        assert_eq!(Wiring::of(b"\xff\xfe"), None);
    }

    #[test]
    fn d15_exactly_one_file_that_is_not_blank() {
        let of = |files: &[(&'static str, &'static str)]| {
            Wiring::of_files(files.iter().map(|(name, body)| (*name, body.as_bytes())))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("", " \n")]), None);
        assert_eq!(of(&[("a", FROM), ("b", FROM)]), None);
        assert_eq!(of(&[("a", "\n"), ("b", FROM)]), wiring(FROM));
        assert_eq!(of(&[("", FROM)]), wiring(FROM));
    }
}
