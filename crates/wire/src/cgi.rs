//! CGI (RFC 3875): the meta-variables of a request and the head of a script's response.
//!
//! FastCGI and SCGI carry the same variables and the same response head in another framing and share this
//! module. A client cannot choose the name of a variable, and a script cannot break the framing of a
//! response.

use super::date::parse_http_date;
use super::fields::{Fields, is_basic_login, items};
use super::status::{Status, StatusLine};
use crate::byte_search;
use crate::limits::{CGI_FIELDS_MAX, CGI_HEAD_BYTES_MAX};
use crate::request_head::Version;
use crate::response_fields::ResponseFields;

/// Facts about a request and its script, the source of the meta-variables. Paths are decoded.
pub struct MetaVariables<'a> {
    /// Method, such as `GET`.
    pub method: &'a str,
    /// HTTP version of the request.
    pub version: Version,
    /// Host without port; may be empty in HTTP/1.0.
    pub host: &'a [u8],
    /// Port in digits, as the client addressed the server.
    pub port: &'a str,
    /// Path as sent by the client, still percent-encoded, with resolved dot segments.
    pub raw_path: &'a [u8],
    /// Query as sent by the client, without the `?`.
    pub query: Option<&'a [u8]>,
    /// Query set by a rewrite, sent to the script in place of the client's query.
    pub rewritten_query: Option<&'a [u8]>,
    /// All field lines of the request.
    pub fields: Fields<'a>,
    /// Address of the client.
    pub peer: &'a str,
    /// Port of the client in digits, if known.
    pub peer_port: Option<&'a str>,
    /// Local address of the connection, if known.
    pub server: Option<&'a str>,
    /// The request came over TLS.
    pub secure: bool,
    /// Authenticated user.
    pub user: Option<&'a str>,
    /// The password of the client stays with this server.
    pub hides_login: bool,
    /// Length of the body in digits, if the request has a body of known length.
    pub length: Option<&'a str>,
    /// Path of the script on the site.
    pub script_name: &'a [u8],
    /// Rest of the request path behind the script's path.
    pub path_info: &'a [u8],
    /// Path of the script's file on disk.
    pub script_file: &'a [u8],
    /// Root folder of the site on disk.
    pub root: &'a [u8],
}

/// Receiver of meta-variables in some encoding.
pub trait VariableSink {
    /// Adds a variable. The value is the concatenation of the parts.
    fn add(&mut self, name: &[u8], value: &[&[u8]]);
}

