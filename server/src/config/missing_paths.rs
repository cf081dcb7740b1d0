//! Causes and corrections of a path in the configuration that does not exist.

use std::path::{Path, PathBuf};

use crate::config::odd_characters::odd_text;
use cli::suggest;

/// Returns the reason why a missing path is not the path that was meant, and the correction: a link that leads nowhere, a path of
/// Windows, or an odd character. `base` is the folder of relative paths.
pub(super) fn misleading_path(path: &Path, base: &Path) -> Option<(String, String)> {
    let inside = path.strip_prefix(base).unwrap_or(path);
    let link = path.ancestors().find_map(|above| {
        Some((
            above,
            std::fs::read_link(above).ok().filter(|_| !above.exists())?,
        ))
    });
    if let Some((link, to)) = link {
        let (link, to) = (link.display(), to.display());
        let what = format!("{link} is a link to {to}, which does not exist");
        return Some((
            what,
            format!("make {to}, or the link again: ln -sfn TARGET {link}"),
        ));
    }
    let text = inside.to_str()?;
    let drive = text.as_bytes().get(1) == Some(&b':') && text.as_bytes()[0].is_ascii_alphabetic();
    if drive || text.contains('\\') {
        let rest = text
            .get(2..)
            .filter(|_| drive)
            .unwrap_or(text)
            .replace('\\', "/");
        let what = format!("`{text}` is a path of Windows");
        let help = match drive {
            true => format!("write a path of this machine with slashes, such as \"/srv{rest}\""),
            false => format!("write the path with slashes: \"{rest}\""),
        };
        return Some((what, help));
    }
    let odd = odd_text(text)?;
    Some((odd.what, format!("write \"{}\"", odd.corrected)))
}

/// Returns the help for a missing file or folder of the given kind. `base` is the folder of relative paths.
pub(super) fn missing(path: &Path, kind: &str, base: &Path) -> String {
    let inside = path.strip_prefix(base).ok();
    let first = inside.and_then(|inside| inside.iter().next()?.to_str());
    if let Some(first) = first.filter(|it| it.starts_with('~')) {
        return format!(
            "`{first}` is not expanded: write the whole path, such as \"/home/NAME/public\""
        );
    }
    if let Some(name) = first.and_then(|first| first.strip_prefix('$')) {
        return format!("`${name}` is not expanded: write `${{{name}}}`, or the whole path");
    }
    let shown = path.display();
    if let Some(first) = first.filter(|it| matches!(*it, "http:" | "https:")) {
        let rest = inside.and_then(|inside| inside.strip_prefix(first).ok());
        let rest = rest.map(|rest| rest.display().to_string());
        return format!(
            "a path of this machine is no URL: for another server write proxy = \"{first}//{}\" in a [[site.route]]",
            rest.unwrap_or_default()
        );
    }
    if first == Some("file:") {
        let rest = inside.and_then(|inside| inside.strip_prefix("file:").ok());
        let rest = rest.map(|rest| rest.display().to_string());
        return format!("write the path alone: \"/{}\"", rest.unwrap_or_default());
    }
    if let Some(parent) = path
        .parent()
        .filter(|_| path.ends_with("*") || path.ends_with("**"))
    {
        return format!("a folder has no wildcard: write \"{}\"", parent.display());
    }
    let mend = match kind {
        "folder" => format!("{CREATE_FOLDER}: mkdir -p {shown}"),
        "program" => "install the program, or write the path of another".to_owned(),
        _ => format!("write the path of an existing {kind}"),
    };
    match inside {
        Some(_) => format!("{mend}; relative paths begin at {}", base.display()),
        None => mend,
    }
}

/// Beginning of the help for a missing folder.
pub(super) const CREATE_FOLDER: &str = "create the folder";
/// Returns the file or the folder beside a path with the most similar name.
pub(super) fn sibling(path: &Path, is_folder: bool) -> Option<PathBuf> {
    let folder = path.parent()?;
    let names: Vec<String> = std::fs::read_dir(folder)
        .ok()?
        .take(SIBLINGS_MAX)
        .filter_map(Result::ok)
        .filter(|entry| entry.path().is_dir() == is_folder)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    let meant = suggest(
        path.file_name()?.to_str()?,
        names.iter().map(String::as_str),
    )?;
    Some(folder.join(meant))
}

/// Maximum number of files to compare in a folder when searching for a similar name.
const SIBLINGS_MAX: usize = 1_000;
