//! Service of an account without root: a line `@reboot` in the crontab of the account, which starts the server with its
//! supervisor when the machine boots.
//!
//! The other lines of the crontab stay byte for byte. The programs `crontab` of all systems read the table with `-l` and take
//! a new one on standard input, so the file itself, which belongs to cron, is never touched.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use cli::output::{print_message, print_result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::service_text::{SUPERVISE, must_be_one_line, shell_quoted, shell_words};
use crate::config::{
    self, Config, ConfigSource, OperatorError, Overrides, prepare_state_folder, reason,
};
use base::sys::NotificationSocket;

/// Beginning of the comment that ends a line of a service. The name of the service follows.
const MARK: &str = " # anthill service install: ";
/// Beginning of the line of a service.
const TIME: &str = "@reboot ";
/// File in the state folder with the messages of the start and of the supervisor, and the errors of the server.
const MESSAGES: &str = "messages.log";
/// Longest wait for a server that starts, 2 minutes. The supervisor itself ends a start without work after one.
const START_SECONDS_MAX: u64 = 120;
/// Pause between two looks at a server that starts, 200 ms.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};
/// Bytes of the messages of a failed start that are shown, 2 KiB.
const SHOWN_BYTES_MAX: u64 = 2 << 10;

/// Server that the crontab of an account starts.
#[derive(Clone, Debug)]
pub(super) struct CrontabService {
    name: String,
    program: PathBuf,
    /// File or folder to serve, as an absolute path.
    target: PathBuf,
    state: PathBuf,
    /// Variables of the environment, which cron does not pass on.
    variables: Vec<(&'static str, PathBuf)>,
}

impl CrontabService {
    /// Creates the service of a configuration.
    pub(super) fn of(
        argument: Option<&Path>,
        name: String,
    ) -> Result<CrontabService, OperatorError> {
        let config = ConfigSource::of(argument)?.read(&Overrides::default())?;
        for warning in config::check(&config)? {
            print_message(&warning.as_warning());
        }
        let program = std::env::current_exe().map_err(|error| {
            OperatorError::failure(format!("/proc/self/exe: {}", reason(&error)))
        })?;
        let service = CrontabService {
            name,
            program,
            target: config.path.clone().unwrap_or_else(|| config.folder.clone()),
            state: config.server.state.get_ref().clone(),
            variables: variables(&config),
        };
        let paths = [&service.program, &service.target, &service.state];
        let paths = paths
            .into_iter()
            .chain(service.variables.iter().map(|it| &it.1));
        for path in paths {
            must_be_one_line(path)?;
            // cron ends a command at a percent sign, and systems differ about the backslash.
            if path.to_string_lossy().contains(['%', '\\']) {
                let what = format!("{} cannot be written into a crontab", path.display());
                return Err(OperatorError::new(what)
                    .help("choose a path without percent signs and backslashes"));
            }
        }
        Ok(service)
    }

    /// Returns the line of the crontab.
    pub(super) fn line(&self) -> String {
        format!("{TIME}{}{MARK}{}\n", self.command(), self.name)
    }

    /// Returns the command of the line, for `/bin/sh -c`.
    fn command(&self) -> String {
        let quoted = |path: &Path| shell_quoted(&path.to_string_lossy());
        let variables = self.variables.iter();
        let variables = variables.map(|(name, value)| format!("{name}={} ", quoted(value)));
        let environment: String = variables.collect();
        let environment = match environment.is_empty() {
            true => environment,
            false => format!("env {environment}"),
        };
        format!(
            "exec {environment}{} serve {SUPERVISE}{} </dev/null >>{} 2>&1",
            quoted(&self.program),
            quoted(&self.target),
            quoted(&self.messages()),
        )
    }

    fn messages(&self) -> PathBuf {
        self.state.join(MESSAGES)
    }

