//! The binary `mapae`.

fn main() {}
