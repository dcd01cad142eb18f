//! The conclusions: each derived from the rows and facts of a document, so that a changed figure
//! changes a conclusion.

use super::document::{Acceptance, Checkpoint, Observation, Refusal};

/// Derives A1 to A10 from these rows and the rest of the document.
pub fn accept(rows: &[Checkpoint], seen: &Observation) -> Vec<Acceptance> {
    let (replicas, unavailable) = (seen.fixture.replicas, seen.fixture.max_unavailable);
    let rows_where = |holds: &dyn Fn(&Checkpoint) -> bool| {
        let broken: Vec<i64> = rows.iter().filter(|row| !holds(row)).map(|row| row.seq).collect();
        let ok = broken.is_empty() && rows.len() == 7;
        (
            ok,
            if ok {
                "all 7 rows".to_owned()
            } else {
                format!("{} rows, broken in {broken:?}", rows.len())
            },
        )
    };
    let pairs_where = |holds: &dyn Fn(&Checkpoint, &Checkpoint) -> bool| {
        rows.windows(2).all(|pair| holds(&pair[0], &pair[1]))
    };
    let one = |id: &str, says: &str, (ok, detail): (bool, String)| Acceptance {
        id: id.to_owned(),
        ok,
        detail: format!("{says}: {detail}"),
    };
    let end = &seen.end;
    let last = rows.last();
    let expected_last = if seen.switches.iter().any(|switch| switch == "acknowledge") {
        "running"
    } else {
        "succeeded"
    };
    let negative = broken_negatives(seen);
    vec![
        one(
            "A1",
            "old_active + target_active is at most surge_bound",
            rows_where(&|row| row.old_active + row.target_active <= row.surge_bound),
        ),
        one(
            "A2",
            "modeled_available is at least replicas - maxUnavailable",
            rows_where(&|row| row.modeled_available >= replicas - unavailable),
        ),
        one(
            "A3",
            "no stop before its healthy target: target_healthy is at least replicas - old_active",
            rows_where(&|row| row.target_healthy >= replicas - row.old_active),
        ),
        one("A4", "old_active never grows, target_healthy never shrinks", {
            let ok = pairs_where(&|a, b| {
                b.old_active <= a.old_active && b.target_healthy >= a.target_healthy
            });
            (ok, format!("{} steps", rows.len().saturating_sub(1)))
        }),
        one("A5", "history is not work: 6 stored tasks, 3 active", {
            let seen = (end.stored_tasks, end.active_tasks);
            (seen == (2 * replicas, replicas), format!("{} stored, {} active", seen.0, seen.1))
        }),
        one("A6", "one deployment succeeded; one stop was unacknowledged at the last row", {
            let pending = last.map_or(-1, |row| row.pending_stop);
            let status = last.map_or("none", |row| row.deployment_status.as_str());
            let ok = end.succeeded_deployments == 1
                && pending == 1
                && status == expected_last
                && end.last_old_task == ["stopped", "healthy"];
            let succeeded = end.succeeded_deployments;
            (ok, format!("{succeeded} succeeded, last row {status} with {pending} pending"))
        }),
        one("A7", "N1 to N11 were performed and came out as they must", {
            let ok = negative.is_empty();
            (ok, if ok { "all 11".to_owned() } else { format!("not {}", negative.join(", ")) })
        }),
        one("A8", "the same seed observes the same", {
            (end.replay_identical, "two runs in one process".to_owned())
        }),
        one("A9", "the model opens no socket, no process, and no file but the timeline", {
            (end.files == 1, format!("{} file", end.files))
        }),
        one("A10", "what is not claimed is said", {
            let count = seen.not_claimed.iter().filter(|text| !text.trim().is_empty()).count();
            (count > 0 && count == seen.not_claimed.len(), format!("{count} statements"))
        }),
    ]
}

/// The numbers of the negative operations that came out otherwise.
fn broken_negatives(seen: &Observation) -> Vec<&'static str> {
    let negative = &seen.negative;
    let refused = |refusal: &Refusal, kind: &str, operation: Option<&str>| {
        refusal.kind == kind && refusal.operation.as_deref() == operation && refusal.unchanged
    };
    let repeat = &negative.repeat_same;
    let (failure, rollback) = (&seen.failure, &seen.rollback);
    let (delete, maintenance) = (&seen.delete, &seen.maintenance);
    let bypasses =
        maintenance.audit_actions.iter().filter(|action| *action == "maintenance.bypass");
    let outcomes = [
        ("N1", repeat.same_id && repeat.deployments == 1 && repeat.version == 2),
        ("N2", refused(&negative.changed_image, "Conflict", Some("rollout"))),
        ("N3", refused(&negative.scale_during, "Conflict", Some("rollout"))),
        ("N4", refused(&negative.rollback_during, "Conflict", Some("rollout"))),
        ("N5", refused(&negative.stale_status_write, "Conflict", None)),
        (
            "N6",
            refused(&negative.late_healthy, "InvalidState", None)
                && failure.target_status == "failed",
        ),
        (
            "N7",
            failure.status == "failed"
                && failure.completed_at.is_some()
                && failure.free_cpu_at_assignment < seen.fixture.request_cpu,
        ),
        (
            "N8",
            rollback.deployment_id != failure.deployment_id
                && (rollback.from, rollback.to) == (2, 1)
                && rollback.status == "rolling_back"
                && rollback.status_after_pass == "rolled_back"
                && rollback.image == seen.fixture.image_from
                && rollback.failed_record_unchanged,
        ),
        ("N9", refused(&negative.rollback_untouched, "InvalidState", None)),
        (
            "N10",
            delete.deployment_status == "failed"
                && delete.service_status == "deleting"
                && delete.service_status_at_last == "deleted",
        ),
        (
            "N11",
            maintenance.refused_kind == "Conflict"
                && maintenance.deployments_after_refusal == 0
                && maintenance.records_after_refusal == 0
                && maintenance.forced_ok
                && bypasses.count() == 1,
        ),
    ];
    outcomes.into_iter().filter(|(_, ok)| !ok).map(|(name, _)| name).collect()
}
