//! Files and sockets that a configuration needs, and that are missing or out of reach at the check: links out of a root,
//! unreadable files, sockets of applications, repositories without a mark.

use crate::config::configuration::Config;
use crate::config::error::OperatorError;
use crate::config::folder_contents::VisibleFiles;
use crate::config::limits::{CONFIG_CHECKED_ENTRIES_MAX, CONFIG_CHECKED_FILES_MAX};
use crate::config::route_table::{RouteConfig, TargetConfig};
use crate::config::script_table::BackendAddressConfig;
use crate::config::site_table::{SiteConfig, SymlinksConfig};
use crate::config::unix_account::UnixAccount;
use crate::config::useless_settings::own_files;
use crate::git::post_receive::git_folder;
use balancer::settings::MemberHost;
use release::glob::Glob;
use std::ops::Range;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// Returns the warnings of files and sockets. `account` is the account that serves.
pub(super) fn doubtful_files(config: &Config, account: Option<&UnixAccount>) -> Vec<OperatorError> {
    let mut warnings = Vec::new();
    for site in &config.sites {
        warnings.extend(links_out(config, site));
        warnings.extend(account.and_then(|account| unreadable_files(config, site, account)));
        for route in &site.routes {
            warnings.extend(missing_backend(config, route));
            warnings.extend(unmarked_repositories(config, route));
        }
    }
    for balancer in config.all_balancers() {
        let members = balancer.settings.members.iter().zip(&balancer.member_spans);
        warnings.extend(members.filter_map(|(member, span)| match &member.url.host {
            MemberHost::Unix(socket) => missing_socket(config, span.clone(), socket),
            _ => None,
        }));
    }
    warnings
}

/// Returns the visible files of a site that `hide` leaves, in a bounded number.
fn files_of(site: &SiteConfig, root: &Path) -> impl Iterator<Item = PathBuf> {
    let globs: Vec<Glob> = (site.hide.iter())
        .filter_map(|glob| Glob::parse(glob).ok())
        .collect();
    let files = VisibleFiles::new(root).take(CONFIG_CHECKED_FILES_MAX);
    files.filter(move |file| {
        let path = file.as_os_str().as_encoded_bytes();
        !globs.iter().any(|glob| glob.matches(path))
    })
}

/// Returns the words for further files.
fn further(count: usize) -> String {
    match count {
        1 => String::new(),
        2 => ", and 1 further file".to_owned(),
        _ => format!(", and {} further files", count - 1),
    }
}

/// Warns of links to files outside of the root, which no client gets.
fn links_out(config: &Config, site: &SiteConfig) -> Option<OperatorError> {
    let root = own_files(config, site).filter(|_| site.symlinks == SymlinksConfig::Inside)?;
    let real = root.canonicalize().ok()?;
    let leaves = |file: &PathBuf| {
        let path = root.join(file);
        path.is_symlink() && path.canonicalize().is_ok_and(|to| !to.starts_with(&real))
    };
    let mut links = files_of(site, root).filter(leaves);
    let first = links.next()?;
    let path = root.join(&first);
    let to = path.canonicalize().ok()?;
    let more = further(links.count() + 1);
    let what = format!(
        "{} is a link to {}, out of the root {}, and gets 404{more}",
        path.display(),
        to.display(),
        root.display()
    );
    let help = "write symlinks = \"follow\" in the site to serve such links, or put the files below the root";
    Some(config.point(site.root.as_ref().map_or(0..0, Spanned::span), what, help))
}

