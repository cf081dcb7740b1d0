//! The counts of one site: by page, and by day. Pure; the day is given.

use crate::limits::{HITS_DAYS_MAX, HITS_PAGE_DAYS_MAX, HITS_PATHS_MAX};
use crate::site::mime;
use std::collections::{HashMap, VecDeque};

/// All of a site.
#[derive(Default)]
pub(super) struct HitTable {
    pub(super) pages: HashMap<Box<[u8]>, PageHits>,
    /// The newest last.
    pub(super) days: VecDeque<DayHits>,
    /// Routes that tell of counts: what they answer isn't a page.
    own: Vec<Box<[u8]>>,
    /// The day on which room was last made.
    swept: Option<u32>,
}

/// One page.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct PageHits {
    /// By people, in all.
    pub(super) views: u64,
    pub(super) bots: u64,
    /// Days with views by people and how many, the newest last.
    pub(super) days: VecDeque<(u32, u32)>,
}

/// One day of the whole site.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct DayHits {
    /// Since 1970.
    pub(super) day: u32,
    pub(super) views: u64,
    pub(super) bots: u64,
    /// Styles, scripts, images and the like, whoever asked.
    pub(super) assets: u64,
}

impl HitTable {
    pub(super) fn add(&mut self, path: &[u8], views: u32, bots: u32, day: u32) {
        let is_own = self.own.iter().any(|prefix| {
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

    /// What lies below this is no page.
    pub(super) fn leave_out(&mut self, prefix: &[u8]) {
        // A route for all there is leaves no page to be counted, and needn't be told apart.
        if !prefix.is_empty() && !self.own.iter().any(|own| **own == *prefix) {
            self.own.push(prefix.into());
        }
    }

    /// The page's counts; None if there are too many pages to count this one apart.
    fn page(&mut self, path: &[u8], day: u32) -> Option<&mut PageHits> {
        if path.len() > PATH_BYTES_MAX {
            return None;
        }
        if !self.pages.contains_key(path) {
            // All of them are looked at for it: once a day, not for each path that somebody makes up.
            if self.pages.len() >= HITS_PATHS_MAX && self.swept.replace(day) != Some(day) {
                self.forget_rare(day);
            }
            if self.pages.len() >= HITS_PATHS_MAX {
                return None;
            }
            self.pages.insert(path.into(), PageHits::default());
        }
        self.pages.get_mut(path)
    }

    /// Makes room: pages that nobody has seen for long go, and those that one visitor saw.
    fn forget_rare(&mut self, day: u32) {
        self.pages.retain(|_, page| {
            let last = page.days.back().map_or(0, |(day, _)| *day);
            let is_recent = day.saturating_sub(last) < HITS_PAGE_DAYS_MAX as u32;
            is_recent && (page.views > 1 || last == day)
        });
    }

    fn day(&mut self, day: u32) -> &mut DayHits {
        // A clock that was set back counts to the last day it knew.
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

impl PageHits {
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

    /// Views by people on this day.
    pub(super) fn on(&self, day: u32) -> u32 {
        let days = self.days.iter();
        days.rev()
            .find(|(known, _)| *known == day)
            .map_or(0, |(_, count)| *count)
    }
}

/// Is it something that belongs to a page, by its name? Names without an ending that says so are
/// pages: scripts and clean URLs.
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

/// A longer path is nobody's page.
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
