//! Keys about redirects: `redirects` and `redirect_map` of `[[site]]`, and `redirect` of a route.

use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;

use crate::config::declared_table::{ShownValue, declare_table};
use crate::config::error::OperatorError;
use crate::config::toml_reader::{FromToml, KeyedValue, SourceText};
use release::redirect_map::{self, MappedRedirect};

declare_table! {
    /// Keys of `[[site]]` about redirects.
    pub(super) struct RedirectKeys: "[[site]]" {
        /// [Redirects](#a-redirect), in order: the first with the requested path applies.
        redirects: SiteRedirects = optional("none"),
            also ["redir", "return"], example "[{ from = \"/blog/*\", to = \"/news/:splat\" }]";
        /// File with further redirects, one in each line, in the format of [`_redirects`](publishing.md#_redirects).
        redirect_map: PathBuf = optional("none"), also ["map", "RewriteMap"], example "\"redirects.txt\"";
    }
}

declare_table! {
    /// Keys of one of the `redirects`.
    pub(super) struct SiteRedirectTable: "a redirect", such as "[{ from = \"/old\", to = \"/new\" }]" {
        /// Path with initial slash, written as in a URL. `*` at the end stands for any rest of the path.
        from: String = required, also ["path", "source", "match"], example "\"/blog/*\"";
        /// Path of the site, which keeps the requested host, or URL. `:splat` stands for the match of `*`.
        to: String = optional("none, for the status 410"), also ["location", "target", "destination"],
            example "\"https://blog.example.org/:splat\"";
        /// Status: 301, 302, 303, 307 or 308; 410 for a page that is gone.
        status: u16 = default(308), also ["code"], example "301";
        /// `"keep"`: the destination gets the query of the request, unless the destination has a query. `"drop"`:
        /// the destination gets no query.
        query: QueryPolicy = default(QueryPolicy::Keep), example "\"drop\"";
        /// `true`: the redirect applies before routes and files, instead of where neither answers.
        force: bool = default(false), also ["always"], example "true";
    }
}

declare_table! {
    /// Keys of `redirect` of a route as a table.
    pub(super) struct RouteRedirectTable: "the table `redirect`", short to "a URL or a path", "\"/new/\"" {
        /// URL or path of the site. After a slash at the end, the rest of the request path is appended.
        to: String = optional("none, for the status 410"), also ["location", "target", "destination"],
            example "\"https://example.org/new/\"";
        /// Status: 301, 302, 303, 307 or 308; 410 for pages that are gone.
        status: u16 = default(308), also ["code"], example "301";
        /// `"keep"`: the query of the request is joined to the query of `to`. `"drop"`: the query of the request is
        /// dropped.
        query: QueryPolicy = default(QueryPolicy::Keep), example "\"drop\"";
    }
}

/// Value of `redirects` of a site.
#[derive(Clone, Debug)]
pub(super) struct SiteRedirects(Vec<SiteRedirectTable>);

impl FromToml for SiteRedirects {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        if let Some(help) = paired_help(&item) {
            let what = format!(
                "`{}` must be a list of tables, with `from` and `to`",
                item.key
            );
            return Err(item.refuse(what, help));
        }
        FromToml::read(item).map(SiteRedirects)
    }
}

/// Returns the help for paths in pairs: `{ "/old" = "/new" }`, `"/old /new"`, or a list of such texts.
fn paired_help(item: &KeyedValue<'_, '_>) -> Option<String> {
    let value = item.value.get_ref();
    let mut pairs = Vec::new();
    if let Some(table) = value.as_table() {
        let entries = table.iter();
        pairs.extend(entries.filter_map(|(from, to)| {
            let (from, to) = (from.get_ref().as_ref(), to.get_ref().as_str()?);
            (from.starts_with('/') || from.starts_with("http")).then_some((from, to))
        }));
    } else {
        let list = value.as_array().into_iter().flat_map(|list| list.iter());
        let texts = list.map(|item| item.get_ref()).chain([value]);
        pairs.extend(texts.filter_map(|text| {
            let mut words = text.as_str()?.split_ascii_whitespace();
            Some((words.next()?, words.next()?))
        }));
    }
    let (from, to) = *pairs.first()?;
    // The order of a table is no order of the file.
    let more = if pairs.len() > 1 { ", …" } else { "" };
    Some(format!(
        "write redirects = [{{ from = \"{from}\", to = \"{to}\" }}{more}]"
    ))
}

/// Treatment of the query of a redirected request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueryPolicy {
    /// The location gets the query.
    Keep,
    /// The location gets no query of the request.
    Drop,
}

impl FromToml for QueryPolicy {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        item.word(&[("keep", QueryPolicy::Keep), ("drop", QueryPolicy::Drop)])
    }
}

impl ShownValue for QueryPolicy {
    fn shown(&self) -> String {
        match self {
            QueryPolicy::Keep => "\"keep\"".to_owned(),
            QueryPolicy::Drop => "\"drop\"".to_owned(),
        }
    }
}

/// Redirect of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteRedirectConfig {
    /// URL or path of the site; empty with status 410.
    pub to: Spanned<String>,
    /// 301, 302, 303, 307, 308 or 410.
    pub status: u16,
    /// Whether the location gets the query of the request.
    pub keeps_query: bool,
}

/// Status of a page that is gone.
const GONE: u16 = 410;

/// Converts `redirects` of a site. A destination with `?` at the end gets no query. Errors are recorded.
pub(super) fn redirects(
    source: &SourceText<'_>,
    tables: Option<Spanned<SiteRedirects>>,
) -> Vec<Spanned<MappedRedirect>> {
    let tables = tables
        .map_or_else(Vec::new, |tables| tables.into_inner().0)
        .into_iter();
    tables
        .filter_map(|table| source.keep(redirect(source, table)))
        .collect()
}

