//! The tar format of a backup, with arbitrary archives.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| base::tar::check(bytes));
