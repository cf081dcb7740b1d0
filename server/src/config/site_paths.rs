//! Paths of a site as values: the path of a route, the entries of `try`, and the targets of redirects and rewrites.

use toml::Spanned;

use crate::config::declared_table::ShownValue;
use crate::config::error::OperatorError;
use crate::config::field_variables::unknown_placeholder;
use crate::config::foreign_words::PHP;
use crate::config::toml_reader::{FromToml, KeyedValue};
use crate::config::values::{InvalidValue, is_regular_expression, wrong};
use release::redirect_map;

/// Name of a file without a folder.
#[derive(Clone, Debug)]
pub(super) struct FileName(pub(super) String);

impl FromToml for FileName {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let name = item.parse("a file name in quotes", "[\"index.html\"]", |text| {
            let names: Vec<&str> = text.split([' ', ',']).filter(|it| !it.is_empty()).collect();
            if names.len() > 1 && names.iter().all(|name| name.contains('.')) {
                let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
                wrong(
                    format!("`{text}` has several file names"),
                    format!("write index = [{}]", names.join(", ")),
                )
            } else if text.is_empty() || text.contains(['/', '\0']) {
                wrong(
                    format!("`{text}` is not a file name"),
                    "write a name without a folder, such as \"index.html\"",
                )
            } else {
                Ok(text.to_owned())
            }
        });
        name.map(FileName)
    }
}

impl ShownValue for FileName {
    fn shown(&self) -> String {
        self.0.shown()
    }
}

/// Value of `try`.
#[derive(Clone, Debug)]
pub(super) struct TryPaths(pub(super) Vec<String>);

impl Default for TryPaths {
    fn default() -> TryPaths {
        TryPaths(vec!["$path".to_owned()])
    }
}

impl ShownValue for TryPaths {
    fn shown(&self) -> String {
        self.0.shown()
    }
}

impl FromToml for TryPaths {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let source = item.source;
        let items = item.items();
        let last = items.len().saturating_sub(1);
        let paths = items.into_iter().enumerate().map(|(nth, item)| {
            item.parse("a path in quotes", "[\"$path\", \"$path.html\"]", |text| {
                try_path(text, nth == last)
            })
        });
        source.all(paths).map(TryPaths)
    }
}

/// Value of `try` of a route: paths, and perhaps the key of the route's handler at the end.
#[derive(Clone, Debug)]
pub(super) struct RouteTryPaths {
    pub(super) paths: Vec<String>,
    /// Key of the handler for all paths without a file.
    pub(super) handler: Option<Spanned<String>>,
}

impl FromToml for RouteTryPaths {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let source = item.source;
        let mut items = item.items();
        let is_handler = |item: &KeyedValue<'_, '_>| item.text().is_some_and(is_handler_key);
        let handler = items.pop_if(|item| is_handler(item));
        let handler = handler.as_ref().and_then(|item| {
            let text = item.text()?.to_owned();
            Some(Spanned::new(item.value.span(), text))
        });
        if let Some(early) = items.iter().find(|item| is_handler(item)) {
            let what = format!(
                "\"{}\" must be the last entry of `try`",
                early.text().unwrap_or_default()
            );
            let help =
                "the handler of the route answers for all paths, so no later entry is reached";
            return Err(source.error(early.value.span(), what, help));
        }
        let last = items.len().saturating_sub(1);
        let paths = items.into_iter().enumerate().map(|(nth, item)| {
            let is_last = nth == last && handler.is_none();
            item.parse("a path in quotes", "[\"$path\", \"$path.html\"]", |text| {
                try_path(text, is_last)
            })
        });
        source
            .all(paths)
            .map(|paths| RouteTryPaths { paths, handler })
    }
}

/// Returns true for the key of a handler.
fn is_handler_key(text: &str) -> bool {
    HANDLER_KEYS.contains(&text)
}

/// Keys of the handlers for paths without a file.
const HANDLER_KEYS: [&str; 4] = ["proxy", "fastcgi", "scgi", "cgi"];

/// Returns the entries for the paths of `try_files` of nginx in one text, such as `$uri $uri/ /index.html`.
fn entries_of_nginx(text: &str) -> Option<String> {
    let is_list = text.contains(" /") || text.contains(" $");
    // The server finds a folder with the entry of its file.
    let is_own = |word: &&str| {
        word.starts_with(['/', '$']) && !word.ends_with("$uri/") && !word.ends_with("$path/")
    };
    let words = text.split_ascii_whitespace().filter(is_own);
    let words: Vec<String> = words
        .map(|word| {
            let word = word.replace("$uri", "$path").replace("$is_args", "?");
            let word = word
                .replace("$args", "$query")
                .replace("$query_string", "$query");
            format!("\"{word}\"")
        })
        .collect();
    (is_list && !words.is_empty()).then(|| format!("write try = [{}]", words.join(", ")))
}

