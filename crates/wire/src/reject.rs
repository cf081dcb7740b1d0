//! Reasons for refusing a request: a status and a stable number, printed in the access log.
//!
//! The numbers are part of the product (docs/src/rejects.md lists them): never reuse one.

use super::status::Status;

/// Refusal of a request, caused by the peer or by the state of the server.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Reject {
    /// Stable number; logs print `R404` (`"rule":404` in JSON).
    pub rule: u16,
    /// Status of the response.
    pub status: Status,
    /// One clause for the log and the plain error page.
    pub reason: &'static str,
    /// The framing of the connection is unreliable: the server responds, closes the connection, and parses
    /// no further request.
    pub close: bool,
}

impl Reject {
    /// Returns true if the refusal depends on the client alone, so that another client may get the page.
    pub fn is_of_one_client(self) -> bool {
        [
            Reject::ASKED_TOO_OFTEN,
            Reject::SHARE_TAKEN,
            Reject::LOGINS_FAILED,
            Reject::CALL_SHARE_TAKEN,
            Reject::RATE_EXCEEDED,
        ]
        .contains(&self)
    }

    /// Returns the refusal of all requests of a route with a fixed status.
    pub fn closed(status: Status) -> Reject {
        Reject {
            status,
            ..Reject::CLOSED
        }
    }

    /// Returns true if no further request of the site can succeed on the connection. The client gets GOAWAY
    /// over HTTP/2 and HTTP/3, and `Connection: close` over HTTP/1.1.
    pub fn ends_connection(self) -> bool {
        self == Reject::CONNECTION_OUTDATED
    }
}

macro_rules! rejects {
    ($( $name:ident = $rule:literal $status:literal $close:literal $reason:literal; )*) => {
        impl Reject {
            $(
                #[doc = $reason]
                pub const $name: Reject =
                    Reject { rule: $rule, status: Status($status), reason: $reason, close: $close };
            )*
            /// All refusals in the order of their numbers, for the table in the guide.
            pub const ALL: &'static [Reject] = &[$( Reject::$name, )*];
        }
    };
}

