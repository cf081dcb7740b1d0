//! Redirect map in the format of `_redirects`, the file of Netlify: one redirect in each line.
//!
//! ```text
//! # from      to                   status
//! /old        /new
//! /blog/*     /articles/:splat     302
//! /shop       https://shop.example 301!
//! /gone                            410
//! /*          /404.html            404
//! ```
//!
//! Without a status a redirect has the status 301. `!` forces a redirect where a file exists. A destination without a
//! query gets the query of the request, and a destination that ends with `?` gets no query. Conditions (`Country=de`),
//! queries (`id=:id`), placeholders and rewrites (status 200) are refused, since a silent omission would change the site.

use crate::limits::{REDIRECT_DESTINATION_BYTES_MAX, RELEASE_PATH_BYTES_MAX};
use base::visible_text::shortened;
use std::borrow::Cow;
use wire::normal_path::normalise;

/// Redirect of a map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MappedRedirect {
    /// Number of the line, from 1.
    pub line: usize,
    /// Status: 301, 302, 303, 307, 308 or 410; 404 for an error page.
    pub status: u16,
    /// True if the redirect also applies where a file exists.
    pub is_forced: bool,
    /// Decoded path with initial slash, perhaps with one `*` at the end.
    pub from: Vec<u8>,
    /// Path or URL; empty with status 410.
    pub to: String,
}

/// Mistake in a redirect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedirectMapError {
    /// Number of the line, from 1.
    pub line: usize,
    /// The mistake, one clause.
    pub what: String,
    /// Correction.
    pub help: Cow<'static, str>,
}

