//! `anthill service`: installs a service that starts the server at boot, with the machine's init system:
//! systemd, runit, OpenRC, or else a classic init script; without root, with the crontab of the account.
//!
//! The unit and the scripts are made from the templates in `packaging/`.

use crate::cli::shared_options::{CommandSpec, WHAT};
use cli::output::print_message;
use cli::output::print_result;
use cli::{CommandOption, Operand, ValueKind};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::crontab::{self, CrontabService};
use super::init_system::InitSystem;
use super::installed_service::InstalledService;
use super::runit_service;
use super::service_folders::{ServiceFolders, below, systemd_quoted};
use super::service_publisher::PublisherSetup;
use super::service_text::{SUPERVISE, fill, must_be_one_line, shell_quoted};
use super::system_account::{self, AccountSpec, Login, run_aloud};
use crate::cli::arguments::ParsedArguments;
use crate::config::{
    self, ACCESS_LOG_NAME, Config, ConfigSource, OperatorError, Overrides, UnixAccount, reason,
};
use base::trusted_path::{LastLink, MissingFolder, TrustedPath};
use data_plane::limits::Limits;

/// The command `service`.
pub(super) const COMMAND: CommandSpec = CommandSpec {
    name: "service",
    about: "Start the server when the machine boots",
    details: &[
        "install writes and starts a service for the configuration in the current folder, or \
         for the given folder or file: a systemd unit, a service of runit or OpenRC, or an init \
         script, depending on the machine. If the account `anthill` does not exist, install \
         creates it. print shows the text of the service. remove stops and removes the service.",
        "Without root, install adds a line @reboot to the crontab of the account, and starts the \
         server. remove takes the line out and stops the server.",
    ],
    operands: &[
        Operand {
            name: "ACTION",
            required: true,
            values: ValueKind::Words(&["install", "remove", "print"]),
        },
        WHAT,
    ],
    options: &[
        CommandOption {
            long: "name",
            short: None,
            value: Some(("NAME", ValueKind::Any)),
            about: "Name of the service, instead of anthill",
        },
        CommandOption {
            long: "user",
            short: None,
            value: Some(("NAME", ValueKind::Any)),
            about: "Account of the server, instead of anthill",
        },
        CommandOption {
            long: "init",
            short: None,
            value: Some((
                "SYSTEM",
                ValueKind::Words(&["systemd", "openrc", "runit", "sysv", "cron"]),
            )),
            about: "Init system, instead of the init system of the machine",
        },
        CommandOption {
            long: "publisher",
            short: None,
            value: Some(("NAME", ValueKind::Any)),
            about: "Login account of all publishers (receive --publisher names one of them)",
        },
        CommandOption {
            long: "quota",
            short: None,
            value: Some(("BYTES", ValueKind::Any)),
            about: "Bytes of all releases in the store, beyond which none is accepted",
        },
    ],
    run,
};

const SYSTEMD: &str = include_str!("../../../packaging/systemd/anthill.service.in");
const OPENRC: &str = include_str!("../../../packaging/openrc/anthill.in");
const RUNIT: &str = include_str!("../../../packaging/runit/run.in");
const RUNIT_CHECK: &str = include_str!("../../../packaging/runit/check.in");
const SYSV: &str = include_str!("../../../packaging/sysv/anthill.in");

/// Capabilities of a unit: ports below 1024, and the detection of other users' writes to a file.
const CAPABILITIES: &str = "CAP_NET_BIND_SERVICE CAP_LEASE";
/// Default account of the service.
const USER: &str = "anthill";
/// Time for closing and for the init system, added to the time for draining.
const STOP_MARGIN_SECONDS: u32 = 10;

