//! Pages of a tree: folders, and files with line numbers.

use crate::git::browse::page_location::PageLocation;
use crate::git::browse::parse::{EntryKind, TreeEntry};
use crate::git::browse::render::frame::Tab;
use crate::git::browse::render::highlight::Highlighter;
use crate::git::browse::render::history::{framed, push_path_links};
use crate::git::browse::render::html::Html;
use crate::git::limits::{GIT_FILE_BYTES_MAX, GIT_HTML_BYTES_MAX, GIT_LINES_MAX};

/// Renders a folder; the paths of the entries start at the root.
pub(crate) fn folder(
    location: &PageLocation,
    path: &[u8],
    entries: &[TreeEntry<'_>],
    is_cut: bool,
) -> String {
    let mut page = Html::default();
    push_bar(location, path, None, &mut page);
    page.markup("<ul class=\"rows tree\">\n");
    let is_folder = |entry: &&TreeEntry<'_>| entry.kind == EntryKind::Tree;
    let folders = entries.iter().filter(is_folder);
    for entry in folders.chain(entries.iter().filter(|entry| !is_folder(entry))) {
        if page.len() > GIT_HTML_BYTES_MAX {
            break;
        }
        push_entry(location, path, entry, &mut page);
    }
    page.markup("</ul>\n");
    if is_cut {
        page.markup("<p class=note>There is more in this folder than a page can show.</p>\n");
    }
    framed(
        location,
        Tab::Tree,
        if path.is_empty() { b"files" } else { path },
        false,
        &page,
    )
}

fn push_entry(location: &PageLocation, folder: &[u8], entry: &TreeEntry<'_>, page: &mut Html) {
    let name = entry.path.strip_prefix(folder).unwrap_or(entry.path);
    let name = name.strip_prefix(b"/").unwrap_or(name);
    page.markup("<li><span class=main>");
    // Request paths with a backslash are always refused, so the entry gets no link.
    let url = (!entry.path.contains(&b'\\')).then(|| location.url("tree", entry.path, &[]));
    match (entry.kind, &url) {
        (EntryKind::Tree, Some(url)) => {
            page.markup("<span class=dir>")
                .link(url, [name, b"/"].concat());
            page.markup("</span>");
        }
        (EntryKind::Submodule, _) => {
            page.text(name)
                .markup(" <span class=soft>another repository, at <span class=id>");
            page.text(entry.id.short()).markup("</span></span>");
        }
        (_, Some(url)) => {
            page.link(url, name);
        }
        (_, None) => {
            page.text(name);
        }
    }
    page.markup(match entry.kind {
        EntryKind::Link => " <span class=soft>link</span>",
        EntryKind::File {
            is_executable: true,
        } => " <span class=soft>program</span>",
        _ => "",
    });
    page.markup("</span><span class=side>");
    if let Some(size) = entry.size {
        page.markup("<span>").text(size_of(size)).markup("</span>");
    }
    if url.is_some() {
        page.markup("<span class=log>")
            .heavy_link(&location.url("log", entry.path, &[]), "log");
        page.markup("</span>");
    }
    page.markup("</span>\n");
}

/// Formats a size, for example `1.2 KB`.
fn size_of(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KB", "MB", "GB", "TB"];
    if bytes < 1_000 {
        return format!("{bytes} B");
    }
    let mut tenths = bytes / 100;
    let mut unit = 0;
    while tenths >= 10_000 && unit + 1 < UNITS.len() {
        tenths /= 1_000;
        unit += 1;
    }
    match tenths {
        0..100 => format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit]),
        _ => format!("{} {}", tenths / 10, UNITS[unit]),
    }
}

