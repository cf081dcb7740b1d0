//! git subprocesses: read the tip of a branch, and the tree of a commit as a tar archive.
//!
//! git runs in an environment without prompts, fetches, or replaced objects. A tree is read in a sandbox
//! repository that borrows the objects of the deployed repository, so that no filter or program configured
//! in the deployed repository runs. A silent or no longer wanted process is killed.

use crate::deploy::error::DeployError;
use crate::git::sandbox_repository;
use crate::handler::call::process::{bound_memory, search_path};
use crate::limits::{
    DEPLOY_CLEANUP_SECONDS_MAX, DEPLOY_MEMORY_BYTES, DEPLOY_SILENT_SECONDS, DEPLOY_STDERR_BYTES_MAX,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, kill_process_group, waitid,
    waitpgid,
};
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{ChildStderr, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Flag that cancels a deployment.
pub type CancelFlag = Arc<AtomicBool>;

/// Repository to read, and the program to read with.
pub(super) struct GitRepository {
    program: PathBuf,
    /// Folder of the repository (`GIT_DIR`).
    folder: PathBuf,
    /// Folder of the sandbox repositories, which have no objects.
    bare: PathBuf,
}

/// Repository in which git runs.
enum GitSource {
    /// The deployed repository, to read refs.
    Refs,
    /// A sandbox repository with the deployed repository's objects, named by SHA-1 or SHA-256.
    Objects { sha256: bool },
}

impl GitRepository {
    /// Finds the program git, and creates the sandbox repositories in `bare` if missing.
    pub(super) fn of(folder: PathBuf, bare: PathBuf) -> Result<GitRepository, DeployError> {
        let at = |error| DeployError::on_disk("the server's state folder", &bare, &error);
        sandbox_repository::prepare(&bare).map_err(at)?;
        let path = search_path();
        let mut programs = std::env::split_paths(&path).map(|folder| folder.join("git"));
        match programs.find(|file| file.is_file()) {
            Some(program) => Ok(GitRepository {
                program,
                folder,
                bare,
            }),
            None => Err(DeployError::new("the program `git` was not found in PATH")),
        }
    }

    /// Returns the commit of a branch; None if the branch does not exist.
    pub(super) fn tip(
        &self,
        branch: &str,
        unwanted: &CancelFlag,
    ) -> Result<Option<String>, DeployError> {
        let name = format!("refs/heads/{branch}");
        let format = "--format=%(refname) %(objecttype) %(objectname)";
        let arguments = ["for-each-ref", format, &name];
        let mut running = GitProcess::start(self, GitSource::Refs, &arguments, unwanted)?;
        let mut output = String::new();
        let read = (&mut running)
            .take(TIP_BYTES_MAX)
            .read_to_string(&mut output);
        running.end()?;
        read.map_err(|error| DeployError::new(format!("git: {error}")))?;
        let found = output.lines().find_map(|line| {
            let rest = line.strip_prefix(&name)?.strip_prefix(" commit ")?;
            let is_id =
                matches!(rest.len(), 40 | 64) && rest.bytes().all(|b| b.is_ascii_hexdigit());
            is_id.then(|| rest.to_owned())
        });
        Ok(found)
    }

    /// Returns a command with the environment and configuration for `from`.
    fn command(&self, from: &GitSource) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear().env("PATH", search_path());
        command.envs(ENVIRONMENT);
        match from {
            // The configured work tree has no influence on refs, so GIT_WORK_TREE replaces the setting.
            GitSource::Refs => command
                .env("GIT_DIR", &self.folder)
                .env("GIT_WORK_TREE", &self.folder)
                .current_dir(&self.folder),
            GitSource::Objects { sha256 } => self.borrowing(&mut command, *sha256),
        };
        // A repository named in the configuration is trusted, regardless of the owner.
        let safe = [self.folder.as_os_str().as_bytes(), b"."].map(|it| ("safe.directory", it));
        let fixed = CONFIG.map(|(key, value)| (key, value.as_bytes()));
        let config = safe.into_iter().chain(fixed);
        command.env("GIT_CONFIG_COUNT", (safe.len() + fixed.len()).to_string());
        for (nth, (key, value)) in config.enumerate() {
            command.env(format!("GIT_CONFIG_KEY_{nth}"), key);
            command.env(format!("GIT_CONFIG_VALUE_{nth}"), OsStr::from_bytes(value));
        }
        command
    }

    fn borrowing<'c>(&self, command: &'c mut Command, sha256: bool) -> &'c mut Command {
        let own = sandbox_repository::folder(&self.bare, sha256);
        command.env("GIT_DIR", &own).current_dir(&own);
        // git finds the commands of git without PATH. With a PATH that holds no programs, older versions of git
        // that ignore `gpg.program` cannot run gpg either.
        command.env("PATH", &own);
        let shallow = self.folder.join("shallow");
        if shallow.is_file() {
            command.env("GIT_SHALLOW_FILE", shallow);
        }
        command.env("GIT_OBJECT_DIRECTORY", self.folder.join("objects"))
    }
}

