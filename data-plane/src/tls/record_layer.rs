//! TLS 1.3 record layer for a connection after its handshake: seals and opens records and updates keys (RFC
//! 8446 §4.6.3, §5). Section numbers in the module refer to RFC 8446.
//!
//! rustls performs the handshake. A connection that then stays open for more than one exchange needs little
//! of rustls's state. Two keys and two counters replace the state, in one piece of 1.5 KB instead of
//! several scattered allocations, and a request costs no allocation and no queue of buffers. The module
//! performs no I/O on sockets: bytes are passed in and out.

use std::cell::Cell;
use std::fmt;
use std::io::IoSlice;
use std::ops::Range;

use crate::tls::traffic_secrets::{TrafficSecret, TrafficSecrets, unknown_secret};
use aws_lc_rs::hkdf::{self, HKDF_SHA256, HKDF_SHA384, KeyType, Prk};
use base::sys::{Aead, AeadKey, NONCE_BYTES, TAG_BYTES};
use rustls::{
    ClientConnection, ConnectionTrafficSecrets, ExtractedSecrets, ServerConnection, Side,
};
use zeroize::Zeroizing;

/// Bytes of a record's header: type, version, length.
const HEADER_BYTES: usize = 5;
/// Largest content of one record (§5.1).
const CONTENT_BYTES_MAX: usize = 1 << 14;
/// Largest sealed content of one record, with tag and padding (§5.2).
const SEALED_BYTES_MAX: usize = CONTENT_BYTES_MAX + 256;
/// Bytes of the longest record, including the header.
pub const RECORD_BYTES_MAX: usize = HEADER_BYTES + SEALED_BYTES_MAX;
/// Number of records after which a key is changed. The limit of AES-GCM is 2^24.5 records (§5.5).
const RECORDS_OF_A_KEY: u64 = 1 << 24;
/// Largest number of consecutive records without content, with new keys or with session tickets, which serve
/// no request. Further records end the connection with the alert unexpected_message.
const IDLE_RECORDS_MAX: u8 = 32;
/// Largest number of consecutive KeyUpdates sent by this end without application data: one for each
/// request of the peer, and the last for all further requests. A peer that uses rustls accepts 32 and
/// refuses more.
const ANSWERS_MAX: u8 = 32;
/// KeyUpdate message without its last byte: type, and length in three bytes. The last byte tells whether an
/// update is requested in return.
const KEY_UPDATE: [u8; 4] = [24, 0, 0, 1];
/// Type of a NewSessionTicket message (§4.6.1).
const NEW_SESSION_TICKET: u8 = 4;
/// Largest accepted NewSessionTicket message, 64 KiB: rustls's bound for any handshake message. Tickets
/// with a client's certificate chain take a few KiB.
const TICKET_BYTES_MAX: usize = 64 * 1024;

thread_local! {
    /// Buffer of the thread's last response that was sent completely, for reuse.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}
/// Largest buffer kept for reuse. A larger buffer is freed.
const SPARE_BYTES_MAX: usize = 64 * 1024;

/// Content types of records (§5.1).
mod content {
    pub(super) const ALERT: u8 = 21;
    pub(super) const HANDSHAKE: u8 = 22;
    pub(super) const APPLICATION_DATA: u8 = 23;
}

/// Error in the peer's records: the alert for the peer (§6.2) and a description for the log.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordError {
    alert: u8,
    what: &'static str,
}

impl RecordError {
    const UNEXPECTED: RecordError = RecordError::new(10, "the peer sent an unexpected record");
    const BAD_MAC: RecordError = RecordError::new(
        20,
        "the peer sent a record that the connection's key does not open",
    );
    const OVERFLOW: RecordError =
        RecordError::new(22, "the peer sent a record above the maximum length");
    const ILLEGAL: RecordError = RecordError::new(
        47,
        "the peer sent a KeyUpdate message with an unknown request",
    );
    const MALFORMED: RecordError = RecordError::new(50, "the peer sent a message of wrong length");
    /// The peer sent an error alert. No alert is sent in return (§6.2).
    const ALERT: RecordError = RecordError::new(0, "the peer sent an alert");
    const INTERNAL: RecordError = RecordError::new(80, "the keys could not be renewed");

