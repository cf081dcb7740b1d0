//! Commands run by root in folders of other users: links prepared by the users must not make a command
//! change or reveal a file outside of the command's target. And privileges inherited by the server's
//! programs.
//!
//! The tests act as root and as other users, so they need root. Without root the tests do nothing: run
//! `sudo -E make test`, or leave the tests to the continuous integration, which runs as root.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat, setxattr};

use crate::lifecycle::{is_root, low_port};
use crate::support::wire::Wire;
use crate::support::{
    Done, Folder, Server, anthill, eventually, finish, server_table, site_table, spawn, tool,
};

/// The owner of the site's folder, and the attacker.
const OWNER: u32 = 65_534;
/// A third user.
const OTHER: u32 = 12_345;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
}

fn set_owner(path: &Path, uid: u32) {
    lchown(path, Some(uid), Some(uid)).expect("an owner");
}

/// Returns a folder with a site in `home/public` and root's files in `victim`. Root owns all files, and
/// every user may enter.
fn folder() -> Folder {
    let config = server_table("") + &site_table("http = \"serve\"");
    let folder = Folder::new()
        .with(
            "anthill.toml",
            config.replace("\"public\"", "\"home/public\""),
        )
        .with("home/public/index.html", "<p>hello</p>\n")
        .with("home/public/z/page.html", "<p>page</p>\n")
        .with("home/public/z/inner/deep.html", "<p>deep</p>\n")
        .with("home/public/z/large", noise())
        .with("home/public/z/late.html", "<p>late</p>\n")
        // The names equal the names in the site, so that a command misled by a link would change these
        // files.
        .with("victim/page.html", "of root")
        .with("victim/large", "of root")
        .with("victim/late.html", "of root")
        .with("victim/inner/deep.html", "of root");
    set_mode(&folder.path(""), 0o755);
    set_mode(&folder.path("home/public/z/inner"), 0o777);
    for name in ["victim", "victim/inner"] {
        set_mode(&folder.path(name), 0o755);
    }
    for name in ["page.html", "large", "late.html", "inner/deep.html"] {
        set_mode(&folder.path("victim").join(name), 0o600);
    }
    folder
}

/// Returns incompressible bytes, more than a decoder buffers.
fn noise() -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..400_000).map(next).collect()
}

/// Gives the site's folder and its content to [`OWNER`].
fn give_to_owner(folder: &Folder) {
    for (path, ..) in entries(&folder.path("home/public")) {
        set_owner(&path, OWNER);
    }
}

/// Returns everything at and below a path: owner, mode, and content or link target.
fn entries(top: &Path) -> Vec<(PathBuf, u32, u32, Vec<u8>)> {
    let mut found = Vec::new();
    let mut todo = vec![top.to_owned()];
    while let Some(path) = todo.pop() {
        let stat = path.symlink_metadata().expect("the metadata");
        let content = if stat.is_dir() {
            let children = fs::read_dir(&path).expect("a folder");
            todo.extend(children.map(|child| child.expect("an entry").path()));
            Vec::new()
        } else if stat.is_symlink() {
            let target = fs::read_link(&path).expect("a link");
            target.into_os_string().into_encoded_bytes()
        } else if stat.is_file() {
            fs::read(&path).expect("a file")
        } else {
            Vec::new()
        };
        found.push((path, stat.uid(), stat.mode() & 0o7777, content));
    }
    found.sort();
    found
}

fn backup(folder: &Folder) -> Done {
    let (config, archive) = (folder.path("anthill.toml"), folder.path("site.tar.gz"));
    anthill(&[
        "backup".as_ref(),
        "*".as_ref(),
        config.as_os_str(),
        "-o".as_ref(),
        archive.as_os_str(),
    ])
}

fn restore_with(mut command: Command, folder: &Folder) -> Command {
    command.arg("restore").arg(folder.path("site.tar.gz"));
    command.arg("*").arg(folder.path("anthill.toml"));
    command
}

fn restore(folder: &Folder) -> Done {
    let command = Command::new(crate::support::program());
    finish(restore_with(command, folder), b"")
}

fn saved() -> Folder {
    let folder = folder();
    let done = backup(&folder);
    assert_eq!(done.code, Some(0), "{done:?}");
    give_to_owner(&folder);
    folder
}

/// Returns the archive decompressed to tar.
fn tar(folder: &Folder) -> Vec<u8> {
    let bytes = fs::read(folder.path("site.tar.gz")).expect("the archive");
    let mut tar = Vec::new();
    let read = GzDecoder::new(&bytes[..]).read_to_end(&mut tar);
    read.expect("gzip");
    tar
}

