//! Ledger of logins: the result of a password check is remembered for a minute.
//!
//! A browser sends the password with each request, and hashing takes a tenth of a second. The first
//! request asks the pool (two hashes at a time, a bounded queue), concurrent requests with the same login
//! wait for the same answer, and later requests find the answer in the ledger. An unknown login is a
//! guess, and each client may guess wrong a limited number of times ([`LoginLimiter`]). Answers are keyed
//! by an HMAC under a key of the process, so the ledger holds no password. An answer counts only for the
//! hash of the check; an answer about an unknown user, only for the exact file content.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::{hmac, rand};
use tokio::sync::watch;

use super::Users;
use super::hash_queue::{HashQueue, LoginStanding, PushOutcome};
use super::login_limiter::LoginLimiter;
use crate::ledger::shared_limit::{RefusalCounters, SharedLimit};
use crate::limits::{
    LOGIN_QUEUE_MAX, LOGIN_REMEMBERED_SECONDS, LOGIN_THREADS, LOGIN_TRUSTED_SECONDS, LOGINS_MAX,
    PASSWORD_BYTES_MAX,
};
use crate::world::users::basic_auth;
use crate::world::users::basic_auth::Credentials;
use base::client_network::ClientNetwork;
use base::thread_pool::{ThreadPool, ThreadPoolError};

/// Ledger of logins for the whole process.
pub struct Logins {
    key: hmac::Key,
    pool: ThreadPool,
    /// Logins to be hashed. The pool has a job for each queued login.
    queue: Arc<Mutex<HashQueue<HashJob>>>,
    ledger: Arc<Mutex<LoginLedger>>,
    refusals: Arc<RefusalCounters>,
}

/// Result of looking a login up, without hashing.
pub enum LoginLookup {
    /// Right login; the value is the user's name.
    Known(String),
    /// Wrong login, or a field value that isn't a login of the basic scheme.
    Wrong,
    /// Login to be hashed first.
    Unverified(UnverifiedLogin),
    /// Unknown login of a client with too many failed logins.
    TooManyFailed,
}

/// Login to be hashed, with all data that hashing needs.
pub struct UnverifiedLogin {
    logins: Arc<Logins>,
    users: Arc<Users>,
    login: LoginKey,
    credentials: Credentials,
    client: ClientNetwork,
    now_ms: u64,
}

/// HMAC of user, password, hash and client; indistinguishable from random bytes without the key.
type LoginKey = [u8; 32];

#[derive(Default)]
struct LoginLedger {
    answers: HashMap<LoginKey, RememberedResult>,
    /// Logins in the queue or at the pool.
    asked: HashMap<LoginKey, watch::Receiver<Option<bool>>>,
    limiter: LoginLimiter,
}

#[derive(Copy, Clone)]
struct RememberedResult {
    is_right: bool,
    /// Time until which the login isn't hashed again.
    until_ms: u64,
}

impl RememberedResult {
    /// Returns the time until which the answer is kept. A right answer is kept longer than the answer is
    /// valid.
    fn kept_until_ms(self) -> u64 {
        if self.is_right {
            self.until_ms + (LOGIN_TRUSTED_SECONDS - LOGIN_REMEMBERED_SECONDS) * 1_000
        } else {
            self.until_ms
        }
    }
}

impl Logins {
    /// Makes an empty ledger with a fresh key. `refusals` counts the refusals of clients over their shares.
    /// Fails if the system has no random numbers.
    pub fn new(refusals: &Arc<RefusalCounters>) -> std::io::Result<Arc<Logins>> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new());
        let key =
            key.map_err(|_| std::io::Error::other("the system returned no random numbers"))?;
        Ok(Arc::new(Logins {
            key,
            pool: ThreadPool::low_priority("login", LOGIN_THREADS, LOGIN_QUEUE_MAX),
            queue: Arc::new(Mutex::new(HashQueue::new(LOGIN_QUEUE_MAX))),
            ledger: Arc::default(),
            refusals: Arc::clone(refusals),
        }))
    }

    /// Looks up the Authorization field `value` that `client` sends at `now_ms` (monotonic, on a clock
    /// common to all workers).
    pub fn check(
        self: &Arc<Logins>,
        users: &Arc<Users>,
        value: &[u8],
        client: ClientNetwork,
        now_ms: u64,
    ) -> LoginLookup {
        let Some(credentials) = basic_auth::decode(value) else {
            return LoginLookup::Wrong;
        };
        if credentials.password.len() > PASSWORD_BYTES_MAX {
            return LoginLookup::Wrong;
        }
        let login = self.login(users, &credentials, client);
        let ledger = lock(&self.ledger);
        match ledger.answer(&login, now_ms) {
            Some(true) => return LoginLookup::Known(credentials.user),
            Some(false) => return LoginLookup::Wrong,
            None => {}
        }
        if !ledger.may_ask(&login, client, now_ms) {
            self.refusals.increment(SharedLimit::Logins);
            return LoginLookup::TooManyFailed;
        }
        drop(ledger);
        LoginLookup::Unverified(UnverifiedLogin {
            logins: Arc::clone(self),
            users: Arc::clone(users),
            login,
            credentials,
            client,
            now_ms,
        })
    }

    /// Computes the key of a login in the ledger. The client is part of the key: otherwise, answers to
    /// other clients would let a client over the limit test passwords without a hash.
    fn login(&self, users: &Users, credentials: &Credentials, client: ClientNetwork) -> LoginKey {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(users.generation_of(&credentials.user));
        context.update(&client.octets());
        context.update(&(credentials.user.len() as u64).to_be_bytes());
        context.update(credentials.user.as_bytes());
        context.update(&credentials.password);
        let mut login = [0; 32];
        login.copy_from_slice(context.sign().as_ref());
        login
    }
}

