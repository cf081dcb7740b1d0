//! Places of the logs of a server: files, the journal of systemd, or another program's pipe.
//!
//! The configuration names a destination. Standard output and standard error lead where the service manager or the shell
//! directed them, so the descriptors of the running process decide, or else the installed service.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::init_system::InitSystem;
use super::installed_service::InstalledService;
use super::running_servers::{ServerProcess, SystemdUnit};
use crate::cli::arguments::ParsedArguments;
use crate::config::{ACCESS_LOG_NAME, ConfiguredLogs, LogTarget};

/// Place of a log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LogPlace {
    /// Journal of a unit of systemd.
    Journal(SystemdUnit),
    File(PathBuf),
    /// Nothing is written.
    Off,
    /// A place that no command can read again, such as `a pipe`.
    Elsewhere(String),
}

/// Known facts about the server of the logs.
#[derive(Debug, Default)]
pub(super) struct LoggingServer {
    /// Running process.
    pub(super) process: Option<Rc<ServerProcess>>,
    /// Installed service with the configuration of the server.
    pub(super) service: Option<InstalledService>,
    /// Destinations in the configuration.
    pub(super) configured: ConfiguredLogs,
}

/// Log of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LogKind {
    Access,
    Errors,
}

impl LogKind {
    pub(super) const ALL: [LogKind; 2] = [LogKind::Access, LogKind::Errors];

    pub(super) fn name(self) -> &'static str {
        match self {
            LogKind::Access => "access log",
            LogKind::Errors => "error log",
        }
    }

    /// Returns the word for the command line.
    pub(super) fn word(self) -> &'static str {
        match self {
            LogKind::Access => "access",
            LogKind::Errors => "errors",
        }
    }
}

impl LoggingServer {
    /// Returns the place of a log. `arguments` are those of the running process.
    pub(super) fn place(&self, kind: LogKind, arguments: Option<&ParsedArguments>) -> LogPlace {
        match self.target(kind, arguments) {
            LogTarget::File(path) => LogPlace::File(path),
            LogTarget::Off => LogPlace::Off,
            LogTarget::Stdout => self.stream(1),
            LogTarget::Stderr => self.stream(2),
        }
    }

    fn target(&self, kind: LogKind, arguments: Option<&ParsedArguments>) -> LogTarget {
        match kind {
            LogKind::Errors => self.configured.errors.clone().unwrap_or(LogTarget::Stderr),
            LogKind::Access => {
                let typed = arguments.and_then(|arguments| arguments.last("log"));
                let typed = typed.map(|word| match word.to_str().and_then(LogTarget::of_word) {
                    Some(target) => target,
                    None => LogTarget::File(self.folder().join(word)),
                });
                let in_service = || {
                    let folder = self.service_folder()?;
                    Some(LogTarget::File(folder.join(ACCESS_LOG_NAME)))
                };
                let configured = || self.configured.access.clone();
                let target = typed.or_else(configured).or_else(in_service);
                target.unwrap_or(LogTarget::Stdout)
            }
        }
    }

    fn folder(&self) -> &Path {
        let process = self.process.as_ref();
        process.map_or(Path::new("/"), |process| &process.folder)
    }

    /// Returns the folder that the service gives the server for its logs.
    fn service_folder(&self) -> Option<PathBuf> {
        let process = self.process.as_ref();
        let given = process.and_then(|process| process.variable("LOGS_DIRECTORY"));
        let installed = || self.service.as_ref()?.logs.clone();
        given.map(PathBuf::from).or_else(installed)
    }

    /// Returns the place of standard output (1) or standard error (2).
    fn stream(&self, number: u32) -> LogPlace {
        let process = self.process.as_ref();
        let target = process.and_then(|process| process.descriptor(number));
        let Some(target) = target else {
            return self.stream_of_service(number);
        };
        let text = target.to_string_lossy();
        if text.starts_with("socket:") {
            let unit = process.and_then(|process| process.unit());
            return match unit {
                Some(unit) => LogPlace::Journal(unit),
                None => LogPlace::Elsewhere("a socket".to_owned()),
            };
        }
        if text.starts_with("pipe:") {
            return LogPlace::Elsewhere("a pipe to another program".to_owned());
        }
        if text == "/dev/null" {
            return LogPlace::Off;
        }
        if target.is_file() {
            return LogPlace::File(target);
        }
        LogPlace::Elsewhere(text.into_owned())
    }