/// A process that ends on drop.
struct Running(Child);

impl Running {
    /// Starts a script as [`OWNER`]. The script creates `home/ready` once running.
    fn attacker(folder: &Folder, script: &str) -> Running {
        let mut command = Command::new(tool("setpriv"));
        let uid = OWNER.to_string();
        command
            .args(["--reuid", &uid, "--regid", &uid, "--clear-groups"])
            .args(["sh", "-c", script])
            .current_dir(folder.path(""));
        let attacker = Running(spawn(&mut command).expect("setpriv"));
        eventually("the attacker at work", || {
            folder.path("home/ready").exists().then_some(())
        });
        attacker
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SIGTERM lets the script end its own children.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// As soon as the owner may enter the new folder, a link to root's files replaces a folder inside. strace
/// delays the command at each change of an owner, to give the attacker time.
#[test]
fn restore_changes_nothing_through_a_link_that_the_owner_puts_into_the_new_folder() {
    if !is_root() {
        return;
    }
    let folder = saved();
    let before = entries(&folder.path("victim"));
    // The attacker can create its ready file, and the folder above the site's stays root's.
    set_mode(&folder.path("home"), 0o1777);
    let attack = "touch home/ready; while :; do for draft in home/.public.restore-*; do \
        mv $draft/z $draft/moved && ln -s \"$PWD/victim\" $draft/z; done; done 2>/dev/null";
    let attacker = Running::attacker(&folder, attack);
    let mut strace = Command::new(tool("strace"));
    let calls = "?chown,?lchown,fchown,fchownat";
    strace
        .args(["-f", "-qq", "-o", "/dev/null", "-e"])
        .arg(format!("trace={calls}"))
        .arg("-e")
        .arg(format!("inject={calls}:delay_exit=200000"))
        .arg(crate::support::program());
    let done = finish(restore_with(strace, &folder), b"");
    drop(attacker);
    assert_eq!(entries(&folder.path("victim")), before, "{done:?}");
    assert_eq!(done.code, Some(0), "{done:?}");
    for (path, uid, ..) in entries(&folder.path("home/public")) {
        assert_eq!(uid, OWNER, "{}", path.display());
    }
}

/// The owner of the folder above moves the unpacked folder away, and puts a link to root's files in its
/// place. The archive comes through a pipe, which pauses meanwhile.
#[test]
fn restore_writes_nothing_through_a_link_in_the_place_of_the_new_folder() {
    if !is_root() {
        return;
    }
    let folder = saved();
    let before = entries(&folder.path("victim"));
    let site = entries(&folder.path("home/public"));
    set_owner(&folder.path("home"), OWNER);
    let tar = tar(&folder);
    let name = b"root/z/large";
    let cut = tar
        .windows(name.len())
        .position(|bytes| bytes == name)
        .expect("the large file");
    // The test sends the rest of the archive after the link is in place.
    let cut = cut + 200_000;
    let pipe = folder.path("site.tar.gz");
    fs::remove_file(&pipe).expect("removed");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    let command = Command::new(crate::support::program());
    let command = restore_with(command, &folder);
    let running = std::thread::spawn(move || finish(command, b""));
    let open = fs::OpenOptions::new().write(true).open(&pipe);
    let mut gzip = GzEncoder::new(open.expect("the pipe"), Compression::fast());
    gzip.write_all(&tar[..cut]).expect("written");
    gzip.flush().expect("written");
    let home = folder.path("home");
    let draft = eventually("the unpacked folder", || {
        let names = fs::read_dir(&home).expect("a folder");
        let mut paths = names.map(|entry| entry.expect("an entry").path());
        paths.find(|path| path.join("z/large").is_file() && !path.ends_with("public"))
    });
    fs::rename(&draft, home.join("moved")).expect("moved");
    fs::create_dir(home.join("trap")).expect("a folder");
    symlink(folder.path("victim"), home.join("trap/z")).expect("a link");
    fs::rename(home.join("trap"), &draft).expect("a trap");
    set_owner(&draft, OWNER);
    gzip.write_all(&tar[cut..]).expect("written");
    gzip.finish().expect("written");
    let done = running.join().expect("restored");
    assert_eq!(entries(&folder.path("victim")), before, "{done:?}");
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.stderr.contains("was moved away during the restore"),
        "{done:?}"
    );
    assert_eq!(entries(&folder.path("home/public")), site);
}

#[test]
fn restore_refuses_a_folder_above_that_other_users_can_change() {
    if !is_root() {
        return;
    }
    let folder = saved();
    let home = folder.path("home");
    let archive = folder.path("site.tar.gz");
    let site = entries(&folder.path("home/public"));
    let refused = |who: &str| {
        let done = restore(&folder);
        assert_eq!(done.code, Some(1), "{who}: {done:?}");
        let what = format!("{} can be changed by {who}", home.display());
        assert!(done.stderr.contains(&what), "{who}: {done:?}");
        // The help names the command for the site's owner first, and proposes no other mode for a folder.
        let program = crate::support::program();
        let help = format!("sudo -u nobody {program} restore {}", archive.display());
        let help = format!(
            "help: run the command as the owner, to which the archive must be open: {help} '*'"
        );
        assert!(done.stderr.contains(&help), "{who}: {done:?}");
        let is_changed = ["chown", "chmod"].map(|word| done.stderr.contains(word));
        assert_eq!(is_changed, [false, false], "{who}: {done:?}");
        assert_eq!(entries(&home).len(), site.len() + 1, "{who}");
        assert_eq!(entries(&folder.path("home/public")), site, "{who}");
    };
    set_mode(&home, 0o777);
    refused("every user");
    set_mode(&home, 0o755);
    set_owner(&home, OTHER);
    refused(&format!("user {OTHER}"));
    // The members of a group unknown to the machine are unknown too.
    chown(&home, Some(0), Some(OTHER)).expect("an owner");
    set_mode(&home, 0o775);
    refused(&format!("group {OTHER}"));
    // With the sticky bit, no user can replace entries of root or of the owner.
    set_mode(&home, 0o1777);
    let done = restore(&folder);
    assert_eq!(done.code, Some(0), "{done:?}");
    // The folder above belongs to the owner.
    set_owner(&home, OWNER);
    set_mode(&home, 0o755);
    let done = restore(&folder);
    assert_eq!(done.code, Some(0), "{done:?}");
    for (path, uid, ..) in entries(&folder.path("home/public")) {
        assert_eq!(uid, OWNER, "{}", path.display());
    }
}

#[test]
fn restore_and_backup_do_not_follow_the_owners_links() {
    if !is_root() {
        return;
    }
    let folder = saved();
    let archive = fs::read(folder.path("site.tar.gz")).expect("the archive");
    let before = entries(&folder.path("victim"));
    set_owner(&folder.path("home"), OWNER);
    fs::rename(folder.path("home/public"), folder.path("home/moved")).expect("moved");
    symlink(folder.path("victim"), folder.path("home/public")).expect("a link");
    for done in [restore(&folder), backup(&folder)] {
        assert_eq!(done.code, Some(1), "{done:?}");
        let (link, victim) = (folder.path("home/public"), folder.path("victim"));
        let what = format!(
            "error: {} is a link to {}, which root must not use: {} can be changed by user `nobody`",
            link.display(),
            victim.display(),
            folder.path("home").display()
        );
        assert!(done.stderr.contains(&what), "{done:?}");
        let help = format!(
            "remove {} or use the path of the link's target",
            link.display()
        );
        assert!(done.stderr.contains(&help), "{done:?}");
    }
    assert_eq!(entries(&folder.path("victim")), before);
    let names = |path: &str| fs::read_dir(folder.path(path)).expect("a folder").count();
    assert_eq!((names("home"), names("victim")), (2, 4));
    // Restore into a new folder, with a link on the folder's path.
    symlink(folder.path("victim"), folder.path("home/led")).expect("a link");
    let done = anthill(&[
        "restore".as_ref(),
        folder.path("site.tar.gz").as_os_str(),
        "--to".as_ref(),
        folder.path("home/led/new").as_os_str(),
    ]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("root must not use"), "{done:?}");
    assert_eq!(names("victim"), 4);
    let now = fs::read(folder.path("site.tar.gz")).expect("the archive");
    assert_eq!(now, archive);
}

#[test]
fn a_backup_has_no_file_that_the_owner_has_linked_to() {
    if !is_root() {
        return;
    }
    let folder = folder();
    give_to_owner(&folder);
    let public = folder.path("home/public");
    // The kernel allows a hard link to another user's file unless fs.protected_hardlinks is 1.
    fs::hard_link(folder.path("victim/page.html"), public.join("stolen")).expect("a hard link");
    fs::write(public.join("twice"), "mine").expect("a file");
    set_owner(&public.join("twice"), OWNER);
    fs::hard_link(public.join("twice"), public.join("again")).expect("a hard link");
    let pipe = public.join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
    let done = backup(&folder);
    assert_eq!(done.code, Some(0), "{done:?}");
    let warning = format!(
        "{} is left out of the backup: it is a hard link",
        public.join("stolen").display()
    );
    assert!(done.stderr.contains(&warning), "{done:?}");
    assert_eq!(done.stderr.matches("hard link").count(), 1, "{done:?}");
    let tar = tar(&folder);
    let has = |bytes: &[u8]| tar.windows(bytes.len()).any(|window| window == bytes);
    assert!(!has(b"of root") && !has(b"root/stolen"));
    assert!(has(b"root/twice") && has(b"root/again"));
}

fn passwd(folder: &Folder, file: &str) -> Done {
    let mut command = Command::new(crate::support::program());
    command.arg("passwd").arg(folder.path(file)).arg("ant");
    finish(command, b"honey\n")
}

/// Sets an ACL that gives one more user write access, like `setfacl -m u:64321:rwx`.
fn let_user_write(folder: &Path, uid: u32) {
    const ANY: u32 = u32::MAX;
    // linux/posix_acl_xattr.h: version 2, then (tag, permissions, id), of the owner, the user, the group,
    // the mask and other users.
    let entries = [
        (0x01, 7, ANY),
        (0x02, 7, uid),
        (0x04, 5, ANY),
        (0x10, 7, ANY),
        (0x20, 5, ANY),
    ];
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend_from_slice(&u16::to_le_bytes(tag));
        value.extend_from_slice(&u16::to_le_bytes(permissions));
        value.extend_from_slice(&u32::to_le_bytes(id));
    }
    let name = "system.posix_acl_access";
    setxattr(folder, name, &value, XattrFlags::empty()).expect("a file system with ACLs");
}

