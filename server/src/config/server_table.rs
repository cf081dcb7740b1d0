//! `[server]`: addresses, accounts, folders and limits of the process.

use std::path::PathBuf;

use toml::Spanned;

use crate::config::declared_table::{DeclaredTable, declare_table};
use crate::config::error::OperatorError;
use crate::config::limits_table::LimitsTable;
use crate::config::manager_table::ManagerKeys;
use crate::config::paths::{self, DefaultPaths};
use crate::config::proxy_table::{ListenerTable, TrustKeys, listener};
use crate::config::toml_reader::{FromToml, KeyedValue, SourceText, TableReader};
use crate::config::value_types::{ByteSize, OrAuto};
use crate::config::values::{KeyedAddress, ListenAddress, share_ports};
use data_plane::limits::Limits;

declare_table! {
    /// Keys of `[server]`.
    pub(super) struct ServerTable: "[server]" {
        /// Addresses for HTTPS: `":443"`, `"127.0.0.1:8443"`, `"[::1]:8443"`, or tables of [listeners](#listeners);
        /// `"off"` for none. A port alone means all addresses, IPv6 and IPv4; on a system without IPv6, all IPv4
        /// addresses.
        https: Listeners = optional("`[\":8443\"]`"), example "[\":443\"]";
        /// Addresses for plain HTTP, in the same form.
        http: Listeners = optional("`[\":8080\"]`"), example "\"off\"";
        /// HTTP/2 over plain HTTP for clients with prior knowledge, such as a proxy in front; see
        /// [HTTP/2](http2.md).
        h2c: bool = default(false), example "true";
        /// [HTTP/3](http3.md) beside HTTPS, at the same port by UDP. `true`: an unavailable port is an error; `false`:
        /// no HTTP/3.
        http3: bool = optional("if possible"), also ["quic"], example "false";
        /// Port in redirects to HTTPS and in the announcement of HTTP/3, for a router that forwards another port.
        public_port: u16 = optional("first port of `https`"), within(1, 65_535), example "443";
        /// Number of serving threads. `"auto"`: one for each core.
        workers: OrAuto<usize> = optional("`\"auto\"`"), also ["worker_processes", "threads"], example "4";
        /// Account (a name, a uid or `uid:gid`) after the ports are bound. Only root can change the account; the
        /// server keeps the capability CAP_LEASE, to detect other users' writes to a file. The server also starts if
        /// its process already runs as the account, as under systemd with `User=`; under any other account the server
        /// refuses to start.
        user: String = optional("none"), also ["account", "setuid"], example "\"anthill\"";
        /// Bytes for contents, caches, the heads of waiting requests (one sixteenth, at most 12 MiB) and the
        /// [bodies under way](limits.md#memory-of-bodies) (a third). `"auto"`: an eighth of the memory (or of the limit
        /// of the control group), at most 256 MiB.
        memory_max: OrAuto<ByteSize> = optional("`\"auto\"`"), also ["memory"], example "\"64MiB\"";
        /// Folder for files of the server: certificates, ticket keys, hit counts.
        state: PathBuf = optional("see [Files on disk](files.md#state-folder)"), example "\"/var/lib/anthill\"";
        /// Store of [releases](releases.md), for the sites with `release`.
        releases: PathBuf = optional("`releases` in `state`"), example "\"/srv/releases\"";
        /// Socket for `reload`, `status`, `balancer`, `hits`, `purge` and `stop`.
        control: PathBuf = optional("in `state`"), also ["pid", "socket"], example "\"/run/anthill/control.sock\"";
        /// Table of [limits](limits.md).
        limits: LimitsTable = table, example "{ connections = 20000 }";
        ..trust: TrustKeys;
        ..manager: ManagerKeys;
    }
}

/// Settings of `[server]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Addresses for HTTPS. `https` and `http` are both empty only if every site has its own addresses.
    pub https: Vec<Spanned<ListenAddress>>,
    /// Addresses for plain HTTP.
    pub http: Vec<Spanned<ListenAddress>>,
    /// Whether clients may use HTTP/2 without TLS with prior knowledge (RFC 9113 §3.3).
    pub h2c: bool,
    /// HTTP/3 beside HTTPS; `None` = if possible.
    pub http3: Option<Spanned<bool>>,
    /// HTTPS port in the URLs of redirects; `None` = the port of the first HTTPS address.
    pub public_port: Option<u16>,
    /// Number of worker threads; `None` = one per core.
    pub workers: Option<Spanned<usize>>,
    /// Account of the process after binding.
    pub user: Option<Spanned<String>>,
    /// Memory for contents and caches in bytes; `None` = chosen by the memory of the machine.
    pub memory_max: Option<u64>,
    /// State folder: self-signed certificates, ticket keys and other state.
    pub state: Spanned<PathBuf>,
    /// Store of releases; `None` = the folder `releases` in the state folder.
    pub releases: Option<Spanned<PathBuf>>,
    /// Path of the control socket, never longer than a socket address can hold.
    pub control: Spanned<PathBuf>,
    /// Limits set by the operator.
    pub limits: Limits,
    /// Networks of proxies in front of the server.
    pub trust: Vec<Spanned<String>>,
}

impl ServerConfig {
    /// Returns the folder of the store of releases.
    pub(crate) fn releases_folder(&self) -> PathBuf {
        match &self.releases {
            Some(folder) => folder.get_ref().clone(),
            None => self.state.get_ref().join("releases"),
        }
    }
}

/// Addresses of `https` or `http`; empty for `"off"`.
#[derive(Clone, Debug)]
pub(super) struct Listeners(Vec<Spanned<ListenAddress>>);

