//! A kept response: ready to be sent as a stored page is, and what has to be known to do so.

use super::key::{Asker, Kind, Varied};
use super::policy::{self, Fields, Lifetime, Terms, Use};
use crate::handler::Response;
use crate::site::{Kept, Variant};
use crate::wire::date::format_imf;
use crate::wire::status::Status;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A response in the ledger. Times are milliseconds of the ledger's clock.
pub struct Page {
    /// What is sent.
    pub variant: Arc<Variant>,
    /// Where it stands.
    pub place: Arc<Place>,
    /// Who it is for.
    pub kind: Kind,
    /// The request's fields that it depends on.
    pub varied: Varied,
    /// On which terms it is kept.
    pub terms: Terms,
    /// When it was of age 0; before the clock's beginning for what was kept over a restart.
    pub born_ms: i64,
    /// Kept over a restart.
    pub disk: bool,
    /// Its handler failed: it isn't asked again before then.
    pub spared_until_ms: AtomicU64,
    /// What its variant counts in the ledger, as long as anybody has it.
    lease: Arc<Lease>,
}

/// Bytes of a ledger, given back at the end.
struct Lease {
    ledger: Arc<AtomicUsize>,
    bytes: AtomicUsize,
}

/// The variant's hold of it.
struct Held(#[allow(dead_code, reason = "it is there to be dropped")] Arc<Lease>);

impl Drop for Lease {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut();
        self.ledger.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What of a site a page is of.
#[derive(PartialEq, Eq, Debug)]
pub struct Place {
    /// The site's first name.
    pub site: Arc<str>,
    /// Decoded, as a route compares it; what is purged by.
    pub path: Box<[u8]>,
    /// See [`super::key::Key`].
    pub key: Box<[u8]>,
}

impl Page {
    /// Of a whole response. `now` is Unix time in seconds.
    #[allow(
        clippy::too_many_arguments,
        reason = "the parts of a page, named at its one call"
    )]
    pub fn new(
        place: Arc<Place>,
        kind: Kind,
        varied: Varied,
        terms: Terms,
        status: Status,
        fields: &Fields,
        content: Box<[u8]>,
        disk: bool,
        now_ms: u64,
        now: u64,
        ledger: &Arc<AtomicUsize>,
    ) -> Page {
        let lease = Arc::new(Lease {
            ledger: ledger.clone(),
            bytes: AtomicUsize::new(0),
        });
        let held = Box::new(Held(lease.clone()));
        let variant = variant(status, fields, content, now, held);
        Page {
            variant: Arc::new(variant),
            place,
            kind,
            varied,
            terms,
            born_ms: now_ms as i64 - terms.age as i64 * 1_000,
            disk,
            spared_until_ms: AtomicU64::new(0),
            lease,
        }
    }

    /// From now on it counts in the ledger, until nobody has it any more.
    pub fn count(&self) {
        let bytes = self.weight();
        let before = self.lease.bytes.swap(bytes, Ordering::Relaxed);
        self.lease
            .ledger
            .fetch_add(bytes - before.min(bytes), Ordering::Relaxed);
    }

    /// Is somebody sending it? Then to forget it frees nothing.
    pub fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.variant) > 1
    }

    /// May whoever asks have it?
    pub fn suits(&self, asker: &Asker<'_>) -> bool {
        let is_allowed = match asker.authorized || asker.user.is_some() {
            true => self.terms.for_authorized,
            false => true,
        };
        let kind = &self.kind;
        is_allowed
            && kind.secure == asker.secure
            && kind.user.as_deref() == asker.user
            && (self.terms.explicit || (kind.personal == asker.personal && !asker.personal))
            && self.varied.is(asker.fields)
    }

    /// Seconds since it was made.
    pub fn age(&self, now_ms: u64) -> u64 {
        (now_ms as i64 - self.born_ms).max(0) as u64 / 1_000
    }

    /// What it is good for now.
    pub fn good_for(&self, now_ms: u64) -> Use {
        let good_for = self.terms.lifetime.at(self.age(now_ms));
        let is_spared = now_ms < self.spared_until_ms.load(Ordering::Relaxed);
        match good_for {
            // While its handler fails, it is as good as one that is being made anew.
            Use::IfError if is_spared => Use::WhileRevalidate,
            good_for => good_for,
        }
    }

    /// Its handler failed just now, and is asked again a little later.
    pub fn spare(&self, until_ms: u64) {
        self.spared_until_ms.store(until_ms, Ordering::Relaxed);
    }

    /// Is its handler not to be asked just now?
    pub fn is_spared(&self, now_ms: u64) -> bool {
        now_ms < self.spared_until_ms.load(Ordering::Relaxed)
    }

    /// What it says of itself now.
    pub fn kept(&self, now_ms: u64) -> Kept {
        let age_seconds = self.age(now_ms);
        let fresh = self.terms.lifetime.fresh;
        Kept {
            age_seconds,
            ttl_seconds: fresh as i64 - age_seconds as i64,
        }
    }

    /// Bytes in memory.
    pub fn weight(&self) -> usize {
        let place = self.place.key.len() + self.place.path.len();
        let user = self.kind.user.as_ref().map_or(0, |user| user.len());
        // Twice the key: the table has it too.
        self.variant.weight() + size_of::<Page>() + 2 * place + user + self.varied.weight() + 256
    }

    /// Its fields as its handler gave them.
    pub fn fields(&self) -> Vec<(Cow<'static, str>, Vec<u8>)> {
        let fields = self.variant.fields().filter(|(name, _)| !is_ours(name));
        let owned = |(name, value): (&[u8], &[u8])| {
            let name = String::from_utf8_lossy(name).into_owned();
            (Cow::Owned(name), value.to_vec())
        };
        fields.map(owned).collect()
    }

    /// The fields that a request carries by which its handler may say that nothing changed.
    pub fn conditions(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        for (name, value) in self.variant.fields() {
            let condition = match () {
                () if name.eq_ignore_ascii_case(b"ETag") => "If-None-Match",
                () if name.eq_ignore_ascii_case(b"Last-Modified") => "If-Modified-Since",
                () => continue,
            };
            lines.extend_from_slice(condition.as_bytes());
            lines.extend_from_slice(b": ");
            lines.extend_from_slice(value);
            lines.extend_from_slice(b"\r\n");
        }
        lines
    }

    /// Its handler said 304 (RFC 9111 §4.3.4): the status and fields that hold from now on.
    pub fn freshened(&self, response: &Response) -> Vec<(Cow<'static, str>, Vec<u8>)> {
        let mut fields = self.fields();
        let is_new = |name: &str| {
            let mut new = response.fields.iter();
            new.any(|(its, _)| its.eq_ignore_ascii_case(name))
        };
        let of_the_content = |name: &str| name.to_ascii_lowercase().starts_with("content-");
        fields.retain(|(name, _)| of_the_content(name) || !is_new(name));
        let new = response.fields.iter();
        fields.extend(new.filter(|(name, _)| !of_the_content(name)).cloned());
        fields
    }
}

