//! The page does not grow with what it is drawn from.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use render::rollout::report::HALTED_MAX;

use super::*;
use crate::admin::page::{CARDS_MAX, FRESH, Newest, PAGE_BYTES_MAX, TIERS_MAX};

/// So many Rollouts and Tiers, each as long as it can be made.
fn crowd(rollouts: usize, tiers: usize) -> Scene {
    let mut report = aborted();
    let hostile = "<'\"&".repeat(64);
    report.verdict.why = hostile.clone();
    report.cohorts = report.cohorts.iter().cycle().take(500).cloned().collect();
    for line in &mut report.cohorts {
        line.cohort = hostile.clone();
    }
    report.notices = vec![hostile.clone(); 100];
    report.replicas = report.replicas.iter().cycle().take(2_000).cloned().collect();
    for (n, replica) in report.replicas.iter_mut().enumerate() {
        (replica.name, replica.incarnation) = (hostile.clone(), n.to_string());
    }
    let mut member = member("failed", &hostile, &hostile, 5);
    member.version = hostile.clone();
    report.halted = (0..HALTED_MAX)
        .map(|n| {
            let mut member = member.clone();
            // Kinds of a few members, and many of one.
            member.error = format!("{}{}", (n / 7) % 1_000, hostile);
            member
        })
        .collect();
    let mut scene = Scene::new([]);
    let report = Arc::new(report);
    scene.reports = (0..rollouts)
        .map(|n| (format!("team/rollout-{n:04}").into(), Arc::clone(&report)))
        .collect();
    scene.rollouts = scene.reports.keys().map(|id| id.to_string()).collect();
    scene.tiers = (0..tiers).map(|n| format!("team/tier-{n:05}")).collect();
    scene.counts = scene
        .tiers
        .iter()
        .map(|id| TierCount {
            tier: Some(id.as_str().into()),
            counts: [[u64::MAX / 1_000_000; 5]; 4],
        })
        .collect();
    scene
}

#[test]
fn a_thousand_rollouts_and_ten_thousand_tiers_make_no_larger_page_than_some() {
    // Cards of one report share an id, as their key alone differs: only the sizes matter here.
    let (some, many) = (crowd(50, 300).draw().html, crowd(1_000, 10_000).draw().html);
    assert!(many.len() < PAGE_BYTES_MAX, "{}", many.len());
    assert!(many.len() < some.len() + 1_000, "{} and {}", many.len(), some.len());
}

#[tokio::test]
async fn a_page_is_drawn_once_a_second_however_many_look_and_leave() {
    let (newest, drawn) = (Newest::default(), Arc::new(AtomicUsize::new(0)));
    let draw = || {
        let drawn = Arc::clone(&drawn);
        move || {
            drawn.fetch_add(1, Ordering::Relaxed);
            Scene::new([]).draw()
        }
    };
    let start = Duration::from_secs(7);
    // Begun, and then nobody waits for it any more.
    let mut left = Box::pin(newest.get(start, draw()));
    std::future::poll_fn(|cx| {
        let _ = left.as_mut().poll(cx);
        std::task::Poll::Ready(())
    })
    .await;
    drop(left);
    for after in [0, 1, 999] {
        newest.get(start + Duration::from_millis(after), draw()).await.unwrap();
    }
    assert_eq!(drawn.load(Ordering::Relaxed), 1);
    newest.get(start + FRESH, draw()).await.unwrap();
    assert_eq!(drawn.load(Ordering::Relaxed), 2);
}

#[test]
fn what_is_not_shown_is_counted_and_the_way_to_it_told() {
    let mut scene = Scene::new((0..CARDS_MAX + 7).map(|n| {
        let mut report = judged(Kind::Hold);
        report.rollout = format!("team/rollout-{n:04}");
        report
    }));
    scene.tiers = (0..TIERS_MAX + 9).map(|n| format!("team/tier-{n:05}")).collect();
    let page = scene.page();
    assert_eq!(page.all("article").len(), CARDS_MAX);
    let text = page.text();
    for part in [
        "7 more Rollouts, none worse than these; all of them: gateway rollout get",
        "9 rows more; all of them: curl 'http://ADMIN/api/v1/tiers?limit=10000'",
    ] {
        assert!(text.contains(part), "{part}");
    }
    let told = page.by_id("rollouts").text();
    assert_eq!(told, format!("Rollouts {}, worst first", CARDS_MAX + 7));
}
