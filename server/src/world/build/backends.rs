//! FastCGI and SCGI backends of a World.

use super::resources::SharedResources;
use crate::config::{self, Config, OperatorError, Spanned};
use crate::upstream::{BackendAddress, ReusePolicy};
use crate::world::BackendReuse;
use std::sync::Arc;

/// Returns the backends of all routes, each backend once. All routes to a backend share its connections, so
/// routes with different values of `keep` are refused.
pub(super) fn backends(
    config: &Config,
    supplies: &SharedResources,
) -> Result<Vec<BackendReuse>, OperatorError> {
    let mut all: Vec<BackendReuse> = Vec::new();
    let routes = config.sites.iter().flat_map(|site| &site.routes);
    for backend in routes.filter_map(config::RouteConfig::backend) {
        let keep = ReusePolicy::from_config(backend.keep);
        let found = supplies.backends.at(&address(&backend.address), keep);
        match all.iter().find(|(other, _)| Arc::ptr_eq(other, &found)) {
            None => all.push((found, keep)),
            Some((_, other)) if *other == keep => {}
            Some((_, other)) => {
                let said = |keep| match keep {
                    ReusePolicy::Handover => "no `keep`".to_owned(),
                    ReusePolicy::Never => "`keep = 0`".to_owned(),
                    ReusePolicy::UpTo(max) => format!("`keep = {max}`"),
                };
                let what = format!(
                    "{} has {} here, and {} on another route",
                    found.address,
                    said(keep),
                    said(*other)
                );
                let help = "all routes to a backend share its connections: give them the same `keep`, or none";
                return Err(config.point(backend.address.span(), what, help));
            }
        }
    }
    Ok(all)
}

pub(super) fn address(address: &Spanned<config::BackendAddressConfig>) -> BackendAddress {
    match address.get_ref() {
        config::BackendAddressConfig::Unix(path) => BackendAddress::Unix(path.clone()),
        config::BackendAddressConfig::Tcp(address) => BackendAddress::Tcp(*address),
    }
}
