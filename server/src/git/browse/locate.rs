//! Lookup of a request path on disk: a repository with the rest of the path, or a folder of repositories.
//! All functions block.

use crate::git::browse::url::{ObjectId, is_ref_name};
use crate::git::limits::{
    GIT_CONFIG_BYTES_MAX, GIT_DESCRIPTION_BYTES_MAX, GIT_LIST_DEPTH_MAX, GIT_LIST_NAMES_MAX,
    GIT_LIST_REPOSITORIES_MAX, GIT_REF_BYTES_MAX,
};
use crate::git::repository::{GitSettings, parts};
use base::heap_sort::sort_by;
use data_plane::handler::HandlerError;
use data_plane::site::{FileMeta, ResolvedSecrets};
use rustix::fs::{Dir, FileType, fstat};
use std::io::Read;
use std::path::PathBuf;
use wire::reject::Reject;

/// Result of a path lookup.
pub(crate) enum PathLookup {
    /// A page of a repository.
    Repository(Box<Repository>),
    /// A list of the repositories below a folder.
    Folder(Vec<u8>),
    /// The path lacks the final slash of a folder.
    Slash,
    /// The path of a repository's first page lacks the final slash; the value holds the names checked by
    /// guards.
    RepositorySlash(Vec<Vec<u8>>),
    /// The path of a folder lacks the final slash; the redirect applies only if a repository exists below
    /// the folder.
    SlashOf(Vec<u8>),
}

/// A repository.
pub(crate) struct Repository {
    /// Directory with git's own files.
    pub folder: PathBuf,
    /// Requested name, relative to the route.
    pub name: Vec<u8>,
    /// Names relative to the route under which guards may protect the repository.
    pub guarded_names: Vec<Vec<u8>>,
    /// Rest of the path behind the name.
    pub rest: Vec<u8>,
    /// Content of HEAD.
    pub head: RepositoryHead,
    /// Description from the repository's `description` file.
    pub description: Vec<u8>,
    /// True if the repository may hide some of its refs, or refuse all fetches.
    pub may_hide: bool,
    /// File with the boundary commits of a shallow clone.
    pub shallow: Option<PathBuf>,
}

/// Content of a repository's HEAD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RepositoryHead {
    /// HEAD names a branch; the branch may not exist.
    Branch(Vec<u8>),
    /// HEAD holds a commit.
    Detached(ObjectId),
    /// Only git can read HEAD.
    Unknown,
}

/// Repositories of a folder.
pub(crate) struct RepositoryList {
    /// Name of the folder, relative to the route.
    pub name: Vec<u8>,
    /// Repositories sorted by name.
    pub all: Vec<RepositoryEntry>,
    /// True if the list is incomplete.
    pub is_cut: bool,
    /// Number of directory entries that may still be read.
    left: usize,
    /// Maximum number of repositories.
    count_max: usize,
}

/// A repository of a list.
#[derive(Clone)]
pub(crate) struct RepositoryEntry {
    /// Name relative to the route.
    pub name: Vec<u8>,
    /// Names relative to the route under which guards may protect the repository.
    pub guarded_names: Vec<Vec<u8>>,
    /// Description from the repository's `description` file.
    pub description: Vec<u8>,
    /// Time of the last branch change, in Unix seconds.
    pub changed: u64,
}

impl GitSettings {
    /// Looks up a path; a path that is not empty begins with a slash.
    pub(in crate::git) fn look(&self, path: &[u8]) -> Result<PathLookup, HandlerError> {
        let refused = |reject| HandlerError::new("git page", reject);
        let Some(path) = path.strip_prefix(b"/") else {
            return Ok(PathLookup::Slash);
        };
        for (at, part) in parts(path) {
            let so_far = &path[..at + part.len()];
            if part.is_empty() {
                let name = so_far.strip_suffix(b"/").unwrap_or(so_far);
                return if so_far.len() == path.len() {
                    Ok(PathLookup::Folder(name.to_vec()))
                } else {
                    Err(refused(Reject::NOT_FOUND))
                };
            }
            if part[0] == b'.' {
                return Err(refused(Reject::DOTFILE));
            }
            if let Some(folder) = self.repository_at(so_far).map_err(refused)? {
                let rest = &path[so_far.len()..];
                let found = self.exported(&folder)?;
                if rest.is_empty() {
                    return Ok(PathLookup::RepositorySlash(found.names));
                }
                let shallow = found.folder.join("shallow");
                return Ok(PathLookup::Repository(Box::new(Repository {
                    name: so_far.to_vec(),
                    rest: rest.to_vec(),
                    head: self.head(&folder),
                    description: self.description(&folder),
                    may_hide: self.may_hide(&folder),
                    shallow: shallow.is_file().then_some(shallow),
                    folder: found.folder,
                    guarded_names: found.names,
                })));
            }
            if !self.is(FileType::Directory, so_far).map_err(refused)? {
                return Err(refused(Reject::NOT_FOUND));
            }
        }
        Ok(PathLookup::SlashOf(path.to_vec()))
    }

