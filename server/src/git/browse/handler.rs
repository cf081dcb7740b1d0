//! Web pages of repositories: from a request to a page. The handler first looks up the repository on the
//! disk, then resolves the commits of the page. If the client or the page cache already has the page, the
//! handler answers without reading further data from git.
//!
//! An object is shown to every client with the object's full name, even if the object is unreachable. Git's
//! own protocol (version 2) sends unreachable objects as well, so hiding unreachable objects would protect
//! no data.

use crate::git::browse::etag::EtagBuilder;
use crate::git::browse::limiter::PageCost;
use crate::git::browse::locate::{PathLookup, Repository, RepositoryList};
use crate::git::browse::page_location::PageLocation;
use crate::git::browse::parse::HiddenRefs;
use crate::git::browse::render::page::PageBuilder;
use crate::git::browse::render::repository_list;
use crate::git::browse::response::{
    PAGE_POLICY, counted, html, redirect, refused, style, with_slash,
};
use crate::git::browse::run::{GitRunner, prepare};
use crate::git::browse::settings::BrowseSettings;
use crate::git::browse::url::PageUrl;
use crate::git::repository::{ExportedRepository, GitSettings};
use data_plane::handler::call::request::ScriptRequest;
use data_plane::handler::{Handler, HandlerError, LocalBoxFuture, Request, Response, check_access};
use std::sync::Arc;
use wire::fields::Fields;
use wire::reject::Reject;
use wire::request_head::Method;

/// Handler of the web pages for the repositories of a folder.
pub(crate) struct BrowseHandler {
    settings: Arc<GitSettings>,
    browse: Arc<BrowseSettings>,
}

impl BrowseHandler {
    /// Creates the handler with the settings of the repositories and of their pages.
    pub(crate) fn new(settings: Arc<GitSettings>, browse: BrowseSettings) -> BrowseHandler {
        BrowseHandler {
            settings,
            browse: Arc::new(browse),
        }
    }
}

impl Handler for BrowseHandler {
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        let (settings, browse) = (Arc::clone(&self.settings), Arc::clone(&self.browse));
        Box::pin(answer(settings, browse, request))
    }
}

async fn answer(
    settings: Arc<GitSettings>,
    browse: Arc<BrowseSettings>,
    mut request: Request,
) -> Result<Response, HandlerError> {
    let path = request.target_path().strip_prefix(&*settings.prefix);
    let path = path.unwrap_or_default().to_vec();
    let is_read = is_read(&request);
    if path.starts_with(b"/.style-") && is_read {
        return style(&path);
    }
    let (on_disk, sandbox) = (Arc::clone(&settings), browse.sandbox.clone());
    let lookup = move || {
        let found = on_disk.look(&path)?;
        if let PathLookup::Repository(_) = found {
            prepare(&sandbox)?;
        }
        Ok(found)
    };
    let found = browse.limiter.look(lookup).await?;
    let admission = check_access(&request, guarded_paths(&settings, &found)).await?;
    request.record_admission(admission);
    let repository = match found {
        PathLookup::Repository(repository) => *repository,
        _ if !is_read => return Err(refused(Reject::METHOD_NOT_ALLOWED)),
        PathLookup::Slash | PathLookup::RepositorySlash(_) => return Ok(with_slash(&request)),
        PathLookup::SlashOf(folder) => {
            return with_slash_if_any(&settings, &browse, &request, folder).await;
        }
        PathLookup::Folder(folder) => return list(&settings, &browse, &request, folder).await,
    };
    if let Some(response) = replaced(&settings, &request, &repository) {
        return Ok(response);
    }
    let (url, location) = page_url(&settings, &request, &repository)?;
    let tag = EtagBuilder::new(&browse, &request);
    let received = ScriptRequest::from_request(Box::new(request), None).await;
    let (request, _) = received.map_err(|error| refused(error.reject()))?;
    let (request, limiter) = (Arc::new(request), Arc::clone(&browse.limiter));
    let page = PageBuilder {
        git: GitRunner {
            settings,
            request: Arc::clone(&request),
            repository,
            sandbox: browse.sandbox.clone(),
            git: browse.git.clone(),
        },
        settings: browse,
        url,
        location,
        hidden: HiddenRefs::default(),
    };
    let response = page.answer(tag).await?;
    if request.method == Method::Head {
        Ok(response)
    } else {
        counted(response, &limiter, request.peer)
    }
}

/// Returns the paths of a repository that the guards of the site have to allow; none for a folder.
fn guarded_paths(settings: &GitSettings, found: &PathLookup) -> Vec<Vec<u8>> {
    let (names, rest) = match found {
        PathLookup::Repository(repository) => (&repository.guarded_names[..], &repository.rest[..]),
        PathLookup::RepositorySlash(names) => (&names[..], &b""[..]),
        PathLookup::Folder(_) | PathLookup::Slash | PathLookup::SlashOf(_) => return Vec::new(),
    };
    ExportedRepository::guarded_paths(names, &settings.prefix, rest)
}

