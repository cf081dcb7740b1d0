//! Policy of a path: everything that the World says about the paths below a prefix. The policies are made once, when the
//! World is built, so a request needs one look-up for each of its paths.

use crate::handler::proxy::forward_auth::ForwardAuth;
use crate::handler::script::cgi::has_ending;
use crate::ledger::client_rate::ClientRate;
use crate::world::cors::CorsRule;
use crate::world::request_rules::{PathRule, RequestRules};
use crate::world::{Route, RouteAuth, RouteTarget, SiteScripts, TryEnd};
use base::client_network::ClientNetwork;
use std::sync::Arc;
use wire::request_target::is_below;

/// Policy of the paths below a prefix, except for paths below a longer prefix.
#[derive(Clone)]
pub struct PathPolicy {
    /// Prefix in whole components, without a trailing slash.
    pub(super) prefix: Box<[u8]>,
    /// Route with the target: the route with the longest prefix.
    route: Option<Arc<Route>>,
    /// Routes with a guard or a limit of the methods, in the order of the configuration.
    guards: Box<[Arc<Route>]>,
    /// Routes with a server for forward authentication, in the order of the configuration.
    auths: Box<[Arc<Route>]>,
    /// Routes that run files of the site, the longest prefix first.
    scripts: Box<[Arc<Route>]>,
    /// End of `try` of the route with the longest prefix that has one.
    try_end: Option<Arc<TryEnd>>,
    /// Request rules, the longest prefix first.
    rules: Box<[Arc<PathRule>]>,
}

impl PathPolicy {
    pub(super) fn new(prefix: &[u8], routes: &[Arc<Route>], rules: &RequestRules) -> PathPolicy {
        let covering = || routes.iter().filter(|route| route.covers(prefix));
        let length = |route: &&Arc<Route>| route.prefix.len();
        let scripts = covering().filter(|route| route.scripts.is_some()).cloned();
        // Among routes with the same prefix, the last route of the configuration counts.
        let mut scripts: Vec<_> = scripts.collect();
        scripts.reverse();
        scripts.sort_by_key(|route| std::cmp::Reverse(route.prefix.len()));
        let turned_off = covering().filter(|route| matches!(route.auth, RouteAuth::Off));
        let turned_off = turned_off.map(|route| route.prefix.len()).max();
        let asks = |route: &&Arc<Route>| {
            let is_covered = turned_off.is_some_and(|length| route.prefix.len() <= length);
            matches!(route.auth, RouteAuth::By(_)) && !is_covered
        };
        PathPolicy {
            auths: covering().filter(asks).cloned().collect(),
            prefix: prefix.into(),
            route: covering()
                .filter(|route| route.target.is_some())
                .max_by_key(length)
                .cloned(),
            guards: covering()
                .filter(|route| route.has_guard())
                .cloned()
                .collect(),
            scripts: scripts.into(),
            try_end: covering()
                .filter(|route| route.try_end.is_some())
                .max_by_key(length)
                .and_then(|route| route.try_end.clone()),
            rules: rules.covering(prefix).cloned().collect(),
        }
    }

    /// Returns the route with the target.
    pub fn route(&self) -> Option<&Route> {
        self.route.as_deref()
    }