/// Hexadecimal digits of a SHA-256 object name.
const SHA256_DIGITS: usize = 64;
/// Bytes of the longest output of for-each-ref. A ref name cannot be a folder of another ref, so
/// at most one line is printed.
const TIP_BYTES_MAX: u64 = 64 * 1024;

/// Running git process. `Read` returns the standard output.
pub(super) struct GitProcess<'u> {
    /// Process id and process group. The id cannot be reused before the process is reaped on drop.
    group: Pid,
    stdout: ChildStdout,
    stderr: Option<ChildStderr>,
    stderr_bytes: Vec<u8>,
    unwanted: &'u CancelFlag,
    /// Reason that reading was abandoned.
    given_up: Option<DeployError>,
    is_over: bool,
}

impl<'u> GitProcess<'u> {
    /// Starts git with the tree of a commit as a tar on standard output.
    pub(super) fn begin(
        git: &GitRepository,
        commit: &str,
        unwanted: &'u CancelFlag,
    ) -> Result<GitProcess<'u>, DeployError> {
        let from = GitSource::Objects {
            sha256: commit.len() == SHA256_DIGITS,
        };
        let arguments = ["archive", "--format=tar", commit];
        GitProcess::start(git, from, &arguments, unwanted)
    }

    fn start(
        git: &GitRepository,
        from: GitSource,
        arguments: &[&str],
        unwanted: &'u CancelFlag,
    ) -> Result<GitProcess<'u>, DeployError> {
        let mut command = git.command(&from);
        let child = command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A process group of its own, so that all descendants can be killed.
            .process_group(0)
            .spawn();
        let failed = |error: io::Error| DeployError::new(format!("cannot run git: {error}"));
        let mut child = child.map_err(failed)?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(failed(io::ErrorKind::BrokenPipe.into()));
        };
        let archive = GitProcess {
            group: Pid::from_child(&child),
            stdout,
            stderr: Some(stderr),
            stderr_bytes: Vec::new(),
            unwanted,
            given_up: None,
            is_over: false,
        };
        archive.bound().map_err(failed)?;
        Ok(archive)
    }

    /// Makes standard error non-blocking, and bounds the memory of the process.
    fn bound(&self) -> io::Result<()> {
        if let Some(stderr) = &self.stderr {
            rustix::io::ioctl_fionbio(stderr, true)?;
        }
        bound_memory(self.group, DEPLOY_MEMORY_BYTES)
    }

    /// Waits for standard output. Fails on cancellation and after `DEPLOY_SILENT_SECONDS` without output.
    fn wait(&mut self) -> io::Result<()> {
        let until = Instant::now() + Duration::from_secs(DEPLOY_SILENT_SECONDS);
        loop {
            if self.unwanted.load(Ordering::Relaxed) {
                return Err(self.give_up(DeployError::unwanted()));
            }
            if Instant::now() >= until {
                let what = format!("git sent no output for {DEPLOY_SILENT_SECONDS} s");
                return Err(self.give_up(DeployError::new(what)));
            }
            let mut all = vec![PollFd::from_borrowed_fd(self.stdout.as_fd(), PollFlags::IN)];
            let stderr = self.stderr.as_ref().map(AsFd::as_fd);
            all.extend(stderr.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            match poll(&mut all, Some(&CANCEL_POLL_INTERVAL)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let has_output = !all[0].revents().is_empty();
            let has_stderr = all.get(1).is_some_and(|fd| !fd.revents().is_empty());
            drop(all);
            if has_stderr {
                self.read_stderr();
            }
            if has_output {
                return Ok(());
            }
        }
    }

    /// Reads standard error, and keeps the beginning.
    fn read_stderr(&mut self) {
        let mut piece = [0; 1_024];
        while let Some(stderr) = &mut self.stderr {
            match stderr.read(&mut piece) {
                Ok(0) => self.stderr = None,
                Ok(read) => {
                    let room = DEPLOY_STDERR_BYTES_MAX.saturating_sub(self.stderr_bytes.len());
                    self.stderr_bytes
                        .extend_from_slice(&piece[..read.min(room)]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.stderr = None,
            }
        }
    }

    fn give_up(&mut self, why: DeployError) -> io::Error {
        self.given_up = Some(why.clone());
        io::Error::other(why)
    }

    /// Ends the process. Returns an error if reading was abandoned or git failed. A process killed because
    /// the caller stopped reading is no error.
    pub(super) fn end(mut self) -> Result<(), DeployError> {
        if let Some(why) = self.given_up.take() {
            return Err(why);
        }
        if !self.is_over {
            // The caller stopped reading because of another error, and reports the other error.
            return Ok(());
        }
        let status = self.status();
        self.read_stderr();
        let output = String::from_utf8_lossy(&self.stderr_bytes).into_owned();
        let line = output.lines().find(|line| !line.trim().is_empty());
        match (status, line) {
            (Ok(Some(status)), _) if status.exit_status() == Some(0) => Ok(()),
            (Ok(_), Some(line)) => Err(DeployError::of_git(line)),
            (Ok(Some(status)), None) => Err(DeployError::new(exit_text(&status))),
            (Ok(None), None) => Err(DeployError::new("git did not exit")),
            (Err(error), _) => Err(DeployError::new(format!("git: {error}"))),
        }
    }

    /// Returns the exit status. git exits soon after closing standard output, and the standard library has
    /// no wait with a deadline, so the status is polled. WNOWAIT keeps the process id valid for the signal
    /// to the process group.
    fn status(&self) -> io::Result<Option<WaitIdStatus>> {
        let until = Instant::now() + Duration::from_secs(DEPLOY_SILENT_SECONDS);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        loop {
            match waitid(WaitId::Pid(self.group), options)? {
                None if Instant::now() < until => std::thread::sleep(EXIT_POLL_INTERVAL),
                status => return Ok(status),
            }
        }
    }
}

fn exit_text(status: &WaitIdStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("git exited with status {code}"),
        (None, Some(signal)) => format!("git was killed by signal {signal}"),
        (None, None) => "git exited".to_owned(),
    }
}

impl Read for GitProcess<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait()?;
        let read = self.stdout.read(buffer)?;
        self.is_over |= read == 0 && !buffer.is_empty();
        Ok(read)
    }
}

