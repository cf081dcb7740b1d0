//! Command lines: a table describes the commands of a program, and the parser, the help, the manual page and the shell
//! completions come from the table.
//!
//! The crate knows no command. The error of a program's commands is a parameter, and a mistake in a command line is a
//! [`UsageError`], from which the program makes its own.

#![forbid(unsafe_code)]

mod command;
mod suggestion;
pub mod help;
pub mod man;
pub mod completions;
pub mod output;

pub use command::{
    CommandOption, CommandSpec, Operand, ParsedArguments, Program, UsageError, ValueKind, parse,
};
pub use suggestion::suggest;
