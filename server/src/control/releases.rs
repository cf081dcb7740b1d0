//! Releases of sites: the change to another release, the reports in the log, and the acknowledgments in the state
//! folder.

use super::publish::Publisher;
use super::watch::{HostPart, SiteId};
use crate::admin::status::ReleaseStatus;
use base::digest::hex;
use base::{atomic_file, clock};
use data_plane::site::{ReleaseError, ReleaseRules, ReleaseState, Site};
use data_plane::world::{Host, World};
use release::acknowledgment::{ACKNOWLEDGMENT_MODE, SiteAddresses, record_refusal};
use release::store::ReleaseSupport;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
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
    pub(super) fn accept(&mut self, place: SiteId, site: &Site) {
        self.refusals.remove(&place);
        if let Some(rules) = &site.rules().release {
            record(rules, None);
        }
    }

    /// Reports the reason that the release of the pointer is not served, in the log and to publishers. `site` is the site as
    /// served from now on.
    pub(super) fn refuse(&mut self, place: SiteId, site: &Site, refused: &ReleaseError) {
        let Some(rules) = &site.rules().release else {
            return;
        };
        let (name, reason) = (&rules.site, refused.to_string());
        let stays = match site.release_state() {
            Some(ReleaseState::Served(last)) => {
                format!("the release {} stays served", last.short())
            }
            _ if place.part == HostPart::AwaitedRelease => "the folder stays served".to_owned(),
            _ => "the site answers 503".to_owned(),
        };
        let refusal =
            format!("the published release of the site {name} is not served: {reason}; {stays}");
        if self.refusals.get(&place) != Some(&refusal) {
            log::error!("{refusal}");
            self.refusals.insert(place, refusal);
        }
        // The next publication may have the same refusal.
        let publication = refused.publication.as_ref();
        record(
            rules,
            publication.map(|(release, sequence)| (release, *sequence, &*reason)),
        );
    }

    /// Reports the releases that all workers serve, and acknowledges the releases in the state folder.
    pub(super) fn report(&mut self, publisher: &Publisher) {
        if ReleaseSupport::find().is_none() {
            return;
        }
        let mut reported = HashSet::new();
        for host in publisher.world().hosts.iter() {
            let site = host.release_site();
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
                report(rules, &state, awaiting_folder(host));
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
            let site = its.release_site()?;
            let rules = site.rules().release.as_ref()?;
            let state = site.release_state()?;
            let known = self.states.get(&rules.pointer());
            let part = if its.awaited.is_some() {
                HostPart::AwaitedRelease
            } else {
                HostPart::Files
            };
            let place = SiteId { host, part };
            Some(ReleaseStatus {
                site: rules.site.clone(),
                release: state.last().map(|last| (hex(&last.release), last.sequence)),
                is_withdrawn: matches!(state, ReleaseState::Withdrawn(_)),
                serves_folder: its.awaited.is_some(),
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
    let preview = host.previews.as_ref().map(|it| &it.name);
    SiteAddresses {
        site: name.and_then(|name| publisher.url(name)),
        preview: preview.and_then(|name| publisher.url(name)),
    }
}

/// Records the refusal of a publication for publishers, or removes the record.
fn record(rules: &ReleaseRules, refused: Option<(&[u8; 32], u64, &str)>) {
    let recorded = match refused {
        Some(_) => atomic_file::open_folder_to_all(&rules.served),
        None => Ok(()),
    };
    if let Err(error) = recorded.and_then(|()| record_refusal(&rules.served, refused)) {
        let file = rules.served.display();
        log::error!("{file}: the refusal of a release can't be recorded: {error}");
    }
}

/// Returns the folder that a host serves until its first release.
fn awaiting_folder(host: &Host) -> Option<&Path> {
    host.awaited.as_ref()?;
    Some(&host.site.as_ref()?.rules().root)
}

/// Reports the state of a release. `folder` is served until the first release.
fn report(rules: &ReleaseRules, state: &ReleaseState, folder: Option<&Path>) {
    let name = &rules.site;
    match (state, folder) {
        (ReleaseState::Missing, Some(folder)) => log::info!(
            "the site {name} serves the folder {} until its first release in {}: {}",
            folder.display(),
            rules.store.display(),
            advice(rules)
        ),
        (ReleaseState::Missing, None) => log::warn!(
            "the site {name} has no release in {}, and answers 503: {}",
            rules.store.display(),
            advice(rules)
        ),
        (ReleaseState::Served(served), _) => log::info!(
            "the site {name} serves the release {} with the sequence {}",
            served.short(),
            served.sequence
        ),
        (ReleaseState::Withdrawn(last), _) => log::warn!(
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

/// Returns warnings about releases that cannot be served, for `anthill check`.
pub(super) fn warnings(world: &World) -> Vec<String> {
    let warning = |host: &Arc<Host>| {
        let site = host.release_site()?;
        let rules = site.rules().release.as_ref()?;
        let name = &rules.site;
        match (site.reopened().refused, site.release_state()?) {
            (Some(refused), _) => Some(format!(
                "the release of the site {name} can't be served: {refused}"
            )),
            (None, ReleaseState::Missing) => {
                let meanwhile = match awaiting_folder(host) {
                    Some(folder) => format!("serves the folder {} until then", folder.display()),
                    None => "would answer 503".to_owned(),
                };
                Some(format!(
                    "the site {name} has no release yet, and {meanwhile}: {}",
                    advice(rules)
                ))
            }
            (None, _) => None,
        }
    };
    let mut warnings: Vec<String> = world.hosts.iter().filter_map(warning).collect();
    for host in world.hosts.iter() {
        let previews = host.previews.as_ref();
        let Some(previews) = previews.filter(|it| it.users.is_none() && !host.has_login()) else {
            continue;
        };
        let name = &previews.name;
        let what = match (name.split_once('.'), previews.ids_need_login) {
            (Some(("*", _)), true) => {
                format!("the previews `{name}` answer neither labels nor the digits of releases")
            }
            (Some(("*", _)), false) => format!("the previews `{name}` answer no labels"),
            (label, _) => {
                let label = label.map_or("", |(label, _)| label);
                format!("the preview `{name}` does not answer with the label `{label}`")
            }
        };
        warnings.push(format!(
            "{what}, since no login guards them: add `preview_users`"
        ));
    }
    warnings
}

/// Returns the commands that publish a first release.
fn advice(rules: &ReleaseRules) -> String {
    let (name, store) = (&rules.site, rules.store.display());
    format!(
        "`anthill publish DIR {store}:{name}` here, or `anthill publish DIR HOST:{name}` from another machine, publishes a folder"
    )
}
