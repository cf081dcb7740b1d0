//! One active check: the connection, the request and the response.
//!
//! Each check opens a connection of its own. A kept connection would not show that the member accepts no
//! connections any more.

use crate::limits::CHECK_READ_BYTES;
use crate::upstream::address::ConnectFault;
use crate::upstream::check::h2_reader::CheckH2Reader;
use crate::upstream::check::reader::CheckReader;
use crate::upstream::check::reader::ExpectedResponse;
use crate::upstream::member::{MemberConn, MemberConnecting, MemberPool};
use balancer::settings::{CheckKind, CheckSettings, ProxyHeaderVersion};
use balancer::{CheckFailure, CheckOutcome};
use base::clock::monotonic_ms;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use wire::h2::hpack;
use wire::proxy_protocol::{ProxyHeader, push_v1, push_v2};

/// A check under way.
pub(super) struct CheckExchange<'a> {
    pool: Arc<MemberPool>,
    settings: &'a CheckSettings,
    /// Connection and reader of the response, after the request is sent.
    response: Option<(MemberConn, ResponseReader<'a>)>,
}

/// Reader of the response, by the version of HTTP to the member.
enum ResponseReader<'a> {
    Http1(CheckReader<'a>),
    Http2(Box<CheckH2Reader<'a>>),
}

impl ResponseReader<'_> {
    fn outcome(&self) -> Option<CheckOutcome> {
        match self {
            ResponseReader::Http1(reader) => reader.outcome(),
            ResponseReader::Http2(reader) => reader.outcome(),
        }
    }

    fn is_done(&self) -> bool {
        match self {
            ResponseReader::Http1(reader) => reader.is_done(),
            ResponseReader::Http2(reader) => reader.is_done(),
        }
    }

    /// Takes received bytes. Returns bytes for the member.
    fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        match self {
            ResponseReader::Http1(reader) => {
                reader.feed(bytes);
                Vec::new()
            }
            ResponseReader::Http2(reader) => {
                reader.feed(bytes, monotonic_ms());
                reader.take_output()
            }
        }
    }

    fn end(&mut self) {
        match self {
            ResponseReader::Http1(reader) => reader.end(),
            ResponseReader::Http2(reader) => reader.end(),
        }
    }
}

impl<'a> CheckExchange<'a> {
    /// Returns a check of the member with the connections `pool`.
    pub(super) fn new(pool: Arc<MemberPool>, settings: &'a CheckSettings) -> CheckExchange<'a> {
        CheckExchange {
            pool,
            settings,
            response: None,
        }
    }

    /// Makes the check. The caller bounds the duration. None means that a shortage of this machine, or a full
    /// queue of the member's socket, prevented the connection, so the check says nothing about the member.
    pub(super) async fn outcome(&mut self) -> Option<CheckOutcome> {
        let pool = Arc::clone(&self.pool);
        let mut connecting =
            MemberConnecting::new(pool, self.settings.timeout, self.proxy_header());
        let mut conn = match poll_fn(|cx| connecting.poll(cx)).await {
            Ok(conn) => conn,
            Err(error) => {
                let fault = ConnectFault::of(&error, self.pool.address.is_unix());
                let failed = CheckOutcome::Failed(CheckFailure::Connection);
                return fault.is_of_member().then_some(failed);
            }
        };
        let Some((request, reader)) = self.request() else {
            return Some(CheckOutcome::Passed);
        };
        // A member that refuses the request may have sent a response before it closed the connection.
        let _ = send(&mut conn, &request).await;
        self.response = Some((conn, reader));
        self.read_until(|reader| reader.outcome().is_some()).await;
        let outcome = self.response.as_ref().and_then(|(_, it)| it.outcome());
        Some(outcome.unwrap_or(CheckOutcome::Failed(CheckFailure::BadAnswer)))
    }

    /// Reads the rest of the response after the outcome is known.
    pub(super) async fn drain(&mut self) {
        self.read_until(|reader| reader.is_done()).await;
    }

    async fn read_until(&mut self, is_enough: impl Fn(&ResponseReader<'_>) -> bool) {
        let Some((conn, reader)) = &mut self.response else {
            return;
        };
        let mut buffer = vec![0; CHECK_READ_BYTES];
        while !is_enough(reader) {
            match poll_fn(|cx| conn.poll_read(cx, &mut buffer)).await {
                Ok(0) | Err(_) => return reader.end(),
                Ok(read) => {
                    let output = reader.feed(&buffer[..read]);
                    // A broken connection shows at the next read.
                    let _ = send(conn, &output).await;
                }
            }
        }
    }

    /// Returns the PROXY header; empty if the members expect none.
    fn proxy_header(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.pool.settings.send_proxy_header {
            Some(ProxyHeaderVersion::V1) => push_v1(&ProxyHeader::Unknown, &mut bytes),
            Some(ProxyHeaderVersion::V2) => push_v2(&ProxyHeader::Unknown, &mut bytes),
            None => {}
        }
        bytes
    }

    /// Returns the bytes of the request, and the reader of the response. None for a check of the connection
    /// alone.
    fn request(&self) -> Option<(Vec<u8>, ResponseReader<'a>)> {
        let CheckKind::Http {
            is_head,
            path,
            host,
            status,
            text,
        } = &self.settings.kind
        else {
            return None;
        };
        let expected = ExpectedResponse {
            is_head: *is_head,
            status: *status,
            text: text.as_deref(),
        };
        let method: &[u8] = if *is_head { b"HEAD" } else { b"GET" };
        let host = host.as_deref().map(str::as_bytes);
        let host = host.unwrap_or(&self.pool.authority);
        if !self.pool.settings.is_http2 {
            let reader = ResponseReader::Http1(CheckReader::new(expected));
            return Some((h1_request(method, path.as_bytes(), host), reader));
        }
        let scheme = self.pool.scheme();
        let block = h2_block(method, scheme, host, path.as_bytes());
        let mut reader = Box::new(CheckH2Reader::new(expected, &block));
        Some((reader.take_output(), ResponseReader::Http2(reader)))
    }
}

/// Returns the request of a check over HTTP/1.1.
fn h1_request(method: &[u8], path: &[u8], host: &[u8]) -> Vec<u8> {
    let parts = [
        method,
        b" ",
        path,
        b" HTTP/1.1\r\nHost: ",
        host,
        b"\r\nUser-Agent: ",
        USER_AGENT,
        b"\r\nConnection: close\r\n\r\n",
    ];
    parts.concat()
}

/// Returns the field block of a check over HTTP/2.
fn h2_block(method: &[u8], scheme: &[u8], host: &[u8], path: &[u8]) -> Vec<u8> {
    let fields = [
        (&b":method"[..], method),
        (b":scheme", scheme),
        (b":authority", host),
        (b":path", path),
        (b"user-agent", USER_AGENT),
    ];
    let mut block = Vec::new();
    for (name, value) in fields {
        hpack::push_field(name, value, &mut block);
    }
    block
}

const USER_AGENT: &[u8] = b"anthill-check";

async fn send(conn: &mut MemberConn, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = poll_fn(|cx| conn.poll_write(cx, bytes)).await?;
        bytes = &bytes[sent..];
    }
    poll_fn(|cx| conn.poll_flush(cx)).await
}
