//! Tests of accepted values, refused values and the wording of the errors.

// A failed set-up is a failed test.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;

use super::declared_table::ShownValue;
use super::proxy_values::Weight;
use super::values::{ListenAddress, parse_duration, site_name};
use super::*;
use cli::suggest;
use data_plane::limits::Limits;
use data_plane::site::CacheControlRule;

fn read(text: &str) -> Result<Config, OperatorError> {
    parse(text, Path::new("/srv/anthill.toml"))
}

fn good(text: &str) -> Config {
    match read(text) {
        Ok(config) => config,
        Err(error) => panic!("{error}"),
    }
}

fn message(text: &str) -> String {
    match read(text) {
        Ok(_) => panic!("this was accepted:\n{text}"),
        Err(error) => {
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        }
    }
}

/// Configuration with every key, each with a value other than the default.
const FULL: &str = r#"
[server]
https   = ["[::]:8443", "0.0.0.0:8443"]
http    = 8081
public_port = 443
workers = 4
user    = "anthill"
memory_max = "64MiB"
state   = "state"
control = "/run/anthill.sock"
limits  = { connections = 500, idle_seconds = "2m", head_bytes = "8KiB" }

[log]
access = "logs/access.log"
errors = "off"
format = "json"

[tls]
min_version = "1.3"
ciphers = ["TLS13_AES_256_GCM_SHA384"]
tickets = "tickets.key"

[[site]]
names     = ["www.Example.org", "*.example.org"]
root      = "public"
http      = "serve"
index     = ["index.html", "index.htm"]
try       = ["$path", "$path.html", "/index.html"]
errors    = { 404 = "not-found.html", 503 = "/sorry/later.html" }
listing   = true
symlinks  = "follow"
certificate = "combined.pem"
key       = "key.pem"
client_ca = "clients.pem"
hsts      = "180d"
mime      = { ".WASM" = "application/wasm" }
cache     = [ { files = "*.{ico,png}", max_age = "30d", immutable = true }, "hashed", { files = "*.html", max_age = 600 } ]
headers   = [ { files = "*", set = { X-B = "b", "X-A" = "a" } } ]
log       = "-"

[[site.route]]
path = "/old/"
redirect = "https://example.org/new/"
allow = ["192.168.0.0/24"]
users = "users.htpasswd"

[[site.route]]
path = "/other"
root = "/srv/other"

[[site.route]]
path = "/echo"
test = "echo"

[[site]]
[[site.route]]
path = "/"
rewrite = "/new/"
"#;

#[test]
fn every_key_is_read() {
    let config = good(FULL);
    let server = &config.server;
    assert_eq!(server.https[0].get_ref().to_string(), "[::]:8443");
    assert!(
        server.https[0].get_ref().v6_only,
        "0.0.0.0 has the other half"
    );
    assert_eq!(server.https[1].get_ref().to_string(), "0.0.0.0:8443");
    assert_eq!(*server.http[0].get_ref(), ListenAddress::all(8081));
    assert_eq!(server.public_port, Some(443));
    assert_eq!(server.workers.as_ref().map(|w| *w.get_ref()), Some(4));
    assert_eq!(server.memory_max, Some(64 << 20));
    assert_eq!(server.state.get_ref(), Path::new("/srv/state"));
    assert_eq!(server.control.get_ref(), Path::new("/run/anthill.sock"));
    assert_eq!(server.limits.connections, 500);
    assert_eq!(server.limits.idle_seconds, 120);
    assert_eq!(server.limits.head.head_bytes, 8192);
    assert_eq!(server.limits.head.fields, Limits::default().head.fields);

    assert_eq!(
        *config.log.access.get_ref(),
        LogTarget::File("/srv/logs/access.log".into())
    );
    assert_eq!(*config.log.errors.get_ref(), LogTarget::Off);
    assert_eq!(
        config.log.format,
        data_plane::ledger::access_log::AccessLogFormat::Json
    );
    assert_eq!(config.tls.min_version, TlsVersion::Tls13);
    assert_eq!(config.tls.ciphers.as_ref().map(Vec::len), Some(1));
    assert_eq!(
        config.tls.tickets.as_ref().map(|t| t.get_ref().as_path()),
        Some(Path::new("/srv/tickets.key"))
    );

    let site = &config.sites[0];
    assert_eq!(site.names[0].get_ref(), "www.example.org");
    assert_eq!(&FULL[site.names[0].span()], "\"www.Example.org\"");
    assert_eq!(&FULL[site.span.clone()], "[[site]]");
    assert_eq!(
        site.root.as_ref().map(|r| r.get_ref().as_path()),
        Some(Path::new("/srv/public"))
    );
    assert_eq!(
        (site.http, site.symlinks, site.listing),
        (PlainHttp::Serve, SymlinksConfig::Follow, true)
    );
    assert_eq!(site.index, ["index.html", "index.htm"]);
    assert_eq!(site.try_paths, ["$path", "$path.html", "/index.html"]);
    let errors: Vec<_> = site
        .errors
        .iter()
        .map(|(s, page)| (*s, page.get_ref().as_str()))
        .collect();
    assert_eq!(errors, [(404, "not-found.html"), (503, "sorry/later.html")]);
    assert_eq!(site.hsts, Some(180 * 86_400));
    assert_eq!(
        site.mime,
        [(".wasm".to_owned(), "application/wasm".to_owned())]
    );
    assert_eq!(
        site.cache.iter().map(|it| it.rule).collect::<Vec<_>>(),
        [
            CacheControlRule {
                max_age_seconds: 30 * 86_400,
                immutable: true,
                only_hashed: false,
            },
            CacheControlRule::HASHED,
            CacheControlRule {
                max_age_seconds: 600,
                immutable: false,
                only_hashed: false,
            },
        ]
    );
    // The fields keep the order of the file, not of the alphabet.
    assert_eq!(site.headers[0].set[0].0, "X-B");
    assert_eq!(
        site.log.access.as_ref().map(|log| log.get_ref()),
        Some(&LogTarget::Stdout)
    );

    let [old, other, echo] = site.routes.as_slice() else {
        panic!("three routes")
    };
    assert!(
        matches!(&old.target, Some(TargetConfig::Redirect(it)) if it.to.get_ref() == "https://example.org/new/")
    );
    assert_eq!(old.allow.as_ref().map(Vec::len), Some(1));
    assert_eq!(
        old.users.as_ref().map(|u| u.get_ref().as_path()),
        Some(Path::new("/srv/users.htpasswd"))
    );
    assert!(
        matches!(&other.target, Some(TargetConfig::Root(to)) if to.get_ref() == Path::new("/srv/other"))
    );
    assert_eq!(
        echo.target,
        Some(TargetConfig::Test(TestHandlerConfig::Echo))
    );

    assert_eq!(config.sites[1].names[0].get_ref(), "*");
    assert_eq!(config.sites[1].root, None, "a route answers for everything");
}

#[test]
fn a_site_names_its_release_and_the_publishers() {
    let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    let site = format!("[[site]]\nrelease = \"www\"\npublishers = [\"{key}\"]\n");
    let config = good(&format!("[server]\nstate = \"state\"\n{site}"));
    assert_eq!(
        config.server.releases_folder(),
        Path::new("/srv/state/releases")
    );
    assert_eq!(config.sites[0].root, None);
    let release = config.sites[0].release.as_ref().expect("a release");
    assert_eq!(release.name.get_ref(), "www");
    assert_eq!(base::digest::hex(&release.publishers[0]), key);
    let config = good(&format!("[server]\nreleases = \"store\"\n{site}"));
    assert_eq!(config.server.releases_folder(), Path::new("/srv/store"));
    assert!(config.secret_paths().contains(&"/srv/store".into()));
}

#[test]
fn an_empty_file_has_every_default() {
    let config = good("");
    assert_eq!(config.server.https.len(), 1);
    assert_eq!(*config.server.https[0].get_ref(), ListenAddress::all(8443));
    assert_eq!(*config.server.http[0].get_ref(), ListenAddress::all(8080));
    assert_eq!(config.https_port(), Some(8443));
    assert_eq!(config.server.limits, Limits::default());
    assert_eq!(config.sites.len(), 1);
    let site = &config.sites[0];
    assert_eq!(
        site.root.as_ref().map(|r| r.get_ref().as_path()),
        Some(Path::new("/srv/public"))
    );
    assert_eq!(site.index, ["index.html"]);
    assert_eq!(site.http, PlainHttp::Redirect);
}

