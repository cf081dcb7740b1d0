//! Tests of `[manager]`.

// A failed set-up is a failed test.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use crate::config::{Config, OperatorError, parse};

fn read(text: &str) -> Result<Config, OperatorError> {
    parse(text, Path::new("/srv/anthill.toml"))
}

#[test]
fn the_short_form_is_a_table_with_an_address() {
    let short = read("[server]\nmanager = \"127.0.0.1:8800\"")
        .unwrap()
        .manager
        .unwrap();
    let long = read("[manager]\nlisten = \"127.0.0.1:8800\"")
        .unwrap()
        .manager
        .unwrap();
    assert_eq!(short.listen[0].get_ref(), long.listen[0].get_ref());
    assert_eq!(
        (short.users, short.allow, short.viewers),
        (None, None, None)
    );
    assert!(!long.uses_tls());
    assert_eq!(read("").unwrap().manager, None);
}

#[test]
fn all_keys_are_read() {
    let text = "[manager]\nlisten = [\"[::1]:8800\", \"192.0.2.1:8800\"]\nusers = \"managers\"\n\
                viewers = \"/etc/viewers\"\nallow = [\"192.0.2.0/24\"]\n\
                names = [\"Manager.example.org\", \"localhost:9000\"]\n";
    let config = read(text).unwrap();
    let manager = config.manager.as_ref().unwrap();
    let files = manager.user_files();
    let files: Vec<_> = files
        .map(|(key, file)| (key, file.get_ref().as_path()))
        .collect();
    let expected = [("users", "/srv/managers"), ("viewers", "/etc/viewers")];
    assert_eq!(files, expected.map(|(key, file)| (key, Path::new(file))));
    let names = [("manager.example.org", None), ("localhost", Some(9000))];
    assert_eq!(
        manager.names,
        names.map(|(name, port)| (name.to_owned(), port))
    );
    assert!(manager.uses_tls() && config.uses_tls());
    let secrets = config.secret_paths();
    assert!(secrets.iter().any(|path| path == Path::new("/etc/viewers")));
}

#[test]
fn mistakes_are_explained() {
    let open = "other machines can reach the manager at";
    let users = "[manager]\nlisten = \"192.0.2.1:8800\"\nusers = \"u\"";
    let allow = "[manager]\nlisten = \"192.0.2.1:8800\"\nallow = [\"192.0.2.0/24\"]";
    #[rustfmt::skip]
    let table = [
        ("[server]\nmanager = \"127.0.0.1:8800\"\n[manager]\nlisten = \"127.0.0.1:8801\"",
         "the manager has two tables: `manager` in [server], and [manager]".to_owned(), "2:11"),
        ("[server]\nmanager = \":8800\"",
         format!("{open} [::]:8800, which needs `users` and `allow`"), "2:11"),
        ("[manager]\nlisten = [\"127.0.0.1:8800\", \"0.0.0.0:8801\"]",
         format!("{open} 0.0.0.0:8801, which needs `users` and `allow`"), "2:29"),
        (users, format!("{open} 192.0.2.1:8800, which needs `allow`"), "2:10"),
        (allow, format!("{open} 192.0.2.1:8800, which needs `users`"), "2:10"),
        ("[server]\nmanager = true",
         "`manager` must be an address to listen on, not true or false".to_owned(), "2:11"),
        ("[server]\nmanager = []", "the manager has no address".to_owned(), "2:11"),
        ("[manager]\nlisten = []", "the manager has no address".to_owned(), "2:10"),
        ("[manager]\n", "[manager] needs `listen`".to_owned(), "1:1"),
        ("[manager]\nlisten = \"127.0.0.1:8800\"\nnames = [\"http://a\"]",
         "`http://a` is not a host name".to_owned(), "3:10"),
        ("[server]\nhttp = \"127.0.0.1:80\"\nmanager = \"127.0.0.1:80\"",
         "the address `127.0.0.1:80` is used twice, in `manager` and in `http`".to_owned(), "3:11"),
        ("[server]\nhttps = [\"127.0.0.1:8443\"]\nmanager = \"127.0.0.1:8443\"",
         "the address `127.0.0.1:8443` is used twice, in `manager` and in `https`".to_owned(), "3:11"),
        ("[server]\nmanager = \"127.0.0.1:8443\"",
         "`127.0.0.1:8443` of `manager` and `[::]:8443` of `https` have one port".to_owned(), "2:11"),
        ("[server]\nhttps = \"0.0.0.0:8443\"\n[manager]\nlisten = \"127.0.0.1:8443\"",
         "`127.0.0.1:8443` of `manager` and `0.0.0.0:8443` of `https` have one port".to_owned(), "4:10"),
        ("[manager]\nlisten = [\"127.0.0.1:80\", \"127.0.0.1:80\"]",
         "the address `127.0.0.1:80` is used twice in `manager`".to_owned(), "2:27"),
        ("[server]\nviewers = \"a\"", "unknown key `viewers` in [server]".to_owned(), "2:1"),
    ];
    for (text, what, place) in table {
        let error = read(text).expect_err(text).to_string();
        assert!(error.contains(&what), "{error}");
        assert!(
            error.contains(&format!("/srv/anthill.toml:{place}\n")),
            "{error}"
        );
        assert!(error.contains("\nhelp: "), "{error}");
    }
    for value in ["true", "1.5", "{}", "[false]"] {
        let text = format!("[server]\nmanager = {value}");
        let error = read(&text).expect_err(&text).to_string();
        let help = "\nhelp: for example manager = \"127.0.0.1:8800\"";
        assert!(error.contains(help), "{error}");
    }
}

#[test]
fn the_manager_is_no_member() {
    for (listen, url) in [
        ("127.0.0.1:8800", "http://127.0.0.1:8800"),
        ("127.0.0.1:8800", "http://localhost:8800"),
        ("[::1]:8800", "http://localhost:8800"),
        ("127.0.0.1:8800", "http://0.0.0.0:8800"),
    ] {
        let text = format!(
            "[server]\nmanager = \"{listen}\"\n[[site]]\n[[site.route]]\npath = \"/\"\nproxy = \"{url}\"\n"
        );
        let config = read(&text).unwrap();
        let error = crate::config::check(&config).expect_err(url).to_string();
        let what = format!("the member is this server, which listens on {listen}");
        assert!(error.contains(&what), "{error}");
    }
}
