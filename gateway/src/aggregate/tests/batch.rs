//! A batch does what each of its changes would do alone.

use super::super::Observation;
use super::*;

/// One of a batch.
fn said(number: u32, change: Record) -> Observation<'static> {
    let mut uid = [0; 16];
    uid[..4].copy_from_slice(&number.to_le_bytes());
    let about = About {
        uid: InstanceUid(uid),
        label: "host",
        version: "0.158.0",
        error: "cannot bind",
        no_bucket: number.is_multiple_of(7),
    };
    Observation { identity: identity(number), change, about }
}

/// Some connect, take the candidate, apply it or fail, are lost; some of it comes twice.
fn batch(scene: &Scene, seconds: u32) -> Vec<Observation<'static>> {
    let mut batch = Vec::new();
    let heard_ms = scene.aggregator.now_ms(at(seconds));
    for number in 0..3_000 {
        let session = scene.aggregator.begin_session(at(seconds));
        let stamp = || session.stamp(scene.aggregator.next_n());
        let seat = if number % 3 == 0 { Seat::Control } else { Seat::Stage(0) };
        let observed = Observed { seat, foreign: number % 11 == 0, healthy: None };
        let base = Record { heard_ms, ..Record::default() };
        batch.push(said(
            number,
            Record {
                conn: Some((session, Conn::Open)),
                observed: Some((stamp(), observed)),
                arm: Some((stamp(), Reading::From)),
                ..base
            },
        ));
        if number % 2 == 0 {
            let arm = Some((stamp(), Reading::To));
            let first_to_ms = Some(heard_ms);
            batch.push(said(number, Record { arm, applied: Some(stamp()), first_to_ms, ..base }));
        }
        if number % 50 == 1 {
            let failed = Some((stamp(), error_id("cannot bind")));
            batch.push(said(number, Record { failed, ..base }));
        }
        if number % 13 == 2 {
            batch.push(said(number, Record { conn: Some((session, Conn::Lost)), ..base }));
        }
    }
    let again = batch[100..400].to_vec();
    batch.extend(again);
    batch
}

#[test]
fn a_batch_does_what_its_changes_do_one_by_one() {
    let head = Head::new();
    let (alone, together) = (Scene::new(&head), Scene::new(&head));
    for seconds in [1, 2, 40] {
        // The same stamps for both.
        let changes = batch(&alone, seconds);
        for Observation { identity, change, about } in &changes {
            alone.cell().observe(at(seconds), *identity, change, *about);
        }
        assert_eq!(together.cell().observe_batch(at(seconds), &changes), None);
        assert_eq!(alone.cell().len(), together.cell().len());
        assert_eq!(alone.cell().tally(), together.cell().tally());
        for number in 0..3_000 {
            let record = |scene: &Scene| scene.cell().record(identity(number));
            assert_eq!(record(&alone), record(&together));
        }
        let (alone, together) = (alone.report(seconds), together.report(seconds));
        assert_eq!(alone.halted, together.halted);
        assert_eq!(alone.verdict.kind, together.verdict.kind);
        assert!(alone.tally.members().failed > 0 && !alone.halted.is_empty());
    }
    assert!(alone.cell().is_braked() == together.cell().is_braked());
}

#[test]
fn a_batch_with_a_failure_is_awaited() {
    let folder = tempfile::tempdir().unwrap();
    let store = Some(folder.path().join("evidence.redb"));
    let settings = Settings { store, ..settings() };
    let aggregator = Aggregator::open(settings, Metrics::leak(), at(0)).unwrap();
    let mut scene = Scene { aggregator, cell: None };
    scene.head(0, &Head::new());
    let session = scene.aggregator.begin_session(at(1));
    let stamp = session.stamp(scene.aggregator.next_n());
    let open = Record { conn: Some((session, Conn::Open)), ..Record::default() };
    let failed = Record { failed: Some((stamp, error_id("e"))), ..Record::default() };
    let cell = scene.cell();
    assert_eq!(cell.observe_batch(at(1), &[said(1, open), said(2, open)]), None);
    assert!(cell.observe_batch(at(1), &[said(1, open), said(2, failed), said(3, open)]).is_some());
    assert_eq!(cell.failed(identity(2)), Some(0));
    scene.aggregator.close();
}
