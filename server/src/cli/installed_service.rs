//! Services that `anthill service install` wrote, found by their unit or script.
//!
//! Commands without a configuration find the configuration and the account of a service in its file. Only a file that root
//! alone can change counts, since the account decides which sockets root may use.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::init_system::InitSystem;
use super::service_text::{shell_words, systemd_words};
use crate::config::ConfigSource;

/// Text of each file that `anthill service install` writes.
const MARK: &str = "`anthill service install`";
/// Maximum size of a file that is read, in bytes. A unit has about 2 KiB.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Folders of the files, with the init systems.
const FOLDERS: [(&str, InitSystem); 3] = [
    ("/etc/systemd/system", InitSystem::Systemd),
    ("/etc/sv", InitSystem::Runit),
    ("/etc/init.d", InitSystem::SysV),
];

/// An installed service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InstalledService {
    pub(super) name: String,
    pub(super) init: InitSystem,
    /// File or folder that the service serves.
    pub(super) target: PathBuf,
    /// Account of the server.
    pub(super) user: String,
    /// Folder of the access log, unless the configuration names the file.
    pub(super) logs: Option<PathBuf>,
}

impl InstalledService {
    /// Returns the services of this machine, by name.
    pub(super) fn all() -> Vec<InstalledService> {
        let found = FOLDERS.iter();
        let mut found: Vec<InstalledService> = found
            .flat_map(|(folder, init)| InstalledService::in_folder(Path::new(folder), *init))
            .collect();
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        found
    }

    /// Returns the services of an init system in a folder.
    pub(super) fn in_folder(folder: &Path, init: InitSystem) -> Vec<InstalledService> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let service = |file: PathBuf| {
            let name = file.file_name()?.to_str()?;
            let name = match init {
                InitSystem::Systemd => name.strip_suffix(".service")?,
                InitSystem::OpenRc | InitSystem::Runit | InitSystem::SysV => name,
            };
            let file = match init {
                InitSystem::Runit => file.join("run"),
                _ => file.clone(),
            };
            let text = text_of_root(&file)?;
            InstalledService::parse(name, init, &text)
        };
        entries.filter_map(|entry| service(entry.path())).collect()
    }

    /// Reads a unit or a script as `ServiceDefinition::render` writes it.
    pub(super) fn parse(name: &str, init: InitSystem, text: &str) -> Option<InstalledService> {
        if !text.contains(MARK) {
            return None;
        }
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
        let in_script = || {
            let mut lines = text.lines().map(str::trim_start);
            lines.find_map(|line| line.strip_prefix("export LOGS_DIRECTORY="))
        };
        let logs = match value("LogsDirectory=") {
            Some(name) => Some(Path::new("/var/log").join(name)),
            None => in_script().map(PathBuf::from),
        };
        let last = |words: Vec<String>| words.into_iter().next_back();
        let (init, target, user) = match init {
            InitSystem::Systemd => {
                let target = last(systemd_words(value("ExecStart=")?))?;
                (init, target, value("User=")?.to_owned())
            }
            InitSystem::Runit => {
                let (target, user) = of_script(text)?;
                (init, target, user)
            }
            InitSystem::OpenRc | InitSystem::SysV => match value("command_args=") {
                Some(arguments) => {
                    let arguments = last(shell_words(arguments))?;
                    let words = shell_words(&arguments);
                    let user = words.iter().position(|word| word == "--user")?;
                    let user = words.get(user + 1)?.clone();
                    (InitSystem::OpenRc, last(words)?, user)
                }
                None => {
                    let (target, user) = of_script(text)?;
                    (InitSystem::SysV, target, user)
                }
            },
        };
        Some(InstalledService {
            name: name.to_owned(),
            init,
            target: target.into(),
            user,
            logs,
        })
    }

    /// Returns the configuration file or the served folder, with links resolved.
    pub(super) fn configuration(&self) -> PathBuf {
        let path = match ConfigSource::of(Some(&self.target)) {
            Ok(ConfigSource::File(path) | ConfigSource::Folder(path)) => path,
            Ok(ConfigSource::Proxy(_)) | Err(_) => self.target.clone(),
        };
        path.canonicalize().unwrap_or(path)
    }

    /// Returns the command that stops the service, if its manager starts a server that ended by itself again.
    pub(super) fn lasting_stop_command(&self) -> Option<String> {
        self.init.lasting_stop_command(&self.name)
    }

    /// Returns the command that starts the service.
    pub(super) fn start_command(&self) -> String {
        self.init.start_command(&self.name)
    }
}

/// Returns the target and the account in a script that has its configuration in a variable.
fn of_script(text: &str) -> Option<(String, String)> {
    let mut lines = text.lines();
    let config = lines.find_map(|line| line.strip_prefix("config="))?;
    let target = shell_words(config).into_iter().next_back()?;
    let (_, arguments) = text.split_once(" serve ")?;
    let (_, rest) = arguments.split_once("--user ")?;
    let user = rest.split_whitespace().next()?.to_owned();
    Some((target, user))
}

/// Returns the text of a regular file that root alone can change.
fn text_of_root(path: &Path) -> Option<String> {
    let file = fs::File::open(path).ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.uid() != 0 || metadata.mode() & 0o022 != 0 {
        return None;
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}
