//! Key of a route in the page cache. The key stays the same over reloads and restarts, since pages on
//! disk are stored by the key.

use super::guards::guarded_paths;
use super::request_rules::cors_paths;
use crate::config::{PageKey, RouteConfig, SiteConfig, TargetConfig};
use base::heap_sort::sort;

/// Version of the encoding, the first field of the key. A change of the encoding, or of the meaning of a
/// field, needs the next version: pages of the old version are then not found.
const VERSION: u64 = 2;

/// Returns the key of the pages of a route of the site with the first name `name`. The key depends on
/// every setting that can change a page: the handler, the operator's fields, other paths to a handler and
/// the guards. The place of a setting in the file does not matter.
pub(super) fn route_key(name: &str, site: &SiteConfig, route: &RouteConfig) -> u64 {
    let mut key = PageKey::new();
    key.number(VERSION);
    key.text(name);
    key.text(route.path.get_ref());
    let cookies = route.cache.as_ref().map(|cache| cache.ignore_cookies);
    key.option(cookies, |key, ignored| key.number(ignored.into()));
    // The keys of routes without `bypass_cookies` stay as they were. The handler gets no cookie with any pattern, so the
    // order of the patterns and the patterns themselves do not change a page; the presence of the key does.
    let bypassed = route.cache.iter().flat_map(|cache| &cache.bypass_cookies);
    if bypassed.count() > 0 {
        key.text("bypass_cookies");
    }
    let root = site.root.as_ref().map(|root| root.get_ref());
    key.option(root, |key, root| key.path(root));
    // The keys of other sites stay as they were before releases.
    if let Some(release) = &site.release {
        key.text(release.name.get_ref());
    }
    // A rewrite and the last of `try` lead to a handler by another path than the page's own.
    let rewrites = site.routes.iter().filter_map(|route| match &route.target {
        Some(TargetConfig::Rewrite(to)) => Some((route.path.get_ref(), to.get_ref())),
        _ => None,
    });
    let mut rewrites: Vec<_> = rewrites.collect();
    sort(&mut rewrites);
    key.list(rewrites.iter(), |key, (path, to)| {
        key.text(path);
        key.text(to);
    });
    key.list(site.try_paths.iter(), |key, path| key.text(path));
    // A page may contain the response to an internal redirect (`Location: /path`). With other guards, the
    // response may no longer be public.
    key.list(guarded_paths(site).iter(), |key, path| key.text(path));
    // Pages are stored with the operator's fields.
    key.list(site.headers.iter(), |key, headers| {
        key.text(headers.files.get_ref());
        key.pairs(&headers.set);
    });
    // Pages are stored without the handler's fields of cross-origin access. The keys of sites without `cors` stay as
    // they were before.
    let mut cors = cors_paths(site).to_vec();
    sort(&mut cors);
    if !cors.is_empty() {
        key.list(cors.iter(), |key, path| key.bytes(path));
    }
    // The keys of sites without such keys in routes stay as they were.
    let mut by_path: Vec<_> = site.routes.iter().filter(|it| has_page_rules(it)).collect();
    by_path.sort_by_key(|route| route.path.get_ref());
    for route in by_path {
        key.text(route.path.get_ref());
        key.list(route.files.headers.iter(), |key, headers| {
            key.text(headers.files.get_ref());
            key.pairs(&headers.set);
        });
        let tries = route.files.try_paths.as_deref();
        key.list(tries.unwrap_or_default().iter(), |key, path| key.text(path));
        key.number(route.files_first.into());
    }
    key.option(route.target.as_ref(), |key, target| {
        target.add_to_page_key(key)
    });
    key.option(route.scripts.as_ref(), |key, scripts| {
        scripts.add_to_page_key(key)
    });
    key.digest()
}

