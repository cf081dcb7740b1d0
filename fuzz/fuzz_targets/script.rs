//! What a script answers, whole and cut, and fields of a request as its variables.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| anthill::wire::invariants::script(bytes));
