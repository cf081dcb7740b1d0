//! Execution of git for pages. Commits and their contents are read in the server's own repository, which
//! uses only the objects of the requested repository. No configuration, hook, filter, driver or remote of
//! the requested repository can then make git run a program or contact a server. Only refs are read in the
//! requested repository, by a command that runs no program.

use crate::git::browse::locate::Repository;
use crate::git::browse::url::ObjectId;
use crate::git::limits;
use crate::git::repository::GitSettings;
use crate::git::sandbox_repository;
use base::sys::ResourceLimits;
use data_plane::handler::HandlerError;
use data_plane::handler::call::body::request_body::RequestBody;
use data_plane::handler::call::process::{ProcessSpec, ProcessTransport, search_path};
use data_plane::handler::call::request::ScriptRequest;
use data_plane::handler::call::script_call::{CallLimits, CollectedOutput, ScriptCall};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use wire::cgi::Environment;
use wire::reject::Reject;

/// Arguments of git, each terminated by NUL.
pub(crate) struct GitCommand(Vec<u8>);

impl GitCommand {
    /// Creates a git command with the arguments.
    pub(crate) fn new(arguments: &[&str]) -> GitCommand {
        let mut command = GitCommand(b"git\0".to_vec());
        for argument in arguments {
            command = command.with(argument.as_bytes());
        }
        command
    }

    /// Appends an argument. Client input is either the full name of an object, the name of a ref below
    /// `refs/`, the value of an option behind `=`, or placed behind `--`, and so cannot act as an option.
    pub(crate) fn with(mut self, argument: &[u8]) -> GitCommand {
        self.0.extend_from_slice(argument);
        self.0.push(0);
        self
    }
}

/// Part of the repository that git reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GitSource {
    /// The repository with its refs.
    Refs,
    /// The objects, with names of the given hash.
    Objects {
        /// SHA-256 instead of SHA-1.
        sha256: bool,
    },
}

impl GitSource {
    /// Returns the object source with the hash of `id`.
    pub(crate) fn objects_of(id: &ObjectId) -> GitSource {
        GitSource::Objects {
            sha256: id.is_sha256(),
        }
    }
}

/// Use of git's output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OutputUse {
    /// A page or a part of a page, of at most the given number of bytes.
    Page(usize),
    /// A file sent to the client.
    File,
    /// An archive sent to the client.
    Snapshot,
}

/// Runner of git for one request.
pub(crate) struct GitRunner {
    /// Settings of the route.
    pub settings: Arc<GitSettings>,
    /// The client's request.
    pub request: Arc<ScriptRequest>,
    /// The repository to read.
    pub repository: Repository,
    /// Directory of the server's own repositories without objects.
    pub sandbox: PathBuf,
    /// The git program.
    pub git: PathBuf,
}

impl GitRunner {
    /// Runs git and returns at most `bytes_max` bytes of output. Fails if git does not exit successfully.
    pub(crate) async fn collect(
        &self,
        from: GitSource,
        command: GitCommand,
        input: Vec<u8>,
        bytes_max: usize,
    ) -> Result<CollectedOutput, HandlerError> {
        let call = self.start(from, command, input, OutputUse::Page(bytes_max));
        let call = call.await?;
        call.collect(bytes_max).await
    }

    /// Starts git and returns the call in progress.
    pub(crate) async fn start(
        &self,
        from: GitSource,
        command: GitCommand,
        input: Vec<u8>,
        output_use: OutputUse,
    ) -> Result<Box<ScriptCall<ProcessTransport>>, HandlerError> {
        let (total, held_bytes) = match output_use {
            OutputUse::Page(bytes) => (Duration::from_secs(limits::GIT_PAGE_SECONDS), bytes),
            // The time limit allows for a slow client.
            OutputUse::File => (self.settings.bounds.total, limits::GIT_STREAM_BUFFER_BYTES),
            OutputUse::Snapshot => (
                Duration::from_secs(limits::GIT_SNAPSHOT_SECONDS),
                limits::GIT_STREAM_BUFFER_BYTES,
            ),
        };
        let bounds = CallLimits {
            total,
            held_bytes,
            ..self.settings.bounds.clone()
        };
        let body = (!input.is_empty()).then_some(RequestBody {
            first_part: input,
            reservation: None,
            rest: None,
            trailers: None,
        });
        let process = self.process(from, command)?;
        let programs = &self.settings.programs;
        programs
            .start(&self.request, body, bounds, Box::new(move |_| Ok(process)))
            .await
    }

