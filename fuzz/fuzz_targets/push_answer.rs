//! Responses of git to a push.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| wire::invariants::push_answer(bytes));