    const fn new(alert: u8, what: &'static str) -> RecordError {
        RecordError { alert, what }
    }

    /// Returns true if an alert is sent for this error.
    pub(crate) fn sends_alert(self) -> bool {
        self != RecordError::ALERT
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS: {}", self.what)
    }
}

impl std::error::Error for RecordError {}

/// Result of opening received bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenedRecords {
    /// Bytes of plaintext, which now stand at the beginning of the buffer.
    pub plain: usize,
    /// Bytes of whole records. Any bytes after them are the beginning of a further record.
    pub used: usize,
}

/// Record layer of both directions of a connection.
pub(crate) struct RecordLayer {
    reading: DirectionKeys,
    writing: DirectionKeys,
    suite: SuiteParameters,
    /// Role of this end of the connection.
    role: Side,
    idle: u8,
    /// True after the peer's close_notify or a fatal error: no further record is read.
    ended: bool,
    /// True after this end's close_notify or fatal alert.
    has_sent_close: bool,
    /// The number of KeyUpdates that this end has sent since the last application data. At
    /// [`ANSWERS_MAX`] the last KeyUpdate waits until application data is sent.
    renewals: u8,
    /// The beginning of a handshake message that ends in a later record.
    message: Vec<u8>,
    /// Sealed records. The bytes up to `sent` were sent.
    unsent: Vec<u8>,
    sent: usize,
}

impl fmt::Debug for RecordLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").finish_non_exhaustive()
    }
}

/// Key of one direction and the number of its uses.
struct DirectionKeys {
    key: AeadKey,
    iv: [u8; NONCE_BYTES],
    sequence: u64,
    /// Secret from which the next key is derived; outdated after a KeyUpdate inside rustls.
    secret: TrafficSecret,
}

#[derive(Copy, Clone)]
struct SuiteParameters {
    aead: Aead,
    hash: hkdf::Algorithm,
    hash_bytes: usize,
}

impl RecordLayer {
    /// Takes the keys of a server's connection out of rustls.
    ///
    /// Precondition: the handshake of TLS 1.3 is over, and the peer's Finished was the last record passed
    /// to rustls, so rustls holds no fragment of a later message. `unsent` is output of rustls that the
    /// socket has not accepted yet: session tickets.
    ///
    /// # Errors
    /// Fails if rustls refuses because the precondition isn't met, or if the suite is unknown.
    pub(crate) fn new(
        connection: ServerConnection,
        secrets: &TrafficSecrets,
        unsent: Vec<u8>,
    ) -> Result<RecordLayer, rustls::Error> {
        let extracted = connection.dangerous_extract_secrets()?;
        let (reading, writing) = (&secrets.client, &secrets.server);
        RecordLayer::of(Side::Server, extracted, reading, writing, unsent)
    }

    /// Takes the keys of a client's connection out of rustls.
    ///
    /// Precondition: the handshake of TLS 1.3 is over, and a record with application data was the last
    /// record passed to rustls. No fragment of a message precedes such a record (§5.1), so rustls holds
    /// none. `unsent` is output of rustls that the socket has not accepted yet.
    ///
    /// # Errors
    /// Fails if rustls refuses because the precondition isn't met, or if the suite is unknown.
    pub(crate) fn for_client(
        connection: ClientConnection,
        secrets: &TrafficSecrets,
        unsent: Vec<u8>,
    ) -> Result<RecordLayer, rustls::Error> {
        let extracted = connection.dangerous_extract_secrets()?;
        let (reading, writing) = (&secrets.server, &secrets.client);
        RecordLayer::of(Side::Client, extracted, reading, writing, unsent)
    }

