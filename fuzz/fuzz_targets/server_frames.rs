//! Frames of an HTTP/2 server, complete and truncated.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| wire::invariants::h2_client::frames(bytes));
