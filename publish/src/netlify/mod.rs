//! Files `_headers` and `_redirects` in the format of Netlify.

pub mod headers;
pub mod redirects;

use crate::problem::Problem;

/// Returns an error with the file and the line.
fn refused(file: &str, line: usize, what: impl Into<String>) -> Problem {
    Problem::usage(format!("{file}, line {line}: {}", what.into()))
}