    /// Adds the line to the crontab, and starts the server.
    pub(super) fn install(&self) -> Result<ExitCode, OperatorError> {
        let mut crontab = Crontab::read()?;
        let former = crontab.remove(&self.name);
        prepare_state_folder(&self.state, None).map_err(|error| failed(&self.state, &error))?;
        let line = self.line();
        crontab.add(&line);
        crontab.write()?;
        print_message(&format!(
            "wrote a line of the crontab:\n{}",
            line.trim_end()
        ));
        if let Some(target) = former {
            self.stop(&target);
        }
        self.start()?;
        Ok(print_result(&format!(
            "{} serves {} now and after each boot (crontab)\nmessages and errors are in {}; `anthill log` shows the logs",
            self.name,
            self.target.display(),
            self.messages().display(),
        )))
    }

    /// Starts the server as cron does at the next boot, and waits until the server is ready.
    fn start(&self) -> Result<(), OperatorError> {
        let what = |why: String| {
            OperatorError::failure(format!("the server did not start: {why}")).help(
                "the line is in the crontab; correct the cause, and run `anthill service install` again",
            )
        };
        let messages = self.messages();
        let begin = fs::metadata(&messages).map_or(0, |it| it.len());
        let socket = NotificationSocket::bind().map_err(|error| what(reason(&error)))?;
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(self.command()).env_clear();
        for name in ["HOME", "LOGNAME"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        command
            .env("PATH", "/usr/bin:/bin")
            .env("SHELL", "/bin/sh")
            .env("NOTIFY_SOCKET", socket.name())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // The end of the terminal ends the processes in the group of the shell.
            .process_group(0);
        let mut child = command.spawn().map_err(|error| what(reason(&error)))?;
        match is_ready(&socket, &mut child) {
            Ok(true) => Ok(()),
            Ok(false) => Err(what(last_messages(&messages, begin))),
            Err(error) => Err(what(reason(&error))),
        }
    }

    /// Stops the server of a line, if the server runs.
    fn stop(&self, target: &str) {
        let mut stop = Command::new(&self.program);
        stop.args(["stop", "--yes", target]).stdin(Stdio::null());
        let _ = stop.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// Takes the line of a service out of the crontab, and stops its server.
pub(super) fn remove(name: &str) -> Result<ExitCode, OperatorError> {
    let mut crontab = Crontab::read()?;
    let Some(target) = crontab.remove(name) else {
        let what = format!("the service {name} is not installed: the crontab has no line of it");
        return Err(OperatorError::failure(what)
            .help("root removes a service of the machine: run the command with sudo"));
    };
    crontab.write()?;
    let program = std::env::current_exe()
        .map_err(|error| OperatorError::failure(format!("/proc/self/exe: {}", reason(&error))))?;
    let mut stop = Command::new(program);
    // The output of the command says what happened to the server.
    let _ = stop
        .args(["stop", "--yes", &target])
        .stdin(Stdio::null())
        .status();
    Ok(print_result(
        "removed the line of the crontab; the state folder is kept",
    ))
}

/// Returns the variables for a server whose logs and state folder do not come from the configuration.
fn variables(config: &Config) -> Vec<(&'static str, PathBuf)> {
    let mut variables = Vec::new();
    let state_home = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let state_home = state_home.filter(|it| it.is_absolute());
    if config.server.state.span().is_empty() {
        variables.extend(state_home.map(|folder| ("XDG_STATE_HOME", folder)));
    }
    let mut sites = config.sites.iter();
    let names_logs = config.log.is_configured() || sites.any(|it| it.log.access.is_some());
    if !names_logs {
        variables.push(("LOGS_DIRECTORY", config.server.state.get_ref().clone()));
    }
    variables
}

/// Waits for the readiness of the server. Returns false for a server that has ended, or is not ready after
/// [`START_SECONDS_MAX`].
fn is_ready(socket: &NotificationSocket, child: &mut Child) -> io::Result<bool> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(START_SECONDS_MAX) {
        let mut sources = [PollFd::new(socket, PollFlags::IN)];
        match poll(&mut sources, Some(&LOOK)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        while let Some(message) = socket.receive()? {
            let is_own = message.sender == child.id();
            if is_own && message.text.lines().any(|line| line == "READY=1") {
                return Ok(true);
            }
        }
        if child.try_wait()?.is_some() {
            return Ok(false);
        }
    }
    Ok(false)
}

/// Returns the messages of a start, from the byte `begin` of their file on.
fn last_messages(file: &Path, begin: u64) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(file)?;
        let end = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(
            begin.max(end.saturating_sub(SHOWN_BYTES_MAX)),
        ))?;
        let mut bytes = Vec::new();
        file.take(SHOWN_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => String::from_utf8_lossy(&bytes).trim_end().to_owned(),
        Err(error) => format!("{}: {}", file.display(), reason(&error)),
    }
}

/// Crontab of an account.
struct Crontab(Vec<u8>);

impl Crontab {
    /// Reads the crontab of the account; an empty one if the account has none.
    fn read() -> Result<Crontab, OperatorError> {
        let mut list = Command::new("crontab");
        list.arg("-l").env("LC_ALL", "C").stdin(Stdio::null());
        let listed = list.output().map_err(|error| missing(&error))?;
        if listed.status.success() {
            return Ok(Crontab(without_head(&listed.stdout).to_owned()));
        }
        let errors = String::from_utf8_lossy(&listed.stderr);
        // busybox names the missing file.
        let has_none = ["no crontab for", "No such file or directory"];
        if listed.stdout.is_empty() && has_none.iter().any(|it| errors.contains(it)) {
            return Ok(Crontab(Vec::new()));
        }
        let what = format!("the crontab can't be read: {}", errors.trim());
        Err(OperatorError::failure(what).help("`crontab -l` must print the crontab of the account"))
    }

