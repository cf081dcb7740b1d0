//! Resources shared by all Worlds of a process: the ledgers, keys and certificates of the server.

use crate::config::{Config, OperatorError};
use crate::git::browse::limiter::BrowseLimiter;
use crate::git::post_receive::PushNotifier;
use aws_lc_rs::error::Unspecified;
use balancer::SessionKey;
use base::log::Sinks;
use data_plane::cache::PageCache;
use data_plane::handler::call::process::ProcessRunner;
use data_plane::hits::Hits;
use data_plane::ledger::body_memory::BodyMemory;
use data_plane::ledger::change_tracker::ChangeTracker;
use data_plane::ledger::route_counters::RouteLedger;
use data_plane::ledger::shared_limit::RefusalCounters;
use data_plane::site::ContentBudget;
use data_plane::tls::{PendingChallenges, SelfSigned, TicketKeys, TlsError};
use data_plane::upstream::Backends;
use data_plane::upstream::Balancers;
use data_plane::upstream::resolver::Resolver;
use data_plane::upstream::session_key_file;
use data_plane::world::users::Logins;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Instant;

/// Resources of the process that outlive a World, shared by all Worlds.
#[derive(Clone)]
pub struct SharedResources {
    /// Budget for the contents of all sites.
    pub budget: Arc<ContentBudget>,
    /// Open log destinations, each destination once.
    pub sinks: Arc<Sinks>,
    /// Page cache for responses of handlers.
    pub cache: Arc<PageCache>,
    /// Counters of page views.
    pub hits: Arc<Hits>,
    /// Ledger of recent logins.
    pub logins: Arc<Logins>,
    /// Session ticket keys; `None` when no address uses TLS.
    pub tickets: Option<Arc<TicketKeys>>,
    /// Certificate for sites without a certificate; `None` when no address uses TLS.
    pub self_signed: Option<Arc<SelfSigned>>,
    /// HTTPS port in the URLs of redirects.
    pub https_port: Option<u16>,
    /// Ledger of pending ACME challenges.
    pub challenges: Arc<PendingChallenges>,
    /// Port of HTTP/3 in Alt-Svc; `None` without HTTP/3.
    pub h3_port: Option<u16>,
    /// Starter of programs for requests.
    pub programs: Arc<ProcessRunner>,
    /// Limiter of repository browsing.
    pub readers: Arc<BrowseLimiter>,
    /// FastCGI and SCGI backends.
    pub backends: Arc<Backends>,
    /// Balancers of all Worlds.
    pub balancers: Arc<Balancers>,
    /// Memory of the bodies under way.
    pub body_memory: Arc<BodyMemory>,
    /// Addresses of the members' host names.
    pub resolver: Arc<Resolver>,
    /// Sender of push notices.
    pub pushes: PushNotifier,
    /// Tracker of changes on disk not served yet.
    pub change_tracker: Arc<ChangeTracker>,
    /// Name of this process in Via.
    pub pseudonym: Arc<str>,
    /// Counters of requests refused because a client's share of a limit was taken.
    pub refusals: Arc<RefusalCounters>,
    /// Counters of responses by route.
    pub routes: Arc<RouteLedger>,
}

impl SharedResources {
    /// Returns resources for a World that is never served: empty ledgers, and keys in memory. No file is read
    /// or written.
    pub(crate) fn in_memory(config: &Config, now: u64) -> Result<SharedResources, OperatorError> {
        let failed = |error: TlsError| OperatorError::failure(error.to_string());
        let budget = Arc::new(ContentBudget::new(0));
        let refusals = Arc::<RefusalCounters>::default();
        let scripts = config.server.limits.scripts;
        let state = config.server.state.get_ref();
        Ok(SharedResources {
            hits: Arc::default(),
            cache: Arc::new(PageCache::new(Instant::now(), budget.clone())),
            budget,
            sinks: Arc::new(Sinks::default()),
            logins: new_logins(&refusals)?,
            tickets: Some(Arc::new(TicketKeys::in_memory(now).map_err(failed)?)),
            self_signed: Some(Arc::new(SelfSigned::in_memory(&[], now).map_err(failed)?)),
            https_port: config.https_port(),
            challenges: Arc::default(),
            h3_port: None,
            programs: Arc::new(ProcessRunner::new(scripts, state, &refusals)),
            readers: Arc::new(BrowseLimiter::new(scripts, &refusals)),
            backends: Arc::new(Backends::new(&refusals)),
            balancers: Arc::new(new_balancers(session_key_file::make())?),
            body_memory: BodyMemory::new(0),
            resolver: Arc::new(Resolver::system()),
            pushes: PushNotifier::new().0,
            change_tracker: Arc::default(),
            pseudonym: new_pseudonym(),
            refusals,
            routes: Arc::new(RouteLedger::new(0)),
        })
    }
}

/// Returns an empty registry of balancers with a key for session cookies.
pub fn new_balancers(key: Result<SessionKey, Unspecified>) -> Result<Balancers, OperatorError> {
    let key = key.map_err(|_| OperatorError::failure("the system has no random numbers"))?;
    Ok(Balancers::new(key, random()))
}

fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Returns a name for this process in Via, by which the process recognises its own requests.
pub fn new_pseudonym() -> Arc<str> {
    format!("anthill-{:016x}", random()).into()
}

/// Returns a new ledger of logins.
pub fn new_logins(refusals: &Arc<RefusalCounters>) -> Result<Arc<Logins>, OperatorError> {
    Logins::new(refusals).map_err(|error| OperatorError::failure(format!("logins: {error}")))
}
