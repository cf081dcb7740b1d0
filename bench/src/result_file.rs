//! Reading and writing of result files. Writes are atomic, and read errors name the file and the problem.
//!
//! A run takes minutes to hours, so the previous file must survive a full disk or a Ctrl-C during its
//! replacement. For an unreadable file, the error gives the cause instead of a JSON parser's message.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::result::{FORMAT, Run};

/// Error of reading a result file; every message names the file.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be opened or read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The text ends in the middle of a value.
    #[error("{}: the file is cut off in line {line}, in the middle of a result", path.display())]
    CutOff {
        /// Path of the file.
        path: PathBuf,
        /// Number of the last line.
        line: usize,
    },
    /// The file was written by a later version of the kit.
    #[error(
        "{}: written in format {format}, but this anthill-bench reads formats up to {FORMAT}: use a newer version",
        path.display()
    )]
    Newer {
        /// Path of the file.
        path: PathBuf,
        /// Format version in the file.
        format: u64,
    },
    /// The content is not a result, or not JSON at all.
    #[error("{}: not a result of anthill-bench: {source}", path.display())]
    NotAResult {
        /// Path of the file.
        path: PathBuf,
        /// The parser's error with line and column.
        source: serde_json::Error,
    },
}

impl Run {
    /// Reads a result file.
    pub fn read(path: &Path) -> Result<Run, ReadError> {
        let text = fs::read(path).map_err(|source| ReadError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        parse(path, &text)
    }

    /// Writes a result file atomically: a temporary file in the folder is synced and then renamed, so the
    /// previous file stays until the new file is on disk.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(folder)?;
        let mut file = tempfile::Builder::new()
            .prefix(".result-")
            .tempfile_in(folder)?;
        serde_json::to_writer_pretty(io::BufWriter::new(&mut file), self)?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        // Temporary files are readable only by their owner; a result has the usual permissions.
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        file.as_file().set_permissions(readable)?;
        file.persist(path)?;
        Ok(())
    }
}

/// Parses a result. The format version is checked first, since every other field may differ in a file of a
/// newer version.
fn parse(path: &Path, text: &[u8]) -> Result<Run, ReadError> {
    #[derive(Deserialize)]
    struct Head {
        format: u64,
    }
    let path_owned = || path.to_owned();
    let fault = |source: serde_json::Error| {
        if source.is_eof() || is_at_the_end(text, &source) {
            ReadError::CutOff {
                path: path_owned(),
                line: source.line(),
            }
        } else {
            ReadError::NotAResult {
                path: path_owned(),
                source,
            }
        }
    };
    let head: Head = serde_json::from_slice(text).map_err(fault)?;
    if head.format > u64::from(FORMAT) {
        return Err(ReadError::Newer {
            path: path_owned(),
            format: head.format,
        });
    }
    serde_json::from_slice(text).map_err(fault)
}

/// Returns true if the error is at the very end of the text. The parser reports a number truncated after
/// its decimal point as a syntax error.
fn is_at_the_end(text: &[u8], error: &serde_json::Error) -> bool {
    let mut lines = text.split(|&byte| byte == b'\n');
    let last = lines.next_back().unwrap_or_default();
    error.line() == lines.count() + 1 && error.column() == last.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Machine;

    fn run() -> Run {
        Run {
            format: FORMAT,
            tool: "anthill-bench 0.1.0".into(),
            suite: "hello".into(),
            title: "A sample".into(),
            begun: "2026-11-20T10:00:00Z".into(),
            ended: "2026-11-20T10:05:00Z".into(),
            complete: true,
            command: "anthill bench run hello".into(),
            machine: Machine {
                name: "here".into(),
                tick_seconds: 0.01,
                ..Machine::default()
            },
            contenders: Vec::new(),
            scenarios: Vec::new(),
            cells: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_written_result_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/hello.json");
        run().write(&path).unwrap();
        assert_eq!(Run::read(&path).unwrap(), run());
        run().write(&path).unwrap();
        assert_eq!(
            fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "no leftovers"
        );
    }

    #[test]
    fn a_file_cut_off_anywhere_is_reported_as_cut_off() {
        let whole = serde_json::to_string_pretty(&run()).unwrap();
        for end in 0..whole.len() {
            let error = parse(Path::new("half.json"), &whole.as_bytes()[..end]).unwrap_err();
            let message = error.to_string();
            assert!(
                matches!(error, ReadError::CutOff { .. }),
                "{end}: {message}"
            );
            assert!(
                message.starts_with("half.json: the file is cut off"),
                "{message}"
            );
        }
    }

    #[test]
    fn a_newer_format_is_rejected_before_other_fields_are_read() {
        let text = br#"{"format": 7, "suite": {"entirely": "different"}}"#;
        let error = parse(Path::new("new.json"), text).unwrap_err();
        assert_eq!(
            error.to_string(),
            "new.json: written in format 7, but this anthill-bench reads formats up to 1: use a newer version"
        );
    }

    #[test]
    fn the_error_of_an_invalid_file_has_a_position() {
        let error = parse(Path::new("odd.json"), br#"{"format": 1, "suite": 3}"#).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("odd.json: not a result of anthill-bench: "),
            "{error}"
        );
        let error = Run::read(Path::new("/nowhere/at/all.json")).unwrap_err();
        assert!(
            error.to_string().starts_with("/nowhere/at/all.json: "),
            "{error}"
        );
    }
}
