//! Session tickets, which allow a client to resume without a full handshake, and the server to store no
//! sessions (RFC 5077, RFC 8446 §4.6.1).
//!
//! A ticket is the session, sealed with a key known only to the server. The keys rotate. The keys are
//! stored in a file of the state folder, so that tickets survive a restart, or come from a file shared by
//! several nodes. Each *scope* has its own keys, derived from the stored keys: a ticket of a site that
//! demands client certificates can't be opened for another site.
//!
//! The key file is text with one key a line, 64 hex digits, newest first. The first key seals, and all keys
//! open. Empty lines and lines that begin with `#` are skipped. The Unix time of the key's creation may
//! follow the key. The file in the state folder contains the time, and a shared file needs no time.

use std::cell::Cell;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::{hkdf, rand};
use rustls::server::ProducesTickets;

use crate::tls::error::{TlsError, TlsPart};
use base::atomic_file;

/// Ticket keys of the server, shared by all Worlds and workers.
pub struct TicketKeys {
    keys: ArcSwap<KeyList>,
    origin: KeyOrigin,
    /// Lock held while the file is read or written, so that two rotations don't overlap.
    turning: Mutex<()>,
}

/// Source of the keys, which decides about rotation.
enum KeyOrigin {
    /// A file of the server alone. The server rotates the keys.
    State(PathBuf),
    /// The operator's file, shared with other nodes. The server reads the file and never writes the file.
    Shared(PathBuf),
    /// Keys in memory, lost at the end of the process.
    Memory,
}

/// Keys, newest first. The list is never empty.
struct KeyList(Vec<TicketKey>);

#[derive(Clone, PartialEq, Eq)]
struct TicketKey {
    secret: [u8; SECRET_BYTES],
    /// Time of creation in Unix seconds; 0 if the file has no time.
    made_at: u64,
}

impl TicketKeys {
    /// Loads the keys of the state folder. Makes new keys if the file is missing or malformed. `now` is
    /// Unix time.
    ///
    /// # Errors
    /// Fails if the file can't be opened, or a new file can't be written.
    pub fn from_state(state: &Path, now: u64) -> Result<TicketKeys, TlsError> {
        let path = state.join(STATE_FILE);
        let keys = match read(&path) {
            Ok(keys) => keys,
            Err(KeyFileError::Missing) => start(&path, now)?,
            Err(KeyFileError::Malformed(error)) => {
                log::warn!("{error}; starting with new ticket keys");
                start(&path, now)?
            }
            Err(KeyFileError::Failed(error)) => return Err(error),
        };
        let tickets = TicketKeys::new(keys, KeyOrigin::State(path));
        tickets.rotate_if_due(now)?;
        Ok(tickets)
    }

    /// Loads keys from a file shared with other nodes. The documentation of the module describes the
    /// format.
    ///
    /// # Errors
    /// Fails if the file can't be read, or a line isn't a key.
    pub fn from_file(path: &Path) -> Result<TicketKeys, TlsError> {
        if fs::metadata(path).is_ok_and(|file| file.mode() & 0o007 != 0) {
            log::warn!(
                "{}: any user of the machine may read the ticket keys and decrypt the \
                 resumed connections (remove the permission with chmod o=)",
                path.display()
            );
        }
        let keys = read_shared(path)?;
        Ok(TicketKeys::new(keys, KeyOrigin::Shared(path.to_owned())))
    }

    /// Makes keys that are lost at the end of the process, for a server without a writable state folder.
    ///
    /// # Errors
    /// Fails if the system has no randomness.
    pub fn in_memory(now: u64) -> Result<TicketKeys, TlsError> {
        Ok(TicketKeys::new(
            KeyList(vec![TicketKey::new(now)?]),
            KeyOrigin::Memory,
        ))
    }

    fn new(keys: KeyList, origin: KeyOrigin) -> TicketKeys {
        TicketKeys {
            keys: ArcSwap::from_pointee(keys),
            origin,
            turning: Mutex::new(()),
        }
    }