pub(super) fn run(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let asked = typed.text("init")?;
    let name = typed.text("name")?.unwrap_or_else(|| "anthill".to_owned());
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if name.is_empty() || name.starts_with('-') || !name.bytes().all(plain) {
        return Err(
            OperatorError::new(format!("`{name}` is not a name of a service"))
                .help("use letters, digits, hyphens and underscores"),
        );
    }
    let user = typed.text("user")?;
    let publisher = PublisherSetup::of(typed)?;
    let action = typed.operand_at(0).and_then(|action| action.to_str());
    let is_root = rustix::process::geteuid().is_root();
    if asked.as_deref().map_or(!is_root, |asked| asked == "cron") {
        if let Some(option) = ["user", "publisher"].into_iter().find(|it| typed.has(it)) {
            let what = format!("only root can install a service with --{option}");
            return Err(OperatorError::new(what).help("run the command with sudo"));
        }
        return run_crontab(action, typed.path_at(1), name);
    }
    let init = asked.as_deref().and_then(InitSystem::named);
    let init = init.unwrap_or_else(InitSystem::of_this_machine);
    match action {
        Some("remove") => {
            need_root("remove a service")?;
            remove(init, &name)
        }
        Some("print") => {
            if publisher.is_some() {
                return Err(OperatorError::new(
                    "`service print` prints a service without an account for publishers",
                )
                .help(
                    "leave out --publisher; `service install --publisher NAME` makes the account",
                ));
            }
            let service = ServiceDefinition::of(typed.path_at(1), init, name, user)?;
            Ok(print_result(&service.render()))
        }
        _ => {
            need_root("install a service")?;
            let service = ServiceDefinition::of(typed.path_at(1), init, name, user)?;
            install(service, publisher.as_ref())
        }
    }
}

/// Runs an action for the crontab of the account.
fn run_crontab(
    action: Option<&str>,
    argument: Option<&Path>,
    name: String,
) -> Result<ExitCode, OperatorError> {
    if action == Some("remove") {
        return crontab::remove(&name);
    }
    let service = CrontabService::of(argument, name)?;
    if action == Some("print") {
        return Ok(print_result(&service.line()));
    }
    if rustix::process::geteuid().is_root() {
        let what = "the crontab is for servers without root";
        return Err(OperatorError::new(what)
            .help("leave out --init cron, or run the command with the account of the server"));
    }
    service.install()
}

fn need_root(what: &str) -> Result<(), OperatorError> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(OperatorError::failure(format!("only root can {what}")).help("run the command with sudo"))
}

/// Values for the templates.
pub(super) struct ServiceDefinition {
    pub(super) init: InitSystem,
    pub(super) name: String,
    pub(super) program: PathBuf,
    /// File or folder to serve, as an absolute path.
    pub(super) target: PathBuf,
    /// Account of the server process.
    pub(super) user: String,
    /// Account that the configuration names, if any.
    pub(super) configured_user: Option<String>,
    /// Folders of the server that the service manager or the installation makes.
    pub(super) folders: ServiceFolders,
    /// Folder of the access log; None if the configuration names the logs, and for an earlier installation.
    pub(super) logs: Option<PathBuf>,
    pub(super) stop_seconds: u32,
    /// The account doesn't exist yet and has to be made.
    pub(super) makes_user: bool,
}

impl ServiceDefinition {
    fn of(
        argument: Option<&Path>,
        init: InitSystem,
        name: String,
        user: Option<String>,
    ) -> Result<ServiceDefinition, OperatorError> {
        let chosen = ConfigSource::of(argument)?;
        let config = chosen.read(&Overrides::default())?;
        let configured = config
            .server
            .user
            .as_ref()
            .map(|user| user.get_ref().clone());
        let user = user
            .or_else(|| configured.clone())
            .unwrap_or_else(|| USER.to_owned());
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if user.is_empty() || user.starts_with('-') || !user.bytes().all(plain) {
            return Err(OperatorError::new(format!(
                "`{user}` is not a name of an account"
            )));
        }
        let program = std::env::current_exe().map_err(|error| {
            OperatorError::failure(format!("/proc/self/exe: {}", reason(&error)))
        })?;
        let target = config.path.clone().unwrap_or_else(|| config.folder.clone());
        must_be_one_line(&program)?;
        must_be_one_line(&target)?;
        let service = ServiceDefinition {
            init,
            logs: service_logs(&config, init, &name),
            name,
            folders: ServiceFolders::of(&config),
            stop_seconds: config
                .server
                .limits
                .drain_seconds
                .saturating_add(STOP_MARGIN_SECONDS),
            makes_user: UnixAccount::find(&user).is_none(),
            program,
            target,
            user,
            configured_user: configured,
        };
        Ok(service)
    }

    #[cfg(test)]
    pub(super) fn example(
        init: InitSystem,
        program: &str,
        target: &str,
        user: &str,
    ) -> ServiceDefinition {
        ServiceDefinition {
            init,
            name: "anthill".to_owned(),
            program: program.into(),
            target: target.into(),
            user: user.to_owned(),
            configured_user: None,
            folders: ServiceFolders {
                state: Some("anthill".to_owned()),
                runtime: None,
                writes: ["/var/log/web".into()].into(),
                shares_store: false,
            },
            logs: Some("/var/log/anthill".into()),
            stop_seconds: 40,
            makes_user: false,
        }
    }

