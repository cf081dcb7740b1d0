//! One active check: the connection, the request and the response.
//!
//! Each check opens a connection of its own. A kept connection would not show that the member accepts no
//! connections any more.

use crate::limits::CHECK_READ_BYTES;
use crate::upstream::balancer::{CheckFailure, CheckOutcome};
use crate::upstream::check_reader::{CheckReader, ExpectedResponse};
use crate::upstream::connect_fault::ConnectFault;
use crate::upstream::member_conn::MemberConn;
use crate::upstream::member_connecting::MemberConnecting;
use crate::upstream::member_pool::MemberPool;
use crate::upstream::settings::{CheckKind, CheckSettings, ProxyHeaderVersion};
use crate::wire::proxy_protocol::{ProxyHeader, push_v1, push_v2};
use std::future::poll_fn;
use std::io;
use std::sync::Arc;

/// A check under way.
pub(super) struct CheckExchange<'a> {
    pool: Arc<MemberPool>,
    settings: &'a CheckSettings,
    /// Connection and reader of the response, after the request is sent.
    response: Option<(MemberConn, CheckReader<'a>)>,
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
        let CheckKind::Http {
            is_head,
            status,
            text,
            ..
        } = &self.settings.kind
        else {
            return Some(CheckOutcome::Passed);
        };
        // A member that refuses the request may have sent a response before it closed the connection.
        let _ = send(&mut conn, &self.request()).await;
        let reader = CheckReader::new(ExpectedResponse {
            is_head: *is_head,
            status: *status,
            text: text.as_deref(),
        });
        self.response = Some((conn, reader));
        self.read_until(|reader| reader.outcome().is_some()).await;
        let outcome = self.response.as_ref().and_then(|(_, it)| it.outcome());
        Some(outcome.unwrap_or(CheckOutcome::Failed(CheckFailure::BadAnswer)))
    }

    /// Reads the rest of the response after the outcome is known.
    pub(super) async fn drain(&mut self) {
        self.read_until(|reader| reader.is_done()).await;
    }

    async fn read_until(&mut self, is_enough: impl Fn(&CheckReader<'_>) -> bool) {
        let Some((conn, reader)) = &mut self.response else {
            return;
        };
        let mut buffer = vec![0; CHECK_READ_BYTES];
        while !is_enough(reader) {
            match poll_fn(|cx| conn.poll_read(cx, &mut buffer)).await {
                Ok(0) | Err(_) => return reader.end(),
                Ok(read) => reader.feed(&buffer[..read]),
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

    /// Returns the bytes of the request.
    fn request(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let CheckKind::Http {
            is_head,
            path,
            host,
            ..
        } = &self.settings.kind
        else {
            return bytes;
        };
        let method: &[u8] = match is_head {
            true => b"HEAD",
            false => b"GET",
        };
        let host = host.as_deref().map(str::as_bytes);
        let parts = [
            method,
            b" ",
            path.as_bytes(),
            b" HTTP/1.1\r\nHost: ",
            host.unwrap_or(&self.pool.authority),
            b"\r\nUser-Agent: anthill-check\r\nConnection: close\r\n\r\n",
        ];
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes
    }
}

async fn send(conn: &mut MemberConn, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = poll_fn(|cx| conn.poll_write(cx, bytes)).await?;
        bytes = &bytes[sent..];
    }
    poll_fn(|cx| conn.poll_flush(cx)).await
}
