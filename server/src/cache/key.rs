//! Under what a response is kept: the target URI as it was asked for, and beside it what else tells
//! one answer from another.
//!
//! Host is part of it as it was sent, with its port, for a handler may write it into its page: else
//! whoever asks with a strange one would decide what everybody reads.

use super::policy::{self, varied};
use crate::wire::effective_host;
use crate::wire::fields::{Fields, items};
use crate::wire::request_head::RequestHead;
use crate::wire::response_fields::ResponseFields;

/// The bytes that stand for one URI of one route; built without allocating where it is short.
pub struct CacheKey {
    short: [u8; SHORT_BYTES],
    length: usize,
    long: Vec<u8>,
}

/// Longer ones are rare.
const SHORT_BYTES: usize = 256;

impl CacheKey {
    /// Of a request to the route with this number.
    pub fn of(route: u64, head: &RequestHead<'_>) -> CacheKey {
        CacheKey::new(
            route,
            effective_host(head.fields, head.host),
            head.raw_path,
            head.query,
        )
    }

    /// Of its parts, each as it was sent.
    pub fn new(route: u64, host: &[u8], raw_path: &[u8], query: Option<&[u8]>) -> CacheKey {
        let mut key = CacheKey {
            short: [0; SHORT_BYTES],
            length: 0,
            long: Vec::new(),
        };
        key.push(&route.to_le_bytes());
        for part in [host, raw_path] {
            key.push(&(part.len() as u32).to_le_bytes());
            key.push(part);
        }
        if let Some(query) = query {
            key.push(b"?");
            key.push(query);
        }
        key
    }

    fn push(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        if self.long.is_empty() && end <= SHORT_BYTES {
            self.short[self.length..end].copy_from_slice(bytes);
        } else {
            if self.long.is_empty() {
                self.long.extend_from_slice(&self.short[..self.length]);
            }
            self.long.extend_from_slice(bytes);
        }
        self.length = end;
    }

    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        match self.long.is_empty() {
            true => &self.short[..self.length],
            false => &self.long,
        }
    }
}

/// Who asks, as far as the answer may depend on it.
#[derive(Copy, Clone)]
pub struct PresentedRequest<'a> {
    /// What the request says.
    pub fields: Fields<'a>,
    /// Over TLS.
    pub secure: bool,
    /// Who logged in here; what one gets, no other does.
    pub user: Option<&'a str>,
    /// It has Authorization that isn't ours.
    pub authorized: bool,
    /// It has a Cookie that the answer may depend on.
    pub personal: bool,
}

impl PresentedRequest<'_> {
    /// What a verdict depends on.
    pub fn asked(&self) -> policy::RequestFacts {
        policy::RequestFacts {
            authorized: self.authorized || self.user.is_some(),
            personal: self.personal,
        }
    }

    /// The same, to be compared later.
    pub fn kind(&self) -> Audience {
        Audience {
            secure: self.secure,
            user: self.user.map(Into::into),
            personal: self.personal,
            authorized: self.authorized,
        }
    }
}

/// What tells requests for one URI apart, but for their fields.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Audience {
    /// Over TLS.
    pub secure: bool,
    /// Who logged in.
    pub user: Option<Box<str>>,
    /// With a Cookie.
    pub personal: bool,
    /// The request has an Authorization field that the handler judges. A page that may be stored from
    /// such a request is for all clients.
    pub authorized: bool,
}

impl Audience {
    /// Is it exactly this?
    pub fn is(&self, asker: &PresentedRequest<'_>) -> bool {
        self.secure == asker.secure
            && self.user.as_deref() == asker.user
            && self.personal == asker.personal
            && self.authorized == asker.authorized
    }
}

/// The fields of a request that an answer depends on, and what they said (RFC 9111 §4.1).
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct VaryFields(Vec<VaryField>);

/// A field's name, and what it said if it was there.
pub type VaryField = (Box<str>, Option<Box<[u8]>>);

impl VaryFields {
    /// What Vary of the response names, as the request had it.
    pub fn of(response: &ResponseFields, request: Fields<'_>) -> VaryFields {
        let names = varied(response).filter_map(|name| std::str::from_utf8(name).ok());
        VaryFields::by(names, request)
    }

    /// The same names, as another request has them.
    pub fn again(&self, request: Fields<'_>) -> VaryFields {
        VaryFields::by(self.0.iter().map(|(name, _)| &**name), request)
    }