    /// Checks the service before anything on the machine is changed: the configuration, the location and
    /// the account's access to the program.
    fn check(&self) -> Result<(), OperatorError> {
        let overrides = Overrides {
            user: Some(self.user.clone()),
            ..Overrides::default()
        };
        let config = ConfigSource::of(Some(&self.target))?.read(&overrides)?;
        for warning in config::check(&config)? {
            print_message(&warning.as_warning());
        }
        if self.init == InitSystem::Systemd && self.target.starts_with("/tmp") {
            return Err(
                OperatorError::new("files below /tmp are lost when the machine restarts")
                    .help("move the configuration and the content, for example to /srv"),
            );
        }
        self.must_be_roots_own(&config)?;
        self.must_be_readable(&config)?;
        let account = UnixAccount::find(&self.user);
        if let Some(stop) = account.and_then(|account| account.stopped_at(&self.program, 1)) {
            let (program, user, stop) = (self.program.display(), &self.user, stop.display());
            return Err(OperatorError::new(format!(
                "user `{user}` cannot run {program}: {stop} is closed to the user"
            ))
            .help(format!(
                "run install {program} /usr/local/bin, and use the installed program"
            )));
        }
        Ok(())
    }

    /// Refuses a configuration that the account cannot read: a service of systemd runs with the account from the
    /// beginning, and another service needs the files at a reload.
    fn must_be_readable(&self, config: &Config) -> Result<(), OperatorError> {
        let Some(account) = UnixAccount::find(&self.user) else {
            return Ok(());
        };
        let mut files = config.source.paths();
        let closed = files.find_map(|file| Some((file, account.stopped_at(file, 4)?)));
        let Some((file, stop)) = closed else {
            return Ok(());
        };
        let (user, group, shown) = (&self.user, &account.group, file.display());
        let help = match stop == file {
            true => format!("chgrp {group} {shown} && chmod g+r {shown}"),
            false => format!(
                "chmod o+x {}, or move the configuration to /etc/anthill",
                stop.display()
            ),
        };
        let what = format!("user `{user}` cannot read the configuration {shown}");
        Err(OperatorError::new(what).help(help))
    }

    /// Refuses a program started by root that another user can change. Also refuses a changeable
    /// configuration that names the account to drop to. A unit is exempt: systemd starts the program with the
    /// account from the beginning.
    fn must_be_roots_own(&self, config: &Config) -> Result<(), OperatorError> {
        if self.init == InitSystem::Systemd {
            return Ok(());
        }
        let drops = self.configured_user.as_ref() == Some(&self.user);
        let included = config.source.paths().filter(|path| *path != self.target);
        let config = std::iter::once(&*self.target).chain(included);
        for path in std::iter::once(&*self.program).chain(config.filter(|_| drops)) {
            let failed = |error: std::io::Error| {
                OperatorError::failure(format!("{}: {}", path.display(), reason(&error)))
            };
            let way = TrustedPath::resolve(path, LastLink::Follow, MissingFolder::Fail)
                .map_err(failed)?;
            let shown = way.path();
            let shown = shown.display();
            way.must_be_controlled_by(0).map_err(|error| {
                let help = format!(
                    "move {shown} to a folder that only root can change, such as /usr/local/bin \
                     or /etc"
                );
                OperatorError::failure(error.to_string()).help(help)
            })?;
            let stat = way.stat().map_err(failed)?;
            if stat.is_some_and(|stat| stat.st_uid != 0 || stat.st_mode & 0o022 != 0) {
                let what =
                    format!("the service starts as root, but other users can change {shown}");
                let help = format!("chown root {shown} && chmod go-w {shown}");
                return Err(OperatorError::failure(what).help(help));
            }
        }
        Ok(())
    }

    /// Prints the last lines of a service that did not start. The classic script prints the lines itself.
    fn show_log(&self) {
        let name = &self.name;
        let line = match self.init {
            InitSystem::Systemd => {
                format!("journalctl --unit {name} --lines 12 --output cat --no-pager")
            }
            InitSystem::Runit => format!("tail -n 12 /var/log/{name}.log"),
            InitSystem::OpenRc | InitSystem::SysV => return,
        };
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        run_aloud(&words);
    }

