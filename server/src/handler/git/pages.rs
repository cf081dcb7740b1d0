//! Repositories in a browser: from a request to a page. First it is looked what lies there, then which
//! commits are meant, and if the client or the page cache has that page already, that is all; else git
//! is asked for what the page shows.
//!
//! An object is shown to whoever knows its whole name, be it reachable or not: git's own protocol
//! (version 2) gives it too, so hiding it here would hide nothing.

use super::looked::{List, Looked, Repository};
use super::making::Making;
use super::place::Place;
use super::readers::{Readers, Work};
use super::reading::{Reading, prepare};
use super::said_by_git::Hidden;
use super::sent::{PAGE_POLICY, counted, html, refused, style, with_slash};
use super::shown_list;
use super::tag::Tag;
use super::wanted_page::WantedPage;
use super::{Located, Settings};
use crate::handler::asked::Asked;
use crate::handler::{Fault, Handler, LocalBoxFuture, Request, Response, admit};
use crate::wire::fields::Fields;
use crate::wire::head::Method;
use crate::wire::reject::Reject;
use std::path::PathBuf;
use std::sync::Arc;

/// Shows the repositories of a folder.
pub struct Pages {
    settings: Arc<Settings>,
    own: Arc<OfPages>,
}

/// What holds for their pages.
pub struct OfPages {
    /// The ledger of who reads.
    pub readers: Arc<Readers>,
    /// The program.
    pub git: PathBuf,
    /// A folder for repositories of our own.
    pub bare: PathBuf,
    /// They aren't for everybody.
    pub is_private: bool,
    /// Heavy pages for one address in a minute.
    pub heavy_per_minute: u32,
    /// Pages for one address in a minute.
    pub pages_per_minute: u32,
}

impl Pages {
    /// With these settings.
    pub fn new(settings: Arc<Settings>, own: OfPages) -> Pages {
        Pages {
            settings,
            own: Arc::new(own),
        }
    }
}

impl Handler for Pages {
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, Fault>> {
        let (settings, own) = (Arc::clone(&self.settings), Arc::clone(&self.own));
        Box::pin(answer(settings, own, request))
    }
}

async fn answer(
    settings: Arc<Settings>,
    own: Arc<OfPages>,
    mut request: Request,
) -> Result<Response, Fault> {
    let path = request.path.strip_prefix(&*settings.prefix);
    let path = path.unwrap_or_default().to_vec();
    let is_read = is_read(&request);
    if path.starts_with(b"/.style-") && is_read {
        return style(&path);
    }
    let (for_look, bare) = (Arc::clone(&settings), own.bare.clone());
    let look = move || {
        let looked = for_look.look(&path)?;
        if let Looked::Repository(_) = looked {
            prepare(&bare)?;
        }
        Ok(looked)
    };
    let looked = own.readers.look(look).await?;
    let (guarded_names, rest) = match &looked {
        Looked::Repository(repository) => (&repository.guarded_names[..], &repository.rest[..]),
        Looked::RepositorySlash(names) => (&names[..], &b""[..]),
        _ => (&[][..], &b""[..]),
    };
    let paths = Located::guarded_paths(guarded_names, &settings.prefix, rest);
    let user = admit(&request, paths).await?;
    request.user = request.user.or(user);
    let repository = match looked {
        Looked::Repository(repository) => *repository,
        _ if !is_read => return Err(refused(Reject::METHOD_NOT_ALLOWED)),
        Looked::Slash | Looked::RepositorySlash(_) => return Ok(with_slash(&request)),
        Looked::SlashOf(folder) => {
            return with_slash_if_any(&settings, &own, &request, folder).await;
        }
        Looked::Folder(folder) => return list(&settings, &own, &request, folder).await,
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
    let tag = Tag::new(&own, &request);
    let asked = Asked::of(request, &settings.bounds.gathered, None).await;
    let (asked, _) = asked.map_err(|why| refused(why.reject()))?;
    let making = Making {
        reading: Reading {
            settings,
            asked: Arc::new(asked),
            repository,
            bare: own.bare.clone(),
            git: own.git.clone(),
        },
        own,
        wanted,
        place,
        hidden: Hidden::default(),
    };
    let readers = Arc::clone(&making.own.readers);
    let asked = Arc::clone(&making.reading.asked);
    let response = making.answer(tag).await?;
    match asked.method == Method::Head {
        true => Ok(response),
        false => counted(response, &readers, asked.peer),
    }
}

/// The list of the repositories below a folder.
async fn list(
    settings: &Arc<Settings>,
    own: &OfPages,
    request: &Request,
    folder: Vec<u8>,
) -> Result<Response, Fault> {
    is_allowed(own, request)?;
    let list = own.readers.list(settings, folder).await?;
    let list = readable(settings, request, list).await?;
    // A folder with nothing in it for who asks is none.
    if list.all.is_empty() && !list.name.is_empty() {
        return Err(refused(Reject::NOT_FOUND));
    }
    let place = place(settings, request, list.name.clone(), None);
    let page = shown_list::list(&place, &list);
    let tag = Tag::new(own, request).with(page.as_bytes()).done();
    let response = tag.answer(&request.fields, || html(page, PAGE_POLICY));
    match request.method == Method::Head {
        true => Ok(response),
        false => counted(response, &own.readers, request.peer),
    }
}

/// Of a list, the repositories that the guards let this client read.
async fn readable(
    settings: &Settings,
    request: &Request,
    list: Arc<List>,
) -> Result<Arc<List>, Fault> {
    if !settings.is_guarded {
        return Ok(list);
    }
    let mut all = Vec::new();
    for it in &list.all {
        // What a link on its page leads to.
        let paths = Located::guarded_paths(&it.guarded_names, &settings.prefix, b"/");
        match admit(request, paths).await {
            Ok(_) => all.push(it.clone()),
            Err(fault) if matches!(fault.reject.status.0, 401 | 403 | 404) => {}
            // Too much to do: a part of the list would look like all of it.
            Err(fault) => return Err(fault),
        }
    }
    Ok(Arc::new(Settings::part(&list, all)))
}

/// The address of such a list.
async fn with_slash_if_any(
    settings: &Arc<Settings>,
    own: &OfPages,
    request: &Request,
    folder: Vec<u8>,
) -> Result<Response, Fault> {
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

fn is_allowed(own: &OfPages, request: &Request) -> Result<(), Fault> {
    let per_minute = own.pages_per_minute;
    let asked = own.readers.ask(request.peer, Work::Light, per_minute);
    asked.map_err(|why| own.readers.refused(why))
}

/// The page that is wanted of a repository.
fn wanted(rest: &[u8], request: &Request) -> Result<WantedPage, Fault> {
    match rest {
        // What git itself would ask for, and in another way.
        b"/info/refs" => return Err(refused(Reject::GIT_DUMB)),
        b"/git-upload-pack" | b"/git-receive-pack" => {
            return Err(refused(Reject::METHOD_NOT_ALLOWED));
        }
        _ => {}
    }
    let wanted = WantedPage::read(rest, request.query.as_deref());
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
    settings: &Settings,
    request: &Request,
    name: Vec<u8>,
    repository: Option<&Repository>,
) -> Place {
    let host = Fields(&request.fields)
        .first("host")
        .unwrap_or(&request.host);
    let scheme: &[u8] = if request.secure {
        b"https://"
    } else {
        b"http://"
    };
    Place {
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
