//! CGI (RFC 3875): scripts of a folder, or of a site by their endings, run one by one.
//!
//! A script is found by the components of the path: the first that is a file is it, and what follows
//! is its PATH_INFO. The rules of a site hold for it too: hidden names aren't there, and no link
//! leads out. A file that can't be run is refused; its content is never sent.

use crate::handler::call::process::{FindProcessFn, ProcessRunner, ProcessSpec, search_path};
use crate::handler::call::request::{ScriptLocation, ScriptRequest};
use crate::handler::call::script_call::{CallLimits, split_request};
use crate::handler::{
    Handler, HandlerError, LocalBoxFuture, Request, Response, Script, check_access,
};
use crate::site::{SecretPaths, SiteRoot, hidden};
use crate::wire::cgi::Environment;
use crate::wire::h1::body_decoder::BodyLength;
use crate::wire::reject::Reject;
use rustix::fs::{FileType, fstat};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The scripts of a folder.
pub struct CgiHandler {
    settings: Arc<CgiSettings>,
}

/// What holds for all of them.
pub struct CgiSettings {
    /// Where they are run.
    pub programs: Arc<ProcessRunner>,
    /// The bounds of a call.
    pub bounds: CallLimits,
    /// The folder that they lie in.
    pub root: SiteRoot,
    /// The path on the site that stands for it, without a slash at its end.
    pub prefix: Box<[u8]>,
    /// The folder that paths of the site lie in.
    pub document_root: PathBuf,
    /// Endings of names, each with what runs such a file; what has none of them is run itself.
    pub interpreters: Vec<(String, PathBuf)>,
    /// Variables beside those of the request.
    pub variables: Vec<(String, String)>,
    /// Files of the server's own, which are never run.
    pub secrets: SecretPaths,
    /// Some scripts of the folder are guarded apart from it: a link to one of them is no way round.
    pub is_guarded: bool,
}

/// A file that was found.
struct ScriptMatch {
    /// Below the folder.
    file: Vec<u8>,
    path_info: Vec<u8>,
}

/// Where a script lies.
struct ScriptFile {
    /// Absolute, without links.
    file: PathBuf,
    /// On the site, with what follows it; none if it lies outside of the folder.
    guarded_paths: Vec<Vec<u8>>,
}

impl CgiHandler {
    /// With these settings.
    pub fn new(settings: CgiSettings) -> CgiHandler {
        CgiHandler {
            settings: Arc::new(settings),
        }
    }
}

impl Handler for CgiHandler {
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        Box::pin(run(Arc::clone(&self.settings), request))
    }
}

async fn run(settings: Arc<CgiSettings>, mut request: Request) -> Result<Response, HandlerError> {
    let (programs, bounds) = (Arc::clone(&settings.programs), settings.bounds.clone());
    let script = request.script.take();
    let mut admitted = None;
    // The site itself has put its own scripts before its guards.
    if settings.is_guarded && script.is_none() {
        let (path, looking) = (request.target_path().to_vec(), Arc::clone(&settings));
        let located = programs.look(move || looking.located(&path)).await?;
        let user = check_access(&request, located.guarded_paths).await?;
        request.user = request.user.or(user);
        admitted = Some(located.file);
    } else if request.length == BodyLength::Chunked {
        // It may go to the disk, but not for a script that isn't there.
        let (path, script) = (request.target_path().to_vec(), script.clone());
        let settings = Arc::clone(&settings);
        let look = move || settings.found(&path, script).map(drop);
        programs.look(look).await?;
    }
    let (asked, here) = split_request(request, &settings.bounds).await?;
    let find: FindProcessFn = Box::new(move |asked| settings.order(asked, script, admitted));
    programs.run(Arc::new(asked), here, bounds, find).await
}

impl CgiSettings {
    /// Which program is to be run, and how. Blocks while the disk is asked.
    /// Where guards were asked about a file, it must still be that one.
    fn order(
        &self,
        asked: &ScriptRequest,
        script: Option<Script>,
        admitted: Option<PathBuf>,
    ) -> Result<ProcessSpec, HandlerError> {
        let refused = |reject| HandlerError::new("script", reject);
        let found = self.found(&asked.path, script)?;
        let real = self.real(&found)?;
        if admitted.is_some_and(|admitted| admitted != real) {
            return Err(refused(Reject::CHANGING));
        }
        let file = self.root.path().join(OsStr::from_bytes(&found.file));
        let variables = self.variables(asked, &found, &file);
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
            memory_bytes: None,
            processor_seconds: None,
        })
    }

    /// The file that a request for this path is for. Blocks as well.
    fn found(&self, path: &[u8], script: Option<Script>) -> Result<ScriptMatch, HandlerError> {
        let found = match script {
            Some(script) => self.of_site(script),
            None => self.find(path.strip_prefix(&*self.prefix).unwrap_or_default()),
        };
        found.map_err(|reject| HandlerError::new("script", reject))
    }

    /// Where the file really lies.
    fn real(&self, found: &ScriptMatch) -> Result<PathBuf, HandlerError> {
        let real = self.secrets.check(&self.root, &found.file);
        real.map_err(|why| HandlerError::new("script", why.reject()))
    }

    /// The file for this path, and what its guards are to be asked about. Blocks as well.
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

    fn variables(&self, asked: &ScriptRequest, found: &ScriptMatch, file: &Path) -> Environment {
        let name = [&*self.prefix, b"/", &found.file].concat();
        let place = ScriptLocation {
            name: &name,
            path_info: &found.path_info,
            file: file.as_os_str().as_bytes(),
            root: self.document_root.as_os_str().as_bytes(),
        };
        let mut variables = asked.with_meta(&place, Environment::of);
        variables.push("PATH", search_path().as_bytes());
        for (name, value) in &self.variables {
            variables.set(name, value.as_bytes());
        }
        variables
    }

    /// The first component of this path that is a file.
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
        match self.is_file(file)? {
            true => Ok(ScriptMatch {
                file: file.to_vec(),
                path_info: script.path_info,
            }),
            false => Err(Reject::NOT_FOUND),
        }
    }

    /// Is this a file, as against a folder?
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

/// Does a file's name end so? In any case: where `.php` is run, the source of `A.PHP` isn't sent.
pub fn has_ending(name: &[u8], ending: &str) -> bool {
    let start = name.len().checked_sub(ending.len());
    start.is_some_and(|start| name[start..].eq_ignore_ascii_case(ending.as_bytes()))
}
