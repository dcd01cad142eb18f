//! What the page's structure, style and script promise: reachable for everybody, and closed.

use std::collections::BTreeMap;

use super::*;
use crate::admin::page::POLICY;

const STYLE: &str = include_str!("../../../../ui/page.css");
const SCRIPT: &str = include_str!("../../../../ui/page.js");

fn full_page() -> Node {
    let mut scene = Scene::new(Kind::ALL.map(judged).into_iter().chain([aborted()]));
    scene.rollouts.push("team/new".to_owned());
    scene.notices.push("The store cannot be written.".to_owned());
    scene.signed_in = true;
    scene.page()
}

#[test]
fn headings_descend_one_by_one_and_everything_has_a_name() {
    let page = full_page();
    let mut last = 0;
    for node in page.everything() {
        let Some(level) = node.tag().strip_prefix('h').and_then(|level| level.parse::<u32>().ok())
        else {
            continue;
        };
        assert!(level <= last + 1, "{} after h{last}: {}", node.tag(), node.text());
        last = level;
    }
    assert_eq!(page.all("h1").len(), 1);
    for landmark in ["header", "main", "footer"] {
        assert!(!page.all(landmark).is_empty(), "{landmark}");
    }
    let main = page.only("main");
    for section in main.children_of("section") {
        page.by_id(section.attribute("aria-labelledby").unwrap());
    }
    for table in page.all("table") {
        assert!(!table.only("caption").text().is_empty());
        assert!(table.all("th").iter().all(|th| th.attribute("scope").is_some()));
    }
    for svg in page.all("svg") {
        assert_eq!(svg.attribute("aria-hidden"), Some("true"), "pictures repeat what text says");
    }
    for time in page.all("time") {
        assert!(time.attribute("datetime").unwrap().ends_with('Z'));
    }
    let spoken: Vec<_> =
        page.everything().into_iter().filter_map(|node| node.attribute("aria-live")).collect();
    assert_eq!(spoken, ["polite"]);
}

#[test]
fn links_lead_somewhere_and_nothing_runs_or_loads_from_elsewhere() {
    let page = full_page();
    for node in page.everything() {
        for (name, value) in node.attributes() {
            assert!(!name.starts_with("on") && name != "style", "{name}={value}");
            match name {
                "href" if value.starts_with('#') => drop(page.by_id(&value[1..])),
                "href" | "src" | "action" => {
                    let pull_request = node.attribute("rel") == Some("noopener noreferrer");
                    assert!(value.starts_with('/') || pull_request, "{value}");
                }
                _ => {}
            }
        }
    }
    let script = page.only("script");
    assert_eq!(script.text(), "", "no inline script");
    assert!(page.all("style").is_empty());
    for file in [STYLE, SCRIPT] {
        for elsewhere in ["http:", "https:", "@import", "url("] {
            assert!(!file.contains(elsewhere), "{elsewhere}");
        }
    }
    for unsafe_way in ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("] {
        assert!(!SCRIPT.contains(unsafe_way), "{unsafe_way}");
    }
}

#[test]
fn the_policy_allows_nothing_but_our_own() {
    let directives: BTreeMap<&str, &str> =
        POLICY.split(';').filter_map(|part| part.trim().split_once(' ')).collect();
    assert_eq!(directives["default-src"], "'none'");
    assert_eq!(directives["frame-ancestors"], "'none'");
    for (directive, sources) in directives {
        let strict = ["'none'", "'self'", "'script'"].contains(&sources);
        assert!(strict, "{directive} {sources}");
    }
}

/// Texts that meet their background, each 4.5:1 or better (WCAG 2.2, 1.4.3).
const TEXTS: [(&str, &str); 22] = [
    ("text", "bg"),
    ("text", "surface"),
    ("text", "sunken"),
    ("text", "critical-soft"),
    ("text", "warning-soft"),
    ("muted", "bg"),
    ("muted", "surface"),
    ("muted", "sunken"),
    ("link", "bg"),
    ("link", "surface"),
    ("link", "critical-soft"),
    ("link", "warning-soft"),
    ("on-critical", "critical"),
    ("on-warning", "warning"),
    ("on-well", "well"),
    ("critical-ink", "critical-soft"),
    ("critical-ink", "surface"),
    ("warning-ink", "warning-soft"),
    ("warning-ink", "surface"),
    ("calm-ink", "calm-soft"),
    ("well-ink", "well-soft"),
    ("calm-ink", "surface"),
];

