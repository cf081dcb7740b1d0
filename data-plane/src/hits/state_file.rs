//! State file of the hit counts: lines of text with a site, its days, and its pages.

use crate::hits::site_hits::SiteHits;
use crate::hits::table::{DayHits, HitTable, PageHits};
use crate::limits::{HITS_DAYS_MAX, HITS_PAGE_DAYS_MAX, HITS_PATHS_MAX};
use std::io::Write;
use std::sync::Arc;
use wire::request_target::encode_path;

const MAGIC: &str = "anthill hits 1";

/// Returns the text of the counts of all sites.
pub(super) fn text(sites: &[Arc<SiteHits>]) -> Vec<u8> {
    let mut out = begin();
    for site in sites {
        push_site(&mut out, site.name(), &site.table());
    }
    out
}

/// Returns the beginning of a text, for any number of sites.
pub(super) fn begin() -> Vec<u8> {
    format!("{MAGIC}\n").into_bytes()
}

/// Appends the counts of one site.
pub(super) fn push_site(out: &mut Vec<u8>, name: &str, table: &HitTable) {
    // Writing into a Vec never fails.
    let _ = writeln!(out, "site {name}");
    for DayHits {
        day,
        views,
        bots,
        assets,
    } in &table.days
    {
        let _ = writeln!(out, "day {day} {views} {bots} {assets}");
    }
    for (path, page) in &table.pages {
        let _ = write!(out, "page {} {} ", page.views, page.bots);
        for (nth, (day, count)) in page.days.iter().enumerate() {
            let comma = if nth == 0 { "" } else { "," };
            let _ = write!(out, "{comma}{day}:{count}");
        }
        out.push(b' ');
        encode_path(path, out);
        out.push(b'\n');
    }
}

/// Reads a state file. `counts` returns the counts of a site by the site's first name.
pub(super) fn read(text: &[u8], counts: &mut dyn FnMut(&str) -> Arc<SiteHits>) {
    let text = String::from_utf8_lossy(text);
    let mut lines = text.lines();
    if lines.next() != Some(MAGIC) {
        return;
    }
    let mut site = None;
    for line in lines {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match (word, &site) {
            ("site", _) => site = Some(counts(rest)),
            ("day", Some(site)) => drop(day(site, rest)),
            ("page", Some(site)) => drop(page(site, rest)),
            _ => {}
        }
    }
}

fn day(site: &SiteHits, text: &str) -> Option<()> {
    let mut numbers = text.split(' ').map(|number| number.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    let day = DayHits {
        day: u32::try_from(next()?).ok()?,
        views: next()?,
        bots: next()?,
        assets: next()?,
    };
    let days = &mut site.table().days;
    let is_next = days.back().is_none_or(|last| last.day < day.day);
    if is_next && days.len() < HITS_DAYS_MAX {
        days.push_back(day);
    }
    Some(())
}

fn page(site: &SiteHits, text: &str) -> Option<()> {
    let mut parts = text.splitn(4, ' ');
    let views = parts.next()?.parse().ok()?;
    let bots = parts.next()?.parse().ok()?;
    let days = parts.next()?.split(',').filter_map(|day| {
        let (day, count) = day.split_once(':')?;
        Some((day.parse().ok()?, count.parse().ok()?))
    });
    let page = PageHits {
        views,
        bots,
        days: days.take(HITS_PAGE_DAYS_MAX).collect(),
    };
    let path = decode(parts.next()?)?;
    let pages = &mut site.table().pages;
    if pages.len() < HITS_PATHS_MAX {
        pages.insert(path.into(), page);
    }
    Some(())
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let (hex, after) = rest.split_at_checked(2)?;
        let hex = std::str::from_utf8(hex).ok()?;
        out.push(u8::from_str_radix(hex, 16).ok()?);
        rest = after;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_counts_are_read_back() {
        let site = Arc::new(SiteHits::new("example.org"));
        site.add("/ä b\n%".as_bytes(), 2, 1, 100);
        site.add(b"/", 1, 0, 100);
        site.add(b"/", 1, 0, 101);
        site.add(b"/a.png", 1, 0, 101);
        site.add(b"/bots", 0, 7, 101);
        let written = text(std::slice::from_ref(&site));
        let back = Arc::new(SiteHits::new("example.org"));
        read(&written, &mut |name| {
            assert_eq!(name, "example.org");
            back.clone()
        });
        assert_eq!(back.table().days, site.table().days);
        assert_eq!(back.table().pages, site.table().pages);
        assert_eq!(back.table().pages.len(), 3);
    }

    #[test]
    fn malformed_lines_are_skipped() {
        let site = Arc::new(SiteHits::new("a"));
        let text = "anthill hits 1\nday 1 2 3 4\nsite a\nday x\nday 5 1 1 1\nday 4 1 1 1\npage 1\n\
            page 1 1 5:1 /%zz\npage 1 1 5:x,5:2 /ok\nother\n";
        read(text.as_bytes(), &mut |_| site.clone());
        assert_eq!(site.table().days.len(), 1);
        assert_eq!(site.table().pages.len(), 1);
        assert_eq!(site.table().pages[&b"/ok"[..]].on(5), 2);
        read(b"something else\nsite b\nday 9 9 9 9\n", &mut |name| {
            panic!("{name} in a file of another format")
        });
    }
}
