//! Table of the commands of a program, with their operands and options, and the parser of command lines. Each refers to
//! the other: a command takes arguments, and arguments know the options of their command.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lexopt::Arg;

use crate::suggestion::suggest;

/// A program with commands.
pub struct Program<E: 'static> {
    pub name: &'static str,
    /// All commands, in the order of the help.
    pub commands: &'static [CommandSpec<E>],
    /// Names of commands that other programs carry out.
    pub foreign: &'static [&'static str],
    /// Returns true for a word that stands for a topic of the help, and not for a command.
    pub is_topic: fn(&str) -> bool,
}

impl<E> Program<E> {
    /// Returns the command with a name.
    pub fn find(&self, word: &str) -> Option<&'static CommandSpec<E>> {
        self.commands.iter().find(|command| command.name == word)
    }

    /// Returns the names of all own commands.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.commands.iter().map(|command| command.name)
    }
}

/// A command, `PROGRAM NAME …`.
pub struct CommandSpec<E: 'static> {
    pub name: &'static str,
    /// Summary in a line, without a full stop.
    pub about: &'static str,
    /// Paragraphs of the description.
    pub details: &'static [&'static str],
    pub operands: &'static [Operand],
    pub options: &'static [CommandOption],
    pub run: fn(&ParsedArguments<E>) -> Result<ExitCode, E>,
}

/// A positional argument of a command.
pub struct Operand {
    pub name: &'static str,
    pub required: bool,
    pub values: ValueKind,
}

/// An option, `--long` or `--long VALUE`.
pub struct CommandOption {
    pub long: &'static str,
    pub short: Option<char>,
    /// Name and kind of the option's value.
    pub value: Option<(&'static str, ValueKind)>,
    pub about: &'static str,
}

/// Kind of a value. Completions use all kinds; the parser checks only words and command names.
#[derive(Clone, Copy)]
pub enum ValueKind {
    Any,
    Paths,
    Folders,
    Words(&'static [&'static str]),
    Commands,
    /// A value that may be left out. The function tells whether the next word is the value.
    Optional(fn(&str) -> bool),
    /// Any number of paths or other words. Only for the last operand of a command.
    RepeatedPaths,
}

/// The option `--help` of all commands.
pub(crate) static HELP: CommandOption = CommandOption {
    long: "help",
    short: Some('h'),
    value: None,
    about: "Show the help of the command",
};

/// Largest number of words that a synopsis lists instead of the operand's name.
const USAGE_WORDS_MAX: usize = 6;

impl<E> CommandSpec<E> {
    /// Returns the command's options, including `--help`.
    pub fn options(&self) -> impl Iterator<Item = &'static CommandOption> + use<E> {
        self.options.iter().chain([&HELP])
    }

    /// Returns the synopsis of the command, for example `serve [OPTIONS] [DIR|FILE]`.
    pub fn usage(&self) -> String {
        let mut usage = self.name.to_owned();
        if !self.options.is_empty() {
            usage.push_str(" [OPTIONS]");
        }
        for operand in self.operands {
            usage.push(' ');
            usage.push_str(&operand.usage());
        }
        usage
    }
}

impl Operand {
    pub fn usage(&self) -> String {
        match (self.values, self.required) {
            (ValueKind::Words(words), false) if words.len() > USAGE_WORDS_MAX => {
                format!("[{}]", self.name)
            }
            (ValueKind::Words(words), true) => words.join("|"),
            (ValueKind::Words(words), false) => format!("[{}]", words.join("|")),
            (_, true) => self.name.to_owned(),
            (_, false) => format!("[{}]", self.name),
        }
    }
}

impl CommandOption {
    /// Returns the name and the kind of a value that cannot be left out.
    pub fn necessary_value(&self) -> Option<(&'static str, ValueKind)> {
        let value = self.value;
        value.filter(|(_, values)| !matches!(values, ValueKind::Optional(_)))
    }

    /// Returns the synopsis of the option, for example `-h, --help` or `--state DIR`.
    pub fn usage(&self) -> String {
        let short = self
            .short
            .map_or(String::new(), |short| format!("-{short}, "));
        let value = match self.value {
            None => String::new(),
            Some((name, ValueKind::Optional(_))) => format!(" [{name}]"),
            Some((name, _)) => format!(" {name}"),
        };
        format!("{short}--{}{value}", self.long)
    }
}

/// Mistake in a command line.
#[derive(Debug)]
pub struct UsageError {
    /// Mistake, in a line without a full stop.
    pub what: String,
    /// Correction.
    pub help: Option<String>,
}

impl UsageError {
    fn new(what: impl Into<String>) -> UsageError {
        let what = what.into();
        UsageError { what, help: None }
    }

    fn help(self, help: impl Into<String>) -> UsageError {
        let help = Some(help.into());
        UsageError { help, ..self }
    }
}

/// Arguments of a command. The names match the table, most values are not yet interpreted.
pub struct ParsedArguments<E: 'static> {
    program: &'static Program<E>,
    command: &'static CommandSpec<E>,
    operands: Vec<OsString>,
    options: Vec<(&'static str, OsString)>,
}

