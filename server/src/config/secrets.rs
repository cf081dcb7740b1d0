//! Which files of a configuration are the server's own: no client may have them, whatever folder they
//! lie in.

use std::path::PathBuf;

use toml::Spanned;

use super::{Config, LogTo, Site, Target};

impl Config {
    /// Files, and folders with all that is in them: the configuration itself, user files, keys, ticket
    /// keys, the program that publishes DNS records, logs, the control socket, the state folder, and
    /// the folders of repositories, which are read through their routes alone.
    ///
    /// Not among them are certificates without a key and `client_ca`, which are public.
    pub fn secrets(&self) -> Vec<PathBuf> {
        let hook = self.tls.acme.as_ref().and_then(|acme| acme.hook.as_ref());
        let named = self.sites.iter().flat_map(of_site);
        let named = named.chain(&self.tls.tickets).chain(hook);
        let named = named.chain([&self.server.state, &self.server.control]);
        let named = named.map(|path| path.get_ref().clone());
        let logs = self.sites.iter().filter_map(|site| site.log.as_ref());
        let logs = logs.chain([&self.log.access, &self.log.errors]);
        let logs = logs.filter_map(|log| match log.get_ref() {
            LogTo::File(path) => Some(path.clone()),
            _ => None,
        });
        named.chain(logs).chain(self.path.clone()).collect()
    }
}

fn of_site(site: &Site) -> impl Iterator<Item = &Spanned<PathBuf>> {
    let users = site.routes.iter().filter_map(|route| route.users.as_ref());
    let repositories = site.routes.iter().filter_map(|route| match &route.target {
        Some(Target::Git(git)) => Some(&git.folder),
        _ => None,
    });
    // A certificate without a key of its own has the key in its file.
    let combined = site.certificate.iter().filter(|_| site.key.is_none());
    users.chain(repositories).chain(&site.key).chain(combined)
}
