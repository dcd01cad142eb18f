#![no_main]

#[path = "../bodies/ws.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
