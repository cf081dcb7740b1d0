//! Rules of a site that depend on more than the path of a request: request rates, cross-origin access, and the largest
//! content of a request. A site without such rules has none of the look-ups.

use crate::ledger::client_rate::ClientRate;
use crate::world::cors::CorsRule;
use crate::world::secure_fields::SecureFields;
use base::client_network::ClientNetwork;
use std::sync::Arc;
use wire::path_readings::PathReadings;
use wire::request_target::is_below;

/// Rules of a site, the rule of the longest prefix first.
#[derive(Clone)]
pub struct RequestRules(Box<[PathRule]>);

/// Rules for the paths below a prefix.
#[derive(Clone)]
pub struct PathRule {
    /// Prefix of the decoded path in whole components, without a trailing slash. Empty = all paths.
    pub prefix: Box<[u8]>,
    /// Request rate of each client.
    pub rate: Option<Arc<ClientRate>>,
    /// Cross-origin access.
    pub cors: Option<CorsRule>,
    /// Largest content of a request to a handler in bytes.
    pub body_bytes: Option<u64>,
}

impl PathRule {
    /// Returns true for a rule that changes nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.rate.is_none() && self.cors.is_none() && self.body_bytes.is_none()
    }
}

impl RequestRules {
    /// Makes the rules of a site; `None` without rules.
    pub fn new(rules: impl IntoIterator<Item = PathRule>) -> Option<RequestRules> {
        let mut sorted: Vec<PathRule> = Vec::new();
        for rule in rules.into_iter().filter(|rule| !rule.is_empty()) {
            let longer = |other: &PathRule| other.prefix.len() >= rule.prefix.len();
            sorted.insert(sorted.partition_point(longer), rule);
        }
        (!sorted.is_empty()).then(|| RequestRules(sorted.into()))
    }

    /// Returns the rules with the fields of another site.
    pub(crate) fn with_fields(&self, site: &SecureFields) -> RequestRules {
        let rules = self.0.iter().map(|rule| PathRule {
            cors: rule
                .cors
                .as_ref()
                .map(|cors| CorsRule::new(cors.settings().clone(), site)),
            ..rule.clone()
        });
        RequestRules(rules.collect())
    }

    /// Returns the cross-origin access of a path, by the longest prefix. If an application may read the path as a path
    /// with another access, there is none.
    pub(crate) fn cors(&self, path: &[u8], readings: Option<&PathReadings>) -> Option<&CorsRule> {
        let of_one = |path| self.covering(path).find_map(|rule| rule.cors.as_ref());
        let cors = of_one(path)?;
        let is_same = |path| of_one(path).is_some_and(|other| std::ptr::eq(other, cors));
        let mut readings = readings.into_iter().flat_map(PathReadings::iter);
        readings.all(is_same).then_some(cors)
    }

    /// Returns the largest content of a request for a path, by the longest prefix. Among several readings of the path the
    /// smallest size counts, and `usual` is the size for readings without a rule.
    pub(crate) fn body_bytes(
        &self,
        path: &[u8],
        readings: Option<&PathReadings>,
        usual: u64,
    ) -> Option<u64> {
        let of_one = |path| self.covering(path).find_map(|rule| rule.body_bytes);
        match readings {
            None => of_one(path),
            Some(readings) => {
                let sizes = readings.iter().chain([path]).map(of_one);
                sizes.map(|bytes| bytes.unwrap_or(usual)).min()
            }
        }
    }

    /// Returns the largest content of a request for the path `asked` that is answered by `path`, as far as the rule does
    /// not cover `asked` as well: there a longer prefix may have replaced the size.
    pub(crate) fn body_bytes_apart(&self, path: &[u8], asked: &[u8]) -> Option<u64> {
        let mut sized = self.covering(path).filter(|rule| rule.body_bytes.is_some());
        let rule = sized.next()?;
        rule.body_bytes.filter(|_| !is_below(asked, &rule.prefix))
    }

    /// Returns true if a rule concerns the path of the file or handler that answers, and not only the requested path.
    pub fn has_limits(&self) -> bool {
        let mut rules = self.0.iter();
        rules.any(|rule| rule.rate.is_some() || rule.body_bytes.is_some())
    }

