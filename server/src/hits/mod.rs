//! Hit counts: the number of views of each page of a site, by day. Counting sets no cookie and stores
//! nothing about the visitor.
//!
//! Each worker counts into a [`Tally`] of its own, and adds the tally at intervals to the process-wide
//! [`Hits`]: one table for each site, written to a small file in the state folder.

mod user_agent;
mod state_file;
mod handler;
mod report;
mod table;
mod tally;

pub use crate::hits::handler::HitsHandler;
pub use crate::hits::user_agent::UserAgentCache;
pub use tally::Tally;

use crate::base::{atomic_file, clock};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use table::HitTable;

/// Hit counts of all sites, one instance for the process.
#[derive(Default)]
pub struct Hits {
    sites: Mutex<Vec<Arc<SiteHits>>>,
}

/// Hit counts of one site.
pub struct SiteHits {
    /// First name of the site in the configuration.
    name: Box<str>,
    table: Mutex<HitTable>,
    /// Whether the table holds counts missing from the file.
    is_changed: AtomicBool,
}

impl Hits {
    /// Returns the registered counts of the site with the first name `name`, else new counts. The ledger
    /// stays as it is: [`Hits::register`] adds new counts.
    pub fn find_or_new(&self, name: &str) -> Arc<SiteHits> {
        let sites = lock(&self.sites);
        let known = sites.iter().find(|site| *site.name == *name).cloned();
        known.unwrap_or_else(|| {
            Arc::new(SiteHits {
                name: name.into(),
                table: Mutex::default(),
                is_changed: AtomicBool::new(false),
            })
        })
    }

    /// Adds counts of [`Hits::find_or_new`] unless registered. The caller registers the counts before the
    /// next search for the site's name, so that the site never has two tables.
    pub fn register(&self, site: &Arc<SiteHits>) {
        let mut sites = lock(&self.sites);
        match sites.iter().find(|known| known.name == site.name) {
            None => sites.push(site.clone()),
            Some(known) => debug_assert!(Arc::ptr_eq(known, site)),
        }
    }

    /// Returns the registered counts of the site with the first name `name`, created if absent.
    fn of(&self, name: &str) -> Arc<SiteHits> {
        let site = self.find_or_new(name);
        self.register(&site);
        site
    }

    /// Reads the counts that an earlier server process wrote; malformed lines are skipped.
    pub fn load(&self, state: &Path) -> io::Result<()> {
        let text = match atomic_file::read(&path(state)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            read => read?,
        };
        state_file::read(self, &text);
        Ok(())
    }

    /// Writes the counts if any site changed since the last write; blocks.
    pub fn save(&self, state: &Path) -> io::Result<()> {
        self.save_for(state, None)
    }

    /// Writes the counts as [`Hits::save`] does, into a file owned by the given user and group.
    pub fn save_for(&self, state: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
        let sites = lock(&self.sites).clone();
        let changed = |site: &&Arc<SiteHits>| site.is_changed.swap(false, Ordering::Relaxed);
        // `count` visits every site, because the filter also clears each site's mark.
        if sites.iter().filter(changed).count() == 0 {
            return Ok(());
        }
        let text = state_file::text(&sites);
        let written = atomic_file::write_for(&path(state), &text, 0o600, owner);
        if written.is_err() {
            let first = sites.first();
            first.inspect(|site| site.is_changed.store(true, Ordering::Relaxed));
        }
        written
    }

    /// Returns the counts of one site in the format of the state file; `None` if the table is empty.
    pub fn written(&self, site: &str) -> Option<Vec<u8>> {
        let site = self.find_or_new(site);
        let is_empty = site.table().days.is_empty() && site.table().pages.is_empty();
        (!is_empty).then(|| state_file::text(&[site]))
    }

    /// Replaces the counts of `site` with the counts in `text`, which has the format of the state file.
    pub fn replace(&self, site: &str, text: &[u8]) {
        let read = Hits::default();
        state_file::read(&read, text);
        let Some(theirs) = lock(&read.sites).first().cloned() else {
            return;
        };
        let site = self.of(site);
        std::mem::swap(&mut *site.table(), &mut *theirs.table());
        site.is_changed.store(true, Ordering::Relaxed);
    }

    /// Returns the report for the terminal on the given sites, by first name.
    pub fn shown(&self, sites: &[&str]) -> String {
        report::text(&self.named(sites), today())
    }

    /// Returns the report as JSON on the given sites, by first name.
    pub fn json(&self, sites: &[&str]) -> String {
        report::json(&self.named(sites), today())
    }

    fn named(&self, names: &[&str]) -> Vec<Arc<SiteHits>> {
        names.iter().map(|name| self.find_or_new(name)).collect()
    }
}

impl SiteHits {
    /// Returns the first name of the site.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Excludes all paths below `prefix` from the counts.
    pub fn exclude(&self, prefix: &[u8]) {
        self.table().exclude(prefix);
    }

    fn table(&self) -> MutexGuard<'_, HitTable> {
        lock(&self.table)
    }

    /// Adds views to the counts of a page on a day.
    fn add(&self, path: &[u8], views: u32, bots: u32, day: u32) {
        self.table().add(path, views, bots, day);
        self.is_changed.store(true, Ordering::Relaxed);
    }
}

/// Returns the number of the current day, counted from 1970-01-01 UTC.
fn today() -> u32 {
    day_of(clock::unix_seconds_now())
}

fn day_of(unix_seconds: u64) -> u32 {
    (unix_seconds / 86_400) as u32
}

fn path(state: &Path) -> PathBuf {
    state.join("hits")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_counts_are_known_after_the_registration() {
        let hits = Hits::default();
        let site = hits.find_or_new("a");
        assert!(!Arc::ptr_eq(&site, &hits.find_or_new("a")));
        hits.register(&site);
        hits.register(&site);
        assert!(Arc::ptr_eq(&site, &hits.find_or_new("a")));
        assert!(Arc::ptr_eq(&site, &hits.of("a")));
        assert_eq!(lock(&hits.sites).len(), 1);
    }

    #[test]
    fn a_handler_excludes_no_path_before_the_world_is_served() {
        let site = Hits::default().find_or_new("a");
        let _handler = HitsHandler::new(site.clone(), b"/stats");
        site.add(b"/stats/x", 1, 0, 5);
        site.exclude(b"/stats");
        site.add(b"/stats/x", 1, 0, 5);
        assert_eq!(site.table().pages[&b"/stats/x"[..]].views, 1);
    }
}