/// Appends the bar with the path of the page and links to other views.
fn push_bar(location: &PageLocation, path: &[u8], file: Option<&TreeEntry<'_>>, page: &mut Html) {
    page.markup("<div class=bar><span>");
    if path.is_empty() {
        page.markup("<code>")
            .text(location.short_name())
            .markup("</code>");
    } else {
        push_path_links(location, path, page)
    }
    page.markup("</span><span class=soft>");
    if let Some(entry) = file.filter(|entry| entry.kind != EntryKind::Submodule) {
        let size = entry.size.map(size_of).unwrap_or_default();
        page.text(size).markup(" · ");
        page.link(&location.url("plain", path, &[]), "plain")
            .markup(" · ");
    }
    page.heavy_link(&location.url("log", path, &[]), "log");
    page.markup("</span></div>\n");
}

/// Renders a file; `content` is the whole file or its beginning.
pub(crate) fn file(
    location: &PageLocation,
    entry: &TreeEntry<'_>,
    content: &[u8],
    is_cut: bool,
) -> String {
    let path = entry.path;
    let mut page = Html::default();
    push_bar(location, path, Some(entry), &mut page);
    let plain = location.url("plain", path, &[]);
    if entry.kind == EntryKind::Submodule {
        page.markup("<p class=note>Another repository, at the commit <span class=id>")
            .text(entry.id.digits())
            .markup("</span></p>\n");
    } else if entry.kind == EntryKind::Link {
        page.markup("<p>A link to <code>")
            .text(content)
            .markup("</code></p>\n");
    } else if crate::git::browse::render::content_type::image(path).is_some() {
        page.markup("<p><img class=shown alt=\"\" src=\"")
            .text(&plain)
            .markup("\"></p>\n");
    } else if crate::git::browse::render::content_type::is_binary(content) {
        page.markup("<p class=note>The file is not a text: ");
        page.link(&plain, "raw file").markup("</p>\n");
    } else if content.is_empty() {
        page.markup("<p class=note>The file is empty.</p>\n");
    } else {
        push_lines(path, content, &plain, is_cut, &mut page);
    }
    framed(location, Tab::Tree, path, false, &page)
}

fn push_lines(path: &[u8], content: &[u8], plain: &str, is_cut: bool, page: &mut Html) {
    let content = if is_cut {
        // Ends at the last complete line, if the content has a complete line.
        let end = content.iter().rposition(|byte| *byte == b'\n');
        &content[..end.unwrap_or(content.len().min(GIT_FILE_BYTES_MAX))]
    } else {
        content.strip_suffix(b"\n").unwrap_or(content)
    };
    let mut colours = Highlighter::of(path);
    let mut lines = content.split(|byte| *byte == b'\n').enumerate();
    page.markup("<div class=scroll><pre class=code>");
    for (nth, line) in lines.by_ref() {
        if nth == GIT_LINES_MAX || page.len() > GIT_HTML_BYTES_MAX {
            push_cut(plain, page);
            return;
        }
        let number = (nth + 1).to_string();
        page.markup("<span id=n")
            .markup(&number)
            .markup("><a href=\"#n")
            .markup(&number);
        page.markup("\">").markup(&number).markup("</a>");
        colours.push(line.strip_suffix(b"\r").unwrap_or(line), page);
        page.markup("\n</span>");
    }
    if is_cut {
        push_cut(plain, page)
    } else {
        page.markup("</pre></div>\n");
    }
}

fn push_cut(plain: &str, page: &mut Html) {
    page.markup("</pre></div>\n<p class=note>The file is longer than this page: ");
    page.link(plain, "whole file").markup("</p>\n");
}

#[cfg(test)]
mod tests {
    use super::size_of;

    #[test]
    fn sizes_are_rounded() {
        for (bytes, expected) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 KB"),
            (9_999, "9.9 KB"),
            (10_000, "10 KB"),
            (999_999, "999 KB"),
            (1_000_000, "1.0 MB"),
            (123_456_789, "123 MB"),
            (u64::MAX, "18446744 TB"),
        ] {
            assert_eq!(size_of(bytes), expected);
        }
    }
}
