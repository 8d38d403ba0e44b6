//! The `bma-executor` binary.
fn main() {}
