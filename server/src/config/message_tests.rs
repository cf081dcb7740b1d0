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
                "preview = \"*\"",
                "`*` has no label of a release",
                "write the name of one label, such as \"next.example.org\", or \"*.preview.example.org\" for all",
            ),
            (
                "preview = \"beef.a.test\"",
                "the label `beef` of `beef.a.test` could be the start of a release id",
                "take a label with another character, such as \"next.example.org\"",
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
fn listeners_on_one_port_are_refused_with_both_keys() {
    let all = "and one of the two stands for all addresses";
    let second = "choose another port, or remove one of the two; `https` is in line 2";
    let datagrams = "choose another port: HTTP/3 receives its datagrams on the port of `https`, unless http3 = false";
    let balancer = |name: &str, heartbeat: &str| {
        format!(
            "[[balancer]]\nname = \"{name}\"\nmethod = \"heartbeat\"\nheartbeat = \"{heartbeat}\"\n\
             members = \"http://192.0.2.1:80\"\n"
        )
    };
    let one_address = balancer("a", "0.0.0.0:27999") + &balancer("b", "127.0.0.1:27999");
    let of_https =
        "[server]\nhttps = \":443\"\nhttp3 = true\n".to_owned() + &balancer("a", "0.0.0.0:443");
    assert_refused(
        "",
        &[
            (
                "[server]\nhttps = \":8443\"\nhttp = \"127.0.0.1:8443\"",
                &format!(
                    "`127.0.0.1:8443` of `http` and `[::]:8443` of `https` have one port, {all}"
                ),
                second,
            ),
            (
                "[server]\nhttps = [\"[::]:8443\", \"[::1]:8443\"]",
                &format!("`[::1]:8443` of `https` and `[::]:8443` of `https` have one port, {all}"),
                second,
            ),
            (
                "[server]\nhttps = \"192.0.2.1:80\"\nhttp = [\"192.0.2.1:80\"]",
                "the address `192.0.2.1:80` is used twice, in `http` and in `https`",
                second,
            ),
            (
                "[server]\nhttps = \"127.0.0.1:8080\"",
                &format!(
                    "`127.0.0.1:8080` of `https` and `[::]:8080` of `http` have one port, {all}"
                ),
                "choose another port: the default of `http` is :8080",
            ),
            (
                &one_address,
                "`127.0.0.1:27999` of `heartbeat` and `0.0.0.0:27999` of `heartbeat` have one port",
                "write one address for both balancers, or choose another port",
            ),
        ],
    );
    let refused = refusal(&of_https);
    assert!(
        !cfg!(feature = "http3") || refused.contains(datagrams),
        "{refused}"
    );
    // The two families of addresses, port 0 and equal addresses of balancers do not meet.
    for text in [
        "[server]\nhttps = [\"[::]:8443\", \"0.0.0.0:8443\"]\n[[site]]\n",
        "[server]\nhttps = [\"0.0.0.0:8443\", \"[::1]:8443\"]\n[[site]]\n",
        "[server]\nhttps = [\"127.0.0.1:0\", \":0\"]\n[[site]]\n",
        &("[[site]]\n".to_owned()
            + &balancer("a", "0.0.0.0:27999")
            + &balancer("b", "0.0.0.0:27999")),
    ] {
        let config = parse(text, Path::new("/srv/anthill.toml"));
        assert!(config.is_ok(), "{text}: {config:?}");
    }
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
                "write the text in single quotes: '~ \\.php$'",
            ),
        ],
    );
}

