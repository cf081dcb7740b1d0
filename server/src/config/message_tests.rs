//! Tests of the help for values and keys of other servers, and for mistakes with one likely meaning.

use crate::config::parse;
use std::path::Path;

/// Returns the first error of a configuration.
fn refusal(text: &str) -> String {
    let refused = parse(text, Path::new("/srv/anthill.toml"));
    match refused {
        Ok(_) => panic!("this was accepted:\n{text}"),
        Err(error) => error.to_string(),
    }
}

/// Asserts that each text is refused with the mistake and the whole help.
fn assert_refused(before: &str, cases: &[(&str, &str, &str)]) {
    for (text, what, help) in cases {
        let error = refusal(&format!("{before}{text}\n"));
        let shown = error.lines().find_map(|line| line.strip_prefix("help: "));
        assert!(error.contains(what), "{text}\n{error}\nlacks {what}");
        assert_eq!(shown, Some(*help), "{text}\n{error}");
    }
}

const SITE: &str = "[[site]]\n";
const ROUTE: &str = "[[site]]\n[[site.route]]\npath = \"/a/\"\n";

#[test]
fn addresses_are_corrected() {
    let help = "write a port from 1 to 65535";
    assert_refused(
        "[server]\n",
        &[
            (
                "https = [\"127.0.0.1:99543\"]",
                "the port 99543 is too large",
                help,
            ),
            (
                "https = [\"[::1]:70000\"]",
                "the port 70000 is too large",
                help,
            ),
            ("http = \":65536\"", "the port 65536 is too large", help),
        ],
    );
    assert_refused(
        SITE,
        &[
            (
                "https = [\":9443\"]",
                "unknown key `https`",
                "write https = [\":9443\"] in [server]",
            ),
            (
                "http = [\":9080\"]",
                "`http` of a site",
                "write http = [\":9080\"] in [server]",
            ),
            (
                "http = 9080",
                "`http` of a site",
                "write http = 9080 in [server]",
            ),
            (
                "names = \"b\u{fc}cher.example\"",
                "is not a host name",
                "write the ASCII form of the name: \"xn--bcher-kva.example\"",
            ),
            (
                "names = \"www.M\u{fc}nchen.\u{4f8b}\u{5b50}\"",
                "is not a host name",
                "write the ASCII form of the name: \"www.xn--mnchen-3ya.xn--fsqu00a\"",
            ),
            (
                "names = [\"{$DOMAIN}\"]",
                "is not a host name",
                "write the variable as \"${DOMAIN}\"",
            ),
            (
                "names = \"a.test, b.test\"",
                "is not a host name",
                "write names = [\"a.test\", \"b.test\"]",
            ),
            (
                "names = \"a.test b.test\"",
                "is not a host name",
                "write names = [\"a.test\", \"b.test\"]",
            ),
            (
                "preview = \"preview.a.test\"",
                "names a single host",
                "write preview = \"*.preview.a.test\", a name for each release",
            ),
            (
                "cors = \"*.example.org\"",
                "is not an origin",
                "write each origin, such as \"https://app.example.org\", or \"*\" for all",
            ),
            (
                "publishers = [\"ssh-ed25519 AAAA\"]",
                "is a key of SSH",
                "`anthill publish --new-key publisher.pem` makes a key, and prints the line for `publishers`",
            ),
            (
                "growing = true",
                "`growing` must be a list of patterns, not true or false",
                "for example growing = [\"*.log\"]",
            ),
            (
                "hsts = \"30\"",
                "`30` is not a duration",
                "write a number with a unit (s, m, h, d, w): \"10m\", \"30d\", \"1h30m\"",
            ),
            (
                "cache = { files = \"*\", max_age = \"30\" }",
                "`30` is not a duration",
                "write a number with a unit (s, m, h, d, w): \"10m\", \"30d\", \"1h30m\"",
            ),
        ],
    );
}

