//! Tree of a site from the manifest of a release. Equal files of the former release are taken over with their loaded
//! content.

use super::release_rules::{ReleaseError, ReleaseRules};
use crate::site::file::{SIDECARS, SidecarVersions, SiteFile};
use crate::site::file_version::{BlobVersion, FileMeta, FileVersion};
use crate::site::folder::{FolderNode, SiteFolder, SymlinkTarget};
use crate::site::published_rules::{PublishedRules, PublishedRulesBuilder};
use crate::site::rules::SiteRules;
use base::job_end;
use release::manifest::{BlobRef, ManifestLine, ManifestReader};
use release::store::ServedRelease;
use std::borrow::Cow;
use std::sync::Arc;
use wire::content_coding::ContentCoding;

/// Tree and rules of a release.
pub(crate) struct ReleaseContent {
    /// All files and folders.
    pub tree: Arc<SiteFolder>,
    /// Rules of the manifest.
    pub published: PublishedRules,
}

/// Tree and rules from which a new release takes over equal files.
pub(super) type FormerContent<'a> = (&'a Arc<SiteFolder>, &'a PublishedRules);

/// Metadata of each folder of a release. Equal metadata lets releases share unchanged folders.
const FOLDER_META: FileMeta = FileMeta {
    size: 0,
    mtime_ns: 0,
    ctime_ns: 0,
    ino: 0,
    dev: 0,
};

impl ReleaseContent {
    /// Reads the manifest of a release, and builds the tree. Files that are equal in `former` stay loaded. A withdrawn
    /// release is refused.
    pub(super) fn open(
        rules: &ReleaseRules,
        release: &ServedRelease,
        site: &SiteRules,
        former: Option<FormerContent<'_>>,
    ) -> Result<ReleaseContent, ReleaseError> {
        let text = rules.read_text(release)?;
        ReleaseContent::read(&text, site, former).map_err(|what| ReleaseError {
            path: rules.blob(&release.release),
            what,
            publication: None,
        })
    }

    /// Reads a manifest. Files and folders that are equal in `former` are taken over. The error is a clause with the
    /// reason that the manifest is refused.
    pub(super) fn read(
        text: &[u8],
        site: &SiteRules,
        former: Option<FormerContent<'_>>,
    ) -> Result<ReleaseContent, String> {
        let mut lines = ManifestReader::new(text).map_err(|error| error.to_string())?;
        let mut rules = PublishedRulesBuilder::default();
        let mut first = None;
        // All rules stand before the first file.
        for line in lines.by_ref() {
            if job_end::is_over() {
                return Err("the reading was ended".to_owned());
            }
            match line.map_err(|error| error.to_string())? {
                file @ ManifestLine::File { .. } => {
                    first = Some(file);
                    break;
                }
                rule => rules.push(rule)?,
            }
        }
        let published = rules.finish()?;
        let tree = {
            let compare = former.map(|(_, rules)| rules.compare_heads(&published));
            let has_same_heads = |path: &[u8]| compare.as_ref().is_some_and(|same| same(path));
            let mut tree = TreeBuilder::new(site, former.map(|(tree, _)| tree), &has_same_heads);
            for line in first.map(Ok).into_iter().chain(lines) {
                if job_end::is_over() {
                    return Err("the reading was ended".to_owned());
                }
                tree.push(line.map_err(|error| error.to_string())?);
            }
            tree.finish()
        };
        Ok(ReleaseContent { tree, published })
    }

    /// Returns a tree without files.
    pub(crate) fn empty() -> ReleaseContent {
        ReleaseContent {
            tree: Arc::new(SiteFolder::new(FOLDER_META, Vec::new(), &[])),
            published: PublishedRules::default(),
        }
    }
}

/// Builder of a tree. The files come folder by folder, in the order of their names.
struct TreeBuilder<'m, 'a> {
    site: &'a SiteRules,
    has_same_heads: &'a dyn Fn(&[u8]) -> bool,
    /// Folders from the root to the folder of the last file.
    open: Vec<OpenFolder<'m, 'a>>,
    /// Last file, which may get coded contents.
    last: Option<PendingFile<'m>>,
}

struct OpenFolder<'m, 'a> {
    name: Cow<'m, [u8]>,
    entries: Vec<(Cow<'m, [u8]>, FolderNode)>,
    /// Folder of the former release at the path.
    former: Option<&'a Arc<SiteFolder>>,
}

struct PendingFile<'m> {
    path: Cow<'m, [u8]>,
    version: BlobVersion,
    sidecars: SidecarVersions,
}

impl<'m, 'a> TreeBuilder<'m, 'a> {
    fn new(
        site: &'a SiteRules,
        former: Option<&'a Arc<SiteFolder>>,
        has_same_heads: &'a dyn Fn(&[u8]) -> bool,
    ) -> TreeBuilder<'m, 'a> {
        let root = OpenFolder {
            name: Cow::Borrowed(b""),
            entries: Vec::new(),
            former,
        };
        TreeBuilder {
            site,
            has_same_heads,
            open: vec![root],
            last: None,
        }
    }