    /// Returns the lines of a script that make the folder of the access log and give its path to the server.
    fn script_of_logs(&self) -> String {
        let Some(logs) = &self.logs else {
            return String::new();
        };
        let indent = match self.init {
            InitSystem::OpenRc => "\t",
            InitSystem::Runit => "",
            InitSystem::Systemd | InitSystem::SysV => "    ",
        };
        let (logs, user) = (logs.display(), &self.user);
        format!(
            "export LOGS_DIRECTORY={logs}\n\
             {indent}mkdir -p -m 750 \"$LOGS_DIRECTORY\" && chown {user}: \"$LOGS_DIRECTORY\"\n{indent}"
        )
    }

    /// Writes the files of the service.
    fn write(&self) -> Result<(), OperatorError> {
        let write = |file: &Path, text: &str| {
            write(file, text, self.init.mode()).map_err(|error| {
                OperatorError::failure(format!("{}: {}", file.display(), reason(&error)))
            })
        };
        if self.init == InitSystem::Runit {
            let check = self.fill(RUNIT_CHECK, shell_quoted);
            write(&runit_service::check_file(&self.name), &check)?;
        }
        write(&self.init.file(&self.name), &self.render())
    }

    /// Returns the text of the unit or script.
    pub(super) fn render(&self) -> String {
        let (template, quote): (&str, fn(&str) -> String) = match self.init {
            InitSystem::Systemd => (SYSTEMD, systemd_quoted),
            InitSystem::OpenRc => (OPENRC, shell_quoted),
            InitSystem::Runit => (RUNIT, shell_quoted),
            InitSystem::SysV => (SYSV, shell_quoted),
        };
        self.fill(template, quote)
    }

    fn fill(&self, template: &str, quote: fn(&str) -> String) -> String {
        let (program, target) = (
            self.program.to_string_lossy(),
            self.target.to_string_lossy(),
        );
        let stop_seconds = self.stop_seconds.to_string();
        let identity = format!(
            "User={}\nAmbientCapabilities={CAPABILITIES}\nCapabilityBoundingSet={CAPABILITIES}",
            self.user
        );
        // The account of the unit goes before another account in the configuration.
        let option = match &self.configured_user {
            Some(configured) if *configured != self.user => format!("--user {} ", self.user),
            _ => String::new(),
        };
        let mut folders = self.folders.as_unit_lines();
        let logs = self.logs.as_ref().and_then(|logs| below(logs, "/var/log"));
        if let Some(logs) = logs {
            folders += &format!("\nLogsDirectory={logs}\nLogsDirectoryMode=0750");
        }
        let arguments = format!(
            "serve {SUPERVISE}--user {} {}",
            self.user,
            shell_quoted(&target)
        );
        fill(
            template,
            &[
                ("@SHOWN@", &target.replace('%', "%%")),
                ("@PROGRAM@", &quote(&program)),
                ("@CONFIG@", &quote(&target)),
                ("@ARGUMENTS@", &shell_quoted(&arguments)),
                ("@SUPERVISE@", SUPERVISE),
                ("@USER@", &self.user),
                ("@NAME@", &self.name),
                ("@STOP_SECONDS@", &stop_seconds),
                ("@USER_OPTION@", &option),
                ("@IDENTITY@", &identity),
                ("@FOLDERS@", &folders),
                ("@LOGS@", &self.script_of_logs()),
                (
                    "@RESTRICT_SETGID@",
                    if self.folders.shares_store {
                        "no"
                    } else {
                        "yes"
                    },
                ),
            ],
        )
    }
}

/// Returns the folder for the access log of a service. The logs of an installed service stay where they are, and so do
/// logs that the configuration names.
fn service_logs(config: &Config, init: InitSystem, name: &str) -> Option<PathBuf> {
    let has_logs = match std::fs::read_to_string(init.file(name)) {
        Ok(installed) => LOGS_MARKS.iter().any(|mark| installed.contains(mark)),
        Err(_) => {
            let sites = config.sites.iter();
            let mut logs = sites.filter_map(|site| site.log.access.as_ref());
            !config.log.is_configured() && logs.next().is_none()
        }
    };
    let folder = if name == USER {
        name.to_owned()
    } else {
        // Another program may have the same name, and its folder must not change the owner.
        format!("{USER}-{name}")
    };
    has_logs.then(|| Path::new("/var/log").join(folder))
}