#[test]
fn a_folder_needs_no_configuration_file() {
    let folder = tempfile::tempdir().unwrap();
    let config = guess(folder.path()).unwrap();
    assert_eq!(config.path, None);
    assert_eq!(config.sites[0].names[0].get_ref(), "*");
    assert_eq!(
        config.sites[0].root.as_ref().unwrap().get_ref(),
        folder.path()
    );
    assert!(config.server.control.get_ref().as_os_str().len() <= 107);
    // An error of a later stage has no line to show.
    let error = config.point(0..0, "port 8443 is in use", "another one with --https");
    assert_eq!(
        error.to_string(),
        "error: port 8443 is in use\nhelp: another one with --https"
    );
}

#[test]
fn errors_show_the_line_and_mark_the_mistake() {
    let table = [
        (
            "[server]\nhtps = [\":1\"]\n",
            "error: unknown key `htps` in [server]\n --> /srv/anthill.toml:2:1\n  |\n2 | htps = [\":1\"]\n  | ^^^^\nhelp: did you mean `https`?",
        ),
        (
            "[server]\nlisting = true\n",
            "error: unknown key `listing` in [server]\n --> /srv/anthill.toml:2:1\n  |\n2 | listing = true\n  | ^^^^^^^\nhelp: `listing` belongs in [[site]]",
        ),
        (
            "[log]\ncolour = true",
            "error: unknown key `colour` in [log]\n --> /srv/anthill.toml:2:1\n  |\n2 | colour = true\n  | ^^^^^^\nhelp: [log] knows access, errors, format, skip, rotate",
        ),
        (
            "\ncluster = \"a\"\n",
            "error: `cluster` is not yet supported\n --> /srv/anthill.toml:2:1\n  |\n2 | cluster = \"a\"\n  | ^^^^^^^\nhelp: remove the key: a later version of anthill will support it",
        ),
        (
            "[[site]]\nlisting = \"yes\"\n",
            "error: `listing` must be true or false, not text\n --> /srv/anthill.toml:2:11\n  |\n2 | listing = \"yes\"\n  |           ^^^^^\nhelp: write listing = true",
        ),
        (
            "[log]\nformat = \"jsn\"",
            "error: `format` can't be \"jsn\"\n --> /srv/anthill.toml:2:10\n  |\n2 | format = \"jsn\"\n  |          ^^^^^\nhelp: did you mean \"json\"?",
        ),
        (
            "[[site]]\nnames = [\"a.org\"]\n\n[[site]]\nnames = [\"b.org\", \"A.ORG\"]\n",
            "error: two sites have the name `a.org`\n --> /srv/anthill.toml:5:19\n  |\n5 | names = [\"b.org\", \"A.ORG\"]\n  |                   ^^^^^^^\nhelp: the first site is in line 2; give each site its own names",
        ),
        (
            "a = 1\na = 2\n",
            "error: `a` stands twice in the table\n --> /srv/anthill.toml:2:1\n  |\n2 | a = 2\n  | ^\nhelp: the first is in line 1: a key may occur once in a table, so remove one of the two",
        ),
        (
            "[server",
            "error: unclosed table, expected `]`\n --> /srv/anthill.toml:1:8\n  |\n1 | [server\n  |        ^\nhelp: write brackets at both ends: [server]",
        ),
        (
            "[server]\nhttps = []\nhttp = \"off\"\n",
            "error: there is no address to listen on\n --> /srv/anthill.toml:1:1\n  |\n1 | [server]\n  | ^^^^^^^^\nhelp: give `https` or `http` an address, such as \":8443\"",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(message(text), expected, "\n{text}");
    }
}

/// A row holds the text, a part of the message and a part of the help.
#[test]
fn each_mistake_has_a_message_and_a_correction() {
    let table = [
        (
            "[[site.route]]\npath = \"/a\"\n",
            "may have several [[site]]",
            "write [[site]] above its lists of tables",
        ),
        (
            "[[site.route]]\npath = \"/a\"\n[[site]]\nroot = \"b\"\n",
            "[[site.route]] stands above its [[site]]",
            "write [[site]] above",
        ),
        (
            "[site]\n",
            "may have several [[site]]",
            "double brackets: [[site]]",
        ),
        (
            "[[server]]\n",
            "may have a single [server] only",
            "single brackets: [server]",
        ),
        ("site = 5\n", "must be a list of tables, not a number", ""),
        ("site = []\n", "the file has no [[site]]", "root = "),
        (
            "[balancer]\n",
            "may have several [[balancer]]",
            "double brackets: [[balancer]]",
        ),
        ("[cluster]\n", "not yet", ""),
        (
            "[tls]\nacme = { email = \"a@b\" }",
            "not an e-mail address",
            "me@example.org",
        ),
        ("[tls]\nacme = true", "must be a table", ""),
        (
            "[tls]\nacme = { emial = \"\" }",
            "unknown key `emial` in acme",
            "did you mean `email`?",
        ),
        (
            "[tls]\nacme = { directory = \"letsencript\" }",
            "not the URL of an ACME directory",
            "did you mean \"letsencrypt\"?",
        ),
        (
            "[tls]\nacme = { directory = \"http://ca.example.org/\" }",
            "not the URL of an ACME directory",
            "https://",
        ),
        (
            "[tls]\nacme = { challenge = \"dns-02\" }",
            "`challenge` can't be",
            "did you mean \"dns-01\"?",
        ),
        (
            "[tls]\nacme = { challenge = \"dns-01\" }",
            "dns-01 needs a `hook`",
            "present NAME VALUE",
        ),
        (
            "[tls]\nacme = { challenge = \"http-01\", hook = \"h\" }",
            "not used by the challenge http-01",
            "dns-01",
        ),
        (
            "[tls]\nacme = { eab = { kid = \"a\" } }",
            "eab needs `key`",
            "for example key",
        ),
        (
            "[tls]\nacme = { eab = { kid = \"a\", key = \"!\" } }",
            "not a valid key",
            "base64url",
        ),
        (
            "[tls]\nacme = {}\n[[site]]\nnames = [\"*.example.org\"]",
            "only the challenge dns-01 can validate `*.example.org`",
            "hook",
        ),
        (
            "[server]\nhttps = []\n[tls]\nacme = {}",
            "the server has no https address",
            "remove `acme`",
        ),
        (
            "[server]\nhttp = []\n[tls]\nacme = { challenge = \"http-01\" }",
            "http-01 needs plain HTTP",
            "another challenge",
        ),
        ("cluster = \"x\"", "not yet", ""),
        (
            "[[site]]\nrelease = \"../www\"",
            "`../www` is no name of a site in a store",
            "begin with a letter or digit",
        ),
        (
            "[[site]]\nrelease = \"www\"\nsymlinks = \"inside\"",
            "`symlinks` is for a site with a folder",
            "remove `symlinks`",
        ),
        (
            "[[site]]\nrelease = \"www\"\npublishers = [\"abc\"]",
            "no Ed25519 public key",
            "64 lower-case hexadecimal digits",
        ),
        (
            "[[site]]\npublishers = []",
            "`publishers` is for a site with `release`",
            "release = \"www\"",
        ),
        (
            "[[site]]\nrelease = \"www\"\n[[site.route]]\npath = \"/\"\nfastcgi = \"127.0.0.1:1\"\nfiles = \".php\"",
            "the route / runs files of the site",
            "write `root` instead of `release`",
        ),
        (
            "[[site]]\nnames = [\"www\"]\nrelease = \"www\"\npublishers = [\"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a\"]\n[[site]]\nnames = [\"git\"]\n[[site.route]]\npath = \"/\"\ngit = \"git\"\npush = true\nusers = \"u\"\ndeploy = { repository = \"a.git\", site = \"www\" }",
            "has `publishers`, and the server has no key",
            "anthill publish --key",
        ),
        (
            "[[site]]\nnames = [\"www\"]\nrelease = \"www\"\n[[site]]\nnames = [\"git\"]\n[[site.route]]\npath = \"/\"\ngit = \"git\"\npush = true\nusers = \"u\"\ndeploy = [{ repository = \"a.git\", site = \"www\" }, { repository = \"b.git\", site = \"www\" }]",
            "two deployments publish the release `www`",
            "its own site",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\ncache = {}",
            "`cache` stores responses of a handler",
            "files are served from memory",
        ),
        (
            "[server]\nhttps = [\"localhost:1\"]",
            "`localhost:1` is not an address",
            "\"127.0.0.1:1\"",
        ),
        (
            "[server]\nhttps = [\"::1:80\"]",
            "not an address",
            "\"[::1]:80\"",
        ),
        (
            "[server]\nhttps = [\"10.0.0.1\"]",
            "not an address",
            "add a port: \"10.0.0.1:8443\"",
        ),
        (
            "[server]\nhttps = [\":99999\"]",
            "the port 99999 is too large",
            "65535",
        ),
        ("[server]\nhttps = 99999", "`https` is too large", "65535"),
        (
            "[server]\nhttps = [\":80\"]\nhttp = [\":80\"]",
            "is used twice",
            "another port",
        ),
        (
            "[server]\nhttps = [\":8080\"]",
            "is used twice",
            "the default of `http` is :8080",
        ),
        (
            "[server]\nhttps = true",
            "must be an address to listen on or a table, not true or false",
            "",
        ),
        (
            "[server]\npublic_port = 0",
            "out of bounds",
            "between 1 and 65535",
        ),
        (
            "[server]\nworkers = \"many\"",
            "must be a number or \"auto\", not text",
            "workers = 4",
        ),
        ("[server]\nworkers = 0", "out of bounds", "\"auto\""),
        ("[server]\nworkers = -1", "can't be negative", ""),
        (
            "[server]\nmemory_max = \"lots\"",
            "`lots` is not a size",
            "64MiB",
        ),
        ("[server]\nstate = \"\"", "`state` is empty", ""),
        (
            "[server]\nlimits = { conections = 3 }",
            "unknown key",
            "`connections`",
        ),
        (
            "[server]\nlimits = { head_bytes = \"1MiB\" }",
            "out of bounds",
            "between 256 and \"32KiB\"",
        ),
        (
            "[server]\nlimits = { idle_seconds = 0 }",
            "out of bounds",
            "between \"1s\" and",
        ),
        (
            "[log]\naccess = 5",
            "must be \"-\", \"stderr\", \"off\" or a file",
            "",
        ),
        (
            "[tls]\nmin_version = 1.2",
            "not a number with a fraction",
            "min_version = \"1.2\"",
        ),
        (
            "[tls]\nmin_version = \"1.1\"",
            "can't be \"1.1\"",
            "\"1.2\"?",
        ),
        (
            "[tls]\nciphers = \"fast\"",
            "must be \"auto\" or a list",
            "",
        ),
        ("[tls]\nciphers = []", "is empty", "auto"),
        ("[[site]]\nnames = []", "`names` is empty", "\"*\""),
        (
            "[[site]]\nnames = [\"a.org\", \"a.org\"]",
            "twice",
            "remove one",
        ),
        (
            "[[site]]\nnames = [\"https://a.org/x\"]",
            "not a host name",
            "\"a.org\"",
        ),
        (
            "[[site]]\nnames = [\"a.org:80\"]",
            "not a host name",
            "\"a.org\"",
        ),
        (
            "[[site]]\nnames = [\"a.org.\"]",
            "not a host name",
            "\"a.org\"",
        ),
        (
            "[[site]]\nnames = [\"www.*.org\"]",
            "not a host name",
            "\"*.example.org\"",
        ),
        (
            "[[site]]\nnames = [\"müller.de\"]",
            "not a host name",
            "xn--",
        ),
        (
            "[[site]]\nnames = [\"a b\"]",
            "not a host name",
            "letters, digits",
        ),
        ("[[site]]\nnames = 5", "must be a host name in quotes", ""),
        (
            "[[site]]\n[[site]]",
            "two sites have the name `*`",
            "line 1",
        ),
        ("[[site]]\nroot = 5", "must be a path in quotes", "root = "),
        (
            "[[site]]\nindex = [\"a/b\"]",
            "not a file name",
            "index.html",
        ),
        (
            "[[site]]\ntry = [\"/index.php?q=$path\", \"/index.html\"]",
            "`/index.php` has a query but is not the last entry",
            "last entry",
        ),
        (
            "[[site]]\ntry = [\"$path?a=b\"]",
            "cannot have a query",
            "/index.php?q=$path",
        ),
        (
            "[[site]]\ntry = [\"$path\", \"/a?q=$uri\"]",
            "`q=$uri` has a `$` without a known name",
            "`$rest`",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a\"\nrewrite = \"/b?c=$query\"",
            "`$query` is only a part of the parameter `c=$query`",
            "alone between `&`",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a\"\nrewrite = \"/b?c d\"",
            "`c d` is not a query",
            "percent-encoded",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a\"\nrewrite = \"/b#c?d\"",
            "not a path of a site",
            "`#`",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a\"\nrewrite = \"/b/{path}\"",
            "the placeholder `{path}` is not supported in `rewrite`",
            "end the path with a slash",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a\"\nrewrite = \"/b?q={path}\"",
            "the placeholder `{path}` is not supported in `rewrite`",
            "`$rest`",
        ),
        (
            "[[site]]\ntry = [\"{path}\"]",
            "the placeholder `{path}` is not supported in `try`",
            "\"$path\"",
        ),
        (
            "[[site]]\nheaders = [ { files = \"*\", set = { X-Host = \"{host}\" } } ]",
            "the placeholder `{host}` in `X-Host` would reach clients as text",
            "no placeholders",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a\"\nmethods = [\"PURGES \"]",
            "the text ends with a space",
            "write \"PURGES\"",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a\"\nmethods = [\"purge\"]",
            "`purge` is not a method",
            "others in capitals",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a\"\nmethods = [\"PROPFND\"]",
            "`PROPFND` is not a method",
            "did you mean \"PROPFIND\"?",
        ),
        (
            "[[site]]\ntry = [\"$uri\"]",
            "not a path for `try`",
            "$path",
        ),
        (
            "[[site]]\nerrors = { 200 = \"x\" }",
            "`200` is not the status of an error",
            "404",
        ),
        (
            "[[site]]\nerrors = { foo = \"x\" }",
            "`foo` is not the status",
            "",
        ),
        (
            "[[site]]\nerrors = { 404 = \"../x\" }",
            "not a page of the site",
            "",
        ),
        (
            "[[site]]\nkey = \"k.pem\"",
            "a `key` but no `certificate`",
            "certificate = ",
        ),
        (
            "[[site]]\nhsts = [1]",
            "must be true, false or a duration",
            "",
        ),
        ("[[site]]\nhsts = \"long\"", "not a duration", "30d"),
        (
            "[[site]]\nmime = { wasm = \"a/b\" }",
            "not a file ending",
            "\".wasm\"",
        ),
        (
            "[[site]]\nmime = { \"/a/{b\" = \"a/b\" }",
            "the pattern `/a/{b` is invalid",
            "a pattern such as",
        ),
        (
            "[[site]]\nencodings = [{ files = \"*.gz\", set = \"gz\" }]",
            "",
            "\"gzip\"",
        ),
        (
            "[[site]]\nmime = { \".wasm\" = \"wasm\" }",
            "not a media type",
            "text/html",
        ),
        (
            "[[site]]\ncache = [ { files = \"*\" } ]",
            "a rule of `cache` needs `max_age`",
            "",
        ),
        (
            "[[site]]\ncache = [ { files = \"*\", max_ag = \"1d\" } ]",
            "unknown key `max_ag`",
            "`max_age`",
        ),
        (
            "[[site]]\ncache = [ { files = \"*\", max_age = \"1y\" } ]",
            "`1y` is not a duration",
            "",
        ),
        (
            "[[site]]\nheaders = [ { files = \"*\", set = { \"a b\" = \"c\" } } ]",
            "not a field name",
            "",
        ),
        (
            "[[site]]\nheaders = [ { files = \"*\", set = { a = \"b\\r\\nc\" } } ]",
            "not valid for the field `a`",
            "one line",
        ),
        (
            "[[site]]\nheaders = [ { files = \"*\", set = { content-LENGTH = \"1\" } } ]",
            "cannot be set",
            "remove the field",
        ),
        (
            "[[site]]\n[[site.route]]\nallow = []",
            "needs `path`",
            "path = ",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"a\"\nallow = []",
            "not a path of a site",
            "\"/a\"",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a/../b\"\nallow = []",
            "not a path of a site",
            "doubled",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a//b\"\nallow = []",
            "not a path of a site",
            "doubled",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a%20b\"\nallow = []",
            "not a path of a site",
            "percent",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a?b\"\nallow = []",
            "not a path of a site",
            "alone",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a\"",
            "no effect",
            "redirect",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a\"\nrewrite = \"/b\"\nredirect = \"/c\"",
            "not both `rewrite` and `redirect`",
            "remove one",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a\"\nredirect = { to = \"/b\", status = 200 }",
            "200 is not the status of a redirect",
            "301, 302, 303, 307 or 308; to serve another path at the same address, write `rewrite`",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a\"\nredirect = { to = \"/b\", status = 304 }",
            "304 is not the status of a redirect",
            "410 for a page that is gone",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a\"\nredirect = { status = 301 }",
            "no destination",
            "add to",
        ),
        (
            "[[site]]\nredirects = [{ from = \"/a\", to = \"/b\", status = 410 }]",
            "`to` has no effect with status 410",
            "remove `to`",
        ),
        (
            "[[site]]\nredirects = [{ from = \"/a\" }]",
            "no destination",
            "410",
        ),
        (
            "[[site]]\nredirects = [{ from = \"a\", to = \"/b\" }]",
            "`a` is no path",
            "slash",
        ),
        (
            "[[site]]\nrate = 0",
            "`rate` is out of bounds",
            "between 1 and",
        ),
        (
            "[[site]]\nrate = { requests = 1, burst = 0 }",
            "`burst` is out of bounds",
            "between 1 and",
        ),
        (
            "[[site]]\nrate = \"10r/s\"",
            "must be a whole number, not text",
            "rate = ",
        ),
        (
            "[[site]]\ncors = { origins = [\"*\"], credentials = true }",
            "`credentials` can't be combined with the origin \"*\"",
            "list the origins",
        ),
        (
            "[[site]]\ncors = { origins = [\"https://a.example\"], headers = [\"*\"], credentials = true }",
            "`credentials` can't be combined with \"*\"",
            "list the fields",
        ),
        (
            "[[site]]\ncors = \"https://a.example/\"",
            "not an origin",
            "write \"https://a.example\"",
        ),
        (
            "[[site]]\ncors = \"a.example\"",
            "not an origin",
            "write the scheme too: \"https://a.example\"",
        ),
        (
            "[[site]]\ncors = \"https://*.example.org\"",
            "not an origin",
            "write each origin",
        ),
        (
            "[[site]]\ncors = \"https://a.example:443\"",
            "not an origin",
            "leave the usual port out",
        ),
        ("[[site]]\ncors = \"null\"", "not an origin", "any page"),
        (
            "[[site]]\n[[site.route]]\npath = \"/a\"\nmethods = [\"get\"]",
            "`get` is not a method",
            "did you mean \"GET\"?",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a\"\nmethods = []",
            "`methods` is empty",
            "remove the key",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a\"\nmethods = [\"GET\"]\nguard_methods = [\"POST\"]",
            "no effect without `allow`, `users` or `auth`",
            "add `users`",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a\"\nclient_max_body_size = 1",
            "unknown key",
            "write body_bytes = \"100MiB\" in the route",
        ),
        (
            "[[site]]\nlimit_req = 1",
            "unknown key",
            "did you mean `rate`?",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a\"\nredirect = \"//evil\"",
            "not a target for a redirect",
            "URL",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a\"\nredirect = \"ftp://x\"",
            "not a target for a redirect",
            "URL",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a\"\ntest = \"echoo\"",
            "can't be \"echoo\"",
            "\"echo\"?",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a\"\nroot = \"x\"\n[[site.route]]\npath = \"/a/\"\nroot = \"y\"",
            "two routes have a target for `/a/`",
            "line 3",
        ),
        ("key", "key with no value", ""),
        ("x = yes\n", "", "quotes"),
    ];
    let mut failures = Vec::new();
    for (text, what, help) in table {
        let message = message(text);
        let (said, helped) = message.split_once("\nhelp: ").unwrap_or((&message, ""));
        let has_place = said.contains(" --> /srv/anthill.toml");
        if !said.contains(what) || !helped.contains(help) || !has_place {
            failures.push(format!("{text}\n{message}\nlacks {what} or {help}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn carets_are_below_the_mistake() {
    let table = [
        (
            "# ü\n[log]\nfarbe = \"grün\"",
            3,
            1,
            "farbe = \"grün\"",
            "^^^^^",
        ),
        // A Chinese or Japanese character takes two columns, a combining accent none.
        (
            "log = { access = \"日本\", x = 1 }",
            1,
            24,
            "log = { access = \"日本\", x = 1 }",
            "                         ^",
        ),
        (
            "log = { access = \"e\u{301}\", x = 1 }",
            1,
            24,
            "log = { access = \"e\u{301}\", x = 1 }",
            "                      ^",
        ),
        (
            "log = { access = \"🐜\", x = 1 }",
            1,
            23,
            "log = { access = \"🐜\", x = 1 }",
            "                       ^",
        ),
        ("[log]\n\tx = 1", 2, 2, "\tx = 1", "\t^"),
        ("[log]\r\nx = 1\r\n", 2, 1, "x = 1", "^"),
    ];
    for (text, line, column, shown, carets) in table {
        let gutter = " ".repeat(line.to_string().len());
        let expected = format!(
            " --> /srv/anthill.toml:{line}:{column}\n{gutter} |\n{line} | {shown}\n{gutter} | {carets}\n"
        );
        let message = message(text);
        assert!(
            message.contains(&expected),
            "{message}\nshould have\n{expected}"
        );
    }
}

#[test]
fn a_long_line_is_cut_around_the_mistake() {
    let text = format!(
        "log = {{ access = \"{}\", x = 1 }} # {}",
        "a".repeat(500),
        "b".repeat(500)
    );
    let message = message(&text);
    assert!(
        message.lines().all(|line| line.chars().count() < 200),
        "{message}"
    );
    let lines: Vec<&str> = message.lines().collect();
    let at = lines[4].find('^').unwrap();
    let above: String = lines[3].chars().skip(at).take(5).collect();
    assert_eq!(above, "x = 1");
}

#[test]
fn no_control_character_reaches_the_terminal() {
    let message = message("x = \u{1b}[31m\n");
    assert!(!message.contains('\u{1b}'), "{message:?}");
}

#[test]
fn durations_are_parsed() {
    for (text, seconds) in [
        ("0", 0),
        ("3600", 3600),
        ("90s", 90),
        ("10m", 600),
        ("12h", 43_200),
        ("30d", 2_592_000),
        ("2w", 1_209_600),
        ("1h30m", 5_400),
    ] {
        assert_eq!(parse_seconds(text), Some(seconds), "{text}");
    }
    for text in [
        "",
        "d",
        "1y",
        "-1s",
        "1.5h",
        "1h30",
        "1 h",
        "99999999999999999999",
        "999999999999999999w",
        "１s",
        "1ü",
        "500ms",
        "1s500ms",
    ] {
        assert_eq!(parse_seconds(text), None, "{text}");
    }
    for (text, milliseconds) in [
        ("2", 2_000),
        ("500ms", 500),
        ("0ms", 0),
        ("1500ms", 1_500),
        ("1s500ms", 1_500),
        ("1m1ms", 60_001),
        ("2w", 1_209_600_000),
    ] {
        let duration = Duration::from_millis(milliseconds);
        assert_eq!(parse_duration(text), Some(duration), "{text}");
    }
    for text in [
        "", "ms", "500 ms", "500MS", "1.5s", "500mss", "1s500", "-1s",
    ] {
        assert_eq!(parse_duration(text), None, "{text}");
    }
}

#[test]
fn values_are_shown_as_in_the_file() {
    for (milliseconds, shown) in [
        (0, "0s"),
        (1, "1ms"),
        (1_500, "1500ms"),
        (2_000, "2s"),
        (90_000, "90s"),
        (120_000, "2m"),
        (7_200_000, "2h"),
        (86_400_000, "1d"),
    ] {
        let duration = Duration::from_millis(milliseconds);
        assert_eq!(duration.shown(), format!("\"{shown}\""));
        assert_eq!(parse_duration(shown), Some(duration));
    }
    for (hundredths, shown) in [(100, "1"), (150, "1.5"), (1_225, "12.25"), (105, "1.05")] {
        assert_eq!(Weight(hundredths).shown(), shown);
    }
}

#[test]
fn sizes_are_parsed() {
    for (text, bytes) in [
        ("0", 0),
        ("4096", 4096),
        ("64KiB", 65_536),
        ("64k", 65_536),
        ("64 MiB", 64 << 20),
        ("1G", 1 << 30),
        ("5MB", 5_000_000),
    ] {
        assert_eq!(parse_bytes(text), Some(bytes), "{text}");
    }
    for text in [
        "",
        "MiB",
        "-1",
        "1.5MiB",
        "1TiBs",
        "99999999999999999999",
        "99999999999999GiB",
    ] {
        assert_eq!(parse_bytes(text), None, "{text}");
    }
}

#[test]
fn listen_addresses_are_parsed() {
    for (text, address) in [
        ("[::]:8443", "[::]:8443"),
        ("0.0.0.0:80", "0.0.0.0:80"),
        (":443", "[::]:443"),
        ("*:443", "[::]:443"),
        ("8443", "[::]:8443"),
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("[fe80::1%2]:80", "[fe80::1%2]:80"),
    ] {
        assert_eq!(
            ListenAddress::parse(text).map(|l| l.to_string()),
            Ok(address.to_owned()),
            "{text}"
        );
    }
    assert_eq!(
        ListenAddress::all(80)
            .without_ipv6()
            .map(|a| a.to_string())
            .as_deref(),
        Some("0.0.0.0:80")
    );
    assert_eq!(
        ListenAddress::parse("[::1]:80")
            .ok()
            .and_then(|l| l.without_ipv6()),
        None
    );
}

#[test]
fn site_names_are_normalised() {
    for (text, name) in [
        ("*", "*"),
        ("Example.ORG", "example.org"),
        ("*.example.org", "*.example.org"),
        ("localhost", "localhost"),
        ("192.168.0.5", "192.168.0.5"),
        ("[0:0::1]", "[::1]"),
        ("my_host.lan", "my_host.lan"),
        ("xn--mller-kva.de", "xn--mller-kva.de"),
    ] {
        assert_eq!(site_name(text), Ok(name.to_owned()), "{text}");
    }
    let long = "a".repeat(64);
    for text in [
        "", "*.", ".org", "a..b", "-a.org", "a-.org", "**", "*a.org", "a/b", "::1", "[::", &long,
    ] {
        assert!(site_name(text).is_err(), "{text}");
    }
}

#[test]
fn the_nearest_word_is_suggested() {
    let words = ["https", "http", "listing", "public_port", "try"];
    for (typed, meant) in [
        ("htps", Some("https")),
        ("htpp", Some("http")),
        ("Listing", Some("listing")),
        ("public-port", Some("public_port")),
        ("lsiting", Some("listing")),
        ("tyr", Some("try")),
        ("zebra", None),
        ("x", None),
        ("", None),
    ] {
        assert_eq!(suggest(typed, words), meant, "{typed}");
    }
}

#[test]
fn accounts_are_found_by_name_and_number() {
    let passwd = "root:x:0:0::/root:/bin/sh\nbroken\nweb:x:33:34::/:/bin/false\n";
    let group = "root:x:0:\nwww:x:34:\nlogs:x:4:syslog,web\nothers:x:5:webber\n";
    let web = UnixAccount::find_in("web", passwd, group).unwrap();
    assert_eq!((web.uid, web.gid, web.groups), (33, 34, vec![34, 4]));
    let web = UnixAccount::find_in("33", passwd, group).unwrap();
    assert_eq!((web.uid, web.gid, web.groups), (33, 34, vec![34, 4]));
    let both = UnixAccount::find_in("33:50", passwd, group).unwrap();
    assert_eq!((both.uid, both.gid), (33, 50));
    assert_eq!((&*both.group, &*both.name), ("50", "33:50"));
    let web = UnixAccount::find_in("web", passwd, group).unwrap();
    assert_eq!(web.group, "www");
    let bare = UnixAccount::find_in("4000", passwd, group).unwrap();
    assert_eq!((bare.uid, bare.gid, bare.groups), (4000, 4000, vec![4000]));
    assert_eq!(UnixAccount::find_in("webb", passwd, group), None);
    assert_eq!(UnixAccount::find_in("x:y", passwd, group), None);
}

/// Creates a folder with the files named in a configuration, and loads the configuration.
fn laid_out(text: &str) -> (tempfile::TempDir, Config) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(folder.path().join("public")).unwrap();
    for file in ["public/404.html", "cert.pem", "key.pem", "users"] {
        fs::write(folder.path().join(file), "x:y").unwrap();
    }
    let file = folder.path().join(FILE_NAME);
    fs::write(&file, format!("server.state = \"state\"\n{text}")).unwrap();
    let config = load(&file).unwrap();
    (folder, config)
}

#[test]
fn configured_files_must_exist() {
    let (folder, config) = laid_out(
        "[[site]]\nerrors = { 404 = \"404.html\" }\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n\
         log = \"access.log\"\n[[site.route]]\npath = \"/404.html\"\nusers = \"users\"\n",
    );
    let key = folder.path().join("key.pem");
    fs::set_permissions(key, fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(check(&config), Ok(Vec::new()));

    let table = [
        (
            "[[site]]\nroot = \"nix\"",
            "the folder ",
            "relative paths begin at",
        ),
        ("[[site]]\nroot = \"publik\"", " does not exist", "/public?"),
        (
            "[[site]]\nroot = \"cert.pem\"",
            "is a file, not a folder",
            "name the folder of the file",
        ),
        (
            "[[site]]\nerrors = { 404 = \"gone.html\" }",
            "the error page ",
            "remove 404",
        ),
        ("[[site]]\ncertificate = \"no.pem\"", "the certificate ", ""),
        (
            "[[site]]\ncertificate = \"public\"",
            "is a folder, not a file",
            "the path of the certificate",
        ),
        (
            "[[site]]\ncertificate = \"cert.pem\"\nkey = \"kex.pem\"",
            "the key ",
            "key.pem?",
        ),
        ("[[site]]\nlog = \"nix/access.log\"", " does not exist", ""),
        ("[[site]]\nlog = \"public\"", "is a folder, not a file", ""),
        (
            "[[site]]\n[[site.route]]\npath = \"/x\"\nusers = \"nobody\"",
            "the user file ",
            "",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/x\"\nroot = \"nix\"",
            " does not exist",
            "",
        ),
        (
            "[[site]]\nroot = \".\"",
            "is inside a served folder",
            "write a path outside of",
        ),
        ("[tls]\ntickets = \"no.key\"", "the key file ", ""),
    ];
    for (text, what, help) in table {
        let (_folder, config) = laid_out(text);
        let message = check(&config).unwrap_err().to_string();
        assert!(message.contains(what), "{text}\n{message}");
        assert!(message.contains(help), "{text}\n{message}");
    }
}

#[test]
fn a_configuration_in_a_served_folder_causes_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(FILE_NAME);
    fs::write(&file, "server.state = \".state\"\n[[site]]\nroot = \".\"\n").unwrap();
    let warnings = check(&load(&file).unwrap()).unwrap();
    assert!(
        warnings[0]
            .what()
            .contains("the server hides the file from clients"),
        "{warnings:?}"
    );

    let (_folder, config) =
        laid_out("[[site]]\nhttp = \"serve\"\n[[site.route]]\npath = \"/x\"\nusers = \"users\"\n");
    let warnings = check(&config).unwrap();
    assert!(
        warnings[0].what().contains("sent unencrypted"),
        "{warnings:?}"
    );
}

#[test]
fn files_unreadable_for_the_user_are_refused() {
    let text = "server.user = \"54321\"\n[[site]]\ncertificate = \"cert.pem\"\n";
    let (folder, config) = laid_out(text);
    let cert = folder.path().join("cert.pem");
    if !rustix::process::geteuid().is_root() {
        let message = check(&config).unwrap_err().to_string();
        assert!(message.contains("only root can switch to"), "{message}");
        return;
    }
    assert_eq!(check(&config), Ok(Vec::new()));
    fs::set_permissions(&cert, fs::Permissions::from_mode(0o600)).unwrap();
    let message = check(&config).unwrap_err().to_string();
    assert!(message.contains("user `54321` cannot read "), "{message}");
    assert!(
        message.contains("3 | certificate = \"cert.pem\"") || message.contains("4 | "),
        "{message}"
    );
    assert!(message.contains("help: chgrp 54321"), "{message}");
    // The account can read the certificate by the permissions of its group.
    std::os::unix::fs::chown(&cert, None, Some(54321)).unwrap();
    fs::set_permissions(&cert, fs::Permissions::from_mode(0o640)).unwrap();
    let account = UnixAccount::find("54321").unwrap();
    assert_eq!(account.gid, 54321, "no such account on any machine");
    assert_eq!(check(&config), Ok(Vec::new()));

    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let message = check(&config).unwrap_err().to_string();
    assert!(message.contains("cannot reach"), "{message}");
    assert!(message.contains("help: chmod o+x"), "{message}");
}

#[test]
fn a_key_of_certbot_is_refused_with_a_deploy_hook() {
    let key = "/etc/letsencrypt/live/www.example.org/privkey.pem";
    let help = super::check::kept_by_certbot(Path::new(key), "anthill").unwrap();
    let copies = "`install -m 640 -g anthill \"$RENEWED_LINEAGE\"/*.pem /etc/anthill/`";
    assert!(help.contains(copies), "{help}");
    assert!(
        help.contains("/etc/letsencrypt/renewal-hooks/deploy"),
        "{help}"
    );
    let other = Path::new("/etc/ssl/private/privkey.pem");
    assert_eq!(super::check::kept_by_certbot(other, "anthill"), None);
}

#[test]
fn a_control_socket_needs_a_folder_of_the_account() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(folder.path().join("public")).unwrap();
    fs::write(folder.path().join("public/index.html"), "a").unwrap();
    let check_with = |control: &str| {
        let text =
            format!("[server]\nuser = \"54321\"\nstate = \"state\"\ncontrol = \"{control}\"\n");
        let file = folder.path().join(FILE_NAME);
        fs::write(&file, text).unwrap();
        check(&load(&file).unwrap())
    };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // Root makes the missing folders for the account.
    assert_eq!(check_with("sockets/control.sock"), Ok(Vec::new()));
    assert_eq!(check_with("state/control.sock"), Ok(Vec::new()));
    let message = check_with("control.sock").unwrap_err().to_string();
    assert!(message.contains("user `54321` cannot write "), "{message}");
    let advice = folder.path().join("anthill/control.sock");
    assert!(
        message.contains(&format!("such as {}", advice.display())),
        "{message}"
    );
}

#[test]
fn an_unexported_repository_of_a_deployment_causes_a_warning() {
    let route = |more: &str| {
        let text = format!(
            "[[site]]\nnames = [\"www\"]\nroot = \"out/www\"\n[[site]]\nnames = [\"git\"]\n\
             [[site.route]]\npath = \"/\"\ngit = \"repositories\"\nusers = \"users\"\n{more}\n\
             deploy = {{ repository = \"a\", site = \"www\" }}\n"
        );
        let (folder, config) = laid_out(&text);
        for name in [
            "out",
            "repositories/a.git/objects",
            "repositories/a.git/refs",
        ] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("repositories/a.git/HEAD"), "x").unwrap();
        (folder, config)
    };
    let (folder, config) = route("push = true");
    let warnings = check(&config).unwrap();
    let mark = folder
        .path()
        .join("repositories/a.git/git-daemon-export-ok");
    let help = format!("touch {}, or write export = \"all\"", mark.display());
    let told = warnings.iter().filter(|it| it.what().contains(&help));
    assert_eq!(told.count(), 1, "{warnings:?}");
    fs::write(mark, "").unwrap();
    assert_eq!(check(&config), Ok(Vec::new()));
    for (more, refused) in [
        ("push = true\nexport = \"all\"", None),
        ("export = \"all\"", None),
        ("push = true", Some("pushes to ")),
        ("", Some("clones of ")),
    ] {
        let (_folder, config) = route(more);
        let warnings = check(&config).unwrap();
        let told = warnings.iter().map(|warning| warning.what());
        let is_told = told.map(|what| refused.is_some_and(|refused| what.starts_with(refused)));
        let is_told: Vec<bool> = is_told.collect();
        assert_eq!(
            is_told,
            vec![true; refused.iter().count()],
            "{more}: {warnings:?}"
        );
    }
}

#[test]
fn unknown_users_are_refused() {
    let (_folder, config) = laid_out("server.user = \"no-such-user\"\n");
    let message = check(&config).unwrap_err().to_string();
    assert!(
        message.contains("there is no user `no-such-user`"),
        "{message}"
    );
}

#[test]
fn a_folder_or_a_file_is_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    assert_eq!(
        ConfigSource::of(Some(dir)),
        Ok(ConfigSource::Folder(dir.to_owned()))
    );
    let file = dir.join(FILE_NAME);
    fs::write(&file, "").unwrap();
    assert_eq!(
        ConfigSource::of(Some(dir)),
        Ok(ConfigSource::File(file.clone()))
    );
    assert_eq!(
        ConfigSource::of(Some(&file)),
        Ok(ConfigSource::File(file.clone()))
    );
    let error = ConfigSource::of(Some(&dir.join("nix"))).unwrap_err();
    assert!(
        error.to_string().contains("no such file or folder"),
        "{error}"
    );

    fs::write(&file, b"x = 1\n\xff\n").unwrap();
    let error = load(&file).unwrap_err().to_string();
    assert!(error.contains("line 2 is not UTF-8"), "{error}");
}

#[test]
fn the_command_line_overrides() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("s");
    let overrides = Overrides {
        https: vec!["127.0.0.1:0".to_owned()],
        http: vec!["off".to_owned()],
        state: Some(state.clone()),
        workers: Some(3),
        log: Some("off".into()),
        user: Some("web".to_owned()),
        ..Overrides::default()
    };
    let chosen = ConfigSource::of(Some(folder.path())).unwrap();
    let config = chosen.read(&overrides).unwrap();
    assert_eq!(config.server.https[0].get_ref().to_string(), "127.0.0.1:0");
    assert!(config.server.http.is_empty());
    assert_eq!(config.server.state.get_ref(), &state);
    assert!(config.server.control.get_ref().starts_with(&state));
    assert_eq!(
        config.server.workers.as_ref().map(|w| *w.get_ref()),
        Some(3)
    );
    assert_eq!(*config.log.access.get_ref(), LogTarget::Off);
    // Commands of the operator use the control socket of the running server.
    assert_eq!(
        control_sockets(&chosen, &overrides).unwrap().paths,
        [config.server.control.get_ref().clone()]
    );

    let wrong = Overrides {
        https: vec!["nix".to_owned()],
        ..Overrides::default()
    };
    let message = chosen.read(&wrong).unwrap_err().to_string();
    assert!(
        message.starts_with("error: --https: `nix` is not an address"),
        "{message}"
    );
    let twice = Overrides {
        https: vec![":8080".to_owned()],
        ..Overrides::default()
    };
    assert!(
        chosen
            .read(&twice)
            .unwrap_err()
            .what()
            .contains("is used twice")
    );
    let none = Overrides {
        https: vec!["off".to_owned()],
        http: vec!["off".to_owned()],
        ..Overrides::default()
    };
    assert!(chosen.read(&none).is_err());
}

