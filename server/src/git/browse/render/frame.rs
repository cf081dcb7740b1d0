//! Head, navigation and foot of a page.

use crate::git::browse::page_location::PageLocation;
use crate::git::browse::render::html::Html;
use crate::git::browse::url::ObjectId;

/// Sections of a repository, shown as tabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tab {
    /// The first page.
    Summary,
    /// Files.
    Tree,
    /// Commits.
    Log,
    /// Branches and tags.
    Refs,
    /// A single commit.
    Commit,
}

/// Elements of a page around the content.
pub(crate) struct PageFrame<'p> {
    /// Location of the page.
    pub location: &'p PageLocation,
    /// Window title.
    pub title: &'p [u8],
    /// Section of the repository; None for lists of repositories.
    pub tab: Option<Tab>,
    /// True if crawlers should not index the page.
    pub is_heavy: bool,
}

impl PageFrame<'_> {
    /// Returns the page with the given content.
    pub(crate) fn around(&self, content: &Html) -> String {
        let mut page = Html::with_capacity(content.len() + 2_048);
        page.markup("<!doctype html>\n<html lang=en><meta charset=utf-8>")
            .markup("<meta name=viewport content=\"width=device-width,initial-scale=1\"><title>")
            .text(self.title)
            .markup("</title>");
        if self.is_heavy {
            page.markup("<meta name=robots content=\"noindex,nofollow\">");
        }
        page.markup("<link rel=stylesheet href=\"")
            .text(self.location.style())
            .markup("\">");
        if self.tab.is_some() {
            page.markup("<link rel=alternate type=\"application/atom+xml\" href=\"")
                .text(self.location.url_of_branch("atom", b"", &[]))
                .markup("\">");
        }
        page.markup("\n<header>");
        self.push_path(&mut page);
        if let Some(tab) = self.tab {
            self.push_tabs(tab, &mut page);
        }
        page.markup("</header>\n<main>\n")
            .markup(content.as_str())
            .markup("</main>\n<footer>anthill</footer>\n</html>\n");
        page.into_string()
    }

    /// Appends the links to the folders above the page.
    fn push_path(&self, page: &mut Html) {
        let location = self.location;
        page.markup("<nav class=path>");
        if location.name.is_empty() {
            page.text("Repositories")
        } else {
            page.link(&location.url_of(b""), "Repositories")
        };
        let mut end = 0;
        for part in location.name.split(|byte| *byte == b'/') {
            end += part.len();
            let so_far = &location.name[..end];
            let shown = if end == location.name.len() && location.is_repository {
                location.short_name()
            } else {
                part
            };
            if !part.is_empty() {
                page.markup("<i>/</i>")
                    .link(&location.url_of(so_far), shown);
            }
            end += 1;
        }
        page.markup("</nav>");
        if !location.description.is_empty() {
            page.markup("<p class=about>")
                .text(&location.description)
                .markup("</p>");
        }
    }

    /// Appends the links to the sections of the repository.
    fn push_tabs(&self, current: Tab, page: &mut Html) {
        let location = self.location;
        page.markup("<nav class=tabs>");
        for (tab, name, url) in [
            (
                Tab::Summary,
                "Summary",
                location.url_of_branch("", b"", &[]),
            ),
            (Tab::Tree, "Files", location.url("tree", b"", &[])),
            (Tab::Log, "Log", location.url("log", b"", &[])),
            (
                Tab::Refs,
                "Branches and tags",
                location.url_of_branch("refs", b"", &[]),
            ),
        ] {
            page.markup("<a href=\"").text(url).markup("\"");
            if tab == current {
                page.markup(" aria-current=page");
            }
            page.markup(">").text(name).markup("</a>");
        }
        let id = location.id.as_ref().map(ObjectId::short);
        if location.head.is_some() || id.is_some() {
            page.markup("<span class=at>at <b>")
                .text(location.head.as_deref().unwrap_or_default());
            if let Some(id) = id {
                let gap = if location.head.is_some() { " " } else { "" };
                page.text(gap)
                    .markup("<span class=id>")
                    .text(id)
                    .markup("</span>");
            }
            page.markup("</b></span>");
        }
        page.markup("</nav>");
    }
}
