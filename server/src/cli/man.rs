//! `anthill man`: the manual page, in the man(7) macros understood by man-db, mandoc and groff.

use std::fmt::Write;
use std::process::ExitCode;

use super::help;
use super::parse::ParsedArguments;
use crate::cli::commands::{COMMANDS, CommandOption, ValueKind};
use crate::config::OperatorError;

pub(super) fn run(_typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    Ok(super::print_result(&page()))
}

/// Date of the manual page: the last change of its fixed parts. A build date would make builds
/// irreproducible.
const DATE: &str = "2026-01-01";

pub(super) fn page() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut page = format!(".TH ANTHILL 1 {DATE} \"anthill {version}\" \"User Commands\"\n");
    page.push_str(".SH NAME\nanthill \\- a web server the size of an ant\n.SH SYNOPSIS\n");
    for (nth, command) in COMMANDS.iter().enumerate() {
        if nth > 0 {
            page.push_str(".br\n");
        }
        let usage = command.usage();
        let (name, rest) = usage.split_once(' ').unwrap_or((&usage, ""));
        let _ = writeln!(page, ".B anthill {name}\n{}", line(rest).trim_end());
    }
    // A synopsis without arguments leaves an empty line, which roff would print.
    let mut page = page.replace("\n\n", "\n");
    page.push_str(".SH DESCRIPTION\n");
    page.push_str(
        "Serves folders over HTTPS and HTTP, from one program, with a configuration\nfile or without one.\n",
    );
    page.push_str(".SH COMMANDS\n");
    for command in COMMANDS {
        let _ = writeln!(page, ".SS anthill {}", escape(&command.usage()));
        let _ = writeln!(page, "{}", line(&format!("{}.", command.about)));
        for paragraph in command.details {
            let _ = writeln!(page, ".PP\n{}", line(paragraph));
        }
        for option in command.options {
            option_entry(&mut page, option);
        }
    }
    page.push_str(TAIL);
    page
}

fn option_entry(page: &mut String, option: &CommandOption) {
    let short = option
        .short
        .map_or(String::new(), |short| format!("\\fB\\-{short}\\fR, "));
    let value = match option.value {
        None => String::new(),
        Some((name, ValueKind::OptionalNumber)) => format!(" [\\fI{name}\\fR]"),
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
    let lines = help::wrapped(&escape(text), 78).into_iter().map(guard);
    lines.collect::<Vec<_>>().join("\n")
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('~', "\\(ti")
        .replace('`', "\\(ga")
}

const TAIL: &str = r#".SH FILES
.TP
.I anthill.toml
The configuration. anthill reads the file from the served folder.
.TP
.I /var/lib/anthill
State of a server started by root: the self\-signed certificate, ticket keys,
the control socket.
.TP
.I ~/.local/state/anthill
State of a server started by another user.
.SH ENVIRONMENT
.TP
.B NO_COLOR
If set, messages have no colours.
.TP
.BR XDG_STATE_HOME ", " STATE_DIRECTORY
Location of the state folder.
.TP
.BR LISTEN_FDS ", " NOTIFY_SOCKET
Listening sockets from systemd, and the socket for the readiness message.
.SH SIGNALS
.TP
.BR SIGTERM ", " SIGINT
Stop after the requests under way are answered. A second signal stops the server
at once.
.TP
.B SIGHUP
Apply the changed configuration.
.TP
.B SIGUSR1
Reopen the log files.
.SH EXIT STATUS
.TP
.B 0
Success.
.TP
.B 1
Failure.
.TP
.B 2
Mistake in the command line or the configuration.
.SH EXAMPLES
.TP
.B anthill serve
Serves the current folder on https://localhost:8443.
.TP
.B anthill serve \-\-https :443 \-\-http :80 /srv/www
Serves /srv/www on the standard ports.
.TP
.B anthill check && anthill reload
Tests a changed configuration, then applies the configuration.
"#;
