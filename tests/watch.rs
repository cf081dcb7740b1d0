//! Changes on disk, made in every manner, are served, and only when complete.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{
    Folder, KeepAlive, Server, eventually, lossy, run, server_table, site_table, tool,
};

fn config(more: &str) -> String {
    server_table("") + &site_table(&format!("http = \"serve\"\n{more}"))
}

/// Waits until the response for `path` is `text`.
fn wait_until_served(client: &mut KeepAlive<TcpStream>, path: &str, text: &str) {
    let mut last = String::new();
    eventually(&format!("`{text}` at {path}"), || {
        let got = client.get(path);
        last = format!("{} {}", got.status, got.text());
        (got.status == 200 && got.text() == text).then_some(())
    });
}

fn wait_until_gone(client: &mut KeepAlive<TcpStream>, path: &str) {
    eventually(&format!("404 at {path}"), || {
        (client.get(path).status == 404).then_some(())
    });
}

/// Replaces a link by a new link with a rename.
fn replace_link(link: &Path, target: &str) {
    let new = link.with_extension("new");
    symlink(target, &new).expect("a link");
    fs::rename(new, link).expect("turned");
}

#[test]
fn consecutive_changes_are_all_served() {
    let server = Server::start(&config(""));
    let mut client = server.keep_alive();
    for round in 0..20 {
        let text = format!("<p>round {round}</p>");
        if round % 2 == 0 {
            server.folder.write("public/index.html", &text);
        } else {
            server.folder.write("draft", &text);
            fs::rename(
                server.folder.path("draft"),
                server.folder.path("public/index.html"),
            )
            .expect("renamed");
        }
        wait_until_served(&mut client, "/", &text);
    }
    fs::remove_file(server.folder.path("public/index.html")).expect("removed");
    wait_until_gone(&mut client, "/");
}

#[test]
fn nested_folders_made_at_once_are_served() {
    let server = Server::start(&config(""));
    let mut client = server.keep_alive();
    for round in 0..5 {
        server
            .folder
            .write(&format!("public/{round}/b/c/page"), "deep");
        wait_until_served(&mut client, &format!("/{round}/b/c/page"), "deep");
        // The new folders are watched.
        server
            .folder
            .write(&format!("public/{round}/b/c/page"), "changed");
        wait_until_served(&mut client, &format!("/{round}/b/c/page"), "changed");
    }
}

#[test]
fn renamed_folders_are_watched_under_their_new_names() {
    let folder = Folder::new().with("public/a/sub/page", "one");
    let server = Server::start_in(folder, &config(""));
    let mut client = server.keep_alive();
    let public = server.folder.path("public");
    wait_until_served(&mut client, "/a/sub/page", "one");
    fs::rename(public.join("a"), public.join("b")).expect("renamed");
    wait_until_served(&mut client, "/b/sub/page", "one");
    wait_until_gone(&mut client, "/a/sub/page");
    server.folder.write("public/b/sub/page", "two");
    wait_until_served(&mut client, "/b/sub/page", "two");
    // A new folder with the old name.
    server.folder.write("public/a/sub/page", "three");
    wait_until_served(&mut client, "/a/sub/page", "three");
    server.folder.write("public/a/sub/page", "four");
    wait_until_served(&mut client, "/a/sub/page", "four");
    // A rename and its reversal.
    fs::rename(public.join("a"), public.join("c")).expect("renamed");
    fs::rename(public.join("c"), public.join("a")).expect("renamed back");
    server.folder.write("public/marker", "seen");
    wait_until_served(&mut client, "/marker", "seen");
    server.folder.write("public/a/sub/page", "five");
    wait_until_served(&mut client, "/a/sub/page", "five");
    // The folder is removed while a descriptor is open, and made again.
    let held = fs::File::open(public.join("b")).expect("opened");
    fs::remove_dir_all(public.join("b")).expect("removed");
    wait_until_gone(&mut client, "/b/sub/page");
    server.folder.write("public/b/sub/page", "six");
    wait_until_served(&mut client, "/b/sub/page", "six");
    server.folder.write("public/b/sub/page", "seven");
    wait_until_served(&mut client, "/b/sub/page", "seven");
    drop(held);
}

