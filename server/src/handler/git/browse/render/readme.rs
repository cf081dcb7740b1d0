//! README of a repository: Markdown is rendered, other formats are shown as text. Embedded HTML is shown as
//! text. Links lead only to the web, to mail addresses and to files of the same commit.

use crate::handler::git::browse::page_location::PageLocation;
use crate::handler::git::browse::render::html::Html;
use crate::handler::git::browse::url::ObjectId;
use crate::limits::GIT_README_BYTES_MAX;

/// File names of a README, in order of preference.
pub const NAMES: [&str; 10] = [
    "README.md",
    "readme.md",
    "Readme.md",
    "README.markdown",
    "README",
    "README.txt",
    "README.rst",
    "README.adoc",
    "README.org",
    "readme.txt",
];

/// Renders a README with the given name and content.
pub fn rendered(place: &PageLocation, commit: &ObjectId, name: &str, content: &[u8]) -> Html {
    let is_cut = content.len() >= GIT_README_BYTES_MAX;
    let content = &content[..content.len().min(GIT_README_BYTES_MAX)];
    let mut html = Html::default();
    html.markup("<article class=readme>");
    if crate::handler::git::browse::render::content_type::is_binary(content) {
        html.markup("<p class=soft>It is no text.</p>");
    } else if name.to_ascii_lowercase().ends_with(".md") || name.ends_with(".markdown") {
        push_markdown(place, commit, content, &mut html);
    } else {
        push_text(content, &mut html);
    }
    if is_cut {
        let url = place.url("plain", name.as_bytes(), &[("id", commit.digits())]);
        html.markup("<p class=note>It is longer than this page: ");
        html.link(&url, "all of it").markup("</p>");
    }
    html.markup("</article>\n");
    html
}

pub(in crate::handler::git) fn push_text(content: &[u8], html: &mut Html) {
    html.markup("<pre class=plain>")
        .text(content)
        .markup("</pre>");
}

#[cfg(not(feature = "markdown"))]
fn push_markdown(_: &PageLocation, _: &ObjectId, content: &[u8], html: &mut Html) {
    push_text(content, html);
}

#[cfg(feature = "markdown")]
use crate::handler::git::browse::render::markdown::push_markdown;

/// Returns the target of a link in a README: a file of the repository or an external address. None if the
/// link is not allowed.
#[cfg_attr(
    not(feature = "markdown"),
    expect(dead_code, reason = "for Markdown alone")
)]
pub(in crate::handler::git) fn led_to(
    place: &PageLocation,
    commit: &ObjectId,
    link: &str,
    is_image: bool,
) -> Option<String> {
    // Browsers ignore control characters in addresses.
    let link: String = link.chars().filter(|it| !it.is_control()).collect();
    let link = link.trim();
    if link.starts_with('#') {
        return (!is_image).then(|| link.to_owned());
    }
    let end = link.find(['/', '?', '#']).unwrap_or(link.len());
    if let Some((scheme, rest)) = link
        .split_once(':')
        .filter(|(scheme, _)| scheme.len() < end)
    {
        let is_web = ["http", "https"]
            .iter()
            .any(|it| scheme.eq_ignore_ascii_case(it));
        let is_mail = scheme.eq_ignore_ascii_case("mailto") && !is_image;
        return ((is_web && rest.starts_with("//")) || is_mail).then(|| link.to_owned());
    }
    // Excludes `//host/path` and variants accepted by browsers, and paths of the site outside the
    // repository.
    if link.starts_with('/') || link.contains('\\') {
        return None;
    }
    let (path, fragment) = match link.split_once('#') {
        Some((path, fragment)) => (path, Some(fragment)),
        None => (link, None),
    };
    let path = path.split('?').next().unwrap_or_default();
    let path = crate::wire::request_target::normalise(format!("/{path}").as_bytes())
        .ok()?
        .into_owned();
    let path = path.strip_prefix(b"/").unwrap_or(&path);
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let view = if is_image { "plain" } else { "tree" };
    let mut url = place.url(view, path, &[("id", commit.digits())]);
    if let Some(fragment) = fragment {
        url.push('#');
        url.push_str(fragment);
    }
    Some(url)
}
