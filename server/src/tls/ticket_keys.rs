//! Session tickets: what lets a client come back without a full handshake, and lets us keep no
//! session of anybody (RFC 5077, RFC 8446 §4.6.1).
//!
//! A ticket is the session, sealed with a key that only we have. The keys turn over, live in a file
//! of the state folder so that tickets outlive a restart, or come from a file that several nodes
//! share. Each *scope* seals with keys of its own, derived from those: a ticket of a site that
//! demands client certificates opens nowhere else.
//!
//! The key file is text. One key a line, 64 hex digits, newest first; the first seals, all open.
//! Empty lines and lines that begin with `#` are skipped. After a key may stand the Unix time at
//! which it was made; our own file has it, a shared one doesn't need it.

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

use crate::base::atomic_file;
use crate::tls::error::{TlsError, TlsPart};

/// The ticket keys of this server, shared by all Worlds and workers.
pub struct TicketKeys {
    keys: ArcSwap<KeyList>,
    origin: KeyOrigin,
    /// Held while the file is read or written, so that two turns don't cross.
    turning: Mutex<()>,
}

/// Where the keys come from, which decides who turns them over.
enum KeyOrigin {
    /// Ours alone: turned over by us, kept in this file.
    State(PathBuf),
    /// The operator's, shared with other nodes: read, never written.
    Shared(PathBuf),
    /// Ours alone, gone with the process.
    Memory,
}

/// Newest first, never empty.
struct KeyList(Vec<TicketKey>);

#[derive(Clone, PartialEq, Eq)]
struct TicketKey {
    secret: [u8; SECRET_BYTES],
    /// Unix seconds; 0 if the file doesn't say.
    made_at: u64,
}

impl TicketKeys {
    /// Keys kept in the state folder, made there if there are none yet or they can't be read.
    /// `now` is Unix time.
    ///
    /// # Errors
    /// The file can't be opened, or a new one can't be written.
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

    /// Keys from a file that other nodes have too; see the top of this module for its form.
    ///
    /// # Errors
    /// The file can't be read, or a line of it is not a key.
    pub fn from_file(path: &Path) -> Result<TicketKeys, TlsError> {
        if fs::metadata(path).is_ok_and(|file| file.mode() & 0o007 != 0) {
            log::warn!(
                "{}: any user of this machine may read these ticket keys, and with them the \
                 connections that they resume (chmod o= is right)",
                path.display()
            );
        }
        let keys = read_shared(path)?;
        Ok(TicketKeys::new(keys, KeyOrigin::Shared(path.to_owned())))
    }

    /// Keys that end with this process: where there is no state folder to write to.
    ///
    /// # Errors
    /// The system gives no randomness.
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

    /// The file shared with other nodes, to watch for changes.
    pub fn shared_file(&self) -> Option<&Path> {
        match &self.origin {
            KeyOrigin::Shared(path) => Some(path),
            KeyOrigin::State(_) | KeyOrigin::Memory => None,
        }
    }

    /// Turns our own keys over if it is time, or reads the shared file again; true if the keys
    /// changed. To be called every few minutes, and when the shared file changes. `now` is Unix
    /// time.
    ///
    /// # Errors
    /// The shared file became unreadable: the keys stay as they were. Our own file can't be
    /// written: the keys are new all the same, but the next restart forgets them.
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
            // The clock was wrong then, or it is now (no battery, before NTP). Counting starts
            // over, so that a key from the far future still ends.
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
            // Another process on the same folder, as in an upgrade, was first.
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

    /// True if these are other keys than before.
    fn replace(&self, keys: KeyList) -> bool {
        if self.keys.load().0 == keys.0 {
            return false;
        }
        self.keys.store(Arc::new(keys));
        true
    }

