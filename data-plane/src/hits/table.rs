//! Hit counts of one site, by page and by day. Pure: the caller passes the day.

use crate::hits::day_range::DayRange;
use crate::limits::{HITS_DAYS_MAX, HITS_PAGE_DAYS_MAX, HITS_PATHS_MAX};
use release::mime;
use std::collections::{HashMap, VecDeque};

/// All counts of a site.
#[derive(Default)]
pub(super) struct HitTable {
    pub(super) pages: HashMap<Box<[u8]>, PageHits>,
    /// Counts by day, in ascending order.
    pub(super) days: VecDeque<DayHits>,
    /// Prefixes of routes that serve hit counts, not counted as pages.
    excluded: Vec<Box<[u8]>>,
    /// Day of the last removal of rare pages.
    removed_rare_on: Option<u32>,
}

/// Counts of one page.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct PageHits {
    /// Views by people, all days.
    pub(super) views: u64,
    pub(super) bots: u64,
    /// Days with views by people, each with the number of views, in ascending order.
    pub(super) days: VecDeque<(u32, u32)>,
}

/// Views of a page by people within a range of days.
pub(super) struct ViewsWithin {
    pub(super) views: u64,
    /// False if the page may have had views on days of the range that are no longer kept.
    pub(super) is_complete: bool,
}

/// Counts of the whole site on one day.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct DayHits {
    /// Number of the day, counted from 1970-01-01.
    pub(super) day: u32,
    pub(super) views: u64,
    pub(super) bots: u64,
    /// Requests by people and bots for styles, scripts, images and similar assets.
    pub(super) assets: u64,
}

impl HitTable {
    pub(super) fn add(&mut self, path: &[u8], views: u32, bots: u32, day: u32) {
        let is_own = self.excluded.iter().any(|prefix| {
            path.strip_prefix(&**prefix)
                .is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
        });
        if is_own {
            return;
        }
        let is_asset = is_asset(path);
        let today = self.day(day);
        if is_asset {
            today.assets += u64::from(views) + u64::from(bots);
            return;
        }
        today.views += u64::from(views);
        today.bots += u64::from(bots);
        if let Some(page) = self.page(path, day) {
            page.add(views, bots, day);
        }
    }

    /// Excludes all paths below `prefix` from the counts.
    pub(super) fn exclude(&mut self, prefix: &[u8]) {
        // An empty prefix covers every path: no page is left to count, so the prefix need not be recorded.
        if !prefix.is_empty() && !self.excluded.iter().any(|excluded| **excluded == *prefix) {
            self.excluded.push(prefix.into());
        }
    }

    /// Adds the counts of another table, perhaps of earlier days.
    pub(super) fn merge(&mut self, other: HitTable) {
        for day in other.days {
            let known = self.days.binary_search_by_key(&day.day, |known| known.day);
            match known {
                Ok(at) => self.days[at].merge(&day),
                Err(0) if self.days.len() >= HITS_DAYS_MAX => {}
                Err(at) => self.days.insert(at, day),
            }
            if self.days.len() > HITS_DAYS_MAX {
                self.days.pop_front();
            }
        }
        for (path, theirs) in other.pages {
            let last = theirs.days.back().map_or(0, |(day, _)| *day);
            if let Some(page) = self.page(&path, last) {
                page.merge(theirs);
            }
        }
    }

    /// Takes the counts out of the table, which keeps the excluded prefixes.
    pub(super) fn take(&mut self) -> HitTable {
        HitTable {
            pages: std::mem::take(&mut self.pages),
            days: std::mem::take(&mut self.days),
            ..HitTable::default()
        }
    }

    /// Returns true if the table has no counts.
    pub(super) fn is_empty(&self) -> bool {
        self.days.is_empty() && self.pages.is_empty()
    }

    /// Returns the counts of a page; None if the table is full or the path too long.
    fn page(&mut self, path: &[u8], day: u32) -> Option<&mut PageHits> {
        if path.len() > PATH_BYTES_MAX {
            return None;
        }
        if !self.pages.contains_key(path) {
            // The removal visits all pages, so it runs once a day and not for each invented path.
            if self.pages.len() >= HITS_PATHS_MAX && self.removed_rare_on.replace(day) != Some(day)
            {
                self.forget_rare(day);
            }
            if self.pages.len() >= HITS_PATHS_MAX {
                return None;
            }
            self.pages.insert(path.into(), PageHits::default());
        }
        self.pages.get_mut(path)
    }

