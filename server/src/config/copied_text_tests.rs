//! Tests of the messages about text from elsewhere: odd characters, files of other programs, marks of other tools.

use crate::config::parse;
use std::path::Path;

/// Asserts the mistake and the help of each configuration.
fn assert_explained(cases: &[(&str, &str, &str)]) {
    for (text, what, help) in cases {
        let Err(error) = parse(text, Path::new("/srv/anthill.toml")) else {
            panic!("this was accepted:\n{text}");
        };
        let error = error.to_string();
        let shown = error.lines().find_map(|line| line.strip_prefix("help: "));
        assert!(
            error.contains(&format!("error: {what}\n")),
            "{text}\n{error}\nlacks {what}"
        );
        assert_eq!(shown, Some(*help), "{text}\n{error}");
        assert!(error.contains("--> /srv/anthill.toml:"), "{text}\n{error}");
    }
}

#[test]
fn files_of_other_programs_are_named() {
    assert_explained(&[
        (
            "server:\n  https: \":443\"\n",
            "this looks like YAML; anthill.toml is TOML",
            "write [server], and `key = value` in the lines below",
        ),
        (
            "{\n  \"server\": { \"https\": \":443\" }\n}\n",
            "this looks like JSON; anthill.toml is TOML",
            "write [server], and `key = value` in the lines below",
        ),
        (
            "<VirtualHost *:80>\n  ServerName a.org\n</VirtualHost>\n",
            "this looks like a file of Apache httpd; anthill.toml is TOML",
            "write [[site]], and names = [\"a.org\"] and root = \"public\" in the lines below",
        ),
        (
            "global\n  maxconn 100\nfrontend www\n",
            "this looks like a file of HAProxy; anthill.toml is TOML",
            "write https = [\":443\"] in [server] for `bind`, and [[balancer]] with `name` and `members` for a backend",
        ),
        (
            "[http.routers.app]\nrule = \"Host(`a.example.org`)\"\n",
            "unknown key `http` in the file",
            "this is a table of Traefik: write [[site]] with names = [\"a.example.org\"], and below it [[site.route]] with \
             path = \"/\" and proxy = \"http://127.0.0.1:9000\"",
        ),
        (
            "server {\n",
            "this looks like a file of nginx or Caddy; anthill.toml is TOML",
            "write [[site]], and names = [\"a.test\"] in the lines below",
        ),
    ]);
}

#[test]
fn marks_of_other_tools_are_named() {
    assert_explained(&[
        (
            "[server]\n<<<<<<< HEAD\nhttps = \":443\"\n=======\nhttps = \":8443\"\n>>>>>>> b\n",
            "the lines 2 to 6 have the marks of a merge conflict of git",
            "keep the lines of one side, and remove the lines with <<<<<<<, ======= and >>>>>>>",
        ),
        (
            "```toml\n[server]\n```\n",
            "the line is a mark of Markdown around the text",
            "remove the lines with ```",
        ),
        (
            "+[server]\n+https = \":8443\"\n",
            "the line begins with the `+` of a diff",
            "write the line as: [server]",
        ),
        (
            "1 [server]\n2 https = \":8443\"\n",
            "the line begins with its number",
            "write the line as: [server]",
        ),
        (
            "$ cat anthill.toml\n",
            "the line is a command of the shell",
            "remove the line, and run the command in a terminal: cat anthill.toml",
        ),
        (
            "[server]\n...\n",
            "the dots stand for lines that were left out",
            "remove the line, and write the lines that the dots stand for",
        ),
        (
            "[server]\n\0https = \":8443\"\n",
            "the line has a NUL byte",
            "delete the byte, and save the file as UTF-8 text",
        ),
        (
            "[[site]]\nroot = &quot;public&quot;\n",
            "`&quot;` is a character of HTML",
            "write root = \"public\"",
        ),
        (
            "[[site]]\nroot = `public`\n",
            "a text has straight quotes, not backticks",
            "write root = \"public\"",
        ),
    ]);
}

