//! Folder of deployed trees: a hidden folder beside the site's root, with one tree for each deployed
//! commit. The root is a symbolic link to a tree, and rename(2) replaces the link atomically.

use crate::config::{RootState, deployed_folder, inspect_root};
use crate::deploy::error::DeployError;
use crate::deploy::limits::DEPLOYED_TREES_KEPT;
use crate::deploy::tree_draft::{DRAFT, TreeDraft, names, own_name};
use base::heap_sort::sort;
use base::trusted_path::{FOLDER, LastLink, MissingFolder, TrustedPath};
use rustix::fs::{Mode, fchmod, mkdirat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Root of a site, with the folder of the deployed trees.
#[derive(Clone, Debug)]
pub(super) struct DeployedRoot {
    root: PathBuf,
    /// Folder of the deployed trees.
    trees: PathBuf,
    found: RootState,
}

/// Name of the empty tree served before the first deployment.
const EMPTY: &str = "empty";
/// Names of the root and of the folder of trees in messages to the client of a push.
const ROOT: &str = "the site's folder";
const TREES: &str = "the folder of deployed trees beside the site's";
/// Prefix of the names of symbolic links before the rename to the root.
const LINK: &str = "link-";

fn refuse_foreign(root: &Path, found: &RootState) -> Result<(), DeployError> {
    let foreign = match found {
        RootState::Foreign => "it holds files that no deployment wrote: move it away",
        RootState::Link(_) => "it is a symbolic link that no deployment made: remove it",
        RootState::Nothing | RootState::EmptyFolder | RootState::Deployed(_) => return Ok(()),
    };
    let logged = format!("{}: {foreign}", root.display());
    Err(DeployError::new(format!("{ROOT}: {foreign}")).logged_as(logged))
}

impl DeployedRoot {
    /// Inspects the root. Fails if the root holds content that no deployment wrote.
    pub(super) fn of(root: &Path) -> Result<DeployedRoot, DeployError> {
        let at = |error: io::Error| DeployError::on_disk(ROOT, root, &error);
        let found = inspect_root(root).map_err(at)?;
        refuse_foreign(root, &found)?;
        let trees = deployed_folder(root).ok_or_else(|| at(io::ErrorKind::InvalidInput.into()))?;
        Ok(DeployedRoot {
            root: root.to_owned(),
            trees,
            found,
        })
    }

    /// Returns true if the root leads to no deployed tree.
    pub(super) fn is_to_be_made(&self) -> bool {
        !matches!(self.found, RootState::Deployed(_)) || !self.root.exists()
    }

    /// Returns the commit of the tree that the root leads to.
    pub(super) fn commit(&self) -> Option<String> {
        match &self.found {
            RootState::Deployed(name) => commit_of(name),
            _ => None,
        }
    }

    /// Creates an empty folder for a new tree, and removes drafts left behind by earlier processes.
    pub(super) fn draft(&self) -> Result<TreeDraft, DeployError> {
        self.make_trees()?;
        TreeDraft::begin(&self.trees)
            .map_err(|error| DeployError::on_disk(TREES, &self.trees, &error))
    }

    /// Creates the folder of the trees if needed. The folder must belong to the server's account, because a
    /// user with write access decides about the served content. A server that stays root deploys only where
    /// no other user can change the path, because the other user could redirect the pushed files to any
    /// folder.
    fn make_trees(&self) -> Result<(), DeployError> {
        let at = |error: io::Error| DeployError::on_disk(TREES, &self.trees, &error);
        let path =
            TrustedPath::resolve(&self.trees, LastLink::Keep, MissingFolder::Fail).map_err(at)?;
        path.must_be_controlled_by(0).map_err(|error| {
            let logged = format!("{error}; set `user` to an account for the server");
            DeployError::new(format!("{TREES}: another user can change it")).logged_as(logged)
        })?;
        match mkdirat(path.folder(), path.name(), Mode::RWXU) {
            Ok(()) => {
                let made = path.open(FOLDER, Mode::empty()).map_err(at)?;
                return fchmod(&made, Mode::from_raw_mode(0o755)).map_err(|error| at(error.into()));
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(at(error.into())),
        }
        let metadata = fs::symlink_metadata(&self.trees).map_err(at)?;
        let us = rustix::process::geteuid().as_raw();
        if metadata.is_dir() && metadata.uid() == us {
            Ok(())
        } else {
            Err(at(io::Error::other(
                "it is not a folder, or belongs to another user",
            )))
        }
    }

    /// Renames the draft to a tree of the commit, and switches the root to the tree. Returns the real path
    /// of the tree.
    pub(super) fn turn(&self, draft: TreeDraft, commit: &str) -> Result<PathBuf, DeployError> {
        let names = (1..=NAMES_MAX).map(|nth| match nth {
            1 => commit.to_owned(),
            nth => format!("{commit}.{nth}"),
        });
        // An earlier tree of the commit may be in use or modified, so the new tree gets a name of its own.
        let mut free = names.filter(|name| fs::symlink_metadata(self.trees.join(name)).is_err());
        let name = free
            .next()
            .ok_or_else(|| DeployError::new("too many trees of one commit"))?;
        let tree = self.trees.join(&name);
        let at = |error: io::Error| DeployError::on_disk(TREES, &tree, &error);
        fs::rename(draft.path(), &tree).map_err(at)?;
        sync(&self.trees);
        if let Err(failure) = self.link(OsStr::new(&name)) {
            let leads_here = |found| matches!(found, RootState::Deployed(now) if now == *name);
            if !inspect_root(&self.root).is_ok_and(leads_here) {
                let _ = fs::remove_dir_all(&tree);
            }
            return Err(failure);
        }
        tree.canonicalize().map_err(at)
    }

    /// Switches the root to the tree `name`.
    fn link(&self, name: &OsStr) -> Result<(), DeployError> {
        let at = |error: io::Error| DeployError::on_disk(ROOT, &self.root, &error);
        let trees = Path::new(self.trees.file_name().unwrap_or_default());
        let draft = self.trees.join(own_name(LINK));
        let _ = fs::remove_file(&draft); // left behind by an interrupted deployment
        // The target is relative to the folder of the root, the link's final place.
        symlink(trees.join(name), &draft)
            .map_err(|error| DeployError::on_disk(TREES, &draft, &error))?;
        let switched = self
            .remove_empty_folder()
            .and_then(|()| fs::rename(&draft, &self.root).map_err(at));
        if switched.is_err() {
            let _ = fs::remove_file(&draft); // the first error is reported
        }
        switched?;
        if let Some(above) = self.root.parent() {
            sync(above);
        }
        Ok(())
    }

    /// Removes an empty folder in place of the root. The root is inspected again, because another process
    /// may have written to the root meanwhile.
    fn remove_empty_folder(&self) -> Result<(), DeployError> {
        let at = |error: io::Error| DeployError::on_disk(ROOT, &self.root, &error);
        let found = inspect_root(&self.root).map_err(at)?;
        refuse_foreign(&self.root, &found)?;
        match found {
            RootState::EmptyFolder => fs::remove_dir(&self.root).map_err(at),
            _ => Ok(()),
        }
    }

    /// Switches the root to an empty tree, served until the first deployment.
    pub(super) fn make_empty(&self) -> Result<(), DeployError> {
        self.make_trees()?;
        let tree = self.trees.join(EMPTY);
        match DirBuilder::new().mode(0o755).create(&tree) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(DeployError::on_disk(TREES, &tree, &error));
            }
            _ => {}
        }
        self.link(OsStr::new(EMPTY))
    }

    /// Removes all trees except the current tree, the previous tree, and the newest of the older trees
    /// (`DEPLOYED_TREES_KEPT`). Foreign files stay.
    pub(super) fn clean(&self) {
        let Ok(RootState::Deployed(now)) = inspect_root(&self.root) else {
            return;
        };
        let before = match &self.found {
            RootState::Deployed(before) => before.as_os_str(),
            _ => OsStr::new(""),
        };
        let mut old: Vec<(SystemTime, PathBuf)> = Vec::new();
        for (name, path) in names(&self.trees) {
            let is_ours = commit_of(&name).is_some() || name == EMPTY;
            if is_ours && name != now && name != before {
                let time = fs::symlink_metadata(&path).and_then(|it| it.modified());
                old.push((time.unwrap_or(SystemTime::UNIX_EPOCH), path));
            }
        }
        for (name, path) in names(&self.trees) {
            // Remains of an interrupted deployment.
            if name.as_encoded_bytes().starts_with(LINK.as_bytes()) {
                let _ = fs::remove_file(&path);
            }
        }
        sort(&mut old);
        let kept = DEPLOYED_TREES_KEPT.saturating_sub(1);
        let away = old.len().saturating_sub(kept);
        for (_, path) in old.into_iter().take(away) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // The rename keeps a partly removed tree from passing for a complete tree.
            let draft = self.trees.join(format!("{DRAFT}{name}"));
            let removed = fs::rename(&path, &draft).and_then(|()| fs::remove_dir_all(&draft));
            if let Err(error) = removed {
                log::warn!("cannot remove an old tree: {}: {error}", path.display());
            }
        }
    }
}

