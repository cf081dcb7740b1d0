//! Search for running servers, for `anthill status` outside of the folder of the configuration.
//!
//! A server listens on its control socket. /proc/net/unix lists all listening Unix sockets with their paths, and the
//! descriptors of a process tell the sockets of the process. The system shows the descriptors to root and to the user of
//! the process alone, and other users may not use the control socket anyway.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Name of the processes, as the kernel has it.
const PROCESS_NAME: &str = "anthill";

/// A server that runs on this machine.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RunningServer {
    /// Control socket.
    pub(super) control: PathBuf,
    /// Working folder, which the configuration's name is relative to.
    pub(super) folder: PathBuf,
}

/// Returns the servers that run on this machine.
pub(super) fn running_servers() -> Vec<RunningServer> {
    let listening = unix_sockets();
    let sockets = descriptors_of_servers();
    let mut found: Vec<RunningServer> = listening_sockets(&listening)
        .filter_map(|(inode, path)| {
            Some(RunningServer {
                control: PathBuf::from(path),
                folder: sockets.get(inode)?.clone(),
            })
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns the kernel's list of Unix sockets. Sockets of other programs may have names that are not UTF-8.
fn unix_sockets() -> String {
    let list = fs::read("/proc/net/unix").unwrap_or_default();
    String::from_utf8_lossy(&list).into_owned()
}

/// Returns the inodes of the sockets of all processes with the name of the server, with the working folders of the
/// processes.
fn descriptors_of_servers() -> HashMap<String, PathBuf> {
    let mut inodes = HashMap::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let process = process.path();
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        if name.trim_end() == PROCESS_NAME {
            let folder = fs::read_link(process.join("cwd")).unwrap_or_default();
            let sockets = socket_inodes(&process.join("fd")).into_iter();
            inodes.extend(sockets.map(|inode| (inode, folder.clone())));
        }
    }
    inodes
}

fn socket_inodes(descriptors: &Path) -> Vec<String> {
    let descriptors = fs::read_dir(descriptors).into_iter().flatten().flatten();
    let inode = |target: PathBuf| {
        let inode = target
            .to_str()?
            .strip_prefix("socket:[")?
            .strip_suffix(']')?;
        Some(inode.to_owned())
    };
    let targets = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    targets.filter_map(inode).collect()
}

/// Returns the inodes and the absolute paths of listening stream sockets, from the text of /proc/net/unix.
fn listening_sockets(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| {
        // Num RefCount Protocol Flags Type St Inode Path
        let mut fields = line.splitn(8, ' ').map(str::trim);
        let flags = fields.nth(3)?;
        let inode = fields.nth(2)?;
        let rest = fields.next()?;
        // The inode is padded with blanks on the left.
        let (inode, path) = match inode.is_empty() {
            true => rest.trim_start().split_once(' ')?,
            false => (inode, rest),
        };
        (flags == "00010000" && path.starts_with('/')).then_some((inode, path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn listening_sockets_with_a_path_are_found() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 25190 /run/a b.sock\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 25191 /run/a.sock\n\
            0000000000000000: 00000002 00000000 00010000 0001 01   517 /run/c.sock\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 25192 @abstract\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 25193\n";
        let found: Vec<_> = listening_sockets(text).collect();
        assert_eq!(found, [("25190", "/run/a b.sock"), ("517", "/run/c.sock")]);
    }

    #[test]
    fn the_sockets_of_a_process_are_found_beside_names_that_are_not_utf_8() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let _socket = std::os::unix::net::UnixListener::bind(&path).expect("bound");
        let odd = folder.path().join(OsStr::from_bytes(b"\xff"));
        let _odd = std::os::unix::net::UnixListener::bind(odd).expect("bound");
        let inodes = socket_inodes(Path::new("/proc/self/fd"));
        let text = unix_sockets();
        let path = path.to_str().expect("a path");
        let ours = listening_sockets(&text).find(|(_, known)| *known == path);
        let (inode, _) = ours.expect("listed");
        assert!(inodes.iter().any(|it| it == inode));
    }
}
