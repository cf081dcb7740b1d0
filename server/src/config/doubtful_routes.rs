//! Settings about files that take the files away: a `try` without the path of the request, keys about files where a handler
//! answers, and patterns of `hide` with a typing error.

use crate::config::configuration::Config;
use crate::config::error::OperatorError;
use crate::config::guard_checks::{covers, similar_path};
use crate::config::route_table::{RouteConfig, TargetConfig};
use crate::config::site_table::SiteConfig;
use crate::config::useless_settings::{key_of, own_files};

/// Returns the warnings of settings that take files away.
pub(super) fn doubtful_routes(config: &Config) -> Vec<OperatorError> {
    let mut warnings = Vec::new();
    for site in &config.sites {
        let site_try = key_of(config, site, "try");
        warnings.extend(unfound_files(config, &site.try_paths, site_try));
        warnings.extend(misspelt_hide(config, site));
        for route in &site.routes {
            let paths = route.files.try_paths.as_deref().unwrap_or_default();
            let route_try = config.source.key_below(&route.span, "try");
            if !route.files_first {
                warnings.extend(unfound_files(config, paths, route_try));
            }
            warnings.extend(answered_elsewhere(config, site, route));
        }
    }
    warnings
}

/// Warns of a `try` without the path of the request: not even a file with the path of the request is found.
fn unfound_files(
    config: &Config,
    paths: &[String],
    span: std::ops::Range<usize>,
) -> Option<OperatorError> {
    let has_variants = paths.iter().any(|path| path.contains("$path"));
    // A list of fixed pages shows these pages alone, such as during maintenance.
    if !has_variants || paths.iter().any(|path| path == "$path") {
        return None;
    }
    let list: Vec<String> = paths.iter().map(|path| format!("\"{path}\"")).collect();
    let list = list.join(", ");
    let what =
        "`try` lacks \"$path\", so no file is found by its own path, and /style.css gets 404";
    let help = format!("write try = [\"$path\", {list}]");
    Some(config.point(span, what, help))
}

/// Warns of keys about files in a route without a target, if another route answers all of its paths without files.
fn answered_elsewhere(
    config: &Config,
    site: &SiteConfig,
    route: &RouteConfig,
) -> Option<OperatorError> {
    let path = route.path.get_ref();
    let (key, span) = route
        .file_keys
        .iter()
        .find(|(key, _)| matches!(*key, "index" | "try" | "listing"))?;
    if route.target.is_some() || route.scripts.is_some() {
        return None;
    }
    let sends_files = |it: &RouteConfig| {
        it.files_first || matches!(it.target, Some(TargetConfig::Root(_))) || it.scripts.is_some()
    };
    let is_inside = |it: &&RouteConfig| covers(path, it.path.get_ref());
    if site.routes.iter().filter(is_inside).any(sends_files) {
        return None;
    }
    let fitting = site.routes.iter();
    let fitting = fitting.filter(|it| it.target.is_some() && covers(it.path.get_ref(), path));
    let other = fitting.max_by_key(|it| it.path.get_ref().trim_end_matches('/').len())?;
    if sends_files(other) {
        return None;
    }
    let place = config
        .source
        .place(other.path.span().start, route.path.span().start);
    let what = format!(
        "`{key}` of the route {path} has no effect, because the route {} in {place} answers all paths below {path}",
        other.path.get_ref()
    );
    let help = format!(
        "write root = \"FOLDER\" in the route {path} for files of a folder, or remove `{key}`"
    );
    Some(config.point(span.clone(), what, help))
}

/// Warns of a path in `hide` that the site lacks, and that is almost the path of a folder or file.
fn misspelt_hide(config: &Config, site: &SiteConfig) -> Option<OperatorError> {
    let root = own_files(config, site)?;
    site.hide.iter().find_map(|glob| {
        let path = glob.trim_matches('/');
        let is_literal = glob.contains('/') || !path.contains('.');
        if !is_literal || path.contains(['*', '?', '[', '{', '\\']) || root.join(path).exists() {
            return None;
        }
        let meant = similar_path(root, path)?;
        let what = format!("`hide` has {glob}, which the site lacks, and clients get {meant}");
        let help = format!("did you mean \"/{meant}\"?");
        Some(config.point(key_of(config, site, "hide"), what, help))
    })
}