    fn of(
        role: Side,
        extracted: ExtractedSecrets,
        reading: &TrafficSecret,
        writing: &TrafficSecret,
        unsent: Vec<u8>,
    ) -> Result<RecordLayer, rustls::Error> {
        let unusable = || rustls::Error::General("keys of another suite".to_owned());
        let suite = SuiteParameters::of(&extracted.rx.1).ok_or_else(unusable)?;
        let direction = |(sequence, keys): (u64, ConnectionTrafficSecrets),
                         secret: &TrafficSecret| {
            let (key, iv) = match &keys {
                ConnectionTrafficSecrets::Aes128Gcm { key, iv }
                | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
                | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (key, iv),
                _ => return None,
            };
            let iv = iv.as_ref().try_into().ok()?;
            DirectionKeys::new(suite, key.as_ref(), iv, sequence, secret.clone())
        };
        Ok(RecordLayer {
            reading: direction(extracted.rx, reading).ok_or_else(unusable)?,
            writing: direction(extracted.tx, writing).ok_or_else(unusable)?,
            suite,
            role,
            idle: 0,
            ended: false,
            has_sent_close: false,
            renewals: 0,
            message: Vec::new(),
            unsent,
            sent: 0,
        })
    }

    /// Opens the records in `bytes` in place. After the peer's close_notify ([`RecordLayer::ended`]) no
    /// further record is examined.
    ///
    /// # Errors
    /// Returns the error of the first faulty record. The alert for the peer is queued, and no further
    /// record is read.
    pub(crate) fn open(&mut self, bytes: &mut [u8]) -> Result<OpenedRecords, RecordError> {
        let opened = self.open_all(bytes);
        if let Err(broken) = &opened {
            self.ended = true;
            if !broken.sends_alert() {
                self.has_sent_close = true;
                self.note_sent(self.unsent.len());
            }
            if !self.has_sent_close {
                self.has_sent_close = true;
                self.seal_one(content::ALERT, &[&[2, broken.alert]]);
            }
        }
        opened
    }

    fn open_all(&mut self, bytes: &mut [u8]) -> Result<OpenedRecords, RecordError> {
        let (mut plain, mut used) = (0, 0);
        while !self.ended {
            let Some(len) = sealed_len(&bytes[used..])? else {
                break;
            };
            let Some(record) = bytes.get_mut(used..used + HEADER_BYTES + len) else {
                break;
            };
            let (kind, inner) = self.reading.open(record)?;
            let found = used + inner.start..used + inner.end;
            used += HEADER_BYTES + len;
            if kind == content::APPLICATION_DATA && !found.is_empty() && self.message.is_empty() {
                self.idle = 0;
                let len = found.len();
                bytes.copy_within(found, plain);
                plain += len;
            } else {
                self.attend(kind, &bytes[found])?;
            }
        }
        Ok(OpenedRecords { plain, used })
    }

    /// Handles a record without application data. Records of other types may not appear between two
    /// fragments of a handshake message (§5.1).
    fn attend(&mut self, kind: u8, content: &[u8]) -> Result<(), RecordError> {
        match (kind, content, self.message.is_empty()) {
            (content::ALERT, [_, 0], true) => {
                self.ended = true;
                return Ok(());
            }
            // The alert user_canceled announces a close_notify (§6.1).
            (content::ALERT, [_, 90], true) | (content::APPLICATION_DATA, [], true) => {}
            // Every alert other than close_notify and user_canceled is an error, at any level (§6.2).
            (content::ALERT, [_, 1..=89 | 91..], _) => return Err(RecordError::ALERT),
            // An alert record without content is unexpected (§5.1). A record with a part of an alert or
            // with several alerts is malformed.
            (content::ALERT, [_] | [_, _, _, ..], true) => return Err(RecordError::MALFORMED),
            (content::HANDSHAKE, [_, ..], _) => {
                self.message.extend_from_slice(content);
                if self.role == Side::Server || self.drop_tickets()? {
                    self.renew()?;
                }
            }
            _ => return Err(RecordError::UNEXPECTED),
        }
        self.idle += 1;
        if self.idle > IDLE_RECORDS_MAX {
            Err(RecordError::UNEXPECTED)
        } else {
            Ok(())
        }
    }

