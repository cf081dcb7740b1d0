//! Repositories of our own without objects, one for each length of names. git is run in one of them with
//! another repository's objects, so that nothing which that one is configured to run is run.

use crate::base::atomic_file;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The folder of them, in the state folder. Pages and deployments share it.
pub fn home(state: &Path) -> PathBuf {
    state.join("git")
}

/// The one for objects with such names, in the folder of them.
pub fn folder(all: &Path, sha256: bool) -> PathBuf {
    all.join(FORMATS[usize::from(sha256)].0)
}

/// By the names of objects.
const FORMATS: [(&str, &str); 2] = [
    (
        "sha1",
        "[core]\n\trepositoryformatversion = 0\n\tbare = true\n",
    ),
    (
        "sha256",
        "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectformat = sha256\n",
    ),
];

/// What a repository says of its files, but for this: `export-subst` may ask for a commit's signature
/// (`%G?`), which makes git run gpg on what a stranger has signed, or for a walk over its history.
const ATTRIBUTES: &[u8] = b"* -export-subst\n";

/// Takes away those that deployments had for themselves once.
pub fn remove_former(state: &Path) {
    let former = state.join("deploy");
    for (name, _) in FORMATS {
        let _ = fs::remove_dir_all(former.join(name)); // mostly there is none
    }
    let _ = fs::remove_dir(former);
}

/// Makes them, where they aren't there. Several threads may do so at the same time.
pub fn prepare(all: &Path) -> io::Result<()> {
    FORMATS.iter().try_for_each(|(name, config)| {
        let folder = all.join(name);
        let last = folder.join("info/attributes");
        if last.is_file() {
            return Ok(());
        }
        for part in ["refs", "objects", "info"] {
            let mut builder = DirBuilder::new();
            builder
                .recursive(true)
                .mode(0o700)
                .create(folder.join(part))?;
        }
        atomic_file::write(&folder.join("HEAD"), b"ref: refs/heads/none\n", 0o600)?;
        atomic_file::write(&folder.join("config"), config.as_bytes(), 0o600)?;
        atomic_file::write(&last, ATTRIBUTES, 0o600)
    })
}
