//! Web pages of repositories: from a request to a page. The handler first looks up the repository on the
//! disk, then resolves the commits of the page. If the client or the page cache already has the page, the
//! handler answers without reading further data from git.
//!
//! An object is shown to every client with the object's full name, even if the object is unreachable. Git's
//! own protocol (version 2) sends unreachable objects as well, so hiding unreachable objects would protect
//! no data.

use crate::handler::call::request::ScriptRequest;
use crate::handler::git::browse::etag::EtagBuilder;
use crate::handler::git::browse::limiter::{BrowseLimiter, PageCost};
use crate::handler::git::browse::locate::{PathLookup, Repository, RepositoryList};
use crate::handler::git::browse::page_location::PageLocation;
use crate::handler::git::browse::parse::HiddenRefs;
use crate::handler::git::browse::render::page::PageBuilder;
use crate::handler::git::browse::render::repository_list;
use crate::handler::git::browse::response::{
    PAGE_POLICY, counted, html, refused, style, with_slash,
};
use crate::handler::git::browse::run::{GitRunner, prepare};
use crate::handler::git::browse::url::PageUrl;
use crate::handler::git::http::{ExportedRepository, GitSettings};
use crate::handler::{Handler, HandlerError, LocalBoxFuture, Request, Response, check_access};
use crate::wire::fields::Fields;
use crate::wire::reject::Reject;
use crate::wire::request_head::Method;
use std::path::PathBuf;
use std::sync::Arc;

/// Handler of the web pages for the repositories of a folder.
pub struct BrowseHandler {
    settings: Arc<GitSettings>,
    own: Arc<BrowseSettings>,
}

/// Settings of the web pages.
pub struct BrowseSettings {
    /// Limiter of git reads, per client and in total.
    pub readers: Arc<BrowseLimiter>,
    /// The program `git`.
    pub git: PathBuf,
    /// Folder with the bare sandbox repositories of the server.
    pub bare: PathBuf,
    /// True if the repositories are not public.
    pub is_private: bool,
    /// Maximum number of heavy pages per client address and minute.
    pub heavy_per_minute: u32,
    /// Maximum number of pages per client address and minute.
    pub pages_per_minute: u32,
}

impl BrowseHandler {
    /// Creates the handler with the settings of the repositories and of their pages.
    pub fn new(settings: Arc<GitSettings>, own: BrowseSettings) -> BrowseHandler {
        BrowseHandler {
            settings,
            own: Arc::new(own),
        }
    }
}

impl Handler for BrowseHandler {
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        let (settings, own) = (Arc::clone(&self.settings), Arc::clone(&self.own));
        Box::pin(answer(settings, own, request))
    }
}

async fn answer(
    settings: Arc<GitSettings>,
    own: Arc<BrowseSettings>,
    mut request: Request,
) -> Result<Response, HandlerError> {
    let path = request.target_path().strip_prefix(&*settings.prefix);
    let path = path.unwrap_or_default().to_vec();
    let is_read = is_read(&request);
    if path.starts_with(b"/.style-") && is_read {
        return style(&path);
    }
    let (for_look, bare) = (Arc::clone(&settings), own.bare.clone());
    let look = move || {
        let looked = for_look.look(&path)?;
        if let PathLookup::Repository(_) = looked {
            prepare(&bare)?;
        }
        Ok(looked)
    };
    let looked = own.readers.look(look).await?;
    let (guarded_names, rest) = match &looked {
        PathLookup::Repository(repository) => (&repository.guarded_names[..], &repository.rest[..]),
        PathLookup::RepositorySlash(names) => (&names[..], &b""[..]),
        _ => (&[][..], &b""[..]),
    };
    let paths = ExportedRepository::guarded_paths(guarded_names, &settings.prefix, rest);
    let user = check_access(&request, paths).await?;
    request.user = request.user.or(user);
    let repository = match looked {
        PathLookup::Repository(repository) => *repository,
        _ if !is_read => return Err(refused(Reject::METHOD_NOT_ALLOWED)),
        PathLookup::Slash | PathLookup::RepositorySlash(_) => return Ok(with_slash(&request)),
        PathLookup::SlashOf(folder) => {
            return with_slash_if_any(&settings, &own, &request, folder).await;
        }
        PathLookup::Folder(folder) => return list(&settings, &own, &request, folder).await,
    };
    let mut wanted = wanted(&repository.rest, &request)?;
    let mut place = place(
        &settings,
        &request,
        repository.name.clone(),
        Some(&repository),
    );
    wanted.name_snapshot(&place)?;
    place.head.clone_from(&wanted.head);
    place.id.clone_from(&wanted.id);
    let tag = EtagBuilder::new(&own, &request);
    let asked = ScriptRequest::from_request(request, &settings.bounds.gathered, None).await;
    let (asked, _) = asked.map_err(|why| refused(why.reject()))?;
    let making = PageBuilder {
        reading: GitRunner {
            settings,
            asked: Arc::new(asked),
            repository,
            bare: own.bare.clone(),
            git: own.git.clone(),
        },
        own,
        wanted,
        place,
        hidden: HiddenRefs::default(),
    };
    let readers = Arc::clone(&making.own.readers);
    let asked = Arc::clone(&making.reading.asked);
    let response = making.answer(tag).await?;
    match asked.method == Method::Head {
        true => Ok(response),
        false => counted(response, &readers, asked.peer),
    }
}

