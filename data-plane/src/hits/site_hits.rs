//! Hit counts of one site, shared by all workers.

use crate::hits::table::HitTable;
use base::clock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Hit counts of one site.
pub struct SiteHits {
    /// First name of the site in the configuration.
    name: Box<str>,
    table: Mutex<HitTable>,
    /// Whether the table holds counts missing from the file.
    is_changed: AtomicBool,
}

/// Page views of a site.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SiteViews {
    /// First name of the site.
    pub site: String,
    /// Views by people today.
    pub today: u64,
    /// Views by bots today.
    pub bots_today: u64,
    /// Views by people on the last 7 days with today.
    pub week: u64,
}

impl SiteHits {
    /// Returns counts of zero for the site with the first name `name`.
    pub(super) fn new(name: &str) -> SiteHits {
        SiteHits {
            name: name.into(),
            table: Mutex::default(),
            is_changed: AtomicBool::new(false),
        }
    }

    /// Returns the first name of the site.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the page views of the last days. Views of the last seconds, which the workers have not added yet, are
    /// missing.
    pub fn views(&self) -> SiteViews {
        self.views_on(today())
    }

    fn views_on(&self, today: u32) -> SiteViews {
        let table = self.table();
        let since = |first: u32| table.days.iter().filter(move |it| it.day >= first);
        SiteViews {
            site: self.name.to_string(),
            today: since(today).map(|day| day.views).sum(),
            bots_today: since(today).map(|day| day.bots).sum(),
            week: since(today.saturating_sub(6)).map(|day| day.views).sum(),
        }
    }

    /// Excludes all paths below `prefix` from the counts.
    pub(crate) fn exclude(&self, prefix: &[u8]) {
        self.table().exclude(prefix);
    }

    /// Locks the table.
    pub(super) fn table(&self) -> MutexGuard<'_, HitTable> {
        lock(&self.table)
    }

    /// Adds views to the counts of a page on a day.
    pub(super) fn add(&self, path: &[u8], views: u32, bots: u32, day: u32) {
        self.table().add(path, views, bots, day);
        self.mark_changed();
    }

    /// Replaces the counts. The excluded prefixes stay.
    pub(super) fn replace(&self, counts: HitTable) {
        let mut table = self.table();
        table.take();
        table.merge(counts);
    }

    /// Records that the table holds counts missing from the file.
    pub(super) fn mark_changed(&self) {
        self.is_changed.store(true, Ordering::Relaxed);
    }

    /// Returns true if the table held counts missing from the file, and clears the mark.
    pub(super) fn take_changed(&self) -> bool {
        self.is_changed.swap(false, Ordering::Relaxed)
    }
}

/// Returns the number of the current day, counted from 1970-01-01 UTC.
pub fn today() -> u32 {
    day_of(clock::unix_seconds_now())
}

/// Returns the number of the day of a Unix time, counted from 1970-01-01 UTC.
pub(super) fn day_of(unix_seconds: u64) -> u32 {
    (unix_seconds / 86_400) as u32
}

/// Locks a mutex; no code under the locks of this module can panic halfway.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_of_today_and_of_a_week() {
        let site = SiteHits::new("a.org");
        for (day, views) in [(93, 5), (94, 10), (99, 20), (100, 40)] {
            site.add(b"/", views, 1, day);
        }
        let views = |today| {
            let views = site.views_on(today);
            (views.today, views.bots_today, views.week)
        };
        assert_eq!(views(100), (40, 1, 70));
        assert_eq!(views(101), (0, 0, 60));
    }
}
