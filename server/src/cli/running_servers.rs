//! Search for running servers, for commands outside of the folder of the configuration.
//!
//! A server listens on its control socket. /proc/net/unix lists all listening Unix sockets with their paths, and the
//! descriptors of a process tell the sockets of the process. The system shows the descriptors to root and to the user of
//! the process alone, and other users may not use the control socket anyway. Any user may start a process with the name of
//! the server, so the user of the process counts, and not what the process says about itself.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::cli::arguments::ParsedArguments;
use crate::config::{FILE_NAME, OperatorError};
use cli::Program;

/// Name of the processes, as the kernel has it.
const PROCESS_NAME: &str = "anthill";

/// A process with the name of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ServerProcess {
    pub(super) pid: u32,
    /// Effective user.
    pub(super) uid: u32,
    /// Working folder, which names on the command line are relative to.
    pub(super) folder: PathBuf,
    /// Command line, beginning with the program.
    pub(super) words: Vec<OsString>,
}

/// A server that runs on this machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RunningServer {
    /// Control socket.
    pub(super) control: PathBuf,
    pub(super) process: Rc<ServerProcess>,
}

/// Servers that run on this machine.
#[derive(Debug, Default)]
pub(super) struct RunningServers {
    /// Servers with descriptors that the caller may read.
    pub(super) visible: Vec<RunningServer>,
    /// Users of further servers.
    pub(super) other_users: Vec<u32>,
}

impl RunningServers {
    /// Returns the servers that run on this machine.
    pub(super) fn find() -> RunningServers {
        let listening = unix_sockets();
        let mut sockets = HashMap::new();
        let mut other_users = Vec::new();
        for process in processes() {
            let descriptors = PathBuf::from(format!("/proc/{}/fd", process.pid));
            let inodes = socket_inodes(&descriptors);
            if inodes.is_empty() && process.serves() {
                other_users.push(process.uid);
            }
            let process = Rc::new(process);
            sockets.extend(inodes.into_iter().map(|inode| (inode, process.clone())));
        }
        let mut visible: Vec<RunningServer> = listening_sockets(&listening)
            .filter_map(|(inode, path)| {
                let process: &Rc<ServerProcess> = sockets.get(inode)?;
                Some(RunningServer {
                    control: process.socket_path(path)?,
                    process: process.clone(),
                })
            })
            .collect();
        visible.sort_unstable();
        visible.dedup();
        other_users.sort_unstable();
        other_users.dedup();
        RunningServers {
            visible,
            other_users,
        }
    }
}

impl ServerProcess {
    fn read(pid: u32) -> Option<ServerProcess> {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let name = fs::read_to_string(process.join("comm")).ok()?;
        if name.trim_end() != PROCESS_NAME {
            return None;
        }
        let line = fs::read(process.join("cmdline")).ok()?;
        let words = line.split(|byte| *byte == 0);
        let words = words.map(|word| OsString::from_vec(word.to_vec()));
        Some(ServerProcess {
            pid,
            uid: effective_user(&fs::read_to_string(process.join("status")).ok()?)?,
            folder: fs::read_link(process.join("cwd")).unwrap_or_default(),
            words: words.filter(|word| !word.is_empty()).collect(),
        })
    }

    /// Returns the path of a socket of the process. A server that root starts binds a socket in a folder of another account
    /// by the descriptor of the folder, which stays open.
    fn socket_path(&self, name: &str) -> Option<PathBuf> {
        let Some(rest) = name.strip_prefix("/proc/self/fd/") else {
            return Some(PathBuf::from(name));
        };
        let (descriptor, name) = rest.split_once('/')?;
        let descriptor: u32 = descriptor.parse().ok()?;
        let folder = fs::read_link(format!("/proc/{}/fd/{descriptor}", self.pid)).ok()?;
        Some(folder.join(name))
    }

    /// Returns true if the command line is the one of a server, and not of its supervisor.
    fn serves(&self) -> bool {
        let has = |name: &str| self.words.iter().any(|word| word == name);
        has("serve") && !has("--supervise")
    }

    /// Returns the arguments of `serve`. The program may have been started by another one, such as an emulator.
    pub(super) fn arguments(
        &self,
        program: &'static Program<OperatorError>,
    ) -> Option<ParsedArguments> {
        let mut words = self.words.iter();
        words.find(|word| *word == "serve")?;
        cli::parse(program, program.find("serve")?, words.cloned().collect()).ok()
    }