#[test]
fn the_help_for_requests_can_be_pasted() {
    let address = "remove `deny` beside `allow`, since all other addresses are refused anyway; alone, write \
                   allow = [] to refuse all clients";
    let all = "remove `allow`: without the key, all clients have access";
    let bounds = "remove `rate` for no limit, or write a number between 1 and 1000000";
    assert_refused(
        ROUTE,
        &[
            (
                "methods = \"GET,POST\"",
                "is not a method",
                "write methods = [\"GET\", \"POST\"]",
            ),
            (
                "methods = \"GET POST\"",
                "is not a method",
                "write methods = [\"GET\", \"POST\"]",
            ),
            (
                "rate = \"10r/s\"",
                "must be a whole number",
                "write rate = 10, between 1 and 1000000",
            ),
            (
                "rate = \"6r/m\"",
                "must be a whole number",
                "write rate = { requests = 6, per = \"1m\" }, between 1 and 1000000",
            ),
            ("rate = 0", "`rate` is out of bounds", bounds),
            ("rate = -1", "`rate` can't be negative", bounds),
            (
                "rate = { requests = 1, per = \"minute\" }",
                "is not a duration",
                "write per = \"1m\", between \"1s\" and \"1d\"",
            ),
            ("deny = \"all\"", "is not an IP address", address),
            ("deny = [\"*\"]", "is not an IP address", address),
            ("allow = \"all\"", "is not an IP address", all),
            (
                "redirect = \"https://b.test$request_uri\"",
                "the placeholder `$request_uri`",
                "end `redirect` with a slash, and the rest of the path is appended: redirect = \"https://b.test/\"",
            ),
            (
                "redirect = \"/new/$1\"",
                "the placeholder `$1`",
                "end `redirect` with a slash, and the rest of the path is appended: redirect = \"/new/\"",
            ),
            (
                "redirect = \"/new/:splat\"",
                "the placeholder `:splat`",
                "end `redirect` with a slash, and the rest of the path is appended: redirect = \"/new/\"",
            ),
            (
                "fastcgi = \"/run/php.sock\"",
                "is not an address of a backend",
                "write fastcgi = \"unix:/run/php.sock\"",
            ),
            (
                "auth_basic = \"Staff\"",
                "unknown key `auth_basic`",
                "remove the key: `users` names the file, and a browser shows the host as the realm",
            ),
            (
                "auth_basic_user_file = \"users\"",
                "unknown key",
                "did you mean `users`?",
            ),
        ],
    );
    let error = refusal(&format!(
        "{ROUTE}cors = {{ origins = \"*\", methods = [\"F;O\"] }}\n"
    ));
    assert!(error.contains("help: the methods are "), "{error}");
    assert!(error.contains("PROPFIND"), "{error}");
}

#[test]
fn regular_expressions_and_placeholders_are_explained() {
    let prefix = "a path is a prefix, and can't select files by their endings";
    let php = "write [[site.route]] with path = \"/\", fastcgi = \"unix:/run/php/php-fpm.sock\" and files = \".php\"";
    let splat = "write `:splat` for the match of `*`; the query of the request is kept without a placeholder";
    assert_refused(
        SITE,
        &[
            (
                "redirects = [{ from = \"^/blog/(.*)$\", to = \"/news/$1\" }]",
                "is a regular expression",
                "write from = \"/blog/*\", to = \"/news/:splat\"",
            ),
            (
                "redirects = [{ from = \"/blog/*\", to = \"/news/$1\" }]",
                "the placeholder `$1`",
                splat,
            ),
            (
                "redirects = [{ from = \"/blog/*\", to = \"https://b.test{uri}\" }]",
                "the placeholder `{uri}`",
                splat,
            ),
            (
                "redirects = [{ from = \"/blog/*\", to = \"www.example.org/blog\" }]",
                "`www.example.org/blog` is no destination",
                "write https://www.example.org/blog",
            ),
            (
                "[[site.route]]\npath = \"*.php\"",
                "is not a path of a site",
                php,
            ),
            (
                "[[site.route]]\npath = '~ \\.php$'",
                "is not a path of a site",
                php,
            ),
            (
                "[[site.route]]\npath = \"*.jpg\"",
                "is not a path of a site",
                prefix,
            ),
        ],
    );
    let error =
        refusal("[[site]]\nredirects = [{ from = \"/a\", to = \"www.example.org/blog\" }]\n");
    assert!(error.contains("anthill.toml:2:34"), "{error}");
    assert_refused(
        "[log]\n",
        &[
            (
                "skip = '~ \\.png$'",
                "is a regular expression, not a pattern",
                "write a pattern, such as \"*.png\" or \"/static/\"",
            ),
            (
                "skip = { status = \"2xx,3xx\" }",
                "is not a status",
                "write status = [\"2xx\", \"3xx\"]",
            ),
            (
                "rotate = \"daily\"",
                "is not a size",
                "logrotate rotates by day; the server rotates by size: write rotate = \"100MiB\", between \"64KiB\" and \"1024GiB\"",
            ),
            (
                "rotate = { every = \"1d\" }",
                "unknown key `every`",
                "logrotate rotates by day; the server rotates by size: write rotate = \"100MiB\"",
            ),
        ],
    );
}

#[test]
fn keys_of_other_servers_name_the_table() {
    assert_refused(
        "",
        &[
            (
                "server.document-root = \"/srv\"",
                "unknown key `document-root`",
                "write root = \"public\" in a [[site]]",
            ),
            (
                "https = [\":9443\"]",
                "unknown key `https`",
                "write https = [\":9443\"] in [server]",
            ),
            (
                "[tls]\nacme = { email = \"mailto:me@example.org\" }",
                "is a URL",
                "write \"me@example.org\"",
            ),
            (
                "[manager]\nlisten = \"127.0.0.1:8800\"\npassword = \"x\"",
                "unknown key `password`",
                "write users = \"managers\" in [manager]; `anthill passwd managers NAME` makes the file",
            ),
        ],
    );
}