    /// Removes the pages without a recent view, and the pages with at most one view unless the view was
    /// today.
    fn forget_rare(&mut self, day: u32) {
        self.pages.retain(|_, page| {
            let last = page.days.back().map_or(0, |(day, _)| *day);
            let is_recent = day.saturating_sub(last) < HITS_PAGE_DAYS_MAX as u32;
            is_recent && (page.views > 1 || last == day)
        });
    }

    fn day(&mut self, day: u32) -> &mut DayHits {
        // After the clock was set back, views count to the latest known day.
        let is_new = self.days.back().is_none_or(|last| last.day < day);
        if is_new {
            if self.days.len() >= HITS_DAYS_MAX {
                self.days.pop_front();
            }
            self.days.push_back(DayHits {
                day,
                ..DayHits::default()
            });
        }
        let last = self.days.len() - 1;
        &mut self.days[last]
    }
}

impl DayHits {
    fn merge(&mut self, other: &DayHits) {
        self.views += other.views;
        self.bots += other.bots;
        self.assets += other.assets;
    }
}

impl PageHits {
    fn merge(&mut self, other: PageHits) {
        self.views += other.views;
        self.bots += other.bots;
        for (day, count) in other.days {
            match self.days.binary_search_by_key(&day, |(known, _)| *known) {
                Ok(at) => self.days[at].1 = self.days[at].1.saturating_add(count),
                Err(0) if self.days.len() >= HITS_PAGE_DAYS_MAX => {}
                Err(at) => self.days.insert(at, (day, count)),
            }
            if self.days.len() > HITS_PAGE_DAYS_MAX {
                self.days.pop_front();
            }
        }
    }

    fn add(&mut self, views: u32, bots: u32, day: u32) {
        self.views += u64::from(views);
        self.bots += u64::from(bots);
        if views == 0 {
            return;
        }
        match self.days.back_mut() {
            Some((last, count)) if *last >= day => *count = count.saturating_add(views),
            _ => {
                if self.days.len() >= HITS_PAGE_DAYS_MAX {
                    self.days.pop_front();
                }
                self.days.push_back((day, views));
            }
        }
    }

    /// Returns the views by people within a range of days.
    pub(super) fn within(&self, range: DayRange) -> ViewsWithin {
        let sum = |days: &mut dyn Iterator<Item = &(u32, u32)>| -> u64 {
            days.map(|(_, count)| u64::from(*count)).sum()
        };
        let first = self.days.front().map(|(day, _)| *day);
        ViewsWithin {
            views: sum(&mut self.days.iter().filter(|(day, _)| range.has(*day))),
            is_complete: first.is_none_or(|first| first <= range.first)
                || sum(&mut self.days.iter()) >= self.views,
        }
    }

    /// Returns the views by people on a day.
    pub(super) fn on(&self, day: u32) -> u32 {
        let days = self.days.iter();
        days.rev()
            .find(|(known, _)| *known == day)
            .map_or(0, |(_, count)| *count)
    }
}

/// Returns true if the name of the path is that of an asset of a page, such as a style or an image. Names
/// without an ending, and names with an ending of no known type, are pages: scripts and clean URLs.
pub(super) fn is_asset(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    if !name.contains(&b'.') {
        return false;
    }
    let kind = mime::of(path, &[]);
    let is_page = [
        "text/html",
        "application/xhtml+xml",
        "text/plain",
        "text/markdown",
    ]
    .iter()
    .any(|page| kind.starts_with(page));
    !is_page && kind != "application/octet-stream" && !kind.starts_with("application/pdf")
}

