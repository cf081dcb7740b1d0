//! CGI (RFC 3875): scripts of a folder, or scripts of a site selected by extension, with one process per
//! request.
//!
//! The first component of the path that is a file is the script, and the rest of the path is PATH_INFO. The
//! rules of a site apply: hidden names are not found, and links must not lead out of the folder. A file
//! that cannot be executed is refused; the file's content is never sent.

use crate::handler::call::process::{FindProcessFn, ProcessRunner, ProcessSpec, search_path};
use crate::handler::call::request::{ScriptLocation, ScriptRequest};
use crate::handler::call::script_call::{CallLimits, split_request};
use crate::handler::{
    Handler, HandlerError, HandlerPlan, LocalBoxFuture, Request, Response, Script, check_access,
};
use crate::site::{SecretPaths, SiteRoot, hidden};
use base::sys::ResourceLimits;
use release::glob::Glob;
use rustix::fs::{FileType, fstat};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use wire::cgi::Environment;
use wire::h1::body_decoder::BodyLength;
use wire::reject::Reject;

/// Handler of the scripts of a folder.
pub struct CgiHandler {
    settings: Arc<CgiSettings>,
}

/// Settings of all scripts of a folder.
pub struct CgiSettings {
    /// Runner of the script processes.
    pub programs: Arc<ProcessRunner>,
    /// Limits of a call.
    pub bounds: CallLimits,
    /// Folder of the scripts.
    pub root: SiteRoot,
    /// Path of the folder on the site, without a slash at its end.
    pub prefix: Box<[u8]>,
    /// Folder with the site's files.
    pub document_root: PathBuf,
    /// Extensions, each with the interpreter of its files. A file without a listed extension is executed
    /// directly.
    pub interpreters: Vec<(String, PathBuf)>,
    /// Variables in addition to the variables of the request.
    pub variables: Vec<(String, String)>,
    /// Secret files of the server, never executed.
    pub secrets: SecretPaths,
    /// Files and folders that count as missing.
    pub hide: Vec<Glob>,
    /// True if some scripts have guards apart from the folder's guards. A link to a guarded script does not
    /// bypass the guards.
    pub is_guarded: bool,
}

/// A script found for a path.
struct ScriptMatch {
    /// Path of the file below the folder.
    file: Vec<u8>,
    path_info: Vec<u8>,
}

/// Location of a script.
struct ScriptFile {
    /// Path of the file: absolute, without links.
    file: PathBuf,
    /// Paths on the site to check against guards, with PATH_INFO. Empty if the file lies outside of the
    /// folder.
    guarded_paths: Vec<Vec<u8>>,
}

impl CgiHandler {
    /// Creates the handler with `settings`.
    pub fn new(settings: CgiSettings) -> CgiHandler {
        CgiHandler {
            settings: Arc::new(settings),
        }
    }
}

impl Handler for CgiHandler {
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        Box::pin(run(Arc::clone(&self.settings), Box::new(request)))
    }

    fn plan(&self, request: &Request) -> HandlerPlan {
        let settings = &self.settings;
        let found = settings.found(request.target_path(), request.script.clone());
        let found = match found.and_then(|found| settings.real(&found).map(|_| found)) {
            Ok(found) => found,
            Err(error) => {
                return HandlerPlan {
                    refusal: Some(error.reject),
                    ..HandlerPlan::default()
                };
            }
        };
        let file = settings.root.path().join(OsStr::from_bytes(&found.file));
        let mut runs = file.display().to_string();
        if let Some(program) = settings.interpreter(&found.file) {
            runs = format!("{} {runs}", program.display());
        }
        let path_info = String::from_utf8_lossy(&found.path_info);
        HandlerPlan {
            lines: vec![("runs", runs), ("", format!("PATH_INFO {path_info}"))],
            ..HandlerPlan::default()
        }
    }

    fn accepts_any_method(&self) -> bool {
        true
    }
}

async fn run(
    settings: Arc<CgiSettings>,
    mut request: Box<Request>,
) -> Result<Response, HandlerError> {
    let (programs, bounds) = (Arc::clone(&settings.programs), settings.bounds.clone());
    let script = request.script.take();
    let mut admitted = None;
    // For a script of a site, dispatch has already checked the guards.
    if settings.is_guarded && script.is_none() {
        let (path, looking) = (request.target_path().to_vec(), Arc::clone(&settings));
        let located = programs.look(move || looking.located(&path)).await?;
        let admission = check_access(&request, located.guarded_paths).await?;
        request.record_admission(admission);
        admitted = Some(located.file);
    } else if request.length == BodyLength::Chunked {
        // The body may be spooled to the disk, but not for a missing script.
        let (path, script) = (request.target_path().to_vec(), script.clone());
        let settings = Arc::clone(&settings);
        let look = move || settings.found(&path, script).map(drop);
        programs.look(look).await?;
    }
    let (request, local) = split_request(request, &settings.bounds).await?;
    let find: FindProcessFn =
        Box::new(move |request| settings.process_spec(request, script, admitted));
    programs.run(Arc::new(request), local, bounds, find).await
}