impl MetaVariables<'_> {
    /// Writes the meta-variables of the request (RFC 3875 §4.1) and further variables that programs expect.
    /// A variable with NUL is left out, since no environment can hold NUL.
    pub fn write_to(&self, all: &mut dyn VariableSink) {
        let all = &mut NulFilter(all);
        all.add(b"GATEWAY_INTERFACE", &[b"CGI/1.1"]);
        all.add(b"SERVER_SOFTWARE", &[b"anthill"]);
        let host = if self.host.is_empty() {
            b"localhost"
        } else {
            self.host
        };
        all.add(b"SERVER_NAME", &[host]);
        if let Some(server) = self.server {
            all.add(b"SERVER_ADDR", &[server.as_bytes()]);
        }
        all.add(b"SERVER_PORT", &[self.port.as_bytes()]);
        all.add(b"SERVER_PROTOCOL", &[protocol(self.version).as_bytes()]);
        all.add(b"REQUEST_METHOD", &[self.method.as_bytes()]);
        let scheme: &[u8] = if self.secure { b"https" } else { b"http" };
        all.add(b"REQUEST_SCHEME", &[scheme]);
        if self.secure {
            all.add(b"HTTPS", &[b"on"]);
        }
        let (mark, query): (&[u8], _) = match self.query {
            Some(query) => (b"?", query),
            None => (b"", &[][..]),
        };
        all.add(b"REQUEST_URI", &[self.raw_path, mark, query]);
        all.add(b"QUERY_STRING", &[self.rewritten_query.unwrap_or(query)]);
        all.add(b"SCRIPT_NAME", &[self.script_name]);
        all.add(b"SCRIPT_FILENAME", &[self.script_file]);
        all.add(b"DOCUMENT_ROOT", &[self.root]);
        all.add(b"PATH_INFO", &[self.path_info]);
        if !self.path_info.is_empty() {
            all.add(b"PATH_TRANSLATED", &[self.root, self.path_info]);
        }
        all.add(b"REMOTE_ADDR", &[self.peer.as_bytes()]);
        all.add(b"REMOTE_HOST", &[self.peer.as_bytes()]);
        if let Some(port) = self.peer_port {
            all.add(b"REMOTE_PORT", &[port.as_bytes()]);
        }
        if let Some(user) = self.user {
            // A server for forward authentication knows the user by a scheme of its own.
            if self.hides_login {
                all.add(b"AUTH_TYPE", &[b"Basic"]);
            }
            all.add(b"REMOTE_USER", &[user.as_bytes()]);
        }
        if let Some(length) = self.length {
            all.add(b"CONTENT_LENGTH", &[length.as_bytes()]);
        }
        if let Some(kind) = self.fields.first("content-type") {
            all.add(b"CONTENT_TYPE", &[kind]);
        }
        // PHP runs as CGI only if REDIRECT_STATUS shows the decision of a server.
        all.add(b"REDIRECT_STATUS", &[b"200"]);
        self.write_fields(all);
    }

    /// Writes the field lines of the request (RFC 3875 §4.1.18).
    ///
    /// A hyphen becomes an underscore. A field with an underscore in its name could pass for another field
    /// and is dropped, as is every name with a character other than letters, digits and hyphens. `Proxy` is
    /// dropped because programs read HTTP_PROXY as their own configuration.
    fn write_fields(&self, all: &mut dyn VariableSink) {
        let lines = || self.fields.iter();
        let mut variable = Vec::with_capacity(64);
        for (nth, (name, value)) in lines().enumerate() {
            let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
            let is_same = |other: &[u8]| other.eq_ignore_ascii_case(name);
            let is_dropped = DROPPED.iter().any(|other| is_same(other.as_bytes()))
                || self.hides_login && is_basic_login(name, value);
            let came_before = lines().take(nth).any(|(other, _)| is_same(other));
            if is_dropped || came_before || !name.iter().all(is_plain) {
                continue;
            }
            variable.clear();
            variable.extend_from_slice(b"HTTP_");
            variable.extend_from_slice(name);
            for byte in &mut variable {
                *byte = match *byte {
                    b'-' => b'_',
                    other => other.to_ascii_uppercase(),
                };
            }
            let glue: &[u8] = if is_same(b"cookie") { b"; " } else { b", " };
            let mut more = lines().skip(nth + 1).filter(|(other, _)| is_same(other));
            match more.next() {
                None => all.add(&variable, &[value]),
                Some((_, second)) => {
                    let mut parts = vec![value, glue, second];
                    parts.extend(more.flat_map(|(_, value)| [glue, value]));
                    all.add(&variable, &parts);
                }
            }
        }
    }
}

/// Sink that drops variables with NUL and passes the rest on.
struct NulFilter<'v>(&'v mut dyn VariableSink);

impl VariableSink for NulFilter<'_> {
    fn add(&mut self, name: &[u8], value: &[&[u8]]) {
        if !value.iter().any(|part| holds_nul(part)) {
            self.0.add(name, value);
        }
    }
}

fn holds_nul(bytes: &[u8]) -> bool {
    byte_search::find(bytes, 0, 0).is_some()
}

/// Environment of a program: `NAME=VALUE` strings, each followed by NUL.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(Vec<u8>);

impl Environment {
    /// Builds the environment of a request.
    pub fn of(meta: &MetaVariables<'_>) -> Environment {
        let mut all = Environment(Vec::with_capacity(1_024));
        meta.write_to(&mut all);
        all
    }

