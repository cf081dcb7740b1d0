//! Draft of a tree: a folder that is removed unless the tree is completed.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Prefix of the names of drafts.
pub(super) const DRAFT: &str = "draft-";

/// Incomplete tree. Dropping the draft removes the tree.
pub(super) struct TreeDraft(PathBuf);

impl TreeDraft {
    /// Creates an empty folder for a new tree in a folder, and removes drafts left behind by earlier processes.
    pub(super) fn begin(folder: &Path) -> io::Result<TreeDraft> {
        for (name, path) in names(folder) {
            if name.as_encoded_bytes().starts_with(DRAFT.as_bytes()) {
                let _ = fs::remove_dir_all(&path);
            }
        }
        // A cancelled deployment may still wait for the disk in another thread, and remove the draft later.
        // So each thread has a name of its own for the draft.
        let draft = folder.join(own_name(DRAFT));
        DirBuilder::new().mode(0o700).create(&draft)?;
        Ok(TreeDraft(draft))
    }

    /// Returns the path of the folder.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TreeDraft {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // after a success, the draft may have been renamed
    }
}

/// Returns a name unique among the threads of all processes.
pub(super) fn own_name(begin: &str) -> String {
    format!("{begin}{}", rustix::thread::gettid().as_raw_nonzero())
}

/// Returns the names and paths in a folder; none for an unreadable folder.
pub(super) fn names(folder: &Path) -> Vec<(OsString, PathBuf)> {
    let Ok(all) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let both = |entry: io::Result<fs::DirEntry>| {
        let entry = entry.ok()?;
        Some((entry.file_name(), entry.path()))
    };
    all.filter_map(both).collect()
}
