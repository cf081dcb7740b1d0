//! Client side of a TLS connection, without input and output: received bytes are passed in, and bytes to send
//! are taken out.
//!
//! rustls performs the handshake and reads records one by one until the first record with application data.
//! [`RecordLayer`] then takes over the keys of a TLS 1.3 connection, and rustls is dropped. Servers send
//! session tickets before their first response, so rustls has stored the tickets by then. A connection of
//! TLS 1.2 stays with rustls.

use std::io::{self, IoSlice, Read, Write};

use rustls::{ClientConnection, ProtocolVersion};

use crate::tls::record_boundary::RecordBoundaryFinder;
use crate::tls::record_layer::RecordLayer;
use crate::tls::traffic_secrets::TrafficSecrets;

/// Client side of a TLS connection.
pub(crate) struct TlsClientConnection {
    state: ClientState,
    /// Received bytes that are not read yet; None for none, as on an idle connection.
    unread: Option<Box<UnreadBytes>>,
    /// True after an error of the peer or of the keys: nothing more is read, and only an alert is sent.
    has_failed: bool,
}

enum ClientState {
    Handshake(Box<RustlsClient>),
    Records(Box<RecordLayer>),
    /// The keys are lost.
    Lost,
}

#[derive(Default)]
struct UnreadBytes {
    /// Beginning of a record for [`RecordLayer`], which opens whole records only.
    partial: Vec<u8>,
    /// Plaintext.
    plain: Vec<u8>,
}

/// Connection of rustls with the bytes that rustls has produced.
struct RustlsClient {
    connection: ClientConnection,
    /// Position within the received records.
    boundary: RecordBoundaryFinder,
    /// Traffic secrets for the keys of [`RecordLayer`].
    secrets: Option<Box<TrafficSecrets>>,
    /// Sealed bytes. The bytes up to `sent` were sent.
    unsent: Vec<u8>,
    sent: usize,
    /// True after the peer's close_notify.
    has_ended: bool,
}

impl TlsClientConnection {
    pub(super) fn new(mut connection: ClientConnection) -> TlsClientConnection {
        // The caller bounds the unsent bytes and relies on rustls to take all bytes of a write.
        connection.set_buffer_limit(None);
        let rustls = RustlsClient {
            connection,
            boundary: RecordBoundaryFinder::default(),
            secrets: None,
            unsent: Vec::new(),
            sent: 0,
            has_ended: false,
        };
        TlsClientConnection {
            state: ClientState::Handshake(Box::new(rustls)),
            unread: None,
            has_failed: false,
        }
    }

    /// Returns true until the handshake is over.
    pub(crate) fn is_handshaking(&self) -> bool {
        match &self.state {
            ClientState::Handshake(rustls) => rustls.connection.is_handshaking(),
            _ => false,
        }
    }

    /// Returns true if the server chose HTTP/2 by ALPN. Meaningful from the end of the handshake to the first
    /// record with application data.
    pub(crate) fn has_chosen_h2(&self) -> bool {
        match &self.state {
            ClientState::Handshake(rustls) => rustls.connection.alpn_protocol() == Some(b"h2"),
            _ => false,
        }
    }

    /// Returns true if [`TlsClientConnection::open`] may be called.
    pub(crate) fn opens_in_place(&self) -> bool {
        matches!(self.state, ClientState::Records(_))
    }