/// Beginnings of the line with the folder of the logs in a unit and in a script.
pub(super) const LOGS_MARKS: [&str; 2] = ["\nLogsDirectory=", "LOGS_DIRECTORY=/var/log/"];

fn install(
    mut service: ServiceDefinition,
    publisher: Option<&PublisherSetup>,
) -> Result<ExitCode, OperatorError> {
    let config = ConfigSource::of(Some(&service.target))?.read(&Overrides::default())?;
    if let Some(publisher) = publisher {
        publisher.check(&config)?;
    }
    if service.makes_user {
        system_account::make(&AccountSpec {
            name: &service.user,
            home: "/var/lib/anthill",
            login: Login::Closed,
        })?;
    }
    service.check()?;
    service.folders.prepare(&config, &service.user)?;
    if let Some(publisher) = publisher {
        publisher.set_up(&config, &service.user)?;
        // The store belongs to a group from now on.
        service.folders = ServiceFolders::of(&config);
    }
    let file = service.init.file(&service.name);
    service.write()?;
    print_message(&format!("wrote {}", file.display()));
    if service.init == InitSystem::Runit {
        runit_service::register(&service.name)?;
    }
    for command in service
        .init
        .install_commands(&service.name, service.stop_seconds)
    {
        if !run_aloud(&command) {
            service.show_log();
            let what = format!("`{}` failed", command.join(" "));
            return Err(OperatorError::failure(what).help(format!(
                "{} is written; correct the cause of the failure, and run the command by hand",
                file.display()
            )));
        }
    }
    let lines = match publisher {
        Some(publisher) => publisher.key_lines(&config)?,
        None => String::new(),
    };
    let logs = service.logs.map_or_else(String::new, |logs| {
        let file = logs.join(ACCESS_LOG_NAME);
        format!(
            "\nthe access log is {}; `anthill log` shows the logs",
            file.display()
        )
    });
    Ok(print_result(&format!(
        "{} serves {} now and after each boot ({}){logs}{lines}",
        service.name,
        service.target.display(),
        service.init
    )))
}

fn remove(init: InitSystem, name: &str) -> Result<ExitCode, OperatorError> {
    let file = init.file(name);
    if !file.exists() {
        let what = format!(
            "the service {name} is not installed: {} does not exist",
            file.display()
        );
        return Err(OperatorError::failure(what));
    }
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    if !text.contains("`anthill service install`") {
        let what = format!(
            "{} was not written by `anthill service install`",
            file.display()
        );
        return Err(OperatorError::failure(what)
            .help("if the service is no longer needed, remove the file by hand"));
    }
    let service = InstalledService::parse(name, init, &text);
    let (before, after) = init.remove_commands(name, stop_seconds(service.as_ref()));
    if init == InitSystem::Runit {
        runit_service::unregister(name)?;
    }
    for command in &before {
        // The error is ignored: the service may already be stopped or disabled, and the file is removed in
        // any case.
        run_aloud(command);
    }
    std::fs::remove_file(&file).map_err(|error| {
        OperatorError::failure(format!("{}: {}", file.display(), reason(&error)))
    })?;
    if init == InitSystem::Runit {
        runit_service::clear(name)?;
    }
    for command in &after {
        run_aloud(command);
    }
    let text = format!(
        "removed {}; the account and the state folder are kept",
        file.display()
    );
    Ok(print_result(&text))
}

/// Returns the seconds that the stop of an installed service may take.
fn stop_seconds(service: Option<&InstalledService>) -> u32 {
    let config = service.and_then(|service| {
        let source = ConfigSource::of(Some(&service.target)).ok()?;
        source.read(&Overrides::default()).ok()
    });
    let drain = config.map_or_else(
        || Limits::default().drain_seconds,
        |config| config.server.limits.drain_seconds,
    );
    drain.saturating_add(STOP_MARGIN_SECONDS)
}

fn write(file: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let draft = file.with_extension("anthill-new");
    // Removes the draft of an interrupted attempt.
    let _ = std::fs::remove_file(&draft);
    let mut open = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&draft)?;
    open.write_all(text.as_bytes())?;
    rustix::fs::fchmod(&open, rustix::fs::Mode::from_raw_mode(mode))?;
    open.sync_all()?;
    std::fs::rename(&draft, file)
}
