//! Field sections of HTTP/3, each decoded alone.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| wire::invariants::h3::section(bytes));
