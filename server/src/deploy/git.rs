//! git subprocesses: read the tip of a branch, and the tree of a commit as a tar archive.
//!
//! git runs in an environment without prompts, fetches, or replaced objects. A tree is read in a sandbox
//! repository that borrows the objects of the deployed repository, so that no filter or program configured
//! in the deployed repository runs. A silent or no longer wanted process is killed.

use crate::deploy::error::DeployError;
use crate::deploy::limits::{
    DEPLOY_CLEANUP_SECONDS_MAX, DEPLOY_MEMORY_BYTES, DEPLOY_SILENT_SECONDS, DEPLOY_STDERR_BYTES_MAX,
};
use crate::git::sandbox_repository;
use base::sys::{self, ResourceLimits, SpawnOptions};
use data_plane::handler::call::process::search_path;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, kill_process_group, waitid,
    waitpgid,
};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wire::cgi::Environment;

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

    /// Returns the working directory of git and the environment with the configuration for `source`.
    fn surroundings(&self, source: &GitSource) -> (PathBuf, Environment) {
        let mut variables = Environment::default();
        for (name, value) in ENVIRONMENT {
            variables.push(name, value.as_bytes());
        }
        let folder = match source {
            // The configured work tree has no influence on refs, so GIT_WORK_TREE replaces the setting.
            GitSource::Refs => {
                variables.push("PATH", search_path().as_bytes());
                push_path(&mut variables, "GIT_WORK_TREE", &self.folder);
                self.folder.clone()
            }
            GitSource::Objects { sha256 } => self.borrow_objects(&mut variables, *sha256),
        };
        push_path(&mut variables, "GIT_DIR", &folder);
        // A repository named in the configuration is trusted, regardless of the owner.
        let safe = [self.folder.as_os_str().as_bytes(), b"."].map(|it| ("safe.directory", it));
        let fixed = CONFIG.map(|(key, value)| (key, value.as_bytes()));
        let count = safe.len() + fixed.len();
        variables.push("GIT_CONFIG_COUNT", count.to_string().as_bytes());
        for (nth, (key, value)) in safe.into_iter().chain(fixed).enumerate() {
            variables.push(&format!("GIT_CONFIG_KEY_{nth}"), key.as_bytes());
            variables.push(&format!("GIT_CONFIG_VALUE_{nth}"), value);
        }
        (folder, variables)
    }

    /// Adds the variables for a sandbox repository. Returns the repository's folder.
    fn borrow_objects(&self, variables: &mut Environment, sha256: bool) -> PathBuf {
        let own = sandbox_repository::folder(&self.bare, sha256);
        // git finds the commands of git without PATH. With a PATH that holds no programs, older versions of git
        // that ignore `gpg.program` cannot run gpg either.
        push_path(variables, "PATH", &own);
        let shallow = self.folder.join("shallow");
        if shallow.is_file() {
            push_path(variables, "GIT_SHALLOW_FILE", &shallow);
        }
        push_path(
            variables,
            "GIT_OBJECT_DIRECTORY",
            &self.folder.join("objects"),
        );
        own
    }
}

fn push_path(variables: &mut Environment, name: &str, path: &Path) {
    variables.push(name, path.as_os_str().as_bytes());
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
    stdout: PipeReader,
    stderr: Option<PipeReader>,
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
        let failed = |error: io::Error| DeployError::new(format!("cannot run git: {error}"));
        let (group, stdout, stderr) = spawn(git, &from, arguments).map_err(failed)?;
        Ok(GitProcess {
            group,
            stdout,
            stderr: Some(stderr),
            stderr_bytes: Vec::new(),
            unwanted,
            given_up: None,
            is_over: false,
        })
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

/// Starts git in a process group of its own, so that all descendants can be killed, and with bounded memory. Returns
/// the group, the standard output, and the standard error, which is non-blocking.
fn spawn(
    git: &GitRepository,
    source: &GitSource,
    arguments: &[&str],
) -> io::Result<(Pid, PipeReader, PipeReader)> {
    let (folder, variables) = git.surroundings(source);
    let mut words = b"git\0".to_vec();
    for argument in arguments {
        words.extend_from_slice(argument.as_bytes());
        words.push(0);
    }
    let null = File::open("/dev/null")?;
    let (stdout, git_stdout) = io::pipe()?;
    let (stderr, git_stderr) = io::pipe()?;
    rustix::io::ioctl_fionbio(&stderr, true)?;
    let group = sys::spawn(&SpawnOptions {
        file: &CString::new(git.program.as_os_str().as_bytes())?,
        arguments: &words,
        variables: variables.as_bytes(),
        folder: &CString::new(folder.into_os_string().into_vec())?,
        standard: [null.as_fd(), git_stdout.as_fd(), git_stderr.as_fd()],
        limits: ResourceLimits {
            memory_bytes: Some(DEPLOY_MEMORY_BYTES),
            processor_seconds: None,
        },
    })?;
    Ok((group, stdout, stderr))
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
