//! Git over HTTP: clone, fetch and push for the repositories of a folder, by `git http-backend`.
//!
//! Only the smart protocol is offered, and `git http-backend` gets one repository, located by the server.
//! Links out of the folder, hidden names, and repositories inside other repositories are not found; a
//! stranger may have pushed the content of an inner repository. `git http-backend` runs with a separate
//! environment, so neither a user's configuration nor a client's fields reach git or its hooks.

use crate::git::limits;
use crate::git::post_receive::ActivePush;
use crate::git::repository::{ExportedRepository, GitSettings};
use base::sys::ResourceLimits;
use data_plane::handler::call::process::{FindProcessFn, ProcessSpec, search_path};
use data_plane::handler::call::request::ScriptRequest;
use data_plane::handler::call::script_call::split_request;
use data_plane::handler::{Handler, HandlerError, LocalBoxFuture, Request, Response, check_access};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use wire::cgi::Environment;
use wire::fields::{Fields, is_basic_login};
use wire::reject::Reject;
use wire::request_head::Method;
use wire::smart_http::{FIRST, SERVICES};
use wire::status::Status;

/// Handler of the repositories of a folder.
pub(crate) struct GitHttpHandler {
    settings: Arc<GitSettings>,
}

impl GitHttpHandler {
    /// Creates the handler with `settings`.
    pub(crate) fn new(settings: Arc<GitSettings>) -> GitHttpHandler {
        GitHttpHandler { settings }
    }
}

impl Handler for GitHttpHandler {
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        Box::pin(run(Arc::clone(&self.settings), request))
    }
}

async fn run(settings: Arc<GitSettings>, mut request: Request) -> Result<Response, HandlerError> {
    let refused = |reject| HandlerError::new("git", reject);
    // Checks the request before the body arrives: most requests with an error have no body, but some bodies
    // are large.
    let path = request.target_path().strip_prefix(&*settings.prefix);
    let path = path.unwrap_or_default();
    let query = request.query.as_deref();
    let service = ServiceRequest::read(request.method, path, query).map_err(refused)?;
    if service.is_push && !settings.push {
        return Err(refused(Reject::PUSH_DENIED));
    }
    let mut repository = None;
    if settings.is_guarded {
        let (lookup, name) = (Arc::clone(&settings), service.name.clone());
        let found = settings.programs.look(move || lookup.locate(&name)).await;
        let found = match found {
            // Without a login, the response must not reveal the existence of a repository.
            Err(_) if service.is_push && request.user.is_none() => {
                return Err(refused(Reject::PUSH_DENIED));
            }
            found => found?,
        };
        let rest = service.service_path.as_bytes();
        let paths = ExportedRepository::guarded_paths(&found.names, &settings.prefix, rest);
        let admission = check_access(&request, paths).await?;
        request.record_admission(admission);
        repository = Some(found);
    }
    if service.is_push && request.user.is_none() {
        return Err(refused(Reject::PUSH_DENIED));
    }
    let mut bounds = settings.bounds.clone();
    // git reads its input to the end, and should get a large push while the push arrives.
    bounds.spool_limit = None;
    if service.is_first {
        bounds.held_bytes = limits::GIT_REFS_BUFFER_BYTES;
    }
    if service.is_push {
        bounds.patience = Duration::from_secs(limits::PUSH_PAUSE_SECONDS);
        request.body.be_patient(bounds.patience);
    }
    let (request, local) = split_request(Box::new(request), &bounds).await?;
    let (request, programs) = (Arc::new(request), Arc::clone(&settings.programs));
    let push = settings.push_begins(&service);
    let find: FindProcessFn =
        Box::new(move |request| settings.process_spec(request, &service, repository));
    let call = programs.run(Arc::clone(&request), local, bounds, find);
    let response = call.await?;
    // The repository was found, and git got a well-formed request. A 404 from git therefore means a damaged
    // repository.
    if *response.status == Status::NOT_FOUND {
        let why = format!(
            "{}: git does not accept the folder as a repository",
            request.line()
        );
        return Err(HandlerError::because("git", Reject::SCRIPT_FAILED, why));
    }
    Ok(match push {
        Some(push) => push.hold(response),
        None => response,
    })
}

/// A request of the smart protocol (gitprotocol-http).
#[derive(Debug, PartialEq, Eq)]
struct ServiceRequest {
    /// Name of the repository, below the folder.
    name: Vec<u8>,
    /// Path after the repository's path.
    service_path: &'static str,
    /// The only permitted query.
    query: &'static str,
    /// True for a push.
    is_push: bool,
    /// True for the ref advertisement at the beginning of every exchange.
    is_first: bool,
}

