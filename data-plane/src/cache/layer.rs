//! The page cache of a route: the rule, and the handler behind the cache.

use crate::cache::PageCache;
use crate::cache::policy::PageCacheRule;
use crate::handler::route_handler::RouteHandler;
use std::sync::Arc;

/// The cache configuration of a route.
#[derive(Clone)]
pub struct CacheLayer {
    /// The cache of the process.
    pub cache: Arc<PageCache>,
    /// The rule for storage and lifetimes.
    pub rule: PageCacheRule,
    /// The first name of the site.
    pub site: Arc<str>,
    /// The number of the route in cache keys, distinct for each route and for each handler of a route.
    pub route: u64,
    /// True if requests for a tunnel pass the cache by.
    pub passes_tunnels: bool,
}

impl CacheLayer {
    /// Wraps `inner` in a caching handler.
    pub fn wrap(&self, inner: RouteHandler) -> CachedHandler {
        let CacheLayer {
            cache,
            rule,
            site,
            route,
            passes_tunnels,
        } = self.clone();
        CachedHandler {
            cache,
            rule,
            inner,
            site,
            route,
            passes_tunnels,
        }
    }
}

impl CachedHandler {
    /// Returns the handler behind the cache, for a request that asks for a tunnel and is answered with a
    /// tunnel. Without `upgrade` of the route, there is none: a client could otherwise pass the cache by with a field.
    pub(crate) fn tunnel_handler(&self) -> Option<&RouteHandler> {
        let passes = self.passes_tunnels && self.inner.accepts_tunnels();
        passes.then_some(&self.inner)
    }

    /// Returns the handler behind the cache.
    pub(crate) fn handler(&self) -> &RouteHandler {
        &self.inner
    }
}

/// A handler with stored responses.
pub struct CachedHandler {
    pub(super) cache: Arc<PageCache>,
    pub(super) rule: PageCacheRule,
    pub(super) inner: RouteHandler,
    /// The first name of the site.
    pub(super) site: Arc<str>,
    /// The number of the route in cache keys, distinct for each route and for each handler of a route.
    pub(super) route: u64,
    /// True if requests for a tunnel pass the cache by.
    pub(super) passes_tunnels: bool,
}
