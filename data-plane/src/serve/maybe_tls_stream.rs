//! Byte stream of a connection: a TCP socket, plain or under TLS, read and written in single system calls.
//!
//! rustls is driven directly: one `recv` fills the buffer of rustls, and the encrypted bytes leave in one
//! `send`. rustls reads a connection of TLS 1.3 up to the client's Finished and not a byte further. When
//! more bytes arrive after the Finished, [`RecordLayer`] takes over the keys of the connection, and rustls
//! is dropped.

use crate::limits::TLS_HELLO_BYTES_MAX;
use crate::serve::socket::TcpSocket;
use crate::tls::{
    HandshakeFailure, HelloResult, OpenedRecords, RECORD_BYTES_MAX, RecordBoundaryFinder,
    RecordLayer, TlsConnection, TrafficSecrets,
};
use base::clock::unix_seconds_now;
use base::sys;
use rustls::ProtocolVersion;
use rustls::ServerConnection;
use std::cell::Cell;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use wire::date::format_imf;

thread_local! {
    /// Buffer for opening records that don't fit into the reader's buffer.
    static ASIDE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Byte stream of a connection.
pub(crate) struct MaybeTlsStream {
    /// The TCP socket, shared with the worker's table, which shuts the socket down at a deadline.
    pub socket: Rc<TcpSocket>,
    /// TLS state; `None` for a plain connection.
    pub tls: Option<TlsConnection>,
    /// Position within the TLS records passed to rustls.
    boundary: RecordBoundaryFinder,
    /// Traffic secrets for the keys of [`RecordLayer`], while rustls has the connection.
    secrets: Option<Box<TrafficSecrets>>,
    /// Bytes received and not yet read: records behind the last record that rustls needs, the beginning of
    /// a record, or plaintext that did not fit into the reader's buffer.
    waiting: UnreadBytes,
}

#[derive(Default)]
struct UnreadBytes {
    sealed: Vec<u8>,
    plain: Vec<u8>,
}

impl MaybeTlsStream {
    /// Makes a stream of a socket just accepted, with the initial TLS state if the connection uses TLS.
    pub(super) fn new(socket: Rc<TcpSocket>, tls: Option<TlsConnection>) -> MaybeTlsStream {
        MaybeTlsStream {
            socket,
            tls,
            boundary: RecordBoundaryFinder::default(),
            secrets: None,
            waiting: UnreadBytes::default(),
        }
    }

    /// Returns the rustls connection, from the choice of the certificate until [`RecordLayer`] takes over.
    pub(crate) fn tls_mut(&mut self) -> Option<&mut ServerConnection> {
        match self.tls.as_mut() {
            Some(TlsConnection::Ready(connection)) => Some(connection),
            _ => None,
        }
    }

    /// Returns the negotiated version of TLS.
    pub(crate) fn tls_version(&self) -> Option<ProtocolVersion> {
        match self.tls.as_ref() {
            Some(TlsConnection::Ready(connection)) => connection.protocol_version(),
            Some(TlsConnection::Sealed(_)) => Some(ProtocolVersion::TLSv1_3),
            _ => None,
        }
    }

    /// Continues the handshake until the handshake is over. Returns false if the peer ended the sending
    /// side before.
    pub(crate) fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if let Some(TlsConnection::AwaitingHello(_)) = &self.tls {
            ready!(self.poll_choose(cx))?;
        }
        while self.tls_mut().is_some_and(|tls| tls.is_handshaking()) {
            ready!(self.poll_flush(cx))?;
            if ready!(self.poll_feed(cx))? == 0 {
                return Poll::Ready(Ok(false));
            }
        }
        // The server sends nothing after the Finished of a client that resumes a session of TLS 1.2. The
        // client's kernel may hold back the request until the Finished is acknowledged.
        if !self.has_unsent() && self.waiting.sealed.is_empty() {
            let _ = sys::set_quickack(self.socket.as_fd(), true);
        }
        Poll::Ready(Ok(true))
    }

    /// Reads plaintext into `into` after the handshake. Returns 0 if the peer ended the sending side.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match &self.tls {
            None => self.socket.poll_read(cx, into),
            Some(TlsConnection::Sealed(_)) => self.poll_fill_sealed(cx, into),
            Some(TlsConnection::Ready(connection)) if is_open(connection) => {
                self.poll_take_over(cx, into)
            }
            Some(_) => self.poll_fill_rustls(cx, into),
        }
    }

    /// Returns true if the beginning of a TLS record was received, and the end was not.
    pub(crate) fn is_inside_record(&self) -> bool {
        match &self.tls {
            Some(TlsConnection::Sealed(_)) => !self.waiting.sealed.is_empty(),
            Some(TlsConnection::Ready(_)) => !self.boundary.is_between_records(),
            _ => false,
        }
    }

    /// Fails if an incomplete ClientHello has more bytes than any client sends.
    fn must_be_short_hello(&self) -> io::Result<()> {
        if self.boundary.passed() > TLS_HELLO_BYTES_MAX {
            Err(io::ErrorKind::InvalidData.into())
        } else {
            Ok(())
        }
    }

    /// Sends bytes that TLS has encrypted and not yet passed to the socket.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.tls {
            Some(TlsConnection::Sealed(records)) => {
                while !records.unsent().is_empty() {
                    let unsent = [IoSlice::new(records.unsent())];
                    let sent = ready!(self.socket.poll_write(cx, &unsent))?;
                    records.note_sent(sent);
                }
            }
            Some(TlsConnection::Ready(connection)) => {
                let socket = &*self.socket;
                while connection.wants_write() {
                    match connection.write_tls(&mut RustlsWriter { socket, cx }) {
                        Ok(_) => {}
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            return Poll::Pending;
                        }
                        Err(error) => return Poll::Ready(Err(error)),
                    }
                }
            }
            _ => {}
        }
        Poll::Ready(Ok(()))
    }

    /// Writes plaintext in one call. Over TLS, all bytes are encrypted and must be flushed afterwards.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.tls {
            None => self.socket.poll_write(cx, slices),
            Some(_) => Poll::Ready(self.encrypt(slices)),
        }
    }

    /// Returns the number of encrypted bytes not yet passed to the socket. Always 0 before the end of the
    /// handshake.
    pub(super) fn unsent_bytes(&self) -> usize {
        match &self.tls {
            Some(TlsConnection::Sealed(records)) => records.unsent().len(),
            _ => 0,
        }
    }

    /// Returns true if encrypted bytes have not yet been passed to the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        match &self.tls {
            Some(TlsConnection::Sealed(records)) => !records.unsent().is_empty(),
            Some(TlsConnection::Ready(connection)) => connection.wants_write(),
            _ => false,
        }
    }

    /// Encrypts all of `slices`, joined. The caller must flush afterwards.
    ///
    /// # Errors
    /// Fails if the connection has no TLS state for encryption.
    pub(super) fn encrypt(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.tls {
            Some(TlsConnection::Sealed(records)) => Ok(records.seal(slices)),
            Some(TlsConnection::Ready(connection)) => connection.writer().write_vectored(slices),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Prefetches the TLS state into the processor's cache for the next read.
    pub(super) fn prefetch(&self) {
        if let Some(TlsConnection::Sealed(records)) = &self.tls {
            sys::prefetch(&**records);
        }
    }

    /// Sends close_notify under TLS, as far as the socket takes the bytes now.
    pub(super) fn close_notify(&mut self, cx: &mut Context<'_>) {
        match &mut self.tls {
            Some(TlsConnection::Sealed(records)) => records.seal_goodbye(),
            Some(TlsConnection::Ready(connection)) => connection.send_close_notify(),
            _ => {}
        }
        let _ = self.poll_flush(cx);
    }

    /// Reads the ClientHello and chooses the configuration for the handshake.
    fn poll_choose(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(TlsConnection::AwaitingHello(choosing)) = &mut self.tls {
            let (socket, boundary) = (&*self.socket, &mut self.boundary);
            drop(TrafficSecrets::take_for_thread());
            let choice = choosing.read_hello(&mut RustlsReader {
                socket,
                cx,
                boundary,
                waiting: &mut self.waiting.sealed,
            });
            self.secrets = TrafficSecrets::take_for_thread();
            match choice {
                Ok(HelloResult::More) => self.must_be_short_hello()?,
                Ok(HelloResult::Ready(mut connection)) => {
                    let processed = connection.process_new_packets().map(drop);
                    let processed = processed.map_err(|error| failure(error, &connection));
                    self.secrets = TrafficSecrets::take_for_thread().or(self.secrets.take());
                    self.tls = Some(TlsConnection::Ready(connection));
                    processed?;
                }
                Ok(HelloResult::Refused { failure, .. })
                    if is_plain_request(&failure.error, &self.boundary) =>
                {
                    return Poll::Ready(Err(self.refuse_plain_request(cx)));
                }
                Ok(HelloResult::Refused { alert, failure }) => {
                    // The alert informs the peer of the reason. The server does not wait until the alert is
                    // sent.
                    let _ = RustlsWriter { socket, cx }.write(&alert);
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, failure)));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads plaintext of a TLS 1.2 connection through rustls.
    fn poll_fill_rustls(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_flush(cx))?;
            let Some(connection) = self.tls_mut() else {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            };
            match connection.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Closed without close_notify. A truncated request can't pass for complete, because heads
                // and bodies mark their own ends.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Poll::Ready(Ok(0));
                }
                read => return Poll::Ready(read),
            }
            if ready!(self.poll_feed(cx))? == 0 {
                return Poll::Ready(Ok(0));
            }
        }
    }

    /// Reads the first records of TLS 1.3 after the handshake. rustls never gets the records, because
    /// rustls would not report holding a fragment of a message.
    fn poll_take_over(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.waiting.sealed.is_empty() {
            // Sends the session tickets now. The client's kernel may hold back a request until the Finished
            // is acknowledged (Nagle's algorithm), and the server's kernel delays a bare acknowledgement by
            // 40 ms.
            ready!(self.poll_flush(cx))?;
            let read = ready!(self.socket.poll_read(cx, into))?;
            if read == 0 {
                return Poll::Ready(Ok(0));
            }
            self.go_on_without_rustls()?;
            let plain = self.open(cx, &mut into[..read])?;
            if plain > 0 {
                return Poll::Ready(Ok(plain));
            }
        } else {
            self.go_on_without_rustls()?;
            let mut bytes = std::mem::take(&mut self.waiting.sealed);
            let plain = self.open(cx, &mut bytes)?;
            bytes.truncate(plain);
            self.waiting.plain = bytes;
        }
        self.poll_fill_sealed(cx, into)
    }

    /// Passes received bytes to rustls and processes the bytes. Returns 0 if the peer ended the sending
    /// side.
    fn poll_feed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let socket = Rc::clone(&self.socket);
        let mut reading = RustlsReader {
            socket: &socket,
            cx,
            boundary: &mut self.boundary,
            waiting: &mut self.waiting.sealed,
        };
        let Some(TlsConnection::Ready(connection)) = &mut self.tls else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        let read = match connection.read_tls(&mut reading) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        };
        self.process(cx)?;
        // rustls knows the version as soon as the ClientHello is complete.
        if self.tls_version().is_none() {
            self.must_be_short_hello()?;
        }
        Poll::Ready(Ok(read))
    }

    /// Processes the records passed to rustls.
    fn process(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(connection) = self.tls_mut() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        // Secrets of an earlier handshake that broke off must not be used for the current connection.
        drop(TrafficSecrets::take_for_thread());
        let processed = connection.process_new_packets().map(drop);
        if let Some(secrets) = TrafficSecrets::take_for_thread() {
            self.secrets = Some(secrets);
        }
        processed.map_err(|error| match error {
            // No record may follow the peer's alert, not even close_notify (RFC 8446 §6.2).
            rustls::Error::AlertReceived(_) => {
                self.tls = Some(TlsConnection::Lost);
                io::Error::new(io::ErrorKind::ConnectionAborted, error)
            }
            error if is_plain_request(&error, &self.boundary) => self.refuse_plain_request(cx),
            error => {
                // The alert informs the peer of the reason. The server does not wait until the alert is
                // sent.
                let _ = self.poll_flush(cx);
                match self.tls_mut() {
                    Some(connection) => failure(error, connection),
                    None => io::Error::new(io::ErrorKind::InvalidData, error),
                }
            }
        })
    }

    /// Answers a request of plain HTTP, as far as the socket takes the bytes now, and returns the error that ends the
    /// connection. No alert follows: the client does not speak TLS.
    #[cold]
    fn refuse_plain_request(&mut self, cx: &mut Context<'_>) -> io::Error {
        self.tls = Some(TlsConnection::Lost);
        let head = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nDate: ";
        let date = format_imf(unix_seconds_now());
        let rest = format!(
            "\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{PLAIN_REQUEST_TEXT}",
            PLAIN_REQUEST_TEXT.len()
        );
        let answer = [&head[..], &date, rest.as_bytes()].map(IoSlice::new);
        let _ = self.socket.poll_write(cx, &answer);
        io::ErrorKind::InvalidData.into()
    }

    /// Replaces rustls by [`RecordLayer`] on an idle connection, to release the memory of rustls. Returns
    /// true if rustls was replaced. If the keys are lost by a failure, the next use of the connection
    /// reports an error.
    pub(super) fn settle(&mut self) -> bool {
        matches!(&self.tls, Some(TlsConnection::Ready(connection)) if is_open(connection))
            && self
                .go_on_without_rustls()
                .inspect_err(|error| log::error!("TLS: {error}"))
                .is_ok()
    }

    fn go_on_without_rustls(&mut self) -> io::Result<()> {
        // Never `None`, which would stand for a connection without TLS.
        let before = self.tls.replace(TlsConnection::Lost);
        if let (Some(TlsConnection::Ready(mut connection)), Some(secrets)) =
            (before, self.secrets.take())
        {
            let mut tickets = Vec::new();
            while connection.wants_write() {
                connection.write_tls(&mut tickets)?;
            }
            let records =
                RecordLayer::new(*connection, &secrets, tickets).map_err(io::Error::other)?;
            self.tls = Some(TlsConnection::Sealed(Box::new(records)));
        }
        Ok(())
    }

    /// Reads and opens records after rustls was dropped.
    fn poll_fill_sealed(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            if !self.waiting.plain.is_empty() {
                let taken = self.waiting.plain.len().min(into.len());
                into[..taken].copy_from_slice(&self.waiting.plain[..taken]);
                self.waiting.plain.drain(..taken);
                if self.waiting.plain.is_empty() {
                    self.waiting.plain = Vec::new();
                }
                return Poll::Ready(Ok(taken));
            }
            if let Some(TlsConnection::Sealed(records)) = &self.tls
                && records.ended()
            {
                return Poll::Ready(Ok(0));
            }
            if into.len() >= RECORD_BYTES_MAX {
                match ready!(self.poll_read_records(cx, into))? {
                    Some(0) => {}
                    read => return Poll::Ready(Ok(read.unwrap_or(0))),
                }
            } else {
                // The reader has no room for a whole record, and a record can't be opened in parts.
                let mut aside = ASIDE.take();
                aside.resize(RECORD_BYTES_MAX, 0);
                let read = self.poll_read_records(cx, &mut aside);
                if let Poll::Ready(Ok(Some(plain @ 1..))) = read {
                    self.waiting.plain = aside[..plain].to_vec();
                }
                ASIDE.set(aside);
                if ready!(read)?.is_none() {
                    return Poll::Ready(Ok(0));
                }
            }
        }
    }

    /// Reads once, behind the bytes kept of a partial record, and opens the complete records. Returns
    /// `None` if the peer ended the sending side, and 0 if no plaintext is available yet.
    fn poll_read_records(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<Option<usize>>> {
        // The client may wait for session tickets, or for the acknowledgement that the tickets carry.
        let _ = self.poll_flush(cx);
        let kept = self.waiting.sealed.len();
        into[..kept].copy_from_slice(&self.waiting.sealed);
        let read = ready!(self.socket.poll_read(cx, &mut into[kept..]))?;
        if read == 0 {
            return Poll::Ready(Ok(None));
        }
        let plain = self.open(cx, &mut into[..kept + read])?;
        Poll::Ready(Ok(Some(plain)))
    }

    /// Opens the records in `bytes` in place and keeps the beginning of the last record. Returns the length
    /// of the plaintext.
    fn open(&mut self, cx: &mut Context<'_>, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(TlsConnection::Sealed(records)) = &mut self.tls else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let unsent = records.unsent().len();
        let opened = records.open(bytes);
        let has_answer = opened.is_err() || records.unsent().len() > unsent;
        if let Ok(OpenedRecords { used, .. }) = opened
            && (used < bytes.len() || !self.waiting.sealed.is_empty())
        {
            self.waiting.sealed = bytes[used..].to_vec();
        }
        // An alert or a KeyUpdate is sent at once, because no response may follow.
        if has_answer {
            let _ = self.poll_flush(cx);
        }
        match opened {
            Ok(opened) => Ok(opened.plain),
            Err(broken) if !broken.sends_alert() => {
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, broken))
            }
            Err(broken) => Err(io::Error::new(io::ErrorKind::InvalidData, broken)),
        }
    }
}

