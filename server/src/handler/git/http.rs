//! Git over HTTP: clone, fetch and push of the repositories of a folder, by `git http-backend`.
//!
//! Of what that program can do only the smart protocol is asked for, and it is asked for one
//! repository that was found here: links out of the folder, hidden names, and repositories inside of
//! repositories (whose content a stranger may have pushed) aren't there. It gets an environment of
//! its own, so that neither a user's configuration nor a client's fields reach git or its hooks.

use crate::handler::call::process::{FindProcessFn, ProcessRunner, ProcessSpec, search_path};
use crate::handler::call::request::ScriptRequest;
use crate::handler::call::script_call::{CallLimits, split_request};
use crate::handler::git::post_receive::{ActivePush, PushNotifier};
use crate::handler::{Handler, HandlerError, LocalBoxFuture, Request, Response, check_access};
use crate::limits;
use crate::site::{FileError, SecretPaths, SiteRoot};
use crate::wire::cgi::Environment;
use crate::wire::fields::Fields;
use crate::wire::reject::Reject;
use crate::wire::request_head::Method;
use crate::wire::status::Status;
use rustix::fs::{FileType, fstat};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// The repositories of a folder.
pub struct GitHttpHandler {
    settings: Arc<GitSettings>,
}

/// What holds for all of them.
pub struct GitSettings {
    /// Where git is run.
    pub programs: Arc<ProcessRunner>,
    /// The bounds of a call.
    pub bounds: CallLimits,
    /// The folder that they lie in.
    pub root: SiteRoot,
    /// The path on the site that stands for it, without a slash at its end.
    pub prefix: Box<[u8]>,
    /// `git-http-backend`.
    pub program: PathBuf,
    /// Also those that aren't marked with `git-daemon-export-ok`.
    pub exports_all: bool,
    /// Who has logged in may push.
    pub push: bool,
    /// Variables beside those of the request, for hooks.
    pub variables: Vec<(String, String)>,
    /// Where pushes are told, if anything is deployed.
    pub pushes: Option<PushNotifier>,
    /// Files of the server's own, which are in no repository.
    pub secrets: SecretPaths,
    /// Some repositories are guarded apart from the folder: neither a link to one of them nor its name
    /// without `.git` is a way round.
    pub is_guarded: bool,
}

/// A repository that was found and is exported.
pub(super) struct ExportedRepository {
    /// git's own files of it: absolute, without links.
    pub(super) folder: PathBuf,
    /// Names below the folder of repositories that it has or may be asked for by. Guards of each of
    /// them protect it. None where nothing is guarded.
    pub(super) names: Vec<Vec<u8>>,
}

impl ExportedRepository {
    /// The same on the site, with what follows in the path.
    pub(super) fn guarded_paths(names: &[Vec<u8>], prefix: &[u8], rest: &[u8]) -> Vec<Vec<u8>> {
        let on_site = |name: &Vec<u8>| [prefix, b"/", name.as_slice(), rest].concat();
        names.iter().map(on_site).collect()
    }
}

impl GitHttpHandler {
    /// With these settings.
    pub fn new(settings: GitSettings) -> GitHttpHandler {
        GitHttpHandler {
            settings: Arc::new(settings),
        }
    }

    /// The same repositories in a browser.
    pub fn pages(
        &self,
        own: crate::handler::git::browse::handler::BrowseSettings,
    ) -> crate::handler::git::browse::handler::BrowseHandler {
        crate::handler::git::browse::handler::BrowseHandler::new(Arc::clone(&self.settings), own)
    }
}

/// Is it git that asks? `path` is below the route. What remains is for a browser.
pub fn is_smart_http(method: Method, path: &[u8], query: Option<&[u8]>) -> bool {
    let of_service = || query.is_some_and(|query| query.starts_with(b"service="));
    let is_any = |of: &[&str]| of.iter().any(|it| path.ends_with(it.as_bytes()));
    match method {
        Method::Post => is_any(&SERVICES),
        _ => path.ends_with(FIRST.as_bytes()) && of_service(),
    }
}

impl Handler for GitHttpHandler {
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        Box::pin(run(Arc::clone(&self.settings), request))
    }
}

