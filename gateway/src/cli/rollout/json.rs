//! The API's JSON for people and programs: every moment in milliseconds has an RFC 3339 twin.

use serde_json::Value;

use render::rollout::words::moment;

/// Moments by the names that the API gives them; all other `…_ms` are spans.
const MOMENTS: [&str; 7] = [
    "now_ms",
    "evidence_since_ms",
    "stage_since_ms",
    "candidate_since_ms",
    "soak_since_ms",
    "braked_since_ms",
    "since_ms",
];

/// Adds `x_rfc3339` beside each moment `x_ms`, at any depth.
pub fn with_twins(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let twins: Vec<(String, Value)> = MOMENTS
                .iter()
                .filter_map(|name| {
                    let ms = fields.get(*name)?.as_u64()?;
                    let name = format!("{}_rfc3339", name.trim_end_matches("_ms"));
                    Some((name, moment(ms).into()))
                })
                .collect();
            fields.extend(twins);
            fields.values_mut().for_each(with_twins);
        }
        Value::Array(items) => items.iter_mut().for_each(with_twins),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `value` over several lines, ending in one.
pub fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn moments_get_a_twin_and_spans_do_not() {
        let mut value = json!({"times": {"now_ms": 951_782_400_000_u64, "candidate_since_ms": null},
            "halted": [{"since_ms": 0, "age_ms": 5}]});
        with_twins(&mut value);
        let expected = json!({
            "times": {"now_ms": 951_782_400_000_u64, "now_rfc3339": "2000-02-29T00:00:00Z",
                "candidate_since_ms": null},
            "halted": [{"since_ms": 0, "since_rfc3339": "1970-01-01T00:00:00Z", "age_ms": 5}]});
        assert_eq!(value, expected);
    }
}
