//! Releases of sites: the change to another release, the reports in the log, and the acknowledgments in the state
//! folder.

use super::publish::Publisher;
use super::watch::SiteId;
use crate::admin::status::ReleaseStatus;
use crate::base::digest::hex;
use crate::base::{atomic_file, clock};
use crate::site::{ReleaseRules, ReleaseState, Site, SiteAddresses};
use crate::world::{Host, World};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;

/// Last reported state of a release.
struct Reported {
    state: ReleaseState,
    addresses: SiteAddresses,
    /// Unix time of the beginning of the state.
    since: u64,
}

/// Last reports of releases. Each state, and each refusal, is reported once.
#[derive(Default)]
pub(super) struct ReleaseReports {
    /// Last reported state of each release, by the path of its pointer.
    states: HashMap<PathBuf, Reported>,
    /// Last reported refusal of each site, as in the log.
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
        let refusal =
            format!("the published release of the site {name} is not served: {reason}; {stays}");
        if self.refusals.get(&place) != Some(&refusal) {
            log::error!("{refusal}");
            self.refusals.insert(place, refusal);
        }
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
            let known = self.states.get(&rules.pointer());
            let is_same_state = known.is_some_and(|known| known.state == state);
            if is_same_state && known.is_some_and(|known| known.addresses == addresses) {
                continue;
            }
            let former = known.filter(|_| is_same_state).map(|known| known.since);
            if !is_same_state {
                report(rules, &state);
            }
            let since = acknowledge(rules, &state, &addresses);
            let reported = Reported {
                state,
                addresses,
                since: former.unwrap_or(since),
            };
            self.states.insert(rules.pointer(), reported);
        }
    }

    /// Returns the release of each site for the operator.
    pub(super) fn status(&self, world: &World) -> Vec<ReleaseStatus> {
        let hosts = world.hosts.iter().enumerate();
        let status = hosts.filter_map(|(host, its)| {
            let site = its.site.as_ref()?;
            let rules = site.rules().release.as_ref()?;
            let state = site.release_state()?;
            let known = self.states.get(&rules.pointer());
            let place = SiteId { host, route: None };
            Some(ReleaseStatus {
                site: rules.site.clone(),
                release: state.last().map(|last| (hex(&last.release), last.sequence)),
                is_withdrawn: matches!(state, ReleaseState::Withdrawn(_)),
                since: known.map_or(0, |known| known.since),
                refusal: self.refusals.get(&place).cloned(),
            })
        });
        status.collect()
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

/// Acknowledges a release, and returns the Unix time since which the release is served. After a restart the file has the
/// text already, and the time of the file counts.
fn acknowledge(rules: &ReleaseRules, state: &ReleaseState, addresses: &SiteAddresses) -> u64 {
    let ReleaseState::Served(served) = state else {
        // Publishers on this machine wait for the first acknowledgment if the folder is present.
        let _ = atomic_file::open_folder_to_all(&rules.served);
        return clock::unix_seconds_now();
    };
    let text = served.text() + &addresses.text();
    let text = text.as_bytes();
    if atomic_file::read(&rules.served).is_ok_and(|known| known == text)
        && let Ok(written) = fs::metadata(&rules.served)
    {
        return u64::try_from(written.mtime()).unwrap_or(0);
    }
    let written = atomic_file::open_folder_to_all(&rules.served)
        .and_then(|()| atomic_file::write(&rules.served, text, ACKNOWLEDGMENT_MODE));
    if let Err(error) = written {
        let file = rules.served.display();
        log::error!("{file}: the served release can't be acknowledged: {error}");
    }
    clock::unix_seconds_now()
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
