use proptest::prelude::*;

use super::*;

#[track_caller]
fn check(before: &str, after: &str) {
    let edited =
        set(before.as_bytes(), "stage", "2", "to").map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(edited.as_deref(), Ok(after), "{before:?}");
}

#[track_caller]
fn refused(before: &str, line: u32) {
    match set(before.as_bytes(), "stage", "2", "to") {
        Err(EditError::NotInPlace { line: told, .. }) => assert_eq!(told, line, "{before:?}"),
        other => panic!("{before:?}: {other:?}"),
    }
}

#[test]
fn only_the_value_changes_however_it_is_written() {
    check("to: b\nstage: 1\nstages: []\n", "to: b\nstage: 2\nstages: []\n");
    check("# a\n\nstage:   1   # why\n\nto: b", "# a\n\nstage:   2   # why\n\nto: b");
    check("stage: '1'\r\nto: b\r\n", "stage: '2'\r\nto: b\r\n");
    check("\"stage\": \"1\"\n", "\"stage\": \"2\"\n");
    check("{to: b, stage: 1, stages: [{soak: 1h}]}\n", "{to: b, stage: 2, stages: [{soak: 1h}]}\n");
    check("{\"to\":\"b\",\"stage\":1}", "{\"to\":\"b\",\"stage\":2}");
    check("stage: !!int 1\n", "stage: !!int 2\n");
    check("stage: &s 1 # nobody uses it\n", "stage: &s 2 # nobody uses it\n");
    check("stage: >-\n  1\nto: b\n", "stage: >-\n  2\nto: b\n");
    check("stage:\n  1\nto: b\n", "stage:\n  2\nto: b\n");
    check("\u{feff}stage: 1\nto: b\n", "\u{feff}stage: 2\nto: b\n");
    check("---\nstage: 1\n...\n", "---\nstage: 2\n...\n");
    check("stage: ~\n", "stage: 2\n");
    check("? stage\n: 1\n", "? stage\n: 2\n");
    check("note: é日本\nstage: 1 # é\n", "note: é日本\nstage: 2 # é\n");
}

#[test]
fn a_key_without_a_value_is_given_one() {
    check("to: b\nstage:\nstages: []\n", "to: b\nstage: 2\nstages: []\n");
    check("stage: # the first\nto: b\n", "stage: 2 # the first\nto: b\n");
    check("{stage: , to: b}\n", "{stage: 2 , to: b}\n");
    check("stage:", "stage: 2");
}

#[test]
fn a_missing_key_is_inserted_behind_the_candidate() {
    check("from: a\nto: b\nstages: []\n", "from: a\nto: b\nstage: 2\nstages: []\n");
    check("to: b # c\r\nstages: []\r\n", "to: b # c\r\nstage: 2\r\nstages: []\r\n");
    check("  to: b\n  from: a\n", "  to: b\n  stage: 2\n  from: a\n");
    check("from: a\nto: b", "from: a\nto: b\nstage: 2");
    check("from: a\r\nto: b", "from: a\r\nto: b\r\nstage: 2");
    check("to: >-\n  b\nfrom: a\n", "to: >-\n  b\nstage: 2\nfrom: a\n");
    check("a: &x b\nto: *x\nfrom: c\n", "a: &x b\nto: *x\nstage: 2\nfrom: c\n");
    check("{from: a, to: b}\n", "{from: a, to: b, stage: 2}\n");
    check("{\"to\": \"b\", \"from\": \"a\"}", "{\"to\": \"b\", \"stage\": 2, \"from\": \"a\"}");
    check("\u{feff}to: b\n", "\u{feff}to: b\nstage: 2\n");
}

#[test]
fn a_value_that_is_written_elsewhere_is_left_to_a_person() {
    refused("x: &s 1\nstage: *s\nto: b\n", 2);
    refused("to: b\nstage: &s 1\nother: *s\n", 2);
    refused("base: &b\n  stage: 1\n<<: *b\nto: c\n", 2);
    refused("stage: [1]\n", 1);
    refused("stage: |\n  1\n  2\n", 2);
    refused("a: &x b\nm: {to: *x}\n? to\n: *x\n", 3);
}

#[test]
fn a_document_without_a_place_for_it_is_refused() {
    let no_place = Err(EditError::NoPlace { key: "stage".to_owned() });
    assert_eq!(set(b"from: a\n", "stage", "2", "to"), no_place);
    assert_eq!(set(b"[]\n", "stage", "2", "to"), no_place);
    assert!(matches!(set(b"", "stage", "2", "to"), Err(EditError::Yaml { .. })));
}

fn line_ends() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("\n"), Just("\r\n")]
}

/// Lines of a Rollout that say nothing of the stage.
fn other_line() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("   ".to_owned()),
        "# [ -~é]{0,20}",
        Just("owner: 'o''o' # quoted".to_owned()),
        Just("hash_attributes: [ service.instance.id ]".to_owned()),
        Just("halt: {abort_at_percent: 10, dark_after: \"90s\"} # 'stage: 7'".to_owned()),
    ]
}

fn stage_line() -> impl Strategy<Value = (String, String)> {
    let style = prop_oneof![Just(""), Just("'"), Just("\"")];
    let trail = prop_oneof![Just(""), Just("  "), Just(" # why: stage: 9")];
    (style, " {0,3}", " {1,3}", trail, 0..9_u32).prop_map(|(quote, before, gap, trail, old)| {
        let line = |n: String| format!("stage{before}:{gap}{quote}{n}{quote}{trail}");
        (line(old.to_string()), line("2".to_owned()))
    })
}

proptest! {
    /// Whatever stands around it, every byte but those of the value stays.
    #[test]
    fn every_other_byte_stays(
        end in line_ends(),
        before in prop::collection::vec(other_line(), 0..4),
        (old, new) in stage_line(),
        last in any::<bool>(),
    ) {
        // Duplicate keys are no document.
        let mut seen = std::collections::BTreeSet::new();
        let lines: Vec<String> = before
            .into_iter()
            .filter(|line| line.trim().is_empty() || line.starts_with('#') || seen.insert(line.clone()))
            .collect();
        let text = |stage: &str| {
            let mut all = lines.clone();
            all.insert(0, "from: x/a@1".to_owned());
            all.push(stage.to_owned());
            all.push("to: x/b@1".to_owned());
            let mut text = all.join(end);
            if last { text.push_str(end); }
            text
        };
        let edited = set(text(&old).as_bytes(), "stage", "2", "to").map(|b| String::from_utf8(b).unwrap());
        prop_assert_eq!(edited, Ok(text(&new)));
    }

    /// Any text at all: an edit, or an error; what is edited means the same but for one field.
    #[test]
    fn nothing_else_ever_changes_its_meaning(text in "(stage|to|a|&x|\\*x|<<|:|,|-|\\{|\\}|\\[|\\]|'|\"|\\||>|#|1| |  |\n|\r\n){0,24}") {
        if let Ok(edited) = set(text.as_bytes(), "stage", "2", "to") {
            let before = parse(text.as_bytes()).unwrap();
            prop_assert!(differs_only_in(&before, &edited, "stage", "2"));
            let line_count = |bytes: &[u8]| bytes.iter().filter(|b| **b == b'\n').count();
            prop_assert!(line_count(&edited) - line_count(text.as_bytes()) <= 1);
        }
    }
}