    /// Adds a variable. A variable that no environment can hold is left out: an empty name, `=` in the
    /// name, or NUL in the name or the value.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        if is_name(name) && !holds_nul(value) {
            self.add(name.as_bytes(), &[value]);
        }
    }

    /// Sets a variable and removes any other of the same name.
    pub fn set(&mut self, name: &str, value: &[u8]) {
        let mut kept = Vec::with_capacity(self.0.len() + name.len() + value.len() + 2);
        for text in self.0.split_inclusive(|byte| *byte == 0) {
            let is_same = text.strip_prefix(name.as_bytes());
            if is_same.is_none_or(|rest| rest.first() != Some(&b'=')) {
                kept.extend_from_slice(text);
            }
        }
        self.0 = kept;
        self.push(name, value);
    }

    /// Returns the bytes of all variables: `NAME=VALUE` and NUL, in order.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl VariableSink for Environment {
    fn add(&mut self, name: &[u8], value: &[&[u8]]) {
        self.0.extend_from_slice(name);
        self.0.push(b'=');
        value.iter().for_each(|part| self.0.extend_from_slice(part));
        self.0.push(0);
    }
}

/// Returns true if `name` can name an environment variable.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.bytes().any(|byte| byte == b'=' || byte == 0)
}

/// Sink in which the operator's variables override request variables of the same names.
pub struct OverridingSink<'v> {
    /// Variables of the operator.
    pub own: &'v [(String, String)],
    /// Underlying sink.
    pub all: &'v mut dyn VariableSink,
}

impl OverridingSink<'_> {
    /// Writes the variables of `meta`, then the operator's.
    pub fn write_all(&mut self, meta: &MetaVariables<'_>) {
        match self.own {
            [] => meta.write_to(self.all),
            _ => meta.write_to(self),
        }
        for (nth, (name, value)) in self.own.iter().enumerate() {
            let comes_again = self.own[nth + 1..].iter().any(|(other, _)| other == name);
            if is_name(name) && !holds_nul(value.as_bytes()) && !comes_again {
                self.all.add(name.as_bytes(), &[value.as_bytes()]);
            }
        }
    }
}

impl VariableSink for OverridingSink<'_> {
    fn add(&mut self, name: &[u8], value: &[&[u8]]) {
        if !self.own.iter().any(|(own, _)| own.as_bytes() == name) {
            self.all.add(name, value);
        }
    }
}

/// Request fields without an HTTP_ variable: connection-specific fields, fields with a variable of their
/// own, and fields meant for a proxy.
const DROPPED: [&str; 9] = [
    "proxy",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "upgrade",
    "te",
    "proxy-authorization",
];

fn protocol(version: Version) -> &'static str {
    match version {
        Version::Http10 => "HTTP/1.0",
        Version::Http11 => "HTTP/1.1",
        Version::Http2 => "HTTP/2.0",
        Version::Http3 => "HTTP/3.0",
    }
}

/// Head of a script's response (RFC 3875 §6.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CgiResponse {
    /// Local redirect (RFC 3875 §6.2.2): path and query of another page of the server, sent in place of the
    /// response.
    LocalRedirect(Vec<u8>),
    /// Document, or a redirect for the client to follow.
    Document(CgiDocument),
}

/// Head of a document response (RFC 3875 §6.2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgiDocument {
    /// Status from 200 to 599.
    pub status: StatusLine,
    /// Fields in the order of the script, without those that the server sets.
    pub fields: ResponseFields,
    /// Length of the body, if the script sent one.
    pub length: Option<u64>,
}

/// Response head that cannot be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgiHeadError {
    /// Malformed, with the reason.
    Malformed(&'static str),
    /// Longer or with more fields than allowed.
    TooLarge,
}

impl CgiResponse {
    /// Parses the response head at the start of `bytes` and returns the head and its length; `Ok(None)` for
    /// an incomplete head. `scanned` is the number of bytes already searched for the end: 0 at first, kept
    /// between calls.
    ///
    /// Lines end with LF or CRLF.
    pub fn parse(
        bytes: &[u8],
        scanned: &mut usize,
    ) -> Result<Option<(CgiResponse, usize)>, CgiHeadError> {
        if matches!(bytes, [b'\n', ..] | [b'\r', b'\n', ..]) {
            return Err(CgiHeadError::Malformed("no fields before the body"));
        }
        match end_of_head(bytes, scanned) {
            Some(end) if end <= CGI_HEAD_BYTES_MAX => {
                Ok(Some((CgiHeadFields::read(&bytes[..end])?.answer()?, end)))
            }
            None if bytes.len() < CGI_HEAD_BYTES_MAX => Ok(None),
            _ => Err(CgiHeadError::TooLarge),
        }
    }
}

