//! Request rules of a site: rates, cross-origin access and sizes of contents, of the site and of its routes.

use super::host::HostBuilder;
use crate::config::{OperatorError, SiteConfig, Spanned};
use data_plane::handler::route_handler::CorsPaths;
use data_plane::ledger::client_rate::{ClientRate, RateLimit};
use data_plane::world::cors::{CorsRule, CorsSettings};
use data_plane::world::request_rules::{PathRule, RequestRules};
use data_plane::world::{Host, SecureFields};
use std::sync::Arc;

impl HostBuilder<'_> {
    /// Builds the rules of the site. A rate that stays the same keeps the counts of the clients.
    pub(super) fn request_rules(
        &self,
        fields: &SecureFields,
    ) -> Result<RequestRules, OperatorError> {
        let is_this = |host: &&Arc<Host>| host.name == self.site.name;
        let former = self
            .previous
            .and_then(|world| world.hosts.iter().find(is_this));
        let former = former.map(|host| host.routes.rules());
        let mut rules: Vec<PathRule> = Vec::new();
        for config in rule_configs(self.site) {
            let prefix: Box<[u8]> = config.path.trim_end_matches('/').as_bytes().into();
            let rate = config.rate.map(|rate| {
                let limit = *rate.get_ref();
                let known = former.and_then(|rules| rules.rate_at(&prefix));
                let known = known.filter(|known| known.limit() == limit);
                known
                    .cloned()
                    .unwrap_or_else(|| Arc::new(ClientRate::new(limit)))
            });
            let mut others = rules.iter().filter(|other| other.rate.is_some());
            if let Some(second) = config.rate
                && others.any(|other| other.prefix == prefix)
            {
                let what = format!("the path {} has two rates", config.path);
                return Err(self
                    .config
                    .point(second.span(), what, "remove one of the two"));
            }
            rules.push(PathRule {
                rate,
                cors: config.cors.map(|cors| CorsRule::new(cors.clone(), fields)),
                body_bytes: config.body_bytes,
                prefix,
            });
        }
        Ok(RequestRules::new(rules))
    }
}

/// Request rules of the site or of a route.
struct RuleConfig<'c> {
    path: &'c str,
    rate: Option<&'c Spanned<RateLimit>>,
    cors: Option<&'c CorsSettings>,
    body_bytes: Option<u64>,
}

fn rule_configs(site: &SiteConfig) -> impl Iterator<Item = RuleConfig<'_>> {
    let of_site = RuleConfig {
        path: "/",
        rate: site.rate.as_ref(),
        cors: site.cors.as_ref(),
        body_bytes: None,
    };
    let of_routes = site.routes.iter().map(|route| RuleConfig {
        path: route.path.get_ref(),
        rate: route.requests.rate.as_ref(),
        cors: route.requests.cors.as_ref(),
        body_bytes: route.requests.body_bytes,
    });
    [of_site].into_iter().chain(of_routes)
}

/// Returns the prefixes of the paths with cross-origin access.
pub(super) fn cors_paths(site: &SiteConfig) -> CorsPaths {
    let with_cors = rule_configs(site).filter(|rule| rule.cors.is_some());
    let prefix = |rule: RuleConfig<'_>| rule.path.trim_end_matches('/').as_bytes().into();
    with_cors.map(prefix).collect()
}