/// Mistake in a redirect without its line: the clause and the correction.
type Mistake = (String, Cow<'static, str>);

/// Reads a map. The redirects have the order of the lines. An error has the mistakes of the first
/// [`MISTAKES_MAX`] lines with a mistake.
pub fn read(text: &str) -> Result<Vec<MappedRedirect>, Vec<RedirectMapError>> {
    let (mut redirects, mut errors) = (Vec::new(), Vec::new());
    for (line, text) in (1..).zip(text.lines()) {
        let words = text.split_whitespace();
        let words: Vec<&str> = words.take_while(|word| !word.starts_with('#')).collect();
        if !words.is_empty() {
            match parse_line(line, &words) {
                Ok(redirect) => redirects.push(redirect),
                Err((what, help)) => errors.push(RedirectMapError { line, what, help }),
            }
            if errors.len() == MISTAKES_MAX {
                break;
            }
        }
    }
    if errors.is_empty() {
        Ok(redirects)
    } else {
        Err(errors)
    }
}

/// Number of mistakes after which the reading of a map ends: a file of another format has a mistake in each line.
pub const MISTAKES_MAX: usize = 50;

fn parse_line(line: usize, words: &[&str]) -> Result<MappedRedirect, Mistake> {
    let (from, rest) = (words[0], &words[1..]);
    let mut status = (301, false);
    let mut to = "";
    if let Some(last) = words.last().filter(|word| word.ends_with(';')) {
        let line = words.join(" ");
        let line = shortened(line.trim_end_matches(';').trim_end());
        let what = format!("`{}` ends with a semicolon", shortened(last));
        return Err((what, format!("write {line}").into()));
    }
    if let Some((from, to)) = rest.first().and_then(|to| without_regex(from, to)) {
        let what = format!("`{}` is a regular expression", shortened(words[0]));
        let help = format!("write {} {}", shortened(from), shortened(to));
        return Err((what, help.into()));
    }
    if let Some(mistake) = foreign_line(words) {
        return Err(mistake);
    }
    parse_path(from)?;
    for (at, word) in rest.iter().enumerate() {
        match parse_status(word) {
            Some(found) if at + 1 == rest.len() => status = found,
            Some(_) => return Err(condition(rest[at + 1])),
            None if to.is_empty() && !is_destination(word) && word.contains('=') => {
                let help = "redirect the path without a query; the query is kept";
                let what = format!("the query `{}` is not supported", shortened(word));
                return Err((what, help.into()));
            }
            None if to.is_empty() => to = word,
            None => return Err(condition(word)),
        }
    }
    let (status, is_forced) = status;
    Ok(MappedRedirect {
        line,
        is_forced,
        ..MappedRedirect::new(from, to, status)?
    })
}

/// Returns the mistake of a line of Apache httpd or nginx, and of a line with commas between the words.
fn foreign_line(words: &[&str]) -> Option<Mistake> {
    let program = match *words.first()? {
        "Redirect" | "RedirectMatch" | "RedirectPermanent" | "RedirectTemp" | "RewriteRule" => {
            Some("Apache httpd")
        }
        "rewrite" | "return" => Some("nginx"),
        _ => None,
    };
    let by_comma: Vec<&str> = match (program, words) {
        (None, [one]) => one.split([',', ';']).collect(),
        _ => Vec::new(),
    };
    let words = if by_comma.len() > 1 { &by_comma } else { words };
    let is_path = |word: &&&str| is_destination(word);
    let mut paths = words.iter().filter(is_path);
    let (from, to) = (paths.next()?, paths.next()?);
    let status = words.iter().find_map(|word| match *word {
        "permanent" | "RedirectPermanent" => Some("301"),
        "302" | "303" | "307" | "308" | "410" => Some(*word),
        "temp" | "redirect" | "RedirectTemp" => Some("302"),
        _ => None,
    });
    let help = format!(
        "write {} {} {}",
        shortened(from),
        shortened(to),
        status.unwrap_or("301")
    );
    let what = match program {
        Some(program) => format!("`{}` is a line of {program}", shortened(words[0])),
        None if by_comma.len() > 1 => {
            "the words of a redirect stand with spaces between".to_owned()
        }
        None => return None,
    };
    Some((what, help.into()))
}

/// Endings of pages, which no host has.
const PAGE_ENDINGS: [&str; 5] = [".html", ".htm", ".php", ".pdf", ".txt"];

impl MappedRedirect {
    /// Checks a redirect that is not forced and stands in no line. The error is the mistake and the correction.
    pub fn new(from: &str, to: &str, status: u16) -> Result<MappedRedirect, Mistake> {
        let redirect = MappedRedirect {
            line: 0,
            status,
            is_forced: false,
            from: parse_path(from)?,
            to: if status == 410 { "" } else { to }.to_owned(),
        };
        redirect.check()?;
        Ok(redirect)
    }

    fn check(&self) -> Result<(), Mistake> {
        let refuse = |what: &str, help: &'static str| Err((what.to_owned(), help.into()));
        match self.status {
            410 => return Ok(()),
            301 | 302 | 303 | 307 | 308 => {}
            404 if self.from == b"/*" && self.to.starts_with('/') => return Ok(()),
            200 => {
                return refuse(
                    "a rewrite (status 200) is not supported",
                    "serve other paths with `try` of the [[site]], or with a route, in anthill.toml",
                );
            }
            404 => {
                return refuse(
                    MISSING_PAGE,
                    "remove the line: a release has the page 404.html, and a [[site]] has errors = { 404 = \"404.html\" }",
                );
            }
            _ => {
                return refuse(
                    "the status is not supported",
                    "a redirect has the status 301, 302, 303, 307, 308 or 410",
                );
            }
        }
        if self.to.is_empty() {
            return refuse("the destination is missing", "write `/from /to 301`");
        }
        if self.to.len() > REDIRECT_DESTINATION_BYTES_MAX {
            return refuse(
                "the destination is longer than 2 KiB",
                "redirect to a shorter URL",
            );
        }
        if self.to.starts_with("//") || self.to.starts_with("/\\") {
            let what = format!("`{}` leads to another host", shortened(&self.to));
            let rest = self.to.trim_start_matches(['/', '\\']);
            let help = format!(
                "write https://{} for the other host, or one slash for a path of this host",
                shortened(rest)
            );
            return Err((what, help.into()));
        }
        if !is_destination(&self.to) {
            let name = self.to.split('/').next().unwrap_or_default();
            let is_page = PAGE_ENDINGS.iter().any(|ending| name.ends_with(ending));
            let scheme = ["https:/", "http:/"]
                .into_iter()
                .find(|scheme| self.to.starts_with(scheme));
            let help = if let Some(scheme) = scheme {
                let rest = shortened(self.to[scheme.len()..].trim_start_matches('/'));
                format!("write {scheme}/{rest}")
            } else if is_page {
                format!("write /{}", shortened(&self.to))
            } else if name.contains('.') {
                let to = shortened(self.to.trim_start_matches('/'));
                format!("write https://{to}")
            } else {
                format!(
                    "write a path with an initial slash, or a URL: /{}",
                    shortened(&self.to)
                )
            };
            let what = format!("`{}` is no destination", shortened(&self.to));
            return Err((what, help.into()));
        }
        if let Some(placeholder) = placeholder(&self.to) {
            let what = format!(
                "the placeholder `{}` is not supported",
                shortened(placeholder)
            );
            let help = "write `:splat` for the match of `*`; the query of the request is kept without a placeholder";
            return Err((what, help.into()));
        }
        if let Some(mistake) = self.star() {
            return Err(mistake);
        }
        if !self.to.bytes().all(|byte| byte.is_ascii_graphic()) {
            return refuse(
                "the destination has other characters than visible ASCII",
                "percent-encode the destination",
            );
        }
        if self.to.contains(":splat") && !self.from.ends_with(b"*") {
            return refuse(
                "`:splat` has no `*` to stand for",
                "end the first path with `*`",
            );
        }
        if self.to.as_bytes() == self.from {
            return refuse("the redirect leads to itself", "remove the line");
        }
        Ok(())
    }
}

impl MappedRedirect {
    /// Returns the mistake of a destination with a `*` that probably means the match of the path's `*`. Another `*` may
    /// be a part of the URL.
    fn star(&self) -> Option<Mistake> {
        let path = self.to.split('?').next().unwrap_or_default();
        let has_match = self.from.ends_with(b"*");
        let is_meant = has_match && path.contains('*') && !self.to.contains(":splat");
        if !is_meant && !path.ends_with('*') {
            return None;
        }
        let what = format!(
            "the `*` of `{}` would be sent as it stands",
            shortened(&self.to)
        );
        let help = if has_match {
            let meant = self.to.replacen('*', ":splat", 1);
            format!(
                "write `:splat` for the match of `*`: {}; %2A stands for a star of the URL itself",
                shortened(&meant)
            )
        } else {
            "write the whole destination, or end the first path with `*` and the destination with `:splat`".to_owned()
        };
        Some((what, help.into()))
    }
}

/// Mistake of a page for the status 404 in a list of redirects.
pub const MISSING_PAGE: &str = "a page for missing files is no redirect";

/// Returns the first placeholder of another server in a destination: `$1`, `$request_uri`, `${name}`, `{uri}`,
/// `%{name}` or `\\1`.
pub fn placeholder(to: &str) -> Option<&str> {
    let (at, mark) = to.char_indices().find(|&(at, mark)| {
        let next = to[at + mark.len_utf8()..]
            .bytes()
            .next()
            .unwrap_or_default();
        match mark {
            '{' => true,
            '$' => next.is_ascii_alphanumeric() || next == b'_' || next == b'{',
            '\\' => next.is_ascii_digit(),
            _ => false,
        }
    })?;
    let rest = &to[at..];
    let end = if mark == '{' || rest[1..].starts_with('{') {
        rest.find('}').map(|end| end + 1)
    } else {
        rest[1..]
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .map(|end| end + 1)
    };
    Some(&rest[..end.unwrap_or(rest.len())])
}

/// Returns the path and the destination of a redirect with a regular expression in the format of this server, if `*`
/// can stand for the expression.
pub fn without_regex(from: &str, to: &str) -> Option<(String, String)> {
    if !from.starts_with(['~', '^']) && !from.ends_with('$') && !from.contains("(.*)") {
        return None;
    }
    let from = from
        .trim_start_matches(['~', '^', ' '])
        .trim_end_matches(['$', '?']);
    let mut path = from.replace('\\', "");
    for any in ["(.*)", "(.+)", ".*", ".+"] {
        path = path.replace(any, "*");
    }
    let to = to.replace("$1", ":splat").replace("\\1", ":splat");
    let plain = MappedRedirect::new(&path, &to, 301);
    plain.is_ok().then_some((path, to))
}

/// Returns the decoded path of a redirect.
fn parse_path(word: &str) -> Result<Vec<u8>, Mistake> {
    let refuse = |what: String, help: &'static str| Err((what, help.into()));
    let shown = shortened(word);
    if word.starts_with(['~', '^']) || word.contains("(.*)") {
        return refuse(
            format!("`{shown}` is a regular expression"),
            "write a path, perhaps with one `*` at the end for any rest: `/blog/*`",
        );
    }
    if !word.starts_with('/') {
        return match word.contains("://") {
            true => refuse(
                "a redirect of another host is not supported".to_owned(),
                "publish the other host as its own site",
            ),
            false => Err((
                format!("`{shown}` is no path"),
                format!("begin the path with a slash: /{shown}").into(),
            )),
        };
    }
    if word.contains(['?', '#']) {
        let help = "redirect the path without query and fragment";
        return refuse(format!("`{shown}` has a query or a fragment"), help);
    }
    if word
        .split('/')
        .any(|name| name.len() > 1 && name.starts_with(':'))
    {
        let help = "use one `*` at the end, and `:splat` in the destination";
        return refuse(
            format!("the placeholder in `{shown}` is not supported"),
            help,
        );
    }
    if word.strip_suffix('*').unwrap_or(word).contains('*') {
        let help = "use one `*` at the end";
        return refuse(format!("`{shown}` has a `*` before its end"), help);
    }
    match normalise(word.as_bytes()) {
        Ok(path) if path.len() > RELEASE_PATH_BYTES_MAX => refuse(
            format!("the path `{shown}` is longer than 4,095 bytes"),
            "no file has such a path",
        ),
        Ok(path) => Ok(path.into_owned()),
        Err(_) => refuse(
            format!("`{shown}` is no valid path"),
            "check the percent-encoding",
        ),
    }
}

fn is_destination(word: &str) -> bool {
    let scheme = word.split_once("://").map(|(scheme, _)| scheme);
    word.starts_with('/')
        || scheme.is_some_and(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_lowercase()))
}