impl ServiceRequest {
    fn read(method: Method, path: &[u8], query: Option<&[u8]>) -> Result<ServiceRequest, Reject> {
        let found = SERVICES.iter().find_map(|service_path| {
            let name = path.strip_suffix(service_path.as_bytes())?;
            Some((name.strip_prefix(b"/")?, *service_path))
        });
        // A file of the repository, requested by a client of the dumb protocol, or an unrelated path.
        let (name, service_path) = found.ok_or(Reject::NOT_FOUND)?;
        let is_first = service_path == FIRST;
        let (allowed, query) = match (is_first, query) {
            (true, Some(UPLOAD)) => (Method::Get, "service=git-upload-pack"),
            (true, Some(RECEIVE)) => (Method::Get, "service=git-receive-pack"),
            (true, _) => return Err(Reject::GIT_DUMB),
            (false, None | Some(b"")) => (Method::Post, ""),
            (false, Some(_)) => return Err(Reject::NOT_FOUND),
        };
        if method != allowed {
            return Err(Reject::METHOD_NOT_ALLOWED);
        }
        Ok(ServiceRequest {
            name: name.to_vec(),
            service_path,
            query,
            is_push: query.as_bytes() == RECEIVE || service_path == "/git-receive-pack",
            is_first,
        })
    }
}

const UPLOAD: &[u8] = b"service=git-upload-pack";
const RECEIVE: &[u8] = b"service=git-receive-pack";

impl GitSettings {
    /// Starts the tracking of a push, if the request is a push and pushes trigger deployments.
    fn push_begins(&self, service: &ServiceRequest) -> Option<ActivePush> {
        let pushes = self.pushes.as_ref();
        let pushes = pushes.filter(|_| service.is_push && !service.is_first)?;
        let repository = self.root.path().join(OsStr::from_bytes(&service.name));
        Some(pushes.begin(repository))
    }

    /// Returns the git process for the request. Blocks on disk access.
    fn process_spec(
        &self,
        request: &ScriptRequest,
        service: &ServiceRequest,
        repository: Option<ExportedRepository>,
    ) -> Result<ProcessSpec, HandlerError> {
        let refused = |reject| HandlerError::new("git", reject);
        let folder = match repository {
            Some(repository) => repository.folder,
            None => self.locate(&service.name)?.folder,
        };
        let c_string = |path: &Path| {
            let string = CString::new(path.as_os_str().as_bytes());
            string.map_err(|_| refused(Reject::NOT_FOUND))
        };
        Ok(ProcessSpec {
            file: c_string(&self.program)?,
            arguments: b"git-http-backend\0".to_vec(),
            variables: self.variables(request, service, &folder),
            folder: c_string(&folder)?,
            grace: if service.is_push {
                // On a signal, git leaves the data received so far on the disk.
                Duration::from_secs(limits::GIT_END_SECONDS)
            } else {
                Duration::ZERO
            },
            limits: ResourceLimits {
                memory_bytes: Some(limits::GIT_EXCHANGE_MEMORY_BYTES),
                processor_seconds: Some(limits::GIT_EXCHANGE_CPU_SECONDS),
            },
        })
    }

    /// Returns the environment of the git process.
    fn variables(
        &self,
        request: &ScriptRequest,
        service: &ServiceRequest,
        folder: &Path,
    ) -> Environment {
        let mut all = Environment::default();
        all.push("GATEWAY_INTERFACE", b"CGI/1.1");
        all.push("SERVER_SOFTWARE", b"anthill");
        all.push("PATH", search_path().as_bytes());
        all.push("REQUEST_METHOD", request.method.name().as_bytes());
        all.push("GIT_PROJECT_ROOT", folder.as_os_str().as_bytes());
        all.push("PATH_INFO", service.service_path.as_bytes());
        all.push("QUERY_STRING", service.query.as_bytes());
        // The server has already checked the export.
        all.push("GIT_HTTP_EXPORT_ALL", b"1");
        all.push("REMOTE_ADDR", request.peer.to_string().as_bytes());
        if let Some(user) = &request.user {
            let authorization = Fields(&request.fields).first("authorization");
            if authorization.is_some_and(|value| is_basic_login(b"authorization", value)) {
                all.push("AUTH_TYPE", b"Basic");
            }
            all.push("REMOTE_USER", user.as_bytes());
        }
        // A push has no CONTENT_LENGTH, so that http-backend reads to the end of its input. With a length,
        // http-backend would loop for ever without sleeping after a client's early disconnect.
        if let Some(length) = request.length.filter(|_| !service.is_push) {
            all.push("CONTENT_LENGTH", length.to_string().as_bytes());
        }
        let fields = Fields(&request.fields);
        for (field, name) in FIELDS {
            if let Some(value) = fields.first(field) {
                all.push(name, value);
            }
        }
        if let Some(version) = fields.first("git-protocol").filter(|it| is_protocol(it)) {
            all.push("GIT_PROTOCOL", version);
        }
        all.push("GIT_CONFIG_NOSYSTEM", b"1");
        self.push_config(&mut all, folder, request.user.is_some());
        for (name, value) in &self.variables {
            all.set(name, value.as_bytes());
        }
        all
    }