#[test]
fn settled_paths_stay_until_the_file_changes_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(FILE_NAME);
    fs::write(&file, "").unwrap();
    let chosen = ConfigSource::File(file.clone());
    let overrides = Overrides {
        settled: Some(("/s".into(), "/c.sock".into())),
        ..Overrides::default()
    };
    let config = chosen.read(&overrides).unwrap();
    assert_eq!(config.server.state.get_ref(), Path::new("/s"));
    assert_eq!(config.server.control.get_ref(), Path::new("/c.sock"));
    fs::write(&file, "server.state = \"/t\"").unwrap();
    let config = chosen.read(&overrides).unwrap();
    assert_eq!(config.server.state.get_ref(), Path::new("/t"));
    assert!(config.server.control.get_ref().starts_with("/t"));
}

#[test]
fn a_control_socket_always_fits() {
    let deep = Path::new("/").join("d".repeat(200));
    let config = good(&format!("server.state = \"{}\"", deep.display()));
    assert!(config.server.control.get_ref().as_os_str().len() <= 107);
    assert!(!config.server.control.get_ref().starts_with(&deep));
    let message = message(&format!("server.control = \"{}/x.sock\"", deep.display()));
    assert!(message.contains("longer than 107 bytes"), "{message}");
}

#[test]
fn the_socket_of_a_broken_file_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(FILE_NAME);
    fs::write(
        &file,
        "[server]\ncontrol = \"a.sock\"\nlisting = = 5\n[[[\n",
    )
    .unwrap();
    let chosen = ConfigSource::of(Some(&file)).unwrap();
    assert_eq!(
        control_sockets(&chosen, &Overrides::default())
            .unwrap()
            .paths,
        [folder.path().join("a.sock")]
    );
    // The first `anthill.toml` of a folder does not move the control socket.
    fs::write(&file, "").unwrap();
    let with = control_sockets(&chosen, &Overrides::default()).unwrap();
    let without = control_sockets(
        &ConfigSource::Folder(folder.path().to_owned()),
        &Overrides::default(),
    );
    assert_eq!(with, without.unwrap());
}

