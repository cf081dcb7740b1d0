//! A kept response: ready to be sent as a stored page is, and what has to be known to do so.

use super::key::{Audience, PresentedRequest, VaryFields};
use super::policy::{self, Freshness, Lifetime, StorageTerms};
use crate::handler::Response;
use crate::limits::{GZIP_FILE_BYTES_MAX, GZIP_FILE_BYTES_MIN};
use crate::site::mime::compressible;
use crate::site::{AgeAndLifetime, SERVER, Variant};
use crate::wire::date::format_imf;
use crate::wire::fields::{AcceptedCodings, ContentCoding, ETag, items};
use crate::wire::request_head::KnownFields;
use crate::wire::response_fields::ResponseFields;
use crate::wire::status::{Status, StatusLine};
use arc_swap::ArcSwapOption;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// A response in the ledger. Times are milliseconds of the ledger's clock.
pub struct CachedPage {
    /// What is sent.
    pub variant: Arc<Variant>,
    /// Where it stands.
    pub place: Arc<CachedPageId>,
    /// Who it is for.
    pub kind: Audience,
    /// The request's fields that it depends on.
    pub varied: VaryFields,
    /// On which terms it is kept.
    pub terms: StorageTerms,
    /// When it was of age 0; before the clock's beginning for what was kept over a restart.
    pub born_ms: i64,
    /// Kept over a restart.
    pub disk: bool,
    /// Its handler failed: it isn't asked again before then.
    pub spared_until_ms: AtomicU64,
    /// The same compressed, once that is made.
    gzip: ArcSwapOption<Variant>,
    /// Somebody has asked for that.
    is_gzip_claimed: AtomicBool,
    /// It may be sent compressed, and says so.
    is_text: bool,
    /// Of its Vary, `Accept-Encoding` is our word.
    adds_vary: bool,
    /// What its variant counts in the ledger, as long as anybody has it.
    lease: Arc<CacheBytesReservation>,
}

/// What is sent to somebody.
pub struct VariantChoice {
    /// This.
    pub variant: Arc<Variant>,
    /// The compressed one would be welcome, and nobody makes it yet.
    pub wants_gzip: bool,
}

/// Bytes of a ledger, given back at the end.
struct CacheBytesReservation {
    ledger: Arc<AtomicUsize>,
    bytes: AtomicUsize,
}

