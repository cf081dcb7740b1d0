//! The ledger of logins: what was found out about a password is remembered for a minute.
//!
//! A browser sends the password with each request, and its hash takes a tenth of a second. So the
//! first request asks the pool (two hashes at a time, a bounded queue), others with the same login
//! wait for the same answer, and later ones find it here. What is remembered is keyed by an HMAC
//! under a key of this process, so the ledger holds no password; it counts only for the very file
//! content it was found with.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::{hmac, rand};
use tokio::sync::watch;

use super::Users;
use super::basic::{self, Credentials};
use crate::base::pool::{Gone, Pool};
use crate::limits::{
    LOGIN_QUEUE_MAX, LOGIN_REMEMBERED_SECONDS, LOGIN_THREADS, LOGINS_MAX, PASSWORD_BYTES_MAX,
};

/// The ledger, one for the process.
pub struct Logins {
    key: hmac::Key,
    pool: Pool,
    ledger: Arc<Mutex<Ledger>>,
}

/// What is known about a login right away.
pub enum Check {
    /// It is right, and this is who.
    Known(String),
    /// It is wrong, or not even a login of the basic scheme.
    Wrong,
    /// It must be hashed first.
    Ask(Ask),
}

/// A login that must be hashed; owns all it needs.
pub struct Ask {
    logins: Arc<Logins>,
    users: Arc<Users>,
    login: Login,
    credentials: Credentials,
    now_ms: u64,
}

/// Stands for user, password and file content; by who doesn't know the key not to be told from chance.
type Login = [u8; 32];

#[derive(Default)]
struct Ledger {
    answers: HashMap<Login, Answer>,
    /// Logins that are being hashed.
    asked: HashMap<Login, watch::Receiver<Option<bool>>>,
}

#[derive(Copy, Clone)]
struct Answer {
    is_right: bool,
    until_ms: u64,
}

impl Logins {
    /// An empty ledger with a fresh key. Fails when the system has no randomness to give.
    pub fn new() -> std::io::Result<Arc<Logins>> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new());
        let key = key.map_err(|_| std::io::Error::other("no random numbers to be had"))?;
        Ok(Arc::new(Logins {
            key,
            pool: Pool::new("login", LOGIN_THREADS, LOGIN_QUEUE_MAX),
            ledger: Arc::default(),
        }))
    }

    /// What is known about the Authorization field `value` at `now_ms` (monotonic, the same for all
    /// workers).
    pub fn check(self: &Arc<Logins>, users: &Arc<Users>, value: &[u8], now_ms: u64) -> Check {
        let Some(credentials) = basic::decode(value) else {
            return Check::Wrong;
        };
        if credentials.password.len() > PASSWORD_BYTES_MAX {
            return Check::Wrong;
        }
        let login = self.login(users, &credentials);
        match lock(&self.ledger).answer(&login, now_ms) {
            Some(true) => Check::Known(credentials.user),
            Some(false) => Check::Wrong,
            None => Check::Ask(Ask {
                logins: Arc::clone(self),
                users: Arc::clone(users),
                login,
                credentials,
                now_ms,
            }),
        }
    }

    fn login(&self, users: &Users, credentials: &Credentials) -> Login {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&users.generation);
        context.update(&(credentials.user.len() as u64).to_be_bytes());
        context.update(credentials.user.as_bytes());
        context.update(&credentials.password);
        let mut login = [0; 32];
        login.copy_from_slice(context.sign().as_ref());
        login
    }
}

impl Ask {
    /// Hashes on the pool, or waits for who does so already. `None`: the login is wrong.
    /// [`Gone::Busy`]: too many wait; the client may come back (503). If the future is dropped, the
    /// answer is remembered all the same.
    pub async fn answer(self) -> Result<Option<String>, Gone> {
        let (user, mut answered) = self.ask()?;
        let is_right = match answered.wait_for(Option::is_some).await {
            Ok(answer) => answer.unwrap_or(false),
            Err(_) => return Err(Gone::Failed),
        };
        Ok(is_right.then_some(user))
    }

    fn ask(self) -> Result<(String, watch::Receiver<Option<bool>>), Gone> {
        let user = self.credentials.user.clone();
        let ledger = &self.logins.ledger;
        let mut locked = lock(ledger);
        if let Some(is_right) = locked.answer(&self.login, self.now_ms) {
            return Ok((user, watch::channel(Some(is_right)).1));
        }
        if let Some(answered) = locked.asked.get(&self.login) {
            return Ok((user, answered.clone()));
        }
        let (sender, answered) = watch::channel(None);
        locked.asked.insert(self.login, answered.clone());
        drop(locked);
        let question = Question {
            ledger: Arc::clone(ledger),
            login: self.login,
            sender,
        };
        let (users, credentials) = (self.users, self.credentials);
        let until_ms = self.now_ms + LOGIN_REMEMBERED_SECONDS * 1_000;
        self.logins.pool.spawn(move || {
            let is_right = users.verify(&credentials.user, &credentials.password);
            question.answer(Answer { is_right, until_ms });
        })?;
        Ok((user, answered))
    }
}

/// A login that is being hashed. Dropped without an answer (no room in the queue, a panic), it is
/// nobody's question any more, and who waits finds out by the sender's end.
struct Question {
    ledger: Arc<Mutex<Ledger>>,
    login: Login,
    sender: watch::Sender<Option<bool>>,
}

impl Question {
    fn answer(self, answer: Answer) {
        lock(&self.ledger).remember(self.login, answer);
        // Nobody may wait any more.
        let _ = self.sender.send(Some(answer.is_right));
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        lock(&self.ledger).asked.remove(&self.login);
    }
}

impl Ledger {
    fn answer(&self, login: &Login, now_ms: u64) -> Option<bool> {
        let answer = self.answers.get(login)?;
        (now_ms < answer.until_ms).then_some(answer.is_right)
    }

    /// Of too many, those go first whose time is over, then the wrong ones (somebody may be guessing),
    /// then all.
    fn remember(&mut self, login: Login, answer: Answer) {
        let now_ms = answer.until_ms - LOGIN_REMEMBERED_SECONDS * 1_000;
        let answers = &mut self.answers;
        if answers.len() >= LOGINS_MAX {
            answers.retain(|_, old| now_ms < old.until_ms);
        }
        if answers.len() >= LOGINS_MAX {
            answers.retain(|_, old| old.is_right);
        }
        if answers.len() >= LOGINS_MAX {
            answers.clear();
        }
        answers.insert(login, answer);
    }
}

fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    // Nothing that could panic half-way runs under the lock.
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