#[test]
fn a_root_behind_a_link_is_switched_whole() {
    let folder = Folder::new()
        .with("releases/1/public/index.html", "one")
        .with("releases/2/public/index.html", "two")
        .with("releases/2/public/more", "more");
    symlink("releases/1", folder.path("current")).expect("a link");
    symlink("current/public", folder.path("public")).expect("a link");
    // First the root is a link, then a folder above the root.
    for root in ["public", "current/public"] {
        replace_link(&folder.path("current"), "releases/1");
        let text = config("").replace("\"public\"", &format!("\"{root}\""));
        let inner = Folder::new();
        for name in ["releases", "current", "public"] {
            copy(&folder.path(name), &inner.path(name));
        }
        let server = Server::start_in(inner, &text);
        let mut client = server.keep_alive();
        assert_eq!(client.get("/").text(), "one");
        for target in ["2", "1", "2"] {
            replace_link(
                &server.folder.path("current"),
                &format!("releases/{target}"),
            );
            wait_until_served(&mut client, "/", if target == "1" { "one" } else { "two" });
        }
        wait_until_served(&mut client, "/more", "more");
        // The new tree is watched.
        server
            .folder
            .write("releases/2/public/index.html", "changed");
        wait_until_served(&mut client, "/", "changed");
    }
}

/// Copies a folder with `cp -a`.
fn copy(from: &Path, to: &Path) {
    let ran = run("cp", &[Path::new("-a"), from, to], b"");
    assert!(ran.success, "{}", ran.errors());
}

#[test]
fn a_root_that_is_removed_and_made_again_is_served_again() {
    let folder = Folder::new().with("above/public/index.html", "one");
    let text = config("").replace("\"public\"", "\"above/public\"");
    let server = Server::start_in(folder, &text);
    let mut client = server.keep_alive();
    assert_eq!(client.get("/").text(), "one");
    for (round, removed) in ["above/public", "above"].into_iter().enumerate() {
        let path = server.folder.path(removed);
        fs::remove_dir_all(&path).expect("removed");
        server
            .errors
            .wait_until(Duration::from_secs(60), "the loss", |lines| {
                let said = lines
                    .iter()
                    .filter(|line| line.contains("is not taken over"));
                (said.count() > round).then_some(())
            });
        for text in ["two", "three"] {
            let text = format!("{text} {round}");
            server.folder.write("above/public/index.html", &text);
            wait_until_served(&mut client, "/", &text);
        }
    }
    // A folder above the root is replaced by another with the same name.
    server.folder.write("fresh/public/index.html", "fresh");
    fs::rename(server.folder.path("above"), server.folder.path("old")).expect("renamed");
    fs::rename(server.folder.path("fresh"), server.folder.path("above")).expect("renamed");
    wait_until_served(&mut client, "/", "fresh");
    server.folder.write("above/public/index.html", "watched");
    wait_until_served(&mut client, "/", "watched");
}

#[test]
fn a_new_file_appears_when_it_is_closed() {
    let server = Server::start(&config(""));
    let mut client = server.keep_alive();
    server.folder.write("public/marker", "begun");
    wait_until_served(&mut client, "/marker", "begun");
    let mut file = fs::File::create(server.folder.path("public/page")).expect("a file");
    file.write_all(b"the first half, ").expect("written");
    let written = Instant::now();
    // A later change in the same folder is served, so all earlier events have been processed.
    server.folder.write("public/marker", "seen");
    wait_until_served(&mut client, "/marker", "seen");
    let got = client.get("/page");
    assert!(
        got.status == 503 || written.elapsed() >= Duration::from_secs(2),
        "{got:?}"
    );
    file.write_all(b"the second half").expect("written");
    drop(file);
    wait_until_served(&mut client, "/page", "the first half, the second half");
    // A second hard link of a complete file is served at once.
    fs::hard_link(
        server.folder.path("public/page"),
        server.folder.path("public/twin"),
    )
    .expect("linked");
    wait_until_served(&mut client, "/twin", "the first half, the second half");
}

