//! The server's own repositories without objects, one for each object format. git runs in a sandbox
//! repository with the objects of another repository, so no program configured by the other repository is
//! run.

use base::atomic_file;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Returns the directory of the sandbox repositories in the state directory. Pages and deployments share
/// the directory.
pub(crate) fn home(state: &Path) -> PathBuf {
    state.join("git")
}

/// Returns the sandbox repository for an object format, in the directory `all`.
pub(crate) fn folder(all: &Path, sha256: bool) -> PathBuf {
    all.join(FORMATS[usize::from(sha256)].0)
}

/// Name and configuration of the sandbox repository for each object format.
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

/// Attributes that override the repository's own. `export-subst` is switched off: the attribute may request
/// the signature of a commit (`%G?`), so that git runs gpg on signatures from untrusted sources, or a walk
/// over the history.
const ATTRIBUTES: &[u8] = b"* -export-subst\n";

/// Removes the sandbox repositories that former versions kept for deployments.
pub(crate) fn remove_former(state: &Path) {
    let former = state.join("deploy");
    for (name, _) in FORMATS {
        let _ = fs::remove_dir_all(former.join(name)); // mostly there is none
    }
    let _ = fs::remove_dir(former);
}

/// Creates missing sandbox repositories. Several threads may call the function at the same time.
pub(crate) fn prepare(all: &Path) -> io::Result<()> {
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