async fn run(settings: Arc<GitSettings>, mut request: Request) -> Result<Response, HandlerError> {
    let refused = |reject| HandlerError::new("git", reject);
    // Before the body is waited for: most of what is asked in vain has none, but some may be large.
    let path = request.target_path().strip_prefix(&*settings.prefix);
    let path = path.unwrap_or_default();
    let query = request.query.as_deref();
    let wanted = ServiceRequest::read(request.method, path, query).map_err(refused)?;
    if wanted.is_push && !settings.push {
        return Err(refused(Reject::PUSH_DENIED));
    }
    let mut located = None;
    if settings.is_guarded {
        let (looking, name) = (Arc::clone(&settings), wanted.name.clone());
        let found = settings.programs.look(move || looking.locate(&name)).await;
        let found = match found {
            // Without a login nothing tells whether there is such a repository.
            Err(_) if wanted.is_push && request.user.is_none() => {
                return Err(refused(Reject::PUSH_DENIED));
            }
            found => found?,
        };
        let rest = wanted.service_path.as_bytes();
        let paths = ExportedRepository::guarded_paths(&found.names, &settings.prefix, rest);
        let user = check_access(&request, paths).await?;
        request.user = request.user.or(user);
        located = Some(found);
    }
    if wanted.is_push && request.user.is_none() {
        return Err(refused(Reject::PUSH_DENIED));
    }
    let mut bounds = settings.bounds.clone();
    // git reads to the end of its input, and is to see a large push as it comes.
    bounds.room = None;
    if wanted.is_first {
        bounds.held_bytes = limits::GIT_REFS_BUFFER_BYTES;
    }
    if wanted.is_push {
        bounds.patience = Duration::from_secs(limits::PUSH_PAUSE_SECONDS);
        request.body.be_patient(bounds.patience);
    }
    let (asked, here) = split_request(request, &bounds).await?;
    let (asked, programs) = (Arc::new(asked), Arc::clone(&settings.programs));
    let push = settings.push_begins(&wanted);
    let find: FindProcessFn = Box::new(move |asked| settings.order(asked, &wanted, located));
    let running = programs.run(Arc::clone(&asked), here, bounds, find);
    let response = running.await?;
    // What was asked for is there and is asked of git as it wants it: the repository is damaged.
    if *response.status == Status::NOT_FOUND {
        let why = format!("{}: git takes it for no repository", asked.line());
        return Err(HandlerError::because("git", Reject::SCRIPT_FAILED, why));
    }
    Ok(match push {
        Some(push) => push.hold(response),
        None => response,
    })
}

/// What the smart protocol knows to ask for (gitprotocol-http).
#[derive(Debug, PartialEq, Eq)]
struct ServiceRequest {
    /// Of which repository, below the folder.
    name: Vec<u8>,
    /// What follows the repository's path.
    service_path: &'static str,
    /// The only query that there may be.
    query: &'static str,
    /// Something is to be written.
    is_push: bool,
    /// The question that every exchange begins with.
    is_first: bool,
}

