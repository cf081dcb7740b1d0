//! JSON in responses to the server's own requests.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| anthill::wire::invariants::answer(bytes));
