//! `[manager]`: the listener of the manager page, and its users.

use std::net::SocketAddr;
use std::path::PathBuf;

use toml::Spanned;

use crate::config::declared_table::declare_table;
use crate::config::error::OperatorError;
use crate::config::toml_reader::{FromToml, KeyedValue, SourceText};
use crate::config::values::{InvalidValue, ListenAddress, wrong};
use wire::request_target::valid_host;

declare_table! {
    /// Keys of `[server]` about the manager.
    pub(super) struct ManagerKeys: "[server]" {
        /// Address of the [manager](#manager): a short form of `[manager]` with `listen` alone.
        manager: Vec<Spanned<ListenAddress>> = optional("no manager"),
            example "\"127.0.0.1:8800\"";
    }
}

declare_table! {
    /// Keys of the manager.
    pub(super) struct ManagerTable: "[manager]" {
        /// Address of the manager, or a list. A loopback address speaks plain HTTP, any other address speaks TLS.
        listen: Vec<Spanned<ListenAddress>> = required,
            also ["address", "bind", "port"], example "\"127.0.0.1:8800\"";
        /// User file with the editors: users with the right to read and to edit. `anthill passwd` writes the file.
        users: PathBuf = optional("none"), also ["admins", "editors", "auth"], example "\"managers\"";
        /// User file with the viewers: users with the right to read alone.
        viewers: PathBuf = optional("none"), also ["readers"], example "\"viewers\"";
        /// Networks of permitted clients.
        allow: Vec<Spanned<String>> = optional("all networks"),
            also ["from", "require"], example "[\"192.0.2.0/24\", \"127.0.0.1\"]";
        /// Host names of the manager in URLs, each with or without a port, beside `localhost` and the addresses
        /// of the machine.
        names: Vec<Spanned<ManagerName>> = default(Vec::new()),
            also ["hosts", "server_name"], example "[\"manager.example.org\", \"localhost:9000\"]";
    }
}

/// Settings of `[manager]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerConfig {
    /// Addresses; at least one.
    pub listen: Vec<Spanned<ListenAddress>>,
    /// User file of the editors.
    pub users: Option<Spanned<PathBuf>>,
    /// User file of the viewers.
    pub viewers: Option<Spanned<PathBuf>>,
    /// Networks of permitted clients; `None` = all networks.
    pub allow: Option<Vec<Spanned<String>>>,
    /// Accepted host names in lower case, and the port for each; `None` = the port of the address.
    pub names: Vec<(String, Option<u16>)>,
}

impl ManagerConfig {
    /// Returns the user files with their keys.
    pub(crate) fn user_files(&self) -> impl Iterator<Item = (&'static str, &Spanned<PathBuf>)> {
        let users = self.users.iter().map(|file| ("users", file));
        users.chain(self.viewers.iter().map(|file| ("viewers", file)))
    }

    /// Returns true if any address speaks TLS.
    pub(crate) fn uses_tls(&self) -> bool {
        self.listen
            .iter()
            .any(|listen| speaks_tls(listen.get_ref()))
    }
}

/// Returns true if the manager speaks TLS on the address: any address but a loopback address.
pub fn speaks_tls(listen: &ListenAddress) -> bool {
    !listen.address.ip().to_canonical().is_loopback()
}

/// Host name of the manager, with an optional port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ManagerName {
    name: String,
    port: Option<u16>,
}

impl crate::config::declared_table::ShownValue for ManagerName {
    fn shown(&self) -> String {
        match self.port {
            Some(port) => format!("\"{}:{port}\"", self.name),
            None => format!("\"{}\"", self.name),
        }
    }
}

impl FromToml for ManagerName {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        item.parse(
            "a host name in quotes",
            "[\"manager.example.org\"]",
            ManagerName::parse,
        )
    }
}

impl ManagerName {
    fn parse(text: &str) -> Result<ManagerName, InvalidValue> {
        let help = "write a name without scheme and path, such as \"manager.example.org\"";
        match valid_host(text.as_bytes()) {
            Some((name, port)) => Ok(ManagerName {
                name: String::from_utf8_lossy(name).to_ascii_lowercase(),
                port,
            }),
            None => wrong(format!("`{text}` is not a host name"), help),
        }
    }
}

/// Returns the settings of the manager from the table and from the short form in `[server]`.
pub(super) fn manager(
    source: &SourceText<'_>,
    table: Option<Spanned<ManagerTable>>,
    short: Option<Spanned<Vec<Spanned<ListenAddress>>>>,
) -> Result<Option<ManagerConfig>, OperatorError> {
    let config = match (table, short) {
        (None, None) => return Ok(None),
        (Some(_), Some(short)) => {
            let what = "the manager has two tables: `manager` in [server], and [manager]";
            let help =
                "remove `manager` from [server], and write the address as `listen` in [manager]";
            return Err(source.error(short.span(), what, help));
        }
        (None, Some(listen)) => {
            refuse_empty(source, &listen)?;
            ManagerConfig {
                listen: listen.into_inner(),
                users: None,
                viewers: None,
                allow: None,
                names: Vec::new(),
            }
        }
        (Some(table), None) => {
            let table = table.into_inner();
            refuse_empty(source, &table.listen)?;
            let names = table
                .names
                .into_inner()
                .into_iter()
                .map(Spanned::into_inner);
            ManagerConfig {
                listen: table.listen.into_inner(),
                users: table.users,
                viewers: table.viewers,
                allow: table.allow.map(Spanned::into_inner),
                names: names.map(|it| (it.name, it.port)).collect(),
            }
        }
    };
    if !cfg!(feature = "manager") {
        let span = config.listen[0].span();
        let help = "remove the manager's keys, or install a build with the manager";
        return Err(source.error(span, "this build has no manager", help));
    }
    refuse_open(source, &config)?;
    Ok(Some(config))
}

fn refuse_empty(
    source: &SourceText<'_>,
    listen: &Spanned<Vec<Spanned<ListenAddress>>>,
) -> Result<(), OperatorError> {
    if listen.get_ref().is_empty() {
        let help = "write an address such as \"127.0.0.1:8800\", or remove the key for no manager";
        Err(source.error(listen.span(), "the manager has no address", help))
    } else {
        Ok(())
    }
}

/// Refuses an address that other machines can reach without `users` and `allow`.
fn refuse_open(source: &SourceText<'_>, config: &ManagerConfig) -> Result<(), OperatorError> {
    let mut open = config.listen.iter().filter(|it| speaks_tls(it.get_ref()));
    let Some(listen) = open.next() else {
        return Ok(());
    };
    let missing = match (&config.users, &config.allow) {
        (Some(_), Some(_)) => return Ok(()),
        (None, Some(_)) => "`users`",
        (Some(_), None) => "`allow`",
        (None, None) => "`users` and `allow`",
    };
    let address: SocketAddr = listen.get_ref().address;
    let what = format!("other machines can reach the manager at {address}, which needs {missing}");
    let help = "write a table [manager] with listen, users = \"managers\" and \
                allow = [\"192.0.2.0/24\"], or listen on 127.0.0.1";
    Err(source.error(listen.span(), what, help))
}
