//! Opening of a site from a release, and the change to another release.

use super::{ReleaseContent, ReleaseError, ReleaseRules, ReleaseState, RetainedFiles};
use crate::site::published_rules::PublishedRules;
use crate::site::shared::{SiteShared, SiteSource};
use crate::site::{ContentBudget, Site, SiteError, SiteRules, TryPath};
use base::clock::unix_seconds_now;
use base::digest::hex;
use release::store::ServedRelease;
use std::hash::RandomState;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Site after another look at the store.
pub struct ReopenedSite {
    /// The site with the release of the pointer, or with the last good release.
    pub site: Site,
    /// Reason that the release of the pointer is not served.
    pub refused: Option<ReleaseError>,
}

/// Parts of a site that outlive a release: loaded files hold times relative to the start.
struct Lasting {
    budget: Arc<ContentBudget>,
    started: Instant,
    seed: RandomState,
    /// Files of earlier releases for open pages.
    retained: RetainedFiles,
}

impl Site {
    /// Opens the release of the pointer; blocks. If the pointer cannot be served, the site keeps the release of `former`,
    /// a site with equal `release` rules. Without `former`, the site gets the last acknowledged release. Without a release,
    /// the site refuses all requests. [`Site::reopened`] returns the reason.
    pub(in crate::site) fn open_release(
        rules: SiteRules,
        release: &ReleaseRules,
        budget: Arc<ContentBudget>,
        former: Option<&Site>,
    ) -> Result<Site, SiteError> {
        let same = former.filter(|former| former.rules().release.as_ref() == Some(release));
        let former = same.and_then(Site::release_state);
        let former = former.and_then(ReleaseState::last).copied();
        let last = former.or_else(|| release.acknowledged());
        let read = |found: ServedRelease| {
            let content = ReleaseContent::open(release, &found, &rules, None).ok()?;
            Some((found, content))
        };
        let pointed = release.read_pointer(last.as_ref()).ok().flatten();
        let opened = pointed.and_then(read).or_else(|| {
            let restored = || last.and_then(|last| release.restored(&last));
            former.or_else(restored).and_then(read)
        });
        let (state, content) = match opened {
            Some((found, content)) => (ReleaseState::Served(found), content),
            None => {
                let mut known = pointed.into_iter().chain(last);
                let is_withdrawn =
                    |it: &ServedRelease| release.is_withdrawn(&it.release).unwrap_or(false);
                let withdrawn = known.find(is_withdrawn);
                if let Some(withdrawn) = withdrawn {
                    release.remember_withdrawn(&withdrawn.release);
                }
                let state = withdrawn.map(ReleaseState::Withdrawn);
                (
                    state.unwrap_or(ReleaseState::Missing),
                    ReleaseContent::empty(),
                )
            }
        };
        let retained = match &state {
            // A reload keeps the files that the running server has, with their heads.
            ReleaseState::Served(_)
                if former == state.last().copied()
                    && same.is_some_and(|same| same.rules().has_cors == rules.has_cors) =>
            {
                let same = same.map(|same| same.shared.retained.clone());
                same.unwrap_or_default()
            }
            ReleaseState::Served(served) => {
                let served = (served, &content);
                RetainedFiles::read_history(release, &rules, served, unix_seconds_now())
            }
            _ => RetainedFiles::default(),
        };
        let lasting = Lasting {
            budget,
            started: Instant::now(),
            seed: RandomState::new(),
            retained,
        };
        Site::of_release(rules, lasting, state, content)
    }

    /// Returns the site as the store has it now; blocks. A pointer that cannot be served leaves the last good release in
    /// place. A withdrawn release ends at once.
    pub fn reopened(&self) -> ReopenedSite {
        let (Some(release), Some(state)) = (&self.shared.rules.release, self.release_state())
        else {
            return ReopenedSite::same(self, None);
        };
        self.shared.retained.end_withdrawn(release);
        let withdrawn = match state {
            ReleaseState::Served(served) => {
                let is_withdrawn = release.is_withdrawn(&served.release).unwrap_or(false);
                if is_withdrawn {
                    release.remember_withdrawn(&served.release);
                }
                is_withdrawn.then_some(ReleaseState::Withdrawn(*served))
            }
            _ => None,
        };
        let served = match (state, withdrawn) {
            (ReleaseState::Served(served), None) => Some(served),
            _ => None,
        };
        let last = state.last().copied().or_else(|| release.acknowledged());
        let opened = release.read_pointer(last.as_ref()).and_then(|found| {
            let found = found.filter(|found| served != Some(found));
            // The mark of the withdrawal is perhaps gone.
            if let (Some(found), ReleaseState::Withdrawn(former)) = (found, state)
                && found.release == former.release
            {
                let what = format!("the release {} is withdrawn", hex(&found.release));
                let path = release.pointer();
                let publication = Some((found.release, found.sequence));
                return Err(ReleaseError {
                    path,
                    what,
                    publication,
                });
            }
            found
                .map(|found| self.with_release(release, found))
                .transpose()
        });
        match (opened, withdrawn) {
            (Ok(Some(site)), _) => ReopenedSite {
                site,
                refused: None,
            },
            (opened, None) => ReopenedSite::same(self, opened.err()),
            (opened, Some(state)) => ReopenedSite {
                site: self.with_content(state, ReleaseContent::empty()),
                refused: opened.err(),
            },
        }
    }

