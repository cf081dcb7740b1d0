//! File `_headers` in the format of Netlify. The data plane reads `_redirects`.

pub mod headers;

use crate::problem::Problem;

/// Returns an error with the file and the line.
fn refused(file: &str, line: usize, what: impl Into<String>) -> Problem {
    Problem::usage(format!("{file}, line {line}: {}", what.into()))
}