    /// Rotates the server's own keys if due, or reads the shared file again. Returns true if the keys
    /// changed. The caller calls the function every few minutes, and when the shared file changes. `now` is
    /// Unix time.
    ///
    /// # Errors
    /// Fails if the shared file can't be read; the keys then stay unchanged. Fails if the server's own file
    /// can't be written; the keys are then rotated, but lost at the next restart.
    pub fn rotate_if_due(&self, now: u64) -> Result<bool, TlsError> {
        let _turn = self.turning.lock().unwrap_or_else(PoisonError::into_inner);
        if let KeyOrigin::Shared(path) = &self.origin {
            return Ok(self.replace(read_shared(path)?));
        }
        let keys = self.keys.load_full();
        let Some(newest) = keys.0.first() else {
            return Ok(false);
        };
        if newest.made_at > now {
            // The clock was wrong at the key's creation, or is wrong now (a machine without a battery,
            // before NTP). The key's age is counted from now on, so that a key with a creation time in the
            // far future is rotated as well.
            let mut keys = keys.0.clone();
            keys[0].made_at = now;
            return Ok(self.replace(KeyList(keys)));
        }
        if now - newest.made_at < ROTATION_SECONDS {
            return Ok(false);
        }
        if let KeyOrigin::State(path) = &self.origin
            && let Ok(stored) = read(path)
            && stored
                .0
                .first()
                .is_some_and(|other| other.made_at <= now && now - other.made_at < ROTATION_SECONDS)
        {
            // Another process with the same folder, as during an upgrade, has rotated the keys.
            return Ok(self.replace(stored));
        }
        let mut turned = vec![TicketKey::new(now)?];
        if now - newest.made_at < u64::from(LIFETIME_SECONDS) {
            turned.push(newest.clone());
        }
        let turned = KeyList(turned);
        let text = turned.to_text();
        self.replace(turned);
        if let KeyOrigin::State(path) = &self.origin {
            store(path, &text)?;
        }
        Ok(true)
    }

    /// Replaces the keys. Returns true if the keys differ from the previous keys.
    fn replace(&self, keys: KeyList) -> bool {
        if self.keys.load().0 == keys.0 {
            return false;
        }
        self.keys.store(Arc::new(keys));
        true
    }

    /// Returns a ticket producer for rustls. Its tickets open only under the same `scope`, on all nodes
    /// with the same keys.
    ///
    /// # Errors
    /// Fails if the cryptographic library refuses a key, which indicates a bug.
    pub(crate) fn producer(
        self: &Arc<Self>,
        scope: &[u8],
    ) -> Result<Arc<dyn ProducesTickets>, TlsError> {
        let keys = self.keys.load_full();
        let derived = DerivedKeys::new(keys, scope).map_err(|Unspecified| {
            TlsError::new(TlsPart::Tickets, "can't derive ticket keys", "")
        })?;
        Ok(Arc::new(ScopedTicketer {
            tickets: Arc::clone(self),
            scope: scope.into(),
            derived: ArcSwap::from_pointee(derived),
        }))
    }

    /// Returns a secret for purposes other than tickets, derived from the newest key.
    ///
    /// # Errors
    /// Fails if the cryptographic library refuses a key, which indicates a bug.
    pub(crate) fn secret(&self, scope: &[u8]) -> Result<[u8; SECRET_BYTES], TlsError> {
        let keys = self.keys.load();
        let newest = keys.0.first().ok_or(Unspecified);
        newest
            .and_then(|key| derive(b"anthill secrets 1", &key.secret, scope))
            .map_err(|Unspecified| TlsError::new(TlsPart::Tickets, "can't derive a secret", ""))
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").finish_non_exhaustive()
    }
}

/// Producer of the tickets of one scope. A ticket consists of the key's name (16 bytes), a random nonce
/// (12), the session and the Unix time of issue (8, big-endian) sealed with AES-256-GCM, and the tag (16).
struct ScopedTicketer {
    tickets: Arc<TicketKeys>,
    scope: Box<[u8]>,
    derived: ArcSwap<DerivedKeys>,
}

