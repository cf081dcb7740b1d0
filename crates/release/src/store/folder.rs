//! Store in a plain folder, for reading.
//!
//! Publishers may have another account than the server. The server therefore follows no link below the folder, and
//! reads regular files only.

use super::{ReleaseLabel, ReleaseStore, StoreError};
use crate::limits::RELEASE_POINTER_BYTES_MAX;
use crate::release_pointer::is_label;
use base::digest::hex;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, openat, statat};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Store in a plain folder.
pub struct StoreFolder {
    path: PathBuf,
    folder: OwnedFd,
}

impl StoreFolder {
    /// Opens the folder of a store.
    pub fn open(path: &Path) -> Result<StoreFolder, StoreError> {
        let folder = openat(
            CWD,
            path,
            FOLDER.difference(OFlags::NOFOLLOW),
            Mode::empty(),
        )?;
        let path = path.to_owned();
        Ok(StoreFolder { path, folder })
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder with the pointer of a site, for a watch.
    pub fn site_folder(&self, site: &str) -> PathBuf {
        self.path.join("sites").join(site)
    }

    /// Returns the descriptor of the folder.
    pub(super) fn root(&self) -> &OwnedFd {
        &self.folder
    }

    /// Opens a folder below the store, without following links.
    fn open_folder(&self, names: &[&str]) -> Result<Option<OwnedFd>, StoreError> {
        let mut last = None;
        for name in names {
            let above = last.as_ref().unwrap_or(&self.folder);
            last = Some(openat(above, *name, FOLDER, Mode::empty())?);
        }
        Ok(last)
    }

    /// Opens a regular file below the store, without following links.
    fn open_file(&self, folders: &[&str], name: &str) -> Result<File, StoreError> {
        let folder = self.open_folder(folders)?;
        let file = openat(
            folder.as_ref().unwrap_or(&self.folder),
            name,
            FILE,
            Mode::empty(),
        );
        let file = file.map_err(|error| match error {
            rustix::io::Errno::LOOP => {
                StoreError::Corrupt("a link stands in place of a file of the store")
            }
            error => error.into(),
        })?;
        match FileType::from_raw_mode(fstat(&file)?.st_mode) {
            FileType::RegularFile => Ok(File::from(file)),
            _ => Err(StoreError::Corrupt(
                "a file of the store is no regular file",
            )),
        }
    }

    /// Reads a small file below the folder of a site; None for a missing file.
    fn read_small(&self, folders: &[&str], name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let file = match self.open_file(folders, name) {
            Err(StoreError::Missing) => return Ok(None),
            file => file?,
        };
        let mut text = Vec::new();
        file.take(RELEASE_POINTER_BYTES_MAX as u64 + 1)
            .read_to_end(&mut text)?;
        match text.len() {
            0..=RELEASE_POINTER_BYTES_MAX => Ok(Some(text)),
            _ => Err(StoreError::Corrupt("a file of the store is too long")),
        }
    }
}

/// Flags for a folder below the store.
const FOLDER: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Flags for a file below the store. `NONBLOCK` keeps the reader from waiting for a pipe.
const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

impl ReleaseStore for StoreFolder {
    fn open_blob(&self, digest: &[u8; 32]) -> Result<File, StoreError> {
        let name = hex(digest);
        self.open_file(&["blobs", &name[..2]], &name)
    }

    fn pointer(&self, site: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.read_small(&["sites", site], "pointer")
    }

    fn record(&self, site: &str, sequence: u64) -> Result<Option<Vec<u8>>, StoreError> {
        self.read_small(&["sites", site, "pointers"], &sequence.to_string())
    }

    fn label(&self, site: &str, label: &str) -> Result<Option<[u8; 32]>, StoreError> {
        // A label comes from the name of a host, and must not leave the folder of labels.
        if !is_label(label) {
            return Ok(None);
        }
        let text = self.read_small(&["sites", site, "labels"], label)?;
        let Some(text) = text else {
            return Ok(None);
        };
        let label = ReleaseLabel::parse(&text);
        label
            .map(|label| Some(label.release))
            .ok_or(StoreError::Corrupt("a label has no digest"))
    }

    fn is_withdrawn(&self, site: &str, release: &[u8; 32]) -> Result<bool, StoreError> {
        let folder = match self.open_folder(&["sites", site, "withdrawn"]) {
            Err(StoreError::Missing) => return Ok(false),
            folder => folder?,
        };
        let folder = folder.as_ref().unwrap_or(&self.folder);
        match statat(folder, hex(release), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