/// Shapes that carry meaning, each 3:1 or better against what they lie on (1.4.11).
const SHAPES: [(&str, &str); 17] = [
    ("to", "surface"),
    ("taking", "surface"),
    ("from", "surface"),
    ("other", "surface"),
    ("unknown", "surface"),
    ("failed", "surface"),
    ("dark", "surface"),
    ("failed", "sunken"),
    ("dark", "sunken"),
    ("line", "sunken"),
    ("control", "sunken"),
    ("control", "surface"),
    ("focus", "bg"),
    ("focus", "surface"),
    ("critical-ink", "sunken"),
    ("calm-ink", "sunken"),
    ("well-ink", "sunken"),
];

#[test]
fn every_pair_of_colours_that_meets_can_be_read() {
    for (theme, colours) in themes() {
        let check = |pairs: &[(&str, &str)], least: f64| {
            for (front, back) in pairs {
                let contrast = contrast(colours[*front], colours[*back]);
                assert!(contrast >= least, "{theme}: {front} on {back} is {contrast:.2}:1");
            }
        };
        check(&TEXTS, 4.5);
        check(&SHAPES, 3.0);
    }
}

#[test]
fn both_themes_name_the_same_colours_and_rules_use_no_other() {
    let [(_, light), (_, dark)] = themes();
    assert_eq!(light.keys().collect::<Vec<_>>(), dark.keys().collect::<Vec<_>>());
    let rules = STYLE.rsplit_once("}\n}\n").unwrap().1;
    for (at, _) in rules.match_indices('#') {
        let digits = rules[at + 1..].bytes().take_while(u8::is_ascii_hexdigit).count();
        assert!(digits < 3, "{}", &rules[at..at + 8]);
    }
    for (at, _) in rules.match_indices("var(--") {
        let name = rules[at + 6..].split(')').next().unwrap();
        let local = ["ink", "soft"].contains(&name);
        assert!(local || light.contains_key(name), "{name}");
    }
}

#[test]
fn motion_stops_where_it_is_not_wanted() {
    let reduced = STYLE.split("prefers-reduced-motion: reduce").nth(1).unwrap();
    assert!(reduced.contains("animation: none !important"));
}

type Colours = BTreeMap<&'static str, [u8; 3]>;

fn themes() -> [(&'static str, Colours); 2] {
    let blocks: Vec<&str> = STYLE.split(":root {").skip(1).collect();
    assert_eq!(blocks.len(), 2);
    let colours = |block: &'static str| {
        block
            .split('}')
            .next()
            .unwrap()
            .lines()
            .filter_map(|line| line.trim().strip_prefix("--")?.strip_suffix(';')?.split_once(": #"))
            .map(|(name, value)| (name, u32::from_str_radix(value, 16).unwrap().to_be_bytes()))
            .map(|(name, [_, r, g, b])| (name, [r, g, b]))
            .collect()
    };
    [("light", colours(blocks[0])), ("dark", colours(blocks[1]))]
}

/// WCAG 2.2, "contrast ratio".
fn contrast(one: [u8; 3], other: [u8; 3]) -> f64 {
    let luminance = |colour: [u8; 3]| {
        let [r, g, b] = colour.map(|part| {
            let part = f64::from(part) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * r + 0.7152 * g + 0.0722 * b
    };
    let (one, other) = (luminance(one) + 0.05, luminance(other) + 0.05);
    one.max(other) / one.min(other)
}

#[test]
fn contrast_is_measured_as_the_standard_does() {
    assert!((contrast([0; 3], [255; 3]) - 21.0).abs() < 1e-9);
    assert!((contrast([0x77; 3], [255; 3]) - 4.48).abs() < 0.01);
}
