//! PROXY header at the start of a connection, on the listeners with `proxy_protocol`.
//!
//! The header precedes TLS and HTTP. The bytes are inspected in the kernel's buffer, and only the header is
//! taken out, so a session reads the bytes behind the header from the socket as on any other listener.

use crate::handler::Endpoints;
use crate::limits::PROXY_HEADER_COMPLAINT_SECONDS;
use crate::serve::accepted_connection::{AcceptLoop, AcceptedConnection};
use crate::serve::context::WorkerContext;
use base::sys;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, timeout};
use wire::limits::PROXY_V2_HEADER_BYTES_MAX;
use wire::proxy_protocol::{ParsedProxyHeader, ProxyHeader, parse_proxy_header};
use wire::reject::Reject;

/// Error of a connection without a usable header.
enum HeaderError {
    /// The connection ended before the end of the header.
    Ended,
    /// The bytes are no valid header.
    Refused(Reject),
}

impl From<io::Error> for HeaderError {
    fn from(_: io::Error) -> HeaderError {
        HeaderError::Ended
    }
}

/// Reads the PROXY header of a connection from the trusted `peer`, within the time for a request head. Returns
/// the connection with the addresses of the header, or None for a connection that ended or was refused.
pub(super) async fn read(
    context: &WorkerContext,
    accepting: &AcceptLoop,
    socket: OwnedFd,
    peer: SocketAddr,
) -> Option<AcceptedConnection> {
    let socket = sys::async_readable(socket).ok()?;
    let seconds = context.world().limits.head_seconds;
    let header = match timeout(Duration::from_secs(seconds.into()), header_of(&socket)).await {
        Ok(Ok(header)) => header,
        Ok(Err(HeaderError::Ended)) => return None,
        Ok(Err(HeaderError::Refused(reject))) => {
            refuse(context, accepting, peer, reject);
            return None;
        }
        Err(_) => {
            context.stats.deadlines.increment();
            return None;
        }
    };
    let socket = socket.into_inner();
    let accepted_ms = context.clock.millis();
    Some(match header {
        ProxyHeader::Unknown => AcceptedConnection::direct(socket, peer, accepted_ms),
        ProxyHeader::Relayed {
            source,
            destination,
        } => AcceptedConnection {
            socket,
            peer: source.into(),
            ends: Some(Endpoints {
                client_port: Some(source.port),
                server: Some(destination.address.into()),
                server_port: Some(destination.port),
            }),
            accepted_ms,
        },
    })
}

/// Counts a refused connection, and logs at most one refused connection in [`PROXY_HEADER_COMPLAINT_SECONDS`].
pub(super) fn refuse(
    context: &WorkerContext,
    accepting: &AcceptLoop,
    peer: SocketAddr,
    reject: Reject,
) {
    context.count_refusal(reject.rule);
    let pause = Duration::from_secs(PROXY_HEADER_COMPLAINT_SECONDS);
    let complaint = &accepting.header_complaint;
    if complaint.get().is_none_or(|at| at.elapsed() >= pause) {
        let (address, peer) = (accepting.address, peer.ip().to_canonical());
        let Reject { rule, reason, .. } = reject;
        log::warn!("{address}: connection of {peer} closed: {reason} (rule R{rule})");
        complaint.set(Some(Instant::now()));
    }
}

/// Waits for the whole header and takes the header out of the kernel's buffer.
async fn header_of(socket: &AsyncFd<OwnedFd>) -> Result<ProxyHeader, HeaderError> {
    loop {
        let mut ready = socket.readable().await?;
        if let Some(header) = take_header(socket.get_ref().as_fd())? {
            return Ok(header);
        }
        if ready.ready().is_read_closed() {
            return Err(HeaderError::Ended);
        }
        // The kernel reports the next bytes, although the bytes before remain unread.
        ready.clear_ready();
    }
}

/// Takes the header out of the kernel's buffer; returns None for an incomplete header.
fn take_header(socket: BorrowedFd<'_>) -> Result<Option<ProxyHeader>, HeaderError> {
    let mut bytes = [0; PROXY_V2_HEADER_BYTES_MAX];
    let received = match recv(socket, &mut bytes[..], RecvFlags::PEEK) {
        Ok((0, _)) => return Err(HeaderError::Ended),
        Ok((received, _)) => received,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(_) => return Err(HeaderError::Ended),
    };
    match parse_proxy_header(&bytes[..received]).map_err(HeaderError::Refused)? {
        ParsedProxyHeader::Partial => Ok(None),
        ParsedProxyHeader::Complete {
            header,
            header_bytes,
        } => {
            let taken = recv(socket, &mut bytes[..header_bytes], RecvFlags::empty());
            let is_whole = matches!(taken, Ok((taken, _)) if taken == header_bytes);
            is_whole.then_some(Some(header)).ok_or(HeaderError::Ended)
        }
    }
}
