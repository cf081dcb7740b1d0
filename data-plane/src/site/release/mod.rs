//! Site from a release: the tree comes from the manifest, and the contents come from the store.
//!
//! The store may belong to another account than the server. A release is served only if the pointer, the manifest and
//! each content agree with their digests, and, with `publishers`, only if a publisher has signed the pointer.

mod from_folder;
mod open;
mod release_rules;
mod retained;
mod tree;

#[cfg(test)]
mod tests;

pub use from_folder::FolderRelease;
pub use open::ReopenedSite;
pub use release_rules::{ReleaseError, ReleaseRules};
pub(super) use retained::RetainedFiles;
pub(super) use tree::ReleaseContent;

use release::store::ServedRelease;
use wire::reject::Reject;

/// Release of a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReleaseState {
    /// Nothing is published yet, or nothing that can be served.
    Missing,
    /// The release is served.
    Served(ServedRelease),
    /// The release was served until its withdrawal.
    Withdrawn(ServedRelease),
}

impl ReleaseState {
    /// Returns the refusal of all requests; None for a release that is served.
    pub(crate) fn refusal(&self) -> Option<Reject> {
        match self {
            ReleaseState::Missing => Some(Reject::RELEASE_MISSING),
            ReleaseState::Served(_) => None,
            ReleaseState::Withdrawn(_) => Some(Reject::RELEASE_WITHDRAWN),
        }
    }

    /// Returns the last release of the site.
    pub fn last(&self) -> Option<&ServedRelease> {
        match self {
            ReleaseState::Missing => None,
            ReleaseState::Served(release) | ReleaseState::Withdrawn(release) => Some(release),
        }
    }
}
