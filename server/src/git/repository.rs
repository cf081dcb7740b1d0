//! Repositories of a folder: the settings of the route, and the search for an exported repository on disk.

use crate::git::post_receive::PushNotifier;
use data_plane::handler::HandlerError;
use data_plane::handler::call::process::ProcessRunner;
use data_plane::handler::call::script_call::CallLimits;
use data_plane::site::{FileError, SecretPaths, SiteRoot};
use rustix::fs::{FileType, fstat};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::reject::Reject;

/// Settings of all repositories of a folder.
pub(crate) struct GitSettings {
    /// Runner of the git processes.
    pub programs: Arc<ProcessRunner>,
    /// Limits of a call.
    pub bounds: CallLimits,
    /// Folder of the repositories.
    pub root: SiteRoot,
    /// Path of the folder on the site, without a slash at its end.
    pub prefix: Box<[u8]>,
    /// The program `git-http-backend`.
    pub program: PathBuf,
    /// True if repositories without the file `git-daemon-export-ok` are exported too.
    pub exports_all: bool,
    /// True if authenticated users may push.
    pub push: bool,
    /// Variables for hooks, in addition to the variables of the request.
    pub variables: Vec<(String, String)>,
    /// Notifier of pushes; None if no push triggers a deployment.
    pub pushes: Option<PushNotifier>,
    /// Secret files of the server, served as part of no repository.
    pub secrets: SecretPaths,
    /// True if some repositories have guards apart from the folder's guards. A link to a guarded
    /// repository, or its name without `.git`, does not bypass the guards.
    pub is_guarded: bool,
}

/// A located and exported repository.
pub(super) struct ExportedRepository {
    /// Folder with the repository's git files: absolute, without links.
    pub(super) folder: PathBuf,
    /// Names of the repository below the folder, including alternative names. The guards of each name
    /// protect the repository. Empty if no repository is guarded.
    pub(super) names: Vec<Vec<u8>>,
}

impl ExportedRepository {
    /// Returns the paths of `names` on the site, each followed by `rest`.
    pub(super) fn guarded_paths(names: &[Vec<u8>], prefix: &[u8], rest: &[u8]) -> Vec<Vec<u8>> {
        let on_site = |name: &Vec<u8>| [prefix, b"/", name.as_slice(), rest].concat();
        names.iter().map(on_site).collect()
    }
}

impl GitSettings {
    /// Returns the exported repository with the name `name`.
    pub(super) fn locate(&self, name: &[u8]) -> Result<ExportedRepository, HandlerError> {
        let found = self.find(name);
        let found = found.map_err(|reject| HandlerError::new("git", reject))?;
        self.exported(&found)
    }

    /// Returns the repository with the folder `found`, if the repository is exported.
    pub(super) fn exported(&self, found: &[u8]) -> Result<ExportedRepository, HandlerError> {
        if !self.exports_all && !self.is_marked(found) {
            let folder = self.root.path().join(OsStr::from_bytes(found));
            // The client gets the error of a missing repository.
            let why = format!(
                "{} isn't exported: create the file git-daemon-export-ok in the folder, or set export = \"all\"",
                folder.display()
            );
            return Err(HandlerError::because("git", Reject::NOT_FOUND, why));
        }
        let folder = self.secrets.check(&self.root, found);
        let folder = folder.map_err(|why| HandlerError::new("git", why.reject()))?;
        Ok(ExportedRepository {
            names: self.guarded_names(found, &folder),
            folder,
        })
    }

