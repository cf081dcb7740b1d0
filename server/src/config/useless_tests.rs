//! Tests of the warnings about settings that never apply or can never succeed.

use crate::config::{check, load, parse};
use std::fs;
use std::path::Path;

/// Returns the warnings of a configuration in a folder with an index, `new.html` and `app.css` below `public`.
fn warnings(text: &str) -> String {
    let dir = tempfile::tempdir().expect("a folder");
    fs::create_dir(dir.path().join("public")).expect("a folder");
    for file in ["index.html", "new.html", "app.css"] {
        fs::write(dir.path().join("public").join(file), "ant").expect("a file");
    }
    let file = dir.path().join("anthill.toml");
    let text = if text.contains("[server]") {
        text.replace("[server]\n", "[server]\nstate = \"state\"\n")
    } else {
        format!("[server]\nstate = \"state\"\n{text}")
    };
    fs::write(&file, &text).expect("a file");
    let config = load(&file).unwrap_or_else(|error| panic!("{text}\n{error}"));
    let found = check(&config).unwrap_or_else(|error| panic!("{text}\n{error}"));
    let found: Vec<String> = found.iter().map(|it| it.as_warning()).collect();
    found.join("\n")
}

/// Asserts that each configuration has the warning, with a line and a help.
fn assert_doubted(cases: &[(&str, &str, &str)]) {
    for (text, what, help) in cases {
        let found = warnings(text);
        assert!(
            found.contains(what) && found.contains(help),
            "{text}\n{found}"
        );
        assert!(found.contains("anthill.toml:"), "{text}\n{found}");
    }
}

#[test]
fn rules_behind_a_broader_rule_are_doubted() {
    assert_doubted(&[
        (
            "[[site]]\ncache = [{ files = \"*\", max_age = \"30d\" }, { files = \"*.html\", max_age = \"1m\" }]\n",
            "the rule of `cache` for `*.html` never applies",
            "write the rule for `*` as the last one",
        ),
        (
            "[[site]]\nredirects = [{ from = \"/old/*\", to = \"/new.html\" }, { from = \"/old/a\", to = \"/app.css\" }]\n",
            "the redirect of /old/a never applies, because /old/* in line 4 matches the path first",
            "write the redirect of /old/a above",
        ),
        (
            "[[site]]\nredirects = [{ from = \"/app.css\", to = \"/new.html\" }]\n",
            "the redirect of /app.css never applies, because the file",
            "force = true",
        ),
        (
            "[[site]]\ntry = [\"/index.html\", \"$path\"]\n",
            "/index.html answers every request",
            "write try = [\"$path\", \"/index.html\"]",
        ),
    ]);
    for right in [
        "[[site]]\ncache = [\"hashed\", { files = \"*.html\", max_age = \"1m\" }]\n",
        "[[site]]\ncache = [{ files = \"*.html\", max_age = \"1m\" }, { files = \"*\", max_age = \"30d\" }]\n",
        "[[site]]\nredirects = [{ from = \"/old/a\", to = \"/new.html\" }, { from = \"/old/*\", to = \"/new.html\" }]\n",
        "[[site]]\nredirects = [{ from = \"/old/*\", to = \"/new.html\" }, { from = \"/older\", to = \"/new.html\" }]\n",
        "[[site]]\nredirects = [{ from = \"/a/*\", to = \"/new.html\" }, { from = \"/a/b\", to = \"/new.html\", force = true }]\n",
        "[[site]]\ntry = [\"$path\", \"$path.html\", \"/index.html\"]\n",
    ] {
        assert_eq!(warnings(right), "", "{right}");
    }
}

#[test]
fn pages_that_do_not_exist_are_doubted() {
    assert_doubted(&[
        (
            "[[site]]\nredirects = [{ from = \"/old\", to = \"/nwe.html\" }]\n",
            "the site has no /nwe.html",
            "did you mean \"/new.html\"?",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/guide/\"\nrewrite = \"/manual.html\"\n",
            "the rewrite of /guide/ answers with 404",
            "make the file",
        ),
        (
            "[[site]]\ntry = [\"$path\", \"/app.html\"]\n",
            "the site has no /app.html, the last path of `try`",
            "make the file",
        ),
        (
            "[[site]]\nindex = \"index.htm\"\n",
            "the path / gets 404, because `index` is \"index.htm\"",
            "write index = [\"index.htm\", \"index.html\"]",
        ),
        (
            "[[site]]\nroot = \"public\"\n[[site.route]]\npath = \"/\"\nrewrite = \"/index.html\"\n",
            "the rewrite of / answers every request",
            "write try = [\"$path\", \"/index.html\"]",
        ),
    ]);
    for right in [
        "[[site]]\nredirects = [{ from = \"/old\", to = \"/new.html?a\" }, { from = \"/a\", to = \"/b\" }, { from = \"/b\", to = \"https://a.test/\" }]\n",
        "[[site]]\ntry = [\"$path\", \"$path.html\"]\nredirects = [{ from = \"/old\", to = \"/new\" }]\n",
        "[[site]]\nroot = \"public\"\n[[site.route]]\npath = \"/\"\nrewrite = \"/new.html\"\n",
    ] {
        assert_eq!(warnings(right), "", "{right}");
    }
}

