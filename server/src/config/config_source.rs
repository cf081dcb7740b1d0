//! Source of a configuration: a file or a folder, and the options of the command line.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use toml::Spanned;

use crate::config::check;
use crate::config::configuration::Config;
use crate::config::error::OperatorError;
use crate::config::listen_addresses::share_with_sites;
use crate::config::log_table::LogTarget;
use crate::config::paths::{
    DefaultPaths, FILE_NAME, MACHINE_STATE, SOCKET_PATH_MAX, absolute, fits_socket, join,
    private_folder, proxy_path, read_text, reason, shared_folder,
};
use crate::config::schema::{self, Reading};
use crate::config::server_table::{ServerConfig, keyed};
use crate::config::site_table::SiteConfig;
use crate::config::values::ListenAddress;
use crate::config::variables::expanded;

/// Source of a configuration, from the argument of `anthill serve`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// Configuration file.
    File(PathBuf),
    /// Folder without a configuration file.
    Folder(PathBuf),
    /// URL of an application that gets all requests, without a configuration file.
    Proxy(String),
}

impl ConfigSource {
    /// Returns the source for the argument of the command line. `None` means the current folder. A folder
    /// with an `anthill.toml` means the file.
    pub(crate) fn of(argument: Option<&Path>) -> Result<ConfigSource, OperatorError> {
        let path = argument.unwrap_or(Path::new("."));
        let metadata = std::fs::metadata(path).map_err(|error| {
            OperatorError::new(format!("{}: {}", path.display(), reason(&error)))
                .help("name a folder to serve, or a configuration file such as anthill.toml")
        })?;
        let ending = path.extension().and_then(|ending| ending.to_str());
        if let (false, Some("html" | "htm")) = (metadata.is_dir(), ending) {
            let folder = path.parent().filter(|parent| *parent != Path::new(""));
            let folder = folder.unwrap_or(Path::new(".")).display();
            let what = format!("{} is a web page, not a configuration file", path.display());
            let help = format!("to serve the folder of the page: anthill serve {folder}");
            return Err(OperatorError::new(what).help(help));
        }
        if !metadata.is_dir() {
            return Ok(ConfigSource::File(path.to_owned()));
        }
        let file = match argument {
            Some(folder) => folder.join(FILE_NAME),
            None => PathBuf::from(FILE_NAME),
        };
        match std::fs::metadata(&file) {
            Ok(_) => Ok(ConfigSource::File(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(ConfigSource::Folder(path.to_owned()))
            }
            Err(error) => Err(OperatorError::new(format!(
                "{}: {}",
                file.display(),
                reason(&error)
            ))),
        }
    }

    /// Reads the configuration, and applies the options of the command line.
    pub(crate) fn read(&self, overrides: &Overrides) -> Result<Config, OperatorError> {
        let Reading {
            mut config,
            mut errors,
        } = match self {
            ConfigSource::File(path) => schema::load(path)?,
            ConfigSource::Folder(path) => schema::guess(path)?,
            ConfigSource::Proxy(url) => schema::proxy(url)?,
        };
        errors.extend(overrides.apply(&mut config).err());
        if !errors.is_empty() {
            // The named files and folders that could be read are checked in spite of the mistakes.
            errors.extend(check::errors_of_part(&config));
        }
        match OperatorError::all(errors) {
            Some(error) => Err(error),
            None => Ok(config),
        }
    }
}

/// Options of the command line that override the configuration. The options are kept, so that a reload
/// applies the options again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Addresses for HTTPS; `off` = none.
    pub https: Vec<String>,
    /// Addresses for plain HTTP; `off` = none.
    pub http: Vec<String>,
    /// State folder.
    pub state: Option<PathBuf>,
    /// Control socket.
    pub control: Option<PathBuf>,
    /// Number of worker threads.
    pub workers: Option<usize>,
    /// Access log: `-`, `stderr`, `off` or a file.
    pub log: Option<OsString>,
    /// Account to drop to.
    pub user: Option<String>,
    /// Whether all sites list folders without an index file.
    pub listing: bool,
    /// State folder and control socket determined at the start. After privileges are dropped, the defaults
    /// would be different.
    pub settled: Option<(PathBuf, PathBuf)>,
}