/// Keys of one scope, and the keys used for the derivation.
struct DerivedKeys {
    from: Arc<KeyList>,
    keys: Vec<ScopedKey>,
}

struct ScopedKey {
    /// Name that identifies the key of a ticket without revealing the key.
    name: [u8; NAME_BYTES],
    seal: LessSafeKey,
}

impl DerivedKeys {
    fn new(from: Arc<KeyList>, scope: &[u8]) -> Result<DerivedKeys, Unspecified> {
        let keys = from
            .0
            .iter()
            .map(|key| ScopedKey::derive(&key.secret, scope))
            .collect::<Result<_, _>>()?;
        Ok(DerivedKeys { from, keys })
    }
}

impl ScopedKey {
    fn derive(secret: &[u8; SECRET_BYTES], scope: &[u8]) -> Result<ScopedKey, Unspecified> {
        let material: [u8; NAME_BYTES + SECRET_BYTES] =
            derive(b"anthill ticket keys 1", secret, scope)?;
        let (name, secret) = material.split_at(NAME_BYTES);
        Ok(ScopedKey {
            name: name.try_into().map_err(|_| Unspecified)?,
            seal: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, secret)?),
        })
    }
}

/// Derives bytes for `purpose` and `scope` that reveal nothing about `secret` (RFC 5869).
fn derive<const BYTES: usize>(
    purpose: &[u8],
    secret: &[u8],
    scope: &[u8],
) -> Result<[u8; BYTES], Unspecified> {
    struct Length(usize);
    impl hkdf::KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let mut material = [0; BYTES];
    hkdf::Salt::new(hkdf::HKDF_SHA256, purpose)
        .extract(secret)
        .expand(&[scope], Length(BYTES))?
        .fill(&mut material)?;
    Ok(material)
}

impl ScopedTicketer {
    /// Returns the derived keys, derived again after a rotation of the server's keys.
    fn derived(&self) -> Option<arc_swap::Guard<Arc<DerivedKeys>>> {
        let derived = self.derived.load();
        let current = self.tickets.keys.load();
        if Arc::ptr_eq(&derived.from, &current) {
            return Some(derived);
        }
        let fresh = DerivedKeys::new(Arc::clone(&current), &self.scope).ok()?;
        self.derived.store(Arc::new(fresh));
        Some(self.derived.load())
    }

    fn seal(&self, session: &[u8], now: u64) -> Option<Vec<u8>> {
        if session.len() > SESSION_BYTES_MAX {
            return None;
        }
        let derived = self.derived()?;
        let key = derived.keys.first()?;
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut frame = Vec::with_capacity(HEADER_BYTES + session.len() + TIME_BYTES + TAG_BYTES);
        frame.extend_from_slice(&key.name);
        frame.extend_from_slice(&nonce);
        frame.extend_from_slice(session);
        frame.extend_from_slice(&now.to_be_bytes());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = key
            .seal
            .seal_in_place_separate_tag(nonce, Aad::from(&key.name), &mut frame[HEADER_BYTES..])
            .ok()?;
        frame.extend_from_slice(tag.as_ref());
        Some(frame)
    }

    fn open(&self, frame: &[u8], now: u64) -> Option<Vec<u8>> {
        let (name, rest) = frame.split_at_checked(NAME_BYTES)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
        if sealed.len() > SESSION_BYTES_MAX + TIME_BYTES + TAG_BYTES {
            return None;
        }
        let derived = self.derived()?;
        let key = derived.keys.iter().find(|key| key.name == name)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut opened = sealed.to_vec();
        let plain = key
            .seal
            .open_in_place(nonce, Aad::from(&key.name), &mut opened)
            .ok()?;
        let session_bytes = plain.len().checked_sub(TIME_BYTES)?;
        let issued = u64::from_be_bytes(plain[session_bytes..].try_into().ok()?);
        // A shared key may stay in its file for years, but a ticket is valid for one day.
        if now.saturating_sub(issued) > u64::from(LIFETIME_SECONDS) {
            return None;
        }
        opened.truncate(session_bytes);
        Some(opened)
    }
}

