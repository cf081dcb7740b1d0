//! Compresses the rows of the guide's table of rules for `anthill help R742`: 6 KB in place of 18 KB.

use flate2::{Compression, write::DeflateEncoder};
use std::io::Write;
use std::path::Path;
use std::{env, fs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
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