    /// Drops the session tickets in front of the received messages. A client that has reduced its
    /// connection to the record layer stores no further ticket. Returns true if the beginning of another
    /// message follows.
    fn drop_tickets(&mut self) -> Result<bool, RecordError> {
        let mut at = 0;
        while let [NEW_SESSION_TICKET, high, middle, low, rest @ ..] = &self.message[at..] {
            let len = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
            if len > TICKET_BYTES_MAX {
                return Err(RecordError::MALFORMED);
            }
            if len > rest.len() {
                break;
            }
            at += 4 + len;
        }
        self.message.drain(..at);
        match self.message.first() {
            None => {
                // An idle connection keeps no buffer.
                self.message = Vec::new();
                Ok(false)
            }
            Some(&kind) => Ok(kind != NEW_SESSION_TICKET),
        }
    }

    /// Returns true if the beginning of a handshake message was received, and the end was not.
    pub(crate) fn is_inside_message(&self) -> bool {
        !self.message.is_empty()
    }

    /// Renews the key of the peer's direction after a complete KeyUpdate message. All other messages are
    /// errors: a server requests none after the handshake, and a client only accepts session tickets.
    fn renew(&mut self) -> Result<(), RecordError> {
        let wanted = match self.message[..] {
            [24, 0, 0, 1, wanted] => wanted,
            [24, 0, 0, 1] | [24] | [24, _] | [24, _, _] => return Ok(()),
            // A message that changes keys must end with its record (§5.1).
            [24, 0, 0, 1, ..] => return Err(RecordError::UNEXPECTED),
            [24, ..] => return Err(RecordError::MALFORMED),
            _ => return Err(RecordError::UNEXPECTED),
        };
        self.message = Vec::new();
        let suite = self.suite;
        self.reading = self.reading.next(suite).ok_or(RecordError::INTERNAL)?;
        match wanted {
            0 => Ok(()),
            // One KeyUpdate may answer all requests that arrive before the next application data
            // (§4.6.3).
            1 if self.renewals + 1 >= ANSWERS_MAX => {
                self.renewals = ANSWERS_MAX;
                Ok(())
            }
            1 => self.renew_writing().ok_or(RecordError::INTERNAL),
            _ => Err(RecordError::ILLEGAL),
        }
    }

    /// Announces to the peer that the next records of this end use the next key (§4.6.3).
    fn renew_writing(&mut self) -> Option<()> {
        let next = self.writing.next(self.suite)?;
        self.seal_one(content::HANDSHAKE, &[&KEY_UPDATE, &[0]]);
        self.writing = next;
        self.renewals += 1;
        Some(())
    }

