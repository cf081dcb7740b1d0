//! `anthill bench import`: outputs of others become a result.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::typed::Typed;
use super::{Done, Problem};
use crate::import::import;

pub(super) fn run(typed: &Typed) -> Done {
    let name = typed.operands[0].as_str();
    let text = read(name).map_err(|error| Problem::usage(format!("{name}: {error}")))?;
    let run =
        import(name, &text, &typed.line).map_err(|error| Problem::usage(error.to_string()))?;
    let output = typed.path("output").unwrap_or_else(|| beside(name));
    run.write(&output)
        .map_err(|error| Problem::failure(format!("{}: {error}", output.display())))?;
    let what = match run.cells.len() {
        1 => "1 output".to_owned(),
        many => format!("{many} outputs"),
    };
    eprintln!("{}: {what}", output.display());
    Ok(ExitCode::SUCCESS)
}

fn read(name: &str) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if name == "-" {
        std::io::stdin().lock().read_to_end(&mut bytes)?;
    } else {
        bytes = std::fs::read(name)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn beside(name: &str) -> PathBuf {
    match name {
        "-" => PathBuf::from("imported.json"),
        name => Path::new(name).with_extension("json"),
    }
}
