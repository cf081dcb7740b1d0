//! Changes of one site in a store under the lock of the site: the pointer by comparing and setting, labels and marks.

use super::StoreError;
use super::folder_access::{
    LockKind, each_name, lock, make_folder, open_folder, read_small, remove_file, replace_file,
};
use super::history::{Publication, SiteRecords};
use super::label::{LabelEditor, ReleaseLabel};
use super::write_error::StoreWriteError;
use super::writer::StoreWriter;
use crate::limits::{RELEASE_DIGITS_MIN, STORE_MARKS_MAX};
use crate::release_pointer::{ReleasePointer, is_label};
use base::digest::hex;
use std::fs::File;
use std::os::fd::OwnedFd;

/// Site in a store, locked for changes.
pub struct SiteWriter<'s> {
    store: &'s StoreWriter,
    site: String,
    folder: OwnedFd,
    _lock: File,
}

/// Publication to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flip {
    /// Release to be served.
    pub release: [u8; 32],
    /// Sequence of the pointer that the publisher read before its comparison; None before the first release.
    pub seen: Option<u64>,
    /// Time in seconds since 1970.
    pub time: u64,
    /// Name of the publisher.
    pub publisher: String,
}

/// Mark of a release of a site.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ReleaseMark {
    /// The release is never swept.
    Pinned,
    /// The release is never served again.
    Withdrawn,
}

impl ReleaseMark {
    fn folder(self) -> &'static str {
        match self {
            ReleaseMark::Pinned => "pins",
            ReleaseMark::Withdrawn => "withdrawn",
        }
    }
}