    /// Returns the target for `path`, and the path after the prefix of the route.
    pub(crate) fn target<'p>(&self, path: &'p [u8]) -> Option<(&RouteTarget, &'p [u8])> {
        let route = self.route.as_ref()?;
        Some((route.target.as_ref()?, &path[route.prefix.len()..]))
    }

    /// Returns every route with a guard or a limit of the methods.
    pub(crate) fn guards(&self) -> impl Iterator<Item = &Route> {
        self.guards.iter().map(|route| &**route)
    }

    /// Returns true if a server for forward authentication is asked.
    #[inline]
    pub(crate) fn asks_servers(&self) -> bool {
        !self.auths.is_empty()
    }

    /// Returns every route that asks a server for forward authentication, with the server.
    pub(crate) fn auths(&self) -> impl Iterator<Item = (&Route, &Arc<ForwardAuth>)> {
        self.auths.iter().filter_map(|route| match &route.auth {
            RouteAuth::By(auth) => Some((&**route, auth)),
            RouteAuth::Inherited | RouteAuth::Off => None,
        })
    }

    /// Returns the rule that runs the file at `path` of the site; `None` for a file to be sent. The route with the longest
    /// prefix wins.
    pub(crate) fn scripts(&self, path: &[u8]) -> Option<&SiteScripts> {
        let mut scripts = self
            .scripts
            .iter()
            .filter_map(|route| route.scripts.as_ref());
        scripts.find(|scripts| {
            let mut endings = scripts.endings.iter();
            endings.any(|ending| has_ending(path, ending))
        })
    }

    /// Returns the end of `try` of a route.
    pub(super) fn try_end(&self) -> Option<&TryEnd> {
        self.try_end.as_deref()
    }

    /// Returns true if both policies have the same route and the same guards.
    pub(super) fn is_alike(&self, other: &PathPolicy) -> bool {
        let same = |(one, other): (&Arc<Route>, &Arc<Route>)| Arc::ptr_eq(one, other);
        let is_same_route = match (&self.route, &other.route) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        is_same_route
            && self.guards.len() == other.guards.len()
            && self.guards.iter().zip(&other.guards).all(same)
    }

    /// Returns the cross-origin access, by the longest prefix.
    pub(crate) fn cors(&self) -> Option<&CorsRule> {
        self.rules.iter().find_map(|rule| rule.cors.as_ref())
    }

    /// Returns the largest content of a request, by the longest prefix.
    fn body_bytes(&self) -> Option<u64> {
        self.rules.iter().find_map(|rule| rule.body_bytes)
    }

    /// Returns the largest content of a request for the path `asked` that a path with this policy answers, as far as the
    /// rule does not cover `asked` as well: there a longer prefix may have replaced the size.
    pub(crate) fn body_bytes_apart(&self, asked: &[u8]) -> Option<u64> {
        let rule = self.rules.iter().find(|rule| rule.body_bytes.is_some())?;
        rule.body_bytes.filter(|_| !is_below(asked, &rule.prefix))
    }

    /// Returns every request rate. Rates of several routes add up, as guards do.
    fn rates(&self) -> impl Iterator<Item = &ClientRate> {
        self.rules.iter().filter_map(|rule| rule.rate.as_deref())
    }
}

/// Returns the cross-origin access of a path by the policies of all its readings, the path itself last. If an application
/// may read the path as a path with another access, there is none.
pub(crate) fn shared_cors<'p>(policies: &[&'p PathPolicy]) -> Option<&'p CorsRule> {
    let (policy, others) = policies.split_last()?;
    let cors = policy.cors()?;
    let is_same = |other: &CorsRule| std::ptr::eq(other, cors);
    let mut others = others.iter();
    others
        .all(|other| other.cors().is_some_and(is_same))
        .then_some(cors)
}

/// Returns the largest content of a request by the policies of all readings of its path. Among several readings the
/// smallest size counts, and `usual` is the size for readings without a rule.
pub(crate) fn smallest_body_bytes(policies: &[&PathPolicy], usual: u64) -> Option<u64> {
    match policies {
        [policy] => policy.body_bytes(),
        _ => {
            let sizes = policies.iter().map(|policy| policy.body_bytes());
            sizes.map(|bytes| bytes.unwrap_or(usual)).min()
        }
    }
}

