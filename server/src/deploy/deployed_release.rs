//! Release that a branch fills: each deployment is a publication in the store, with the commit in the name of the
//! publisher.

use crate::config::{ReleaseConfig, ServerConfig};
use crate::deploy::error::DeployError;
use crate::deploy::tree_draft::TreeDraft;
use base::clock;
use data_plane::site::FolderRelease;
use release::release_pointer::ReleasePointer;
use release::store::{
    ReleaseStore as _, ReleaseSupport, Retention, SiteRecords, StoreError, StoreFolder,
    StoreWriteError, sweep,
};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// Beginning of the name of the publisher. The commit follows.
const PUBLISHER: &str = "push@";
/// Digits of a commit in the name of the publisher. A name of 63 bytes has no room for a whole SHA-256.
const COMMIT_DIGITS: usize = 40;
/// Name of the store in messages to the client of a push.
const STORE: &str = "the store of releases";

/// Site in the store of releases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeployedRelease {
    store: PathBuf,
    /// Name of the site in the store.
    site: String,
    /// Folder of the drafts of trees.
    drafts: PathBuf,
    _support: ReleaseSupport,
}

impl DeployedRelease {
    /// Returns the site of the configured store.
    pub(super) fn of(release: &ReleaseConfig, server: &ServerConfig) -> DeployedRelease {
        DeployedRelease {
            store: server.releases_folder(),
            site: release.name.get_ref().clone(),
            drafts: server.state.get_ref().join("deployed"),
            _support: release.support,
        }
    }

    /// Returns the folder of the site in the store.
    pub(super) fn folder(&self) -> PathBuf {
        self.store.join("sites").join(&self.site)
    }

    /// Returns the commit of the served release and the time of its publication; None if the release is no deployment.
    pub(super) fn served(&self) -> Option<(String, SystemTime)> {
        let text = StoreFolder::open(&self.store)
            .ok()?
            .pointer(&self.site)
            .ok()??;
        let (pointer, _) = ReleasePointer::parse(&text)?;
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(pointer.time);
        Some((commit_of(&pointer)?.to_owned(), since))
    }

    /// Returns true if a commit is the last deployed one. A release of another publisher stays served until the
    /// branch has another commit.
    pub(super) fn is_last(&self, commit: &str) -> Result<bool, DeployError> {
        let store = match StoreFolder::open(&self.store) {
            Err(StoreError::Missing) => return Ok(false),
            store => store.map_err(|error| self.failed(&error))?,
        };
        let records = SiteRecords::read(&store, &self.site).map_err(|error| self.failed(&error))?;
        let mut pushed = records.publications.values().rev();
        let last = pushed.find_map(|it| commit_of(&it.pointer));
        Ok(last == Some(shortened(commit)))
    }

    /// Creates an empty folder for a new tree.
    pub(super) fn draft(&self) -> Result<TreeDraft, DeployError> {
        let at = |error: io::Error| {
            DeployError::on_disk("the server's state folder", &self.drafts, &error)
        };
        let made = DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&self.drafts);
        made.map_err(at)?;
        TreeDraft::begin(&self.drafts).map_err(at)
    }

    /// Publishes the files of a draft.
    pub(super) fn publish(
        &self,
        draft: &TreeDraft,
        commit: &str,
    ) -> Result<FolderRelease, DeployError> {
        FolderRelease::publish(
            draft.path(),
            &self.store,
            &self.site,
            None,
            &format!("{PUBLISHER}{}", shortened(commit)),
            clock::unix_seconds_now(),
        )
        .map_err(DeployError::new)
    }

    /// Removes releases beyond the retention. A busy store is swept after another publication.
    pub(super) fn sweep(&self) {
        let swept = StoreFolder::open(&self.store)
            .map_err(|error| error.to_string())
            .and_then(|store| {
                match sweep(&store, &Retention::default(), clock::unix_seconds_now()) {
                    Ok(_) | Err(StoreWriteError::Busy) => Ok(()),
                    Err(error) => Err(error.to_string()),
                }
            });
        if let Err(error) = swept {
            let store = self.store.display();
            log::warn!("old releases stay in the store {store}: {error}");
        }
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> DeployError {
        DeployError::new(format!("{STORE}: {error}"))
            .logged_as(format!("{}: {error}", self.store.display()))
    }
}

/// Returns the first digits of a commit, as the name of the publisher has them.
fn shortened(commit: &str) -> &str {
    commit.get(..COMMIT_DIGITS).unwrap_or(commit)
}

/// Returns the first digits of the commit of a publication; None for a publication of another publisher.
fn commit_of(pointer: &ReleasePointer) -> Option<&str> {
    pointer.publisher.strip_prefix(PUBLISHER)
}