rejects! {
    // 1xx: the request line.
    LINE_MALFORMED = 101 400 true "malformed request line";
    LINE_TOO_LONG = 102 414 true "request line too long";
    METHOD_UNKNOWN = 103 501 true "unknown method";
    VERSION_UNSUPPORTED = 104 505 true "HTTP version not supported";
    TARGET_MALFORMED = 110 400 true "malformed request target";
    TARGET_CLIMBS = 111 400 true "path climbs above the root";
    TARGET_PERCENT = 112 400 true "malformed percent-encoding in the path";
    TARGET_NUL = 113 400 true "NUL in the path";
    TARGET_SLASH = 114 400 true "encoded slash in the path";
    TARGET_BACKSLASH = 115 400 true "backslash in the path";
    TARGET_DOT_PARAMETER = 116 400 false "parameter on a dot segment of the path";
    TARGET_PARAMETER = 117 400 false "path parameter that changes the route or the guards of the path";
    TARGET_LEAVES_ROUTE = 118 400 false "path leaves the path of its route";
    // 2xx: fields.
    FIELD_MALFORMED = 201 400 true "malformed field line";
    FIELD_NAME = 202 400 true "malformed field name";
    FIELD_VALUE = 203 400 true "control character in a field value";
    FIELD_FOLDED = 204 400 true "folded field line";
    LINE_END = 205 400 true "bare CR or LF";
    HEAD_TOO_LARGE = 206 431 true "head too large";
    FIELDS_TOO_MANY = 207 431 true "too many fields";
    HOST_MISSING = 210 400 true "no Host";
    HOST_DUPLICATE = 211 400 true "more than one Host";
    HOST_MALFORMED = 212 400 true "malformed Host";
    AUTHORIZATION_DUPLICATE = 213 400 true "more than one Authorization";
    EXPECTATION_UNKNOWN = 214 417 true "unknown expectation";
    PSEUDO_FIELDS = 215 400 false "malformed pseudo-header fields";
    FIELD_OF_HTTP_1 = 216 400 false "field of an HTTP/1 connection";
    CONNECTION_OPTIONS = 217 400 true "too many fields listed in Connection";
    FORWARDED_CONTRADICTION = 218 400 false "trusted proxy names two clients";
    PROTOCOL_UNSUPPORTED = 219 501 false "protocol of CONNECT not supported";
    PROXY_HEADER_MALFORMED = 220 400 true "malformed PROXY header";
    PROXY_HEADER_MISSING = 221 400 true "no PROXY header";
    PROXY_HEADER_UNTRUSTED = 222 400 true "PROXY header of an untrusted address";
    DESTINATION_MALFORMED = 223 400 false "malformed or repeated Destination or If";
    DESTINATION_ELSEWHERE = 224 502 false "Destination on another host or in another route";
    // 3xx: the body.
    LENGTH_AND_CODING = 301 400 true "Content-Length together with Transfer-Encoding";
    LENGTH_DUPLICATE = 302 400 true "more than one Content-Length";
    LENGTH_MALFORMED = 303 400 true "malformed Content-Length";
    CODING_IN_1_0 = 304 400 true "Transfer-Encoding in HTTP/1.0";
    CODING_UNKNOWN = 305 501 true "transfer coding other than chunked";
    CHUNK_MALFORMED = 306 400 true "malformed chunk";
    CHUNK_EXTENSION = 307 400 true "chunk extension too long";
    TRAILER_MALFORMED = 308 400 true "malformed trailer section";
    BODY_TOO_LARGE = 309 413 true "request body too large";
    TRAILER_TOO_LARGE = 310 431 true "trailer section too large";
    BODY_LENGTH = 311 400 false "length of the body differs from Content-Length";
    CODING_NOT_CHUNKED = 312 400 true "chunked is not the last transfer coding";
    // 4xx: routing and access.
    HOST_UNKNOWN = 401 404 false "no such site";
    MISDIRECTED = 402 421 true "connection was opened for another site";
    ADDRESS_DENIED = 403 403 false "address not allowed";
    LOGIN_NEEDED = 404 401 false "login needed";
    LOGIN_WRONG = 405 401 false "wrong user or password";
    HOST_UNKNOWN_TLS = 406 421 true "no such site";
    PUSH_DENIED = 407 403 false "pushing is not allowed";
    // 408 to 414: the manager.
    MANAGER_HOST = 408 421 true "host name is not a name of the manager";
    MANAGER_ORIGIN = 409 403 false "request of another site's page to the manager";
    MANAGER_TOKEN = 410 403 false "form without a valid token";
    MANAGER_GET = 411 403 false "edit by GET";
    MANAGER_EDIT_DENIED = 412 403 false "edit without a login that may edit";
    MANAGER_FORM = 413 400 false "malformed form";
    MANAGER_SECRET = 414 403 false "login secret is unknown, used or expired";
    CONNECTION_OUTDATED = 415 421 true "connection was opened before a change of the configuration";
    // 5xx: the resource.
    NOT_FOUND = 501 404 false "no such resource";
    DOTFILE = 502 404 false "hidden name";
    LINK_LEAVES = 503 404 false "link out of the root";
    NO_INDEX = 504 404 false "folder without index";
    METHOD_NOT_ALLOWED = 505 405 false "method not allowed here";
    PRECONDITION = 506 412 false "precondition failed";
    RANGE = 507 416 false "range not satisfiable";
    CHANGING = 508 503 false "resource is being changed or loaded";
    UNREADABLE = 509 403 false "file can't be read";
    SCRIPT_NOT_EXECUTABLE = 510 403 false "script isn't executable";
    GIT_DUMB = 511 403 false "only git's smart protocol is supported";
    SERVERS_OWN = 512 404 false "private file of the server";
    CONTENT_WRONG = 513 500 false "content differs from its release";
    RELEASE_MISSING = 514 503 false "site has no release yet";
    RELEASE_WITHDRAWN = 515 503 false "release withdrawn";
    GONE = 516 410 false "page removed for good";
    PREVIEW_CLOSED = 517 503 false "preview can't be opened, or is being opened";
    PREVIEW_UNKNOWN = 518 404 false "no such preview";
    HASHED_MISSING = 519 404 false "no such content";
    HIDDEN = 520 404 false "name hidden by the site";
    // The status is that of the route.
    CLOSED = 521 404 false "route is closed";
    // 6xx: time and load.
    HEAD_SLOW = 601 408 true "head not finished in time";
    BODY_SLOW = 602 408 true "body too slow";
    OVERLOADED = 603 503 true "too many connections";
    LOGINS_BUSY = 604 503 false "too many logins at once";
    ASKED_TOO_OFTEN = 605 429 false "too many pages in a minute";
    SHARE_TAKEN = 606 503 false "too many large pages being sent to one address";
    LOGINS_FAILED = 607 429 false "too many failed logins";
    REQUESTS_SHARE_TAKEN = 608 503 true "too many requests under way";
    BODY_MEMORY_FULL = 609 503 false "no memory for the bodies of another request";
    RATE_EXCEEDED = 610 429 false "too many requests";
    // 7xx: live calls.
    HANDLER_FAILED = 701 502 false "handler failed";
    HANDLER_SLOW = 702 504 false "handler took too long";
    PANICKED = 703 500 true "internal error";
    SCRIPT_NOT_STARTED = 710 502 false "script could not be started";
    SCRIPT_ENDED_EARLY = 711 502 false "script ended before its response began";
    SCRIPT_HEAD_MALFORMED = 712 502 false "malformed head of a script's response";
    SCRIPT_HEAD_TOO_LARGE = 713 502 false "head of a script's response too large";
    CALLS_BUSY = 714 503 false "too many calls at once";
    REDIRECTED_TOO_OFTEN = 715 508 false "too many redirects within the server";
    BACKEND_UNREACHABLE = 716 502 false "backend can't be reached";
    BACKEND_LEFT = 717 502 false "backend disconnected before its response began";
    BACKEND_MALFORMED = 718 502 false "malformed response of a backend";
    BACKEND_BUSY = 719 503 false "backend is busy";
    // Number 720, no longer used, refused a body without a length for a backend; such bodies are now
    // buffered and counted.
    SCRIPT_FAILED = 721 502 false "script failed in its response";
    BODIES_FULL = 722 503 false "no room for a body of unknown length";
    BODY_NOT_KEPT = 723 507 false "body can't be stored on disk";
    CALL_SHARE_TAKEN = 724 503 false "too many calls at once from one address";
    // 730 to 748: members of a balancer.
    UPSTREAM_LINE_MALFORMED = 730 502 false "malformed status line of a member";
    UPSTREAM_FIELD_MALFORMED = 731 502 false "malformed field line of a member";
    UPSTREAM_FIELD_FOLDED = 732 502 false "folded field line of a member";
    UPSTREAM_HEAD_TOO_LARGE = 733 502 false "head of a member's response too large";
    UPSTREAM_LENGTHS = 734 502 false "malformed or contradictory length of a member's response";
    UPSTREAM_CODING = 735 502 false "transfer coding of a member other than chunked";
    UPSTREAM_INTERIM_FLOOD = 736 502 false "too many interim responses of a member";
    UPSTREAM_UPGRADE_UNASKED = 737 502 false "member switched protocols without a request to do so";
    UPSTREAM_BYTES_UNASKED = 738 502 false "bytes of a member before a request";
    UPSTREAM_CHUNK_MALFORMED = 739 502 false "malformed chunk or trailer section of a member";
    UPSTREAM_LEFT = 740 502 false "member disconnected before its response began";
    UPSTREAM_SLOW = 741 504 false "no response of a member in time";
    UPSTREAM_UNREACHABLE = 742 502 false "member can't be reached";
    UPSTREAM_NONE_USABLE = 743 503 false "no usable member";
    UPSTREAM_BUSY = 744 503 false "members are busy";
    UPSTREAM_LOOP = 745 508 false "request came through this server before";
    UPSTREAM_BROKE_OFF = 746 502 false "response of a member broke off";
    UPSTREAM_CONNECT_SLOW = 747 504 false "connection to a member took too long";
    UPSTREAM_TLS_FAILED = 748 502 false "TLS connection to a member failed";
    // 760 to 764: members over HTTP/2.
    UPSTREAM_PSEUDO_FIELDS = 760 502 false "malformed pseudo-header fields of a member's response";
    UPSTREAM_FRAME_MALFORMED = 761 502 false "HTTP/2 connection to a member failed";
    UPSTREAM_RESET = 762 502 false "member reset the stream of the request";
    UPSTREAM_REFUSED = 763 502 false "member did not process the request";
    UPSTREAM_LOCAL = 766 503 false "no local address, port, descriptor or memory for a connection to a member";
    AUTH_FAILED = 770 502 false "no usable answer of the server for forward authentication";
    AUTH_QUESTIONS = 771 403 false "request needs too many answers of servers for forward authentication";
}

