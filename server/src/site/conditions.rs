//! Conditional requests in the order of RFC 9110 §13.2.2, for GET and HEAD of what exists.

use crate::wire::date::parse_http_date;
use crate::wire::fields::{ETag, TagItem, Values, entity_tags};
use crate::wire::head::Asks;

/// What the conditions say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Answer as if there were none.
    Proceed,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

/// Judges all conditions but If-Range. `tag` is strong, with its quotes; `modified` in seconds.
pub fn judge(asks: &Asks<'_>, tag: &[u8], modified: u64) -> Verdict {
    let date = |value: Option<&[u8]>| value.and_then(parse_http_date);
    if !asks.if_match.is_none() {
        if !any_tag(&asks.if_match, |asked| asked.strong_eq(&strong(tag))) {
            return Verdict::Failed;
        }
    } else if date(asks.if_unmodified_since).is_some_and(|since| modified > since) {
        return Verdict::Failed;
    }
    if !asks.if_none_match.is_none() {
        if any_tag(&asks.if_none_match, |asked| asked.weak_eq(&strong(tag))) {
            return Verdict::NotModified;
        }
    } else if date(asks.if_modified_since).is_some_and(|since| modified <= since) {
        return Verdict::NotModified;
    }
    Verdict::Proceed
}

/// Does If-Range let the range be answered? By a strong tag, or by the very date (RFC 9110 §13.1.5).
pub fn range_applies(asks: &Asks<'_>, tag: &[u8], modified: u64) -> bool {
    match asks.if_range {
        None => true,
        Some(value) => match ETag::parse(value) {
            Some(asked) => asked.strong_eq(&strong(tag)),
            None => parse_http_date(value) == Some(modified),
        },
    }
}

/// Is it `*`, or does one of the tags satisfy?
pub fn any_tag(values: &Values<'_>, satisfies: impl Fn(&ETag<'_>) -> bool) -> bool {
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

    /// If-Match, If-Unmodified-Since, If-None-Match, If-Modified-Since; empty is absent.
    fn verdict(fields: [&'static [u8]; 4]) -> Verdict {
        let list = |value: &'static [u8]| {
            if value.is_empty() {
                Values::None
            } else {
                Values::One(value)
            }
        };
        let one = |value: &'static [u8]| (!value.is_empty()).then_some(value);
        let asks = Asks {
            if_match: list(fields[0]),
            if_unmodified_since: one(fields[1]),
            if_none_match: list(fields[2]),
            if_modified_since: one(fields[3]),
            ..Asks::default()
        };
        judge(&asks, b"\"t\"", 784_111_777)
    }

    #[test]
    fn conditions_in_their_order() {
        use Verdict::*;
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
            // If-Match makes If-Unmodified-Since void.
            ([b"\"t\"", OLD, b"", b""], Proceed),
            ([b"", b"", b"\"t\"", b""], NotModified),
            ([b"", b"", b"W/\"t\"", b""], NotModified),
            ([b"", b"", b"\"x\", W/\"t\"", b""], NotModified),
            ([b"", b"", b"*", b""], NotModified),
            ([b"", b"", b"\"x\"", b""], Proceed),
            ([b"", b"", b"", OLD], Proceed),
            ([b"", b"", b"", SAME], NotModified),
            ([b"", b"", b"", NEW], NotModified),
            ([b"", b"", b"", b"nonsense"], Proceed),
            // If-None-Match makes If-Modified-Since void.
            ([b"", b"", b"\"x\"", SAME], Proceed),
            ([b"\"t\"", b"", b"\"t\"", b""], NotModified),
            ([b"", OLD, b"", NEW], Failed),
        ] {
            let shown = fields.map(String::from_utf8_lossy);
            assert_eq!(verdict(fields), expected, "{shown:?}");
        }
    }

    #[test]
    fn if_range() {
        for (value, applies) in [
            (&b"\"t\""[..], true),
            (b"W/\"t\"", false),
            (b"\"x\"", false),
            (SAME, true),
            (OLD, false),
            (NEW, false),
            (b"", false),
        ] {
            let asks = Asks {
                if_range: Some(value),
                ..Asks::default()
            };
            assert_eq!(range_applies(&asks, b"\"t\"", 784_111_777), applies);
        }
    }
}
