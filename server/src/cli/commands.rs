//! Table of all commands and their options. The parser, the help, the manual page and the shell completions
//! read the table.

use crate::cli::external::SHARED_COMMANDS;
use crate::cli::help::rule_number;
use crate::cli::{
    backup, balancer, check, completions, control_client, help, init, log_view, man, passwd, proxy,
    receive, serve, service,
};
use crate::config::{OperatorError, parse_seconds};
use crate::receive::Rights;
use cli::{CommandOption, Operand, ValueKind};

/// The program anthill.
pub(super) static PROGRAM: cli::Program<OperatorError> = cli::Program {
    name: "anthill",
    commands: COMMANDS,
    foreign: &[
        SHARED_COMMANDS[0].word,
        SHARED_COMMANDS[1].word,
        SHARED_COMMANDS[2].word,
    ],
    is_topic: |word| rule_number(word).is_some(),
};

type CommandSpec = cli::CommandSpec<OperatorError>;

fn is_duration(word: &str) -> bool {
    parse_seconds(word).is_some()
}

const WHAT: Operand = Operand {
    name: "DIR|FILE",
    required: false,
    values: ValueKind::Paths,
};
const CONTROL: CommandOption = CommandOption {
    long: "control",
    short: None,
    value: Some(("PATH", ValueKind::Paths)),
    about: "Path of the control socket, instead of the default",
};
const STATE: CommandOption = CommandOption {
    long: "state",
    short: None,
    value: Some(("DIR", ValueKind::Folders)),
    about: "Folder for certificates, keys and other state",
};
const USER: CommandOption = CommandOption {
    long: "user",
    short: None,
    value: Some(("NAME", ValueKind::Any)),
    about: "Account to drop to after binding (only root can switch)",
};
const SERVE_OPTIONS: &[CommandOption] = &[
    CommandOption {
        long: "https",
        short: None,
        value: Some(("ADDR", ValueKind::Any)),
        about: "Address for HTTPS (:8443, 127.0.0.1:443, off); may be repeated",
    },
    CommandOption {
        long: "http",
        short: None,
        value: Some(("ADDR", ValueKind::Any)),
        about: "Address for plain HTTP (:8080, off); may be repeated",
    },
    CommandOption {
        long: "log",
        short: None,
        value: Some(("FILE", ValueKind::Paths)),
        about: "Access log: a file, - (standard output), stderr or off",
    },
    CommandOption {
        long: "workers",
        short: None,
        value: Some(("N", ValueKind::Any)),
        about: "Number of worker threads, instead of one per core",
    },
    CommandOption {
        long: "listing",
        short: None,
        value: None,
        about: "List the files of folders without an index file",
    },
    USER,
    STATE,
    CONTROL,
];
const YES: CommandOption = CommandOption {
    long: "yes",
    short: Some('y'),
    value: None,
    about: "Go on without a question",
};
const CLIENT_DETAILS: &str = "The server is that of the configuration in the current folder, or in the given folder or \
                              file. In a folder without anthill.toml, the command finds the only server of the machine \
                              that the user may control; with several servers, it lists them for --control.";
const CONFIRMED_DETAILS: &str = "Before the command goes to a server that neither the command line nor the folder names, \
                                 it names the server and asks; without a terminal it needs --yes.";