    /// Gives the crontab to cron.
    fn write(&self) -> Result<(), OperatorError> {
        let mut take = Command::new("crontab");
        let is_empty = self.0.is_empty();
        take.arg(if is_empty { "-r" } else { "-" });
        take.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut taking = take.spawn().map_err(|error| missing(&error))?;
        let written = taking.stdin.take().map_or(Ok(()), |mut input| {
            if is_empty {
                Ok(())
            } else {
                input.write_all(&self.0)
            }
        });
        let taken = taking.wait_with_output().map_err(|error| missing(&error))?;
        if taken.status.success() && written.is_ok() {
            return Ok(());
        }
        let errors = String::from_utf8_lossy(&taken.stderr);
        let what = format!("cron does not take the crontab: {}", errors.trim());
        Err(OperatorError::failure(what).help("the crontab is unchanged; `crontab -e` edits it"))
    }

    /// Removes the line of a service, and returns the target of its server.
    fn remove(&mut self, name: &str) -> Option<String> {
        let end = format!("{MARK}{name}");
        let mut target = None;
        let lines = self.0.split_inclusive(|byte| *byte == b'\n');
        let kept = lines.filter(|line| {
            let is_own = std::str::from_utf8(line).ok().and_then(|line| {
                let command = line.trim_end().strip_suffix(&end)?.strip_prefix(TIME)?;
                target_of(command)
            });
            let is_kept = is_own.is_none();
            target = target.take().or(is_own);
            is_kept
        });
        self.0 = kept.flatten().copied().collect();
        target
    }

