//! Release made of the files of a folder, for a server that publishes without a publisher's program.
//!
//! The files are the files that a site with the folder as its root has: without hidden names, and with links to places
//! inside of the folder followed. No content is coded.

use crate::site::file_version::FileError;
use crate::site::folder::{FolderNode, SiteFolder};
use crate::site::root::SiteRoot;
use crate::site::scan::scan;
use crate::site::{SiteRules, Symlinks};
use base::digest::hex;
use base::visible_text::shortened;
use release::hashed_name::is_hashed;
use release::manifest::{
    BlobRef, Changes, ManifestError, ManifestLine, ManifestReader, ManifestWriter, first_line,
    rules_of,
};
use release::release_pointer::ReleasePointer;
use release::store::{Flip, SiteRecords, SiteWriter, StoreWriter, read_manifest};
use std::borrow::Cow;
use std::fmt::Display;
use std::io;
use std::path::Path;

/// Page for missing files.
const ERROR_PAGE: &[u8] = b"404.html";
/// Files with rules for the publisher's program, which are never served.
const RULES: [&str; 2] = ["_headers", "_redirects"];

/// Published release made of a folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FolderRelease {
    /// Pointer to the release.
    pub pointer: ReleasePointer,
    /// Number of files.
    pub files: usize,
    /// Changes since the release before.
    pub changes: Changes,
    /// Files with rules that have no effect.
    pub left_out: Vec<&'static str>,
}

impl FolderRelease {
    /// Adds the files of a folder to a store, and points the site to the release. `rules` are the rules of a former
    /// release. The last publisher wins. The error is a clause with a path of the site or of the store, and no other path
    /// of the disk.
    pub fn publish(
        folder: &Path,
        store: &Path,
        site: &str,
        rules: Option<&[u8]>,
        publisher: &str,
        now: u64,
    ) -> Result<FolderRelease, String> {
        let store = StoreWriter::open(store).map_err(stored)?;
        let root = SiteRoot::open(folder, Symlinks::Inside, None);
        let root = root.map_err(|error| format!("the folder: {error}"))?;
        let tree = scan(&root, &SiteRules::new(folder))
            .map_err(|error| refused(b"the folder", &error.reject().reason))?;
        let mut adder = FolderAdder {
            root: &root,
            store: &store,
            manifest: ManifestWriter::default(),
            path: Vec::new(),
            left_out: Vec::new(),
        };
        if rules.is_none()
            && let Some(FolderNode::File(_)) = tree.lookup(ERROR_PAGE, b"")
        {
            adder.manifest.push(&ManifestLine::ErrorPage {
                status: 404,
                path: Cow::Borrowed(ERROR_PAGE),
            });
        }
        adder.folder(&tree)?;
        let left_out = adder.left_out;
        let mut manifest = adder.manifest.finish().into_bytes();
        let header = first_line(&manifest).len();
        if let Some(rules) = rules {
            manifest.splice(header..header, rules.iter().copied());
            if rules_of(&manifest) != rules {
                return Err("the rules of the release contain files".to_owned());
            }
        }
        let new = files(&manifest)?;
        let release = store.add_manifest(&manifest).map_err(stored)?;
        let writer = SiteWriter::lock(&store, site).map_err(stored)?;
        let records = SiteRecords::read(store.reader(), site).map_err(stored)?;
        let served = records.served().map(|it| it.pointer.release);
        // An unreadable release before has no files for the comparison.
        let old = served.and_then(|served| read_manifest(store.reader(), &served).ok());
        let old = old.unwrap_or_default();
        let old = files(&old).unwrap_or_default();
        let flip = Flip {
            release,
            seen: records.served,
            time: now,
            publisher: publisher.to_owned(),
        };
        let pointer = writer.flip(flip, ReleasePointer::text).map_err(stored)?;
        Ok(FolderRelease {
            pointer,
            files: new.len(),
            changes: Changes::compare(old.into_iter(), new.into_iter(), |_, _| ()),
            left_out,
        })
    }

    /// Returns the result as lines, in the words of `anthill publish`. `state` is the state of the publication as a
    /// clause, or empty.
    pub fn report(&self, state: &str) -> Vec<String> {
        let ReleasePointer {
            site,
            release,
            sequence,
            ..
        } = &self.pointer;
        let Changes {
            added,
            changed,
            removed,
        } = self.changes;
        let files = match self.files {
            1 => "1 file".to_owned(),
            count => format!("{count} files"),
        };
        let mut lines = vec![
            format!(
                "release {} of {site}: published, sequence {sequence}{state}",
                &hex(release)[..12]
            ),
            format!("  {files}: {added} added, {changed} changed, {removed} removed"),
        ];
        let left_out = self.left_out.iter();
        lines.extend(left_out.map(|name| {
            format!("  {name} has no effect and is not served: `anthill publish` reads the file")
        }));
        lines
    }
}

