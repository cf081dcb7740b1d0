//! Complete configuration: the settings of all tables.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use toml::Spanned;

use crate::config::balancer::BalancerConfig;
use crate::config::error::OperatorError;
use crate::config::log_table::LogConfig;
use crate::config::manager_table::ManagerConfig;
use crate::config::paths::DefaultPaths;
use crate::config::proxy_table::BalancerRef;
use crate::config::route_table::TargetConfig;
use crate::config::server_table::ServerConfig;
use crate::config::site_table::SiteConfig;
use crate::config::source_files::SourceFiles;
use crate::config::tls_table::TlsConfig;

/// Complete configuration, with all defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Absolute path of the file; `None` for a folder served without a file.
    pub path: Option<PathBuf>,
    /// Absolute folder that relative paths are resolved against.
    pub folder: PathBuf,
    /// Name of the file as the operator typed the name, for messages.
    pub shown: String,
    /// Texts of all files, indexed by the spans.
    pub source: Arc<SourceFiles>,
    /// Doubtful settings found while the files were read.
    pub doubts: Vec<OperatorError>,
    /// Settings of `[server]`.
    pub server: ServerConfig,
    /// Settings of `[log]`.
    pub log: LogConfig,
    /// Settings of `[tls]`.
    pub tls: TlsConfig,
    /// Sites (`[[site]]`) in the order of the file; at least one.
    pub sites: Vec<SiteConfig>,
    /// Balancers (`[[balancer]]`) in the order of the file, each with its own name.
    pub balancers: Vec<BalancerConfig>,
    /// Settings of `[manager]`; `None` = no manager.
    pub manager: Option<ManagerConfig>,
}

impl Config {
    /// Returns an error that points at `span` of the file. An empty span, for a default or an option of the
    /// command line, shows no line.
    pub(crate) fn point(
        &self,
        span: Range<usize>,
        what: impl Into<String>,
        help: impl Into<String>,
    ) -> OperatorError {
        match &self.path {
            Some(_) => self.source.error(span, what, help),
            None => OperatorError::new(what).help(help),
        }
    }

    /// Returns the balancers of the file, then the balancers of routes with `proxy`.
    pub(crate) fn all_balancers(&self) -> impl Iterator<Item = &BalancerConfig> {
        let own = self.sites.iter().flat_map(SiteConfig::own_balancers);
        self.balancers.iter().chain(own)
    }

    /// Returns the user files of the manager with their keys.
    pub(crate) fn manager_files(&self) -> impl Iterator<Item = (&'static str, &Spanned<PathBuf>)> {
        self.manager.iter().flat_map(ManagerConfig::user_files)
    }

    /// Returns true if any address of the server speaks TLS.
    pub(crate) fn uses_tls(&self) -> bool {
        let manager = self.manager.as_ref();
        let mut own = self.sites.iter().flat_map(SiteConfig::secure_addresses);
        !self.server.https.is_empty()
            || own.next().is_some()
            || manager.is_some_and(ManagerConfig::uses_tls)
    }

    /// Returns the state file with the edits of the balancers. Another configuration with the same state
    /// folder has another file.
    pub(crate) fn edits_file(&self) -> PathBuf {
        let path = self.path.as_ref().unwrap_or(&self.folder);
        let name = DefaultPaths::of(path).edits_name();
        self.server.state.get_ref().join(name)
    }

    /// Returns the balancers of routes with `proxy`, each with the name of the balancer in the World.
    pub(crate) fn own_balancers(&self) -> impl Iterator<Item = (String, &BalancerConfig)> {
        self.sites.iter().flat_map(|site| {
            site.routes.iter().filter_map(|route| {
                let Some(TargetConfig::Proxy(proxy)) = &route.target else {
                    return None;
                };
                let BalancerRef::Own(balancer) = &proxy.balancer else {
                    return None;
                };
                Some((site.own_balancer_name(route.path.get_ref()), &**balancer))
            })
        })
    }

    /// Returns the HTTPS port in the URLs of redirects, as far as the configuration alone determines the
    /// port.
    pub(crate) fn https_port(&self) -> Option<u16> {
        let first = self
            .server
            .https
            .first()
            .map(|a| a.get_ref().address.port());
        self.server.public_port.or(first)
    }
}
