//! Previews: releases of a site that are not served yet, each under a host name of its own, such as
//! `next.preview.example.org`.
//!
//! The first label of the name is a label in the store, or 16 to 63 hexadecimal digits of a release. A label can be
//! guessed, and needs a login. Only the control plane opens a release: a request for a closed preview notes the wish, and
//! waits for the next World. A World has a few open previews, so the memory is bounded.

use crate::limits::{
    PREVIEW_ID_DIGITS_MIN, PREVIEW_RETRY_MILLISECONDS, PREVIEW_STAY_SECONDS, PREVIEWS_BYTES_MAX,
    PREVIEWS_OPEN_MAX, PREVIEWS_WANTED_MAX,
};
use crate::site::Site;
use crate::tls::SiteIdentity;
use crate::world::users::Users;
use base::digest::hex;
use release::store::SiteRecords;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Previews of one site.
#[derive(Clone)]
pub struct Previews {
    /// Name in lower case: a wildcard for all releases, such as `*.preview.example.org`, or the name of one label, such as
    /// `next.example.org` for the label `next`.
    pub name: Box<str>,
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
    /// Time of the opening, by the same clocks.
    pub opened_ms: u64,
    /// Whether a client with a login opened the release.
    pub has_login: bool,
    /// Memory of the files and the rules, without loaded contents.
    pub bytes: usize,
}

/// Releases that requests want to be opened, at most [`PREVIEWS_WANTED_MAX`], in the order of the first requests.
#[derive(Default)]
pub struct WantedPreviews {
    names: Mutex<Vec<PreviewName>>,
    /// Time until which no preview without a login is opened, in milliseconds of the workers' clocks.
    closed_until_ms: AtomicU64,
}

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
    /// Notes a release for the control plane. Returns true if the control plane may open the release now.
    pub(crate) fn push(&self, name: PreviewName, now_ms: u64) -> bool {
        note(&mut self.names(), name);
        name.needs_login || now_ms >= self.closed_until_ms.load(Ordering::Relaxed)
    }

    /// Takes all noted releases.
    pub fn take(&self) -> Vec<PreviewName> {
        std::mem::take(&mut self.names())
    }

    /// Notes releases that find no room at present, in front of the releases that were requested since.
    pub fn put_back(&self, names: Vec<PreviewName>, now_ms: u64) {
        let until_ms = now_ms + PREVIEW_RETRY_MILLISECONDS;
        self.closed_until_ms.store(until_ms, Ordering::Relaxed);
        let mut wanted = self.names();
        let new = std::mem::replace(&mut *wanted, names);
        new.into_iter().for_each(|name| note(&mut wanted, name));
    }

    fn names(&self) -> MutexGuard<'_, Vec<PreviewName>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds a release to the wanted ones. A login takes the place of the last release without one.
fn note(wanted: &mut Vec<PreviewName>, name: PreviewName) {
    if let Some(known) = wanted.iter_mut().find(|it| it.release == name.release) {
        // One client has a login, and another one names the release by its digits.
        known.needs_login |= name.needs_login;
    } else if wanted.len() < PREVIEWS_WANTED_MAX {
        wanted.push(name);
    } else if let Some(last) = wanted.iter_mut().rfind(|it| !it.needs_login)
        && name.needs_login
    {
        *last = name;
    }
}

