use proptest::prelude::*;

use super::*;

/// A flat picture of a node: `{a:1,b:[x,"y"]}`; a plain scalar bare, others quoted.
fn picture(node: &Node) -> String {
    match &node.value {
        Value::Scalar(scalar) => {
            let tag = scalar.tag.as_ref().map(|tag| format!("{tag} ")).unwrap_or_default();
            match scalar.style {
                Style::Plain => format!("{tag}{}", scalar.text),
                _ => format!("{tag}{:?}", scalar.text),
            }
        }
        Value::Sequence(items) => {
            format!("[{}]", items.iter().map(picture).collect::<Vec<_>>().join(","))
        }
        Value::Mapping(entries) => {
            let entries: Vec<_> =
                entries.iter().map(|(k, v)| format!("{}:{}", picture(k), picture(v))).collect();
            format!("{{{}}}", entries.join(","))
        }
    }
}

fn check(source: &str, expected: &str) {
    let actual = match parse(source.as_bytes()) {
        Ok(node) => picture(&node),
        Err(YamlError { kind, at: Some(at) }) => format!("{}:{}: {kind}", at.line, at.column),
        Err(YamlError { kind, at: None }) => kind.to_string(),
    };
    assert_eq!(actual, expected, "of {source:?}");
}

#[test]
fn documents_keep_text_style_and_tag() {
    check("a: 1.50\nb: '1'\nc: \"x\\ny\"\nd: |\n  t\n", "{a:1.50,b:\"1\",c:\"x\\ny\",d:\"t\\n\"}");
    check("a: !!binary aGk=\nb: !custom v\nc: ! 1\n", "{a:!!binary aGk=,b:!custom v,c:! 1}");
    check("[a, {b: c}]", "[a,{b:c}]");
}

#[test]
fn one_document_no_less_no_more() {
    check("", "empty file");
    check("# only\n\n# comments\n", "empty file");
    check("---\n", "");
    check("~\n", "~");
    check("a: 1\n...\n", "{a:1}");
    check("---\na: 1\n", "{a:1}");
    check("a: 1\n---\nb: 2\n", "2:1: more than one document, expected the end of the file");
    check("a: 1\n---\n", "2:1: more than one document, expected the end of the file");
    check("a: 1\n---\n{[\n", "2:1: more than one document, expected the end of the file");
    check("a: 1\n---\n\tx: y: z\n", "2:1: more than one document, expected the end of the file");
    check("a: 1\n...\n]\n", "3:1: more than one document, expected the end of the file");
}

#[test]
fn bom_and_crlf_are_fine() {
    check("\u{feff}a: 1\r\nb:\r\n  - x\r\n", "{a:1,b:[x]}");
    check("\u{feff}a: 1\n a: 2\n", "2:3: mapping values are not allowed in this context");
    let node = parse("\u{feff}key: v\n".as_bytes()).unwrap();
    let Value::Mapping(entries) = &node.value else { panic!("a mapping") };
    assert_eq!(&"\u{feff}key: v\n"[entries[0].1.span.clone()], "v");
    assert_eq!(entries[0].0.at, Pos { line: 1, column: 1 });
}

#[test]
fn spans_cut_out_what_was_written() {
    let source = "é: [ä, 'b c']\nstage: 1 # why\n";
    let node = parse(source.as_bytes()).unwrap();
    let Value::Mapping(entries) = &node.value else { panic!("a mapping") };
    assert_eq!(&source[entries[1].1.span.clone()], "1");
    assert_eq!(entries[1].1.at, Pos { line: 2, column: 8 });
    assert_eq!(&source[entries[0].1.span.clone()], "[ä, 'b c']");
}

#[test]
fn what_is_not_text_is_refused_with_its_place() {
    assert_eq!(
        parse(b"a: 1\nb: \xff\n"),
        Err(YamlError { kind: YamlErrorKind::NotUtf8, at: Some(Pos { line: 2, column: 4 }) })
    );
    check("a: 1\nb: x\0y\nc: 2\n", "2:5: character U+0000 is not allowed");
    check("a: \u{1b}[0m\n", "1:4: character U+001B is not allowed");
}

