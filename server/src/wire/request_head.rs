//! What a request asks, the same view for every version of HTTP.
//!
//! A `RequestHead` borrows the worker's buffers and never crosses an await.

use crate::wire::fields::{FieldValues, Fields};
use crate::wire::h1::body_decoder::BodyLength;
use std::borrow::Cow;

/// A known method: one of RFC 9110 §9 and RFC 5789, or another that is registered; what is not is
/// refused with 501 while parsing.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each is the method of its name")]
pub enum Method {
    Get,
    Head,
    Options,
    Post,
    Put,
    Delete,
    Patch,
    Trace,
    Connect,
    /// One that handlers alone understand, such as PROPFIND.
    Registered(RegisteredMethod),
}

/// A method of an extension of HTTP, by its place in the table.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RegisteredMethod(u8);

impl Method {
    /// All of them; of the registered ones, the first.
    pub const ALL: [Method; 10] = [
        Method::Get,
        Method::Head,
        Method::Options,
        Method::Post,
        Method::Put,
        Method::Delete,
        Method::Patch,
        Method::Trace,
        Method::Connect,
        Method::Registered(RegisteredMethod(0)),
    ];

    /// The method of this name; names are case-sensitive (RFC 9110 §9.1).
    pub fn from_name(name: &[u8]) -> Option<Method> {
        Some(match name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"OPTIONS" => Method::Options,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"PATCH" => Method::Patch,
            b"TRACE" => Method::Trace,
            b"CONNECT" => Method::Connect,
            name => return Method::registered(name),
        })
    }

    #[cold]
    fn registered(name: &[u8]) -> Option<Method> {
        let place = REGISTERED
            .iter()
            .position(|(its, _)| its.as_bytes() == name)?;
        Some(Method::Registered(RegisteredMethod(place as u8)))
    }

    /// Does it only ask (RFC 9110 §9.2.1)? All others may change what pages say.
    pub fn is_safe(self) -> bool {
        match self {
            Method::Get | Method::Head | Method::Options | Method::Trace => true,
            Method::Registered(RegisteredMethod(place)) => REGISTERED[usize::from(place)].1,
            _ => false,
        }
    }

    /// As it stands in a request line.
    pub fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Options => "OPTIONS",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Patch => "PATCH",
            Method::Trace => "TRACE",
            Method::Connect => "CONNECT",
            Method::Registered(RegisteredMethod(place)) => REGISTERED[usize::from(place)].0,
        }
    }
}

/// What else IANA has registered, and whether it is safe: WebDAV (RFC 4918), versions (RFC 3253),
/// access lists (RFC 3744), calendars (RFC 4791), searches (RFC 5323) and their like. Not `PRI`, which
/// is no request.
const REGISTERED: [(&str, bool); 30] = [
    ("PROPFIND", true),
    ("PROPPATCH", false),
    ("MKCOL", false),
    ("COPY", false),
    ("MOVE", false),
    ("LOCK", false),
    ("UNLOCK", false),
    ("REPORT", true),
    ("SEARCH", true),
    ("QUERY", true),
    ("ACL", false),
    ("BASELINE-CONTROL", false),
    ("BIND", false),
    ("CHECKIN", false),
    ("CHECKOUT", false),
    ("LABEL", false),
    ("LINK", false),
    ("MERGE", false),
    ("MKACTIVITY", false),
    ("MKCALENDAR", false),
    ("MKREDIRECTREF", false),
    ("MKWORKSPACE", false),
    ("ORDERPATCH", false),
    ("REBIND", false),
    ("UNBIND", false),
    ("UNCHECKOUT", false),
    ("UNLINK", false),
    ("UPDATE", false),
    ("UPDATEREDIRECTREF", false),
    ("VERSION-CONTROL", false),
];

/// The version that the peer spoke.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1 and any later minor version, which must be understood as it (RFC 9110 §2.5).
    Http11,
    /// HTTP/2.
    #[default]
    Http2,
    /// HTTP/3.
    Http3,
}

/// One request's head, parsed.
#[derive(Debug)]
pub struct RequestHead<'a> {
    /// What is to be done.
    pub method: Method,
    /// The version that the peer spoke.
    pub version: Version,
    /// The request line as it came, without its line end (for the log); in HTTP/2 and 3, as it would be.
    pub line: &'a [u8],
    /// Host without port, as sent; an IPv6 address keeps its brackets. Empty only in HTTP/1.0
    /// without Host.
    pub host: &'a [u8],
    /// The target's path as it was sent, still percent-encoded; `*` for `OPTIONS *` and CONNECT.
    /// It may begin with `//`, so in a Location it must follow a scheme and host.
    pub raw_path: &'a [u8],
    /// Decoded and normalised: begins with `/`, no `.` or `..` component, no empty one but the
    /// last. `*` for `OPTIONS *` and CONNECT.
    pub path: Cow<'a, [u8]>,
    /// Without the `?`.
    pub query: Option<&'a [u8]>,
    /// The fields that stored pages look at.
    pub known_fields: KnownFields<'a>,
    /// Every field line, in order.
    pub fields: Fields<'a>,
    /// May the connection stay open after this exchange (RFC 9112 §9.3)?
    pub keep_alive: bool,
    /// How the body that follows is framed.
    pub body: BodyLength,
    /// `Expect: 100-continue` was sent, and not in HTTP/1.0 (RFC 9110 §10.1.1).
    pub expect_continue: bool,
}

/// The fields that stored pages look at, picked out while parsing.
///
/// A single-valued field that was sent twice has an empty value here, which is malformed and so
/// is never met: a date is ignored, an If-Range doesn't match (RFC 9110 §13.1.3 to §13.1.5).
#[derive(Default, Debug)]
pub struct KnownFields<'a> {
    /// Accept-Encoding.
    pub accept_encoding: FieldValues<'a>,
    /// If-None-Match.
    pub if_none_match: FieldValues<'a>,
    /// If-Match.
    pub if_match: FieldValues<'a>,
    /// If-Modified-Since.
    pub if_modified_since: Option<&'a [u8]>,
    /// If-Unmodified-Since.
    pub if_unmodified_since: Option<&'a [u8]>,
    /// If-Range.
    pub if_range: Option<&'a [u8]>,
    /// Range; None if absent or sent twice.
    pub range: Option<&'a [u8]>,
    /// Authorization; sent twice, the head is refused.
    pub authorization: Option<&'a [u8]>,
    /// Cookie was sent.
    pub cookie: bool,
    /// For the log; the first.
    pub referer: Option<&'a [u8]>,
    /// For the log; the first.
    pub user_agent: Option<&'a [u8]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_by_their_names() {
        for method in Method::ALL {
            assert_eq!(Method::from_name(method.name().as_bytes()), Some(method));
        }
        for (nth, (name, is_safe)) in REGISTERED.iter().enumerate() {
            let method = Method::from_name(name.as_bytes()).expect("a method");
            assert_eq!(
                method,
                Method::Registered(RegisteredMethod(nth as u8)),
                "{name}"
            );
            assert_eq!((method.name(), method.is_safe()), (*name, *is_safe));
        }
        for name in ["", "get", "PropFind", "PRI", "BREW", "GETS", "*"] {
            assert_eq!(Method::from_name(name.as_bytes()), None, "{name}");
        }
        assert!(Method::Get.is_safe() && !Method::Post.is_safe() && !Method::Put.is_safe());
    }
}