    /// Opens another release of the site as a preview; blocks. No cache may keep the files of a preview.
    pub fn open_preview(&self, release: [u8; 32]) -> Result<Site, ReleaseError> {
        let mut rules = self.rules().clone();
        rules.is_preview = true;
        let Some(release_rules) = &self.shared.rules.release else {
            return Err(ReleaseError {
                path: rules.root,
                what: "a folder has no releases".to_owned(),
                publication: None,
            });
        };
        let found = ServedRelease {
            release,
            sequence: 0,
            time: 0,
        };
        let content = ReleaseContent::open(release_rules, &found, &rules, None)?;
        let lasting = Lasting {
            budget: Arc::clone(&self.shared.budget),
            started: Instant::now(),
            seed: RandomState::new(),
            retained: RetainedFiles::default(),
        };
        let path = release_rules.blob(&release);
        Site::of_release(rules, lasting, ReleaseState::Served(found), content).map_err(|error| {
            let what = error.to_string();
            ReleaseError {
                path,
                what,
                publication: None,
            }
        })
    }

    /// Returns the bytes of memory of the tree and the published rules, without loaded contents. Walks the whole tree.
    pub fn memory_bytes(&self) -> usize {
        self.tree.memory_bytes() + self.shared.published.memory_bytes()
    }

    /// Returns the site with another release.
    fn with_release(
        &self,
        release: &ReleaseRules,
        found: ServedRelease,
    ) -> Result<Site, ReleaseError> {
        let former = Some((&self.tree, &self.shared.published));
        let content = ReleaseContent::open(release, &found, &self.shared.rules, former);
        let content = content.map_err(|error| ReleaseError {
            publication: Some((found.release, found.sequence)),
            ..error
        })?;
        Ok(self.with_content(ReleaseState::Served(found), content))
    }

    fn with_content(&self, state: ReleaseState, content: ReleaseContent) -> Site {
        let shared = &self.shared;
        let lasting = Lasting {
            budget: Arc::clone(&shared.budget),
            started: shared.started,
            seed: shared.seed.clone(),
            retained: match self.release_state() {
                Some(former) => {
                    let (former, next) = ((former, &*self.tree), (&state, &*content.tree));
                    let retained = &shared.retained;
                    retained.after_change(former, next, unix_seconds_now())
                }
                None => RetainedFiles::default(),
            },
        };
        // The rules were accepted before.
        Site::of_release(shared.rules.clone(), lasting, state, content)
            .unwrap_or_else(|_| self.clone())
    }

    fn of_release(
        rules: SiteRules,
        lasting: Lasting,
        state: ReleaseState,
        content: ReleaseContent,
    ) -> Result<Site, SiteError> {
        let ReleaseContent { tree, published } = content;
        let mut tries = super::super::tries(&rules)?;
        match state.refusal() {
            Some(_) => tries.change(Vec::clear),
            None => {
                let has_retained = !lasting.retained.is_empty();
                tries.change(|tries| add_redirects(tries, &published, has_retained));
            }
        }
        let shared = SiteShared {
            rules,
            published,
            tries,
            source: SiteSource::Release(state),
            budget: lasting.budget,
            started: lasting.started,
            stale: Mutex::default(),
            seed: lasting.seed,
            retained: lasting.retained,
        };
        Ok(Site {
            tree,
            shared: Arc::new(shared),
        })
    }

    /// Returns the state of the release; None for a folder.
    pub fn release_state(&self) -> Option<&ReleaseState> {
        match &self.shared.source {
            SiteSource::Release(state) => Some(state),
            SiteSource::Folder(_) => None,
        }
    }
}

impl ReopenedSite {
    fn same(site: &Site, refused: Option<ReleaseError>) -> ReopenedSite {
        ReopenedSite {
            site: site.clone(),
            refused,
        }
    }
}

/// Adds the files of earlier releases and the redirects of a release to the paths to try. A fixed path of `try` answers
/// for all missing paths, so both come before.
fn add_redirects(tries: &mut Vec<TryPath>, published: &PublishedRules, has_retained: bool) {
    let fixed = |it: &TryPath| matches!(it, TryPath::Fixed(_));
    let place = tries.iter().position(fixed).unwrap_or(tries.len());
    if !published.redirects.unforced.is_empty() {
        tries.insert(place, TryPath::Redirects);
    }
    if has_retained {
        tries.insert(place, TryPath::Retained);
    }
    if !published.redirects.forced.is_empty() {
        tries.insert(0, TryPath::ForcedRedirects);
    }
}
