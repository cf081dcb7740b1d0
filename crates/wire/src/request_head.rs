//! Parsed head of a request, the same type for every version of HTTP.
//!
//! A `RequestHead` borrows the worker's buffers and never crosses an await.

use crate::byte_search;
use crate::fields::{FieldValues, Fields};
use crate::h1::body_decoder::BodyLength;
use crate::limits::METHOD_BYTES_MAX;
use std::borrow::Cow;
use std::fmt;

/// Request method: a method of RFC 9110 §9 or RFC 5789, another registered method, or any other name. The parser
/// refuses names that no request to a member may have with 501.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
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
    /// Extension method that only handlers understand, such as PROPFIND.
    Registered(RegisteredMethod),
    /// Method without a registration, such as PURGE. Only members and scripts can know the meaning.
    Unregistered(UnregisteredMethod),
}

/// Name of a method without a registration: a token (RFC 9110 §9.1) of at most [`METHOD_BYTES_MAX`] bytes.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct UnregisteredMethod {
    bytes: [u8; METHOD_BYTES_MAX],
    length: u8,
}

impl UnregisteredMethod {
    fn name(&self) -> &str {
        let name = self.bytes.get(..usize::from(self.length));
        std::str::from_utf8(name.unwrap_or_default()).unwrap_or_default()
    }
}

impl fmt::Debug for UnregisteredMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Extension method, as an index into the table of registered methods.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RegisteredMethod(u8);

impl Method {
    /// All methods, with the first of the registered ones.
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

    /// Returns the method of this name; names are case-sensitive (RFC 9110 §9.1). None for a name that no request
    /// may have, and for a name that is too long or no token.
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
            name => return Method::extension(name),
        })
    }

    #[cold]
    fn extension(name: &[u8]) -> Option<Method> {
        let place = REGISTERED
            .iter()
            .position(|(known, _)| known.as_bytes() == name);
        match place {
            Some(place) => Some(Method::Registered(RegisteredMethod(place as u8))),
            None => Method::unregistered(name),
        }
    }

    /// Returns the method of an unregistered name. A known name in other letters is refused: a member that folds the
    /// letters would take `trace` for TRACE, past the rules of this server for the method.
    fn unregistered(name: &[u8]) -> Option<Method> {
        let is_token = !name.is_empty() && name.iter().all(|byte| byte_search::is_token(*byte));
        let mut known = Method::known_names().chain(NEVER_FORWARDED);
        if !is_token || known.any(|known| known.as_bytes().eq_ignore_ascii_case(name)) {
            return None;
        }
        let mut bytes = [0; METHOD_BYTES_MAX];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        Some(Method::Unregistered(UnregisteredMethod {
            bytes,
            length: name.len() as u8,
        }))
    }

    /// Returns the names of all methods with a meaning of their own: those of RFC 9110 and the registered ones.
    pub fn known_names() -> impl Iterator<Item = &'static str> {
        let common = Method::ALL.iter().map(|method| method.label());
        common.chain(REGISTERED.iter().map(|(name, _)| *name))
    }

    /// Returns true for a method beyond those of RFC 9110 and RFC 5789.
    pub fn is_extension(self) -> bool {
        matches!(self, Method::Registered(_) | Method::Unregistered(_))
    }

    /// Returns true for a method without a registration.
    pub fn is_unregistered(self) -> bool {
        matches!(self, Method::Unregistered(_))
    }

    /// Returns true if the method is safe (RFC 9110 §9.2.1). Any other method may change the content of
    /// pages.
    pub fn is_safe(self) -> bool {
        match self {
            Method::Get | Method::Head | Method::Options | Method::Trace => true,
            Method::Registered(RegisteredMethod(place)) => REGISTERED[usize::from(place)].1,
            _ => false,
        }
    }

    /// Returns the name of the method in a request line.
    pub fn name(&self) -> &str {
        match self {
            Method::Unregistered(method) => method.name(),
            method => method.label(),
        }
    }

    /// Returns a name out of a fixed set, for the status and for counters: `other` for every method without a
    /// registration, since clients invent such names.
    pub fn label(self) -> &'static str {
        match self {
            Method::Unregistered(_) => "other",
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

/// Extension methods of the IANA registry, and whether each is safe: WebDAV (RFC 4918), versioning (RFC
/// 3253), access control (RFC 3744), calendars (RFC 4791), search (RFC 5323) and further ones. `PRI` is
/// missing because no request may have the method.
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

/// Methods without a registration that no request may have: the connection preface of HTTP/2 (RFC 9113 §3.4), and the
/// TRACE of Microsoft's servers.
const NEVER_FORWARDED: [&str; 2] = ["PRI", "TRACK"];

/// HTTP version of a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1 and any later minor version, which RFC 9110 §2.5 treats like HTTP/1.1.
    Http11,
    /// HTTP/2.
    #[default]
    Http2,
    /// HTTP/3.
    Http3,
}