    /// Reads at most `bytes_max` bytes from the beginning of a file.
    fn beginning(&self, path: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
        let handle = self.root.open_handle(path).ok()?;
        let meta = FileMeta::of_file(&fstat(&handle).ok()?)?;
        let file = self.root.open_file(path, &meta).ok()?;
        let mut bytes = Vec::new();
        file.take(bytes_max as u64).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    fn head(&self, folder: &[u8]) -> RepositoryHead {
        let content = self.beginning(&[folder, b"/HEAD"].concat(), GIT_REF_BYTES_MAX + 64);
        let content = content.unwrap_or_default();
        let content = content.trim_ascii();
        match content.strip_prefix(b"ref:").map(<[u8]>::trim_ascii) {
            Some(name) => match name.strip_prefix(b"refs/heads/") {
                // A repository with another ref storage format has `refs/heads/.invalid` in HEAD.
                Some(b".invalid") | None => RepositoryHead::Unknown,
                Some(branch) if is_ref_name(branch) => RepositoryHead::Branch(branch.to_vec()),
                Some(_) => RepositoryHead::Unknown,
            },
            None => match ObjectId::parse(content) {
                Some(id) => RepositoryHead::Detached(id),
                None => RepositoryHead::Unknown,
            },
        }
    }

    /// Returns true if the configuration mentions hidden refs, includes other files, or cannot be read. For
    /// most repositories the result is false and spares a query to git.
    fn may_hide(&self, folder: &[u8]) -> bool {
        let path = [folder, b"/config"].concat();
        let Some(content) = self.beginning(&path, GIT_CONFIG_BYTES_MAX) else {
            return true;
        };
        let content = content.to_ascii_lowercase();
        let has = |word: &[u8]| content.windows(word.len()).any(|part| part == word);
        content.len() == GIT_CONFIG_BYTES_MAX || WORDS_THAT_HIDE.iter().any(|word| has(word))
    }

    /// Returns true if the repository refuses fetches. Used for lists, since asking git about each
    /// repository is too expensive. Included configuration files are not read here; a page request finds
    /// their settings.
    fn refuses_fetches(&self, folder: &[u8]) -> bool {
        let path = [folder, b"/config"].concat();
        let content = self.beginning(&path, GIT_CONFIG_BYTES_MAX);
        content.is_none_or(|content| refuses_fetches(&content))
    }

    /// Returns the first line of the description; empty for git's default text.
    fn description(&self, folder: &[u8]) -> Vec<u8> {
        let path = [folder, b"/description"].concat();
        let content = self.beginning(&path, GIT_DESCRIPTION_BYTES_MAX);
        let content = content.unwrap_or_default();
        let line = content.split(|byte| *byte == b'\n').next();
        let line = line.unwrap_or_default().trim_ascii();
        if line.starts_with(b"Unnamed repository") {
            Vec::new()
        } else {
            line.to_vec()
        }
    }

    /// Returns the time of the last branch change. Writing a ref replaces a file and so changes the time of
    /// its folder.
    fn changed(&self, folder: &[u8]) -> u64 {
        let mut newest = 0;
        let mut look = |path: &[u8]| {
            let handle = self
                .root
                .open_handle(path)
                .and_then(|handle| Ok(fstat(&handle)?));
            if let Ok(status) = handle {
                newest = newest.max(u64::try_from(status.st_mtime).unwrap_or(0));
            }
        };
        let heads = [folder, b"/refs/heads"].concat();
        look(&heads);
        look(&[folder, b"/packed-refs"].concat());
        let mut left = BRANCHES_LOOKED_AT;
        for (name, _) in self.names(&heads, &mut left) {
            look(&[&heads, &b"/"[..], &name].concat());
        }
        newest
    }

    /// Returns the list restricted to the repositories the client may read.
    pub(in crate::git) fn part(list: &RepositoryList, all: Vec<RepositoryEntry>) -> RepositoryList {
        RepositoryList {
            name: list.name.clone(),
            all,
            is_cut: list.is_cut,
            left: 0,
            count_max: GIT_LIST_REPOSITORIES_MAX,
        }
    }

    /// Lists all exported repositories below a folder.
    pub(in crate::git) fn list(&self, folder: &[u8]) -> RepositoryList {
        let mut list = RepositoryList {
            name: folder.to_vec(),
            all: Vec::new(),
            is_cut: false,
            left: GIT_LIST_NAMES_MAX,
            count_max: GIT_LIST_REPOSITORIES_MAX,
        };
        self.list_below(folder, 0, &self.secrets.resolve(), &mut list);
        list.is_cut |= list.left == 0;
        sort_by(&mut list.all, |one, other| one.name.cmp(&other.name));
        list
    }

    /// Returns true if an exported repository exists below the folder.
    pub(in crate::git) fn has_any(&self, folder: &[u8]) -> bool {
        let mut list = RepositoryList {
            name: folder.to_vec(),
            all: Vec::new(),
            is_cut: false,
            left: GIT_LIST_NAMES_MAX,
            count_max: 1,
        };
        self.list_below(folder, 0, &self.secrets.resolve(), &mut list);
        !list.all.is_empty()
    }

    fn list_below(
        &self,
        folder: &[u8],
        depth: usize,
        secrets: &ResolvedSecrets,
        list: &mut RepositoryList,
    ) {
        if depth == GIT_LIST_DEPTH_MAX {
            list.is_cut = true;
            return;
        }
        for (part, kind) in self.names(folder, &mut list.left) {
            let name = if folder.is_empty() {
                part
            } else {
                [folder, b"/", &part].concat()
            };
            match self.git_folder(&name) {
                Ok(Some(found)) if self.is_exported(&found) => {
                    let Ok(real) = secrets.check(&self.root, &found) else {
                        continue;
                    };
                    list.all.push(RepositoryEntry {
                        guarded_names: self.guarded_names(&found, &real),
                        description: self.description(&found),
                        changed: self.changed(&found),
                        name,
                    });
                    if list.all.len() == list.count_max {
                        list.is_cut = true;
                        return;
                    }
                }
                // Symbolic links are followed only to repositories, since links to folders may form a
                // cycle.
                Ok(None) if kind == FileType::Directory => {
                    self.list_below(&name, depth + 1, secrets, list);
                    if list.all.len() == list.count_max {
                        return;
                    }
                }
                // Entries that cannot be read are skipped as well.
                _ => {}
            }
        }
    }

    /// Returns true if clients may see the repository.
    fn is_exported(&self, found: &[u8]) -> bool {
        (self.exports_all || self.is_marked(found)) && !self.refuses_fetches(found)
    }

    /// Returns the visible names of a folder in sorted order, with their file types.
    fn names(&self, folder: &[u8], left: &mut usize) -> Vec<(Vec<u8>, FileType)> {
        let opened = self.root.open_folder(folder);
        let Ok(entries) = opened.and_then(|opened| Ok(Dir::new(opened)?)) else {
            return Vec::new();
        };
        let mut all = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name().to_bytes();
            if name.first() == Some(&b'.') {
                continue;
            }
            if *left == 0 {
                break;
            }
            *left -= 1;
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let path = [folder, b"/", name].concat();
                    let path = path.strip_prefix(b"/").unwrap_or(&path);
                    let is_folder = self.is(FileType::Directory, path) == Ok(true);
                    if is_folder {
                        FileType::Directory
                    } else {
                        FileType::Unknown
                    }
                }
                kind => kind,
            };
            if matches!(
                kind,
                FileType::Directory | FileType::Symlink | FileType::RegularFile
            ) {
                all.push((name.to_vec(), kind));
            }
        }
        sort_by(&mut all, |one, other| one.0.cmp(&other.0));
        all
    }
}

