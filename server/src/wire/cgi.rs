//! CGI (RFC 3875) as bytes: the meta-variables of a request, and the head of what a script answers.
//!
//! FastCGI and SCGI say the same in another framing, so all of them use this. What comes from a
//! client can't name a variable of its own choice, and what comes from a script can't break the
//! framing of a response.

use super::date::parse_http_date;
use super::fields::{Fields, items};
use super::status::{Status, StatusLine};
use crate::limits::{CGI_FIELDS_MAX, CGI_HEAD_BYTES_MAX};
use crate::wire::byte_search;
use crate::wire::request_head::Version;
use crate::wire::response_fields::ResponseFields;

/// What is known of a request and of the script that answers it. Paths are decoded.
pub struct MetaVariables<'a> {
    /// `GET` and the like.
    pub method: &'a str,
    /// The version that the client spoke.
    pub version: Version,
    /// Without a port; may be empty in HTTP/1.0.
    pub host: &'a [u8],
    /// Where the client was told to connect to, in digits.
    pub port: &'a str,
    /// As it was sent, still encoded.
    pub raw_path: &'a [u8],
    /// Without its `?`, as it was sent.
    pub query: Option<&'a [u8]>,
    /// The script's own, where what led to it says so.
    pub rewritten_query: Option<&'a [u8]>,
    /// All field lines.
    pub fields: Fields<'a>,
    /// Who asks.
    pub peer: &'a str,
    /// From which port, if that is known: in digits.
    pub peer_port: Option<&'a str>,
    /// Which of our addresses was asked, if that is known.
    pub server: Option<&'a str>,
    /// Came over TLS.
    pub secure: bool,
    /// Who logged in here.
    pub user: Option<&'a str>,
    /// Of the body, if there is one and its length is known: in digits.
    pub length: Option<&'a str>,
    /// The script's own path on the site.
    pub script_name: &'a [u8],
    /// What follows it.
    pub path_info: &'a [u8],
    /// The script's file.
    pub script_file: &'a [u8],
    /// The folder that paths of the site lie in.
    pub root: &'a [u8],
}

/// Where variables are told.
pub trait VariableSink {
    /// One more; the parts make up its value.
    fn add(&mut self, name: &[u8], value: &[&[u8]]);
}

impl MetaVariables<'_> {
    /// Tells the variables of one request (RFC 3875 §4.1), with what programs have come to expect
    /// beside. None has a NUL in it, which no environment can hold: what would have one is left out.
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
            all.add(b"AUTH_TYPE", &[b"Basic"]);
            all.add(b"REMOTE_USER", &[user.as_bytes()]);
        }
        if let Some(length) = self.length {
            all.add(b"CONTENT_LENGTH", &[length.as_bytes()]);
        }
        if let Some(kind) = self.fields.first("content-type") {
            all.add(b"CONTENT_TYPE", &[kind]);
        }
        // PHP runs as CGI only where it sees that a server decided so.
        all.add(b"REDIRECT_STATUS", &[b"200"]);
        self.tell_fields(all);
    }

    /// The client's own fields (RFC 3875 §4.1.18).
    ///
    /// A hyphen becomes an underscore, so a field whose name has an underscore could pass for
    /// another one: it is dropped, as is every name with anything but letters, digits and hyphens.
    /// `Proxy` would become HTTP_PROXY, which programs take for their own configuration.
    fn tell_fields(&self, all: &mut dyn VariableSink) {
        let lines = || self.fields.iter();
        let mut variable = Vec::with_capacity(64);
        for (nth, (name, value)) in lines().enumerate() {
            let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
            let is_same = |other: &[u8]| other.eq_ignore_ascii_case(name);
            let is_dropped = DROPPED.iter().any(|other| is_same(other.as_bytes()))
                || self.user.is_some() && is_same(b"authorization");
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

/// Variables on their way elsewhere, but for those with a NUL.
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

/// Variables as a program's environment has them: `NAME=VALUE` with a NUL behind each.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(Vec<u8>);

impl Environment {
    /// Of one request.
    pub fn of(meta: &MetaVariables<'_>) -> Environment {
        let mut all = Environment(Vec::with_capacity(1_024));
        meta.write_to(&mut all);
        all
    }

    /// One more. What can't stand in an environment is left out: a name that is empty or has a `=`,
    /// and NUL in either.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        if is_name(name) && !holds_nul(value) {
            self.add(name.as_bytes(), &[value]);
        }
    }

    /// The same, instead of any that has the name.
    pub fn set(&mut self, name: &str, value: &[u8]) {
        let mut others = Vec::with_capacity(self.0.len() + name.len() + value.len() + 2);
        for text in self.0.split_inclusive(|byte| *byte == 0) {
            let is_same = text.strip_prefix(name.as_bytes());
            if is_same.is_none_or(|rest| rest.first() != Some(&b'=')) {
                others.extend_from_slice(text);
            }
        }
        self.0 = others;
        self.push(name, value);
    }

    /// Each as `NAME=VALUE` and a NUL, one after the other.
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

/// Can a variable have this name?
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.bytes().any(|byte| byte == b'=' || byte == 0)
}

