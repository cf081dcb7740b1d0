//! Request bodies, fixed-length and chunked, complete and truncated.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| wire::invariants::body(bytes));