#[test]
fn compress_has_a_place_and_three_values() {
    let values = "compress = false for no compression, or compress = \"always\" to compress also pages for one user; texts \
                  are compressed without the key";
    let words = &*format!("write {values}");
    let example = &*format!("for example {values}");
    let route = format!("{ROUTE}proxy = \"http://a.test\"\n");
    for value in ["true", "false", "\"always\""] {
        let config = parse(
            &format!("{route}compress = {value}\n"),
            Path::new("/srv/anthill.toml"),
        );
        assert!(config.is_ok(), "{value}: {config:?}");
    }
    assert_refused(
        &route,
        &[
            ("compress = \"gzip\"", "`compress` can't be \"gzip\"", words),
            ("compress = \"on\"", "`compress` can't be \"on\"", words),
            (
                "compress = [\"gzip\", \"br\"]",
                "`compress` must be true, false or \"always\", not a list",
                example,
            ),
            (
                "compress = 6",
                "`compress` must be true, false or \"always\", not a number",
                example,
            ),
            (
                "gzip = true",
                "unknown key `gzip` in [[site.route]]",
                "did you mean `compress`?",
            ),
        ],
    );
    assert_refused(
        ROUTE,
        &[(
            "proxy = { url = \"http://a.test\", compress = false }",
            "unknown key `compress` in the table `proxy`",
            "write `compress` in the route, beside `proxy` or `balance`: compress = false",
        )],
    );
    assert_refused(
        SITE,
        &[(
            "compress = false",
            "unknown key `compress` in [[site]]",
            "remove the key: text is compressed without a setting; for scripts and members, `compress` in a \
             [[site.route]] changes that",
        )],
    );
}

#[test]
fn a_fixed_status_is_explained() {
    let others =
        "write status = 404, or 403, 410 or 451: a route has no answer with another status";
    let what = "the `status` of a route must be 404, 403, 410 or 451";
    assert_refused(
        ROUTE,
        &[
            ("return = 404", "unknown key `return`", "write status = 404"),
            (
                "return = 301",
                "unknown key",
                "write redirect = { to = \"/new/\", status = 301 }",
            ),
            ("respond = \"ok\"", "unknown key `respond`", others),
            (
                "respond = 403",
                "unknown key `respond`",
                "write status = 403",
            ),
            (
                "return = \"/new/\"",
                "unknown key",
                "did you mean `redirect`?",
            ),
            (
                "status = \"403\"",
                "`status` must be 404, 403, 410 or 451, not text",
                "write the number without quotes: status = 403",
            ),
            ("status = 200", what, "for example status = 404"),
            (
                "status = true",
                "`status` must be 404, 403, 410 or 451, not true or false",
                "for example status = 404",
            ),
            (
                "status = 302",
                what,
                "write redirect = { to = \"/new/\", status = 302 }",
            ),
            (
                "status = 401",
                what,
                "write users = \"FILE\": a client without a valid login gets 401",
            ),
            (
                "status = 405",
                what,
                "write methods = [\"GET\", \"HEAD\"]: all other methods get 405",
            ),
            (
                "status = 404\nredirect = \"/new/\"",
                "a route has one target, not both `status` and `redirect`",
                "remove one of the two",
            ),
        ],
    );
    assert_refused(
        SITE,
        &[(
            "status = 410",
            "unknown key `status` in [[site]]",
            "write status = 410 in a [[site.route]] with `path`",
        )],
    );
}

#[test]
fn globs_of_hidden_files_are_checked() {
    let useless = "the route sends no file of the site: remove the key, or write it in the route of the files";
    assert_refused(
        SITE,
        &[
            (
                "hide = [\".bak\"]",
                "`.bak` is the name of a hidden file",
                "write \"*.bak\" for all files with the ending",
            ),
            (
                "hide = true",
                "`hide` must be a list of patterns, not true or false",
                "for example hide = [\"*~\", \"*.bak\"]",
            ),
            (
                "hide = [\"\\\\.bak$\"]",
                "is a regular expression, not a pattern",
                "write a pattern, such as \"*.png\", \"*.{js,css}\" or \"/static/**\"",
            ),
            (
                "hide = [\"a[\"]",
                "the pattern `a[` is invalid",
                "`*` stands for any part of a name, `?` for one character, `[a-z]` for one of several, `{a,b}` for a or b, `**` for folders",
            ),
        ],
    );
    let many: Vec<String> = (0..65).map(|nth| format!("\"*.{nth}\"")).collect();
    let many = format!("hide = [{}]", many.join(", "));
    let cases = [
        (
            many.as_str(),
            "`hide` has more than 64 patterns",
            "join patterns with braces: \"*.{bak,old,sql}\"",
        ),
        (
            "[[site.route]]\npath = \"/a\"\nproxy = \"http://127.0.0.1:1\"\nhide = [\"*~\"]",
            "`hide` has no effect in this route",
            "remove the key; or, if files of the site go first, add try = [\"$path\", \"proxy\"]",
        ),
        (
            "[[site.route]]\npath = \"/a\"\nstatus = 404\nhide = [\"*~\"]",
            "`hide` has no effect in this route",
            useless,
        ),
    ];
    assert_refused(SITE, &cases);
}

