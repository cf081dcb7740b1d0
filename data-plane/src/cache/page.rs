//! Stored responses: the content in a form ready for sending, with the storage terms and the selecting
//! request fields.

use super::key::{Audience, PresentedRequest, VaryFields};
use super::policy::{self, Freshness, StorageTerms};
use crate::handler::Response;
use crate::limits::{GZIP_FILE_BYTES_MAX, GZIP_FILE_BYTES_MIN};
use crate::site::{AgeAndLifetime, SERVER, Variant};
use arc_swap::ArcSwapOption;
use release::mime::compressible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use wire::date::format_imf;
use wire::fields::{AcceptedCodings, ContentCoding, ETag, items};
use wire::request_head::KnownFields;
use wire::response_fields::ResponseFields;
use wire::status::{Status, StatusLine};

/// A stored response. Times are milliseconds of the cache's clock.
pub(crate) struct CachedPage {
    /// The content and the head as sent to clients.
    pub variant: Arc<Variant>,
    /// The site, path and key of the page.
    pub place: Arc<CachedPageId>,
    /// The class of requests that may receive the page.
    pub kind: Audience,
    /// The request fields that select the page (RFC 9111 §4.1).
    pub varied: VaryFields,
    /// The lifetime and the other conditions of storage.
    pub terms: StorageTerms,
    /// The time at which the age of the page was 0. The time is negative for a page born before the clock's
    /// origin, such as a page loaded after a restart.
    pub born_ms: i64,
    /// True if the page is saved across restarts.
    pub disk: bool,
    /// The time before which the handler is not called again after a failure.
    pub spared_until_ms: AtomicU64,
    /// The gzip representation, absent until compression is done.
    gzip: ArcSwapOption<Variant>,
    /// True if compression was requested or is done.
    is_gzip_claimed: AtomicBool,
    /// True if the page may be sent compressed.
    is_text: bool,
    /// True if this server adds `Vary: Accept-Encoding` to the page.
    adds_vary: bool,
    /// The bytes of the variant in the cache's total, counted until the last reference is dropped.
    lease: Arc<CacheBytesReservation>,
}

/// The representation selected for a request.
pub(crate) struct VariantChoice {
    /// The selected representation.
    pub variant: Arc<Variant>,
    /// True if the client prefers gzip and no compression job was requested yet.
    pub wants_gzip: bool,
}

/// Bytes in the cache's total, subtracted on drop.
struct CacheBytesReservation {
    ledger: Arc<AtomicUsize>,
    bytes: AtomicUsize,
}

/// A variant's reference to the reservation of the variant's bytes.
struct PageBytesHold(
    #[allow(dead_code, reason = "the field is held for its drop only")] Arc<CacheBytesReservation>,
);

impl CacheBytesReservation {
    fn count(&self, bytes: usize) {
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        self.ledger
            .fetch_add(bytes - before.min(bytes), Ordering::Relaxed);
    }
}

