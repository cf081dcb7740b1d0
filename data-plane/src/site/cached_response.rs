//! Response from a page of the page cache, with its own preconditions and a single range (206, 304, 416).

use crate::site::preconditions::{
    PreconditionResult, RepresentationDate, evaluate_with, range_applies_by,
};
use crate::site::variant::Variant;
use crate::site::variant_response::{AgeAndLifetime, BodySelection, VariantResponse};
use std::sync::Arc;
use wire::date::parse_http_date;
use wire::fields::{ContentCoding, ETag};
use wire::range::{Ranges, parse_ranges};
use wire::request_head::{Method, RequestHead};
use wire::status::Status;

impl VariantResponse {
    /// Builds the response to a GET or HEAD. A request for several ranges gets the whole content, as RFC
    /// 9110 §14.2 allows.
    pub(crate) fn from_cache(
        variant: Arc<Variant>,
        head: &RequestHead<'_>,
        kept: AgeAndLifetime,
    ) -> VariantResponse {
        let (status, part) = answer(&variant, head);
        VariantResponse {
            age_and_lifetime: Some(kept),
            ..VariantResponse::new(status, variant, part)
        }
    }
}

fn answer(variant: &Variant, head: &RequestHead<'_>) -> (Status, BodySelection) {
    let own = variant.status;
    let whole = match head.method {
        Method::Head => BodySelection::Nothing,
        _ => BodySelection::Whole,
    };
    // Preconditions apply only if the response without conditions would be a success (RFC 9110 §13.2.1).
    if own != Status::OK {
        return (own, whole);
    }
    let asks = &head.known_fields;
    let tag = ETag::parse(variant.tag());
    let date = |name| parse_http_date(variant.heads.value(name)?);
    let modified = || date("Last-Modified");
    // If-Modified-Since is compared with Date if the response has no Last-Modified (RFC 9111 §4.3.2).
    // If-Unmodified-Since is not compared with Date, because Date may be later than the last change of the
    // content.
    let sent = || date("Date").filter(|_| asks.if_unmodified_since.is_none());
    let known = || {
        let modified = modified().map(RepresentationDate::Modified);
        modified.or_else(|| sent().map(RepresentationDate::Sent))
    };
    match evaluate_with(asks, tag, known) {
        PreconditionResult::Failed => return (Status::PRECONDITION_FAILED, BodySelection::Nothing),
        PreconditionResult::NotModified => return (Status::NOT_MODIFIED, BodySelection::Nothing),
        PreconditionResult::Proceed => {}
    }
    // Content compressed by the server is not sent in ranges, because the compressed bytes may differ each
    // time.
    let has_parts = head.method == Method::Get && variant.coding != ContentCoding::Gzip;
    let Some(range) = asks.range.filter(|_| has_parts) else {
        return (own, whole);
    };
    if asks.if_range.is_some() && !range_applies_by(asks, tag, modified()) {
        return (own, whole);
    }
    match parse_ranges(range, variant.size()) {
        Ranges::Unsatisfiable => (Status::RANGE_NOT_SATISFIABLE, BodySelection::Nothing),
        Ranges::Some(ranges) => match ranges[..] {
            [(start, last)] => {
                let end = last + 1;
                (Status::PARTIAL_CONTENT, BodySelection::One { start, end })
            }
            _ => (own, whole),
        },
        Ranges::Ignore => (own, whole),
    }
}
