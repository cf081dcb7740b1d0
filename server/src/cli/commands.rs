//! Table of all commands and their options. The parser, the help, the manual page and the shell completions
//! read the table.

use std::process::ExitCode;

use crate::cli::parse::ParsedArguments;
use crate::cli::{backup, check, completions, control_client, help, man, passwd, serve, service};
use crate::config::OperatorError;

/// A command, `anthill NAME …`.
pub(super) struct CommandSpec {
    pub(super) name: &'static str,
    /// Summary in a line, without a full stop.
    pub(super) about: &'static str,
    /// Paragraphs of the description.
    pub(super) details: &'static [&'static str],
    pub(super) operands: &'static [Operand],
    pub(super) options: &'static [CommandOption],
    pub(super) run: fn(&ParsedArguments) -> Result<ExitCode, OperatorError>,
}

/// A positional argument of a command.
pub(super) struct Operand {
    pub(super) name: &'static str,
    pub(super) required: bool,
    pub(super) values: ValueKind,
}

/// An option, `--long` or `--long VALUE`.
pub(super) struct CommandOption {
    pub(super) long: &'static str,
    pub(super) short: Option<char>,
    /// Name and kind of the option's value.
    pub(super) value: Option<(&'static str, ValueKind)>,
    pub(super) about: &'static str,
}

/// Kind of a value. Completions use all kinds; the parser checks only words and command names.
#[derive(Clone, Copy)]
pub(super) enum ValueKind {
    Any,
    Paths,
    Folders,
    Words(&'static [&'static str]),
    Commands,
}

/// The option `--help` of all commands.
pub(super) static HELP: CommandOption = CommandOption {
    long: "help",
    short: Some('h'),
    value: None,
    about: "Show what this command does",
};

const WHAT: Operand = Operand {
    name: "DIR|FILE",
    required: false,
    values: ValueKind::Paths,
};
const CONTROL: CommandOption = CommandOption {
    long: "control",
    short: None,
    value: Some(("PATH", ValueKind::Paths)),
    about: "The control socket, if it is not where it usually is",
};
const STATE: CommandOption = CommandOption {
    long: "state",
    short: None,
    value: Some(("DIR", ValueKind::Folders)),
    about: "Keep certificates, keys and the like there",
};
const USER: CommandOption = CommandOption {
    long: "user",
    short: None,
    value: Some(("NAME", ValueKind::Any)),
    about: "Drop to this account after binding (only root can)",
};
const SERVE_OPTIONS: &[CommandOption] = &[
    CommandOption {
        long: "https",
        short: None,
        value: Some(("ADDR", ValueKind::Any)),
        about: "Listen there for HTTPS (:8443, 127.0.0.1:443, off); may be repeated",
    },
    CommandOption {
        long: "http",
        short: None,
        value: Some(("ADDR", ValueKind::Any)),
        about: "Listen there for plain HTTP (:8080, off); may be repeated",
    },
    CommandOption {
        long: "log",
        short: None,
        value: Some(("FILE", ValueKind::Paths)),
        about: "The access log: a file, - (standard output), stderr or off",
    },
    CommandOption {
        long: "workers",
        short: None,
        value: Some(("N", ValueKind::Any)),
        about: "Worker threads, instead of one per core",
    },
    USER,
    STATE,
    CONTROL,
];
const CLIENT_DETAILS: &str = "The server is found by its control socket, which belongs to the \
     configuration in the current folder, or to the folder or file that is named.";

