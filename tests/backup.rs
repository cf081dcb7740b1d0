//! Backup and restore with the real binary: content equal byte for byte, damaged and hostile archives, full
//! disks, and files changed during a backup.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use crate::support::wire::Wire;
use crate::support::{
    Done, Folder, Server, anthill, eventually, finish, run, server_table, site_table, tool,
};

fn config() -> String {
    server_table("")
        + &site_table("http = \"serve\"")
        + "[[site.route]]\npath = \"/run\"\ncgi = \"scripts\"\ncache = { seconds = 1000 }\n"
}

fn folder() -> Folder {
    let folder = Folder::new()
        .with("anthill.toml", config())
        .with("public/index.html", "<p>hello</p>\n")
        .with("public/empty", "")
        .with("public/a/b/c/deep.txt", "deep\n")
        .with("public/new\nline\\.txt", "odd\n")
        .with("public/large.bin", noise(3_000_001))
        .with("public/block.bin", noise(1_024))
        .with(
            "scripts/hello",
            "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\none\\n'\n",
        );
    let long = format!("public/{}/{}.txt", "x".repeat(120), "ä".repeat(90));
    folder.write(&long, "long\n");
    let chmod = |name: &str, mode| {
        fs::set_permissions(folder.path(name), fs::Permissions::from_mode(mode)).expect("a mode");
    };
    chmod("scripts/hello", 0o755);
    chmod("public/a/b", 0o750);
    symlink("a/b", folder.path("public/inside")).expect("a link");
    symlink("/etc/passwd", folder.path("public/outside")).expect("a link");
    symlink("nowhere", folder.path("public/dangling")).expect("a link");
    folder
}

/// Returns pseudo-random, incompressible bytes, equal on each call.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Returns everything below a folder: path, mode, time, and content or link target.
fn tree(root: &Path) -> Vec<(PathBuf, u32, i64, Vec<u8>)> {
    let mut found = Vec::new();
    let mut todo = vec![root.to_owned()];
    while let Some(path) = todo.pop() {
        let stat = path.symlink_metadata().expect("the metadata");
        let (content, time) = if stat.is_dir() {
            let children = fs::read_dir(&path).expect("a folder");
            todo.extend(children.map(|child| child.expect("an entry").path()));
            (Vec::new(), stat.mtime())
        } else if stat.is_symlink() {
            let target = fs::read_link(&path).expect("a link");
            (target.into_os_string().into_encoded_bytes(), 0)
        } else {
            (fs::read(&path).expect("a file"), stat.mtime())
        };
        let name = path.strip_prefix(root).expect("below").to_owned();
        found.push((name, stat.mode() & 0o7777, time, content));
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

fn restore(folder: &Folder) -> Done {
    let (config, archive) = (folder.path("anthill.toml"), folder.path("site.tar.gz"));
    anthill(&[
        "restore".as_ref(),
        archive.as_os_str(),
        "*".as_ref(),
        config.as_os_str(),
    ])
}

fn saved() -> Folder {
    let folder = folder();
    let done = backup(&folder);
    assert_eq!(done.code, Some(0), "{done:?}");
    folder
}

/// Asserts that a folder has only the expected entries, and so no leftover of an unfinished restore.
fn assert_entries(folder: &Folder, expected: &[&str]) {
    let all = fs::read_dir(folder.path("")).expect("the folder");
    let mut names: Vec<String> = all
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    assert_eq!(names, expected);
}

#[test]
fn restore_gives_a_site_back_byte_for_byte() {
    let folder = saved();
    let archive = folder.path("site.tar.gz");
    assert_eq!(
        archive.metadata().expect("readable").permissions().mode() & 0o777,
        0o600
    );
    assert_entries(
        &folder,
        &["anthill.toml", "public", "scripts", "site.tar.gz"],
    );
    let before = (tree(&folder.path("public")), tree(&folder.path("scripts")));
    folder.write("public/index.html", "<p>spoilt</p>\n");
    folder.write("public/more", "more\n");
    fs::remove_file(folder.path("scripts/hello")).expect("a removed file");
    let spoilt = tree(&folder.path("public"));
    let done = restore(&folder);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(
        (tree(&folder.path("public")), tree(&folder.path("scripts"))),
        before
    );
    // Restore keeps the previous folder under another name.
    let kept = done
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("the old content is in "));
    let kept: Vec<&str> = kept.collect();
    assert_eq!(kept.len(), 2, "{done:?}");
    assert_eq!(tree(Path::new(kept[0])), spoilt);
    // Restore into a chosen folder never overwrites an existing folder.
    let to = folder.path("elsewhere");
    let unpack = || {
        anthill(&[
            "restore".as_ref(),
            archive.as_os_str(),
            "--to".as_ref(),
            to.as_os_str(),
        ])
    };
    assert_eq!(unpack().code, Some(0));
    assert_eq!((tree(&to.join("root")), tree(&to.join("cgi-1"))), before);
    let again = unpack();
    assert!(again.stderr.contains("already exists"), "{again:?}");
}

#[test]
fn other_programs_can_read_an_archive() {
    let folder = saved();
    fs::create_dir(folder.path("out")).expect("a folder");
    let (archive, out) = (folder.path("site.tar.gz"), folder.path("out"));
    let mut tar = Command::new(tool("tar"));
    tar.arg("-xzf").arg(&archive).arg("-C").arg(&out);
    let done = finish(tar, b"");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(tree(&out.join("root")), tree(&folder.path("public")));
    let mut sums = Command::new(tool("sha256sum"));
    sums.arg("--quiet")
        .arg("-c")
        .arg("sha256.txt")
        .current_dir(&out);
    let done = finish(sums, b"");
    assert_eq!(done.code, Some(0), "{done:?}");
}

#[test]
fn a_running_server_serves_a_restored_site() {
    let folder = folder();
    let mut server = Server::start_in(folder, &config());
    let agent = "User-Agent: Mozilla/5.0 Firefox/140.0\r\n";
    let get = |server: &Server, path: &str| Wire::plain(server).get(path, agent).text();
    assert_eq!(get(&server, "/"), "<p>hello</p>\n");
    let done = backup(&server.folder);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("hit counts"), "{done:?}");
    let script = server.folder.path("scripts/hello");
    let other = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\ntwo\\n'\n";
    fs::write(script, other).expect("another script");
    server.folder.write("public/index.html", "<p>spoilt</p>\n");
    eventually("the change", || {
        (get(&server, "/") == "<p>spoilt</p>\n").then_some(())
    });
    assert_eq!(get(&server, "/run/hello"), "two\n");
    let done = restore(&server.folder);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(get(&server, "/"), "<p>hello</p>\n");
    // The restored server runs the new script and does not serve the old script's stored page.
    assert_eq!(get(&server, "/run/hello"), "one\n");
    // With the server stopped, restore brings back the hit counts of the backup.
    assert_eq!(server.ask(&["stop"]).code, Some(0));
    server.wait(std::time::Duration::from_secs(20));
    let folder = server.into_folder();
    let counts = || fs::read_to_string(folder.path("state/hits")).expect("the counts");
    assert!(!counts().contains("page 1 0"), "{}", counts());
    assert_eq!(restore(&folder).code, Some(0));
    assert!(counts().contains("page 1 0"), "{}", counts());
}

