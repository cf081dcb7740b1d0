//! Registry of all balancers in all Worlds.

use crate::balancer::Balancer;
use crate::balancer_settings::BalancerSettings;
use crate::member::Connections;
use crate::sticky::SessionKey;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use wire::heartbeat::Heartbeat;

/// Registry of all balancers, with one entry for each name.
pub struct Balancers<C: Connections> {
    key: SessionKey,
    /// Seed of the random numbers of new balancers.
    seed: u64,
    all: Mutex<Vec<Weak<Balancer<C>>>>,
    /// Settings that go before the settings of the Worlds.
    edited: Mutex<Vec<Arc<BalancerSettings>>>,
}

impl<C: Connections> Balancers<C> {
    /// Creates an empty registry. `key` signs the session cookies of all balancers.
    pub fn new(key: SessionKey, seed: u64) -> Balancers<C> {
        Balancers {
            key,
            seed,
            all: Mutex::default(),
            edited: Mutex::default(),
        }
    }

    /// Returns the registered balancer with the name of `settings`, else a new balancer. A registered
    /// balancer keeps its settings until [`Balancer::reconfigure`] is called. The registry stays as it is:
    /// [`Balancers::register`] adds a new balancer.
    pub fn find_or_new(&self, settings: &BalancerSettings, now_ms: u64) -> Arc<Balancer<C>> {
        self.find(&settings.name).unwrap_or_else(|| {
            let settings = settings.clone();
            Arc::new(Balancer::new(settings, &self.key, self.seed, now_ms))
        })
    }

    /// Returns the registered balancer with a name.
    pub fn find(&self, name: &str) -> Option<Arc<Balancer<C>>> {
        let all = self.lock();
        let mut alive = all.iter().filter_map(Weak::upgrade);
        alive.find(|balancer| balancer.name() == name)
    }

    /// Adds a balancer of [`Balancers::find_or_new`] unless registered.
    pub fn register(&self, balancer: &Arc<Balancer<C>>) {
        let mut all = self.lock();
        all.retain(|known| known.strong_count() > 0);
        let is_known =
            |known: &Weak<Balancer<C>>| std::ptr::eq(known.as_ptr(), &raw const **balancer);
        if !all.iter().any(is_known) {
            all.push(Arc::downgrade(balancer));
        }
    }

    /// Replaces the settings that go before the settings of the Worlds: the settings with the operator's edits. The
    /// settings take effect when the balancers are configured again.
    pub fn set_edited(&self, settings: Vec<Arc<BalancerSettings>>) {
        *self.edited.lock().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    /// Returns the settings that go before the settings of a World, for the balancer with a name.
    pub fn edited(&self, name: &str) -> Option<Arc<BalancerSettings>> {
        let all = self.edited.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|it| *it.name == *name).map(Arc::clone)
    }

    /// Records a heartbeat of a member in all balancers ([`Balancer::record_heartbeat`]). Returns false if no
    /// balancer has a member with the address.
    pub fn record_heartbeat(
        &self,
        from: IpAddr,
        heartbeat: Heartbeat,
        now_ms: u64,
        resolves_to: impl Fn(&str, IpAddr) -> bool,
    ) -> bool {
        let balancers = self.all();
        let hears = |balancer: &&Arc<Balancer<C>>| {
            balancer.record_heartbeat(from, heartbeat, now_ms, &resolves_to)
        };
        balancers.iter().filter(hears).count() > 0
    }

    /// Returns all registered balancers in use, in the order of registration.
    pub fn all(&self) -> Vec<Arc<Balancer<C>>> {
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Balancer<C>>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
