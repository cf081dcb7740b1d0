//! Redirects of a site, from `redirects` and the file of `redirect_map`, and the refusal of loops.

use crate::build::limits::{REDIRECT_HOPS_MAX, REDIRECT_MAP_BYTES_MAX};
use crate::config::{Config, MappedRedirect, OperatorError, SiteConfig, Spanned, TargetConfig};
use base::atomic_file;
use data_plane::site::ReleaseState;
use data_plane::world::{Host, RouteTarget};
use release::redirect_map;
use release::redirects::{RedirectRule, Redirected, Redirects};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use wire::normal_path::normalise;
use wire::request_target::{self};

/// Redirects of a site with their places in the files.
pub(super) struct SiteRedirects<'c> {
    config: &'c Config,
    site: &'c SiteConfig,
    /// Path and text of the map.
    map: Option<(String, String)>,
    /// Redirects of the configuration, then redirects of the map. A redirect of the configuration has the line 0.
    all: Vec<Spanned<MappedRedirect>>,
}

impl<'c> SiteRedirects<'c> {
    /// Reads the redirects of a site.
    pub(super) fn read(
        config: &'c Config,
        site: &'c SiteConfig,
    ) -> Result<SiteRedirects<'c>, OperatorError> {
        let mut redirects = SiteRedirects {
            config,
            site,
            map: None,
            all: site.redirects.clone(),
        };
        if let Some(path) = &site.redirect_map {
            let text = read_map(config, path)?;
            let read = redirect_map::read(&text);
            redirects.map = Some((path.get_ref().display().to_string(), text));
            let read = read.map_err(|errors| {
                let errors = errors.into_iter();
                let errors = errors.map(|it| redirects.error_in_line(it.line, it.what, &it.help));
                OperatorError::all(errors.collect())
                    .unwrap_or_else(|| OperatorError::new("the map has a mistake"))
            });
            let read = read?.into_iter().map(|it| Spanned::new(0..0, it));
            redirects.all.extend(read);
        }
        Ok(redirects)
    }

    /// Returns the tables of the redirects; `None` without redirects.
    pub(super) fn tables(&self) -> Result<Option<Arc<Redirects>>, OperatorError> {
        let rules = self.all.iter().map(|redirect| {
            let redirect = redirect.get_ref();
            RedirectRule {
                status: redirect.status,
                is_forced: redirect.is_forced,
                from: &redirect.from,
                to: redirect.to.as_bytes(),
            }
        });
        let rules: Vec<_> = rules.collect();
        // A page for status 404 is a part of the format, for releases.
        if let Some(page) = self.all.iter().find(|it| it.get_ref().status == 404) {
            let help = format!(
                "remove the line, and write errors = {{ 404 = \"{}\" }} in [[site]]",
                page.get_ref().to
            );
            return Err(self.error(page, redirect_map::MISSING_PAGE, &help));
        }
        let tables = Redirects::new(&rules).map_err(|(nth, what)| {
            let help = "write a path with an initial slash, or a URL of http or https";
            self.error(&self.all[nth], what, help)
        })?;
        Ok((!rules.is_empty()).then(|| Arc::new(tables)))
    }

    /// Refuses a redirect of the site that leads to itself, directly or by other redirects.
    pub(super) fn refuse_loops(&self, host: &Host) -> Result<(), OperatorError> {
        let server = &self.config.server;
        let listeners = server.https.iter().chain(&server.http);
        let ports = listeners.map(|listener| listener.get_ref().address.port());
        let own = self.site.listen.iter();
        let own = own.map(|listener| listener.get_ref().address.address.port());
        let own_ports: Vec<u16> = if self.site.listen.is_empty() {
            ports.chain(server.public_port).chain([80, 443]).collect()
        } else {
            own.collect()
        };
        for redirect in &self.all {
            // `*` in a path stands for any rest, and no literal part of a path contains `*`.
            if let Some(what) = endless(host, &own_ports, redirect.get_ref().from.clone()) {
                let help = loop_help(&redirect.get_ref().to);
                return Err(self.error(redirect, &what, &help));
            }
        }
        for route in &self.site.routes {
            if let Some(TargetConfig::Redirect(redirect)) = &route.target {
                let prefix = route.path.get_ref().trim_end_matches('/');
                if let Some(what) = endless(host, &own_ports, format!("{prefix}/*").into_bytes()) {
                    let help = loop_help(redirect.to.get_ref());
                    return Err(self.config.point(redirect.to.span(), what, help));
                }
            }
        }
        Ok(())
    }

    fn error(&self, redirect: &Spanned<MappedRedirect>, what: &str, help: &str) -> OperatorError {
        match redirect.get_ref().line {
            0 => self.config.point(redirect.span(), what, help),
            line => self.error_in_line(line, what.to_owned(), help),
        }
    }

    /// Returns an error that points at a line of the map.
    fn error_in_line(&self, line: usize, what: String, help: &str) -> OperatorError {
        let error = OperatorError::new(what).help(help);
        let Some((path, text)) = &self.map else {
            return error;
        };
        let text_of_line = text.lines().nth(line - 1).unwrap_or_default().trim();
        let start = text_of_line.as_ptr() as usize - text.as_ptr() as usize;
        error.at(path, text, start..start + text_of_line.len())
    }
}

