//! Files of earlier releases that stay answerable for open pages.
//!
//! A page in a browser names files with a hash of the content, and asks for some of the files long after the load. Such
//! a file of a release that was served within the last day is therefore answered, if the served release has no file at
//! the path.

use super::{ReleaseContent, ReleaseRules, ReleaseState, ServedRelease, pointer};
use crate::base::clock::unix_seconds_now;
use crate::limits::{
    RELEASES_KEPT_MAX, RELEASES_KEPT_SECONDS, RETAINED_FILES_MAX, RETAINED_MANIFEST_BYTES_MAX,
};
use crate::site::file::SiteFile;
use crate::site::folder::{FolderNode, SiteFolder, SymlinkTarget};
use crate::store::{ReleaseStore as _, StoreFolder};
use crate::wire::release_pointer::ReleasePointer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Files with a hash in the name of an earlier release. A clone is cheap.
#[derive(Clone)]
pub struct RetainedRelease {
    release: [u8; 32],
    /// Time in seconds since 1970 after which the files are not answered.
    until: u64,
    /// Whether the release was withdrawn after the site was opened.
    is_withdrawn: Arc<AtomicBool>,
    tree: Arc<SiteFolder>,
}

impl RetainedRelease {
    /// Returns the file at a path below the root.
    fn find(&self, path: &[u8]) -> Option<&Arc<SiteFile>> {
        match self.tree.lookup(path, b"")? {
            FolderNode::File(file) if !self.is_withdrawn.load(Ordering::Relaxed) => Some(file),
            _ => None,
        }
    }

    /// Refuses the files from now on if the release is withdrawn.
    pub(super) fn end_withdrawn(&self, rules: &ReleaseRules) {
        let is_withdrawn = rules.is_withdrawn(&self.release).unwrap_or(true);
        self.is_withdrawn.store(is_withdrawn, Ordering::Relaxed);
    }
}

/// Returns the file of an earlier release at a path below the root.
pub fn find_retained<'r>(
    retained: &'r [RetainedRelease],
    path: &[u8],
) -> Option<&'r Arc<SiteFile>> {
    let (place, file) = retained
        .iter()
        .enumerate()
        .find_map(|(place, it)| Some((place, it.find(path)?)))?;
    (retained[place].until > unix_seconds_now()).then_some(file)
}

/// Returns the earlier releases after a change from the release of `tree` to another release with the tree `next`.
pub(super) fn after_change(
    retained: &[RetainedRelease],
    (state, tree): (&ReleaseState, &SiteFolder),
    (next_state, next): (&ReleaseState, &SiteFolder),
) -> Vec<RetainedRelease> {
    let now = unix_seconds_now();
    let Some(served) = next_state.last() else {
        return Vec::new();
    };
    let stays = |it: &&RetainedRelease| {
        let is_withdrawn = it.is_withdrawn.load(Ordering::Relaxed);
        it.until > now && it.release != served.release && !is_withdrawn
    };
    let mut all = Vec::new();
    let mut room = RETAINED_FILES_MAX;
    if let ReleaseState::Served(former) = state
        && former.release != served.release
    {
        let until = now + RELEASES_KEPT_SECONDS;
        all.extend(retain(former.release, until, tree, next, &mut room));
    }
    let former = all.first().map(|it: &RetainedRelease| it.release);
    let older = retained.iter().filter(stays);
    all.extend(older.filter(|it| Some(it.release) != former).cloned());
    all.truncate(RELEASES_KEPT_MAX);
    all
}

/// Reads the releases that were served within the last day, for a server that begins to serve `served`; blocks. The
/// order of the publications tells the time for which each release was served.
pub(super) fn read_history(
    rules: &ReleaseRules,
    index: &[String],
    served: &ServedRelease,
    content: &ReleaseContent,
) -> Vec<RetainedRelease> {
    let now = unix_seconds_now();
    let mut all: Vec<RetainedRelease> = Vec::new();
    let Ok(records) = rules.history() else {
        return all;
    };
    let (mut room, mut bytes) = (RETAINED_FILES_MAX, 0);
    let mut replaced = served.time;
    let store = StoreFolder::open(&rules.store).ok();
    let is_signed = |published: &ReleasePointer| {
        let record = store.as_ref()?.record(&rules.site, published.sequence);
        pointer::is_signed(rules, &record.ok()??, &published.release).then_some(())
    };
    for publication in records.publications.values().rev() {
        let pointer = &publication.pointer;
        if pointer.sequence >= served.sequence {
            continue;
        }
        // With publishers, a release without a signature was never served.
        if is_signed(pointer).is_none() {
            continue;
        }
        // The clock of a publisher may be wrong.
        let until = replaced.min(now) + RELEASES_KEPT_SECONDS;
        replaced = pointer.time;
        let is_known = pointer.release == served.release
            || records.withdrawn.contains(&pointer.release)
            || all.iter().any(|it| it.release == pointer.release);
        if is_known {
            continue;
        }
        if until <= now || all.len() >= RELEASES_KEPT_MAX || bytes > RETAINED_MANIFEST_BYTES_MAX {
            break;
        }
        let older = ServedRelease {
            release: pointer.release,
            sequence: pointer.sequence,
            time: pointer.time,
        };
        bytes += rules.blob_bytes(&pointer.release);
        let former = Some((&content.tree, &content.published));
        if let Ok(older) = rules.read_content(&older, index, former) {
            let tree = &older.tree;
            all.extend(retain(
                pointer.release,
                until,
                tree,
                &content.tree,
                &mut room,
            ));
        }
    }
    all
}

/// Takes the files with a hash in the name that `served` lacks; None without such files.
fn retain(
    release: [u8; 32],
    until: u64,
    tree: &SiteFolder,
    served: &SiteFolder,
    room: &mut usize,
) -> Option<RetainedRelease> {
    Some(RetainedRelease {
        release,
        until,
        is_withdrawn: Arc::default(),
        tree: hashed_files(tree, Some(served), room)?,
    })
}

fn hashed_files(
    tree: &SiteFolder,
    served: Option<&SiteFolder>,
    room: &mut usize,
) -> Option<Arc<SiteFolder>> {
    let mut entries = Vec::new();
    for (name, entry) in tree.iter() {
        let there = served.and_then(|served| served.find(name));
        let there = there.map(|entry| &entry.node);
        let node = match (&entry.node, there) {
            (FolderNode::File(file), None) if file.version.is_hashed() && *room > 0 => {
                *room -= 1;
                FolderNode::File(Arc::clone(file))
            }
            (FolderNode::Folder(below), _) => {
                let there = match there {
                    Some(FolderNode::Folder(there)) => Some(&**there),
                    _ => None,
                };
                match hashed_files(below, there, room) {
                    Some(below) => FolderNode::Folder(below),
                    None => continue,
                }
            }
            _ => continue,
        };
        entries.push((name, SymlinkTarget::No, node));
    }
    let is_empty = entries.is_empty();
    (!is_empty).then(|| Arc::new(SiteFolder::new(tree.meta, entries, &[])))
}
