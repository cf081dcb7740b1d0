//! Parts of a manual page, in the man(7) macros understood by man-db, mandoc and groff.

use std::fmt::Write;

use crate::command::{CommandOption, Program, ValueKind};
use crate::help::wrapped;

/// Returns the content of the section SYNOPSIS.
pub fn synopsis<E>(program: &Program<E>) -> String {
    let mut page = String::new();
    for (nth, command) in program.commands.iter().enumerate() {
        if nth > 0 {
            page.push_str(".br\n");
        }
        let usage = command.usage();
        let (name, rest) = usage.split_once(' ').unwrap_or((&usage, ""));
        let _ = writeln!(
            page,
            ".B {} {name}\n{}",
            program.name,
            line(rest).trim_end()
        );
    }
    // A synopsis without arguments leaves an empty line, which roff would print.
    page.replace("\n\n", "\n")
}

/// Returns the content of the section COMMANDS.
pub fn commands<E>(program: &Program<E>) -> String {
    let mut page = String::new();
    for command in program.commands {
        let _ = writeln!(page, ".SS {} {}", program.name, escape(&command.usage()));
        let _ = writeln!(page, "{}", line(&format!("{}.", command.about)));
        for paragraph in command.details {
            let _ = writeln!(page, ".PP\n{}", line(paragraph));
        }
        for option in command.options {
            option_entry(&mut page, option);
        }
    }
    page
}

fn option_entry(page: &mut String, option: &CommandOption) {
    let short = option
        .short
        .map_or(String::new(), |short| format!("\\fB\\-{short}\\fR, "));
    let value = match option.value {
        None => String::new(),
        Some((name, ValueKind::Optional(_))) => format!(" [\\fI{name}\\fR]"),
        Some((name, _)) => format!(" \\fI{name}\\fR"),
    };
    let long = escape(option.long);
    let _ = writeln!(
        page,
        ".TP\n{short}\\fB\\-\\-{long}\\fR{value}\n{}.",
        line(option.about)
    );
}

/// Breaks text into lines of at most 80 bytes and escapes lines that roff would read as requests.
fn line(text: &str) -> String {
    let guard = |line: String| {
        if line.starts_with(['.', '\'']) {
            format!("\\&{line}")
        } else {
            line
        }
    };
    let lines = wrapped(&escape(text), 78).into_iter().map(guard);
    lines.collect::<Vec<_>>().join("\n")
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('~', "\\(ti")
        .replace('`', "\\(ga")
}
