//! Balancer of a World: the ledger entry, the settings of the World and the connections to the members, and the log lines
//! for changes of members.

use crate::tls::TlsEndpoint;
use crate::upstream::member::MemberAddress;
use crate::upstream::resolver::Resolver;
use crate::upstream::{Balancer, Balancers, MemberPool, ReconfigureReport};
use balancer::settings::{BalancerSettings, MemberUrl};
use balancer::{ChangeReason, DoubtChange, StateChange};
use log::Level;
use std::sync::Arc;

/// Balancer as planned by one World. The plan is put in force when the World is served.
#[derive(Clone)]
pub struct BalancerPlan {
    balancer: Arc<Balancer>,
    settings: BalancerSettings,
    pools: Vec<(MemberUrl, Arc<MemberPool>)>,
}

impl BalancerPlan {
    /// Plans a balancer with the settings. The registered balancer of the name, and the connections of its
    /// members, are reused where their settings are unchanged. `resolver` looks the names of members up, and
    /// `tls` holds the TLS of each member with `https`. The registry and the balancer stay as they are.
    pub fn new(
        registry: &Balancers,
        resolver: &Resolver,
        settings: &BalancerSettings,
        tls: Vec<Option<TlsEndpoint>>,
        now_ms: u64,
    ) -> BalancerPlan {
        let balancer = registry.find_or_new(settings, now_ms);
        let pools = settings.members.iter().zip(tls).map(|(member, tls)| {
            let known = balancer.member(&member.url).and_then(|it| it.pool());
            let known = known.filter(|pool| pool.suits(&settings.connection, tls.as_ref()));
            let pool = known.unwrap_or_else(|| {
                let address = MemberAddress::new(&member.url.host, resolver);
                let authority = member.url.authority().into_bytes().into();
                Arc::new(MemberPool::new(
                    authority,
                    address,
                    settings.connection.clone(),
                    tls,
                ))
            });
            (member.url.clone(), pool)
        });
        BalancerPlan {
            pools: pools.collect(),
            balancer,
            settings: settings.clone(),
        }
    }

    pub fn balancer(&self) -> &Arc<Balancer> {
        &self.balancer
    }

    /// Returns the settings of the World.
    pub fn settings(&self) -> &BalancerSettings {
        &self.settings
    }

    /// Registers the balancer and puts its settings in force, or the settings with the operator's edits in the registry.
    /// Returns the changes of members.
    pub(crate) fn put_in_force(&self, registry: &Balancers, now_ms: u64) -> ReconfigureReport {
        registry.register(&self.balancer);
        let edited = registry.edited(self.balancer.name());
        let settings = edited.map_or_else(|| self.settings.clone(), Arc::unwrap_or_clone);
        let configured = &self.settings.members;
        self.balancer
            .reconfigure_prepared(settings, configured, now_ms, |member| {
                let pool = self.pools.iter().find(|(url, _)| url == member.url());
                if let Some((_, pool)) = pool {
                    pool.register();
                    member.set_pool(Arc::clone(pool));
                }
            })
    }
}

/// Logs the change of a member's state: a warning for a member that fails, else an information.
pub fn log_change(balancer: &str, member: &MemberUrl, change: StateChange) {
    let is_intended = matches!(
        change.reason,
        ChangeReason::Operator | ChangeReason::Configuration
    );
    let level = if is_intended || change.new.is_usable() {
        Level::Info
    } else {
        Level::Warn
    };
    log::log!(level, "balancer {balancer}: {member} {change}");
}

/// Logs the beginning or the end of the doubt about the checks of a balancer.
pub fn log_doubt(balancer: &Balancer, doubt: DoubtChange) {
    let is_only = balancer.members().len() == 1;
    let (level, text) = match (doubt, is_only) {
        (DoubtChange::Begun, true) => (
            Level::Warn,
            "the only member fails, and is tried in spite of its failed checks",
        ),
        (DoubtChange::Begun, false) => (
            Level::Warn,
            "most members fail their checks, so the checks are doubted and members with failed checks are tried",
        ),
        (DoubtChange::Ended, true) => (
            Level::Info,
            "the only member passes its checks, so the checks count again",
        ),
        (DoubtChange::Ended, false) => (
            Level::Info,
            "enough members pass their checks, so the checks count again",
        ),
    };
    log::log!(level, "balancer {}: {text}", balancer.name());
}
