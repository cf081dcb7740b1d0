//! The World that the worker of a test serves.

use crate::handler::Handler;
use crate::handler::route_handler::RouteHandler;
use crate::handler::test_handler::TestHandler;
use crate::ledger::active_requests::ActiveRequestLedger;
use crate::ledger::body_memory::BodyMemory;
use crate::ledger::change_tracker::SiteChangeTracker;
use crate::ledger::route_counters::RouteCounters;
use crate::limits::Limits;
use crate::serve::pair::call::PairHandler;
use crate::serve::worker::ProcessContext;
use crate::site::Site;
use crate::tls::{SiteIdentity, Tls};
use crate::world::request_rules::RequestRules;
use crate::world::users::Logins;
use crate::world::{Host, Hosts, PathReader, Route, RouteTable, RouteTarget, TryEnd, World};
use base::log::RareLines;
use base::thread_pool::ThreadPool;
use std::sync::Arc;
use std::time::Instant;

/// Paths of the World beside those of the test's handlers: `/call` for calls that the test answers, `/tunnel`
/// for calls that may open a tunnel, `/echo` for a handler that returns the content of the request.
#[derive(Default)]
pub(in crate::serve) struct PairWorld {
    pub(in crate::serve) limits: Limits,
    /// Files for all other paths.
    pub(in crate::serve) site: Option<Site>,
    pub(in crate::serve) tls: Option<Tls>,
    /// Bound of the memory of bodies in bytes; 0 stands for 64 MiB.
    pub(in crate::serve) body_memory_bytes: usize,
}

/// Host of all requests.
const HOST: &str = "a.test";
const BODY_MEMORY_BYTES: usize = 64 << 20;

impl PairWorld {
    /// Makes the state that the worker shares with other workers.
    pub(super) fn process(&self) -> Arc<ProcessContext> {
        let body_memory_bytes = match self.body_memory_bytes {
            0 => BODY_MEMORY_BYTES,
            bytes => bytes,
        };
        Arc::new(ProcessContext {
            open: Default::default(),
            ledger: Arc::default(),
            pool: Arc::new(ThreadPool::new("test-read", 1, 100)),
            quic: Default::default(),
            refusals: Arc::default(),
            pending_head_bytes_max: 1 << 20,
            body_memory: BodyMemory::new(body_memory_bytes),
            active_requests: ActiveRequestLedger::new(1),
            workers: 1,
            change_tracker: Arc::default(),
            rare_lines: RareLines::default(),
            origin: Instant::now(),
        })
    }

    /// Makes the World.
    pub(super) fn build(self, process: &ProcessContext) -> World {
        let counters = || Arc::new(RouteCounters::new("a.test", "", 1));
        let route = |prefix: &str, handler: Arc<dyn Handler>| {
            Arc::new(Route {
                prefix: prefix.as_bytes().into(),
                target: Some(RouteTarget::Handler(RouteHandler::from(handler))),
                allow: None,
                deny: None,
                users: None,
                auth: Default::default(),
                any: false,
                guard_methods: None,
                methods: None,
                scripts: None,
                try_end: None,
                has_encoded_slashes: false,
                reader: PathReader::Server,
                counters: counters(),
            })
        };
        let handler = |accepts_tunnels| Arc::new(PairHandler::new(accepts_tunnels));
        let routes = vec![
            route("/call", handler(false)),
            route("/tunnel", handler(true)),
            route("/echo", Arc::new(TestHandler::Echo)),
        ];
        let host = Host {
            name: "*".to_owned(),
            listeners: Vec::new(),
            names: vec!["*".into()],
            canonical: None,
            http_redirects: false,
            hsts: false,
            secure_fields: Arc::default(),
            site: self.site.map(Arc::new),
            try_end: TryEnd::default(),
            redirects: None,
            routes: Arc::new(RouteTable::new(routes, RequestRules::default())),
            identity: self
                .tls
                .as_ref()
                .map_or_else(SiteIdentity::none, |tls| tls.site_identity(Some(HOST))),
            demands_certificate: false,
            access: None,
            hits: None,
            change_tracker: SiteChangeTracker::new(&process.change_tracker),
            counters: counters(),
            awaited: None,
            previews: None,
            preview: None,
        };
        World {
            generation: 1,
            guards: 1,
            limits: self.limits,
            tls: self.tls.map(Arc::new),
            own_tls: Vec::new(),
            hosts: Hosts::new(vec![Arc::new(host)]),
            access: None,
            logins: Logins::new(&process.refusals).expect("a ledger"),
            https_port: None,
            h2c: true,
            challenges: None,
            trust: Default::default(),
            h3_port: None,
            backends: Vec::new(),
            balancers: Vec::new(),
            tls_clients: Vec::new(),
            counts: Vec::new(),
            routes: Vec::new(),
            without_site: counters(),
            identity_fields: Arc::default(),
            has_forward_auth: false,
            manager: None,
        }
    }
}
