//! Choice of the server that a command goes to, for all commands of a running server.
//!
//! A command line names a server by its configuration or its control socket. Otherwise the server of the current folder is
//! meant, and a folder with an `anthill.toml` means no other server. In any other folder, the only server of the machine
//! that the user may control is meant: a running one, or the one of an installed service.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::installed_service::InstalledService;
use super::running_servers::{RunningServer, RunningServers, ServerProcess};
use super::trusted_socket::{PathOrigin, SocketPath, TrustedUsers, connect, is_untrusted};
use crate::cli::arguments::ParsedArguments;
use crate::config::{
    ConfigSource, ControlSockets, FILE_NAME, OperatorError, Overrides, UnixAccount,
    configured_user, control_sockets, reason, unreadable_part,
};
use base::trusted_path::{LastLink, MissingFolder, TrustedPath};
use base::visible_text::visible_lines;
use cli::Program;

/// A connection to the server of a command.
pub(super) struct ChosenServer {
    /// Control socket.
    pub(super) path: PathBuf,
    pub(super) stream: UnixStream,
    /// The server, if it was found on the machine: neither the command line nor the folder names it.
    pub(super) found: Option<KnownServer>,
}

/// A running server that the user may control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownServer {
    /// Control socket.
    pub(super) control: PathBuf,
    /// Configuration file or served folder, if known.
    pub(super) configuration: Option<PathBuf>,
    /// Process, if the system shows its descriptors to the user.
    pub(super) process: Option<Rc<ServerProcess>>,
}

impl KnownServer {
    /// Returns the configuration for a message, or else the control socket.
    pub(super) fn shown(&self) -> String {
        let text = match &self.configuration {
            Some(file) => file.display().to_string(),
            None => format!("the control socket {}", self.control.display()),
        };
        visible_lines(&text)
    }

    /// Returns the installed service that runs the server.
    pub(super) fn service(&self) -> Option<InstalledService> {
        let configuration = real(self.configuration.as_deref()?);
        let mut services = InstalledService::all().into_iter();
        services.find(|service| service.configuration() == configuration)
    }

    /// Returns the options that name the server on a command line.
    fn choice(&self) -> String {
        let text = match &self.configuration {
            Some(file) => format!(
                "--control {}  for {}",
                self.control.display(),
                file.display()
            ),
            None => format!("--control {}", self.control.display()),
        };
        visible_lines(&text)
    }
}

/// Servers and services of the machine, as far as the user may control them.
pub(super) struct KnownServers {
    pub(super) servers: Vec<KnownServer>,
    /// Installed services, running or not.
    pub(super) services: Vec<InstalledService>,
    /// Users of further running servers.
    other_users: BTreeSet<u32>,
    /// Refusal of the socket of a server that the user could control otherwise.
    refused: Option<OperatorError>,
}

impl KnownServers {
    /// Finds the servers. `program` parses their command lines.
    pub(super) fn find(program: &'static Program<OperatorError>) -> KnownServers {
        let services = InstalledService::all();
        let running = RunningServers::find();
        let trusted = with_accounts(TrustedUsers::of_caller(), &services);
        let mut others: BTreeSet<u32> = running.other_users.into_iter().collect();
        let mut servers = Vec::new();
        let mut refused = None;
        for server in &running.visible {
            match known_process(server, &trusted, program) {
                Ok(known) => servers.push(known),
                Err(NotKnown::OfAnotherUser) => {
                    others.insert(server.process.uid);
                }
                Err(NotKnown::Unreachable(error)) if is_untrusted(&error) => {
                    let error = not_connected(&server.control, &error);
                    refused = refused.or(Some(error));
                }
                // The socket may be out of the reach of the caller, as in a container.
                Err(NotKnown::Unreachable(_)) => {}
            }
        }
        // The system may hide the descriptors of a service from its own account.
        for service in &services {
            servers.extend(known_service(service, &trusted));
        }
        servers.sort_by(|a, b| a.control.cmp(&b.control));
        servers.dedup_by(|a, b| a.control == b.control);
        others.remove(&rustix::process::geteuid().as_raw());
        KnownServers {
            servers,
            services,
            other_users: others,
            refused,
        }
    }

