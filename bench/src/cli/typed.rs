//! Parser of the command line, driven by the table of commands.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use lexopt::Arg;

use super::problem::Problem;
use super::table::{Command, Opt};
use crate::nearest::nearest;

/// A parsed command line that matches the table.
pub struct Typed {
    /// The command.
    pub command: &'static Command,
    /// Arguments other than options.
    pub operands: Vec<String>,
    options: Vec<(&'static str, String)>,
    /// The complete command line.
    pub line: String,
}

/// Parses the arguments after the command's name.
pub fn parse(command: &'static Command, arguments: Vec<OsString>) -> Result<Typed, Problem> {
    let words: Vec<_> = arguments
        .iter()
        .map(|word| word.to_string_lossy())
        .collect();
    let mut typed = Typed {
        command,
        operands: Vec::new(),
        options: Vec::new(),
        line: format!("anthill bench {} {}", command.name, words.join(" ")),
    };
    let see = |text: String| {
        Problem::usage(text).help(format!("see `anthill bench {} --help`", command.name))
    };
    let utf8 = |value: OsString| {
        let not_text = |value: OsString| see(format!("`{}` is not UTF-8", value.to_string_lossy()));
        value.into_string().map_err(not_text)
    };
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(|error| see(error.to_string()))? {
        let option: &'static Opt = match argument {
            Arg::Value(value) => {
                typed.operands.push(utf8(value)?);
                continue;
            }
            Arg::Long(long) => {
                let known = command.options().find(|option| option.long == long);
                known.ok_or_else(|| unknown_option(command, long))?
            }
            Arg::Short(short) => {
                let known = command.options().find(|option| option.short == Some(short));
                known.ok_or_else(|| see(format!("unknown option `-{short}`")))?
            }
        };
        let value = match option.value {
            None => String::new(),
            Some(name) => {
                let missing = |_| see(format!("`--{}` needs a value: {name}", option.long));
                utf8(parser.value().map_err(missing)?)?
            }
        };
        typed.options.push((option.long, value));
        // `--help` needs no operands.
        if option.long == "help" {
            return Ok(typed);
        }
    }
    let (fewest, most) = command.count;
    if typed.operands.len() < fewest {
        let needs = format!(
            "`anthill bench {}` needs {}",
            command.name, command.operands
        );
        return Err(see(needs));
    }
    if typed.operands.len() > most {
        return Err(see(format!(
            "unexpected argument `{}`",
            typed.operands[most]
        )));
    }
    Ok(typed)
}

fn unknown_option(command: &Command, long: &str) -> Problem {
    let text = format!(
        "unknown option `--{long}` of `anthill bench {}`",
        command.name
    );
    let near = nearest(long, command.options().map(|option| option.long));
    let help = near.first().map_or_else(
        || format!("see `anthill bench {} --help`", command.name),
        |near| format!("did you mean `--{near}`?"),
    );
    Problem::usage(text).help(help)
}

impl Typed {
    /// Returns true if the option was given.
    pub fn has(&self, long: &str) -> bool {
        self.value(long).is_some()
    }

    /// Returns the value of an option; of repeated options, the last.
    pub fn value(&self, long: &str) -> Option<&str> {
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
    pub fn path(&self, long: &str) -> Option<PathBuf> {
        self.value(long).map(PathBuf::from)
    }

    /// Returns the value of an option as a number accepted by `right`; `what` describes valid values in the
    /// error.
    pub fn number<N: FromStr>(
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