    /// Returns the configuration file, or the served folder, from the command line.
    pub(super) fn configuration(
        &self,
        program: &'static Program<OperatorError>,
    ) -> Option<PathBuf> {
        let arguments = self.arguments(program)?;
        let named = arguments.path_at(0).unwrap_or(Path::new(""));
        let path: PathBuf = self.folder.join(named).components().collect();
        let file = path.join(FILE_NAME);
        Some(if file.is_file() { file } else { path })
    }

    /// Returns a variable of the environment at the start, if the caller may read the environment.
    pub(super) fn variable(&self, name: &str) -> Option<OsString> {
        let environment = fs::read(format!("/proc/{}/environ", self.pid)).ok()?;
        let mut variables = environment.split(|byte| *byte == 0);
        let value = variables.find_map(|variable| {
            let value = variable.strip_prefix(name.as_bytes())?;
            value.strip_prefix(b"=")
        })?;
        Some(OsStr::from_bytes(value).to_owned())
    }

    /// Returns the target of an open descriptor: a path, or a name such as `pipe:[4711]`.
    pub(super) fn descriptor(&self, number: u32) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/fd/{number}", self.pid)).ok()
    }

    /// Returns the unit of systemd that runs the process.
    pub(super) fn unit(&self) -> Option<SystemdUnit> {
        SystemdUnit::of(&fs::read_to_string(format!("/proc/{}/cgroup", self.pid)).ok()?)
    }
}

/// Unit of systemd.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SystemdUnit {
    /// Name with the ending `.service`.
    pub(super) name: String,
    /// True for a unit of the user's own manager.
    pub(super) is_of_user: bool,
}

impl SystemdUnit {
    /// Reads the text of /proc/PID/cgroup: `0::/system.slice/anthill.service`, or a line for each hierarchy.
    fn of(text: &str) -> Option<SystemdUnit> {
        let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        let unit = |path: &str| {
            let mut parts = path.rsplit('/');
            let name = parts.find(|part| part.ends_with(".service"))?;
            Some(SystemdUnit {
                name: name.to_owned(),
                is_of_user: parts.any(|part| part.starts_with("user@")),
            })
        };
        paths.filter_map(unit).next()
    }
}

/// Returns all processes with the name of the server.
fn processes() -> impl Iterator<Item = ServerProcess> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        ServerProcess::read(pid)
    })
}

/// Returns the effective user from the text of /proc/PID/status (real, effective, saved, of the file system). The owner of
/// /proc/PID is root for a process that gave its privileges up.
fn effective_user(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the kernel's list of Unix sockets. Sockets of other programs may have names that are not UTF-8.
fn unix_sockets() -> String {
    let list = fs::read("/proc/net/unix").unwrap_or_default();
    String::from_utf8_lossy(&list).into_owned()
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
        let (inode, path) = if inode.is_empty() {
            rest.trim_start().split_once(' ')?
        } else {
            (inode, rest)
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
    fn the_control_group_names_the_unit() {
        let of = |text: &str| SystemdUnit::of(text).map(|unit| (unit.name, unit.is_of_user));
        let unit = |name: &str, is_of_user| Some((name.to_owned(), is_of_user));
        let system = "0::/system.slice/anthill.service\n";
        assert_eq!(of(system), unit("anthill.service", false));
        let below = "12:cpu:/\n1:name=systemd:/system.slice/anthill.service/inner\n";
        assert_eq!(of(below), unit("anthill.service", false));
        let user = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/web.service\n";
        assert_eq!(of(user), unit("web.service", true));
        assert_eq!(of("0::/user.slice/user-0.slice/session-3.scope\n"), None);
        assert_eq!(of("0::/\n"), None);
    }

    #[test]
    fn a_socket_bound_by_a_descriptor_has_the_path_of_the_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = std::fs::File::open(folder.path()).expect("open");
        let process = ServerProcess {
            pid: std::process::id(),
            ..ServerProcess::default()
        };
        let of = |name: &str| process.socket_path(name);
        let number = std::os::fd::AsRawFd::as_raw_fd(&open);
        let path = of(&format!("/proc/self/fd/{number}/a.sock"));
        let folder = folder.path().canonicalize().expect("a path");
        assert_eq!(path, Some(folder.join("a.sock")));
        assert_eq!(of("/run/a.sock"), Some("/run/a.sock".into()));
        assert_eq!(of("/proc/self/fd/x/a.sock"), None);
        assert_eq!(of("/proc/self/fd/999999/a.sock"), None);
    }

    #[test]
    fn the_effective_user_counts() {
        let status = "Name:\tanthill\nUid:\t0\t990\t990\t990\nGid:\t0\t0\t0\t0\n";
        assert_eq!(effective_user(status), Some(990));
        assert_eq!(effective_user("Name:\tanthill\n"), None);
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
