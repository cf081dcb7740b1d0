//! Files of earlier releases that stay answerable for open pages.
//!
//! A page in a browser names files with a hash of the content, and asks for some of the files long after the load. Such
//! a file of a release that was replaced within the last day is therefore answered, if the served release has no file at
//! the path.
//!
//! All files are in one table by their paths, whatever the number of the releases: a site that is published each minute
//! has 1,440 of them in a day. The table has bounds in files and in bytes of paths. Beyond the bounds, the files that were
//! replaced first go.

use super::{ReleaseContent, ReleaseRules, ReleaseState};
use crate::limits::{
    RETAINED_FILES_MAX, RETAINED_MANIFEST_BYTES_MAX, RETAINED_PATH_BYTES_MAX,
    RETAINED_PUBLICATIONS_MAX,
};
use crate::site::file::SiteFile;
use crate::site::folder::{FolderNode, SiteFolder};
use crate::site::release::release_rules::is_signed;
use crate::site::rules::SiteRules;
use release::limits::RELEASES_KEPT_SECONDS;
use release::release_pointer::ReleasePointer;
use release::store::ServedRelease;
use release::store::{ReleaseStore as _, StoreFolder};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Files with a hash in the name of earlier releases, by their paths. A clone is cheap.
#[derive(Clone, Default)]
pub(crate) struct RetainedFiles(Arc<HashMap<Arc<[u8]>, RetainedFile>>);

/// File of an earlier release. A clone is cheap.
#[derive(Clone)]
struct RetainedFile {
    file: Arc<SiteFile>,
    release: Arc<EarlierRelease>,
}

/// Release that was served before.
struct EarlierRelease {
    release: [u8; 32],
    /// Time in seconds since 1970 after which the files are not answered.
    until: u64,
    /// Whether the release was withdrawn after the site was opened.
    is_withdrawn: AtomicBool,
}

impl EarlierRelease {
    fn is_answered(&self, now: u64) -> bool {
        self.until > now && !self.is_withdrawn.load(Ordering::Relaxed)
    }
}

impl RetainedFiles {
    /// Returns true without any file.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the file of an earlier release at a path below the root. `now` is Unix time.
    pub(crate) fn find(&self, path: &[u8], now: impl FnOnce() -> u64) -> Option<&Arc<SiteFile>> {
        let found = self.0.get(path)?;
        found.release.is_answered(now()).then_some(&found.file)
    }

    /// Refuses the files of withdrawn releases from now on. Without a readable store, no file is answered.
    pub(super) fn end_withdrawn(&self, rules: &ReleaseRules) {
        if self.is_empty() {
            return;
        }
        let withdrawn = rules.withdrawn_releases();
        for file in self.0.values() {
            let release = &file.release;
            let withdrawn = withdrawn.as_ref().ok();
            let is_withdrawn = withdrawn.is_none_or(|all| all.contains(&release.release));
            release.is_withdrawn.store(is_withdrawn, Ordering::Relaxed);
        }
    }

    /// Returns the files after a change from the release of `tree` to another release with the tree `next`. `now` is Unix
    /// time.
    pub(super) fn after_change(
        &self,
        (state, tree): (&ReleaseState, &SiteFolder),
        (next_state, next): (&ReleaseState, &SiteFolder),
        now: u64,
    ) -> RetainedFiles {
        let Some(served) = next_state.last() else {
            return RetainedFiles::default();
        };
        let mut table = RetainedTable::default();
        if let ReleaseState::Served(former) = state
            && former.release != served.release
        {
            let until = now.saturating_add(RELEASES_KEPT_SECONDS);
            table.add_release(former.release, until, tree, next);
        }
        let stays = |file: &RetainedFile| {
            file.release.is_answered(now) && file.release.release != served.release
        };
        let mut older: Vec<_> = self.0.iter().filter(|(_, file)| stays(file)).collect();
        older.sort_unstable_by_key(|(_, file)| std::cmp::Reverse(file.release.until));
        for (path, file) in older {
            if !table.add(path, file) {
                break;
            }
        }
        table.finish()
    }

