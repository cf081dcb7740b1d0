//! What to serve, decided beforehand and replaced whole.
//!
//! Control builds a [`World`] from the configuration, all or nothing, and hands it to every worker;
//! a request looks at one World from beginning to end, so half a configuration can't exist.

pub mod allow_list;
pub mod build;
pub mod query_pattern;
pub mod users;

use crate::base::change_tracker::SiteChangeTracker;
use crate::base::log::{AccessLogFormat, Sink};
use crate::cache::CachedHandler;
use crate::handler::route_handler::RouteHandler;
use crate::handler::script::cgi::has_ending;
use crate::hits::SiteHits;
use crate::limits::Limits;
use crate::site::Site;
use crate::tls::{PairFingerprint, PendingChallenges, Tls};
use crate::upstream::{Backend, ReusePolicy};
use crate::wire::h2::hpack;
use crate::wire::h3::qpack;
use crate::world::allow_list::AllowList;
use crate::world::query_pattern::QueryPattern;
use std::sync::Arc;
use users::{Logins, Users};

/// One configuration, ready to serve. Cheap to clone.
#[derive(Clone)]
pub struct World {
    /// Counts up with every publication.
    pub generation: u64,
    /// Which paths of which sites are guarded: as long as it is this, they are the same.
    pub guards: u64,
    /// The operator's bounds.
    pub limits: Limits,
    /// All certificates; None when nothing is served over TLS.
    pub tls: Option<Arc<Tls>>,
    /// Sites by name.
    pub hosts: Hosts,
    /// Where lines go that belong to no site.
    pub access: Option<AccessLog>,
    /// What is known of passwords that came a moment ago: a ledger, shared by all Worlds.
    pub logins: Arc<Logins>,
    /// The port that redirects to https name; None when there is no https.
    pub https_port: Option<u16>,
    /// HTTP/2 is spoken without TLS, with who begins so.
    pub h2c: bool,
    /// Challenges that are pending: a ledger; None where no certificate comes by itself.
    pub challenges: Option<Arc<PendingChallenges>>,
    /// The port at which HTTP/3 is announced; None where it isn't spoken.
    pub h3_port: Option<u16>,
    /// Each backend once; see [`World::settle`].
    pub backends: Vec<BackendReuse>,
}

/// A backend, and what becomes of connections to it.
pub type BackendReuse = (Arc<Backend>, ReusePolicy);

impl World {
    /// Tells the ledgers what holds from now on, when this is about to be served.
    pub fn settle(&self) {
        for (backend, keep) in &self.backends {
            backend.set_reuse_policy(*keep);
        }
    }
}

/// Where and how access lines are written.
#[derive(Clone)]
pub struct AccessLog {
    /// The destination, shared with every site that logs to it.
    pub sink: Sink,
    /// How lines look.
    pub format: AccessLogFormat,
}

/// One site as the outside knows it.
#[derive(Clone)]
pub struct Host {
    /// All names, lower case, the first canonical; `*` = any.
    pub names: Vec<String>,
    /// What a client on another name is sent to; None when the site answers to any name.
    pub canonical: Option<Box<[u8]>>,
    /// Plain HTTP only redirects.
    pub http_redirects: bool,
    /// Browsers are told to come by https alone, for a while (RFC 6797).
    pub hsts: bool,
    /// What this site's responses say over TLS alone.
    pub secure_fields: Arc<SecureFields>,
    /// The site that answers where no route has a target of its own; None where routes do everywhere.
    pub site: Option<Arc<Site>>,
    /// Where `try` ends if the site has nothing: at another route's handler, or at a script of the
    /// site with the path that was asked for behind it.
    pub fallback: Option<Fallback>,
    /// The query for what the last of `try` leads to, be it a script of the site or a handler.
    pub try_query: Option<QueryPattern>,
    /// In the order of the configuration.
    pub routes: Vec<Route>,
    /// Any route has `allow` or `users`: then the path that is opened is checked too.
    pub guarded: bool,
    /// Any route has `scripts`: then what is opened may have to be run.
    pub scripted: bool,
    /// Which certificate files and client-certificate demand a connection for this site has.
    pub identity: PairFingerprint,
    /// Only a client with a certificate may be served, so nothing may be over plain HTTP.
    pub demands_certificate: bool,
    /// This site's log.
    pub access: Option<AccessLog>,
    /// Where views of its pages are counted; None where they aren't.
    pub hits: Option<Arc<SiteHits>>,
    /// How far it lags behind the disk: a ledger, shared by all Worlds.
    pub lag: SiteChangeTracker,
}

