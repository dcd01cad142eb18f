//! Every input in the fuzz corpus, through the target's own function.

use std::fs;
use std::path::Path;

use crate::bodies;

#[test]
fn estate_holds_on_its_corpus() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/estate");
    let mut inputs = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        bodies::estate::run(&fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs > 0, "{} is empty", corpus.display());
}
