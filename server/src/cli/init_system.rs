//! Service managers that start the server at boot: how each is recognised, where its files are, and the commands that
//! register, start and stop a service.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Supported service managers of root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InitSystem {
    Systemd,
    OpenRc,
    Runit,
    SysV,
}

/// Folders in which runit looks for services, of Debian, Void and Artix, and of runit itself.
const RUNIT_FOLDERS: [&str; 4] = [
    "/etc/service",
    "/var/service",
    "/run/runit/service",
    "/service",
];

impl InitSystem {
    /// Returns the service manager with a name of the option `--init`.
    pub(super) fn named(name: &str) -> Option<InitSystem> {
        match name {
            "systemd" => Some(InitSystem::Systemd),
            "openrc" => Some(InitSystem::OpenRc),
            "runit" => Some(InitSystem::Runit),
            "sysv" => Some(InitSystem::SysV),
            _ => None,
        }
    }

    /// Returns the service manager that runs on this machine, as far as its traces tell, or else classic init scripts.
    pub(super) fn of_this_machine() -> InitSystem {
        let first = fs::read_to_string("/proc/1/comm").unwrap_or_default();
        if Path::new("/run/systemd/system").is_dir() {
            InitSystem::Systemd
        } else if matches!(first.trim_end(), "runit" | "runsvdir") {
            InitSystem::Runit
        } else if Path::new("/run/openrc").is_dir() || Path::new("/sbin/openrc-run").exists() {
            InitSystem::OpenRc
        } else {
            InitSystem::SysV
        }
    }

    /// Returns the file of a service.
    pub(super) fn file(self, name: &str) -> PathBuf {
        PathBuf::from(match self {
            InitSystem::Systemd => format!("/etc/systemd/system/{name}.service"),
            InitSystem::OpenRc | InitSystem::SysV => format!("/etc/init.d/{name}"),
            InitSystem::Runit => format!("/etc/sv/{name}/run"),
        })
    }

    /// Returns the permissions of the file.
    pub(super) fn mode(self) -> u32 {
        if self == InitSystem::Systemd {
            0o644
        } else {
            0o755
        }
    }

    /// Returns the commands that register and start a new service. A stop may take `stop_seconds`.
    pub(super) fn install_commands(self, name: &str, stop_seconds: u32) -> Vec<Vec<String>> {
        let lines: &[&str] = match self {
            InitSystem::Systemd => &[
                "systemctl daemon-reload",
                "systemctl enable NAME",
                "systemctl restart NAME",
            ],
            InitSystem::OpenRc => &["rc-update add NAME default", "rc-service NAME restart"],
            // The first command waits until runit has found the service.
            InitSystem::Runit => &["sv -w SECONDS restart /etc/sv/NAME"],
            InitSystem::SysV => &["update-rc.d NAME defaults", "/etc/init.d/NAME restart"],
        };
        commands(lines, name, stop_seconds)
    }

    /// Returns the commands to run before and after the service file is removed.
    pub(super) fn remove_commands(
        self,
        name: &str,
        stop_seconds: u32,
    ) -> (Vec<Vec<String>>, Vec<Vec<String>>) {
        let (before, after): (&[&str], &[&str]) = match self {
            InitSystem::Systemd => (
                &["systemctl disable --now NAME"],
                &["systemctl daemon-reload"],
            ),
            InitSystem::OpenRc => (&["rc-service NAME stop", "rc-update del NAME default"], &[]),
            InitSystem::Runit => (&["sv -w SECONDS force-shutdown /etc/sv/NAME"], &[]),
            InitSystem::SysV => (&["/etc/init.d/NAME stop"], &["update-rc.d NAME remove"]),
        };
        (
            commands(before, name, stop_seconds),
            commands(after, name, stop_seconds),
        )
    }

    /// Returns the command that starts the service.
    pub(super) fn start_command(self, name: &str) -> String {
        match self {
            InitSystem::Systemd => format!("systemctl start {name}"),
            InitSystem::OpenRc => format!("rc-service {name} start"),
            InitSystem::Runit => format!("sv start {name}"),
            InitSystem::SysV => format!("/etc/init.d/{name} start"),
        }
    }

    /// Returns the command that stops the service, if its manager starts a server that ended by itself again.
    pub(super) fn lasting_stop_command(self, name: &str) -> Option<String> {
        match self {
            InitSystem::Systemd => Some(format!("systemctl stop {name}")),
            InitSystem::OpenRc => Some(format!("rc-service {name} stop")),
            InitSystem::Runit => Some(format!("sv stop {name}")),
            InitSystem::SysV => None,
        }
    }
}

/// Returns the folder in which runit looks for services; None on a machine without one.
pub(super) fn runit_folder() -> Option<&'static Path> {
    let mut folders = RUNIT_FOLDERS.iter().map(Path::new);
    folders.find(|folder| folder.is_dir())
}

fn commands(lines: &[&str], name: &str, stop_seconds: u32) -> Vec<Vec<String>> {
    let seconds = stop_seconds.to_string();
    let word = |word: &str| word.replace("NAME", name).replace("SECONDS", &seconds);
    let command = |line: &&str| line.split(' ').map(word).collect();
    lines.iter().map(command).collect()
}

impl fmt::Display for InitSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InitSystem::Systemd => "systemd",
            InitSystem::OpenRc => "OpenRC",
            InitSystem::Runit => "runit",
            InitSystem::SysV => "an init script",
        })
    }
}
