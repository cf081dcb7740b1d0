//! Connections to control sockets of servers that the caller trusts.
//!
//! A user with write access to a folder on the way to a socket could put another socket in its place, and answer the
//! commands of root. A connection is therefore made only if root, the calling user or an account of the server controls
//! the folder of the socket, owns the socket and called listen(2) for it.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat};

use crate::config::UnixAccount;
use base::sys;
use base::trusted_path::{LastLink, MissingFolder, TrustedPath};

/// Path of a control socket where a server may listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SocketPath {
    pub(super) path: PathBuf,
    pub(super) origin: PathOrigin,
}

/// Source of the path of a control socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathOrigin {
    /// The operator or the configuration names the path. The owner of its folder is trusted.
    Named,
    /// The path is a default, such as a file in the state folder. The owner of its folder is trusted if root or the
    /// caller gave the folder away, such as the state folder of a server with an account.
    Default,
    /// A process listens at the path. The owner of its folder is not trusted for that.
    Process,
}

/// Users with sockets that a command may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TrustedUsers {
    uids: Vec<u32>,
}

impl TrustedUsers {
    /// Returns root and the calling user.
    pub(super) fn of_caller() -> TrustedUsers {
        let caller = rustix::process::geteuid().as_raw();
        TrustedUsers {
            uids: vec![0, caller],
        }
    }

    /// Adds the account of a server.
    pub(super) fn with(mut self, uid: u32) -> TrustedUsers {
        self.uids.push(uid);
        self
    }

    pub(super) fn has(&self, uid: u32) -> bool {
        self.uids.contains(&uid)
    }
}

/// Error for a control socket of an untrusted user.
#[derive(Debug)]
pub(super) struct UntrustedSocket(String);

impl fmt::Display for UntrustedSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UntrustedSocket {}

/// Returns true if a connection failed because the socket may belong to another user's program.
pub(super) fn is_untrusted(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(|inner| inner.is::<UntrustedSocket>())
}

/// Connects to a control socket. A missing socket is `NotFound`, a socket without a server is `ConnectionRefused`, and a
/// socket that the caller must not use is an [`UntrustedSocket`].
pub(super) fn connect(socket: &SocketPath, trusted: &TrustedUsers) -> io::Result<UnixStream> {
    let way = TrustedPath::resolve(&socket.path, LastLink::Follow, MissingFolder::Fail)?;
    let open = way.open(OFlags::PATH, Mode::empty())?;
    let file = fstat(&open)?;
    if FileType::from_raw_mode(file.st_mode) != FileType::Socket {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    let folder = fstat(way.folder())?;
    let is_accepted = |uid: u32| trusted.has(uid) || (uid == folder.st_uid && !is_shared(&folder));
    if !trusted.has(folder.st_uid) && !is_folder_accepted(&way, socket.origin, trusted)? {
        return Err(untrusted("the folder", &way, folder.st_uid));
    }
    if !is_accepted(file.st_uid) {
        return Err(untrusted("the file", &way, file.st_uid));
    }
    // In a folder such as /tmp, the owner of an entry alone can replace the entry.
    let controller = if is_shared(&folder) {
        file.st_uid
    } else {
        folder.st_uid
    };
    way.must_be_controlled_by(controller)
        .map_err(|error| io::Error::other(UntrustedSocket(error.to_string())))?;
    let stream = connect_to(&open, &way)?;
    let listener = sys::peer_user(stream.as_fd())?;
    if !is_accepted(listener) {
        return Err(untrusted("the server", &way, listener));
    }
    Ok(stream)
}

/// Returns true if the owner of the socket's folder is trusted for the origin of the path. In a shared folder such as
/// /tmp, any user could have made the folder.
fn is_folder_accepted(
    way: &TrustedPath,
    origin: PathOrigin,
    trusted: &TrustedUsers,
) -> io::Result<bool> {
    let above = openat(
        way.folder(),
        "..",
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let above = fstat(&above)?;
    let is_given = match origin {
        PathOrigin::Named => true,
        PathOrigin::Default => trusted.has(above.st_uid),
        PathOrigin::Process => false,
    };
    Ok(is_given && !is_shared(&above))
}

/// Connects to an open socket, so that the checked file is the used file.
fn connect_to(open: &OwnedFd, way: &TrustedPath) -> io::Result<UnixStream> {
    match UnixStream::connect(format!("/proc/self/fd/{}", open.as_raw_fd())) {
        // A container may have no /proc.
        Err(error) if error.kind() == io::ErrorKind::NotFound => UnixStream::connect(way.path()),
        connected => connected,
    }
}

fn untrusted(part: &str, way: &TrustedPath, uid: u32) -> io::Error {
    let (path, user) = (way.path(), UnixAccount::name_of(uid));
    let what = match part {
        "the server" => format!("the server at {} runs as `{user}`", path.display()),
        "the folder" => format!("{} is in a folder of `{user}`", path.display()),
        _ => format!("{} belongs to `{user}`", path.display()),
    };
    io::Error::other(UntrustedSocket(what))
}

fn is_shared(folder: &Stat) -> bool {
    folder.st_mode & 0o022 != 0
}
