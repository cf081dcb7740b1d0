//! Any text is a valid configuration or gives an error with a place in the text; no text causes a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = anthill::config::parse(text, Path::new("/etc/anthill.toml"));
    }
});
