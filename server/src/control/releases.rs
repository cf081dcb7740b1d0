//! Releases of sites: the change to another release, the reports in the log, and the acknowledgments in the state
//! folder.

use super::publish::Publisher;
use super::watch::SiteId;
use crate::base::atomic_file;
use crate::site::{ReleaseRules, ReleaseState, Site, SiteAddresses};
use crate::world::{Host, World};
use std::collections::{HashMap, HashSet};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Last reports of releases. Each state, and each refusal, is reported once.
#[derive(Default)]
pub(super) struct ReleaseReports {
    /// Last reported state and addresses of each release, by the path of its pointer.
    states: HashMap<PathBuf, (ReleaseState, SiteAddresses)>,
    /// Last reported refusal of each site.
    refusals: HashMap<SiteId, String>,
}

impl ReleaseReports {
    /// Forgets the refusals, since another configuration has other sites.
    pub(super) fn clear_refusals(&mut self) {
        self.refusals.clear();
    }

    /// Forgets the refusal of a site, after its release was accepted.
    pub(super) fn accept(&mut self, place: SiteId) {
        self.refusals.remove(&place);
    }

    /// Reports the reason that the release of the pointer is not served. `site` is the site as served from now on.
    pub(super) fn refuse(&mut self, place: SiteId, site: &Site, reason: String) {
        if self.refusals.get(&place) == Some(&reason) {
            return;
        }
        let name = site
            .rules()
            .release
            .as_ref()
            .map_or("", |release| &release.site);
        let stays = match site.release_state() {
            Some(ReleaseState::Served(last)) => {
                format!("the release {} stays served", last.short())
            }
            _ => "the site answers 503".to_owned(),
        };
        log::error!("the published release of the site {name} is not served: {reason}; {stays}");
        self.refusals.insert(place, reason);
    }

    /// Reports the releases that all workers serve, and acknowledges the releases in the state folder.
    pub(super) fn report(&mut self, publisher: &Publisher) {
        let mut reported = HashSet::new();
        for host in publisher.world().hosts.iter() {
            let site = host.site.as_ref();
            let Some((rules, state)) = site
                .and_then(|site| Some((site.rules().release.as_ref()?, *site.release_state()?)))
            else {
                continue;
            };
            // The first of several sites with one release has the addresses.
            if !reported.insert(rules.pointer()) {
                continue;
            }
            let addresses = addresses(host, publisher);
            let known = self
                .states
                .insert(rules.pointer(), (state, addresses.clone()));
            if known.as_ref().is_none_or(|(known, _)| *known != state) {
                report(rules, &state);
            }
            if known.is_none_or(|known| known != (state, addresses.clone())) {
                acknowledge(rules, &state, &addresses);
            }
        }
    }
}

/// Returns the addresses of a site and of its previews.
fn addresses(host: &Host, publisher: &Publisher) -> SiteAddresses {
    let name = host.names.iter().find(|name| !name.starts_with('*'));
    let preview = host.previews.as_ref();
    let preview = preview.map(|it| format!("*{}", String::from_utf8_lossy(&it.parent)));
    SiteAddresses {
        site: name.and_then(|name| publisher.url(name)),
        preview: preview.and_then(|name| publisher.url(&name)),
    }
}

fn report(rules: &ReleaseRules, state: &ReleaseState) {
    let name = &rules.site;
    match state {
        ReleaseState::Missing => log::warn!(
            "the site {name} has no release in {}, and answers 503: `anthill publish DIR HOST:{name}` publishes a folder",
            rules.store.display()
        ),
        ReleaseState::Served(served) => log::info!(
            "the site {name} serves the release {} with the sequence {}",
            served.short(),
            served.sequence
        ),
        ReleaseState::Withdrawn(last) => log::warn!(
            "the release {} of the site {name} is withdrawn, and the site answers 503 until the next release",
            last.short()
        ),
    }
}

/// Writes the acknowledgment of a release. After a restart the file has the text already.
fn acknowledge(rules: &ReleaseRules, state: &ReleaseState, addresses: &SiteAddresses) {
    let ReleaseState::Served(served) = state else {
        // Publishers on this machine wait for the first acknowledgment if the folder is present.
        let folder = rules.served.parent().unwrap_or(Path::new(""));
        let _ = DirBuilder::new().mode(0o755).create(folder);
        return;
    };
    let text = served.text() + &addresses.text();
    let text = text.as_bytes();
    if atomic_file::read(&rules.served).is_ok_and(|known| known == text) {
        return;
    }
    if let Err(error) = atomic_file::write(&rules.served, text, ACKNOWLEDGMENT_MODE) {
        let file = rules.served.display();
        log::error!("{file}: the served release can't be acknowledged: {error}");
    }
}

/// Permissions of an acknowledgment: publishers have other accounts.
const ACKNOWLEDGMENT_MODE: u32 = 0o644;

/// Returns warnings about releases that cannot be served, for `anthill check`.
pub(super) fn warnings(world: &World) -> Vec<String> {
    let sites = world.hosts.iter().filter_map(|host| host.site.as_ref());
    let warning = |site: &Arc<Site>| {
        let name = &site.rules().release.as_ref()?.site;
        match (site.reopened().refused, site.release_state()?) {
            (Some(refused), _) => Some(format!(
                "the release of the site {name} can't be served: {refused}"
            )),
            (None, ReleaseState::Missing) => Some(format!(
                "the site {name} has no release yet, and would answer 503: `anthill publish DIR HOST:{name}` publishes a \
                 folder"
            )),
            (None, _) => None,
        }
    };
    sites.filter_map(warning).collect()
}
