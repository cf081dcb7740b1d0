//! Whatever git says becomes a page that runs nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| anthill::handler::git::browse::invariants::pages(bytes));