#[test]
fn a_folder_for_sockets_is_private() {
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("a/b");
    prepare_folder(&made, None).unwrap();
    assert_eq!(
        fs::metadata(&made).unwrap().permissions().mode() & 0o777,
        0o700
    );
    prepare_folder(&made, None).unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(prepare_folder(&file, None).is_err());
}

/// Generates a mutation of a text: a position, the number of removed characters and the inserted text.
fn mutation() -> impl Strategy<Value = (prop::sample::Index, usize, String)> {
    let bits = prop::sample::select(vec![
        "",
        "=",
        "[",
        "]",
        "[[",
        "{",
        "}",
        "\"",
        "'''",
        "\n",
        "\t",
        ",",
        ".",
        "#",
        "-1",
        "0x",
        "1e9",
        "99999999999999999999",
        "true",
        "\"\"",
        "[]",
        "ü",
        "日",
        "\u{0}",
        "\u{1b}",
        "*",
        "$path",
        "/",
        "..",
        "1979-05-27",
    ]);
    (
        any::<prop::sample::Index>(),
        0usize..12,
        bits.prop_map(str::to_owned),
    )
}

fn mutate(text: &str, changes: &[(prop::sample::Index, usize, String)]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for (at, taken, put) in changes {
        let at = at.index(chars.len() + 1);
        let end = (at + taken).min(chars.len());
        chars.splice(at..end, put.chars());
    }
    chars.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_mutated_file_panics(changes in prop::collection::vec(mutation(), 1..6)) {
        for text in [FULL, super::proxy_tests::FULL] {
            if let Err(error) = read(&mutate(text, &changes)) {
                prop_assert!(error.to_string().starts_with("error: "));
            }
        }
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        let _ = read(&text);
    }

    #[test]
    fn any_span_can_be_shown(text in "[a\n\t\r日e\u{301}]{0,40}", start in 0usize..100, length in 0usize..100) {
        let error = OperatorError::new("x").at("f", &text, start..start + length);
        prop_assert!(error.to_string().starts_with("error: x\n"));
    }

    #[test]
    fn no_value_panics(text in "\\PC{0,40}") {
        let _ = ListenAddress::parse(&text);
        let _ = parse_seconds(&text);
        let _ = parse_bytes(&text);
        let _ = site_name(&text);
        let _ = suggest(&text, ["https", "http"]);
    }
}

