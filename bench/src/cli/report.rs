//! `anthill bench report` and `compare`: result files become something to read.

use std::path::Path;
use std::process::ExitCode;

use super::typed::Typed;
use super::{Done, Problem, put};
use crate::compare;
use crate::extrapolate;
use crate::report::{self, Format, Published, performance};
use crate::result::{Cell, Run};

pub(super) fn report(typed: &Typed) -> Done {
    let runs = read(&typed.operands)?;
    let output = typed.path("output");
    let into = [
        (typed.path("figures"), performance::figures(&runs)),
        (typed.path("summary"), performance::summary(&runs)),
    ];
    let mut written = false;
    for (file, text) in into {
        if let Some(file) = file {
            let done = performance::write(&file, &text);
            done.map_err(|error| Problem::usage(error.to_string()))?;
            written = true;
        }
    }
    // Who wants tables in a file doesn't want them on the terminal too.
    if written && output.is_none() && !typed.has("format") {
        return Ok(ExitCode::SUCCESS);
    }
    let text = match form(typed.value("format"), output.as_deref())? {
        Form::Csv => csv(&runs)?,
        Form::Report(format) => {
            let published = match typed.has("published") {
                true => Published::Shown,
                false => Published::Hidden,
            };
            report::report(&runs, format, published)
        }
    };
    put(&text, output.as_deref())
}

pub(super) fn compare(typed: &Typed) -> Done {
    let runs = read(&typed.operands)?;
    let output = typed.path("output");
    let format = output.as_deref().map_or(Format::Markdown, Format::of_file);
    let (before, after) = (&runs[0], &runs[1]);
    let document = compare::compare(before, after).document(before, after);
    put(&report::write(&document, format), output.as_deref())
}

/// What is written.
enum Form {
    Report(Format),
    Csv,
}

fn form(named: Option<&str>, output: Option<&Path>) -> Result<Form, Problem> {
    let is_csv = |path: &Path| path.extension().is_some_and(|ending| ending == "csv");
    match (named, output) {
        (Some("csv"), _) => Ok(Form::Csv),
        (Some("html"), _) => Ok(Form::Report(Format::Html)),
        (Some("markdown"), _) => Ok(Form::Report(Format::Markdown)),
        (Some(other), _) => {
            Err(Problem::usage(format!("unknown format `{other}`")).help("markdown, html, csv"))
        }
        (None, Some(path)) if is_csv(path) => Ok(Form::Csv),
        (None, Some(path)) => Ok(Form::Report(Format::of_file(path))),
        (None, None) => Ok(Form::Report(Format::Markdown)),
    }
}

/// Spare Cores' columns hold one server's rows, and nothing says whose they are.
fn csv(runs: &[Run]) -> Result<String, Problem> {
    let measured = |run: &Run, name: &str| {
        let has = |cell: &Cell| cell.contender == name && !cell.rounds.is_empty();
        run.cells.iter().any(has)
    };
    let mut tables = runs.iter().flat_map(|run| {
        let names = run.contenders.iter().map(|facts| facts.name.as_str());
        names
            .filter(|name| measured(run, name))
            .map(move |name| (run, name))
    });
    match (tables.next(), tables.next()) {
        (Some((run, name)), None) => Ok(extrapolate::csv(run, name)),
        (None, _) => Err(Problem::usage("nothing was measured in it")),
        (Some(_), Some(_)) => Err(Problem::usage("a CSV holds the rows of one contender")
            .help("anthill bench run matrix --csv FILE writes one for each")),
    }
}

fn read(names: &[String]) -> Result<Vec<Run>, Problem> {
    names
        .iter()
        .map(|name| Run::read(Path::new(name)).map_err(|error| Problem::usage(error.to_string())))
        .collect()
}