#[test]
fn a_folder_with_an_acl_counts_as_changeable_by_every_user() {
    if !is_root() {
        return;
    }
    let folder = folder();
    let home = folder.path("home");
    // The group has no members besides root: its mode bits alone give no other user write access.
    chown(&home, Some(0), Some(0)).expect("an owner");
    set_mode(&home, 0o775);
    assert_eq!(passwd(&folder, "home/users").code, Some(0));
    set_mode(&home, 0o755);
    let_user_write(&home, OTHER);
    symlink(folder.path("victim/page.html"), home.join("link")).expect("a link");
    let before = entries(&folder.path("victim"));
    for file in ["home/users", "home/link", "home/new"] {
        let done = passwd(&folder, file);
        assert_eq!(done.code, Some(1), "{file}: {done:?}");
        let why = "can be changed by every user";
        assert!(done.stderr.contains(why), "{file}: {done:?}");
    }
    assert_eq!(entries(&folder.path("victim")), before);
    // The mask removes write access from every user of the ACL.
    set_mode(&home, 0o755);
    assert_eq!(passwd(&folder, "home/users").code, Some(0));
}

#[test]
fn passwd_changes_and_reads_no_file_outside_of_the_owners_folder() {
    if !is_root() {
        return;
    }
    let folder = folder();
    let before = entries(&folder.path("victim"));
    let home = folder.path("home");
    set_owner(&home, OWNER);
    symlink(folder.path("victim/page.html"), home.join("link")).expect("a link");
    symlink(folder.path("victim"), home.join("led")).expect("a link");
    mknodat(CWD, home.join("pipe"), FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
    for (file, why) in [
        ("home/link", "root must not use"),
        ("home/led/page.html", "root must not use"),
        ("home/led/new", "root must not use"),
        ("home/pipe", "not a regular file"),
    ] {
        let done = passwd(&folder, file);
        assert_eq!(done.code, Some(1), "{file}: {done:?}");
        assert!(done.stderr.contains(why), "{file}: {done:?}");
        assert_eq!(entries(&folder.path("victim")), before, "{file}");
    }
    let hard = home.join("hard");
    fs::hard_link(folder.path("victim/page.html"), &hard).expect("a hard link");
    let done = passwd(&folder, "home/hard");
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("is a hard link"), "{done:?}");
    assert_eq!(entries(&folder.path("victim")), before);
    // The owner's file keeps its owner, behind a link of the owner too.
    fs::write(home.join("users"), "bee:x\n").expect("a file");
    set_owner(&home.join("users"), OWNER);
    symlink("users", home.join("mine")).expect("a link");
    for file in ["home/users", "home/mine", "home/new"] {
        let done = passwd(&folder, file);
        assert_eq!(done.code, Some(0), "{file}: {done:?}");
    }
    let text = fs::read_to_string(home.join("users")).expect("users");
    assert!(text.starts_with("bee:x\nant:$2y$"), "{text}");
    assert!(home.join("mine").is_symlink());
}