    /// Reads the files of the releases that were replaced within the last day, for a server that begins to serve `served`;
    /// blocks. The order of the publications tells the time for which each release was served. `now` is Unix time.
    pub(super) fn read_history(
        rules: &ReleaseRules,
        site: &SiteRules,
        (served, content): (&ServedRelease, &ReleaseContent),
        now: u64,
    ) -> RetainedFiles {
        let mut table = RetainedTable::default();
        let Ok(records) = rules.history() else {
            return table.finish();
        };
        let mut known: HashSet<[u8; 32]> = records.withdrawn.iter().copied().collect();
        known.insert(served.release);
        let (mut bytes, mut replaced) = (0, served.time);
        let store = StoreFolder::open(&rules.store).ok();
        let is_signed = |published: &ReleasePointer| {
            let record = store.as_ref()?.record(&rules.site, published.sequence);
            is_signed(rules, &record.ok()??, &published.release).then_some(())
        };
        let older = records.publications.range(..served.sequence).rev();
        for (_, publication) in older.take(RETAINED_PUBLICATIONS_MAX) {
            let pointer = &publication.pointer;
            // The clock of a publisher may be wrong. A release was not replaced before its own publication, and one wrong
            // time does not end the files of the releases before.
            let replaced_at = replaced.max(pointer.time).min(now);
            let until = replaced_at.saturating_add(RELEASES_KEPT_SECONDS);
            if until <= now {
                continue;
            }
            // With publishers, a release without a signature was never served.
            if is_signed(pointer).is_none() {
                continue;
            }
            replaced = pointer.time;
            if bytes > RETAINED_MANIFEST_BYTES_MAX {
                break;
            }
            if !known.insert(pointer.release) {
                continue;
            }
            let older = ServedRelease {
                release: pointer.release,
                sequence: pointer.sequence,
                time: pointer.time,
            };
            bytes += rules.blob_bytes(&pointer.release);
            let former = Some((&content.tree, &content.published));
            if let Ok(older) = ReleaseContent::open(rules, &older, site, former)
                && !table.add_release(pointer.release, until, &older.tree, &content.tree)
            {
                break;
            }
        }
        table.finish()
    }
}

/// Table under construction. The files that were replaced last are added first.
#[derive(Default)]
struct RetainedTable {
    files: HashMap<Arc<[u8]>, RetainedFile>,
    path_bytes: usize,
}

impl RetainedTable {
    /// Adds a file unless a newer release has one at the path. Returns false if the table is full.
    fn add(&mut self, path: &Arc<[u8]>, file: &RetainedFile) -> bool {
        let path_bytes = self.path_bytes + path.len();
        let is_full =
            self.files.len() >= RETAINED_FILES_MAX || path_bytes > RETAINED_PATH_BYTES_MAX;
        match self.files.entry(Arc::clone(path)) {
            Entry::Occupied(_) => true,
            Entry::Vacant(_) if is_full => false,
            Entry::Vacant(place) => {
                place.insert(file.clone());
                self.path_bytes = path_bytes;
                true
            }
        }
    }

    /// Adds the files with a hash in the name that `served` lacks. Returns false if the table is full.
    fn add_release(
        &mut self,
        release: [u8; 32],
        until: u64,
        tree: &SiteFolder,
        served: &SiteFolder,
    ) -> bool {
        let release = Arc::new(EarlierRelease {
            release,
            until,
            is_withdrawn: AtomicBool::new(false),
        });
        self.add_folder(&mut Vec::new(), &release, tree, Some(served))
    }

    /// Adds the files of a folder. `path` is the path of the folder with a slash behind, or empty.
    fn add_folder(
        &mut self,
        path: &mut Vec<u8>,
        release: &Arc<EarlierRelease>,
        folder: &SiteFolder,
        served: Option<&SiteFolder>,
    ) -> bool {
        let above = path.len();
        folder.iter().all(|(name, entry)| {
            let there = served.and_then(|served| served.find(name));
            let there = there.map(|entry| &entry.node);
            path.truncate(above);
            path.extend_from_slice(name);
            match (&entry.node, there) {
                (FolderNode::File(file), None) if file.version.is_hashed() => {
                    let (file, release) = (Arc::clone(file), Arc::clone(release));
                    self.add(&Arc::from(&**path), &RetainedFile { file, release })
                }
                (FolderNode::Folder(below), _) => {
                    let there = match there {
                        Some(FolderNode::Folder(there)) => Some(&**there),
                        _ => None,
                    };
                    path.push(b'/');
                    self.add_folder(path, release, below, there)
                }
                _ => true,
            }
        })
    }

    fn finish(self) -> RetainedFiles {
        RetainedFiles(Arc::new(self.files))
    }
}
