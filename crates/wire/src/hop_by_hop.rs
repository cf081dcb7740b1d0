//! Fields of a single connection (RFC 9110 §7.6.1), which a proxy removes from a message before it forwards
//! the message.
//!
//! A request also loses each field with an underscore or another character beside letters, digits and `-` in
//! its name: many applications read `X_Forwarded_For` as X-Forwarded-For. Scripts of this server never get
//! such fields either.

use crate::byte_search;
use crate::fields::{Fields, items};
use crate::limits::CONNECTION_OPTIONS_MAX;
use crate::origin_fields::states_origin;

/// Result of copying the fields of a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CopiedRequestFields {
    /// The client accepts trailers (`TE: trailers`). TE itself is never copied, since a sender of TE lists
    /// `TE` in Connection (RFC 9110 §10.1.4).
    pub accepts_trailers: bool,
}

/// Connection lists more than [`CONNECTION_OPTIONS_MAX`] fields.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TooManyConnectionOptions;

/// Appends the lines of a request's fields to `out`, except for fields of the connection, fields with
/// ambiguous names, and fields for which `is_removed` returns true by name and value.
///
/// The fields are read once, or twice if Connection lists unusual fields.
pub fn copy_request_fields(
    fields: Fields<'_>,
    out: &mut Vec<u8>,
    is_removed: impl Fn(&[u8], &[u8]) -> bool,
) -> Result<CopiedRequestFields, TooManyConnectionOptions> {
    let mut accepts_trailers = false;
    copy_end_to_end(fields, out, |name, value| {
        if name.len() == 2 && byte_search::is_name(name, b"te") {
            accepts_trailers |= items(value).any(|it| it.eq_ignore_ascii_case(b"trailers"));
        }
        is_ambiguous(name) || is_removed(name, value)
    })?;
    Ok(CopiedRequestFields { accepts_trailers })
}

/// Appends the lines of a response's fields to `out`, except for fields of the connection and fields for which
/// `is_removed` returns true by name and value.
///
/// The fields are read once, or twice if Connection lists unusual fields.
pub fn copy_response_fields(
    fields: Fields<'_>,
    out: &mut Vec<u8>,
    is_removed: impl Fn(&[u8], &[u8]) -> bool,
) -> Result<(), TooManyConnectionOptions> {
    copy_end_to_end(fields, out, is_removed)
}

/// Returns true if the field, named in lower case, belongs to one connection, or is needed before the body of a
/// message: fields of the framing, the routing, the login, the client's identity and the use of the message.
/// No trailer section may contain such a field (RFC 9110 §6.5.1).
pub(super) fn is_header_only(name: &[u8]) -> bool {
    is_hop_by_hop(name)
        || states_origin(name)
        || holds(&HEADER_ONLY, name)
        || has_prefix(&HEADER_ONLY_PREFIXES, name)
}

/// Returns true if an application may take the name for the name of another field.
pub fn is_ambiguous(name: &[u8]) -> bool {
    !name
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
}

fn copy_end_to_end(
    fields: Fields<'_>,
    out: &mut Vec<u8>,
    mut is_removed: impl FnMut(&[u8], &[u8]) -> bool,
) -> Result<(), TooManyConnectionOptions> {
    let start = out.len();
    let mut options = ConnectionOptions::default();
    copy_lines(fields, out, |name, value| {
        if name.len() == 10 && byte_search::is_name(name, b"connection") {
            options.add_line(value);
        }
        !is_removed(name, value) && !is_hop_by_hop(name)
    });
    if options.count > CONNECTION_OPTIONS_MAX {
        out.truncate(start);
        return Err(TooManyConnectionOptions);
    }
    if options.count > 0 {
        // Connection may stand behind the listed fields.
        out.truncate(start);
        copy_lines(fields, out, |name, value| {
            !is_removed(name, value) && !is_hop_by_hop(name) && !options.hold(name)
        });
    }
    Ok(())
}

