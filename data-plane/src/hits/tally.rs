//! Counts of one worker since its last flush. Each worker has a tally of its own, so counting takes no
//! lock, and a page that is already in the tally costs no allocation.

use super::site_hits::{SiteHits, day_of};
use crate::limits::HITS_TALLY_PATHS_MAX;
use base::hash::FastBuildHasher;
use std::collections::HashMap;
use std::sync::Arc;

/// Counts that a worker has not added to the process-wide counts yet.
#[derive(Default)]
pub struct Tally {
    sites: Vec<(Arc<SiteHits>, PathCounts)>,
    paths: usize,
    is_empty: bool,
}

/// Views by people and views by bots, by path.
type PathCounts = HashMap<Box<[u8]>, [u32; 2], FastBuildHasher>;

impl Tally {
    /// Counts one view. `unix_seconds` is the current time, used if the tally is full and has to be
    /// flushed.
    pub(crate) fn count(
        &mut self,
        site: &Arc<SiteHits>,
        path: &[u8],
        is_bot: bool,
        unix_seconds: u64,
    ) {
        self.is_empty = false;
        let known = self
            .sites
            .iter()
            .position(|(known, _)| Arc::ptr_eq(known, site));
        let index = known.unwrap_or_else(|| {
            self.sites.push((site.clone(), PathCounts::default()));
            self.sites.len() - 1
        });
        if let Some(counts) = self.sites[index].1.get_mut(path) {
            counts[usize::from(is_bot)] += 1;
            return;
        }
        if self.paths >= HITS_TALLY_PATHS_MAX {
            // The first flush adds the counts, the second removes all paths.
            self.flush(unix_seconds);
            self.flush(unix_seconds);
        }
        let mut counts = [0; 2];
        counts[usize::from(is_bot)] = 1;
        self.sites[index].1.insert(path.into(), counts);
        self.paths += 1;
    }

    /// Returns true if no view was counted since the last flush.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty || self.paths == 0
    }

    /// Adds all counts to the process-wide counts. Paths without a view since the last flush are removed;
    /// the remaining paths keep their entries with counts of zero.
    pub(crate) fn flush(&mut self, unix_seconds: u64) {
        let day = day_of(unix_seconds);
        self.paths = 0;
        for (site, paths) in &mut self.sites {
            paths.retain(|path, counts| {
                let [views, bots] = std::mem::take(counts);
                let is_seen = views + bots > 0;
                if is_seen {
                    site.add(path, views, bots, day);
                }
                is_seen
            });
            self.paths += paths.len();
        }
        self.is_empty = true;
    }

    /// Adds all counts to the process-wide counts and releases the sites.
    pub(crate) fn flush_and_clear(&mut self, unix_seconds: u64) {
        self.flush(unix_seconds);
        *self = Tally::default();
    }
}
