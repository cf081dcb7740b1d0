//! Hit counts: how often each page of a site was seen, and on which day. No cookie is set for it, and
//! nothing is kept of who it was.
//!
//! A worker counts for itself ([`Tally`]); now and then it adds what it counted to the ledger here,
//! one table for each site, which is written to a small file of the state folder.

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

/// The ledger, one for the process.
#[derive(Default)]
pub struct Hits {
    sites: Mutex<Vec<Arc<SiteHits>>>,
}

/// The counts of one site.
pub struct SiteHits {
    /// Its first name.
    name: Box<str>,
    table: Mutex<HitTable>,
    /// There is more than was written.
    is_changed: AtomicBool,
}

impl Hits {
    /// The counts of the site with this first name.
    pub fn of(&self, name: &str) -> Arc<SiteHits> {
        let mut sites = lock(&self.sites);
        if let Some(site) = sites.iter().find(|site| *site.name == *name) {
            return site.clone();
        }
        let site = Arc::new(SiteHits {
            name: name.into(),
            table: Mutex::default(),
            is_changed: AtomicBool::new(false),
        });
        sites.push(site.clone());
        site
    }

    /// Reads what an earlier server has counted; lines that make no sense are passed over.
    pub fn load(&self, state: &Path) -> io::Result<()> {
        let text = match atomic_file::read(&path(state)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            read => read?,
        };
        state_file::read(self, &text);
        Ok(())
    }

    /// Writes what has changed since; blocks.
    pub fn save(&self, state: &Path) -> io::Result<()> {
        self.save_for(state, None)
    }

    /// The same, into a file that belongs to this user and group.
    pub fn save_for(&self, state: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
        let sites = lock(&self.sites).clone();
        let changed = |site: &&Arc<SiteHits>| site.is_changed.swap(false, Ordering::Relaxed);
        // Every site is asked, for its mark is taken away.
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

    /// The counts of one site as its file has them; `None` if there are none.
    pub fn written(&self, site: &str) -> Option<Vec<u8>> {
        let site = self.of(site);
        let is_empty = site.table().days.is_empty() && site.table().pages.is_empty();
        (!is_empty).then(|| state_file::text(&[site]))
    }

    /// Takes the counts that such a text has instead of those of `site`.
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

    /// For people: of these sites, by their first names.
    pub fn shown(&self, sites: &[&str]) -> String {
        report::text(&self.named(sites), today())
    }

    /// For programs.
    pub fn json(&self, sites: &[&str]) -> String {
        report::json(&self.named(sites), today())
    }

    fn named(&self, names: &[&str]) -> Vec<Arc<SiteHits>> {
        names.iter().map(|name| self.of(name)).collect()
    }
}

impl SiteHits {
    fn table(&self) -> MutexGuard<'_, HitTable> {
        lock(&self.table)
    }

    /// Adds to a page's counts of a day.
    fn add(&self, path: &[u8], views: u32, bots: u32, day: u32) {
        self.table().add(path, views, bots, day);
        self.is_changed.store(true, Ordering::Relaxed);
    }
}

/// Days since 1970, UTC.
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