#[test]
fn a_star_in_a_destination_is_refused() {
    assert_refused(
        ROUTE,
        &[
            (
                "redirect = \"/new/*\"",
                "the `*` of `/new/*` would be sent as it stands",
                "end `redirect` with a slash, and the rest of the path is appended: redirect = \"/new/\"",
            ),
            (
                "redirect = { to = \"https://b.test/*\" }",
                "the `*` of `https://b.test/*` would be sent as it stands",
                "end `redirect` with a slash, and the rest of the path is appended: redirect = \"https://b.test/\"",
            ),
            (
                "rewrite = \"/new/*\"",
                "the `*` of `/new/*` would be a part of the path",
                "end the path with a slash, and the rest of the path is appended: rewrite = \"/new/\"",
            ),
        ],
    );
    assert_refused(
        SITE,
        &[
            (
                "redirects = [{ from = \"/a/*\", to = \"/new/*\" }]",
                "the `*` of `/new/*` would be sent as it stands",
                "write `:splat` for the match of `*`: /new/:splat; %2A stands for a star of the URL itself",
            ),
            (
                "redirects = [{ from = \"/a\", to = \"/new/*\" }]",
                "the `*` of `/new/*` would be sent as it stands",
                "write the whole destination, or end the first path with `*` and the destination with `:splat`",
            ),
            (
                "try = [\"$path\", \"proxy\"]",
                "`proxy` is an entry for `try` of a route",
                "write try = [\"$path\", \"proxy\"] in the [[site.route]] with `proxy`, beside `root` of the site",
            ),
            (
                "try = [\"$path\", \"/app/*\"]",
                "`/app/*` is not a path for `try`",
                "write a page of the site such as \"/index.html\", without `*`",
            ),
        ],
    );
}

#[test]
fn several_values_in_one_text_become_a_list() {
    let members = "write members = [\"http://10.0.0.1:80\", \"http://10.0.0.2:80\"]";
    let named = "[[site]]\n[[balancer]]\nname = \"app\"\n";
    assert_refused(
        named,
        &[
            (
                "members = \"http://10.0.0.1:80, http://10.0.0.2:80\"",
                "has several URLs",
                members,
            ),
            (
                "members = [\"http://10.0.0.1:80 http://10.0.0.2:80\"]",
                "has several URLs",
                members,
            ),
            (
                "members = \"10.0.0.1:80,10.0.0.2:80\"",
                "is not the URL of an HTTP server",
                members,
            ),
            (
                "members = \"a, b\"",
                "is not the URL of an HTTP server",
                "write members = [\"http://a\", \"http://b\"]",
            ),
        ],
    );
    assert_refused(
        "[server]\n",
        &[
            (
                "https = \"443, 8443\"",
                "is not an address to listen on",
                "write https = [\"443\", \"8443\"]",
            ),
            (
                "trust = \"10.0.0.1, 10.0.0.2\"",
                "is not an IP address",
                "write trust = [\"10.0.0.1\", \"10.0.0.2\"]",
            ),
        ],
    );
    assert_refused(
        SITE,
        &[
            (
                "try = \"$uri $uri/ /index.php?$args\"",
                "is not a path for `try`",
                "write try = [\"$path\", \"/index.php?$query\"]",
            ),
            (
                "try = [\"$path\", \"=404\"]",
                "`=404` is not a path for `try`",
                "remove \"=404\": a path without a file gets 404 anyway",
            ),
            (
                "redirects = { \"/a\" = \"/b\" }",
                "`redirects` must be a list of tables, with `from` and `to`",
                "write redirects = [{ from = \"/a\", to = \"/b\" }]",
            ),
            (
                "redirects = [\"/a /b\", \"/c /d\"]",
                "`redirects` must be a list of tables, with `from` and `to`",
                "write redirects = [{ from = \"/a\", to = \"/b\" }, …]",
            ),
        ],
    );
}