/// Variables on their way elsewhere, with the operator's own instead of those that have their names.
pub struct OverridingSink<'v> {
    /// The operator's.
    pub own: &'v [(String, String)],
    /// Where they go.
    pub all: &'v mut dyn VariableSink,
}

impl OverridingSink<'_> {
    /// Tells those of `meta`, and the operator's own.
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

/// Fields that are no script's business, or that a variable of their own has. How a body was framed
/// is over by then, and what a proxy was told is not for us.
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

/// What a script answers before its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CgiResponse {
    /// Another page of this server is to be sent instead (RFC 3875 §6.2.2): its path, with its query.
    LocalRedirect(Vec<u8>),
    /// A document, or a redirect that is the client's to follow.
    Document(CgiDocument),
}

/// The head of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgiDocument {
    /// 200 to 599.
    pub status: StatusLine,
    /// In their order, without those that are the server's own.
    pub fields: ResponseFields,
    /// Of the body, if it was said.
    pub length: Option<u64>,
}

/// This is no head that can be sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgiHeadError {
    /// And why.
    Malformed(&'static str),
    /// It has no end.
    TooLarge,
}

impl CgiResponse {
    /// Reads the head that begins `bytes`, and how long it is; `Ok(None)` while its end hasn't come.
    /// `scanned` is how far that was looked for: 0 at first, then kept between calls.
    ///
    /// Lines end with LF, or CRLF as on the wire.
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

/// Behind the first empty line.
fn end_of_head(bytes: &[u8], scanned: &mut usize) -> Option<usize> {
    while let Some(at) = byte_search::find(bytes, b'\n', *scanned) {
        match &bytes[at + 1..] {
            [b'\n', ..] => return Some(at + 2),
            [b'\r', b'\n', ..] => return Some(at + 3),
            // What follows tells.
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

/// The fields of a head by what they mean.
#[derive(Default)]
struct CgiHeadFields {
    status: Option<StatusLine>,
    length: Option<u64>,
    /// The value of the first Date line that is a date.
    date: Option<Vec<u8>>,
    /// The values of the Connection lines, as one list.
    connection: Vec<u8>,
    /// The other fields in the order of the script; Content-Type and Location once each.
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
                // Many write the first line of a response, though only Status is CGI.
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
            return Err(CgiHeadError::Malformed("a line that is no field"));
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
            // Its body would be framed twice (RFC 3875 §6.3.4).
            Err(CgiHeadError::Malformed(
                "Transfer-Encoding, which is the server's",
            ))
        } else if is("date") {
            // Kept pages are aged by it (RFC 9111 §4.2.3). Without a valid one the server says its own.
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

    /// Takes the status of the script. Its phrase stands in the first of several lines that has one.
    fn note_status(&mut self, value: &[u8]) -> Result<(), CgiHeadError> {
        let said = status(value)?;
        match &self.status {
            Some(before) if **before != *said => Err(CgiHeadError::Malformed(TWO_VALUES)),
            Some(before) if before.has_own_reason() => Ok(()),
            _ => {
                self.status = Some(said);
                Ok(())
            }
        }
    }

    fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.first(name)
    }

    fn answer(mut self) -> Result<CgiResponse, CgiHeadError> {
        let connection = std::mem::take(&mut self.connection);
        // Fields that Connection names were meant for one connection (RFC 9110 §7.6.1). By the same section
        // fields that are meant for all recipients are never among them: a response must not lose its `private`.
        self.fields.retain(|name, _| {
            END_TO_END
                .iter()
                .any(|field| name.eq_ignore_ascii_case(field.as_bytes()))
                || !items(&connection).any(|option| option.eq_ignore_ascii_case(name))
        });
        let has_kind = self.field(CONTENT_TYPE).is_some();
        let is_alone = self.fields.iter().count() == 1 && self.length.is_none();
        let status = match (self.status.take(), self.field(LOCATION)) {
            (Some(status), _) => status,
            // RFC 3875 §6.2.2. More than this (a cookie, a body) would be lost: then the client follows.
            (None, Some(path)) if is_alone && is_local(path) => {
                return Ok(CgiResponse::LocalRedirect(path.to_vec()));
            }
            (None, Some(_)) => Status::FOUND.into(),
            (None, None) if has_kind => Status::OK.into(),
            // RFC 3875 §6.2: at least one of the three.
            (None, None) => return Err(CgiHeadError::Malformed("no Content-Type")),
        };
        self.fields
            .retain(|name, value| name != CONTENT_TYPE.as_bytes() || !value.is_empty());
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

/// The spelling under which a response has the fields that may be there once.
const CONTENT_TYPE: &str = "Content-Type";
const LOCATION: &str = "Location";

/// Fields that Connection can't take away: they say what a response is, and for which clients.
const END_TO_END: [&str; 7] = [
    CONTENT_TYPE,
    LOCATION,
    "cache-control",
    "content-range",
    "expires",
    "set-cookie",
    "vary",
];

const TWO_VALUES: &str = "two values for one field";

/// What the server says by itself, or what belongs to a connection.
const SERVERS_OWN: [&str; 7] = [
    "keep-alive",
    "proxy-connection",
    "upgrade",
    "te",
    "trailer",
    "server",
    "http2-settings",
];

/// A field that means one thing; the same again is no harm.
fn once<T: PartialEq>(slot: &mut Option<T>, value: T) -> Result<(), CgiHeadError> {
    match slot {
        Some(before) if *before != value => Err(CgiHeadError::Malformed(TWO_VALUES)),
        _ => {
            *slot = Some(value);
            Ok(())
        }
    }
}

/// Reads `404 Not Found`, the status of a final response.
fn status(value: &[u8]) -> Result<StatusLine, CgiHeadError> {
    match value {
        [a @ b'2'..=b'5', b, c, rest @ ..]
            if b.is_ascii_digit() && c.is_ascii_digit() && matches!(rest, [] | [b' ', ..]) =>
        {
            let digits = [a, b, c].map(|digit| u16::from(digit - b'0'));
            let status = Status(digits[0] * 100 + digits[1] * 10 + digits[2]);
            Ok(StatusLine::new(status, byte_search::trim(rest)))
        }
        _ => Err(CgiHeadError::Malformed("no status of a response")),
    }
}

fn length(value: &[u8]) -> Result<u64, CgiHeadError> {
    let digits = std::str::from_utf8(value).ok();
    let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let length = digits.and_then(|text| text.parse().ok());
    length.ok_or(CgiHeadError::Malformed("malformed Content-Length"))
}

/// A path of this server, as against a URL; `//` begins the name of another one. What has a fragment
/// is for who shows the page.
fn is_local(location: &[u8]) -> bool {
    matches!(location, [b'/', rest @ ..] if rest.first() != Some(&b'/'))
        && !location.contains(&b'#')
}

#[cfg(test)]
mod tests;
