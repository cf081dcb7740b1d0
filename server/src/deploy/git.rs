//! git, asked for the tip of a branch and for the tree of a commit.
//!
//! It gets an environment of its own, with nothing that would ask, fetch or replace. A tree is read in a
//! repository of ours that borrows the other's objects, so that no filter or program which that one names
//! is run. One that falls silent, or that nobody waits for any more, is ended.

use crate::deploy::{CancelFlag, DeployError};
use crate::handler::call::process::{bound_memory, search_path};
use crate::handler::git::sandbox_repository;
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
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// git and a repository.
pub(super) struct GitRepository {
    program: PathBuf,
    /// Where its own files are.
    folder: PathBuf,
    /// Where our own repositories without objects are.
    bare: PathBuf,
}

/// Where git reads.
enum GitSource {
    /// The repository: its refs.
    Refs,
    /// Its objects, which have such names.
    Objects { sha256: bool },
}

impl GitRepository {
    /// With the folder of our own repositories, which are made if they aren't there.
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

    /// The commit that a branch stands at; None if there is no such branch.
    pub(super) fn tip(
        &self,
        branch: &str,
        unwanted: &CancelFlag,
    ) -> Result<Option<String>, DeployError> {
        let name = format!("refs/heads/{branch}");
        let format = "--format=%(refname) %(objecttype) %(objectname)";
        let arguments = ["for-each-ref", format, &name];
        let mut running = GitProcess::start(self, GitSource::Refs, &arguments, unwanted)?;
        let mut said = String::new();
        let read = (&mut running).take(TIP_BYTES_MAX).read_to_string(&mut said);
        running.end()?;
        read.map_err(|error| DeployError::new(format!("git: {error}")))?;
        let found = said.lines().find_map(|line| {
            let rest = line.strip_prefix(&name)?.strip_prefix(" commit ")?;
            let is_id =
                matches!(rest.len(), 40 | 64) && rest.bytes().all(|b| b.is_ascii_hexdigit());
            is_id.then(|| rest.to_owned())
        });
        Ok(found)
    }

    /// git, as it is run for us.
    fn command(&self, from: &GitSource) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear().env("PATH", search_path());
        command.envs(ENVIRONMENT);
        match from {
            // Where its files were checked out to, if anywhere, says nothing of a branch.
            GitSource::Refs => command
                .env("GIT_DIR", &self.folder)
                .env("GIT_WORK_TREE", &self.folder)
                .current_dir(&self.folder),
            GitSource::Objects { sha256 } => self.borrowing(&mut command, *sha256),
        };
        // Whoever named the repository trusts it, whoever it belongs to.
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
        // It finds its own parts all the same, and nothing else: that `gpg.program` isn't to be run, older
        // versions don't read here.
        command.env("PATH", &own);
        let shallow = self.folder.join("shallow");
        if shallow.is_file() {
            command.env("GIT_SHALLOW_FILE", shallow);
        }
        command.env("GIT_OBJECT_DIRECTORY", self.folder.join("objects"))
    }
}

/// The length of the longer names of objects.
const SHA256_DIGITS: usize = 64;
/// Branches whose names begin with the whole name of another one can't be, so one line comes.
const TIP_BYTES_MAX: u64 = 64 * 1024;

/// git at work; what it says is read from it.
pub(super) struct GitProcess<'u> {
    /// Its number, which nobody else has before it is waited for: when this is dropped.
    group: Pid,
    stdout: ChildStdout,
    stderr: Option<ChildStderr>,
    complaint: Vec<u8>,
    unwanted: &'u CancelFlag,
    /// Why reading was given up.
    given_up: Option<DeployError>,
    is_over: bool,
}

