//! The store: what a process that ended leaves to the next, whatever happened to the file.

use std::path::Path;

use render::rollout::evidence::{Conn, Seat};
use render::rollout::verdict::Kind;

use super::super::store::file::{self, Opened};
use super::super::{Durable, StoreError};
use super::*;

fn open_as(file: &Path, incarnation: u32, seconds: u32) -> Result<Scene, StoreError> {
    let settings = Settings { store: Some(file.to_owned()), incarnation, ..settings() };
    let aggregator = Aggregator::open(settings, Metrics::leak(), at(seconds))?;
    Ok(Scene { aggregator, cell: None })
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Five members, one of which failed late enough to brake; all of it acknowledged.
fn eventful(file: &Path) -> Scene {
    let mut scene = open_as(file, 7, 0).unwrap();
    scene.head(0, &Head::new());
    let all = members(&scene, 1, 5);
    scene.report(2);
    let ticket = scene.fails(50, all[2]).expect("somebody waits for it");
    assert_eq!(block_on(scene.aggregator.committed(ticket)), Durable::Stored);
    assert!(scene.cell().is_braked());
    scene
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("evidence.redb");
    let scene = eventful(&file);
    // What was being written ends, and nothing follows. The file stays open, and locked.
    scene.aggregator.shared.store.as_ref().unwrap().kill();
    scene.aggregator.writer.lock().unwrap().take().unwrap().join().unwrap();
    let killed = folder.path().join("killed.redb");
    std::fs::copy(&file, &killed).unwrap();

    let mut next = open_as(&killed, 8, 1_000).unwrap();
    next.head(1_000, &Head::new());
    assert!(next.cell().is_braked(), "in force when the head is");
    assert_eq!(next.cell().failed(identity(2)), Some(0));
    let report = next.report(1_001);
    assert_eq!(report.verdict.kind, Kind::Abort, "a stored brake holds while evidence gathers");
    assert_eq!((&*report.halted[0].label, &*report.halted[0].error), ("host-2", "cannot bind"));
    assert_eq!(report.times.stage_since_ms, START, "the first sight is remembered");
    assert!(report.notices.is_empty());
    drop(scene);
}

#[test]
fn a_clean_end_keeps_who_took_the_candidate() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("evidence.redb");
    eventful(&file).aggregator.close();

    let mut next = open_as(&file, 8, 1_000).unwrap();
    next.head(1_000, &Head::new());
    let report = next.report(1_001);
    assert_eq!((next.cell().len(), report.tally.stages[0].to), (5, 4));
    // Nobody came back: silent since evidence started, and not before that.
    assert_eq!(next.report(1_039).tally.stages[0].dark, 0);
    assert_eq!(next.report(1_041).tally.stages[0].dark, 4);
    let again = next.connect(1_050, 0, Seat::Stage(0));
    assert_eq!(next.report(1_051).tally.stages[0].dark, 3);
    next.closes(1_052, again, Conn::Lost);
}

#[test]
fn a_file_that_another_process_has_open_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("evidence.redb");
    let scene = eventful(&file);
    let refused = open_as(&file, 8, 60).err().unwrap();
    assert!(matches!(refused, StoreError::Locked { .. }), "{refused}");
    drop(scene);
    assert!(open_as(&file, 8, 60).is_ok());
}

#[test]
fn a_file_that_cannot_be_made_or_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for file in [folder.path().join("none/evidence.redb"), folder.path().to_owned()] {
        let refused = open_as(&file, 7, 0).err().unwrap();
        assert!(matches!(refused, StoreError::Unreadable { .. }), "{refused}");
    }
}

/// Whatever is in the file, there is an aggregator, and it says when it begins anew.
fn survives(bytes: &[u8], what: &str) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("evidence.redb");
    std::fs::write(&file, bytes).unwrap();
    let mut scene = open_as(&file, 8, 1_000).unwrap_or_else(|error| panic!("{what}: {error}"));
    scene.head(1_000, &Head::new());
    let report = scene.report(1_001);
    let aside = std::fs::read_dir(folder.path())
        .unwrap()
        .filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().starts_with("evidence.redb.damaged-")
        })
        .count();
    assert_eq!(aside, report.notices.len(), "{what}: {:?}", report.notices);
    // It works either way.
    let failing = scene.connect(1_002, 40, Seat::Stage(0));
    let ticket = scene.fails(1_002, failing).unwrap();
    assert_eq!(block_on(scene.aggregator.committed(ticket)), Durable::Stored, "{what}");
    aside == 1
}

