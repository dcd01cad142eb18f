//! loadgen

fn main() {}
