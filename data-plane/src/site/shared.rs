//! Data shared by all scans of a site: the rules, the source of the files, and the budget for their content.

use super::content_budget::ContentBudget;
use super::file::TICKS_PER_SECOND;
use super::prepared_heads::{CorsSource, set_fields};
use super::published_rules::PublishedRules;
use super::release::{ReleaseState, RetainedFiles};
use super::root::SiteRoot;
use super::rules::{SiteRules, TryLists};
use crate::limits::STALE_PATHS_MAX;
use std::ffi::OsStr;
use std::hash::RandomState;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Data shared by all scans of a site.
pub(super) struct SiteShared {
    pub(super) rules: SiteRules,
    /// Rules that come with the content.
    pub(super) published: PublishedRules,
    pub(super) tries: TryLists,
    pub(super) source: SiteSource,
    pub(super) budget: Arc<ContentBudget>,
    /// Start of the clock for the age of load failures.
    pub(super) started: Instant,
    /// Paths of files found to differ from the tree.
    pub(super) stale: Mutex<Vec<PathBuf>>,
    /// Secret seed for multipart boundaries.
    pub(super) seed: RandomState,
    /// Earlier releases with files for open pages; empty for a folder.
    pub(super) retained: RetainedFiles,
}

/// Source of the files of a site.
pub(super) enum SiteSource {
    /// Folder, with the open root.
    Folder(SiteRoot),
    /// Release in a store.
    Release(ReleaseState),
}

impl SiteShared {
    /// Returns the root of a folder; None for a release.
    pub(super) fn root(&self) -> Option<&SiteRoot> {
        match &self.source {
            SiteSource::Folder(root) => Some(root),
            SiteSource::Release(_) => None,
        }
    }

    /// Returns the time of the publication of the release, in seconds since 1970; None for a folder.
    pub(super) fn published_at(&self) -> Option<u64> {
        match &self.source {
            SiteSource::Folder(_) => None,
            SiteSource::Release(state) => Some(state.last().map_or(0, |release| release.time)),
        }
    }

    /// Returns the fields that the rules set for a path.
    pub(super) fn set_fields(&self, path: &[u8], cors: CorsSource) -> Vec<(&str, &str)> {
        set_fields(&self.rules, &self.published, path, cors)
    }

    /// Returns the time since the site was opened in ticks, modulo 2^32, for [`LoadFailure`](super::file::LoadFailure).
    pub(super) fn now(&self) -> u32 {
        (self.started.elapsed().as_millis() * TICKS_PER_SECOND / 1000) as u32
    }

    pub(super) fn stale(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.stale.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note_stale(&self, path: &[u8]) {
        let path = Path::new(OsStr::from_bytes(path));
        let mut stale = self.stale();
        if stale.len() < STALE_PATHS_MAX && !stale.iter().any(|known| known == path) {
            stale.push(path.to_path_buf());
        }
    }
}

impl Drop for SiteShared {
    fn drop(&mut self) {
        self.budget.sweep();
    }
}
