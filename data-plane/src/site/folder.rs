//! Folder of the tree: immutable, and shared between generations of a site until the folder changes.
//!
//! The names of a folder are stored sorted in one allocation, so that a folder with 100,000 files needs
//! little memory for each file, and the copy of a folder after the change of one name is fast.

use super::file::SiteFile;
use crate::site::file_version::{FileError, FileMeta};
use release::stray_files::is_doubtful;
use std::cmp::Ordering;
use std::sync::Arc;
use wire::request_target::is_below;

/// Folder as of the scan.
pub(crate) struct SiteFolder {
    /// Metadata of the folder itself.
    pub meta: FileMeta,
    names: Box<[u8]>,
    entries: Box<[FolderEntry]>,
    /// Index into `entries` of the index file, possibly a file that a process is writing.
    index: Option<u32>,
    /// Number of files here and below with a doubtful name ([`is_doubtful`]).
    pub doubtful: u32,
    /// Whether the folder or a folder below contains a symbolic link.
    pub holds_links: bool,
    /// Targets of the folder's links as paths below the root, with the index of the link, in ascending
    /// order.
    targets: Box<[(u32, Box<[u8]>)]>,
}

/// Bytes that the allocator and the reference counts add to the three allocations of a folder.
const ALLOCATIONS_BYTES: usize = 64;

/// Symbolic link state of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SymlinkTarget {
    /// The name is not a symbolic link.
    No,
    /// The name is a link to the path below the root, all links resolved; `None` for a target outside of
    /// the root or a missing target.
    To(Option<Box<[u8]>>),
}

/// Entry of a folder.
pub(crate) struct FolderEntry {
    /// Node behind the name, links followed.
    pub node: FolderNode,
    /// End of the name in `names`. The name starts at the end of the previous name.
    name_end: u32,
    /// Whether the name is a symbolic link.
    pub link: bool,
}

/// Node behind a name.
#[derive(Clone)]
pub(crate) enum FolderNode {
    /// A folder.
    Folder(Arc<SiteFolder>),
    /// A regular file.
    File(Arc<SiteFile>),
    /// An existing but unservable file or folder.
    Refused(FileError),
}

impl FolderNode {
    /// Returns true if both nodes are identical, not only equal.
    fn is(&self, other: &FolderNode) -> bool {
        match (self, other) {
            (FolderNode::Folder(one), FolderNode::Folder(other)) => Arc::ptr_eq(one, other),
            (FolderNode::File(one), FolderNode::File(other)) => Arc::ptr_eq(one, other),
            (FolderNode::Refused(one), FolderNode::Refused(other)) => one == other,
            _ => false,
        }
    }

    /// Returns the number of files with a doubtful name: of the file itself, or of all files in the folder.
    fn doubtful(&self, name: &[u8]) -> u32 {
        match self {
            FolderNode::Folder(below) => below.doubtful,
            FolderNode::File(_) => is_doubtful(name).into(),
            FolderNode::Refused(_) => 0,
        }
    }
}

impl SiteFolder {
    /// Builds a folder. `entries` (name, link state, node) are sorted by name, bytewise, without
    /// duplicates.
    pub(crate) fn new(
        meta: FileMeta,
        entries: Vec<(&[u8], SymlinkTarget, FolderNode)>,
        index: &[String],
    ) -> SiteFolder {
        let mut names = Vec::with_capacity(entries.iter().map(|(name, ..)| name.len()).sum());
        let mut holds_links = false;
        let mut doubtful: u32 = 0;
        let mut targets = Vec::new();
        let entries = entries
            .into_iter()
            .enumerate()
            .map(|(at, (name, link, node))| {
                names.extend_from_slice(name);
                doubtful = doubtful.saturating_add(node.doubtful(name));
                let is_link = link != SymlinkTarget::No;
                if let SymlinkTarget::To(Some(target)) = link {
                    targets.push((u32::try_from(at).unwrap_or(u32::MAX), target));
                }
                let link = is_link;
                holds_links |=
                    link || matches!(&node, FolderNode::Folder(folder) if folder.holds_links);
                FolderEntry {
                    node,
                    name_end: u32::try_from(names.len()).unwrap_or(u32::MAX),
                    link,
                }
            })
            .collect();
        let names = names.into_boxed_slice();
        let mut folder = SiteFolder {
            meta,
            names,
            entries,
            index: None,
            doubtful,
            holds_links,
            targets: targets.into(),
        };
        folder.index = index.iter().find_map(|name| {
            let at = folder.position(name.as_bytes(), b"")?;
            let is_index = matches!(
                folder.entries[at].node,
                FolderNode::File(_) | FolderNode::Refused(FileError::Changing)
            );
            is_index.then_some(at as u32)
        });
        folder
    }