/// Appends the lines for which `is_kept` returns true: name, colon, one space, value and CRLF. Neighbouring
/// lines of this form are copied together.
fn copy_lines<'a>(
    fields: Fields<'a>,
    out: &mut Vec<u8>,
    mut is_kept: impl FnMut(&'a [u8], &'a [u8]) -> bool,
) {
    let all = fields.0;
    let mut lines = fields.iter();
    let mut run = 0..0;
    let mut start = 0;
    while let Some((name, value)) = lines.next() {
        let end = all.len() - lines.rest().len();
        let line = &all[start..end];
        if !is_kept(name, value) {
            // The next line begins another run.
        } else if is_canonical(line, name, value) {
            if run.end != start {
                out.extend_from_slice(&all[run]);
                run = start..start;
            }
            run.end = end;
        } else {
            out.extend_from_slice(&all[run]);
            run = end..end;
            for part in [name, b": ", value, b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
        start = end;
    }
    out.extend_from_slice(&all[run]);
}

/// Returns true if `line` is name, colon, one space, value and CRLF.
#[inline]
fn is_canonical(line: &[u8], name: &[u8], value: &[u8]) -> bool {
    line.len() == name.len() + value.len() + 4
        && line[name.len()..].starts_with(b": ")
        && line.ends_with(b"\r\n")
}

/// Fields listed in Connection, without those that are always removed or never removed.
#[derive(Default)]
struct ConnectionOptions<'a> {
    names: [&'a [u8]; CONNECTION_OPTIONS_MAX],
    count: usize,
}

impl<'a> ConnectionOptions<'a> {
    fn add_line(&mut self, value: &'a [u8]) {
        for option in items(value) {
            let has_effect = !option.eq_ignore_ascii_case(b"close")
                && !is_hop_by_hop(option)
                && !is_end_to_end(option);
            if has_effect && self.count <= CONNECTION_OPTIONS_MAX && !self.hold(option) {
                if let Some(slot) = self.names.get_mut(self.count) {
                    *slot = option;
                }
                self.count += 1;
            }
        }
    }

    fn hold(&self, name: &[u8]) -> bool {
        let names = &self.names[..self.count.min(CONNECTION_OPTIONS_MAX)];
        names.iter().any(|option| option.eq_ignore_ascii_case(name))
    }
}

/// Returns true if the field belongs to one connection, listed in Connection or not.
///
/// The credentials of a proxy (RFC 9110 §11.7) are meant for a proxy that asked for credentials. This server
/// never asks for them, and members must not learn the credentials of another proxy.
#[inline]
fn is_hop_by_hop(name: &[u8]) -> bool {
    match name.len() {
        2 => byte_search::is_name(name, b"te"),
        7 => byte_search::is_name(name, b"upgrade"),
        10 => {
            byte_search::is_name(name, b"connection") || byte_search::is_name(name, b"keep-alive")
        }
        14 => byte_search::is_name(name, b"http2-settings"),
        16 => byte_search::is_name(name, b"proxy-connection"),
        17 => byte_search::is_name(name, b"transfer-encoding"),
        18 => byte_search::is_name(name, b"proxy-authenticate"),
        19 => byte_search::is_name(name, b"proxy-authorization"),
        25 => byte_search::is_name(name, b"proxy-authentication-info"),
        _ => false,
    }
}

/// Returns true if the field is for all recipients, so that a sender must not list the field in Connection
/// (RFC 9110 §7.6.1). The option has no effect: a client could otherwise remove the fields by which a proxy in
/// front states the client, and a member could remove `Cache-Control: private`.
fn is_end_to_end(name: &[u8]) -> bool {
    holds(&END_TO_END, name) || has_prefix(&END_TO_END_PREFIXES, name) || is_header_only(name)
}

fn holds(names: &[&str], name: &[u8]) -> bool {
    names
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

fn has_prefix(prefixes: &[&str], name: &[u8]) -> bool {
    prefixes.iter().any(|prefix| {
        let start = name.get(..prefix.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
    })
}

/// End-to-end fields that may also stand in a trailer section.
const END_TO_END: [&str; 6] = [
    "allow",
    "etag",
    "last-modified",
    "link",
    "server",
    "server-timing",
];

/// Prefixes of end-to-end fields that may also stand in a trailer section: Content-Digest, Signature-Input.
const END_TO_END_PREFIXES: [&str; 3] = ["content-", "digest", "signature"];

/// End-to-end fields that a recipient needs before the body.
const HEADER_ONLY: [&str; 41] = [
    "age",
    "alt-svc",
    "authentication-info",
    "authorization",
    "cache-control",
    "clear-site-data",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "expect",
    "expires",
    "host",
    "location",
    "max-forwards",
    "origin",
    "permissions-policy",
    "pragma",
    "prefer",
    "priority",
    "proxy",
    "range",
    "referer",
    "referrer-policy",
    "refresh",
    "remote-user",
    "retry-after",
    "set-cookie",
    "set-cookie2",
    "status",
    "strict-transport-security",
    "trailer",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "x-frame-options",
    "x-remote-user",
];

/// Prefixes of end-to-end fields that a recipient needs before the body.
const HEADER_ONLY_PREFIXES: [&str; 9] = [
    "accept",
    "access-control-",
    "content-security-policy",
    "cross-origin-",
    "if-",
    "proxy-",
    "sec-",
    "x-content-type",
    "x-http-method",
];

#[cfg(test)]
mod tests;
