//! Every input in the fuzz corpus, through the target's own function.

use std::fs;
use std::path::Path;

use crate::bodies;

#[test]
fn estate_holds_on_its_corpus() {
    replay("estate", bodies::estate::run);
}

#[test]
fn verify_holds_on_its_corpus() {
    replay("verify", bodies::verify::run);
}

fn replay(target: &str, run: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let mut inputs = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        run(&fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs > 0, "{} is empty", corpus.display());
}
