//! `anthill man`: the manual page, in the man(7) macros understood by man-db, mandoc and groff.

use crate::cli::shared_options::CommandSpec;
use std::process::ExitCode;

use crate::cli::arguments::ParsedArguments;
use crate::config::OperatorError;
use cli::Program;
use cli::man::{commands, synopsis};
use cli::output::print_result;

/// The command `man`.
pub(super) const COMMAND: CommandSpec = CommandSpec {
    name: "man",
    about: "Print the manual page",
    details: &["To read it: anthill man | man -l -"],
    operands: &[],
    options: &[],
    run,
};

pub(super) fn run(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    Ok(print_result(&page(typed.program())))
}

/// Date of the manual page: the last change of its fixed parts. A build date would make builds
/// irreproducible.
const DATE: &str = "2026-01-01";

pub(super) fn page(program: &Program<OperatorError>) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut page = format!(".TH ANTHILL 1 {DATE} \"anthill {version}\" \"User Commands\"\n");
    page.push_str(".SH NAME\nanthill \\- a web server the size of an ant\n.SH SYNOPSIS\n");
    page.push_str(&synopsis(program));
    page.push_str(".SH DESCRIPTION\n");
    page.push_str(
        "Serves folders over HTTPS and HTTP, from one program, with a configuration\nfile or without one.\n",
    );
    page.push_str(".SH COMMANDS\n");
    page.push_str(&commands(program));
    page.push_str(TAIL);
    page
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
