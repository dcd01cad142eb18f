//! Whatever an author saves, the loaders answer: they never panic, and every problem has a place
//! in the file and a way out.

use proptest::prelude::*;
use render::estate;
use render::problem::{Problem, Refusal};
use render::tree::Tree;
use render::yaml;

const FILES: [(&str, &str); 7] = [
    ("teams.yaml", "teams:\n  - id: a\n    owners: [o, p]\n    teams: [{id: b, name: B}]\n"),
    (
        "telemetry.yaml",
        "self_telemetry:\n  endpoint: http://t:4318\n  protocol: grpc\n  environments: {production: x}\n",
    ),
    (
        "teams/a/components/c.yaml",
        "name: c\nclass: receiver\ntype: otlp\nversion: 1\nowner: o\nconfig: {a: [&y 1, *y]}\n",
    ),
    (
        "teams/a/blueprints/b.yaml",
        "name: b\nversion: 1\nowner: o\nsatisfies: [r@1]\ncomponents:\n  - {name: l, class: exporter, \
         type: otlp, version: 1}\npipelines:\n  traces:\n    - component: a/c@1\n    - component: l\n\
         extensions: [{component: a/d, track: head}]\n",
    ),
    (
        "teams/a/tiers/t.yaml",
        "owner: o\nenvironment: production\nblueprint: a/b@1\nselector: {k: v, <<: {l: w}}\n\
         min_expected: 1\nserving: {endpoint: e}\nhops: [{from: lb, trusted: true}]\n",
    ),
    ("teams/a/services/s.yaml", "owner: o\nclass: C1\npaths: [{through: [a/t]}]\n"),
    (
        "teams/a/rollouts/r.yaml",
        "owner: o\ntier: a/t\nfrom: a/b@1\nto: a/d@1\nstage: 0\nhash_attributes: [k]\nstages:\n  \
         - cohort: {hosts: {attribute: h, values: [v]}, match: {k: v}, percent: 5}\n    soak: 2h\n\
         halt: {dark_after: 90s}\nidentity: [k]\nhold: false\nhash_salt: s\n",
    ),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn an_edited_estate_loads_or_is_refused_with_places(
        file in 0..FILES.len(),
        at in any::<prop::sample::Index>(),
        cut in 0..12usize,
        insert in "[-a-z0-9@/:.,{}\\[\\]&*<>|~!'\"# \n\té]{0,8}",
    ) {
        let mut tree = Tree { label: "e".to_owned(), ..Tree::default() };
        for (index, (path, text)) in FILES.into_iter().enumerate() {
            let mut bytes = text.as_bytes().to_vec();
            if index == file {
                let start = at.index(bytes.len());
                let end = (start + cut).min(bytes.len());
                bytes.splice(start..end, insert.bytes());
            }
            tree.files.insert(path.to_owned(), bytes.into());
        }
        let outcomes = [
            estate::load_teams(&tree).map(drop),
            estate::load_blueprints(&tree).map(drop),
            estate::load_topology(&tree).map(drop),
            estate::load_telemetry(&tree).map(drop),
        ];
        let edited = tree.display(FILES[file].0);
        let is_yaml = yaml::parse(&tree.files[FILES[file].0]).is_ok();
        for refusal in outcomes.into_iter().filter_map(Result::err) {
            prop_assert!(!refusal.problems.is_empty());
            check(&tree, &refusal);
            // All others are good, and what cannot be read is no reason to doubt them.
            let told_of = |problem: &Problem| problem.spot.as_ref().unwrap().file == edited;
            prop_assert!(is_yaml || refusal.problems.iter().all(told_of), "{refusal}");
        }
    }
}

#[test]
fn the_estate_that_is_edited_loads() {
    let files = FILES.map(|(path, text)| (path.to_owned(), text.as_bytes().into()));
    let tree = Tree { label: "e".to_owned(), files: files.into() };
    estate::load_teams(&tree).unwrap();
    estate::load_blueprints(&tree).unwrap();
    estate::load_topology(&tree).unwrap();
    estate::load_telemetry(&tree).unwrap();
}

fn check(tree: &Tree, refusal: &Refusal) {
    for problem in &refusal.problems {
        let Problem { text, spot, help } = problem;
        assert!(!text.is_empty() && !help.is_empty(), "{problem:?}");
        assert!(!text.contains('\n'), "{problem:?}");
        let spot = spot.as_ref().unwrap();
        let source = tree.get(spot.file.strip_prefix("e/").unwrap());
        if let (Some(source), Some(pos)) = (source, spot.pos) {
            let lines = source.iter().filter(|&&byte| byte == b'\n').count() + 1;
            assert!(pos.line >= 1 && pos.line as usize <= lines && pos.column >= 1, "{problem:?}");
        }
    }
}
