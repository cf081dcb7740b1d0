//! Headers of the PROXY protocol, both versions, complete and truncated.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| wire::invariants::proxy_header(bytes));