impl Drop for CacheBytesReservation {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut();
        self.ledger.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The site, path and key of a page.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct CachedPageId {
    /// The first name of the site.
    pub site: Arc<str>,
    /// The decoded path, as routes compare paths. A purge selects pages by path.
    pub path: Box<[u8]>,
    /// The key of the URI; see [`super::key::CacheKey`].
    pub key: Box<[u8]>,
}

impl CachedPage {
    /// Creates a page from a complete response. `now` is Unix time in seconds.
    #[allow(
        clippy::too_many_arguments,
        reason = "each argument is a part of the page, and the only caller names the parts"
    )]
    pub(super) fn new(
        place: Arc<CachedPageId>,
        kind: Audience,
        varied: VaryFields,
        terms: StorageTerms,
        status: &StatusLine,
        fields: &ResponseFields,
        content: Box<[u8]>,
        disk: bool,
        now_ms: u64,
        now: u64,
        ledger: &Arc<AtomicUsize>,
    ) -> CachedPage {
        let lease = Arc::new(CacheBytesReservation {
            ledger: ledger.clone(),
            bytes: AtomicUsize::new(0),
        });
        let held = Box::new(PageBytesHold(lease.clone()));
        let is_text = !terms.is_plain && is_text(**status, &kind, fields, content.len());
        let adds_vary = !terms.is_plain && adds_vary(**status, &kind, fields, Some(content.len()));
        let variant = variant(status, fields, content, now, adds_vary, held);
        CachedPage {
            gzip: ArcSwapOption::empty(),
            is_gzip_claimed: AtomicBool::new(false),
            is_text,
            adds_vary,
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

    /// Adds the page to the cache's total until the last reference is dropped.
    pub(super) fn count(&self) {
        self.lease.count(self.weight());
    }

    /// Returns true if a representation of the page is being sent. Eviction of a page in use frees no
    /// memory.
    pub(crate) fn is_in_use(&self) -> bool {
        let made = self.gzip.load_full();
        // `made` holds one of the references.
        Arc::strong_count(&self.variant) > 1 || made.is_some_and(|it| Arc::strong_count(&it) > 2)
    }

    /// Selects the representation for a request. A range applies to the plain content. With an If-Range
    /// date, equal for both representations, the client's part may be from either representation, so the
    /// client gets a complete representation. `may_compress` is false if the
    /// compressed length must stay secret.
    pub(super) fn choose(&self, asks: &KnownFields<'_>, may_compress: bool) -> VariantChoice {
        let by_date = |value| ETag::parse(value).is_none();
        let is_part = asks.range.is_some() && !asks.if_range.is_some_and(by_date);
        let is_plain = !self.is_text || !may_compress || asks.accept_encoding.is_none() || is_part;
        if is_plain || !prefers_gzip(asks) {
            return VariantChoice {
                variant: self.variant.clone(),
                wants_gzip: false,
            };
        }
        match self.gzip.load_full() {
            Some(variant) => VariantChoice {
                variant,
                wants_gzip: false,
            },
            None => VariantChoice {
                variant: self.variant.clone(),
                // A load is cheaper than a swap.
                wants_gzip: !self.is_gzip_claimed.load(Ordering::Relaxed)
                    && !self.is_gzip_claimed.swap(true, Ordering::Relaxed),
            },
        }
    }

    /// Returns true if the page may be sent compressed.
    pub(super) fn is_text(&self) -> bool {
        self.is_text
    }

    /// Withdraws a request for compression, so that a later client may request compression again.
    pub(crate) fn release_gzip(&self) {
        self.is_gzip_claimed.store(false, Ordering::Relaxed);
    }

    /// Returns the gzip representation, if present.
    pub(super) fn gzip(&self) -> Option<Arc<Variant>> {
        self.gzip.load_full()
    }

    /// Creates the gzip representation from compressed content. The entity tag becomes weak: the handler
    /// knows only the tag of the plain content and may be asked to validate the tag (RFC 9110 §8.8.1).
    pub(crate) fn gzip_of(&self, content: Box<[u8]>) -> Variant {
        let length = content.len().to_string();
        let weak = |tag: &[u8]| {
            if tag.starts_with(b"W/") {
                tag.to_vec()
            } else {
                [b"W/", tag].concat()
            }
        };
        let is_of_plain = |name: &[u8]| {
            let of_plain = ["Content-Length", "Accept-Ranges"];
            of_plain
                .iter()
                .any(|its| name.eq_ignore_ascii_case(its.as_bytes()))
        };
        let own = self.variant.fields().filter(|(name, _)| !is_of_plain(name));
        let mut fields = ResponseFields::new();
        for (name, value) in own {
            if name.eq_ignore_ascii_case(b"ETag") {
                fields.push(name, &weak(value))
            } else {
                fields.push(name, value)
            }
        }
        fields.push(b"Content-Encoding", b"gzip");
        fields.push(b"Content-Length", length.as_bytes());
        let lease = Arc::new(CacheBytesReservation {
            ledger: self.lease.ledger.clone(),
            bytes: AtomicUsize::new(0),
        });
        let held = Box::new(PageBytesHold(lease.clone()));
        let variant =
            Variant::of_response(&self.variant.status_line(), fields.iter(), content, held);
        lease.count(variant.weight());
        variant.coded(ContentCoding::Gzip)
    }

    /// Stores the gzip representation for clients that prefer gzip.
    pub(crate) fn hang_gzip(&self, variant: Variant) {
        self.is_gzip_claimed.store(true, Ordering::Relaxed);
        self.gzip.store(Some(Arc::new(variant)));
    }

    /// Returns true if the page may answer the request.
    pub(super) fn suits(&self, asker: &PresentedRequest<'_>) -> bool {
        let is_allowed = if asker.authorized || asker.user.is_some() {
            self.terms.for_authorized
        } else {
            true
        };
        let kind = &self.kind;
        is_allowed
            && kind.secure == asker.secure
            && kind.user.as_deref() == asker.user
            && (self.terms.explicit || (kind.personal == asker.personal && !asker.personal))
            && self.varied.is(asker.fields)
    }

    /// Returns the age in seconds.
    pub(super) fn age(&self, now_ms: u64) -> u64 {
        (now_ms as i64 - self.born_ms).max(0) as u64 / 1_000
    }

    /// Returns the freshness of the page now.
    pub(crate) fn good_for(&self, now_ms: u64) -> Freshness {
        let good_for = self.terms.lifetime.at(self.age(now_ms));
        let is_spared = now_ms < self.spared_until_ms.load(Ordering::Relaxed);
        match good_for {
            // While the handler is not called after a failure, the page is used as during a revalidation.
            Freshness::IfError if is_spared => Freshness::WhileRevalidate,
            good_for => good_for,
        }
    }

    /// Records a failure of the handler: the handler is not called again before `until_ms`.
    pub(super) fn spare(&self, until_ms: u64) {
        self.spared_until_ms.store(until_ms, Ordering::Relaxed);
    }

    /// Returns true if the handler is not to be called yet after a failure.
    pub(crate) fn is_spared(&self, now_ms: u64) -> bool {
        now_ms < self.spared_until_ms.load(Ordering::Relaxed)
    }

    /// Returns the age and the remaining lifetime for the response fields.
    pub(super) fn kept(&self, now_ms: u64) -> AgeAndLifetime {
        let age_seconds = self.age(now_ms);
        let left = self.terms.lifetime.fresh as i64 - age_seconds as i64;
        AgeAndLifetime {
            age_seconds,
            // The time to live of a stale response is below zero, in the first stale second too (RFC 9211
            // §2.5).
            ttl_seconds: if left > 0 { left } else { left - 1 },
        }
    }

    /// Returns the memory use in bytes.
    pub(super) fn weight(&self) -> usize {
        let place = self.place.key.len() + self.place.path.len();
        let user = self.kind.user.as_ref().map_or(0, |user| user.len());
        // The key counts twice because the shard's table holds a copy.
        self.variant.weight()
            + size_of::<CachedPage>()
            + 2 * place
            + user
            + self.varied.weight()
            + 256
    }

    /// Returns the fields as sent by the handler.
    pub(super) fn fields(&self) -> ResponseFields {
        let is_operators =
            |name: &[u8], value: &[u8]| name == b"Server" && value != SERVER.as_bytes();
        let fields = self.field_lines();
        let fields = fields.filter(|(name, value)| !is_ours(name) || is_operators(name, value));
        fields.collect()
    }

    /// Appends the Vary field that this server adds to the page, if any.
    pub(crate) fn push_vary(&self, fields: &mut ResponseFields) {
        if self.adds_vary {
            push_our_vary(fields);
        }
    }

    /// Returns all fields of the head except the Vary field added by this server.
    pub(crate) fn field_lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let is_our_vary = |name: &[u8], value: &[u8]| {
            self.adds_vary && name.eq_ignore_ascii_case(b"Vary") && value == OUR_VARY.as_bytes()
        };
        let fields = self.variant.fields();
        fields.filter(move |(name, value)| !is_our_vary(name, value))
    }

    /// Returns the field lines of a conditional request, by which the handler may confirm the page.
    pub(super) fn conditions(&self) -> Vec<u8> {
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

    /// Returns the fields of the page after a 304 response of the handler (RFC 9111 §4.3.4). Names in Vary
    /// are only added: the content is unchanged, and a 304 response may name fewer fields.
    pub(crate) fn freshened(&self, response: &Response) -> ResponseFields {
        let mut fields = self.fields();
        let is_new = |name: &[u8]| {
            let mut new = response.fields.iter();
            new.any(|(its, _)| its.eq_ignore_ascii_case(name))
        };
        let is_vary = |name: &[u8]| name.eq_ignore_ascii_case(b"Vary");
        // A 304 without a Date field was made now, so the stored Date is dropped in any case.
        let is_old = |name: &[u8]| name.eq_ignore_ascii_case(b"Date") || is_new(name);
        fields.retain(|name, _| of_the_bytes(name) || is_vary(name) || !is_old(name));
        for (name, value) in &response.fields {
            let is_known = is_vary(name) && names_all(&fields, value);
            if !of_the_bytes(name) && !is_known {
                fields.push(name, value);
            }
        }
        fields
    }
}

fn variant(
    status: &StatusLine,
    fields: &ResponseFields,
    content: Box<[u8]>,
    now: u64,
    adds_vary: bool,
    held: Box<PageBytesHold>,
) -> Variant {
    let length = content.len().to_string();
    let made = format_imf(now);
    let is_dated = policy::values(fields, "Date").next().is_some();
    let made = (!is_dated).then_some((&b"Date"[..], &made[..]));
    let has_length = **status != Status::NO_CONTENT;
    // The Server field may be set by the operator.
    let server = policy::values(fields, "Server").next();
    let server = server.unwrap_or(SERVER.as_bytes());
    let first = Some((&b"Server"[..], server)).into_iter().chain(made);
    let last = has_length.then_some((&b"Content-Length"[..], length.as_bytes()));
    let theirs = fields.iter().filter(|(name, _)| !is_ours(name));
    let ours = adds_vary.then_some((&b"Vary"[..], OUR_VARY.as_bytes()));
    let all = first.chain(theirs).chain(ours).chain(last);
    Variant::of_response(status, all, content, held)
}

/// The request field that selects between plain and compressed content.
const OUR_VARY: &str = "Accept-Encoding";

/// Returns true if a response may be sent compressed. A page stored for one user is never compressed: the
/// compressed length would reveal secrets to an attacker able to place text beside the secrets (BREACH).
fn is_text(status: Status, kind: &Audience, fields: &ResponseFields, length: usize) -> bool {
    let has = |name| policy::values(fields, name).next().is_some();
    let in_range = (GZIP_FILE_BYTES_MIN..=GZIP_FILE_BYTES_MAX).contains(&(length as u64));
    let content_type = policy::values(fields, "Content-Type").next();
    let is_text = content_type.and_then(|value| std::str::from_utf8(value).ok());
    let mut control = policy::values(fields, "Cache-Control").flat_map(items);
    in_range
        && status == Status::OK
        && kind.user.is_none()
        && is_text.is_some_and(compressible)
        && !OF_THE_BYTES[3..].iter().any(|name| has(name))
        && !control.any(|directive| directive.eq_ignore_ascii_case(b"no-transform"))
}

/// Returns true for a field that describes the bytes of the content. A 304 response neither carries nor
/// changes such fields (RFC 9110 §15.4.5, RFC 9111 §3.2).
pub(crate) fn of_the_bytes(name: &[u8]) -> bool {
    OF_THE_BYTES
        .iter()
        .any(|its| its.as_bytes().eq_ignore_ascii_case(name))
}

/// Fields that describe the bytes of the content. The fourth and later fields forbid compression of the
/// content by this server.
const OF_THE_BYTES: [&str; 9] = [
    "Content-Type",
    "Content-Language",
    "Content-Length",
    "Content-Range",
    "Content-Encoding",
    "Content-MD5",
    "Digest",
    "Content-Digest",
    "Repr-Digest",
];

/// Returns true if this server must add `Vary: Accept-Encoding` to the page because the handler's response
/// lacks the name. `length` is the length of the content, if known.
pub(crate) fn adds_vary(
    status: Status,
    kind: &Audience,
    fields: &ResponseFields,
    length: Option<usize>,
) -> bool {
    let length = length.unwrap_or(GZIP_FILE_BYTES_MIN as usize);
    is_text(status, kind, fields, length) && !varies_by_coding(fields)
}

/// Appends the Vary field of a page that this server compresses.
pub(crate) fn push_our_vary(fields: &mut ResponseFields) {
    fields.push(b"Vary", OUR_VARY.as_bytes());
}

/// Returns true if `fields` already vary by all names in `value`.
fn names_all(fields: &ResponseFields, value: &[u8]) -> bool {
    let is_named = |name: &[u8]| policy::varied(fields).any(|its| its.eq_ignore_ascii_case(name));
    items(value).all(is_named)
}

fn varies_by_coding(fields: &ResponseFields) -> bool {
    let mut names = policy::varied(fields);
    names.any(|name| name.eq_ignore_ascii_case(OUR_VARY.as_bytes()))
}

fn prefers_gzip(asks: &KnownFields<'_>) -> bool {
    let mut available = [false; 4];
    available[ContentCoding::Identity as usize] = true;
    available[ContentCoding::Gzip as usize] = true;
    AcceptedCodings::from_values(&asks.accept_encoding).choose(&available) == ContentCoding::Gzip
}

/// Returns true for a field that is written anew for each response or belongs to one connection.
fn is_ours(name: &[u8]) -> bool {
    [
        "Server",
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
