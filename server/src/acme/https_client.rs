//! HTTPS/1.1 client for ACME directories: one request for each connection. Responses are short, and
//! requests are rare: a few in two months. The client blocks, on the renewer's thread, until a deadline.
//! The deadline and size bounds hold for any response, however slow, long or malformed.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::StreamOwned;

use crate::acme::error::AcmeError;
use crate::acme::limits::{
    ACME_CALL_SECONDS, ACME_CONNECT_SECONDS, ACME_FIELDS_MAX, ACME_HEAD_BYTES_MAX,
    ACME_RESPONSE_BYTES_MAX,
};
use crate::acme::remedy::UNREACHED;
use data_plane::tls::{TlsClient, TlsClientSettings};
use wire::date::parse_http_date;
use wire::h1::body_decoder::{BodyDecoder, BodyLength, BodyStep};
use wire::h1::response_head::{
    ParsedResponse, ResponseHead, ResponseHeadBounds, ResponseLength, parse_response_head,
};
use wire::json::Json;
use wire::reject::Reject;
use wire::request_head::Method;

/// HTTPS client with a set of trusted certificate authorities.
pub(super) struct HttpsClient {
    tls: Arc<TlsClient>,
}

/// Complete response.
pub(super) struct HttpsResponse {
    /// Final status, 200 to 599.
    pub(super) status: u16,
    pub(super) content_type: Option<String>,
    pub(super) location: Option<String>,
    pub(super) replay_nonce: Option<String>,
    pub(super) retry_after: Option<String>,
    pub(super) body: Vec<u8>,
}

/// Request to a directory.
pub(super) struct HttpsRequest<'q> {
    pub(super) method: Method,
    pub(super) url: &'q str,
    /// Content of type `application/jose+json`, if any.
    pub(super) content: Option<&'q str>,
}

impl HttpsClient {
    /// Creates a client that trusts the authorities in `ca`, or the authorities of the system. The
    /// authorities (about 140) are held in memory only as long as the client exists.
    pub(super) fn new(ca: Option<&Path>) -> Result<HttpsClient, AcmeError> {
        let settings = TlsClientSettings {
            authorities: ca.map(Path::to_owned),
            ..TlsClientSettings::default()
        };
        let tls = TlsClient::load(&settings, []);
        let tls = tls.map_err(|error| AcmeError::new(error.to_string()))?;
        Ok(HttpsClient { tls })
    }

    /// Sends the request and reads the complete response. Redirects are not followed, because directories
    /// do not redirect.
    pub(super) fn ask(&self, question: &HttpsRequest<'_>) -> Result<HttpsResponse, AcmeError> {
        let url = HttpsUrl::parse(question.url)?;
        let asked = self.try_ask(question, &url);
        asked.map_err(|error| {
            let what = format!("{}: {}", url.authority, reason(&error));
            AcmeError::new(what).with_remedy(Some(UNREACHED.to_owned()))
        })
    }

    fn try_ask(
        &self,
        question: &HttpsRequest<'_>,
        url: &HttpsUrl<'_>,
    ) -> io::Result<HttpsResponse> {
        let until = Instant::now() + Duration::from_secs(ACME_CALL_SECONDS);
        let endpoint = self.tls.endpoint(url.host).map_err(invalid)?;
        let client = endpoint.connect_once().map_err(invalid)?;
        let socket = DeadlineStream {
            socket: connect(url, until)?,
            until,
        };
        let mut stream = StreamOwned::new(client, socket);
        stream.write_all(request(question, url).as_bytes())?;
        stream.flush()?;
        read_answer(&mut stream, question.method)
    }
}

impl HttpsResponse {
    /// Copies the fields that the protocol uses from `head`. A value that is not ASCII counts as absent.
    fn new(head: &ResponseHead<'_>) -> HttpsResponse {
        let text = |name: &str| {
            let text = std::str::from_utf8(head.fields.first(name)?).ok()?;
            text.is_ascii().then(|| text.to_owned())
        };
        HttpsResponse {
            status: head.status.0,
            content_type: text("content-type"),
            location: text("location"),
            replay_nonce: text("replay-nonce"),
            retry_after: text("retry-after"),
            body: Vec::new(),
        }
    }

    /// Returns the media type without parameters.
    pub(super) fn media_type(&self) -> &str {
        let value = self.content_type.as_deref().unwrap_or_default();
        value.split(';').next().unwrap_or_default().trim()
    }

    /// Parses the content as JSON.
    pub(super) fn json(&self) -> Result<Json, AcmeError> {
        if self.media_type() != "application/json" {
            let what = format!(
                "the directory answered with {:?} instead of JSON",
                crate::acme::error::clean(self.media_type())
            );
            return Err(AcmeError::new(what));
        }
        Json::parse(&self.body).ok_or_else(|| AcmeError::new("the directory's JSON is malformed"))
    }

