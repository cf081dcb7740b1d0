//! State of the manager for the whole process, and the channel to the control plane.

use super::control_request::{ControlRequest, EditOutcome, SnapshotState};
use super::places::Places;
use super::sessions::{Digest, SessionLedger};
use super::snapshot::Snapshot;
use crate::admin::command::EditBatch;
use crate::manager::limits::{
    MANAGER_REQUESTS_MAX, MANAGER_RESPONSE_BYTES_MAX, MANAGER_SNAPSHOT_MILLISECONDS,
    MANAGER_STREAMS_MAX,
};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::{hmac, rand};
use balancer::state_changes;
use base::digest::base64url;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::oneshot;
use wire::reject::Reject;

/// Request of the manager to the control plane.
pub type ManagerRequest = ControlRequest<Snapshot>;

/// State of the manager for the whole process, shared by all Worlds.
pub struct ManagerContext {
    /// Zero of the clock of the workers.
    origin: Instant,
    key: hmac::Key,
    /// Number of the next token for a page.
    token_number: AtomicU64,
    sessions: Mutex<SessionLedger>,
    snapshot: Mutex<Option<Arc<Snapshot>>>,
    /// Number of edits.
    edits: AtomicU64,
    /// Turn of the client that asks the control plane for a snapshot. Further clients wait for the turn, so that the
    /// channel has room for edits.
    snapshot_turn: tokio::sync::Mutex<()>,
    requests: Sender<ManagerRequest>,
    /// Open streams of events.
    pub(super) streams: Arc<Places>,
    /// Bytes of large responses under way.
    pub(super) response_bytes: Arc<Places>,
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
    pub(crate) fn new(
        origin: Instant,
    ) -> io::Result<(Arc<ManagerContext>, Receiver<ManagerRequest>)> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new());
        let key = key.map_err(|_| io::Error::other("the system returned no random numbers"))?;
        let (requests, receiver) = mpsc::channel(MANAGER_REQUESTS_MAX);
        let context = ManagerContext {
            origin,
            key,
            token_number: AtomicU64::new(1),
            sessions: Mutex::default(),
            snapshot: Mutex::default(),
            edits: AtomicU64::new(0),
            snapshot_turn: tokio::sync::Mutex::default(),
            requests,
            streams: Places::new(MANAGER_STREAMS_MAX),
            response_bytes: Places::new(MANAGER_RESPONSE_BYTES_MAX),
        };
        Ok((Arc::new(context), receiver))
    }

    /// Returns the time in milliseconds on the clock of the workers.
    pub(super) fn now_ms(&self) -> u64 {
        self.origin.elapsed().as_millis() as u64
    }

    // ---- Snapshots ----

    /// Returns the last snapshot if recent enough for another client: made in the same second. Streams of events
    /// therefore share the snapshot at the beginning of a second.
    pub(crate) fn recent_snapshot(&self) -> Option<Arc<Snapshot>> {
        let second = |ms: u64| ms / MANAGER_SNAPSHOT_MILLISECONDS;
        let now = second(self.now_ms());
        let snapshot = lock(&self.snapshot).clone();
        snapshot.filter(|it| second(it.made_ms) == now)
    }

    /// Makes the state of the server the last snapshot.
    pub(crate) fn add_snapshot(&self, state: SnapshotState) -> Arc<Snapshot> {
        let snapshot = Arc::new(Snapshot::new(state, self.now_ms()));
        *lock(&self.snapshot) = Some(Arc::clone(&snapshot));
        snapshot
    }

    /// Returns the number of changes of members' states and of edits. With an equal number, a snapshot has the states
    /// and the edits of the present.
    pub(crate) fn changes(&self) -> u64 {
        state_changes().wrapping_add(self.edits.load(Relaxed))
    }

    /// Forgets the last snapshot because of an edit.
    pub(crate) fn forget_snapshot(&self) {
        self.edits.fetch_add(1, Relaxed);
        let before = lock(&self.snapshot).take();
        drop(before);
    }

    /// Forgets the last snapshot unless the snapshot is recent.
    pub(crate) fn forget_old_snapshot(&self) {
        if self.recent_snapshot().is_none() {
            let before = lock(&self.snapshot).take();
            drop(before);
        }
    }

    /// Returns a recent snapshot, made by the control plane if needed.
    pub(super) async fn snapshot(&self) -> Result<Arc<Snapshot>, Reject> {
        if let Some(snapshot) = self.recent_snapshot() {
            return Ok(snapshot);
        }
        let _turn = self.snapshot_turn.lock().await;
        if let Some(snapshot) = self.recent_snapshot() {
            return Ok(snapshot);
        }
        let (sender, answer) = oneshot::channel();
        self.send(ManagerRequest::Snapshot(sender))?;
        answer.await.map_err(|_| Reject::CALLS_BUSY)
    }

    /// Has the control plane make edits.
    pub(super) async fn edit(&self, batch: EditBatch, user: String) -> Result<EditOutcome, Reject> {
        let (answer, answered) = oneshot::channel();
        self.send(ManagerRequest::Edit {
            batch,
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
    pub(crate) fn new_secret(&self) -> Option<String> {
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

    /// Returns the token of a login for programs. The token stays the same as long as the login.
    pub(super) fn token(&self, owner: TokenOwner<'_>) -> String {
        self.numbered_token(owner, "")
    }

    /// Returns a token of a login for the forms of one response: a number that no other response has, and the
    /// digest of the number and the login.
    ///
    /// A compressed response reveals by its length whether text that a foreign page chose, as the name of the
    /// selected balancer, occurs in the response a second time. After many responses the foreign page would know a
    /// token that all responses share (BREACH). A token that only one response has cannot be guessed in steps.
    pub(super) fn page_token(&self, owner: TokenOwner<'_>) -> String {
        let number = self.token_number.fetch_add(1, Relaxed).to_string();
        let token = self.numbered_token(owner, &number);
        number + "." + &token
    }

    /// Returns true if `token` is a token of the login, for programs or for a page.
    pub(super) fn is_token(&self, owner: TokenOwner<'_>, token: &str) -> bool {
        let (number, token) = token.split_once('.').unwrap_or(("", token));
        let known = self.numbered_token(owner, number);
        verify_slices_are_equal(known.as_bytes(), token.as_bytes()).is_ok()
    }

    fn numbered_token(&self, owner: TokenOwner<'_>, number: &str) -> String {
        let (kind, owner) = match owner {
            TokenOwner::User(name) => ("user", name.as_bytes()),
            TokenOwner::Session(id) => ("session", id),
        };
        let purpose = format!("token {number} of a {kind}");
        base64url(&self.digest(purpose.as_bytes(), owner))
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

#[cfg(test)]
// A failed set-up is a failed test.
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::admin::balancers::BalancerList;
    use crate::admin::command::EditAction;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    fn context() -> (Arc<ManagerContext>, Receiver<ManagerRequest>) {
        ManagerContext::new(Instant::now()).unwrap()
    }

    fn batch() -> EditBatch {
        EditBatch {
            actions: vec![EditAction::Undo(1)],
            planned: Vec::new(),
            is_confirmed: false,
            wait_seconds: None,
        }
    }

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn an_edit_travels_with_its_user() {
        let (context, mut requests) = context();
        let mut run = pin!(context.edit(batch(), "ann".to_owned()));
        assert!(poll(run.as_mut()).is_pending());
        let Ok(ManagerRequest::Edit {
            batch: sent,
            user,
            answer,
        }) = requests.try_recv()
        else {
            panic!("no edit");
        };
        assert_eq!((sent, user.as_str()), (batch(), "ann"));
        let refused = EditOutcome::Refused("no".to_owned());
        answer.send(refused.clone()).unwrap();
        assert_eq!(poll(run.as_mut()), Poll::Ready(Ok(refused)));
    }

    #[test]
    fn edits_beyond_the_channel_and_to_a_closed_channel_are_refused() {
        let (context, mut requests) = context();
        let run = || Box::pin(context.edit(batch(), String::new()));
        let mut waiting: Vec<_> = (0..MANAGER_REQUESTS_MAX).map(|_| run()).collect();
        for edit in &mut waiting {
            assert!(poll(edit.as_mut()).is_pending());
        }
        let busy = Poll::Ready(Err(Reject::CALLS_BUSY));
        assert_eq!(poll(run().as_mut()), busy);
        assert!(requests.try_recv().is_ok());
        drop(requests);
        for mut edit in waiting {
            assert_eq!(poll(edit.as_mut()), busy);
        }
        assert_eq!(poll(run().as_mut()), busy);
    }

    #[test]
    fn a_flood_of_readers_leaves_room_for_edits() {
        let (context, mut requests) = context();
        let count = 2 * MANAGER_REQUESTS_MAX;
        let mut readers: Vec<_> = (0..count).map(|_| Box::pin(context.snapshot())).collect();
        for reader in &mut readers {
            assert!(poll(reader.as_mut()).is_pending());
        }
        let mut run = pin!(context.edit(batch(), String::new()));
        assert!(poll(run.as_mut()).is_pending());
        let first = requests.try_recv();
        assert!(matches!(first, Ok(ManagerRequest::Snapshot(_))));
        let second = requests.try_recv();
        assert!(matches!(second, Ok(ManagerRequest::Edit { .. })));
        // A reader that leaves passes its turn on. Without a control plane, all readers are refused.
        drop(readers.remove(0));
        drop((first, requests));
        for mut reader in readers {
            assert!(matches!(
                poll(reader.as_mut()),
                Poll::Ready(Err(Reject::CALLS_BUSY))
            ));
        }
    }

    #[test]
    fn clients_share_a_snapshot_until_it_is_old() {
        let begin = Instant::now() - Duration::from_secs(10);
        let (context, mut requests) = ManagerContext::new(begin).unwrap();
        let made = context.add_snapshot(SnapshotState {
            changes: 0,
            status: crate::admin::status::tests::example(),
            balancers: BalancerList {
                now_ms: 0,
                origin_unix_ms: 0,
                balancers: Vec::new(),
            },
            requests: Default::default(),
            edits: Default::default(),
            facts: Default::default(),
            hits: Vec::new(),
            history: Default::default(),
        });
        for _ in 0..3 {
            let Poll::Ready(Ok(shared)) = poll(pin!(context.snapshot())) else {
                panic!("no snapshot");
            };
            assert!(Arc::ptr_eq(&shared, &made));
            for has_token in [false, true] {
                assert!(std::ptr::eq(shared.xml(has_token), made.xml(has_token)));
            }
        }
        assert!(
            requests.try_recv().is_err(),
            "no request to the control plane"
        );
        context.forget_old_snapshot();
        assert!(context.recent_snapshot().is_some());
        drop(made);
        let last = lock(&context.snapshot).take();
        let mut old = Arc::into_inner(last.unwrap()).unwrap();
        old.made_ms -= MANAGER_SNAPSHOT_MILLISECONDS;
        *lock(&context.snapshot) = Some(Arc::new(old));
        assert!(poll(pin!(context.snapshot())).is_pending());
        assert!(matches!(
            requests.try_recv(),
            Ok(ManagerRequest::Snapshot(_))
        ));
        context.forget_old_snapshot();
        assert!(lock(&context.snapshot).is_none());
    }

    #[test]
    fn a_token_belongs_to_one_login() {
        let (context, _requests) = context();
        let (other, _others) = self::context();
        let owners = [
            TokenOwner::User("ann"),
            TokenOwner::User("bob"),
            TokenOwner::Session(b"ann"),
        ];
        for (at, owner) in owners.iter().enumerate() {
            let token = context.token(*owner);
            let pages = [(); 2].map(|()| context.page_token(*owner));
            assert_ne!(pages[0], pages[1]);
            for (nth, candidate) in owners.iter().enumerate() {
                for token in [&token, &pages[0], &pages[1]] {
                    assert_eq!(context.is_token(*candidate, token), at == nth);
                }
            }
            let (number, digest) = pages[0].split_once('.').unwrap();
            for wrong in [
                digest,
                &format!("{number}0.{digest}"),
                &format!(".{digest}"),
            ] {
                assert!(!context.is_token(*owner, wrong), "{wrong}");
            }
            assert!(!context.is_token(*owner, ""));
            assert!(!context.is_token(*owner, &token[1..]));
            assert!(!other.is_token(*owner, &token), "a restart ends tokens");
        }
    }

    #[test]
    fn a_secret_opens_a_session() {
        let (context, _requests) = context();
        let secret = context.new_secret().unwrap();
        assert_eq!(context.open_session(&secret[1..]), None);
        let id = context.open_session(&secret).unwrap();
        assert_eq!(context.open_session(&secret), None);
        assert!(context.has_session(id.as_bytes()));
        assert!(!context.has_session(secret.as_bytes()));
        context.close_session(id.as_bytes());
        assert!(!context.has_session(id.as_bytes()));
    }
}