    /// Returns the server of a command that neither names a server nor is in the folder of a running one. `absent` says so.
    fn only(
        &self,
        command: &str,
        folder: Folder,
        absent: OperatorError,
    ) -> Result<&KnownServer, OperatorError> {
        match (&self.servers[..], folder) {
            ([], Folder::WithConfiguration) => Err(absent),
            ([], Folder::Other) => Err(self.nothing_runs(absent)),
            // In a folder with a configuration, another server would pass for the server of the folder.
            ([server], Folder::Other) => Ok(server),
            (servers, folder) => {
                let mut what = match servers.len() {
                    1 => "a server runs on this machine".to_owned(),
                    count => format!("{count} servers run on this machine"),
                };
                if let Folder::WithConfiguration = folder {
                    let link = if servers.len() == 1 {
                        "but not"
                    } else {
                        "and none"
                    };
                    what = format!("{what}, {link} with the configuration of this folder");
                }
                let choices: Vec<String> = servers.iter().map(KnownServer::choice).collect();
                let help = format!(
                    "name one of them: anthill {command} with\n  {}",
                    choices.join("\n  ")
                );
                Err(OperatorError::failure(what).help(help))
            }
        }
    }

    /// Returns the only server that was started with a configuration file.
    fn serving(&self, file: &Path) -> Option<&KnownServer> {
        let file = real(file);
        let is_same =
            |it: &&KnownServer| it.configuration.as_deref().map(real).as_ref() == Some(&file);
        let mut servers = self.servers.iter().filter(is_same);
        servers.next().filter(|_| servers.next().is_none())
    }

    /// Returns the error for a machine without a server that the user may control.
    pub(super) fn nothing_runs(&self, absent: OperatorError) -> OperatorError {
        if let Some(refused) = &self.refused {
            let error = OperatorError::failure(refused.what());
            return error.help(refused.hint().unwrap_or_default());
        }
        let account =
            |service: &InstalledService| UnixAccount::find(&service.user).map(|it| it.uid);
        let accounts: Vec<u32> = self.services.iter().filter_map(account).collect();
        let is_of_service = |uid: &&u32| accounts.contains(uid);
        let other = self.other_users.iter().find(is_of_service);
        let other = other.or_else(|| {
            self.other_users
                .first()
                .filter(|_| self.services.is_empty())
        });
        if let Some(uid) = other {
            let user = UnixAccount::name_of(*uid);
            let what = format!(
                "a server of the user `{user}` runs on this machine, and not one of your own"
            );
            return OperatorError::failure(what).help(format!(
                "run the command as `{user}` or as root (sudo), or name the configuration of the server"
            ));
        }
        let commands: Vec<String> = self.services.iter().map(|it| it.start_command()).collect();
        match &self.services[..] {
            [] => absent,
            [service] => {
                let what = format!(
                    "no anthill is running: the service {} is stopped",
                    service.name
                );
                OperatorError::failure(what).help(commands.join("\n  "))
            }
            _ => OperatorError::failure("no anthill is running: the services are stopped")
                .help(format!("start one of them:\n  {}", commands.join("\n  "))),
        }
    }
}

/// Kind of the current folder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Folder {
    /// The folder has an `anthill.toml`, which is meant alone.
    WithConfiguration,
    Other,
}

