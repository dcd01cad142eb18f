use std::sync::Arc;

use super::*;
use crate::estate::{Class, Team, Teams};
use crate::tree::Tree;
use crate::yaml::Pos;

/// org > (payments > cards), shop; each team has one owner, `<team>-owner`.
fn teams() -> Teams {
    let mut teams = Teams::default();
    for (id, parent) in [
        ("org", None),
        ("payments", Some("org")),
        ("cards", Some("payments")),
        ("shop", Some("org")),
    ] {
        let owner = format!("{id}-owner");
        teams.owner_team.insert(owner.clone(), id.to_owned());
        let team = Team {
            id: id.to_owned(),
            name: String::new(),
            owners: vec![owner],
            parent: parent.map(str::to_owned),
            at: Pos::default(),
        };
        teams.by_id.insert(id.to_owned(), team);
    }
    teams
}

fn catalogue() -> Catalogue {
    let component = |class: &str, kind: &str, alias: &str| {
        let alias = if alias.is_empty() {
            String::new()
        } else {
            format!("\"deprecated_type\": {alias:?},")
        };
        format!(
            "{{\"class\": {class:?}, \"type\": {kind:?}, {alias} \"module\": \"m\", \
             \"stability\": {{\"traces\": \"beta\"}}}}"
        )
    };
    let components = [
        component("receiver", "otlp", ""),
        component("receiver", "kafka", ""),
        component("processor", "batch", ""),
        component("processor", "filter", ""),
        component("exporter", "otlphttp", ""),
        component("exporter", "kafka", ""),
        component("connector", "span_metrics", "spanmetrics"),
    ];
    let text = format!(
        "{{\"format_version\": 1, \"source\": {{\"repository\": \"r\", \"ref\": \"v1\"}}, \
         \"components\": [{}]}}",
        components.join(", ")
    );
    Catalogue::parse(text.as_bytes(), "catalogue.json").expect("a good catalogue")
}

fn load(lists: &str, grants: &str) -> Result<Policy, String> {
    let mut tree = Tree::default();
    for (path, text) in [("allow-lists.yaml", lists), ("grants.yaml", grants)] {
        if !text.is_empty() {
            tree.files.insert(path.to_owned(), Arc::from(text.as_bytes()));
        }
    }
    Policy::load(&tree, &teams(), &catalogue()).map_err(|refusal| refusal.to_string())
}

/// `class/type origin` of all that the team may place.
fn palette(policy: &Policy, team: &str) -> Vec<String> {
    let (teams, catalogue) = (teams(), catalogue());
    let palettes = Palettes::resolve(&teams, policy, &catalogue);
    let palette = palettes.of(team).expect("a team of the tree");
    let line = |(component, origin): (&CatalogueComponent, Origin<'_>)| {
        let origin = match origin {
            Origin::DefaultAllow => "default".to_owned(),
            Origin::AllowList => "list".to_owned(),
            Origin::Grant(grant) => grant.id.clone(),
        };
        format!("{}/{} {origin}", component.class, component.kind)
    };
    palette.allowed().map(line).collect()
}

const ORG_LIST: &str =
    "- {team: org, owner: org-owner, allow: [receiver/*, processor/batch, exporter/otlphttp]}\n";

/// A01.
#[test]
fn a_child_has_the_intersection_and_never_more_than_its_parent() {
    let lists = format!(
        "allow_lists:\n{ORG_LIST}- {{team: payments, owner: org-owner, allow: [receiver/otlp, \
         processor/filter, exporter/*]}}\n"
    );
    let policy = load(&lists, "").expect("good lists");
    assert_eq!(palette(&policy, "payments"), ["exporter/otlphttp list", "receiver/otlp list"]);
    assert_eq!(palette(&policy, "cards"), palette(&policy, "payments"));
    assert_eq!(
        palette(&policy, "shop"),
        [
            "exporter/otlphttp list",
            "processor/batch list",
            "receiver/kafka list",
            "receiver/otlp list"
        ]
    );
}

/// A03.
#[test]
fn a_grant_beats_its_targets_list_and_a_list_below_beats_the_grant() {
    let lists = format!(
        "allow_lists:\n{ORG_LIST}- {{team: payments, owner: org-owner, allow: [receiver/otlp]}}\n\
         - {{team: cards, owner: org-owner, allow: [receiver/otlp]}}\n"
    );
    let grants = "grants:\n- {id: b, owner: org-owner, team: payments, adds: [exporter/kafka]}\n\
                  - {id: a, owner: org-owner, team: payments, adds: [exporter/*]}\n";
    let policy = load(&lists, grants).expect("good policy");
    assert_eq!(
        palette(&policy, "payments"),
        ["exporter/kafka a", "exporter/otlphttp a", "receiver/otlp list"]
    );
    assert_eq!(palette(&policy, "cards"), ["receiver/otlp list"]);
}

/// A05.
#[test]
fn an_entry_selects_within_its_class_and_by_alias() {
    let lists = "allow_lists:\n- {team: org, owner: org-owner, allow: [exporter/kafka*, \
                 connector/spanmetrics]}\n";
    let policy = load(lists, "").expect("good lists");
    assert_eq!(palette(&policy, "org"), ["connector/span_metrics list", "exporter/kafka list"]);

    let (teams, catalogue) = (teams(), catalogue());
    let palettes = Palettes::resolve(&teams, &policy, &catalogue);
    let palette = palettes.of("org").expect("a team of the tree");
    assert_eq!(palette.origin(Class::Connector, "spanmetrics"), Some(Origin::AllowList));
    assert_eq!(palette.origin(Class::Receiver, "kafka"), None);
    assert_eq!(palette.origin(Class::Receiver, "unheard-of"), None);
    assert!(palettes.of("ghost").is_none());
}

