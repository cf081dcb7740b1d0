//! Locations: defaults for the state folder and the control socket, and paths of a configuration.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, fstat};

use crate::config::error::OperatorError;
use base::atomic_file;
use base::folder_owner::{FolderOwner, belongs_to_root_alone};
use base::trusted_path::{self, LastLink, MissingFolder, TrustedPath};

/// Makes a folder for the user of the process alone (parents with the usual mode), or checks that an
/// existing folder belongs to the user: in `/tmp`, another user may have made the folder first. Root
/// accepts any owner, and gives a new folder to `owner`.
pub fn prepare_folder(folder: &Path, owner: Option<FolderOwner>) -> io::Result<()> {
    let way = TrustedPath::resolve(folder, LastLink::Follow, MissingFolder::Make)?;
    if way.stat()?.is_none() {
        let ids = owner.map(|owner| (owner.uid, owner.gid));
        match trusted_path::make_private_folder(&way, ids) {
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

/// Makes the state folder for `owner`. Root gives an existing folder of root with its files to `owner`, for example the
/// folder of a server that ran as root before the configuration named an account.
pub fn prepare_state_folder(folder: &Path, owner: Option<FolderOwner>) -> io::Result<()> {
    prepare_folder(folder, owner)?;
    let Some(owner) = owner.filter(|owner| owner.uid != 0) else {
        return Ok(());
    };
    match open_private_of_root(folder)? {
        Some(open) => owner.take_over(open.as_fd()),
        None => Ok(()),
    }
}

/// Returns true for an existing folder that [`prepare_state_folder`] gives to another account.
pub(super) fn is_given_away(folder: &Path) -> bool {
    open_private_of_root(folder).is_ok_and(|open| open.is_some())
}

/// Opens a private folder of root, at a path that root alone can lead elsewhere. Returns None for another folder. A
/// folder that every user may enter has to be empty, since `state` could name a folder of the system by mistake.
fn open_private_of_root(folder: &Path) -> io::Result<Option<OwnedFd>> {
    let way = TrustedPath::resolve(folder, LastLink::Follow, MissingFolder::Fail)?;
    if way.must_be_controlled_by(0).is_err() {
        return Ok(None);
    }
    let open = match way.open(trusted_path::FOLDER, Mode::empty()) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(None),
        open => open?,
    };
    let is_private = fstat(&open)?.st_mode & 0o007 == 0;
    let is_meant = is_private || trusted_path::names(open.as_fd())?.is_empty();
    Ok((is_meant && belongs_to_root_alone(&open)?).then_some(open))
}

/// Default locations for a configuration.
pub(super) struct DefaultPaths {
    /// Hash of the configuration's path, distinguishing two configurations.
    key: u64,
}

/// Returns the path that stands for `anthill proxy` in the names of its control socket and its state: another one for each
/// application.
pub(super) fn proxy_path(url: &str) -> Result<PathBuf, OperatorError> {
    absolute(Path::new(&format!("proxy {}", url.replace('/', "|"))))
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

    pub(super) fn socket_name(&self) -> String {
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

/// Returns the folder for logs that the unit or script of a service gives the server (LOGS_DIRECTORY, as systemd sets the
/// variable for `LogsDirectory=`).
pub(super) fn service_logs() -> Option<PathBuf> {
    let folders = std::env::var_os("LOGS_DIRECTORY")?;
    let first = folders.as_bytes().split(|byte| *byte == b':').next()?;
    let first = Path::new(OsStr::from_bytes(first));
    first.is_absolute().then(|| first.to_owned())
}

/// Returns the folder for sockets of the user.
pub(super) fn shared_folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(folder) if folder.is_absolute() => folder.join("anthill"),
        _ => private_folder(),
    }
}

pub(super) fn private_folder() -> PathBuf {
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

/// Reads the text of a configuration file. A command may read the configuration from a pipe of its shell:
/// `anthill check /dev/stdin`.
pub(super) fn read_text(path: &Path) -> Result<String, OperatorError> {
    if is_descriptor(path) {
        let read = std::fs::File::open(path)
            .and_then(|file| atomic_file::read_to_bound(file, FILE_BYTES_MAX));
        return text(path, read);
    }
    read_file_text(path)
}

/// Returns true for the path of an open file of the process.
fn is_descriptor(path: &Path) -> bool {
    let parts: Vec<&str> = path
        .iter()
        .map(|part| part.to_str().unwrap_or_default())
        .collect();
    matches!(
        parts[..],
        ["/", "dev", "stdin"] | ["/", "dev", "fd", _] | ["/", "proc", _, "fd", _]
    )
}

/// Reads the text of a regular file of a configuration. A pipe or a device is refused, since reading might never end.
pub(super) fn read_file_text(path: &Path) -> Result<String, OperatorError> {
    let read = atomic_file::read_bounded(path, FILE_BYTES_MAX);
    let is_other = std::fs::metadata(path).is_ok_and(|it| !it.is_file() && !it.is_dir());
    if is_other && read.is_err() {
        let what = format!("{} is a pipe or a device, not a file", path.display());
        return Err(OperatorError::new(what).help("write the path of a file with the text"));
    }
    text(path, read)
}

/// Converts the bytes of a configuration file, or explains why the file could not be read.
fn text(path: &Path, read: io::Result<Vec<u8>>) -> Result<String, OperatorError> {
    let failed = |why: String| OperatorError::new(format!("{}: {why}", path.display()));
    let bytes = read.map_err(|error| match error.kind() {
        io::ErrorKind::IsADirectory => failed("the path is a folder".to_owned())
            .help("name the configuration file in the folder"),
        io::ErrorKind::FileTooLarge => {
            failed("the file is larger than 4 MiB, too large for a configuration".to_owned())
        }
        io::ErrorKind::PermissionDenied => failed(reason(&error)).help(format!(
            "run the command as the owner of the file, or let its group read the file: chmod g+r {}",
            path.display()
        )),
        _ => failed(reason(&error)),
    })?;
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
pub(super) fn join(folder: &Path, path: impl AsRef<Path>) -> PathBuf {
    tidy(&folder.join(path))
}

/// Removes `.` components. `..` stays, since links decide where `..` leads.
fn tidy(path: &Path) -> PathBuf {
    path.components()
        .filter(|part| *part != Component::CurDir)
        .collect()
}

/// Usual name of the configuration file, looked up in a folder given instead of a file.
pub const FILE_NAME: &str = "anthill.toml";
/// State folder of a server started by root.
pub(super) const MACHINE_STATE: &str = "/var/lib/anthill";
/// Maximum length of a socket's path in bytes.
pub(super) const SOCKET_PATH_MAX: usize = 107;
/// Maximum size of a configuration file in bytes, because the file is read whole. The limit refuses disk
/// images.
const FILE_BYTES_MAX: u64 = 4 << 20;