    /// Returns true if nothing was received that is not read yet, neither plaintext nor a part of a record
    /// or of a message.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_inside_message = match &self.state {
            ClientState::Records(records) => records.is_inside_message(),
            _ => false,
        };
        self.unread.is_none() && !is_inside_message && !self.has_ended() && !self.has_failed
    }

    fn has_ended(&self) -> bool {
        match &self.state {
            ClientState::Handshake(rustls) => rustls.has_ended,
            ClientState::Records(records) => records.ended(),
            ClientState::Lost => true,
        }
    }

    /// Takes received plaintext. Returns 0 bytes after the peer's close_notify, and None if more bytes must
    /// be received first.
    ///
    /// # Errors
    /// Fails after an error of the peer.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        if let Some(unread) = self.unread.as_mut().filter(|it| !it.plain.is_empty()) {
            let taken = unread.plain.len().min(into.len());
            into[..taken].copy_from_slice(&unread.plain[..taken]);
            if taken < unread.plain.len() {
                drop(unread.plain.drain(..taken))
            } else {
                unread.plain = Vec::new()
            }
            self.release_unread();
            return Ok(Some(taken));
        }
        match (self.has_failed, self.has_ended()) {
            (true, _) => Err(io::ErrorKind::NotConnected.into()),
            (false, ended) => Ok(ended.then_some(0)),
        }
    }

    /// Copies the kept beginning of a record to the start of `into`, and returns its length. The caller
    /// appends received bytes and passes the whole to [`TlsClientConnection::open`] or
    /// [`TlsClientConnection::receive`].
    pub(crate) fn copy_partial(&self, into: &mut [u8]) -> usize {
        let Some(unread) = &self.unread else {
            return 0;
        };
        into[..unread.partial.len()].copy_from_slice(&unread.partial);
        unread.partial.len()
    }

    /// Releases the memory of unread bytes if there are none.
    fn release_unread(&mut self) {
        let is_empty =
            |unread: &&mut Box<UnreadBytes>| unread.partial.is_empty() && unread.plain.is_empty();
        if self.unread.as_mut().filter(is_empty).is_some() {
            self.unread = None;
        }
    }

    /// Processes received bytes. The plaintext is kept for [`TlsClientConnection::read`].
    ///
    /// # Errors
    /// Fails for bytes that break the protocol, for a certificate without trust, and for an alert. The
    /// error contains a [`rustls::Error`] as long as rustls has the connection.
    pub(crate) fn receive(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let mut at = 0;
        while at < bytes.len()
            && let ClientState::Handshake(rustls) = &mut self.state
        {
            let plain = &mut self.unread.get_or_insert_default().plain;
            let fed = rustls.feed(&bytes[at..], plain);
            let has_plain = !plain.is_empty();
            at += fed.map_err(|error| self.fail(error))?;
            if has_plain {
                self.reduce()?;
            }
        }
        if at < bytes.len() {
            let opened = self.open(&mut bytes[at..])?;
            let plain = &mut self.unread.get_or_insert_default().plain;
            plain.extend_from_slice(&bytes[at..at + opened]);
        }
        self.release_unread();
        Ok(())
    }

    /// Opens the records in `bytes` in place and keeps the beginning of the last record. Returns the length
    /// of the plaintext, which then stands at the start of `bytes`.
    ///
    /// # Errors
    /// Fails for records that break the protocol, and for an alert.
    pub(crate) fn open(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let ClientState::Records(records) = &mut self.state else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        match records.open(bytes) {
            Ok(opened) => {
                if opened.used < bytes.len() || self.unread.is_some() {
                    let unread = self.unread.get_or_insert_default();
                    unread.partial = bytes[opened.used..].to_vec();
                    self.release_unread();
                }
                Ok(opened.plain)
            }
            Err(error) => {
                self.has_failed = true;
                Err(io::Error::new(io::ErrorKind::InvalidData, error))
            }
        }
    }

    /// Replaces rustls by [`RecordLayer`] if the connection uses TLS 1.3. Precondition: the last record
    /// contained application data.
    fn reduce(&mut self) -> io::Result<()> {
        match &self.state {
            ClientState::Handshake(rustls) if rustls.is_reducible() => {}
            _ => return Ok(()),
        }
        let before = std::mem::replace(&mut self.state, ClientState::Lost);
        if let ClientState::Handshake(rustls) = before {
            // rustls is freed first, and the record layer fits into the gap.
            let records = rustls.into_records();
            self.has_failed = records.is_err();
            self.state = ClientState::Records(Box::new(records?));
        }
        Ok(())
    }

    fn fail(&mut self, error: rustls::Error) -> io::Error {
        self.has_failed = true;
        io::Error::new(io::ErrorKind::InvalidData, error)
    }

    /// Seals all of `bytes`. Returns their number.
    ///
    /// # Errors
    /// Fails during the handshake, and after an error of the peer.
    pub(crate) fn seal(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.state {
            _ if self.has_failed => Err(io::ErrorKind::NotConnected.into()),
            ClientState::Records(records) => Ok(records.seal(&[IoSlice::new(bytes)])),
            ClientState::Handshake(rustls) if !rustls.connection.is_handshaking() => {
                rustls.connection.writer().write(bytes)
            }
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Returns the bytes to send.
    ///
    /// # Errors
    /// Fails if rustls fails, which indicates a bug.
    pub(crate) fn unsent(&mut self) -> io::Result<&[u8]> {
        match &mut self.state {
            ClientState::Handshake(rustls) => rustls.unsent(),
            ClientState::Records(records) => Ok(records.unsent()),
            ClientState::Lost => Ok(&[]),
        }
    }

    /// Returns true if sealed bytes wait to be sent.
    pub(crate) fn has_unsent(&self) -> bool {
        match &self.state {
            ClientState::Handshake(rustls) => {
                rustls.sent < rustls.unsent.len() || rustls.connection.wants_write()
            }
            ClientState::Records(records) => !records.unsent().is_empty(),
            ClientState::Lost => false,
        }
    }

    /// Records that `bytes` of the sealed bytes were sent.
    pub(crate) fn note_sent(&mut self, bytes: usize) {
        match &mut self.state {
            ClientState::Handshake(rustls) => {
                rustls.sent += bytes;
                if rustls.sent >= rustls.unsent.len() {
                    (rustls.unsent, rustls.sent) = (Vec::new(), 0);
                }
            }
            ClientState::Records(records) => records.note_sent(bytes),
            ClientState::Lost => {}
        }
    }

    /// Seals a close_notify, unless an alert has ended the connection.
    pub(crate) fn close(&mut self) {
        match &mut self.state {
            _ if self.has_failed => {}
            ClientState::Handshake(rustls) => rustls.connection.send_close_notify(),
            ClientState::Records(records) => records.seal_goodbye(),
            ClientState::Lost => {}
        }
    }
}

impl RustlsClient {
    /// Passes bytes up to the end of a record to rustls, and appends plaintext to `plain`. Returns the
    /// number of bytes passed.
    fn feed(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> Result<usize, rustls::Error> {
        let passed = self.boundary.note_record(bytes);
        let mut record = &bytes[..passed];
        // Secrets of another connection that broke off must not be used.
        drop(TrafficSecrets::take_for_thread());
        while !record.is_empty() && !self.has_ended {
            let read = self.connection.read_tls(&mut record);
            read.map_err(|error| rustls::Error::General(error.to_string()))?;
            let state = self.connection.process_new_packets();
            self.secrets = TrafficSecrets::take_for_thread().or(self.secrets.take());
            let state = state?;
            self.has_ended = state.peer_has_closed();
            let start = plain.len();
            plain.resize(start + state.plaintext_bytes_to_read(), 0);
            let read = self.connection.reader().read_exact(&mut plain[start..]);
            read.map_err(|error| rustls::Error::General(error.to_string()))?;
        }
        Ok(passed)
    }

    /// Returns true if the connection uses TLS 1.3 and rustls holds no part of a record.
    fn is_reducible(&self) -> bool {
        !self.connection.is_handshaking()
            && self.connection.protocol_version() == Some(ProtocolVersion::TLSv1_3)
            && self.boundary.is_between_records()
            && !self.has_ended
    }

    /// Takes the keys out of rustls.
    fn into_records(mut self: Box<Self>) -> io::Result<RecordLayer> {
        let unsent = self.unsent()?.to_vec();
        let secrets = self.secrets.ok_or(io::ErrorKind::NotConnected)?;
        let records = RecordLayer::for_client(self.connection, &secrets, unsent);
        records.map_err(io::Error::other)
    }

    fn unsent(&mut self) -> io::Result<&[u8]> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut self.unsent)?;
        }
        Ok(&self.unsent[self.sent..])
    }
}