#[test]
fn lines_that_are_almost_toml_are_corrected() {
    assert_explained(&[
        (
            "[[site]]\nroot => \"public\"\n",
            "a value stands behind `=`",
            "write root = \"public\"",
        ),
        (
            "[[site]]\nroot \"public\"\n",
            "the line lacks the sign `=`",
            "write root = \"public\"",
        ),
        (
            "[server]\nworkers = 04\n",
            "a number begins with another digit than 0",
            "write workers = 4",
        ),
        (
            "[server]\nhttps = \":8443\",\nhttp = \":8080\"\n",
            "a line ends without a comma",
            "write https = \":8443\"",
        ),
        (
            "[server]\nlimits = { connections = 10k }\n",
            "`10k` is not a number",
            "write connections = 10000",
        ),
        (
            "[[site]]\nnames = [\"a.org\"\nroot = \"public\"\n",
            "the list has no closing bracket",
            "write names = [\"a.org\"]",
        ),
        (
            "[[site]]\nheaders = [{ files = \"*\", set = { \"X-A\" = \"a \"b\" c\" } }]\n",
            "a quote stands within the text",
            "write 'a \"b\" c', or \\\" for each quote in the text",
        ),
        (
            "[server]\nhttps \u{ff1d} \":8443\"\n",
            "`\u{ff1d}` (U+FF1D) is a full-width character",
            "write =",
        ),
        (
            "[[site]]\nn\u{430}mes = [\"a.org\"]\n",
            "`\u{430}` (U+0430) is a Cyrillic letter",
            "write names",
        ),
    ]);
}

#[test]
fn odd_characters_of_values_are_named() {
    assert_explained(&[
        (
            "[[site]]\nnames = [\"www.\u{200b}example.org\"]\n",
            "an invisible character (U+200B) stands before `example`",
            "write \"www.example.org\"",
        ),
        (
            "[[site]]\nnames = [\"www.example.org\u{a0}\"]\n",
            "a non-breaking space (U+00A0) stands at the end of the text",
            "write \"www.example.org\"",
        ),
        (
            "[[site]]\nnames = [\"my\u{2013}site.org\"]\n",
            "`\u{2013}` (U+2013) is a dash in place of `-`",
            "write \"my-site.org\"",
        ),
        (
            "[server]\nhttps = \"\u{ff1a}8443\"\n",
            "`\u{ff1a}` (U+FF1A) is a full-width character in place of `:`",
            "write \":8443\"",
        ),
        (
            "[[site]]\nnames = [\" a.org\"]\n",
            "the text begins with a space",
            "write \"a.org\"",
        ),
        (
            "[[site]]\nnames = \"[\\\"a.org\\\", \\\"b.org\\\"]\"\n",
            "quotes stand around the whole list of `names`",
            "write names = [\"a.org\", \"b.org\"]",
        ),
    ]);
}

#[test]
fn values_of_another_shape_are_corrected_with_their_own_text() {
    let route = |text: &str| {
        format!(
            "[[site]]\n[[site.route]]\npath = \"/\"\nproxy = \"http://127.0.0.1:9000\"\n{text}\n"
        )
    };
    assert_explained(&[
        (
            "[[site]]\ncache = [{ files = \"*.js\", max_age = \"1M\" }]\n",
            "`1M` is not a duration",
            "write max_age = \"30d\" for months, or \"1m\" for minutes",
        ),
        (
            "[[site]]\nredirects = [{ from = \"/old\", to = \"new.html\" }]\n",
            "`new.html` is no destination",
            "write /new.html",
        ),
        (
            "[[site]]\nredirects = [{ from = \"/old\", to = \"/new\", permanent = true }]\n",
            "unknown key `permanent` in a redirect",
            "write status = 301; without the key the status is 308, permanent too",
        ),
        (
            "[[site]]\nsymlinks = true\n",
            "`symlinks` must be \"inside\" or \"follow\", not true or false",
            "write symlinks = \"follow\"",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/a/\"\nrewrite = \"http://127.0.0.1:9000/\"\n",
            "`http://127.0.0.1:9000/` is a URL, and a rewrite leads to a path of the site",
            "for another server write proxy = \"http://127.0.0.1:9000/\", to send the client there redirect = \"http://127.0.0.1:9000/\"",
        ),
        (
            &route("headers = { \"X-Real-IP\" = \"$remote_addr\" }"),
            "`headers` must be a list of rules, not a table",
            "for the member write request_headers = { \"X-Real-IP\" = \"{client}\" } in the table `proxy` or `balance` of the route",
        ),
        (
            &route("timeout = \"30s\""),
            "unknown key `timeout` in [[site.route]]",
            "write first_byte_timeout = \"30s\" (until the response begins) or silence_timeout = \"30s\" (within it) in the \
             table `proxy` of the route, or in [[balancer]]",
        ),
    ]);
}