#[test]
fn files_changed_during_a_backup_are_whole() {
    let folder = folder();
    for nth in 0..40 {
        folder.write(&format!("public/page-{nth}"), vec![b'a'; 50_000]);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (root, asked) = (folder.path("public"), stop.clone());
    let writer = thread::spawn(move || {
        let mut letter = b'b';
        while !asked.load(Ordering::Relaxed) {
            for nth in 0..40 {
                let draft = root.join("draft");
                fs::write(&draft, vec![letter; 50_000]).expect("a draft");
                fs::rename(&draft, root.join(format!("page-{nth}"))).expect("a page");
            }
            letter = if letter == b'z' { b'a' } else { letter + 1 };
        }
    });
    let done = backup(&folder);
    stop.store(true, Ordering::Relaxed);
    writer.join().expect("the writer");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(restore(&folder).code, Some(0));
    for nth in 0..40 {
        let page = fs::read(folder.path(&format!("public/page-{nth}"))).expect("a page");
        assert_eq!(page.len(), 50_000);
        assert!(
            page.iter().all(|byte| *byte == page[0]),
            "page {nth} is of two versions"
        );
    }
}

/// Returns the archive decompressed to tar.
fn unpacked_tar(folder: &Folder) -> Vec<u8> {
    let bytes = fs::read(folder.path("site.tar.gz")).expect("the archive");
    let mut tar = Vec::new();
    GzDecoder::new(&bytes[..])
        .read_to_end(&mut tar)
        .expect("gzip");
    tar
}

fn packed(tar: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(tar).expect("gzip");
    gzip.finish().expect("gzip")
}

/// Asserts that restore refuses an archive with the words in `why`, and changes nothing.
fn assert_refused(folder: &Folder, archive: &[u8], why: &str) {
    let before = tree(&folder.path(""));
    fs::write(folder.path("site.tar.gz"), archive).expect("an archive");
    let done = restore(folder);
    assert_eq!(done.code, Some(1), "{why}: {done:?}");
    assert!(done.stderr.contains(why), "{why}: {done:?}");
    assert!(done.stderr.contains("site.tar.gz"), "{done:?}");
    fs::write(folder.path("site.tar.gz"), &archive[..0]).expect("an archive");
    let after = tree(&folder.path(""));
    let site = |all: &[(PathBuf, u32, i64, Vec<u8>)]| {
        let inside = |it: &&(PathBuf, u32, i64, Vec<u8>)| {
            it.0 != Path::new("") && it.0 != Path::new("site.tar.gz")
        };
        all.iter().filter(inside).cloned().collect::<Vec<_>>()
    };
    assert_eq!(site(&after), site(&before), "{why}");
}

#[test]
fn a_damaged_archive_changes_nothing() {
    let folder = saved();
    let bytes = fs::read(folder.path("site.tar.gz")).expect("the archive");
    let tar = unpacked_tar(&folder);
    for length in [bytes.len() / 2, bytes.len() - 4, bytes.len() - 1] {
        assert_refused(&folder, &bytes[..length], "it is truncated");
    }
    assert_refused(&folder, &tar, "is not a usable backup");
    assert_refused(&folder, b"", "is not a usable backup");
    assert_refused(
        &folder,
        &[&bytes[..], b"x"].concat(),
        "data follows the end of the archive",
    );
    let mut flipped = bytes.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x40;
    assert_refused(&folder, &flipped, "is not a usable backup");
    // The checksums of gzip and tar are correct, and a file's digest is wrong.
    let mut other = tar.clone();
    let at = tar
        .windows(6)
        .position(|it| it == b"hello<")
        .expect("the page");
    other[at] ^= 1;
    assert_refused(&folder, &packed(&other), "SHA-256");
    assert_refused(
        &folder,
        &packed(&tar[..tar.len() - 1_024]),
        "it is truncated",
    );
}

#[test]
fn a_hostile_archive_writes_nowhere() {
    let folder = saved();
    let about = {
        let tar = unpacked_tar(&folder);
        let size = std::str::from_utf8(&tar[124..135]).expect("a size");
        let size = usize::from_str_radix(size, 8).expect("a number");
        String::from_utf8(tar[512..512 + size].to_vec()).expect("text")
    };
    // Python's tarfile writes the archive, with unchecked names.
    let make = "import io, sys, tarfile\n\
        out = io.BytesIO()\n\
        tar = tarfile.open(fileobj=out, mode='w:gz', format=tarfile.PAX_FORMAT)\n\
        def add(name, kind=tarfile.REGTYPE, content=b'', link=''):\n\
        \x20   it = tarfile.TarInfo(name); it.type = kind; it.linkname = link\n\
        \x20   it.size = len(content); tar.addfile(it, io.BytesIO(content))\n\
        add('backup.txt', content=sys.argv[1].encode())\n\
        D, L, H, F = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE\n\
        exec(sys.argv[2])\n\
        tar.close(); sys.stdout.buffer.write(out.getvalue())";
    for (entries, why) in [
        ("add('../evil', content=b'x')", "leads out"),
        ("add('/tmp/evil', content=b'x')", "leads out"),
        (
            "add('root', D); add('root/../../evil', content=b'x')",
            "leads out",
        ),
        (
            "add('root', D); add('root/l', L, link='..'); add('root/l/evil', content=b'x')",
            "outside of the folders",
        ),
        (
            "add('root', L, link='/tmp'); add('root/evil', content=b'x')",
            "outside of the folders",
        ),
        (
            "add('root', D); add('root/a', H, link='/etc/passwd')",
            "not a file, folder or symbolic link",
        ),
        (
            "add('root', D); add('root/a', F)",
            "not a file, folder or symbolic link",
        ),
        ("add('root', D); add('root', D)", "a duplicate entry"),
        (
            "add('root', D); add('root/a', L, link='b'); add('root/a', content=b'x')",
            "a duplicate entry",
        ),
        ("add('state', D)", "outside of the folders"),
        ("add('root', D)", "a folder is missing"),
        (
            "add('root', D); add('cgi-1', D)",
            "the checksums are missing",
        ),
        (
            "add('root', D); add('cgi-1', D); add('sha256.txt'); add('root/late', content=b'x')",
            "follows the checksums",
        ),
    ] {
        let made = run("python3", &["-c", make, &about, entries], b"");
        assert!(made.success, "{entries}: {}", made.errors());
        assert_refused(&folder, &made.stdout, why);
    }
    for (about, why) in [
        ("something else\n", "no header of an anthill backup"),
        (
            "anthill backup 2\nversion 9\nsite *\ntime 1\nfolder root root /\n",
            "no header of an anthill backup",
        ),
        (
            "anthill backup 1\nversion 0\nsite *\ntime 1\nfolder ../x root /\n",
            "no header of an anthill backup",
        ),
        (
            "anthill backup 1\nversion 0\nsite *\ntime 1\nfolder root cgi /else\n",
            "has a folder of `cgi /else`",
        ),
    ] {
        let made = run("python3", &["-c", make, about, "add('root', D)"], b"");
        assert_refused(&folder, &made.stdout, why);
    }
}

#[test]
fn a_full_disk_during_a_restore_keeps_the_old_site() {
    let folder = saved();
    fs::create_dir(folder.path("small")).expect("a folder");
    let script = "set -e; mount -t tmpfs -o size=1m none small; cp anthill.toml small\n\
        mkdir small/public small/scripts; echo old > small/public/old\n\
        echo before > small/full.tar.gz\n\
        ! \"$0\" backup '*' anthill.toml -o small/full.tar.gz\n\
        test \"$(cat small/full.tar.gz)\" = before\n\
        ! \"$0\" restore site.tar.gz '*' small/anthill.toml\n\
        test \"$(cat small/public/old)\" = old\n\
        ls -A small";
    let mut command = Command::new(tool("unshare"));
    command.args(["--map-root-user", "--mount", "sh", "-c", script]);
    command
        .arg(crate::support::program())
        .current_dir(folder.path(""));
    let done = finish(command, b"");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.stderr.matches("no space left").count(), 2, "{done:?}");
    assert_eq!(
        done.stdout, "anthill.toml\nfull.tar.gz\npublic\nscripts\n",
        "{done:?}"
    );
}