/// Adder of the files of a folder.
struct FolderAdder<'a> {
    root: &'a SiteRoot,
    store: &'a StoreWriter,
    manifest: ManifestWriter,
    /// Path of the current folder, without initial slash.
    path: Vec<u8>,
    left_out: Vec<&'static str>,
}

impl FolderAdder<'_> {
    fn folder(&mut self, folder: &SiteFolder) -> Result<(), String> {
        let length = self.path.len();
        for (name, entry) in folder.iter() {
            if length > 0 {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name);
            let rules = RULES.iter().find(|rules| rules.as_bytes() == self.path);
            match (&entry.node, rules) {
                (FolderNode::File(_), Some(rules)) => self.left_out.push(rules),
                (FolderNode::File(file), None) => {
                    let Some(meta) = file.version.disk() else {
                        continue;
                    };
                    let open = self.root.open_file(&self.path, meta);
                    let open = open.map_err(|error| self.refused(error))?;
                    self.file(open)?;
                }
                (FolderNode::Folder(below), _) => self.folder(below)?,
                // A link without a destination, or to a folder above, has no file.
                (FolderNode::Refused(FileError::NotFound | FileError::LeftOut), _) => {}
                (FolderNode::Refused(error), _) => return Err(self.refused(*error)),
            }
            self.path.truncate(length);
        }
        Ok(())
    }

    fn file(&mut self, mut file: std::fs::File) -> Result<(), String> {
        let mut draft = self.store.draft().map_err(stored)?;
        io::copy(&mut file, &mut draft).map_err(|error| refused(&self.path, &error))?;
        let (content, _) = draft.finish().map_err(stored)?;
        self.manifest.push(&ManifestLine::File {
            path: Cow::Borrowed(&self.path),
            content,
            is_hashed: is_hashed(&self.path),
        });
        Ok(())
    }

    fn refused(&self, error: FileError) -> String {
        refused(&self.path, &error.reject().reason)
    }
}

/// Path and content of a file of a manifest.
type ListedFile<'m> = (Cow<'m, [u8]>, BlobRef);

/// Returns the files of a manifest. The error is a clause.
fn files(manifest: &[u8]) -> Result<Vec<ListedFile<'_>>, String> {
    let failed = |error: ManifestError| {
        let text = String::from_utf8_lossy(manifest);
        let line = text.lines().nth(error.line.saturating_sub(1));
        let path = line.and_then(|line| line.rsplit(' ').next());
        let path = shortened(path.unwrap_or_default());
        format!("{path}: the folder is no valid release: {}", error.what)
    };
    let mut files = Vec::new();
    for line in ManifestReader::new(manifest).map_err(failed)? {
        if let ManifestLine::File { path, content, .. } = line.map_err(failed)? {
            files.push((path, content));
        }
    }
    Ok(files)
}

fn refused(path: &[u8], what: &dyn Display) -> String {
    format!("{}: {what}", shortened(path))
}

fn stored(error: impl Display) -> String {
    format!("the store: {error}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn rules_are_taken_over_and_contain_no_files() {
        let place = tempfile::tempdir().unwrap();
        let (folder, store) = (place.path().join("files"), place.path().join("store"));
        fs::create_dir(&folder).unwrap();
        for name in ["404.html", "a.html"] {
            fs::write(folder.join(name), name).unwrap();
        }
        let publish = |rules: Option<&[u8]>| {
            let done = FolderRelease::publish(&folder, &store, "www", rules, "ann", 1)?;
            let store = StoreWriter::open(&store).unwrap();
            let text = read_manifest(store.reader(), &done.pointer.release).unwrap();
            assert_eq!(done.files, 2);
            Ok::<_, String>(rules_of(&text).to_vec())
        };
        assert_eq!(publish(None).unwrap(), b"error 404 404.html\n");
        assert_eq!(publish(Some(b"")).unwrap(), b"");
        let rules = b"error 404 a.html\nredirect 410 /gone\n";
        assert_eq!(publish(Some(rules)).unwrap(), rules);
        let digest = hex(&[0xab; 32]);
        for rules in [
            format!("file 1 {digest} 0.html\n"),
            "error 404 missing.html".to_owned(),
            "nonsense\n".to_owned(),
        ] {
            assert!(publish(Some(rules.as_bytes())).is_err(), "{rules}");
        }
        let records = SiteRecords::read(StoreWriter::open(&store).unwrap().reader(), "www");
        assert_eq!(records.unwrap().served, Some(3));
    }
}
