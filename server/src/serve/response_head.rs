//! Field lines that a driver adds to a response head: Server, Date, Connection and the site's security
//! fields.

use crate::handler::Response;
use crate::serve::connection::AfterResponse;
use crate::wire::request_head::Version;
use crate::world::SecureFields;

/// Returns the Server and Date lines for a handler's response, except a line already present as a field of
/// the response: the operator may have set another Server, and a script or a page may carry the Date of its
/// content. `date` is the line with the current time.
pub(super) fn server_and_date_lines(response: &Response, date: &[u8]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(64);
    for (name, line) in [("Server", &b"Server: anthill\r\n"[..]), ("Date", date)] {
        if response.fields.first(name).is_none() {
            lines.extend_from_slice(line);
        }
    }
    lines
}

/// Appends the fields of an HTTP/1.1 connection: Connection, and the site's security fields under TLS.
#[inline]
pub(super) fn push_connection_lines(
    fields: &mut Vec<u8>,
    version: Version,
    after: AfterResponse,
    secure_fields: Option<&SecureFields>,
) {
    match (after, version) {
        (AfterResponse::Keep, Version::Http11) => {}
        (AfterResponse::Keep, Version::Http10) => {
            fields.extend_from_slice(b"Connection: keep-alive\r\n")
        }
        _ => fields.extend_from_slice(b"Connection: close\r\n"),
    }
    if let Some(secure) = secure_fields {
        fields.extend_from_slice(&secure.lines);
    }
}