impl Previews {
    /// Returns the release for a host name; None for an unknown name. `has_login` is true if a login guards the whole
    /// site.
    pub(crate) fn find(&self, host: &[u8], has_login: bool) -> Option<PreviewName> {
        let host = host.strip_suffix(b".").unwrap_or(host);
        let (pattern, parent) = self.name.split_once('.')?;
        // The name of a host begins with the label and a dot.
        let label = &host[..host.len().checked_sub(parent.len() + 1)?];
        let mut labels = self.records.labels.iter();
        let labelled = labels.find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(label));
        if let Some((_, release)) = labelled {
            return has_login.then_some(PreviewName {
                release: *release,
                needs_login: true,
            });
        }
        let is_id = label.len() >= PREVIEW_ID_DIGITS_MIN && pattern == "*";
        if !is_id || (self.ids_need_login && !has_login) {
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

/// Open preview of a site, for the choice of previews to close.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PreviewAge {
    /// Number of the site.
    pub host: usize,
    /// SHA-256 of the manifest.
    pub release: [u8; 32],
    /// Memory of the preview; 0 for a preview that a login opened.
    pub bytes: usize,
    /// Milliseconds since the opening.
    pub open_ms: u64,
    /// Milliseconds since the last request.
    pub idle_ms: u64,
}

/// Reason for a preview that is not opened at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PreviewsFull {
    /// The site has [`PREVIEWS_OPEN_MAX`] new previews.
    Site,
    /// The previews without a login have [`PREVIEWS_BYTES_MAX`].
    Memory,
}

