//! `render palette` (estate.md 1.5; the resolution itself is tested beside `policy`).

use super::common::{CATALOGUE, Estate, Ran, run};

fn palette(estate: &Estate, team: &str, more: &[&str]) -> Ran {
    let catalogue = format!("../my-estate/{CATALOGUE}");
    let mut arguments =
        vec!["palette", "-estate", "../my-estate", "-catalogue", &catalogue, "-team", team];
    arguments.extend(more);
    run(&estate.bin(), &arguments)
}

#[test]
fn the_palette_of_a_team_says_why_each_component_is_in_it() {
    let ran = palette(&Estate::demo(), "payments", &[]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    insta::assert_snapshot!(ran.stdout);
}

#[test]
fn a_team_without_lists_above_it_has_everything() {
    let ran = palette(&Estate::demo(), "data-flow", &[]);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines[0], "team data-flow");
    assert_eq!(lines[2], "allowed 33 of 33 components");
    assert_eq!(lines[3], "");
    assert!(lines[4..].iter().all(|line| line.ends_with("  default-allow")), "{}", ran.stdout);
}

#[test]
fn the_palette_as_json_says_the_same() {
    let text = palette(&Estate::demo(), "payments", &[]).stdout;
    let ran = palette(&Estate::demo(), "payments", &["-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let allowed = json["allowed"].as_array().expect("a list");
    let rows: Vec<(&str, &str)> =
        text.lines().skip(4).filter_map(|line| line.split_once("  ")).collect();
    assert_eq!(allowed.len(), rows.len());
    for (object, (component, origin)) in allowed.iter().zip(rows) {
        assert_eq!(object["component"], component.trim());
        assert_eq!(object["origin"], origin.trim());
    }
}

#[test]
fn an_unknown_team_and_a_missing_catalogue_exit_2() {
    let estate = Estate::demo();
    let ran = palette(&estate, "ghost", &[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert_eq!(ran.stderr, "render: team \"ghost\" is not in ../my-estate/teams.yaml\n");

    estate.remove(CATALOGUE);
    let ran = palette(&estate, "payments", &[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.starts_with("render: cannot read the catalogue ../my-estate/"), "{ran:?}");
}
