//! What lies on disk under a path: a repository and what the path goes on with, or a folder of them.
//! All of it blocks.

use crate::base::heap_sort::sort_by;
use crate::handler::HandlerError;
use crate::handler::git::browse::url::{ObjectId, is_ref_name};
use crate::handler::git::http::{GitSettings, parts};
use crate::limits::{
    GIT_CONFIG_BYTES_MAX, GIT_DESCRIPTION_BYTES_MAX, GIT_LIST_DEPTH_MAX, GIT_LIST_NAMES_MAX,
    GIT_LIST_REPOSITORIES_MAX, GIT_REF_BYTES_MAX,
};
use crate::site::{FileMeta, ResolvedSecrets};
use crate::wire::reject::Reject;
use rustix::fs::{Dir, FileType, fstat};
use std::io::Read;
use std::path::PathBuf;

/// What was found.
pub enum PathLookup {
    /// A page of this.
    Repository(Box<Repository>),
    /// A list of those below this folder.
    Folder(Vec<u8>),
    /// The same with a slash at its end.
    Slash,
    /// The page of a repository, with a slash at its end; guards know it by these names.
    RepositorySlash(Vec<Vec<u8>>),
    /// The same, if there is any repository below this folder.
    SlashOf(Vec<u8>),
}

/// A repository.
pub struct Repository {
    /// Where git's own files of it are.
    pub folder: PathBuf,
    /// As it was asked for, below the route.
    pub name: Vec<u8>,
    /// Names below the route that guards may know it by.
    pub guarded_names: Vec<Vec<u8>>,
    /// What follows in the path.
    pub rest: Vec<u8>,
    /// What HEAD says.
    pub head: RepositoryHead,
    /// What it says of itself.
    pub description: Vec<u8>,
    /// It may hide some of its refs, or all of itself.
    pub may_hide: bool,
    /// It lacks what came before some commits, which this file names.
    pub shallow: Option<PathBuf>,
}

/// What HEAD of a repository says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepositoryHead {
    /// It follows this branch, which may not be there.
    Branch(Vec<u8>),
    /// It stands at a commit.
    Detached(ObjectId),
    /// git alone can read it.
    Unknown,
}

/// Repositories of a folder.
pub struct RepositoryList {
    /// The folder, below the route.
    pub name: Vec<u8>,
    /// By their names.
    pub all: Vec<RepositoryEntry>,
    /// There are more.
    pub is_cut: bool,
    /// Names that may still be looked at.
    left: usize,
    /// Repositories that it may have.
    count_max: usize,
}

/// One of them.
#[derive(Clone)]
pub struct RepositoryEntry {
    /// Below the route.
    pub name: Vec<u8>,
    /// Names below the route that guards may know it by.
    pub guarded_names: Vec<Vec<u8>>,
    /// What it says of itself.
    pub description: Vec<u8>,
    /// When a branch changed last, Unix time in seconds.
    pub changed: u64,
}

