//! Fields of a member's response for the client.

use crate::handler::proxy::route::ProxyRoute;
use crate::wire::fields::{Fields, items};
use crate::wire::h1::response_head::ResponseHead;
use crate::wire::response_fields::ResponseFields;

/// Returns the fields of a response without the fields of the connection and the fields that the driver
/// writes.
pub(super) fn fields(head: &ResponseHead<'_>, route: &ProxyRoute) -> ResponseFields {
    let mut kept = ResponseFields::with_capacity(head.fields.0.len());
    let replaced = &route.forward.response_fields;
    for (name, value) in head.fields {
        let is_named = head.has_connection_options && is_named_by_connection(head.fields, name);
        if is_of_connection(name) || is_named {
            continue;
        }
        let is_replaced =
            |(own, _): &(Box<str>, Box<str>)| name.eq_ignore_ascii_case(own.as_bytes());
        if !replaced.iter().any(is_replaced) {
            kept.push(name, value);
        }
    }
    for (name, value) in replaced {
        if !value.is_empty() {
            kept.push(name.as_bytes(), value.as_bytes());
        }
    }
    kept
}

/// Returns true for a field of one connection (RFC 9110 §7.6.1) or of the framing.
fn is_of_connection(name: &[u8]) -> bool {
    let known: &[&[u8]] = match name.len() {
        2 => &[b"te"],
        7 => &[b"upgrade"],
        10 => &[b"connection", b"keep-alive"],
        14 => &[b"content-length"],
        16 => &[b"proxy-connection"],
        17 => &[b"transfer-encoding"],
        _ => return false,
    };
    known.iter().any(|known| name.eq_ignore_ascii_case(known))
}

fn is_named_by_connection(fields: Fields<'_>, name: &[u8]) -> bool {
    let mut options = fields.all("connection").flat_map(items);
    options.any(|option| option.eq_ignore_ascii_case(name))
}
