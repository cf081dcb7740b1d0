//! The ledger of those who read repositories in a browser: how many pages are made at a time, apart
//! from clones, and how often one address asks for what is much work. One for all workers.

use crate::base::pool::{Gone, Pool};
use crate::handler::Fault;
use crate::handler::slots::{Slot, Slots};
use crate::limits::{
    CALL_QUEUE_SECONDS, GIT_ASKERS_MAX, GIT_HEAVY_MAX, GIT_LOOK_QUEUE_MAX, GIT_LOOK_THREADS,
    GIT_PAGES_MAX,
};
use crate::wire::reject::Reject;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The ledger.
pub struct Readers {
    light: Arc<Slots>,
    heavy: Arc<Slots>,
    streams: Arc<Slots>,
    pool: Pool,
    origin: Instant,
    askers: Mutex<HashMap<IpAddr, u64>>,
}

/// What a place is needed for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// A page that git is done with in a moment.
    Light,
    /// One that takes longer.
    Heavy,
    /// A file or archive, for as long as the client takes it.
    Stream,
}

impl Readers {
    /// Beside so many scripts.
    pub fn new(scripts: usize) -> Readers {
        let readers = Readers {
            light: Arc::new(Slots::new(1)),
            heavy: Arc::new(Slots::new(1)),
            streams: Arc::new(Slots::new(1)),
            pool: Pool::new("anthill-git", GIT_LOOK_THREADS, GIT_LOOK_QUEUE_MAX),
            origin: Instant::now(),
            askers: Mutex::default(),
        };
        readers.resize(scripts);
        readers
    }

    /// From now on beside so many.
    pub fn resize(&self, scripts: usize) {
        self.light.resize((scripts / 4).min(GIT_PAGES_MAX));
        self.heavy.resize((scripts / 8).min(GIT_HEAVY_MAX));
        self.streams.resize((scripts / 4).min(GIT_PAGES_MAX));
    }

    /// Takes a place, waiting for it for a while.
    pub async fn enter(&self, work: Work, queue_max: usize) -> Result<Slot, Fault> {
        let slots = match work {
            Work::Light => &self.light,
            Work::Heavy => &self.heavy,
            Work::Stream => &self.streams,
        };
        let patience = Duration::from_secs(CALL_QUEUE_SECONDS);
        let slot = slots.enter(queue_max, patience).await;
        slot.map_err(|_| Fault::new("git page", Reject::CALLS_BUSY))
    }

    /// Looks at the disk, which may block.
    pub async fn look<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        match self.pool.run(job).await {
            Ok(found) => found,
            Err(Gone::Busy) => Err(Fault::new("git page", Reject::CALLS_BUSY)),
            Err(Gone::Failed) => Err(Fault::new("git page", Reject::HANDLER_FAILED)),
        }
    }

    /// May this address ask for much work once more? It may do so `per_minute` times in a minute, all
    /// at once or not.
    pub fn allows(&self, peer: IpAddr, per_minute: u32) -> bool {
        let now = self.origin.elapsed().as_micros() as u64;
        let mut askers = self.askers.lock().unwrap_or_else(PoisonError::into_inner);
        allows(&mut askers, neighbourhood(peer), per_minute, now)
    }
}

/// Of each address is known until when its work so far would take, were it done at the pace that is
/// allowed, in microseconds: a minute's worth may be taken in advance.
fn allows(askers: &mut HashMap<IpAddr, u64>, peer: IpAddr, per_minute: u32, now: u64) -> bool {
    let before = askers.get(&peer).copied().unwrap_or(0).max(now);
    let after = before + MINUTE_US / u64::from(per_minute.max(1));
    if after - now > MINUTE_US {
        return false;
    }
    if askers.len() >= GIT_ASKERS_MAX && !askers.contains_key(&peer) {
        askers.retain(|_, until| *until > now);
        let least = askers.iter().min_by_key(|(_, until)| **until);
        if let (true, Some(least)) = (askers.len() >= GIT_ASKERS_MAX, least.map(|(it, _)| *it)) {
            askers.remove(&least);
        }
    }
    askers.insert(peer, after);
    true
}

const MINUTE_US: u64 = 60_000_000;

/// Whoever has an address of IPv6 has all of its network.
fn neighbourhood(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V4(_) => peer,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(nth: usize) -> IpAddr {
        IpAddr::from([10, (nth >> 16) as u8, (nth >> 8) as u8, nth as u8])
    }

    #[test]
    fn a_minutes_worth_at_once_and_then_by_and_by() {
        let mut askers = HashMap::new();
        let peer = address(1);
        let mut ask = |at: u64| allows(&mut askers, peer, 3, at * 1_000_000 + 5);
        assert_eq!(
            [0, 0, 0, 0, 19].map(&mut ask),
            [true, true, true, false, false]
        );
        assert_eq!([20, 20, 39, 40].map(&mut ask), [true, false, false, true]);
        assert_eq!(
            [200, 200, 200, 200].map(&mut ask),
            [true, true, true, false]
        );
    }

    #[test]
    fn the_ledger_is_bounded_and_forgets_those_who_asked_least() {
        let mut askers = HashMap::new();
        let greedy = address(usize::MAX & 0xff_ffff);
        for _ in 0..10 {
            assert!(allows(&mut askers, greedy, 10, 0));
        }
        for nth in 0..3 * GIT_ASKERS_MAX {
            assert!(allows(&mut askers, address(nth), 10, 0));
            assert!(askers.len() <= GIT_ASKERS_MAX);
        }
        assert!(!allows(&mut askers, greedy, 10, 0));
        assert!(allows(&mut askers, address(0x50_0000), 10, MINUTE_US));
        assert_eq!(askers.len(), 1);
    }

    #[test]
    fn a_network_is_one() {
        let of = |text: &str| neighbourhood(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
