//! What one worker has counted since it last told: its own, so it needs no lock, and a page that was
//! counted before costs no allocation.

use super::{SiteHits, day_of};
use crate::base::hash::FastBuildHasher;
use crate::limits::HITS_TALLY_PATHS_MAX;
use std::collections::HashMap;
use std::sync::Arc;

/// Counts on their way to the ledger.
#[derive(Default)]
pub struct Tally {
    sites: Vec<(Arc<SiteHits>, PathCounts)>,
    paths: usize,
    is_empty: bool,
}

/// Views by people and by bots, of each path.
type PathCounts = HashMap<Box<[u8]>, [u32; 2], FastBuildHasher>;

impl Tally {
    /// Counts one view. `unix_seconds` is now, for when it has to make room.
    pub fn count(&mut self, site: &Arc<SiteHits>, path: &[u8], is_bot: bool, unix_seconds: u64) {
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
            // Told twice, so that what is in it is dropped.
            self.flush(unix_seconds);
            self.flush(unix_seconds);
        }
        let mut counts = [0; 2];
        counts[usize::from(is_bot)] = 1;
        self.sites[index].1.insert(path.into(), counts);
        self.paths += 1;
    }

    /// Has it nothing to tell?
    pub fn is_empty(&self) -> bool {
        self.is_empty || self.paths == 0
    }

    /// Adds all to the ledger. A path that wasn't seen since the last time is forgotten; the others
    /// keep their places.
    pub fn flush(&mut self, unix_seconds: u64) {
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

    /// Tells all, and lets go of the sites.
    pub fn flush_and_clear(&mut self, unix_seconds: u64) {
        self.flush(unix_seconds);
        *self = Tally::default();
    }
}