    /// Returns the seconds to wait according to Retry-After (RFC 9110 §10.2.3). `now` is Unix time.
    pub(super) fn retry_after(&self, now: u64) -> Option<u64> {
        let value = self.retry_after.as_deref()?;
        let date = || parse_http_date(value.as_bytes()).map(|at| at.saturating_sub(now));
        value.parse().ok().or_else(date)
    }
}

/// Parsed https URL.
struct HttpsUrl<'u> {
    host: &'u str,
    port: u16,
    /// Host and port as in the Host field.
    authority: &'u str,
    path: &'u str,
}

impl HttpsUrl<'_> {
    fn parse(text: &str) -> Result<HttpsUrl<'_>, AcmeError> {
        let parsed = HttpsUrl::parts(text);
        parsed.ok_or_else(|| {
            let shown = crate::acme::error::clean(text);
            AcmeError::new(format!("`{shown}` is not an https:// URL"))
        })
    }

    fn parts(text: &str) -> Option<HttpsUrl<'_>> {
        if text.len() > URL_BYTES_MAX || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        let rest = text.strip_prefix("https://")?;
        let (authority, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, "/"),
        };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (authority, 443),
        };
        let host = match host.strip_prefix('[') {
            Some(address) => address.strip_suffix(']')?,
            None => host,
        };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        let fits = !host.is_empty() && host.bytes().all(is_plain);
        fits.then_some(HttpsUrl {
            host,
            port,
            authority,
            path,
        })
    }
}

/// Bytes of the longest accepted URL. URLs of directories have about 80 bytes.
const URL_BYTES_MAX: usize = 2_048;

fn request(question: &HttpsRequest<'_>, url: &HttpsUrl<'_>) -> String {
    let mut request = format!(
        "{} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: anthill/{}\r\nAccept: */*\r\n\
         Connection: close\r\n",
        question.method.name(),
        url.path,
        url.authority,
        env!("CARGO_PKG_VERSION")
    );
    if let Some(content) = question.content {
        let length = content.len();
        request.push_str(&format!(
            "Content-Type: application/jose+json\r\nContent-Length: {length}\r\n\r\n{content}"
        ));
    } else {
        request.push_str("\r\n");
    }
    request
}

/// Connects to the first address of the host that accepts.
fn connect(url: &HttpsUrl<'_>, until: Instant) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(ErrorKind::NotFound, "the host has no address");
    for address in (url.host, url.port).to_socket_addrs()? {
        let timeout = left(until)?.min(Duration::from_secs(ACME_CONNECT_SECONDS));
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(socket) => {
                let _ = socket.set_nodelay(true); // a failure only adds latency
                return Ok(socket);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Returns the time left until `until`, or a timeout error.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(ErrorKind::TimedOut.into())
    } else {
        Ok(left)
    }
}

/// Socket with one deadline for all reads and writes together.
struct DeadlineStream {
    socket: TcpStream,
    until: Instant,
}

impl Read for DeadlineStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(left(self.until)?))?;
        self.socket.read(into)
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(left(self.until)?))?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

fn read_answer(stream: &mut impl Read, method: Method) -> io::Result<HttpsResponse> {
    let mut bytes = Vec::new();
    let (mut response, length) = read_head(stream, &mut bytes, method)?;
    response.body = match length.framed() {
        Some(length) => read_framed(stream, bytes, length)?,
        None => read_to_end(stream, bytes)?,
    };
    Ok(response)
}