/// Validates an entry of `try`.
fn try_path(entry: &str, is_last: bool) -> Result<String, InvalidValue> {
    let what = format!("`{entry}` is not a path for `try`");
    if let Some(help) = entries_of_nginx(entry) {
        return wrong(what, help);
    }
    if let Some(status) = entry.strip_prefix('=') {
        let help = format!("remove \"={status}\": a path without a file gets 404 anyway");
        return wrong(what, help);
    }
    if is_handler_key(entry) {
        let help = format!(
            "write try = [\"$path\", \"{entry}\"] in the [[site.route]] with `{entry}`, beside `root` of the site"
        );
        return wrong(format!("`{entry}` is an entry for `try` of a route"), help);
    }
    if let Some(place) = entry.strip_prefix('@') {
        let help = format!(
            "for the application of the location @{place}, write try = [\"$path\", \"proxy\"] in the [[site.route]] with `proxy`"
        );
        return wrong(what, help);
    }
    if entry.ends_with('*') {
        let help = "write a page of the site such as \"/index.html\", without `*`";
        return wrong(what, help);
    }
    let (text, query) = match entry.split_once('?') {
        Some((text, query)) => (text, Some(query)),
        None => (entry, None),
    };
    if let Some(query) = query {
        if !is_last {
            return wrong(
                format!("`{text}` has a query but is not the last entry of `try`"),
                "only the last entry, which handles all remaining paths, may have a query",
            );
        }
        if !text.starts_with('/') || text.trim_start_matches('/').starts_with("$path") {
            return wrong(
                format!(
                    "`{text}` cannot have a query, since the entry stands for the requested file"
                ),
                "a query needs a fixed script, such as \"/index.php?q=$path\"",
            );
        }
        check_query(query)?;
    }
    if text.contains("$uri") {
        let right = text.replace("$uri", "$path");
        let what = format!("`{text}` is not a path for `try`");
        return wrong(what, format!("did you mean \"{right}\"?"));
    }
    if let Some(placeholder) = unknown_placeholder(entry, &[]) {
        return wrong(
            format!("the placeholder `{placeholder}` is not supported in `try`"),
            "write \"$path\", \"$path.html\" or a page of the site such as \"/index.html\"",
        );
    }
    let fixed = text.strip_prefix("$path");
    let fixed = fixed.or_else(|| text.strip_suffix("$path"));
    let fixed = fixed.unwrap_or(text);
    let begins = text.starts_with('/') || text.starts_with("$path");
    if !begins || fixed.contains(['$', '\0']) || fixed.split('/').any(|part| part == "..") {
        return wrong(
            format!("`{text}` is not a path for `try`"),
            "write \"$path\", \"$path.html\" or a page of the site such as \"/index.html\"",
        );
    }
    Ok(entry.to_owned())
}

/// Validates the query of the last entry of `try`, or of `rewrite`.
fn check_query(query: &str) -> Result<(), InvalidValue> {
    let is_odd = |byte: u8| !byte.is_ascii_graphic() || byte == b'#';
    if query.bytes().any(is_odd) {
        return wrong(
            format!("`{query}` is not a query"),
            "write the query as in a URL: without spaces or `#`, percent-encoded where needed",
        );
    }
    for part in query.split('&').filter(|part| *part != "$query") {
        let known = part.replace("$path", "").replace("$rest", "");
        if known.contains("$query") {
            return wrong(
                format!("`$query` is only a part of the parameter `{part}`"),
                "`$query` stands for the whole query of the request: write it alone between `&`",
            );
        }
        if known.contains('$') {
            return wrong(
                format!("`{part}` has a `$` without a known name"),
                "the names are `$path`, `$rest` and `$query`; write %24 for a literal `$`",
            );
        }
    }
    Ok(())
}

/// Path of a route: a prefix of decoded paths.
#[derive(Clone, Debug)]
pub(super) struct RoutePath(pub(super) String);

impl FromToml for RoutePath {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let path = item.parse("text in quotes", "\"/private/\"", |text| {
            check_path(text)?;
            match text.strip_suffix('*') {
                None => Ok(text.to_owned()),
                // The path is a prefix, so no request would match.
                Some(prefix) => wrong(
                    format!("`{text}` has a wildcard"),
                    format!(
                        "a path is a prefix: write \"{}\"",
                        prefix.trim_end_matches('*')
                    ),
                ),
            }
        });
        path.map(RoutePath)
    }
}

