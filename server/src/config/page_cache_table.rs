//! `cache` and `compress` of a route: the page cache for the responses of a handler, and their compression.

use toml::Spanned;

use crate::config::declared_table::{DeclaredTable, ShownValue, declare_table};
use crate::config::error::OperatorError;
use crate::config::file_rules::{CacheControlConfig, CacheRules, HASHED};
use crate::config::limits::CONFIG_COOKIE_GLOBS_MAX;
use crate::config::toml_reader::{FromToml, KeyedValue, SourceText};
use crate::config::value_types::{ByteSize, Seconds, seconds_of};
use data_plane::handler::compression::CompressionRule;
use data_plane::limits::CACHE_PAGE_BYTES;
use release::glob::Glob;
use wire::cache_control::SECONDS_MAX;

/// Default of `stale_if_error` in seconds, for a route with `seconds`: the time for which a stored page
/// replaces the response of a failing handler.
pub const STALE_IF_ERROR_SECONDS: u64 = 3_600;
/// Longest lifetime of a stored page.
const LONGEST: Seconds = Seconds(SECONDS_MAX);

declare_table! {
    /// Keys of `cache` of a route.
    pub(super) struct PageCacheTable: "the table `cache`" {
        /// Lifetime of a response without an explicit lifetime.
        seconds: Seconds = optional("none"), within(Seconds(1), LONGEST), also ["max_age", "ttl", "proxy_cache_valid"],
            example "10";
        /// Use of an old page while a new page is made.
        stale_while_revalidate: Seconds = optional("as `seconds`"), within(Seconds(0), LONGEST), example "30";
        /// Use of an old page while the handler fails.
        stale_if_error: Seconds = optional("`\"1h\"` with `seconds`"), within(Seconds(0), LONGEST),
            example "\"1d\"";
        /// Maximum size of a stored content.
        page_bytes: ByteSize = default(ByteSize(CACHE_PAGE_BYTES)), within(ByteSize(1), ByteSize(u64::MAX)),
            example "\"4MiB\"";
        /// `true`: pages do not depend on `Cookie`.
        ignore_cookies: bool = default(false), example "true";
        /// Names or patterns of the cookies with which a request gets a page of its own, past the cache; pages depend on no
        /// other cookie. Not with `ignore_cookies`.
        bypass_cookies: CookieGlobs = optional("none"),
            also ["cookies", "no_cache_cookies", "personal_cookies"], example "[\"wordpress_logged_in_*\"]";
        /// `true`: pages are kept over a restart.
        disk: bool = default(false), example "true";
    }
}

/// Settings of the page cache (`cache` of a route).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageCacheConfig {
    /// Freshness lifetime in seconds of a response without one; `None` = the response is not stored.
    pub seconds: Option<u64>,
    /// Seconds after the freshness lifetime for which a page is served while the handler makes a new page.
    pub stale_while_revalidate: u64,
    /// Seconds after the freshness lifetime for which a page is served while the handler fails.
    pub stale_if_error: u64,
    /// Maximum size of the content of a stored response in bytes.
    pub page_bytes: u64,
    /// Whether pages are the same for all clients, independent of the Cookie field.
    pub ignore_cookies: bool,
    /// Patterns of the names of cookies with which a request passes the cache by; empty without the key.
    pub bypass_cookies: Vec<String>,
    /// Whether pages are stored on disk and survive a restart.
    pub disk: bool,
}

/// Value of `cache` of a route: the page cache by a boolean or a table with settings, or rules for the `Cache-Control` of
/// files, as in a site.
#[derive(Clone, Debug)]
pub(super) enum PageCacheChoice {
    /// Page cache; `None` for `false`.
    Pages(Option<PageCacheTable>),
    /// Rules for files.
    Files(Vec<CacheControlConfig>),
}

impl FromToml for PageCacheChoice {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let value = item.value.get_ref();
        let is_rule = value.as_table().is_some_and(|it| it.contains_key("files"));
        match value.as_bool() {
            Some(false) => Ok(PageCacheChoice::Pages(None)),
            Some(true) => Ok(PageCacheChoice::Pages(Some(PageCacheTable::read_empty(
                item.source,
            )?))),
            None if is_rule || value.is_array() || item.text() == Some(HASHED) => {
                CacheRules::read(item).map(|rules| PageCacheChoice::Files(rules.0))
            }
            None if !item.value.get_ref().is_table() => {
                let text = item.text().unwrap_or_default();
                let example = match seconds_of(text) {
                    Some(_) => format!("{{ seconds = \"{text}\" }}"),
                    None => "{ seconds = 10 }".to_owned(),
                };
                Err(item.mistyped("true, a table or a list of rules", &example))
            }
            None => {
                let source = item.source;
                let table = PageCacheTable::read(item)?;
                refuse_both_rules(source, &table)?;
                Ok(PageCacheChoice::Pages(Some(table)))
            }
        }
    }
}

/// Refuses two rules about cookies that contradict each other.
fn refuse_both_rules(source: &SourceText<'_>, table: &PageCacheTable) -> Result<(), OperatorError> {
    match &table.bypass_cookies {
        Some(globs) if *table.ignore_cookies.get_ref() => {
            let what =
                "`bypass_cookies` has no effect, because `ignore_cookies` ignores every cookie";
            let help = "remove `ignore_cookies`: cookies without a pattern in `bypass_cookies` are ignored";
            Err(source.error(globs.span(), what, help))
        }
        _ => Ok(()),
    }
}

