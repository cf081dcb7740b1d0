//! Evaluation of conditional requests in the order of RFC 9110 §13.2.2, for GET and HEAD of existing
//! resources.

use wire::date::parse_http_date;
use wire::fields::{ETag, FieldValues, TagItem, entity_tags};
use wire::request_head::KnownFields;

/// Result of the preconditions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PreconditionResult {
    /// All conditions hold: respond as without conditions.
    Proceed,
    /// Respond with 304.
    NotModified,
    /// Respond with 412.
    Failed,
}

/// Date of a representation, in seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RepresentationDate {
    /// Value of Last-Modified.
    Modified(u64),
    /// Value of Date, for a response without Last-Modified.
    Sent(u64),
}

/// Evaluates all conditions except If-Range. `tag` is a strong entity tag with quotes; `modified` is in
/// seconds since 1970, and None without Last-Modified.
pub(crate) fn evaluate(
    asks: &KnownFields<'_>,
    tag: &[u8],
    modified: Option<u64>,
) -> PreconditionResult {
    evaluate_with(asks, Some(strong(tag)), || {
        modified.map(RepresentationDate::Modified)
    })
}

/// Evaluates the conditions for a representation with an optional, possibly weak entity tag and an optional
/// date. `modified` is called only if a condition needs the date.
///
/// If-Modified-Since must be exactly the Last-Modified of the representation. RFC 9110 §13.1.3 also takes a later date for
/// a match, but a file that goes back to an earlier version gets an earlier date, and has other bytes. A client sends
/// the Last-Modified that the client has received. A Date instead may be later than the date that a client knows
/// (RFC 9111 §4.3.2).
pub fn evaluate_with(
    asks: &KnownFields<'_>,
    tag: Option<ETag<'_>>,
    modified: impl Fn() -> Option<RepresentationDate>,
) -> PreconditionResult {
    let date = |value: Option<&[u8]>| value.and_then(parse_http_date);
    let is_after = |since: u64| {
        modified().is_some_and(|date| match date {
            RepresentationDate::Modified(date) | RepresentationDate::Sent(date) => date > since,
        })
    };
    let is_known = |since: u64| {
        modified().is_some_and(|date| match date {
            RepresentationDate::Modified(date) => date == since,
            RepresentationDate::Sent(date) => date <= since,
        })
    };
    if !asks.if_match.is_none() {
        if !any_of(&asks.if_match, tag, |asked, tag| asked.strong_eq(tag)) {
            return PreconditionResult::Failed;
        }
    } else if date(asks.if_unmodified_since).is_some_and(is_after) {
        return PreconditionResult::Failed;
    }
    if !asks.if_none_match.is_none() {
        if any_of(&asks.if_none_match, tag, |asked, tag| asked.weak_eq(tag)) {
            return PreconditionResult::NotModified;
        }
    } else if date(asks.if_modified_since).is_some_and(is_known) {
        return PreconditionResult::NotModified;
    }
    PreconditionResult::Proceed
}

fn any_of(
    values: &FieldValues<'_>,
    tag: Option<ETag<'_>>,
    equal: impl Fn(&ETag<'_>, &ETag<'_>) -> bool,
) -> bool {
    any_tag(values, |asked| tag.is_some_and(|tag| equal(asked, &tag)))
}

/// Returns true if If-Range permits a partial response: with a strong entity tag, or with exactly the date
/// of the last change (RFC 9110 §13.1.5).
pub(crate) fn range_applies(asks: &KnownFields<'_>, tag: &[u8], modified: Option<u64>) -> bool {
    range_applies_by(asks, Some(strong(tag)), modified)
}

/// Evaluates If-Range for a representation with an optional, possibly weak entity tag and an optional date.
pub(crate) fn range_applies_by(
    asks: &KnownFields<'_>,
    tag: Option<ETag<'_>>,
    modified: Option<u64>,
) -> bool {
    match asks.if_range {
        None => true,
        Some(value) => match ETag::parse(value) {
            Some(asked) => tag.is_some_and(|tag| asked.strong_eq(&tag)),
            None => modified.is_some() && parse_http_date(value) == modified,
        },
    }
}

/// Returns true if the value is `*` or at least one tag satisfies the predicate.
pub(crate) fn any_tag(values: &FieldValues<'_>, satisfies: impl Fn(&ETag<'_>) -> bool) -> bool {
    entity_tags(values).any(|item| match item {
        TagItem::Any => true,
        TagItem::Tag(tag) => satisfies(&tag),
    })
}

