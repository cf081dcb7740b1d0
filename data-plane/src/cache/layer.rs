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
}

impl CacheLayer {
    /// Wraps `inner` in a caching handler.
    pub fn wrap(&self, inner: RouteHandler) -> CachedHandler {
        let CacheLayer {
            cache,
            rule,
            site,
            route,
        } = self.clone();
        CachedHandler {
            cache,
            rule,
            inner,
            site,
            route,
        }
    }
}

impl CachedHandler {
    /// Returns the handler behind the cache, for a request that asks for a tunnel and is answered with a
    /// tunnel.
    pub fn tunnel_handler(&self) -> Option<&RouteHandler> {
        Some(&self.inner).filter(|inner| inner.accepts_tunnels())
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
}