impl CgiSettings {
    /// Returns the process for a request. Blocks on disk access. If guards were checked for the file
    /// `admitted`, the script must still be the file `admitted`.
    fn process_spec(
        &self,
        request: &ScriptRequest,
        script: Option<Script>,
        admitted: Option<PathBuf>,
    ) -> Result<ProcessSpec, HandlerError> {
        let refused = |reject| HandlerError::new("script", reject);
        let found = self.found(&request.path, script)?;
        let real = self.real(&found)?;
        if admitted.is_some_and(|admitted| admitted != real) {
            return Err(refused(Reject::CHANGING));
        }
        let file = self.root.path().join(OsStr::from_bytes(&found.file));
        let variables = self.variables(request, &found, &file);
        let folder = file.parent().unwrap_or(Path::new("/")).to_owned();
        let c_string = |path: PathBuf| {
            let string = CString::new(path.into_os_string().into_vec());
            string.map_err(|_| refused(Reject::NOT_FOUND))
        };
        let interpreter = self.interpreter(&found.file);
        let mut arguments = Vec::new();
        for part in interpreter.into_iter().chain([file.as_path()]) {
            arguments.extend_from_slice(part.as_os_str().as_bytes());
            arguments.push(0);
        }
        let program = interpreter.map_or(file, Path::to_owned);
        Ok(ProcessSpec {
            file: c_string(program)?,
            arguments,
            variables,
            folder: c_string(folder)?,
            grace: Duration::ZERO,
            limits: ResourceLimits::default(),
        })
    }

    /// Returns the script for `path`. Blocks on disk access.
    fn found(&self, path: &[u8], script: Option<Script>) -> Result<ScriptMatch, HandlerError> {
        let found = match script {
            Some(script) => self.of_site(script),
            None => self.find(path.strip_prefix(&*self.prefix).unwrap_or_default()),
        };
        found.map_err(|reject| HandlerError::new("script", reject))
    }

    /// Returns the path of the file without links.
    fn real(&self, found: &ScriptMatch) -> Result<PathBuf, HandlerError> {
        let real = self.secrets.check(&self.root, &found.file);
        real.map_err(|why| HandlerError::new("script", why.reject()))
    }

    /// Returns the script for `path`, with the paths to check against guards. Blocks on disk access.
    fn located(&self, path: &[u8]) -> Result<ScriptFile, HandlerError> {
        let found = self.found(path, None)?;
        let file = self.real(&found)?;
        let below = self.root.below(&file);
        let on_site = |below: &[u8]| [&*self.prefix, b"/", below, &found.path_info].concat();
        Ok(ScriptFile {
            guarded_paths: below.map(on_site).into_iter().collect(),
            file,
        })
    }

    fn interpreter(&self, file: &[u8]) -> Option<&Path> {
        let mut all = self.interpreters.iter();
        let (_, program) = all.find(|(ending, _)| has_ending(file, ending))?;
        Some(program)
    }

    fn variables(&self, request: &ScriptRequest, found: &ScriptMatch, file: &Path) -> Environment {
        let name = [&*self.prefix, b"/", &found.file].concat();
        let location = ScriptLocation {
            name: &name,
            path_info: &found.path_info,
            file: file.as_os_str().as_bytes(),
            root: self.document_root.as_os_str().as_bytes(),
        };
        let mut variables = request.with_meta(&location, Environment::of);
        variables.push("PATH", search_path().as_bytes());
        for (name, value) in &self.variables {
            variables.set(name, value.as_bytes());
        }
        variables
    }

    /// Returns the script for `path`: the first component that is a file.
    fn find(&self, path: &[u8]) -> Result<ScriptMatch, Reject> {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let mut end = 0;
        for name in path.split(|byte| *byte == b'/') {
            if hidden(name) {
                return Err(Reject::DOTFILE);
            }
            if name.is_empty() {
                break;
            }
            end += name.len();
            if self.hide.iter().any(|glob| glob.matches(&path[..end])) {
                return Err(Reject::HIDDEN);
            }
            if self.is_file(&path[..end])? {
                return Ok(ScriptMatch {
                    file: path[..end].to_vec(),
                    path_info: path[end..].to_vec(),
                });
            }
            end += 1;
        }
        Err(Reject::NOT_FOUND)
    }

    fn of_site(&self, script: Script) -> Result<ScriptMatch, Reject> {
        let file = script.name.strip_prefix(b"/").unwrap_or(&script.name);
        if self.is_file(file)? {
            Ok(ScriptMatch {
                file: file.to_vec(),
                path_info: script.path_info,
            })
        } else {
            Err(Reject::NOT_FOUND)
        }
    }

    /// Returns true for a regular file and false for a folder.
    fn is_file(&self, path: &[u8]) -> Result<bool, Reject> {
        let seen = self.root.open_handle(path).map_err(|why| why.reject())?;
        let status = fstat(&seen).map_err(|_| Reject::UNREADABLE)?;
        match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => Ok(true),
            FileType::Directory => Ok(false),
            _ => Err(Reject::NOT_FOUND),
        }
    }
}

/// Returns true if `name` ends with `ending`, ignoring case. Case is ignored because the source of `A.PHP`
/// must not be sent where `.php` is executed.
pub fn has_ending(name: &[u8], ending: &str) -> bool {
    let start = name.len().checked_sub(ending.len());
    start.is_some_and(|start| name[start..].eq_ignore_ascii_case(ending.as_bytes()))
}