fn strong(opaque: &[u8]) -> ETag<'_> {
    ETag {
        weak: false,
        opaque,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &[u8] = b"Sun, 06 Nov 1994 08:49:36 GMT";
    const SAME: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";
    const NEW: &[u8] = b"Sun, 06 Nov 1994 08:49:38 GMT";

    /// Evaluates If-Match, If-Unmodified-Since, If-None-Match and If-Modified-Since; an empty value means
    /// no field.
    fn verdict(fields: [&'static [u8]; 4]) -> PreconditionResult {
        let list = |value: &'static [u8]| {
            if value.is_empty() {
                FieldValues::None
            } else {
                FieldValues::One(value)
            }
        };
        let one = |value: &'static [u8]| (!value.is_empty()).then_some(value);
        let asks = KnownFields {
            if_match: list(fields[0]),
            if_unmodified_since: one(fields[1]),
            if_none_match: list(fields[2]),
            if_modified_since: one(fields[3]),
            ..KnownFields::default()
        };
        evaluate(&asks, b"\"t\"", Some(784_111_777))
    }

    #[test]
    fn conditions_are_evaluated_in_the_order_of_rfc_9110() {
        use PreconditionResult::*;
        for (fields, expected) in [
            ([&b""[..], b"", b"", b""], Proceed),
            ([b"\"t\"", b"", b"", b""], Proceed),
            ([b"*", b"", b"", b""], Proceed),
            ([b"\"x\", \"t\"", b"", b"", b""], Proceed),
            ([b"W/\"t\"", b"", b"", b""], Failed),
            ([b"\"x\"", b"", b"\"t\"", b""], Failed),
            ([b"", OLD, b"", b""], Failed),
            ([b"", SAME, b"", b""], Proceed),
            ([b"", NEW, b"", b""], Proceed),
            ([b"", b"yesterday", b"", b""], Proceed),
            // If-Match overrides If-Unmodified-Since.
            ([b"\"t\"", OLD, b"", b""], Proceed),
            ([b"", b"", b"\"t\"", b""], NotModified),
            ([b"", b"", b"W/\"t\"", b""], NotModified),
            ([b"", b"", b"\"x\", W/\"t\"", b""], NotModified),
            ([b"", b"", b"*", b""], NotModified),
            ([b"", b"", b"\"x\"", b""], Proceed),
            ([b"", b"", b"", OLD], Proceed),
            ([b"", b"", b"", SAME], NotModified),
            // The file may have gone back to an earlier version.
            ([b"", b"", b"", NEW], Proceed),
            ([b"", b"", b"", b"nonsense"], Proceed),
            // If-None-Match overrides If-Modified-Since.
            ([b"", b"", b"\"x\"", SAME], Proceed),
            ([b"\"t\"", b"", b"\"t\"", b""], NotModified),
            ([b"", OLD, b"", NEW], Failed),
        ] {
            let shown = fields.map(String::from_utf8_lossy);
            assert_eq!(verdict(fields), expected, "{shown:?}");
        }
    }

    #[test]
    fn without_a_date_no_condition_by_date_holds() {
        let asks = KnownFields {
            if_modified_since: Some(b"Thu, 01 Jan 1970 00:00:00 GMT"),
            if_range: Some(b"Thu, 01 Jan 1970 00:00:00 GMT"),
            ..KnownFields::default()
        };
        let result = evaluate(&asks, b"\"t\"", None);
        assert_eq!(result, PreconditionResult::Proceed);
        assert!(!range_applies(&asks, b"\"t\"", None));
    }

    #[test]
    fn conditions_without_a_tag_or_with_a_weak_tag() {
        let weak = ETag::parse(b"W/\"t\"");
        let some = |value| KnownFields {
            if_none_match: FieldValues::One(value),
            ..KnownFields::default()
        };
        let none = || None;
        assert_eq!(
            evaluate_with(&some(b"\"t\""), weak, none),
            PreconditionResult::NotModified
        );
        assert_eq!(
            evaluate_with(&some(b"\"t\""), None, none),
            PreconditionResult::Proceed
        );
        assert_eq!(
            evaluate_with(&some(b"*"), None, none),
            PreconditionResult::NotModified
        );
        let matching = KnownFields {
            if_match: FieldValues::One(b"W/\"t\""),
            ..KnownFields::default()
        };
        assert_eq!(
            evaluate_with(&matching, weak, none),
            PreconditionResult::Failed
        );
        let since = KnownFields {
            if_modified_since: Some(SAME),
            ..KnownFields::default()
        };
        assert_eq!(
            evaluate_with(&since, None, none),
            PreconditionResult::Proceed
        );
        let dated = || Some(RepresentationDate::Modified(784_111_777));
        assert_eq!(
            evaluate_with(&since, None, dated),
            PreconditionResult::NotModified
        );
        // A page sent before the date of the client is the page of the client.
        for (sent, result) in [
            (784_111_776, PreconditionResult::NotModified),
            (784_111_778, PreconditionResult::Proceed),
        ] {
            let date = || Some(RepresentationDate::Sent(sent));
            assert_eq!(evaluate_with(&since, None, date), result, "{sent}");
        }
    }

    #[test]
    fn if_range_needs_a_strong_tag_or_the_exact_date() {
        for (value, applies) in [
            (&b"\"t\""[..], true),
            (b"W/\"t\"", false),
            (b"\"x\"", false),
            (SAME, true),
            (OLD, false),
            (NEW, false),
            (b"", false),
        ] {
            let asks = KnownFields {
                if_range: Some(value),
                ..KnownFields::default()
            };
            assert_eq!(range_applies(&asks, b"\"t\"", Some(784_111_777)), applies);
        }
    }
}
