//! Secrets of a configuration: files of the server that no client may read, in any folder.

use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;

use crate::config::balancer::BalancerConfig;
use crate::config::configuration::Config;
use crate::config::log_table::LogTarget;
use crate::config::route_table::{RouteConfig, TargetConfig};
use crate::config::site_table::SiteConfig;

impl Config {
    /// Returns the paths of the secrets, files and whole folders: the configuration itself, user files,
    /// keys, also of client certificates, ticket keys, the program that publishes DNS records, logs, the control socket, the state
    /// folder, the store of releases, and the folders of repositories, which clients read only through the routes of the
    /// repositories.
    ///
    /// Certificates without a key and `client_ca` are public and not included. Files of redirects are no pages, and are
    /// included.
    pub(crate) fn secret_paths(&self) -> Vec<PathBuf> {
        let all = self.secrets_by_key().into_iter();
        let maps = self.sites.iter();
        let maps = maps.filter_map(|site| site.redirect_map.as_ref());
        let maps = maps.map(|map| map.get_ref().clone());
        all.map(|(_, _, path)| path).chain(maps).collect()
    }

    /// Returns the paths of [`Config::secret_paths`] with their keys in the configuration and their positions; the
    /// files of the configuration itself have an empty key.
    pub(super) fn secrets_by_key(&self) -> Vec<(&'static str, Range<usize>, PathBuf)> {
        let hook = self.tls.acme.as_ref().and_then(|acme| acme.hook.as_ref());
        let named = self.sites.iter().flat_map(of_site);
        let named = named.chain(self.tls.tickets.iter().map(|path| ("tickets", path)));
        let named = named.chain(hook.map(|path| ("hook", path)));
        let named = named.chain(self.manager_files());
        let named = named.chain(self.all_balancers().filter_map(BalancerConfig::secret_file));
        // The store also has previews and withdrawn releases.
        let releases = self.server.releases.iter();
        let named = named.chain(releases.map(|path| ("releases", path)));
        let server = &self.server;
        let named = named.chain([("state", &server.state), ("control", &server.control)]);
        let named = named.map(|(key, path)| (key, path.span(), path.get_ref().clone()));
        let logs = self
            .sites
            .iter()
            .filter_map(|site| site.log.access.as_ref());
        let logs = logs.map(|log| ("log", log));
        let logs = logs.chain([("access", &self.log.access), ("errors", &self.log.errors)]);
        let logs = logs.filter_map(|(key, log)| match log.get_ref() {
            LogTarget::File(path) => Some((key, log.span(), path.clone())),
            _ => None,
        });
        let own = self.source.paths().map(|path| ("", 0..0, path.to_owned()));
        named.chain(logs).chain(own).collect()
    }
}

fn of_site(site: &SiteConfig) -> impl Iterator<Item = (&'static str, &Spanned<PathBuf>)> {
    let users = site.routes.iter().flat_map(RouteConfig::user_files);
    let repositories = site.routes.iter().filter_map(|route| match &route.target {
        Some(TargetConfig::Git(git)) => Some(&git.folder),
        _ => None,
    });
    // A certificate without a separate key file contains the key.
    let combined = site.certificate.iter().filter(|_| site.key.is_none());
    let users = users.map(|path| ("users", path));
    let users = users.chain(site.preview_users().map(|path| ("preview_users", path)));
    let named = users.chain(repositories.map(|path| ("git", path)));
    let named = named.chain(site.key.iter().map(|path| ("key", path)));
    named.chain(combined.map(|path| ("certificate", path)))
}
