//! Field blocks of HTTP/2, all decoded with one dynamic table.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| wire::invariants::h2::hpack(bytes));
