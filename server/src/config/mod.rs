//! Configuration: the typed form of `anthill.toml`.
//!
//! Each table of the file has a file here, with the declaration of the keys and the typed settings. `schema` reads all
//! tables, `check` looks at the files and folders that the configuration names.
//!
//! A value that a later stage may refuse, for example an address in use or a certificate that does not
//! match its key, keeps its span in the file. [`Config::point`] makes an error with the line of the value.
//! All paths are absolute. The module opens no socket and serves no file. [`check`] only reads the file
//! system.

mod acme_table;
mod auth_table;
mod balancer;
mod balancer_checks;
mod balancer_table;
mod check;
mod client_statements;
mod config_source;
mod configuration;
mod connection_table;
mod declared_table;
mod deploy_table;
mod deployments;
mod doubtful_addresses;
mod doubtful_files;
mod doubtful_routes;
mod doubtful_settings;
mod error;
mod field_variables;
mod file_rules;
mod folder_contents;
mod foreign_syntax;
mod foreign_values;
mod foreign_words;
mod git_table;
mod guard_checks;
mod included_files;
pub(crate) mod limits;
mod limits_table;
mod listen_addresses;
mod log_table;
mod managed_certificates;
mod manager_table;
mod member_url;
mod missing_paths;
mod odd_characters;
mod page_cache_table;
mod page_key;
mod paths;
mod proxy_table;
mod proxy_values;
mod redirect_table;
mod release_table;
mod request_table;
mod route_files;
mod route_table;
mod schema;
mod script_table;
mod secret_paths;
mod server_table;
mod site_listener;
mod site_paths;
mod site_table;
mod source_files;
mod syntax_errors;
mod table_relations;
mod tls_table;
mod toml_reader;
mod unix_account;
mod useless_settings;
mod value_types;
mod values;
mod variables;

#[cfg(all(test, feature = "manager"))]
mod manager_tests;
#[cfg(test)]
mod copied_text_tests;
#[cfg(test)]
mod doubtful_tests;
#[cfg(test)]
mod guard_tests;
#[cfg(test)]
mod log_tests;
#[cfg(test)]
mod message_tests;
#[cfg(test)]
mod proxy_tests;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod useless_tests;
#[cfg(test)]
mod warning_tests;

use std::path::Path;

pub use acme_table::{AcmeConfig, ChallengeType, EabConfig};
pub use auth_table::{AuthConfig, RouteAuthConfig};
pub use balancer::{BalancerConfig, read_balancer};
pub use balancer_checks::listener_of;
pub use check::{check, inspect, unreadable};
pub use config_source::{
    ConfigSource, ConfiguredLogs, ControlSockets, Overrides, configured_user, control_sockets,
    unreadable_part,
};
pub use configuration::Config;
pub use deploy_table::DeployConfig;
pub use deployments::{Deployment, DeploymentTarget, RootState, deployed_folder, inspect_root};
pub use error::OperatorError;
pub use file_rules::{CacheControlConfig, EncodingConfig, HeadersConfig, is_ending};
pub use git_table::GitConfig;
pub(crate) use log_table::ACCESS_LOG_NAME;
pub use log_table::{LogConfig, LogTarget, SiteLogConfig};
pub use managed_certificates::ManagedCertificate;
pub use manager_table::{ManagerConfig, speaks_tls};
pub use member_url::{parse_member_url, shown_url};
pub use page_cache_table::{PageCacheConfig, STALE_IF_ERROR_SECONDS};
pub(crate) use page_key::PageKey;
pub use paths::{FILE_NAME, prepare_folder, prepare_state_folder, reason};
pub use proxy_table::{BalancerRef, ProxyConfig};
pub use redirect_table::RouteRedirectConfig;
pub use release::redirect_map::MappedRedirect;
pub use release_table::ReleaseConfig;
pub use route_files::RouteFilesConfig;
#[cfg(feature = "test-handlers")]
pub use route_table::TestHandlerConfig;
pub use route_table::{RouteConfig, TargetConfig};
pub use script_table::{
    BackendAddressConfig, BackendConfig, CgiConfig, InterpreterConfig, ScriptsConfig,
};
pub use server_table::ServerConfig;
pub use site_listener::SiteListener;
pub use site_table::{DEFAULT_ROOT, HSTS_SECONDS, PlainHttp, SiteConfig, SymlinksConfig};
pub use source_files::SourceFiles;
pub use tls_table::{TlsConfig, TlsVersion};
pub use toml::Spanned;
pub use unix_account::UnixAccount;
pub use values::{ListenAddress, parse_bytes, parse_duration, parse_seconds};

/// Reads and validates a configuration file. [`check`] validates the files named in the configuration.
pub fn load(path: &Path) -> Result<Config, OperatorError> {
    schema::load(path)?.whole()
}

/// Parses the text of a configuration as the content of the file `path`. The file need not exist. The
/// function opens no file and never panics, and is therefore the entry point for fuzzing.
pub fn parse(text: &str, path: &Path) -> Result<Config, OperatorError> {
    schema::parse(text, path)?.whole()
}

/// Returns the configuration of a folder served without a file: the folder answers for every name over
/// HTTPS, and plain HTTP redirects to HTTPS.
#[cfg(test)]
pub(crate) fn guess(dir: &Path) -> Result<Config, OperatorError> {
    schema::guess(dir)?.whole()
}
