//! Forwarded and X-Forwarded-For fields.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| wire::invariants::forwarded(bytes));