#[test]
fn without_lists_everything_is_allowed_by_default() {
    let policy = load("", "").expect("absent files are empty sets");
    assert_eq!(palette(&policy, "cards").len(), 7);
    assert!(palette(&policy, "cards").iter().all(|line| line.ends_with(" default")));
}

/// L37: every fault of meaning, of both files, in one go.
#[test]
fn faults_of_lists_and_grants_are_told_together() {
    let lists = "allow_lists:\n  - {team: ghost, owner: nobody, allow: [otlp, widget/otlp]}\n  \
                 - {team: org, allow: ['receiver/ot[lp]', receiver/a/b, receiver/otlp, receiver/otlp]}\n  \
                 - {team: org, owner: org-owner, allow: []}\n  \
                 - {team: shop, owner: org-owner, allow: [receiver/nothing]}\n  - {}\n";
    let grants = "grants:\n  - {owner: org-owner, team: shop, adds: [exporter/*]}\n  \
                  - {id: g, owner: shop-owner, team: shop, adds: [exporter/*]}\n  \
                  - {id: g, owner: payments-owner, team: shop, adds: [exporter/*]}\n  \
                  - {id: h, owner: cards-owner, team: payments, adds: [exporter/*]}\n";
    insta::assert_snapshot!(load(lists, grants).expect_err("bad policy"));
}

#[test]
fn faults_of_form_are_told_as_those_of_other_files_are() {
    let mut told = String::new();
    for lists in [
        "# nothing\n",
        "allow_lists:\n",
        "allow_lists: []\n",
        "{}\n",
        "- a\n",
        "allow_lists: {a: b}\n",
        "allow_lists:\n  - {Team: org, owner: [x], allow: {a: b}, more: 1}\n  - text\n",
        "allow_lists:\n  - {team: org}\n---\na: b\n",
    ] {
        told.push_str(&load(lists, "").expect_err(lists));
        told.push_str("\n\n");
    }
    insta::assert_snapshot!(told);
}

#[test]
fn a_list_file_that_cannot_be_read_does_not_hide_what_is_wrong_with_grants() {
    let grants = "grants:\n  - {id: g, owner: org-owner, teem: shop, adds: [exporter/*]}\n  \
                  - {id: g, owner: org-owner, team: shop, adds: []}\n";
    let told = load("allow_lists: [}\n", grants).expect_err("bad policy");
    let bullets: Vec<&str> = told.lines().filter_map(|line| line.strip_prefix("  - ")).collect();
    assert_eq!(
        bullets,
        [
            "allow-lists.yaml: mismatched bracket '[' closed by '}'",
            "grants.yaml: unknown key \"teem\"",
            "grants.yaml: has two grants with the id \"g\"",
            "grants.yaml: has an entry with nothing in adds",
        ]
    );
}

#[track_caller]
fn refused(catalogue: &str) -> String {
    Catalogue::parse(catalogue.as_bytes(), "catalogue.json").expect_err(catalogue).to_string()
}

/// L39.
#[test]
fn faults_of_a_catalogue_are_told_together() {
    let mut told = String::new();
    for text in [
        "{\"format_version\": 1",
        "{\"format_version\": 1,\n",
        "{} trailing",
        "[]",
        "{\"format_version\": 1.0, \"source\": {\"repository\": \"\", \"ref\": 7, \"hash\": 1}, \
         \"components\": [], \"extra\": {}}",
        "{\"format_version\": 2, \"source\": null, \"components\": [\n\
         {\"class\": \"widget\", \"type\": \"\", \"module\": \"\", \"stability\": {}},\n\
         {\"class\": \"receiver\", \"type\": \"a\", \"deprecated_type\": \"a\", \"module\": \"m\"},\n\
         {\"class\": \"receiver\", \"type\": \"b\", \"deprecated_type\": \"a\", \"module\": \"m\", \
          \"stability\": {\"\": \"beta\", \"logs\": \"good\", \"traces\": \"deprecated\"}},\n\
         {\"class\": \"receiver\", \"type\": \"b\", \"module\": \"m\", \"stability\": {\"logs\": \"beta\"},\n\
          \"deprecation\": {\"logs\": {\"date\": \"d\"}}},\n\
         {\"class\": \"receiver\", \"type\": \"c\", \"deprecated_type\": \"old\", \"module\": \"m\", \
          \"stability\": {\"logs\": \"beta\"}},\n\
         {\"class\": \"receiver\", \"type\": \"d\", \"deprecated_type\": \"old\", \"module\": \"m\", \
          \"stability\": {\"logs\": \"beta\"}}]}",
    ] {
        told.push_str(&refused(text));
        told.push_str("\n\n");
    }
    insta::assert_snapshot!(told);
}

#[test]
fn catalogue_keys_have_no_case_and_the_last_of_a_repeated_key_wins() {
    let text = "{\"Format_Version\": 2, \"format_version\": 1, \"SOURCE\": {\"repository\": \"r\", \
                \"ref\": \"old\", \"Ref\": \"new\"}, \"components\": [{\"class\": \"receiver\", \
                \"type\": \"a\", \"module\": \"m\", \"stability\": {\"logs\": \"beta\"}}]}";
    let catalogue = Catalogue::parse(text.as_bytes(), "c.json").expect("lenient in case");
    assert_eq!(catalogue.reference, "new");
}