#[test]
fn managed_certificates_are_chosen_by_name() {
    let config = good(
        "[server]\nstate = \"/s\"\n[tls]\nacme = { hook = \"hook\" }\n\
         [[site]]\nnames = [\"box\", \"www.example.org\", \"192.0.2.1\", \"*.example.org\"]\n\
         [[site]]\nnames = [\"printer.local\", \"[::1]\"]\n\
         [[site]]\nnames = [\"own.example.org\"]\ncertificate = \"own.pem\"\n\
         [[site]]\nnames = [\"*\"]\n",
    );
    let acme = config.tls.acme.as_ref().unwrap();
    assert_eq!(acme.challenge, Some(ChallengeType::Dns01));
    assert_eq!(
        acme.directory,
        "https://acme-v02.api.letsencrypt.org/directory"
    );
    let wanted = config.managed_certificates();
    assert_eq!(wanted.len(), 1);
    assert_eq!(wanted[0].names, ["www.example.org", "*.example.org"]);
    assert_eq!(
        wanted[0].file,
        PathBuf::from("/s/acme/certificates/www.example.org/certificate.pem")
    );
    let skipped: Vec<String> = config
        .unmanaged_names()
        .into_iter()
        .map(|(name, why)| format!("{name}: {why}"))
        .collect();
    assert_eq!(
        skipped,
        [
            "box: no public authority certifies a local name",
            "192.0.2.1: certificates for IP addresses are not requested",
            "printer.local: no public authority certifies a local name",
            "[::1]: certificates for IP addresses are not requested",
            "*: a certificate cannot name every host"
        ]
    );
    for (challenge, name) in [
        (ChallengeType::Http01, "http-01"),
        (ChallengeType::TlsAlpn01, "tls-alpn-01"),
        (ChallengeType::Dns01, "dns-01"),
    ] {
        assert_eq!(challenge.name(), name);
    }
}