impl Overrides {
    /// Keeps the state folder and control socket of `config` as defaults for reloads after privileges were
    /// dropped. Values in the configuration file still take precedence.
    pub(crate) fn settle(&mut self, config: &Config) {
        let server = &config.server;
        self.settled = Some((
            server.state.get_ref().clone(),
            server.control.get_ref().clone(),
        ));
    }

    fn apply(&self, config: &mut Config) -> Result<(), OperatorError> {
        self.apply_settled(&mut config.server);
        for site in &mut config.sites {
            site.listing |= self.listing;
        }
        self.apply_addresses(config)?;
        if let Some(workers) = self.workers {
            config.server.workers = Some(Spanned::new(0..0, workers));
        }
        if let Some(user) = &self.user {
            config.server.user = Some(Spanned::new(0..0, user.clone()));
        }
        self.apply_paths(config)?;
        if let Some(log) = &self.log {
            let to = match log.to_str() {
                Some("-" | "stdout") => LogTarget::Stdout,
                Some("stderr") => LogTarget::Stderr,
                Some("off") => LogTarget::Off,
                _ => LogTarget::File(absolute(Path::new(log))?),
            };
            config.log.access = Spanned::new(0..0, to);
        }
        Ok(())
    }

    /// Sets the paths determined at the start, where the configuration file has no path.
    fn apply_settled(&self, server: &mut ServerConfig) {
        let Some((state, control)) = &self.settled else {
            return;
        };
        let by_default = |span: std::ops::Range<usize>| span.is_empty();
        if by_default(server.control.span()) && by_default(server.state.span()) {
            server.control = Spanned::new(0..0, control.clone());
        }
        if by_default(server.state.span()) {
            server.state = Spanned::new(0..0, state.clone());
        }
    }

    /// Sets the addresses. Fails if the server would have no address, or an address twice.
    fn apply_addresses(&self, config: &mut Config) -> Result<(), OperatorError> {
        if self.https.is_empty() && self.http.is_empty() {
            return Ok(()); // the file has been checked
        }
        let server = &mut config.server;
        for (option, typed, addresses) in [
            ("https", &self.https, &mut server.https),
            ("http", &self.http, &mut server.http),
        ] {
            if !typed.is_empty() {
                *addresses = listen(option, typed)?;
            }
        }
        let by_sites = config.sites.iter().all(SiteConfig::has_own_listeners);
        if server.https.is_empty() && server.http.is_empty() && !by_sites {
            return Err(OperatorError::new("there is no address to listen on")
                .help("give --https or --http an address such as :8443"));
        }
        let manager = config.manager.iter_mut();
        let manager = manager.flat_map(|manager| keyed("manager", &mut manager.listen));
        let public = keyed("https", &mut server.https).chain(keyed("http", &mut server.http));
        let addresses = public.chain(manager).collect();
        if let Err(what) = share_with_sites(addresses, &mut config.sites) {
            return Err(OperatorError::new(what)
                .help("change a port with --https or --http (`off` for none)"));
        }
        Ok(())
    }

    /// Sets the state folder and the control socket. A default control socket moves with the state folder.
    fn apply_paths(&self, config: &mut Config) -> Result<(), OperatorError> {
        let server = &mut config.server;
        if let Some(state) = &self.state {
            let state = absolute(state)?;
            if server.control.span().is_empty() {
                let key = config.path.as_deref().unwrap_or(&config.folder);
                let control = DefaultPaths::of(key).control(&state);
                server.control = Spanned::new(0..0, control);
            }
            server.state = Spanned::new(0..0, state);
        }
        let Some(control) = &self.control else {
            return Ok(());
        };
        let control = absolute(control)?;
        if !fits_socket(&control) {
            let what = format!("the control socket's path is longer than {SOCKET_PATH_MAX} bytes");
            return Err(OperatorError::new(what).help("give --control a shorter path"));
        }
        server.control = Spanned::new(0..0, control);
        Ok(())
    }
}

fn listen(
    option: &str,
    addresses: &[String],
) -> Result<Vec<Spanned<ListenAddress>>, OperatorError> {
    if addresses.iter().any(|address| address == "off") {
        return Ok(Vec::new());
    }
    let parse = |address: &String| {
        let listen = ListenAddress::parse(address).map_err(|wrong| {
            OperatorError::new(format!("--{option}: {}", wrong.what)).help(wrong.help)
        })?;
        Ok(Spanned::new(0..0, listen))
    };
    addresses.iter().map(parse).collect()
}

