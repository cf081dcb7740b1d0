//! Keys of a route about files: rules in place of those of the site, for the paths of the route.

use std::ops::Range;

use toml::Spanned;

use crate::config::declared_table::declare_table;
use crate::config::error::OperatorError;
use crate::config::file_rules::{
    CacheControlConfig, ErrorPages, HeaderRules, HeadersConfig, HideGlobs,
};
use crate::config::site_paths::{FileName, RouteTryPaths};
use crate::config::toml_reader::SourceText;

declare_table! {
    /// Keys of a route about files.
    pub(super) struct RouteFileKeys: "[[site.route]]" {
        /// Files for a folder, in place of the site's `index`; see [files of a route](routes.md#files-of-a-route).
        index: Vec<FileName> = optional("the site's"), also ["DirectoryIndex"], example "[\"index.html\"]";
        /// Paths to look for, in place of the site's `try`. With `"proxy"` as the last path beside `proxy` or `balance`, a
        /// file of the site goes [first](proxy.md#files-first); `"fastcgi"`, `"scgi"` and `"cgi"` likewise.
        r#try: RouteTryPaths = optional("the site's"), example "[\"$path\", \"proxy\"]";
        /// Pages by status, before the site's; relative to the root of the site.
        errors: ErrorPages = optional("the site's"), also ["error_page", "error_pages", "handle_errors", "ErrorDocument"],
            example "{ 404 = \"not-found.html\" }";
        /// Listing of folders without index file, in place of the site's `listing`.
        listing: bool = optional("the site's"), also ["autoindex", "browse", "file_server", "directory_listing", "Indexes"],
            example "true";
        /// Added fields, besides the site's `headers`: of two values for one field, the one of the longer path applies.
        headers: HeaderRules = optional("the site's"), also ["header", "add_header", "Header"],
            example "[{ files = \"*\", set = { \"X-Robots-Tag\" = \"noindex\" } }]";
        /// Files and folders that no client gets, in place of the site's [`hide`](sites.md#hidden-files).
        hide: HideGlobs = optional("the site's"), also ["hidden", "exclude", "ignore", "deny_files"],
            example "[\"*~\", \"*.bak\"]";
    }
}

/// Rules of a route for files, in place of those of the site.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RouteFilesConfig {
    /// Names of index files in order of preference.
    pub index: Option<Vec<String>>,
    /// Paths to try in order, without the handler at the end.
    pub try_paths: Option<Vec<String>>,
    /// Error pages: a status, and a path relative to the root of the site.
    pub errors: Vec<(u16, Spanned<String>)>,
    /// Whether folders without an index file are listed.
    pub listing: Option<bool>,
    /// Rules for Cache-Control by file.
    pub cache: Vec<CacheControlConfig>,
    /// Rules for response fields by file.
    pub headers: Vec<HeadersConfig>,
    /// Globs of the files and folders that no client gets.
    pub hide: Option<Spanned<Vec<String>>>,
}

