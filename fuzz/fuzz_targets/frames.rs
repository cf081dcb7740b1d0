//! Frames of HTTP/2, complete and truncated.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| wire::invariants::h2::frames(bytes));
