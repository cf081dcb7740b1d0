//! URLs of HTTP servers behind the server: `http://127.0.0.1:9000`, `https://app.example.org`,
//! `http://unix:/run/app.sock`.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::path::{Path, PathBuf};

use crate::config::error::OperatorError;
use crate::config::field_variables::foreign_variable;
use crate::config::foreign_values::SEVERAL_MEMBERS;
use crate::config::page_key::PageKey;
use crate::config::paths::{SOCKET_PATH_MAX, fits_socket, join};
use crate::config::toml_reader::{FromToml, KeyedValue};
use crate::config::values::{InvalidValue, check_host, wrong};
use balancer::settings::{MemberHost, MemberUrl};
use base::visible_text::is_hidden;

/// URL in `proxy`: the server, and the path that replaces the path of the route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProxyUrl {
    /// Location of the server.
    pub(super) member: MemberUrl,
    /// Path with slashes at both ends; `None` for a URL without a path.
    pub(super) prefix: Option<Box<str>>,
}

impl FromToml for ProxyUrl {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let folder = item.source.folder;
        item.parse("a URL", EXAMPLE, |text| proxy_url(text, folder))
    }
}

impl FromToml for MemberUrl {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let folder = item.source.folder;
        item.parse("a URL", EXAMPLE, |text| member_url(text, folder))
    }
}

/// Returns a URL as written in the file, without a default port.
pub fn shown_url(url: &MemberUrl) -> String {
    let (scheme, usual) = if url.is_tls {
        ("https", 443)
    } else {
        ("http", 80)
    };
    let (host, port) = match &url.host {
        MemberHost::Unix(path) => return format!("{scheme}://unix:{}", path.display()),
        MemberHost::Name(name, port) => (name.to_string(), *port),
        MemberHost::Address(SocketAddr::V4(address)) => (address.ip().to_string(), address.port()),
        MemberHost::Address(SocketAddr::V6(address)) => {
            let whole = address.to_string();
            let host = whole.rsplit_once(':').map_or("", |(host, _)| host);
            (host.to_owned(), address.port())
        }
    };
    if port == usual {
        format!("{scheme}://{host}")
    } else {
        format!("{scheme}://{host}:{port}")
    }
}

/// Parses the URL of a member with an address or a host name. The error says what is wrong and what to write.
pub fn parse_member_url(text: &str) -> Result<MemberUrl, String> {
    member_url(text, Path::new("/"))
        .map_err(|error| format!("{}\nhelp: {}", error.what, error.help))
}

/// Parses the URL of a balancer's member, a URL without a path. `folder` is the folder of relative paths.
fn member_url(text: &str, folder: &Path) -> Result<MemberUrl, InvalidValue> {
    let url = proxy_url(text, folder)?;
    match url.prefix {
        None => Ok(url.member),
        Some(path) if &*path == "/" => wrong(
            format!("the URL `{text}` of a member has a path"),
            format!(
                "write \"{}\", without the slash at the end",
                shown_url(&url.member)
            ),
        ),
        Some(_) => wrong(
            format!("the URL `{text}` of a member has a path"),
            format!(
                "write \"{}\", and the path in the route: balance = {{ name = \"…\", prefix = \
                 \"/…/\" }}",
                shown_url(&url.member)
            ),
        ),
    }
}

