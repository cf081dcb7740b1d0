//! Cache keys: the target URI, and the other properties of a request that select among stored responses.
//!
//! The key holds the Host value as sent, including the port, because a handler may write the value into a
//! page. Without the value in the key, a client with a forged Host could determine the page for all other
//! clients.

use super::policy::{self, varied};
use std::borrow::Cow;
use wire::effective_host;
use wire::fields::{Fields, items};
use wire::path_readings::page_path;
use wire::request_head::RequestHead;
use wire::response_fields::ResponseFields;

/// The key of one URI of one route. A short key needs no allocation.
pub(crate) struct CacheKey {
    short: [u8; SHORT_BYTES],
    length: usize,
    long: Vec<u8>,
}

/// The length in bytes up to which a key needs no allocation; longer keys are rare.
const SHORT_BYTES: usize = 256;

impl CacheKey {
    /// Creates the key of a request to the route with the number `route`, made by
    /// `route_key` of the package `anthill`. The number stays the same over reloads and restarts while the settings
    /// of the route stay the same, so that pages on disk are found again. Returns None for a path with dot segments or
    /// with an encoded letter: the key is that of another path, and the handler may answer with a redirect to that path.
    pub(super) fn of(route: u64, head: &RequestHead<'_>) -> Option<CacheKey> {
        let path = match &head.path {
            Cow::Borrowed(path) => path,
            Cow::Owned(_) if page_path(head.raw_path).len() < head.raw_path.len() => return None,
            Cow::Owned(_) => head.raw_path,
        };
        let host = effective_host(head);
        Some(CacheKey::new(route, host, path, head.query))
    }

    /// Creates a key from the parts of a URI, with the path by [`page_path`].
    pub(super) fn new(route: u64, host: &[u8], path: &[u8], query: Option<&[u8]>) -> CacheKey {
        let mut key = CacheKey {
            short: [0; SHORT_BYTES],
            length: 16 + host.len() + path.len() + query.map_or(0, |query| 1 + query.len()),
            long: Vec::new(),
        };
        let out = match key.length {
            ..=SHORT_BYTES => &mut key.short[..],
            length => {
                key.long.resize(length, 0);
                &mut key.long
            }
        };
        let written = write(out, route, host, path, query);
        debug_assert!(written.is_some());
        key
    }

    /// Returns the bytes of the key.
    pub(super) fn bytes(&self) -> &[u8] {
        if self.long.is_empty() {
            &self.short[..self.length]
        } else {
            &self.long
        }
    }
}

/// Writes the bytes of a key to the beginning of `out`. Returns None if `out` is too short.
#[inline]
fn write(out: &mut [u8], route: u64, host: &[u8], path: &[u8], query: Option<&[u8]>) -> Option<()> {
    let (place, mut rest) = out.split_first_chunk_mut()?;
    *place = route.to_le_bytes();
    for part in [host, path] {
        let (length, after) = rest.split_first_chunk_mut()?;
        *length = (part.len() as u32).to_le_bytes();
        let (place, after) = after.split_at_mut_checked(part.len())?;
        place.copy_from_slice(part);
        rest = after;
    }
    if let Some(query) = query {
        let (mark, after) = rest.split_first_mut()?;
        *mark = b'?';
        after.get_mut(..query.len())?.copy_from_slice(query);
    }
    Some(())
}

/// The properties of a request that the response may depend on.
#[derive(Copy, Clone)]
pub(crate) struct PresentedRequest<'a> {
    /// The field lines of the request.
    pub fields: Fields<'a>,
    /// True if the request arrived over TLS.
    pub secure: bool,
    /// The name of the user authenticated by this server. Responses are not shared between users.
    pub user: Option<&'a str>,
    /// True if the request has an Authorization field not checked by this server.
    pub authorized: bool,
    /// True if the request has a Cookie field relevant for the response.
    pub personal: bool,
}

impl PresentedRequest<'_> {
    /// Returns the properties relevant for storage.
    pub(super) fn asked(&self) -> policy::RequestFacts {
        policy::RequestFacts {
            authorized: self.authorized || self.user.is_some(),
            personal: self.personal,
        }
    }

    /// Returns an owned copy of the properties other than the fields.
    pub(super) fn kind(&self) -> Audience {
        Audience {
            secure: self.secure,
            user: self.user.map(Into::into),
            personal: self.personal,
            authorized: self.authorized,
        }
    }
}