#[test]
fn a_truncated_file_is_set_aside_wherever_it_was_cut() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("evidence.redb");
    eventful(&file).aggregator.close();
    let whole = std::fs::read(&file).unwrap();
    assert!(!survives(&whole, "whole"));
    // Past a few hundred pages the offsets are all alike: free pages of the last region.
    let offsets = (1..whole.len() / 4_096).map(|page| page * 4_096);
    let some: Vec<usize> = offsets.clone().take(64).chain(offsets.skip(64).step_by(97)).collect();
    for cut in some {
        assert!(survives(&whole[..cut], &format!("cut at {cut}")));
    }
}

#[test]
fn garbage_and_other_programs_files_are_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("evidence.redb");
    eventful(&file).aggregator.close();
    let mut flipped = std::fs::read(&file).unwrap();
    for at in (0..flipped.len()).step_by(4_096) {
        flipped[at] ^= 0x40;
    }
    assert!(survives(&flipped, "a bit of each page is another"));
    assert!(survives(&[7; 10_000], "garbage"));
    assert!(survives(b"owner: team\n", "a text"));
    assert!(!survives(b"", "an empty file is a fresh one"));

    let other = folder.path().join("other.redb");
    let table: redb::TableDefinition<'_, u8, u8> = redb::TableDefinition::new("theirs");
    let database = redb::Database::create(&other).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(table).unwrap().insert(1, 1).unwrap();
    write.commit().unwrap();
    drop(database);
    assert!(survives(&std::fs::read(&other).unwrap(), "another program's"));
}

#[test]
fn a_store_that_cannot_be_written_is_loud_and_is_written_when_it_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("evidence.redb");
    let broken = Opened { unwritable: Some("disk full".to_owned()), ..Opened::default() };
    let works = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let reopen = {
        let (works, file) = (Arc::clone(&works), file.clone());
        Box::new(move |unix_ms| match works.load(std::sync::atomic::Ordering::Acquire) {
            true => file::reopen(&file, unix_ms),
            false => Err("disk full".to_owned()),
        })
    };
    let settings = Settings { store: Some(file.clone()), ..settings() };
    let metrics = Metrics::leak();
    let aggregator = Aggregator::with_store(settings, metrics, at(0), broken, reopen).unwrap();
    let mut scene = Scene { aggregator, cell: None };
    scene.head(0, &Head::new());
    let failing = members(&scene, 1, 5)[0];
    let ticket = scene.fails(50, failing).unwrap();
    assert_eq!(block_on(scene.aggregator.committed(ticket)), Durable::Failed);
    let report = scene.report(51);
    assert_eq!(report.verdict.kind, Kind::Abort, "it judges from memory");
    assert_eq!(report.notices.len(), 1);

    works.store(true, std::sync::atomic::Ordering::Release);
    // The writer tries again at some tick; each FAILED tells whether it has.
    let mut seconds = 52;
    let stored = (0..1_000).any(|_| {
        seconds += 1;
        scene.aggregator.handle_timeout(at(seconds));
        let ticket = scene.fails(seconds, failing).unwrap();
        block_on(scene.aggregator.committed(ticket)) == Durable::Stored
    });
    assert!(stored);
    assert!(scene.report(seconds + 1).notices.is_empty());
    scene.aggregator.close();
    drop(scene);

    let mut next = open_as(&file, 8, 5_000).unwrap();
    next.head(5_000, &Head::new());
    assert!(next.cell().is_braked());
    assert_eq!((next.cell().len(), next.cell().failed(identity(0))), (5, Some(0)));
}

#[test]
fn a_clock_that_was_ahead_does_not_hold_time_up() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("evidence.redb");
    {
        let mut scene = open_as(&file, 7, 1_000_000).unwrap();
        scene.head(1_000_000, &Head::new());
        let all = members(&scene, 1_000_001, 20);
        scene.fails(1_000_002, all[0]);
        scene.aggregator.close();
    }
    let mut next = open_as(&file, 8, 100).unwrap();
    next.head(100, &Head::new());
    let report = next.report(101);
    assert_eq!(report.times.soak_since_ms, START + 100_000);
    assert_eq!(next.cell().failed(identity(0)), Some(0));
    assert_eq!(next.report(141).tally.stages[0].dark, 19);
    let again = next.connect(150, 0, Seat::Stage(0));
    next.takes(150, again, Reading::To);
    assert_eq!(next.cell().failed(identity(0)), None, "what comes now is newer");
}

#[test]
fn a_change_that_slept_a_week_is_gone_from_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("evidence.redb");
    let mut scene = eventful(&file);
    scene.head(60, &Head::new().without_rollout());
    let week = u32::try_from(super::super::DORMANT_MS / 1_000).unwrap();
    scene.aggregator.handle_timeout(at(61 + week));
    scene.aggregator.close();
    drop(scene);
    let opened = file::open(&file, START).unwrap();
    assert!(opened.loaded.cells.is_empty() && opened.loaded.records.is_empty());
    assert!(opened.loaded.sights.is_empty());
}