/// Trees of one commit that may exist at the same time. Repeated pushes of alternating commits create
/// several trees of one commit, until old trees are removed.
const NAMES_MAX: u32 = 1_000;

/// Returns the commit of a tree from the tree's name: `id` or `id.2`.
fn commit_of(name: &OsStr) -> Option<String> {
    let name = name.to_str()?;
    let (id, nth) = name.split_once('.').unwrap_or((name, "1"));
    let is_id = matches!(id.len(), 40 | 64) && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_nth = !nth.is_empty() && nth.bytes().all(|byte| byte.is_ascii_digit());
    (is_id && is_nth).then(|| id.to_owned())
}

/// Syncs a folder. File systems without support for the call are ignored.
fn sync(folder: &Path) {
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const IDS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

    fn deploy(root: &Path, id: &str) -> PathBuf {
        let place = DeployedRoot::of(root).unwrap();
        let draft = place.draft().unwrap();
        fs::write(draft.path().join("page"), id).unwrap();
        let tree = place.turn(draft, &id.repeat(40)).unwrap();
        place.clean();
        assert_eq!(fs::read_to_string(root.join("page")).unwrap(), id);
        tree
    }

    fn trees(root: &Path) -> Vec<String> {
        let all = fs::read_dir(deployed_folder(root).unwrap()).unwrap();
        let mut names: Vec<String> = all
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn the_root_is_switched_and_old_trees_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("www");
        DeployedRoot::of(&root).unwrap().make_empty().unwrap();
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
        assert_eq!(DeployedRoot::of(&root).unwrap().commit(), None);
        for id in IDS {
            let tree = deploy(&root, id);
            assert_eq!(
                DeployedRoot::of(&root).unwrap().commit(),
                Some(id.repeat(40))
            );
            assert_eq!(tree, root.canonicalize().unwrap());
            assert!(trees(&root).len() <= 1 + DEPLOYED_TREES_KEPT);
        }
        assert_eq!(trees(&root), ["d", "e", "f"].map(|id| id.repeat(40)));
        // An old commit deployed again gets a new tree, and the previous tree stays.
        deploy(&root, "e");
        assert!(trees(&root).contains(&format!("{}.2", "e".repeat(40))));
        assert!(trees(&root).contains(&"f".repeat(40)));
        assert_eq!(
            DeployedRoot::of(&root).unwrap().commit(),
            Some("e".repeat(40))
        );
    }

    #[test]
    fn foreign_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("www");
        fs::create_dir(&root).unwrap();
        deploy(&root, "a");
        let trees = deployed_folder(&root).unwrap();
        fs::write(trees.join("notes"), "mine").unwrap();
        fs::create_dir(trees.join("draft-1")).unwrap();
        for id in IDS {
            deploy(&root, id);
        }
        assert!(trees.join("notes").is_file() && !trees.join("draft-1").exists());
        fs::remove_file(&root).unwrap();
        fs::create_dir(&root).unwrap();
        fs::write(root.join("page"), "mine").unwrap();
        assert!(DeployedRoot::of(&root).is_err());
        fs::remove_dir_all(&root).unwrap();
        symlink("elsewhere", &root).unwrap();
        assert!(DeployedRoot::of(&root).is_err());
        fs::remove_file(&root).unwrap();
        // A foreign file has the name of the folder of trees.
        fs::rename(&trees, folder.path().join("away")).unwrap();
        fs::write(&trees, "").unwrap();
        assert!(DeployedRoot::of(&root).unwrap().draft().is_err());
        assert!(fs::symlink_metadata(&root).is_err());
    }

    /// Requires root, because only root can change the owner of a folder.
    #[test]
    fn root_deploys_nothing_below_a_folder_of_another_user() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let above = folder.path().join("home");
        fs::create_dir(&above).unwrap();
        std::os::unix::fs::chown(&above, Some(12_345), None).unwrap();
        let place = DeployedRoot::of(&above.join("www")).unwrap();
        let failure = place.make_empty().unwrap_err();
        assert!(
            failure.to_string().contains("set `user` to an account"),
            "{failure}"
        );
        assert!(
            !failure.client_message().contains("home"),
            "{}",
            failure.client_message()
        );
        assert_eq!(fs::read_dir(&above).unwrap().count(), 0);
    }

    #[test]
    fn names_of_trees_contain_the_commit() {
        let id = "0123456789".repeat(4);
        assert_eq!(commit_of(OsStr::new(&id)), Some(id.clone()));
        assert_eq!(commit_of(OsStr::new(&format!("{id}.17"))), Some(id.clone()));
        for name in [
            "empty",
            "draft-1",
            "link",
            "0123",
            &format!("{id}.x"),
            &format!("{id}."),
        ] {
            assert_eq!(commit_of(OsStr::new(name)), None, "{name}");
        }
    }
}
