//! Tests of the ledger: queued logins, waiting requests, remembered and expired answers.

use std::future::Future;
use std::net::IpAddr;
use std::sync::mpsc;

use super::*;
use crate::limits::LOGIN_FAILURES_MAX;

/// User `ant` with the password `secret`, hashed with the fast MD5-crypt.
const FILE: &[u8] = b"ant:$1$K5F2asA3$TBWAhsdkL0PKWVjbGaqaQ.\n";
const RIGHT: &[u8] = b"Basic YW50OnNlY3JldA==";
const WRONG: &[u8] = b"Basic YW50Ondyb25n";

fn wait<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

fn users() -> Arc<Users> {
    Arc::new(Users::parse(FILE).unwrap())
}

fn client(nth: u8) -> ClientNetwork {
    IpAddr::from([192, 0, 2, nth]).into()
}

fn check(
    logins: &Arc<Logins>,
    users: &Arc<Users>,
    value: &[u8],
    nth: u8,
    now_ms: u64,
) -> LoginLookup {
    logins.check(users, value, client(nth), now_ms)
}

fn ask(logins: &Arc<Logins>, users: &Arc<Users>, value: &[u8], now_ms: u64) -> UnverifiedLogin {
    ask_as(logins, users, value, 1, now_ms)
}

fn ask_as(
    logins: &Arc<Logins>,
    users: &Arc<Users>,
    value: &[u8],
    nth: u8,
    now_ms: u64,
) -> UnverifiedLogin {
    match check(logins, users, value, nth, now_ms) {
        LoginLookup::Unverified(ask) => ask,
        LoginLookup::TooManyFailed => panic!("too many failed"),
        LoginLookup::Known(user) => panic!("{user} is known already"),
        LoginLookup::Wrong => panic!("known to be wrong already"),
    }
}

#[test]
fn results_are_remembered_until_they_expire() {
    let (logins, users) = (Logins::new(&Arc::default()).unwrap(), users());
    let right = wait(ask(&logins, &users, RIGHT, 1_000).answer());
    assert_eq!(right, Ok(Some("ant".to_owned())));
    assert_eq!(wait(ask(&logins, &users, WRONG, 1_000).answer()), Ok(None));
    for now_ms in [1_000, 60_999] {
        assert!(
            matches!(check(&logins, &users, RIGHT, 1, now_ms), LoginLookup::Known(user) if user == "ant")
        );
        assert!(matches!(
            check(&logins, &users, WRONG, 1, now_ms),
            LoginLookup::Wrong
        ));
    }
    drop(ask(&logins, &users, RIGHT, 61_000));
    drop(ask(&logins, &users, WRONG, 61_000));
    // A file with an equal line of the user keeps the remembered login. A file without the user does not.
    let again = Arc::new(Users::parse(FILE).unwrap());
    assert!(matches!(
        check(&logins, &again, RIGHT, 1, 2_000),
        LoginLookup::Known(_)
    ));
    let longer = Arc::new(Users::parse(&[FILE, b"# changed\n"].concat()).unwrap());
    for (value, is_right) in [(RIGHT, true), (WRONG, false)] {
        let known = check(&logins, &longer, value, 1, 2_000);
        assert_eq!(matches!(known, LoginLookup::Known(_)), is_right);
        assert_eq!(matches!(known, LoginLookup::Wrong), !is_right);
    }
    let without = Arc::new(Users::parse(b"bee:$1$K5F2asA3$TBWAhsdkL0PKWVjbGaqaQ.\n").unwrap());
    drop(ask(&logins, &without, RIGHT, 2_000));
}

#[test]
fn malformed_credentials_are_wrong_without_hashing() {
    let (logins, users) = (Logins::new(&Arc::default()).unwrap(), users());
    for value in [
        &b""[..],
        b"Basic",
        b"Bearer YW50OnNlY3JldA==",
        b"Basic YW50",
    ] {
        assert!(matches!(
            check(&logins, &users, value, 1, 0),
            LoginLookup::Wrong
        ));
    }
    // Login of `ant` with a password over the maximum length (`aaaa…`).
    let long = [
        b"Basic YW50Om".to_vec(),
        b"FhYWFh".repeat(200),
        b"FhYWFh".to_vec(),
    ]
    .concat();
    assert!(matches!(
        check(&logins, &users, &long, 1, 0),
        LoginLookup::Wrong
    ));
}

