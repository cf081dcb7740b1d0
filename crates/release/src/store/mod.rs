//! Store of releases: contents by their digests, and for each site the pointer to the served release.
//!
//! The server reads a store through [`ReleaseStore`]. [`StoreFolder`] is a store in a plain folder:
//!
//! ```text
//! blobs/ab/ab34…               contents and manifests, named by their SHA-256 in hexadecimal
//! lists/ab34…                  contents of a release with a long manifest, for sweeps
//! drafts/                      incomplete contents, records of received ones, and a locked file for each session
//! sites/NAME/pointer           pointer to the served release
//! sites/NAME/pointers/42       each published pointer, named by its sequence
//! sites/NAME/labels/LABEL      digest of the release with a label, for previews, and the owner of the label
//! sites/NAME/pins/ab34…        empty file for each release that is never swept
//! sites/NAME/withdrawn/ab34…   empty file for each release that is never served again
//! sites/NAME/lock              locked by the publisher that changes the site
//! lock                         locked for sharing while contents are added, and exclusively while contents are swept
//! quota                        locked by the session that counts the bytes of the store and of all sessions
//! ```
//!
//! A publisher writes in this order ([`StoreWriter`], [`SiteWriter`]):
//!
//! 1. lock `lock` for sharing, so that no sweep removes a content that the publisher counts on;
//! 2. write each missing content to a draft, and sync all drafts;
//! 3. rename the drafts into `blobs` and sync the folders of the renamed contents, then write the manifest alike;
//! 4. lock `sites/NAME/lock`, and compare the pointer with the pointer read before;
//! 5. write and sync the new pointer as a draft, rename the draft to `pointer`, sync the folder of the site;
//! 6. write the record of the publication to `pointers`.
//!
//! A crash or a power failure after any step leaves the old pointer with all contents of the old release, or the new
//! pointer with all contents of the new release. The next publisher writes a missing record of step 6, and the next
//! sweep removes drafts. The sequence rises by 1 from the highest one in `pointer` and `pointers`.
//!
//! The session of a publisher on another machine ([`QuotaAccount`]) holds `lock` while it works on a request, and not while it
//! waits for the publisher, so that a silent publisher keeps no sweep away. The drafts of a live session stay. Before the
//! manifest is written, the session looks again for the contents that the store had at its start.
//!
//! A sweep ([`sweep`]) removes records of old publications first, and then the contents without a release. The manifests are
//! read before the sweep takes the lock, and only once for each release.

mod blob_folder;
mod content_index;
mod content_list;
mod draft;
mod folder;
mod folder_access;
mod frame_stream;
mod history;
mod label;
mod leftover;
mod manifest_text;
mod publish;
mod quota_account;
mod received;
mod records_text;
mod release_contents;
mod release_support;
mod served_release;
mod stall_record;
mod sweep;
mod write_error;
mod writer;

#[cfg(test)]
mod tests;

pub use blob_folder::disk_bytes;
pub use content_index::ContentIndex;
pub use draft::{Draft, DraftOwner};
pub use folder::StoreFolder;
pub use frame_stream::{FrameReader, FrameWriter};
pub use history::{Publication, SiteRecords, sites, withdrawn_releases};
pub use label::{LabelEditor, ReleaseLabel};
pub use manifest_text::read_manifest;
pub use publish::{Flip, ReleaseMark, SiteWriter};
pub use quota_account::QuotaAccount;
pub use received::{received_contents, record_received};
pub use records_text::RecordsVersion;
pub use release_contents::{has_contents, line_count, release_contents, verify_content};
pub use release_support::ReleaseSupport;
pub use served_release::{ServedRelease, served_folder};
pub use sweep::{Retention, SweepReport, remove_content, sweep, sweep_received};
pub use write_error::StoreWriteError;
pub use writer::StoreWriter;

use std::fmt;
use std::fs::File;
use std::io;

/// Source of releases for the server.
pub trait ReleaseStore: Send + Sync {
    /// Opens the content with a digest for reading. The content is not verified.
    fn open_blob(&self, digest: &[u8; 32]) -> Result<File, StoreError>;
    /// Returns the text of the pointer to the served release of a site; None before the first release.
    fn pointer(&self, site: &str) -> Result<Option<Vec<u8>>, StoreError>;
    /// Returns the text of a published pointer of a site; None for an unknown sequence.
    fn record(&self, site: &str, sequence: u64) -> Result<Option<Vec<u8>>, StoreError>;
    /// Returns the digest of the release with a label; None for an unknown label.
    fn label(&self, site: &str, label: &str) -> Result<Option<[u8; 32]>, StoreError>;
    /// Returns true if a release of a site is withdrawn.
    fn is_withdrawn(&self, site: &str, release: &[u8; 32]) -> Result<bool, StoreError>;
}

/// Failure of a store.
#[derive(Debug)]
pub enum StoreError {
    /// The store has no such content.
    Missing,
    /// The content differs from its digest or its size, or is no regular file.
    Corrupt(&'static str),
    /// The disk failed, or access was denied.
    Io(io::Error),
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> StoreError {
        match error.kind() {
            io::ErrorKind::NotFound => StoreError::Missing,
            _ => StoreError::Io(error),
        }
    }
}

impl From<rustix::io::Errno> for StoreError {
    fn from(error: rustix::io::Errno) -> StoreError {
        io::Error::from(error).into()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Missing => f.write_str("it is missing from the store"),
            StoreError::Corrupt(what) => f.write_str(what),
            StoreError::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StoreError {}
