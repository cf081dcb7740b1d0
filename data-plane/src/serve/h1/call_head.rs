//! Head of a handler's response over HTTP/1.1.

use crate::handler::{Response, ResponseBody};
use crate::limits::{self, COPIED_CONTENT_BYTES_MAX};
use crate::serve::connection::AfterResponse;
use crate::serve::response_head::{
    is_without_content, push_connection_lines, push_server_and_date,
};
use crate::world::SecureFields;
use wire::number_text::push_number;
use wire::request_head::Version;

/// The delimiter of the response body (RFC 9112 §6.3).
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum ResponseFraming {
    Chunked,
    /// Content-Length, with the number of bytes still to be sent.
    Length(u64),
    Close,
}

/// Head of a handler's response.
pub(super) struct CallHead<'r> {
    pub(super) response: &'r Response,
    /// Delimiter of the body; None for a tunnel.
    pub(super) framing: Option<ResponseFraming>,
    /// HTTP version of the request.
    pub(super) version: Version,
    pub(super) after: AfterResponse,
    /// Security fields of the site, over TLS.
    pub(super) secure_fields: Option<&'r SecureFields>,
}

impl CallHead<'_> {
    /// Appends the head. `date` is the field line with the current time.
    pub(super) fn push(&self, date: &[u8], out: &mut Vec<u8>) {
        let response = self.response;
        let body = match &response.body {
            ResponseBody::Whole(bytes) if bytes.len() <= COPIED_CONTENT_BYTES_MAX => bytes.len(),
            _ => 0,
        };
        out.reserve(limits::SCRIPT_HEAD_BYTES_INITIAL + body);
        response.status.push(out);
        push_server_and_date(response, date, out);
        out.extend_from_slice(response.fields.lines());
        self.push_framing(out);
        push_connection_lines(out, self.version, self.after, self.secure_fields);
        out.extend_from_slice(b"\r\n");
    }

    fn push_framing(&self, out: &mut Vec<u8>) {
        match self.framing {
            None => out.extend_from_slice(b"Connection: Upgrade\r\n"),
            Some(_) if is_without_content(*self.response.status) => {}
            Some(ResponseFraming::Chunked) => {
                out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
            }
            Some(ResponseFraming::Length(length)) => {
                out.extend_from_slice(b"Content-Length: ");
                push_number(out, length);
                out.extend_from_slice(b"\r\n");
            }
            Some(ResponseFraming::Close) => {}
        }
    }
}
