//! Rules for files: those of the site, and those of routes for the paths below a prefix. Of several routes, the route with
//! the longest path that says something about a key, a file, a field or a status decides.

use super::host::{HostBuilder, glob};
use crate::config::{
    CacheControlConfig, Config, HeadersConfig, OperatorError, RouteConfig, RouteFilesConfig,
    SiteConfig,
};
use crate::git::browse::render::readme::folder_readme;
use data_plane::site::{CacheControlRule, HeaderRules, PathRules, ReadmeRenderer, SiteRules};
use release::glob::Glob;
use std::cmp::Reverse;
use wire::request_target::is_below;

impl HostBuilder<'_> {
    /// Sets the rules for files, except those that the site alone has: of the route with the path `mount`, or of the site
    /// itself.
    pub(super) fn set_file_rules(
        &self,
        rules: &mut SiteRules,
        mount: Option<&[u8]>,
    ) -> Result<(), OperatorError> {
        let (site, at) = (self.site, mount.unwrap_or_default());
        let index = self.nearest(at, |files| files.index.as_ref());
        rules.index.clone_from(index.unwrap_or(&site.index));
        let listing = self.nearest(at, |files| files.listing.as_ref());
        rules.listing = *listing.unwrap_or(&site.listing);
        let routes = self.site.routes.iter();
        let lists = routes
            .filter(|route| route.files.listing == Some(true))
            .count();
        rules.readme = (rules.listing || lists > 0).then_some(ReadmeRenderer(folder_readme));
        let tries = self.nearest_route(at, |files| files.try_paths.as_ref());
        rules.try_paths = match tries {
            Some((route, paths)) => self.tries_of(route, paths, mount),
            None => self.file_tries(&site.try_paths, mount.is_none()),
        };
        // An error page is a file of the site, also for a request of a route with its own root.
        let of_all = site.routes.iter().filter(|route| prefix(route).is_empty());
        let of_all = of_all.flat_map(|route| &route.files.errors);
        rules.errors = error_pages(of_all.chain(&site.errors));
        // A release has the files that its publisher chose.
        if rules.release.is_none() {
            rules.hide = self.hide_at(at);
            rules.tells_doubtful = !self.has_own_hide(at);
        }
        rules.cache = cache_rules(self.config, site, at)?;
        match mount {
            None => rules.headers.clone_from(&self.headers),
            Some(mount) => rules.headers = headers(self.config, site, mount)?,
        }
        rules.below = self.path_rules(mount);
        Ok(())
    }

    /// Returns the rules for the paths below `mount`, the longest path first.
    fn path_rules(&self, mount: Option<&[u8]>) -> Vec<PathRules> {
        let at = mount.unwrap_or_default();
        let routes = self.site.routes.iter();
        let routes = routes.filter(|route| route.has_file_rules());
        let mut prefixes: Vec<&[u8]> = routes
            .map(prefix)
            .filter(|prefix| within(prefix, at).is_some_and(|rest| !rest.is_empty()))
            .collect();
        prefixes.sort_by_key(|prefix| (Reverse(prefix.len()), *prefix));
        prefixes.dedup();
        let rules = prefixes.into_iter().map(|path| {
            let set = || {
                self.site
                    .routes
                    .iter()
                    .filter(|route| prefix(route) == path)
            };
            let tries = set().find_map(|route| Some((route, route.files.try_paths.as_ref()?)));
            let errors = set().flat_map(|route| &route.files.errors);
            PathRules {
                below: within(path, at).unwrap_or_default().into(),
                index: set().find_map(|route| route.files.index.clone()),
                try_paths: tries.map(|(route, paths)| self.tries_of(route, paths, mount)),
                errors: error_pages(errors),
                listing: set().find_map(|route| route.files.listing),
                hide: set().find_map(|route| Some(globs(route.files.hide.as_ref()?.get_ref()))),
            }
        });
        rules.collect()
    }

    /// Returns the entries of the `try` of a route that name files.
    fn tries_of(&self, route: &RouteConfig, paths: &[String], mount: Option<&[u8]>) -> Vec<String> {
        self.file_tries(paths, mount.is_none() && !route.files_first)
    }

    /// Returns the globs of the files that no client gets, for the folder of the path `prefix`.
    pub(super) fn hide_at(&self, prefix: &[u8]) -> Vec<Glob> {
        let of_route = self.nearest(prefix, |files| files.hide.as_ref());
        globs(of_route.map_or(&self.site.hide, |hide| hide.get_ref()))
    }

    /// Returns true if the operator has decided which files of the folder of the path `prefix` no client gets.
    fn has_own_hide(&self, prefix: &[u8]) -> bool {
        let of_route = self.nearest(prefix, |files| files.hide.as_ref());
        self.site.has_own_hide || of_route.is_some()
    }

    /// Returns the value of a key for `path`: of the route with the longest path that sets the key.
    fn nearest<'b, T>(
        &'b self,
        path: &[u8],
        key: impl Fn(&'b RouteFilesConfig) -> Option<&'b T>,
    ) -> Option<&'b T> {
        self.nearest_route(path, key).map(|(_, value)| value)
    }

    /// Returns the value of a key for `path`, with the route.
    fn nearest_route<'b, T>(
        &'b self,
        path: &[u8],
        key: impl Fn(&'b RouteFilesConfig) -> Option<&'b T>,
    ) -> Option<(&'b RouteConfig, &'b T)> {
        let routes = self.site.routes.iter();
        let covering = routes.filter(|route| is_below(path, prefix(route)));
        let set = covering.filter_map(|route| Some((route, key(&route.files)?)));
        set.max_by_key(|(route, _)| prefix(route).len())
    }
}

