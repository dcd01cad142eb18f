//! A strict reader of the Prometheus text format.

use std::collections::BTreeMap;

/// Every series, as written, to its value.
///
/// Panics when a line is none of the format's, a family is told twice, or a sample belongs to no
/// `# TYPE` line before it.
pub(crate) fn parse(text: &str) -> BTreeMap<String, f64> {
    let mut types: BTreeMap<&str, &str> = BTreeMap::new();
    let mut series = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(types.insert(name, kind).is_none(), "{name} is told twice");
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        assert!(!line.starts_with('#'), "{line}");
        let (id, value) = line.rsplit_once(' ').unwrap();
        let name = id.split('{').next().unwrap();
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .filter_map(|suffix| name.strip_suffix(suffix))
            .find(|family| types.get(family) == Some(&"histogram"))
            .unwrap_or(name);
        assert!(types.contains_key(family), "{name} has no type");
        check_labels(&id[name.len()..]);
        assert!(series.insert(id.to_owned(), value.parse().unwrap()).is_none(), "{id} twice");
    }
    series
}

fn check_labels(labels: &str) {
    if labels.is_empty() {
        return;
    }
    let mut rest = labels.strip_prefix('{').unwrap().strip_suffix('}').unwrap();
    while !rest.is_empty() {
        let (name, value) = rest.split_once("=\"").unwrap();
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        let mut end = None;
        let mut escaped = false;
        for (at, c) in value.char_indices() {
            match c {
                _ if escaped => {
                    assert!("\\\"n".contains(c), "{value}");
                    escaped = false;
                }
                '\\' => escaped = true,
                '"' => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
        }
        rest = &value[end.unwrap() + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}