impl FromToml for Listeners {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        if item.text() == Some("off") {
            return Ok(Listeners(Vec::new()));
        }
        let listeners = <Vec<ListenerTable>>::read(item)?.into_iter();
        Ok(Listeners(listeners.map(listener).collect()))
    }
}

/// Addresses of the manager in `[server]`.
pub(super) type ShortManager = Spanned<Vec<Spanned<ListenAddress>>>;

/// Converts the keys of `[server]`, and returns the addresses of the manager as well. An error is recorded, and
/// the default takes the place of the value.
pub(super) fn server<'s>(
    mut table: TableReader<'s, '_>,
    places: &DefaultPaths,
) -> Result<(ServerConfig, Option<ShortManager>), OperatorError> {
    let source = table.source();
    let keys = ServerTable::take(&mut table);
    // Errors are recorded, and the caller finds them there.
    let _ = table.finish();
    let keys = keys?;
    let (https, http) = (addresses(keys.https, 8443), addresses(keys.http, 8080));
    if let Some(wanted) = keys
        .http3
        .as_ref()
        .filter(|it| *it.get_ref() && !cfg!(feature = "http3"))
    {
        let help = "remove the key, or install a build with HTTP/3";
        source.report(source.error(wanted.span(), "this build has no HTTP/3", help));
    }
    let workers = chosen(keys.workers);
    if let Some(count) = workers
        .as_ref()
        .filter(|it| !(1..=WORKERS_MAX).contains(it.get_ref()))
    {
        let help = format!(
            "write a number between 1 and {WORKERS_MAX}, or \"auto\" for one worker per core"
        );
        source.report(source.error(count.span(), "`workers` is out of bounds", help));
    }
    let nowhere = |path| Spanned::new(0..0, path);
    let state = keys.state.unwrap_or_else(|| nowhere(places.state()));
    if let Some(control) = keys
        .control
        .as_ref()
        .filter(|it| !paths::fits_socket(it.get_ref()))
    {
        let max = paths::SOCKET_PATH_MAX;
        let what = format!("the control socket's path is longer than {max} bytes");
        let help = "write a shorter path, such as \"/run/anthill/control.sock\"";
        source.report(source.error(control.span(), what, help));
    }
    let control = keys
        .control
        .unwrap_or_else(|| nowhere(places.control(state.get_ref())));
    let config = ServerConfig {
        https,
        http,
        h2c: keys.h2c.into_inner(),
        http3: keys.http3,
        public_port: keys.public_port.map(Spanned::into_inner),
        workers,
        user: keys.user,
        memory_max: chosen(keys.memory_max).map(|bytes| bytes.into_inner().0),
        state,
        releases: keys.releases,
        control,
        limits: keys.limits.into_inner().limits(),
        trust: crate::config::value_types::networks(keys.trust.trust.into_inner()),
    };
    Ok((config, keys.manager.manager))
}

/// Returns the value of a key, unless the server chooses the value.
fn chosen<T>(value: Option<Spanned<OrAuto<T>>>) -> Option<Spanned<T>> {
    let value = value?;
    let span = value.span();
    value.into_inner().0.map(|value| Spanned::new(span, value))
}

/// Maximum number of workers, above the core count of any supported machine. A larger number is a typing
/// mistake.
const WORKERS_MAX: usize = 1_024;

fn addresses(key: Option<Spanned<Listeners>>, port: u16) -> Vec<Spanned<ListenAddress>> {
    match key {
        Some(listeners) => listeners.into_inner().0,
        None => vec![Spanned::new(0..0, ListenAddress::all(port))],
    }
}

/// Returns the addresses of a key, each with the key.
pub(super) fn keyed<'a>(
    key: &'static str,
    addresses: &'a mut [Spanned<ListenAddress>],
) -> impl Iterator<Item = KeyedAddress<'a>> {
    addresses.iter_mut().map(move |address| (key, address))
}

/// Refuses two listeners on one address and port. An address such as `[::]` meets each address with its port.
pub(super) fn refuse_shared_ports(
    source: &SourceText<'_>,
    mut addresses: Vec<KeyedAddress<'_>>,
) -> Result<(), OperatorError> {
    let Err((earlier, later)) = share_ports(&mut addresses) else {
        return Ok(());
    };
    let (mut other, mut this) = (&addresses[earlier], &addresses[later]);
    if this.1.span().is_empty() {
        (other, this) = (this, other);
    }
    let what = shared_address((this.0, this.1.get_ref()), (other.0, other.1.get_ref()));
    let (key, span) = (other.0, other.1.span());
    let help = if span.is_empty() {
        format!(
            "choose another port: the default of `{key}` is :{}",
            other.1.get_ref().address.port()
        )
    } else {
        let place = source.place(span.start, &this.1.span());
        format!("choose another port, or remove one of the two; `{key}` is in {place}")
    };
    Err(source.error(this.1.span(), what, help))
}

/// Says which listeners have one address, with the key of each.
pub(super) fn shared_address(
    (this_key, this): (&str, &ListenAddress),
    (other_key, other): (&str, &ListenAddress),
) -> String {
    let is_equal = this.address == other.address;
    match (is_equal, this_key == other_key) {
        (true, true) => format!("the address `{this}` is used twice in `{this_key}`"),
        (true, false) => {
            format!("the address `{this}` is used twice, in `{this_key}` and in `{other_key}`")
        }
        (false, _) => format!(
            "`{this}` of `{this_key}` and `{other}` of `{other_key}` have one port, and one of the two stands for all addresses"
        ),
    }
}