/// Content of the response to a request of plain HTTP on a connection for TLS.
const PLAIN_REQUEST_TEXT: &str = "This port speaks HTTPS, and the request came without TLS: write https:// in place of http://.\n";

/// Returns true if rustls refused the first bytes of a connection, and the bytes are a request of plain HTTP.
#[cold]
fn is_plain_request(error: &rustls::Error, boundary: &RecordBoundaryFinder) -> bool {
    use rustls::{Error::InvalidMessage, InvalidMessage::InvalidContentType};
    matches!(error, InvalidMessage(InvalidContentType)) && boundary.begins_like_request()
}

/// Returns the error for a failure of TLS, with the server name of the connection.
#[cold]
fn failure(error: rustls::Error, connection: &ServerConnection) -> io::Error {
    let failure = HandshakeFailure::new(error, connection.server_name());
    io::Error::new(io::ErrorKind::InvalidData, failure)
}

/// Returns true if the handshake is over and TLS 1.3 was negotiated.
fn is_open(connection: &ServerConnection) -> bool {
    !connection.is_handshaking() && connection.protocol_version() == Some(ProtocolVersion::TLSv1_3)
}

/// Implementation of `io::Read` over the socket for rustls. Each read ends at the end of a record at the
/// latest, so that rustls never gets bytes that follow the handshake.
struct RustlsReader<'a, 'c, 'w> {
    socket: &'a TcpSocket,
    cx: &'c mut Context<'w>,
    boundary: &'a mut RecordBoundaryFinder,
    waiting: &'a mut Vec<u8>,
}

impl Read for RustlsReader<'_, '_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.waiting.is_empty() {
            let len = into.len().min(RECORD_BYTES_MAX);
            let read = match self.socket.poll_read(self.cx, &mut into[..len]) {
                Poll::Ready(read) => read?,
                Poll::Pending => return Err(io::ErrorKind::WouldBlock.into()),
            };
            let taken = self.boundary.note_record(&into[..read]);
            *self.waiting = into[taken..read].to_vec();
            return Ok(taken);
        }
        let len = into.len().min(self.waiting.len());
        let taken = self.boundary.note_record(&self.waiting[..len]);
        into[..taken].copy_from_slice(&self.waiting[..taken]);
        *self.waiting = self.waiting[taken..].to_vec();
        Ok(taken)
    }
}

/// Implementation of `io::Write` over the socket for rustls.
struct RustlsWriter<'a, 'c, 'w> {
    socket: &'a TcpSocket,
    cx: &'c mut Context<'w>,
}

impl Write for RustlsWriter<'_, '_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.socket.poll_write(self.cx, slices) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
