//! `[log]`, and the key `log` of `[[site]]`: destinations, formats, skipped lines and rotation.

use std::path::PathBuf;

use toml::Spanned;

use crate::config::declared_table::{ShownValue, declare_table};
use crate::config::error::OperatorError;
use crate::config::paths::service_logs;
use crate::config::toml_reader::{FromToml, KeyedValue, SourceText};
use crate::config::value_types::ByteSize;
use crate::config::values::{InvalidValue, is_regular_expression, wrong};
use base::limits::{LOG_FILES_KEPT_MAX, LOG_ROTATION_BYTES_MAX, LOG_ROTATION_BYTES_MIN};
use base::log::Rotation;
use data_plane::ledger::access_log::AccessLogFormat;
use data_plane::world::log_skip::{SkipRule, StatusSet};
use release::glob::Glob;

declare_table! {
    /// Keys of `[log]`.
    pub(super) struct LogTable: "[log]" {
        /// Access log: `"-"` (standard output), `"stderr"`, `"off"` or a file. A new [service](service.md#logs) has a
        /// file without the key.
        access: LogTarget = default(LogTarget::Stdout),
            also ["access_log", "CustomLog", "output", "file"], example "\"/var/log/anthill/access.log\"";
        /// Error log, with the same values.
        errors: LogTarget = default(LogTarget::Stderr),
            also ["error_log", "ErrorLog", "error"], example "\"/var/log/anthill/errors.log\"";
        /// Format of the access log; see [Access log](logs.md#access-log).
        format: AccessLogFormat = default(AccessLogFormat::Combined),
            also ["log_format", "LogFormat"], example "\"json\"";
        /// Responses without a line in the access log; see [Skipped lines](logs.md#skipped-lines).
        skip: Vec<Spanned<SkipTable>> = optional("none"),
            also ["exclude", "filter", "log_skip"], example "[\"/health\", { status = 304 }]";
        /// Rotation of all log files by the server; see [Rotation](logs.md#rotation).
        rotate: RotateTable = optional("none"),
            also ["roll", "rotation", "roll_size", "maxsize"], example "{ size = \"100MiB\", keep = 10 }";
    }
}

declare_table! {
    /// Keys of `log` of a site as a table.
    pub(super) struct SiteLogTable: "the table `log`",
        short access "\"-\", \"stderr\", \"off\", a file", "\"access.log\""
    {
        /// Access log of the site.
        access: LogTarget = optional("the server's"), also ["output", "file"], example "\"www.log\"";
        /// Format of the lines of the site.
        format: AccessLogFormat = optional("the server's"), example "\"vhost_combined\"";
        /// Responses of the site without a line, instead of `skip` in `[log]`.
        skip: Vec<Spanned<SkipTable>> = optional("the server's"), example "[\"/static/\"]";
    }
}

declare_table! {
    /// Keys of a rule of `skip`.
    pub(super) struct SkipTable: "a rule of `skip`", short path "a path", "\"/health\"" {
        /// Patterns of the path, as in [`files`](sites.md#files-by-glob); a final slash stands for all paths below.
        path: Vec<Spanned<SkipPath>> = optional("all paths"),
            also ["files", "uri", "url"], example "[\"/health\", \"*.png\"]";
        /// Statuses of the response.
        status: Vec<Spanned<StatusRange>> = optional("below 400, and 404"),
            also ["code", "codes", "statuses"], example "[304, \"2xx\"]";
    }
}