/// Warns of files that the account of the server cannot read.
fn unreadable_files(
    config: &Config,
    site: &SiteConfig,
    account: &UnixAccount,
) -> Option<OperatorError> {
    let root = own_files(config, site)?;
    // An unreadable root is an error of its own.
    if account.stopped_at(root, 5).is_some() {
        return None;
    }
    let is_refused = |file: &PathBuf| {
        let path = root.join(file);
        let is_file = std::fs::symlink_metadata(&path).is_ok_and(|it| it.is_file());
        is_file && account.stopped_at(&path, 4).is_some()
    };
    let mut refused = files_of(site, root).filter(is_refused);
    let first = root.join(refused.next()?);
    let stop = account.stopped_at(&first, 4)?;
    let more = further(refused.count() + 1);
    let what = format!(
        "user `{}` cannot read {}{more}: a request gets 403",
        account.name,
        first.display()
    );
    let help = if stop == first && more.is_empty() {
        format!("chmod o+r {}", first.display())
    } else {
        format!(
            "chmod -R o+rX {}, or name private files in `hide`",
            root.display()
        )
    };
    Some(config.point(site.root.as_ref().map_or(0..0, Spanned::span), what, help))
}

/// Warns of a FastCGI or SCGI backend without its socket.
fn missing_backend(config: &Config, route: &RouteConfig) -> Option<OperatorError> {
    let address = &route.backend()?.address;
    match address.get_ref() {
        BackendAddressConfig::Unix(socket) => missing_socket(config, address.span(), socket),
        BackendAddressConfig::Tcp(_) => None,
    }
}

/// Warns of a socket that no application has made yet, and names the sockets of the same folder.
fn missing_socket(config: &Config, span: Range<usize>, socket: &Path) -> Option<OperatorError> {
    // A folder that may not be entered hides its sockets.
    if !matches!(std::fs::symlink_metadata(socket), Err(error) if error.kind() == std::io::ErrorKind::NotFound)
    {
        return None;
    }
    let entries = socket
        .parent()
        .and_then(|folder| std::fs::read_dir(folder).ok());
    let entries = entries.into_iter().flatten().flatten();
    let mut others: Vec<String> = entries
        .take(CONFIG_CHECKED_ENTRIES_MAX)
        .map(|entry| entry.path())
        .filter(|path| std::fs::metadata(path).is_ok_and(|it| it.file_type().is_socket()))
        .map(|path| path.display().to_string())
        .collect();
    others.sort();
    let what = format!(
        "there is no socket {} at the moment: requests get 502 until the application makes the socket",
        socket.display()
    );
    let help = match &others[..] {
        [] if socket.to_string_lossy().contains("php") => {
            "install and start php-fpm (on Debian: apt install php-fpm), or write the path of its socket, which `listen` \
             in its pool names"
                .to_owned()
        }
        [] => "start the application, or write the path of its socket".to_owned(),
        others => format!(
            "start the application, or write the path of its socket; the folder has {}",
            others[..others.len().min(SOCKETS_SHOWN_MAX)].join(", ")
        ),
    };
    Some(config.point(span, what, help))
}

/// Most sockets that a help names.
const SOCKETS_SHOWN_MAX: usize = 3;

/// Warns of repositories none of which has the mark for an export.
fn unmarked_repositories(config: &Config, route: &RouteConfig) -> Option<OperatorError> {
    let Some(TargetConfig::Git(git)) = &route.target else {
        return None;
    };
    let folder = git.folder.get_ref();
    // A deployment names its repository.
    if git.exports_all || !git.deploy.is_empty() {
        return None;
    }
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let repositories: Vec<PathBuf> = entries
        .take(CONFIG_CHECKED_FILES_MAX)
        .filter_map(|entry| git_folder(&entry.path()))
        .collect();
    let is_marked = |it: &PathBuf| it.join("git-daemon-export-ok").exists();
    let first = repositories
        .first()
        .filter(|_| !repositories.iter().any(is_marked))?;
    let what = format!(
        "no repository of {} is marked for export, so every request below {} gets 404",
        folder.display(),
        route.path.get_ref()
    );
    let help = format!(
        "touch {}/git-daemon-export-ok, or write export = \"all\" for all repositories",
        first.display()
    );
    Some(config.point(git.folder.span(), what, help))
}
