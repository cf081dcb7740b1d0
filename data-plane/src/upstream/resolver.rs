//! Addresses of host names, looked up in the background. Neither the start nor a reload waits for a name
//! server, and a failed look-up keeps the last good answer.
//!
//! The system's resolver blocks, so look-ups run in a few threads of their own. A name is looked up for as
//! long as a [`ResolvedName`] exists.

use crate::limits::{RESOLVER_INTERVAL_SECONDS, RESOLVER_QUEUE_MAX, RESOLVER_THREADS_MAX};
pub(crate) use crate::upstream::name_state::NameAnswer;
use crate::upstream::name_state::NameState;
use base::clock::monotonic_ms;
use base::thread_pool::ThreadPool;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;

/// Function that looks up a host name and may block.
pub(crate) type LookUp = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// Registry of the host names in use.
pub struct Resolver {
    names: Mutex<Vec<Weak<ResolvedName>>>,
    threads: ThreadPool,
    /// Reports new names to [`Resolver::keep_fresh`].
    has_new_names: Notify,
    look_up: Arc<LookUp>,
}

/// A host name in use, with its addresses.
pub(crate) struct ResolvedName {
    name: Box<str>,
    /// Number of look-ups that took an address from the name, plus 1.
    losses: AtomicU64,
    state: Mutex<WaitedName>,
}

/// State of a name, and the requests that wait for the first look-up.
#[derive(Default)]
struct WaitedName {
    state: NameState,
    wakers: Vec<Waker>,
}

impl Resolver {
    /// Creates a resolver that asks the system.
    pub fn system() -> Resolver {
        Resolver::new(Arc::new(|name: &str| {
            let addresses = (name, 0).to_socket_addrs()?;
            Ok(addresses.map(|address| address.ip()).collect())
        }))
    }

    /// Creates a resolver that asks `look_up`.
    pub(crate) fn new(look_up: Arc<LookUp>) -> Resolver {
        Resolver {
            names: Mutex::default(),
            threads: ThreadPool::new("anthill-names", RESOLVER_THREADS_MAX, RESOLVER_QUEUE_MAX),
            has_new_names: Notify::new(),
            look_up,
        }
    }

    /// Keeps the addresses of all names fresh. The future never ends, and sleeps while no name is in use.
    pub async fn keep_fresh(self: Arc<Self>) {
        let interval = Duration::from_secs(RESOLVER_INTERVAL_SECONDS);
        loop {
            self.refresh(monotonic_ms());
            let has_names = self.lock().iter().any(|name| name.strong_count() > 0);
            tokio::select! {
                () = self.has_new_names.notified() => {}
                () = tokio::time::sleep(interval), if has_names => {}
            }
        }
    }

    /// Returns the entry of a host name. A new name is looked up by the next [`Resolver::refresh`].
    pub(crate) fn name(&self, name: &str) -> Arc<ResolvedName> {
        let mut names = self.lock();
        names.retain(|known| known.strong_count() > 0);
        let mut known = names.iter().filter_map(Weak::upgrade);
        if let Some(known) = known.find(|known| *known.name == *name) {
            return known;
        }
        let new = Arc::new(ResolvedName {
            name: name.into(),
            losses: AtomicU64::new(1),
            state: Mutex::default(),
        });
        names.push(Arc::downgrade(&new));
        self.has_new_names.notify_one();
        new
    }

    /// Starts the look-ups that are due, without waiting.
    pub(crate) fn refresh(&self, now_ms: u64) {
        let names: Vec<Arc<ResolvedName>> = self.lock().iter().filter_map(Weak::upgrade).collect();
        for name in names {
            if !name.lock().state.begin(now_ms) {
                continue;
            }
            let run = LookUpRun {
                name: Arc::clone(&name),
                found: Err(io::Error::other("the look-up did not finish")),
            };
            let look_up = Arc::clone(&self.look_up);
            if self.threads.spawn(move || run.run(&*look_up)).is_err() {
                name.lock().state.postpone();
            }
        }
    }