#[test]
fn keys_without_a_counterpart_are_explained() {
    let hook = "write hook = \"/usr/local/bin/dns-hook\", the path of a program that sets the DNS record and has the login \
                of the provider";
    let site =
        "write the key in [[site]], above the first [[site.route]]: it holds for the whole site";
    let other = "move the key above the first [[site.route]] of its site; for another site, write [[site]] above the key";
    assert_refused(
        ROUTE,
        &[
            (
                "forward_auth = \"http://127.0.0.1:9091\"",
                "unknown key",
                "did you mean `auth`?",
            ),
            (
                "auth_request = \"/auth\"",
                "unknown key",
                "did you mean `auth`?",
            ),
            ("symlinks = \"follow\"", "unknown key", site),
            (
                "try_files = \"$uri\"",
                "unknown key",
                "write try = [\"$path\", \"/index.html\"], or try = [\"$path\", \"proxy\"] beside `proxy`",
            ),
            (
                "autoindex = true",
                "unknown key `autoindex` in [[site.route]]",
                "did you mean `listing`?",
            ),
            (
                "expires = \"30d\"",
                "unknown key",
                "write cache = [{ files = \"*.png\", max_age = \"30d\" }]",
            ),
            (
                "try = [\"$path\", \"@app\"]",
                "`@app` is not a path for `try`",
                "for the application of the location @app, write try = [\"$path\", \"proxy\"] in the [[site.route]] with `proxy`",
            ),
            ("names = [\"b.test\"]", "unknown key `names`", other),
            ("http = \"serve\"", "unknown key `http`", other),
        ],
    );
    assert_refused(
        "[[site]]\n[tls]\n",
        &[
            (
                "acme = { dns = \"cloudflare\" }",
                "unknown key `dns` in acme",
                hook,
            ),
            (
                "acme = { token = \"x\" }",
                "unknown key `token` in acme",
                hook,
            ),
        ],
    );
}

#[test]
fn all_keys_without_effect_are_reported_at_once() {
    let keys = [
        ("encoded_slash", "\"pass\"", "`proxy` or `balance`"),
        ("slashes", "\"merge\"", "`proxy` or `balance`"),
        ("early_hints", "\"http1\"", "`proxy` or `balance`"),
        ("keep", "3", "`fastcgi`"),
        ("files", "\".php\"", "`fastcgi`"),
        ("export", "\"all\"", "`git`"),
        ("push_users", "\"users\"", "`git`"),
    ];
    let lines: String = keys
        .iter()
        .map(|(key, value, _)| format!("{key} = {value}\n"))
        .collect();
    let error = refusal(&format!("{ROUTE}root = \"a\"\n{lines}"));
    for (nth, (key, _, needs)) in keys.iter().enumerate() {
        let what = format!("error: `{key}` has no effect without {needs} in the same route");
        assert!(error.contains(&what), "{what}\n{error}");
        let place = format!("anthill.toml:{}:", nth + 5);
        assert!(error.contains(&place), "{place}\n{error}");
    }
    let error = refusal("[[site]]\npreview = \"*.a.test\"\npreview_users = \"users\"\n");
    assert!(error.contains("`preview` is for a site"), "{error}");
    assert!(error.contains("`preview_users` is for a site"), "{error}");
    let error = refusal("[[site]]\nrelease = \"www\"\nsymlinks = \"follow\"\n");
    assert!(error.contains("`symlinks` is for a site"), "{error}");
}

