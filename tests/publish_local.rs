//! Publications into the store of a server on the same machine.

use std::process::Command;

use anthill::base::digest::hex;
use anthill::store::{SiteRecords, StoreFolder};

use crate::support::release_store::publisher;
use crate::support::{Done, Folder, Server, finish};

const CONFIG: &str = "[server]\nhttps = [\"127.0.0.1:0\"]\nhttp = [\"127.0.0.1:0\"]\nstate = \"state\"\n\
    control = \"anthill.sock\"\n\
    [[site]]\nnames = [\"*.www.test\", \"www.test\", \"*\"]\nhttp = \"serve\"\nrelease = \"www\"\n\
    preview = \"*.preview.test\"\n";

/// Runs `anthill-publish` in the folder of a server.
fn publish(folder: &Folder, words: &[&str]) -> Done {
    let mut command = Command::new(publisher());
    command.args(words).current_dir(folder.path("."));
    let done = finish(command, b"");
    assert_eq!(done.code, Some(0), "{words:?} {done:?}");
    done
}

#[test]
fn the_summary_has_the_time_until_served_and_the_address() {
    let server = Server::start_in(Folder::new().with("site/index.html", "one"), CONFIG);
    let folder = &server.folder;
    let open = format!("\n  open https://www.test:{}/\n", server.https_port);
    for (sequence, page) in [(1, "one"), (2, "two")] {
        folder.write("site/index.html", page);
        let done = publish(folder, &["publish", "site", "./state/releases"]);
        let first = done.stdout.lines().next().unwrap_or_default();
        let clause = format!("published, sequence {sequence}, served by all workers after ");
        assert!(first.contains(&clause), "{done:?}");
        assert!(done.stdout.contains("\n  1 file, 3 B: "), "{done:?}");
        assert!(done.stdout.ends_with(&open), "{done:?}");
        assert_eq!(server.keep_alive().get("/").text(), page);
    }
    let done = publish(folder, &["publish", "site", "./state/releases"]);
    assert!(done.stdout.contains("unchanged, sequence 2"), "{done:?}");
    assert!(done.stdout.ends_with(&open), "{done:?}");
    folder.write("site/index.html", "next");
    let words = ["publish", "--preview", "Next", "site", "./state/releases"];
    let done = publish(folder, &words);
    let store = StoreFolder::open(&folder.path("state/releases")).expect("a store");
    let records = SiteRecords::read(&store, "www").expect("records");
    let id = hex(&records.labels["Next"]);
    let port = server.https_port;
    let open = format!(
        "\n  open https://next.preview.test:{port}/\n  open https://{}.preview.test:{port}/\n",
        &id[..16]
    );
    assert!(done.stdout.ends_with(&open), "{done:?}");
}

#[test]
fn the_address_follows_a_reload() {
    let server = Server::start_in(Folder::new().with("site/index.html", "one"), CONFIG);
    let folder = &server.folder;
    publish(folder, &["publish", "site", "./state/releases"]);
    let config = CONFIG.replace("\"www.test\"", "\"new.test\"");
    folder.write("anthill.toml", config);
    let words = ["reload".into(), folder.path("anthill.toml")];
    let reloaded = crate::support::anthill(&words);
    assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
    let done = publish(folder, &["publish", "site", "./state/releases"]);
    let open = format!("\n  open https://new.test:{}/\n", server.https_port);
    assert!(done.stdout.ends_with(&open), "{done:?}");
}
