//! Rules of a site that depend on more than the path of a request: request rates, cross-origin access, and the largest
//! content of a request. A site without such rules has none of the look-ups.

use crate::ledger::client_rate::ClientRate;
use crate::world::cors::CorsRule;
use crate::world::secure_fields::SecureFields;
use std::sync::Arc;
use wire::request_target::is_below;

/// Rules of a site, the rule of the longest prefix first.
#[derive(Clone, Default)]
pub struct RequestRules(Box<[Arc<PathRule>]>);

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
    /// Makes the rules of a site.
    pub fn new(rules: impl IntoIterator<Item = PathRule>) -> RequestRules {
        let mut sorted: Vec<Arc<PathRule>> = Vec::new();
        for rule in rules.into_iter().filter(|rule| !rule.is_empty()) {
            let longer = |other: &Arc<PathRule>| other.prefix.len() >= rule.prefix.len();
            sorted.insert(sorted.partition_point(longer), Arc::new(rule));
        }
        RequestRules(sorted.into())
    }

    /// Returns the rules with the fields of another site.
    pub(crate) fn with_fields(&self, site: &SecureFields) -> RequestRules {
        let cors = |cors: &CorsRule| CorsRule::new(cors.settings().clone(), site);
        let rules = self.0.iter().map(|rule| PathRule {
            cors: rule.cors.as_ref().map(cors),
            ..PathRule::clone(rule)
        });
        RequestRules(rules.map(Arc::new).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn prefixes(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|rule| &*rule.prefix)
    }

    /// Returns true if a rule concerns the path of the file or handler that answers, and not only the requested path.
    pub(super) fn has_limits(&self) -> bool {
        let mut rules = self.0.iter();
        rules.any(|rule| rule.rate.is_some() || rule.body_bytes.is_some())
    }

    /// Returns the rate of the rule with exactly this prefix.
    pub fn rate_at(&self, prefix: &[u8]) -> Option<&Arc<ClientRate>> {
        let mut at = self.0.iter().filter(|rule| *rule.prefix == *prefix);
        at.find_map(|rule| rule.rate.as_ref())
    }

    /// Returns the rules of a path.
    pub(super) fn covering(&self, path: &[u8]) -> impl Iterator<Item = &Arc<PathRule>> {
        self.0
            .iter()
            .filter(move |rule| is_below(path, &rule.prefix))
    }
}
