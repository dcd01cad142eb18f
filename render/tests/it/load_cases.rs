//! Loading and validation, case by case: the odd-numbered cases are those of the shared list of
//! inputs and expectations for estates (L01 to L35).

use std::collections::BTreeMap;

use render::estate::{self, Name, Reference, Signal};
use render::finding::Finding;
use render::tree::Tree;

const TIER: &str = "owner: o\nenvironment: production\nblueprint: a/one@1\n";
const SELECTOR: &str = "selector: {service.name: t}\n";
const BLUEPRINT: &str = "name: b\nversion: 1\nowner: o\n";
const COMPONENT: &str = "name: c\nclass: receiver\ntype: otlp\nversion: 3\nowner: o\n";
const ROLLOUT: &str = "owner: o\ntier: a/t\nfrom: a/one@1\nto: a/two@1\n";

/// What a case expects: the whole loads, or the error holds this.
enum Expect {
    Loads,
    Error(&'static str),
}
use Expect::{Error, Loads};

#[test]
fn l01_to_l19_tiers() {
    let tier = |more: &str, expect| {
        check_topology(&[("teams/a/tiers/t.yaml", format!("{TIER}{more}"))], expect)
    };
    let whole =
        |text: &str, expect| check_topology(&[("teams/a/tiers/t.yaml", text.to_owned())], expect);

    tier("colour: red\n", Error("e/teams/a/tiers/t.yaml: unknown key \"colour\""));
    tier("owner: p\n", Error("duplicate key \"owner\""));
    tier("---\nowner: p\n", Error("more than one document"));
    tier("---\n", Error("more than one document"));
    tier("---\n[}\n", Error("more than one document"));
    tier("...\n", Loads);
    whole(&TIER.replace("owner", "Owner"), Error("unknown key \"Owner\""));
    whole(&TIER.replace(": o", ": 123"), Loads);
    whole(&TIER.replace(": o", ": ~"), Error("has no owner"));
    tier("hops: [{from: lb, trusted: yes}]\n", Error("expected true or false, found yes"));
    tier("hops: [{from: lb, trusted: \"true\"}]\n", Error("expected true or false"));
    tier("hops: [{from: lb, trusted: true}, {from: x}]\n", Loads);
    whole("owner: o\nblueprint: a/one@1\n", Error("has no environment"));
    tier("serving: {}\n", Error("has no serving.endpoint"));
    tier(&format!("{SELECTOR}serving: {{}}\n"), Error("has no serving.endpoint"));
    tier("serving: {endpoint: x}\n", Error("is served but has no selector"));
    tier("serving:\n", Loads);
    tier(&format!("{SELECTOR}min_expected: -1\n"), Error("has min_expected -1"));
    tier("min_expected: 12\n", Error("has no selector"));
    tier(&format!("{SELECTOR}min_expected: 1_000\n"), Loads);
    tier("name: t\n", Loads);
    tier("name:\n", Loads);
    tier("selector: {a: 1, b: true, c: 1.50}\n", Loads);
    tier("selector: {a: }\n", Error("empty value"));

    let two = |a: &'static str, b: &'static str, expect| {
        check_topology(&[(a, TIER.to_owned()), (b, TIER.to_owned())], expect);
    };
    let declared = Error("tier \"a/gateway\" is already declared");
    two("teams/a/tiers/gateway.yaml", "teams/a/tiers/gateway.yml", declared);
    two("teams/a/tiers/gateway.YAML", "teams/b/tiers/gateway.yaml", Loads);
    two("teams/a/tiers/x.yaml.bak", "teams/a/tiers/x.yaml/y.yaml", Loads);
    two("teams/a/tiers/x.yaml", "teams/a/services/x.txt", Loads);
}

#[test]
fn l17_five_faults_of_one_tier_are_five_bullets() {
    let text = "owner: ~\nblueprint: one\nmin_expected: -1\nserving: {}\n";
    let error = topology(&[("teams/a/tiers/t.yaml", text.to_owned())]).unwrap_err();
    let bullets = error.lines().filter(|line| line.starts_with("  - ")).count();
    assert_eq!(bullets, 6, "{error}");
}

#[test]
fn a_tier_keeps_the_source_text_of_its_values() {
    let text = format!("{TIER}selector: {{a: 1, b: true, c: 1.50, 4: '05'}}\n");
    let tree = tree(&[("teams/a/tiers/t.yaml", text)]);
    let topology = estate::load_topology(&tree).unwrap();
    let pairs = [("4", "05"), ("a", "1"), ("b", "true"), ("c", "1.50")];
    let expected: BTreeMap<String, String> =
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    assert_eq!(topology.tiers[&Name::new("a", "t")].selector, expected);
}

#[test]
fn l21_to_l25_blueprints_and_references() {
    let blueprint = |more: &str, expect| {
        check_blueprints(&[("teams/a/blueprints/b.yaml", format!("{BLUEPRINT}{more}"))], expect);
    };
    let trace = |reference: &str, expect| {
        blueprint(&format!("pipelines: {{traces: [{{component: {reference}}}]}}\n"), expect);
    };
    let local = "components: [{name: l, class: receiver, type: otlp, version: 1}]\n";

    trace("a/c@1", Loads);
    blueprint("phase: x\nextensions: [{component: a/c@1}]\n", Error("unknown key \"phase\""));
    blueprint("extensions: [{component: a/c@1, config: {}}]\n", Error("unknown key \"config\""));
    blueprint("pipelines: {events: []}\n", Error("unknown key \"events\""));
    blueprint(&format!("{local}extensions: [{{component: l}}]\n"), Loads);
    blueprint(
        &format!("{}extensions: [{{component: l}}]\n", local.replace("}]", ", owner: o}]")),
        Error("is local and has an owner"),
    );
    blueprint(&format!("{local}extensions: [{{component: a/c@1}}]\n"), Error("no entry uses"));
    blueprint("extensions: [{component: a/c@1}, {component: a/c@2}]\n", Error("twice"));
    blueprint("", Error("wires nothing"));

    for (reference, error) in [
        ("a/b@0", "the version \"0\""),
        ("a/b@x", "the version \"x\""),
        ("\"@3\"", "the name part is empty"),
        ("a/b/c@1", "more than one `/`"),
        ("\"\"", "the reference is empty"),
        ("a/@1", "the name part is empty"),
        ("/b@1", "the team part is empty"),
        ("a/b@03", "the version \"03\""),
        ("p/q@1@2", "more than one `@`"),
    ] {
        trace(reference, Error(error));
    }
    check_blueprints(&[], Error("e/teams: no Component and no Blueprint in any team"));
    let component = |text: String, expect| {
        check_blueprints(&[("teams/a/components/c.yaml", text)], expect);
    };
    component(COMPONENT.to_owned(), Loads);
    component(format!("{COMPONENT}config: {{}}\n"), Loads);
    component(format!("{COMPONENT}config: text\n"), Error("expected a mapping"));
    component(format!("{COMPONENT}config: {{a: {{b: 1, b: 2}}}}\n"), Error("duplicate key \"b\""));
}

#[test]
fn references_that_do_not_hold_are_findings() {
    let text = format!(
        "{BLUEPRINT}pipelines:\n  \
         logs: [{{component: a/c@9}}, {{component: a/ext@1}}]\n  \
         traces: [{{component: a/gone@1}}, {{component: a/c, track: head}}]\n\
         extensions: [{{component: a/c@3}}, {{component: a/ext@1}}]\n"
    );
    let ext = COMPONENT.replace("name: c", "name: ext").replace("receiver", "extension");
    let tree = tree(&[
        ("teams/a/blueprints/b.yaml", text),
        ("teams/a/components/c.yaml", COMPONENT.to_owned()),
        ("teams/a/components/ext.yaml", ext),
    ]);
    let loaded = estate::load_blueprints(&tree).unwrap();
    let findings: Vec<String> = loaded.findings.iter().map(Finding::to_string).collect();
    assert_eq!(
        findings,
        [
            "finding reference blueprint=a/b lane=traces: component a/gone@1 is not provided by anybody",
            "finding reference blueprint=a/b lane=logs: component a/c@9 is pinned ahead: its version is 3",
            "finding reference blueprint=a/b lane=logs: component a/ext@1 is an extension, and belongs in extensions",
            "finding reference blueprint=a/b lane=extensions: component a/c@3 has class receiver, not extension",
        ]
    );
    let blueprint = &loaded.blueprints[&Name::new("a", "b")];
    let signals: Vec<Signal> = blueprint.lanes.iter().map(|lane| lane.signal).collect();
    assert_eq!(signals, [Signal::Traces, Signal::Logs]);
    let entry = &blueprint.lanes[0].entries[1];
    assert_eq!(entry.reference, Reference::Head(Name::new("a", "c")));
    assert_eq!(entry.path, "pipelines.traces[1].component");
}

#[test]
fn l27_to_l33_rollouts() {
    let rollout = |more: &str, expect| {
        check_topology(
            &[
                ("teams/a/tiers/t.yaml", TIER.to_owned()),
                ("teams/a/rollouts/r.yaml", format!("{ROLLOUT}{more}")),
            ],
            expect,
        );
    };
    let hosts = "{hosts: {attribute: h, values: [v]}}";
    let two = format!("stages: [{{cohort: {hosts}}}, {{cohort: {hosts}}}]\n");

    rollout(&two, Loads);
    rollout(&format!("{two}stage: 1\n"), Loads);
    rollout(&format!("{two}stage: 2\n"), Error("declares stage 2 of 2. "));
    rollout(&format!("{two}stage: -1\n"), Error("declares stage -1 of 2. "));
    rollout(&format!("{two}stage: 1.7\n"), Error("expected an integer, found 1.7"));
    rollout("stage: 3\nstages: []\n", Error("has no stages"));
    for cohort in ["{hosts: {}}", "{hosts: {attribute: h, values: []}}"] {
        rollout(&format!("stages: [{{cohort: {cohort}}}]\n"), Error("lists hosts without values"));
    }
    let empty_value = "stages: [{cohort: {hosts: {attribute: h, values: ['']}}}]\n";
    rollout(empty_value, Error("lists an empty value"));

    let soak = |soak: &str, expect| {
        rollout(&format!("stages: [{{cohort: {hosts}, soak: {soak}}}]\n"), expect);
    };
    for text in ["24h", "90m", "1h30m", "1.5h", ".5h", "300ms", "+5m", "0", "~", ""] {
        soak(text, Loads);
    }
    for text in ["2d", "10", "\"\"", "-5m", "5M", "1h 30m", "1e3s", "9999999h", "true"] {
        soak(text, Error("expected a duration"));
    }

    rollout(&format!("{two}hold: true\nhash_salt: x\nidentity: [host.name]\n"), Loads);
    rollout(&format!("{two}halt: {{abort_at_percent: 100, dark_after: 1s}}\n"), Loads);
    rollout(&format!("{two}halt: {{abort_at_percent: 101}}\n"), Error("abort_at_percent 101"));
    rollout(&format!("{two}hash_salt:\n"), Loads);
}

#[test]
fn l27_an_empty_rollout_lacks_five_fields_and_nothing_else() {
    let error = topology(&[("teams/a/rollouts/r.yaml", "{}\n".to_owned())]).unwrap_err();
    let said: Vec<&str> = error
        .lines()
        .filter_map(|line| Some(line.strip_prefix("  - ")?.rsplit_once(" has no ")?.1))
        .collect();
    assert_eq!(said, ["owner", "tier", "from", "to", "stages"]);
}

#[test]
fn l29_no_stages_is_the_only_thing_said_about_them() {
    let text = format!("{ROLLOUT}stage: 3\nstages: []\n");
    let files = [("teams/a/tiers/t.yaml", TIER.to_owned()), ("teams/a/rollouts/r.yaml", text)];
    let error = topology(&files).unwrap_err();
    assert_eq!(error.lines().filter(|line| line.starts_with("  - ")).count(), 1, "{error}");
}

#[test]
fn absent_rollout_fields_behave_as_in_the_guide() {
    let stages = "stages: [{cohort: {hosts: {attribute: h, values: [v]}}}]\n";
    let tree = tree(&[
        ("teams/a/tiers/t.yaml", TIER.to_owned()),
        ("teams/a/rollouts/r.yaml", format!("{ROLLOUT}{stages}halt: {{min_seen: 3}}\n")),
    ]);
    let topology = estate::load_topology(&tree).unwrap();
    let rollout = &topology.rollouts[&Name::new("a", "r")];
    assert_eq!((rollout.stage, rollout.hold, &rollout.hash_salt), (0, false, &None));
    assert_eq!(rollout.halt, estate::Halt { min_seen: 3, ..estate::Halt::default() });
    assert!(rollout.identity.is_empty() && rollout.stages[0].soak.is_zero());
}

#[test]
fn a_rollout_that_may_miss_somebody_is_a_finding() {
    let findings = |selector: &str, rollout: &str| {
        let tree = tree(&[
            ("teams/a/tiers/t.yaml", format!("{TIER}{selector}")),
            ("teams/a/rollouts/r.yaml", format!("{ROLLOUT}{rollout}")),
        ]);
        let topology = estate::load_topology(&tree).unwrap();
        let findings = estate::rollout_findings(&topology);
        findings.iter().map(Finding::to_string).collect::<Vec<_>>()
    };
    let hosts = "stages: [{cohort: {hosts: {attribute: h, values: [v]}}}]\n";
    let unreachable = "finding rollout tier=a/t: rollout \"a/r\" cannot reach everybody: no stage has percent: 100";
    assert_eq!(findings(SELECTOR, hosts), [unreachable]);
    assert!(findings("selector: {h: v}\n", hosts).is_empty());
    let matching = "stages: [{cohort: {match: {service.name: t}}}]\n";
    assert!(findings(SELECTOR, matching).is_empty());
    let narrower = "stages: [{cohort: {match: {service.name: t, region: eu}}}]\n";
    assert_eq!(findings(SELECTOR, narrower), [unreachable]);

    let all = |attribute: &str| {
        format!("hash_attributes: [{attribute}]\nstages: [{{cohort: {{percent: 100}}}}]\n")
    };
    assert!(findings("", &all("service.instance.id")).is_empty());
    assert!(findings("selector: {host.name: x}\n", &all("host.name")).is_empty());
    let lacking = findings("", &all("host.name"));
    assert!(lacking.len() == 1 && lacking[0].contains("hashes over host.name"), "{lacking:?}");
}

#[test]
fn selectors_of_many_shapes_are_slow_and_then_refused() {
    let tiers = |count: usize| {
        let files: Vec<(String, String)> = (0..count)
            .map(|n| (format!("teams/a/tiers/t{n}.yaml"), format!("{TIER}selector: {{k{n}: v}}\n")))
            .collect();
        let files: Vec<(&str, String)> =
            files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
        estate::load_topology(&tree(&files))
    };
    assert!(estate::selector_findings(&tiers(32).unwrap()).is_empty());
    assert_eq!(estate::selector_findings(&tiers(33).unwrap()).len(), 1);
    assert!(tiers(1_024).is_ok());
    let error = tiers(1_025).unwrap_err();
    assert_eq!(error.problems.len(), 1);
    assert!(error.to_string().contains("past 1024 distinct sets of attributes"), "{error}");
}

#[test]
fn l35_teams() {
    let teams = |text: &str, expect| {
        let tree = tree(&[("teams.yaml", text.to_owned())]);
        check(estate::load_teams(&tree).map(drop).map_err(|error| error.to_string()), expect, text);
    };
    teams("teams: [{id: a, owners: [o], teams: [{id: b}]}, {id: c}]\n", Loads);
    teams("teams: [{id: a, owner: o}]\n", Error("unknown key \"owner\""));
    teams("teams: []\n", Error("no teams"));
    teams("{}\n", Error("no teams"));
    teams(
        "teams: [{id: a, owners: [o]}, {id: b, owners: [o]}]\n",
        Error("already listed by team \"a\""),
    );
    teams("teams: [{id: a}, {id: a}]\n", Error("team \"a\" is declared twice"));
    teams("teams: [{id: a, teams: [{id: a}]}]\n", Error("team \"a\" is declared twice"));
    teams("teams: [{id: a, owners: [o, o]}]\n", Error("already listed by team \"a\""));
    teams("teams: [{id: a, owners: ['']}]\n", Error("owner \"\" is empty"));
    teams("teams: [{name: A}]\n", Error("teams[0] has no id"));
    let missing = estate::load_teams(&tree(&[])).unwrap_err().to_string();
    assert!(missing.starts_with("invalid teams:\n  - e/teams.yaml: missing file\n"), "{missing}");
}

#[test]
fn the_team_tree_is_flattened_with_its_parents() {
    let text = "teams:\n  - {id: root, owners: [r], teams: [{id: mid, teams: [{id: leaf, owners: [l]}]}]}\n";
    let teams = estate::load_teams(&tree(&[("teams.yaml", text.to_owned())])).unwrap();
    let chain: Vec<&str> = teams.chain("leaf").iter().map(|team| team.id.as_str()).collect();
    assert_eq!(chain, ["root", "mid", "leaf"]);
    assert_eq!(teams.owner_team["l"], "leaf");
    assert_eq!(teams.by_id.len(), 3);
}

#[test]
fn telemetry_has_an_endpoint_per_environment() {
    let text = "self_telemetry:\n  endpoint: e\n  protocol: grpc\n  environments: {production: p}\n  \
                new_pipeline_telemetry: true\n";
    let loaded = estate::load_telemetry(&tree(&[("telemetry.yaml", text.to_owned())])).unwrap();
    assert_eq!((loaded.endpoint_of("production"), loaded.endpoint_of("x")), ("p", "e"));
    assert_eq!(loaded.protocol, "grpc");
    let plain = "self_telemetry: {endpoint: e}\n".to_owned();
    let loaded = estate::load_telemetry(&tree(&[("telemetry.yaml", plain)])).unwrap();
    assert_eq!(loaded.protocol, "http/protobuf");
    let missing = estate::load_telemetry(&tree(&[])).unwrap_err().to_string();
    assert!(missing.starts_with("invalid telemetry:\n  - e/telemetry.yaml: missing file\n"));
}

const REST_OF_ROLLOUT: &str = "hash_attributes: [k]\nstages: [{cohort: {percent: 100}}]\n";

#[test]
fn wrong_forms_of_some_files_and_wrong_meaning_of_others_are_told_together() {
    let bullets = topology_bullets(&[
        ("teams/a/tiers/s.yaml", "owner: [}\n".to_owned()),
        ("teams/a/tiers/t.yaml", format!("{TIER}size: 2\ncolour: 1\nmin_expected: -1\n")),
        // Each names the Tier that cannot be read, which is authored all the same.
        ("teams/a/services/v.yaml", "owner: o\nclass: C1\npaths: [{through: [a/s]}]\n".to_owned()),
        (
            "teams/a/rollouts/r.yaml",
            format!("{}{REST_OF_ROLLOUT}stage: 5\n", ROLLOUT.replace("a/t", "a/s")),
        ),
        // And this one another that can, in part.
        (
            "teams/a/rollouts/u.yaml",
            format!("{}{REST_OF_ROLLOUT}", ROLLOUT.replace("owner: o", "owner: p")),
        ),
    ]);
    assert_eq!(
        bullets,
        [
            "e/teams/a/tiers/s.yaml: mismatched bracket '[' closed by '}'",
            "e/teams/a/tiers/t.yaml: unknown key \"size\"",
            "e/teams/a/tiers/t.yaml: unknown key \"colour\"",
            "e/teams/a/tiers/t.yaml: tier \"a/t\" has min_expected -1",
            "e/teams/a/rollouts/r.yaml: rollout \"a/r\" declares stage 5 of 1. The stage is a zero-based index into the stages list. To complete the rollout, delete the file instead of counting past the end.",
            "rollout \"a/u\" is owned by \"p\" but tier \"a/t\" is owned by \"o\".",
        ]
    );
}

#[test]
fn what_only_follows_from_a_wrong_form_is_not_told() {
    let one = |path, text: &str, told: &str| {
        let bullets = topology_bullets(&[(path, text.to_owned())]);
        assert_eq!(bullets, [format!("e/{path}: {told}")], "{text}");
    };
    let tier = |text: String, told| one("teams/a/tiers/t.yaml", &text, told);
    tier(TIER.replace("owner", "Owner"), "unknown key \"Owner\"");
    tier(TIER.replace(": o", ": [o]"), "expected a string, found a list");
    tier(format!("{TIER}min_expected: 3\nselectors: {{a: b}}\n"), "unknown key \"selectors\"");
    tier(format!("{TIER}serving: {{endpoint: e}}\nselector: a\n"), "expected a mapping, found a");
    tier(format!("{TIER}{SELECTOR}serving: wss\n"), "expected a mapping, found wss");
    tier(format!("{TIER}{SELECTOR}serving: {{endpont: e}}\n"), "unknown key \"endpont\"");
    tier(format!("{TIER}hops: [lb]\n"), "expected a mapping, found lb");
    one("teams/a/tiers/t.yaml", "[]\n", "expected a mapping, found a list");

    let service = |paths, told| {
        one("teams/a/services/v.yaml", &format!("owner: o\nclass: C1\npaths: {paths}\n"), told);
    };
    service("[{through: a/t}]", "expected a list, found a/t");
    service("[{throuh: [a/t]}]", "unknown key \"throuh\"");
    service("[{through: [[a/t]]}]", "expected a string, found a list");

    let rollout = |more: &str, told: &str| {
        let path = "teams/a/rollouts/r.yaml";
        let files =
            [("teams/a/tiers/t.yaml", TIER.to_owned()), (path, format!("{ROLLOUT}{more}\n"))];
        assert_eq!(topology_bullets(&files), [format!("e/{path}: {told}")], "{more}");
    };
    rollout("stage: 3\nstages: {}", "expected a list, found a mapping");
    rollout(
        "hash_atributes: [k]\nstages: [{cohort: {percent: 1}}]",
        "unknown key \"hash_atributes\"",
    );
    rollout("hash_attributes: [k]\nstages: [{cohort: {percnt: 1}}]", "unknown key \"percnt\"");
    rollout("stages: [{cohort: {match: [k]}}]", "expected a mapping, found a list");
    rollout(
        "stages: [{cohort: {hosts: {attribute: h, values: [[v]]}}}]",
        "expected a string, found a list",
    );
    rollout("stages: [{cohrt: {percent: 1}}]", "unknown key \"cohrt\"");

    let path = "teams/a/blueprints/b.yaml";
    let blueprint = |text: String, told: &str| {
        let refusal = estate::load_blueprints(&tree(&[(path, text.clone())])).unwrap_err();
        assert_eq!(bullets(&refusal.to_string()), [format!("e/{path}: {told}")], "{text}");
    };
    let local = |name: &str, lane: &str| {
        format!(
            "{BLUEPRINT}components: [{{{name}: l, class: receiver, type: otlp, version: 1}}]\n\
             pipelines: {{{lane}}}\n"
        )
    };
    blueprint(local("name", "traces: [{componet: l}]"), "unknown key \"componet\"");
    blueprint(local("name", "trace: [{component: l}]"), "unknown key \"trace\"");
    blueprint(local("name", "traces: l"), "expected a list, found l");
    blueprint(local("nam", "traces: [{component: l}]"), "unknown key \"nam\"");
    blueprint(
        local("name", "traces: [{component: l}]").replace("components", "Components"),
        "unknown key \"Components\"",
    );

    let teams = estate::load_teams(&tree(&[("teams.yaml", "team: [{id: a}]\n".to_owned())]));
    assert_eq!(bullets(&teams.unwrap_err().to_string()), ["e/teams.yaml: unknown key \"team\""]);
    let text = "self_telemtry: {endpoint: e}\n".to_owned();
    let telemetry = estate::load_telemetry(&tree(&[("telemetry.yaml", text)]));
    let told = bullets(&telemetry.unwrap_err().to_string());
    assert_eq!(told, ["e/telemetry.yaml: unknown key \"self_telemtry\""]);
}

#[test]
fn a_name_with_a_control_character_stays_on_its_line() {
    let path = "teams/a/tiers/t\n  - b\u{1b}[2J.yaml";
    let told = topology_bullets(&[(path, TIER.to_owned())]);
    let name = "t\\n  - b\\u{1b}[2J";
    assert_eq!(
        told,
        [format!("e/teams/a/tiers/{name}.yaml: tier name \"{name}\" holds white space")]
    );
}

#[test]
fn anchors_and_merge_keys_work_in_authored_files() {
    let text = "owner: &o o\nenvironment: *o\nblueprint: a/one@1\nselector:\n  <<: [{a: 1}, {a: 2, b: 3}]\n";
    let tree = tree(&[("teams/a/tiers/t.yaml", format!("\u{feff}{}", text.replace('\n', "\r\n")))]);
    let topology = estate::load_topology(&tree).unwrap();
    let tier = &topology.tiers[&Name::new("a", "t")];
    assert_eq!(tier.environment.value, "o");
    assert_eq!((&*tier.selector["a"], &*tier.selector["b"]), ("1", "3"));
}

fn tree(files: &[(&str, String)]) -> Tree {
    let files = files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().into()));
    Tree { label: "e".to_owned(), files: files.collect() }
}

fn topology(files: &[(&str, String)]) -> Result<(), String> {
    estate::load_topology(&tree(files)).map(drop).map_err(|error| error.to_string())
}

fn topology_bullets(files: &[(&str, String)]) -> Vec<String> {
    bullets(&topology(files).unwrap_err())
}

fn bullets(error: &str) -> Vec<String> {
    error.lines().filter_map(|line| line.strip_prefix("  - ")).map(str::to_owned).collect()
}

fn check_topology(files: &[(&str, String)], expect: Expect) {
    check(topology(files), expect, &format!("{files:?}"));
}

fn check_blueprints(files: &[(&str, String)], expect: Expect) {
    let loaded = estate::load_blueprints(&tree(files)).map(drop);
    check(loaded.map_err(|error| error.to_string()), expect, &format!("{files:?}"));
}

fn check(outcome: Result<(), String>, expect: Expect, of: &str) {
    match (outcome, expect) {
        (Ok(()), Loads) => {}
        (Err(error), Error(text)) => assert!(error.contains(text), "{of}: {error}"),
        (Ok(()), Error(text)) => panic!("{of}: loads, expected {text:?}"),
        (Err(error), Loads) => panic!("{of}: {error}"),
    }
}