/// Value of `bypass_cookies`: patterns of the names of cookies.
#[derive(Clone, Debug)]
pub(super) struct CookieGlobs(Vec<String>);

impl FromToml for CookieGlobs {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let value = item.value.get_ref();
        if !value.is_array() && !value.is_str() {
            return Err(item.mistyped("a list of names or patterns", COOKIE_GLOBS_EXAMPLE));
        }
        let (source, span) = (item.source, item.value.span());
        let globs = source.all(item.items().into_iter().map(cookie_glob))?;
        if globs.is_empty() {
            let what = "`bypass_cookies` has no name";
            let help = format!(
                "write the names of the cookies of a login, such as {COOKIE_GLOBS_EXAMPLE}; for pages without any \
                 cookie write ignore_cookies = true"
            );
            return Err(source.error(span, what, help));
        }
        if globs.len() > CONFIG_COOKIE_GLOBS_MAX {
            let what = format!("`bypass_cookies` has more than {CONFIG_COOKIE_GLOBS_MAX} patterns");
            let help = "join patterns with braces: \"{cart,session,wordpress_logged_in_*}\"";
            return Err(source.error(span, what, help));
        }
        Ok(CookieGlobs(globs))
    }
}

/// Reads the name or the pattern of a cookie.
fn cookie_glob(item: KeyedValue<'_, '_>) -> Result<String, OperatorError> {
    let Some(text) = item.text().map(str::to_owned) else {
        return String::read(item);
    };
    if text.starts_with(['^', '~']) || text.contains(['(', '|', '$']) {
        let what = format!("`{text}` is a regular expression, not a pattern");
        return Err(item.refuse(
            what,
            format!("write patterns with `*`: {COOKIE_GLOBS_EXAMPLE}"),
        ));
    }
    if text.contains(['=', ';', ',', ' ', '/']) && !text.contains('{') {
        let what = format!("`{text}` is not the name of a cookie");
        let name = text
            .split(['=', ';', ',', ' ', '/'])
            .find(|name| !name.is_empty());
        let name = name.unwrap_or("session");
        return Err(item.refuse(what, format!("write the name alone: \"{name}\"")));
    }
    match Glob::parse(&text) {
        Ok(_) if text.chars().all(|sign| sign == '*') => {
            let what = format!(
                "`{text}` stands for every cookie, so each request with a cookie passes the cache by"
            );
            Err(item.refuse(what, format!("write names: {COOKIE_GLOBS_EXAMPLE}")))
        }
        Ok(_) => Ok(text),
        Err(error) => {
            let what = format!("the pattern `{text}` is invalid: {}", error.what);
            Err(item.refuse(
                what,
                "`*` stands for any part of a name, `?` for one character, `{a,b}` for a or b",
            ))
        }
    }
}

/// Example of a value of `bypass_cookies`.
const COOKIE_GLOBS_EXAMPLE: &str = "[\"wordpress_logged_in_*\", \"comment_author_*\"]";

/// Value of `compress` of a route: a boolean, or the word `always`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CompressionChoice(pub(super) CompressionRule);

impl FromToml for CompressionChoice {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let value = item.value.get_ref();
        Ok(CompressionChoice(match (value.as_bool(), item.text()) {
            (Some(true), _) => CompressionRule::Texts,
            (Some(false), _) => CompressionRule::Never,
            (None, Some("always")) => CompressionRule::Always,
            (None, Some(text)) => {
                let what = format!("`{}` can't be \"{text}\"", item.key);
                return Err(item.refuse(what, format!("write {COMPRESSION_HELP}")));
            }
            (None, None) => {
                let error = item.mistyped("true, false or \"always\"", "\"always\"");
                return Err(error.help(format!("for example {COMPRESSION_HELP}")));
            }
        }))
    }
}

impl ShownValue for CompressionChoice {
    fn shown(&self) -> String {
        match self.0 {
            CompressionRule::Texts => "true",
            CompressionRule::Never => "false",
            CompressionRule::Always => "\"always\"",
        }
        .to_owned()
    }
}

/// Help for a word that is no rule of compression.
const COMPRESSION_HELP: &str = "compress = false for no compression, or compress = \"always\" to compress also \
     pages for one user; texts are compressed without the key";

impl PageCacheChoice {
    /// Returns the settings; `None` for no page cache.
    pub(super) fn settings(self) -> Option<PageCacheConfig> {
        let PageCacheChoice::Pages(table) = self else {
            return None;
        };
        let table = table?;
        let seconds = |key: Option<Spanned<Seconds>>| key.map(|seconds| seconds.get_ref().0);
        let fresh = seconds(table.seconds);
        Some(PageCacheConfig {
            seconds: fresh,
            // Defaults of a route with `seconds`: while the handler makes a new page, the old page may be
            // served for another freshness lifetime. While the handler fails, the old page may be served for
            // one hour after the freshness lifetime, since an old page is better than an error.
            stale_while_revalidate: seconds(table.stale_while_revalidate)
                .unwrap_or(fresh.unwrap_or(0)),
            stale_if_error: seconds(table.stale_if_error)
                .unwrap_or(fresh.map_or(0, |_| STALE_IF_ERROR_SECONDS)),
            page_bytes: table.page_bytes.get_ref().0,
            ignore_cookies: table.ignore_cookies.into_inner(),
            bypass_cookies: table
                .bypass_cookies
                .map_or_else(Vec::new, |globs| globs.into_inner().0),
            disk: table.disk.into_inner(),
        })
    }
}
