//! Backup and restore of a site's content: folders and hit counts in one tar.gz, readable by other programs
//! as well. The first entry names the site, and the last entry holds the SHA-256 digests of all files. A
//! truncated, damaged or foreign archive is therefore detected before any content is put in place.

mod limits;
mod restore_draft;
mod restore;
mod rule_files;
mod save;
mod save_release;

pub use restore::{RestoreSummary, restore, unpack};
pub use save::{SaveSummary, save};

use crate::build::release_rules;
use crate::config::{OperatorError, ServerConfig, SiteConfig, TargetConfig, reason};
use base::trusted_path::UntrustedPath;
use data_plane::site::ReleaseRules;
use std::io;
use std::path::{Path, PathBuf};
use wire::request_target::encode_path;

/// Name of the first entry, the manifest.
const ABOUT: &[u8] = b"backup.txt";
/// Name of the last entry, with digests in the format of sha256sum.
const SUMS: &[u8] = b"sha256.txt";
/// Name of the optional entry with the hit counts.
const HITS: &[u8] = b"hits";
/// Name of the optional entry with the rules of a release, in the format of the manifest.
const RULES: &[u8] = b"rules";
const MAGIC: &str = "anthill backup 1";

/// Folder of a site in a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BackupFolder {
    /// Name of the folder in the archive.
    name: String,
    /// `root` or `cgi`, and the URI path of the route. A restore matches folders by role.
    role: String,
    /// Path of the folder in the configuration; empty until the manifest is matched with a site. For a release, the
    /// folder of the site in the store.
    place: PathBuf,
    /// Release with the files; None for a folder.
    release: Option<ReleaseRules>,
}

/// Returns the release of the site as a folder, and the content folders, without folders nested in other content
/// folders. A folder beside a release is the content of the site until the first release.
fn folders(site: &SiteConfig, server: &ServerConfig) -> Vec<BackupFolder> {
    let release = site.release.as_ref().map(|it| release_rules(it, server));
    let has_release =
        |rules: &ReleaseRules| rules.acknowledged().is_some() || rules.pointer().exists();
    let release = release.filter(|rules| site.root.is_none() || has_release(rules));
    let root = site.root.iter().filter(|_| release.is_none());
    let root = root.map(|root| ("root", "/", root.get_ref()));
    let routes = site.routes.iter().filter_map(|route| {
        let path = route.path.get_ref().as_str();
        match &route.target {
            Some(TargetConfig::Root(folder)) => Some(("root", path, folder.get_ref())),
            Some(TargetConfig::Cgi(cgi)) => Some(("cgi", path, cgi.folder.get_ref())),
            _ => None,
        }
    });
    let all: Vec<(&str, &str, &PathBuf)> = root.chain(routes).collect();
    let real: Vec<PathBuf> = all.iter().map(|(_, _, place)| real(place)).collect();
    let mut folders: Vec<BackupFolder> = Vec::new();
    folders.extend(release.into_iter().map(|rules| BackupFolder {
        name: "root".to_owned(),
        role: "root /".to_owned(),
        place: rules.folder(),
        release: Some(rules),
    }));
    for (nth, (kind, path, place)) in all.into_iter().enumerate() {
        let own = &real[nth];
        let holds = |(other, outer): (usize, &PathBuf)| {
            other != nth && own.starts_with(outer) && (own != outer || other < nth)
        };
        if real.iter().enumerate().any(holds) {
            continue;
        }
        let mut role = format!("{kind} ").into_bytes();
        encode_path(path.as_bytes(), &mut role);
        folders.push(BackupFolder {
            name: match folders.len() {
                0 => kind.to_owned(),
                count => format!("{kind}-{count}"),
            },
            role: String::from_utf8_lossy(&role).into_owned(),
            place: place.clone(),
            release: None,
        });
    }
    folders
}

/// Returns the error for a failure at a file or folder.
fn at(place: &Path, error: impl Into<io::Error>) -> OperatorError {
    OperatorError::failure(format!("{}: {}", place.display(), reason(&error.into())))
}

/// Converts the refusal of an untrusted path to an error with advice for the operator.
fn untrusted(refused: &UntrustedPath) -> OperatorError {
    OperatorError::failure(refused.to_string())
        .help(refused.help(", to which the archive must be open"))
}

fn real(place: &Path) -> PathBuf {
    place.canonicalize().unwrap_or_else(|_| place.to_owned())
}

/// Formats a line of digests as sha256sum does, with backslashes and line ends in names escaped.
fn sum_line(digest: &[u8; 32], name: &[u8]) -> Vec<u8> {
    let is_odd = |byte: &u8| matches!(byte, b'\\' | b'\n' | b'\r');
    let mut line = Vec::new();
    if name.iter().any(is_odd) {
        line.push(b'\\');
    }
    line.extend_from_slice(base::digest::hex(digest).as_bytes());
    line.extend_from_slice(b"  ");
    for byte in name {
        match byte {
            b'\\' => line.extend_from_slice(b"\\\\"),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            byte => line.push(*byte),
        }
    }
    line.push(b'\n');
    line
}
