//! `anthill bench report` and `compare`: result files become something to read.

use std::path::Path;

use super::typed::Typed;
use super::{Done, Problem, put};
use crate::result::Run;

pub(super) fn report(typed: &Typed) -> Done {
    let runs = read(&typed.operands)?;
    let output = typed.path("output");
    put(&format!("{}", runs.len()), output.as_deref())
}

pub(super) fn compare(typed: &Typed) -> Done {
    let runs = read(&typed.operands)?;
    let output = typed.path("output");
    put(&format!("{}", runs.len()), output.as_deref())
}

fn read(names: &[String]) -> Result<Vec<Run>, Problem> {
    names
        .iter()
        .map(|name| Run::read(Path::new(name)).map_err(|error| Problem::usage(error.to_string())))
        .collect()
}