    /// Returns true if a host name in use has the address.
    pub fn resolves_to(&self, name: &str, address: IpAddr) -> bool {
        let mut names: Vec<Arc<ResolvedName>> =
            self.lock().iter().filter_map(Weak::upgrade).collect();
        names.retain(|known| *known.name == *name);
        names.iter().any(|known| match known.answer() {
            NameAnswer::Known(addresses) => addresses.contains(&address),
            NameAnswer::Pending | NameAnswer::Failed => false,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<ResolvedName>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResolvedName {
    /// Returns the host name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the addresses known now.
    pub(crate) fn answer(&self) -> NameAnswer {
        self.lock().state.answer()
    }

    /// Returns a number, above 0, that changes whenever an address leaves the name.
    pub(super) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    /// Returns true if connections to the address may stay in use.
    pub(super) fn keeps(&self, address: IpAddr) -> bool {
        self.lock().state.keeps(address)
    }

    /// Returns the addresses, and waits only for the end of the first look-up. None means that the name has
    /// no address.
    pub(crate) fn poll_addresses(&self, cx: &Context<'_>) -> Poll<Option<Arc<[IpAddr]>>> {
        let mut waited = self.lock();
        match waited.state.answer() {
            NameAnswer::Known(addresses) => Poll::Ready(Some(addresses)),
            NameAnswer::Failed => Poll::Ready(None),
            NameAnswer::Pending => {
                let is_known = waited
                    .wakers
                    .iter()
                    .any(|known| known.will_wake(cx.waker()));
                if !is_known {
                    waited.wakers.push(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, WaitedName> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A look-up in a thread. A look-up that panics, or that the closing pool drops, counts as failed.
struct LookUpRun {
    name: Arc<ResolvedName>,
    found: io::Result<Vec<IpAddr>>,
}

impl LookUpRun {
    fn run(mut self, look_up: &LookUp) {
        self.found = look_up(&self.name.name);
    }
}

impl Drop for LookUpRun {
    fn drop(&mut self) {
        let found = std::mem::replace(&mut self.found, Ok(Vec::new()));
        let reason = match &found {
            Ok(_) => "no address".to_owned(),
            Err(error) => error.to_string(),
        };
        let mut waited = self.name.lock();
        let report = waited.state.finish(found.ok());
        let wakers = std::mem::take(&mut waited.wakers);
        drop(waited);
        if report.has_lost_address {
            self.name.losses.fetch_add(1, Ordering::Release);
        }
        if report.is_new_failure {
            log::warn!("host name {}: {reason}", self.name.name);
        }
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::mpsc;

    fn wait(name: &ResolvedName) -> Option<Vec<IpAddr>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let addresses = runtime.block_on(poll_fn(|cx| name.poll_addresses(cx)));
        addresses.map(|addresses| addresses.to_vec())
    }

    /// Waits for the end of the running look-up.
    fn settle(name: &ResolvedName) {
        while name.lock().state.is_running() {
            std::thread::yield_now();
        }
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn the_system_knows_the_local_host() {
        let resolver = Resolver::system();
        let name = resolver.name("localhost");
        resolver.refresh(0);
        let addresses = wait(&name).unwrap();
        assert!(addresses.iter().all(IpAddr::is_loopback), "{addresses:?}");
        assert!(resolver.resolves_to("localhost", addresses[0]));
        assert!(!resolver.resolves_to("localhost", address(1)));
        assert!(!resolver.resolves_to("unknown.invalid", address(1)));
    }

    #[test]
    fn a_slow_name_server_delays_only_requests_without_an_answer() {
        let (release, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let resolver = Resolver::new(Arc::new(move |_: &str| {
            gate.lock().unwrap().recv().map_err(io::Error::other)?;
            Ok(vec![address(1)])
        }));
        let name = resolver.name("a.example");
        // Neither call waits for the name server.
        resolver.refresh(0);
        resolver.refresh(60_000);
        assert_eq!(name.answer(), NameAnswer::Pending);
        release.send(()).unwrap();
        assert_eq!(wait(&name), Some(vec![address(1)]));
        settle(&name);
        resolver.refresh(90_000);
        assert_eq!(wait(&name), Some(vec![address(1)]));
        drop(release);
        settle(&name);
        assert_eq!(wait(&name), Some(vec![address(1)]));
    }

    #[test]
    fn a_failed_or_panicking_look_up_is_an_answer() {
        let resolver = Resolver::new(Arc::new(|name: &str| match name {
            "panic.example" => panic!("on purpose"),
            _ => Err(io::ErrorKind::NotFound.into()),
        }));
        let names = ["none.example", "panic.example"].map(|name| resolver.name(name));
        resolver.refresh(0);
        for name in &names {
            assert_eq!(wait(name), None);
        }
    }

    #[test]
    fn names_are_looked_up_in_the_background() {
        let resolver = Arc::new(Resolver::new(Arc::new(|_: &str| Ok(vec![address(1)]))));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let found = runtime.block_on(async {
            base::task::spawn(Arc::clone(&resolver).keep_fresh());
            tokio::task::yield_now().await;
            // The task has seen no name yet, and is woken by the name.
            let name = resolver.name("a.example");
            poll_fn(|cx| name.poll_addresses(cx)).await
        });
        assert_eq!(found.as_deref(), Some(&[address(1)][..]));
    }

    #[test]
    fn a_name_has_one_entry_while_in_use() {
        let resolver = Resolver::new(Arc::new(|_: &str| Ok(vec![address(1)])));
        let first = resolver.name("a.example");
        assert!(Arc::ptr_eq(&first, &resolver.name("a.example")));
        assert_eq!(first.name(), "a.example");
        resolver.refresh(0);
        assert_eq!(wait(&first), Some(vec![address(1)]));
        // The thread of the look-up holds the entry until its end.
        while Arc::strong_count(&first) > 1 {
            std::thread::yield_now();
        }
        drop(first);
        assert_eq!(resolver.name("a.example").answer(), NameAnswer::Pending);
    }
}
