//! Texts of `--help`.

use std::fmt::Write;

use crate::command::{CommandSpec, Program};

/// Returns the text of `PROGRAM COMMAND --help`.
pub fn command<E>(program: &Program<E>, command: &CommandSpec<E>) -> String {
    let (about, name) = (command.about, program.name);
    let mut text = format!("{about}\n\nUsage: {name} {}\n", command.usage());
    for paragraph in command.details {
        text.push('\n');
        wrap(&mut text, paragraph);
    }
    text.push_str("\nOptions:\n");
    let rows: Vec<(String, &str)> = command
        .options()
        .map(|option| (option.usage(), option.about))
        .collect();
    columns(&mut text, &rows);
    text
}

/// Appends rows of two columns, indented by two spaces.
pub fn columns(text: &mut String, rows: &[(String, &str)]) {
    let width = rows.iter().map(|(left, _)| left.len()).max().unwrap_or(0);
    for (left, right) in rows {
        let _ = writeln!(text, "  {left:width$}  {right}");
    }
}

/// Appends a paragraph in lines of at most 80 columns, each with a line end.
pub fn wrap(text: &mut String, paragraph: &str) {
    for line in wrapped(paragraph, 80) {
        text.push_str(&line);
        text.push('\n');
    }
}

/// Breaks a paragraph into lines of at most `width` columns.
pub fn wrapped(paragraph: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in paragraph.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