/// Reads the head of the final response and leaves the first bytes of the body in `bytes`. Interim responses
/// are skipped (RFC 9110 §15.2).
fn read_head(
    stream: &mut impl Read,
    bytes: &mut Vec<u8>,
    method: Method,
) -> io::Result<(HttpsResponse, ResponseLength)> {
    let mut scanned = 0;
    loop {
        let parsed = parse_response_head(bytes, &mut scanned, method, &HEAD_BOUNDS);
        match parsed.map_err(malformed)? {
            ParsedResponse::Complete { head, head_bytes } => {
                let is_final = head.status.0 >= 200;
                let result = is_final.then(|| (HttpsResponse::new(&head), head.body));
                bytes.drain(..head_bytes);
                if let Some(result) = result {
                    return Ok(result);
                }
                scanned = 0;
            }
            ParsedResponse::Partial => {
                if !more(stream, bytes)? {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
            }
        }
    }
}

const HEAD_BOUNDS: ResponseHeadBounds = ResponseHeadBounds {
    head_bytes: ACME_HEAD_BYTES_MAX,
    fields: ACME_FIELDS_MAX,
};

/// Reads a body with Content-Length or chunked coding.
fn read_framed(
    stream: &mut impl Read,
    mut bytes: Vec<u8>,
    length: BodyLength,
) -> io::Result<Vec<u8>> {
    if matches!(length, BodyLength::Length(length) if length > ACME_RESPONSE_BYTES_MAX as u64) {
        return Err(too_long());
    }
    let mut decoder = BodyDecoder::new(length);
    let mut body = Vec::new();
    loop {
        match decoder.step(&bytes).map_err(malformed)? {
            BodyStep::Data { consumed, payload } => {
                body.extend_from_slice(&bytes[payload]);
                bytes.drain(..consumed);
            }
            BodyStep::More { consumed } => {
                bytes.drain(..consumed);
                if !more(stream, &mut bytes)? {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
            }
            BodyStep::End { .. } => return Ok(body),
        }
        if body.len() > ACME_RESPONSE_BYTES_MAX {
            return Err(too_long());
        }
    }
}

/// Reads a body delimited by the end of the connection. TLS requires a close_notify at the end.
fn read_to_end(stream: &mut impl Read, mut body: Vec<u8>) -> io::Result<Vec<u8>> {
    while more(stream, &mut body)? {
        if body.len() > ACME_RESPONSE_BYTES_MAX {
            return Err(too_long());
        }
    }
    Ok(body)
}

/// Reads the next bytes; returns false at the end of the stream.
fn more(stream: &mut impl Read, into: &mut Vec<u8>) -> io::Result<bool> {
    let mut piece = [0; 4_096];
    let read = stream.read(&mut piece)?;
    into.extend_from_slice(&piece[..read]);
    Ok(read > 0)
}

fn malformed(rule: Reject) -> io::Error {
    if rule == Reject::UPSTREAM_HEAD_TOO_LARGE {
        return too_long();
    }
    io::Error::new(ErrorKind::InvalidData, "malformed HTTP/1.1 response")
}

fn too_long() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the response is too long")
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, error)
}

/// Returns the text of a network error.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => {
            format!("no complete response within {ACME_CALL_SECONDS} s")
        }
        ErrorKind::UnexpectedEof => {
            "the connection closed before the end of the response".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(bytes: &[u8]) -> io::Result<HttpsResponse> {
        read_answer(&mut &bytes[..], Method::Get)
    }

    #[test]
    fn only_https_urls_are_parsed() {
        let parts = |text| {
            let url = HttpsUrl::parts(text)?;
            Some((url.host, url.port, url.authority, url.path))
        };
        assert_eq!(
            parts("https://ca.test/dir?a"),
            Some(("ca.test", 443, "ca.test", "/dir?a"))
        );
        assert_eq!(
            parts("https://[::1]:14000/dir"),
            Some(("::1", 14000, "[::1]:14000", "/dir"))
        );
        assert_eq!(parts("https://[::1]"), Some(("::1", 443, "[::1]", "/")));
        for bad in [
            "http://ca.test/",
            "https://",
            "https:///x",
            "https://ca.test:x/",
            "https://ca test/",
            "https://u@ca.test/",
            "https://ca.test/\r\nX: y",
            "ca.test",
        ] {
            assert_eq!(parts(bad), None, "{bad}");
        }
    }

    #[test]
    fn incomplete_responses_are_refused() {
        let whole = answer(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: application/json; a=b\r\n\
              Retry-After: 7\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        );
        let whole = whole.unwrap();
        assert_eq!(whole.json().unwrap(), Json::Object(Vec::new()));
        assert_eq!(whole.retry_after(0), Some(7));
        let unframed = answer(b"HTTP/1.1 200 OK\r\n\r\nabc").unwrap();
        assert_eq!(unframed.body, b"abc");
        assert!(unframed.json().is_err());
        for cut in [
            &b"HTTP/1.1 200 OK\r\nA: b"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
            b"",
        ] {
            let error = answer(cut).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn response_sizes_are_bounded() {
        let long = vec![b'a'; ACME_RESPONSE_BYTES_MAX + 1];
        let chunk = format!("{:x}\r\n", long.len());
        let chunked = [
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            chunk.as_bytes(),
            &long,
        ];
        let announced = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", long.len());
        for bytes in [
            chunked.concat(),
            announced.into_bytes(),
            [b"HTTP/1.1 200 OK\r\n\r\n", &long[..]].concat(),
            [b"HTTP/1.1 200 OK\r\nA: ", &long[..]].concat(),
        ] {
            let error = answer(&bytes).err().unwrap();
            assert!(error.to_string().contains("too long"), "{error}");
        }
        assert!(answer(b"SSH-2.0-OpenSSH\r\n").is_err());
    }
}
