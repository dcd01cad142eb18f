//! `compare`: the three arithmetics side by side.

use rollout_lab::compare::{Answer, Comparison, Question, QuestionError, compare, svg, table};

fn ask(replicas: i64, unavailable: &str, surge: &str) -> Question {
    Question {
        replicas,
        max_unavailable: unavailable.parse().unwrap(),
        max_surge: surge.parse().unwrap(),
        unhealthy_old: 0,
        acknowledge: true,
        seed: 1,
    }
}

fn answered(question: &Question) -> (Comparison, [Answer; 3]) {
    let comparison = compare(question).unwrap();
    let answers = comparison.answers.clone().try_into().unwrap();
    (comparison, answers)
}

fn brief(answer: &Answer) -> (&str, i64, i64) {
    (answer.outcome.as_str(), answer.passes, answer.min_available)
}

#[test]
fn no_surge_stalls_the_baseline_only_and_the_output_says_why() {
    let (comparison, [baseline, strict, kubernetes]) = answered(&ask(3, "1", "0"));
    assert_eq!(brief(&baseline), ("stalls", 0, 3));
    assert_eq!(brief(&strict), ("succeeded", 7, 2));
    assert_eq!(brief(&kubernetes), ("succeeded", 6, 2));
    let text = table(&comparison);
    assert!(text.contains("surge ceiling: 3 of 3 are used, no target may be created"), "{text}");
    assert!(text.contains("health gate: 0 healthy targets for 0 old tasks"), "{text}");
    assert!(text.trim_end().ends_with("not a run of it"), "what is not claimed comes last");
    assert_eq!(svg(&comparison).matches("<path d=\"M").count() % 3, 0);
}

#[test]
fn side_by_side_of_the_specification() {
    let (_, [baseline, strict, kubernetes]) = answered(&ask(3, "0", "1"));
    for answer in [&baseline, &strict, &kubernetes] {
        assert_eq!((answer.outcome.as_str(), answer.min_available), ("succeeded", 3));
    }
    let (_, [baseline, _, kubernetes]) = answered(&ask(3, "1", "1"));
    assert_eq!(brief(&baseline), ("succeeded", 6, 3));
    assert_eq!(brief(&kubernetes), ("succeeded", 4, 2));
    let (_, [baseline, strict, kubernetes]) =
        answered(&Question { unhealthy_old: 1, ..ask(3, "0", "1") });
    assert_eq!(baseline.outcome, "stalls");
    assert!(baseline.why.iter().any(|why| why.starts_with("availability gate")));
    assert_eq!((strict.outcome.as_str(), kubernetes.outcome.as_str()), ("succeeded", "succeeded"));
}

#[test]
fn without_acknowledgements_the_baseline_doubles_its_processes_and_strict_waits() {
    let (_, [baseline, strict, kubernetes]) =
        answered(&Question { acknowledge: false, ..ask(3, "0", "1") });
    assert_eq!((baseline.outcome.as_str(), baseline.max_processes), ("succeeded", 6));
    assert_eq!((strict.outcome.as_str(), strict.max_processes), ("stalls", 4));
    assert_eq!((kubernetes.outcome.as_str(), kubernetes.max_processes), ("succeeded", 6));
}

#[test]
fn every_small_question_has_an_answer_and_strict_and_kubernetes_always_arrive() {
    for replicas in 1..=6 {
        for (u, s) in (0..=replicas).flat_map(|u| (0..=4).map(move |s| (u, s))) {
            if (u, s) == (0, 0) {
                continue;
            }
            for unhealthy_old in 0..=replicas {
                let question =
                    Question { unhealthy_old, ..ask(replicas, &u.to_string(), &s.to_string()) };
                let (_, [_, strict, kubernetes]) = answered(&question);
                assert_eq!(strict.outcome, "succeeded", "{question:?}");
                assert_eq!(kubernetes.outcome, "succeeded", "{question:?}");
                let least = (replicas - unhealthy_old).min(replicas - u);
                assert!(strict.min_available >= least, "{question:?}");
                assert!(kubernetes.min_available >= least, "{question:?}");
                assert!(strict.max_processes <= replicas + s, "{question:?}");
            }
        }
    }
}

#[test]
fn questions_out_of_range() {
    assert_eq!(compare(&ask(0, "0", "1")).unwrap_err(), QuestionError::Replicas);
    assert_eq!(compare(&ask(1000, "0", "1")).unwrap_err(), QuestionError::Replicas);
    assert_eq!(compare(&ask(3, "0", "0%")).unwrap_err(), QuestionError::BothZero);
    let sick = Question { unhealthy_old: 4, ..ask(3, "0", "1") };
    assert_eq!(compare(&sick).unwrap_err(), QuestionError::Unhealthy);
    for bad in ["-1", "x", "", "%", "1.5", "9999999999999999999"] {
        assert!(bad.parse::<rollout_lab::compare::Amount>().is_err(), "{bad:?}");
    }
}
