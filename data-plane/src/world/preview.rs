//! Previews: releases of a site that are not served yet, each under a host name of its own, such as
//! `next.preview.example.org`.
//!
//! The first label of the name is a label in the store, or 16 to 63 hexadecimal digits of a release. A label can be
//! guessed, and needs a login. Only the control plane opens a release: a request for a closed preview notes the wish, and
//! waits for the next World. A World has a few open previews, so the memory is bounded.

use crate::limits::{
    PREVIEW_ID_DIGITS_MIN, PREVIEW_NEEDED_SECONDS, PREVIEWS_BYTES_MAX, PREVIEWS_OPEN_MAX,
};
use crate::site::Site;
use crate::store::SiteRecords;
use crate::tls::SiteIdentity;
use crate::world::users::Users;
use base::digest::hex;
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
    /// Whether a client with a login opened the release.
    pub has_login: bool,
    /// Memory of the files and the rules, without loaded contents.
    pub bytes: usize,
}

/// Releases that requests want to be opened, at most [`PREVIEWS_OPEN_MAX`].
#[derive(Default)]
pub struct WantedPreviews(Mutex<Vec<PreviewName>>);

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
    pub fn push(&self, name: PreviewName) {
        let mut wanted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = wanted.iter().position(|it| it.release == name.release);
        match known {
            // One client has a login, and another one names the release by its digits.
            Some(known) => wanted[known].needs_login |= name.needs_login,
            None if wanted.len() < PREVIEWS_OPEN_MAX => wanted.push(name),
            None => {}
        }
    }

    /// Takes all noted releases.
    pub fn take(&self) -> Vec<PreviewName> {
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

    /// Opens a release. Beyond the bound, the release without requests for the longest time is closed. The request that
    /// wants the release comes next, so the release counts as used now.
    pub fn add(&mut self, preview: OpenPreview) {
        while self.open.len() >= PREVIEWS_OPEN_MAX {
            let used = |it: &(usize, &OpenPreview)| it.1.used_ms.load(Ordering::Relaxed);
            let Some((oldest, _)) = self.open.iter().enumerate().min_by_key(used) else {
                break;
            };
            self.open.remove(oldest);
        }
        self.open.push(preview);
    }

    /// Closes a release.
    pub fn close(&mut self, release: &[u8; 32]) {
        self.open.retain(|it| it.release != *release);
    }
}

/// Open preview of a site for the choice of previews to close: the number of the site, the release, the bytes, and the
/// milliseconds since the last request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PreviewAge {
    /// Number of the site.
    pub host: usize,
    /// SHA-256 of the manifest.
    pub release: [u8; 32],
    /// Memory of the preview.
    pub bytes: usize,
    /// Milliseconds since the last request.
    pub idle_ms: u64,
}

/// Returns the previews that give way to a preview of `bytes`, so that all previews opened without a login have at most
/// [`PREVIEWS_BYTES_MAX`]; None if the previews in use leave no room. The previews without requests for the longest time
/// come first.
pub fn make_room(open: &mut [PreviewAge], bytes: usize) -> Option<Vec<PreviewAge>> {
    let mut total: usize = open.iter().map(|it| it.bytes).sum();
    open.sort_unstable_by_key(|it| std::cmp::Reverse(it.idle_ms));
    let mut closed = Vec::new();
    for preview in open.iter() {
        if total + bytes <= PREVIEWS_BYTES_MAX {
            break;
        }
        if preview.idle_ms < PREVIEW_NEEDED_SECONDS * 1_000 {
            return None;
        }
        total -= preview.bytes;
        closed.push(*preview);
    }
    (total + bytes <= PREVIEWS_BYTES_MAX).then_some(closed)
}

/// Returns the releases of a site, some of them repeatedly.
fn releases(records: &SiteRecords) -> impl Iterator<Item = &[u8; 32]> {
    let published = records.publications.values();
    let published = published.map(|it| &it.pointer.release);
    published
        .chain(records.labels.values())
        .chain(&records.pins)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(host: usize, bytes: usize, idle_seconds: u64) -> PreviewAge {
        PreviewAge {
            host,
            release: [host as u8; 32],
            bytes,
            idle_ms: idle_seconds * 1_000,
        }
    }

    fn closed(previews: &[PreviewAge], bytes: usize) -> Option<Vec<usize>> {
        let closed = make_room(&mut previews.to_vec(), bytes)?;
        Some(closed.iter().map(|it| it.host).collect())
    }

    #[test]
    fn previews_without_requests_give_way_to_new_ones() {
        let half = PREVIEWS_BYTES_MAX / 2;
        assert_eq!(closed(&[], half), Some(vec![]));
        assert_eq!(closed(&[open(1, half, 0)], half), Some(vec![]));
        let two = [open(1, half, 61), open(2, half, 300)];
        assert_eq!(closed(&two, half), Some(vec![2]));
        assert_eq!(closed(&two, half + 1), Some(vec![2, 1]));
        assert_eq!(closed(&two, 2 * half + 1), None, "more than the bound");
        let used = [open(1, half, 59), open(2, half, 60)];
        assert_eq!(closed(&used, half), Some(vec![2]));
        assert_eq!(closed(&used, half + 1), None, "a preview in use stays");
    }

    #[test]
    fn a_wish_with_a_login_counts_for_both_clients() {
        let wanted = WantedPreviews::default();
        let name = |needs_login| PreviewName {
            release: [1; 32],
            needs_login,
        };
        for needs_login in [false, true, false] {
            wanted.push(name(needs_login));
        }
        assert_eq!(wanted.take(), [name(true)]);
        assert_eq!(wanted.take(), []);
    }
}