/// A file being rewritten in place is not loaded during the write.
#[test]
fn a_file_is_not_taken_half_written() {
    let server = Server::start(&config(""));
    let mut client = server.keep_alive();
    let whole = "x".repeat(300_000);
    server.folder.write("public/page", &whole);
    wait_until_served(&mut client, "/page", &whole);
    let mut file = fs::File::create(server.folder.path("public/page")).expect("a file");
    let new = "y".repeat(400_000);
    let (half, rest) = new.split_at(200_000);
    file.write_all(half.as_bytes()).expect("written");
    let written = Instant::now();
    // A refusal and a broken response are both permitted.
    let ask = || {
        let request = b"GET /page HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let answer = lossy(&server.http_raw(request));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let is_whole = head.contains(&format!("Content-Length: {}\r\n", body.len()));
        (head.starts_with("HTTP/1.1 200") && is_whole).then(|| body.to_owned())
    };
    for round in 0..10 {
        server.folder.write("public/marker", format!("{round}"));
        wait_until_served(&mut client, "/marker", &format!("{round}"));
        let is_half = ask().is_some();
        // A machine may be so slow that the file had its pause.
        assert!(
            !is_half || written.elapsed() >= Duration::from_secs(2),
            "half a file was served"
        );
    }
    file.write_all(rest.as_bytes()).expect("written");
    drop(file);
    eventually("the new file", || (ask()? == new).then_some(()));
}

#[test]
fn without_watches_folders_are_scanned() {
    const FEW: &str = "echo 3 > /proc/sys/user/max_inotify_watches; \
                       exec \"$0\" serve \"$1/anthill.toml\"";
    let folder = Folder::new().with("public/index.html", "one");
    for name in 0..10 {
        folder.write(&format!("public/{name}/page"), "one");
    }
    folder.write("anthill.toml", config(""));
    let mut command = Command::new(tool("unshare"));
    command
        .args(["-Ur", "sh", "-ec", FEW, crate::support::program()])
        .arg(folder.path("."));
    let server = Server::launch(folder, command);
    server.errors.wait_for("a message about the scans", |line| {
        line.contains("can't be watched") && line.contains("max_user_watches")
    });
    let mut client = server.keep_alive();
    server.folder.write("public/9/page", "two");
    wait_until_served(&mut client, "/9/page", "two");
}

/// Returns a process's resident memory in KiB.
fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().split(' ').next()?.parse().ok());
    number.expect("a number")
}

#[test]
fn a_hundred_thousand_files() {
    const FILES: usize = 100_000;
    let empty = Server::start(&config(""));
    let before = resident_kib(empty.pid());
    let folder = Folder::in_memory().with("public/index.html", "many");
    for number in 0..FILES {
        if number % 1_000 == 0 {
            let name = format!("public/{:03}", number / 1_000);
            fs::create_dir(folder.path(&name)).expect("a folder");
        }
        let name = format!("public/{:03}/{:03}.html", number / 1_000, number % 1_000);
        fs::write(folder.path(&name), "a page").expect("a file");
    }
    let server = Server::start_in(folder, &config(""));
    let mut client = server.keep_alive();
    assert_eq!(client.get("/042/017.html").text(), "a page");
    server.folder.write("public/099/999.html", "changed");
    wait_until_served(&mut client, "/099/999.html", "changed");
    let bytes = (resident_kib(server.pid()) - before) * 1024 / FILES as u64;
    println!("{bytes} bytes of memory for each file");
}