/// Returns the previews that give way to a preview of `bytes` of the site `host`, so that the site has at most
/// [`PREVIEWS_OPEN_MAX`], and all previews opened without a login have at most [`PREVIEWS_BYTES_MAX`]. The previews without
/// requests for the longest time come first, and new previews stay.
///
/// # Errors
/// The new previews leave no room.
pub fn make_room(
    open: &mut [PreviewAge],
    host: usize,
    bytes: usize,
) -> Result<Vec<PreviewAge>, PreviewsFull> {
    open.sort_unstable_by_key(|it| std::cmp::Reverse(it.idle_ms));
    let may_close = |it: &&PreviewAge| it.open_ms >= PREVIEW_STAY_SECONDS * 1_000;
    let mut closed = Vec::new();
    if open.iter().filter(|it| it.host == host).count() >= PREVIEWS_OPEN_MAX {
        let mut old = open.iter().filter(may_close);
        let place = old.find(|it| it.host == host);
        closed.push(*place.ok_or(PreviewsFull::Site)?);
    }
    let closed_bytes: usize = closed.iter().map(|it| it.bytes).sum();
    let mut total = open.iter().map(|it| it.bytes).sum::<usize>() + bytes - closed_bytes;
    for preview in open.iter().filter(may_close).filter(|it| it.bytes > 0) {
        if total > PREVIEWS_BYTES_MAX && !closed.contains(preview) {
            total -= preview.bytes;
            closed.push(*preview);
        }
    }
    if total <= PREVIEWS_BYTES_MAX {
        Ok(closed)
    } else {
        Err(PreviewsFull::Memory)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_name_stands_for_its_label_alone() {
        let mut records = SiteRecords::default();
        for (label, release) in [("Next", 1), ("other", 2)] {
            records.labels.insert(label.to_owned(), [release; 32]);
        }
        let digits = hex(&[1; 32]);
        let previews = |name: &str| Previews {
            name: name.into(),
            identity: SiteIdentity::none(),
            users: None,
            ids_need_login: false,
            records: Arc::new(records.clone()),
            open: Vec::new(),
            wanted: Arc::default(),
        };
        let find = |name: &str, host: &str, has_login: bool| {
            let found = previews(name).find(host.as_bytes(), has_login);
            found.map(|found| found.release[0])
        };
        assert_eq!(find("next.test", "NEXT.test.", true), Some(1));
        assert_eq!(find("next.test", "next.test", false), None);
        assert_eq!(find("missing.test", "missing.test", true), None);
        assert_eq!(find("*.test", "other.test", true), Some(2));
        // The digits of a release have a name only below a wildcard.
        let id = format!("{}.test", &digits[..16]);
        assert_eq!(find("*.test", &id, false), Some(1));
        assert_eq!(find(&id, &id, false), None);
    }

    fn open(host: usize, bytes: usize, open_seconds: u64, idle_seconds: u64) -> PreviewAge {
        PreviewAge {
            host,
            release: [idle_seconds as u8; 32],
            bytes,
            open_ms: open_seconds * 1_000,
            idle_ms: idle_seconds * 1_000,
        }
    }

    fn closed(previews: &[PreviewAge], bytes: usize) -> Result<Vec<usize>, PreviewsFull> {
        let closed = make_room(&mut previews.to_vec(), 9, bytes)?;
        Ok(closed.iter().map(|it| it.host).collect())
    }

    #[test]
    fn previews_without_requests_give_way_to_new_ones() {
        let half = PREVIEWS_BYTES_MAX / 2;
        assert_eq!(closed(&[], half), Ok(vec![]));
        assert_eq!(closed(&[open(1, half, 0, 0)], half), Ok(vec![]));
        let two = [open(1, half, 999, 61), open(2, half, 300, 300)];
        assert_eq!(closed(&two, half), Ok(vec![2]));
        assert_eq!(closed(&two, half + 1), Ok(vec![2, 1]));
        let full = Err(PreviewsFull::Memory);
        assert_eq!(closed(&two, 2 * half + 1), full, "more than the bound");
        let new = [
            open(1, half, 59, 59),
            open(2, half, 60, 0),
            open(3, 0, 70, 70),
        ];
        assert_eq!(closed(&new, half), Ok(vec![2]));
        assert_eq!(closed(&new, half + 1), full, "a new preview stays");
    }

    #[test]
    fn a_site_opens_no_more_than_four_previews_in_a_minute_without_a_login() {
        let mut previews = [59, 59, 30, 1].map(|seconds| open(9, 0, seconds, seconds));
        assert_eq!(closed(&previews, 1), Err(PreviewsFull::Site));
        let another = previews.map(|it| PreviewAge { host: 8, ..it });
        assert_eq!(closed(&another, 1), Ok(vec![]));
        // A preview in use gives way as well, so no client keeps the places of a site.
        previews[3] = open(9, 0, 60, 0);
        assert_eq!(closed(&previews, 1), Ok(vec![9]));
        previews[2] = open(9, 0, 90, 2);
        let given = make_room(&mut previews, 9, 1).expect("room");
        assert_eq!(
            given,
            [open(9, 0, 90, 2)],
            "the one without requests for longest"
        );
    }

    /// Returns the name of release `nth`.
    fn name(nth: u8, needs_login: bool) -> PreviewName {
        PreviewName {
            release: [nth; 32],
            needs_login,
        }
    }

    #[test]
    fn a_wish_with_a_login_counts_for_both_clients() {
        let wanted = WantedPreviews::default();
        for needs_login in [false, true, false] {
            assert!(wanted.push(name(1, needs_login), 0));
        }
        assert_eq!(wanted.take(), [name(1, true)]);
        assert_eq!(wanted.take(), []);
    }

    #[test]
    fn wishes_are_served_in_their_order_and_logins_at_once() {
        let wanted = WantedPreviews::default();
        assert!([1, 2].iter().all(|nth| wanted.push(name(*nth, false), 5)));
        wanted.put_back(wanted.take(), 5);
        let again = 5 + PREVIEW_RETRY_MILLISECONDS;
        // A client that repeats its request moves neither its release nor the releases of other clients.
        assert!(!wanted.push(name(3, false), again - 1) && !wanted.push(name(1, false), again - 1));
        assert!(wanted.push(name(1, false), again));
        assert_eq!(wanted.take(), [1, 2, 3].map(|nth| name(nth, false)));
        // All places of the queue are taken.
        let most = PREVIEWS_WANTED_MAX as u8;
        (0..most + 9).for_each(|nth| {
            wanted.push(name(nth, false), again);
        });
        wanted.put_back(wanted.take(), again);
        assert!(wanted.push(name(200, true), again), "a login does not wait");
        let names = wanted.take();
        assert_eq!(
            (names.len(), names[0]),
            (PREVIEWS_WANTED_MAX, name(0, false))
        );
        assert_eq!(names.last(), Some(&name(200, true)));
    }
}
