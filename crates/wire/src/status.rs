//! Status codes (RFC 9110 §15) and their reason phrases.

use crate::byte_search;
use crate::limits::STATUS_REASON_BYTES_MAX;
use crate::number_text::push_number;
use std::ops::Deref;

/// Status code, final or interim, 100 to 599.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Status(pub u16);

/// Status and reason phrase of a response's status line (RFC 9112 §4). HTTP/2 and HTTP/3 have no reason
/// phrase and use the status alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatusLine {
    status: Status,
    /// Reason phrase of the script, without control characters; `None` for the phrase of the IANA registry.
    reason: Option<Box<[u8]>>,
}

impl StatusLine {
    /// Creates the status line of a script's response. The phrase of the IANA registry replaces a `reason`
    /// that is empty, is longer than `STATUS_REASON_BYTES_MAX`, or has a control character.
    // Not inlined: several callers share the code, and the response with a whole stored page never calls
    // it.
    #[inline(never)]
    pub fn new(status: Status, reason: &[u8]) -> StatusLine {
        let is_own = !reason.is_empty()
            && reason.len() <= STATUS_REASON_BYTES_MAX
            && byte_search::value_end(reason, 0) == reason.len()
            && reason != status.reason().as_bytes();
        StatusLine {
            status,
            reason: is_own.then(|| reason.into()),
        }
    }

    /// Returns true if the reason phrase differs from the phrase of the IANA registry.
    pub fn has_own_reason(&self) -> bool {
        self.reason.is_some()
    }

    /// Returns the reason phrase.
    pub fn reason(&self) -> &[u8] {
        let own = self.reason.as_deref();
        own.unwrap_or(self.status.reason().as_bytes())
    }

    /// Appends the status line of HTTP/1.1 (RFC 9112 §4).
    // Not inlined: several callers share the code, and the response with a whole stored page never calls
    // it.
    #[inline(never)]
    pub fn push(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"HTTP/1.1 ");
        push_number(out, self.status.0.into());
        out.push(b' ');
        out.extend_from_slice(self.reason());
        out.extend_from_slice(b"\r\n");
    }
}

impl From<Status> for StatusLine {
    fn from(status: Status) -> StatusLine {
        StatusLine {
            status,
            reason: None,
        }
    }
}

impl Deref for StatusLine {
    type Target = Status;

    fn deref(&self) -> &Status {
        &self.status
    }
}

macro_rules! statuses {
    ($( $code:literal $(as $name:ident)? $reason:literal; )*) => {
        impl Status {
            $($( #[doc = $reason] pub const $name: Status = Status($code); )?)*

            /// Returns the reason phrase of the IANA registry; empty for a code without a phrase.
            pub fn reason(self) -> &'static str {
                match self.0 {
                    $( $code => $reason, )*
                    _ => "",
                }
            }
        }
    };
}

statuses! {
    100 "Continue";
    101 "Switching Protocols";
    103 as EARLY_HINTS "Early Hints";
    200 as OK "OK";
    201 "Created";
    202 "Accepted";
    203 "Non-Authoritative Information";
    204 as NO_CONTENT "No Content";
    205 "Reset Content";
    206 as PARTIAL_CONTENT "Partial Content";
    207 "Multi-Status";
    300 "Multiple Choices";
    301 as MOVED_PERMANENTLY "Moved Permanently";
    302 as FOUND "Found";
    303 as SEE_OTHER "See Other";
    304 as NOT_MODIFIED "Not Modified";
    307 "Temporary Redirect";
    308 as PERMANENT_REDIRECT "Permanent Redirect";
    400 as BAD_REQUEST "Bad Request";
    401 as UNAUTHORIZED "Unauthorized";
    402 "Payment Required";
    403 as FORBIDDEN "Forbidden";
    404 as NOT_FOUND "Not Found";
    405 as METHOD_NOT_ALLOWED "Method Not Allowed";
    406 "Not Acceptable";
    407 "Proxy Authentication Required";
    408 as REQUEST_TIMEOUT "Request Timeout";
    409 as CONFLICT "Conflict";
    410 "Gone";
    411 "Length Required";
    412 as PRECONDITION_FAILED "Precondition Failed";
    413 as CONTENT_TOO_LARGE "Content Too Large";
    414 as URI_TOO_LONG "URI Too Long";
    415 "Unsupported Media Type";
    416 as RANGE_NOT_SATISFIABLE "Range Not Satisfiable";
    417 as EXPECTATION_FAILED "Expectation Failed";
    421 as MISDIRECTED_REQUEST "Misdirected Request";
    422 "Unprocessable Content";
    423 "Locked";
    424 "Failed Dependency";
    425 "Too Early";
    426 "Upgrade Required";
    428 "Precondition Required";
    429 as TOO_MANY_REQUESTS "Too Many Requests";
    431 as REQUEST_HEADER_FIELDS_TOO_LARGE "Request Header Fields Too Large";
    451 "Unavailable For Legal Reasons";
    499 as CLIENT_LEFT "Client Closed Request";
    500 as INTERNAL_SERVER_ERROR "Internal Server Error";
    501 as NOT_IMPLEMENTED "Not Implemented";
    502 as BAD_GATEWAY "Bad Gateway";
    503 as SERVICE_UNAVAILABLE "Service Unavailable";
    504 as GATEWAY_TIMEOUT "Gateway Timeout";
    505 as HTTP_VERSION_NOT_SUPPORTED "HTTP Version Not Supported";
    507 "Insufficient Storage";
    508 "Loop Detected";
    511 "Network Authentication Required";
}
