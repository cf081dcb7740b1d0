//! Site of a store, as named by an argument.

use super::outcome::Outcome;
use crate::content_target::{Presence, stored};
use crate::destination::Destination;
use crate::problem::Problem;
use crate::release::{self, ReleaseFile};
use crate::text;
use ::release::acknowledgment::{ServerReport, wait_until_served};
use ::release::limits::RELEASE_DIGITS_MIN;
use ::release::limits::RELEASE_LABEL_BYTES_MAX;
use ::release::manifest::BlobRef;
use ::release::release_pointer::ReleasePointer;
use ::release::store::served_folder;
use ::release::store::{
    ReleaseStore as _, SiteRecords, StoreError, StoreFolder, StoreWriteError, StoreWriter,
    read_manifest, sites,
};
use base::digest::hex;
use base::trusted_path::user_name;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Name of a site without a name in the argument.
pub(super) const DEFAULT_SITE: &str = "www";
/// Digits of a release id in messages.
const SHORT_DIGITS: usize = 12;

/// Site of a store.
pub(super) struct SiteOfStore {
    /// Folder of the store.
    pub(super) path: PathBuf,
    /// Name of the site.
    pub(super) site: String,
    /// The store; None before the first publication.
    pub(super) store: Option<StoreFolder>,
    /// True if only this user makes the releases of the site.
    pub(super) is_own: bool,
}

impl SiteOfStore {
    /// Finds a site by an argument `PATH[:SITE]`. Without a name the site is the only site of the store, or `www`.
    pub(super) fn find(argument: &OsStr) -> Result<SiteOfStore, Problem> {
        let (path, site) = Destination::folder(argument)?;
        let store = if path.is_dir() {
            Some(StoreFolder::open(&path).map_err(|error| unusable(&path, &error))?)
        } else {
            None
        };
        let site = match (site, &store) {
            (Some(site), _) => site,
            (None, None) => DEFAULT_SITE.to_owned(),
            (None, Some(store)) => only_site(store)?,
        };
        Ok(SiteOfStore {
            path,
            site,
            store,
            is_own: false,
        })
    }

    /// Refuses a new store in a folder with other files, and a store in the folder to publish: one publication would make
    /// the contents of the store files of the site.
    pub(super) fn refuse_foreign(&self, source: &Path) -> Result<(), Problem> {
        let path = self.path.canonicalize();
        let is_present = path.is_ok();
        let Ok(path) = path.or_else(|_| real_path_of_missing(&self.path)) else {
            return Ok(());
        };
        if let Ok(source) = source.canonicalize()
            && path.starts_with(&source)
        {
            let what = format!(
                "the store {} lies in the folder to publish",
                text::file(&path)
            );
            return Err(Problem::usage(what).help("name a store outside of the folder"));
        }
        if !is_present {
            return Ok(());
        }
        let mut entries = path.read_dir().into_iter().flatten();
        let has_files = entries.any(|entry| entry.is_ok_and(|it| it.file_name() != "lost+found"));
        let is_begun = ["lock", "blobs", "sites"]
            .iter()
            .any(|name| path.join(name).symlink_metadata().is_ok());
        if has_files && !is_begun {
            let what = format!("{} has other files, and is no store", text::file(&path));
            return Err(Problem::usage(what).help("name a store, an empty folder or a new folder"));
        }
        Ok(())
    }

    /// Finds a site of a present store.
    pub(super) fn find_present(argument: &OsStr) -> Result<SiteOfStore, Problem> {
        let found = SiteOfStore::find(argument)?;
        let Some(store) = &found.store else {
            let what = format!("{} is no folder", text::file(&found.path));
            return Err(Problem::usage(what).help("`anthill publish DIR STORE` makes a store"));
        };
        let sites = sites(store).map_err(stored)?;
        if sites.is_empty() {
            let what = format!("{} has no releases", text::file(&found.path));
            return Err(Problem::usage(what).help(
                "name the folder of a store, with `blobs` and `sites`; `anthill publish DIR STORE` makes a store",
            ));
        }
        if !sites.contains(&found.site) {
            let what = format!("the store has no site `{}`", found.site);
            return Err(Problem::usage(what).help(format!(
                "the sites of {} are: {}",
                text::file(&found.path),
                sites.join(", ")
            )));
        }
        Ok(found)
    }

    /// Returns the path of the acknowledgment of a server with the store in its state folder.
    pub(super) fn acknowledgment(&self) -> PathBuf {
        served_folder(&self.path).join(&self.site)
    }