    /// Returns the bytes of memory of the folder and of all folders and files below, without loaded contents.
    pub(crate) fn memory_bytes(&self) -> usize {
        let nodes = self.entries.iter().map(|entry| match &entry.node {
            FolderNode::Folder(below) => below.memory_bytes(),
            FolderNode::File(file) => file.memory_bytes(),
            FolderNode::Refused(_) => 0,
        });
        let entries = self.entries.len() * size_of::<FolderEntry>();
        let targets = self.targets.iter().map(|(_, target)| 24 + target.len());
        ALLOCATIONS_BYTES
            + size_of::<SiteFolder>()
            + self.names.len()
            + entries
            + targets.sum::<usize>()
            + nodes.sum::<usize>()
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the entries with names, sorted by name, bytewise.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &FolderEntry)> {
        self.entries
            .iter()
            .enumerate()
            .map(|(at, entry)| (self.name(at), entry))
    }

    /// Returns the name and the entry at an index in the sorted order.
    pub(crate) fn at(&self, place: usize) -> (&[u8], &FolderEntry) {
        (self.name(place), &self.entries[place])
    }

    /// Returns true if a process is writing the index file of the folder.
    pub(crate) fn has_changing_index(&self) -> bool {
        let index = self.index.map(|at| &self.entries[at as usize].node);
        matches!(index, Some(FolderNode::Refused(_)))
    }

    /// Returns the index file of the folder, with the name.
    pub(crate) fn index(&self) -> Option<(&[u8], &Arc<SiteFile>)> {
        let at = self.index? as usize;
        match &self.entries[at].node {
            FolderNode::File(file) => Some((self.name(at), file)),
            _ => None,
        }
    }

    /// Returns the path of the first file with a doubtful name, except for files below the paths of `left_out`. `path` is
    /// the path of this folder, without a slash at either end.
    pub(crate) fn first_doubtful(&self, path: &[u8], left_out: &[&[u8]]) -> Option<Vec<u8>> {
        let mut entries = self.iter();
        entries.find_map(|(name, entry)| {
            if entry.node.doubtful(name) == 0 {
                return None;
            }
            let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
            let path = [path, slash, name].concat();
            match &entry.node {
                _ if left_out.iter().any(|prefix| is_below(&path, prefix)) => None,
                FolderNode::Folder(below) => below.first_doubtful(&path, left_out),
                _ => Some(path),
            }
        })
    }