declare_table! {
    /// Keys of `rotate`.
    pub(super) struct RotateTable: "the table `rotate`", short size "a size", "\"100MiB\"" {
        /// Size of a log file at which the server begins a new file.
        size: ByteSize = default(ByteSize(ROTATION_BYTES)),
            within(ByteSize(LOG_ROTATION_BYTES_MIN), ByteSize(LOG_ROTATION_BYTES_MAX)),
            also ["roll_size", "maxsize", "max_size"], example "\"100MiB\"";
        /// Number of earlier files kept: `access.log.1` is the newest.
        keep: u32 = default(ROTATION_FILES), within(1, LOG_FILES_KEPT_MAX),
            also ["roll_keep", "rotate", "count", "max_files"], example "30";
        /// Compression of the earlier files with gzip: `access.log.1.gz`.
        compress: bool = default(true), also ["gzip"], example "false";
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
    pub format: AccessLogFormat,
    /// Rules for the responses without a line in the access log.
    pub skip: Vec<SkipRule>,
    /// Rotation of all log files by the server; `None` = no rotation.
    pub rotate: Option<Rotation>,
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

/// Log of a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteLogConfig {
    /// Destination; `None` = the access log of the server.
    pub access: Option<Spanned<LogTarget>>,
    /// Format of the lines; `None` = the format of the server.
    pub format: Option<AccessLogFormat>,
    /// Rules for responses without a line; `None` = the rules of the server.
    pub skip: Option<Vec<SkipRule>>,
}

impl LogTable {
    /// Returns the settings of `[log]`.
    pub(super) fn settings(self, source: &SourceText<'_>) -> LogConfig {
        let rotate = self.rotate.map(|rotate| {
            let rotate = rotate.into_inner();
            Rotation {
                bytes_max: rotate.size.into_inner().0,
                keep: rotate.keep.into_inner(),
                is_compressed: rotate.compress.into_inner(),
            }
        });
        LogConfig {
            access: self.access,
            errors: self.errors,
            format: self.format.into_inner(),
            skip: rules(source, self.skip).unwrap_or_default(),
            rotate,
        }
        .in_service_folder(service_logs())
    }
}

impl LogConfig {
    /// Writes the access log of an installed service to the folder that the service gives the server, and rotates the
    /// file. A configured access log stays as it is.
    pub(super) fn in_service_folder(mut self, folder: Option<PathBuf>) -> LogConfig {
        if let Some(folder) = folder.filter(|_| self.access.span().is_empty()) {
            let file = folder.join(ACCESS_LOG_NAME);
            self.access = Spanned::new(0..0, LogTarget::File(file));
            self.rotate.get_or_insert(SERVICE_ROTATION);
        }
        self
    }

    /// Returns the folder that a service gives the server, if the access log is there without a key.
    pub(crate) fn service_folder(&self) -> Option<PathBuf> {
        let LogTarget::File(file) = self.access.get_ref() else {
            return None;
        };
        let is_default = self.access.span().is_empty();
        service_logs().filter(|folder| is_default && file.parent() == Some(folder))
    }

    /// Returns true if the configuration names the destination or the rotation of a log of the server.
    pub(crate) fn is_configured(&self) -> bool {
        let logs = [&self.access, &self.errors];
        self.rotate.is_some() || logs.iter().any(|log| !log.span().is_empty())
    }
}

/// Name of the access log in the folder of a service.
pub(crate) const ACCESS_LOG_NAME: &str = "access.log";
/// Rotation of the logs of a service: the defaults of `rotate`.
const SERVICE_ROTATION: Rotation = Rotation {
    bytes_max: ROTATION_BYTES,
    keep: ROTATION_FILES,
    is_compressed: true,
};
/// Default of `size` in `rotate`, in bytes.
const ROTATION_BYTES: u64 = 64 << 20;
/// Default of `keep` in `rotate`.
const ROTATION_FILES: u32 = 10;

impl SiteLogTable {
    /// Returns the settings of the key `log` of a site.
    pub(super) fn settings(self, source: &SourceText<'_>) -> SiteLogConfig {
        SiteLogConfig {
            access: self.access,
            format: self.format.map(Spanned::into_inner),
            skip: rules(source, self.skip),
        }
    }
}

/// Converts the rules of `skip`. Errors are recorded.
fn rules(
    source: &SourceText<'_>,
    tables: Option<Spanned<Vec<Spanned<SkipTable>>>>,
) -> Option<Vec<SkipRule>> {
    let rule = |table: Spanned<SkipTable>| {
        if table.get_ref().path.is_none() && table.get_ref().status.is_none() {
            let what = "the rule of `skip` has neither `path` nor `status`";
            let help = "add path = \"/health\" or status = 304; for no access log at all, write access = \"off\"";
            return Err(source.error(table.span(), what, help));
        }
        Ok(table.into_inner().rule())
    };
    let tables = tables?.into_inner().into_iter();
    Some(
        tables
            .filter_map(|table| source.keep(rule(table)))
            .collect(),
    )
}

impl SkipTable {
    fn rule(self) -> SkipRule {
        let paths = self.path.map(Spanned::into_inner).unwrap_or_default();
        let mut statuses = StatusSet::default();
        match self.status {
            Some(ranges) => ranges.into_inner().into_iter().for_each(|range| {
                let StatusRange(first, last) = range.into_inner();
                statuses.add(first, last);
            }),
            // A refusal is a sign of an attack, such as the guessing of passwords at a path of the rule. A missing page
            // is none.
            None => [(0, 399), (404, 404)]
                .into_iter()
                .for_each(|(first, last)| statuses.add(first, last)),
        }
        SkipRule {
            paths: paths.into_iter().map(|it| it.into_inner().0).collect(),
            statuses,
        }
    }
}

/// Pattern of a path in `skip`.
#[derive(Clone, Debug)]
pub(super) struct SkipPath(Glob);

impl FromToml for SkipPath {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        item.parse("a path", "\"/health\"", |text| {
            if is_regular_expression(text) {
                return wrong(
                    format!("`{text}` is a regular expression, not a pattern"),
                    "write a pattern, such as \"*.png\" or \"/static/\"",
                );
            }
            // A path that ends with a slash stands for the folder with all paths below.
            let all = text.ends_with('/').then(|| format!("{text}**"));
            match Glob::parse(all.as_deref().unwrap_or(text)) {
                Ok(glob) => Ok(SkipPath(glob)),
                Err(error) => wrong(
                    format!("the pattern is invalid: {error}"),
                    "`*` stands for any part of a name, `?` for one character, `{a,b}` for a or b, `**` for folders",
                ),
            }
        })
    }
}

