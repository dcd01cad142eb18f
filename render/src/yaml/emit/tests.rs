use proptest::prelude::*;

use super::*;
use crate::yaml::{Pos, Style, parse};

/// What the value of `k: <authored>` is written as.
#[track_caller]
fn check(authored: &str, expect: &str) {
    let source = format!("k: {authored}\n");
    let node = parse(source.as_bytes()).expect(authored);
    let written = emit(&Out::from_node(&node));
    assert_eq!(written, format!("k: {expect}\n"), "authored {authored}");
    let again = parse(written.as_bytes()).expect("what we write can be read");
    assert_eq!(Shape::of(&again), Shape::of(&node), "authored {authored}, written {written}");
}

/// Appendix B of estate.md, row by row. The third column is what the reference writes where ours
/// differs by decision 5; it is here to be read, so that a difference is a choice.
#[test]
fn scalars_of_appendix_b() {
    const SAME: &str = "";
    let rows: &[(&str, &str, &str)] = &[
        ("yes", "\"yes\"", SAME),
        ("'on'", "\"on\"", SAME),
        ("NO", "\"NO\"", SAME),
        ("n", "\"n\"", SAME),
        ("y", "\"y\"", SAME),
        ("true", "true", SAME),
        ("\"true\"", "\"true\"", SAME),
        ("010", "8", SAME),
        ("0x1F", "0x1F", "31"),
        ("0o17", "15", SAME),
        ("0b101", "5", SAME),
        ("1_000", "1000", SAME),
        ("+5", "+5", "5"),
        ("18446744073709551615", "18446744073709551615", SAME),
        ("18446744073709551616", "18446744073709551616", "1.8446744073709552e+19"),
        ("1e3", "1.0e+3", "1000"),
        (".5", ".5", "0.5"),
        ("1.0", "1.0", "1"),
        ("1.50", "1.50", "1.5"),
        ("123456789.123", "123456789.123", "1.23456789123e+08"),
        ("1e21", "1.0e+21", "1e+21"),
        ("0.0000001", "0.0000001", "1e-07"),
        (".inf", ".inf", SAME),
        ("-.INF", "-.INF", "-.inf"),
        (".nan", ".nan", SAME),
        ("2024-01-01", "\"2024-01-01\"", "2024-01-01T00:00:00Z"),
        ("\"2024-01-01\"", "\"2024-01-01\"", SAME),
        ("\"1e3\"", "\"1e3\"", SAME),
        ("\"0777\"", "\"0777\"", SAME),
        ("\"1_000\"", "\"1_000\"", SAME),
        ("12:30:45", "\"12:30:45\"", SAME),
        ("\"null\"", "\"null\"", SAME),
        ("\"~\"", "\"~\"", SAME),
        ("~", "null", SAME),
        ("", "null", SAME),
        ("\"a\\nb\"", "|-\n  a\n  b", SAME),
        ("\"a\\nb\\n\"", "|\n  a\n  b", SAME),
        ("\"a\\n\\n\"", "|+\n  a\n", SAME),
        ("\"  a\\nb\"", "|2-\n    a\n  b", SAME),
        ("\"\\n\"", "\"\\n\"", "\"\" (loses the newline)"),
        ("\"a\\rb\"", "\"a\\rb\"", SAME),
        ("\"a\\tb\"", "\"a\\tb\"", SAME),
        ("\"\\x07\"", "\"\\x07\"", "\"\\a\""),
        ("\"\u{1f600}\"", "\"\\U0001f600\"", SAME),
        ("'#c'", "'#c'", SAME),
        ("'- x'", "'- x'", SAME),
        ("'a: b'", "'a: b'", SAME),
        ("' a '", "' a '", SAME),
        ("'{'", "'{'", SAME),
        ("'[x'", "'[x'", SAME),
        ("'*a'", "'*a'", SAME),
        ("'&a'", "'&a'", SAME),
        ("'!a'", "'!a'", SAME),
        ("'%a'", "'%a'", SAME),
        ("'@a'", "'@a'", SAME),
        ("'`a'", "'`a'", SAME),
        ("{}", "{}", SAME),
        ("[]", "[]", SAME),
        ("!!binary aGVsbG8=", "hello", SAME),
        ("!x v", "v", SAME),
    ];
    for (authored, ours, reference) in rows {
        assert_ne!(ours, reference);
        check(authored, ours);
    }
}

#[test]
fn texts_that_need_no_quotes_have_none() {
    for text in [
        "0.0.0.0:4317",
        "https://telemetry.example.com:4318",
        "${env:TELECRAFT_NODE_NAME}",
        "^telecraft\\.",
        "attributes[\"url.path\"] == \"/healthz\"",
        "2ms",
        "1.2.3",
        "a#b",
        "a,b]",
        "é日本",
    ] {
        check(text, text);
    }
}

#[test]
fn texts_that_some_reader_takes_for_more_are_quoted() {
    for text in ["1,000", "-.5_0", "1:30", "190:20:30.15", "<<", "=", "Yes", "2024-1-1T0:0:0Z"] {
        let written = emit(&Out::mapping([("k", Out::text(text))]));
        assert_eq!(written, format!("k: \"{text}\"\n"));
    }
}

#[test]
fn floats_are_floats_to_a_reader_of_yaml_1_1_too() {
    check("-.5", "-0.5");
    check("1.5e3", "1.5e+3");
    check("1E-3", "1.0E-3");
    check("08", "8.0");
    check("-09", "-9.0");
    check("1_0.5", "10.5");
    check("!!float 1", "1.0");
    check("!!float 0x1F", "31.0");
    check("!!float 010", "8.0");
    check("1e999", "\"1e999\"");
}