    /// Returns all names of a repository to check against guards. `found` is the repository's folder as
    /// found, and `real` is the folder without links. Empty if no repository is guarded.
    pub(super) fn guarded_names(&self, found: &[u8], real: &Path) -> Vec<Vec<u8>> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        if !self.is_guarded {
            return names;
        }
        for folder in [Some(found), self.root.below(real)].into_iter().flatten() {
            let name = folder.strip_suffix(b"/.git").unwrap_or(folder);
            // The name without `.git` also leads to the repository, unless a folder has the shorter name.
            let short = name.strip_suffix(b".git");
            let is_other = |short: &&[u8]| self.is(FileType::Directory, short) != Ok(false);
            let short = short.filter(|short| !is_other(short));
            for name in [Some(name), short].into_iter().flatten() {
                if !names.iter().any(|known| known == name) {
                    names.push(name.to_vec());
                }
            }
        }
        names
    }

    /// Returns the folder with the git files of a repository: the repository itself if bare, or else its
    /// `.git` folder. A client may omit the extension `.git` of the name, as everywhere in git.
    fn find(&self, name: &[u8]) -> Result<Vec<u8>, Reject> {
        for (at, part) in parts(name) {
            if part.is_empty() {
                return Err(Reject::NOT_FOUND);
            }
            if part[0] == b'.' {
                return Err(Reject::DOTFILE);
            }
            // A repository's files are its content, even if the files look like another repository.
            if at > 0 {
                let above = &name[..at - 1];
                if !self.is(FileType::Directory, above)? || self.git_folder(above)?.is_some() {
                    return Err(Reject::NOT_FOUND);
                }
            }
        }
        self.repository_at(name)?.ok_or(Reject::NOT_FOUND)
    }

    pub(super) fn git_folder(&self, name: &[u8]) -> Result<Option<Vec<u8>>, Reject> {
        for folder in [[name, b"/.git"].concat(), name.to_vec()] {
            let within = |part: &[u8]| [&folder, part].concat();
            if self.is(FileType::RegularFile, &within(b"/HEAD"))?
                && self.is(FileType::Directory, &within(b"/objects"))?
                && self.is(FileType::Directory, &within(b"/refs"))?
            {
                return Ok(Some(folder));
            }
        }
        Ok(None)
    }

    pub(super) fn is_marked(&self, folder: &[u8]) -> bool {
        let mark = [folder, b"/git-daemon-export-ok"].concat();
        self.root.open_handle(&mark).is_ok()
    }

    /// Returns true if `path` exists and has the file type `kind`.
    pub(super) fn is(&self, kind: FileType, path: &[u8]) -> Result<bool, Reject> {
        let seen = match self.root.open_handle(path) {
            Ok(seen) => seen,
            Err(FileError::NotFound) => return Ok(false),
            Err(why) => return Err(why.reject()),
        };
        let status = fstat(&seen).map_err(|_| Reject::UNREADABLE)?;
        Ok(FileType::from_raw_mode(status.st_mode) == kind)
    }

    /// Returns git's own directory of the repository with the given name.
    pub(in crate::git) fn repository_at(&self, name: &[u8]) -> Result<Option<Vec<u8>>, Reject> {
        if let Some(folder) = self.git_folder(name)? {
            return Ok(Some(folder));
        }
        // A folder of repositories takes precedence over a repository with the same name plus `.git`.
        if self.is(FileType::Directory, name)? {
            Ok(None)
        } else {
            self.git_folder(&[name, b".git"].concat())
        }
    }
}

/// Returns the components of a path, each with its start offset.
pub(super) fn parts(name: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    name.split(|byte| *byte == b'/').map(move |part| {
        let start = at;
        at += part.len() + 1;
        (start, part)
    })
}

/// Returns true if `folder` looks like a repository, bare or not.
pub(crate) fn is_repository(folder: &Path) -> bool {
    [folder.join(".git"), folder.to_owned()]
        .iter()
        .any(|it| it.join("HEAD").is_file() && it.join("objects").is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_returned_with_their_offsets() {
        let all: Vec<_> = parts(b"a/bc//d").collect();
        assert_eq!(all, [(0, &b"a"[..]), (2, b"bc"), (5, b""), (6, b"d")]);
        assert_eq!(parts(b"").collect::<Vec<_>>(), [(0, &b""[..])]);
    }
}
