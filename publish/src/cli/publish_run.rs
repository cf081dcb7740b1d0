//! Publication of a release into a store, of this machine or the local one from which hosts get the release.

use super::outcome::Outcome;
use super::output::{open_lines, other_label, print, urls, warn};
use super::signed_records::{check_sequence, next_sequence};
use super::site_of_store::{SiteOfStore, publisher, short};
use crate::content_target::{FileContents, Target, stored};
use crate::contents::{ContentAdder, KnownCodings};
use crate::key::PublisherKey;
use crate::packed_release::{PackedRelease, pack};
use crate::problem::Problem;
use crate::release::{self, Change, Changes, ReleaseFile, compare, note_codings};
use crate::site_rules::SiteRules;
use crate::source::Source;
use crate::text;
use ::release::acknowledgment::{ServerReport, SiteAddresses};
use ::release::manifest::{BlobRef, rules_of};
use ::release::release_pointer::ReleasePointer;
use ::release::store::{
    Flip, LabelEditor, Publication, Retention, SiteRecords, SiteWriter, StoreFolder,
    StoreWriteError, StoreWriter, read_manifest, sweep,
};
use base::digest::sha256;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// Changed files in the output of a dry run. Further ones are counted.
const CHANGES_SHOWN: usize = 50;
/// Releases with codings that the next release takes over, as many as a sweep keeps. Each has a manifest to be read.
const KNOWN_RELEASES_MAX: usize = 10;

/// Publication under way.
pub(super) struct PublishRun {
    pub(super) site: SiteOfStore,
    pub(super) origin: Origin,
    pub(super) key: Option<PublisherKey>,
    pub(super) start: Instant,
}

/// Origin of the files of a release.
pub(super) enum Origin {
    Folder(Source, SiteRules),
    Packed(PackedRelease),
}

/// Result of the work on the contents.
pub(super) struct Prepared {
    pub(super) manifest: String,
    pub(super) files: Vec<ReleaseFile>,
    /// Bytes of the contents that were new to the store.
    new: u64,
    /// Texts that a publication would code; empty after a publication. The manifest lacks their codings.
    uncoded: Vec<BlobRef>,
}

impl Prepared {
    /// Returns the id of the release; None if the id depends on codings that a publication would make.
    pub(super) fn release(&self) -> Option<[u8; 32]> {
        let is_complete = self.uncoded.is_empty();
        is_complete.then(|| sha256(self.manifest.as_bytes()))
    }

    /// Returns the texts without codings as the end of a clause.
    pub(super) fn left_out(&self) -> String {
        match self.uncoded.len() {
            0 => String::new(),
            count => {
                let sizes = self.uncoded.iter().map(|content| content.size);
                format!(
                    " without the compressed forms of {} with {}",
                    text::count(count, "text"),
                    text::bytes(sizes.sum())
                )
            }
        }
    }
}

impl PublishRun {
    /// Shows the changes without a change of the store.
    pub(super) fn dry_run(&self) -> Result<ExitCode, Problem> {
        let served = self.served()?;
        let before = self.files_of(served.as_ref());
        let prepared = self.prepare(Target::Count(Some(&self.site)), &before)?;
        let manifest = served.as_ref().and_then(|served| {
            read_manifest(self.site.store.as_ref()?, &served.pointer.release).ok()
        });
        let (changes, listed) = shown_changes(&manifest.unwrap_or_default(), &prepared);
        let what = match (prepared.release(), &served) {
            (Some(release), Some(served)) if served.pointer.release == release => {
                format!("release {} equals the served release", short(&release))
            }
            (Some(release), _) => format!("release {} is not published", short(&release)),
            (None, _) => "the release is not published".to_owned(),
        };
        let figures = self.figures(&prepared, &changes);
        print(&format!(
            "{what}\n{listed}{figures}\n  {}\n",
            self.store_figures(&prepared)
        ))
    }

    /// Publishes the release, or gives the release a label.
    pub(super) fn publish(&self, label: Option<&str>) -> Result<ExitCode, Problem> {
        let writer = self.site.writer()?;
        let served = self.served()?;
        let before = self.files_of(served.as_ref());
        let prepared = self.prepare(Target::Store(&writer), &before)?;
        let changes = compare(&before, &prepared.files, |_, _| ());
        let added = writer.add_manifest(prepared.manifest.as_bytes());
        let release = added.map_err(stored)?;
        let done = match label {
            Some(label) => {
                let site = SiteWriter::lock(&writer, &self.site.site).map_err(stored)?;
                let labelled = site.set_label(label, &release, LabelEditor::LOCAL);
                labelled.map_err(stored)?;
                Outcome::labelled(label)
            }
            None => self.flip(&writer, served.as_ref(), release)?,
        };
        drop(writer);
        self.sweep();
        let addresses = SiteAddresses::read(&self.site.acknowledgment());
        let open = if done.is_unserved {
            String::new()
        } else {
            open_lines(urls(&addresses, label, &release)) + &other_label(&addresses, label)
        };
        print(&format!(
            "release {} of {}: {}\n{}\n  {}\n{open}",
            short(&release),
            self.site.site,
            done.clause,
            self.figures(&prepared, &changes),
            self.store_figures(&prepared),
        ))?;
        Ok(Outcome::code(done.is_unserved))
    }