/// Maximum number of branches checked for the time of the last change.
const BRANCHES_LOOKED_AT: usize = 200;

/// Words of a configuration that may restrict the visible refs or fetches.
const WORDS_THAT_HIDE: [&[u8]; 4] = [b"hiderefs", b"uploadpack", b"include", b"worktreeconfig"];

/// Returns true if the configuration sets `http.uploadpack = false`. The last setting decides.
fn refuses_fetches(config: &[u8]) -> bool {
    let mut is_http = false;
    let mut refuses = false;
    for line in config.split(|byte| *byte == b'\n') {
        let mut line = line.trim_ascii();
        if let Some(after) = line.strip_prefix(b"[") {
            let Some(end) = after.iter().position(|byte| *byte == b']') else {
                continue;
            };
            is_http = after[..end].trim_ascii().eq_ignore_ascii_case(b"http");
            line = after[end + 1..].trim_ascii();
        }
        let mut halves = line.splitn(2, |byte| *byte == b'=');
        let key = halves.next().unwrap_or_default().trim_ascii();
        if !is_http || !key.eq_ignore_ascii_case(b"uploadpack") {
            continue;
        }
        let Some(value) = halves.next() else {
            // A setting without a value is true.
            refuses = false;
            continue;
        };
        let value = value.split(|byte| b"#;".contains(byte)).next();
        let value: Vec<u8> = value.unwrap_or_default().to_ascii_lowercase();
        let value: Vec<u8> = value.into_iter().filter(|it| *it != b'"').collect();
        let no: [&[u8]; 5] = [b"false", b"no", b"off", b"0", b""];
        refuses = no.contains(&value.trim_ascii());
    }
    refuses
}

#[cfg(test)]
mod tests {
    use super::refuses_fetches;

    #[test]
    fn configurations_that_refuse_fetches_are_found() {
        for (config, refuses) in [
            ("[http]\n\tuploadpack = false\n", true),
            ("[HTTP] uploadPack=\"no\" # x", true),
            ("[http]\nuploadpack = off ; x\n[core]\nbare = true\n", true),
            ("[http]\nuploadpack = 0\n[http]\nuploadpack\n", false),
            ("[http]\nuploadpack =\n", true),
            ("[http]\nuploadpack = true\n", false),
            ("[http]\nreceivepack = false\n", false),
            ("[uploadpack]\nuploadpack = false\n", false),
            ("[http \"https://x\"]\nuploadpack = false\n", false),
            ("", false),
        ] {
            assert_eq!(refuses_fetches(config.as_bytes()), refuses, "{config}");
        }
    }
}
