//! Hostile peers beside honest collectors (docs/loadgen.md, "Flood"). How fast the honest are served
//! is measured on a quiet machine and not asserted here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use loadgen::flood::{Options, flood};

#[tokio::test]
async fn a_crowd_that_never_finishes_reads_or_makes_sense_harms_nobody() {
    let options = Options {
        gateway: PathBuf::from(env!("CARGO_BIN_EXE_gateway")),
        estate: Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/estates/demo"),
        honest: 100,
        half_open: 200,
        slow_readers: 30,
        garbage: 30,
        duration: Duration::from_secs(2),
        arguments: ["--workers", "1"].map(str::to_owned).into(),
    };
    let outcome = flood(&options).await.unwrap();
    assert!(outcome.beside.all_right, "{outcome}");
    let bound = outcome.resident_before + outcome.growth_max;
    assert!(outcome.resident_most <= bound, "{outcome}");
    assert!(outcome.crowd.most >= 230, "{outcome}");
    assert!(outcome.crowd.thrown_out > 30, "garbage is refused: {outcome}");
}
