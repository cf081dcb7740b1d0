//! Search for a balancer and a member by the operator's words. Pure.

use crate::admin::limits::UNKNOWN_NAME_BYTES_MAX;
use balancer::settings::{MemberHost, MemberUrl};
use cli::suggest;

/// Returns the index of the balancer with the name. An error says which names exist.
pub(crate) fn find_balancer(typed: &str, names: &[&str]) -> Result<usize, String> {
    let found = names.iter().position(|name| *name == typed);
    found.ok_or_else(|| match names {
        [] => "error: the configuration has no balancer\n".to_owned(),
        names => {
            let help = help(typed, names.iter().copied(), names);
            match shown_word(typed, "-_.") {
                Some(word) => format!("error: there is no balancer `{word}`\nhelp: {help}\n"),
                None => format!("error: this balancer is unknown\nhelp: {help}\n"),
            }
        }
    })
}

/// Returns the first 64 characters of a word of letters, digits and `more`; None for any other text. A link of a
/// foreign page to the manager could otherwise make the manager show sentences of the foreign page.
fn shown_word<'t>(word: &'t str, more: &str) -> Option<&'t str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
    let is_shown = word.chars().all(is_word);
    is_shown.then(|| &word[..word.len().min(UNKNOWN_NAME_BYTES_MAX)])
}

/// Returns the index of the member with the URL, the host and port, or the route `typed`. Each member is
/// given by its URL and its route. An error says which members exist, or which members the word may mean.
pub(crate) fn find_member(
    balancer: &str,
    typed: &str,
    members: &[(MemberUrl, Box<str>)],
) -> Result<usize, String> {
    let names: Vec<Vec<String>> = members
        .iter()
        .map(|(url, route)| names(url, route))
        .collect();
    let typed = typed.trim_end_matches('/');
    let is_named = |names: &Vec<String>| names.iter().any(|name| name.eq_ignore_ascii_case(typed));
    let found: Vec<usize> = (0..names.len())
        .filter(|at| is_named(&names[*at]))
        .collect();
    let urls = |indices: &[usize]| -> Vec<&str> {
        indices.iter().map(|at| names[*at][0].as_str()).collect()
    };
    match found.as_slice() {
        [one] => Ok(*one),
        [] => {
            let all: Vec<usize> = (0..names.len()).collect();
            let known = names.iter().flatten().map(String::as_str);
            let help = help(typed, known, &urls(&all));
            Err(match shown_word(typed, "-_.:/[]") {
                Some(word) => {
                    format!(
                        "error: the balancer `{balancer}` has no member `{word}`\nhelp: {help}\n"
                    )
                }
                None => {
                    format!("error: the balancer `{balancer}` has no such member\nhelp: {help}\n")
                }
            })
        }
        several => Err(format!(
            "error: `{typed}` may be several members of the balancer `{balancer}`\n\
             help: write the URL: {}\n",
            urls(several).join(", ")
        )),
    }
}

/// Returns the nearest of the known words, and all names.
fn help<'k>(typed: &str, known: impl IntoIterator<Item = &'k str>, names: &[&str]) -> String {
    let names = names.join(", ");
    match suggest(typed, known) {
        Some(meant) => format!("did you mean `{meant}`? The names are: {names}"),
        None => format!("the names are: {names}"),
    }
}