/// Reads a status, perhaps with `!`.
fn parse_status(word: &str) -> Option<(u16, bool)> {
    let digits = word.strip_suffix('!').unwrap_or(word);
    let is_status = digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let status = digits.parse().ok().filter(|_| is_status)?;
    Some((status, digits.len() < word.len()))
}

fn condition(word: &str) -> Mistake {
    let status = match word {
        "permanent" => "write the status 301",
        "redirect" | "temporary" => "write the status 302",
        _ if !word.contains('=') => {
            let what = format!("`{}` is no status code", shortened(word));
            let help = "write the status last: 301, 302, 303, 307, 308 or 410";
            return (what, help.into());
        }
        _ => {
            let what = format!("the condition `{}` is not supported", shortened(word));
            let help = "remove the condition, or redirect in the application";
            return (what, help.into());
        }
    };
    (
        format!("`{}` is not a status", shortened(word)),
        status.into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_read() {
        let text = "# comment\n/old /new\n\n  /blog/*  /articles/:splat 302 # moved\n\
                    /shop https://shop.example/ 308!\n/gone 410\n/gone2 /x 410\n/* /404.html 404\n/a%20b /c\n";
        let rules = read(text).expect("rules");
        let seen: Vec<(usize, u16, bool, &[u8], &str)> = rules
            .iter()
            .map(|it| (it.line, it.status, it.is_forced, &it.from[..], &it.to[..]))
            .collect();
        assert_eq!(
            seen,
            [
                (2, 301, false, &b"/old"[..], "/new"),
                (4, 302, false, b"/blog/*", "/articles/:splat"),
                (5, 308, true, b"/shop", "https://shop.example/"),
                (6, 410, false, b"/gone", ""),
                (7, 410, false, b"/gone2", ""),
                (8, 404, false, b"/*", "/404.html"),
                (9, 301, false, b"/a b", "/c"),
            ]
        );
    }

    #[test]
    fn errors_name_the_line() {
        for (text, part) in [
            ("/a", "the destination is missing"),
            ("a /b", "`a` is no path"),
            ("https://a.example/* /b", "another host"),
            ("/a b", "`b` is no destination"),
            ("/a id=:id /b", "the query `id=:id`"),
            ("/a /b 302 Country=de", "the condition `Country=de`"),
            ("/a /b Role=admin", "the condition `Role=admin`"),
            ("/a /b 3O1", "`3O1` is no status code"),
            ("/a /b 301x!", "`301x!` is no status code"),
            ("/a /b 301 /c", "`/c` is no status code"),
            (
                "/a //evil.example/",
                "`//evil.example/` leads to another host",
            ),
            ("/a /\\evil.example/", "leads to another host"),
            ("/a/:id /b/:id", "the placeholder"),
            ("/*/a /b", "before its end"),
            ("/a?b /c", "a query or a fragment"),
            ("/* /index.html 200", "a rewrite"),
            ("/a /b 404", "a page for missing files"),
            ("/lost 404", "a page for missing files"),
            ("/old /new;", "`/new;` ends with a semicolon"),
            ("/old /new permanent", "`permanent` is not a status"),
            ("^/blog/(.*)$ /news/$1", "a regular expression"),
            ("~^/a(b|c) /news", "a regular expression"),
            (
                "/old https://a.test$request_uri",
                "the placeholder `$request_uri`",
            ),
            ("/old https://a.test{uri}?x", "the placeholder `{uri}`"),
            ("/old /a/%{REMOTE}/", "the placeholder `{REMOTE}`"),
            ("/old /a/\\1", "the placeholder `\\1`"),
            ("/old www.a.test/b", "`www.a.test/b` is no destination"),
            ("/a /b 418", "the status is not supported"),
            ("/a /b/:splat", "`:splat`"),
            ("/a/* /b/*", "the `*` of `/b/*` would be sent as it stands"),
            ("/a /b/*", "the `*` of `/b/*` would be sent as it stands"),
            ("/a/* https://a.test/*?b", "the `*` of `https://a.test/*?b`"),
            ("/a /\u{e9}", "visible ASCII"),
            ("/a /a", "leads to itself"),
            ("/%zz /a", "no valid path"),
        ] {
            let errors = read(&format!("\n{text}\n")).expect_err(text);
            let [error] = &errors[..] else {
                panic!("{errors:?}");
            };
            assert_eq!(error.line, 2, "{text}: {error:?}");
            assert!(error.what.contains(part), "{text}: {error:?}");
            assert!(!error.help.is_empty(), "{text}");
        }
    }

    #[test]
    fn a_star_within_a_url_is_part_of_the_url() {
        for text in [
            "/a https://web.archive.org/web/*/https://a.test/",
            "/a/* https://web.archive.org/web/*/https://a.test/:splat",
            "/a /b?q=*",
        ] {
            assert!(read(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn long_redirects_are_refused_and_quoted_in_part() {
        let destination = |bytes: usize| read(&format!("/a /{}\n", "b".repeat(bytes - 1)));
        assert!(destination(2 * 1024).is_ok());
        let errors = destination(2 * 1024 + 1).expect_err("a long destination");
        assert_eq!(errors[0].what, "the destination is longer than 2 KiB");
        let path = |bytes: usize| read(&format!("/{} /a\n", "b".repeat(bytes - 1)));
        assert!(path(4_095).is_ok());
        let long = [
            format!("/{} /a", "b".repeat(100_000)),
            format!("{} /a", "b".repeat(100_000)),
            format!("/a /b {}", "c".repeat(100_000)),
            format!("/a {}", "c".repeat(2_000)),
            format!("/a /b 301 {};", "c".repeat(100_000)),
        ];
        for line in long {
            let errors = read(&line).expect_err("a mistake");
            let length = errors[0].what.len() + errors[0].help.len();
            assert!(length < 300, "{:?}", errors[0]);
        }
    }

    #[test]
    fn the_help_shows_the_line_to_write() {
        for (text, help) in [
            ("/old /new;", "write /old /new"),
            ("/old /new 301;", "write /old /new 301"),
            ("^/blog/(.*)$ /news/$1", "write /blog/* /news/:splat"),
            ("/old www.a.test/b", "write https://www.a.test/b"),
            ("/old /new permanent", "write the status 301"),
        ] {
            let errors = read(text).expect_err(text);
            assert_eq!(errors[0].help, help, "{text}");
        }
        let price = read("/price /offers?price=$&x").expect("a literal $");
        assert_eq!(price[0].to, "/offers?price=$&x");
    }

    #[test]
    fn all_mistakes_of_a_map_are_found() {
        let errors = read("a /b\n/old /new\n/a /a\n").expect_err("mistakes");
        let lines: Vec<usize> = errors.iter().map(|error| error.line).collect();
        assert_eq!(lines, [1, 3]);
        let errors = read(&"x\n".repeat(1_000)).expect_err("mistakes");
        assert_eq!(errors.len(), MISTAKES_MAX);
    }
}