    /// Returns the report of the server on the publication that the pointer names.
    pub(super) fn report(&self, records: &SiteRecords) -> ServerReport {
        let report = records.served().map(|served| {
            let pointer = &served.pointer;
            ServerReport::read(&self.acknowledgment(), &pointer.release, pointer.sequence)
        });
        report.unwrap_or_default()
    }

    /// Waits until the server serves a publication that began at `start`. Without the folder of acknowledgments, the store
    /// belongs to no server.
    pub(super) fn published(&self, pointer: &ReleasePointer, start: Instant) -> Outcome {
        let report = wait_until_served(&self.acknowledgment(), pointer);
        match report.acknowledged {
            None => Outcome {
                clause: format!(
                    "published, sequence {}; no server is known to serve the store, since there is no folder {} that \
                     this account can read",
                    pointer.sequence,
                    text::file(&served_folder(&self.path))
                ),
                is_unserved: false,
            },
            Some(_) => Outcome::published(&self.site, pointer.sequence, &report, start),
        }
    }

    /// Returns the records of the site.
    pub(super) fn records(&self) -> Result<SiteRecords, Problem> {
        match &self.store {
            None => Ok(SiteRecords::default()),
            Some(store) => SiteRecords::read(store, &self.site).map_err(stored),
        }
    }

    /// Opens the store for changes, and makes a missing store.
    pub(super) fn writer(&self) -> Result<StoreWriter, Problem> {
        StoreWriter::open(&self.path).map_err(|error| match error {
            StoreWriteError::File { file, error } if file == "." => unusable(&self.path, &error),
            StoreWriteError::File { file, error } => unusable(&self.path.join(file), &error),
            error => Problem::failure(format!("the store {}: {error}", text::file(&self.path))),
        })
    }

    /// Returns the files of a release; None for an unreadable manifest.
    pub(super) fn files(&self, release: &[u8; 32]) -> Option<Vec<ReleaseFile>> {
        let text = read_manifest(self.store.as_ref()?, release).ok()?;
        release::files(&text).ok()
    }
}

impl Presence for SiteOfStore {
    fn has(&self, content: &BlobRef) -> bool {
        let blob = self
            .store
            .as_ref()
            .map(|store| store.open_blob(&content.digest));
        let Some(Ok(blob)) = blob else {
            return false;
        };
        blob.metadata().is_ok_and(|it| it.len() == content.size)
    }

    fn open(&self, content: &BlobRef) -> Option<std::fs::File> {
        self.store.as_ref()?.open_blob(&content.digest).ok()
    }
}

/// Returns the problem for a store that cannot be opened.
fn unusable(path: &Path, error: &StoreError) -> Problem {
    let reason = match error {
        StoreError::Io(error) => text::reason(error),
        error => error.to_string(),
    };
    let problem = Problem::failure(format!("the store {}: {reason}", text::file(path)));
    match error {
        StoreError::Io(error) if error.kind() == ErrorKind::PermissionDenied => problem.help(
            "run the command as the owner of the store, or become a member of its group; `anthill service install \
             --publisher NAME` makes an account for publishers",
        ),
        _ => problem,
    }
}

/// Returns the path that a missing folder will have: the nearest present folder above without links, and the names below.
fn real_path_of_missing(path: &Path) -> std::io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let present = path.ancestors().find_map(|above| {
        let real = above.canonicalize().ok()?;
        Some(real.join(path.strip_prefix(above).ok()?))
    });
    Ok(present.unwrap_or(path))
}

/// Returns true if a folder has the lock and the contents of a store.
pub(super) fn is_store(folder: &Path) -> bool {
    folder.join("lock").is_file() && folder.join("blobs").is_dir()
}

fn only_site(store: &StoreFolder) -> Result<String, Problem> {
    let sites = sites(store).map_err(stored)?;
    match sites.as_slice() {
        [] => Ok(DEFAULT_SITE.to_owned()),
        [site] => Ok(site.clone()),
        sites if sites.iter().any(|site| site == DEFAULT_SITE) => Ok(DEFAULT_SITE.to_owned()),
        sites => {
            let what = format!("the store has several sites: {}", sites.join(", "));
            Err(Problem::usage(what).help(format!(
                "name one: {}:{}",
                text::file(store.path()),
                sites[0]
            )))
        }
    }
}