/// Returns the names of a member, the URL first.
fn names(url: &MemberUrl, route: &str) -> Vec<String> {
    let scheme = if url.is_tls { "https" } else { "http" };
    let authority = url.authority();
    let mut names = vec![url.to_string()];
    match &url.host {
        MemberHost::Address(address) => names.push(address.to_string()),
        MemberHost::Name(name, port) => names.push(format!("{name}:{port}")),
        MemberHost::Unix(path) => names.push(format!("{scheme}://unix:{}", path.display())),
    }
    if !matches!(url.host, MemberHost::Unix(_)) {
        names.push(format!("{scheme}://{authority}"));
        names.push(authority);
    }
    if !route.is_empty() {
        names.push(route.to_owned());
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(is_tls: bool, host: MemberHost, route: &str) -> (MemberUrl, Box<str>) {
        (MemberUrl { is_tls, host }, route.into())
    }

    fn members() -> Vec<(MemberUrl, Box<str>)> {
        let address = |text: &str| MemberHost::Address(text.parse().unwrap());
        vec![
            member(false, address("127.0.0.1:9001"), "a"),
            member(false, address("127.0.0.1:80"), "b"),
            member(true, address("[::1]:443"), ""),
            member(false, MemberHost::Name("app.test".into(), 8080), ""),
            member(true, MemberHost::Name("app.test".into(), 8080), ""),
            member(false, MemberHost::Unix("/run/app.sock".into()), "socket"),
        ]
    }

    #[test]
    fn a_member_is_found_by_each_of_its_names() {
        for (typed, index) in [
            ("http://127.0.0.1:9001", 0),
            ("http://127.0.0.1:9001/", 0),
            ("127.0.0.1:9001", 0),
            ("a", 0),
            ("http://127.0.0.1:80", 1),
            ("http://127.0.0.1", 1),
            ("127.0.0.1", 1),
            ("https://[::1]", 2),
            ("[::1]:443", 2),
            ("http://APP.test:8080", 3),
            ("https://app.test:8080", 4),
            ("unix:/run/app.sock", 5),
            ("http://unix:/run/app.sock", 5),
            ("socket", 5),
        ] {
            assert_eq!(find_member("app", typed, &members()), Ok(index), "{typed}");
        }
    }

    #[test]
    fn an_ambiguous_or_unknown_member_is_refused_with_the_names() {
        let ambiguous = find_member("app", "app.test:8080", &members()).unwrap_err();
        assert_eq!(
            ambiguous,
            "error: `app.test:8080` may be several members of the balancer `app`\n\
             help: write the URL: http://app.test:8080, https://app.test:8080\n"
        );
        let unknown = find_member("app", "127.0.0.1:9002", &members()[..2]).unwrap_err();
        assert_eq!(
            unknown,
            "error: the balancer `app` has no member `127.0.0.1:9002`\n\
             help: did you mean `127.0.0.1:9001`? The names are: http://127.0.0.1:9001, \
             http://127.0.0.1:80\n"
        );
    }

    #[test]
    fn an_unknown_balancer_is_refused_with_the_names() {
        assert_eq!(find_balancer("b", &["a", "b"]), Ok(1));
        assert_eq!(
            find_balancer("clutser", &["cluster", "other"]).unwrap_err(),
            "error: there is no balancer `clutser`\n\
             help: did you mean `cluster`? The names are: cluster, other\n"
        );
        assert_eq!(
            find_balancer("zzz", &["cluster"]).unwrap_err(),
            "error: there is no balancer `zzz`\nhelp: the names are: cluster\n"
        );
        let long = "z".repeat(65);
        assert_eq!(
            find_balancer(&long, &["cluster"]).unwrap_err(),
            format!(
                "error: there is no balancer `{}`\nhelp: the names are: cluster\n",
                &long[1..]
            )
        );
        for foreign in ["call the number 555", "<b>", "\u{202e}", "a\nb"] {
            assert_eq!(
                find_balancer(foreign, &["cluster"]).unwrap_err(),
                "error: this balancer is unknown\nhelp: the names are: cluster\n"
            );
            let error = find_member("app", foreign, &members()).unwrap_err();
            let begin = "error: the balancer `app` has no such member\nhelp: the names are: ";
            assert!(error.starts_with(begin), "{error}");
        }
        assert_eq!(
            find_balancer("a b", &[]).unwrap_err(),
            "error: the configuration has no balancer\n"
        );
        let none = find_balancer("a", &[]).unwrap_err();
        assert_eq!(none, "error: the configuration has no balancer\n");
    }
}
