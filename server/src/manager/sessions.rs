//! One-time secrets of `anthill manager login` and the sessions opened with the secrets, in memory alone.
//!
//! The ledger is pure: the caller passes the time. The ledger stores digests under a key of the process, so the
//! time of a look-up reveals nothing about a valid secret.

use crate::manager::limits::{
    MANAGER_SECRET_SECONDS, MANAGER_SECRETS_MAX, MANAGER_SESSION_SECONDS, MANAGER_SESSIONS_MAX,
};

/// Digest of a secret or of the id of a session, under a key of the process.
pub(super) type Digest = [u8; 32];

/// Secrets and sessions that are valid.
#[derive(Default)]
pub(super) struct SessionLedger {
    secrets: Entries,
    sessions: Entries,
}

/// Digests, each with the end of its validity in milliseconds; the oldest first.
type Entries = Vec<(Digest, u64)>;

impl SessionLedger {
    /// Adds a secret.
    pub(super) fn add_secret(&mut self, secret: Digest, now_ms: u64) {
        let end_ms = now_ms + MANAGER_SECRET_SECONDS * 1_000;
        add(&mut self.secrets, secret, end_ms, MANAGER_SECRETS_MAX);
    }

    /// Opens a session in exchange for a secret. Returns false if the secret is unknown, used or expired.
    pub(super) fn open(&mut self, secret: &Digest, session: Digest, now_ms: u64) -> bool {
        let is_valid = has(&self.secrets, secret, now_ms);
        remove(&mut self.secrets, secret);
        if is_valid {
            let end_ms = now_ms + MANAGER_SESSION_SECONDS * 1_000;
            add(&mut self.sessions, session, end_ms, MANAGER_SESSIONS_MAX);
        }
        is_valid
    }

    /// Returns true for an open session.
    pub(super) fn has_session(&self, session: &Digest, now_ms: u64) -> bool {
        has(&self.sessions, session, now_ms)
    }

    /// Closes a session.
    pub(super) fn close(&mut self, session: &Digest) {
        remove(&mut self.sessions, session);
    }
}

/// Adds an entry. The oldest entry makes room.
fn add(entries: &mut Entries, digest: Digest, end_ms: u64, count_max: usize) {
    if entries.len() >= count_max {
        entries.remove(0);
    }
    entries.push((digest, end_ms));
}

fn has(entries: &Entries, digest: &Digest, now_ms: u64) -> bool {
    let mut entries = entries.iter();
    entries.any(|(known, end_ms)| known == digest && now_ms < *end_ms)
}

fn remove(entries: &mut Entries, digest: &Digest) {
    entries.retain(|(known, _)| known != digest);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET_MS: u64 = MANAGER_SECRET_SECONDS * 1_000;
    const SESSION_MS: u64 = MANAGER_SESSION_SECONDS * 1_000;

    #[test]
    fn a_secret_opens_one_session() {
        let mut ledger = SessionLedger::default();
        ledger.add_secret([1; 32], 0);
        assert!(!ledger.open(&[2; 32], [8; 32], 0));
        assert!(ledger.open(&[1; 32], [9; 32], SECRET_MS - 1));
        assert!(!ledger.open(&[1; 32], [7; 32], SECRET_MS - 1));
        let end = SECRET_MS - 1 + SESSION_MS;
        assert!(ledger.has_session(&[9; 32], end - 1));
        assert!(!ledger.has_session(&[9; 32], end));
        assert!(!ledger.has_session(&[7; 32], 0));
        ledger.close(&[9; 32]);
        assert!(!ledger.has_session(&[9; 32], 0));
    }

    #[test]
    fn an_expired_secret_opens_nothing() {
        let mut ledger = SessionLedger::default();
        ledger.add_secret([1; 32], 0);
        assert!(!ledger.open(&[1; 32], [9; 32], SECRET_MS));
        // The refused secret is gone, also for a clock that runs backwards.
        assert!(!ledger.open(&[1; 32], [9; 32], 0));
    }

    #[test]
    fn the_oldest_entries_make_room() {
        let mut ledger = SessionLedger::default();
        for number in 0..=MANAGER_SESSIONS_MAX as u8 {
            ledger.add_secret([number; 32], 0);
            assert!(ledger.open(&[number; 32], [number; 32], 0));
        }
        assert!(!ledger.has_session(&[0; 32], 0));
        assert!(ledger.has_session(&[1; 32], 0));
        for number in 0..=MANAGER_SECRETS_MAX as u8 {
            ledger.add_secret([number; 32], 0);
        }
        assert!(!ledger.open(&[0; 32], [99; 32], 0));
        assert!(ledger.open(&[1; 32], [99; 32], 0));
    }
}
