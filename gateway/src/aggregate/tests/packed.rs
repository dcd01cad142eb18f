//! What is merged into packed bytes against the merge of plain records.

use proptest::prelude::*;
use render::rollout::evidence::{ErrorId, Record, Stamp};

use super::super::packed::{Cold, Hot, Incarnations, Slot};
use super::super::replicas::{Owners, Replicas};
use super::*;

fn owners() -> Arc<Owners> {
    let mut replicas = Replicas::new(0, 1, 0);
    replicas.hello(0, 5, "a");
    Arc::new(replicas.owners())
}

/// Few values, so that epochs, incarnations and whole stamps often are the same.
fn record() -> impl Strategy<Value = Record> {
    let stamp = || {
        (0..3_u64, prop::sample::select(vec![9, 2, 5_u32]), 0..3_u64)
            .prop_map(|(epoch_ms, incarnation, n)| Stamp { epoch_ms, incarnation, n })
    };
    let session = (stamp(), prop::sample::select(vec![Conn::Open, Conn::Drained, Conn::Left]))
        .prop_map(|(Stamp { epoch_ms, incarnation, n }, conn)| {
            (Session { epoch_ms, incarnation, n }, conn)
        });
    let reading = prop::sample::select(vec![Reading::Taking, Reading::To, Reading::Unknown]);
    let seat =
        prop::sample::select(vec![Seat::Stage(0), Seat::Stage(700), Seat::Control, Seat::Outside]);
    let observed = (seat, any::<bool>(), any::<Option<bool>>())
        .prop_map(|(seat, foreign, healthy)| Observed { seat, foreign, healthy });
    (
        prop::option::of((stamp(), (0..3_u32).prop_map(ErrorId))),
        prop::option::of(stamp()),
        prop::option::of((stamp(), reading)),
        prop::option::of(session),
        prop::option::of((stamp(), observed)),
        0..4_u64,
        prop::option::of(0..4_u64),
        0..3_u8,
    )
        .prop_map(|(failed, applied, arm, conn, observed, heard_ms, first_to_ms, tries)| {
            Record { failed, applied, arm, conn, observed, heard_ms, first_to_ms, tries }
        })
}

proptest! {
    #[test]
    fn packed_records_merge_as_records_do(changes in prop::collection::vec(record(), 1..12)) {
        let mut known = Incarnations::new(owners());
        let (mut hot, mut cold) = (Hot::EMPTY, Cold::EMPTY);
        let mut slot = Slot { hot: &mut hot, cold: &mut cold };
        let mut model = Record::default();
        for change in changes {
            let before = model;
            model.merge(&change);
            let merged = slot.merge(&change, true, &mut known).unwrap();
            let packed = slot.as_packed();
            prop_assert_eq!(packed.record(&known), model);
            prop_assert_eq!(merged.changed, model != before);
            prop_assert_eq!(merged.failed, model.failed != before.failed);
            prop_assert_eq!(packed.failed_now(&known), model.failed_now());
            prop_assert_eq!(packed.conn(&known), model.conn);
            prop_assert_eq!(packed.hot.is_idle(), model.is_idle());
            prop_assert_eq!(packed.hot.took_candidate(), model.took_candidate());
            let open = matches!(model.conn, Some((_, Conn::Open)));
            prop_assert_eq!(packed.hot.is_open(), open);
            let vouched = open && model.conn.unwrap().0.incarnation == 5;
            prop_assert_eq!(packed.vouched(&known).is_some(), vouched);
        }
    }

    #[test]
    fn incarnations_are_renamed_without_loss(one in record(), other in record()) {
        let mut known = Incarnations::new(owners());
        let (mut hot, mut cold) = (Hot::EMPTY, Cold::EMPTY);
        let mut slot = Slot { hot: &mut hot, cold: &mut cold };
        slot.merge(&one, true, &mut known).unwrap();
        slot.merge(&other, true, &mut known).unwrap();
        let before = slot.as_packed().record(&known);
        let mut kept = Incarnations::new(owners());
        prop_assert_eq!(slot.rename(&known, &mut kept), Ok(()));
        prop_assert_eq!(slot.as_packed().record(&kept), before);
        prop_assert!(kept.len() <= known.len());
    }

    #[test]
    fn without_applied_all_else_is_merged(one in record(), other in record()) {
        let mut known = Incarnations::new(owners());
        let (mut hot, mut cold) = (Hot::EMPTY, Cold::EMPTY);
        let mut slot = Slot { hot: &mut hot, cold: &mut cold };
        slot.merge(&one, true, &mut known).unwrap();
        slot.merge(&other, false, &mut known).unwrap();
        let mut model = one;
        model.merge(&Record { applied: None, ..other });
        prop_assert_eq!(slot.as_packed().record(&known), model);
    }
}

#[test]
fn a_member_is_left_as_it_was_when_no_more_incarnations_can_be_named() {
    let mut known = Incarnations::new(owners());
    let (mut hot, mut cold) = (Hot::EMPTY, Cold::EMPTY);
    let mut slot = Slot { hot: &mut hot, cold: &mut cold };
    let said = |incarnation| {
        let stamp = Stamp { epoch_ms: u64::from(incarnation), incarnation, n: 1 };
        Record { applied: Some(stamp), heard_ms: stamp.epoch_ms, ..Record::default() }
    };
    for incarnation in 0..=u32::from(u16::MAX) {
        slot.merge(&said(incarnation), true, &mut known).unwrap();
    }
    assert!(slot.merge(&said(70_000), true, &mut known).is_err());
    assert_eq!(slot.as_packed().record(&known), said(u32::from(u16::MAX)));
    assert!(slot.merge(&said(7), true, &mut known).is_ok(), "a known one needs no room");
}