    fn add(&mut self, line: &str) {
        if self.0.last().is_some_and(|byte| *byte != b'\n') {
            self.0.push(b'\n');
        }
        self.0.extend_from_slice(line.as_bytes());
    }
}

/// Returns the file or folder that a command as of [`CrontabService::command`] serves.
fn target_of(command: &str) -> Option<String> {
    let words = shell_words(command);
    let serve = words.iter().position(|word| word == "serve")?;
    let mut operands = words[serve + 1..].iter().filter(|it| !it.starts_with("--"));
    operands.next().cloned()
}

/// Returns a listed crontab without the comment that some programs put before it, and put before each new one again.
fn without_head(listed: &[u8]) -> &[u8] {
    const HEAD: [&[u8]; 3] = [b"# DO NOT EDIT THIS FILE", b"# (", b"# ("];
    let mut rest = listed;
    for begin in HEAD {
        if !rest.starts_with(begin) {
            return listed;
        }
        let end = rest.iter().position(|byte| *byte == b'\n');
        rest = end.map_or(&[][..], |end| &rest[end + 1..]);
    }
    rest
}

fn missing(error: &io::Error) -> OperatorError {
    if error.kind() != io::ErrorKind::NotFound {
        return OperatorError::failure(format!("crontab: {}", reason(error)));
    }
    OperatorError::failure(
        "the program `crontab` is missing, and only root can install another service",
    )
    .help("install cron (Debian: apt install cron), or run the command with sudo")
}

fn failed(path: &Path, error: &io::Error) -> OperatorError {
    OperatorError::failure(format!("{}: {}", path.display(), reason(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str, target: &str) -> CrontabService {
        CrontabService {
            name: name.to_owned(),
            program: "/home/me/bin/anthill".into(),
            target: target.into(),
            state: "/home/me/.local/state/anthill".into(),
            variables: vec![("LOGS_DIRECTORY", "/home/me/.local/state/anthill".into())],
        }
    }

    #[test]
    fn the_line_starts_the_supervisor_in_place_of_the_shell() {
        let line = service("anthill", "/home/me/my site's").line();
        let expected = format!(
            "@reboot exec env LOGS_DIRECTORY='/home/me/.local/state/anthill' '/home/me/bin/anthill' serve {SUPERVISE}\
             '/home/me/my site'\\''s' </dev/null >>'/home/me/.local/state/anthill/messages.log' 2>&1 \
             # anthill service install: anthill\n"
        );
        assert_eq!(line, expected);
        let mut crontab = Crontab(line.into_bytes());
        assert_eq!(crontab.remove("www"), None);
        assert_eq!(
            crontab.remove("anthill").as_deref(),
            Some("/home/me/my site's")
        );
        assert!(crontab.0.is_empty());
    }

    #[test]
    fn other_lines_stay_byte_for_byte() {
        let others: [&[u8]; 5] = [
            b"",
            b"\n\n",
            b"MAILTO=\"\"\n# \xff comment\r\n*/15 * * * *\tcheck % input \\% more  \n",
            b"@reboot /home/me/bin/anthill serve # anthill service install: other\n",
            b"# @reboot x # anthill service install: anthill\n 5 4 * * * # anthill service install: anthill",
        ];
        for before in others {
            let mut crontab = Crontab(before.to_owned());
            for target in ["/one", "/two"] {
                let former = crontab.remove("anthill");
                assert_eq!(former.as_deref(), (target == "/two").then_some("/one"));
                crontab.add(&service("anthill", target).line());
            }
            assert_eq!(crontab.remove("anthill").as_deref(), Some("/two"));
            let end: &[u8] = if before.is_empty() || before.ends_with(b"\n") {
                b""
            } else {
                b"\n"
            };
            assert_eq!(crontab.0, [before, end].concat());
        }
    }

    #[test]
    fn the_head_of_a_listing_is_no_part_of_the_crontab() {
        let head = "# DO NOT EDIT THIS FILE - edit the master and reinstall.\n# (- installed on Monday)\n# (Cron version)\n";
        let own = "# (a comment)\n5 4 * * * x\n";
        let listed = format!("{head}{own}");
        assert_eq!(without_head(listed.as_bytes()), own.as_bytes());
        assert_eq!(without_head(own.as_bytes()), own.as_bytes());
        assert_eq!(without_head(head.as_bytes()), b"");
    }
}