/// Path of a rewrite, with an optional query.
#[derive(Clone, Debug)]
pub(super) struct RewritePath(pub(super) String);

impl FromToml for RewritePath {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let path = item.parse("text in quotes", "\"/app/index.html\"", |text| {
            if text.contains("://") {
                return wrong(
                    format!("`{text}` is a URL, and a rewrite leads to a path of the site"),
                    format!("for another server write proxy = \"{text}\", to send the client there redirect = \"{text}\""),
                );
            }
            let (path, query) = text.split_once('?').unwrap_or((text, ""));
            check_path(path)?;
            check_query(query)?;
            let in_query = unknown_placeholder(query, &[]);
            if path.ends_with('*') {
                return wrong(
                    format!("the `*` of `{text}` would be a part of the path"),
                    format!(
                        "end the path with a slash, and the rest of the path is appended: rewrite = \"{}/\"",
                        path.trim_end_matches(['*', '/'])
                    ),
                );
            }
            if let Some(placeholder) = redirect_map::placeholder(path).or(in_query) {
                return wrong(
                    format!("the placeholder `{placeholder}` is not supported in `rewrite`"),
                    "end the path with a slash, and the rest of the path is appended; the query may have `$path`, \
                     `$rest` and `$query`",
                );
            }
            Ok(text.to_owned())
        });
        path.map(RewritePath)
    }
}

/// Returns a path with its percent-encoding decoded; `None` if the result is not UTF-8.
fn decoded(path: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), path.as_bytes());
    while let [first, after @ ..] = rest {
        let hex = (*first == b'%').then(|| after.get(..2)).flatten();
        let byte = hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).ok()
}

/// Returns a path without `.`, `..` and doubled slashes.
fn tidy_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let slash = if path.ends_with('/') && !parts.is_empty() {
        "/"
    } else {
        ""
    };
    format!("/{}{slash}", parts.join("/"))
}

/// Validates the path of a route. The path is compared with decoded, normalised paths, so the path has to
/// be in the same form.
fn check_path(text: &str) -> Result<(), InvalidValue> {
    let refuse = |help: String| wrong(format!("`{text}` is not a path of a site"), help);
    if text.contains(".php") && (text.contains('*') || is_regular_expression(text)) {
        return refuse(PHP.to_owned());
    }
    if text.starts_with("*.") {
        return refuse("a path is a prefix, and can't select files by their endings".to_owned());
    }
    if let Some(path) = text
        .strip_prefix('=')
        .map(str::trim)
        .filter(|it| it.starts_with('/'))
    {
        return refuse(format!(
            "a path is a prefix without modifiers: write \"{path}\", which holds for all paths below too"
        ));
    }
    if text.starts_with('=') || is_regular_expression(text) {
        return refuse("a path is a prefix, without modifiers or regular expressions".to_owned());
    }
    if let Some((_, rest)) = text.split_once("://") {
        let path = rest.find('/').map_or("/", |at| &rest[at..]);
        return refuse(format!(
            "write the path alone: \"{path}\"; `names` of the [[site]] has the host"
        ));
    }
    if !text.starts_with('/') {
        return refuse(format!("begin the path with a slash: \"/{text}\""));
    }
    let bytes = text.as_bytes();
    let is_hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    let mut bytes = bytes.iter().enumerate();
    if bytes.any(|(at, &b)| b == b'%' && is_hex(at + 1) && is_hex(at + 2)) {
        let decoded = decoded(text).filter(|it| !it.chars().any(char::is_control));
        let decoded = decoded.unwrap_or_else(|| "/my files/".to_owned());
        return refuse(format!(
            "write the path decoded, without percent-encoding: \"{decoded}\""
        ));
    }
    let mut parts = text.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        if matches!(part, "." | "..") || (part.is_empty() && parts.peek().is_some()) {
            let tidy = tidy_path(text);
            return refuse(format!(
                "write the path without `.`, `..` or doubled slashes: \"{tidy}\""
            ));
        }
    }
    if let Some((path, _)) = text.split_once(['?', '#']) {
        return refuse(format!(
            "write the path alone, without query and `#`: \"{path}\""
        ));
    }
    if text.contains(['\\', '?', '#']) || text.chars().any(char::is_control) {
        return refuse(
            "write the path alone, without `?`, `#`, backslash or control characters".to_owned(),
        );
    }
    Ok(())
}