#[test]
fn habits_of_other_formats_are_explained_at_their_place() {
    let quotes = "write a quote at both ends of the text: \"text\"";
    let spaces = "delete the character, and write ordinary spaces";
    let comma = "write a comma between the two values, also at the end of the line before";
    assert_refused(
        "",
        &[
            (
                "[[site]]\nroot = 'public",
                "a text has no closing quote",
                quotes,
            ),
            (
                "[[site]]\nroot =",
                "`root` has no value",
                "write root = VALUE in one line, or remove the line",
            ),
            (
                "[[site]]\nroot = \"public\";",
                "a line ends without a semicolon",
                "write root = \"public\"",
            ),
            (
                "// a site",
                "a comment begins with `#`",
                "write the comment as: # a site",
            ),
            (
                "; a site",
                "a comment begins with `#`",
                "write the comment as: # a site",
            ),
            (
                "[server]\n\u{feff}[[site]]",
                "a byte order mark stands between the words",
                spaces,
            ),
            (
                "[[site]]\nroot\u{a0}= \"public\"",
                "a non-breaking or wide space stands between the words",
                spaces,
            ),
            (
                "[[site]]\rroot = \"public\"",
                "a carriage return without a line feed stands between the words",
                "save the file with line ends of Unix (LF) or of Windows (CR LF)",
            ),
            (
                "[[site]]\nlisting = True",
                "invalid boolean",
                "write true in lower case",
            ),
            (
                "[[site]]\nlisting = off",
                "string values must be quoted",
                "write false, or a text in quotes: \"off\"",
            ),
            (
                "[[site]]\nlog = off",
                "string values must be quoted",
                "write log = \"off\"",
            ),
            (
                "[site]]",
                "unexpected key or value",
                "write double brackets at both ends: [[site]]",
            ),
            (
                "[[site]]\nnames = [\"a.test\" \"b.test\"]",
                "missing comma",
                comma,
            ),
            (
                "[[site]]\nnames = [\n  \"a.test\"\n  \"b.test\"\n]",
                "missing comma",
                comma,
            ),
            (
                "[[site]]\nerrors = { 404 = \"a\" 500 = \"b\" }",
                "missing comma",
                comma,
            ),
            (
                "[site.\"a.test\"]\nroot = \"public\"",
                "the file may have several [[site]]",
                "write [[site]] with names = [\"a.test\"]",
            ),
        ],
    );
    let windows = refusal("\t[[site]]\r\n\tnmes = [\"a.test\"]\t\r\n");
    assert!(windows.contains("anthill.toml:2:2\n"), "{windows}");
}

#[test]
fn names_and_addresses_of_other_servers_are_explained() {
    let all = "write names = [\"*\"] for every name";
    assert_refused(
        SITE,
        &[
            ("names = [\"_\"]", "`_` is not a host name", all),
            ("names = [\"\"]", "`` is not a host name", all),
            (
                "names = \":8080\"",
                "`:8080` is not a host name",
                "a port alone is an address: write http = [\":8080\"] in [server], and names = [\"*\"] for every name",
            ),
            (
                "names = \"http://:8080/\"",
                "is not a host name",
                "a port alone is an address: write http = [\":8080\"] in [server], and names = [\"*\"] for every name",
            ),
            (
                "names = \"a.test/blog\"",
                "is not a host name",
                "write the name \"a.test\", and [[site.route]] with path = \"/blog\"",
            ),
            (
                "names = \".a.test\"",
                "is not a host name",
                "write the name, and the names below: \"a.test\", \"*.a.test\"",
            ),
            (
                "names = '~^www\\d+\\.a\\.test$'",
                "is not a host name",
                "a name has no regular expression: write \"*.example.org\" for all names below, or \"*\" for every name",
            ),
            (
                "index = \"index.html index.php\"",
                "has several file names",
                "write index = [\"index.html\", \"index.php\"]",
            ),
            (
                "headers = [\"X-Frame-Options: DENY\"]",
                "`headers` must be a list of rules, not text",
                "for example headers = [{ files = \"*\", set = { \"X-Frame-Options\" = \"DENY\" } }]",
            ),
            (
                "headers = { files = \"*\", set = \"X-Frame-Options: DENY\" }",
                "`set` must be a table, not text",
                "write set = { \"X-Frame-Options\" = \"DENY\" }",
            ),
            (
                "cache = { files = '\\.(js|css)$', max_age = \"1d\" }",
                "is a regular expression, not a pattern",
                "write a pattern, such as \"*.png\", \"*.{js,css}\" or \"/static/**\"",
            ),
            (
                "cache = { files = \".png\", max_age = \"1d\" }",
                "`.png` is the name of a hidden file, which no client gets",
                "write \"*.png\" for all files with the ending",
            ),
            (
                "mime = { \"text/html\" = \"html htm\" }",
                "`html htm` is not a media type",
                "write the ending first: \".html\" = \"text/html\"",
            ),
            (
                "hsts = \"max-age=31536000; includeSubDomains\"",
                "is not a duration",
                "write hsts = \"365d\"",
            ),
            ("log = false", "`log` must be", "write log = \"off\""),
        ],
    );
    assert_refused(
        "[server]\n",
        &[
            (
                "http = false",
                "`http` must be an address",
                "write http = \"off\"",
            ),
            (
                "limits = { head_seconds = \"1 minute\" }",
                "`1 minute` is not a duration",
                "write head_seconds = \"1m\", between \"1s\" and \"365d\"",
            ),
            (
                "limits = { body_bytes = \"unlimited\" }",
                "`unlimited` is not a size",
                "no size is unlimited: write a large one, such as \"1024GiB\"",
            ),
        ],
    );
}

