//! Key of a route in the page cache. The key stays the same over reloads and restarts, since pages on
//! disk are stored by the key.

use super::guards::guarded_paths;
use super::request_rules::cors_paths;
use crate::config::{
    BackendAddressConfig, BackendConfig, BalancerConfig, BalancerRef, CgiConfig, GitConfig,
    InterpreterConfig, ProxyConfig, RouteConfig, ScriptsConfig, SiteConfig, TargetConfig,
};
use balancer::settings::{
    ConnectionSettings, MemberHost, MemberTlsSettings, MemberUrl, ProxyHeaderVersion,
};
use base::digest::sha256;
use base::heap_sort::sort;
use data_plane::handler::proxy::route::{ForwardSettings, ForwardedHost};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use wire::path_readings::Slashes;

/// Version of the encoding, the first field of the key. A change of the encoding, or of the meaning of a
/// field, needs the next version: pages of the old version are then not found.
const VERSION: u64 = 2;

/// Returns the key of the pages of a route of the site with the first name `name`. The key depends on
/// every setting that can change a page: the handler, the operator's fields, other paths to a handler and
/// the guards. The place of a setting in the file does not matter.
pub(super) fn route_key(name: &str, site: &SiteConfig, route: &RouteConfig) -> u64 {
    let mut key = KeyEncoder(Vec::new());
    key.number(VERSION);
    key.text(name);
    key.text(route.path.get_ref());
    let cookies = route.cache.as_ref().map(|cache| cache.ignore_cookies);
    key.option(cookies, |key, ignored| key.number(ignored.into()));
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
    key.option(route.target.as_ref(), KeyEncoder::target);
    key.option(route.scripts.as_ref(), KeyEncoder::scripts);
    let digest = sha256(&key.0);
    digest
        .iter()
        .take(8)
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Returns true if the route has keys about files that may change a page: response fields, or other paths to a handler.
fn has_page_rules(route: &RouteConfig) -> bool {
    !route.files.headers.is_empty() || route.files.try_paths.is_some()
}

/// Unambiguous encoding of the fields of a key: a number is 8 bytes, a text has its length in front, a
/// list its count, an enum the number of its variant.
struct KeyEncoder(Vec<u8>);

impl KeyEncoder {
    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn path(&mut self, path: &Path) {
        self.bytes(path.as_os_str().as_bytes());
    }

    fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut KeyEncoder, T)) {
        self.number(value.is_some().into());
        if let Some(value) = value {
            write(self, value);
        }
    }

    fn list<T>(
        &mut self,
        items: impl ExactSizeIterator<Item = T>,
        mut write: impl FnMut(&mut KeyEncoder, T),
    ) {
        self.number(items.len() as u64);
        items.for_each(|item| write(self, item));
    }

    fn pairs(&mut self, pairs: &[(String, String)]) {
        self.list(pairs.iter(), |key, (name, value)| {
            key.text(name);
            key.text(value);
        });
    }

    fn target(&mut self, target: &TargetConfig) {
        match target {
            TargetConfig::Redirect(to) => {
                self.number(1);
                self.text(to.to.get_ref());
            }
            TargetConfig::Rewrite(to) => {
                self.number(2);
                self.text(to.get_ref());
            }
            TargetConfig::Root(root) => {
                self.number(3);
                self.path(root.get_ref());
            }
            TargetConfig::Cgi(cgi) => {
                let CgiConfig {
                    folder,
                    interpreters,
                    variables,
                } = cgi;
                self.number(4);
                self.path(folder.get_ref());
                self.interpreters(interpreters);
                self.pairs(variables);
            }
            TargetConfig::Backend(backend) => {
                self.number(5);
                self.backend(backend);
            }
            TargetConfig::Git(git) => {
                self.number(6);
                self.git(git);
            }
            TargetConfig::Hits(shown) => {
                self.number(7);
                self.number((*shown.get_ref()).into());
            }
            #[cfg(feature = "test-handlers")]
            TargetConfig::Test(test) => {
                self.number(8);
                self.number(*test as u64);
            }
            TargetConfig::Proxy(proxy) => {
                self.number(9);
                self.proxy(proxy);
            }
            TargetConfig::Closed(status) => {
                self.number(10);
                self.number((*status.get_ref()).into());
            }
        }
    }

    fn scripts(&mut self, scripts: &ScriptsConfig) {
        match scripts {
            ScriptsConfig::Cgi {
                interpreters,
                variables,
            } => {
                self.number(1);
                self.interpreters(interpreters);
                self.pairs(variables);
            }
            ScriptsConfig::Backend(backend) => {
                self.number(2);
                self.backend(backend);
            }
        }
    }

    fn interpreters(&mut self, interpreters: &[InterpreterConfig]) {
        self.list(interpreters.iter(), |key, it| {
            let InterpreterConfig { ending, program } = it;
            key.text(ending);
            key.path(program.get_ref());
        });
    }

    fn backend(&mut self, backend: &BackendConfig) {
        let BackendConfig {
            is_scgi,
            address,
            files,
            takes_all,
            keep,
            script_root,
            variables,
        } = backend;
        self.number((*is_scgi).into());
        match address.get_ref() {
            BackendAddressConfig::Unix(path) => {
                self.number(1);
                self.path(path);
            }
            BackendAddressConfig::Tcp(address) => {
                self.number(2);
                self.text(&address.to_string());
            }
        }
        self.list(files.iter(), |key, ending| key.text(ending));
        self.number((*takes_all).into());
        self.option(*keep, |key, keep| key.number(keep as u64));
        self.option(script_root.as_ref(), |key, root| key.text(root));
        self.pairs(variables);
    }

    fn git(&mut self, git: &GitConfig) {
        let GitConfig {
            folder,
            exports_all,
            push,
            // The users of a push make no difference to pages, as the users of a route.
            push_users: _,
            pages,
            variables,
            deploy,
        } = git;
        self.path(folder.get_ref());
        self.number((*exports_all).into());
        self.number((*push).into());
        self.number((*pages).into());
        self.pairs(variables);
        self.list(deploy.iter(), |key, it| {
            key.text(it.repository.get_ref());
            key.text(it.branch.get_ref());
            key.text(it.site.get_ref());
        });
    }

    /// Encodes a balancer by its name: all members serve the same pages, and a new member leaves the pages
    /// in the cache. The server of `proxy` is encoded by its URL.
    fn proxy(&mut self, proxy: &ProxyConfig) {
        let ProxyConfig { balancer, forward } = proxy;
        match balancer {
            BalancerRef::Named(name) => {
                self.number(1);
                self.text(name.get_ref());
            }
            BalancerRef::Own(balancer) => {
                self.number(2);
                self.own_balancer(balancer);
            }
        }
        let ForwardSettings {
            host,
            prefix,
            slashes,
            request_fields,
            response_fields,
            passes_login,
            // An interim response is no page.
            has_h1_hints: _,
        } = forward;
        match host {
            ForwardedHost::Client => self.number(1),
            ForwardedHost::Member => self.number(2),
            ForwardedHost::Fixed(host) => {
                self.number(3);
                self.text(host);
            }
        }
        self.option(prefix.as_ref(), |key, prefix| key.text(prefix));
        self.number(match slashes {
            Slashes::Keep => 0,
            Slashes::Merge => 1,
        });
        for fields in [request_fields, response_fields] {
            self.list(fields.iter(), |key, (name, value)| {
                key.text(name);
                key.text(value);
            });
        }
        // The keys of other routes stay as they were.
        if *passes_login {
            self.text("pass_login");
        }
    }

    /// Encodes the server of `proxy` and every setting of a connection by which the server may choose a
    /// page. Durations and numbers of connections change no page.
    fn own_balancer(&mut self, balancer: &BalancerConfig) {
        let settings = &balancer.settings;
        self.list(settings.members.iter(), |key, member| {
            key.member_url(&member.url);
        });
        let ConnectionSettings {
            connect_timeout: _,
            first_byte_timeout: _,
            silence_timeout: _,
            idle_max: _,
            idle_timeout: _,
            queue: _,
            queue_timeout: _,
            tunnels: _,
            tls,
            from,
            send_proxy_header,
            is_http2,
        } = &settings.connection;
        let MemberTlsSettings {
            authorities,
            server_name,
            client_certificate,
        } = tls;
        self.option(authorities.as_ref(), |key, file| key.path(file));
        self.option(server_name.as_ref(), |key, name| key.text(name));
        self.option(client_certificate.as_ref(), |key, (certificate, own)| {
            key.path(certificate);
            key.path(own);
        });
        self.option(*from, |key, from| key.text(&from.to_string()));
        self.option(*send_proxy_header, |key, version| {
            key.number(match version {
                ProxyHeaderVersion::V1 => 1,
                ProxyHeaderVersion::V2 => 2,
            });
        });
        self.number((*is_http2).into());
    }

    fn member_url(&mut self, url: &MemberUrl) {
        let MemberUrl { is_tls, host } = url;
        self.number((*is_tls).into());
        match host {
            MemberHost::Address(address) => {
                self.number(1);
                self.text(&address.to_string());
            }
            MemberHost::Name(name, port) => {
                self.number(2);
                self.text(name);
                self.number((*port).into());
            }
            MemberHost::Unix(path) => {
                self.number(3);
                self.path(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

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