impl<'s> SiteWriter<'s> {
    /// Waits for the lock of a site, and makes the folder of a new site.
    pub fn lock(store: &'s StoreWriter, site: &str) -> Result<SiteWriter<'s>, StoreWriteError> {
        if !is_label(site) {
            return Err(StoreWriteError::Name(site.to_owned()));
        }
        let modes = store.modes();
        let folder = make_folder(store.root(), "sites", modes)
            .and_then(|sites| make_folder(&sites, site, modes))
            .map_err(StoreWriteError::at(format!("sites/{site}")))?;
        let lock = lock(&folder, "lock", LockKind::Exclusive, modes)
            .map_err(StoreWriteError::at(format!("sites/{site}/lock")))?;
        Ok(SiteWriter {
            store,
            site: site.to_owned(),
            folder,
            _lock: lock.ok_or(StoreWriteError::Busy)?,
        })
    }

    /// Sets the pointer of the site to a release with the next sequence, and returns the pointer. `text` returns the
    /// text of the pointer, perhaps with a signature. The call fails if another publisher set the pointer meanwhile.
    pub fn flip(
        &self,
        flip: Flip,
        text: impl FnOnce(&ReleasePointer) -> String,
    ) -> Result<ReleasePointer, StoreWriteError> {
        let records = SiteRecords::read(self.store.reader(), &self.site)?;
        if let Some(other) = records.served()
            && flip.seen != Some(other.pointer.sequence)
        {
            return Err(StoreWriteError::Overtaken {
                sequence: other.pointer.sequence,
                publisher: other.pointer.publisher.clone(),
            });
        }
        if records.withdrawn.contains(&flip.release) {
            return Err(StoreWriteError::Withdrawn);
        }
        if let Some(served) = records.served() {
            self.record_again(served)?;
        }
        let last = records.publications.keys().next_back().copied();
        let sequence = last.unwrap_or(0).checked_add(1);
        let pointer = ReleasePointer {
            site: self.site.clone(),
            site_id: None,
            release: flip.release,
            sequence: sequence.ok_or(StoreWriteError::SequenceEnd)?,
            time: flip.time,
            publisher: flip.publisher,
        };
        let text = text(&pointer);
        self.replace(None, "pointer", text.as_bytes())?;
        // The release is served now. A missing record of the publication is written by the next publisher.
        let name = pointer.sequence.to_string();
        let _ = self.replace(Some("pointers"), &name, text.as_bytes());
        Ok(pointer)
    }

    /// Writes the record of the served publication if a publisher ended between the pointer and the record.
    fn record_again(&self, served: &Publication) -> Result<(), StoreWriteError> {
        let name = served.pointer.sequence.to_string();
        let pointers = make_folder(&self.folder, "pointers", self.store.modes());
        let pointers = pointers.map_err(StoreWriteError::at(self.path(Some("pointers"), "")))?;
        let at = || StoreWriteError::at(self.path(Some("pointers"), &name));
        match read_small(&pointers, &name) {
            Ok(_) => Ok(()),
            Err(StoreError::Missing) => {
                let text = read_small(&self.folder, "pointer");
                let text = text.map_err(at())?;
                self.replace(Some("pointers"), &name, &text)
            }
            Err(error) => Err(at()(error)),
        }
    }

    /// Gives a label to a release, perhaps instead of another release. The label belongs to the publisher from then on.
    pub fn set_label(
        &self,
        label: &str,
        release: &[u8; 32],
        editor: LabelEditor<'_>,
    ) -> Result<(), StoreWriteError> {
        // An id of a release begins with hexadecimal digits, and a label must never take its place.
        if label.len() >= RELEASE_DIGITS_MIN && label.bytes().all(|it| it.is_ascii_hexdigit()) {
            return Err(StoreWriteError::Digits(label.to_owned()));
        }
        let label = self.checked(label)?;
        let mut count = 0;
        for (name, owner) in self.label_owners()? {
            must_be_free(label, (&name, owner.as_deref()), editor)?;
            count += usize::from(name != label && owner.as_deref() == editor.name);
        }
        if count >= STORE_MARKS_MAX {
            let owner = editor.name.unwrap_or("nobody");
            return Err(StoreWriteError::TooManyLabels(owner.to_owned()));
        }
        let content = ReleaseLabel {
            release: *release,
            owner: editor.name.map(str::to_owned),
        };
        self.replace(Some("labels"), label, content.text().as_bytes())
    }

    /// Removes a label. A missing label is no error.
    pub fn remove_label(
        &self,
        label: &str,
        editor: LabelEditor<'_>,
    ) -> Result<(), StoreWriteError> {
        let label = self.checked(label)?;
        for (name, owner) in self.label_owners()? {
            if name == label {
                must_be_free(label, (&name, owner.as_deref()), editor)?;
            }
        }
        self.remove("labels", label)
    }

    /// Returns all labels of the site with their owners.
    fn label_owners(&self) -> Result<Vec<(String, Option<String>)>, StoreWriteError> {
        let mut labels = Vec::new();
        let listed = match open_folder(&self.folder, "labels") {
            Err(StoreError::Missing) => return Ok(labels),
            folder => folder.and_then(|folder| {
                each_name(&folder, |name| {
                    // A label that cannot be read belongs to nobody.
                    let label = read_small(&folder, name).ok();
                    let label = label.and_then(|text| ReleaseLabel::parse(&text));
                    labels.push((name.to_owned(), label.and_then(|label| label.owner)));
                    Ok::<(), StoreError>(())
                })
            }),
        };
        listed.map_err(StoreWriteError::at(self.path(Some("labels"), "")))?;
        Ok(labels)
    }

    /// Marks a release.
    pub fn mark(&self, mark: ReleaseMark, release: &[u8; 32]) -> Result<(), StoreWriteError> {
        if mark == ReleaseMark::Pinned {
            self.must_have_room(mark.folder(), &hex(release))?;
        }
        self.replace(Some(mark.folder()), &hex(release), b"")
    }

    /// Removes the pin of a release. A withdrawn release stays withdrawn.
    pub fn unpin(&self, release: &[u8; 32]) -> Result<(), StoreWriteError> {
        self.remove(ReleaseMark::Pinned.folder(), &hex(release))
    }

    /// Refuses a new pin beyond the largest number.
    fn must_have_room(&self, below: &str, name: &str) -> Result<(), StoreWriteError> {
        let (mut count, mut is_present) = (0, false);
        let counted = match open_folder(&self.folder, below) {
            Err(StoreError::Missing) => return Ok(()),
            folder => folder.and_then(|folder| {
                each_name(&folder, |it| {
                    count += 1;
                    is_present |= it == name;
                    Ok(())
                })
            }),
        };
        counted.map_err(StoreWriteError::at(self.path(Some(below), "")))?;
        if is_present || count < STORE_MARKS_MAX {
            Ok(())
        } else {
            Err(StoreWriteError::TooMany(below.to_owned()))
        }
    }

    fn checked<'l>(&self, label: &'l str) -> Result<&'l str, StoreWriteError> {
        if is_label(label) {
            Ok(label)
        } else {
            Err(StoreWriteError::Name(label.to_owned()))
        }
    }

    /// Replaces a file in the folder of the site or in a folder below.
    fn replace(
        &self,
        below: Option<&str>,
        name: &str,
        content: &[u8],
    ) -> Result<(), StoreWriteError> {
        let modes = self.store.modes();
        let drafts = self.store.drafts();
        let replaced = match below {
            None => replace_file(drafts, &self.folder, name, content, modes),
            Some(below) => make_folder(&self.folder, below, modes)
                .and_then(|folder| replace_file(drafts, &folder, name, content, modes)),
        };
        replaced.map_err(|error| StoreWriteError::at(self.path(below, name))(error))
    }

    fn remove(&self, below: &str, name: &str) -> Result<(), StoreWriteError> {
        let removed = match open_folder(&self.folder, below) {
            Err(StoreError::Missing) => Ok(()),
            folder => folder.and_then(|folder| remove_file(&folder, name)),
        };
        removed.map_err(|error| StoreWriteError::at(self.path(Some(below), name))(error))
    }

    fn path(&self, below: Option<&str>, name: &str) -> String {
        match below {
            None => format!("sites/{}/{name}", self.site),
            Some(below) => format!("sites/{}/{below}/{name}", self.site),
        }
    }
}

/// Refuses a label if the publisher may not change the present label `name`, which equals the label or differs in case
/// alone: the host name of a preview has no case.
fn must_be_free(
    label: &str,
    (name, owner): (&str, Option<&str>),
    editor: LabelEditor<'_>,
) -> Result<(), StoreWriteError> {
    if !name.eq_ignore_ascii_case(label) || editor.may_change(owner) {
        return Ok(());
    }
    Err(StoreWriteError::ForeignLabel {
        label: name.to_owned(),
        owner: owner.map(str::to_owned),
    })
}