impl Reject {
    /// Returns the position in [`Reject::ALL`] of the refusal with the number `rule`.
    pub fn index_of(rule: u16) -> Option<usize> {
        Reject::ALL
            .binary_search_by_key(&rule, |reject| reject.rule)
            .ok()
    }

    /// Returns true if the refused request is malformed by RFC 9113 §8.1.1 and RFC 9114 §4.1.2. The stream
    /// of a malformed request is reset; any other refusal is answered as over HTTP/1.1.
    pub fn is_malformed(self) -> bool {
        [
            Reject::PSEUDO_FIELDS,
            Reject::FIELD_OF_HTTP_1,
            Reject::FIELD_NAME,
            Reject::FIELD_VALUE,
            Reject::BODY_LENGTH,
        ]
        .contains(&self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_a_counter() {
        for (index, reject) in Reject::ALL.iter().enumerate() {
            assert_eq!(Reject::index_of(reject.rule), Some(index));
        }
        assert_eq!(Reject::index_of(0), None);
        assert!(Reject::ALL.len() <= crate::limits::REFUSAL_RULES_MAX);
    }

    #[test]
    fn numbers_are_unique_and_ascend() {
        for pair in Reject::ALL.windows(2) {
            let group = |reject: &Reject| reject.rule / 100;
            let (left, right) = (&pair[0], &pair[1]);
            assert!(left.rule < right.rule, "{left:?} {right:?}");
            assert!(group(left) <= group(right));
        }
        for reject in Reject::ALL {
            assert_ne!(reject.status.reason(), "", "{reject:?}");
        }
    }
}