impl GitSettings {
    /// What lies under this path, which begins with a slash if it isn't empty.
    pub(in crate::handler::git) fn look(&self, path: &[u8]) -> Result<PathLookup, HandlerError> {
        let refused = |reject| HandlerError::new("git page", reject);
        let Some(path) = path.strip_prefix(b"/") else {
            return Ok(PathLookup::Slash);
        };
        for (at, part) in parts(path) {
            let so_far = &path[..at + part.len()];
            if part.is_empty() {
                let name = so_far.strip_suffix(b"/").unwrap_or(so_far);
                return match so_far.len() == path.len() {
                    true => Ok(PathLookup::Folder(name.to_vec())),
                    false => Err(refused(Reject::NOT_FOUND)),
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

    /// git's own folder of the repository with this name.
    pub(in crate::handler::git) fn repository_at(
        &self,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>, Reject> {
        if let Some(folder) = self.git_folder(name)? {
            return Ok(Some(folder));
        }
        // A folder of repositories isn't hidden by one with nearly its name.
        match self.is(FileType::Directory, name)? {
            true => Ok(None),
            false => self.git_folder(&[name, b".git"].concat()),
        }
    }

    /// The beginning of a file.
    fn beginning(&self, path: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
        let seen = self.root.open_handle(path).ok()?;
        let meta = FileMeta::of_file(&fstat(&seen).ok()?)?;
        let file = self.root.open_file(path, &meta).ok()?;
        let mut bytes = Vec::new();
        file.take(bytes_max as u64).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    fn head(&self, folder: &[u8]) -> RepositoryHead {
        let said = self.beginning(&[folder, b"/HEAD"].concat(), GIT_REF_BYTES_MAX + 64);
        let said = said.unwrap_or_default();
        let said = said.trim_ascii();
        match said.strip_prefix(b"ref:").map(<[u8]>::trim_ascii) {
            Some(name) => match name.strip_prefix(b"refs/heads/") {
                // What holds its refs otherwise calls it so.
                Some(b".invalid") | None => RepositoryHead::Unknown,
                Some(branch) if is_ref_name(branch) => RepositoryHead::Branch(branch.to_vec()),
                Some(_) => RepositoryHead::Unknown,
            },
            None => match ObjectId::parse(said) {
                Some(id) => RepositoryHead::Detached(id),
                None => RepositoryHead::Unknown,
            },
        }
    }

    /// Does its configuration speak of that, or lead elsewhere, or can't it be read? Most don't, and git
    /// needn't be asked.
    fn may_hide(&self, folder: &[u8]) -> bool {
        let path = [folder, b"/config"].concat();
        let Some(said) = self.beginning(&path, GIT_CONFIG_BYTES_MAX) else {
            return true;
        };
        let said = said.to_ascii_lowercase();
        let has = |word: &[u8]| said.windows(word.len()).any(|part| part == word);
        said.len() == GIT_CONFIG_BYTES_MAX || WORDS_THAT_HIDE.iter().any(|word| has(word))
    }

    /// Does it refuse fetches? For the list, which can't ask git about each: what another file says that
    /// is included isn't known here, and found out when a page is asked for.
    fn refuses_fetches(&self, folder: &[u8]) -> bool {
        let path = [folder, b"/config"].concat();
        let said = self.beginning(&path, GIT_CONFIG_BYTES_MAX);
        said.is_none_or(|said| refuses_fetches(&said))
    }

    /// Its first line; git's own words for having none are none.
    fn description(&self, folder: &[u8]) -> Vec<u8> {
        let path = [folder, b"/description"].concat();
        let said = self.beginning(&path, GIT_DESCRIPTION_BYTES_MAX);
        let said = said.unwrap_or_default();
        let line = said.split(|byte| *byte == b'\n').next();
        let line = line.unwrap_or_default().trim_ascii();
        match line.starts_with(b"Unnamed repository") {
            true => Vec::new(),
            false => line.to_vec(),
        }
    }

    /// When it changed last: writing a ref replaces a file in its folder.
    fn changed(&self, folder: &[u8]) -> u64 {
        let mut newest = 0;
        let mut look = |path: &[u8]| {
            let seen = self
                .root
                .open_handle(path)
                .and_then(|seen| Ok(fstat(&seen)?));
            if let Ok(status) = seen {
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

    /// Of a list, what one client may read.
    pub(in crate::handler::git) fn part(
        list: &RepositoryList,
        all: Vec<RepositoryEntry>,
    ) -> RepositoryList {
        RepositoryList {
            name: list.name.clone(),
            all,
            is_cut: list.is_cut,
            left: 0,
            count_max: GIT_LIST_REPOSITORIES_MAX,
        }
    }

    /// All repositories that are exported below this folder.
    pub(in crate::handler::git) fn list(&self, folder: &[u8]) -> RepositoryList {
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

    /// Is there one?
    pub(in crate::handler::git) fn has_any(&self, folder: &[u8]) -> bool {
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
            let name = match folder.is_empty() {
                true => part,
                false => [folder, b"/", &part].concat(),
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
                // Links are followed to repositories alone: others may lead round in a circle.
                Ok(None) if kind == FileType::Directory => {
                    self.list_below(&name, depth + 1, secrets, list);
                    if list.all.len() == list.count_max {
                        return;
                    }
                }
                // Also what can't be looked at.
                _ => {}
            }
        }
    }

    /// May who asks see it?
    fn is_exported(&self, found: &[u8]) -> bool {
        (self.exports_all || self.is_marked(found)) && !self.refuses_fetches(found)
    }

    /// The names in a folder that aren't hidden, in their order, with what they are.
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

/// Of a repository, to learn when one of them changed last.
const BRANCHES_LOOKED_AT: usize = 200;

/// Of a configuration that may say more than that everything is shown.
const WORDS_THAT_HIDE: [&[u8]; 4] = [b"hiderefs", b"uploadpack", b"include", b"worktreeconfig"];

/// Does this configuration say `http.uploadpack = false`? The last of several holds.
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
            // Without a value it is true.
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
    fn configurations_that_refuse_fetches() {
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