/// Redirects from a page of cgit to the page in its place.
fn replaced(
    settings: &GitSettings,
    request: &Request,
    repository: &Repository,
) -> Option<Response> {
    let query = request.query.as_deref();
    let commit = PageUrl::commit_in_path(&repository.rest, query);
    let replacement = match &commit {
        Some((view, id)) => (*view, &b""[..], &[("id", id.digits())][..]),
        None => {
            let (view, path) = PageUrl::replacement(&repository.rest, query)?;
            (view, path, &[][..])
        }
    };
    if !is_read(request) {
        return None;
    }
    let location = location(settings, request, &repository.name, Some(repository));
    let (view, path, more) = replacement;
    // The path alone names the commit, so a query adds nothing.
    let query = query.filter(|_| commit.is_none());
    Some(redirect(location.plain_url(view, path, more), query))
}

/// Returns the requested page of a repository, and the location for its links.
fn page_url(
    settings: &GitSettings,
    request: &Request,
    repository: &Repository,
) -> Result<(PageUrl, PageLocation), HandlerError> {
    match &repository.rest[..] {
        // Requests of git clients, but with the wrong query or method.
        b"/info/refs" => return Err(refused(Reject::GIT_DUMB)),
        b"/git-upload-pack" | b"/git-receive-pack" => {
            return Err(refused(Reject::METHOD_NOT_ALLOWED));
        }
        _ => {}
    }
    let url = PageUrl::read(&repository.rest, request.query.as_deref());
    let mut url = url.ok_or(refused(Reject::NOT_FOUND))?;
    if !is_read(request) {
        return Err(refused(Reject::METHOD_NOT_ALLOWED));
    }
    let mut location = location(settings, request, &repository.name, Some(repository));
    url.name_snapshot(&location)?;
    location.head.clone_from(&url.head);
    location.id.clone_from(&url.id);
    Ok((url, location))
}

/// Returns the list of the repositories below a folder.
async fn list(
    settings: &Arc<GitSettings>,
    browse: &BrowseSettings,
    request: &Request,
    folder: Vec<u8>,
) -> Result<Response, HandlerError> {
    let list = readable(settings, browse, request, folder).await?;
    // A folder without any repository readable by the client counts as missing.
    if list.all.is_empty() && !list.name.is_empty() {
        return Err(refused(Reject::NOT_FOUND));
    }
    let location = location(settings, request, &list.name, None);
    let page = repository_list::list(&location, &list);
    let tag = EtagBuilder::new(browse, request).with(page.as_bytes());
    let response = tag
        .done()
        .answer(&request.fields, || html(page, PAGE_POLICY));
    if request.method == Method::Head {
        Ok(response)
    } else {
        counted(response, &browse.limiter, request.peer)
    }
}

/// Redirects to the list of a folder, if the list is not empty.
async fn with_slash_if_any(
    settings: &Arc<GitSettings>,
    browse: &BrowseSettings,
    request: &Request,
    folder: Vec<u8>,
) -> Result<Response, HandlerError> {
    let has_any = if settings.is_guarded {
        let list = readable(settings, browse, request, folder).await?;
        !list.all.is_empty()
    } else {
        count_light_request(browse, request)?;
        browse.limiter.has_any(settings, folder).await?
    };
    if has_any {
        Ok(with_slash(request))
    } else {
        Err(refused(Reject::NOT_FOUND))
    }
}

/// Returns the repositories below a folder that the guards let the client read. Counts a request of the
/// client.
async fn readable(
    settings: &Arc<GitSettings>,
    browse: &BrowseSettings,
    request: &Request,
    folder: Vec<u8>,
) -> Result<Arc<RepositoryList>, HandlerError> {
    count_light_request(browse, request)?;
    let list = browse.limiter.list(settings, folder).await?;
    if !settings.is_guarded {
        return Ok(list);
    }
    let mut all = Vec::new();
    for it in &list.all {
        // Paths behind the links of the repository's page.
        let paths = ExportedRepository::guarded_paths(&it.guarded_names, &settings.prefix, b"/");
        match check_access(request, paths).await {
            Ok(_) => all.push(it.clone()),
            Err(error) if matches!(error.reject.status.0, 401 | 403 | 404) => {}
            // Under overload the request fails, because a partial list would look complete.
            Err(error) => return Err(error),
        }
    }
    Ok(Arc::new(GitSettings::part(&list, all)))
}

fn count_light_request(browse: &BrowseSettings, request: &Request) -> Result<(), HandlerError> {
    let (limiter, per_minute) = (&browse.limiter, browse.pages_per_minute);
    let counted = limiter.count_request(request.peer, PageCost::Light, per_minute);
    counted.map_err(|why| limiter.refused(why))
}

fn is_read(request: &Request) -> bool {
    matches!(request.method, Method::Get | Method::Head)
}

fn location(
    settings: &GitSettings,
    request: &Request,
    name: &[u8],
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
        name: name.to_vec(),
        head: None,
        id: None,
        origin: [scheme, host].concat(),
        description: repository
            .map(|it| it.description.clone())
            .unwrap_or_default(),
        is_repository: repository.is_some(),
    }
}