    /// Returns true after the peer's close_notify or a fatal error.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// Seals the concatenation of `slices` into the smallest number of records. Returns the total number of
    /// bytes.
    pub(crate) fn seal(&mut self, slices: &[IoSlice<'_>]) -> usize {
        let total = slices.iter().map(|slice| slice.len()).sum::<usize>();
        let records = total.div_ceil(CONTENT_BYTES_MAX);
        self.borrow_spare();
        self.unsent
            .reserve_exact(total + records * (HEADER_BYTES + 1 + TAG_BYTES));
        let mut left = slices.iter().map(|slice| &**slice);
        let mut slice = left.next().unwrap_or_default();
        let mut done = 0;
        while done < total {
            let len = (total - done).min(CONTENT_BYTES_MAX);
            self.seal_record(content::APPLICATION_DATA, len, |into| {
                let mut wanted = len;
                while wanted > 0 {
                    let (now, later) = slice.split_at(slice.len().min(wanted));
                    into.extend_from_slice(now);
                    wanted -= now.len();
                    slice = match later {
                        [] => left.next().unwrap_or_default(),
                        later => later,
                    };
                }
            });
            done += len;
        }
        total
    }

    /// Seals a close_notify (§6.1), unless a close_notify or fatal alert was sealed before.
    pub(crate) fn seal_goodbye(&mut self) {
        if !self.has_sent_close {
            self.has_sent_close = true;
            self.seal_one(content::ALERT, &[&[1, 0]]);
        }
    }

    fn seal_one(&mut self, kind: u8, parts: &[&[u8]]) {
        let len = parts.iter().map(|part| part.len()).sum();
        let put = |into: &mut Vec<u8>| parts.iter().for_each(|part| into.extend_from_slice(part));
        self.seal_record(kind, len, put);
    }

    /// Seals one record of `len` bytes, appended by `put`.
    fn seal_record(&mut self, kind: u8, len: usize, put: impl FnOnce(&mut Vec<u8>)) {
        if kind == content::APPLICATION_DATA {
            let is_worn = self.writing.sequence >= RECORDS_OF_A_KEY;
            let is_due = is_worn || self.renewals == ANSWERS_MAX;
            if is_due && self.renew_writing().is_none() {
                // The key has reached its limit and no new key could be derived, so nothing
                // more is sent.
                self.ended = true;
                return;
            }
            self.renewals = 0;
        }
        self.borrow_spare();
        let start = self.unsent.len();
        let [high, low] = ((len + 1 + TAG_BYTES) as u16).to_be_bytes();
        let header = [content::APPLICATION_DATA, 3, 3, high, low];
        self.unsent.extend_from_slice(&header);
        put(&mut self.unsent);
        self.unsent.push(kind);
        let (nonce, key) = self.writing.use_key();
        let inner = &mut self.unsent[start + HEADER_BYTES..];
        match key.seal(nonce, &header, inner) {
            Some(tag) => self.unsent.extend_from_slice(&tag),
            // A record of permitted length is never too long to seal. Plaintext must not be sent.
            None => {
                self.unsent.truncate(start);
                self.ended = true;
            }
        }
    }

    fn borrow_spare(&mut self) {
        if self.unsent.capacity() == 0 {
            self.unsent = SPARE.take();
        }
    }

    /// Returns the sealed bytes that wait to be sent.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.unsent[self.sent..]
    }

    /// Records that `bytes` of the sealed bytes were sent.
    pub(crate) fn note_sent(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent >= self.unsent.len() {
            // An idle connection keeps no buffer: the next response of the thread reuses the buffer.
            let mut spare = std::mem::take(&mut self.unsent);
            self.sent = 0;
            if spare.capacity() <= SPARE_BYTES_MAX {
                spare.clear();
                SPARE.set(spare);
            }
        }
    }
}

/// Returns the length in the header at the beginning of `bytes`, or None while the header is incomplete.
fn sealed_len(bytes: &[u8]) -> Result<Option<usize>, RecordError> {
    match bytes {
        // The version in the header has no meaning any more (§5.1).
        [content::APPLICATION_DATA, _, _, high, low, ..] => {
            let len = usize::from(u16::from_be_bytes([*high, *low]));
            match len {
                len if len > SEALED_BYTES_MAX => Err(RecordError::OVERFLOW),
                len => Ok(Some(len)),
            }
        }
        [] | [content::APPLICATION_DATA, ..] => Ok(None),
        // The error includes change_cipher_spec, which is permitted only until the end of the handshake
        // (§5).
        _ => Err(RecordError::UNEXPECTED),
    }
}

impl DirectionKeys {
    fn new(
        suite: SuiteParameters,
        key: &[u8],
        iv: [u8; NONCE_BYTES],
        sequence: u64,
        secret: TrafficSecret,
    ) -> Option<DirectionKeys> {
        Some(DirectionKeys {
            key: AeadKey::new(suite.aead, key)?,
            iv,
            sequence,
            secret,
        })
    }

