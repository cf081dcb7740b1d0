//! Folders that an installed service writes to.
//!
//! A unit of systemd writes only to the folders that the unit names. systemd makes the folders below /var/lib and /run. The
//! installation makes all further folders, because a unit ignores a folder that is missing at its start.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fstat};

use crate::config::{
    Config, LogTarget, OperatorError, TargetConfig, UnixAccount, prepare_folder,
    prepare_state_folder, reason,
};
use base::folder_owner::FolderOwner;

/// Writable folders of a service.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServiceFolders {
    /// State folder, as a path below /var/lib; None for a state folder elsewhere.
    pub(super) state: Option<String>,
    /// Folder of the control socket, as a path below /run.
    pub(super) runtime: Option<String>,
    /// Further folders, as absolute paths.
    pub(super) writes: BTreeSet<PathBuf>,
    /// True if the server publishes into a store of several accounts, and gives new folders to their group.
    pub(super) shares_store: bool,
}

impl ServiceFolders {
    pub(super) fn of(config: &Config) -> ServiceFolders {
        let server = &config.server;
        let mut writes = logs(config);
        let state = match server.state.span().is_empty() {
            true => Some("anthill".to_owned()),
            false => below(server.state.get_ref(), "/var/lib"),
        };
        if state.is_none() {
            writes.insert(server.state.get_ref().clone());
        }
        let named = |path: &PathBuf| path.parent().map(Path::to_owned);
        let control = match server.control.span().is_empty() {
            true => None,
            false => named(server.control.get_ref()),
        };
        let control = control.filter(|it| it != server.state.get_ref());
        let runtime = control.as_ref().and_then(|it| below(it, "/run"));
        writes.extend(control.filter(|_| runtime.is_none()));
        // A deployment makes its trees beside the root and replaces the root, a symbolic link, or writes to the store.
        let deployments = config.deployments();
        let store = server.releases_folder();
        writes.extend(deployments.iter().filter_map(|it| match it.root() {
            Some(root) => root.parent().map(Path::to_owned),
            None => Some(store.clone()),
        }));
        let publishes = deployments.iter().any(|it| it.root().is_none());
        let routes = config.sites.iter().flat_map(|site| &site.routes);
        writes.extend(routes.filter_map(|route| match &route.target {
            Some(TargetConfig::Git(git)) if git.push => Some(git.folder.get_ref().clone()),
            _ => None,
        }));
        writes.retain(|path| !path.starts_with(server.state.get_ref()) || state.is_none());
        ServiceFolders {
            state,
            runtime,
            writes,
            shares_store: publishes && is_shared(&store),
        }
    }

    /// Gives the state folder to the account, and makes missing folders for the account.
    pub(super) fn prepare(&self, config: &Config, user: &str) -> Result<(), OperatorError> {
        let account = UnixAccount::find(user)
            .ok_or_else(|| OperatorError::failure(format!("the account {user} does not exist")))?;
        let owner = Some(FolderOwner {
            uid: account.uid,
            gid: account.gid,
        });
        let failed = |folder: &Path, error| {
            OperatorError::failure(format!("{}: {}", folder.display(), reason(&error)))
        };
        let state = config.server.state.get_ref();
        prepare_state_folder(state, owner).map_err(|error| failed(state, error))?;
        for folder in &self.writes {
            prepare_folder(folder, owner).map_err(|error| failed(folder, error))?;
        }
        Ok(())
    }

    /// Returns the lines of a unit.
    pub(super) fn as_unit_lines(&self) -> String {
        let mut lines = Vec::new();
        if let Some(state) = &self.state {
            lines.push(format!("StateDirectory={state}"));
            lines.push("StateDirectoryMode=0710".to_owned());
        }
        if let Some(runtime) = &self.runtime {
            lines.push(format!("RuntimeDirectory={runtime}"));
            lines.push("RuntimeDirectoryMode=0710".to_owned());
            lines.push("RuntimeDirectoryPreserve=yes".to_owned());
        }
        // The hyphen lets the server start without the folder, and report the missing folder with its key.
        lines.extend(self.writes.iter().map(|path| {
            let path = format!("-{}", path.to_string_lossy());
            format!("ReadWritePaths={}", systemd_quoted(&path))
        }));
        lines.join("\n")
    }
}

/// Returns the folders of the log files.
fn logs(config: &Config) -> BTreeSet<PathBuf> {
    let sites = config.sites.iter();
    let logs = sites.filter_map(|site| site.log.access.as_ref());
    let logs = logs.chain([&config.log.access, &config.log.errors]);
    let folders = logs.filter_map(|log| match log.get_ref() {
        LogTarget::File(path) => path.parent().map(Path::to_owned),
        _ => None,
    });
    folders.collect()
}

/// Returns the rest of a path below a folder, if the rest may stand in a unit as it is.
pub(super) fn below(path: &Path, folder: &str) -> Option<String> {
    let rest = path.strip_prefix(folder).ok()?.to_str()?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let is_plain = !rest.is_empty() && rest.bytes().all(plain) && !rest.contains("..");
    is_plain.then(|| rest.to_owned())
}

/// Returns true for a store of several accounts: the group of the folder may write, and owns all new files.
fn is_shared(store: &Path) -> bool {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = rustix::fs::open(store, flags, Mode::empty());
    let stat = open.and_then(fstat);
    stat.is_ok_and(|stat| stat.st_mode & 0o2020 == 0o2020)
}

/// Quotes a word for a unit file (systemd.service(5), "Command lines").
pub(super) fn systemd_quoted(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/-_.:".contains(&b);
    if word.bytes().all(plain) {
        return word.to_owned();
    }
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", escaped.replace('%', "%%").replace('$', "$$"))
}