impl ServiceRequest {
    fn read(method: Method, path: &[u8], query: Option<&[u8]>) -> Result<ServiceRequest, Reject> {
        let found = SERVICES.iter().find_map(|service_path| {
            let name = path.strip_suffix(service_path.as_bytes())?;
            Some((name.strip_prefix(b"/")?, *service_path))
        });
        // A file of the repository, as clients ask for it that know nothing better, or anything else.
        let (name, service_path) = found.ok_or(Reject::NOT_FOUND)?;
        let is_first = service_path == FIRST;
        let (right, query) = match (is_first, query) {
            (true, Some(UPLOAD)) => (Method::Get, "service=git-upload-pack"),
            (true, Some(RECEIVE)) => (Method::Get, "service=git-receive-pack"),
            (true, _) => return Err(Reject::GIT_DUMB),
            (false, None | Some(b"")) => (Method::Post, ""),
            (false, Some(_)) => return Err(Reject::NOT_FOUND),
        };
        if method != right {
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

const FIRST: &str = "/info/refs";
const SERVICES: [&str; 3] = [FIRST, "/git-upload-pack", "/git-receive-pack"];
const UPLOAD: &[u8] = b"service=git-upload-pack";
const RECEIVE: &[u8] = b"service=git-receive-pack";

impl GitSettings {
    /// Whose end is to be told, if this is a push and anything is deployed.
    fn push_begins(&self, wanted: &ServiceRequest) -> Option<ActivePush> {
        let pushes = self.pushes.as_ref();
        let pushes = pushes.filter(|_| wanted.is_push && !wanted.is_first)?;
        let repository = self.root.path().join(OsStr::from_bytes(&wanted.name));
        Some(pushes.begin(repository))
    }

    /// How git is run for this. Blocks while the disk is asked.
    fn order(
        &self,
        asked: &ScriptRequest,
        wanted: &ServiceRequest,
        located: Option<ExportedRepository>,
    ) -> Result<ProcessSpec, HandlerError> {
        let refused = |reject| HandlerError::new("git", reject);
        let folder = match located {
            Some(located) => located.folder,
            None => self.locate(&wanted.name)?.folder,
        };
        let c_string = |path: &Path| {
            let string = CString::new(path.as_os_str().as_bytes());
            string.map_err(|_| refused(Reject::NOT_FOUND))
        };
        Ok(ProcessSpec {
            file: c_string(&self.program)?,
            arguments: b"git-http-backend\0".to_vec(),
            variables: self.variables(asked, wanted, &folder),
            folder: c_string(&folder)?,
            grace: match wanted.is_push {
                // On a signal git leaves behind what it has received so far.
                true => Duration::from_secs(limits::GIT_END_SECONDS),
                false => Duration::ZERO,
            },
            memory_bytes: Some(limits::GIT_EXCHANGE_MEMORY_BYTES),
            processor_seconds: Some(limits::GIT_EXCHANGE_CPU_SECONDS),
        })
    }

    /// The repository with this name, if it may be seen.
    fn locate(&self, name: &[u8]) -> Result<ExportedRepository, HandlerError> {
        let found = self.find(name);
        let found = found.map_err(|reject| HandlerError::new("git", reject))?;
        self.exported(&found)
    }

    /// The same, where its folder is known.
    pub(super) fn exported(&self, found: &[u8]) -> Result<ExportedRepository, HandlerError> {
        if !self.exports_all && !self.is_marked(found) {
            let folder = self.root.path().join(OsStr::from_bytes(found));
            // To the client it is one that isn't there.
            let why = format!(
                "{} isn't exported: make the file git-daemon-export-ok in it, or say export = \"all\"",
                folder.display()
            );
            return Err(HandlerError::because("git", Reject::NOT_FOUND, why));
        }
        let folder = self.secrets.check(&self.root, found);
        let folder = folder.map_err(|why| HandlerError::new("git", why.reject()))?;
        Ok(ExportedRepository {
            names: self.guarded_names(found, &folder),
            folder,
        })
    }

    /// What guards may call the repository whose folder was found under this name, and really lies
    /// there. None where nothing is guarded.
    pub(super) fn guarded_names(&self, found: &[u8], real: &Path) -> Vec<Vec<u8>> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        if !self.is_guarded {
            return names;
        }
        for folder in [Some(found), self.root.below(real)].into_iter().flatten() {
            let name = folder.strip_suffix(b"/.git").unwrap_or(folder);
            // The shorter name is this repository's too, unless there is a folder of that name.
            let short = name.strip_suffix(b".git");
            let is_other = |short: &&[u8]| self.is(FileType::Directory, short) != Ok(false);
            let short = short.filter(|short| !is_other(short));
            for name in [Some(name), short].into_iter().flatten() {
                if !names.iter().any(|known| known == name) {
                    names.push(name.to_vec());
                }
            }
        }
        names
    }

    /// The folder of git's own files of this repository: itself if it is bare, else `.git` in it. As
    /// everywhere with git, the ending `.git` of a name may be left out.
    fn find(&self, name: &[u8]) -> Result<Vec<u8>, Reject> {
        for (at, part) in parts(name) {
            if part.is_empty() {
                return Err(Reject::NOT_FOUND);
            }
            if part[0] == b'.' {
                return Err(Reject::DOTFILE);
            }
            // What lies in a repository is its content, whatever it looks like.
            if at > 0 {
                let above = &name[..at - 1];
                if !self.is(FileType::Directory, above)? || self.git_folder(above)?.is_some() {
                    return Err(Reject::NOT_FOUND);
                }
            }
        }
        self.repository_at(name)?.ok_or(Reject::NOT_FOUND)
    }

    pub(super) fn git_folder(&self, name: &[u8]) -> Result<Option<Vec<u8>>, Reject> {
        for folder in [[name, b"/.git"].concat(), name.to_vec()] {
            let within = |part: &[u8]| [&folder, part].concat();
            if self.is(FileType::RegularFile, &within(b"/HEAD"))?
                && self.is(FileType::Directory, &within(b"/objects"))?
                && self.is(FileType::Directory, &within(b"/refs"))?
            {
                return Ok(Some(folder));
            }
        }
        Ok(None)
    }

    pub(super) fn is_marked(&self, folder: &[u8]) -> bool {
        let mark = [folder, b"/git-daemon-export-ok"].concat();
        self.root.open_handle(&mark).is_ok()
    }

    /// Is there something of this kind?
    pub(super) fn is(&self, kind: FileType, path: &[u8]) -> Result<bool, Reject> {
        let seen = match self.root.open_handle(path) {
            Ok(seen) => seen,
            Err(FileError::NotFound) => return Ok(false),
            Err(why) => return Err(why.reject()),
        };
        let status = fstat(&seen).map_err(|_| Reject::UNREADABLE)?;
        Ok(FileType::from_raw_mode(status.st_mode) == kind)
    }

    /// All that git is told.
    fn variables(
        &self,
        asked: &ScriptRequest,
        wanted: &ServiceRequest,
        folder: &Path,
    ) -> Environment {
        let mut all = Environment::default();
        all.push("GATEWAY_INTERFACE", b"CGI/1.1");
        all.push("SERVER_SOFTWARE", b"anthill");
        all.push("PATH", search_path().as_bytes());
        all.push("REQUEST_METHOD", asked.method.name().as_bytes());
        all.push("GIT_PROJECT_ROOT", folder.as_os_str().as_bytes());
        all.push("PATH_INFO", wanted.service_path.as_bytes());
        all.push("QUERY_STRING", wanted.query.as_bytes());
        // That was our question.
        all.push("GIT_HTTP_EXPORT_ALL", b"1");
        all.push("REMOTE_ADDR", asked.peer.to_string().as_bytes());
        if let Some(user) = &asked.user {
            all.push("AUTH_TYPE", b"Basic");
            all.push("REMOTE_USER", user.as_bytes());
        }
        // A push is read to its end, whatever its length: http-backend, told to expect more than what
        // comes before the client leaves, would wait for it for ever and not sleep.
        if let Some(length) = asked.length.filter(|_| !wanted.is_push) {
            all.push("CONTENT_LENGTH", length.to_string().as_bytes());
        }
        let fields = Fields(&asked.fields);
        for (field, name) in FIELDS {
            if let Some(value) = fields.first(field) {
                all.push(name, value);
            }
        }
        if let Some(version) = fields.first("git-protocol").filter(|it| is_protocol(it)) {
            all.push("GIT_PROTOCOL", version);
        }
        all.push("GIT_CONFIG_NOSYSTEM", b"1");
        self.push_config(&mut all, folder, asked.user.is_some());
        for (name, value) in &self.variables {
            all.set(name, value.as_bytes());
        }
        all
    }

    /// Settings of git that hold whatever the repository says.
    fn push_config(&self, all: &mut Environment, folder: &Path, has_logged_in: bool) {
        // The operator named the folder, so it is no surprise that it belongs to somebody else. Old
        // versions compare with the path as it was given, which is `.` where one part of git calls
        // the next; newer ones take that for the folder that they stand in.
        let safe = |path: &[u8]| ("safe.directory", path.to_vec());
        let mut config = vec![
            safe(folder.as_os_str().as_bytes()),
            safe(b"."),
            // Without it `--filter` is ignored; it makes answers smaller.
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

/// What git may take of the machine to make a pack or to read one, within the bounds of its process:
/// one thread, and so much memory to look for differences. By default git takes a thread for each
/// processor, and each looks in as many bytes as ten objects have.
const PACKING: [(&str, &[u8]); 2] = [("pack.threads", b"1"), ("pack.windowMemory", b"64m")];

/// Which filters of a partial clone are for clients that haven't logged in: those that git can apply
/// while it walks over the objects once, and to a bitmap (git-config, `uploadpackfilter`). For a
/// filter by a list of patterns (`sparse:oid`) git compares every path of every commit with each of
/// them, and a deep `tree:N` may have git walk over a folder once for each depth. An operator can allow
/// one more in the repository's own configuration, by its name.
const FILTERS: [(&str, &[u8]); 5] = [
    ("uploadpackfilter.allow", b"false"),
    ("uploadpackfilter.blob:none.allow", b"true"),
    ("uploadpackfilter.blob:limit.allow", b"true"),
    ("uploadpackfilter.tree.allow", b"true"),
    ("uploadpackfilter.tree.maxDepth", b"0"),
];

/// The client's fields that git looks at.
const FIELDS: [(&str, &str); 2] = [
    ("content-type", "CONTENT_TYPE"),
    ("content-encoding", "HTTP_CONTENT_ENCODING"),
];

/// `version=2`, and whatever else is separated by colons.
fn is_protocol(value: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"=:._-".contains(byte);
    value.len() <= limits::GIT_PROTOCOL_BYTES_MAX && value.iter().all(is_plain)
}

/// The components of a path, each with where it begins.
pub(super) fn parts(name: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    name.split(|byte| *byte == b'/').map(move |part| {
        let start = at;
        at += part.len() + 1;
        (start, part)
    })
}

/// Does the folder look like a repository, bare or not?
pub fn is_repository(folder: &Path) -> bool {
    [folder.join(".git"), folder.to_owned()]
        .iter()
        .any(|it| it.join("HEAD").is_file() && it.join("objects").is_dir())
}

/// Where git is, or why not and what to do.
pub fn find_git() -> Result<PathBuf, (String, &'static str)> {
    let path = search_path();
    let mut programs = std::env::split_paths(&path).map(|folder| folder.join("git"));
    programs.find(|file| file.is_file()).ok_or_else(|| {
        let what = format!("there is no program `git` in {}", path.to_string_lossy());
        (what, "install it: apt-get install git")
    })
}

/// Where `git-http-backend` is, or why not and what to do. Asks git, which takes a moment.
pub fn find_http_backend() -> Result<PathBuf, (String, &'static str)> {
    let path = search_path();
    let git = find_git()?;
    let said = Command::new(&git)
        .arg("--exec-path")
        .env_clear()
        .env("PATH", &path)
        .output();
    let said = said.map_err(|error| {
        let what = format!("{} can't be run: {error}", git.display());
        (what, "install it anew: apt-get install --reinstall git")
    })?;
    let folder = said.stdout.trim_ascii().to_vec();
    let folder = PathBuf::from(std::ffi::OsString::from_vec(folder));
    let backend = folder.join("git-http-backend");
    match backend.is_absolute() && backend.is_file() {
        true => Ok(backend),
        false => {
            let what = format!("git has no http-backend: {}", backend.display());
            Err((
                what,
                "install it: git, or git-daemon where that is a package of its own",
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_smart_protocol_is_known() {
        let read = |method, path: &str, query: Option<&str>| {
            let wanted = ServiceRequest::read(method, path.as_bytes(), query.map(str::as_bytes));
            wanted.map(|it| (String::from_utf8(it.name).unwrap(), it.is_push))
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
    fn parts_and_where_they_begin() {
        let all: Vec<_> = parts(b"a/bc//d").collect();
        assert_eq!(all, [(0, &b"a"[..]), (2, b"bc"), (5, b""), (6, b"d")]);
        assert_eq!(parts(b"").collect::<Vec<_>>(), [(0, &b""[..])]);
    }

    #[test]
    fn what_is_told_to_be_a_protocol() {
        assert!(is_protocol(b"version=2"));
        assert!(is_protocol(b"version=2:key=a.b"));
        assert!(!is_protocol(b"version=2\n"));
        assert!(!is_protocol(b"$(reboot)"));
        assert!(!is_protocol(&[b'a'; limits::GIT_PROTOCOL_BYTES_MAX + 1]));
    }
}