impl Version {
    /// Returns the name, such as `HTTP/1.1`.
    pub fn name(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2",
            Version::Http3 => "HTTP/3",
        }
    }
}

/// Parsed head of a request.
#[derive(Debug)]
pub struct RequestHead<'a> {
    /// Request method.
    pub method: Method,
    /// HTTP version of the request.
    pub version: Version,
    /// Request line for the log, as received, without the line end. In HTTP/2 and HTTP/3 the line is
    /// composed in the form of HTTP/1.1.
    pub line: &'a [u8],
    /// Host without port, as sent; an IPv6 address keeps its brackets. Empty only in HTTP/1.0 without Host.
    pub host: &'a [u8],
    /// Host and port of a target in the absolute form, as sent; None in another form.
    pub authority: Option<&'a [u8]>,
    /// Path of the target as sent, still percent-encoded; `*` for `OPTIONS *` and for CONNECT without
    /// `:protocol`. The path may
    /// begin with `//`, and in a Location must follow a scheme and host.
    pub raw_path: &'a [u8],
    /// Decoded and normalised path: begins with `/`, has no `.` or `..` component, and no empty component
    /// except the last. `*` for `OPTIONS *` and for CONNECT without `:protocol`. A borrowed path has a single
    /// [reading](crate::path_readings).
    pub path: Cow<'a, [u8]>,
    /// Query without the `?`.
    pub query: Option<&'a [u8]>,
    /// Fields evaluated for stored pages.
    pub known_fields: KnownFields<'a>,
    /// Every field line, in order.
    pub fields: Fields<'a>,
    /// The connection may stay open after the request (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// Framing of the request's body.
    pub body: BodyLength,
    /// Protocol to which the client wants to switch: the only token of Upgrade in a GET request of HTTP/1.1
    /// without a body (RFC 9110 §7.8), or `:protocol` of an extended CONNECT (RFC 8441, RFC 9220).
    pub upgrade: Option<&'a [u8]>,
    /// The client accepts trailers in the response (`TE: trailers`, RFC 9110 §10.1.4).
    pub accepts_trailers: bool,
    /// The client sent `Expect: 100-continue`, and not in HTTP/1.0 (RFC 9110 §10.1.1).
    pub expect_continue: bool,
}

/// Fields evaluated for stored pages, collected during parsing.
///
/// A single-valued field sent twice has an empty value here. The empty value is malformed and has no
/// effect: a date is ignored, and If-Range does not match (RFC 9110 §13.1.3 to §13.1.5).
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
    /// Range; `None` if absent or sent twice.
    pub range: Option<&'a [u8]>,
    /// Authorization; a second line causes a refusal of the head.
    pub authorization: Option<&'a [u8]>,
    /// At least one Cookie line was sent.
    pub cookie: bool,
    /// Destination of WebDAV, empty if sent twice.
    pub destination: Option<&'a [u8]>,
    /// If of WebDAV, empty if sent twice.
    pub webdav_if: Option<&'a [u8]>,
    /// First Referer line, for the log.
    pub referer: Option<&'a [u8]>,
    /// First User-Agent line, for the log.
    pub user_agent: Option<&'a [u8]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_found_by_name() {
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
        let long = "A".repeat(METHOD_BYTES_MAX + 1);
        let refused = [
            "", "get", "PropFind", "trace", "PRI", "pri", "TRACK", "A B", "A:", &long,
        ];
        for name in refused {
            assert_eq!(Method::from_name(name.as_bytes()), None, "{name}");
        }
        for name in [
            "PURGE",
            "BREW",
            "GETS",
            "purge",
            "*",
            "M-SEARCH",
            &long[1..],
        ] {
            let method = Method::from_name(name.as_bytes()).expect("a method");
            assert!(method.is_unregistered() && !method.is_safe(), "{name}");
            assert_eq!((method.name(), method.label()), (name, "other"));
        }
        assert!(Method::Get.is_safe() && !Method::Post.is_safe() && !Method::Put.is_safe());
    }
}