    /// Returns the keys after a KeyUpdate (§7.2), or None if the current keys don't derive from the traffic secret. After
    /// a KeyUpdate inside rustls the secret is outdated, and the next keys derived from the secret would be keys that
    /// the connection has already used. The initialization vector tells.
    fn next(&self, suite: SuiteParameters) -> Option<DirectionKeys> {
        if suite.iv(&self.secret)? != self.iv {
            return None;
        }
        let secret = suite.next_secret(&self.secret)?;
        let mut key = Zeroizing::new([0; 32]);
        let key = &mut key[..suite.aead.key_bytes()];
        suite.expand(&secret, b"key", key)?;
        let iv = suite.iv(&secret)?;
        DirectionKeys::new(suite, key, iv, 0, secret)
    }

    /// Returns the key and the nonce of the next record (§5.3).
    fn use_key(&mut self) -> ([u8; NONCE_BYTES], &AeadKey) {
        let mut nonce = self.iv;
        for (byte, of_sequence) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= of_sequence;
        }
        self.sequence += 1;
        (nonce, &self.key)
    }

    /// Opens a whole record in place. Returns the type and the range of the content.
    fn open(&mut self, record: &mut [u8]) -> Result<(u8, Range<usize>), RecordError> {
        let (header, sealed) = record.split_at_mut(HEADER_BYTES);
        let (nonce, key) = self.use_key();
        let len = key
            .open(nonce, header, sealed)
            .ok_or(RecordError::BAD_MAC)?;
        let inner = &sealed[..len];
        // Padding counts towards the length (§5.4).
        if len > CONTENT_BYTES_MAX + 1 {
            return Err(RecordError::OVERFLOW);
        }
        // Padding consists of zeros after the type (§5.4).
        let last = inner.iter().rposition(|&byte| byte != 0);
        let last = last.ok_or(RecordError::UNEXPECTED)?;
        Ok((inner[last], HEADER_BYTES..HEADER_BYTES + last))
    }
}

impl SuiteParameters {
    fn of(keys: &ConnectionTrafficSecrets) -> Option<SuiteParameters> {
        let (aead, hash, hash_bytes) = match keys {
            ConnectionTrafficSecrets::Aes128Gcm { .. } => (Aead::Aes128Gcm, HKDF_SHA256, 32),
            ConnectionTrafficSecrets::Aes256Gcm { .. } => (Aead::Aes256Gcm, HKDF_SHA384, 48),
            ConnectionTrafficSecrets::Chacha20Poly1305 { .. } => {
                (Aead::ChaCha20Poly1305, HKDF_SHA256, 32)
            }
            _ => return None,
        };
        Some(SuiteParameters {
            aead,
            hash,
            hash_bytes,
        })
    }

    fn next_secret(self, secret: &TrafficSecret) -> Option<TrafficSecret> {
        let mut next = unknown_secret();
        self.expand(secret, b"traffic upd", &mut next[..self.hash_bytes])?;
        Some(next)
    }

    fn iv(self, secret: &TrafficSecret) -> Option<[u8; NONCE_BYTES]> {
        let mut iv = [0; NONCE_BYTES];
        self.expand(secret, b"iv", &mut iv)?;
        Some(iv)
    }

    /// Computes HKDF-Expand-Label without context (§7.1).
    fn expand(self, secret: &TrafficSecret, label: &[u8], into: &mut [u8]) -> Option<()> {
        struct Len(usize);
        impl KeyType for Len {
            fn len(&self) -> usize {
                self.0
            }
        }
        let len = (into.len() as u16).to_be_bytes();
        let label_len = [b"tls13 ".len() as u8 + label.len() as u8];
        let info: [&[u8]; 5] = [&len, &label_len, b"tls13 ", label, &[0]];
        let secret = Prk::new_less_safe(self.hash, &secret[..self.hash_bytes]);
        let expanded = secret.expand(&info, Len(into.len())).ok()?;
        expanded.fill(into).ok()
    }
}

#[cfg(test)]
mod client_tests;
#[cfg(test)]
mod tests;
