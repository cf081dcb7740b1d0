//! `anthill bench report` and `anthill bench compare`: make reports from result files.

use std::path::Path;
use std::process::ExitCode;

use super::command::Arguments;
use super::problem::{Done, Problem, put};
use crate::compare;
use crate::extrapolate;
use crate::report::{self, Format, Published, performance};
use crate::result::{Cell, Run};

pub(super) fn report(arguments: &Arguments) -> Done {
    let runs = read(&arguments.operands)?;
    let output = arguments.path("output");
    let into = [
        (arguments.path("figures"), performance::figures(&runs)),
        (arguments.path("summary"), performance::summary(&runs)),
    ];
    let mut written = false;
    for (file, text) in into {
        if let Some(file) = file {
            let done = performance::write(&file, &text);
            done.map_err(|error| Problem::usage(error.to_string()))?;
            written = true;
        }
    }
    // With tables written into files, nothing is printed unless an output or format is given.
    if written && output.is_none() && !arguments.has("format") {
        return Ok(ExitCode::SUCCESS);
    }
    let text = match form(arguments.value("format"), output.as_deref())? {
        Form::Csv => {
            if let Some(other) = runs.iter().find(|run| run.suite != extrapolate::SUITE) {
                return Err(no_csv(&other.suite));
            }
            let (run, name) = one_contender(&runs)?;
            if let Some(file) = &output {
                return write_csv(run, name, file).map(|()| ExitCode::SUCCESS);
            }
            let text = extrapolate::csv(run, name, false);
            text.ok_or_else(nothing_in_csv)?
        }
        Form::Report(format) => {
            let published = if arguments.has("published") {
                Published::Shown
            } else {
                Published::Hidden
            };
            report::report(&runs, format, published)
        }
    };
    put(&text, output.as_deref())
}

pub(super) fn compare(arguments: &Arguments) -> Done {
    let runs = read(&arguments.operands)?;
    let output = arguments.path("output");
    let format = match &output {
        Some(file) => of_file(file)?,
        None => Format::Markdown,
    };
    let (before, after) = (&runs[0], &runs[1]);
    let document = compare::compare(before, after).document(before, after);
    put(&report::write(&document, format), output.as_deref())
}

/// Kind of output.
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
        (None, Some(path)) => of_file(path).map(Form::Report),
        (None, None) => Ok(Form::Report(Format::Markdown)),
    }
}

fn of_file(path: &Path) -> Result<Format, Problem> {
    Format::of_file(path).ok_or_else(|| {
        let ending = path.extension().unwrap_or_default().to_string_lossy();
        let text = format!("{}: unknown report format `.{ending}`", path.display());
        Problem::usage(text).help("reports are .html or .md, and .csv for `matrix`")
    })
}

/// Writes a contender's rows, with TLS rows in a separate file, and prints the file names.
pub(super) fn write_csv(run: &Run, contender: &str, file: &Path) -> Result<(), Problem> {
    let written = extrapolate::write_csv(run, contender, file);
    let written =
        written.map_err(|error| Problem::failure(format!("{}: {error}", file.display())))?;
    if written.is_empty() {
        return Err(nothing_in_csv());
    }
    for file in written {
        eprintln!("{}: rows of {contender}", file.display());
    }
    Ok(())
}

/// Returns the error for suites other than `matrix`: the CSV columns cannot distinguish their scenarios.
pub(super) fn no_csv(suite: &str) -> Problem {
    Problem::usage(format!("`{suite}` cannot be written as CSV")).help("only `matrix` can")
}

fn nothing_in_csv() -> Problem {
    Problem::usage("no rows over plain HTTP were measured")
        .help("with `-o FILE.csv`, rows over TLS are written into FILE.tls.csv")
}

/// Returns the only contender with rounds. The columns of Spare Cores' CSV have no field for the server's
/// name, so a file holds the rows of one server.
fn one_contender(runs: &[Run]) -> Result<(&Run, &str), Problem> {
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
        (Some(only), None) => Ok(only),
        (None, _) => Err(Problem::usage("the result has no rounds")),
        (Some(_), Some(_)) => Err(Problem::usage("a CSV holds the rows of one contender")
            .help("`anthill bench run matrix --csv FILE` writes a file per contender")),
    }
}

fn read(names: &[String]) -> Result<Vec<Run>, Problem> {
    names
        .iter()
        .map(|name| Run::read(Path::new(name)).map_err(|error| Problem::usage(error.to_string())))
        .collect()
}
