//! Manifests and pointers of releases, with arbitrary texts.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| release::invariants::release(bytes));
