//! Any output of git becomes a page without active content.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| anthill::git::browse::invariants::pages(bytes));