#[test]
fn passwd_keeps_the_rights_of_a_file_and_gives_a_new_one_to_the_owner_of_its_folder() {
    if !is_root() {
        return;
    }
    let folder = folder();
    let home = folder.path("home");
    chown(&home, Some(OWNER), Some(OTHER)).expect("an owner");
    fs::write(home.join("users"), "bee:x\n").expect("a file");
    chown(home.join("users"), Some(OTHER), Some(OWNER)).expect("an owner");
    for (file, before, rights) in [
        ("home/users", Some(0o600), (OTHER, OWNER, 0o600)),
        ("home/users", Some(0o664), (OTHER, OWNER, 0o664)),
        ("home/new", None, (OWNER, OTHER, 0o640)),
        ("new", None, (0, 0, 0o640)),
        ("new", Some(0o400), (0, 0, 0o400)),
    ] {
        let path = folder.path(file);
        if let Some(before) = before {
            set_mode(&path, before);
        }
        let done = passwd(&folder, file);
        assert_eq!(done.code, Some(0), "{file}: {done:?}");
        let stat = path.symlink_metadata().expect("the file");
        let found = (stat.uid(), stat.gid(), stat.mode() & 0o7777);
        assert_eq!(found, rights, "{file}");
        let hint = format!(
            "belongs to root:root with mode 0640; so that a server with user = \"anthill\" can read it, run: chgrp anthill {}",
            path.display()
        );
        let is_hinted = done.stderr.contains(&hint);
        assert_eq!(is_hinted, (file, before) == ("new", None), "{done:?}");
    }
}