/// Returns the list of the repositories below a folder.
async fn list(
    settings: &Arc<GitSettings>,
    own: &BrowseSettings,
    request: &Request,
    folder: Vec<u8>,
) -> Result<Response, HandlerError> {
    is_allowed(own, request)?;
    let list = own.readers.list(settings, folder).await?;
    let list = readable(settings, request, list).await?;
    // A folder without any repository readable by the client counts as missing.
    if list.all.is_empty() && !list.name.is_empty() {
        return Err(refused(Reject::NOT_FOUND));
    }
    let place = place(settings, request, list.name.clone(), None);
    let page = repository_list::list(&place, &list);
    let tag = EtagBuilder::new(own, request).with(page.as_bytes()).done();
    let response = tag.answer(&request.fields, || html(page, PAGE_POLICY));
    match request.method == Method::Head {
        true => Ok(response),
        false => counted(response, &own.readers, request.peer),
    }
}

/// Returns the repositories of a list that the guards let the client read.
async fn readable(
    settings: &GitSettings,
    request: &Request,
    list: Arc<RepositoryList>,
) -> Result<Arc<RepositoryList>, HandlerError> {
    if !settings.is_guarded {
        return Ok(list);
    }
    let mut all = Vec::new();
    for it in &list.all {
        // Paths behind the links of the repository's page.
        let paths = ExportedRepository::guarded_paths(&it.guarded_names, &settings.prefix, b"/");
        match check_access(request, paths).await {
            Ok(_) => all.push(it.clone()),
            Err(fault) if matches!(fault.reject.status.0, 401 | 403 | 404) => {}
            // Under overload the request fails, because a partial list would look complete.
            Err(fault) => return Err(fault),
        }
    }
    Ok(Arc::new(GitSettings::part(&list, all)))
}

/// Redirects to the list of a folder, if the list is not empty.
async fn with_slash_if_any(
    settings: &Arc<GitSettings>,
    own: &BrowseSettings,
    request: &Request,
    folder: Vec<u8>,
) -> Result<Response, HandlerError> {
    is_allowed(own, request)?;
    let has_any = match settings.is_guarded {
        true => {
            let list = own.readers.list(settings, folder).await?;
            !readable(settings, request, list).await?.all.is_empty()
        }
        false => own.readers.has_any(settings, folder).await?,
    };
    match has_any {
        true => Ok(with_slash(request)),
        false => Err(refused(Reject::NOT_FOUND)),
    }
}

fn is_allowed(own: &BrowseSettings, request: &Request) -> Result<(), HandlerError> {
    let per_minute = own.pages_per_minute;
    let asked = own
        .readers
        .count_request(request.peer, PageCost::Light, per_minute);
    asked.map_err(|why| own.readers.refused(why))
}

/// Returns the requested page of a repository.
fn wanted(rest: &[u8], request: &Request) -> Result<PageUrl, HandlerError> {
    match rest {
        // Requests of git clients, but with the wrong query or method.
        b"/info/refs" => return Err(refused(Reject::GIT_DUMB)),
        b"/git-upload-pack" | b"/git-receive-pack" => {
            return Err(refused(Reject::METHOD_NOT_ALLOWED));
        }
        _ => {}
    }
    let wanted = PageUrl::read(rest, request.query.as_deref());
    let wanted = wanted.ok_or(refused(Reject::NOT_FOUND))?;
    match is_read(request) {
        true => Ok(wanted),
        false => Err(refused(Reject::METHOD_NOT_ALLOWED)),
    }
}

fn is_read(request: &Request) -> bool {
    matches!(request.method, Method::Get | Method::Head)
}

fn place(
    settings: &GitSettings,
    request: &Request,
    name: Vec<u8>,
    repository: Option<&Repository>,
) -> PageLocation {
    let host = Fields(&request.fields)
        .first("host")
        .unwrap_or(&request.host);
    let scheme: &[u8] = if request.secure {
        b"https://"
    } else {
        b"http://"
    };
    PageLocation {
        prefix: settings.prefix.to_vec(),
        name,
        head: None,
        id: None,
        origin: [scheme, host].concat(),
        description: repository
            .map(|it| it.description.clone())
            .unwrap_or_default(),
        is_repository: repository.is_some(),
    }
}