/// Connects to the server of a command. The nth operand of the command may name a configuration.
pub(super) fn choose(typed: &ParsedArguments, nth: usize) -> Result<ChosenServer, OperatorError> {
    let services = InstalledService::all();
    let (sockets, trusted) = sockets(typed, nth, &services)?;
    let absent = match connect_first(&sockets, &trusted) {
        Ok(server) => return Ok(server),
        Err(absent) => absent,
    };
    if typed.path("control").is_some() || typed.path("state").is_some() {
        return Err(absent.error);
    }
    let is_missing = absent.is_missing;
    let is_named = typed.path_at(nth).is_some();
    let folder = current_folder();
    if (is_named || folder == Folder::WithConfiguration) && !is_missing {
        return Err(absent.error);
    }
    let known = KnownServers::find(typed.program());
    let file = match ConfigSource::of(typed.path_at(nth))? {
        ConfigSource::File(file) => Some(file),
        ConfigSource::Folder(_) | ConfigSource::Proxy(_) => None,
    };
    // The file may be half written, or name another socket than at the start of the server.
    if let Some(server) = file.as_deref().and_then(|file| known.serving(file)) {
        let mut chosen = connect_known(&known, server)?;
        chosen.found = None;
        return Ok(chosen);
    }
    let unread = file.as_deref().and_then(unreadable_part);
    let explained = |error: OperatorError| match unread {
        Some(unread) => error.followed_by(unread),
        None => error,
    };
    if is_named {
        return Err(explained(absent.error));
    }
    let absent = if folder == Folder::Other && is_missing {
        nothing_is_installed()
    } else {
        absent.error
    };
    let server = known.only(typed.command_name(), folder, absent);
    connect_known(&known, server.map_err(explained)?)
}

/// Connects to a server that was found on the machine.
fn connect_known(
    known: &KnownServers,
    server: &KnownServer,
) -> Result<ChosenServer, OperatorError> {
    let socket = SocketPath {
        path: server.control.clone(),
        origin: PathOrigin::Process,
    };
    let mut trusted = with_accounts(TrustedUsers::of_caller(), &known.services);
    if let Some(account) = server.configuration.as_deref().and_then(account_by_root) {
        trusted = trusted.with(account);
    }
    let stream = connect(&socket, &trusted).map_err(|error| not_connected(&socket.path, &error))?;
    Ok(ChosenServer {
        path: socket.path,
        stream,
        found: Some(server.clone()),
    })
}

/// Returns the error for a machine without a server and without a service.
fn nothing_is_installed() -> OperatorError {
    OperatorError::failure("no anthill is running, and no service is installed").help(
        "start a server with `anthill serve`, or name a configuration: its folder or file, or its --control PATH",
    )
}

fn current_folder() -> Folder {
    if Path::new(FILE_NAME).exists() {
        Folder::WithConfiguration
    } else {
        Folder::Other
    }
}

/// Returns the possible control sockets of the server of the configuration named by the nth operand, and the users
/// with trusted sockets.
pub(super) fn sockets(
    typed: &ParsedArguments,
    nth: usize,
    services: &[InstalledService],
) -> Result<(Vec<SocketPath>, TrustedUsers), OperatorError> {
    let trusted = with_accounts(TrustedUsers::of_caller(), services);
    if let Some(path) = typed.path("control") {
        let origin = PathOrigin::Named;
        return Ok((vec![SocketPath { path, origin }], trusted));
    }
    let place = typed.path_at(nth);
    let source = ConfigSource::of(place)?;
    if let (None, ConfigSource::File(file)) = (place, &source) {
        refuse_planted(file)?;
    }
    let overrides = Overrides {
        state: typed.path("state"),
        ..Overrides::default()
    };
    sockets_of(&source, &overrides, trusted)
}

fn sockets_of(
    source: &ConfigSource,
    overrides: &Overrides,
    mut trusted: TrustedUsers,
) -> Result<(Vec<SocketPath>, TrustedUsers), OperatorError> {
    let ControlSockets { paths, is_named } = control_sockets(source, overrides)?;
    if let ConfigSource::File(file) = source {
        let owner_of = |path: &Path| fs::metadata(path).map(|metadata| metadata.uid()).ok();
        let owner = owner_of(file);
        if is_named {
            // The owner of a configuration, or of its folder, chooses the control socket.
            let folder = file.parent().filter(|folder| *folder != Path::new(""));
            let owners = [owner, owner_of(folder.unwrap_or(Path::new(".")))];
            trusted = owners
                .into_iter()
                .flatten()
                .fold(trusted, TrustedUsers::with);
        }
        let is_own = owner.is_some_and(|owner| TrustedUsers::of_caller().has(owner));
        let user = configured_user(file).filter(|_| is_own);
        if let Some(account) = user.and_then(|user| UnixAccount::find(&user)) {
            trusted = trusted.with(account.uid);
        }
    }
    let origin = if is_named {
        PathOrigin::Named
    } else {
        PathOrigin::Default
    };
    let socket = |path| SocketPath { path, origin };
    Ok((paths.into_iter().map(socket).collect(), trusted))
}