/// Returns the help for a loop with the destination `to`.
fn loop_help(to: &str) -> String {
    let usual = "write a destination that no redirect matches, such as the path of a file";
    match to.split_once("://") {
        Some((scheme, rest)) => {
            let host = rest.split(['/', ':', '?']).next().unwrap_or_default();
            let back = if scheme == "http" {
                ", and http:// leads back to https://"
            } else {
                ""
            };
            format!(
                "`{host}` is a name of this site{back}: write another host, or remove the redirect; the first of `names` is \
                 the name to which the server redirects; otherwise {usual}"
            )
        }
        None => usual.to_owned(),
    }
}

fn read_map(config: &Config, path: &Spanned<PathBuf>) -> Result<String, OperatorError> {
    let shown = path.get_ref().display();
    let refuse = |what: String, help: &str| config.point(path.span(), what, help);
    let read = atomic_file::read_bounded(path.get_ref(), REDIRECT_MAP_BYTES_MAX);
    let bytes = read.map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => refuse(
            format!("{shown} is larger than {REDIRECT_MAP_BYTES_MAX} bytes"),
            "replace redirects with a common beginning by one with `*`",
        ),
        _ => refuse(
            format!("{shown} can't be read: {error}"),
            "name a file with a redirect in each line, such as `/old /new 301`",
        ),
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        let what = format!("{shown}:{line} is no text in UTF-8");
        refuse(what, "percent-encode the path, or save the file as UTF-8")
    })
}

/// Returns true if the site has a file for a path, or may get the file with its first deployment or release.
fn may_have_file(host: &Host, path: &[u8]) -> bool {
    let Some(site) = &host.site else {
        return true;
    };
    let is_to_come = |state: &ReleaseState| !matches!(state, ReleaseState::Served(_));
    let release = host.release_site().and_then(|site| site.release_state());
    release.is_some_and(is_to_come) || site.resolve(path).has_own_file()
}

/// Follows the redirects from `path`. Returns the mistake if no end is reached after [`REDIRECT_HOPS_MAX`] redirects.
fn endless(host: &Host, own_ports: &[u16], path: Vec<u8>) -> Option<String> {
    let mut passed = vec![path];
    while passed.len() <= REDIRECT_HOPS_MAX {
        let next = next_path(host, own_ports, passed.last()?)?;
        let is_back = passed.iter().any(|path| trimmed(path) == trimmed(&next));
        passed.push(next);
        if is_back {
            break;
        }
    }
    let shown = passed
        .iter()
        .take(SHOWN_HOPS)
        .map(|path| String::from_utf8_lossy(path));
    let shown = shown.collect::<Vec<_>>().join(", ");
    Some(match passed.len() {
        2 => format!("the redirect leads to itself: {shown}"),
        3..=SHOWN_HOPS => format!("the redirects lead in a circle: {shown}"),
        _ => format!("the redirects do not end: {shown}, …"),
    })
}

/// Returns a path without the final slash, since `/old` and `/old/` have one redirect.
fn trimmed(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

/// Paths of a loop in an error message.
const SHOWN_HOPS: usize = 4;

/// Returns the path to which the site redirects a path; `None` if the path is not redirected, or to another host.
fn next_path(host: &Host, own_ports: &[u16], path: &[u8]) -> Option<Vec<u8>> {
    let inner = path.strip_prefix(b"/")?;
    let redirects = host.redirects.as_ref();
    let forced = redirects.and_then(|redirects| redirects.forced.find(inner));
    let found = match (forced, host.policy(path).route()) {
        (Some(found), _) => found.answer(None),
        (None, None) if may_have_file(host, path) => return None,
        (None, None) => redirects?.unforced.find(inner)?.answer(None),
        (None, Some(route)) => match &route.target {
            Some(RouteTarget::Redirect(redirect)) => Redirected::To {
                status: redirect.status,
                location: redirect.location(&path[route.prefix.len()..], None),
            },
            _ => return None,
        },
    };
    let Redirected::To { location, .. } = found else {
        return None;
    };
    let end = location.iter().position(|byte| b"?#".contains(byte));
    let location = &location[..end.unwrap_or(location.len())];
    let schemes = [&b"https://"[..], b"http://"];
    let mut schemes = schemes.iter();
    let path = match schemes.find_map(|scheme| location.strip_prefix(*scheme)) {
        None => location,
        Some(url) => {
            let end = url.iter().position(|byte| *byte == b'/');
            let (host_and_port, path) = url.split_at(end.unwrap_or(url.len()));
            let (name, port) = request_target::valid_host(host_and_port)?;
            // At another port may be another server.
            let is_own = port.is_none_or(|port| own_ports.contains(&port));
            let mut names = host.names.iter().filter(|_| is_own);
            names.find(|own| own.as_bytes().eq_ignore_ascii_case(name))?;
            path
        }
    };
    match path {
        b"" => (location.len() > path.len()).then(|| b"/".to_vec()),
        path => normalise(path).ok().map(|path| path.into_owned()),
    }
}