#[test]
fn the_same_login_is_hashed_once() {
    let (logins, users) = (Logins::new(&Arc::default()).unwrap(), users());
    let release = occupy(&logins);
    let asked: Vec<_> = (0..100)
        .map(|_| ask(&logins, &users, RIGHT, 0).ask().unwrap().unwrap())
        .collect();
    assert_eq!(logins.pool.queued(), 1);
    assert_eq!(lock(&logins.ledger).asked.len(), 1);
    let late = ask(&logins, &users, RIGHT, 0);
    drop(release);
    for (user, mut answered) in asked {
        assert_eq!(user, "ant");
        let answer = wait(answered.wait_for(Option::is_some)).map(|answer| *answer);
        assert_eq!(answer.unwrap(), Some(true));
    }
    assert_eq!(wait(late.answer()), Ok(Some("ant".to_owned())));
}

/// Keeps all threads busy until the returned sender is dropped.
fn occupy(logins: &Arc<Logins>) -> mpsc::Sender<()> {
    let (release, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let (begun, begins) = mpsc::channel();
    for _ in 0..LOGIN_THREADS {
        let (gate, begun) = (Arc::clone(&gate), begun.clone());
        let job = move || {
            begun.send(()).unwrap();
            let _ = gate.lock().unwrap().recv();
        };
        logins.pool.spawn(job).unwrap();
        begins.recv().unwrap();
    }
    release
}

#[test]
fn logins_beyond_the_queue_are_refused_for_now() {
    let (logins, users) = (Logins::new(&Arc::default()).unwrap(), users());
    let release = occupy(&logins);
    for _ in 0..LOGIN_QUEUE_MAX {
        logins.pool.spawn(|| ()).unwrap();
    }
    assert_eq!(
        wait(ask(&logins, &users, RIGHT, 0).answer()),
        Err(ThreadPoolError::Busy)
    );
    assert!(
        lock(&logins.ledger).asked.is_empty(),
        "the client may try again"
    );
    drop(release);
}

#[test]
fn a_login_without_a_result_is_a_failure() {
    let (logins, users) = (Logins::new(&Arc::default()).unwrap(), users());
    let release = occupy(&logins);
    let ask = ask(&logins, &users, RIGHT, 0);
    let ledger = Arc::clone(&logins.ledger);
    let (_, mut answered) = ask.ask().unwrap().unwrap();
    drop(logins);
    assert!(wait(answered.wait_for(Option::is_some)).is_err());
    assert!(lock(&ledger).asked.is_empty());
    drop(release);
}

#[test]
fn the_ledger_is_bounded_and_removes_wrong_logins_first() {
    let mut ledger = LoginLedger::default();
    let login = |n: usize| {
        let mut login = [0; 32];
        login[..8].copy_from_slice(&(n as u64).to_be_bytes());
        login
    };
    let answer = |is_right, until_ms| RememberedResult { is_right, until_ms };
    ledger.remember(login(0), answer(true, 100_000));
    for n in 1..3 * LOGINS_MAX {
        ledger.remember(login(n), answer(false, 100_000));
        assert!(ledger.answers.len() <= LOGINS_MAX);
    }
    assert_eq!(ledger.answer(&login(0), 99_999), Some(true));
    for n in 1..=LOGINS_MAX {
        ledger.remember(login(n), answer(true, 100_000));
    }
    assert!(ledger.answers.len() <= LOGINS_MAX);
    let last = login(LOGINS_MAX);
    assert_eq!(ledger.answer(&last, 0), Some(true));
    // Right answers to be hashed again are dropped after the wrong answers.
    let mut ledger = LoginLedger::default();
    ledger.remember(login(0), answer(true, 100_000));
    for n in 1..3 * LOGINS_MAX {
        ledger.remember(login(n), answer(false, 300_000));
    }
    assert!(ledger.was_right(&login(0), 240_000));
    assert_eq!(ledger.answer(&login(0), 240_000), None);
    for n in 1..=LOGINS_MAX {
        ledger.remember(login(n), answer(true, 300_000));
    }
    assert!(!ledger.was_right(&login(0), 240_000));
    assert!(ledger.was_right(&login(1), 240_000));
    // Expired answers are dropped.
    ledger.remember(login(0), answer(false, 10_000_000));
    assert_eq!(ledger.answers.len(), 1);
}

/// Returns the Authorization field value with the n-th wrong password for `ant`.
fn guess(nth: usize) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut value = b"Basic ".to_vec();
    for three in format!("ant:{nth:05}").as_bytes().chunks(3) {
        let bits = three
            .iter()
            .fold(0, |bits, byte| bits << 8 | usize::from(*byte));
        value.extend([18, 12, 6, 0].map(|shift| DIGITS[bits >> shift & 63]));
    }
    value
}