/// Refuses the configuration of another user in a folder where every user may put one, such as /tmp: the command would go
/// to a server of that user.
pub(super) fn refuse_planted(file: &Path) -> Result<(), OperatorError> {
    let uid = |path: &Path| fs::metadata(path).map(|it| (it.uid(), it.mode()));
    let (Ok((owner, _)), Ok((_, mode))) = (uid(file), uid(Path::new("."))) else {
        return Ok(());
    };
    if mode & 0o002 == 0 || TrustedUsers::of_caller().has(owner) {
        return Ok(());
    }
    let what = format!(
        "{} of this folder belongs to `{}`, and every user may write to the folder",
        file.display(),
        UnixAccount::name_of(owner)
    );
    Err(OperatorError::failure(what)
        .help("name the configuration, or run the command in another folder"))
}

fn with_accounts(trusted: TrustedUsers, services: &[InstalledService]) -> TrustedUsers {
    let accounts = services.iter().filter_map(|it| UnixAccount::find(&it.user));
    accounts.fold(trusted, |trusted, account| trusted.with(account.uid))
}

/// Returns the account that a configuration names, if root alone can change the configuration.
fn account_by_root(configuration: &Path) -> Option<u32> {
    let way = TrustedPath::resolve(configuration, LastLink::Follow, MissingFolder::Fail).ok()?;
    way.must_be_controlled_by(0).ok()?;
    let file = way.stat().ok()??;
    if file.st_uid != 0 || file.st_mode & 0o022 != 0 {
        return None;
    }
    Some(UnixAccount::find(&configured_user(&way.path())?)?.uid)
}

/// Reason why a running server is not offered.
enum NotKnown {
    OfAnotherUser,
    Unreachable(io::Error),
}

/// Returns a running server, if the user may control it.
fn known_process(
    server: &RunningServer,
    trusted: &TrustedUsers,
    program: &'static Program<OperatorError>,
) -> Result<KnownServer, NotKnown> {
    let configuration = server.process.configuration(program);
    let uid = server.process.uid;
    // A process may claim any configuration, but not become the account that root chose.
    let is_trusted =
        trusted.has(uid) || configuration.as_deref().and_then(account_by_root) == Some(uid);
    if !is_trusted {
        return Err(NotKnown::OfAnotherUser);
    }
    let socket = SocketPath {
        path: server.control.clone(),
        origin: PathOrigin::Process,
    };
    connect(&socket, &trusted.clone().with(uid)).map_err(NotKnown::Unreachable)?;
    Ok(KnownServer {
        control: real(&server.control),
        configuration,
        process: Some(server.process.clone()),
    })
}

/// Returns the running server of a service.
fn known_service(service: &InstalledService, trusted: &TrustedUsers) -> Option<KnownServer> {
    let source = ConfigSource::of(Some(&service.target)).ok()?;
    let sockets = control_sockets(&source, &Overrides::default()).ok()?;
    let control = sockets.paths.into_iter().find(|path| {
        let origin = PathOrigin::Process;
        let path = path.clone();
        connect(&SocketPath { path, origin }, trusted).is_ok()
    })?;
    Some(KnownServer {
        control: real(&control),
        configuration: Some(service.target.clone()),
        process: None,
    })
}

pub(super) fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Failure to connect to any of several sockets.
struct Absent {
    error: OperatorError,
    /// True if no socket is in use, as far as the user can see.
    is_missing: bool,
}

impl From<Absent> for OperatorError {
    fn from(absent: Absent) -> OperatorError {
        absent.error
    }
}

