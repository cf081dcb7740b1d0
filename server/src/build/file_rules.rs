//! Rules for files: those of the site, and those of routes for the paths below a prefix. Of several routes, the route with
//! the longest path that sets a key decides.

use super::host::HostBuilder;
use crate::config::{RouteConfig, RouteFilesConfig};
use data_plane::site::{PathRules, SiteRules};
use release::glob::Glob;
use std::cmp::Reverse;
use wire::request_target::is_below;

impl HostBuilder<'_> {
    /// Sets the rules for the files of a folder that answers for the paths below `mount`.
    pub(super) fn set_path_rules(&self, rules: &mut SiteRules, mount: &[u8]) {
        // A release has the files that its publisher chose.
        if rules.release.is_none() {
            rules.hide = self.hide_at(mount);
            rules.tells_doubtful = !self.has_own_hide(mount);
        }
        let prefixes = self
            .site
            .routes
            .iter()
            .filter(|route| route.has_file_rules());
        let prefixes = prefixes.map(prefix).filter(|prefix| {
            let rest = prefix.strip_prefix(mount);
            rest.is_some_and(|rest| rest.starts_with(b"/"))
        });
        let mut prefixes: Vec<&[u8]> = prefixes.collect();
        prefixes.sort_by_key(|prefix| (Reverse(prefix.len()), *prefix));
        prefixes.dedup();
        let below = prefixes.into_iter().map(|path| {
            let hide = self.set_at(path, |files| files.hide.as_ref());
            PathRules {
                below: path[mount.len() + 1..].into(),
                hide: hide.map(|it| globs(it.get_ref())),
            }
        });
        rules.below = below.collect();
    }

    /// Returns the globs of the files that no client gets, for the folder of the path `prefix`.
    pub(super) fn hide_at(&self, prefix: &[u8]) -> Vec<Glob> {
        let of_route = self.nearest(prefix, |files| files.hide.as_ref());
        globs(of_route.map_or(&self.site.hide, |hide| hide.get_ref()))
    }

    /// Returns true if the operator has decided which files of the folder of the path `prefix` no client gets.
    pub(super) fn has_own_hide(&self, prefix: &[u8]) -> bool {
        self.site.has_own_hide || self.nearest(prefix, |files| files.hide.as_ref()).is_some()
    }

    /// Returns the value of a key for `path`: of the route with the longest path that sets the key.
    fn nearest<'b, T>(
        &'b self,
        path: &[u8],
        key: impl Fn(&'b RouteFilesConfig) -> Option<&'b T>,
    ) -> Option<&'b T> {
        let routes = self.site.routes.iter();
        let covering = routes.filter(|route| is_below(path, prefix(route)));
        let set = covering.filter_map(|route| Some((prefix(route).len(), key(&route.files)?)));
        set.max_by_key(|(length, _)| *length)
            .map(|(_, value)| value)
    }

    /// Returns the value of a key that a route with exactly the path sets.
    fn set_at<'b, T>(
        &'b self,
        path: &[u8],
        key: impl Fn(&'b RouteFilesConfig) -> Option<&'b T>,
    ) -> Option<&'b T> {
        let mut routes = self.site.routes.iter();
        routes.find_map(|route| key(&route.files).filter(|_| prefix(route) == path))
    }
}

/// Parses globs. The reader of the configuration has refused invalid ones.
fn globs(globs: &[String]) -> Vec<Glob> {
    globs.iter().filter_map(|it| Glob::parse(it).ok()).collect()
}

/// Returns the path of a route without a slash at the end.
fn prefix(route: &RouteConfig) -> &[u8] {
    route.path.get_ref().trim_end_matches('/').as_bytes()
}