    /// Adds settings of git with priority over the repository's configuration.
    fn push_config(&self, all: &mut Environment, folder: &Path, has_logged_in: bool) {
        // The operator chose the folder, so another owner of the folder is acceptable. Old versions of git
        // compare `safe.directory` with the path as given, and the path is `.` where one git process starts
        // another. Newer versions resolve `.` to the current folder.
        let safe = |path: &[u8]| ("safe.directory", path.to_vec());
        let mut config = vec![
            safe(folder.as_os_str().as_bytes()),
            safe(b"."),
            // Without the setting, git ignores `--filter`. A filter makes responses smaller.
            ("uploadpack.allowFilter", b"true".to_vec()),
        ];
        config.extend(PACKING.map(|(key, value)| (key, value.to_vec())));
        if !has_logged_in {
            config.extend(FILTERS.map(|(key, value)| (key, value.to_vec())));
        }
        all.push("GIT_CONFIG_COUNT", config.len().to_string().as_bytes());
        for (nth, (key, value)) in config.iter().enumerate() {
            all.push(&format!("GIT_CONFIG_KEY_{nth}"), key.as_bytes());
            all.push(&format!("GIT_CONFIG_VALUE_{nth}"), value);
        }
    }
}

/// Limits of git's resources for writing or reading a pack, within the limits of the process: one thread,
/// and 64 MiB of window memory for the delta search. By default, git uses one thread per processor, and the
/// window of each thread holds ten objects of any size.
const PACKING: [(&str, &[u8]); 2] = [("pack.threads", b"1"), ("pack.windowMemory", b"64m")];

/// Partial-clone filters for clients without a login: the filters that git can apply in one walk over the
/// objects, and to a bitmap (git-config, `uploadpackfilter`). For a filter with a list of patterns
/// (`sparse:oid`), git compares every path of every commit with each pattern. A deep `tree:N` may make git
/// walk a folder once for each depth. An operator can allow another filter by name in the repository's
/// configuration.
const FILTERS: [(&str, &[u8]); 5] = [
    ("uploadpackfilter.allow", b"false"),
    ("uploadpackfilter.blob:none.allow", b"true"),
    ("uploadpackfilter.blob:limit.allow", b"true"),
    ("uploadpackfilter.tree.allow", b"true"),
    ("uploadpackfilter.tree.maxDepth", b"0"),
];

/// Request fields passed to git.
const FIELDS: [(&str, &str); 2] = [
    ("content-type", "CONTENT_TYPE"),
    ("content-encoding", "HTTP_CONTENT_ENCODING"),
];

/// Returns true if `value` is safe as a Git-Protocol field: `version=2`, and other keys separated by
/// colons.
fn is_protocol(value: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"=:._-".contains(byte);
    value.len() <= limits::GIT_PROTOCOL_BYTES_MAX && value.iter().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_smart_protocol_is_accepted() {
        let read = |method, path: &str, query: Option<&str>| {
            let service = ServiceRequest::read(method, path.as_bytes(), query.map(str::as_bytes));
            service.map(|it| (String::from_utf8(it.name).unwrap(), it.is_push))
        };
        let (get, post) = (Method::Get, Method::Post);
        let name = |push| Ok(("a/b.git".to_owned(), push));
        let up = Some("service=git-upload-pack");
        assert_eq!(read(get, "/a/b.git/info/refs", up), name(false));
        let receive = Some("service=git-receive-pack");
        assert_eq!(read(get, "/a/b.git/info/refs", receive), name(true));
        assert_eq!(read(post, "/a/b.git/git-upload-pack", None), name(false));
        assert_eq!(read(post, "/a/b.git/git-receive-pack", None), name(true));
        for (method, path, query, reject) in [
            (get, "/a/info/refs", None, Reject::GIT_DUMB),
            (
                get,
                "/a/info/refs",
                Some("service=git-upload-archive"),
                Reject::GIT_DUMB,
            ),
            (
                get,
                "/a/info/refs",
                Some("service=git-upload-pack&x"),
                Reject::GIT_DUMB,
            ),
            (post, "/a/info/refs", up, Reject::METHOD_NOT_ALLOWED),
            (get, "/a/git-upload-pack", None, Reject::METHOD_NOT_ALLOWED),
            (Method::Head, "/a/info/refs", up, Reject::METHOD_NOT_ALLOWED),
            (post, "/a/git-upload-pack", up, Reject::NOT_FOUND),
            (get, "/a/HEAD", None, Reject::NOT_FOUND),
            (get, "/a/objects/info/packs", None, Reject::NOT_FOUND),
            (get, "/info/refs", up, Reject::NOT_FOUND),
            (get, "", None, Reject::NOT_FOUND),
        ] {
            assert_eq!(read(method, path, query), Err(reject), "{path} {query:?}");
        }
    }

    #[test]
    fn git_protocol_fields_are_restricted() {
        assert!(is_protocol(b"version=2"));
        assert!(is_protocol(b"version=2:key=a.b"));
        assert!(!is_protocol(b"version=2\n"));
        assert!(!is_protocol(b"$(reboot)"));
        assert!(!is_protocol(&[b'a'; limits::GIT_PROTOCOL_BYTES_MAX + 1]));
    }
}