/// Returns the position behind the first empty line.
fn end_of_head(bytes: &[u8], scanned: &mut usize) -> Option<usize> {
    while let Some(at) = byte_search::find(bytes, b'\n', *scanned) {
        match &bytes[at + 1..] {
            [b'\n', ..] => return Some(at + 2),
            [b'\r', b'\n', ..] => return Some(at + 3),
            // The next bytes decide.
            [] | [b'\r'] => {
                *scanned = at;
                return None;
            }
            _ => *scanned = at + 1,
        }
    }
    *scanned = bytes.len();
    None
}

/// Fields of a response head, sorted by meaning.
#[derive(Default)]
struct CgiHeadFields {
    status: Option<StatusLine>,
    length: Option<u64>,
    /// Value of the first valid Date line.
    date: Option<Vec<u8>>,
    /// Values of the Connection lines, as one list.
    connection: Vec<u8>,
    /// Further fields in the order of the script; Content-Type and Location once each.
    fields: ResponseFields,
}

impl CgiHeadFields {
    fn read(bytes: &[u8]) -> Result<CgiHeadFields, CgiHeadError> {
        let mut head = CgiHeadFields::default();
        for (nth, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                break;
            }
            if nth >= CGI_FIELDS_MAX {
                return Err(CgiHeadError::TooLarge);
            }
            match line.strip_prefix(b"HTTP/1.") {
                // Many scripts write the status line of an HTTP response, although CGI only defines the
                // Status field.
                Some(rest) if nth == 0 => {
                    head.note_status(byte_search::trim(rest.get(2..).unwrap_or_default()))?;
                }
                _ => head.note(line)?,
            }
        }
        Ok(head)
    }

    fn note(&mut self, line: &[u8]) -> Result<(), CgiHeadError> {
        let colon = line.iter().position(|byte| *byte == b':');
        let colon = colon.ok_or(CgiHeadError::Malformed("a line without colon"))?;
        let (name, value) = (&line[..colon], byte_search::trim(&line[colon + 1..]));
        if name.is_empty() || !name.iter().all(|byte| byte_search::is_token(*byte)) {
            return Err(CgiHeadError::Malformed(
                "a line with a malformed field name",
            ));
        }
        if byte_search::value_end(value, 0) != value.len() {
            return Err(CgiHeadError::Malformed("a control character in a field"));
        }
        let is = |field: &str| name.eq_ignore_ascii_case(field.as_bytes());
        if is("status") {
            self.note_status(value)
        } else if let Some(single) = [CONTENT_TYPE, LOCATION].into_iter().find(|it| is(it)) {
            match self.field(single) {
                Some(before) if before != value => Err(CgiHeadError::Malformed(TWO_VALUES)),
                Some(_) => Ok(()),
                None => {
                    self.fields.push(single.as_bytes(), value);
                    Ok(())
                }
            }
        } else if is("content-length") {
            once(&mut self.length, length(value)?)
        } else if is("transfer-encoding") {
            // Chunked framing by the script would frame the body twice (RFC 3875 §6.3.4).
            Err(CgiHeadError::Malformed(
                "Transfer-Encoding, which only the server may set",
            ))
        } else if is("date") {
            // The age of a cached page is calculated from Date (RFC 9111 §4.2.3). Without a valid Date the
            // server sends its own.
            if self.date.is_none() && parse_http_date(value).is_some() {
                self.date = Some(value.to_vec());
            }
            Ok(())
        } else if is("connection") {
            self.connection.extend_from_slice(value);
            self.connection.push(b',');
            Ok(())
        } else {
            if !SERVERS_OWN.iter().any(|field| is(field)) {
                self.fields.push(name, value);
            }
            Ok(())
        }
    }

    /// Records the script's status. Of several equal status lines, the first with a reason phrase provides
    /// the phrase.
    fn note_status(&mut self, value: &[u8]) -> Result<(), CgiHeadError> {
        let new = status(value)?;
        match &self.status {
            Some(before) if **before != *new => Err(CgiHeadError::Malformed(TWO_VALUES)),
            Some(before) if before.has_own_reason() => Ok(()),
            _ => {
                self.status = Some(new);
                Ok(())
            }
        }
    }

    fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.first(name)
    }

    fn answer(mut self) -> Result<CgiResponse, CgiHeadError> {
        let connection = std::mem::take(&mut self.connection);
        // A field listed in Connection is meant for a single connection (RFC 9110 §7.6.1). By the same
        // section a field for all recipients must not be listed: a response must not lose `Cache-Control:
        // private`.
        if !connection.is_empty() {
            self.fields.retain(|name, _| {
                END_TO_END
                    .iter()
                    .any(|field| name.eq_ignore_ascii_case(field.as_bytes()))
                    || !items(&connection).any(|option| option.eq_ignore_ascii_case(name))
            });
        }
        let kind = self.field(CONTENT_TYPE);
        let (has_kind, has_empty_kind) = (kind.is_some(), kind.is_some_and(<[u8]>::is_empty));
        let is_alone = self.fields.iter().count() == 1 && self.length.is_none();
        let status = match (self.status.take(), self.field(LOCATION)) {
            (Some(status), _) => status,
            // A redirect with a cookie or a body is left to the client, since an internal redirect would
            // lose both (RFC 3875 §6.2.2).
            (None, Some(path)) if is_alone && is_local(path) => {
                return Ok(CgiResponse::LocalRedirect(path.to_vec()));
            }
            (None, Some(_)) => Status::FOUND.into(),
            (None, None) if has_kind => Status::OK.into(),
            // RFC 3875 §6.2 requires at least one of Content-Type, Location and Status.
            (None, None) => return Err(CgiHeadError::Malformed("no Content-Type")),
        };
        if has_empty_kind {
            self.fields
                .retain(|name, _| name != CONTENT_TYPE.as_bytes());
        }
        if let Some(date) = self.date {
            self.fields.push(b"Date", &date);
        }
        Ok(CgiResponse::Document(CgiDocument {
            status,
            fields: self.fields,
            length: self.length,
        }))
    }
}

