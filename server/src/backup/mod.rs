//! A site's content in one file, and back: its folders and its hit counts, as a tar.gz that other
//! programs can read too. The first entry says whose it is, the last one has the SHA-256 of every
//! file, so that an archive that was cut, damaged or made by somebody else is known before anything
//! of it is used.

mod restore_draft;
mod restore;
mod save;

pub use restore::{RestoreSummary, restore, unpack};
pub use save::{SaveSummary, save};

use crate::base::trusted_path::UntrustedPath;
use crate::config::{OperatorError, SiteConfig, TargetConfig};
use crate::wire::request_target::encode_path;
use std::path::{Path, PathBuf};

/// The name of the first entry.
const ABOUT: &[u8] = b"backup.txt";
/// The name of the last one, as sha256sum writes and checks it.
const SUMS: &[u8] = b"sha256.txt";
/// The entry with the hit counts, if there are any.
const HITS: &[u8] = b"hits";
const MAGIC: &str = "anthill backup 1";

/// A folder of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BackupFolder {
    /// In the archive.
    name: String,
    /// `root` or `cgi`, and the path of its route as it is in URIs; how it is found again.
    role: String,
    /// Where it lies, as the configuration names it; unknown as long as only the archive was read.
    place: PathBuf,
}

/// The folders of a site that hold content, without those that lie in one another.
fn folders(site: &SiteConfig) -> Vec<BackupFolder> {
    let root = site.root.iter().map(|root| ("root", "/", root.get_ref()));
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
        });
    }
    folders
}

/// Root does not use this path, and what the operator can do about it.
fn untrusted(refused: &UntrustedPath) -> OperatorError {
    OperatorError::failure(refused.to_string())
        .help(refused.help(", to which the archive must be open"))
}

fn real(place: &Path) -> PathBuf {
    place.canonicalize().unwrap_or_else(|_| place.to_owned())
}

/// A line of the sums: as sha256sum has it, names with a backslash or a line's end escaped.
fn sum_line(digest: &[u8; 32], name: &[u8]) -> Vec<u8> {
    let is_odd = |byte: &u8| matches!(byte, b'\\' | b'\n' | b'\r');
    let mut line = Vec::new();
    if name.iter().any(is_odd) {
        line.push(b'\\');
    }
    line.extend_from_slice(crate::base::digest::hex(digest).as_bytes());
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