    fn process(&self, from: GitSource, command: GitCommand) -> Result<ProcessSpec, HandlerError> {
        let c_string = |path: &Path| {
            let string = CString::new(path.as_os_str().as_bytes());
            string.map_err(|_| HandlerError::new("git page", Reject::NOT_FOUND))
        };
        Ok(ProcessSpec {
            file: c_string(&self.git)?,
            arguments: command.0,
            variables: self.variables(from),
            folder: c_string(&self.repository.folder)?,
            grace: Duration::ZERO,
            limits: ResourceLimits {
                memory_bytes: Some(limits::GIT_PAGE_MEMORY_BYTES),
                processor_seconds: Some(limits::GIT_CPU_SECONDS),
            },
        })
    }

    fn variables(&self, from: GitSource) -> Environment {
        let folder = &self.repository.folder;
        let mut all = Environment::default();
        all.push("PATH", search_path().as_bytes());
        match from {
            GitSource::Refs => all.push("GIT_DIR", folder.as_os_str().as_bytes()),
            GitSource::Objects { sha256 } => {
                let sandbox = sandbox_repository::folder(&self.sandbox, sha256);
                all.push("GIT_DIR", sandbox.as_os_str().as_bytes());
                let objects = folder.join("objects");
                all.push("GIT_OBJECT_DIRECTORY", objects.as_os_str().as_bytes());
                if let Some(shallow) = &self.repository.shallow {
                    all.push("GIT_SHALLOW_FILE", shallow.as_os_str().as_bytes());
                }
            }
        }
        for (name, value) in VARIABLES {
            all.push(name, value.as_bytes());
        }
        let safe = folder.to_string_lossy();
        let config = [("safe.directory", &*safe)];
        let config = config.into_iter().chain(CONFIG);
        let count = CONFIG.len() + 1;
        all.push("GIT_CONFIG_COUNT", count.to_string().as_bytes());
        for (nth, (key, value)) in config.enumerate() {
            all.push(&format!("GIT_CONFIG_KEY_{nth}"), key.as_bytes());
            all.push(&format!("GIT_CONFIG_VALUE_{nth}"), value.as_bytes());
        }
        all
    }
}

/// Environment variables of git, apart from the location of the repository.
const VARIABLES: [(&str, &str); 12] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    // git takes no optional locks and writes nothing.
    ("GIT_OPTIONAL_LOCKS", "0"),
    // Objects missing in a partial clone are not fetched. For git versions without the variable,
    // `GIT_ALLOW_PROTOCOL` rules out every protocol.
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_TERMINAL_PROMPT", "0"),
    // Replacement refs are ignored: an object name always denotes the object itself.
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    // Paths are literal, not patterns.
    ("GIT_LITERAL_PATHSPECS", "1"),
    ("GIT_PAGER", "cat"),
    ("LC_ALL", "C"),
    ("HOME", "/nonexistent"),
];

/// Settings of git that override the configuration of the repository.
const CONFIG: [(&str, &str); 12] = [
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.attributesFile", "/dev/null"),
    ("core.quotePath", "false"),
    // Larger files are not loaded into memory for comparison.
    ("core.bigFileThreshold", "8m"),
    ("core.deltaBaseCacheLimit", "32m"),
    ("diff.renameLimit", "200"),
    ("core.commitGraph", "true"),
    // No page shows signatures; should git verify a signature, no program would be run.
    ("gpg.program", "/nonexistent"),
    ("gpg.openpgp.program", "/nonexistent"),
    ("gpg.x509.program", "/nonexistent"),
    ("gpg.ssh.program", "/nonexistent"),
];

/// Creates the server's own repositories if missing.
pub(crate) fn prepare(sandbox: &Path) -> Result<(), HandlerError> {
    sandbox_repository::prepare(sandbox).map_err(|error| {
        let why = format!(
            "{}: {error}: the server needs write access to the folder",
            sandbox.display()
        );
        HandlerError::because("git page", Reject::HANDLER_FAILED, why)
    })
}
