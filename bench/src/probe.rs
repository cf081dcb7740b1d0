//! A single request to check that a server is ready and responds correctly.
//!
//! The client is deliberately simple: HTTP/1.1 with `Connection: close` on a new socket. Under TLS the
//! client trusts only the site's own authority. The client is not used for measurements.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Status code.
    pub status: u16,
    /// Status line and header section as received, without the final empty line.
    pub head: String,
    /// Content, without transfer coding.
    pub body: Vec<u8>,
}

/// Sends a GET request for `path`, over TLS if a trusted authority (PEM) is given.
pub(crate) fn get(address: SocketAddr, path: &str, authority: Option<&str>) -> io::Result<Answer> {
    let mut socket = TcpStream::connect_timeout(&address, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
    match authority {
        None => exchange(&mut socket, &request),
        Some(pem) => exchange(&mut encrypted(socket, pem)?, &request),
    }
}

fn encrypted(
    socket: TcpStream,
    authority: &str,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut roots = RootCertStore::empty();
    let certificate =
        CertificateDer::from_pem_slice(authority.as_bytes()).map_err(io::Error::other)?;
    roots.add(certificate).map_err(io::Error::other)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(HOST).map_err(io::Error::other)?;
    let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    Ok(StreamOwned::new(connection, socket))
}

fn exchange(stream: &mut (impl Read + Write), request: &str) -> io::Result<Answer> {
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    let mut bytes = Vec::new();
    let mut piece = [0; 16 * 1024];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&piece[..n]),
            // Many servers close without close_notify, some with a reset. A complete response is accepted
            // anyway.
            Err(_) if is_whole(&bytes) => break,
            Err(error) => return Err(error),
        }
    }
    parse(&bytes)
}

fn is_whole(bytes: &[u8]) -> bool {
    parse(bytes).is_ok()
}

fn parse(bytes: &[u8]) -> io::Result<Answer> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let end = find(bytes, b"\r\n\r\n").ok_or_else(|| wrong("truncated header section"))?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut words = head.split_ascii_whitespace();
    let is_http = words.next().is_some_and(|word| word.starts_with("HTTP/1."));
    let status = words
        .next()
        .and_then(|word| word.parse().ok())
        .filter(|_| is_http);
    let status = status.ok_or_else(|| wrong("the response is not HTTP"))?;
    let rest = &bytes[end + 4..];
    let chunked =
        field(&head, "transfer-encoding").is_some_and(|coding| coding.ends_with("chunked"));
    let body = match field(&head, "content-length").and_then(|length| length.parse::<usize>().ok())
    {
        _ if chunked => unchunk(rest).ok_or_else(|| wrong("truncated chunked content"))?,
        Some(length) if rest.len() >= length => rest[..length].to_vec(),
        Some(_) => return Err(wrong("truncated content")),
        None => rest.to_vec(),
    };
    Ok(Answer { status, head, body })
}

/// Decodes a chunked body without trailers (RFC 9112 §7.1).
fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = find(rest, b"\r\n")?;
        let size = std::str::from_utf8(&rest[..line])
            .ok()?
            .split(';')
            .next()?
            .trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        let chunk = rest.get(line + 2..)?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(chunk.get(..size)?);
        rest = chunk.get(size..)?.strip_prefix(b"\r\n")?;
    }
}

fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().skip(1).find_map(|line| {
        let (known, value) = line.split_once(':')?;
        known.eq_ignore_ascii_case(name).then_some(value.trim())
    })
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// Host name in the site's certificate and in requests.
pub(crate) const HOST: &str = "localhost";

/// Timeout for a connection attempt, a read or a write.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_parsed_in_every_form() {
        let cases: [(&[u8], u16, &[u8]); 4] = [
            (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc", 200, b"ab"),
            (b"HTTP/1.0 404 Not Found\r\n\r\nabc", 404, b"abc"),
            (b"HTTP/1.1 200\r\ntransfer-encoding: chunked\r\n\r\n2;x\r\nab\r\n1\r\nc\r\n0\r\n\r\n", 200, b"abc"),
            (b"HTTP/1.1 200 OK\r\nX: 1\r\n\r\n", 200, b""),
        ];
        for (bytes, status, body) in cases {
            let answer = parse(bytes).expect("a whole answer");
            assert_eq!((answer.status, answer.body.as_slice()), (status, body));
        }
    }

    #[test]
    fn truncated_and_malformed_responses_are_rejected() {
        let cases: [&[u8]; 5] = [
            b"",
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
            b"SSH-2.0-OpenSSH\r\n\r\n",
            b"HTTP/1.1 yes\r\n\r\n",
        ];
        for bytes in cases {
            assert!(parse(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }
}
