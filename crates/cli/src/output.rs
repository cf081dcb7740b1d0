//! Output of commands: results on standard output, and messages with colours on standard error.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

/// Prints a result to standard output. A closed pipe is no error, as in `anthill help | head`.
pub fn print_result(text: &str) -> ExitCode {
    match print(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.is_empty() && !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Prints a message to standard error and ignores write errors.
pub fn print_message(text: &str) {
    let text = text.trim_end_matches('\n');
    let _ = writeln!(std::io::stderr().lock(), "{}", paint(text, colours()));
}

/// Returns true if messages are coloured: only on a capable terminal and without NO_COLOR
/// (<https://no-color.org>).
fn colours() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    std::io::stderr().is_terminal() && !set("NO_COLOR") && !dumb
}

/// Colours the leading word of each line and the carets of an error message.
pub fn paint(text: &str, colours: bool) -> String {
    const RED: &str = "\x1b[1;31m";
    const YELLOW: &str = "\x1b[1;33m";
    const CYAN: &str = "\x1b[1;36m";
    if !colours {
        return text.to_owned();
    }
    let mut painted = Vec::new();
    for line in text.lines() {
        let bars = line.trim_start_matches(' ').strip_prefix("| ");
        let carets = bars.is_some_and(|rest| rest.trim().bytes().all(|b| b == b'^'));
        let word = [("error:", RED), ("warning:", YELLOW), ("help:", CYAN)]
            .into_iter()
            .find(|(word, _)| line.starts_with(word));
        painted.push(match (word, line.find('^')) {
            (Some((word, colour)), _) => format!("{colour}{word}\x1b[0m{}", &line[word.len()..]),
            (None, Some(at)) if carets => format!("{}{RED}{}\x1b[0m", &line[..at], &line[at..]),
            _ => line.to_owned(),
        });
    }
    painted.join("\n")
}
