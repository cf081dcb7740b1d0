//! The ledger: who is asked, who waits, what is remembered and what is forgotten.

use std::future::Future;
use std::sync::mpsc;

use super::*;

/// `ant` with the password `secret`; MD5-crypt, since it is quick.
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

fn ask(logins: &Arc<Logins>, users: &Arc<Users>, value: &[u8], now_ms: u64) -> Ask {
    match logins.check(users, value, now_ms) {
        Check::Ask(ask) => ask,
        Check::Known(user) => panic!("{user} is known already"),
        Check::Wrong => panic!("known to be wrong already"),
    }
}

#[test]
fn answers_are_remembered_for_a_while() {
    let (logins, users) = (Logins::new().unwrap(), users());
    let right = wait(ask(&logins, &users, RIGHT, 1_000).answer());
    assert_eq!(right, Ok(Some("ant".to_owned())));
    assert_eq!(wait(ask(&logins, &users, WRONG, 1_000).answer()), Ok(None));
    for now_ms in [1_000, 60_999] {
        assert!(matches!(logins.check(&users, RIGHT, now_ms), Check::Known(user) if user == "ant"));
        assert!(matches!(logins.check(&users, WRONG, now_ms), Check::Wrong));
    }
    drop(ask(&logins, &users, RIGHT, 61_000));
    drop(ask(&logins, &users, WRONG, 61_000));
    // The same text read again is the same; another is not.
    let again = Arc::new(Users::parse(FILE).unwrap());
    assert!(matches!(
        logins.check(&again, RIGHT, 2_000),
        Check::Known(_)
    ));
    let changed = Arc::new(Users::parse(&[FILE, b"# changed\n"].concat()).unwrap());
    drop(ask(&logins, &changed, RIGHT, 2_000));
}

#[test]
fn what_is_no_login_is_wrong_at_once() {
    let (logins, users) = (Logins::new().unwrap(), users());
    for value in [
        &b""[..],
        b"Basic",
        b"Bearer YW50OnNlY3JldA==",
        b"Basic YW50",
    ] {
        assert!(matches!(logins.check(&users, value, 0), Check::Wrong));
    }
    // `aaaa…` without a colon within the longest password allowed, then with one and too long.
    let long = [
        b"Basic YW50Om".to_vec(),
        b"FhYWFh".repeat(200),
        b"FhYWFh".to_vec(),
    ]
    .concat();
    assert!(matches!(logins.check(&users, &long, 0), Check::Wrong));
}

#[test]
fn the_same_login_is_hashed_once() {
    let (logins, users) = (Logins::new().unwrap(), users());
    let release = occupy(&logins);
    let asked: Vec<_> = (0..100)
        .map(|_| ask(&logins, &users, RIGHT, 0).ask().unwrap())
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
fn too_many_are_told_to_come_back() {
    let (logins, users) = (Logins::new().unwrap(), users());
    let release = occupy(&logins);
    for _ in 0..LOGIN_QUEUE_MAX {
        logins.pool.spawn(|| ()).unwrap();
    }
    assert_eq!(
        wait(ask(&logins, &users, RIGHT, 0).answer()),
        Err(Gone::Busy)
    );
    assert!(lock(&logins.ledger).asked.is_empty(), "and may ask again");
    drop(release);
}

#[test]
fn a_question_without_an_answer_is_a_failure() {
    let (logins, users) = (Logins::new().unwrap(), users());
    let release = occupy(&logins);
    let ask = ask(&logins, &users, RIGHT, 0);
    let ledger = Arc::clone(&logins.ledger);
    let (_, mut answered) = ask.ask().unwrap();
    drop(logins);
    assert!(wait(answered.wait_for(Option::is_some)).is_err());
    assert!(lock(&ledger).asked.is_empty());
    drop(release);
}

#[test]
fn the_ledger_is_bounded_and_forgets_the_wrong_first() {
    let mut ledger = Ledger::default();
    let login = |n: usize| {
        let mut login = [0; 32];
        login[..8].copy_from_slice(&(n as u64).to_be_bytes());
        login
    };
    let answer = |is_right, until_ms| Answer { is_right, until_ms };
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
    // Once the time of all is over, they make room.
    for n in 0..2 * LOGINS_MAX {
        ledger.remember(login(n), answer(false, 300_000 + n as u64));
    }
    assert_eq!(ledger.answer(&last, 100_000), Some(false));
}
