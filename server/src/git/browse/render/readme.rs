//! README of a repository or a folder: Markdown is rendered, other formats are shown as text. Embedded HTML is shown as
//! text. Links lead only to the web, to mail addresses and to files of the same commit.

use crate::git::browse::page_location::PageLocation;
use crate::git::browse::render::html::Html;
use crate::git::browse::render::links::{InnerLinks, file_of_commit};
use crate::git::browse::url::ObjectId;
use crate::git::limits::GIT_README_BYTES_MAX;

/// Renders a README with the given name and content.
pub(crate) fn rendered(
    location: &PageLocation,
    commit: &ObjectId,
    name: &str,
    content: &[u8],
) -> Html {
    let is_cut = content.len() >= GIT_README_BYTES_MAX;
    let content = &content[..content.len().min(GIT_README_BYTES_MAX)];
    let mut html = Html::default();
    push_readme(
        name,
        content,
        &|link, is_image| file_of_commit(location, commit, link, is_image),
        &mut html,
    );
    if is_cut {
        let url = location.url("plain", name.as_bytes(), &[("id", commit.digits())]);
        html.markup("<p class=note>The README is longer than this page: ");
        html.link(&url, "whole file").markup("</p>");
    }
    html.markup("</article>\n");
    html
}

/// Renders the README of a folder with the given name and content, for a listing.
pub(crate) fn folder_readme(name: &str, content: &[u8]) -> String {
    let mut html = Html::default();
    push_readme(name, content, &|link, _| Some(link.to_owned()), &mut html);
    html.markup("</article>");
    html.into_string()
}

/// Appends a README without the end of its element.
fn push_readme(name: &str, content: &[u8], inner: InnerLinks<'_>, html: &mut Html) {
    html.markup("<article class=readme>");
    if crate::git::browse::render::content_type::is_binary(content) {
        html.markup("<p class=soft>The README is not a text.</p>");
    } else if name.to_ascii_lowercase().ends_with(".md") || name.ends_with(".markdown") {
        push_markdown(content, inner, html);
    } else {
        html.preformatted(content);
    }
}

#[cfg(not(feature = "markdown"))]
fn push_markdown(content: &[u8], _: InnerLinks<'_>, html: &mut Html) {
    html.preformatted(content);
}

#[cfg(feature = "markdown")]
use crate::git::browse::render::markdown::push_markdown;