/// Takes a token of the client for each rate of the policies. The rates are added to `met`. A rate in `met`, and each of
/// the first `counted` rates of `met`, has counted the request.
///
/// # Errors
/// The client is over a rate. The error is the longest wait in milliseconds. No rate has taken a token.
pub(crate) fn take_rates<'p>(
    policies: &[&'p PathPolicy],
    client: ClientNetwork,
    now_ms: u64,
    met: &mut Vec<&'p ClientRate>,
    counted: usize,
) -> Result<(), u64> {
    let counted = counted.max(met.len());
    for rate in policies.iter().flat_map(|policy| policy.rates()) {
        if !met.iter().any(|it| std::ptr::eq(*it, rate)) {
            met.push(rate);
        }
    }
    let rates = met.get(counted..).unwrap_or_default();
    let waits = rates
        .iter()
        .filter_map(|rate| rate.peek(client, now_ms).err());
    waits.max().map_or(Ok(()), Err)?;
    // Another worker may have taken the last token since, and then this request is refused as well.
    rates.iter().try_for_each(|rate| rate.take(client, now_ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::client_rate::RateLimit;
    use crate::world::RouteTable;
    use std::net::IpAddr;

    fn rule(prefix: &str, body_bytes: Option<u64>, burst: Option<u32>) -> PathRule {
        let rate = burst.map(|burst| {
            Arc::new(ClientRate::new(RateLimit {
                requests: 1,
                period_ms: 1_000 * u64::from(burst),
                burst,
            }))
        });
        PathRule {
            prefix: prefix.as_bytes().into(),
            rate,
            cors: None,
            body_bytes,
        }
    }

    fn table<const N: usize>(rules: [PathRule; N]) -> RouteTable {
        RouteTable::new(Vec::new(), RequestRules::new(rules))
    }

    #[test]
    fn the_longest_path_decides_about_the_size() {
        let rules = [
            rule("", Some(1), None),
            rule("/a/b", Some(3), None),
            rule("/a", Some(2), None),
            rule("/a/b/c", None, Some(1)),
            rule("/none", None, None),
        ];
        let rules = table(rules);
        let sizes = ["/", "/ab", "/a", "/a/x", "/a/b", "/a/b/c", "/a/bc"];
        let sizes = sizes.map(|path| rules.policy(path.as_bytes()).body_bytes());
        assert_eq!(sizes, [1, 1, 2, 2, 3, 3, 2].map(Some));
        assert!(
            rules.rules().rate_at(b"/a/b/c").is_some() && rules.rules().rate_at(b"/a/b").is_none()
        );
        assert!(RequestRules::new([rule("/a", None, None)]).is_empty());
    }

    #[test]
    fn rates_add_up_and_a_refused_request_takes_nothing() {
        let rules = [rule("", None, Some(5)), rule("/a", None, Some(2))];
        let rules = table(rules);
        let client = ClientNetwork::from(IpAddr::from([192, 0, 2, 1]));
        let take = |path: &str| {
            take_rates(
                &[rules.policy(path.as_bytes())],
                client,
                0,
                &mut Vec::new(),
                0,
            )
        };
        assert_eq!((take("/a"), take("/a")), (Ok(()), Ok(())));
        assert_eq!((take("/a"), take("/a/b")), (Err(2_000), Err(2_000)));
        assert_eq!((take("/"), take("/"), take("/")), (Ok(()), Ok(()), Ok(())));
        // The longest wait is told.
        assert_eq!((take("/"), take("/a")), (Err(5_000), Err(5_000)));
    }

    #[test]
    fn each_rate_counts_a_request_with_several_paths_once() {
        let rules = ["", "/a", "/b"].map(|prefix| rule(prefix, None, Some(2)));
        let rules = table(rules);
        let client = ClientNetwork::from(IpAddr::from([192, 0, 2, 1]));
        let ask = |paths: &[&str], counted: usize| {
            let mut met = Vec::new();
            let taken = paths.iter().try_for_each(|path| {
                take_rates(
                    &[rules.policy(path.as_bytes())],
                    client,
                    0,
                    &mut met,
                    counted,
                )
            });
            (taken, met.len())
        };
        assert_eq!(ask(&["/a", "/a/b", "/b"], 0), (Ok(()), 3));
        // The next dispatch of the request, which meets one more rate.
        assert_eq!(ask(&["/a", "/b"], 2), (Ok(()), 3));
        assert_eq!(ask(&["/a"], 0), (Ok(()), 2));
        assert_eq!(ask(&["/a"], 2), (Ok(()), 2));
        assert_eq!(ask(&["/b"], usize::MAX), (Ok(()), 2));
        assert_eq!(ask(&["/b"], 0), (Err(2_000), 2));
    }

    #[test]
    fn a_size_of_another_path_counts_unless_a_longer_prefix_replaces_it() {
        let rules = [
            rule("", Some(1), None),
            rule("/big", Some(9), None),
            rule("/form", Some(3), None),
        ];
        let rules = table(rules);
        let apart = |path: &str, asked: &str| {
            rules
                .policy(path.as_bytes())
                .body_bytes_apart(asked.as_bytes())
        };
        assert_eq!(apart("/form", "/other"), Some(3));
        assert_eq!(apart("/form", "/form/x"), None);
        assert_eq!(apart("/index.php", "/big"), None);
    }
}