    /// Returns the place of a stream as the service manager directs it.
    fn stream_of_service(&self, number: u32) -> LogPlace {
        let Some(service) = &self.service else {
            let name = if number == 1 {
                "standard output"
            } else {
                "standard error"
            };
            return LogPlace::Elsewhere(format!("{name} of the server"));
        };
        let name = &service.name;
        let file = |ending: &str| LogPlace::File(format!("/var/log/{name}.{ending}").into());
        match (service.init, number) {
            (InitSystem::Systemd, _) => LogPlace::Journal(SystemdUnit {
                name: format!("{name}.service"),
                is_of_user: false,
            }),
            (InitSystem::OpenRc, 2) => file("err"),
            (InitSystem::OpenRc | InitSystem::Runit | InitSystem::SysV, _) => file("log"),
        }
    }
}

impl SystemdUnit {
    /// Returns the arguments of journalctl that choose the unit.
    pub(super) fn journal_arguments(&self) -> [&str; 2] {
        let option = if self.is_of_user {
            "--user-unit"
        } else {
            "--unit"
        };
        [
            option,
            self.name.strip_suffix(".service").unwrap_or(&self.name),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(init: Option<InitSystem>, logs: Option<&str>) -> LoggingServer {
        LoggingServer {
            service: init.map(|init| InstalledService {
                name: "www".to_owned(),
                init,
                target: "/srv/anthill.toml".into(),
                user: "web".to_owned(),
                logs: logs.map(PathBuf::from),
            }),
            ..LoggingServer::default()
        }
    }

    #[test]
    fn a_service_decides_where_the_streams_lead() {
        let places = |server: &LoggingServer| LogKind::ALL.map(|kind| server.place(kind, None));
        let file = |path: &str| LogPlace::File(path.into());
        let journal = LogPlace::Journal(SystemdUnit {
            name: "www.service".to_owned(),
            is_of_user: false,
        });
        let systemd = Some(InitSystem::Systemd);
        let expected = [file("/var/log/anthill/access.log"), journal.clone()];
        assert_eq!(places(&server(systemd, Some("/var/log/anthill"))), expected);
        assert_eq!(
            places(&server(systemd, None)),
            [journal.clone(), journal.clone()]
        );
        let openrc = server(Some(InitSystem::OpenRc), None);
        assert_eq!(
            places(&openrc),
            [file("/var/log/www.log"), file("/var/log/www.err")]
        );
        let sysv = server(Some(InitSystem::SysV), Some("/l"));
        assert_eq!(
            places(&sysv),
            [file("/l/access.log"), file("/var/log/www.log")]
        );
        let none = places(&server(None, None));
        assert!(matches!(
            none,
            [LogPlace::Elsewhere(_), LogPlace::Elsewhere(_)]
        ));
        // The configuration goes before.
        let configured = LoggingServer {
            configured: ConfiguredLogs {
                access: Some(LogTarget::Stdout),
                errors: Some(LogTarget::File("/e".into())),
            },
            ..server(systemd, Some("/var/log/anthill"))
        };
        assert_eq!(places(&configured), [journal, file("/e")]);
        let off = LoggingServer {
            configured: ConfiguredLogs {
                access: Some(LogTarget::Off),
                errors: None,
            },
            ..server(None, None)
        };
        assert_eq!(off.place(LogKind::Access, None), LogPlace::Off);
    }

    #[test]
    fn the_descriptors_of_a_process_decide_where_the_streams_lead() {
        // The process of the test itself.
        let server = LoggingServer {
            process: Some(Rc::new(ServerProcess {
                pid: std::process::id(),
                ..ServerProcess::default()
            })),
            ..LoggingServer::default()
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log").canonicalize();
        let path = path.unwrap_or_else(|_| folder.path().join("log"));
        let file = std::fs::File::create(&path).unwrap();
        let number =
            |descriptor: &dyn std::os::fd::AsRawFd| u32::try_from(descriptor.as_raw_fd()).unwrap();
        assert_eq!(server.stream(number(&file)), LogPlace::File(path));
        let (pipe, _writer) = std::io::pipe().unwrap();
        let place = server.stream(number(&pipe));
        assert_eq!(
            place,
            LogPlace::Elsewhere("a pipe to another program".into())
        );
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(server.stream(number(&null)), LogPlace::Off);
    }

    #[test]
    fn the_journal_has_the_name_of_the_unit() {
        let unit = |is_of_user| SystemdUnit {
            name: "www.service".to_owned(),
            is_of_user,
        };
        assert_eq!(unit(false).journal_arguments(), ["--unit", "www"]);
        assert_eq!(unit(true).journal_arguments(), ["--user-unit", "www"]);
    }
}