impl ProducesTickets for ScopedTicketer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        LIFETIME_SECONDS
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        self.seal(session, unix_now())
    }

    fn decrypt(&self, frame: &[u8]) -> Option<Vec<u8>> {
        self.open(frame, unix_now())
    }
}

/// Ticket producer that counts opened tickets, since QUIC connections don't report resumption.
pub(crate) struct ResumptionObserver(pub Arc<dyn ProducesTickets>);

thread_local! {
    static OPENED: Cell<usize> = const { Cell::new(0) };
}

/// Returns true if a ticket was opened on the calling thread, and counts down the opened tickets.
/// Handshakes are interleaved, so the ticket may belong to another connection, but each ticket is reported
/// once.
#[cfg(feature = "http3")]
pub(crate) fn was_ticket_opened() -> bool {
    let opened = OPENED.get();
    OPENED.set(opened.saturating_sub(1));
    opened > 0
}

impl ProducesTickets for ResumptionObserver {
    fn enabled(&self) -> bool {
        self.0.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime()
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        self.0.encrypt(session)
    }

    fn decrypt(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let session = self.0.decrypt(frame)?;
        OPENED.set(OPENED.get() + 1);
        Some(session)
    }
}

impl fmt::Debug for ResumptionObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Noting").finish_non_exhaustive()
    }
}

impl fmt::Debug for ScopedTicketer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scoped").finish_non_exhaustive()
    }
}

impl TicketKey {
    fn new(now: u64) -> Result<TicketKey, TlsError> {
        let mut secret = [0; SECRET_BYTES];
        rand::fill(&mut secret).map_err(|Unspecified| {
            TlsError::new(TlsPart::Tickets, "the system gives no randomness", "")
        })?;
        Ok(TicketKey {
            secret,
            made_at: now,
        })
    }

    /// Parses a line of the file. An error describes the fault.
    fn parse(line: &str) -> Result<TicketKey, String> {
        let mut words = line.split_ascii_whitespace();
        let digits = words.next().unwrap_or("").as_bytes();
        let mut secret = [0; SECRET_BYTES];
        if digits.len() != 2 * SECRET_BYTES {
            return Err(format!(
                "the key has {} characters instead of 64",
                digits.len()
            ));
        }
        for (byte, pair) in secret.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else {
                return Err("the key has a character other than hex digits".to_owned());
            };
            *byte = (high << 4 | low) as u8;
        }
        if secret.iter().all(|byte| *byte == secret[0]) {
            return Err("the key is easy to guess".to_owned());
        }
        let made_at = match words.next().map(str::parse) {
            None => 0,
            Some(Ok(seconds)) => seconds,
            Some(Err(_)) => return Err("the word after the key is not a Unix time".to_owned()),
        };
        match words.next() {
            None => Ok(TicketKey { secret, made_at }),
            Some(word) => Err(format!("\"{word}\" follows the key and its time")),
        }
    }
}

impl KeyList {
    /// Parses a key file. An error contains the number of the line, counted from 1, and the fault.
    fn parse(text: &str) -> Result<KeyList, (usize, String)> {
        let mut keys = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if keys.len() == KEYS_MAX {
                return Err((index + 1, format!("more than {KEYS_MAX} keys")));
            }
            keys.push(TicketKey::parse(line).map_err(|what| (index + 1, what))?);
        }
        if keys.is_empty() {
            return Err((1, "the file has no key".to_owned()));
        }
        Ok(KeyList(keys))
    }

    fn to_text(&self) -> String {
        use fmt::Write as _;
        let mut text = String::from(
            "# Ticket keys, newest first. A reader of this file can decrypt resumed connections.\n",
        );
        for key in &self.0 {
            for byte in key.secret {
                let _ = write!(text, "{byte:02x}"); // writing to a String never fails
            }
            let _ = writeln!(text, " {}", key.made_at);
        }
        text
    }
}