/// Fields that every response of a site has over TLS, and none has without: ready for every version of
/// HTTP, and empty for most.
#[derive(Debug, Default)]
pub struct SecureFields {
    /// Field lines, each with its CRLF.
    pub lines: Box<[u8]>,
    /// The same, as part of a field block of HTTP/2.
    pub block: Box<[u8]>,
    /// As part of a field section of HTTP/3, without what leads there.
    pub section: Box<[u8]>,
}

impl SecureFields {
    /// For a site that promises to be there by https for `hsts` seconds (RFC 6797 §7.2), and over
    /// HTTP/3 at this port (RFC 7838 §3).
    pub fn new(hsts: Option<u64>, h3_port: Option<u16>) -> SecureFields {
        let hsts = hsts.map(|age| format!("Strict-Transport-Security: max-age={age}\r\n"));
        let hsts = hsts.unwrap_or_default();
        let alt_svc =
            h3_port.map(|port| format!("Alt-Svc: h3=\":{port}\"; ma={ALT_SVC_SECONDS}\r\n"));
        let lines = format!("{hsts}{}", alt_svc.unwrap_or_default()).into_bytes();
        let (mut block, mut section) = (Vec::new(), Vec::new());
        hpack::push_lines(&lines, &mut block);
        qpack::push_lines(hsts.as_bytes(), &mut section);
        SecureFields {
            lines: lines.into(),
            block: block.into(),
            section: section.into(),
        }
    }
}

/// How long a client may remember that HTTP/3 is spoken here. One that then finds nobody goes on by
/// TCP by itself.
const ALT_SVC_SECONDS: u32 = 86_400;

/// A part of a site's paths that is treated in its own way.
#[derive(Clone)]
pub struct Route {
    /// Whole components of the decoded path, beginning with `/`, without a trailing slash ("" = all).
    pub prefix: Box<[u8]>,
    /// What answers, or None where the route only guards files.
    pub target: Option<RouteTarget>,
    /// Who may come in by address.
    pub allow: Option<AllowList>,
    /// Who may come in by login.
    pub users: Option<Arc<Users>>,
    /// What runs some of the site's files instead of sending them.
    pub scripts: Option<SiteScripts>,
}

/// A path that a handler or a script of the site answers, whatever was asked for.
#[derive(Clone)]
pub struct Fallback {
    /// Its beginning, or all of it.
    pub before: Box<[u8]>,
    /// What was asked for follows.
    pub goes_on: bool,
    /// It begins with a script among the site's files.
    pub is_script: bool,
}

impl Fallback {
    /// Reads the last of `try`: `/app.cgi`, or `/app.cgi$path` where the path asked for is to follow.
    /// None for what only names files.
    pub fn parse(text: &str) -> Option<Fallback> {
        let (before, goes_on) = match text.split_once("$path") {
            None => (text, false),
            Some((before, "")) => (before.trim_end_matches('/'), true),
            Some(_) => return None,
        };
        let before = format!("/{}", before.trim_start_matches('/'));
        (before.len() > 1).then(|| Fallback {
            before: before.into_bytes().into(),
            goes_on,
            is_script: false,
        })
    }

    /// What answers for this path.
    pub fn path(&self, asked: &[u8]) -> Vec<u8> {
        let rest = if self.goes_on { asked } else { b"" };
        [&self.before, rest].concat()
    }
}

/// What runs files of a site, by their endings.
#[derive(Clone)]
pub struct SiteScripts {
    /// With their dots.
    pub endings: Arc<[String]>,
    /// Handler that runs the files.
    pub handler: RouteHandler,
    /// The same handler with the page cache in front; None where no response is stored.
    pub cache: Option<Arc<CachedHandler>>,
}

/// What answers under a route.
#[derive(Clone)]
pub enum RouteTarget {
    /// Another place, with what follows the prefix appended if it ends with a slash.
    Redirect(Box<[u8]>),
    /// Another path of the same site.
    Rewrite {
        /// With what follows the prefix appended if it ends with a slash.
        path: Box<[u8]>,
        /// The query for a script; without one, what was asked for.
        query: Option<QueryPattern>,
    },
    /// Another folder.
    Site(Arc<Site>),
    /// Live.
    Handler(RouteHandler),
    /// Live, with the page cache before it.
    Cached(Arc<CachedHandler>),
    /// Repositories of git.
    Git {
        /// What git asks for.
        exchanges: RouteHandler,
        /// What a browser asks for, with the page cache before it.
        pages: Arc<CachedHandler>,
    },
}

