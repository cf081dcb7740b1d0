//! Folders, stores and runs of `anthill-publish`.

// Not every test needs every function.
#![allow(dead_code)]

use release::store::{Publication, SiteRecords, StoreFolder, release_contents, verify_content};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Folder with a site to publish (`site`) and a store (`store`).
pub(crate) struct Site(TempDir);

impl Site {
    pub(crate) fn new() -> Site {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join("site")).expect("a folder");
        Site(folder)
    }

    /// Returns a path below the temporary folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn source(&self) -> PathBuf {
        self.path("site")
    }

    /// Writes a file of the site.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.source().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    /// Starts a publication of the site.
    pub(crate) fn start(&self, options: &[&str]) -> Child {
        let mut command = program("publish");
        command
            .args(options)
            .args([self.source(), self.path("store")]);
        piped(&mut command).spawn().expect("anthill-publish")
    }

    /// Publishes the site.
    pub(crate) fn publish(&self, options: &[&str]) -> Done {
        finish(self.start(options))
    }

    /// Publishes the site, and fails the test if the publication fails.
    pub(crate) fn publish_well(&self) {
        let done = self.publish(&[]);
        assert_eq!(done.code, Some(0), "{done:?}");
    }

    /// Runs `anthill WORD STORE ARGUMENTS`.
    pub(crate) fn command(&self, word: &str, arguments: &[&str]) -> Done {
        let mut command = program(word);
        command.arg(self.path("store")).args(arguments);
        run(command)
    }

    /// Runs `anthill WORD ARGUMENTS`.
    pub(crate) fn command_at(&self, word: &str, arguments: &[&str]) -> Done {
        let mut command = program(word);
        command.args(arguments);
        run(command)
    }

    /// Runs `anthill releases ACTION STORE ARGUMENTS`.
    pub(crate) fn act(&self, action: &str, arguments: &[&str]) -> Done {
        let mut command = program("releases");
        command.arg(action).arg(self.path("store")).args(arguments);
        run(command)
    }

    /// Opens the store for reading.
    pub(crate) fn store(&self) -> StoreFolder {
        StoreFolder::open(&self.path("store")).expect("a store")
    }

    /// Returns the served publication.
    pub(crate) fn served(&self) -> Option<Publication> {
        let records = SiteRecords::read(&self.store(), "www").expect("records");
        records.served().cloned()
    }

    /// Asserts that all contents of the served release have their digests.
    pub(crate) fn assert_whole(&self) {
        let store = self.store();
        let served = self.served().expect("a release");
        for content in release_contents(&store, &served.pointer.release).expect("contents") {
            verify_content(&store, &content).expect("a whole content");
        }
    }

    /// Returns the paths of the files of the store with their sizes, sorted.
    pub(crate) fn store_files(&self) -> Vec<(PathBuf, u64)> {
        let mut files = Vec::new();
        collect(&self.path("store"), &mut files);
        files.sort();
        files
    }
}

fn collect(folder: &Path, files: &mut Vec<(PathBuf, u64)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let metadata = fs::symlink_metadata(&path).expect("a file");
        if metadata.is_dir() {
            collect(&path, files)
        } else {
            files.push((path, metadata.len()))
        }
    }
}

/// Result of a program.
#[derive(Debug)]
pub(crate) struct Done {
    /// Exit status; None if a signal ended the program.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

pub(crate) fn program(word: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anthill-publish"));
    command.arg(word);
    command
}

fn piped(command: &mut Command) -> &mut Command {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
}

/// Runs a program until its end.
pub(crate) fn run(mut command: Command) -> Done {
    let child = piped(&mut command).spawn();
    finish(child.unwrap_or_else(|error| panic!("{command:?}: {error}")))
}

/// Waits for the end of a program.
pub(crate) fn finish(child: Child) -> Done {
    let output = child.wait_with_output().expect("the output of a program");
    Done {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Waits until a process waits for a lock of a file.
pub(crate) fn wait_for_lock(process: u32) {
    let process = process.to_string();
    for _ in 0..60_000 {
        let locks = fs::read_to_string("/proc/locks").expect("the locks");
        let mut waiting = locks.lines().filter(|line| line.contains(" -> FLOCK"));
        if waiting.any(|line| line.split_whitespace().any(|word| word == process)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the process {process} waits for no lock");
}

/// Returns the path of a program of the system.
pub(crate) fn tool(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    let mut places = folders.map(|folder| folder.join(name));
    let found = places.find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("{name} is not installed: tools/setup.sh installs the package"))
}