    /// A producer for rustls whose tickets open only under the same `scope`, on this and every
    /// node that has the same keys.
    ///
    /// # Errors
    /// The cryptographic library refuses a key, which it has no reason to.
    pub fn producer(self: &Arc<Self>, scope: &[u8]) -> Result<Arc<dyn ProducesTickets>, TlsError> {
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

    /// A secret for something else than tickets, derived from the newest key.
    ///
    /// # Errors
    /// The cryptographic library refuses a key, which it has no reason to.
    pub fn secret(&self, scope: &[u8]) -> Result<[u8; SECRET_BYTES], TlsError> {
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

/// Seals and opens the tickets of one scope. A frame is the key's name (16 bytes), a random nonce
/// (12), AES-256-GCM of the session and the Unix time of its issue (8, big-endian), and the tag (16).
struct ScopedTicketer {
    tickets: Arc<TicketKeys>,
    scope: Box<[u8]>,
    derived: ArcSwap<DerivedKeys>,
}

/// This scope's keys, and the keys that they were derived from.
struct DerivedKeys {
    from: Arc<KeyList>,
    keys: Vec<ScopedKey>,
}

struct ScopedKey {
    /// Tells at once which key, if any, opens a ticket; says nothing about the key.
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

/// So many bytes for `purpose` and `scope` that tell nothing about `secret` (RFC 5869).
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
    /// Derives again if the server's keys were turned over since.
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
        // A shared key may stay in its file for years; a ticket lives a day all the same.
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

/// Notes when a ticket was opened: QUIC's connections don't tell whether they were resumed.
pub struct ResumptionObserver(pub Arc<dyn ProducesTickets>);

thread_local! {
    static OPENED: Cell<usize> = const { Cell::new(0) };
}

/// Whether a ticket was opened on this thread that wasn't asked about yet. Handshakes go on beside
/// each other, and so it may be that of another; but each is told once.
pub fn was_ticket_opened() -> bool {
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

    /// A line of the file; an error says what is wrong with it.
    fn parse(line: &str) -> Result<TicketKey, String> {
        let mut words = line.split_ascii_whitespace();
        let digits = words.next().unwrap_or("").as_bytes();
        let mut secret = [0; SECRET_BYTES];
        if digits.len() != 2 * SECRET_BYTES {
            return Err(format!("{} characters instead of 64", digits.len()));
        }
        for (byte, pair) in secret.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else {
                return Err("a character that is no hex digit".to_owned());
            };
            *byte = (high << 4 | low) as u8;
        }
        if secret.iter().all(|byte| *byte == secret[0]) {
            return Err("a key that anybody would guess".to_owned());
        }
        let made_at = match words.next().map(str::parse) {
            None => 0,
            Some(Ok(seconds)) => seconds,
            Some(Err(_)) => return Err("after the key stands no Unix time".to_owned()),
        };
        match words.next() {
            None => Ok(TicketKey { secret, made_at }),
            Some(word) => Err(format!("\"{word}\" after the key and its time")),
        }
    }
}

impl KeyList {
    /// The error has the number of the line, counted from 1, and what is wrong with it.
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
            return Err((1, "no key in this file".to_owned()));
        }
        Ok(KeyList(keys))
    }

    fn to_text(&self) -> String {
        use fmt::Write as _;
        let mut text = String::from(
            "# Ticket keys, newest first. Whoever has them can read resumed connections.\n",
        );
        for key in &self.0 {
            for byte in key.secret {
                let _ = write!(text, "{byte:02x}"); // a String takes everything
            }
            let _ = writeln!(text, " {}", key.made_at);
        }
        text
    }
}

/// Why there are no keys from a file.
enum KeyFileError {
    Missing,
    Failed(TlsError),
    Malformed(TlsError),
}

fn read(path: &Path) -> Result<KeyList, KeyFileError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(KeyFileError::Missing),
        Err(error) => return Err(KeyFileError::Failed(unreadable(path, &error))),
    };
    let parsed = match std::str::from_utf8(&bytes) {
        Ok(text) => KeyList::parse(text),
        Err(_) => Err((1, "not text".to_owned())),
    };
    parsed.map_err(|(line, what)| {
        KeyFileError::Malformed(
            TlsError::new(
                TlsPart::Tickets,
                format!("line {line}: {what}"),
                "one key a line, 64 hex digits, newest first: `openssl rand -hex 32` makes one",
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
        format!("can't read the ticket keys: {error}"),
        "",
    )
    .in_file(path)
}

/// The first key of a state folder.
fn start(path: &Path, now: u64) -> Result<KeyList, TlsError> {
    let keys = KeyList(vec![TicketKey::new(now)?]);
    store(path, &keys.to_text())?;
    Ok(keys)
}

fn store(path: &Path, text: &str) -> Result<(), TlsError> {
    atomic_file::write(path, text.as_bytes(), 0o600).map_err(|error| {
        TlsError::new(
            TlsPart::Tickets,
            format!("can't keep the ticket keys: {error}"),
            "the state folder must be writable",
        )
        .in_file(path)
    })
}

fn unix_now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// In the state folder.
const STATE_FILE: &str = "tickets.keys";
/// How long a key seals before the next one does; for as long again it opens.
const ROTATION_SECONDS: u64 = 12 * 3600;
/// No ticket is taken for longer: who later steals a key reads at most a day of resumed traffic.
const LIFETIME_SECONDS: u32 = 24 * 3600;
/// Keys in one file: more means that somebody forgot to remove the old ones.
const KEYS_MAX: usize = 16;
/// A session with a client's certificate chain in it; the ticket has to fit a 16-bit length.
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
    fn the_file_is_private_and_whole() {
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
    fn a_second_process_takes_the_key_that_the_first_made() {
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
    fn a_clock_that_was_ahead_loses_no_key_and_keeps_none_for_ever() {
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
    fn a_ticket_lives_a_day_even_if_its_key_stays() {
        let tickets = Arc::new(TicketKeys::in_memory(NOW).unwrap());
        let scope = scoped(&tickets, b"");
        let ticket = scope.seal(b"s", NOW).unwrap();
        assert!(scope.open(&ticket, NOW + 86_400).is_some());
        assert!(scope.open(&ticket, NOW + 86_401).is_none());
    }

    #[test]
    fn scopes_and_alterations_do_not_open() {
        let tickets = Arc::new(TicketKeys::in_memory(NOW).unwrap());
        let ticket = scoped(&tickets, b"a").seal(b"session", NOW).unwrap();
        assert_eq!(scoped(&tickets, b"b").open(&ticket, NOW), None);
        // Not even with the right key's name on it.
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
    fn a_shared_file_is_read_again_and_a_bad_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shared.keys");
        let [old, new] = ["0123456789abcdef", "fedcba9876543210"].map(|half| half.repeat(4));
        fs::write(&path, format!("# ours\n\n{old}\n")).unwrap();
        let here = Arc::new(TicketKeys::from_file(&path).unwrap());
        let there = Arc::new(TicketKeys::from_file(&path).unwrap());
        assert_eq!(here.shared_file(), Some(path.as_path()));
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
    fn lines_that_are_no_keys() {
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
        fn any_session_comes_back(session in proptest::collection::vec(any::<u8>(), 0..2000)) {
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