/// Parses the URL of `proxy`.
pub(super) fn proxy_url(text: &str, folder: &Path) -> Result<ProxyUrl, InvalidValue> {
    if text.matches("://").count() > 1 && text.contains([',', ' ']) {
        return wrong(format!("`{text}` has several URLs"), SEVERAL_MEMBERS);
    }
    let (is_tls, rest) = scheme(text)?;
    if let Some(path) = rest.strip_prefix("unix:") {
        let member = unix_url(text, is_tls, path, folder)?;
        return Ok(ProxyUrl {
            member,
            prefix: None,
        });
    }
    if let Some((url, options)) = text.split_once(' ').filter(|(_, it)| it.contains('=')) {
        let weight = options.split(' ').find_map(|it| it.strip_prefix("weight="));
        let weight = weight.filter(|it| it.bytes().all(|byte| byte.is_ascii_digit()));
        let fails = options
            .split(' ')
            .find_map(|it| it.strip_prefix("max_fails="));
        let member = match weight {
            Some(weight) => format!("{{ url = \"{url}\", weight = {weight} }}"),
            None => format!("\"{url}\""),
        };
        let fails = fails.filter(|it| it.bytes().all(|byte| byte.is_ascii_digit()));
        let fails = fails.map_or_else(String::new, |it| {
            format!(", and eject = {{ failures = {it} }} in [[balancer]]")
        });
        return wrong(
            format!("the options behind the URL in `{text}` are those of another server"),
            format!("write {member}{fails}"),
        );
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return wrong(
            format!("the URL `{text}` has a space or another character that no URL has"),
            "write the URL without spaces and in ASCII",
        );
    }
    for (mark, name) in [('#', "fragment"), ('?', "query")] {
        if let Some((bare, _)) = text.split_once(mark) {
            return wrong(
                format!("the URL `{text}` has a {name}"),
                format!("write the URL without {name}: \"{bare}\""),
            );
        }
    }
    let (authority, path) = match rest.find('/') {
        Some(at) => (&rest[..at], Some(&rest[at..])),
        None => (rest, None),
    };
    let host = authority_host(text, is_tls, authority)?;
    let prefix = path.map(|path| prefix(text, path)).transpose()?;
    let member = MemberUrl { is_tls, host };
    Ok(ProxyUrl { member, prefix })
}

/// Splits a URL into the scheme and the rest. Returns true for `https`.
fn scheme(text: &str) -> Result<(bool, &str), InvalidValue> {
    // A slash or the colon of the scheme is missing, as in `http:/host` and `http//host`.
    for scheme in ["http", "https"] {
        let rest = text.strip_prefix(scheme);
        let rest = rest.filter(|rest| rest.starts_with([':', '/']) && !rest.starts_with("://"));
        if let Some(rest) = rest {
            let rest = rest.trim_start_matches([':', '/']);
            return wrong(
                format!("`{text}` is not the URL of an HTTP server"),
                format!("write \"{scheme}://{rest}\""),
            );
        }
    }
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
        None if text.starts_with("unix:") => (String::new(), text),
        None => (String::new(), text.trim_start_matches('/')),
    };
    let help = match &*scheme {
        "http" => return Ok((false, rest)),
        "https" => return Ok((true, rest)),
        "" if rest.is_empty() => format!("write a URL such as {EXAMPLE}"),
        "" if rest.starts_with(':') => format!("write \"http://127.0.0.1{rest}\""),
        "" if rest.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("write \"http://127.0.0.1:{rest}\"")
        }
        "ws" => format!("write \"http://{rest}\": WebSockets pass too"),
        "wss" => format!("write \"https://{rest}\": WebSockets pass too"),
        "h2c" => format!("write \"http://{rest}\", and `http2 = true` beside the URL"),
        "grpc" => format!("write \"http://{rest}\", and `http2 = true` beside the URL"),
        "grpcs" => format!("write \"https://{rest}\", and `http2 = true` beside the URL"),
        "fcgi" | "fastcgi" => format!("write `fastcgi = \"{rest}\"` in the route"),
        "scgi" => format!("write `scgi = \"{rest}\"` in the route"),
        "tcp" | "" => format!("write \"http://{rest}\""),
        "unix" | "http+unix" => format!("write \"http://unix:{rest}\""),
        _ => "write a URL with http:// or https://".to_owned(),
    };
    wrong(format!("`{text}` is not the URL of an HTTP server"), help)
}

