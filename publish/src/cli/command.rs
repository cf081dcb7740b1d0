//! Description of a command, and the parser of its arguments.

use crate::problem::Problem;
use lexopt::Arg;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

/// Description of a command.
pub(super) struct CommandSpec {
    /// Word of the command.
    pub(super) name: &'static str,
    /// Command line without `anthill`.
    pub(super) usage: &'static str,
    /// Description for the help.
    pub(super) about: &'static str,
    /// Options without `--help`.
    pub(super) options: &'static [OptionSpec],
    /// Runs the command.
    pub(super) run: fn(&ParsedCommand) -> Result<ExitCode, Problem>,
}

/// Option of a command.
pub(super) struct OptionSpec {
    name: &'static str,
    /// Name of the value for the help; empty for an option without a value.
    value: &'static str,
    about: &'static str,
}

impl OptionSpec {
    /// Describes an option without a value.
    pub(super) const fn switch(name: &'static str, about: &'static str) -> OptionSpec {
        OptionSpec::with_value(name, "", about)
    }

    /// Describes an option with a value.
    pub(super) const fn with_value(
        name: &'static str,
        value: &'static str,
        about: &'static str,
    ) -> OptionSpec {
        OptionSpec { name, value, about }
    }
}

impl CommandSpec {
    /// Returns the text of `--help`.
    pub(super) fn help(&self) -> String {
        let mut help = format!("anthill {}\n\n{}\n", self.usage, self.about);
        for option in self.options {
            let name = format!("--{} {}", option.name, option.value);
            help.push_str(&format!("\n  {name:20} {}", option.about));
        }
        help.push('\n');
        help
    }
}

/// Parsed arguments of a command.
pub(super) struct ParsedCommand {
    usage: &'static str,
    operands: Vec<OsString>,
    options: Vec<(&'static str, OsString)>,
}

impl ParsedCommand {
    /// Parses arguments.
    pub(super) fn parse(
        command: &CommandSpec,
        arguments: Vec<OsString>,
    ) -> Result<ParsedCommand, Problem> {
        let mut parsed = ParsedCommand {
            usage: command.usage,
            operands: Vec::new(),
            options: Vec::new(),
        };
        let mut parser = lexopt::Parser::from_args(arguments);
        let usage = |error: lexopt::Error| Problem::usage(error.to_string());
        while let Some(argument) = parser.next().map_err(usage)? {
            let name = match argument {
                Arg::Value(operand) => {
                    parsed.operands.push(operand);
                    continue;
                }
                Arg::Short('h') | Arg::Long("help") => {
                    parsed.options.push(("help", OsString::new()));
                    return Ok(parsed);
                }
                Arg::Long(name) => name.to_owned(),
                Arg::Short(name) => name.to_string(),
            };
            let known = command.options.iter().find(|known| known.name == name);
            let Some(known) = known else {
                let what = format!("unknown option `--{name}`");
                return Err(
                    Problem::usage(what).help(format!("see `anthill {} --help`", command.name))
                );
            };
            let value = if known.value.is_empty() {
                OsString::new()
            } else {
                parser.value().map_err(usage)?
            };
            parsed.options.push((known.name, value));
        }
        Ok(parsed)
    }

    /// Returns true if an option is given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// Returns the last value of an option.
    pub(super) fn value(&self, name: &str) -> Option<&OsStr> {
        let mut options = self.options.iter().rev();
        options
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.as_os_str())
    }

    /// Returns the last value of an option as a text.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, Problem> {
        self.value(name).map(|value| utf8(value)).transpose()
    }

    /// Returns the last value of an option as a number.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let number = text.parse().map(Some);
        number.map_err(|_| Problem::usage(format!("--{name}: `{text}` is no number")))
    }

    /// Returns all values of an option as texts.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<String>, Problem> {
        let values = self.options.iter().filter(|(known, _)| *known == name);
        values
            .map(|(_, value)| utf8(value).map(str::to_owned))
            .collect()
    }

    /// Returns the operands if their number is within a range.
    pub(super) fn operands(
        &self,
        range: std::ops::RangeInclusive<usize>,
    ) -> Result<&[OsString], Problem> {
        let what = match self.operands.len() {
            count if range.contains(&count) => return Ok(&self.operands),
            count if count < *range.start() => "an argument is missing".to_owned(),
            _ => format!(
                "unexpected argument `{}`",
                self.operands[*range.end()].to_string_lossy()
            ),
        };
        Err(Problem::usage(what).help(format!("anthill {}", self.usage)))
    }

    /// Returns all operands.
    pub(super) fn all_operands(&self) -> &[OsString] {
        &self.operands
    }
}

/// Returns an argument as a text.
pub(super) fn utf8(value: &OsStr) -> Result<&str, Problem> {
    value
        .to_str()
        .ok_or_else(|| Problem::usage(format!("`{}` is not UTF-8", value.to_string_lossy())))
}
