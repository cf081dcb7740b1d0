//! Reports on hit counts: text for the terminal, JSON for programs.

use crate::hits::day_range::{DayRange, format_day};
use crate::hits::site_hits::SiteHits;
use crate::hits::table::{DayHits, HitTable, PageHits};
use crate::limits::HITS_PAGE_DAYS_MAX;
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
        write_days(&mut out, table.days.iter().rev().take(DAYS));
        let _ = writeln!(out, "  {:>10}{:>10}{:>10}  page", "views", "today", "bots");
        let pages = ordered(&table, |page| page.views);
        for (path, page) in pages.iter().take(PAGES) {
            let path = shown(path);
            let (views, bots, today) = (page.views, page.bots, page.on(today));
            let _ = writeln!(out, "  {views:>10}{today:>10}{bots:>10}  {path}");
        }
        write_more_pages(&mut out, pages.len());
    }
    out
}

/// Returns the text report on a range of days. The views of a page by bots have no days, and are left out.
pub(super) fn range_text(sites: &[Arc<SiteHits>], range: DayRange) -> String {
    let mut out = String::new();
    for site in sites {
        let table = site.table();
        let (first, last) = (format_day(range.first), format_day(range.last));
        let _ = writeln!(out, "{}, {first} to {last} (UTC)", site.name());
        let begin = table.days.front().map(|day| day.day);
        match begin {
            None => {
                out.push_str("  no views are counted yet\n");
                continue;
            }
            Some(begin) if begin > range.first => {
                let _ = writeln!(out, "  the counts begin on {}", format_day(begin));
            }
            Some(_) => {}
        }
        write_days(&mut out, days_of(&table, range).rev());
        let DayHits {
            views,
            bots,
            assets,
            ..
        } = sum(days_of(&table, range));
        let _ = writeln!(out, "  {:<12}{views:>10}{bots:>10}{assets:>10}", "all");
        let pages = ordered(&table, |page| page.within(range).views);
        let seen = pages
            .iter()
            .filter(|(_, page)| page.within(range).views > 0);
        let count = seen.clone().count();
        if count > 0 {
            let _ = writeln!(out, "  {:>10}  page", "views");
        }
        let mut is_partial = false;
        for (path, page) in seen.take(PAGES) {
            let within = page.within(range);
            is_partial |= !within.is_complete;
            let least = if within.is_complete { "" } else { ">=" };
            let views = format!("{least}{}", within.views);
            let _ = writeln!(out, "  {views:>10}  {}", shown(path));
        }
        write_more_pages(&mut out, count);
        if is_partial {
            let _ = writeln!(
                out,
                "  >=: a page keeps the last {HITS_PAGE_DAYS_MAX} days with views, and the range begins earlier"
            );
        }
    }
    out
}

fn write_days<'d>(out: &mut String, days: impl Iterator<Item = &'d DayHits>) {
    let _ = writeln!(
        out,
        "  {:<12}{:>10}{:>10}{:>10}",
        "day", "views", "bots", "assets"
    );
    for day in days {
        let date = format_day(day.day);
        let (views, bots, assets) = (day.views, day.bots, day.assets);
        let _ = writeln!(out, "  {date:<12}{views:>10}{bots:>10}{assets:>10}");
    }
}

fn write_more_pages(out: &mut String, pages: usize) {
    if let Some(more @ 1..) = pages.checked_sub(PAGES) {
        let _ = writeln!(out, "  and {more} pages more (--json has all)");
    }
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).escape_debug().to_string()
}

fn days_of(table: &HitTable, range: DayRange) -> impl DoubleEndedIterator<Item = &DayHits> + Clone {
    table.days.iter().filter(move |day| range.has(day.day))
}

fn sum<'d>(days: impl Iterator<Item = &'d DayHits>) -> DayHits {
    days.fold(DayHits::default(), |sum, day| DayHits {
        day: 0,
        views: sum.views + day.views,
        bots: sum.bots + day.bots,
        assets: sum.assets + day.assets,
    })
}

pub(super) fn json(sites: &[Arc<SiteHits>], today: u32) -> String {
    let sites = sites.iter().map(|site| {
        let table = site.table();
        let days: Vec<String> = table.days.iter().map(day_json).collect();
        let pages = ordered(&table, |page| page.views).into_iter();
        let pages: Vec<String> = pages
            .map(|(path, page)| page_json(path, page, today))
            .collect();
        format!(
            "{{\"site\":{},\"days\":[{}],\"pages\":[{}]}}",
            quoted(site.name()),
            days.join(","),
            pages.join(",")
        )
    });
    let sites: Vec<String> = sites.collect();
    format!("{{\"sites\":[{}]}}\n", sites.join(","))
}

/// Returns the report on a range of days as JSON.
pub(super) fn range_json(sites: &[Arc<SiteHits>], range: DayRange) -> String {
    let sites = sites.iter().map(|site| range_of_site_json(site, range));
    let sites: Vec<String> = sites.collect();
    format!("{{\"sites\":[{}]}}\n", sites.join(","))
}

