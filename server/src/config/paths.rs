//! Locations: the configuration to load, and the defaults for the state folder and the control socket.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use toml::Spanned;

use crate::base::trusted_path::{self, LastLink, MissingFolder, TrustedPath};
use crate::config::values::{ListenAddress, share_ports};
use crate::config::{Config, FILE_NAME, LogTarget, OperatorError, ServerConfig};

/// Source of a configuration, from the argument of `anthill serve`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// Configuration file.
    File(PathBuf),
    /// Folder without a configuration file.
    Folder(PathBuf),
}

impl ConfigSource {
    /// Returns the source for the argument of the command line. `None` means the current folder. A folder
    /// with an `anthill.toml` means the file.
    pub fn of(argument: Option<&Path>) -> Result<ConfigSource, OperatorError> {
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
    pub fn read(&self, overrides: &Overrides) -> Result<Config, OperatorError> {
        let mut config = match self {
            ConfigSource::File(path) => crate::config::load(path)?,
            ConfigSource::Folder(path) => crate::config::guess(path)?,
        };
        overrides.apply(&mut config)?;
        Ok(config)
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
    pub fn settle(&mut self, config: &Config) {
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
        let server = &mut config.server;
        for (option, typed, addresses) in [
            ("https", &self.https, &mut server.https),
            ("http", &self.http, &mut server.http),
        ] {
            if !typed.is_empty() {
                *addresses = listen(option, typed)?;
            }
        }
        if server.https.is_empty() && server.http.is_empty() {
            return Err(OperatorError::new("there is no address to listen on")
                .help("give --https or --http an address such as :8443"));
        }
        let manager = config.manager.iter_mut();
        let manager = manager.flat_map(|manager| &mut manager.listen);
        let public = server.https.iter_mut().chain(&mut server.http);
        let mut addresses: Vec<_> = public.chain(manager).collect();
        if let Err((_, later)) = share_ports(&mut addresses) {
            let address = addresses[later].get_ref();
            return Err(
                OperatorError::new(format!("the address `{address}` is used twice"))
                    .help("change a port with --https or --http (`off` for none)"),
            );
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

fn listen(option: &str, typed: &[String]) -> Result<Vec<Spanned<ListenAddress>>, OperatorError> {
    if typed.iter().any(|address| address == "off") {
        return Ok(Vec::new());
    }
    let parse = |address: &String| {
        let listen = ListenAddress::parse(address).map_err(|wrong| {
            OperatorError::new(format!("--{option}: {}", wrong.what)).help(wrong.help)
        })?;
        Ok(Spanned::new(0..0, listen))
    };
    typed.iter().map(parse).collect()
}

/// Returns the paths where the control socket of a running server may be, most likely first: the configured
/// path; otherwise the default of the calling user, and the default of a server started by root. A
/// configuration file with syntax errors is read as far as possible, since the server may be running all
/// the same.
pub fn control_sockets(
    chosen: &ConfigSource,
    overrides: &Overrides,
) -> Result<Vec<PathBuf>, OperatorError> {
    let (path, text) = match chosen {
        ConfigSource::File(path) => (absolute(path)?, read_text(path)?),
        ConfigSource::Folder(path) => (absolute(path)?, String::new()),
    };
    let (document, _errors) = toml::de::DeTable::parse_recoverable(&text);
    let server = document
        .get_ref()
        .get("server")
        .map(|value| value.get_ref());
    let folder = path.parent().unwrap_or(Path::new("/"));
    let configured = |key: &str| {
        let value = server?.as_table()?.get(key)?.get_ref().as_str()?;
        Some(join(folder, value))
    };
    let typed = |path: &Option<PathBuf>| path.as_deref().map(absolute).transpose();
    if let Some(control) = typed(&overrides.control)?.or_else(|| configured("control")) {
        return Ok(vec![control]);
    }
    let defaults = DefaultPaths::of(&path);
    if let Some(state) = typed(&overrides.state)?.or_else(|| configured("state")) {
        return Ok(vec![defaults.control(&state)]);
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
    Ok(sockets)
}

/// Makes a folder for the user of the process alone (parents with the usual mode), or checks that an
/// existing folder belongs to the user: in `/tmp`, another user may have made the folder first. Root
/// accepts any owner, and gives a new folder to `owner`.
pub fn prepare_folder(folder: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
    let way = TrustedPath::resolve(folder, LastLink::Follow, MissingFolder::Make)?;
    if way.stat()?.is_none() {
        match trusted_path::make_private_folder(&way, owner) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made,
        }
    }
    let metadata = std::fs::metadata(folder)?;
    let us = rustix::process::geteuid().as_raw();
    if metadata.is_dir() && (metadata.uid() == us || us == 0) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "the folder belongs to another user",
    ))
}

/// Default locations for a configuration.
pub(super) struct DefaultPaths {
    /// Hash of the configuration's path, distinguishing two configurations.
    key: u64,
}

impl DefaultPaths {
    /// Returns the defaults for the configuration file or the folder at `path`.
    pub(super) fn of(path: &Path) -> DefaultPaths {
        let named = match path.file_name() {
            // The key of `anthill.toml` is the key of its folder: the socket stays in place when the folder
            // gets its first `anthill.toml`.
            Some(name) if name == FILE_NAME => path.parent().unwrap_or(path),
            _ => path,
        };
        let real = named.canonicalize().unwrap_or_else(|_| named.to_owned());
        DefaultPaths {
            key: fnv1a(real.as_os_str().as_bytes()),
        }
    }

    /// Returns the name of the state file with the edits of the configuration's balancers.
    pub(super) fn edits_name(&self) -> String {
        format!("{:016x}.edits", self.key)
    }

    fn socket_name(&self) -> String {
        format!("{:016x}.sock", self.key)
    }

    /// Returns the state folder: the folder given by systemd, the folder of the machine (for root), or the
    /// folder of the user.
    pub(super) fn state(&self) -> PathBuf {
        let absolute = |name: &str| {
            let path = PathBuf::from(std::env::var_os(name)?);
            path.is_absolute().then_some(path)
        };
        if let Some(given) = absolute("STATE_DIRECTORY") {
            return given;
        }
        if rustix::process::geteuid().is_root() {
            return PathBuf::from(MACHINE_STATE);
        }
        if let Some(folder) = absolute("XDG_STATE_HOME") {
            return folder.join("anthill");
        }
        match absolute("HOME") {
            Some(home) => home.join(".local/state/anthill"),
            None => private_folder().join("state"),
        }
    }

    /// Returns the path of the control socket: in the state folder, or in a folder with a shorter path if
    /// the path would be too long for a socket address.
    pub(super) fn control(&self, state: &Path) -> PathBuf {
        let name = self.socket_name();
        let usual = state.join(&name);
        if fits_socket(&usual) {
            return usual;
        }
        let shared = shared_folder().join(&name);
        if fits_socket(&shared) {
            shared
        } else {
            private_folder().join(&name)
        }
    }
}

/// Returns the folder for sockets of the user.
fn shared_folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(folder) if folder.is_absolute() => folder.join("anthill"),
        _ => private_folder(),
    }
}

fn private_folder() -> PathBuf {
    PathBuf::from(format!(
        "/tmp/anthill-{}",
        rustix::process::geteuid().as_raw()
    ))
}

/// Returns true if a path fits into a socket address (unix(7): 108 bytes with the closing NUL).
pub(super) fn fits_socket(path: &Path) -> bool {
    path.as_os_str().len() <= SOCKET_PATH_MAX
}

/// Computes the FNV-1a hash, which stays the same in all versions of the server. The hasher of std gives no
/// such guarantee.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Reads the text of a configuration file.
pub(super) fn read_text(path: &Path) -> Result<String, OperatorError> {
    let failed = |why: String| OperatorError::new(format!("{}: {why}", path.display()));
    let metadata = std::fs::metadata(path).map_err(|error| failed(reason(&error)))?;
    if metadata.is_dir() {
        return Err(failed("the path is a folder".to_owned())
            .help("name the configuration file in the folder"));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(failed(
            "the file is larger than 4 MiB, too large for a configuration".to_owned(),
        ));
    }
    let bytes = std::fs::read(path).map_err(|error| failed(reason(&error)))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..valid]
            .iter()
            .filter(|&&b| b == b'\n')
            .count()
            + 1;
        failed(format!("line {line} is not UTF-8")).help("save the file as UTF-8")
    })
}