#[test]
fn simultaneous_guesses_count_before_hashing() {
    let (logins, users) = (Logins::new(&Arc::default()).unwrap(), users());
    let release = occupy(&logins);
    let most = LOGIN_FAILURES_MAX as usize;
    let all: Vec<_> = (0..80)
        .map(|nth| ask(&logins, &users, &guess(nth), 0))
        .collect();
    let asked: Vec<_> = all
        .into_iter()
        .filter_map(|ask| ask.ask().unwrap())
        .collect();
    assert_eq!((asked.len(), logins.pool.queued()), (most, most));
    // The next guess is refused before hashing.
    let next = check(&logins, &users, &guess(80), 1, 0);
    assert!(matches!(next, LoginLookup::TooManyFailed));
    // A login already being hashed is no further guess. The guess of another client has a limit of its own.
    assert!(matches!(
        check(&logins, &users, &guess(0), 1, 0),
        LoginLookup::Unverified(_)
    ));
    assert!(matches!(
        check(&logins, &users, &guess(80), 2, 0),
        LoginLookup::Unverified(_)
    ));
    drop(release);
    for (_, mut answered) in asked {
        assert!(wait(answered.wait_for(Option::is_some)).is_ok());
    }
    let right = check(&logins, &users, RIGHT, 1, 0);
    assert!(
        matches!(right, LoginLookup::TooManyFailed),
        "the right login is refused beyond the limit"
    );
    let refused: u64 = logins.refusals.each().map(|(_, count)| count).sum();
    assert_eq!(refused, 2);
}

#[test]
fn a_remembered_right_login_is_accepted_beyond_the_limit_of_failures() {
    let (logins, users) = (Logins::new(&Arc::default()).unwrap(), users());
    let hashed = |value: &[u8], now_ms| wait(ask(&logins, &users, value, now_ms).answer());
    assert_eq!(hashed(RIGHT, 0), Ok(Some("ant".to_owned())));
    for nth in 0..LOGIN_FAILURES_MAX as usize {
        assert_eq!(hashed(&guess(nth), 0), Ok(None));
    }
    let guess = guess(99);
    assert!(matches!(
        check(&logins, &users, &guess, 1, 0),
        LoginLookup::TooManyFailed
    ));
    assert!(matches!(
        check(&logins, &users, RIGHT, 1, 0),
        LoginLookup::Known(_)
    ));
    // The answer has expired: the login is hashed again, and isn't limited.
    let now_ms = LOGIN_REMEMBERED_SECONDS * 1_000;
    assert_eq!(hashed(RIGHT, now_ms), Ok(Some("ant".to_owned())));
    // Another client gets no answer from the ledger.
    assert!(matches!(
        check(&logins, &users, RIGHT, 7, now_ms),
        LoginLookup::Unverified(_)
    ));
}