/// All commands, in the order of the help.
static COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "serve",
        about: "Serve a folder or a configuration",
        details: &[
            "For a folder (by default the current folder), the server reads its anthill.toml. A \
             folder without the file is served over HTTPS on port 8443 with a self-signed \
             certificate, made once and kept; port 8080 redirects to HTTPS.",
            "Options override the configuration, also after a reload.",
            "SIGTERM and SIGINT stop the server after the requests under way are answered, a \
             second signal at once. SIGHUP reloads the configuration. SIGUSR1 reopens the log \
             files.",
        ],
        operands: &[WHAT],
        options: SERVE_OPTIONS,
        run: serve::run,
    },
    CommandSpec {
        name: "proxy",
        about: "Serve an application over HTTPS, without a configuration",
        details: &[
            "The application is named by its port on this machine (3000), by an address with a port, or by a URL. It is \
             served for any name over HTTPS on port 8443 with a self-signed certificate; port 8080 redirects to HTTPS. \
             WebSockets and event streams need no setting.",
            "`anthill init proxy` writes the same as a configuration to build on.",
        ],
        operands: &[Operand {
            name: "PORT|URL",
            required: true,
            values: ValueKind::Any,
        }],
        options: SERVE_OPTIONS,
        run: proxy::run,
    },
    CommandSpec {
        name: "init",
        about: "Write a configuration to begin with",
        details: &[
            "Writes a commented anthill.toml into the folder (by default the current folder), and the files that it \
             names. Nothing that exists is changed. blog: files from the folder public. spa: the files of a single-page \
             application, and its interface on port 3000. proxy: HTTPS in front of an application on port 3000. \
             wordpress, php: an application in public, run by php-fpm.",
        ],
        operands: &[
            Operand {
                name: "KIND",
                required: true,
                values: ValueKind::Words(init::KINDS),
            },
            Operand {
                name: "DIR",
                required: false,
                values: ValueKind::Folders,
            },
        ],
        options: &[],
        run: init::run,
    },
    CommandSpec {
        name: "check",
        about: "Test a configuration without serving",
        details: &[
            "Prints all mistakes, each with its place and a correction. The exit status is 2 after a mistake.",
        ],
        operands: &[WHAT],
        options: SERVE_OPTIONS,
        run: check::run,
    },
    CommandSpec {
        name: "reload",
        about: "Apply the changed configuration",
        details: &[
            "No connection is closed. The command returns when every worker uses the new \
             configuration. If the new configuration has a mistake, the command prints the \
             mistake, and the server keeps the old configuration.",
            CLIENT_DETAILS,
        ],
        operands: &[WHAT],
        options: &[STATE, CONTROL],
        run: control_client::reload,
    },
    CommandSpec {
        name: "reopen",
        about: "Open the log files again",
        details: &[
            "For logrotate and other programs that rename log files. The command returns when all log files are open; \
             lines of earlier responses are in the old files. The exit status is 1 if a file can't be opened, and \
             the old file stays in use.",
            CLIENT_DETAILS,
        ],
        operands: &[WHAT],
        options: &[STATE, CONTROL],
        run: control_client::reopen,
    },
    CommandSpec {
        name: "status",
        about: "Print the state of the running server",
        details: &[
            "Prints what is wrong, then addresses, certificates, rates of the last minutes, responses of the sites by \
             class of the status, refusals by rule, and counters.",
            CLIENT_DETAILS,
        ],
        operands: &[WHAT],
        options: &[
            CommandOption {
                long: "json",
                short: None,
                value: None,
                about: "Print JSON, for programs",
            },
            STATE,
            CONTROL,
        ],
        run: control_client::status,
    },
    CommandSpec {
        name: "log",
        about: "Print or follow the logs",
        details: &[
            "Prints the last lines of the journal where systemd runs the server, else of the log files, and says where the \
             access log and the error log are. access and errors choose one of the logs.",
            "The server is that of the configuration in the current folder, or in the given folder or file, also while it is \
             stopped. In a folder without anthill.toml, the command finds the only running server or installed service \
             of the machine.",
        ],
        operands: &[
            Operand {
                name: "LOG",
                required: false,
                values: ValueKind::Words(log_view::KINDS),
            },
            WHAT,
        ],
        options: &[
            CommandOption {
                long: "follow",
                short: Some('f'),
                value: None,
                about: "Go on with new lines, until Ctrl-C",
            },
            CommandOption {
                long: "lines",
                short: Some('n'),
                value: Some(("LINES", ValueKind::Any)),
                about: "Number of lines, by default 20",
            },
            CONTROL,
        ],
        run: log_view::run,
    },
    CommandSpec {
        name: "requests",
        about: "List the requests under way, the oldest first",
        details: &[
            "Prints the oldest 100 requests without a complete response, with the age, the state, the client, the \
             path without the query, the site and the member of a balancer. Requests of the manager page are left out.",
            CLIENT_DETAILS,
        ],
        operands: &[WHAT],
        options: &[
            CommandOption {
                long: "json",
                short: None,
                value: None,
                about: "Print JSON, for programs",
            },
            STATE,
            CONTROL,
        ],
        run: control_client::requests,
    },
    CommandSpec {
        name: "metrics",
        about: "Print the metrics of the running server",
        details: &[
            "Prints the counters in the text format of Prometheus: requests by site, route, protocol \
             and status, latencies, members of balancers, certificates, memory.",
            CLIENT_DETAILS,
        ],
        operands: &[WHAT],
        options: &[
            CommandOption {
                long: "openmetrics",
                short: None,
                value: None,
                about: "Print the format OpenMetrics",
            },
            CommandOption {
                long: "history",
                short: None,
                value: None,
                about: "Print the counters of the last 20 minutes, every 5 s, as JSON",
            },
            STATE,
            CONTROL,
        ],
        run: control_client::metrics,
    },
    CommandSpec {
        name: "balancer",
        about: "List and edit balancers and their members",
        details: &[
            "Without an action, or with list, the command prints the balancers and their members; \
             DIR|FILE may follow directly. list BALANCER prints a single balancer. A route with a single server has a balancer as well, \
             with the name of the site and the path of the route.",
            "BALANCER is the name of a balancer. MEMBER is the URL of a member, the host and port, \
             or the route. drain: the member gets only the requests of its sessions. disable: the \
             member gets no requests. stop: the member gets neither requests nor checks. enable: \
             the member gets requests again. Requests under way complete.",
            "set changes values: set BALANCER MEMBER weight=2 route=a, or set BALANCER method=p2c. \
             Either all values are changed or none. add BALANCER URL adds a member, disabled at \
             first; remove BALANCER MEMBER removes a member.",
            "Edits hold over reloads and restarts, until anthill.toml changes the value. history \
             [BALANCER] prints the edits, undo ID undoes an edit, and differences prints the edits \
             in force with the lines for anthill.toml.",
            "On a terminal, the command asks before a member is removed, and before the last usable \
             member is drained, disabled or stopped; --yes goes on without the question.",
            "With --wait, the command returns when the member has no request under way; the exit \
             status is 1 if requests are still under way after the time.",
            CLIENT_DETAILS,
        ],
        operands: &[
            Operand {
                name: "ACTION",
                required: false,
                values: ValueKind::Words(balancer::ACTIONS),
            },
            Operand {
                name: "BALANCER|ID",
                required: false,
                values: ValueKind::Any,
            },
            Operand {
                name: "MEMBER|URL",
                required: false,
                values: ValueKind::Any,
            },
            Operand {
                name: "NAME=VALUE|DIR|FILE...",
                required: false,
                values: ValueKind::RepeatedPaths,
            },
        ],
        options: &[
            CommandOption {
                long: "wait",
                short: None,
                value: Some(("SECONDS", ValueKind::Optional(is_duration))),
                about: "Wait for the end of the member's requests, by default 60 s",
            },
            CommandOption {
                long: "json",
                short: None,
                value: None,
                about: "Print a list as JSON, for programs",
            },
            CommandOption {
                long: "yes",
                short: Some('y'),
                value: None,
                about: "Make dangerous edits without a question",
            },
            STATE,
            CONTROL,
        ],
        run: balancer::run,
    },
    CommandSpec {
        name: "manager",
        about: "Log in to the manager page",
        details: &[
            "login prints a URL that opens the manager page in a browser with the right to edit. The URL is valid \
             once, for 5 min; the login ends after 8 h, or with the server.",
            CLIENT_DETAILS,
        ],
        operands: &[
            Operand {
                name: "ACTION",
                required: true,
                values: ValueKind::Words(&["login"]),
            },
            WHAT,
        ],
        options: &[STATE, CONTROL],
        run: control_client::manager,
    },
    CommandSpec {
        name: "hits",
        about: "Print hit counts of a site",
        details: &[
            "SITE is a name of the site as written in the configuration; without SITE, all sites \
             are counted. Views are listed by day (UTC) and by page, with separate figures for \
             bots and assets.",
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
                about: "Print JSON, for programs",
            },
            STATE,
            CONTROL,
        ],
        run: control_client::hits,
    },
    CommandSpec {
        name: "purge",
        about: "Remove pages from the page cache",
        details: &[
            "SITE is a name of the site as written in the configuration. PATH is a decoded path, \
             and covers every query of the path. A path with * at the end covers all paths with \
             the same beginning: anthill purge example.org '/news/*'",
            "Responses that handlers are producing at the same moment are not stored either.",
            CLIENT_DETAILS,
            CONFIRMED_DETAILS,
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
        options: &[YES, STATE, CONTROL],
        run: control_client::purge,
    },
    CommandSpec {
        name: "backup",
        about: "Save a site's content and hit counts into a file",
        details: &[
            "SITE is a name of the site as written in the configuration. The archive contains the \
             site's root, the folders of its routes (root, cgi) and its hit counts, but no \
             configuration, keys or certificates. The server may be running or stopped.",
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
                about: "Archive to write (tar.gz); required",
            },
            STATE,
            CONTROL,
        ],
        run: backup::backup,
    },
    CommandSpec {
        name: "receive",
        about: "Receive releases of a site from a publisher",
        details: &[
            "The command speaks with `anthill publish` on standard input and output, mostly by ssh. SITE is the name of \
             `release` in the configuration. The publisher cannot run anything else if the line of the key in \
             authorized_keys has this command: --key-line prints the line, for KEY write the public key.",
        ],
        operands: &[Operand {
            name: "SITE",
            required: true,
            values: ValueKind::Any,
        }],
        options: &[
            CommandOption {
                long: "store",
                short: None,
                value: Some(("DIR", ValueKind::Folders)),
                about: "Folder of the store; required",
            },
            CommandOption {
                long: "rights",
                short: None,
                value: Some(("RIGHTS", ValueKind::Words(&Rights::WORDS))),
                about: "Rights of the publisher (default publish)",
            },
            CommandOption {
                long: "publisher",
                short: None,
                value: Some(("NAME", ValueKind::Any)),
                about: "Name of the publisher, the owner of its labels; needed with the rights preview",
            },
            CommandOption {
                long: "quota",
                short: None,
                value: Some(("BYTES", ValueKind::Any)),
                about: "Bytes of all releases in the store, beyond which none is accepted",
            },
            CommandOption {
                long: "key-line",
                short: None,
                value: None,
                about: "Print the line for authorized_keys",
            },
            CommandOption {
                long: "withdraw",
                short: None,
                value: Some(("ID", ValueKind::Any)),
                about: "Never serve the release again, on this machine",
            },
        ],
        run: receive::run,
    },
    CommandSpec {
        name: "restore",
        about: "Restore a site's content from a backup",
        details: &[
            "The archive is unpacked beside the site's folders and verified before the folders \
             are exchanged. The old folders are kept beside the new folders as \
             .NAME.before-restore-TIME. SITE is the site to restore, by default the site of the \
             backup. With --to no site is changed.",
            "A running server applies the new content at once and keeps its hit counts; the hit \
             counts of the backup are restored only if the server is stopped.",
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
                about: "Unpack into a new folder instead of the site, without the rules of a release",
            },
            STATE,
            CONTROL,
        ],
        run: backup::restore,
    },
    CommandSpec {
        name: "stop",
        about: "Stop the running server",
        details: &[
            "Requests under way are answered first.",
            CLIENT_DETAILS,
            CONFIRMED_DETAILS,
        ],
        operands: &[WHAT],
        options: &[YES, STATE, CONTROL],
        run: control_client::stop,
    },
    CommandSpec {
        name: "passwd",
        about: "Set a user's password in a user file",
        details: &[
            "On a terminal, the command asks twice for the password; otherwise it reads a line of \
             standard input. A missing FILE is created. The key `users` of a route names the \
             file.",
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
        about: "Start the server when the machine boots",
        details: &[
            "install writes and starts a service for the configuration in the current folder, or \
             for the given folder or file: a systemd unit, an OpenRC script, or an init script, \
             depending on the machine. If the account `anthill` does not exist, install creates \
             it. print shows the text of the service. remove stops and removes the service. \
             install and remove need root.",
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
                about: "Name of the service, instead of anthill",
            },
            CommandOption {
                long: "user",
                short: None,
                value: Some(("NAME", ValueKind::Any)),
                about: "Account of the server, instead of anthill",
            },
            CommandOption {
                long: "init",
                short: None,
                value: Some(("SYSTEM", ValueKind::Words(&["systemd", "openrc", "sysv"]))),
                about: "Init system, instead of the init system of the machine",
            },
            CommandOption {
                long: "publisher",
                short: None,
                value: Some(("NAME", ValueKind::Any)),
                about: "Login account of all publishers (receive --publisher names one of them)",
            },
            CommandOption {
                long: "quota",
                short: None,
                value: Some(("BYTES", ValueKind::Any)),
                about: "Bytes of all releases in the store, beyond which none is accepted",
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
        about: "Print the version",
        details: &[],
        operands: &[],
        options: &[],
        run: help::run_version,
    },
    CommandSpec {
        name: "help",
        about: "Print the help of a command, or the reason of a rule",
        details: &["anthill help R742 prints the causes of the rule R742 in a log."],
        operands: &[Operand {
            name: "COMMAND",
            required: false,
            values: ValueKind::Commands,
        }],
        options: &[],
        run: help::run,
    },
];
