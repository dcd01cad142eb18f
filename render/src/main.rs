//! render

fn main() {}
