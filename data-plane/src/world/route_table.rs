//! Routes and request rules of a site, indexed by path.

use crate::world::path_policy::PathPolicy;
use crate::world::request_rules::RequestRules;
use crate::world::{Route, RouteTarget};
use std::cmp::Reverse;
use std::sync::Arc;
use wire::request_target::is_below;

/// Routes and request rules of a site, with the policy for each prefix.
#[derive(Clone)]
pub struct RouteTable {
    /// Routes in the order of the configuration.
    routes: Vec<Arc<Route>>,
    rules: RequestRules,
    /// Policies for the prefixes, the longest first.
    policies: Box<[PathPolicy]>,
    /// Policy for paths below no prefix.
    root: Box<PathPolicy>,
    is_guarded: bool,
    has_scripts: bool,
}

impl RouteTable {
    /// Makes the policies for all prefixes of routes and rules. The routes and rules that cover a path are those that
    /// cover the longest prefix of the path, because each of their prefixes is a prefix of the longest one.
    pub fn new(routes: Vec<Arc<Route>>, rules: RequestRules) -> RouteTable {
        let of_routes = routes.iter().map(|route| &*route.prefix);
        let prefixes = of_routes.chain(rules.prefixes());
        let mut prefixes: Vec<&[u8]> = prefixes.filter(|prefix| !prefix.is_empty()).collect();
        prefixes.sort_by_key(|prefix| (Reverse(prefix.len()), *prefix));
        prefixes.dedup();
        let policy = |prefix: &[u8]| PathPolicy::new(prefix, &routes, &rules);
        RouteTable {
            policies: prefixes.into_iter().map(policy).collect(),
            root: Box::new(policy(b"")),
            is_guarded: rules.has_limits()
                || routes
                    .iter()
                    .any(|route| route.has_guard() || route.closed().is_some()),
            has_scripts: routes.iter().any(|route| route.scripts.is_some()),
            routes,
            rules,
        }
    }

    /// Returns the table with another target of the route at `index`.
    pub fn with_target(&self, index: usize, target: RouteTarget) -> RouteTable {
        let mut routes = self.routes.clone();
        if let Some(route) = routes.get_mut(index) {
            *route = Arc::new(Route {
                target: Some(target),
                ..Route::clone(route)
            });
        }
        RouteTable::new(routes, self.rules.clone())
    }

    /// Returns the routes in the order of the configuration.
    pub fn routes(&self) -> &[Arc<Route>] {
        &self.routes
    }

    /// Returns the request rules.
    pub fn rules(&self) -> &RequestRules {
        &self.rules
    }

    /// Returns the policy of a path.
    #[inline]
    pub fn policy(&self, path: &[u8]) -> &PathPolicy {
        let mut policies = self.policies.iter();
        let found = policies.find(|policy| is_below(path, &policy.prefix));
        found.unwrap_or(&self.root)
    }

    /// Returns true if any route is closed, has a guard, limits the methods, or limits the rate or the size of requests. If
    /// so, the path of the opened file is checked too.
    #[inline]
    pub(crate) fn is_guarded(&self) -> bool {
        self.is_guarded
    }

    /// Returns true if any route has `scripts`. If so, an opened file may have to be run.
    #[inline]
    pub(crate) fn has_scripts(&self) -> bool {
        self.has_scripts
    }

    /// Returns true if any path has a request rate, cross-origin access or a largest content.
    #[inline]
    pub(crate) fn has_request_rules(&self) -> bool {
        !self.rules.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::route_counters::RouteCounters;
    use crate::world::allow_list::AllowList;
    use crate::world::{PathReader, RouteRedirect};
    use wire::status::Status;

    fn route(prefix: &str, has_target: bool, has_guard: bool) -> Arc<Route> {
        let redirect = RouteRedirect {
            status: Status::FOUND,
            to: b"/elsewhere".as_slice().into(),
            keeps_query: false,
        };
        let deny = has_guard.then(|| AllowList::parse(["192.0.2.0/24"]).expect("networks"));
        Arc::new(Route {
            prefix: prefix.as_bytes().into(),
            target: has_target.then_some(RouteTarget::Redirect(redirect)),
            allow: None,
            deny,
            users: None,
            auth: Default::default(),
            any: false,
            guard_methods: None,
            methods: None,
            scripts: None,
            try_end: None,
            has_encoded_slashes: false,
            reader: PathReader::Server,
            counters: Arc::new(RouteCounters::new("a.example", prefix, 1)),
        })
    }

    #[test]
    fn a_policy_has_what_the_covering_routes_say() {
        let routes = [
            route("/a", true, true),
            route("", false, true),
            route("/a/b", false, true),
            route("/a/b/c", true, false),
            route("/a", true, false),
            route("/d", false, false),
        ];
        let table = RouteTable::new(routes.to_vec(), RequestRules::default());
        let paths = [
            "/", "/a", "/a/", "/ab", "/a/b", "/a/bc", "/a/b/c", "/a/b/c/d", "/d/a", "/x/a",
        ];
        for path in paths.map(str::as_bytes) {
            let covering = || routes.iter().filter(|route| route.covers(path));
            let targets = covering().filter(|route| route.target.is_some());
            let target = targets.max_by_key(|route| route.prefix.len());
            let policy = table.policy(path);
            let target = target.map(Arc::as_ptr);
            assert_eq!(policy.route().map(std::ptr::from_ref), target, "{path:?}");
            let guards = covering()
                .filter(|route| route.has_guard())
                .map(Arc::as_ptr);
            assert!(
                policy.guards().map(std::ptr::from_ref).eq(guards),
                "{path:?}"
            );
        }
        let is_alike = |one: &str, other: &str| {
            let other = table.policy(other.as_bytes());
            table.policy(one.as_bytes()).is_alike(other)
        };
        assert!(is_alike("/", "/d/a") && is_alike("/a/x", "/a") && is_alike("/a/b", "/a/b/x"));
        assert!(!is_alike("/a", "/a/b") && !is_alike("/a/b", "/a/b/c") && !is_alike("/", "/a"));
    }
}