/// All commands, in the order of the help.
pub(super) static COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "serve",
        about: "Serve a folder, or what a configuration file says",
        details: &[
            "With a folder (the current one if nothing is named) its anthill.toml is used; if it \
             has none, the folder is served as it is: over HTTPS on port 8443 with a self-signed \
             certificate that is made once and kept, and on port 8080 redirecting there.",
            "Options change what the configuration says, and still do after a reload.",
            "SIGTERM or SIGINT stop it when the requests under way are answered, a second one at \
             once; SIGHUP reloads; SIGUSR1 reopens the log files.",
        ],
        operands: &[WHAT],
        options: SERVE_OPTIONS,
        run: serve::run,
    },
    CommandSpec {
        name: "check",
        about: "Test a configuration without serving it",
        details: &[
            "Says what is wrong, where, and what would be right; exit status 2 if anything is.",
        ],
        operands: &[WHAT],
        options: SERVE_OPTIONS,
        run: check::run,
    },
    CommandSpec {
        name: "reload",
        about: "Make the running server take its changed configuration",
        details: &[
            "No connection is closed. Returns when every worker serves the new configuration; if \
             something is wrong with it, says so, and the old one goes on serving.",
            CLIENT_DETAILS,
        ],
        operands: &[WHAT],
        options: &[STATE, CONTROL],
        run: control_client::reload,
    },
    CommandSpec {
        name: "status",
        about: "Show what the running server is doing",
        details: &[CLIENT_DETAILS],
        operands: &[WHAT],
        options: &[
            CommandOption {
                long: "json",
                short: None,
                value: None,
                about: "As JSON, for programs",
            },
            STATE,
            CONTROL,
        ],
        run: control_client::status,
    },
    CommandSpec {
        name: "hits",
        about: "Show how often the pages of a site were seen",
        details: &[
            "Of SITE, by one of its names as the configuration has it, else of all: views by day \
             (UTC) and by page, with those by bots and of assets apart.",
            CLIENT_DETAILS,
        ],
        operands: &[
            Operand {
                name: "SITE",
                required: false,
                values: ValueKind::Any,
            },
            WHAT,
        ],
        options: &[
            CommandOption {
                long: "json",
                short: None,
                value: None,
                about: "As JSON, for programs",
            },
            STATE,
            CONTROL,
        ],
        run: control_client::hits,
    },
    CommandSpec {
        name: "purge",
        about: "Forget pages that the page cache keeps",
        details: &[
            "SITE is one of the site's names as the configuration has it, PATH a path as it reads \
             (not percent-encoded), whatever its query; with a * at its end, all that begin so: \
             anthill purge example.org '/news/*'",
            "Pages that are being made at this moment aren't kept either.",
            CLIENT_DETAILS,
        ],
        operands: &[
            Operand {
                name: "SITE",
                required: true,
                values: ValueKind::Any,
            },
            Operand {
                name: "PATH",
                required: true,
                values: ValueKind::Any,
            },
            WHAT,
        ],
        options: &[STATE, CONTROL],
        run: control_client::purge,
    },
    CommandSpec {
        name: "backup",
        about: "Save a site's content and hit counts into one file",
        details: &[
            "SITE is one of the site's names as the configuration has it. Saved are its root, the \
             folders of its routes (root, cgi) and its hit counts; not the configuration, keys and \
             certificates. The server may run meanwhile, or not.",
        ],
        operands: &[
            Operand {
                name: "SITE",
                required: true,
                values: ValueKind::Any,
            },
            WHAT,
        ],
        options: &[
            CommandOption {
                long: "output",
                short: Some('o'),
                value: Some(("FILE", ValueKind::Paths)),
                about: "The archive (tar.gz) that is written; needed",
            },
            STATE,
            CONTROL,
        ],
        run: backup::backup,
    },
    CommandSpec {
        name: "restore",
        about: "Put a site's content back from a backup",
        details: &[
            "Everything is unpacked beside the site's folders and verified before they change \
             places; what was there is kept beside them as .NAME.before-restore-TIME. SITE is where \
             it goes, if not to the site that it came from. With --to nothing of a site is touched.",
            "A running server takes the new content at once. Its hit counts stay as they are: those \
             of the backup are taken only when it doesn't run.",
        ],
        operands: &[
            Operand {
                name: "FILE",
                required: true,
                values: ValueKind::Paths,
            },
            Operand {
                name: "SITE",
                required: false,
                values: ValueKind::Any,
            },
            WHAT,
        ],
        options: &[
            CommandOption {
                long: "to",
                short: None,
                value: Some(("FOLDER", ValueKind::Folders)),
                about: "Unpack there instead; the folder must not be there yet",
            },
            STATE,
            CONTROL,
        ],
        run: backup::restore,
    },
    CommandSpec {
        name: "stop",
        about: "Stop the running server",
        details: &["The requests under way are answered first.", CLIENT_DETAILS],
        operands: &[WHAT],
        options: &[STATE, CONTROL],
        run: control_client::stop,
    },
    CommandSpec {
        name: "passwd",
        about: "Set a user's password in a user file",
        details: &[
            "The password is asked for twice at a terminal; otherwise it is one line of standard \
             input. FILE is made if it is missing; it is what `users` of a route names.",
        ],
        operands: &[
            Operand {
                name: "FILE",
                required: true,
                values: ValueKind::Paths,
            },
            Operand {
                name: "USER",
                required: true,
                values: ValueKind::Any,
            },
        ],
        options: &[CommandOption {
            long: "delete",
            short: None,
            value: None,
            about: "Remove the user instead",
        }],
        run: passwd::run,
    },
    CommandSpec {
        name: "service",
        about: "Start the server when the machine starts",
        details: &[
            "install writes and starts a service for the configuration in the current folder (or \
             the one that is named): a unit where systemd runs, else for OpenRC, else an init \
             script. It makes the account `anthill` if needed, and needs root. print shows what \
             would be written, remove stops the service and removes it.",
        ],
        operands: &[
            Operand {
                name: "ACTION",
                required: true,
                values: ValueKind::Words(&["install", "remove", "print"]),
            },
            WHAT,
        ],
        options: &[
            CommandOption {
                long: "name",
                short: None,
                value: Some(("NAME", ValueKind::Any)),
                about: "The service's name, if not anthill",
            },
            CommandOption {
                long: "user",
                short: None,
                value: Some(("NAME", ValueKind::Any)),
                about: "The account that serves, if not anthill",
            },
            CommandOption {
                long: "init",
                short: None,
                value: Some(("SYSTEM", ValueKind::Words(&["systemd", "openrc", "sysv"]))),
                about: "For this init system, instead of the one that runs here",
            },
        ],
        run: service::run,
    },
    CommandSpec {
        name: "completions",
        about: "Print completions for a shell",
        details: &[
            "bash: anthill completions bash > /etc/bash_completion.d/anthill",
            "zsh: anthill completions zsh > /usr/local/share/zsh/site-functions/_anthill",
            "fish: anthill completions fish > ~/.config/fish/completions/anthill.fish",
        ],
        operands: &[Operand {
            name: "SHELL",
            required: true,
            values: ValueKind::Words(&["bash", "zsh", "fish"]),
        }],
        options: &[],
        run: completions::run,
    },
    CommandSpec {
        name: "man",
        about: "Print the manual page",
        details: &["To read it: anthill man | man -l -"],
        operands: &[],
        options: &[],
        run: man::run,
    },
    CommandSpec {
        name: "version",
        about: "Show the version",
        details: &[],
        operands: &[],
        options: &[],
        run: help::run_version,
    },
    CommandSpec {
        name: "help",
        about: "Show what a command does",
        details: &[],
        operands: &[Operand {
            name: "COMMAND",
            required: false,
            values: ValueKind::Commands,
        }],
        options: &[],
        run: help::run,
    },
];

impl CommandSpec {
    /// Returns the command's options, including [`HELP`].
    pub(super) fn options(&self) -> impl Iterator<Item = &'static CommandOption> + use<> {
        self.options.iter().chain([&HELP])
    }

    /// Returns the synopsis of the command, for example `serve [OPTIONS] [DIR|FILE]`.
    pub(super) fn usage(&self) -> String {
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
    pub(super) fn usage(&self) -> String {
        match (self.values, self.required) {
            (ValueKind::Words(words), _) => words.join("|"),
            (_, true) => self.name.to_owned(),
            (_, false) => format!("[{}]", self.name),
        }
    }
}

impl CommandOption {
    /// Returns the synopsis of the option, for example `-h, --help` or `--state DIR`.
    pub(super) fn usage(&self) -> String {
        let short = self
            .short
            .map_or(String::new(), |short| format!("-{short}, "));
        let value = self
            .value
            .map_or(String::new(), |(name, _)| format!(" {name}"));
        format!("{short}--{}{value}", self.long)
    }
}
