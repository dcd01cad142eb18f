//! Every input in the fuzz corpora, through the targets' own functions.

use std::fs;
use std::path::Path;

use crate::bodies;

#[test]
fn frame_holds_on_its_corpus() {
    replay("frame", bodies::frame::run);
}

#[test]
fn peek_holds_on_its_corpus() {
    replay("peek", bodies::peek::run);
}

#[test]
fn session_holds_on_its_corpus() {
    replay("session", bodies::session::run);
}

#[test]
fn uplink_holds_on_its_corpus() {
    replay("uplink", bodies::uplink::run);
}

#[test]
fn ws_holds_on_its_corpus() {
    replay("ws", bodies::ws::run);
}

fn replay(target: &str, run: impl Fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let mut inputs = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        run(&fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs > 0, "{} is empty", corpus.display());
}
