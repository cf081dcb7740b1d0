//! Responses of a script, complete and truncated, and request fields as variables of the script.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| wire::invariants::script(bytes));