#[test]
fn passwd_gives_a_new_file_to_the_group_of_the_server() {
    if !is_root() {
        return;
    }
    let folder = folder().with(
        "own/anthill.toml",
        "[server]\nuser = \"12345:54321\"\nbroken",
    );
    for (file, rights) in [("own/users", (0, 54_321, 0o640)), ("users", (0, 0, 0o640))] {
        let done = passwd(&folder, file);
        assert_eq!(done.code, Some(0), "{file}: {done:?}");
        let stat = fs::metadata(folder.path(file)).expect("the file");
        assert_eq!(
            (stat.uid(), stat.gid(), stat.mode() & 0o7777),
            rights,
            "{file}"
        );
        let is_told = done
            .stderr
            .contains("so that the server of `12345:54321` can read it");
        assert_eq!(is_told, file == "own/users", "{done:?}");
    }
}

#[test]
fn passwd_proposes_no_other_mode_for_a_sticky_folder() {
    if !is_root() {
        return;
    }
    let folder = folder().with("tmp/users", "bee:x\n");
    set_mode(&folder.path("tmp"), 0o1777);
    let users = folder.path("tmp/users");
    set_owner(&users, OWNER);
    let done = passwd(&folder, "tmp/users");
    assert_eq!(done.code, Some(1), "{done:?}");
    let users = users.display();
    let what = format!("root must not use {users}: {users} belongs to user `nobody`");
    assert!(done.stderr.contains(&what), "{done:?}");
    let help = format!("help: remove {users} or use another path");
    assert!(done.stderr.contains(&help), "{done:?}");
    let is_changed = ["chown", "chmod"].map(|word| done.stderr.contains(word));
    assert_eq!(is_changed, [false, false], "{done:?}");
}

/// Runs a command as [`OWNER`].
fn by_owner(arguments: &[&std::ffi::OsStr]) -> Done {
    let mut command = Command::new(tool("setpriv"));
    let uid = OWNER.to_string();
    command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups"]);
    command.arg(crate::support::program()).args(arguments);
    finish(command, b"")
}