/// Returns the error message of the operating system, without the error number.
pub fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or folder".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => {
            let text = error.to_string();
            text.split(" (os error")
                .next()
                .unwrap_or_default()
                .to_lowercase()
        }
    }
}

/// Returns the absolute, lexically tidy form of a path; links stay links.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, OperatorError> {
    let path = std::path::absolute(path).map_err(|error| {
        OperatorError::failure(format!(
            "cannot determine the current folder: {}",
            reason(&error)
        ))
    })?;
    Ok(tidy(&path))
}

/// Returns a path of the configuration file, resolved against the folder of the file.
pub(super) fn join(folder: &Path, path: &str) -> PathBuf {
    tidy(&folder.join(path))
}

/// Removes `.` components. `..` stays, since links decide where `..` leads.
fn tidy(path: &Path) -> PathBuf {
    path.components()
        .filter(|part| *part != Component::CurDir)
        .collect()
}

/// State folder of a server started by root.
const MACHINE_STATE: &str = "/var/lib/anthill";
/// Maximum length of a socket's path in bytes.
pub(super) const SOCKET_PATH_MAX: usize = 107;
/// Maximum size of a configuration file in bytes, because the file is read whole. The limit refuses disk
/// images.
const FILE_BYTES_MAX: u64 = 4 << 20;