impl Drop for Logins {
    /// Drops the queued logins, which wakes the requests waiting for an answer.
    fn drop(&mut self) {
        while let Some(hashing) = pop(&self.queue) {
            drop(hashing);
        }
    }
}

/// The user, and the receiver of the answer.
type PendingResult = (String, watch::Receiver<Option<bool>>);

impl UnverifiedLogin {
    /// Hashes the login on the pool, or waits for a hash of the login already under way. Returns `None` for
    /// a wrong login and for a login refused by the limit; [`Logins::check`] distinguishes the two cases.
    /// Fails with [`ThreadPoolError::Busy`] if too many logins wait; the client may try again later (503).
    /// If the future is dropped while the login is hashed, the answer is remembered. A login that still waits for its
    /// turn then leaves the queue.
    pub async fn answer(self) -> Result<Option<String>, ThreadPoolError> {
        let Some((user, mut answered)) = self.ask()? else {
            return Ok(None);
        };
        let is_right = match answered.wait_for(Option::is_some).await {
            Ok(answer) => answer.unwrap_or(false),
            Err(_) => return Err(ThreadPoolError::Failed),
        };
        Ok(is_right.then_some(user))
    }

    /// Queues the login. Returns `None` if the client is over the limit of failed logins.
    fn ask(self) -> Result<Option<PendingResult>, ThreadPoolError> {
        let user = self.credentials.user.clone();
        let (client, now_ms) = (self.client, self.now_ms);
        let mut ledger = lock(&self.logins.ledger);
        if let Some(is_right) = ledger.answer(&self.login, now_ms) {
            return Ok(Some((user, watch::channel(Some(is_right)).1)));
        }
        if let Some(answered) = ledger.asked.get(&self.login) {
            return Ok(Some((user, answered.clone())));
        }
        let is_guess = !ledger.was_right(&self.login, now_ms);
        if is_guess && !ledger.limiter.tries(client, now_ms) {
            return Ok(None);
        }
        let standing = if is_guess {
            ledger.limiter.standing(client, now_ms)
        } else {
            LoginStanding::Trusted
        };
        let (sender, answered) = watch::channel(None);
        ledger.asked.insert(self.login, answered.clone());
        drop(ledger);
        let hashing = HashJob {
            question: PendingHash {
                ledger: Arc::clone(&self.logins.ledger),
                login: self.login,
                client,
                now_ms,
                is_guess,
                sender,
            },
            users: self.users,
            credentials: self.credentials,
        };
        self.logins.queue(client, standing, hashing)?;
        Ok(Some((user, answered)))
    }
}

impl Logins {
    /// Queues the login for a job of the pool.
    fn queue(
        &self,
        client: ClientNetwork,
        standing: LoginStanding,
        hashing: HashJob,
    ) -> Result<(), ThreadPoolError> {
        let mut queue = lock(&self.queue);
        queue.reassess(HashJob::standing);
        let pushed = queue.push(client, standing, hashing);
        drop(queue);
        match pushed {
            PushOutcome::In(number) => {
                let queue = Arc::clone(&self.queue);
                let job = move || {
                    if let Some(hashing) = next(&queue) {
                        hashing.run();
                    }
                };
                self.pool.spawn(job).inspect_err(|_| {
                    let unqueued = lock(&self.queue).remove(number);
                    drop(unqueued);
                })
            }
            // The pool's job for the displaced login now serves the new login.
            PushOutcome::Displacing(other) => {
                self.refusals.increment(SharedLimit::Logins);
                drop(other);
                Ok(())
            }
            PushOutcome::Full(unqueued) => {
                self.refusals.increment(SharedLimit::Logins);
                drop(unqueued);
                Err(ThreadPoolError::Busy)
            }
        }
    }
}

