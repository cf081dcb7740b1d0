//! Operands, options and paragraphs of the help that several commands share.

use crate::config::OperatorError;
use cli::{CommandOption, Operand, ValueKind};

/// A command of the program anthill.
pub(super) type CommandSpec = cli::CommandSpec<OperatorError>;

/// The operand of commands for a server: a folder or a configuration file.
pub(super) const WHAT: Operand = Operand {
    name: "DIR|FILE",
    required: false,
    values: ValueKind::Paths,
};
/// Option with the path of the control socket.
pub(super) const CONTROL: CommandOption = CommandOption {
    long: "control",
    short: None,
    value: Some(("PATH", ValueKind::Paths)),
    about: "Path of the control socket, instead of the default",
};
/// Option with the folder of the state.
pub(super) const STATE: CommandOption = CommandOption {
    long: "state",
    short: None,
    value: Some(("DIR", ValueKind::Folders)),
    about: "Folder for certificates, keys and other state",
};
/// Option with the account of the server.
pub(super) const USER: CommandOption = CommandOption {
    long: "user",
    short: None,
    value: Some(("NAME", ValueKind::Any)),
    about: "Account to drop to after binding (only root can switch)",
};
/// Option with the addresses for HTTPS.
pub(super) const HTTPS: CommandOption = CommandOption {
    long: "https",
    short: None,
    value: Some(("ADDR", ValueKind::Any)),
    about: "Address for HTTPS (:8443, 127.0.0.1:443, off); may be repeated",
};
/// Option with the addresses for plain HTTP.
pub(super) const HTTP: CommandOption = CommandOption {
    long: "http",
    short: None,
    value: Some(("ADDR", ValueKind::Any)),
    about: "Address for plain HTTP (:8080, off); may be repeated",
};
/// Option with the access log.
pub(super) const LOG: CommandOption = CommandOption {
    long: "log",
    short: None,
    value: Some(("FILE", ValueKind::Paths)),
    about: "Access log: a file, - (standard output), stderr or off",
};
/// Option with the number of workers.
pub(super) const WORKERS: CommandOption = CommandOption {
    long: "workers",
    short: None,
    value: Some(("N", ValueKind::Any)),
    about: "Number of worker threads, instead of one per core",
};
/// Option for listings of folders.
pub(super) const LISTING: CommandOption = CommandOption {
    long: "listing",
    short: None,
    value: None,
    about: "List the files of folders without an index file",
};
/// Options of commands that read a configuration as `serve` does.
pub(super) const SERVE_OPTIONS: &[CommandOption] =
    &[HTTPS, HTTP, LOG, WORKERS, LISTING, USER, STATE, CONTROL];
/// Option for output as JSON.
pub(super) const JSON: CommandOption = CommandOption {
    long: "json",
    short: None,
    value: None,
    about: "Print JSON, for programs",
};
/// Option that answers the question of a command.
pub(super) const YES: CommandOption = CommandOption {
    long: "yes",
    short: Some('y'),
    value: None,
    about: "Go on without a question",
};
/// Paragraph of the help about the server that a command finds.
pub(super) const CLIENT_DETAILS: &str = "The server is that of the configuration in the current folder, or in the given folder or \
                              file. In a folder without anthill.toml, the command finds the only server of the machine \
                              that the user may control; with several servers, it lists them for --control.";
/// Paragraph of the help about the question of a command.
pub(super) const CONFIRMED_DETAILS: &str = "Before the command goes to a server that neither the command line nor the folder names, \
                                 it names the server and asks; without a terminal it needs --yes.";
