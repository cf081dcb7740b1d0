//! HTML pages of commits and refs, rendered from the parsed output of git.

use crate::git::browse::page_location::PageLocation;
use crate::git::browse::parse::{Commit, Ref};
use crate::git::browse::render::frame::{PageFrame, Tab};
use crate::git::browse::render::html::Html;
use crate::git::browse::url::{CommitPart, LogSearch, ObjectId};
use crate::git::limits::{
    GIT_FEED_ENTRIES, GIT_LOG_COMMITS, GIT_PATH_LINKS_MAX, GIT_SUMMARY_LINES,
};
use wire::request_target::encode_path;

/// Summary page of a repository.
pub(crate) struct SummaryPage<'s> {
    /// Location of the page.
    pub location: &'s PageLocation,
    /// Refs, newest first.
    pub refs: &'s [Ref<'s>],
    /// Newest commits; empty for a repository without commits.
    pub commits: &'s [Commit<'s>],
    /// Rendered README.
    pub readme: Option<Html>,
    /// The displayed commit.
    pub at: Option<&'s ObjectId>,
}

impl SummaryPage<'_> {
    /// Renders the page.
    pub(crate) fn page(self) -> String {
        let location = self.location;
        let mut page = Html::default();
        page.markup("<div class=clone><span class=soft>git clone</span><code>")
            .text(location.clone_url())
            .markup("</code></div>\n");
        if self.at.is_none() {
            page.markup("<p class=note>The repository has no commits yet.</p>\n");
        }
        if !self.commits.is_empty() {
            let more = location.url("log", b"", &[]);
            heading("Newest commits", Some((&more, "all")), &mut page);
            push_commits(
                location,
                self.commits.iter().take(GIT_SUMMARY_LINES),
                &mut page,
            );
        }
        let branches: Vec<_> = self
            .refs
            .iter()
            .filter(|it| it.branch().is_some())
            .collect();
        let tags: Vec<_> = self.refs.iter().filter(|it| it.tag().is_some()).collect();
        for (name, all) in [("Branches", branches), ("Tags", tags)] {
            if all.is_empty() {
                continue;
            }
            let refs = location.url_of_branch("refs", b"", &[]);
            let more = (all.len() > GIT_SUMMARY_LINES).then_some((refs.as_str(), "all"));
            heading(name, more, &mut page);
            push_refs(location, all.into_iter().take(GIT_SUMMARY_LINES), &mut page);
        }
        if let Some(readme) = self.readme {
            page.markup("<h2>README</h2>\n")
                .markup(&readme.into_string());
        }
        framed(location, Tab::Summary, b"", false, &page)
    }
}

/// Renders a page with the README alone.
pub(crate) fn about(location: &PageLocation, readme: Option<Html>) -> String {
    let mut page = Html::default();
    match readme {
        Some(readme) => page.markup(&readme.into_string()),
        None => page.markup("<p class=note>There is no README.</p>\n"),
    };
    framed(location, Tab::Summary, b"README", false, &page)
}

/// Renders the page of all branches and tags.
pub(crate) fn refs(location: &PageLocation, refs: &[Ref<'_>], is_cut: bool) -> String {
    let mut page = Html::default();
    let branches: Vec<_> = refs.iter().filter(|it| it.branch().is_some()).collect();
    let tags: Vec<_> = refs.iter().filter(|it| it.tag().is_some()).collect();
    for (name, all) in [("Branches", branches), ("Tags", tags)] {
        heading(name, None, &mut page);
        if all.is_empty() {
            page.markup("<p class=soft>None.</p>\n");
        } else {
            push_refs(location, all.into_iter(), &mut page)
        }
    }
    if is_cut {
        page.markup("<p class=note>The list has only the newest branches and tags.</p>\n");
    }
    framed(location, Tab::Refs, b"branches and tags", false, &page)
}

/// Beginning of the only form of the pages.
pub(crate) const SEARCH_FORM: &str = "<form class=search ";

/// A page of a log.
pub(crate) struct LogPage<'l> {
    /// Location of the page.
    pub location: &'l PageLocation,
    /// File or folder of the log; empty for the whole repository.
    pub path: &'l [u8],
    /// Number of commits before the page.
    pub offset: u64,
    /// Search by which the commits were found.
    pub search: Option<&'l LogSearch>,
    /// Commits of the page, and one further commit if a next page exists.
    pub commits: &'l [Commit<'l>],
}

