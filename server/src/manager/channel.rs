//! State of the manager for the whole process, and the channel to the control plane.

use super::sessions::{Digest, SessionLedger};
use crate::admin::balancers::BalancerList;
use crate::admin::command::Command;
use crate::admin::status::Status;
use crate::base::digest::base64url;
use crate::limits::{MANAGER_REQUESTS_MAX, MANAGER_SNAPSHOT_MILLISECONDS};
use crate::wire::reject::Reject;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::{hmac, rand};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::oneshot;

/// Request of the manager to the control plane.
pub enum ManagerRequest {
    /// Makes a snapshot, unless a recent snapshot exists ([`ManagerContext::recent_snapshot`]).
    Snapshot(oneshot::Sender<Arc<Snapshot>>),
    /// Runs a command of a user. The answer is a text for the user: the outcome, or the error.
    Command {
        /// The command.
        command: Command,
        /// Name of the user.
        user: String,
        /// Sender of the answer.
        answer: oneshot::Sender<Result<String, String>>,
    },
}

/// State of the server at one moment, with the renderings that all clients share.
pub struct Snapshot {
    /// State of the server.
    pub status: Status,
    /// State of the balancers.
    pub balancers: BalancerList,
    /// Addresses of the manager, each with true for TLS.
    pub listening: Vec<(SocketAddr, bool)>,
    pub(super) made_ms: u64,
    pub(super) status_json: OnceLock<String>,
    pub(super) balancers_json: OnceLock<String>,
    pub(super) tables: OnceLock<String>,
}

/// State of the manager for the whole process, shared by all Worlds.
pub struct ManagerContext {
    /// Zero of the clock of the workers.
    origin: Instant,
    key: hmac::Key,
    sessions: Mutex<SessionLedger>,
    snapshot: Mutex<Option<Arc<Snapshot>>>,
    requests: Sender<ManagerRequest>,
}

/// Login of a client that may edit, to which a token is bound.
#[derive(Copy, Clone)]
pub(super) enum TokenOwner<'t> {
    /// User of the user file.
    User(&'t str),
    /// Session with this id.
    Session(&'t [u8]),
}

impl ManagerContext {
    /// Returns a context without sessions, and the receiver of the requests. `origin` is the zero of the workers'
    /// clocks. Fails if the system has no random numbers.
    pub fn new(origin: Instant) -> io::Result<(Arc<ManagerContext>, Receiver<ManagerRequest>)> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new());
        let key = key.map_err(|_| io::Error::other("the system returned no random numbers"))?;
        let (requests, receiver) = mpsc::channel(MANAGER_REQUESTS_MAX);
        let context = ManagerContext {
            origin,
            key,
            sessions: Mutex::default(),
            snapshot: Mutex::default(),
            requests,
        };
        Ok((Arc::new(context), receiver))
    }

    /// Returns the time in milliseconds on the clock of the workers.
    pub(super) fn now_ms(&self) -> u64 {
        self.origin.elapsed().as_millis() as u64
    }

    // ---- Snapshots ----

    /// Returns the last snapshot if recent enough for another client.
    pub fn recent_snapshot(&self) -> Option<Arc<Snapshot>> {
        let now_ms = self.now_ms();
        let snapshot = lock(&self.snapshot).clone();
        snapshot.filter(|it| now_ms < it.made_ms + MANAGER_SNAPSHOT_MILLISECONDS)
    }

    /// Makes a snapshot the last snapshot.
    pub fn add_snapshot(
        &self,
        status: Status,
        balancers: BalancerList,
        listening: Vec<(SocketAddr, bool)>,
    ) -> Arc<Snapshot> {
        let snapshot = Arc::new(Snapshot {
            status,
            balancers,
            listening,
            made_ms: self.now_ms(),
            status_json: OnceLock::new(),
            balancers_json: OnceLock::new(),
            tables: OnceLock::new(),
        });
        *lock(&self.snapshot) = Some(Arc::clone(&snapshot));
        snapshot
    }

    /// Forgets the last snapshot, after an edit or to free the memory.
    pub fn forget_snapshot(&self) {
        let before = lock(&self.snapshot).take();
        drop(before);
    }

    /// Forgets the last snapshot unless the snapshot is recent.
    pub fn forget_old_snapshot(&self) {
        if self.recent_snapshot().is_none() {
            self.forget_snapshot();
        }
    }

    /// Returns a recent snapshot, made by the control plane if needed.
    pub(super) async fn snapshot(&self) -> Result<Arc<Snapshot>, Reject> {
        if let Some(snapshot) = self.recent_snapshot() {
            return Ok(snapshot);
        }
        let (sender, answer) = oneshot::channel();
        self.send(ManagerRequest::Snapshot(sender))?;
        answer.await.map_err(|_| Reject::CALLS_BUSY)
    }

    /// Has the control plane run a command.
    pub(super) async fn run(
        &self,
        command: Command,
        user: String,
    ) -> Result<Result<String, String>, Reject> {
        let (answer, answered) = oneshot::channel();
        self.send(ManagerRequest::Command {
            command,
            user,
            answer,
        })?;
        answered.await.map_err(|_| Reject::CALLS_BUSY)
    }

    fn send(&self, request: ManagerRequest) -> Result<(), Reject> {
        let sent = self.requests.try_send(request);
        sent.map_err(|_| Reject::CALLS_BUSY)
    }

    // ---- Logins ----

    /// Returns a new one-time secret, for the URL of `anthill manager login`. `None` if the system has no random
    /// numbers.
    pub fn new_secret(&self) -> Option<String> {
        let secret = random()?;
        let digest = self.digest(b"secret", secret.as_bytes());
        lock(&self.sessions).add_secret(digest, self.now_ms());
        Some(secret)
    }

    /// Opens a session in exchange for a one-time secret. Returns the id of the session.
    pub(super) fn open_session(&self, secret: &str) -> Option<String> {
        let id = random()?;
        let secret = self.digest(b"secret", secret.as_bytes());
        let session = self.digest(b"session", id.as_bytes());
        let is_open = lock(&self.sessions).open(&secret, session, self.now_ms());
        is_open.then_some(id)
    }

    /// Returns true for the id of an open session.
    pub(super) fn has_session(&self, id: &[u8]) -> bool {
        let session = self.digest(b"session", id);
        lock(&self.sessions).has_session(&session, self.now_ms())
    }

    /// Closes a session.
    pub(super) fn close_session(&self, id: &[u8]) {
        let session = self.digest(b"session", id);
        lock(&self.sessions).close(&session);
    }

    /// Returns the token of a login, for the forms of its pages.
    pub(super) fn token(&self, owner: TokenOwner<'_>) -> String {
        let digest = match owner {
            TokenOwner::User(name) => self.digest(b"token of a user", name.as_bytes()),
            TokenOwner::Session(id) => self.digest(b"token of a session", id),
        };
        base64url(&digest)
    }

    /// Returns true if `token` is the token of the login.
    pub(super) fn is_token(&self, owner: TokenOwner<'_>, token: &str) -> bool {
        verify_slices_are_equal(self.token(owner).as_bytes(), token.as_bytes()).is_ok()
    }

    fn digest(&self, purpose: &[u8], text: &[u8]) -> Digest {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(purpose);
        context.update(b"\0");
        context.update(text);
        let mut digest = [0; 32];
        digest.copy_from_slice(context.sign().as_ref());
        digest
    }
}

/// Returns 256 random bits as text.
fn random() -> Option<String> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).ok()?;
    Some(base64url(&bytes))
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    // Poisoning is ignored: no code that could panic half-way runs under the lock.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