#[test]
fn keys_are_sorted_by_what_is_written() {
    let authored = parse(b"{~: 1, zoo: 2, apple: 3}").unwrap();
    let written = emit(&Out::from_node(&authored));
    assert_eq!(written, "apple: 3\nnull: 1\nzoo: 2\n");
    let again = parse(written.as_bytes()).unwrap();
    assert_eq!(emit(&Out::from_node(&again)), written);
}

#[test]
fn keys_are_sorted_by_bytes_and_typed_below_the_top_only() {
    let source =
        "b: 1\n1: x\ntrue: y\nB:\n  2: x\n  true: z\n  10: w\na: {}\n\"a b\": [[1, {x: y}], []]\n";
    let node = parse(source.as_bytes()).expect("good YAML");
    let written = emit(&Out::from_config(&node));
    assert_eq!(
        written,
        "\"1\": x\nB:\n  10: w\n  2: x\n  true: z\na: {}\na b:\n  - - 1\n    - x: \"y\"\n  - []\nb: 1\n\"true\": \"y\"\n"
    );
}

#[test]
fn a_long_text_is_never_folded_and_a_long_key_stays_readable() {
    let long = "word ".repeat(1000) + "end";
    check(&long, &long);
    let key = "k".repeat(3000);
    let node = parse(format!("? {key}\n: [v]\n").as_bytes()).expect("good YAML");
    let written = emit(&Out::from_node(&node));
    let again = parse(written.as_bytes()).expect("what we write can be read");
    assert_eq!(Shape::of(&again), Shape::of(&node));
}

#[test]
fn keys_that_would_be_written_alike_are_found() {
    let find = |source: &str| {
        let node = parse(source.as_bytes()).expect("good YAML");
        colliding_key(&node).map(|key| key.at.line)
    };
    assert_eq!(find("a:\n  8: x\n  010: y\n"), Some(3));
    assert_eq!(find("a:\n  8: x\n  \"010\": y\n"), None);
    assert_eq!(find("8: x\n010: y\n"), None);
}

/// A node without positions and styles, keys sorted: what a document means.
#[derive(Debug, PartialEq)]
enum Shape {
    Scalar(Meaning),
    NotANumber,
    Sequence(Vec<Self>),
    Mapping(Vec<(String, Self, Self)>),
}

impl Shape {
    fn of(node: &Node) -> Self {
        match &node.value {
            Value::Scalar(scalar) => match meaning(scalar) {
                Meaning::Float(value) if value.is_nan() => Self::NotANumber,
                other => Self::Scalar(other),
            },
            Value::Sequence(items) => Self::Sequence(items.iter().map(Self::of).collect()),
            Value::Mapping(entries) => {
                let mut shapes: Vec<_> = entries
                    .iter()
                    .map(|(key, value)| {
                        let key = Self::of(key);
                        (format!("{key:?}"), key, Self::of(value))
                    })
                    .collect();
                shapes.sort_by(|a, b| a.0.cmp(&b.0));
                Self::Mapping(shapes)
            }
        }
    }
}

fn node(value: Value) -> Node {
    Node { value, at: Pos::default(), span: 0..0 }
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        // Texts near the edges of the grammar are worth more than random ones.
        proptest::string::string_regex("[-+.0-9eExXob_:~ ]{0,8}").expect("a good pattern"),
        proptest::string::string_regex("[ \\n#:a-]{0,12}").expect("a good pattern"),
        proptest::sample::select(vec![
            "yes", "NULL", "~", "", "---", "...", "? a", "{a: b}", "'", "\"", "\\", "\t", "\u{85}",
            "\u{2028}", "\u{feff}", "|", ">", "%TAG", "a\r\nb", " x", "x ", "-", "- a", "=", "<<",
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ]
}

fn any_scalar() -> impl Strategy<Value = Scalar> {
    let styles =
        [Style::Plain, Style::SingleQuoted, Style::DoubleQuoted, Style::Literal, Style::Folded];
    let tags = [None, None, None, Some("!!str"), Some("!!float"), Some("!!int"), Some("!x")];
    (any_text(), proptest::sample::select(styles.to_vec()), proptest::sample::select(tags.to_vec()))
        .prop_map(|(text, style, tag)| Scalar { text, style, tag: tag.map(str::to_owned) })
}

fn any_node() -> impl Strategy<Value = Node> {
    let leaf = any_scalar().prop_map(|scalar| node(Value::Scalar(scalar)));
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5)
                .prop_map(|items| node(Value::Sequence(items))),
            proptest::collection::vec((any_scalar(), inner), 0..5).prop_map(|entries| {
                let mut seen = std::collections::BTreeSet::new();
                let entries = entries
                    .into_iter()
                    .map(|(key, value)| (node(Value::Scalar(key)), value))
                    .filter(|(key, _)| seen.insert(format!("{:?}", Shape::of(key))))
                    .collect();
                node(Value::Mapping(entries))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_means_what_was_authored(authored in any_node()) {
        let written = emit(&Out::from_node(&authored));
        let read = parse(written.as_bytes());
        let read = match read {
            Ok(read) => read,
            Err(error) => return Err(TestCaseError::fail(format!("{error}\n{written}"))),
        };
        prop_assert_eq!(Shape::of(&read), Shape::of(&authored), "{}", written);
        prop_assert!(written.ends_with('\n'));
    }
}
