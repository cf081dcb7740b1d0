//! Globs and paths, divided by a zero byte: the steps of a match are bounded.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| release::invariants::glob(bytes));