/// Takes the next login out of the queue for which a request still waits. A login of a client that has left is dropped.
fn next(queue: &Mutex<HashQueue<HashJob>>) -> Option<HashJob> {
    loop {
        let hashing = pop(queue)?;
        if hashing.question.is_awaited() {
            return Some(hashing);
        }
    }
}

/// Takes a login out of the queue. The function is separate so that the lock is released before a login is hashed or
/// dropped.
fn pop(queue: &Mutex<HashQueue<HashJob>>) -> Option<HashJob> {
    let mut queue = lock(queue);
    queue.reassess(HashJob::standing);
    queue.pop()
}

/// Login in the queue or at the pool.
struct HashJob {
    question: PendingHash,
    users: Arc<Users>,
    credentials: Credentials,
}

impl HashJob {
    /// Returns the standing of the client by the logins answered so far.
    fn standing(&self) -> LoginStanding {
        let PendingHash { client, now_ms, .. } = self.question;
        let ledger = lock(&self.question.ledger);
        ledger.limiter.standing(client, now_ms)
    }

    fn run(self) {
        let Credentials { user, password } = &self.credentials;
        let is_right = self.users.verify(user, password);
        self.question.answer(is_right);
    }
}

/// Login being hashed, with requests waiting for the answer. Dropping the value without an answer (no room
/// in the queue, a panic) takes the login out of the ledger, and dropping the sender wakes the requests.
struct PendingHash {
    ledger: Arc<Mutex<LoginLedger>>,
    login: LoginKey,
    client: ClientNetwork,
    /// Time of the request.
    now_ms: u64,
    /// True if the login counts as a failure until answered otherwise.
    is_guess: bool,
    sender: watch::Sender<Option<bool>>,
}

impl PendingHash {
    /// Returns true if a request waits for the answer. The ledger has a receiver of its own.
    fn is_awaited(&self) -> bool {
        self.sender.receiver_count() > 1
    }

    fn answer(mut self, is_right: bool) {
        let until_ms = self.now_ms + LOGIN_REMEMBERED_SECONDS * 1_000;
        let was_guess = std::mem::take(&mut self.is_guess);
        let mut ledger = lock(&self.ledger);
        ledger.remember(self.login, RememberedResult { is_right, until_ms });
        match (is_right, was_guess) {
            (true, true) => ledger.limiter.succeeded(self.client, self.now_ms),
            (true, false) => ledger.limiter.record_success(self.client, self.now_ms),
            (false, _) => ledger.limiter.record_failure(self.client, self.now_ms),
        }
        drop(ledger);
        // Sending fails if no request waits any more.
        let _ = self.sender.send(Some(is_right));
    }
}

impl Drop for PendingHash {
    fn drop(&mut self) {
        let mut ledger = lock(&self.ledger);
        ledger.asked.remove(&self.login);
        if self.is_guess {
            ledger.limiter.refund(self.client);
        }
    }
}

impl LoginLedger {
    fn answer(&self, login: &LoginKey, now_ms: u64) -> Option<bool> {
        let answer = self.answers.get(login)?;
        (now_ms < answer.until_ms).then_some(answer.is_right)
    }

    /// Returns true if the login was right recently. A recently right login is no guess, because the key is
    /// specific to the user, password and hash.
    fn was_right(&self, login: &LoginKey, now_ms: u64) -> bool {
        let answer = self.answers.get(login);
        answer.is_some_and(|answer| answer.is_right && now_ms < answer.kept_until_ms())
    }

    /// Returns true if the client may ask for a login without a valid answer.
    fn may_ask(&self, login: &LoginKey, client: ClientNetwork, now_ms: u64) -> bool {
        self.limiter.may_try(client, now_ms)
            || self.was_right(login, now_ms)
            || self.asked.contains_key(login)
    }

    /// Remembers an answer. A full table drops expired answers first, followed by wrong answers (a client
    /// may be guessing), answers to be hashed again, and finally all answers.
    fn remember(&mut self, login: LoginKey, answer: RememberedResult) {
        let now_ms = answer.until_ms - LOGIN_REMEMBERED_SECONDS * 1_000;
        let answers = &mut self.answers;
        if answers.len() >= LOGINS_MAX {
            answers.retain(|_, old| now_ms < old.kept_until_ms());
        }
        if answers.len() >= LOGINS_MAX {
            answers.retain(|_, old| old.is_right);
        }
        if answers.len() >= LOGINS_MAX {
            answers.retain(|_, old| now_ms < old.until_ms);
        }
        if answers.len() >= LOGINS_MAX {
            answers.clear();
        }
        answers.insert(login, answer);
    }
}

fn lock<T>(ledger: &Mutex<T>) -> MutexGuard<'_, T> {
    // Poisoning is ignored: no code that could panic half-way runs under the lock.
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