/// Bytes of the longest path counted as a page.
const PATH_BYTES_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_days_add_up() {
        let mut table = HitTable::default();
        table.add(b"/", 2, 1, 100);
        table.add(b"/a.css", 5, 0, 100);
        table.add(b"/", 3, 0, 101);
        table.add(b"/", 1, 0, 100);
        table.add(b"/b", 0, 4, 101);
        let page = &table.pages[&b"/"[..]];
        assert_eq!(
            (page.views, page.bots, page.on(100), page.on(101)),
            (6, 1, 2, 4)
        );
        assert_eq!(table.pages.len(), 2);
        let day = |day, views, bots, assets| DayHits {
            day,
            views,
            bots,
            assets,
        };
        assert_eq!(table.days, [day(100, 2, 1, 5), day(101, 4, 4, 0)]);
    }

    #[test]
    fn tables_are_merged_by_day() {
        let (mut table, mut other) = (HitTable::default(), HitTable::default());
        table.add(b"/", 2, 1, 100);
        table.add(b"/", 1, 0, 102);
        other.add(b"/", 1, 0, 99);
        other.add(b"/", 4, 0, 101);
        other.add(b"/", 8, 1, 102);
        other.add(b"/b.css", 3, 0, 102);
        other.add(b"/b", 0, 4, 102);
        table.merge(other);
        let page = &table.pages[&b"/"[..]];
        assert_eq!((page.views, page.bots), (16, 2));
        assert_eq!(page.days, [(99, 1), (100, 2), (101, 4), (102, 9)]);
        assert_eq!(table.pages[&b"/b"[..]].bots, 4);
        let views: Vec<_> = table
            .days
            .iter()
            .map(|it| (it.day, it.views, it.bots, it.assets))
            .collect();
        assert_eq!(
            views,
            [
                (99, 1, 0, 0),
                (100, 2, 1, 0),
                (101, 4, 0, 0),
                (102, 9, 5, 3)
            ]
        );
    }

    #[test]
    fn merged_tables_are_bounded() {
        let table = |first: u32| {
            let mut table = HitTable::default();
            for day in first..first + HITS_DAYS_MAX as u32 {
                table.add(b"/", 1, 0, day);
            }
            table
        };
        for (mine, theirs) in [(0, 100), (100, 0)] {
            let mut merged = table(mine);
            merged.merge(table(theirs));
            assert_eq!(merged.days.len(), HITS_DAYS_MAX);
            assert_eq!(merged.days[0].day, 100);
            let page = &merged.pages[&b"/"[..]];
            assert_eq!(page.days.len(), HITS_PAGE_DAYS_MAX);
            assert_eq!(page.views, 2 * HITS_DAYS_MAX as u64);
        }
    }

    #[test]
    fn pages_days_and_paths_are_bounded() {
        let mut table = HitTable::default();
        for nth in 0..HITS_PATHS_MAX + 10 {
            table.add(format!("/{nth}").as_bytes(), 2, 0, 5);
        }
        assert_eq!(table.pages.len(), HITS_PATHS_MAX);
        assert_eq!(table.days[0].views, 2 * (HITS_PATHS_MAX as u64 + 10));
        table.add(b"/new", 1, 0, 5 + HITS_PAGE_DAYS_MAX as u32);
        assert_eq!(table.pages.len(), 1, "pages without recent views make room");
        for day in 0..2 * HITS_DAYS_MAX as u32 {
            table.add(b"/new", 1, 0, 100 + day);
        }
        assert_eq!(table.days.len(), HITS_DAYS_MAX);
        assert_eq!(table.pages[&b"/new"[..]].days.len(), HITS_PAGE_DAYS_MAX);
        table.add(&[b'x'; 1000], 1, 0, 5000);
        assert_eq!(table.pages.len(), 1);
    }

    #[test]
    fn assets_are_told_from_pages_by_name() {
        for (path, expected) in [
            ("/", false),
            ("/a", false),
            ("/a.d/", false),
            ("/index.html", false),
            ("/cgi-bin/page.py", false),
            ("/notes.txt", false),
            ("/paper.pdf", false),
            ("/style.css", true),
            ("/a/logo.png", true),
            ("/app.js", true),
            ("/favicon.ico", true),
            ("/font.woff2", true),
        ] {
            assert_eq!(is_asset(path.as_bytes()), expected, "{path}");
        }
    }
}
