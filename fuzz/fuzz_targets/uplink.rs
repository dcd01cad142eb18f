#![no_main]

#[path = "../bodies/uplink.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