    fn push(&mut self, line: ManifestLine<'m>) {
        match line {
            ManifestLine::File {
                path,
                content,
                is_hashed,
            } => {
                self.close_file();
                let file = PendingFile {
                    path,
                    version: BlobVersion { content, is_hashed },
                    sidecars: [None; 3],
                };
                self.enter(&file);
                self.last = Some(file);
            }
            ManifestLine::Coded { coding, content } => self.add_coded(coding, content),
            // The reader refuses a rule behind a file.
            _ => {}
        }
    }

    fn add_coded(&mut self, coding: ContentCoding, content: BlobRef) {
        let Some(last) = &mut self.last else { return };
        if self.site.is_sent_as_stored(&last.path) {
            return;
        }
        let place = SIDECARS.iter().position(|(known, _)| *known == coding);
        let version = BlobVersion {
            content,
            is_hashed: last.version.is_hashed,
        };
        if let Some(place) = place {
            last.sidecars[place] = Some(FileVersion::Blob(version));
        }
    }

    /// Closes and opens folders, so that the folder of a file is the last open folder.
    fn enter(&mut self, file: &PendingFile<'m>) {
        let path = &file.path;
        let mut start = 0;
        let mut depth = 1;
        while let Some(length) = path[start..].iter().position(|byte| *byte == b'/') {
            let name = &path[start..start + length];
            if self.open.get(depth).is_none_or(|open| *open.name != *name) {
                self.close_folders(depth);
                let former = self.open[depth - 1].former;
                let former = former.and_then(|former| former.find(name));
                let former = former.and_then(|entry| match &entry.node {
                    FolderNode::Folder(folder) => Some(folder),
                    _ => None,
                });
                self.open.push(OpenFolder {
                    name: file.part(start, start + length),
                    entries: Vec::new(),
                    former,
                });
            }
            start += length + 1;
            depth += 1;
        }
        self.close_folders(depth);
    }

    /// Closes open folders until `depth` folders are open.
    fn close_folders(&mut self, depth: usize) {
        while self.open.len() > depth {
            let index = self.index_names();
            if let (Some(closed), Some(above)) = (self.open.pop(), self.open.last_mut()) {
                let name = closed.name.clone();
                let node = FolderNode::Folder(closed.close(index));
                above.entries.push((name, node));
            }
        }
    }

    /// Returns the names of index files for the last open folder.
    fn index_names(&self) -> &'a [String] {
        if self.site.below.is_empty() {
            return &self.site.index;
        }
        let names: Vec<&[u8]> = self.open.iter().skip(1).map(|open| &*open.name).collect();
        self.site.index_names(&names.join(&b'/'))
    }

    /// Adds the last file to its folder.
    fn close_file(&mut self) {
        let (Some(last), Some(folder)) = (self.last.take(), self.open.last_mut()) else {
            return;
        };
        let start = last.path.iter().rposition(|byte| *byte == b'/');
        let name = last.part(start.map_or(0, |at| at + 1), last.path.len());
        let version = FileVersion::Blob(last.version);
        let former = folder.former.and_then(|former| former.find(&name));
        let file = match former.map(|entry| &entry.node) {
            Some(FolderNode::File(file))
                if file.is(&version, &last.sidecars)
                    && !file.has_failed()
                    && (self.has_same_heads)(&last.path) =>
            {
                Arc::clone(file)
            }
            _ => Arc::new(SiteFile::new(version, last.sidecars)),
        };
        folder.entries.push((name, FolderNode::File(file)));
    }

    fn finish(mut self) -> Arc<SiteFolder> {
        self.close_file();
        self.close_folders(1);
        match self.open.pop() {
            Some(root) => root.close(self.site.index_names(b"")),
            None => ReleaseContent::empty().tree,
        }
    }
}

impl OpenFolder<'_, '_> {
    /// Returns the finished folder, or the former folder with identical entries.
    fn close(self, index: &[String]) -> Arc<SiteFolder> {
        let entries = self.entries.iter();
        let entries = entries.map(|(name, node)| (&**name, SymlinkTarget::No, node.clone()));
        let folder = SiteFolder::new(FOLDER_META, entries.collect(), index);
        match self.former {
            Some(former) if folder.same_entries(former) => Arc::clone(former),
            _ => Arc::new(folder),
        }
    }
}

impl<'m> PendingFile<'m> {
    /// Returns a part of the path, without a copy if the path is a part of the manifest.
    fn part(&self, start: usize, end: usize) -> Cow<'m, [u8]> {
        match &self.path {
            Cow::Borrowed(path) => Cow::Borrowed(&path[start..end]),
            Cow::Owned(path) => Cow::Owned(path[start..end].to_vec()),
        }
    }
}
