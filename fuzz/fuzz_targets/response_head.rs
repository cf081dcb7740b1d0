//! Heads of members' responses, complete and truncated.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| wire::invariants::response_head(bytes));