/// Reason why a file yields no keys.
enum KeyFileError {
    Missing,
    Failed(TlsError),
    Malformed(TlsError),
}

fn read(path: &Path) -> Result<KeyList, KeyFileError> {
    let bytes = match atomic_file::read_bounded(path, KEY_FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(KeyFileError::Missing),
        Err(error) => return Err(KeyFileError::Failed(unreadable(path, &error))),
    };
    let parsed = match std::str::from_utf8(&bytes) {
        Ok(text) => KeyList::parse(text),
        Err(_) => Err((1, "not UTF-8 text".to_owned())),
    };
    parsed.map_err(|(line, what)| {
        KeyFileError::Malformed(
            TlsError::new(
                TlsPart::Tickets,
                format!("line {line}: {what}"),
                "write one key of 64 hex digits in a line, newest first: `openssl rand -hex 32` prints a key",
            )
            .in_file(path),
        )
    })
}

fn read_shared(path: &Path) -> Result<KeyList, TlsError> {
    read(path).map_err(|unread| match unread {
        KeyFileError::Missing => unreadable(path, &ErrorKind::NotFound.into()),
        KeyFileError::Failed(error) | KeyFileError::Malformed(error) => error,
    })
}

fn unreadable(path: &Path, error: &io::Error) -> TlsError {
    TlsError::new(
        TlsPart::Tickets,
        format!("cannot read the ticket keys: {error}"),
        "",
    )
    .in_file(path)
}

/// Makes and stores the first key of a state folder.
fn start(path: &Path, now: u64) -> Result<KeyList, TlsError> {
    let keys = KeyList(vec![TicketKey::new(now)?]);
    store(path, &keys.to_text())?;
    Ok(keys)
}

fn store(path: &Path, text: &str) -> Result<(), TlsError> {
    atomic_file::write(path, text.as_bytes(), 0o600).map_err(|error| {
        TlsError::new(
            TlsPart::Tickets,
            format!("cannot store the ticket keys: {error}"),
            "make the state folder writable",
        )
        .in_file(path)
    })
}

