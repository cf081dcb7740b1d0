//! `anthill bench import`: makes a result from the output of other load generators.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::command::Arguments;
use super::problem::{Done, Problem};
use super::run::unused;
use crate::import::{Source, import};

pub(super) fn run(arguments: &Arguments) -> Done {
    let mut sources = Vec::new();
    for name in &arguments.operands {
        let text = read(name).map_err(|error| Problem::usage(format!("{name}: {error}")))?;
        let name = name.clone();
        sources.push(Source { name, text });
    }
    let run =
        import(&sources, &arguments.line).map_err(|error| Problem::usage(error.to_string()))?;
    let output = match arguments.path("output") {
        Some(output) => apart(output, &arguments.operands)?,
        None => unused(&stem(&arguments.operands)),
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

/// Returns the output path unless it is one of the inputs. Another existing file may be replaced, but an
/// input cannot be measured again.
fn apart(output: PathBuf, inputs: &[String]) -> Result<PathBuf, Problem> {
    let file = output.canonicalize().ok();
    let same = |input: &&String| file.is_some() && Path::new(input).canonicalize().ok() == file;
    match inputs.iter().find(same) {
        Some(input) => {
            let text = format!("`--output {}` would replace {input}", output.display());
            Err(Problem::usage(text).help("choose another file"))
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

/// Returns the result's name without extension: the name of a single input file, otherwise `imported`.
fn stem(inputs: &[String]) -> String {
    match inputs {
        [name] if name != "-" => Path::new(name).with_extension("").display().to_string(),
        _ => "imported".to_owned(),
    }
}
