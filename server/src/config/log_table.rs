//! `[log]`: destinations and format of the logs.

use std::path::PathBuf;

use toml::Spanned;

use crate::config::declared_table::{ShownValue, declare_table};
use crate::config::error::OperatorError;
use crate::config::toml_reader::{FromToml, KeyedValue};

declare_table! {
    /// Keys of `[log]`.
    pub(super) struct LogTable: "[log]" {
        /// Access log: `"-"` (standard output), `"stderr"`, `"off"` or a file.
        access: LogTarget = default(LogTarget::Stdout), also ["access_log"], example "\"/var/log/anthill/access.log\"";
        /// Error log, with the same values.
        errors: LogTarget = default(LogTarget::Stderr), also ["error_log", "error"],
            example "\"/var/log/anthill/errors.log\"";
        /// `"combined"` or `"json"`.
        format: LogFormat = default(LogFormat::Combined), also ["log_format"], example "\"json\"";
    }
}

/// Settings of `[log]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Destination of the access log.
    pub access: Spanned<LogTarget>,
    /// Destination of the error log.
    pub errors: Spanned<LogTarget>,
    /// Format of the lines of the access log.
    pub format: LogFormat,
}

/// Destination of a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LogTarget {
    /// The log is discarded.
    Off,
    /// Standard output, `-`.
    Stdout,
    /// Standard error.
    Stderr,
    /// Absolute path of a file to append to.
    File(PathBuf),
}

/// Format of a line of the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Combined log format, the common format of log tools.
    #[default]
    Combined,
    /// One JSON object a line.
    Json,
}

/// Formats of lines, by name.
const FORMATS: [(&str, LogFormat); 2] =
    [("combined", LogFormat::Combined), ("json", LogFormat::Json)];

impl LogTable {
    /// Returns the settings.
    pub(super) fn settings(self) -> LogConfig {
        LogConfig {
            access: self.access,
            errors: self.errors,
            format: self.format.into_inner(),
        }
    }
}

impl FromToml for LogTarget {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        match item.text() {
            Some("-" | "stdout") => Ok(LogTarget::Stdout),
            Some("stderr") => Ok(LogTarget::Stderr),
            Some("off") => Ok(LogTarget::Off),
            Some(_) => PathBuf::read(item).map(LogTarget::File),
            None => Err(item.mistyped("\"-\", \"stderr\", \"off\" or a file", "\"access.log\"")),
        }
    }
}

impl ShownValue for LogTarget {
    fn shown(&self) -> String {
        match self {
            LogTarget::Off => "\"off\"".to_owned(),
            LogTarget::Stdout => "\"-\"".to_owned(),
            LogTarget::Stderr => "\"stderr\"".to_owned(),
            LogTarget::File(path) => format!("\"{}\"", path.display()),
        }
    }
}

impl FromToml for LogFormat {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        item.word(&FORMATS)
    }
}

impl ShownValue for LogFormat {
    fn shown(&self) -> String {
        format!("\"{}\"", FORMATS[*self as usize].0)
    }
}