/// Connects to the first socket with a listening server.
fn connect_first(sockets: &[SocketPath], trusted: &TrustedUsers) -> Result<ChosenServer, Absent> {
    let mut closed = None;
    for socket in sockets {
        let path = &socket.path;
        match connect(socket, trusted) {
            Ok(stream) => {
                return Ok(ChosenServer {
                    path: path.clone(),
                    stream,
                    found: None,
                });
            }
            Err(error) if is_missing(&error) => {}
            Err(error) => closed = closed.or(Some(not_connected(path, &error))),
        }
    }
    // No socket has a listening server. A socket without access may belong to a server of another user.
    if let Some(error) = closed {
        return Err(Absent {
            error,
            is_missing: false,
        });
    }
    let path = sockets
        .first()
        .map_or(Path::new("?"), |it| &it.path)
        .display();
    let what =
        format!("no anthill is running with this configuration (no control socket at {path})");
    Err(Absent {
        error: OperatorError::failure(what).help(
            "start a server with `anthill serve`, or give another control socket with --control PATH",
        ),
        is_missing: true,
    })
}

/// Returns true if no server listens at a socket.
pub(super) fn is_missing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    matches!(error.kind(), ConnectionRefused | NotFound)
}

fn not_connected(path: &Path, error: &io::Error) -> OperatorError {
    let path = path.display();
    if is_untrusted(error) {
        let what = format!("the control socket is not used: {error}");
        let help = "another user's program may listen there; name the control socket of your server with --control PATH";
        return OperatorError::failure(what).help(help);
    }
    if error.kind() == io::ErrorKind::PermissionDenied {
        let what = format!("permission denied for the control socket {path}");
        let help =
            "if the server uses the socket, run the command as the server's user or as root (sudo)";
        return OperatorError::failure(what).help(help);
    }
    OperatorError::failure(format!("the control socket {path}: {}", reason(error)))
}

#[cfg(test)]
mod tests {
    use super::super::init_system::InitSystem;
    use super::*;
    use std::os::unix::net::UnixListener;

    fn server(name: &str) -> KnownServer {
        KnownServer {
            control: PathBuf::from(format!("/run/{name}.sock")),
            configuration: Some(PathBuf::from(format!("/etc/{name}/anthill.toml"))),
            process: None,
        }
    }

    fn service(name: &str) -> InstalledService {
        InstalledService {
            name: name.to_owned(),
            init: InitSystem::Systemd,
            target: PathBuf::from(format!("/etc/{name}/anthill.toml")),
            user: "root".to_owned(),
            logs: None,
        }
    }

    /// Returns the control socket of the choice, or the error.
    fn choice(
        folder: Folder,
        servers: &[&str],
        services: &[&str],
        other_users: &[u32],
    ) -> Result<String, String> {
        let known = KnownServers {
            servers: servers.iter().map(|name| server(name)).collect(),
            services: services.iter().map(|name| service(name)).collect(),
            other_users: other_users.iter().copied().collect(),
            refused: None,
        };
        let absent = OperatorError::failure("absent");
        let chosen = known.only("reload", folder, absent);
        let control = chosen.map(|server| server.control.display().to_string());
        control.map_err(|error| error.to_string())
    }

    #[test]
    fn the_only_server_is_chosen_outside_of_a_folder_with_a_configuration() {
        use Folder::{Other, WithConfiguration};
        let several = "2 servers run on this machine";
        let list = "\nhelp: name one of them: anthill reload with\n  \
                    --control /run/a.sock  for /etc/a/anthill.toml";
        let rest = "\n  --control /run/b.sock  for /etc/b/anthill.toml";
        assert_eq!(choice(Other, &["a"], &[], &[]), Ok("/run/a.sock".into()));
        assert_eq!(
            choice(Other, &["a"], &["a", "b"], &[7]),
            Ok("/run/a.sock".into())
        );
        assert_eq!(
            choice(Other, &["a", "b"], &[], &[]),
            Err(format!("error: {several}{list}{rest}"))
        );
        let refused = [
            (&["a"][..], "a server runs on this machine, but not"),
            (&["a", "b"], "2 servers run on this machine, and none"),
        ];
        for (servers, begin) in refused {
            let rest = if servers.len() == 2 { rest } else { "" };
            let what = format!("error: {begin} with the configuration of this folder{list}{rest}");
            assert_eq!(choice(WithConfiguration, servers, &[], &[]), Err(what));
        }
        // The stopped server of the folder is the only one that matters there.
        assert_eq!(
            choice(WithConfiguration, &[], &["a"], &[7]),
            Err("error: absent".into())
        );
    }

