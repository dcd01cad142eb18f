//! The types in `src/gen` are those of `proto/opamp.proto`.

use std::path::Path;
use std::{env, fs};

#[test]
fn the_checked_in_types_are_those_of_the_schema() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let schema = root.join("proto/opamp.proto");
    let checked_in = root.join("src/gen/opamp.proto.v1.rs");

    let descriptors = protox::compile([&schema], [root.join("proto")]).unwrap();
    let out = env::temp_dir().join(format!("tidegate-gen-{}", std::process::id()));
    fs::create_dir_all(&out).unwrap();
    prost_build::Config::new()
        .bytes(["."])
        .btree_map(["."])
        .out_dir(&out)
        .compile_fds(descriptors)
        .unwrap();
    let fresh = fs::read_to_string(out.join("opamp.proto.v1.rs")).unwrap();
    fs::remove_dir_all(&out).unwrap();

    if env::var_os("UPDATE_GEN").is_some() {
        fs::write(&checked_in, &fresh).unwrap();
    }
    let old = fs::read_to_string(&checked_in).unwrap();
    let differs = old.lines().zip(fresh.lines()).position(|(old, fresh)| old != fresh);
    assert!(old == fresh, "differs at line {differs:?}; run this test with UPDATE_GEN=1");
}