#[test]
fn folders_keep_the_setgid_bit_and_files_lose_setuid_and_setgid() {
    let folder = folder();
    let chmod = |name: &str, mode| {
        fs::set_permissions(folder.path(name), fs::Permissions::from_mode(mode)).expect("a mode");
    };
    chmod("public/a", 0o2775);
    chmod("public/a/b", 0o3750);
    chmod("public/index.html", 0o6755);
    for done in [backup(&folder), restore(&folder)] {
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    let mode = |name: &str| folder.path(name).metadata().expect("readable").mode() & 0o7777;
    assert_eq!(mode("public/a"), 0o2775);
    assert_eq!(mode("public/a/b"), 0o2750);
    assert_eq!(mode("public/index.html"), 0o755);
}

#[test]
fn an_archive_inside_a_saved_folder_is_refused() {
    let folder = folder();
    symlink("public/a", folder.path("led")).expect("a link");
    let config = folder.path("anthill.toml");
    let before = tree(&folder.path(""));
    for archive in ["public/site.tar.gz", "scripts/x", "public/a/b/.x", "led/x"] {
        let archive = folder.path(archive);
        let done = anthill(&[
            "backup".as_ref(),
            "*".as_ref(),
            config.as_os_str(),
            "-o".as_ref(),
            archive.as_os_str(),
        ]);
        assert_eq!(done.code, Some(1), "{done:?}");
        assert!(
            done.stderr.contains(", which is part of the backup"),
            "{done:?}"
        );
        assert!(
            done.stderr.contains("help: name a file outside of"),
            "{done:?}"
        );
        assert!(!archive.exists());
    }
    let names = |tree: Vec<(PathBuf, u32, i64, Vec<u8>)>| {
        let names = tree.into_iter().map(|(name, ..)| name);
        names.collect::<Vec<PathBuf>>()
    };
    assert_eq!(names(tree(&folder.path(""))), names(before));
}

#[test]
fn wrong_arguments_are_explained() {
    let folder = folder();
    let config = folder.path("anthill.toml");
    let config = config.to_str().expect("a path");
    for (arguments, why) in [
        (vec!["backup", "*", config], "needs the path of the archive"),
        (
            vec!["backup", "else", config, "-o", "/nowhere/x"],
            "there is no site `else`",
        ),
        (
            vec!["backup", "*", config, "-o", "/nowhere/x"],
            "no such file or folder",
        ),
        (
            vec!["restore", "/nowhere/x", "*", config],
            "/nowhere/x: no such file",
        ),
        (
            vec!["restore", "x", "*", config, "--to", "y"],
            "exclude each other",
        ),
    ] {
        let done = anthill(&arguments);
        assert_ne!(done.code, Some(0), "{done:?}");
        assert!(done.stderr.contains(why), "{why}: {done:?}");
    }
}
