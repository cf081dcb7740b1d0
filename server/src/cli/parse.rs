//! Parser of command lines, driven by the table of commands.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::external::SHARED_COMMANDS;
use lexopt::Arg;

use crate::cli::commands::{COMMANDS, CommandOption, CommandSpec, ValueKind};
use crate::config::{OperatorError, parse_seconds, suggest};

/// Arguments of a command. The names match the table, most values are not yet interpreted.
pub(super) struct ParsedArguments {
    command: &'static CommandSpec,
    operands: Vec<OsString>,
    options: Vec<(&'static str, OsString)>,
}

pub(super) fn parse(
    command: &'static CommandSpec,
    arguments: Vec<OsString>,
) -> Result<ParsedArguments, OperatorError> {
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut typed = ParsedArguments {
        command,
        operands: Vec::new(),
        options: Vec::new(),
    };
    let see = |error: OperatorError| error.help(format!("see `anthill {} --help`", command.name));
    loop {
        let found = match parser.next() {
            Err(error) => return Err(see(OperatorError::new(error.to_string()))),
            Ok(None) => break,
            Ok(Some(Arg::Value(operand))) => {
                typed.operand(operand)?;
                continue;
            }
            Ok(Some(Arg::Long(long))) => {
                let option = command.options().find(|option| option.long == long);
                option.ok_or_else(|| unknown_option(command, long))
            }
            Ok(Some(Arg::Short(short))) => {
                let option = command.options().find(|option| option.short == Some(short));
                option.ok_or_else(|| see(OperatorError::new(format!("unknown option `-{short}`"))))
            }
        };
        let option = found?;
        let value = match option.value {
            None => OsString::new(),
            Some((_, ValueKind::OptionalNumber)) => optional_number(&mut parser),
            Some((name, values)) => {
                let value = parser.value().map_err(|_| {
                    let what = format!("`--{}` needs a value", option.long);
                    OperatorError::new(what).help(format!("--{} {name}", option.long))
                })?;
                one_of(values, &value, option.long)?;
                value
            }
        };
        typed.options.push((option.long, value));
        // `--help` takes precedence over missing arguments.
        if option.long == "help" {
            return Ok(typed);
        }
    }
    match command.operands.get(typed.operands.len()) {
        Some(missing) if missing.required => {
            let what = format!("`anthill {}` needs {}", command.name, missing.name);
            Err(OperatorError::new(what).help(format!("anthill {}", command.usage())))
        }
        _ => Ok(typed),
    }
}

/// Takes the duration of an option, which may be left out: `--option=60`, or a following argument such as `60` or
/// `5m`. Returns an empty value without a duration.
fn optional_number(parser: &mut lexopt::Parser) -> OsString {
    if let Some(value) = parser.optional_value() {
        return value;
    }
    let Some(mut rest) = parser.try_raw_args() else {
        return OsString::new();
    };
    let is_number = |word: &OsStr| word.to_str().and_then(parse_seconds).is_some();
    match rest.peek() {
        Some(word) if is_number(word) => rest.next().unwrap_or_default(),
        _ => OsString::new(),
    }
}

fn unknown_option(command: &CommandSpec, long: &str) -> OperatorError {
    let error = OperatorError::new(format!(
        "unknown option `--{long}` of `anthill {}`",
        command.name
    ));
    match suggest(long, command.options().map(|option| option.long)) {
        Some(meant) => error.help(format!("did you mean `--{meant}`?")),
        None => error.help(format!("see `anthill {} --help`", command.name)),
    }
}

fn one_of(values: ValueKind, value: &OsStr, name: &str) -> Result<(), OperatorError> {
    let words: Vec<&str> = match values {
        ValueKind::Words(words) => words.to_vec(),
        ValueKind::Commands if value.to_str().and_then(rule_number).is_some() => return Ok(()),
        ValueKind::Commands => {
            let shared = SHARED_COMMANDS.iter().map(|command| command.word);
            let own = COMMANDS.iter().map(|command| command.name);
            own.chain(shared).collect()
        }
        ValueKind::Any
        | ValueKind::Paths
        | ValueKind::RepeatedPaths
        | ValueKind::Folders
        | ValueKind::OptionalNumber => return Ok(()),
    };
    if words.iter().any(|word| value == *word) {
        return Ok(());
    }
    let value = value.to_string_lossy();
    let help = match suggest(&value, words.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => words.join(", "),
    };
    Err(OperatorError::new(format!("`{value}` is not a valid {name}")).help(help))
}

/// Returns the number of a rule as in the log: `R742`, or `742` in JSON.
pub(super) fn rule_number(word: &str) -> Option<u16> {
    word.strip_prefix(['R', 'r']).unwrap_or(word).parse().ok()
}

impl ParsedArguments {
    fn operand(&mut self, operand: OsString) -> Result<(), OperatorError> {
        let operands = self.command.operands;
        let last = operands.last();
        let repeated = last.filter(|last| matches!(last.values, ValueKind::RepeatedPaths));
        let Some(expected) = operands.get(self.operands.len()).or(repeated) else {
            let what = format!("unexpected argument `{}`", operand.to_string_lossy());
            return Err(OperatorError::new(what).help(format!("anthill {}", self.command.usage())));
        };
        // An optional word may be left out before a folder or file.
        let is_word = matches!(expected.values, ValueKind::Words(_));
        let is_left_out = is_word && !expected.required && Path::new(&operand).exists();
        if !is_left_out {
            one_of(expected.values, &operand, &expected.name.to_lowercase())?;
        }
        self.operands.push(operand);
        Ok(())
    }

    pub(super) fn has(&self, long: &str) -> bool {
        self.last(long).is_some()
    }

    /// Returns the value of an option, the last value if the option is repeated.
    pub(super) fn last(&self, long: &str) -> Option<&OsStr> {
        self.of(long).last().map(|(_, value)| value.as_os_str())
    }

    pub(super) fn path(&self, long: &str) -> Option<PathBuf> {
        self.last(long).map(PathBuf::from)
    }

    /// Returns the value of an option as text, the last value if the option is repeated.
    pub(super) fn text(&self, long: &str) -> Result<Option<String>, OperatorError> {
        Ok(self.texts(long)?.pop())
    }

    /// Returns all values of an option as text.
    pub(super) fn texts(&self, long: &str) -> Result<Vec<String>, OperatorError> {
        let text = |(_, value): &(&str, OsString)| {
            let not_text = || OperatorError::new(format!("the value of `--{long}` is not UTF-8"));
            value.to_str().map(str::to_owned).ok_or_else(not_text)
        };
        self.of(long).map(text).collect()
    }

    fn of(&self, long: &str) -> impl Iterator<Item = &(&'static str, OsString)> {
        debug_assert!(
            self.command
                .options()
                .any(|option: &CommandOption| option.long == long),
            "{long}"
        );
        self.options.iter().filter(move |(name, _)| *name == long)
    }

    /// Returns the nth operand, counted from 0.
    pub(super) fn operand_at(&self, nth: usize) -> Option<&OsStr> {
        self.operands.get(nth).map(OsString::as_os_str)
    }

    pub(super) fn path_at(&self, nth: usize) -> Option<&Path> {
        self.operand_at(nth).map(Path::new)
    }
}