/// Returns the first digits of a release id.
pub(super) fn short(release: &[u8; 32]) -> String {
    let mut digits = hex(release);
    digits.truncate(SHORT_DIGITS);
    digits
}

/// Refuses a label of another publisher than `own` as the name of a release to serve: its owner may move the label to
/// another release at any time. A label with its owner, as in `ann/next`, is what the user means.
pub(super) fn refuse_foreign_label(
    records: &SiteRecords,
    name: &str,
    own: Option<&str>,
) -> Result<(), Problem> {
    let owner = records.label_owners.get(name).map(String::as_str);
    match (owner, records.labels.get(name)) {
        (Some(owner), Some(release)) if Some(owner) != own => {
            let release = &hex(release)[..SHORT_DIGITS];
            let what = format!("the label `{name}` belongs to {owner}, and names {release} now");
            Err(Problem::usage(what).help(format!(
                "write {release} for this release, or {owner}/{name} for the one that {owner} names at the time"
            )))
        }
        _ => Ok(()),
    }
}

/// Refuses a label that the site does not have.
pub(super) fn must_have_label(records: &SiteRecords, label: &str) -> Result<(), Problem> {
    if records.labels.contains_key(label) {
        Ok(())
    } else {
        Err(
            Problem::usage(format!("no release has the label `{label}`"))
                .help("`anthill releases STORE` lists the labels"),
        )
    }
}

/// Refuses a new label of hexadecimal digits alone, since such a name stands for the start of a release id. Shorter
/// names never do.
pub(super) fn refuse_digits(label: &str) -> Result<(), Problem> {
    let is_id =
        label.len() >= RELEASE_DIGITS_MIN && label.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id {
        Err(Problem::usage(format!(
            "the label `{label}` could be the start of a release id"
        ))
        .help("take a label with another character, such as v-1 or next"))
    } else {
        Ok(())
    }
}

/// Finds a release by a label, by a label with its owner, or by the first digits of its id.
pub(super) fn find_release(records: &SiteRecords, name: &str) -> Result<[u8; 32], Problem> {
    let help = "`anthill releases STORE` lists the releases";
    if let Some((owner, label)) = name.rsplit_once('/') {
        let is_owned = records
            .label_owners
            .get(label)
            .is_some_and(|it| it == owner);
        let release = records.labels.get(label).filter(|_| is_owned).copied();
        let what = || format!("no release has the label `{label}` of {owner}");
        return release.ok_or_else(|| Problem::usage(what()).help(help));
    }
    let label = records.labels.get(name);
    let all = records.releases();
    let found = all
        .iter()
        .filter(|release| hex(&release[..]).starts_with(name));
    let found: Vec<&[u8; 32]> = found.collect();
    // The owner of a store could give the digits of a release to another release as a label.
    let is_both = name.len() >= RELEASE_DIGITS_MIN && !found.is_empty();
    match (label, found.as_slice()) {
        (Some(_), _) if is_both => {
            let what = format!("`{name}` is a label and the start of a release id");
            Err(Problem::usage(what).help("write more digits of the id"))
        }
        (Some(release), _) => Ok(*release),
        (None, [release]) if name.len() >= RELEASE_DIGITS_MIN => Ok(**release),
        (None, []) => {
            Err(Problem::usage(format!("no release has the label or the id `{name}`")).help(help))
        }
        _ => {
            let what = format!("`{name}` does not name one release");
            Err(Problem::usage(what).help("write more digits of the id"))
        }
    }
}

/// Returns the name of the publisher: the user and the machine.
pub(super) fn publisher() -> String {
    let user = ["USER", "LOGNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok());
    // cron and services set neither variable.
    let uid = rustix::process::getuid().as_raw();
    let user = user
        .or_else(|| user_name(uid))
        .unwrap_or_else(|| uid.to_string());
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    let visible = |text: &str| -> String {
        let kept = text.chars().filter(char::is_ascii_graphic);
        kept.take(RELEASE_LABEL_BYTES_MAX / 2).collect()
    };
    format!("{}@{}", visible(&user), visible(&host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_without_permission_has_advice() {
        let error = std::io::Error::from_raw_os_error(13);
        let problem = unusable(Path::new("/srv/store"), &StoreError::Io(error)).to_string();
        let begin = "error: the store /srv/store: this account has no permission\n\
                     help: run the command as the owner of the store, or become a member of its group";
        assert!(problem.starts_with(begin), "{problem}");
    }
}