    #[test]
    fn a_missing_server_is_explained() {
        let of = |services: &[&str], others: &[u32]| {
            choice(Folder::Other, &[], services, others).expect_err("no server")
        };
        assert_eq!(of(&[], &[]), "error: absent");
        assert_eq!(
            of(&["www"], &[]),
            "error: no anthill is running: the service www is stopped\nhelp: systemctl start www"
        );
        // A foreign process does not hide that the service is stopped.
        assert_eq!(of(&["www"], &[]), of(&["www"], &[64_321]));
        assert!(of(&["a", "b"], &[]).ends_with("\n  systemctl start a\n  systemctl start b"));
        assert!(of(&[], &[64_321]).contains("a server of the user `64321` runs on this machine"));
        // The caller may not inspect the processes of the service's account.
        assert!(of(&["www"], &[0]).contains("a server of the user `root` runs on this machine"));
    }

    #[test]
    fn messages_show_no_hidden_characters() {
        let server = KnownServer {
            control: "/run/a.sock".into(),
            configuration: Some("/srv/\u{1b}[2J".into()),
            process: None,
        };
        assert_eq!(server.shown(), "/srv/\\u001b[2J");
        let unknown = KnownServer {
            configuration: None,
            ..server
        };
        assert_eq!(unknown.shown(), "the control socket /run/a.sock");
    }

    #[test]
    fn the_socket_of_another_user_is_not_used() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        const OTHER: u32 = 64_321;
        let folder = tempfile::tempdir().unwrap();
        let chown = |path: &Path, uid| std::os::unix::fs::chown(path, Some(uid), None).unwrap();
        let made = folder.path().join("made");
        fs::create_dir(&made).unwrap();
        let path = made.join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        let caller = TrustedUsers::of_caller();
        let try_as = |path: &Path, origin, trusted: &TrustedUsers| {
            let path = path.to_owned();
            connect(&SocketPath { path, origin }, trusted).map_err(|error| {
                assert!(is_untrusted(&error), "{error}");
                not_connected(&made, &error).to_string()
            })
        };
        let origins = [PathOrigin::Named, PathOrigin::Default, PathOrigin::Process];
        for origin in origins {
            assert!(try_as(&path, origin, &caller).is_ok());
        }
        // Another user owns the file.
        chown(&path, OTHER);
        for origin in origins {
            let refused = try_as(&path, origin, &caller).unwrap_err();
            assert!(refused.contains("belongs to `64321`"), "{refused}");
            let account = caller.clone().with(OTHER);
            // Root called listen(2), and root's folder has the file.
            assert!(try_as(&path, origin, &account).is_ok());
        }
        // Root gave the folder to the account of a server.
        chown(&made, OTHER);
        assert!(try_as(&path, PathOrigin::Named, &caller).is_ok());
        assert!(try_as(&path, PathOrigin::Default, &caller).is_ok());
        assert!(try_as(&path, PathOrigin::Process, &caller).is_err());
        // Any user may have made a folder in a folder such as /tmp.
        let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(folder.path(), mode(0o1777)).unwrap();
        for origin in origins {
            let refused = try_as(&path, origin, &caller).unwrap_err();
            assert!(refused.contains("is in a folder of `64321`"), "{refused}");
            assert!(try_as(&path, origin, &caller.clone().with(OTHER)).is_ok());
        }
        // The other user leads the path to a socket of root, as if that were the server.
        let roots = folder.path().join("roots");
        let _roots = UnixListener::bind(&roots).unwrap();
        let link = made.join("link");
        std::os::unix::fs::symlink(&roots, &link).unwrap();
        for origin in origins {
            assert!(try_as(&link, origin, &caller.clone().with(OTHER)).is_err());
        }
    }
}