#[test]
fn keys_without_their_listener_or_file_are_doubted() {
    assert_doubted(&[
        (
            "[server]\nh2c = true\nhttp = \"off\"\n[[site]]\n",
            "`h2c` has no effect",
            "give `http` in [server] an address",
        ),
        (
            "[server]\nhttps = \"off\"\n[[site]]\nhttp = \"serve\"\nhsts = true\n",
            "`hsts` has no effect",
            "remove `hsts`",
        ),
        (
            "[[site]]\nlisten = \"http://127.0.0.1:8081\"\nhsts = true\n",
            "`hsts` has no effect",
            "remove `hsts`",
        ),
        (
            "[[site]]\n[log]\nrotate = \"10MiB\"\n",
            "`rotate` has no effect",
            "access = \"access.log\"",
        ),
        (
            "[server]\nmemory_max = 64\n[[site]]\n",
            "memory_max = 64 is a size of 64 bytes",
            "memory_max = \"64MiB\"",
        ),
        (
            "[server]\nlimits = { idle_seconds = 75000 }\n[[site]]\n",
            "idle_seconds = 75000 is a number of seconds, 20 h 50 min",
            "idle_seconds = \"75s\"",
        ),
    ]);
    for right in [
        "[server]\nlimits = { idle_seconds = 3600, body_bytes = 1048576 }\n[[site]]\nhsts = true\n",
        "[server]\nhttps = \"off\"\n[[site]]\nlisten = \"https://127.0.0.1:8443\"\nhsts = true\n",
    ] {
        assert_eq!(warnings(right), "", "{right}");
    }
}

#[test]
fn balancers_that_reach_no_member_are_doubted() {
    let balanced = |members: &str| {
        format!(
            "[[site]]\n[[site.route]]\npath = \"/\"\nbalance = \"app\"\n[[balancer]]\nname = \"app\"\nmembers = [{members}]\n"
        )
    };
    assert_doubted(&[
        (
            &balanced("{ url = \"http://127.0.0.1:9001\", status = \"disabled\" }"),
            "no member of the balancer `app` is enabled",
            "status = \"enabled\"",
        ),
        (
            &balanced("\"http://10.0.0.2:443\""),
            "port 443 is the port of https",
            "write https:// in the URL",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\nproxy = \"http://app\"\n[[balancer]]\nname = \"app\"\nmembers = [\"http://127.0.0.1:9001\"]\n",
            "`app` is the name of a [[balancer]]",
            "write balance = \"app\"",
        ),
    ]);
    assert_eq!(
        warnings(&balanced(
            "\"http://127.0.0.1:9001\", \"https://app.example.net\""
        )),
        ""
    );
}

#[test]
fn strict_transport_security_is_sent_once() {
    let rule = |files: &str, value: &str| {
        format!(
            "[[site]]\nhsts = true\nheaders = [{{ files = \"{files}\", set = {{ \"Strict-Transport-Security\" = \"{value}\" }} }}]\n"
        )
    };
    let config =
        parse(&rule("*", "max-age=9"), Path::new("/srv/anthill.toml")).expect("a configuration");
    assert_eq!(
        (config.sites[0].hsts, config.sites[0].headers[0].set.len()),
        (Some(9), 0)
    );
    for text in [rule("*.html", "max-age=9"), rule("*", "max-age=9; preload")] {
        let error = parse(&text, Path::new("/srv/anthill.toml"))
            .expect_err(&text)
            .to_string();
        assert!(
            error.contains("would both send Strict-Transport-Security"),
            "{error}"
        );
    }
    let alone = rule("*", "max-age=9; preload").replace("hsts = true\n", "");
    parse(&alone, Path::new("/srv/anthill.toml")).expect("a configuration");
}

#[test]
fn the_folder_of_the_whole_machine_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("anthill.toml");
    fs::write(
        &file,
        "[server]\nstate = \"state\"\n[[site]]\nroot = \"/\"\n",
    )
    .expect("a file");
    let error = check(&load(&file).expect("a configuration")).expect_err("a refusal");
    let error = error.to_string();
    assert!(
        error.contains("the folder / holds all files of this machine"),
        "{error}"
    );
    assert!(error.contains("anthill.toml:4:8"), "{error}");
}
