//! Fields of a member's response for the client.

use crate::wire::fields::Fields;
use crate::wire::response_fields::ResponseFields;

/// Returns the fields without the fields of the connection and the fields that the driver writes.
pub(super) fn response_fields(fields: Fields<'_>) -> ResponseFields {
    let mut kept = ResponseFields::with_capacity(fields.0.len());
    for (name, value) in fields {
        if !is_dropped(name) {
            kept.push(name, value);
        }
    }
    kept
}

fn is_dropped(name: &[u8]) -> bool {
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