/// Returns the first line and the place of each error of a configuration.
fn mistakes(text: &str) -> Vec<(String, String)> {
    let message = message(text);
    let errors = message.split("\n\n");
    let errors = errors.map(|error| {
        let mut lines = error.lines();
        let what = lines.next().unwrap().strip_prefix("error: ").unwrap();
        let place = lines.next().unwrap().split("anthill.toml:").nth(1);
        (what.to_owned(), place.unwrap_or("").to_owned())
    });
    errors.collect()
}

#[test]
fn all_mistakes_are_reported_in_the_order_of_the_file() {
    let text = "\
[log]
format = \"jsno\"
accesss = \"off\"
[server]
workers = \"many\"
limits = { fields = 0, heads = 1 }
[[site]]
eror = 1
index = [\"a/b\", \"ok\", \"c/d\"]
[[site.route]]
path = \"x\"
[[site.route]]
path = \"/a/\"
redirect = \"nowhere\"
allow = [\"10.0.0.1/8\", \"::1\", \"home\"]
[[balancer]]
name = \"app\"
members = [\"ftp://a\", \"http://b:1\", \"http://c:0x\"]
[[site]]
names = [\"b.test\"]
cache = [{ files = \"[a\" }]
key = \"only.key\"
";
    let places = [
        "2:10", "3:1", "5:11", "6:21", "6:24", "8:1", "9:10", "9:23", "11:8", "14:12", "15:10",
        "15:31", "18:12", "18:37", "21:21",
    ];
    let found = mistakes(text);
    let found: Vec<&str> = found.iter().map(|(_, place)| place.as_str()).collect();
    assert_eq!(found, places);
}

#[test]
fn a_mistake_has_no_consequences() {
    for (text, mistakes_of_file) in [
        (
            "[[stie]]\nnames = [\"a.test\"]\n",
            vec!["unknown key `stie` in the file"],
        ),
        // The site counts neither as a second site for every name nor as a site without a folder.
        (
            "[[site]]\nnames = [5]\n[[site]]\nroot = \"a\"\n",
            vec!["`names` must be a host name in quotes, not a number"],
        ),
        (
            "[[site]]\nkey = \"k\"\ncertifcate = \"c\"\n",
            vec!["unknown key `certifcate` in [[site]]"],
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\nredirct = \"/a\"\n",
            vec!["unknown key `redirct` in [[site.route]]"],
        ),
        (
            "[[site]]\n[[site.route]]\npaht = \"/\"\nredirect = \"/a\"\n",
            vec!["unknown key `paht` in [[site.route]]"],
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\nfastcgi = \"/run/a.sock\"\nfiles = \".php\"\nenv = { A = \"b\" }\n",
            vec!["`/run/a.sock` is not an address of a backend"],
        ),
        (
            "[[balancer]]\nname = \"app\"\n[[site]]\n[[site.route]]\npath = \"/\"\nbalance = \"app\"\n",
            vec!["[[balancer]] needs `members`"],
        ),
        (
            "[server]\nhttps = \"443s\"\nhttp = \"off\"\n[tls]\nacme = {}\n",
            vec!["`443s` is not an address to listen on"],
        ),
    ] {
        let found = mistakes(text);
        let found: Vec<&str> = found.iter().map(|(what, _)| what.as_str()).collect();
        assert_eq!(found, mistakes_of_file, "{text}");
    }
}

#[test]
fn many_mistakes_are_counted() {
    let text: String = (0..70).map(|nth| format!("x{nth} = 1\n")).collect();
    let error = read(&text).unwrap_err();
    let message = error.to_string();
    assert_eq!(message.matches("error: ").count(), 50);
    assert!(message.ends_with("\n\nand 20 further errors"), "{message}");
    assert_eq!(error.in_one_line().matches("unknown key").count(), 70);
}

/// Folder with the files of a configuration.
fn folder_with(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn load_in(folder: &tempfile::TempDir) -> Result<Config, OperatorError> {
    load(&folder.path().join("anthill.toml"))
}

#[test]
fn included_files_hold_sites_and_balancers() {
    let folder = folder_with(&[
        (
            "anthill.toml",
            "include = [\"sites.d/*.toml\", \"apps.toml\"]\n[[site]]\nnames = [\"a.test\"]\n",
        ),
        (
            "sites.d/b.toml",
            "[[site]]\nnames = [\"b.test\"]\nroot = \"b\"\n",
        ),
        (
            "sites.d/c.toml",
            "include = \"more/?.toml\"\n[[site]]\nnames = [\"c.test\"]\n",
        ),
        ("sites.d/.c.toml.swp", "not TOML"),
        ("sites.d/readme.txt", "not TOML"),
        ("sites.d/folder.toml/x", ""),
        (
            "more/d.toml",
            "[[site]]\nnames = [\"d.test\"]\n[[site.route]]\npath = \"/\"\nbalance = \"app\"\n",
        ),
        (
            "apps.toml",
            "[[balancer]]\nname = \"app\"\nmembers = [\"http://127.0.0.1:9001\"]\n",
        ),
    ]);
    let config = load_in(&folder).unwrap_or_else(|error| panic!("{error}"));
    let names: Vec<&str> = config
        .sites
        .iter()
        .map(|site| site.names[0].get_ref().as_str())
        .collect();
    assert_eq!(names, ["a.test", "b.test", "c.test", "d.test"]);
    assert_eq!(config.balancers.len(), 1);
    // Relative paths of all files begin at the folder of the first file.
    let root = config.sites[1].root.as_ref().unwrap().get_ref();
    assert_eq!(*root, folder.path().join("b"));
    assert_eq!(
        config.sites[2].root.as_ref().unwrap().get_ref(),
        &folder.path().join("public")
    );
    assert_eq!(config.doubts, []);
    // Clients never get a file of the configuration.
    for file in ["anthill.toml", "sites.d/b.toml", "more/d.toml", "apps.toml"] {
        assert!(
            config.secret_paths().contains(&folder.path().join(file)),
            "{file}"
        );
    }
    let error = config
        .point(config.sites[3].names[0].span(), "wrong", "")
        .to_string();
    assert!(error.contains("more/d.toml:2:10\n"), "{error}");
}

#[test]
fn mistakes_of_included_files_are_reported_together() {
    let folder = folder_with(&[
        (
            "anthill.toml",
            "include = [\"sites.d/*.toml\", \"none.toml\"]\n[log]\nformat = 1\n",
        ),
        (
            "sites.d/a.toml",
            "[[site]]\nnames = [\"a.test\"]\neror = 1\n",
        ),
        (
            "sites.d/b.toml",
            "[server]\nh2c = true\n[[site]]\nnames = [\"a.test\"]\n",
        ),
        ("sites.d/c.toml", "[[site]\n"),
    ]);
    let error = load_in(&folder)
        .expect_err("mistakes")
        .to_string()
        .replace(folder.path().to_str().unwrap(), "");
    let found: Vec<&str> = error
        .lines()
        .filter_map(|line| line.trim().strip_prefix("--> /"))
        .collect();
    let places = [
        "anthill.toml:1:30",
        "anthill.toml:3:10",
        "sites.d/a.toml:3:1",
        "sites.d/b.toml:1:2",
        "sites.d/c.toml:1:8",
    ];
    assert_eq!(found, places, "{error}");
    assert!(
        error.contains("the included file /none.toml does not exist"),
        "{error}"
    );
    assert!(
        error.contains("included files hold [[site]] and [[balancer]]"),
        "{error}"
    );
    fs::write(folder.path().join("sites.d/c.toml"), "").unwrap();
    fs::write(
        folder.path().join("sites.d/a.toml"),
        "\n\n[[site]]\nnames = [\"a.test\"]\n",
    )
    .unwrap();
    fs::write(folder.path().join("none.toml"), "").unwrap();
    let error = load_in(&folder).expect_err("two sites").to_string();
    assert!(error.contains("the first site is in line 4 of "), "{error}");
}

#[test]
fn cycles_and_patterns_of_includes_are_explained() {
    for (files, what) in [
        (
            &[("anthill.toml", "include = [\"anthill.toml\"]")][..],
            "anthill.toml includes itself",
        ),
        (
            &[("anthill.toml", "include = [\"*.toml\"]")],
            "anthill.toml includes itself",
        ),
        (
            &[
                ("anthill.toml", "include = \"a.toml\""),
                ("a.toml", "include = \"b.toml\""),
                ("b.toml", "include = \"a.toml\""),
            ],
            "a.toml includes itself",
        ),
        (
            &[("anthill.toml", "include = [\"none/*.toml\"]")],
            "none does not exist",
        ),
        (
            &[("anthill.toml", "include = [\"[a.toml\"]")],
            "`[a.toml` is not a pattern",
        ),
        (
            &[("anthill.toml", "include = 5")],
            "`include` must be text in quotes, not a number",
        ),
        (
            &[("anthill.toml", "[server]\ninclude = \"a.toml\"")],
            "unknown key `include` in [server]",
        ),
        (
            &[("anthill.toml", "include = [\"a.toml\"]\n"), ("a.toml", "")],
            "the file has no [[site]]",
        ),
    ] {
        let folder = folder_with(files);
        let error = load_in(&folder).expect_err(what).to_string();
        assert!(error.contains(what), "{error}");
        assert!(
            error.contains("\nhelp: ") || error.contains("not a pattern"),
            "{error}"
        );
    }
    // A pattern without a file is doubtful, and two patterns with one file include the file once.
    let folder = folder_with(&[
        (
            "anthill.toml",
            "include = [\"*.site\", \"a.t*\", \"a.toml\"]",
        ),
        ("a.toml", "[[site]]"),
    ]);
    let config = load_in(&folder).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.sites.len(), 1);
    let doubts: Vec<&str> = config.doubts.iter().map(OperatorError::what).collect();
    assert_eq!(doubts, ["no file matches `*.site`"]);
}

#[test]
fn an_unset_variable_is_an_error_that_points_at_the_value() {
    let error = message(
        "[[site]]\nroot = \"/srv/${ANTHILL_TEST_UNSET}\"\nnames = [\"${ANTHILL_TEST_UNSET:-a.test}\"]\n",
    );
    assert!(
        error.contains("error: the environment variable `ANTHILL_TEST_UNSET` is not set"),
        "{error}"
    );
    assert!(error.contains("anthill.toml:2:8\n"), "{error}");
    let config = good("[[site]]\nnames = [\"${ANTHILL_TEST_UNSET:-a.test}\"]\n");
    assert_eq!(config.sites[0].names[0].get_ref(), "a.test");
}

#[test]
fn the_mistake_behind_a_syntax_error_is_explained() {
    for (text, place, what, help) in [
        (
            "[[site]]\nnames = [\"a.test]\nroot = \"public\"\n",
            "2:10",
            "no closing quote",
            "at both ends",
        ),
        (
            "[[site]]\nroot = \"public\nhttp = \"serve\"\n",
            "2:8",
            "no closing quote",
            "at both ends",
        ),
        (
            "[[site]]\nnames = [“a.test”]\n",
            "2:10",
            "`“` is a typographic quote",
            "\"text\"",
        ),
        (
            "[[site]\nnames = []\n",
            "1:8",
            "unclosed",
            "write double brackets at both ends: [[site]]",
        ),
        (
            "[server\nh2c = true\n",
            "1:8",
            "unclosed",
            "write brackets at both ends: [server]",
        ),
        (
            "[[site]]\nroot = public\n",
            "2:8",
            "must be quoted",
            "in quotes: \"public\"",
        ),
        (
            "[[site.route]]\npath = \"/x/\"\n[[site]]\n",
            "1:1",
            "[[site.route]] stands above its [[site]]",
            "write [[site]] above [[site.route]]",
        ),
        (
            "[server]\nh2c = true\n[server]\n",
            "3:1",
            "[server] stands twice in the file",
            "the first is in line 1: join the two",
        ),
        (
            "[[site]]\nroot = 'a'\nroot = 'b'\n",
            "3:1",
            "`root` stands twice in the table",
            "remove one of the two",
        ),
        (
            "# it's \"fine\nx = yes\n",
            "2:5",
            "must be quoted",
            "\"yes\"",
        ),
    ] {
        let error = parse(text, Path::new("/srv/a.toml")).expect_err(text);
        let error = error.to_string();
        assert!(
            error.contains(&format!("--> /srv/a.toml:{place}\n")),
            "{error}"
        );
        assert!(
            error
                .split("help:")
                .next()
                .is_some_and(|it| it.contains(what)),
            "{error}"
        );
        assert!(
            error
                .split("help:")
                .nth(1)
                .is_some_and(|it| it.contains(help)),
            "{error}"
        );
    }
}

#[test]
fn a_rewrite_to_a_missing_file_of_another_route_is_doubtful() {
    let folder = folder_with(&[
        ("public/index.html", ""),
        ("other/page.html", ""),
        (
            "anthill.toml",
            "[server]\nstate = \"state\"\n[[site]]\n[[site.route]]\npath = \"/x/\"\nroot = \"other\"\n\
             [[site.route]]\npath = \"/a\"\nrewrite = \"/x/page.html\"\n\
             [[site.route]]\npath = \"/b\"\nrewrite = \"/x/x/page.html\"\n\
             [[site.route]]\npath = \"/c/\"\nrewrite = \"/x/\"\n",
        ),
    ]);
    let config = load_in(&folder).unwrap_or_else(|error| panic!("{error}"));
    let warnings = check(&config).unwrap_or_else(|error| panic!("{error}"));
    let [warning] = &warnings[..] else {
        panic!("{warnings:?}");
    };
    let what = "the rewrite of /b leads to /x/x/page.html of the route /x/, and the file ";
    assert!(warning.what().starts_with(what), "{warning}");
    assert!(
        warning.as_warning().contains("anthill.toml:11:8\n"),
        "{}",
        warning.as_warning()
    );
}

#[test]
fn a_socket_that_the_account_cannot_open_is_doubtful() {
    if !rustix::process::geteuid().is_root() {
        return; // only root may name another account
    }
    let folder = folder_with(&[
        ("public/index.html", ""),
        (
            "anthill.toml",
            "[server]\nuser = \"64321:64322\"\n[[site]]\n[[site.route]]\npath = \"/\"\n\
             fastcgi = \"unix:app.sock\"\nfiles = \".php\"\n",
        ),
    ]);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(folder.path().join("app.sock")).unwrap();
    let config = load_in(&folder).unwrap_or_else(|error| panic!("{error}"));
    let doubts = || {
        let (_, warnings) = inspect(&config);
        let warnings = warnings.iter().map(|warning| warning.what().to_owned());
        warnings
            .filter(|what| what.contains("cannot open the socket"))
            .collect::<Vec<_>>()
    };
    let set_mode = |mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(folder.path().join("app.sock"), mode).unwrap();
    };
    set_mode(0o600);
    let [doubt] = &doubts()[..] else {
        panic!("{:?}", doubts());
    };
    assert!(
        doubt.contains("listen.group = 64322 and listen.mode = 0660"),
        "{doubt}"
    );
    set_mode(0o666);
    assert_eq!(doubts(), [""; 0]);
}