fn variant(
    status: Status,
    fields: &Fields,
    content: Box<[u8]>,
    now: u64,
    held: Box<Held>,
) -> Variant {
    let length = content.len().to_string();
    let made = policy::values(fields, "Date").next();
    let made = made.map_or_else(|| format_imf(now).to_vec(), <[u8]>::to_vec);
    let has_length = status != Status::NO_CONTENT;
    let first: [(&str, &[u8]); 2] = [("Server", b"anthill"), ("Date", &made)];
    let last = has_length.then_some(("Content-Length", length.as_bytes()));
    let theirs = fields
        .iter()
        .map(|(name, value)| (&**name, value.as_slice()))
        .filter(|(name, _)| !is_ours(name.as_bytes()));
    let all = first.into_iter().chain(theirs).chain(last);
    Variant::of_response(status, all, content, held)
}

/// Fields that are said anew each time, or that belong to one connection.
fn is_ours(name: &[u8]) -> bool {
    [
        "Server",
        "Date",
        "Age",
        "Cache-Status",
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Keep-Alive",
        "Trailer",
        "Upgrade",
    ]
    .iter()
    .any(|ours| name.eq_ignore_ascii_case(ours.as_bytes()))
}

impl Lifetime {
    /// Is there nothing more that it could be good for at this age?
    pub fn is_over(&self, age: u64) -> bool {
        age >= self.end()
    }
}
