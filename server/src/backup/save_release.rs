//! Backup of a release: the files of the published release as ordinary files, and the rules of the manifest.

use super::save::BackupWriter;
use super::{RULES, sum_line};
use crate::config::OperatorError;
use base::digest::Digest;
use base::tar::{self, TarEntry, TarEntryKind};
use data_plane::site::ReleaseRules;
use release::limits::STORE_BUFFER_BYTES;
use release::manifest::rules_of;
use release::manifest::{BlobRef, ManifestLine, ManifestReader};
use release::store::{ReleaseStore, StoreError};
use std::io::Read as _;

impl BackupWriter {
    /// Writes the files of the published release below the folder `top`, each verified by its digest, and the rules.
    pub(super) fn release(
        &mut self,
        release: &ReleaseRules,
        top: &[u8],
        now: u64,
    ) -> Result<(), OperatorError> {
        let published = release.published();
        let published = published.map_err(|error| OperatorError::failure(error.to_string()))?;
        let Some((served, manifest)) = published else {
            let what = format!("the site {} has no release to save", release.site);
            return Err(OperatorError::failure(what));
        };
        let failed = |error: &dyn std::fmt::Display| {
            let place = release.blob(&served.release);
            OperatorError::failure(format!("{}: {error}", place.display()))
        };
        let store = release.open_store().map_err(|error| failed(&error))?;
        let entry = |name: Vec<u8>, kind, size| TarEntry {
            name,
            kind,
            mode: if kind == TarEntryKind::Folder {
                0o755
            } else {
                0o644
            },
            modified: served.time,
            size,
            link: Vec::new(),
        };
        self.counted_head(&entry(top.to_vec(), TarEntryKind::Folder, 0))?;
        let mut last = Vec::new();
        for line in ManifestReader::new(&manifest).map_err(|error| failed(&error))? {
            let ManifestLine::File { path, content, .. } = line.map_err(|error| failed(&error))?
            else {
                continue;
            };
            // The files come folder by folder, so a folder is new where the path differs from the path before.
            for (at, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
                if !last.starts_with(&path[..=at]) {
                    let name = [top, b"/", &path[..at]].concat();
                    self.counted_head(&entry(name, TarEntryKind::Folder, 0))?;
                }
            }
            let name = [top, b"/", &*path].concat();
            let sum = sum_line(&content.digest, &name);
            self.counted_head(&entry(name, TarEntryKind::File, content.size))?;
            self.blob(&*store, &content).map_err(|error| {
                let place = release.blob(&content.digest);
                OperatorError::failure(format!("{}: {error}", place.display()))
                    .help("`anthill releases verify STORE` finds damaged contents; publish again")
            })?;
            self.put(&[0; 512][..tar::padding(content.size)])?;
            self.sums.extend(sum);
            self.saved.files += 1;
            self.saved.bytes += content.size;
            last = path.into_owned();
        }
        match rules_of(&manifest) {
            b"" => Ok(()),
            rules => self.metadata_entry(RULES, rules, now),
        }
    }

    /// Copies a content, and compares it with its digest.
    fn blob(&mut self, store: &dyn ReleaseStore, content: &BlobRef) -> Result<(), String> {
        let file = store.open_blob(&content.digest);
        let mut file = file.map_err(|error| error.to_string())?.take(content.size);
        let (mut digest, mut size) = (Digest::new(), 0);
        let mut buffer = vec![0; STORE_BUFFER_BYTES];
        loop {
            let length = file.read(&mut buffer).map_err(|error| error.to_string())?;
            if length == 0 {
                break;
            }
            digest.update(&buffer[..length]);
            size += length as u64;
            self.put(&buffer[..length])
                .map_err(|error| error.in_one_line())?;
        }
        if size == content.size && digest.finish() == content.digest {
            Ok(())
        } else {
            Err(StoreError::Corrupt("the content differs from its digest").to_string())
        }
    }
}