/// The properties that separate requests for one URI, other than the request fields.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Audience {
    /// True for requests over TLS.
    pub secure: bool,
    /// The name of the authenticated user.
    pub user: Option<Box<str>>,
    /// True for requests with a relevant Cookie field.
    pub personal: bool,
    /// True for requests with an Authorization field checked by the handler. A page stored from such a
    /// request is for all clients.
    pub authorized: bool,
}

impl Audience {
    /// Returns true if all properties are equal.
    pub(super) fn is(&self, asker: &PresentedRequest<'_>) -> bool {
        self.secure == asker.secure
            && self.user.as_deref() == asker.user
            && self.personal == asker.personal
            && self.authorized == asker.authorized
    }
}

/// The request fields that select a response, with their values (RFC 9111 §4.1).
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct VaryFields(Vec<VaryField>);

/// The name of a request field, and the value if the field was present.
pub(crate) type VaryField = (Box<str>, Option<Box<[u8]>>);

impl VaryFields {
    /// Returns the fields named in Vary of the response, with the values of the request. Fields for which `is_constant` is
    /// true are left out.
    pub(super) fn of(
        response: &ResponseFields,
        request: Fields<'_>,
        is_constant: impl Fn(&str) -> bool,
    ) -> VaryFields {
        let names = varied(response).filter_map(|name| std::str::from_utf8(name).ok());
        VaryFields::by(names.filter(|name| !is_constant(name)), request)
    }

    /// Returns fields of equal names with the values of another request.
    pub(super) fn again(&self, request: Fields<'_>) -> VaryFields {
        VaryFields::by(self.0.iter().map(|(name, _)| &**name), request)
    }

    fn by<'n>(names: impl Iterator<Item = &'n str>, request: Fields<'_>) -> VaryFields {
        let value = |name| joined(request, name).map(Into::into);
        VaryFields(names.map(|name| (name.into(), value(name))).collect())
    }

    /// Creates the list from names and values.
    pub(crate) fn from_parts(parts: Vec<VaryField>) -> VaryFields {
        VaryFields(parts)
    }

    /// Returns the names and values.
    pub(super) fn parts(&self) -> &[VaryField] {
        &self.0
    }

    /// Returns true if the request has matching values.
    pub(super) fn is(&self, request: Fields<'_>) -> bool {
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

    /// Returns the memory use in bytes.
    pub(super) fn weight(&self) -> usize {
        let part = |(name, value): &VaryField| {
            name.len() + value.as_ref().map_or(0, |value| value.len()) + 48
        };
        self.0.iter().map(part).sum()
    }
}

/// Returns true if two values of a field match. In Accept-Language, Accept-Encoding and Accept-Charset,
/// case and white space between members do not matter (RFC 9111 §4.1).
fn is_same(name: &str, one: &[u8], other: &[u8]) -> bool {
    let is_list = |name: &[u8]| name.eq_ignore_ascii_case(b"accept-");
    let lower = |value| items(value).flat_map(|item| [b",", item].concat().to_ascii_lowercase());
    one == other || (name.as_bytes().get(..7).is_some_and(is_list) && lower(one).eq(lower(other)))
}

/// Returns the combined value of all field lines with a name (RFC 9110 §5.3).
fn joined(fields: Fields<'_>, name: &str) -> Option<Vec<u8>> {
    let lines: Vec<&[u8]> = fields.all(name).collect();
    (!lines.is_empty()).then(|| lines.join(&b", "[..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_uris_have_one_key() {
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
    fn keys_of_variants_follow_vary() {
        let mut vary = ResponseFields::new();
        vary.push(b"Vary", b"Accept, X-A");
        vary.push(b"vary", b"Accept-Language");
        let first = Fields(b"accept: a\r\nAccept:  b\r\nX-A:\r\n");
        let varied = VaryFields::of(&vary, first, |_| false);
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
        let listed = VaryFields::of(&vary, asked, |_| false);
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
