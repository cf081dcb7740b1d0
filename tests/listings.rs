//! Folder listings and error pages, as browsers get them.

use std::process::Command;

use crate::support::wire::{BOTH, Wire};
use crate::support::{Folder, Server, server_table, site_table};

/// Starts the server for the folder `public` without a configuration file.
fn serve_folder(folder: Folder, options: &[&str]) -> Server {
    let mut command = Command::new(crate::support::program());
    command
        .args(["serve", "public", "--https", "off", "--http", "127.0.0.1:0"])
        .args(["--state", "state", "--control", "control"])
        .args(options)
        .current_dir(folder.path("."));
    Server::launch(folder, command)
}

#[test]
fn a_folder_without_index_is_listed_on_request() {
    let server = serve_folder(Folder::new().with("public/ant.txt", "ant"), &[]);
    let lines = server.errors.all().join("\n");
    assert!(
        lines.contains("there is no index.html in this folder"),
        "{lines}"
    );
    let suggestion = format!(
        "anthill serve {} --listing",
        server.folder.path("public").display()
    );
    assert!(lines.contains(&suggestion), "{lines}");
    assert_eq!(Wire::plain(&server).get("/", "").status, 404);
    let server = serve_folder(Folder::new().with("public/ant.txt", "ant"), &["--listing"]);
    let lines = server.errors.all().join("\n");
    assert!(!lines.contains("there is no"), "{lines}");
    let mut wire = Wire::plain(&server);
    assert!(
        wire.get("/", "")
            .text()
            .contains("<a href=\"./ant.txt\">ant.txt</a>")
    );
    // The option holds over a reload.
    server.signal("HUP");
    server
        .errors
        .wait_for("the reload", |line| line.contains("reloaded"));
    assert_eq!(wire.get("/", "").status, 200);
}

#[test]
fn a_listing_has_the_readme_as_html() {
    let folder = Folder::new()
        .with("public/docs/march.txt", "march")
        .with("public/guarded/README", "secret")
        .with("public/guarded/page", "page")
        .with("users", "");
    let route = "[[site.route]]\npath = \"/guarded/README\"\nallow = [\"192.0.2.1\"]\n";
    let site = site_table("http = \"serve\"\nlisting = true\n");
    let server = Server::start_in(folder, &(server_table("") + &site + route));
    for over in BOTH {
        let text = "# Ants\n\n[march](march.txt) <b>on</b> [x](javascript:x)";
        server.folder.write("public/docs/README.md", text);
        let mut wire = Wire::over(&server, over);
        let page = wire.get("/docs/", "").text();
        assert!(
            page.contains("<nav class=path><a href=\"../\">localhost</a><i>/</i>docs</nav>"),
            "{page}"
        );
        assert!(
            page.contains(">Ants</h1>") && page.contains("<a href=\"march.txt\">march</a>"),
            "{page}"
        );
        assert!(
            page.contains("&lt;b&gt;on&lt;/b&gt;") && !page.contains("href=\"javascript"),
            "{page}"
        );
        server
            .folder
            .write("public/docs/README.md", format!("# Changed {over:?}"));
        let page = wire.get("/docs/", "").text();
        assert!(page.contains(&format!(">Changed {over:?}</h1>")), "{page}");
        // The listing would show the content of a guarded file.
        assert_eq!(wire.get("/guarded/", "").status, 403);
        assert_eq!(wire.get("/guarded/page", "").status, 200);
    }
}

/// A name that exists on disk has the response of any missing name.
#[test]
fn error_pages_tell_nothing_of_the_disk() {
    let folder = Folder::new()
        .with("public/folder/page", "page")
        .with("public/.hidden", "hidden")
        .with("outside", "outside");
    std::os::unix::fs::symlink("../outside", folder.path("public/link")).expect("a link");
    let server = Server::start_in(
        folder,
        &(server_table("") + &site_table("http = \"serve\"")),
    );
    let mut wire = Wire::plain(&server);
    let missing = wire.get("/missing", "");
    assert!(
        missing.text().contains("<a href=\"/\">Front page</a>"),
        "{missing:?}"
    );
    for path in [
        "/folder/",
        "/folder",
        "/.hidden",
        "/.other",
        "/link",
        "/folder/page/x",
    ] {
        let response = wire.get(path, "");
        assert_eq!(
            (response.status, response.text()),
            (404, missing.text()),
            "{path}"
        );
    }
    let refused = wire.ask("DELETE", "/", "");
    assert!(refused.text().contains("Front page"), "{refused:?}");
}
