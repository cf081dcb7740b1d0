//! A real client mirrors the whole example site over HTTPS, byte for byte.

use std::fs;

use crate::journal::files;
use crate::support::{Folder, Server, journal, run, server_table};

#[test]
fn wget_mirrors_the_journal_byte_for_byte() {
    let public = journal().join("public");
    let site = format!("[[site]]\nnames = [\"*\"]\nroot = {:?}\n", public);
    let server = Server::start_in(Folder::new(), &(server_table("") + &site));
    let copy = server.folder.path("copy");
    let prefix = copy.to_str().expect("a plain path");
    let wget = run(
        "wget",
        &[
            "-q",
            "--mirror",
            "--no-host-directories",
            "--no-check-certificate",
            "-P",
            prefix,
            &server.https("/"),
        ],
        b"",
    );
    assert!(wget.success, "wget: {}", wget.errors());
    for file in files(&public) {
        let name = file.strip_prefix(&public).expect("below public");
        let copied =
            fs::read(copy.join(name)).unwrap_or_else(|error| panic!("{}: {error}", name.display()));
        assert!(
            copied == fs::read(&file).expect("the original"),
            "{} differs",
            name.display()
        );
    }
    assert_eq!(
        files(&copy).len(),
        files(&public).len(),
        "nothing more, nothing less"
    );
}
