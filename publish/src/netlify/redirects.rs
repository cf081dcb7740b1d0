//! File `_redirects`: one redirect in each line.
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
//! Without a status a redirect has the status 301. `!` forces a redirect where a file exists. Conditions (`Country=de`),
//! queries (`id=:id`), placeholders and rewrites (status 200) are refused, since a silent omission would change the site.

use super::refused;
use crate::problem::Problem;
use anthill_data_plane::wire::request_target::normalise;

/// Name of the file.
const FILE: &str = "_redirects";

/// Line of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedirectRule {
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

/// Reads the file.
pub fn read(text: &str) -> Result<Vec<RedirectRule>, Problem> {
    let mut rules = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let words = text.split_whitespace();
        let words: Vec<&str> = words.take_while(|word| !word.starts_with('#')).collect();
        if !words.is_empty() {
            rules.push(rule(line, &words)?);
        }
    }
    Ok(rules)
}

fn rule(line: usize, words: &[&str]) -> Result<RedirectRule, Problem> {
    let (from, rest) = (words[0], &words[1..]);
    let from = path(line, from)?;
    let mut status = (301, false);
    let mut to = "";
    for (at, word) in rest.iter().enumerate() {
        match parse_status(word) {
            Some(found) if at + 1 == rest.len() => status = found,
            Some(_) => return Err(condition(line, rest[at + 1])),
            None if to.is_empty() && is_destination(word) => to = word,
            None if to.is_empty() && word.contains('=') => {
                return Err(
                    refused(FILE, line, format!("the query `{word}` is not supported"))
                        .help("redirect the path without a query; the query is kept"),
                );
            }
            None if to.is_empty() => {
                let help = "write a path with an initial slash, or a URL";
                return Err(refused(FILE, line, format!("`{word}` is no destination")).help(help));
            }
            None => return Err(condition(line, word)),
        }
    }
    let (status, is_forced) = status;
    let rule = RedirectRule {
        line,
        status,
        is_forced,
        from,
        to: if status == 410 { "" } else { to }.to_owned(),
    };
    check(&rule)?;
    Ok(rule)
}

fn check(rule: &RedirectRule) -> Result<(), Problem> {
    let refuse = |what: &str, help: &str| Err(refused(FILE, rule.line, what).help(help));
    match rule.status {
        410 => return Ok(()),
        301 | 302 | 303 | 307 | 308 => {}
        404 if rule.from == b"/*" && rule.to.starts_with('/') => return Ok(()),
        200 => {
            return refuse(
                "a rewrite (status 200) is not supported",
                "serve other paths with `try` of the [[site]], or with a route, in anthill.toml",
            );
        }
        404 => {
            return refuse(
                "the status 404 is supported for `/*` and a page of the site",
                "remove the line; a missing page is answered by 404.html",
            );
        }
        _ => {
            return refuse(
                "the status is not supported",
                "a redirect has the status 301, 302, 303, 307, 308 or 410",
            );
        }
    }
    if rule.to.is_empty() {
        return refuse("the destination is missing", "write `/from /to 301`");
    }
    if !rule.to.bytes().all(|byte| byte.is_ascii_graphic()) {
        return refuse(
            "the destination has other characters than visible ASCII",
            "percent-encode the destination",
        );
    }
    if rule.to.contains(":splat") && !rule.from.ends_with(b"*") {
        return refuse(
            "`:splat` has no `*` to stand for",
            "end the first path with `*`",
        );
    }
    if rule.to.as_bytes() == rule.from {
        return refuse("the redirect leads to itself", "remove the line");
    }
    Ok(())
}

/// Returns the decoded path of a redirect.
fn path(line: usize, word: &str) -> Result<Vec<u8>, Problem> {
    let refuse = |what: String, help: &str| Err(refused(FILE, line, what).help(help));
    if !word.starts_with('/') {
        return match word.contains("://") {
            true => refuse(
                "a redirect of another host is not supported".to_owned(),
                "publish the other host as its own site",
            ),
            false => refuse(
                format!("`{word}` is no path"),
                "begin the path with a slash",
            ),
        };
    }
    if word.contains(['?', '#']) {
        let help = "redirect the path without query and fragment";
        return refuse(format!("`{word}` has a query or a fragment"), help);
    }
    if word
        .split('/')
        .any(|name| name.len() > 1 && name.starts_with(':'))
    {
        let help = "use one `*` at the end, and `:splat` in the destination";
        return refuse(
            format!("the placeholder in `{word}` is not supported"),
            help,
        );
    }
    if word.strip_suffix('*').unwrap_or(word).contains('*') {
        let help = "use one `*` at the end";
        return refuse(format!("`{word}` has a `*` before its end"), help);
    }
    match normalise(word.as_bytes()) {
        Ok(path) => Ok(path.into_owned()),
        Err(_) => refuse(
            format!("`{word}` is no valid path"),
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

fn condition(line: usize, word: &str) -> Problem {
    let what = format!("the condition `{word}` is not supported");
    refused(FILE, line, what).help("remove the condition, or redirect in the application")
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
            ("/a/:id /b/:id", "the placeholder"),
            ("/*/a /b", "before its end"),
            ("/a?b /c", "a query or a fragment"),
            ("/* /index.html 200", "a rewrite"),
            ("/a /b 404", "the status 404"),
            ("/a /b 418", "the status is not supported"),
            ("/a /b/:splat", "`:splat`"),
            ("/a /\u{e9}", "visible ASCII"),
            ("/a /a", "leads to itself"),
            ("/%zz /a", "no valid path"),
        ] {
            let error = read(&format!("\n{text}\n")).expect_err(text).to_string();
            assert!(
                error.starts_with("error: _redirects, line 2: ") && error.contains(part),
                "{text}: {error}"
            );
            assert!(error.contains("\nhelp: "), "{error}");
        }
    }
}