#[test]
fn values_of_routes_of_other_servers_are_explained() {
    let members = "write [[balancer]] with name = \"app\" and the URLs in `members`, and balance = \"app\" in the route";
    let alone =
        "write the path alone, such as \"/base/\": the rest of the path of a request is appended";
    let host = "remove `host`: the member gets the Host of the client without the key";
    assert_refused(
        ROUTE,
        &[
            (
                "proxy = 3000",
                "must be a URL",
                "write proxy = \"http://127.0.0.1:3000\"",
            ),
            (
                "proxy = [\"http://a.test\", \"http://b.test\"]",
                "`proxy` must be a URL or a table, not a list",
                members,
            ),
            (
                "proxy = \"http://a.test, http://b.test\"",
                "has several URLs",
                members,
            ),
            (
                "proxy = \"localhost:3000\"",
                "is not the URL of an HTTP server",
                "write \"http://localhost:3000\"",
            ),
            (
                "proxy = \"http:/localhost:3000\"",
                "is not the URL of an HTTP server",
                "write \"http://localhost:3000\"",
            ),
            (
                "proxy = \"https//a.test\"",
                "is not the URL of an HTTP server",
                "write \"https://a.test\"",
            ),
            (
                "proxy = \"http://a.test/*\"",
                "has no valid path: `/*`",
                alone,
            ),
            (
                "proxy = \"http://a.test$request_uri\"",
                "is not a host name",
                "a name has letters, digits and hyphens between dots, such as \"www.example.org\"",
            ),
            (
                "proxy = \"http://a.test/$1\"",
                "has no valid path: `/$1`",
                alone,
            ),
            (
                "proxy = { url = \"http://a.test\", host = \"$host\" }",
                "`$host` is not a host",
                host,
            ),
            (
                "redirect = 301",
                "`redirect` must be text",
                "write redirect = { to = \"/new/\", status = 301 }",
            ),
            (
                "redirect = \"/new/ permanent\"",
                "is not a target for a redirect",
                "write redirect = { to = \"/new/\", status = 301 }",
            ),
            (
                "redirect = \"302 https://b.test/;\"",
                "is not a target for a redirect",
                "write redirect = { to = \"https://b.test/\", status = 302 }",
            ),
            (
                "redirect = { to = \"/new/\", status = \"301\" }",
                "`status` must be a whole number, not text",
                "write the number without quotes: status = 301",
            ),
            (
                "redirect = { to = \"/new/\", permanent = true }",
                "unknown key `permanent`",
                "write status = 301; without the key the status is 308, permanent too",
            ),
            (
                "allow = \"192.168.0.*\"",
                "is not an IP address",
                "write \"192.168.0.0/24\"",
            ),
            (
                "allow = \"10.*\"",
                "is not an IP address",
                "write \"10.0.0.0/8\"",
            ),
            (
                "deny = [\"localhost\"]",
                "is not an IP address",
                "write \"127.0.0.1\" and \"::1\"",
            ),
            (
                "allow = \"any\"",
                "is not an IP address",
                "remove `allow`: without the key, all clients have access",
            ),
            (
                "fastcgi = 9000",
                "must be text",
                "write fastcgi = \"127.0.0.1:9000\"",
            ),
            (
                "fastcgi = \"http://127.0.0.1:9000/\"",
                "is not an address of a backend",
                "write fastcgi = \"127.0.0.1:9000\"",
            ),
            (
                "fastcgi = \"php:9000\"",
                "is not an address of a backend",
                "write the IP address of php, such as \"127.0.0.1:9000\": a backend has no host name",
            ),
            (
                "fastcgi = \"127.0.0.1:9000\"\nfiles = \".php,.phtml\"",
                "is not a file ending",
                "write files = [\".php\", \".phtml\"]",
            ),
        ],
    );
    assert_refused(
        "[[site]]\n[[site.route]]\n",
        &[
            (
                "path = [\"/a/\", \"/b/\"]",
                "`path` must be text",
                "write a [[site.route]] for each path",
            ),
            (
                "path = \"https://a.test/api/\"",
                "is not a path of a site",
                "write the path alone: \"/api/\"; `names` of the [[site]] has the host",
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

#[test]
fn addresses_of_sites_are_corrected() {
    assert_refused(
        "",
        &[
            (
                "[[site]]\nlisten = \"ftp://:21\"",
                "a site cannot listen for `ftp`",
                "write \"https://:21\" or \"http://:21\"",
            ),
            (
                "[[site]]\nlisten = \"https://:8001/app\"",
                "`https://:8001/app` has a path, `/app`",
                "write \"https://:8001\"; a [[site.route]] has the path",
            ),
            (
                "[[site]]\nlisten = \"https://example.org:8001\"",
                "`example.org:8001` is not an address to listen on",
                "write an address instead of a name: \"127.0.0.1:8001\", or \":8001\" for all addresses; the name belongs in `names` of the [[site]]",
            ),
            (
                "[[site]]\nlisten = []",
                "`listen` is empty",
                "write an address such as \"https://:8001\", or remove the key",
            ),
            (
                "[[site]]\nlisten = \":8001\"\nhttp = \"serve\"",
                "`http` has no meaning for a site with `listen`",
                "remove `http`: the addresses in `listen` say what is served over plain HTTP",
            ),
            (
                "[[site]]\nlisten = [\":8001\", \"https://:8001\"]",
                "the site has the address `[::]:8001` twice",
                "remove one of the two",
            ),
            (
                "[[site]]\nlisten = \":8001\"\n[[site]]\nlisten = \":8001\"",
                "two sites have the name `*` at https://:8001",
                "the first site is in line 1; give each site its own `names`, or another port in `listen`",
            ),
            (
                "[[site]]\nlisten = \":8001\"\n[[site]]\nlisten = \"http://:8001\"",
                "the address `[::]:8001` is for HTTPS and for plain HTTP",
                "choose another port; the other use is `https://:8001` in line 2",
            ),
            (
                "[[site]]\nlisten = \":8443\"\n[[site]]\nnames = \"a.test\"",
                "the address `[::]:8443` is used twice, in `listen` and in `https`",
                "choose another port: the default of `https` is :8443",
            ),
            (
                "[server]\nmanager = \"127.0.0.1:8001\"\n[[site]]\nlisten = \"127.0.0.1:8001\"",
                "the address `127.0.0.1:8001` is used twice, in `listen` and in `manager`",
                "choose another port, or remove one of the two; `manager` is in line 2",
            ),
        ],
    );
}
