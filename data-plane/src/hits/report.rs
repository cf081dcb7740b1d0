//! Reports on hit counts: text for the terminal, JSON for programs.

use crate::hits::site_hits::SiteHits;
use crate::hits::table::{HitTable, PageHits};
use base::clock::civil;
use base::heap_sort::sort_by;
use std::fmt::Write;
use std::sync::Arc;
use wire::json::quoted;

/// Days and pages listed for each site in the text report.
const DAYS: usize = 7;
const PAGES: usize = 50;

pub(super) fn text(sites: &[Arc<SiteHits>], today: u32) -> String {
    let mut out = String::new();
    for site in sites {
        let table = site.table();
        let _ = writeln!(out, "{}", site.name());
        let _ = writeln!(
            out,
            "  {:<12}{:>10}{:>10}{:>10}",
            "day", "views", "bots", "assets"
        );
        for day in table.days.iter().rev().take(DAYS) {
            let date = date(day.day);
            let (views, bots, assets) = (day.views, day.bots, day.assets);
            let _ = writeln!(out, "  {date:<12}{views:>10}{bots:>10}{assets:>10}");
        }
        let _ = writeln!(out, "  {:>10}{:>10}{:>10}  page", "views", "today", "bots");
        let pages = ordered(&table);
        for (path, page) in pages.iter().take(PAGES) {
            let path = String::from_utf8_lossy(path);
            let path = path.escape_debug();
            let (views, bots, today) = (page.views, page.bots, page.on(today));
            let _ = writeln!(out, "  {views:>10}{today:>10}{bots:>10}  {path}");
        }
        if pages.len() > PAGES {
            let more = pages.len() - PAGES;
            let _ = writeln!(out, "  and {more} pages more (--json has all)");
        }
    }
    out
}

pub(super) fn json(sites: &[Arc<SiteHits>], today: u32) -> String {
    let sites: Vec<String> = sites.iter().map(|site| site_json(site, today)).collect();
    format!("{{\"sites\":[{}]}}\n", sites.join(","))
}

fn site_json(site: &SiteHits, today: u32) -> String {
    let table = site.table();
    let days = table.days.iter().map(|day| {
        format!(
            "{{\"day\":\"{}\",\"views\":{},\"bots\":{},\"assets\":{}}}",
            date(day.day),
            day.views,
            day.bots,
            day.assets
        )
    });
    let days: Vec<String> = days.collect();
    let pages = ordered(&table);
    let pages: Vec<String> = pages
        .iter()
        .map(|(path, page)| page_json(path, page, today))
        .collect();
    format!(
        "{{\"site\":{},\"days\":[{}],\"pages\":[{}]}}",
        quoted(site.name()),
        days.join(","),
        pages.join(",")
    )
}

/// Returns the counts of one page with its days, as a JSON object.
pub(super) fn page_json(path: &[u8], page: &PageHits, today: u32) -> String {
    let days = page.days.iter();
    let days = days.map(|(day, views)| format!("\"{}\":{views}", date(*day)));
    let days: Vec<String> = days.collect();
    format!(
        "{{\"path\":{},\"views\":{},\"today\":{},\"bots\":{},\"days\":{{{}}}}}",
        quoted(&String::from_utf8_lossy(path)),
        page.views,
        page.on(today),
        page.bots,
        days.join(",")
    )
}

/// Returns the pages by views, descending, and by path among pages with equal views.
fn ordered(table: &HitTable) -> Vec<(&[u8], &PageHits)> {
    let mut pages: Vec<(&[u8], &PageHits)> = table
        .pages
        .iter()
        .map(|(path, page)| (&**path, page))
        .collect();
    sort_by(&mut pages, |(path, page), (other_path, other)| {
        other.views.cmp(&page.views).then(path.cmp(other_path))
    });
    pages
}

/// Formats a day as `2026-11-21`.
fn date(day: u32) -> String {
    let at = civil(u64::from(day) * 86_400);
    format!("{:04}-{:02}-{:02}", at.year, at.month, at.day)
}
