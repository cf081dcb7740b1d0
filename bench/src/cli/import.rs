//! `anthill bench import`: outputs of others become a result.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::run::unused;
use super::typed::Typed;
use super::{Done, Problem};
use crate::import::{Source, import};

pub(super) fn run(typed: &Typed) -> Done {
    let mut sources = Vec::new();
    for name in &typed.operands {
        let text = read(name).map_err(|error| Problem::usage(format!("{name}: {error}")))?;
        let name = name.clone();
        sources.push(Source { name, text });
    }
    let run = import(&sources, &typed.line).map_err(|error| Problem::usage(error.to_string()))?;
    let output = match typed.path("output") {
        Some(output) => apart(output, &typed.operands)?,
        None => unused(&stem(&typed.operands)),
    };
    run.write(&output)
        .map_err(|error| Problem::failure(format!("{}: {error}", output.display())))?;
    let what = match run.cells.len() {
        1 => "1 output".to_owned(),
        many => format!("{many} outputs"),
    };
    eprintln!("{}: {what}", output.display());
    Ok(ExitCode::SUCCESS)
}

/// What the user names may be there already, but not what was just read: it can't be measured again.
fn apart(output: PathBuf, inputs: &[String]) -> Result<PathBuf, Problem> {
    let file = output.canonicalize().ok();
    let same = |input: &&String| file.is_some() && Path::new(input).canonicalize().ok() == file;
    match inputs.iter().find(same) {
        Some(input) => {
            let text = format!("`--output {}` would replace {input}", output.display());
            Err(Problem::usage(text).help("name another file"))
        }
        None => Ok(output),
    }
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

/// The result's name without its ending: that of the only file, beside it.
fn stem(inputs: &[String]) -> String {
    match inputs {
        [name] if name != "-" => Path::new(name).with_extension("").display().to_string(),
        _ => "imported".to_owned(),
    }
}