impl<'u> GitProcess<'u> {
    /// The tree of a commit, as a tar.
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
            // All that it starts can be ended with it.
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
            complaint: Vec::new(),
            unwanted,
            given_up: None,
            is_over: false,
        };
        archive.bound().map_err(failed)?;
        Ok(archive)
    }

    /// What it says is read as it comes, and what it may take is little.
    fn bound(&self) -> io::Result<()> {
        if let Some(stderr) = &self.stderr {
            rustix::io::ioctl_fionbio(stderr, true)?;
        }
        bound_memory(self.group, DEPLOY_MEMORY_BYTES)
    }

    /// Waits until it says more.
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
            match poll(&mut all, Some(&LOOK_AGAIN)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let has_output = !all[0].revents().is_empty();
            let complains = all.get(1).is_some_and(|fd| !fd.revents().is_empty());
            drop(all);
            if complains {
                self.listen();
            }
            if has_output {
                return Ok(());
            }
        }
    }

    /// Reads what it complains of, and keeps the beginning.
    fn listen(&mut self) {
        let mut piece = [0; 1_024];
        while let Some(stderr) = &mut self.stderr {
            match stderr.read(&mut piece) {
                Ok(0) => self.stderr = None,
                Ok(read) => {
                    let room = DEPLOY_STDERR_BYTES_MAX.saturating_sub(self.complaint.len());
                    self.complaint.extend_from_slice(&piece[..read.min(room)]);
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

    /// Ends it. Errors: it was given up, or failed by itself; not that it was cut off because nobody
    /// read on.
    pub(super) fn end(mut self) -> Result<(), DeployError> {
        if let Some(why) = self.given_up.take() {
            return Err(why);
        }
        if !self.is_over {
            // Who reads has found something wrong; that is what is to be told.
            return Ok(());
        }
        let status = self.status();
        self.listen();
        let said = String::from_utf8_lossy(&self.complaint).into_owned();
        let line = said.lines().find(|line| !line.trim().is_empty());
        match (status, line) {
            (Ok(Some(status)), _) if status.exit_status() == Some(0) => Ok(()),
            (Ok(_), Some(line)) => Err(DeployError::of_git(line)),
            (Ok(Some(status)), None) => Err(DeployError::new(ended(&status))),
            (Ok(None), None) => Err(DeployError::new("git did not exit")),
            (Err(error), _) => Err(DeployError::new(format!("git: {error}"))),
        }
    }

    /// How it ended, which it does once it has closed its output; there is no waiting for a child
    /// with a deadline. It keeps its number, so that its group can be ended by it.
    fn status(&self) -> io::Result<Option<WaitIdStatus>> {
        let until = Instant::now() + Duration::from_secs(DEPLOY_SILENT_SECONDS);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        loop {
            match waitid(WaitId::Pid(self.group), options)? {
                None if Instant::now() < until => std::thread::sleep(ENDS_SOON),
                status => return Ok(status),
            }
        }
    }
}

fn ended(status: &WaitIdStatus) -> String {
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
    /// All that is left of its group is ended, whether it has ended itself or not.
    fn drop(&mut self) {
        let _ = kill_process_group(self.group, Signal::KILL);
        let until = Instant::now() + Duration::from_secs(DEPLOY_CLEANUP_SECONDS_MAX);
        // It is our child, and so are its orphans where we are the first process, as in a container.
        loop {
            match waitpgid(self.group, WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) if Instant::now() < until => std::thread::sleep(ENDS_SOON),
                // What even this doesn't end is in the kernel's hands: others aren't held up for it.
                Ok(None) => {
                    let group = self.group.as_raw_nonzero();
                    return log::warn!("processes of git's process group {group} do not exit");
                }
                Err(_) => return,
            }
        }
    }
}

/// Nothing else reaches git.
const ENVIRONMENT: [(&str, &str); 8] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_TERMINAL_PROMPT", "0"),
    // What a commit is, its name says.
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    // What isn't there isn't asked for; older versions have nobody to ask.
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_ALLOW_PROTOCOL", "none"),
];

/// Settings of git that hold whatever a repository says.
const CONFIG: [(&str, &str); 10] = [
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.attributesFile", "/dev/null"),
    // Larger files go through it piece by piece.
    ("core.bigFileThreshold", "16m"),
    ("core.deltaBaseCacheLimit", "32m"),
    // `$Format:%G?$` in a file would have a signature checked, by a program that writes to a home.
    ("gpg.program", "/bin/false"),
    ("gpg.openpgp.program", "/bin/false"),
    ("gpg.x509.program", "/bin/false"),
    ("gpg.ssh.program", "/bin/false"),
    ("protocol.allow", "never"),
];

/// So often it is looked whether anybody still wants it.
const LOOK_AGAIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};
const ENDS_SOON: Duration = Duration::from_millis(2);