#[test]
fn the_format_of_another_server_is_named() {
    let help = "write [[site]], and names = [\"a.test\"] in the lines below";
    assert_refused(
        "",
        &[
            (
                "server {\n    listen 80;\n}",
                "looks like a file of nginx or Caddy",
                help,
            ),
            (
                "example.org {\n    root * /srv\n}",
                "looks like a file of nginx or Caddy",
                help,
            ),
            (
                "[[site]]\nroot /srv;",
                "looks like a file of nginx or Caddy",
                help,
            ),
            (
                "[[site]]\nnames: [\"a.test\"]",
                "`names` is followed by a colon",
                "write names = [\"a.test\"]",
            ),
            (
                "[[site]]\nroot: /srv",
                "`root` is followed by a colon",
                "write root = \"/srv\"",
            ),
            (
                "[[site]]\n[[site.route]]\npath = \"~ \\.php$\"",
                "",
                "write two backslashes for one, or single quotes around the text: 'text'",
            ),
        ],
    );
}

#[test]
fn a_route_above_its_site_hides_no_other_mistake() {
    let error = refusal(
        "[[site.route]]\npath = \"/a/\"\nredirect = \"/b/\"\n\n[server]\nworker = 1\n\n[[site]]\nnmes = [\"a.test\"]\n",
    );
    for part in [
        "[[site.route]] stands above its [[site]]",
        "unknown key `worker` in [server]",
        "anthill.toml:6:1",
        "unknown key `nmes` in [[site]]",
        "anthill.toml:9:1",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(error.matches("error: ").count(), 3, "{error}");
}

/// Returns the error or the warnings of a configuration in a folder with the files.
fn checked(files: &[&str], text: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    for file in files {
        let path = folder.path().join(file);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        std::fs::write(path, "x").expect("a file");
    }
    let path = folder.path().join("anthill.toml");
    let config = parse(&format!("[server]\nstate = \"state\"\n{text}"), &path);
    match crate::config::check(&config.unwrap_or_else(|error| panic!("{error}"))) {
        Ok(warnings) => {
            let warnings = warnings.iter().map(|it| it.as_warning());
            warnings.collect::<Vec<_>>().join("\n")
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_missing_file_is_corrected_by_its_kind() {
    let route = "[[site]]\nroot = \"public\"\n[[site.route]]\npath = \"/git/\"\n";
    let files = ["public/index.html", "git/a"];
    let error = checked(
        &files,
        &format!("{route}git = \"git\"\npush_users = \"git.htpasswd\"\n"),
    );
    assert!(
        error.contains("help: create the file: anthill passwd "),
        "{error}"
    );
    assert!(!error.contains("did you mean"), "{error}");
    let files = ["public/index.html", "users.htpasswd"];
    let error = checked(&files, &format!("{route}users = \"user.htpasswd\"\n"));
    let (first, second) = error.split_once(" NAME, or did you mean ").expect("both");
    assert!(first.contains("anthill passwd /"), "{error}");
    assert!(second.ends_with("/users.htpasswd?"), "{error}");
    let error = checked(&["public.txt"], "[[site]]\nroot = \"publi\"\n");
    assert!(
        error.contains("help: create the folder: mkdir -p /"),
        "{error}"
    );
    if rustix::process::geteuid().is_root() {
        let server = "user = \"daemon\"\n[log]\naccess = \"nowhere/access.log\"\n[[site]]\nroot = \"public\"\n";
        let error = checked(&["public/index.html"], server);
        assert!(
            error.contains("help: create the folder: install -d -o daemon -g daemon /"),
            "{error}"
        );
    }
}

#[test]
fn settings_that_leave_nothing_are_warned_of() {
    let site = "[[site]]\nroot = \"public\"\n";
    let files = ["public/index.html"];
    for (text, is_warned) in [
        (
            "allow = [\"192.0.2.0/24\"]\ndeny = [\"192.0.0.0/16\"]",
            true,
        ),
        (
            "allow = [\"192.0.2.0/24\", \"2001:db8::1\"]\ndeny = [\"192.0.0.0/16\", \"2001:db8::/32\"]",
            true,
        ),
        (
            "allow = [\"192.0.0.0/16\"]\ndeny = [\"192.0.2.0/24\"]",
            false,
        ),
        ("allow = []\ndeny = [\"192.0.2.0/24\"]", false),
    ] {
        let warnings = checked(
            &files,
            &format!("{site}[[site.route]]\npath = \"/a/\"\n{text}\n"),
        );
        let what = "`deny` covers all networks of `allow`";
        assert_eq!(warnings.contains(what), is_warned, "{text}: {warnings}");
    }
    for (text, is_warned) in [
        ("skip = [\"*\"]", true),
        ("skip = [\"/\"]", true),
        ("skip = [\"*.png\"]", false),
        ("skip = [{ path = \"*\", status = \"2xx\" }]", false),
    ] {
        let warnings = checked(&files, &format!("[log]\n{text}\n{site}"));
        let what = "`skip` leaves out every line without a refusal";
        assert_eq!(warnings.contains(what), is_warned, "{text}: {warnings}");
    }
}