#[test]
fn tabs_do_not_indent() {
    check("a:\n\tb: 1\n", "2:2: tabs disallowed within this context (block indentation)");
    check("a:\tb\n", "{a:b}");
}

#[test]
fn duplicate_keys_are_refused_at_any_depth() {
    check("a: 1\nb: 2\na: 3\n", "3:1: duplicate key \"a\", first given on line 1");
    check("a: {b: [{c: 1, 'c': 2}]}\n", "1:16: duplicate key \"c\", first given on line 1");
    check("~: 1\nnull: 2\n", "2:1: duplicate key \"null\", first given on line 1");
    check("<<: {a: 1}\n<<: {b: 1}\n", "2:1: duplicate key \"<<\", first given on line 1");
}

#[test]
fn complex_keys_are_refused() {
    check("? [a]\n: 1\n", "1:3: a collection as a key, expected a scalar");
    check("a: &x [1]\n*x : 2\n", "2:1: a collection as a key, expected a scalar");
}

#[test]
fn aliases_and_merge_keys_are_expanded() {
    check("a: &x {k: 1}\nb: *x\n", "{a:{k:1},b:{k:1}}");
    check("a: &x {k: 1, l: 2}\nb: {<<: *x, k: 3}\n", "{a:{k:1,l:2},b:{k:3,l:2}}");
    check("<<: [{a: 1}, {a: 2, b: 3}]\nc: 4\n", "{c:4,a:1,b:3}");
    check("'<<': 1\n", "{\"<<\":1}");
    check("<<: 1\n", "1:5: merge key `<<` expects a mapping or a sequence of mappings");
    check("a: &x [*x]\n", "1:8: an alias inside the value that it stands for");
    check("a: *x\n", "1:4: while parsing node, found unknown anchor");
}

#[test]
fn an_alias_bomb_runs_into_the_budget() {
    let mut source = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..10 {
        let alias = format!("*a{}", level - 1);
        source.push_str(&format!("a{level}: &a{level} [{}]\n", vec![alias; 10].join(",")));
    }
    let error = parse(source.as_bytes()).unwrap_err();
    assert_eq!(error.kind, YamlErrorKind::TooMuchExpansion);

    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), vec!["*a"; 100].join(","));
    assert_eq!(parse(long.as_bytes()).unwrap_err().kind, YamlErrorKind::TooMuchExpansion);
}

#[test]
fn nesting_has_a_limit_also_through_aliases() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(parse(deep(MAX_DEPTH).as_bytes()).is_ok());
    assert_eq!(parse(deep(MAX_DEPTH + 1).as_bytes()).unwrap_err().kind, YamlErrorKind::TooDeep);
    assert_eq!(parse(deep(100_000).as_bytes()).unwrap_err().kind, YamlErrorKind::TooDeep);
    let grown = format!(
        "a: &a {}\nb: &b {}*a{}\nc: {}*b{}\n",
        deep(30),
        "[".repeat(30),
        "]".repeat(30),
        "[".repeat(10),
        "]".repeat(10)
    );
    assert_eq!(parse(grown.as_bytes()).unwrap_err().kind, YamlErrorKind::TooDeep);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn arbitrary_yaml_like_text_never_panics_and_spans_stay_inside(
        text in "[a-c:\\-\\[\\]{},&*<>|'\"#!?% \n\té\u{feff}.~]{0,80}"
    ) {
        if let Ok(node) = parse(text.as_bytes()) {
            inside(&node, &text);
        }
    }
}

fn inside(node: &Node, text: &str) {
    assert!(text.get(node.span.clone()).is_some(), "{:?} of {text:?}", node.span);
    match &node.value {
        Value::Scalar(_) => {}
        Value::Sequence(items) => items.iter().for_each(|item| inside(item, text)),
        Value::Mapping(entries) => entries.iter().for_each(|(key, value)| {
            inside(key, text);
            inside(value, text);
        }),
    }
}