/// Returns `user` of `[server]` in a configuration file; `None` if the file is missing or has no such key. The file is
/// read as far as possible in spite of mistakes.
pub fn configured_user(file: &Path) -> Option<String> {
    let text = read_text(file).ok()?;
    let (document, _errors) = toml::de::DeTable::parse_recoverable(&text);
    let server = document.get_ref().get("server")?.get_ref().as_table()?;
    expanded(server.get("user")?.get_ref().as_str()?)
}

/// Returns the reason why a command may have missed keys of a configuration file, such as the control socket: a syntax
/// error with its place, or a file that can't be read.
pub fn unreadable_part(file: &Path) -> Option<OperatorError> {
    let text = match read_text(file) {
        Ok(text) => text,
        Err(error) => return Some(error),
    };
    let (_document, errors) = toml::de::DeTable::parse_recoverable(&text);
    if errors.is_empty() {
        return None;
    }
    schema::load(file).and_then(Reading::whole).err()
}

/// Destinations of the logs as a configuration file names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfiguredLogs {
    pub access: Option<LogTarget>,
    pub errors: Option<LogTarget>,
}

impl ConfiguredLogs {
    /// Reads `access` and `errors` of `[log]`, as far as possible in spite of mistakes: the log of a server that refuses
    /// its configuration has the reason.
    pub fn of(file: &Path) -> ConfiguredLogs {
        let text = read_text(file).unwrap_or_default();
        let (document, _errors) = toml::de::DeTable::parse_recoverable(&text);
        let log = document.get_ref().get("log");
        let log = log.and_then(|log| log.get_ref().as_table());
        let folder = file.parent().unwrap_or(Path::new("/"));
        let target = |key: &str| {
            let value = log?.get(key)?.get_ref().as_str()?;
            Some(match LogTarget::of_word(value) {
                Some(target) => target,
                None => LogTarget::File(join(folder, expanded(value)?)),
            })
        };
        ConfiguredLogs {
            access: target("access"),
            errors: target("errors"),
        }
    }
}

/// Paths where the control socket of a running server may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlSockets {
    /// Paths, most likely first: the configured path; otherwise the default of the calling user, and the default of a
    /// server started by root.
    pub paths: Vec<PathBuf>,
    /// True if the configuration or the operator names the socket or the state folder.
    pub is_named: bool,
}

impl ControlSockets {
    fn named(path: PathBuf) -> ControlSockets {
        ControlSockets {
            paths: vec![path],
            is_named: true,
        }
    }
}

/// Returns the paths where the control socket of a running server may be. A configuration file with syntax errors, or without
/// permission to read, is read as far as possible, since the server may be running all the same.
pub fn control_sockets(
    chosen: &ConfigSource,
    overrides: &Overrides,
) -> Result<ControlSockets, OperatorError> {
    let (path, text) = match chosen {
        ConfigSource::File(path) => (absolute(path)?, read_text(path).unwrap_or_default()),
        ConfigSource::Folder(path) => (absolute(path)?, String::new()),
        ConfigSource::Proxy(url) => (proxy_path(url)?, String::new()),
    };
    let (document, _errors) = toml::de::DeTable::parse_recoverable(&text);
    let server = document
        .get_ref()
        .get("server")
        .map(|value| value.get_ref());
    let folder = path.parent().unwrap_or(Path::new("/"));
    let configured = |key: &str| {
        let value = server?.as_table()?.get(key)?.get_ref().as_str()?;
        Some(join(folder, expanded(value)?))
    };
    let typed = |path: &Option<PathBuf>| path.as_deref().map(absolute).transpose();
    if let Some(control) = typed(&overrides.control)?.or_else(|| configured("control")) {
        return Ok(ControlSockets::named(control));
    }
    let defaults = DefaultPaths::of(&path);
    if let Some(state) = typed(&overrides.state)?.or_else(|| configured("state")) {
        return Ok(ControlSockets::named(defaults.control(&state)));
    }
    let mut sockets = vec![defaults.control(&defaults.state())];
    for folder in [
        PathBuf::from(MACHINE_STATE),
        shared_folder(),
        private_folder(),
    ] {
        let socket = folder.join(defaults.socket_name());
        if !sockets.contains(&socket) {
            sockets.push(socket);
        }
    }
    Ok(ControlSockets {
        paths: sockets,
        is_named: false,
    })
}
