//! Question to the operator on the terminal, before a command with an effect that nothing takes back.

use std::io::{self, Write as _};

use base::visible_text::visible_lines;

/// Asks the operator on the terminal.
pub(super) fn confirms(question: &str) -> bool {
    let mut stderr = io::stderr();
    let question = visible_lines(question);
    let _ = write!(stderr, "{question} Go on? [y/N] ");
    let _ = stderr.flush();
    let mut line = String::new();
    let read = io::stdin().read_line(&mut line);
    read.is_ok() && matches!(line.trim(), "y" | "Y" | "yes")
}