impl Drop for GitProcess<'_> {
    /// Kills all remaining processes of the group, whether git has exited or not.
    fn drop(&mut self) {
        let _ = kill_process_group(self.group, Signal::KILL);
        let until = Instant::now() + Duration::from_secs(DEPLOY_CLEANUP_SECONDS_MAX);
        // The process is a child. Orphans of the group become children too if the server is PID 1, as in a
        // container.
        loop {
            match waitpgid(self.group, WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) if Instant::now() < until => std::thread::sleep(EXIT_POLL_INTERVAL),
                // A process that survives SIGKILL waits in the kernel. Further deployments must not wait
                // for the process.
                Ok(None) => {
                    let group = self.group.as_raw_nonzero();
                    return log::warn!("processes of git's process group {group} do not exit");
                }
                Err(_) => return,
            }
        }
    }
}

/// Fixed environment variables of git. No variable of the server's own environment is passed on.
const ENVIRONMENT: [(&str, &str); 8] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_TERMINAL_PROMPT", "0"),
    // The name of a commit determines the content, so replaced objects are ignored.
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    // Missing objects are not fetched. Older versions, without the variable, have no allowed protocol.
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_ALLOW_PROTOCOL", "none"),
];

/// Settings that override the configuration of the repository.
const CONFIG: [(&str, &str); 10] = [
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.attributesFile", "/dev/null"),
    // Larger files are streamed.
    ("core.bigFileThreshold", "16m"),
    ("core.deltaBaseCacheLimit", "32m"),
    // `$Format:%G?$` in a file would verify a signature with a program that writes to a home directory.
    ("gpg.program", "/bin/false"),
    ("gpg.openpgp.program", "/bin/false"),
    ("gpg.x509.program", "/bin/false"),
    ("gpg.ssh.program", "/bin/false"),
    ("protocol.allow", "never"),
];

/// Interval of checks for cancellation.
const CANCEL_POLL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(2);