    fn by<'n>(names: impl Iterator<Item = &'n str>, request: Fields<'_>) -> VaryFields {
        let value = |name| joined(request, name).map(Into::into);
        VaryFields(names.map(|name| (name.into(), value(name))).collect())
    }

    /// From its parts.
    pub fn from_parts(parts: Vec<VaryField>) -> VaryFields {
        VaryFields(parts)
    }

    /// Its parts.
    pub fn parts(&self) -> &[VaryField] {
        &self.0
    }

    /// Does this request say the same?
    pub fn is(&self, request: Fields<'_>) -> bool {
        self.0.iter().all(|(name, value)| {
            let mut lines = request.all(name);
            match (lines.next(), value) {
                (None, None) => true,
                (Some(line), Some(value)) if lines.next().is_none() => is_same(name, line, value),
                (Some(_), Some(value)) => {
                    joined(request, name).is_some_and(|line| is_same(name, &line, value))
                }
                _ => false,
            }
        })
    }

    /// Bytes in memory.
    pub fn weight(&self) -> usize {
        let part = |(name, value): &VaryField| {
            name.len() + value.as_ref().map_or(0, |value| value.len()) + 48
        };
        self.0.iter().map(part).sum()
    }
}

/// Whether two values of a field mean the same. The members of Accept-Language, Accept-Encoding and
/// Accept-Charset match in any case, with any white space between them (RFC 9111 §4.1).
fn is_same(name: &str, one: &[u8], other: &[u8]) -> bool {
    let is_list = |name: &[u8]| name.eq_ignore_ascii_case(b"accept-");
    let lower = |value| items(value).flat_map(|item| [b",", item].concat().to_ascii_lowercase());
    one == other || (name.as_bytes().get(..7).is_some_and(is_list) && lower(one).eq(lower(other)))
}

/// Several lines are one list (RFC 9110 §5.3).
fn joined(fields: Fields<'_>, name: &str) -> Option<Vec<u8>> {
    let lines: Vec<&[u8]> = fields.all(name).collect();
    (!lines.is_empty()).then(|| lines.join(&b", "[..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_uri_one_key() {
        let key = |host: &str, path: &str, query: Option<&str>| {
            let query = query.map(str::as_bytes);
            CacheKey::new(7, host.as_bytes(), path.as_bytes(), query)
                .bytes()
                .to_vec()
        };
        let long = "x".repeat(300);
        let all = [
            key("a", "/b", None),
            key("a", "/b", Some("")),
            key("a", "/b?", None),
            key("a:80", "/b", None),
            key("a/", "b", None),
            key("", "a/b", None),
            key("a", "/b", Some("c")),
            key("a", &long, None),
            key("a", &long, Some("c")),
            CacheKey::new(8, b"a", b"/b", None).bytes().to_vec(),
        ];
        for (nth, one) in all.iter().enumerate() {
            assert!(!all[..nth].contains(one), "{nth}");
        }
        assert_eq!(key("a", &long, None), all[7]);
        assert_eq!(all[7].len(), 8 + 4 + 1 + 4 + 300);
    }

    #[test]
    fn what_varies() {
        let mut vary = ResponseFields::new();
        vary.push(b"Vary", b"Accept, X-A");
        vary.push(b"vary", b"Accept-Language");
        let first = Fields(b"accept: a\r\nAccept:  b\r\nX-A:\r\n");
        let varied = VaryFields::of(&vary, first);
        assert_eq!(varied.parts().len(), 3);
        for (lines, is) in [
            (&b"accept: a\r\nAccept:  b\r\nX-A:\r\n"[..], true),
            (b"x-a: \r\naccept: a, b\r\nOther: c\r\n", true),
            (b"x-a: \r\naccept: a,b\r\n", false),
            (b"accept: a, b\r\n", false),
            (b"accept: a, b\r\nx-a:\r\nAccept-Language: en\r\n", false),
            (b"accept: b\r\naccept: a\r\nx-a:\r\n", false),
            (b"", false),
        ] {
            assert_eq!(
                varied.is(Fields(lines)),
                is,
                "{}",
                String::from_utf8_lossy(lines)
            );
        }
        // Case and white space do not matter in lists of codings and languages (RFC 9111 §4.1).
        let mut vary = ResponseFields::new();
        vary.push(b"Vary", b"Accept-Language, X-A");
        let asked = Fields(b"Accept-Language: en-GB, de\r\nX-A: a, b\r\n");
        let listed = VaryFields::of(&vary, asked);
        for (lines, is) in [
            (&b"accept-language: EN-gb,de\r\nX-A: a, b\r\n"[..], true),
            (
                b"accept-language: en-gb\r\naccept-language: de\r\nX-A: a, b\r\n",
                true,
            ),
            (b"accept-language: de, en-GB\r\nX-A: a, b\r\n", false),
            (b"accept-language: en-GBde\r\nX-A: a, b\r\n", false),
            (b"accept-language: en-GB, de\r\nX-A: a,b\r\n", false),
            (b"accept-language: en-GB, de\r\nX-A: A, b\r\n", false),
        ] {
            assert_eq!(listed.is(Fields(lines)), is, "{}", lines.escape_ascii());
        }
        assert!(VaryFields::default().is(first));
        assert_eq!(varied.again(first), varied);
    }
}