impl LogPage<'_> {
    /// Renders the page.
    pub(crate) fn page(&self) -> String {
        let (location, path) = (self.location, self.path);
        let mut page = Html::default();
        if !path.is_empty() {
            page.markup("<div class=bar><span>Commits that changed ");
            push_path_links(location, path, &mut page);
            page.markup("</span></div>\n");
        }
        self.push_search(&mut page);
        if self.commits.is_empty() {
            page.markup(match self.search {
                Some(_) => "<p class=note>No commit was found.</p>\n",
                None => "<p class=note>There are no commits here.</p>\n",
            });
        } else {
            let shown = self.commits.iter().take(GIT_LOG_COMMITS);
            push_commits(location, shown, &mut page);
        }
        page.markup("<nav class=pages>");
        let step = GIT_LOG_COMMITS as u64;
        for (name, rel, there, offset) in [
            (
                "Newer",
                "prev",
                self.offset > 0,
                self.offset.saturating_sub(step),
            ),
            (
                "Older",
                "next",
                self.commits.len() > GIT_LOG_COMMITS,
                self.offset + step,
            ),
        ] {
            page.markup("<span>");
            if there {
                let (offset, mut text) = (offset.to_string(), Vec::new());
                let mut more: Vec<(&str, &str)> = Vec::new();
                if let Some(search) = self.search {
                    encode_path(&search.text, &mut text);
                    more.push(("qt", search.part.word()));
                }
                let text = String::from_utf8_lossy(&text);
                if self.search.is_some() {
                    more.push(("q", &text));
                }
                if offset != "0" {
                    more.push(("ofs", &offset));
                }
                let is_light = path.is_empty() && self.search.is_none();
                let nofollow = if is_light { "" } else { " nofollow" };
                page.markup("<a rel=\"")
                    .markup(rel)
                    .markup(nofollow)
                    .markup("\" href=\"");
                page.text(location.url("log", path, &more)).markup("\">");
                page.markup(name).markup("</a>");
            }
            page.markup("</span>");
        }
        page.markup("</nav>\n");
        let is_heavy = !path.is_empty() || self.search.is_some();
        framed(location, Tab::Log, b"log", is_heavy, &page)
    }

    /// Appends the form for a search in the log of the same branch or commit.
    fn push_search(&self, page: &mut Html) {
        let location = self.location;
        page.markup(SEARCH_FORM).markup("method=get action=\"");
        page.text(location.plain_url("log", self.path, &[]))
            .markup("\">");
        let id = location.id.as_ref().map(|id| id.digits().as_bytes());
        for (name, value) in [("h", location.head.as_deref()), ("id", id)] {
            if let Some(value) = value {
                page.markup("<input type=hidden name=").markup(name);
                page.markup(" value=\"").text(value).markup("\">");
            }
        }
        let searched = self.search.map_or(&b""[..], |search| &search.text);
        page.markup("<input type=search name=q aria-label=\"Text\" value=\"")
            .text(searched)
            .markup("\"><select name=qt aria-label=\"Search in\">");
        for part in CommitPart::ALL {
            let is_chosen = self.search.is_some_and(|search| search.part == part);
            page.markup("<option value=").markup(part.word());
            page.markup(if is_chosen { " selected>" } else { ">" });
            page.markup(match part {
                CommitPart::Message => "messages",
                CommitPart::Author => "authors",
                CommitPart::Committer => "committers",
            });
        }
        page.markup("</select><button>Search</button></form>\n");
    }
}

pub(in crate::git) fn heading(name: &str, more: Option<(&str, &str)>, page: &mut Html) {
    page.markup("<h2>").markup(name);
    if let Some((url, words)) = more {
        page.markup(" <a class=more href=\"")
            .text(url)
            .markup("\">");
        page.markup(words).markup("</a>");
    }
    page.markup("</h2>\n");
}

pub(in crate::git) fn framed(
    location: &PageLocation,
    tab: Tab,
    what: &[u8],
    is_heavy: bool,
    page: &Html,
) -> String {
    let name = location.short_name();
    let title = if what.is_empty() {
        name.to_vec()
    } else {
        [what, b" \xc2\xb7 ", name].concat()
    };
    let frame = PageFrame {
        location,
        title: &title,
        tab: Some(tab),
        is_heavy,
    };
    frame.around(page)
}

