//! Hit counts: the number of views of each page of a site, by day. Counting sets no cookie and stores
//! nothing about the visitor.
//!
//! Each worker counts into a [`Tally`] of its own, and adds the tally at intervals to the process-wide
//! [`Hits`]: one table for each site, written to a small file in the state folder.

mod day_range;
mod hand_over;
mod user_agent;
mod site_hits;
mod state_file;
mod handler;
mod report;
mod table;
mod tally;

pub use crate::hits::day_range::{DayRange, format_day, parse_day};
pub use crate::hits::hand_over::HandedHits;
pub use crate::hits::handler::HitsHandler;
pub use crate::hits::site_hits::{SiteHits, SiteViews, today};
pub(crate) use crate::hits::user_agent::UserAgentCache;
pub use tally::Tally;

use crate::hits::site_hits::lock;
use base::atomic_file;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

/// Hit counts of all sites, one instance for the process.
#[derive(Default)]
pub struct Hits {
    sites: Mutex<Vec<Arc<SiteHits>>>,
    /// Number of the files with remaining counts that the process has written.
    rests: AtomicU32,
}

impl Hits {
    /// Returns the registered counts of the site with the first name `name`, else new counts. The ledger
    /// stays as it is: [`Hits::register`] adds new counts.
    pub fn find_or_new(&self, name: &str) -> Arc<SiteHits> {
        let sites = lock(&self.sites);
        let known = sites.iter().find(|site| site.name() == name).cloned();
        known.unwrap_or_else(|| Arc::new(SiteHits::new(name)))
    }

    /// Adds counts of [`Hits::find_or_new`] unless registered. The caller registers the counts before the
    /// next search for the site's name, so that the site never has two tables.
    pub(crate) fn register(&self, site: &Arc<SiteHits>) {
        let mut sites = lock(&self.sites);
        match sites.iter().find(|known| known.name() == site.name()) {
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

    /// Reads the counts that an earlier server process wrote, in place of the present counts of its sites; malformed
    /// lines are skipped.
    pub fn load(&self, state: &Path) -> io::Result<()> {
        let text = match atomic_file::read(&path(state)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            read => read?,
        };
        for theirs in read(&text) {
            let table = theirs.table().take();
            self.of(theirs.name()).replace(table);
        }
        Ok(())
    }

    /// Writes the counts if any site changed since the last write; blocks.
    pub fn save(&self, state: &Path) -> io::Result<()> {
        self.save_for(state, None)
    }

    /// Writes the counts as [`Hits::save`] does, into a file owned by the given user and group.
    pub fn save_for(&self, state: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
        let sites = lock(&self.sites).clone();
        let changed = |site: &&Arc<SiteHits>| site.take_changed();
        // `count` visits every site, because the filter also clears each site's mark.
        if sites.iter().filter(changed).count() == 0 {
            return Ok(());
        }
        let text = state_file::text(&sites);
        let written = atomic_file::write_for(&path(state), &text, 0o600, owner);
        if written.is_err() {
            let first = sites.first();
            first.inspect(|site| site.mark_changed());
        }
        written
    }

    /// Returns the counts of one site in the format of the state file; `None` if the table is empty.
    pub fn written(&self, site: &str) -> Option<Vec<u8>> {
        let site = self.find_or_new(site);
        let is_empty = site.table().is_empty();
        (!is_empty).then(|| state_file::text(&[site]))
    }

    /// Replaces the counts of `site` with the counts in `text`, which has the format of the state file.
    pub fn replace(&self, site: &str, text: &[u8]) {
        let Some(theirs) = read(text).into_iter().next() else {
            return;
        };
        let site = self.of(site);
        let table = theirs.table().take();
        site.replace(table);
        site.mark_changed();
    }

    /// Returns the report for the terminal on the given sites, by first name: of all days, or of a range.
    pub fn shown(&self, sites: &[&str], range: Option<DayRange>) -> String {
        let sites = self.named(sites);
        match range {
            None => report::text(&sites, today()),
            Some(range) => report::range_text(&sites, range),
        }
    }

    /// Returns the report as JSON on the given sites, by first name: of all days, or of a range.
    pub fn json(&self, sites: &[&str], range: Option<DayRange>) -> String {
        let sites = self.named(sites);
        match range {
            None => report::json(&sites, today()),
            Some(range) => report::range_json(&sites, range),
        }
    }

    fn named(&self, names: &[&str]) -> Vec<Arc<SiteHits>> {
        names.iter().map(|name| self.find_or_new(name)).collect()
    }
}

/// Reads counts in the format of the state file.
fn read(text: &[u8]) -> Vec<Arc<SiteHits>> {
    let read = Hits::default();
    state_file::read(text, &mut |name| read.of(name));
    std::mem::take(&mut lock(&read.sites))
}

fn path(state: &Path) -> PathBuf {
    state.join("hits")
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