/// The variant's hold of it.
struct PageBytesHold(
    #[allow(dead_code, reason = "it is there to be dropped")] Arc<CacheBytesReservation>,
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

/// What of a site a page is of.
#[derive(PartialEq, Eq, Debug)]
pub struct CachedPageId {
    /// The site's first name.
    pub site: Arc<str>,
    /// Decoded, as a route compares it; what is purged by.
    pub path: Box<[u8]>,
    /// See [`super::key::Key`].
    pub key: Box<[u8]>,
}

impl CachedPage {
    /// Of a whole response. `now` is Unix time in seconds.
    #[allow(
        clippy::too_many_arguments,
        reason = "the parts of a page, named at its one call"
    )]
    pub fn new(
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
        let is_text = is_text(**status, &kind, fields, content.len());
        let adds_vary = adds_vary(**status, &kind, fields, Some(content.len()));
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

    /// From now on it counts in the ledger, until nobody has it any more.
    pub fn count(&self) {
        self.lease.count(self.weight());
    }

    /// Is somebody sending it? Then to forget it frees nothing.
    pub fn is_in_use(&self) -> bool {
        let made = self.gzip.load_full();
        // One of them is ours here.
        Arc::strong_count(&self.variant) > 1 || made.is_some_and(|it| Arc::strong_count(&it) > 2)
    }

    /// What is sent to who asks so. A range is of the plain bytes; who has a part from then on (If-Range
    /// by date, which is the same for both) may have it of the others, and gets the whole.
    pub fn choose(&self, asks: &KnownFields<'_>) -> VariantChoice {
        let by_date = |value| ETag::parse(value).is_none();
        let is_part = asks.range.is_some() && !asks.if_range.is_some_and(by_date);
        let is_plain = !self.is_text || asks.accept_encoding.is_none() || is_part;
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
                // The cheap look first.
                wants_gzip: !self.is_gzip_claimed.load(Ordering::Relaxed)
                    && !self.is_gzip_claimed.swap(true, Ordering::Relaxed),
            },
        }
    }

    /// May it be sent compressed?
    pub fn is_text(&self) -> bool {
        self.is_text
    }

    /// It isn't made after all: somebody may ask for it again.
    pub fn release_gzip(&self) {
        self.is_gzip_claimed.store(false, Ordering::Relaxed);
    }

    /// The compressed content, if it is there.
    pub fn gzip(&self) -> Option<Arc<Variant>> {
        self.gzip.load_full()
    }

    /// A variant of this content, which is its own compressed. It has a weak tag: the handler, which
    /// may be asked about it, knows its own tag alone (RFC 9110 §8.8.1).
    pub fn gzip_of(&self, content: Box<[u8]>) -> Variant {
        let length = content.len().to_string();
        let weak = |tag: &[u8]| match tag.starts_with(b"W/") {
            true => tag.to_vec(),
            false => [b"W/", tag].concat(),
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
            match name.eq_ignore_ascii_case(b"ETag") {
                true => fields.push(name, &weak(value)),
                false => fields.push(name, value),
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

    /// From now on this is sent to who wants it compressed.
    pub fn hang_gzip(&self, variant: Variant) {
        self.is_gzip_claimed.store(true, Ordering::Relaxed);
        self.gzip.store(Some(Arc::new(variant)));
    }

    /// May whoever asks have it?
    pub fn suits(&self, asker: &PresentedRequest<'_>) -> bool {
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
    pub fn good_for(&self, now_ms: u64) -> Freshness {
        let good_for = self.terms.lifetime.at(self.age(now_ms));
        let is_spared = now_ms < self.spared_until_ms.load(Ordering::Relaxed);
        match good_for {
            // While its handler fails, it is as good as one that is being made anew.
            Freshness::IfError if is_spared => Freshness::WhileRevalidate,
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
    pub fn kept(&self, now_ms: u64) -> AgeAndLifetime {
        let age_seconds = self.age(now_ms);
        let left = self.terms.lifetime.fresh as i64 - age_seconds as i64;
        AgeAndLifetime {
            age_seconds,
            // A stale one has less than none, in its first second too (RFC 9211 §2.5).
            ttl_seconds: if left > 0 { left } else { left - 1 },
        }
    }

    /// Bytes in memory.
    pub fn weight(&self) -> usize {
        let place = self.place.key.len() + self.place.path.len();
        let user = self.kind.user.as_ref().map_or(0, |user| user.len());
        // Twice the key: the table has it too.
        self.variant.weight()
            + size_of::<CachedPage>()
            + 2 * place
            + user
            + self.varied.weight()
            + 256
    }

    /// Its fields as its handler gave them.
    pub fn fields(&self) -> ResponseFields {
        let is_operators =
            |name: &[u8], value: &[u8]| name == b"Server" && value != SERVER.as_bytes();
        let fields = self.field_lines();
        let fields = fields.filter(|(name, value)| !is_ours(name) || is_operators(name, value));
        fields.collect()
    }

    /// Appends the Vary field that this server adds, if it adds one.
    pub fn push_vary(&self, fields: &mut ResponseFields) {
        if self.adds_vary {
            push_our_vary(fields);
        }
    }

    /// All fields of its head, but for what is added to them each time anew.
    pub fn field_lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let is_our_vary = |name: &[u8], value: &[u8]| {
            self.adds_vary && name.eq_ignore_ascii_case(b"Vary") && value == OUR_VARY.as_bytes()
        };
        let fields = self.variant.fields();
        fields.filter(move |(name, value)| !is_our_vary(name, value))
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

    /// Its handler said 304 (RFC 9111 §4.3.4): the fields that hold from now on. What the page depends
    /// on only adds up: the content is that of then, and a 304 may name less than there is.
    pub fn freshened(&self, response: &Response) -> ResponseFields {
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
    // The operator may have said that it is another.
    let server = policy::values(fields, "Server").next();
    let server = server.unwrap_or(SERVER.as_bytes());
    let first = Some((&b"Server"[..], server)).into_iter().chain(made);
    let last = has_length.then_some((&b"Content-Length"[..], length.as_bytes()));
    let theirs = fields.iter().filter(|(name, _)| !is_ours(name));
    let ours = adds_vary.then_some((&b"Vary"[..], OUR_VARY.as_bytes()));
    let all = first.chain(theirs).chain(ours).chain(last);
    Variant::of_response(status, all, content, held)
}

/// What a response depends on that is compressed here.
const OUR_VARY: &str = "Accept-Encoding";

/// May this be sent compressed? What is kept for one user isn't: its length would tell of secrets to
/// who can have a word of theirs put beside them (BREACH).
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
pub fn of_the_bytes(name: &[u8]) -> bool {
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

/// Does a page of this depend on the coding that is asked for, though its handler doesn't say so? With
/// the length of its content, if that is known.
pub fn adds_vary(
    status: Status,
    kind: &Audience,
    fields: &ResponseFields,
    length: Option<usize>,
) -> bool {
    let length = length.unwrap_or(GZIP_FILE_BYTES_MIN as usize);
    is_text(status, kind, fields, length) && !varies_by_coding(fields)
}

/// Appends the Vary field of a page that this server compresses.
pub fn push_our_vary(fields: &mut ResponseFields) {
    fields.push(b"Vary", OUR_VARY.as_bytes());
}

/// Does what `fields` vary by have all that is in `value`?
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

/// Fields that are said anew each time, or that belong to one connection.
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

impl Lifetime {
    /// Is there nothing more that it could be good for at this age?
    pub fn is_over(&self, age: u64) -> bool {
        age >= self.end()
    }
}