    /// Makes the release in the local store, and writes the release to a file.
    pub(super) fn pack(&self, file: &Path) -> Result<ExitCode, Problem> {
        let before = self.files_of(self.served()?.as_ref());
        let (release, prepared) = self.make(&before)?;
        let changes = compare(&before, &prepared.files, |_, _| ());
        let store = StoreFolder::open(&self.site.path);
        let store = store.map_err(|error| Problem::failure(format!("the local store: {error}")))?;
        let size = pack(&store, &release, file)?;
        print(&format!(
            "release {}: written to {}, {}\n{}, {}\n",
            short(&release),
            text::file(file),
            text::bytes(size),
            self.figures(&prepared, &changes),
            self.elapsed()
        ))
    }

    /// Makes the release in the local store.
    pub(super) fn make(&self, before: &[ReleaseFile]) -> Result<([u8; 32], Prepared), Problem> {
        let writer = self.site.writer()?;
        let prepared = self.prepare(Target::Store(&writer), before)?;
        let release = writer
            .add_manifest(prepared.manifest.as_bytes())
            .map_err(stored)?;
        // The pointer keeps the release in the local store, so that the next difference is short.
        let records = self.site.records()?;
        let served = records.served();
        if served.is_none_or(|served| served.pointer.release != release) {
            let flip = Flip {
                release,
                seen: served.map(|served| served.pointer.sequence),
                time: text::now(),
                publisher: publisher(),
            };
            let site = SiteWriter::lock(&writer, &self.site.site).map_err(stored)?;
            site.flip(flip, ReleasePointer::text).map_err(stored)?;
        }
        Ok((release, prepared))
    }

    /// Sets the pointer, and waits for the server beside the store.
    fn flip(
        &self,
        writer: &StoreWriter,
        served: Option<&Publication>,
        release: [u8; 32],
    ) -> Result<Outcome, Problem> {
        if let Some(what) = withdrawn(&self.site.records()?, &release) {
            return Err(Problem::failure(what).help(CHANGE_A_FILE));
        }
        if let Some(served) = served {
            let is_alike = |key: &PublisherKey| key.is_bound_alike(served);
            if served.pointer.release == release && self.key.as_ref().is_none_or(is_alike) {
                let sequence = served.pointer.sequence;
                let report = ServerReport::read(&self.site.acknowledgment(), &release, sequence);
                return Ok(Outcome::unchanged(sequence, &report));
            }
            warn_of_unsigned(served, self.key.as_ref());
        }
        let records = self.site.records()?;
        check_sequence(self.key.as_ref(), &records, next_sequence(&records)?)?;
        let site = SiteWriter::lock(writer, &self.site.site).map_err(stored)?;
        let flip = Flip {
            release,
            seen: served.map(|served| served.pointer.sequence),
            time: text::now(),
            publisher: publisher(),
        };
        let pointer = site.flip(flip, |pointer| signed(self.key.as_ref(), pointer));
        let pointer = pointer.map_err(stored)?;
        drop(site);
        Ok(self.site.published(&pointer, self.start))
    }

    /// Returns true if the last release of the folder is in the local store. Its texts have their codings there, so the
    /// release on a host is not needed to make the next release, which is made while the hosts connect.
    pub(super) fn has_own_release(&self) -> Result<bool, Problem> {
        Ok(self.site.is_own && self.served()?.is_some())
    }

    fn served(&self) -> Result<Option<Publication>, Problem> {
        Ok(self.site.records()?.served().cloned())
    }

    fn files_of(&self, served: Option<&Publication>) -> Vec<ReleaseFile> {
        let files = served.and_then(|served| self.site.files(&served.pointer.release));
        files.unwrap_or_default()
    }

    pub(super) fn prepare(
        &self,
        target: Target<'_>,
        before: &[ReleaseFile],
    ) -> Result<Prepared, Problem> {
        let (source, rules) = match &self.origin {
            Origin::Folder(source, rules) => (source, rules),
            Origin::Packed(packed) => {
                let new = match target {
                    Target::Store(store) => packed.add_to(store)?,
                    Target::Count(store) => packed.missing_bytes(store),
                };
                return Ok(Prepared {
                    manifest: packed.manifest.clone(),
                    files: release::files(packed.manifest.as_bytes()).unwrap_or_default(),
                    new,
                    uncoded: Vec::new(),
                });
            }
        };
        let adder = ContentAdder::new(source, target, self.known_codings(before)?);
        let added = adder.run()?;
        let manifest = release::manifest(source, rules, &added.files)?;
        let file = |(file, contents): (&crate::source::SourceFile, FileContents)| ReleaseFile {
            path: file.path.clone(),
            contents,
        };
        let files = source.files.iter().zip(added.files).map(file).collect();
        Ok(Prepared {
            manifest,
            files,
            new: added.new,
            uncoded: added.uncoded,
        })
    }

