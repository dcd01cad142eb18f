//! An evidence bundle of any bytes: unreadable, different, or the same however it is written.

use render::rollout::bundle::{Bundle, verify};
use render::rollout::report::RolloutReport;

/// `data` is what `gateway rollout verify` is given.
pub(crate) fn run(data: &[u8]) {
    let verified = match verify(data) {
        Ok(verified) => verified,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert_eq!(verified.same, verified.differences.is_empty());
    assert!(verified.differences.iter().all(|difference| !difference.is_empty()));

    // What was read holds no number that is too large, so there is a bundle of it.
    let bundle = match Bundle::of(&verified.report) {
        Ok(bundle) => bundle,
        Err(error) => panic!("{error} in what was read"),
    };
    let again = match bundle.to_canonical_json().map(|bytes| verify(&bytes)) {
        Ok(Ok(again)) => again,
        Ok(Err(error)) | Err(error) => panic!("{error} in what we wrote"),
    };
    assert_eq!(again.verdict, verified.verdict);
    assert_eq!(again.report, RolloutReport { proposal: None, ..verified.report });
    // The digest is right now, and the figures are as they were.
    let known = |difference: &String| verified.differences.contains(difference);
    assert!(again.differences.iter().all(known), "{:?}", again.differences);
}
