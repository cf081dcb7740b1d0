//! Page with the list of the repositories of a folder.

use crate::git::browse::locate::RepositoryList;
use crate::git::browse::page_location::PageLocation;
use crate::git::browse::render::frame::PageFrame;
use crate::git::browse::render::html::Html;
use wire::date::civil;

/// The page.
pub(crate) fn list(location: &PageLocation, list: &RepositoryList) -> String {
    let mut page = Html::default();
    if list.all.is_empty() {
        page.markup("<p class=note>There are no repositories here.</p>\n");
    } else {
        page.markup("<ul class=rows>\n");
        for it in &list.all {
            let name = it
                .name
                .strip_prefix(list.name.as_slice())
                .unwrap_or(&it.name);
            let name = name.strip_prefix(b"/").unwrap_or(name);
            let name = name.strip_suffix(b".git").unwrap_or(name);
            page.markup("<li><span class=main><span class=dir>");
            page.link(&location.url_of(&it.name), name)
                .markup("</span>");
            if !it.description.is_empty() {
                page.markup("<span class=desc>")
                    .text(&it.description)
                    .markup("</span>");
            }
            page.markup("</span><span class=side>")
                .text(day(it.changed))
                .markup("</span>\n");
        }
        page.markup("</ul>\n");
    }
    if list.is_cut {
        page.markup("<p class=note>The list has more repositories than a page can show.</p>\n");
    }
    let frame = PageFrame {
        location,
        title: if location.name.is_empty() {
            b"Repositories"
        } else {
            &location.name
        },
        tab: None,
        is_heavy: false,
    };
    frame.around(&page)
}

fn day(unix_seconds: u64) -> String {
    match unix_seconds {
        0 => String::new(),
        _ => {
            let civil = civil(unix_seconds);
            format!("{}-{:02}-{:02}", civil.year, civil.month, civil.day)
        }
    }
}
