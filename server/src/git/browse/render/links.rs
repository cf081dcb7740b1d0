//! Links of a README: the targets that a page may contain.

use crate::git::browse::page_location::PageLocation;
use crate::git::browse::url::ObjectId;
use crate::wire::request_target::normalise;

/// Returns the target of a link in a README: `inner` of a relative link, or an external address. None if the link is not
/// allowed.
pub(in crate::git) fn link_target(
    link: &str,
    is_image: bool,
    inner: InnerLinks<'_>,
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
    inner(link, is_image)
}

/// Function from a relative link, and whether the link is an image, to its target.
pub(in crate::git) type InnerLinks<'l> = &'l dyn Fn(&str, bool) -> Option<String>;

/// Returns the target of a relative link in a README of a repository: a file of the commit.
pub(in crate::git) fn file_of_commit(
    location: &PageLocation,
    commit: &ObjectId,
    link: &str,
    is_image: bool,
) -> Option<String> {
    let (path, fragment) = match link.split_once('#') {
        Some((path, fragment)) => (path, Some(fragment)),
        None => (link, None),
    };
    let path = path.split('?').next().unwrap_or_default();
    let path = normalise(format!("/{path}").as_bytes()).ok()?.into_owned();
    let path = path.strip_prefix(b"/").unwrap_or(&path);
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let view = if is_image { "plain" } else { "tree" };
    let mut url = location.url(view, path, &[("id", commit.digits())]);
    if let Some(fragment) = fragment {
        url.push('#');
        url.push_str(fragment);
    }
    Some(url)
}