fn range_of_site_json(site: &SiteHits, range: DayRange) -> String {
    let table = site.table();
    let begin = table.days.front();
    let begin = begin.map_or("null".to_owned(), |day| quoted(&format_day(day.day)));
    let days: Vec<String> = days_of(&table, range).map(day_json).collect();
    let sum = sum(days_of(&table, range));
    let pages = ordered(&table, |page| page.within(range).views).into_iter();
    let pages = pages.filter(|(_, page)| page.within(range).views > 0);
    let pages = pages.map(|(path, page)| {
        let within = page.within(range);
        let days = page.days.iter().filter(|(day, _)| range.has(*day));
        format!(
            "{{\"path\":{},\"views\":{},\"complete\":{},\"days\":{{{}}}}}",
            quoted(&String::from_utf8_lossy(path)),
            within.views,
            within.is_complete,
            days_json(days)
        )
    });
    let pages: Vec<String> = pages.collect();
    format!(
        "{{\"site\":{},\"from\":{},\"to\":{},\"counted_from\":{begin},\"views\":{},\"bots\":{},\"assets\":{},\
         \"days\":[{}],\"pages\":[{}]}}",
        quoted(site.name()),
        quoted(&format_day(range.first)),
        quoted(&format_day(range.last)),
        sum.views,
        sum.bots,
        sum.assets,
        days.join(","),
        pages.join(",")
    )
}

fn day_json(day: &DayHits) -> String {
    format!(
        "{{\"day\":\"{}\",\"views\":{},\"bots\":{},\"assets\":{}}}",
        format_day(day.day),
        day.views,
        day.bots,
        day.assets
    )
}

fn days_json<'d>(days: impl Iterator<Item = &'d (u32, u32)>) -> String {
    let days = days.map(|(day, views)| format!("\"{}\":{views}", format_day(*day)));
    let days: Vec<String> = days.collect();
    days.join(",")
}

/// Returns the counts of one page with its days, as a JSON object.
pub(super) fn page_json(path: &[u8], page: &PageHits, today: u32) -> String {
    format!(
        "{{\"path\":{},\"views\":{},\"today\":{},\"bots\":{},\"days\":{{{}}}}}",
        quoted(&String::from_utf8_lossy(path)),
        page.views,
        page.on(today),
        page.bots,
        days_json(page.days.iter())
    )
}

/// Returns the pages by a number of views, descending, and by path among pages with equal views.
fn ordered(table: &HitTable, views: impl Fn(&PageHits) -> u64) -> Vec<(&[u8], &PageHits)> {
    let mut pages: Vec<(&[u8], &PageHits)> = table
        .pages
        .iter()
        .map(|(path, page)| (&**path, page))
        .collect();
    sort_by(&mut pages, |(path, page), (other_path, other)| {
        views(other).cmp(&views(page)).then(path.cmp(other_path))
    });
    pages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hits::day_range::parse_day;

    fn site() -> [Arc<SiteHits>; 1] {
        let site = SiteHits::new("a.org");
        let day = |text: &str| parse_day(text).expect(text);
        let first = day("2026-10-01");
        for nth in 0..40 {
            site.add(b"/busy", 2, 1, first + nth);
        }
        site.add(b"/old", 3, 0, first + 40);
        site.add(b"/style.css", 7, 0, first + 40);
        [Arc::new(site)]
    }

    fn range(first: &str, last: &str) -> DayRange {
        let day = |text| parse_day(text).expect("a day");
        DayRange {
            first: day(first),
            last: day(last),
        }
    }

    #[test]
    fn a_range_has_the_sums_of_its_days() {
        let text = range_text(&site(), range("2026-11-08", "2026-11-10"));
        let expected = "\
a.org, 2026-11-08 to 2026-11-10 (UTC)
  day              views      bots    assets
  2026-11-10           3         0         7
  2026-11-09           2         1         0
  2026-11-08           2         1         0
  all                  7         2         7
       views  page
           4  /busy
           3  /old
";
        assert_eq!(text, expected);
        let json = range_json(&site(), range("2026-11-09", "2026-11-10"));
        let expected = r#"{"sites":[{"site":"a.org","from":"2026-11-09","to":"2026-11-10","counted_from":"2026-10-01","views":5,"bots":1,"assets":7,"days":[{"day":"2026-11-09","views":2,"bots":1,"assets":0},{"day":"2026-11-10","views":3,"bots":0,"assets":7}],"pages":[{"path":"/old","views":3,"complete":true,"days":{"2026-11-10":3}},{"path":"/busy","views":2,"complete":true,"days":{"2026-11-09":2}}]}]}"#;
        assert_eq!(json, format!("{expected}\n"));
    }

    #[test]
    fn a_page_with_forgotten_days_in_the_range_is_marked() {
        let text = range_text(&site(), range("2026-09-01", "2026-11-10"));
        assert!(
            text.contains("  the counts begin on 2026-10-01\n"),
            "{text}"
        );
        assert!(
            text.contains("  all                 83        40         7\n"),
            "{text}"
        );
        assert!(text.contains("        >=62  /busy\n"), "{text}");
        assert!(text.contains("           3  /old\n"), "{text}");
        assert!(
            text.ends_with("the last 31 days with views, and the range begins earlier\n"),
            "{text}"
        );
        let json = range_json(&site(), range("2026-09-01", "2026-11-10"));
        assert!(json.contains(r#""views":62,"complete":false"#), "{json}");
        let before = range_text(&site(), range("2026-01-01", "2026-01-02"));
        assert!(
            before.contains("  all                  0         0         0\n"),
            "{before}"
        );
    }

    #[test]
    fn a_site_without_counts_says_so() {
        let text = range_text(
            &[Arc::new(SiteHits::new("b.org"))],
            range("2026-11-08", "2026-11-10"),
        );
        assert!(text.ends_with("  no views are counted yet\n"), "{text}");
    }
}