/// Canonical name of a field allowed once in a response.
const CONTENT_TYPE: &str = "Content-Type";
/// Canonical name of a field allowed once in a response.
const LOCATION: &str = "Location";

/// End-to-end fields, which Connection cannot remove: they describe the response and its audience.
const END_TO_END: [&str; 10] = [
    CONTENT_TYPE,
    LOCATION,
    "cache-control",
    "content-encoding",
    "content-range",
    "etag",
    "expires",
    "set-cookie",
    "vary",
    "www-authenticate",
];

const TWO_VALUES: &str = "two values for one field";

/// Response fields that the server sets itself, or that belong to a connection.
const SERVERS_OWN: [&str; 7] = [
    "keep-alive",
    "proxy-connection",
    "upgrade",
    "te",
    "trailer",
    "server",
    "http2-settings",
];

/// Stores a single-valued field. A repeated equal value is accepted.
fn once<T: PartialEq>(slot: &mut Option<T>, value: T) -> Result<(), CgiHeadError> {
    match slot {
        Some(before) if *before != value => Err(CgiHeadError::Malformed(TWO_VALUES)),
        _ => {
            *slot = Some(value);
            Ok(())
        }
    }
}

/// Parses a final status such as `404 Not Found`.
fn status(value: &[u8]) -> Result<StatusLine, CgiHeadError> {
    match value {
        [a @ b'2'..=b'5', b, c, rest @ ..]
            if b.is_ascii_digit() && c.is_ascii_digit() && matches!(rest, [] | [b' ', ..]) =>
        {
            let digits = [a, b, c].map(|digit| u16::from(digit - b'0'));
            let status = Status(digits[0] * 100 + digits[1] * 10 + digits[2]);
            Ok(StatusLine::new(status, byte_search::trim(rest)))
        }
        _ => Err(CgiHeadError::Malformed("malformed Status")),
    }
}

fn length(value: &[u8]) -> Result<u64, CgiHeadError> {
    let digits = std::str::from_utf8(value).ok();
    let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let length = digits.and_then(|text| text.parse().ok());
    length.ok_or(CgiHeadError::Malformed("malformed Content-Length"))
}

/// Returns true for a path on this server. `//` begins the authority of a URL. A location with a fragment
/// is left to the client, which alone evaluates fragments.
fn is_local(location: &[u8]) -> bool {
    matches!(location, [b'/', rest @ ..] if rest.first() != Some(&b'/'))
        && !location.contains(&b'#')
}

#[cfg(test)]
mod tests;