    /// Returns the codings of the last releases of the site and of the release `before`. A text that returns after some
    /// releases has its earlier codings, so a folder that was published before has the same release id again.
    fn known_codings(&self, before: &[ReleaseFile]) -> Result<KnownCodings, Problem> {
        let mut known = KnownCodings::default();
        note_codings(&mut known.other, before);
        let own = if self.site.is_own {
            &mut known.own
        } else {
            &mut known.other
        };
        let releases = self.site.records()?.releases();
        for release in releases.iter().take(KNOWN_RELEASES_MAX) {
            note_codings(own, &self.site.files(release).unwrap_or_default());
        }
        Ok(known)
    }

    /// Returns the files and the changes of a release for the summary.
    pub(super) fn figures(&self, prepared: &Prepared, changes: &Changes) -> String {
        let sizes = prepared.files.iter().map(|file| file.contents.content.size);
        format!(
            "  {}, {}: {} added, {} changed, {} removed",
            text::count(prepared.files.len(), "file"),
            text::bytes(sizes.sum()),
            changes.added,
            changes.changed,
            changes.removed,
        )
    }

    /// Returns the bytes that are new to a store on this machine, and the time.
    fn store_figures(&self, prepared: &Prepared) -> String {
        format!(
            "{} new to the store{}, {}",
            text::bytes(prepared.new),
            prepared.left_out(),
            self.elapsed()
        )
    }

    /// Returns the time since the start of the command.
    pub(super) fn elapsed(&self) -> String {
        text::seconds(self.start.elapsed().as_secs_f64())
    }

    /// Removes old releases. A sweep that fails does not undo the publication.
    fn sweep(&self) {
        let swept = StoreFolder::open(&self.site.path)
            .map_err(|error| error.to_string())
            .and_then(|store| {
                match sweep(&store, &Retention::default(), text::now()) {
                    // The other publisher sweeps.
                    Err(StoreWriteError::Busy) => Ok(()),
                    swept => swept.map(drop).map_err(|error| error.to_string()),
                }
            });
        if let Err(error) = swept {
            warn(&format!("old releases stay in the store: {error}"));
        }
    }
}

/// Compares a release with the manifest of the previous release, which is empty for a first release. Returns the changes with a line
/// for each of the first ones.
pub(super) fn shown_changes(before: &[u8], prepared: &Prepared) -> (Changes, String) {
    let files = release::files(before).unwrap_or_default();
    let mut listed = String::new();
    let mut count = 0_usize;
    let changes = compare(&files, &prepared.files, |change, path| {
        count += 1;
        if count <= CHANGES_SHOWN {
            let mark = match change {
                Change::Added => "added  ",
                Change::Changed => "changed",
                Change::Removed => "removed",
            };
            listed.push_str(&format!("  {mark} {}\n", text::path(path)));
        }
    });
    if let Some(more) = count.checked_sub(CHANGES_SHOWN + 1) {
        listed.push_str(&format!(
            "  and {}\n",
            text::count(more + 1, "further file")
        ));
    }
    if !before.is_empty() && rules_of(before) != rules_of(prepared.manifest.as_bytes()) {
        listed.push_str("  changed rules: redirects, fields or error pages\n");
    }
    (changes, listed)
}

/// Warns of a publication without a signature after a signed one.
pub(super) fn warn_of_unsigned(served: &Publication, key: Option<&PublisherKey>) {
    if served.key.is_some() && key.is_none() {
        warn("the previous release is signed, and this one is not; sign with --key FILE");
    }
}

/// Returns the text of a pointer, signed with a key if given.
pub(super) fn signed(key: Option<&PublisherKey>, pointer: &ReleasePointer) -> String {
    match key {
        Some(key) => key.sign(pointer),
        None => pointer.text(),
    }
}

/// Returns the reason that a withdrawn release is refused; None for another release.
pub(super) fn withdrawn(records: &SiteRecords, release: &[u8; 32]) -> Option<String> {
    let is_withdrawn = records.withdrawn.contains(release);
    is_withdrawn.then(|| {
        format!(
            "the folder equals the release {}, which is withdrawn and never served again",
            short(release)
        )
    })
}

/// Advice for a withdrawn release.
pub(super) const CHANGE_A_FILE: &str = "change a file, and publish again";
