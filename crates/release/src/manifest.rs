//! Manifest of a release: all files with the sizes and digests of their contents, and the rules for serving them.
//!
//! A manifest is a canonical text: one set of files and rules has one spelling, so the digest of the text identifies the
//! release. The first line is `anthill release 1`. The other lines come in this order, each of words divided by one
//! space:
//!
//! ```text
//! error STATUS PATH            error page
//! cache SECONDS GLOB           max-age of the files that match, the first match wins
//! fields GLOB                  begins the response fields of the files that match
//! field NAME VALUE             response field of the last `fields`, except fields of the server and of the whole host
//! redirect STATUS FROM [TO]    redirect for a path without a file; no TO with status 410
//! redirect! STATUS FROM [TO]   redirect that also applies where a file exists
//! file SIZE DIGEST PATH        file
//! hashed SIZE DIGEST PATH      file with a name that contains a hash of the content
//! gzip SIZE DIGEST             coded content of the last file; `br` and `zstd` alike, in the order gzip, br, zstd
//! ```
//!
//! A digest is SHA-256 in lower-case hexadecimal. Paths have no initial slash, and come in the order of their names,
//! folder by folder ([`compare_paths`]). Bytes of a word outside of `!` to `~`, and `%`, are percent-encoded with
//! upper-case digits.

mod changes;
mod difference;
mod field_name;
mod line;
mod reader;
mod rule_bounds;
mod writer;

#[cfg(test)]
mod tests;

pub use changes::{Change, Changes};
pub use difference::{apply_difference, difference};
pub use field_name::{field_refusal, is_settable, valid_value};
pub use line::{BlobRef, ManifestLine, RedirectLine};
pub use reader::ManifestReader;
pub use rule_bounds::RuleBounds;
pub use writer::ManifestWriter;

use std::cmp::Ordering;
use std::fmt;

/// First line of a manifest, with the version of the format.
const HEADER: &str = "anthill release 1";

/// Reason why a text is no manifest.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ManifestError {
    /// Number of the line, from 1.
    pub line: usize,
    /// Reason, as one clause.
    pub what: &'static str,
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the manifest: {}", self.line, self.what)
    }
}

impl std::error::Error for ManifestError {}

/// Compares two paths name by name, bytewise. A file and a folder of one name therefore stand side by side, and the
/// entries of a folder come in the order of their names.
pub fn compare_paths(one: &[u8], other: &[u8]) -> Ordering {
    let names = |path| <[u8]>::split(path, |byte| *byte == b'/');
    names(one).cmp(names(other))
}

/// Returns the rules of a manifest: the lines between the first line and the files.
pub fn rules_of(manifest: &[u8]) -> &[u8] {
    let rules = &manifest[first_line(manifest).len()..];
    let lines = rules.split_inclusive(|byte| *byte == b'\n');
    let is_rule = |line: &&[u8]| !line.starts_with(b"file ") && !line.starts_with(b"hashed ");
    let length = lines.take_while(is_rule).map(<[u8]>::len).sum();
    &rules[..length]
}

/// Returns the first line of a manifest with its line break; an empty text has none.
pub fn first_line(manifest: &[u8]) -> &[u8] {
    let mut lines = manifest.split_inclusive(|byte| *byte == b'\n');
    lines.next().unwrap_or_default()
}