/// Parses the words after the name of a command.
pub fn parse<E>(
    program: &'static Program<E>,
    command: &'static CommandSpec<E>,
    arguments: Vec<OsString>,
) -> Result<ParsedArguments<E>, UsageError> {
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut typed = ParsedArguments {
        program,
        command,
        operands: Vec::new(),
        options: Vec::new(),
    };
    let see =
        |error: UsageError| error.help(format!("see `{} {} --help`", program.name, command.name));
    loop {
        let found = match parser.next() {
            Err(error) => return Err(see(UsageError::new(error.to_string()))),
            Ok(None) => break,
            Ok(Some(Arg::Value(operand))) => {
                typed.operand(operand)?;
                continue;
            }
            Ok(Some(Arg::Long(long))) => {
                let option = command.options().find(|option| option.long == long);
                option.ok_or_else(|| unknown_option(program.name, command, long))
            }
            Ok(Some(Arg::Short(short))) => {
                let option = command.options().find(|option| option.short == Some(short));
                option.ok_or_else(|| see(UsageError::new(format!("unknown option `-{short}`"))))
            }
        };
        let option = found?;
        let value = match option.value {
            None => OsString::new(),
            Some((_, ValueKind::Optional(is_value))) => optional_value(&mut parser, is_value),
            Some((name, values)) => {
                let value = parser.value().map_err(|_| {
                    let what = format!("`--{}` needs a value", option.long);
                    UsageError::new(what).help(format!("--{} {name}", option.long))
                })?;
                one_of(program, values, &value, option.long)?;
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
            let what = format!("`{} {}` needs {}", program.name, command.name, missing.name);
            Err(UsageError::new(what).help(format!("{} {}", program.name, command.usage())))
        }
        _ => Ok(typed),
    }
}

/// Takes the value of an option, which may be left out: `--option=60`, or a following argument such as `60` or
/// `5m`. Returns an empty value without one.
fn optional_value(parser: &mut lexopt::Parser, is_value: fn(&str) -> bool) -> OsString {
    if let Some(value) = parser.optional_value() {
        return value;
    }
    let Some(mut rest) = parser.try_raw_args() else {
        return OsString::new();
    };
    match rest.peek() {
        Some(word) if word.to_str().is_some_and(is_value) => rest.next().unwrap_or_default(),
        _ => OsString::new(),
    }
}

fn unknown_option<E>(program: &str, command: &CommandSpec<E>, long: &str) -> UsageError {
    let error = UsageError::new(format!(
        "unknown option `--{long}` of `{program} {}`",
        command.name
    ));
    match suggest(long, command.options().map(|option| option.long)) {
        Some(meant) => error.help(format!("did you mean `--{meant}`?")),
        None => error.help(format!("see `{program} {} --help`", command.name)),
    }
}

fn one_of<E>(
    program: &Program<E>,
    values: ValueKind,
    value: &OsStr,
    name: &str,
) -> Result<(), UsageError> {
    let words: Vec<&str> = match values {
        ValueKind::Words(words) => words.to_vec(),
        ValueKind::Commands if value.to_str().is_some_and(program.is_topic) => return Ok(()),
        ValueKind::Commands => program
            .names()
            .chain(program.foreign.iter().copied())
            .collect(),
        ValueKind::Any
        | ValueKind::Paths
        | ValueKind::RepeatedPaths
        | ValueKind::Folders
        | ValueKind::Optional(_) => return Ok(()),
    };
    if words.iter().any(|word| value == *word) {
        return Ok(());
    }
    let value = value.to_string_lossy();
    let help = match suggest(&value, words.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => words.join(", "),
    };
    Err(UsageError::new(format!("`{value}` is not a valid {name}")).help(help))
}

impl<E> ParsedArguments<E> {
    /// Returns the program of the command.
    pub fn program(&self) -> &'static Program<E> {
        self.program
    }

    /// Returns the name of the command.
    pub fn command_name(&self) -> &'static str {
        self.command.name
    }

    fn operand(&mut self, operand: OsString) -> Result<(), UsageError> {
        let operands = self.command.operands;
        let last = operands.last();
        let repeated = last.filter(|last| matches!(last.values, ValueKind::RepeatedPaths));
        let Some(expected) = operands.get(self.operands.len()).or(repeated) else {
            let what = format!("unexpected argument `{}`", operand.to_string_lossy());
            return Err(UsageError::new(what).help(format!(
                "{} {}",
                self.program.name,
                self.command.usage()
            )));
        };
        // An optional word may be left out before a folder or file.
        let is_word = matches!(expected.values, ValueKind::Words(_));
        let is_left_out = is_word && !expected.required && Path::new(&operand).exists();
        if !is_left_out {
            one_of(
                self.program,
                expected.values,
                &operand,
                &expected.name.to_lowercase(),
            )?;
        }
        self.operands.push(operand);
        Ok(())
    }

    pub fn has(&self, long: &str) -> bool {
        self.last(long).is_some()
    }

    /// Returns the value of an option, the last value if the option is repeated.
    pub fn last(&self, long: &str) -> Option<&OsStr> {
        self.of(long).last().map(|(_, value)| value.as_os_str())
    }

    pub fn path(&self, long: &str) -> Option<PathBuf> {
        self.last(long).map(PathBuf::from)
    }

    /// Returns the value of an option as text, the last value if the option is repeated.
    pub fn text(&self, long: &str) -> Result<Option<String>, UsageError> {
        Ok(self.texts(long)?.pop())
    }

    /// Returns all values of an option as text.
    pub fn texts(&self, long: &str) -> Result<Vec<String>, UsageError> {
        let text = |(_, value): &(&str, OsString)| {
            let not_text = || UsageError::new(format!("the value of `--{long}` is not UTF-8"));
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
    pub fn operand_at(&self, nth: usize) -> Option<&OsStr> {
        self.operands.get(nth).map(OsString::as_os_str)
    }

    pub fn path_at(&self, nth: usize) -> Option<&Path> {
        self.operand_at(nth).map(Path::new)
    }
}
