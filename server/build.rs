//! Compresses the rows of the guide's table of rules for `anthill help R742`: 6 KB in place of 18 KB. Tells the linker of
//! a static release to put the functions that serve pages beside one another.

use flate2::{Compression, write::DeflateEncoder};
use std::io::Write;
use std::path::Path;
use std::{env, fs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    order_functions();
    let page = "../docs/src/rejects.md";
    println!("cargo::rerun-if-changed={page}");
    println!("cargo::rerun-if-changed=build.rs");
    let text = fs::read_to_string(page)?;
    let rows = text.lines().filter(|line| line.starts_with("| R"));
    let rows: String = rows.flat_map(|row| [row, "\n"]).collect();
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(rows.as_bytes())?;
    let out = Path::new(&env::var("OUT_DIR")?).join("rejects");
    fs::write(out, encoder.finish()?)?;
    Ok(())
}

/// Passes the order of the functions to the linker (tools/link_order.py has the reason). Only the release has an order:
/// `make tiny`, which leaves features out, merges functions with another linker.
fn order_functions() {
    const FILE: &str = "link_order.ld";
    println!("cargo::rerun-if-changed={FILE}");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    let is_full = env::var_os("CARGO_FEATURE_MANAGER").is_some();
    if is("CARGO_CFG_TARGET_ENV", "musl") && is("PROFILE", "release") && is_full {
        let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo::rustc-link-arg-bin=anthill=-Wl,-T,{folder}/{FILE}");
    }
}
