//! Settings of a receiver: the site, the store, and the rights, name and quota of the publisher.

use super::rights::Rights;
use release::store::{DraftOwner, ReleaseSupport};
use std::path::PathBuf;

/// Settings of a receiver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceiveOptions {
    /// Name of the site in the store.
    pub site: String,
    /// Folder of the store.
    pub store: PathBuf,
    /// Folder in which the server acknowledges the served release of each site.
    pub served: PathBuf,
    /// Rights of the publisher.
    pub rights: Rights,
    /// Name of the publisher, in place of the name that the publisher states.
    pub publisher: Option<String>,
    /// Bytes of all contents in the store, beyond which no content is accepted.
    pub quota: Option<u64>,
    /// Support of releases in this build.
    pub support: ReleaseSupport,
}

impl ReceiveOptions {
    /// Returns the owner of the drafts of sessions with these settings.
    pub(super) fn draft_owner(&self) -> DraftOwner<'_> {
        DraftOwner {
            site: &self.site,
            publisher: self.publisher.as_deref(),
        }
    }
}