/// The control socket and the state folder are in a folder of the server's account.
#[test]
fn the_owner_saves_and_restores_a_site_without_access_to_the_server() {
    if !is_root() {
        return;
    }
    let folder = folder().with("state/hits", "").with("closed/file", "");
    give_to_owner(&folder);
    set_owner(&folder.path("home"), OWNER);
    set_owner(&folder.path("closed"), OTHER);
    set_mode(&folder.path("closed"), 0o700);
    let config = folder.path("anthill.toml");
    let text = fs::read_to_string(&config).expect("readable");
    let closed = folder.path("closed").display().to_string();
    let archive = folder.path("home/site.tar.gz");
    // First the socket alone is inaccessible, then the state folder alone.
    for (from, to) in [
        ("\"anthill.sock\"", "\"closed/x.sock\""),
        ("\"state\"", "\"closed/state\""),
    ] {
        folder.write("anthill.toml", text.replace(from, to));
        let done = by_owner(&[
            "backup".as_ref(),
            "*".as_ref(),
            config.as_os_str(),
            "-o".as_ref(),
            archive.as_os_str(),
        ]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let warning =
            "warning: the hit counts are not saved, and a running server cannot be reached";
        let warning = format!("{warning}: {closed} belongs to `{OTHER}`");
        assert!(done.stderr.contains(&warning), "{done:?}");
    }
    folder.write(
        "anthill.toml",
        text.replace("\"anthill.sock\"", "\"closed/x.sock\""),
    );
    fs::write(folder.path("home/public/index.html"), "<p>spoilt</p>\n").expect("written");
    let done = by_owner(&[
        "restore".as_ref(),
        archive.as_os_str(),
        "*".as_ref(),
        config.as_os_str(),
    ]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let warning = "warning: a running server cannot be reached";
    let warning = format!("{warning}: {closed} belongs to `{OTHER}`");
    assert!(done.stderr.contains(&warning), "{done:?}");
    let next = format!(
        "\nif a server is running, run: sudo anthill reload {}",
        config.display()
    );
    assert!(done.stdout.contains(&next), "{done:?}");
    let page = fs::read_to_string(folder.path("home/public/index.html"));
    assert_eq!(page.expect("the page"), "<p>hello</p>\n");
}

#[test]
fn restore_by_root_keeps_the_group_of_new_files_in_a_folder() {
    if !is_root() {
        return;
    }
    let folder = folder();
    give_to_owner(&folder);
    let (shared, file) = (
        folder.path("home/public/z"),
        folder.path("home/public/z/page.html"),
    );
    set_mode(&shared, 0o2775);
    set_mode(&file, 0o6755);
    for done in [backup(&folder), restore(&folder)] {
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    let found = |path: &Path| {
        let stat = path.symlink_metadata().expect("readable");
        (stat.uid(), stat.gid(), stat.mode() & 0o7777)
    };
    assert_eq!(found(&shared), (OWNER, OWNER, 0o2775));
    assert_eq!(found(&file), (OWNER, OWNER, 0o755));
    assert_eq!(found(&folder.path("home/public")), (OWNER, OWNER, 0o755));
}

/// `check` run by root and `reload` of the server, which runs as another account, print the same error.
#[test]
fn an_unreadable_user_file_is_reported_with_the_command_that_helps() {
    if !is_root() {
        return;
    }
    let folder = folder();
    fs::write(folder.path("users"), "").expect("a file");
    set_mode(&folder.path("users"), 0o640);
    let user = "workers = 1\nuser = \"nobody\"";
    let text = fs::read_to_string(folder.path("anthill.toml")).expect("readable");
    let text = text.replace("workers = 1", user);
    let text = text.replace("\"anthill.sock\"", "\"state/x.sock\"");
    let server = Server::start_in(folder, &text);
    let route = "[[site.route]]\npath = \"/x\"\nusers = \"users\"\n";
    server.folder.write("anthill.toml", text + route);
    let users = server.folder.path("users").display().to_string();
    for command in ["check", "reload"] {
        let done = server.ask(&[command]);
        assert_ne!(done.code, Some(0), "{command}: {done:?}");
        let what = format!("user `nobody` cannot read {users}");
        let help = format!("help: chgrp nogroup {users} && chmod g+r {users}");
        assert!(done.stderr.contains(&what), "{command}: {done:?}");
        assert!(done.stderr.contains(&help), "{command}: {done:?}");
    }
    server.folder.write("closed/users", "");
    set_mode(&server.folder.path("closed"), 0o700);
    let text = fs::read_to_string(server.folder.path("anthill.toml")).expect("readable");
    let text = text.replace("\"users\"", "\"closed/users\"");
    server.folder.write("anthill.toml", text);
    let closed = server.folder.path("closed").display().to_string();
    for command in ["check", "reload"] {
        let done = server.ask(&[command]);
        let what =
            format!("user `nobody` cannot reach {closed}/users: {closed} is closed to the user");
        assert!(done.stderr.contains(&what), "{command}: {done:?}");
    }
    // A file that becomes unreadable is reported in the log with the same remedy.
    set_mode(&server.folder.path("closed"), 0o755);
    assert_eq!(server.ask(&["reload"]).code, Some(0));
    let lines = server.errors.all().len();
    let file = server.folder.path("closed/users");
    server.folder.write("new", "# new\n");
    set_mode(&server.folder.path("new"), 0o600);
    fs::rename(server.folder.path("new"), &file).expect("a rename");
    let remedy = format!("chgrp nogroup {}", file.display());
    eventually("the remedy in the log", || {
        let lines = server.errors.all().into_iter().skip(lines);
        lines
            .into_iter()
            .any(|line| line.contains(&remedy))
            .then_some(())
    });
}

/// File creation by a server as root before its change of user, and by a server that stays root.
#[test]
fn a_server_that_starts_as_root_creates_nothing_through_links_of_another_user() {
    if !is_root() {
        return;
    }
    let folder = folder();
    let before = entries(&folder.path("victim"));
    let home = folder.path("home");
    set_owner(&home, OWNER);
    symlink(folder.path("victim"), home.join("led")).expect("a link");
    symlink(folder.path("victim/page.html"), home.join("log")).expect("a link");
    fs::hard_link(folder.path("victim/page.html"), home.join("hard")).expect("a hard link");
    fs::write(home.join("file"), "kept").expect("a file");
    let text = fs::read_to_string(folder.path("anthill.toml")).expect("readable");
    let before = (before, entries(&folder.path("victim")).len());
    let state = |to: &str| text.replace("state = \"state\"", &format!("state = \"{to}\""));
    let control = |to: &str| text.replace("\"anthill.sock\"", &format!("\"{to}\""));
    let log = |to: &str| format!("{text}[log]\naccess = \"{to}\"\n");
    let user = |text: String| text.replace("workers = 1", "workers = 1\nuser = \"nobody\"");
    for (config, why) in [
        (
            user(state("home/led/state")).replace("\"anthill.sock\"", "\"home/led/state/x.sock\""),
            "root must not use",
        ),
        (state("home/led/state"), "root must not use"),
        (control("home/led/x.sock"), "root must not use"),
        (control("home/led/new/x.sock"), "root must not use"),
        (control("home/file"), "not a socket"),
        (log("home/log"), "root must not use"),
        (log("home/hard"), "a hard link"),
        (log("home/led/new.log"), "root must not use"),
    ] {
        folder.write("anthill.toml", &config);
        let done = anthill(&["serve".as_ref(), folder.path("anthill.toml").as_os_str()]);
        assert_eq!(done.code, Some(2), "{config}: {done:?}");
        assert!(done.stderr.contains(why), "{config}: {done:?}");
        assert_eq!(entries(&folder.path("victim")).len(), before.1, "{config}");
    }
    fs::remove_file(home.join("hard")).expect("removed");
    assert_eq!(entries(&folder.path("victim")), before.0);
    assert_eq!(
        fs::read_to_string(home.join("file")).expect("readable"),
        "kept"
    );
    // In a folder of the owner everything works, and the owner gets the state folder.
    let config = user(state("home/state")).replace("\"anthill.sock\"", "\"home/state/x.sock\"");
    let server = Server::start_in(folder, &config);
    let of = |name: &str| {
        let stat = server.folder.path(name).symlink_metadata().expect("there");
        (stat.uid(), stat.mode() & 0o777)
    };
    assert_eq!(of("home/state"), (OWNER, 0o700));
    assert_eq!(of("home/state/x.sock"), (OWNER, 0o600));
}

/// A server that stays root, with its socket and log in a folder of another user.
#[test]
fn a_server_that_stays_root_warns_and_works_in_a_folder_of_another_user() {
    if !is_root() {
        return;
    }
    let folder = folder();
    set_owner(&folder.path("home"), OWNER);
    let text = fs::read_to_string(folder.path("anthill.toml")).expect("readable");
    let text = text.replace("\"anthill.sock\"", "\"home/x.sock\"");
    let text = text.replace("\"state\"", "\"home/state\"") + "[log]\naccess = \"home/log\"\n";
    fs::create_dir(folder.path("scripts")).expect("a new folder");
    let text = text + "[[site.route]]\npath = \"/run\"\ncgi = \"scripts\"\n";
    let mut server = Server::start_in(folder, &text);
    server.errors.wait_for("the warning about scripts", |line| {
        line.contains("runs its scripts, git and hooks as root (name an account with `user`")
    });
    server.errors.wait_for("the warning", |line| {
        line.contains("the state folder: root must not use")
    });
    let socket = server.folder.path("home/x.sock");
    let stat = socket.symlink_metadata().expect("there");
    assert_eq!(stat.mode() & 0o777, 0o600);
    assert_eq!(server.ask(&["status"]).code, Some(0));
    server.keep_alive().get("/");
    eventually("a line", || {
        let log = fs::read_to_string(server.folder.path("home/log"));
        log.is_ok_and(|log| log.contains("GET /")).then_some(())
    });
    assert_eq!(server.ask(&["stop"]).code, Some(0));
    server.wait(std::time::Duration::from_secs(20));
    assert!(!socket.exists());
}

/// A CGI script that prints its capabilities.
const TELLS: &str =
    "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\ngrep Cap /proc/self/status\n";

/// Returns the capability sets of a process by name, without the bounding set.
fn capabilities(status: &str) -> Vec<(String, u64)> {
    let lines = status.lines().filter_map(|line| line.split_once(":\t"));
    let sets = lines.filter(|(name, _)| name.starts_with("Cap") && *name != "CapBnd");
    sets.map(|(name, set)| {
        let set = u64::from_str_radix(set.trim(), 16).expect("a set");
        (name.to_owned(), set)
    })
    .collect()
}

/// The server is started like a systemd unit with `User=` and `AmbientCapabilities=CAP_NET_BIND_SERVICE`.
#[test]
fn a_script_inherits_no_capability_and_a_reload_still_binds_low_ports() {
    if !is_root() {
        return;
    }
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    folder.program("scripts/tells", TELLS);
    set_owner(&folder.path(""), OWNER);
    let text = server_table("")
        + &site_table("http = \"serve\"")
        + "[[site.route]]\npath = \"/run\"\ncgi = \"scripts\"\n";
    let mut command = Command::new(tool("setpriv"));
    let uid = OWNER.to_string();
    command
        .args(["--reuid", &uid, "--regid", &uid, "--clear-groups"])
        .args(["--inh-caps", "+net_bind_service"])
        .args(["--ambient-caps", "+net_bind_service"])
        .arg(crate::support::program());
    let server = Server::start_by(command, folder, &text);
    let told = Wire::plain(&server).get("/run/tells", "").text();
    let none = ["CapInh", "CapPrm", "CapEff", "CapAmb"].map(|name| (name.to_owned(), 0));
    assert_eq!(capabilities(&told), none, "{told}");
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("a process");
    const NET_BIND_SERVICE: u64 = 1 << 10;
    let kept = [0, NET_BIND_SERVICE, NET_BIND_SERVICE, 0];
    let sets = capabilities(&status).into_iter().map(|(_, set)| set);
    assert_eq!(sets.collect::<Vec<u64>>(), kept, "{status}");
    let port = low_port();
    let more = format!("http = [\"127.0.0.1:0\", \"127.0.0.1:{port}\"]");
    server.reload(&text.replace("http = [\"127.0.0.1:0\"]", &more));
    let connected = std::net::TcpStream::connect(("127.0.0.1", port));
    assert!(connected.is_ok(), "{connected:?}");
}

/// The example of docs/src/cgi.md, with accounts that exist on every Debian system: the server runs as
/// `nobody`, and the application as `daemon`.
#[test]
fn a_backend_under_its_own_account_reaches_neither_keys_nor_the_control_socket() {
    if !is_root() {
        return;
    }
    const TRIES: &str = "<?php header('Content-Type: text/plain');\n\
        preg_match('/^Uid:\\s+(\\d+)/m', file_get_contents('/proc/self/status'), $uid);\n\
        $state = dirname(__DIR__) . '/state';\n\
        echo $uid[1], ' ', json_encode(@scandir($state)), ' ',\n\
        json_encode((bool) @stream_socket_client(\"unix://$state/x.sock\"));";
    let folder = Folder::new().with("public/index.php", TRIES);
    let path = |name: &str| folder.path(name).display().to_string();
    folder.write(
        "fpm.conf",
        format!(
            "[global]\nerror_log = {}\ndaemonize = no\n[shop]\nuser = daemon\ngroup = daemon\n\
             listen = {}\nlisten.owner = nobody\nlisten.group = nogroup\nlisten.mode = 0600\n\
             pm = ondemand\npm.max_children = 8\n",
            path("fpm.log"),
            path("fpm.sock"),
        ),
    );
    set_mode(&folder.path(""), 0o755);
    let mut fpm = Command::new(tool("php-fpm8.2"));
    fpm.stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    fpm.arg("-F").arg("-y").arg(folder.path("fpm.conf"));
    let _fpm = Running(spawn(&mut fpm).expect("php-fpm"));
    let socket = folder.path("fpm.sock");
    eventually("the backend's socket", || socket.exists().then_some(()));
    let text = server_table("user = \"nobody\"").replace("anthill.sock", "state/x.sock")
        + &site_table("http = \"serve\"\nindex = [\"index.php\"]")
        + "[[site.route]]\npath = \"/\"\nfastcgi = \"unix:fpm.sock\"\nfiles = \".php\"\n";
    let server = Server::start_in(folder, &text);
    let got = eventually("the backend at work", || {
        let got = Wire::plain(&server).get("/", "");
        (got.status == 200).then(|| got.text())
    });
    assert_eq!(got, "1 false false");
    // The socket exists, and answers its own account.
    assert_eq!(server.ask(&["status"]).code, Some(0));
}