/// Returns true if the route has keys about files that may change a page: response fields, or other paths to a handler.
fn has_page_rules(route: &RouteConfig) -> bool {
    !route.files.headers.is_empty() || route.files.try_paths.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use std::path::Path;

    /// One site; the first route is the route of the key.
    const BASE: &str = r#"
[[site]]
names = ["example.org"]
root = "public"
try = ["$path", "/app/index.cgi$path"]
headers = [{ files = "*.html", set = { X-A = "1", X-B = "2" } }]

[[site.route]]
path = "/app/"
TARGET

[[site.route]]
path = "/old/"
rewrite = "/app/?from=old"

[[site.route]]
path = "/private/"
allow = ["10.0.0.0/8"]
"#;

    const CGI: &str = r#"cgi = "bin"
interpreter = { ".py" = "/usr/bin/python3" }
env = { MODE = "live" }"#;
    const FASTCGI: &str = r#"fastcgi = "unix:/run/app.sock"
keep = 4
script_root = "/srv"
env = { MODE = "live" }"#;
    const SCGI: &str = r#"scgi = "127.0.0.1:4000""#;
    const SCRIPTS: &str = r#"fastcgi = "127.0.0.1:9000"
files = ".php""#;
    const INTERPRETER: &str = r#"interpreter = { ".php" = "/usr/bin/php-cgi" }"#;
    const GIT: &str = r#"git = "repositories"
export = "all"
users = "users.htpasswd"
push = true
pages = true
deploy = [{ repository = "a.git", branch = "main", site = "example.org" }]"#;

    const PROXY: &str = r#"proxy = { url = "https://app.test:9000", host = "member", prefix = "/base/", server_name = "in.test", from = "10.0.0.1", send_proxy_header = "v1", http2 = true, ca = "ca.pem", client_certificate = "client.pem", client_key = "client.key", request_headers = { X-A = "a" }, response_headers = { X-B = "b" } }"#;
    const PROXY_UNIX: &str = r#"proxy = "http://unix:/run/app.sock""#;
    const PROXY_ADDRESS: &str = r#"proxy = "http://127.0.0.1:9000""#;
    const BALANCE: &str = r#"balance = "one""#;

    /// Balancers of the routes, at the end of the configuration.
    const BALANCERS: &str = r#"
[[balancer]]
name = "one"
members = ["http://10.0.0.1"]

[[balancer]]
name = "two"
members = ["http://10.0.0.1"]
"#;

    const BASES: [&str; 10] = [
        CGI,
        FASTCGI,
        SCGI,
        SCRIPTS,
        INTERPRETER,
        GIT,
        PROXY,
        PROXY_UNIX,
        PROXY_ADDRESS,
        BALANCE,
    ];

    fn key_of(text: &str) -> u64 {
        let text = &format!("{text}{BALANCERS}");
        let config = config::parse(text, Path::new("/srv/anthill.toml"));
        let config = config.unwrap_or_else(|error| panic!("{error}\n{text}"));
        let site = &config.sites[0];
        let is_app = |route: &&RouteConfig| route.path.get_ref().starts_with("/app");
        let route = site.routes.iter().find(is_app).expect("a route /app");
        route_key(&site.name, site, route)
    }

    fn with(target: &str) -> String {
        let cache = match target {
            // Repositories always have the page cache, and no key for the cache.
            GIT => "",
            _ => "cache = { seconds = 10, ignore_cookies = false }\n",
        };
        BASE.replace("TARGET\n", &format!("{target}\n{cache}"))
    }

    #[test]
    fn keys_are_the_same_in_every_build() {
        let keys = BASES.map(|it| key_of(&with(it)));
        assert_eq!(
            keys,
            [
                9_075_068_253_800_457_273,
                2_036_138_819_322_258_687,
                1_028_922_732_637_102_560,
                18_277_629_316_012_915_334,
                11_652_223_108_179_900_731,
                11_812_918_580_851_349_620,
                8_147_391_614_136_719_723,
                10_127_984_702_370_246_653,
                16_741_464_484_895_428_363,
                7_064_506_728_160_413_621,
            ],
            "the encoding has changed: take the next VERSION, then the new keys"
        );
    }

    #[test]
    fn every_setting_of_a_page_changes_the_key() {
        let changes = [
            (CGI, "\"example.org\"]", "\"example.com\"]"),
            (CGI, "root = \"public\"", "root = \"other\""),
            (CGI, "\"/app/index.cgi$path\"", "\"/app/other.cgi$path\""),
            (CGI, "\"*.html\"", "\"*.htm\""),
            (CGI, "X-A = \"1\"", "X-A = \"3\""),
            (CGI, "X-B", "X-C"),
            (CGI, "path = \"/app/\"", "path = \"/app/sub/\""),
            (CGI, "ignore_cookies = false", "ignore_cookies = true"),
            (CGI, "ignore_cookies = false", "bypass_cookies = [\"a\"]"),
            (CGI, "path = \"/old/\"", "path = \"/older/\""),
            (CGI, "?from=old", "?from=older"),
            (CGI, "path = \"/private/\"", "path = \"/closed/\""),
            (CGI, "\"bin\"", "\"sbin\""),
            (CGI, "\".py\"", "\".pyc\""),
            (CGI, "python3", "python4"),
            (CGI, "MODE", "MOOD"),
            (CGI, "\"live\"", "\"test\""),
            (FASTCGI, "app.sock", "other.sock"),
            (FASTCGI, "unix:/run/app.sock", "127.0.0.1:9000"),
            (FASTCGI, "keep = 4", "keep = 5"),
            (FASTCGI, "keep = 4\n", ""),
            (FASTCGI, "\"/srv\"", "\"/var\""),
            (FASTCGI, "script_root = \"/srv\"\n", ""),
            (FASTCGI, "\"live\"", "\"test\""),
            (SCGI, "4000", "4001"),
            (SCGI, "scgi", "fastcgi"),
            (SCRIPTS, "\".php\"", "[\".php\", \".phtml\"]"),
            (SCRIPTS, "\".php\"", "\"*\""),
            (SCRIPTS, "9000", "9001"),
            (INTERPRETER, "php-cgi", "php8-cgi"),
            (INTERPRETER, "\".php\"", "\".phtml\""),
            (GIT, "\"repositories\"", "\"other\""),
            (GIT, "\"all\"", "\"marked\""),
            (GIT, "push = true", "push = false"),
            (GIT, "pages = true", "pages = false"),
            (GIT, "\"a.git\"", "\"b.git\""),
            (GIT, "\"main\"", "\"live\""),
            (PROXY_ADDRESS, "http://", "https://"),
            (PROXY, "app.test:9000", "app.test:9001"),
            (PROXY, "app.test:9000", "ap.test:9000"),
            (PROXY, "host = \"member\"", "host = \"client\""),
            (PROXY, "host = \"member\"", "host = \"in.test\""),
            (PROXY, "\"/base/\"", "\"/\""),
            (PROXY, "prefix = \"/base/\", ", ""),
            (PROXY, "\"in.test\"", "\"out.test\""),
            (PROXY, "\"10.0.0.1\"", "\"10.0.0.2\""),
            (PROXY, "\"v1\"", "\"v2\""),
            (PROXY, "http2 = true", "http2 = false"),
            (PROXY, "\"ca.pem\"", "\"ca2.pem\""),
            (PROXY, "\"client.pem\"", "\"client2.pem\""),
            (PROXY, "\"client.key\"", "\"client2.key\""),
            (PROXY, "X-A = \"a\"", "X-A = \"\""),
            (PROXY, "X-B = \"b\"", "X-C = \"b\""),
            (PROXY_UNIX, "app.sock", "other.sock"),
            (PROXY_ADDRESS, "9000", "9001"),
            (PROXY_ADDRESS, "proxy =", "slashes = \"merge\"\nproxy ="),
            (BALANCE, "\"one\"", "\"two\""),
            (BALANCE, "\"one\"", "{ name = \"one\", host = \"member\" }"),
        ];
        let mut keys: Vec<(u64, String)> = Vec::new();
        let changed = changes.iter().map(|(target, from, to)| {
            let text = with(target);
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        });
        for text in BASES.into_iter().map(with).chain(changed) {
            let key = key_of(&text);
            if let Some((_, other)) = keys.iter().find(|(its, _)| *its == key) {
                panic!("one key for two configurations:\n{text}\n{other}");
            }
            keys.push((key, text));
        }
    }

    #[test]
    fn other_settings_leave_the_key() {
        let text = with(CGI);
        let key = key_of(&text);
        let changes = [
            ("[[site]]", "# A comment.\n\n[[site]]"),
            ("root = \"public\"", "root = \"public\"\nlisting = true"),
            ("seconds = 10", "seconds = 20"),
            ("10.0.0.0/8", "10.1.0.0/16"),
            (
                "[[site.route]]\npath = \"/old/\"",
                "[[site.route]]\npath = \"/else/\"\nredirect = \"/app/\"\n\n[[site.route]]\npath = \"/old/\"",
            ),
        ];
        for (from, to) in changes {
            assert!(text.contains(from), "{from}");
            assert_eq!(key_of(&text.replacen(from, to, 1)), key, "{to}");
        }
        // Durations and numbers of connections change no page.
        let text = with(PROXY);
        let changed = text.replacen(
            "host =",
            "connections = 9, tunnels = 3, queue = 5, idle_timeout = \"1s\", host =",
            1,
        );
        assert_ne!(changed, text);
        assert_eq!(key_of(&changed), key_of(&text));
    }
}