    /// Returns the entry of a name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&FolderEntry> {
        self.position(name, b"").map(|at| &self.entries[at])
    }

    /// Returns the node at a path, with `suffix` appended to the last name. For the empty path, the result
    /// is None: the caller already has the folder.
    pub(crate) fn lookup(&self, path: &[u8], suffix: &[u8]) -> Option<&FolderNode> {
        let mut folder = self;
        let mut names = path.split(|byte| *byte == b'/').peekable();
        while let Some(name) = names.next() {
            let last = names.peek().is_none();
            let at = folder.position(name, if last { suffix } else { b"" })?;
            match &folder.entries[at].node {
                node if last => return Some(node),
                FolderNode::Folder(below) => folder = below,
                FolderNode::File(_) => return None,
                refused @ FolderNode::Refused(_) => return Some(refused),
            }
        }
        None
    }

    /// Returns the path without links for a path below this folder, which must be the root; None for a
    /// target outside of the root. Missing names are kept.
    pub(crate) fn real_path(&self, path: &[u8]) -> Option<Vec<u8>> {
        let mut folder = Some(self);
        let mut real = Some(Vec::with_capacity(path.len()));
        for name in path.split(|byte| *byte == b'/') {
            let at = folder.and_then(|folder| Some((folder, folder.position(name, b"")?)));
            match at {
                Some((above, at)) if above.entries[at].link => {
                    real = above.target(at).map(<[u8]>::to_vec);
                }
                _ => {
                    if let Some(real) = &mut real {
                        if !real.is_empty() {
                            real.push(b'/');
                        }
                        real.extend_from_slice(name);
                    }
                }
            }
            folder = at.and_then(|(above, at)| match &above.entries[at].node {
                FolderNode::Folder(below) => Some(&**below),
                _ => None,
            });
        }
        real
    }

    fn target(&self, at: usize) -> Option<&[u8]> {
        let found = self
            .targets
            .binary_search_by(|(known, _)| (*known as usize).cmp(&at));
        found.ok().map(|place| &*self.targets[place].1)
    }

    /// Returns true if both folders hold identical entries under the same names.
    pub(crate) fn same_entries(&self, other: &SiteFolder) -> bool {
        self.meta == other.meta
            && self.names == other.names
            && self.targets == other.targets
            && self.entries.len() == other.entries.len()
            && self.entries.iter().zip(&other.entries).all(|(one, other)| {
                one.name_end == other.name_end && one.link == other.link && one.node.is(&other.node)
            })
    }

    fn name(&self, at: usize) -> &[u8] {
        let start = if at == 0 {
            0
        } else {
            self.entries[at - 1].name_end as usize
        };
        &self.names[start..self.entries[at].name_end as usize]
    }

    /// Returns the index of the name `name` followed by `suffix`, without concatenation.
    fn position(&self, name: &[u8], suffix: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.entries.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match compare(self.name(middle), name, suffix) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Some(middle),
            }
        }
        None
    }
}

fn compare(known: &[u8], name: &[u8], suffix: &[u8]) -> Ordering {
    match known.split_at_checked(name.len()) {
        Some((start, rest)) => start.cmp(name).then_with(|| rest.cmp(suffix)),
        // Too short to equal `name`, so the suffix does not matter.
        None => known.cmp(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> FileMeta {
        FileMeta {
            size: 0,
            mtime_ns: 0,
            ctime_ns: 0,
            ino: 0,
            dev: 0,
        }
    }

    fn file() -> FolderNode {
        FolderNode::File(Arc::new(SiteFile::new(meta().into(), [None; 3])))
    }

    #[test]
    fn finds_by_name_and_suffix() {
        let names = ["a", "a.html", "ab", "b", "b.htm", "ba.html"];
        let entries = names
            .iter()
            .map(|name| (name.as_bytes(), SymlinkTarget::No, file()))
            .collect();
        let below = Arc::new(SiteFolder::new(
            meta(),
            entries,
            &["none".into(), "b".into()],
        ));
        assert_eq!(below.index().map(|(name, _)| name), Some(&b"b"[..]));
        let entries = vec![
            (
                &b"broken"[..],
                SymlinkTarget::No,
                FolderNode::Refused(FileError::Unreadable),
            ),
            (b"page", SymlinkTarget::No, file()),
            (b"sub", SymlinkTarget::No, FolderNode::Folder(below)),
        ];
        let top = SiteFolder::new(meta(), entries, &[]);
        for (path, suffix, found) in [
            ("page", "", true),
            ("sub/a", "", true),
            ("sub/a", ".html", true),
            ("sub/ba", ".html", true),
            ("sub/b", ".html", false),
            ("sub/c", "", false),
            ("sub", "/a", false),
            ("page/x", "", false),
            ("broken/x/y", "", true),
            ("", "", false),
        ] {
            let node = top.lookup(path.as_bytes(), suffix.as_bytes());
            assert_eq!(node.is_some(), found, "{path} {suffix}");
        }
    }
}