/// Statuses from the first to the last: one status, or a class such as `"2xx"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StatusRange(u16, u16);

impl StatusRange {
    fn parse(text: &str) -> Result<StatusRange, InvalidValue> {
        let class = text.strip_suffix("xx").or_else(|| text.strip_suffix("XX"));
        let class = class.and_then(|digit| digit.parse().ok());
        match (class, text.parse()) {
            (Some(class @ 1..=5), _) => Ok(StatusRange(class * 100, class * 100 + 99)),
            (_, Ok(status @ 100..=599)) => Ok(StatusRange(status, status)),
            _ => wrong(
                format!("`{text}` is not a status"),
                "write a status such as 304, or a class such as \"2xx\"",
            ),
        }
    }
}

impl FromToml for StatusRange {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        match item.value.get_ref().as_integer() {
            Some(number) => {
                let number = number.as_str().to_owned();
                StatusRange::parse(&number).map_err(|wrong| item.refuse(wrong.what, wrong.help))
            }
            None => item.parse("a status", "304", StatusRange::parse),
        }
    }
}

impl FromToml for LogTarget {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        match item.text() {
            Some(text) => match LogTarget::of_word(text) {
                Some(target) => Ok(target),
                None => Ok(LogTarget::File(PathBuf::read(item)?)),
            },
            None => Err(item.mistyped("\"-\", \"stderr\", \"off\" or a file", "\"access.log\"")),
        }
    }
}

impl LogTarget {
    /// Returns the destination for a word; `None` for the path of a file.
    pub(crate) fn of_word(word: &str) -> Option<LogTarget> {
        match word {
            "-" | "stdout" => Some(LogTarget::Stdout),
            "stderr" => Some(LogTarget::Stderr),
            "off" => Some(LogTarget::Off),
            _ => None,
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

/// Words for the formats of the access log.
const FORMATS: [(&str, AccessLogFormat); 3] = [
    ("combined", AccessLogFormat::Combined),
    ("vhost_combined", AccessLogFormat::VhostCombined),
    ("json", AccessLogFormat::Json),
];

impl FromToml for AccessLogFormat {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        // Words of other servers, without `_`.
        const FOREIGN: &[(&str, &str)] = &[
            ("vcombined", "vhost_combined"),
            ("common", "combined"),
            ("main", "combined"),
            ("console", "combined"),
        ];
        item.word_or_foreign(&FORMATS, FOREIGN)
    }
}

impl ShownValue for AccessLogFormat {
    fn shown(&self) -> String {
        let word = FORMATS.iter().find(|(_, format)| format == self);
        format!("\"{}\"", word.map_or("", |(word, _)| word))
    }
}