/// A client over its limit could otherwise find a password without a hash, from answers to other clients.
#[test]
fn a_right_login_reveals_nothing_to_another_client() {
    let (logins, users) = (Logins::new(&Arc::default()).unwrap(), users());
    let right = wait(ask_as(&logins, &users, RIGHT, 1, 0).answer());
    assert_eq!(right, Ok(Some("ant".to_owned())));
    for nth in 0..LOGIN_FAILURES_MAX as usize {
        let wrong = wait(ask_as(&logins, &users, &guess(nth), 2, 0).answer());
        assert_eq!(wrong, Ok(None));
    }
    for value in [RIGHT, &guess(99)] {
        let told = check(&logins, &users, value, 2, 0);
        assert!(matches!(told, LoginLookup::TooManyFailed));
    }
    assert!(matches!(
        check(&logins, &users, RIGHT, 1, 0),
        LoginLookup::Known(_)
    ));
}

#[test]
fn a_client_with_a_right_login_goes_before_guesses() {
    let (logins, users) = (Logins::new(&Arc::default()).unwrap(), users());
    lock(&logins.ledger).limiter.record_success(client(2), 0);
    let release = occupy(&logins);
    let mut asked = Vec::new();
    for nth in 0..LOGIN_FAILURES_MAX as usize {
        asked.push(ask(&logins, &users, &guess(nth), 0).ask().unwrap().unwrap());
    }
    let right = ask_as(&logins, &users, RIGHT, 2, 0).ask().unwrap().unwrap();
    let first = lock(&logins.queue).pop().unwrap();
    assert_eq!(
        (first.credentials.user.as_str(), first.question.client),
        ("ant", client(2))
    );
    first.run();
    assert_eq!(*right.1.borrow(), Some(true));
    assert!(
        asked
            .iter()
            .all(|(_, answered)| answered.borrow().is_none())
    );
    drop(release);
}

#[test]
fn a_guess_without_hashing_is_no_failure() {
    let (logins, users) = (Logins::new(&Arc::default()).unwrap(), users());
    let release = occupy(&logins);
    for _ in 0..LOGIN_QUEUE_MAX {
        logins.pool.spawn(|| ()).unwrap();
    }
    for nth in 0..3 * LOGIN_FAILURES_MAX as usize {
        let busy = wait(ask(&logins, &users, &guess(nth), 0).answer());
        assert_eq!(busy, Err(ThreadPoolError::Busy));
    }
    drop(release);
}

#[test]
fn a_login_whose_client_has_left_is_not_hashed() {
    let (logins, users) = (Logins::new(&Arc::default()).unwrap(), users());
    let release = occupy(&logins);
    let left: Vec<_> = (0..3)
        .map(|nth| ask(&logins, &users, &guess(nth), 0).ask().unwrap().unwrap())
        .collect();
    let stays = ask_as(&logins, &users, RIGHT, 2, 0).ask().unwrap().unwrap();
    drop(left);
    let first = next(&logins.queue).unwrap();
    assert_eq!(first.question.client, client(2));
    first.run();
    assert_eq!(*stays.1.borrow(), Some(true));
    assert!(next(&logins.queue).is_none());
    let ledger = lock(&logins.ledger);
    assert!(ledger.asked.is_empty());
    assert_eq!(ledger.answers.len(), 1, "only the login that stayed");
    drop(release);
}

#[test]
fn a_login_that_waits_goes_behind_once_its_client_has_guessed_wrong() {
    let (logins, users) = (Logins::new(&Arc::default()).unwrap(), users());
    let release = occupy(&logins);
    let guesses: Vec<_> = (0..2)
        .map(|nth| ask(&logins, &users, &guess(nth), 0).ask().unwrap().unwrap())
        .collect();
    let other = ask_as(&logins, &users, &guess(9), 200, 0).ask().unwrap();
    next(&logins.queue).unwrap().run();
    // Client 200 is a neighbour of client 1. A client elsewhere goes before both.
    let elsewhere: ClientNetwork = IpAddr::from([198, 51, 100, 1]).into();
    let LoginLookup::Unverified(right) = logins.check(&users, RIGHT, elsewhere, 0) else {
        panic!("the login is known already");
    };
    let right = right.ask().unwrap().unwrap();
    assert_eq!(next(&logins.queue).unwrap().question.client, elsewhere);
    drop((guesses, other, right, release));
}
