//! Description of a command, from which the parser and the help text are made, and the arguments that the parser
//! returns. Each refers to the other: a command takes arguments, and arguments know the options of their command.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use lexopt::Arg;

use super::problem::{Done, Problem};
use crate::nearest::nearest;

/// A command: `anthill bench NAME …`.
pub(super) struct Command {
    /// Name of the command.
    pub name: &'static str,
    /// One-line description without a full stop.
    pub about: &'static str,
    /// Paragraphs of the help text, one per element.
    pub details: &'static [&'static str],
    /// Operands for the usage line: `SUITE`, `RESULT…`.
    pub operands: &'static str,
    /// Permitted numbers of operands.
    pub count: RangeInclusive<usize>,
    /// Options of the command.
    pub options: &'static [CommandOption],
    /// Function that runs the command.
    pub run: fn(&Arguments) -> Done,
}

/// An option: `--long`, or `--long VALUE`.
pub(super) struct CommandOption {
    /// Long name without dashes.
    pub long: &'static str,
    /// Short name without dash.
    pub short: Option<char>,
    /// Name of the value for the help text, if the option takes one.
    pub value: Option<&'static str>,
    /// One-line description without a full stop.
    pub about: &'static str,
}

/// A parsed command line that matches the table.
pub(super) struct Arguments {
    /// The command.
    pub command: &'static Command,
    /// Arguments other than options.
    pub operands: Vec<String>,
    options: Vec<(&'static str, String)>,
    /// The complete command line.
    pub line: String,
}

impl Command {
    /// Returns the options of the command and `--help`.
    pub(super) fn options(&self) -> impl Iterator<Item = &'static CommandOption> + use<> {
        self.options.iter().chain([&HELP])
    }

    /// Returns the usage line: `run [OPTIONS] SUITE`.
    pub(super) fn usage(&self) -> String {
        let options = if self.options.is_empty() {
            ""
        } else {
            " [OPTIONS]"
        };
        format!("{}{options} {}", self.name, self.operands)
            .trim_end()
            .to_owned()
    }

    /// Returns the text of `anthill bench COMMAND --help`.
    pub(super) fn help(&self) -> String {
        let mut text = format!("{}\n\nUsage: anthill bench {}\n", self.about, self.usage());
        for paragraph in self.details {
            text.push_str(&format!("\n{paragraph}\n"));
        }
        text.push_str("\nOptions:\n");
        for option in self.options() {
            text.push_str(&format!("  {:<26}{}\n", option.usage(), option.about));
        }
        text
    }

    /// Parses the words after the command's name.
    pub(super) fn parse(&'static self, words: Vec<OsString>) -> Result<Arguments, Problem> {
        let line: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        let mut arguments = Arguments {
            command: self,
            operands: Vec::new(),
            options: Vec::new(),
            line: format!("anthill bench {} {}", self.name, line.join(" ")),
        };
        let utf8 = |value: OsString| {
            let text = |value: OsString| format!("`{}` is not UTF-8", value.to_string_lossy());
            value
                .into_string()
                .map_err(|value| self.usage_problem(text(value)))
        };
        let mut parser = lexopt::Parser::from_args(words);
        let next = |error: lexopt::Error| self.usage_problem(error.to_string());
        while let Some(argument) = parser.next().map_err(next)? {
            let option: &'static CommandOption = match argument {
                Arg::Value(value) => {
                    arguments.operands.push(utf8(value)?);
                    continue;
                }
                Arg::Long(long) => {
                    let known = self.options().find(|option| option.long == long);
                    known.ok_or_else(|| self.unknown_option(long))?
                }
                Arg::Short(short) => {
                    let known = self.options().find(|option| option.short == Some(short));
                    known.ok_or_else(|| self.usage_problem(format!("unknown option `-{short}`")))?
                }
            };
            let value = match option.value {
                None => String::new(),
                Some(name) => {
                    let missing = format!("`--{}` needs a value: {name}", option.long);
                    utf8(parser.value().map_err(|_| self.usage_problem(missing))?)?
                }
            };
            arguments.options.push((option.long, value));
            // `--help` needs no operands.
            if option.long == "help" {
                return Ok(arguments);
            }
        }
        if arguments.operands.len() < *self.count.start() {
            let needs = format!("`anthill bench {}` needs {}", self.name, self.operands);
            return Err(self.usage_problem(needs));
        }
        if let Some(excess) = arguments.operands.get(*self.count.end()) {
            return Err(self.usage_problem(format!("unexpected argument `{excess}`")));
        }
        Ok(arguments)
    }

    fn usage_problem(&self, text: String) -> Problem {
        Problem::usage(text).help(format!("see `anthill bench {} --help`", self.name))
    }

    fn unknown_option(&self, long: &str) -> Problem {
        let text = format!("unknown option `--{long}` of `anthill bench {}`", self.name);
        let near = nearest(long, self.options().map(|option| option.long));
        let help = near.first().map_or_else(
            || format!("see `anthill bench {} --help`", self.name),
            |near| format!("did you mean `--{near}`?"),
        );
        Problem::usage(text).help(help)
    }
}

impl CommandOption {
    /// Returns the option for the help text: `-o, --output FILE`.
    pub(super) fn usage(&self) -> String {
        let short = self
            .short
            .map_or("    ".to_owned(), |short| format!("-{short}, "));
        let value = self.value.map_or(String::new(), |name| format!(" {name}"));
        format!("{short}--{}{value}", self.long)
    }
}

impl Arguments {
    /// Returns true if the option was given.
    pub(super) fn has(&self, long: &str) -> bool {
        self.value(long).is_some()
    }

    /// Returns the value of an option; of repeated options, the last.
    pub(super) fn value(&self, long: &str) -> Option<&str> {
        debug_assert!(
            self.command.options().any(|option| option.long == long),
            "{long}"
        );
        let mut given = self.options.iter().rev();
        given
            .find(|(name, _)| *name == long)
            .map(|(_, value)| value.as_str())
    }

    /// Returns the value of an option as a path.
    pub(super) fn path(&self, long: &str) -> Option<PathBuf> {
        self.value(long).map(PathBuf::from)
    }

    /// Returns the value of an option as a number accepted by `right`; `what` describes valid values in the
    /// error.
    pub(super) fn number<N: FromStr>(
        &self,
        long: &str,
        what: &str,
        right: impl Fn(&N) -> bool,
    ) -> Result<Option<N>, Problem> {
        let Some(value) = self.value(long) else {
            return Ok(None);
        };
        let number = value.parse().ok().filter(right);
        let wrong = || Problem::usage(format!("`--{long} {value}`: expected {what}"));
        number.map(Some).ok_or_else(wrong)
    }
}

/// The `--help` option of every command.
pub(super) static HELP: CommandOption = CommandOption {
    long: "help",
    short: Some('h'),
    value: None,
    about: "Show the help of this command",
};