fn push_commits<'c>(
    location: &PageLocation,
    commits: impl Iterator<Item = &'c Commit<'c>>,
    page: &mut Html,
) {
    page.markup("<ul class=rows>\n");
    for commit in commits {
        let url = location.url("commit", b"", &[("id", commit.id.digits())]);
        let subject = if commit.subject.trim_ascii().is_empty() {
            b"(no message)"
        } else {
            commit.subject
        };
        page.markup("<li><span class=main>")
            .heavy_link(&url, subject);
        page.markup("</span><span class=side><span>")
            .text(commit.author);
        page.markup("</span>");
        page.day(commit.date);
        page.markup("<span class=id>").text(commit.id.short());
        page.markup("</span></span>\n");
    }
    page.markup("</ul>\n");
}

fn push_refs<'r>(
    location: &PageLocation,
    refs: impl Iterator<Item = &'r Ref<'r>>,
    page: &mut Html,
) {
    page.markup("<ul class=rows>\n");
    for it in refs {
        push_ref(location, it, page);
    }
    page.markup("</ul>\n");
}

fn push_ref(location: &PageLocation, it: &Ref<'_>, page: &mut Html) {
    let (branch, tag) = (it.branch(), it.tag());
    let name = branch.or(tag).unwrap_or(it.name);
    page.markup("<li><span class=main>");
    if it.may_be_commit {
        page.link(&location.url_at("log", name), name)
    } else {
        page.text(name)
    };
    if it.is_head {
        page.markup(" <span class=mark>default</span>");
    }
    page.markup(" <span class=soft>")
        .text(it.subject)
        .markup("</span></span>");
    page.markup("<span class=side>");
    if it.may_be_commit {
        page.link(&location.url_at("tree", name), "files");
        let archive = [location.short_name(), b"-", name, b".tar.gz"].concat();
        page.heavy_link(&location.plain_url("snapshot", &archive, &[]), "tar.gz");
    }
    page.day(it.date);
    page.markup("</span>\n");
}

/// Appends a path with a link on each part.
pub(in crate::git) fn push_path_links(location: &PageLocation, path: &[u8], page: &mut Html) {
    page.markup("<code>")
        .link(&location.url("tree", b"", &[]), location.short_name());
    let mut end = 0;
    let may_link = !path.contains(&b'\\');
    for (nth, part) in path.split(|byte| *byte == b'/').enumerate() {
        end += part.len();
        page.markup(" / ");
        if may_link && nth < GIT_PATH_LINKS_MAX {
            page.link(&location.url("tree", &path[..end], &[]), part)
        } else {
            page.text(part)
        };
        end += 1;
    }
    page.markup("</code>");
}

/// Renders a feed of commits (RFC 4287).
pub(crate) fn atom(location: &PageLocation, branch: &[u8], commits: &[Commit<'_>]) -> String {
    let mut feed = Html::default();
    let page = |view: &str, more: &[(&str, &str)]| {
        let url = if more.is_empty() {
            location.url_of_branch(view, b"", &[])
        } else {
            location.plain_url(view, b"", more)
        };
        [location.origin.as_slice(), url.as_bytes()].concat()
    };
    feed.markup("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<feed xmlns=\"http://www.w3.org/2005/Atom\">\n<title>")
        .text(location.short_name());
    if !branch.is_empty() {
        feed.text(", ").text(branch);
    }
    feed.markup("</title>\n<id>").text(page("atom", &[]));
    feed.markup("</id>\n<link rel=\"self\" href=\"")
        .text(page("atom", &[]));
    feed.markup("\"/>\n<link rel=\"alternate\" href=\"")
        .text(page("log", &[]));
    let newest = commits
        .first()
        .map_or(&b"1970-01-01T00:00:00Z"[..], |it| it.strict_date);
    feed.markup("\"/>\n<updated>")
        .text(newest)
        .markup("</updated>\n");
    for commit in commits.iter().take(GIT_FEED_ENTRIES) {
        let url = page("commit", &[("id", commit.id.digits())]);
        feed.markup("<entry>\n<title>").text(commit.subject);
        feed.markup("</title>\n<id>").text(&url);
        feed.markup("</id>\n<link rel=\"alternate\" href=\"")
            .text(&url);
        feed.markup("\"/>\n<updated>").text(commit.strict_date);
        feed.markup("</updated>\n<author><name>")
            .text(commit.author);
        feed.markup("</name></author>\n</entry>\n");
    }
    feed.markup("</feed>\n");
    feed.into_string()
}