/// Position of a key of a route, of which one route alone may have a value for a path.
pub(super) type KeyPosition = (&'static str, Range<usize>);

/// Keys of a route about files as values.
pub(super) struct RouteFiles {
    /// Rules for files.
    pub(super) config: RouteFilesConfig,
    /// Keys that one route alone may set for a path.
    pub(super) keys: Vec<KeyPosition>,
    /// Key of a handler at the end of `try`.
    pub(super) handler: Option<Spanned<String>>,
}

/// Answer of a route, as far as keys about files are concerned.
pub(super) enum RouteAnswer {
    /// Files of the site, or of another folder.
    Files,
    /// Responses of the handler with the key.
    Handler(&'static str),
    /// Responses without files, such as redirects and repositories.
    Other,
}

impl RouteFileKeys {
    /// Returns the values of the keys.
    pub(super) fn read(self) -> RouteFiles {
        let spans = [
            ("index", self.index.as_ref().map(Spanned::span)),
            ("try", self.r#try.as_ref().map(Spanned::span)),
            ("listing", self.listing.as_ref().map(Spanned::span)),
            ("hide", self.hide.as_ref().map(Spanned::span)),
        ];
        let spans = spans.into_iter();
        let (try_paths, handler) = match self.r#try.map(Spanned::into_inner) {
            Some(paths) => (Some(paths.paths), paths.handler),
            None => (None, None),
        };
        let config = RouteFilesConfig {
            index: self
                .index
                .map(|names| names.into_inner().into_iter().map(|it| it.0).collect()),
            try_paths,
            errors: self
                .errors
                .map_or_else(Vec::new, |pages| pages.into_inner().0),
            listing: self.listing.map(Spanned::into_inner),
            // The key is also that of the page cache.
            cache: Vec::new(),
            headers: self
                .headers
                .map_or_else(Vec::new, |rules| rules.into_inner().0),
            hide: self
                .hide
                .map(|hide| Spanned::new(hide.span(), hide.into_inner().0)),
        };
        RouteFiles {
            config,
            keys: spans.filter_map(|(key, span)| Some((key, span?))).collect(),
            handler,
        }
    }
}

/// Refuses keys about files in a route that answers without files.
pub(super) fn refuse_useless_files(
    source: &SourceText<'_>,
    keys: &[KeyPosition],
    answer: &RouteAnswer,
    files_first: bool,
) -> Result<(), OperatorError> {
    let has_files = files_first || matches!(answer, RouteAnswer::Files);
    let is_useless = |key: &&KeyPosition| match key.0 {
        "hide" => !has_files && !matches!(answer, RouteAnswer::Handler("cgi")),
        // A wrong `try` of a handler has an error of its own.
        "try" => !has_files && !matches!(answer, RouteAnswer::Handler(_)),
        _ => !has_files,
    };
    let useless = keys.iter().filter(is_useless).cloned();
    let help = match answer {
        RouteAnswer::Handler("proxy") => {
            "remove the key; or, if files of the site go first, add try = [\"$path\", \"proxy\"]"
        }
        _ => {
            "the route sends no file of the site: remove the key, or write it in the route of the files"
        }
    };
    source.refuse_useless(useless, "in this route", help)
}

/// Refuses rules for the `Cache-Control` of files in a route that answers without files.
pub(super) fn refuse_rules_without_files(
    source: &SourceText<'_>,
    span: Range<usize>,
    answer: &RouteAnswer,
    files_first: bool,
) -> Result<(), OperatorError> {
    if files_first || matches!(answer, RouteAnswer::Files) {
        return Ok(());
    }
    let what = "a list in `cache` is for files, and this route sends no file of the site";
    let help = "remove the key; for the page cache, write cache = { seconds = 10 }";
    Err(source.error(span, what, help))
}

/// Refuses a `try` that does not end with the handler of the route, or that names another handler. `handler` is the last
/// entry.
pub(super) fn refuse_wrong_try(
    source: &SourceText<'_>,
    keys: &[KeyPosition],
    answer: &RouteAnswer,
    handler: Option<&Spanned<String>>,
) -> Result<(), OperatorError> {
    let Some((_, span)) = keys.iter().find(|(key, _)| *key == "try") else {
        return Ok(());
    };
    let own = match answer {
        RouteAnswer::Handler(key) => Some(*key),
        RouteAnswer::Files | RouteAnswer::Other => None,
    };
    match (handler, own) {
        (Some(handler), Some(own)) if handler.get_ref() == own => Ok(()),
        (None, None) => Ok(()),
        (None, Some(own)) => {
            let what = format!("`try` of a route with `{own}` must end with \"{own}\"");
            let help = format!(
                "write try = [\"$path\", \"{own}\"]: a file of the site goes first, and the handler answers for all other paths"
            );
            Err(source.error(span.clone(), what, help))
        }
        (Some(handler), _) => {
            let key = handler.get_ref();
            let what = format!("`try` ends with \"{key}\", and the route has no `{key}`");
            let help = match (own, &**key) {
                (Some(own), _) => format!("write \"{own}\" in its place"),
                (None, "proxy") => {
                    "add proxy = \"http://127.0.0.1:3000\" to the route, or remove the entry"
                        .to_owned()
                }
                (None, key) => format!("add `{key}` to the route, or remove the entry"),
            };
            Err(source.error(handler.span(), what, help))
        }
    }
}
