//! Scrubbed texts and digests.

use std::time::Duration;

use proptest::prelude::*;

use crate::estate::{Cohort, Halt, Hosts};
use crate::rollout::evidence::*;
use crate::rollout::tests::{demo, rollout_of};
use crate::snapshot::served::{ServedRollout, ServedStage};

#[test]
fn secrets_and_control_characters_do_not_pass() {
    for (said, kept) in [
        ("bind: address already in use", "bind: address already in use"),
        ("two\nlines\r\n\tand \u{1b}[31mcolour\u{0}", "two lines and [31mcolour"),
        ("re\u{202e}versed", "re versed"),
        ("password=hunter2 rest", "password=*** rest"),
        ("DB_PASSWORD: 'hunter two', rest", "DB_PASSWORD: '***', rest"),
        (r#"{"api_key":"abc","x":1}"#, r#"{"api_key":"***","x":1}"#),
        ("Authorization: Bearer abc.def rest", "Authorization: Bearer *** rest"),
        ("header Bearer abc.def, rest", "header Bearer ***, rest"),
        (
            "GET https://joe:pw@host:1/path@x?token=abc&y=1",
            "GET https://***@host:1/path@x?token=***&y=1",
        ),
        ("key AKIA0123456789abcdefGHIJ end", "key *** end"),
        ("-----BEGIN PRIVATE KEY-----\nMII/x\n-----END PRIVATE KEY----- end", "*** end"),
        ("-----BEGIN PRIVATE KEY-----\nMII/x", "***"),
        ("uid 01890a5d-ac96-774b-bcce-b302099a8057", "uid 01890a5d-ac96-774b-bcce-b302099a8057"),
        ("unexpected token 'x' at 3", "unexpected token 'x' at 3"),
        ("", ""),
        (" \n ", ""),
    ] {
        assert_eq!(scrub(said), kept, "{said:?}");
    }
    assert_eq!(scrub(&"é".repeat(5_000)), "é".repeat(128));
}

proptest! {
    #[test]
    fn any_text_becomes_one_short_line(text in "\\PC{0,300}|(token[=: \"]{0,3}|://|@|é|\n|bearer |-----begin){0,40}") {
        let kept = scrub(&text);
        prop_assert!(kept.len() <= ERROR_BYTES_MAX);
        prop_assert!(!kept.chars().any(char::is_control));
    }

    #[test]
    fn the_value_of_a_password_is_never_kept(
        before in "[a-z ]{0,20}",
        name in "password|TOKEN|Client_Secret|apikey",
        sign in "=|: |\": \"| = '",
        value in "[A-Z][a-zA-Z0-9/+.-]{7,20}",
    ) {
        let said = format!("{before} {name}{sign}{value}");
        prop_assert!(!scrub(&said).contains(&value), "{} of {}", scrub(&said), said);
    }
}

/// They go into the store and from process to process. Figures of the C implementation of xxHash.
#[test]
fn digests_are_the_same_in_every_process() {
    assert_eq!(error_id("bind: address already in use"), ErrorId(4_103_575_659));
    assert_eq!(halt_digest(&Halt::default()), 5_757_840_095_925_452_566);
    assert_eq!(cohort_digest(&two_hosts()), 17_291_959_947_804_632_735);
}

#[test]
fn each_value_of_a_halt_block_is_in_its_digest() {
    let digest = halt_digest(&Halt::default());
    let changed = [
        Halt { abort_at_percent: 11, ..Halt::default() },
        Halt { dark_after: Duration::from_millis(90_001), ..Halt::default() },
        Halt { min_seen: 1, ..Halt::default() },
        Halt { retry_failed: 1, ..Halt::default() },
    ];
    for changed in changed {
        assert_ne!(digest, halt_digest(&changed), "{changed:?}");
    }
}

#[test]
fn a_cohort_digest_tells_who_may_be_in_the_cohort() {
    let base = two_hosts();
    let digest = cohort_digest(&base);

    let mut same = base.clone();
    same.stages[0].cohort = hosts(&["b", "a", "b"]);
    same.stages[0].soak = Duration::from_secs(1);
    same.stages[1].cohort.percent = 6;
    same.hold = !base.hold;
    assert_eq!(cohort_digest(&same), digest, "order, soak and later stages change nobody");

    let change = |change: &dyn Fn(&mut ServedRollout)| {
        let mut other = base.clone();
        change(&mut other);
        assert_ne!(cohort_digest(&other), digest);
    };
    change(&|other| other.stage = 1);
    change(&|other| other.stages[0].cohort = hosts(&["ab"]));
    change(&|other| other.stages[0].cohort.percent = 1);
    change(&|other| other.stages[0].cohort.hosts = None);
    change(&|other| {
        other.stages[0].cohort.matches.insert("a".to_owned(), "b".to_owned());
    });
    change(&|other| other.hash_attributes.push("more".to_owned()));
    change(&|other| other.hash_salt = Some("salt".to_owned()));
}

fn hosts(values: &[&str]) -> Cohort {
    Cohort {
        hosts: Some(Hosts {
            attribute: "host.name".to_owned(),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        }),
        ..Cohort::default()
    }
}

/// At the first of two stages, which admits the hosts a and b.
fn two_hosts() -> ServedRollout {
    let stage = |cohort| ServedStage { cohort, soak: Duration::ZERO };
    ServedRollout {
        stage: 0,
        stages: vec![stage(hosts(&["a", "b"])), stage(Cohort { percent: 5, ..hosts(&[]) })],
        hash_attributes: vec!["service.instance.id".to_owned()],
        hash_salt: None,
        ..rollout_of(&demo())
    }
}