    /// Takes a token of the client for each rate that covers one of the paths. Rates of several routes add up, as guards
    /// do. The rates are added to `met`. A rate in `met`, and each of the first `counted` rates of `met`, has counted the request.
    ///
    /// # Errors
    /// The client is over a rate. The error is the longest wait in milliseconds. No rate has taken a token.
    pub(crate) fn take<'r>(
        &'r self,
        paths: &[&[u8]],
        client: ClientNetwork,
        now_ms: u64,
        met: &mut Vec<&'r ClientRate>,
        counted: usize,
    ) -> Result<(), u64> {
        let counted = counted.max(met.len());
        let rules = paths.iter().flat_map(|path| self.covering(path));
        for rate in rules.filter_map(|rule| rule.rate.as_deref()) {
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

    /// Returns the rate of the rule with exactly this prefix.
    pub fn rate_at(&self, prefix: &[u8]) -> Option<&Arc<ClientRate>> {
        let mut at = self.0.iter().filter(|rule| *rule.prefix == *prefix);
        at.find_map(|rule| rule.rate.as_ref())
    }

    fn covering<'r>(&'r self, path: &[u8]) -> impl Iterator<Item = &'r PathRule> {
        self.0
            .iter()
            .filter(move |rule| is_below(path, &rule.prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::client_rate::RateLimit;
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

    #[test]
    fn the_longest_path_decides_about_the_size() {
        let rules = [
            rule("", Some(1), None),
            rule("/a/b", Some(3), None),
            rule("/a", Some(2), None),
            rule("/a/b/c", None, Some(1)),
            rule("/none", None, None),
        ];
        let rules = RequestRules::new(rules).expect("rules");
        let sizes = ["/", "/ab", "/a", "/a/x", "/a/b", "/a/b/c", "/a/bc"];
        let sizes = sizes.map(|path| rules.body_bytes(path.as_bytes(), None, 0));
        assert_eq!(sizes, [1, 1, 2, 2, 3, 3, 2].map(Some));
        assert!(rules.rate_at(b"/a/b/c").is_some() && rules.rate_at(b"/a/b").is_none());
        assert!(RequestRules::new([rule("/a", None, None)]).is_none());
    }

    #[test]
    fn rates_add_up_and_a_refused_request_takes_nothing() {
        let rules = [rule("", None, Some(5)), rule("/a", None, Some(2))];
        let rules = RequestRules::new(rules).expect("rules");
        let client = ClientNetwork::from(IpAddr::from([192, 0, 2, 1]));
        let take = |path: &str| rules.take(&[path.as_bytes()], client, 0, &mut Vec::new(), 0);
        assert_eq!((take("/a"), take("/a")), (Ok(()), Ok(())));
        assert_eq!((take("/a"), take("/a/b")), (Err(2_000), Err(2_000)));
        assert_eq!((take("/"), take("/"), take("/")), (Ok(()), Ok(()), Ok(())));
        // The longest wait is told.
        assert_eq!((take("/"), take("/a")), (Err(5_000), Err(5_000)));
    }

    #[test]
    fn each_rate_counts_a_request_with_several_paths_once() {
        let rules = ["", "/a", "/b"].map(|prefix| rule(prefix, None, Some(2)));
        let rules = RequestRules::new(rules).expect("rules");
        let client = ClientNetwork::from(IpAddr::from([192, 0, 2, 1]));
        let ask = |paths: &[&str], counted: usize| {
            let mut met = Vec::new();
            let taken = paths
                .iter()
                .try_for_each(|path| rules.take(&[path.as_bytes()], client, 0, &mut met, counted));
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
        let rules = RequestRules::new(rules).expect("rules");
        let apart =
            |path: &str, asked: &str| rules.body_bytes_apart(path.as_bytes(), asked.as_bytes());
        assert_eq!(apart("/form", "/other"), Some(3));
        assert_eq!(apart("/form", "/form/x"), None);
        assert_eq!(apart("/index.php", "/big"), None);
    }
}