fn unix_now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Name of the key file in the state folder.
const STATE_FILE: &str = "tickets.keys";
/// Seconds for which a key seals before the next key takes over. The replaced key opens tickets for as long
/// again.
const ROTATION_SECONDS: u64 = 12 * 3600;
/// Lifetime of a ticket in seconds. A thief of a key can decrypt at most one day of resumed traffic.
const LIFETIME_SECONDS: u32 = 24 * 3600;
/// Maximum number of keys in a file. A file with more keys contains keys that the operator forgot to
/// remove, and is refused.
const KEYS_MAX: usize = 16;
/// Largest key file in bytes, with room for comments.
const KEY_FILE_BYTES_MAX: u64 = 64 * 1024;
/// Maximum length of a session in bytes: a session may contain a client's certificate chain, and the ticket
/// has to fit a 16-bit length. A larger session gets no ticket.
const SESSION_BYTES_MAX: usize = 16 * 1024;
const SECRET_BYTES: usize = 32;
const NAME_BYTES: usize = 16;
const HEADER_BYTES: usize = NAME_BYTES + NONCE_LEN;
const TIME_BYTES: usize = 8;
const TAG_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt as _;

    const NOW: u64 = 1_800_000_000;

    fn scoped(tickets: &Arc<TicketKeys>, scope: &[u8]) -> ScopedTicketer {
        ScopedTicketer {
            tickets: Arc::clone(tickets),
            scope: scope.into(),
            derived: ArcSwap::from_pointee(
                DerivedKeys::new(tickets.keys.load_full(), scope).unwrap(),
            ),
        }
    }

    fn from_state(folder: &Path, now: u64) -> Arc<TicketKeys> {
        Arc::new(TicketKeys::from_state(folder, now).unwrap())
    }

    #[test]
    fn a_ticket_outlives_a_restart_and_one_rotation_but_not_two() {
        let state = tempfile::tempdir().unwrap();
        let before = scoped(&from_state(state.path(), NOW), b"a");
        let ticket = before.seal(b"session", NOW).unwrap();
        assert_eq!(ticket.len(), 7 + 16 + 12 + 8 + 16);

        let tickets = from_state(state.path(), NOW + 60);
        let after = scoped(&tickets, b"a");
        assert_eq!(after.open(&ticket, NOW + 60).unwrap(), b"session");
        assert!(!tickets.rotate_if_due(NOW + ROTATION_SECONDS - 1).unwrap());
        assert!(tickets.rotate_if_due(NOW + ROTATION_SECONDS).unwrap());
        assert_eq!(after.open(&ticket, NOW + 43_200).unwrap(), b"session");
        let second = after.seal(b"session", NOW + 43_200).unwrap();
        assert_ne!(second[..NAME_BYTES], ticket[..NAME_BYTES]);

        let again = from_state(state.path(), NOW + 43_200);
        assert!(scoped(&again, b"a").open(&second, NOW + 43_200).is_some());
        assert!(again.rotate_if_due(NOW + 2 * ROTATION_SECONDS).unwrap());
        assert_eq!(scoped(&again, b"a").open(&ticket, NOW + 86_400), None);
    }

    #[test]
    fn the_key_file_is_private_and_replaced_if_malformed() {
        let state = tempfile::tempdir().unwrap();
        from_state(state.path(), NOW);
        let path = state.path().join(STATE_FILE);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(&path, "garbage").unwrap();
        let tickets = from_state(state.path(), NOW);
        assert!(fs::read_to_string(&path).unwrap().lines().count() == 2);
        assert!(!tickets.rotate_if_due(NOW).unwrap());
    }

    #[test]
    fn a_second_process_uses_the_key_of_the_first() {
        let state = tempfile::tempdir().unwrap();
        let first = from_state(state.path(), NOW);
        let second = from_state(state.path(), NOW);
        let later = NOW + ROTATION_SECONDS;
        assert!(first.rotate_if_due(later).unwrap());
        assert!(second.rotate_if_due(later + 1).unwrap());
        let ticket = scoped(&first, b"").seal(b"s", later).unwrap();
        assert!(scoped(&second, b"").open(&ticket, later).is_some());
    }

    #[test]
    fn a_key_from_the_future_stays_usable_and_is_rotated() {
        let state = tempfile::tempdir().unwrap();
        let tickets = from_state(state.path(), NOW + 1_000_000_000);
        let scope = scoped(&tickets, b"");
        let ticket = scope.seal(b"s", NOW).unwrap();
        assert!(tickets.rotate_if_due(NOW).unwrap());
        assert!(scope.open(&ticket, NOW).is_some());
        assert!(!tickets.rotate_if_due(NOW + 1).unwrap());
        assert!(tickets.rotate_if_due(NOW + ROTATION_SECONDS).unwrap());
        assert!(scope.open(&ticket, NOW).is_some());
    }

    #[test]
    fn a_ticket_is_valid_for_a_day_even_if_its_key_stays() {
        let tickets = Arc::new(TicketKeys::in_memory(NOW).unwrap());
        let scope = scoped(&tickets, b"");
        let ticket = scope.seal(b"s", NOW).unwrap();
        assert!(scope.open(&ticket, NOW + 86_400).is_some());
        assert!(scope.open(&ticket, NOW + 86_401).is_none());
    }

    #[test]
    fn tickets_of_other_scopes_and_altered_tickets_do_not_open() {
        let tickets = Arc::new(TicketKeys::in_memory(NOW).unwrap());
        let ticket = scoped(&tickets, b"a").seal(b"session", NOW).unwrap();
        assert_eq!(scoped(&tickets, b"b").open(&ticket, NOW), None);
        // A ticket with the right key's name and another scope's content doesn't open, either.
        let mut renamed = ticket.clone();
        let other = scoped(&tickets, b"b").seal(b"", NOW).unwrap();
        renamed[..NAME_BYTES].copy_from_slice(&other[..NAME_BYTES]);
        assert_eq!(scoped(&tickets, b"b").open(&renamed, NOW), None);
        let same = scoped(&tickets, b"a");
        for at in 0..ticket.len() {
            let mut altered = ticket.clone();
            altered[at] ^= 1;
            assert_eq!(same.open(&altered, NOW), None, "byte {at}");
            assert_eq!(same.open(&ticket[..at], NOW), None, "cut at {at}");
        }
        assert!(same.seal(&vec![0; SESSION_BYTES_MAX + 1], NOW).is_none());
    }

    #[test]
    fn a_changed_shared_file_is_read_and_a_malformed_file_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shared.keys");
        let [old, new] = ["0123456789abcdef", "fedcba9876543210"].map(|half| half.repeat(4));
        fs::write(&path, format!("# ours\n\n{old}\n")).unwrap();
        let here = Arc::new(TicketKeys::from_file(&path).unwrap());
        let there = Arc::new(TicketKeys::from_file(&path).unwrap());
        assert!(matches!(&here.origin, KeyOrigin::Shared(shared) if *shared == path));
        let [here_scope, there_scope] = [&here, &there].map(|node| scoped(node, b"x"));
        let ticket = here_scope.seal(b"s", NOW).unwrap();
        assert!(there_scope.open(&ticket, NOW).is_some());
        assert!(!here.rotate_if_due(NOW).unwrap());

        fs::write(&path, format!("{new}\n{old} 17\r\n")).unwrap();
        assert!(here.rotate_if_due(NOW).unwrap());
        assert!(there.rotate_if_due(NOW).unwrap());
        assert!(there_scope.open(&ticket, NOW).is_some());
        let newer = there_scope.seal(b"s", NOW).unwrap();
        assert_ne!(newer[..NAME_BYTES], ticket[..NAME_BYTES]);
        assert!(here_scope.open(&newer, NOW).is_some());

        fs::write(&path, format!("{new}\n{}\n", &old[1..])).unwrap();
        let error = here.rotate_if_due(NOW).unwrap_err();
        assert!(error.what.contains("line 2"), "{error}");
        assert!(here_scope.open(&newer, NOW).is_some());
        fs::remove_file(&path).unwrap();
        assert!(here.rotate_if_due(NOW).is_err());
        assert!(TicketKeys::from_file(&path).is_err());
    }

    #[test]
    fn malformed_lines_are_refused() {
        let good = "0123456789abcdef".repeat(4);
        for (text, line, word) in [
            (String::new(), 1, "no key"),
            ("# only this\n".to_owned(), 1, "no key"),
            (format!("{good}\n{good}0\n"), 2, "65"),
            (format!("\n{}g\n", &good[1..]), 2, "hex"),
            (format!("{good} then\n"), 1, "time"),
            (format!("{good} 5 6\n"), 1, "\"6\""),
            ("0".repeat(64), 1, "guess"),
            (format!("{good}\n").repeat(17), 17, "more than"),
            ("é".repeat(32), 1, "hex"),
        ] {
            let (at, what) = KeyList::parse(&text).err().unwrap();
            assert_eq!(at, line, "{text}");
            assert!(what.contains(word), "{what}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_tickets_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            name in any::<bool>(),
        ) {
            let tickets = Arc::new(TicketKeys::in_memory(NOW).unwrap());
            let scope = scoped(&tickets, b"");
            let mut frame = scope.seal(b"", NOW).unwrap();
            frame.truncate(if name { NAME_BYTES } else { 0 });
            frame.extend_from_slice(&bytes);
            prop_assert_eq!(scope.open(&frame, NOW), None);
            prop_assert_eq!(scope.decrypt(&frame), None);
        }

        #[test]
        fn any_session_is_opened_again(session in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let tickets = Arc::new(TicketKeys::in_memory(NOW).unwrap());
            let scope = scoped(&tickets, b"");
            let frame = scope.seal(&session, NOW).unwrap();
            prop_assert_eq!(scope.open(&frame, NOW), Some(session));
        }

        #[test]
        fn arbitrary_key_files_never_panic(text in "\\PC*") {
            let _ = KeyList::parse(&text);
        }
    }
}