/// Parses the path of a Unix socket.
fn unix_url(
    text: &str,
    is_tls: bool,
    path: &str,
    folder: &Path,
) -> Result<MemberUrl, InvalidValue> {
    if path.contains(is_hidden) {
        return wrong(
            format!("`{}` has a control character", text.escape_debug()),
            "rename the socket, and write its path without control characters",
        );
    }
    if is_tls {
        return wrong(
            format!("`{text}` would speak TLS over a Unix socket"),
            format!("write \"http://unix:{path}\": no other machine reads a Unix socket"),
        );
    }
    if let Some((socket, after)) = path.split_once(':') {
        return wrong(
            format!("`{text}` has a path after the socket"),
            format!("write url = \"http://unix:{socket}\" and prefix = \"{after}\""),
        );
    }
    if path.trim_matches('/').is_empty() {
        return wrong(
            format!("`{text}` names no Unix socket"),
            "write the path of the socket: \"http://unix:/run/app.sock\"",
        );
    }
    let path: PathBuf = join(folder, path);
    if !fits_socket(&path) {
        return wrong(
            format!("the path of the socket is longer than {SOCKET_PATH_MAX} bytes"),
            "write a shorter path, such as \"http://unix:/run/app.sock\"",
        );
    }
    Ok(MemberUrl {
        is_tls,
        host: MemberHost::Unix(path),
    })
}

/// Parses the part of a URL between the scheme and the path: a host, and a port unless the port is usual.
fn authority_host(text: &str, is_tls: bool, authority: &str) -> Result<MemberHost, InvalidValue> {
    if let Some((_, host)) = authority.rsplit_once('@') {
        let scheme = if is_tls { "https" } else { "http" };
        return wrong(
            "a URL of a member has no user",
            format!(
                "write \"{scheme}://{host}\"; a login is a field of the request: request_headers \
                 = {{ Authorization = \"Basic …\" }}"
            ),
        );
    }
    let usual = if is_tls { 443 } else { 80 };
    if let Some(rest) = authority.strip_prefix('[') {
        return bracketed_host(text, rest, usual);
    }
    let (host, port) = match authority.split_once(':') {
        Some((_, port)) if port.contains(':') => {
            return wrong(
                format!("`{text}` has an IPv6 address without brackets"),
                BRACKETS,
            );
        }
        Some((host, port)) => (host, port_number(text, port)?),
        None => (authority, usual),
    };
    if host.is_empty() {
        return wrong(
            format!("`{text}` has no host"),
            format!("for example {EXAMPLE}"),
        );
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(MemberHost::Address(SocketAddr::new(address, port)));
    }
    let host = host.to_ascii_lowercase();
    let what = format!("`{host}` is not a host name");
    let last = host.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|byte| byte.is_ascii_digit()) {
        return wrong(what, "an IPv4 address has four numbers: \"127.0.0.1\"");
    }
    check_host(what, &host)?;
    Ok(MemberHost::Name(host.into(), port))
}

/// Parses an IPv6 address after the opening bracket, with its port.
fn bracketed_host(text: &str, rest: &str, usual: u16) -> Result<MemberHost, InvalidValue> {
    let Some((host, port)) = rest.split_once(']') else {
        return wrong(format!("`{text}` lacks a closing bracket"), BRACKETS);
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port_number(text, port)?,
        None if port.is_empty() => usual,
        None => return wrong(format!("`{text}` has text after the bracket"), BRACKETS),
    };
    match format!("[{host}]:{port}").parse::<SocketAddrV6>() {
        Ok(address) => Ok(MemberHost::Address(address.into())),
        Err(_) => wrong(format!("`{host}` is not an IPv6 address"), BRACKETS),
    }
}

fn port_number(text: &str, port: &str) -> Result<u16, InvalidValue> {
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse() {
        Ok(port) if is_number && port != 0 => Ok(port),
        _ if port.contains('$') && !text.contains("${") => {
            let (before, _) = text.split_once('$').unwrap_or((text, ""));
            wrong(
                format!("`{text}` has a variable of another server"),
                format!(
                    "write \"{before}\": the path and the query of a request are passed on without a variable"
                ),
            )
        }
        _ => wrong(
            format!("`{port}` in `{text}` is not a port"),
            "a port is a number from 1 to 65535",
        ),
    }
}

