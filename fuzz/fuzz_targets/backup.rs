//! The tar of a backup, as an archive from elsewhere may have it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| anthill::base::tar::check(bytes));
