//! Relative links of a README.

use crate::git::browse::page_location::PageLocation;
use crate::git::browse::url::ObjectId;
use wire::normal_path::normalise;

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