/// Validates the path that replaces the path of a route, written as in a URL, and returns the path with
/// slashes at both ends. `shown` is the whole value in the file.
pub(super) fn prefix(shown: &str, path: &str) -> Result<Box<str>, InvalidValue> {
    let what = if shown == path {
        format!("`{path}` is not a path")
    } else {
        format!("`{shown}` has no valid path: `{path}`")
    };
    if !path.starts_with('/') {
        return wrong(what, format!("begin the path with a slash: \"/{path}\""));
    }
    let refuse = |help: &str| wrong(what.clone(), help.to_owned());
    let has_variable = foreign_variable(path).is_some()
        || ["$1", "$uri", "$path", "$rest", "$query"]
            .iter()
            .any(|it| path.contains(it))
        || path.contains('{');
    if path.ends_with('*') || has_variable {
        return refuse(
            "write the path alone, such as \"/base/\": the rest of the path of a request is appended",
        );
    }
    let is_path = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@%".contains(&byte);
    if !path.bytes().all(is_path) {
        return refuse(
            "write the path as in a URL, other characters percent-encoded: \"/my%20app/\"",
        );
    }
    let bytes = path.as_bytes();
    let is_hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    let percents = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    if percents
        .into_iter()
        .any(|(at, _)| !is_hex(at + 1) || !is_hex(at + 2))
    {
        return refuse("write two hexadecimal digits after each %");
    }
    let parts: Vec<&str> = path.trim_end_matches('/').split('/').skip(1).collect();
    let decoded = |part: &str| part.replace("%2e", ".").replace("%2E", ".");
    if parts
        .iter()
        .any(|part| matches!(&*decoded(part), "" | "." | ".."))
        || path.ends_with("//")
    {
        return refuse("write the path without `.`, `..` or doubled slashes");
    }
    let slash = if path.ends_with('/') { "" } else { "/" };
    Ok(format!("{path}{slash}").into())
}

/// URL for error messages, as written in the file.
const EXAMPLE: &str = "\"http://127.0.0.1:9000\"";
/// Help for a wrong IPv6 address.
const BRACKETS: &str = "write an IPv6 address in brackets: \"http://[::1]:9000\"";

