//! Services that `anthill service install` wrote, found by their unit or script.
//!
//! Commands without a configuration find the configuration and the account of a service in its file. Only a file that root
//! alone can change counts, since the account decides which sockets root may use.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::service::InitSystem;
use crate::config::ConfigSource;

/// Text of each file that `anthill service install` writes.
const MARK: &str = "`anthill service install`";
/// Maximum size of a file that is read, in bytes. A unit has about 2 KiB.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Folders of the files, with the init systems.
const FOLDERS: [(&str, InitSystem); 2] = [
    ("/etc/systemd/system", InitSystem::Systemd),
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

    fn in_folder(folder: &Path, init: InitSystem) -> Vec<InstalledService> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let service = |file: PathBuf| {
            let name = file.file_name()?.to_str()?;
            let name = match init {
                InitSystem::Systemd => name.strip_suffix(".service")?,
                InitSystem::OpenRc | InitSystem::SysV => name,
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
            InitSystem::OpenRc | InitSystem::SysV => match value("command_args=") {
                Some(arguments) => {
                    let arguments = last(shell_words(arguments))?;
                    let words = shell_words(&arguments);
                    let user = words.iter().position(|word| word == "--user")?;
                    let user = words.get(user + 1)?.clone();
                    (InitSystem::OpenRc, last(words)?, user)
                }
                None => {
                    let target = last(shell_words(value("config=")?))?;
                    let (_, arguments) = text.split_once(" serve ")?;
                    let (_, rest) = arguments.split_once("--user ")?;
                    let user = rest.split_whitespace().next()?.to_owned();
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
        match self.init {
            InitSystem::Systemd => Some(format!("systemctl stop {}", self.name)),
            InitSystem::OpenRc => Some(format!("rc-service {} stop", self.name)),
            InitSystem::SysV => None,
        }
    }

    /// Returns the command that starts the service.
    pub(super) fn start_command(&self) -> String {
        let name = &self.name;
        match self.init {
            InitSystem::Systemd => format!("systemctl start {name}"),
            InitSystem::OpenRc => format!("rc-service {name} start"),
            InitSystem::SysV => format!("/etc/init.d/{name} start"),
        }
    }
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

/// Splits the words of a command line of a unit, as `systemd_quoted` quotes them.
fn systemd_words(line: &str) -> Vec<String> {
    let mut words = Words::default();
    let mut is_quoted = false;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' => {
                is_quoted = !is_quoted;
                words.begin();
            }
            '\\' => words.push(characters.next().unwrap_or('\\')),
            '%' | '$' if characters.peek() == Some(&character) => {
                characters.next();
                words.push(character);
            }
            ' ' if !is_quoted => words.end(),
            character => words.push(character),
        }
    }
    words.finish()
}

/// Splits the words of a shell's line, as `shell_quoted` quotes them.
fn shell_words(line: &str) -> Vec<String> {
    let mut words = Words::default();
    let mut is_quoted = false;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '\'' => {
                is_quoted = !is_quoted;
                words.begin();
            }
            '\\' if !is_quoted => words.push(characters.next().unwrap_or('\\')),
            ' ' if !is_quoted => words.end(),
            character => words.push(character),
        }
    }
    words.finish()
}

/// Words of a line, collected by character.
#[derive(Default)]
struct Words {
    complete: Vec<String>,
    word: Option<String>,
}

impl Words {
    fn begin(&mut self) {
        self.word.get_or_insert_default();
    }

    fn push(&mut self, character: char) {
        self.word.get_or_insert_default().push(character);
    }

    fn end(&mut self) {
        self.complete.extend(self.word.take());
    }

    fn finish(mut self) -> Vec<String> {
        self.end();
        self.complete
    }
}

#[cfg(test)]
mod tests {
    use super::super::service::ServiceDefinition;
    use super::*;

    #[test]
    fn a_written_service_is_read_again() {
        let targets = [
            "/etc/anthill/anthill.toml",
            "/srv/my site's/100% $HOME \"a\\b",
        ];
        let programs = ["/usr/local/bin/anthill", "/opt/a b/anthill"];
        let systems = [InitSystem::Systemd, InitSystem::OpenRc, InitSystem::SysV];
        for (init, target) in systems
            .into_iter()
            .flat_map(|it| targets.map(|target| (it, target)))
        {
            for (program, configured) in programs.into_iter().zip([None, Some("other")]) {
                let logs = configured.map(|name| Path::new("/var/log").join(name));
                let service = ServiceDefinition {
                    configured_user: configured.map(str::to_owned),
                    logs: logs.clone(),
                    ..ServiceDefinition::example(init, program, target, "web")
                };
                // OpenRC and the classic scripts share a folder.
                let folder_of = match init {
                    InitSystem::Systemd => init,
                    InitSystem::OpenRc | InitSystem::SysV => InitSystem::SysV,
                };
                let text = service.render();
                let expected = InstalledService {
                    name: "www".to_owned(),
                    init,
                    target: target.into(),
                    user: "web".to_owned(),
                    logs,
                };
                let read = InstalledService::parse("www", folder_of, &text);
                assert_eq!(read, Some(expected), "{text}");
            }
        }
    }

    #[test]
    fn a_file_of_another_program_or_user_is_no_service() {
        let text = ServiceDefinition::example(InitSystem::Systemd, "/a", "/b", "web").render();
        let unmarked = text.replace(MARK, "hand");
        let parse = |text: &str| InstalledService::parse("www", InitSystem::Systemd, text);
        assert_eq!(parse(&unmarked), None);
        assert_eq!(parse(&text.replace("ExecStart", "#")), None);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("www.service");
        fs::write(&file, &text).unwrap();
        let found = || InstalledService::in_folder(folder.path(), InitSystem::Systemd).len();
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(found(), usize::from(is_root));
        let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(&file, mode(0o666)).unwrap();
        assert_eq!(found(), 0);
        fs::set_permissions(&file, mode(0o644)).unwrap();
        if is_root {
            std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
            assert_eq!(found(), 0);
        }
    }
}