impl AccessLog {
    /// The same destination and format.
    pub fn is_same(&self, other: &AccessLog) -> bool {
        self.format == other.format && self.sink.is_same(&other.sink)
    }
}

impl Route {
    /// Does this route cover `path` (whole components)?
    pub fn covers(&self, path: &[u8]) -> bool {
        match path.strip_prefix(&*self.prefix) {
            Some(rest) => rest.is_empty() || rest[0] == b'/',
            None => false,
        }
    }
}

impl Host {
    /// The target for `path` with what follows its prefix: the longest match wins.
    pub fn target<'h, 'p>(&'h self, path: &'p [u8]) -> Option<(&'h RouteTarget, &'p [u8])> {
        self.routes
            .iter()
            .filter(|route| route.target.is_some() && route.covers(path))
            .max_by_key(|route| route.prefix.len())
            .and_then(|route| Some((route.target.as_ref()?, &path[route.prefix.len()..])))
    }

    /// What runs the file at `path` of the site, if it isn't one to be sent: the longest match wins.
    pub fn scripts(&self, path: &[u8]) -> Option<&SiteScripts> {
        let runs = |route: &&Route| {
            let scripts = route.scripts.as_ref();
            let mut endings = scripts.iter().flat_map(|scripts| scripts.endings.iter());
            endings.any(|ending| has_ending(path, ending)) && route.covers(path)
        };
        let routes = self.routes.iter().filter(|_| self.scripted).filter(runs);
        let route = routes.max_by_key(|route| route.prefix.len())?;
        route.scripts.as_ref()
    }

    /// Every route that covers `path` and guards it.
    pub fn guards<'h>(&'h self, path: &'h [u8]) -> impl Iterator<Item = &'h Route> {
        let guarded = self.guarded;
        self.routes.iter().filter(move |route| {
            guarded && (route.allow.is_some() || route.users.is_some()) && route.covers(path)
        })
    }
}

/// Sites by the names that clients use.
#[derive(Clone, Default)]
pub struct Hosts {
    all: Vec<Arc<Host>>,
    /// Lower case, sorted.
    exact: Vec<(Box<[u8]>, usize)>,
    /// Without their `*`, so beginning with a dot; the longest first.
    suffixes: Vec<(Box<[u8]>, usize)>,
    any: Option<usize>,
}

impl Hosts {
    /// Puts the names of `hosts` in order; two sites with one name were refused before.
    pub fn new(all: Vec<Arc<Host>>) -> Hosts {
        let mut hosts = Hosts {
            all,
            ..Hosts::default()
        };
        for (index, host) in hosts.all.iter().enumerate() {
            for name in &host.names {
                // Put in at their places: lists this short need no sort, which is kilobytes of code.
                match name.as_bytes() {
                    b"*" => hosts.any = Some(index),
                    [b'*', suffix @ ..] => {
                        let sorted = &mut hosts.suffixes;
                        let place = sorted.partition_point(|(it, _)| it.len() >= suffix.len());
                        sorted.insert(place, (suffix.into(), index));
                    }
                    name => {
                        let place = hosts.exact.partition_point(|(it, _)| **it < *name);
                        hosts.exact.insert(place, (name.into(), index));
                    }
                }
            }
        }
        hosts
    }

    /// The site for a Host without port, in any case; a trailing dot is the same name.
    pub fn find(&self, name: &[u8]) -> Option<&Arc<Host>> {
        // One site for any name is the common set-up on a small machine.
        if self.exact.is_empty() && self.suffixes.is_empty() {
            return self.any.map(|index| &self.all[index]);
        }
        let name = name.strip_suffix(b".").unwrap_or(name);
        let mut lower = [0; 255];
        let index = match lower.get_mut(..name.len()) {
            Some(lower) => {
                lower.copy_from_slice(name);
                lower.make_ascii_lowercase();
                self.find_lower(lower)
            }
            None => None,
        };
        index.or(self.any).map(|index| &self.all[index])
    }

    fn find_lower(&self, name: &[u8]) -> Option<usize> {
        if let Ok(found) = self
            .exact
            .binary_search_by(|(exact, _)| (**exact).cmp(name))
        {
            return Some(self.exact[found].1);
        }
        self.suffixes
            .iter()
            .find(|(suffix, _)| {
                // One label only, as in certificates (RFC 6125 §6.4.3).
                name.strip_suffix(&**suffix)
                    .is_some_and(|label| !label.is_empty() && !label.contains(&b'.'))
            })
            .map(|(_, index)| *index)
    }

    /// Every site, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Host>> {
        self.all.iter()
    }
}