fn redirect(
    source: &SourceText<'_>,
    table: SiteRedirectTable,
) -> Result<Spanned<MappedRedirect>, OperatorError> {
    let (from, span) = (table.from.get_ref(), table.from.span());
    let to = destination(source, table.to, &table.status, span.clone())?;
    if let Some((path, to)) = redirect_map::without_regex(from, to.get_ref()) {
        let what = format!("`{from}` is a regular expression");
        let help = format!("write from = \"{path}\", to = \"{to}\"");
        return Err(source.error(span, what, help));
    }
    // The path alone first: a mistake in the path is shown at the path, and any other at the destination.
    let at_path = |(what, help)| source.error(span.clone(), what, help);
    let gone = MappedRedirect::new(from, "", GONE).map_err(at_path)?;
    let redirect = match *table.status.get_ref() {
        GONE => gone,
        status => {
            let (mut text, place) = (to.get_ref().clone(), to.span());
            if *table.query.get_ref() == QueryPolicy::Drop && !text.ends_with('?') {
                text.push('?');
            }
            let at_destination = |(what, help)| source.error(place, what, help);
            MappedRedirect::new(from, &text, status).map_err(at_destination)?
        }
    };
    let redirect = MappedRedirect {
        is_forced: *table.force.get_ref(),
        ..redirect
    };
    Ok(Spanned::new(span, redirect))
}

/// Reads `redirect` of a route. `span` is the position of the whole value.
pub(super) fn route_redirect(
    source: &SourceText<'_>,
    table: RouteRedirectTable,
    span: Range<usize>,
) -> Result<RouteRedirectConfig, OperatorError> {
    let to = destination(source, table.to, &table.status, span)?;
    let text = to.get_ref().as_str();
    let rest = ["https://", "http://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    let is_url = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'));
    let is_path = text.starts_with('/') && !text.starts_with("//");
    let is_clean = text.bytes().all(|b| b.is_ascii_graphic() && b != b'\\');
    let status = *table.status.get_ref();
    let splat = text.contains(":splat").then_some(":splat");
    if let Some(placeholder) = redirect_map::placeholder(text).or(splat) {
        let before = text.split(placeholder).next().unwrap_or_default();
        let before = before.trim_end_matches(['/', '%']);
        let what = format!(
            "the placeholder `{placeholder}` is not supported in the `redirect` of a route"
        );
        let help = format!(
            "end `redirect` with a slash, and the rest of the path is appended: redirect = \"{before}/\""
        );
        return Err(source.error(to.span(), what, help));
    }
    let path = text.split('?').next().unwrap_or_default();
    if status != GONE && path.ends_with('*') {
        let what = format!("the `*` of `{text}` would be sent as it stands");
        let help = format!(
            "end `redirect` with a slash, and the rest of the path is appended: redirect = \"{}/\"",
            path.trim_end_matches(['*', '/'])
        );
        return Err(source.error(to.span(), what, help));
    }
    if status != GONE && !((is_url || is_path) && is_clean) {
        let usual = "write a URL such as \"https://example.org/new/\", or a path of the site such as \"/new/\"";
        let help = status_help(text).unwrap_or_else(|| usual.to_owned());
        let what = format!("`{text}` is not a target for a redirect");
        return Err(source.error(to.span(), what, help));
    }
    Ok(RouteRedirectConfig {
        to,
        status,
        keeps_query: *table.query.get_ref() == QueryPolicy::Keep,
    })
}

/// Returns the help for a target with its status in one text, such as `301 /new/` or `/new/ permanent`.
fn status_help(text: &str) -> Option<String> {
    let words: Vec<&str> = text
        .trim_end_matches(';')
        .split_ascii_whitespace()
        .collect();
    let [one, other] = words[..] else {
        return None;
    };
    let status = |word: &str| match word {
        "permanent" => Some("301"),
        "redirect" | "temporary" => Some("302"),
        "301" => Some("301"),
        "302" => Some("302"),
        "303" => Some("303"),
        "307" => Some("307"),
        "308" => Some("308"),
        _ => None,
    };
    let (status, to) = match (status(one), status(other)) {
        (Some(status), None) => (status, other),
        (None, Some(status)) => (status, one),
        _ => return None,
    };
    Some(format!(
        "write redirect = {{ to = \"{to}\", status = {status} }}"
    ))
}

/// Checks the status, and returns the destination; empty with status 410. `span` is the position of the redirect.
fn destination(
    source: &SourceText<'_>,
    to: Option<Spanned<String>>,
    status: &Spanned<u16>,
    span: Range<usize>,
) -> Result<Spanned<String>, OperatorError> {
    match (to, *status.get_ref()) {
        (None, GONE) => Ok(Spanned::new(span, String::new())),
        (Some(to), GONE) => {
            let what = "`to` has no effect with status 410: the page is gone";
            Err(source.error(to.span(), what, "remove `to`, or write another status"))
        }
        (Some(to), 301..=303 | 307 | 308) => Ok(to),
        (None, 301..=303 | 307 | 308) => {
            let help = "add to = \"/new\", or status = 410 for a page that is gone";
            Err(source.error(span, "the redirect has no destination", help))
        }
        (_, other) => {
            let what = format!("{other} is not the status of a redirect");
            let help = match other {
                200 => {
                    "write 301, 302, 303, 307 or 308; to serve another path at the same address, write `rewrite` in \
                     a [[site.route]]"
                }
                _ => "write 301, 302, 303, 307 or 308, or 410 for a page that is gone",
            };
            Err(source.error(status.span(), what, help))
        }
    }
}
