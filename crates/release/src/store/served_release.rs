//! Served release: the release that all workers serve, acknowledged in a file of the state folder.
//!
//! Publishers wait for the file. After a restart with a damaged pointer, the server serves the release of the file. With
//! `publishers`, the file also keeps a pointer with an older sequence from being served after a restart.

use super::folder::StoreFolder;
use super::folder_access::read_small;
use base::digest::{from_hex, hex};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::path::{Path, PathBuf};

/// First line of an acknowledgment.
const HEADER: &str = "anthill served 1";

/// Hexadecimal digits of a release in messages, enough to be unique in a store.
const SHORT_DIGITS: usize = 12;

/// Returns the folder of the server's acknowledgments: `served` beside the store.
pub fn served_folder(store: &Path) -> PathBuf {
    store.parent().unwrap_or(Path::new("")).join("served")
}

/// Release of a site with the sequence of its publication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServedRelease {
    /// SHA-256 of the manifest.
    pub release: [u8; 32],
    /// Sequence of the pointer.
    pub sequence: u64,
    /// Time of the publication in seconds since 1970. The acknowledgment does not have the time.
    pub time: u64,
}

impl ServedRelease {
    /// Returns the beginning of the digest, for messages.
    pub fn short(&self) -> String {
        let digits = hex(&self.release);
        digits[..SHORT_DIGITS].to_owned()
    }

    /// Returns the text of the acknowledgment.
    pub fn text(&self) -> String {
        let release = hex(&self.release);
        format!("{HEADER}\nrelease {release}\nsequence {}\n", self.sequence)
    }

    /// Reads the acknowledgment of a site beside a store; None without a readable acknowledgment.
    pub(super) fn beside(store: &StoreFolder, site: &str) -> Option<ServedRelease> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, served_folder(store.path()), flags, Mode::empty()).ok()?;
        ServedRelease::parse(&read_small(&folder, site).ok()?)
    }

    /// Parses an acknowledgment; None for another text.
    pub fn parse(text: &[u8]) -> Option<ServedRelease> {
        let text = std::str::from_utf8(text).ok()?;
        let rest = text.strip_prefix(HEADER)?.strip_prefix("\nrelease ")?;
        let (release, rest) = rest.split_once("\nsequence ")?;
        Some(ServedRelease {
            release: from_hex(release.as_bytes())?,
            // Lines with the addresses of the site follow, and readers skip lines that they do not know.
            sequence: rest.split_once('\n')?.0.parse().ok()?,
            time: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgment_is_read_as_written() {
        let served = ServedRelease {
            release: [0xab; 32],
            sequence: 17,
            time: 0,
        };
        assert_eq!(ServedRelease::parse(served.text().as_bytes()), Some(served));
        for end in 0..served.text().len() {
            assert_eq!(ServedRelease::parse(&served.text().as_bytes()[..end]), None);
        }
    }
}
