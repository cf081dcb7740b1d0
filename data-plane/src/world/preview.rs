//! Previews: releases of a site that are not served yet, each under a host name of its own, such as
//! `next.preview.example.org`.
//!
//! The first label of the name is a label in the store, or 16 to 63 hexadecimal digits of a release. A label can be
//! guessed, and needs a login. Only the control plane opens a release: a request for a closed preview notes the wish, and
//! waits for the next World. A World has a few open previews, so the memory is bounded.

use crate::base::digest::hex;
use crate::limits::{PREVIEW_ID_DIGITS_MIN, PREVIEWS_OPEN_MAX};
use crate::site::Site;
use crate::store::SiteRecords;
use crate::tls::SiteIdentity;
use crate::world::users::Users;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Previews of one site.
#[derive(Clone)]
pub struct Previews {
    /// Names without the `*`, so beginning with a dot.
    pub parent: Box<[u8]>,
    /// Identity of the certificate for the names.
    pub identity: SiteIdentity,
    /// Users that may see the previews. Without users, a login for the whole site opens the labels.
    pub users: Option<Arc<Users>>,
    /// Whether the digits of a release need the login too.
    pub ids_need_login: bool,
    /// Releases, labels and withdrawn releases of the store.
    pub records: Arc<SiteRecords>,
    /// Open releases.
    pub open: Vec<OpenPreview>,
    /// Releases that requests want to be opened.
    pub wanted: Arc<WantedPreviews>,
}

/// Open release.
#[derive(Clone)]
pub struct OpenPreview {
    /// SHA-256 of the manifest.
    pub release: [u8; 32],
    /// Files of the release.
    pub site: Arc<Site>,
    /// Time of the last request in milliseconds of the workers' clocks.
    pub used_ms: Arc<AtomicU64>,
}

/// Releases that requests want to be opened, at most [`PREVIEWS_OPEN_MAX`].
#[derive(Default)]
pub struct WantedPreviews(Mutex<Vec<[u8; 32]>>);

/// State of the preview that a host stands for.
#[derive(Clone)]
pub enum PreviewState {
    /// The release is not open, or there is no release for the name.
    Closed(Arc<Previews>),
    /// The release is open.
    Open(OpenPreview),
}

/// Release that a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PreviewName {
    /// SHA-256 of the manifest.
    pub release: [u8; 32],
    /// Whether the name can be guessed.
    pub needs_login: bool,
}

impl WantedPreviews {
    /// Notes a release for the control plane.
    pub fn push(&self, release: [u8; 32]) {
        let mut wanted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted.len() < PREVIEWS_OPEN_MAX && !wanted.contains(&release) {
            wanted.push(release);
        }
    }

    /// Takes all noted releases.
    pub fn take(&self) -> Vec<[u8; 32]> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Previews {
    /// Returns the release for a host name; None for an unknown name. `has_login` is true if a login guards the whole
    /// site.
    pub fn find(&self, host: &[u8], has_login: bool) -> Option<PreviewName> {
        let host = host.strip_suffix(b".").unwrap_or(host);
        let label = &host[..host.len().checked_sub(self.parent.len())?];
        let mut labels = self.records.labels.iter();
        let labelled = labels.find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(label));
        if let Some((_, release)) = labelled {
            return has_login.then_some(PreviewName {
                release: *release,
                needs_login: true,
            });
        }
        let is_long = label.len() >= PREVIEW_ID_DIGITS_MIN;
        if !is_long || (self.ids_need_login && !has_login) {
            return None;
        }
        let named = |release: &&[u8; 32]| {
            let digits = hex(&**release);
            let start = digits.as_bytes().get(..label.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(label))
        };
        Some(PreviewName {
            release: *releases(&self.records).find(named)?,
            needs_login: self.ids_need_login,
        })
    }

    /// Returns true if a release may never be served again.
    pub fn is_withdrawn(&self, release: &[u8; 32]) -> bool {
        self.records.withdrawn.contains(release)
    }

    /// Returns the previews with another state of the store. Withdrawn and removed releases are closed.
    pub fn with_records(&self, records: SiteRecords) -> Previews {
        let stays = |it: &&OpenPreview| {
            let is_known = releases(&records).any(|release| *release == it.release);
            is_known && !records.withdrawn.contains(&it.release)
        };
        Previews {
            open: self.open.iter().filter(stays).cloned().collect(),
            records: Arc::new(records),
            ..self.clone()
        }
    }

    /// Opens a release. Beyond the bound, the release without requests for the longest time is closed.
    pub fn add(&mut self, release: [u8; 32], site: Site) {
        while self.open.len() >= PREVIEWS_OPEN_MAX {
            let used = |it: &(usize, &OpenPreview)| it.1.used_ms.load(Ordering::Relaxed);
            let Some((oldest, _)) = self.open.iter().enumerate().min_by_key(used) else {
                break;
            };
            self.open.remove(oldest);
        }
        let newest = self
            .open
            .iter()
            .map(|it| it.used_ms.load(Ordering::Relaxed));
        // The request that wants the release comes next, so the release counts as used last.
        let used_ms = Arc::new(AtomicU64::new(newest.max().unwrap_or(0)));
        self.open.push(OpenPreview {
            release,
            site: Arc::new(site),
            used_ms,
        });
    }
}

/// Returns the releases of a site, some of them repeatedly.
fn releases(records: &SiteRecords) -> impl Iterator<Item = &[u8; 32]> {
    let published = records.publications.values();
    let published = published.map(|it| &it.pointer.release);
    published
        .chain(records.labels.values())
        .chain(&records.pins)
}