/// Returns the response fields that the operator sets, for the paths below `mount`. Later rules win: those of the site
/// come first, and then those of the routes by the length of their paths.
pub(super) fn headers(
    config: &Config,
    site: &SiteConfig,
    mount: &[u8],
) -> Result<HeaderRules, OperatorError> {
    let mut routes: Vec<&RouteConfig> = site.routes.iter().collect();
    routes.sort_by_key(|route| prefix(route).len());
    let of_routes = routes
        .into_iter()
        .filter_map(|route| Some((within(prefix(route), mount)?, &route.files.headers)));
    let all = [(&b""[..], &site.headers)].into_iter().chain(of_routes);
    let rules = all.flat_map(|(below, rules)| rules.iter().map(move |rule| (below, rule)));
    rules
        .map(|(below, HeadersConfig { files, set })| {
            Ok((glob(config, files)?.within(below), set.clone()))
        })
        .collect()
}

/// Returns the rules for Cache-Control, for the paths below `mount`. The first rule wins: those of the routes come first,
/// the longest path first, and then those of the site.
fn cache_rules(
    config: &Config,
    site: &SiteConfig,
    mount: &[u8],
) -> Result<Vec<(Glob, CacheControlRule)>, OperatorError> {
    let mut routes: Vec<&RouteConfig> = site.routes.iter().collect();
    routes.sort_by_key(|route| Reverse(prefix(route).len()));
    let of_routes = routes
        .into_iter()
        .filter_map(|route| Some((within(prefix(route), mount)?, &route.files.cache)));
    let all = of_routes.chain([(&b""[..], &site.cache)]);
    let rules = all.flat_map(|(below, rules)| rules.iter().map(move |rule| (below, rule)));
    rules
        .map(|(below, CacheControlConfig { files, rule })| {
            Ok((glob(config, files)?.within(below), *rule))
        })
        .collect()
}

fn error_pages<'c>(
    pages: impl Iterator<Item = &'c (u16, crate::config::Spanned<String>)>,
) -> Vec<(u16, String)> {
    pages
        .map(|(status, page)| (*status, page.get_ref().clone()))
        .collect()
}

/// Parses globs. The reader of the configuration has refused invalid ones.
fn globs(globs: &[String]) -> Vec<Glob> {
    globs.iter().filter_map(|it| Glob::parse(it).ok()).collect()
}

/// Returns the path of a route without a slash at the end.
fn prefix(route: &RouteConfig) -> &[u8] {
    route.path.get_ref().trim_end_matches('/').as_bytes()
}

/// Returns the part of a route's path behind `mount`, without a slash at either end: empty if the route covers all paths
/// below `mount`. Returns None for a route of other paths.
fn within<'p>(prefix: &'p [u8], mount: &[u8]) -> Option<&'p [u8]> {
    if is_below(mount, prefix) {
        return Some(b"");
    }
    prefix.strip_prefix(mount)?.strip_prefix(b"/")
}
