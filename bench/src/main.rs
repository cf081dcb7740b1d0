//! `anthill-bench`, run as `anthill bench`.
fn main() {}