/// Adds the location of a member to the key of pages.
pub(super) fn add_member_url(key: &mut PageKey, url: &MemberUrl) {
    let MemberUrl { is_tls, host } = url;
    key.number((*is_tls).into());
    match host {
        MemberHost::Address(address) => {
            key.number(1);
            key.text(&address.to_string());
        }
        MemberHost::Name(name, port) => {
            key.number(2);
            key.text(name);
            key.number((*port).into());
        }
        MemberHost::Unix(path) => {
            key.number(3);
            key.path(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        // The columns: the URL, the URL as shown, and the prefix.
        for (text, shown, prefix) in [
            ("http://127.0.0.1:9000", "http://127.0.0.1:9000", None),
            ("http://127.0.0.1", "http://127.0.0.1", None),
            ("http://127.0.0.1:80/", "http://127.0.0.1", Some("/")),
            ("https://App.Example.org", "https://app.example.org", None),
            ("https://app:443/a", "https://app", Some("/a/")),
            ("https://app:80", "https://app:80", None),
            (
                "HTTP://app:443/a%20b/c/",
                "http://app:443",
                Some("/a%20b/c/"),
            ),
            ("http://[::1]", "http://[::1]", None),
            (
                "http://[2001:DB8::0:1]:81/x",
                "http://[2001:db8::1]:81",
                Some("/x/"),
            ),
            ("http://[fe80::1%2]:81", "http://[fe80::1%2]:81", None),
            ("http://my_app.lan:65535", "http://my_app.lan:65535", None),
            (
                "http://unix:/run/app.sock",
                "http://unix:/run/app.sock",
                None,
            ),
            (
                "http://unix:run/a b.sock",
                "http://unix:/srv/run/a b.sock",
                None,
            ),
        ] {
            let url = proxy_url(text, Path::new("/srv"));
            let url = url.unwrap_or_else(|wrong| panic!("{text}: {wrong:?}"));
            assert_eq!(shown_url(&url.member), shown, "{text}");
            assert_eq!(url.prefix.as_deref(), prefix, "{text}");
            let again = proxy_url(shown, Path::new("/")).map(|url| url.member);
            assert_eq!(again, Ok(url.member), "{shown}");
        }
    }

    #[test]
    fn wrong_urls_have_a_message_and_a_correction() {
        let long = format!("http://unix:/{}", "a".repeat(200));
        for (text, what, help) in [
            (
                "",
                "not the URL of an HTTP server",
                "\"http://127.0.0.1:9000\"",
            ),
            ("127.0.0.1:9000", "not the URL", "\"http://127.0.0.1:9000\""),
            (
                "localhost:3000/x",
                "not the URL",
                "\"http://localhost:3000/x\"",
            ),
            ("//app", "not the URL", "\"http://app\""),
            (":9000", "not the URL", "\"http://127.0.0.1:9000\""),
            ("9000", "not the URL", "\"http://127.0.0.1:9000\""),
            ("unix:/run/a", "not the URL", "\"http://unix:/run/a\""),
            ("tcp://app:1", "not the URL", "\"http://app:1\""),
            ("ws://app", "not the URL", "\"http://app\": WebSockets"),
            ("wss://app", "not the URL", "\"https://app\": WebSockets"),
            ("h2c://app", "not the URL", "`http2 = true`"),
            (
                "grpcs://app",
                "not the URL",
                "\"https://app\", and `http2 = true`",
            ),
            ("fcgi://app:9000", "not the URL", "`fastcgi = \"app:9000\"`"),
            ("scgi://app:9000", "not the URL", "`scgi = \"app:9000\"`"),
            ("ftp://app", "not the URL", "http:// or https://"),
            ("http://", "has no host", "http://127.0.0.1:9000"),
            ("http:///x", "has no host", ""),
            ("http://:80", "has no host", ""),
            (
                "http://app:",
                "`` in `http://app:` is not a port",
                "1 to 65535",
            ),
            ("http://app:0", "`0` in", "1 to 65535"),
            ("http://app:65536", "`65536` in", ""),
            ("http://app:+80", "`+80` in", ""),
            ("http://app:port", "`port` in", ""),
            ("http://ant@app", "has no user", "\"http://app\""),
            (
                "https://ant:secret@app:1/x",
                "has no user",
                "\"https://app:1\"",
            ),
            ("http://app?x", "has a query", "\"http://app\""),
            ("http://app/x#y", "has a fragment", "\"http://app/x\""),
            ("http://a b", "has a space", "without spaces"),
            ("http://ü", "another character", "ASCII"),
            ("http://::1", "without brackets", "http://[::1]:9000"),
            (
                "http://[::1",
                "lacks a closing bracket",
                "http://[::1]:9000",
            ),
            ("http://[::1]9", "text after the bracket", ""),
            ("http://[app]", "`app` is not an IPv6 address", ""),
            (
                "http://127.0.0",
                "`127.0.0` is not a host name",
                "four numbers",
            ),
            ("http://300.0.0.1", "not a host name", "four numbers"),
            ("http://*.app", "not a host name", ""),
            ("http://a..b", "not a host name", ""),
            ("http://app//x", "no valid path", "doubled slashes"),
            ("http://app/a/../b", "no valid path", "`..`"),
            ("http://app/a/%2e%2E/b", "no valid path", "`..`"),
            ("http://app/a%2", "no valid path", "hexadecimal"),
            ("http://app/a\\b", "no valid path", "percent-encoded"),
            (
                "https://unix:/run/a",
                "TLS over a Unix socket",
                "\"http://unix:/run/a\"",
            ),
            ("http://unix:", "names no Unix socket", "/run/app.sock"),
            (
                "http://unix:/run/a:/x/",
                "a path after the socket",
                "prefix = \"/x/\"",
            ),
            (&long, "longer than 107 bytes", ""),
        ] {
            let wrong = proxy_url(text, Path::new("/srv")).expect_err(text);
            assert!(wrong.what.contains(what), "{text}: {wrong:?}");
            assert!(wrong.help.contains(help), "{text}: {wrong:?}");
        }
        let wrong = member_url("http://app/", Path::new("/")).expect_err("a path");
        assert!(wrong.what.contains("has a path"), "{wrong:?}");
        assert_eq!(
            wrong.help,
            "write \"http://app\", without the slash at the end"
        );
        // The message has no password.
        let wrong = member_url("http://ant:secret@app", Path::new("/")).expect_err("a user");
        assert!(!format!("{wrong:?}").contains("secret"), "{wrong:?}");
    }
}
