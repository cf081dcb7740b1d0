//! Publications by ssh: the SSH servers of OpenSSH and of Dropbear run `anthill receive` under an account of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::lifecycle::is_root;
use crate::support::release_store::publisher;
use crate::support::{Done, Folder, Server, eventually, finish, run, spawn, tool};

/// Number of the account and of the group of publishers.
const ACCOUNT: u32 = 12_345;

/// SSH server for the tests.
#[derive(Copy, Clone, Debug)]
enum Program {
    OpenSsh,
    Dropbear,
}

/// Running SSH server with an account `publisher`, and a server of the site `www`.
struct Host {
    ssh: Child,
    port: u16,
    server: Server,
}

impl Drop for Host {
    fn drop(&mut self) {
        // The server has perhaps ended.
        let _ = self.ssh.kill();
        let _ = self.ssh.wait();
    }
}

/// Returns a port that is free at the moment.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Commands of the shell that give the publisher an account, in a mount namespace of their own.
const ACCOUNTS: &str = "cp /etc/passwd passwd; cp /etc/group group
    echo \"publisher:*:12345:12345::$PWD/home:/bin/sh\" >> passwd
    echo \"sshd:*:12346:12345::/run/sshd:/bin/false\" >> passwd
    echo 'publisher:*:12345:' >> group
    mount --bind passwd /etc/passwd; mount --bind group /etc/group
    mount --bind \"$ANTHILL\" anthill
    mount -t tmpfs none /run; mkdir -m 755 /run/sshd";

impl Host {
    fn start(program: Program, rights: &str) -> Host {
        let folder = Folder::new();
        folder.write(
            "anthill.toml",
            "[server]\nhttps = []\nhttp = [\"127.0.0.1:0\"]\nstate = \"state\"\ncontrol = \"anthill.sock\"\n\
             [[site]]\nnames = [\"www.test\", \"*\"]\nhttp = \"serve\"\nrelease = \"www\"\n\
             preview = \"*.preview.test\"\n",
        );
        for (name, mode) in [
            ("state", 0o755),
            ("state/served", 0o755),
            ("state/releases", 0o2770),
            ("home/.ssh", 0o755),
        ] {
            let path = folder.path(name);
            fs::create_dir_all(&path).expect("a folder");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
        }
        fs::set_permissions(folder.path("."), fs::Permissions::from_mode(0o755)).expect("a mode");
        folder.write("anthill", "");
        if is_root() {
            for name in ["state/releases", "home", "home/.ssh"] {
                let owner = Some(ACCOUNT);
                std::os::unix::fs::chown(folder.path(name), owner, owner).expect("an owner");
            }
            // The change of the owner clears the bit.
            let mode = fs::Permissions::from_mode(0o2770);
            fs::set_permissions(folder.path("state/releases"), mode).expect("a mode");
        }
        for name in ["host_key", "key"] {
            let file = folder.path(name);
            let words = ["-q", "-t", "ed25519", "-N", "", "-f"].map(std::ffi::OsStr::new);
            let ran = run(
                "ssh-keygen",
                &[&words[..], &[file.as_os_str()]].concat(),
                b"",
            );
            assert!(ran.success, "{}", ran.errors());
        }
        let mut command = Command::new(crate::support::program());
        command.arg("serve").arg(folder.path("anthill.toml"));
        let server = Server::launch(folder, command);
        let port = free_port();
        let host = Host {
            ssh: start_ssh(program, &server.folder, port),
            port,
            server,
        };
        host.allow_key(rights);
        eventually("the SSH server", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).ok()
        });
        host
    }

    /// Writes the line of the publisher's key, as `anthill receive --key-line` prints it.
    fn allow_key(&self, rights: &str) {
        let folder = &self.server.folder;
        let store = folder.path("state/releases");
        let words = [
            "receive",
            "www",
            "--key-line",
            "--publisher",
            "ann",
            "--rights",
            rights,
        ];
        let mut command = Command::new(crate::support::program());
        command.args(words).arg("--store").arg(store);
        let line = finish(command, b"");
        assert_eq!(line.code, Some(0), "{line:?}");
        let key = fs::read_to_string(folder.path("key.pub")).expect("a key");
        let own = crate::support::program();
        let reachable = folder.path("anthill").display().to_string();
        let line = line
            .stdout
            .replace(own, &reachable)
            .replace("KEY", key.trim());
        folder.write("home/.ssh/authorized_keys", line);
        folder.write("home/.profile", "");
    }

    /// Returns the command in place of ssh.
    fn ssh(&self) -> String {
        let folder = &self.server.folder;
        format!(
            "{} -F none -p {} -i {} -o BatchMode=yes -o StrictHostKeyChecking=no -o LogLevel=ERROR \
             -o UserKnownHostsFile={}",
            tool("ssh").display(),
            self.port,
            folder.path("key").display(),
            folder.path("known_hosts").display()
        )
    }

    fn destination(&self) -> &'static str {
        if is_root() {
            "publisher@127.0.0.1"
        } else {
            "127.0.0.1"
        }
    }

    /// Runs a command of the program that publishes.
    fn run(&self, words: &[&str]) -> Done {
        let mut command = Command::new(publisher());
        command
            .arg(words[0])
            .args(["--ssh", &self.ssh()])
            .args(&words[1..]);
        command.env("XDG_CACHE_HOME", self.server.folder.path("cache"));
        command.current_dir(self.server.folder.path("."));
        finish(command, b"")
    }

    fn publish(&self) -> Done {
        self.run(&["publish", "site", self.destination()])
    }
}

fn start_ssh(program: Program, folder: &Folder, port: u16) -> Child {
    let home = folder.path("home").display().to_string();
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {home}/.ssh/authorized_keys\n\
         StrictModes no\nUsePAM no\nPasswordAuthentication no\nPidFile none\n",
        folder.path("host_key").display()
    );
    folder.write("sshd_config", config);
    let start = match program {
        Program::OpenSsh => format!(
            "exec \"{}\" -D -e -f \"$PWD/sshd_config\"",
            tool("sshd").display()
        ),
        Program::Dropbear => format!(
            "/usr/lib/dropbear/dropbearconvert openssh dropbear host_key host_key.db
             exec \"{}\" -F -E -s -r host_key.db -p 127.0.0.1:{port}",
            tool("dropbear").display()
        ),
    };
    let accounts = if is_root() {
        ACCOUNTS
    } else {
        "mount --bind \"$ANTHILL\" anthill"
    };
    let mut command = Command::new(tool("unshare"));
    command
        .arg(if is_root() { "-m" } else { "-Urm" })
        .args([
            "sh",
            "-ec",
            &format!("cd \"$0\"; {accounts}\nexec 2> ssh.log\n{start}"),
        ])
        .arg(folder.path("."))
        .env("ANTHILL", crate::support::program())
        .stdin(Stdio::null());
    spawn(&mut command).expect("unshare")
}

#[test]
fn a_folder_is_published_by_ssh() {
    for program in [Program::OpenSsh, Program::Dropbear] {
        let host = Host::start(program, "publish");
        let folder = &host.server.folder;
        folder.write("site/index.html", "one");
        folder.write("site/other.html", "<a href=\"/\">".repeat(200));
        assert_eq!(host.server.keep_alive().get("/").status, 503);
        let done = host.publish();
        assert_eq!(done.code, Some(0), "{program:?} {done:?}\n{}", log(&host));
        assert!(done.stdout.contains("sequence 1, served"), "{done:?}");
        host.server.folder.write("site/index.html", "two");
        let mut client = host.server.keep_alive();
        assert_eq!(client.get("/").text(), "one");
        let done = host.publish();
        assert!(
            done.stdout.contains("sequence 2, served by all workers"),
            "{done:?}"
        );
        let port = host.server.http_port;
        let open = format!("\n  open http://www.test:{port}/\n");
        assert!(done.stdout.ends_with(&open), "{done:?}");
        // The connection stays open over the change.
        assert_eq!(client.get("/").text(), "two");
        let listed = host.run(&["releases", host.destination()]);
        assert_eq!(listed.stdout.matches(" ann ").count(), 2, "{listed:?}");
        let back = host.run(&["rollback", host.destination()]);
        assert_eq!(back.code, Some(0), "{back:?}");
        assert_eq!(client.get("/").text(), "one");
        // A packed release is published as the folder from which it was made.
        folder.write("site/index.html", "packed");
        for words in [["site", "www.release"], ["www.release", host.destination()]] {
            let done = host.run(&["publish", words[0], words[1]]);
            assert_eq!(done.code, Some(0), "{words:?} {done:?}");
        }
        assert_eq!(client.get("/").text(), "packed");
        let words = ["publish", "--preview", "Next", "site", host.destination()];
        let done = host.run(&words);
        let open = format!("\n  open http://next.preview.test:{port}/\n  open http://");
        assert!(done.stdout.contains(&open), "{done:?}");
        // The key runs nothing but the receiver, which never starts another program.
        let words = format!(
            "{} {} touch {}",
            host.ssh(),
            host.destination(),
            folder.path("made").display()
        );
        let mut command = Command::new("sh");
        command.args(["-c", &words]);
        finish(command, b"");
        assert!(!folder.path("made").exists());
    }
}

#[test]
fn a_key_has_the_rights_of_its_line() {
    let host = Host::start(Program::OpenSsh, "preview");
    host.server.folder.write("site/index.html", "one");
    let done = host.publish();
    assert_eq!(done.code, Some(1), "{done:?}");
    let reason = "this account has the rights `preview`, and only the rights `publish` choose the served release";
    assert!(done.stderr.contains(reason), "{done:?}");
    assert_eq!(host.server.keep_alive().get("/").status, 503);
    // Nothing was uploaded, and a dry run has the same advice. A signature would not help.
    for done in [
        done,
        host.run(&["publish", "--dry-run", "site", host.destination()]),
    ] {
        assert_eq!(done.code, Some(1), "{done:?}");
        assert!(
            done.stderr.contains("\nhelp: add --preview LABEL"),
            "{done:?}"
        );
        assert!(!done.stderr.contains("--key"), "{done:?}");
    }
    let mut contents = Command::new("find");
    contents.arg(host.server.folder.path("state/releases"));
    contents.args(["-path", "*/blobs/*", "-type", "f"]);
    assert_eq!(finish(contents, b"").stdout, "");
    let done = host.run(&["publish", "--preview", "next", "site", host.destination()]);
    assert!(
        done.stdout.contains("labelled next"),
        "{done:?}\n{}",
        log(&host)
    );
}

fn log(host: &Host) -> String {
    fs::read_to_string(host.server.folder.path("ssh.log")).unwrap_or_default()
}

#[test]
fn the_demonstration_publishes_on_two_hosts() {
    publisher();
    tool("sshd");
    let folder = Folder::new();
    let mut command = Command::new("sh");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/publish/demo.sh");
    command
        .arg(script)
        .arg(crate::support::program())
        .arg(folder.path("demo"));
    let done = finish(command, b"");
    assert_eq!(done.code, Some(0), "{done:?}");
    let says: Vec<&str> = done
        .stdout
        .lines()
        .filter_map(|line| Some(line.split_once(" says: ")?.1))
        .collect();
    let (first, second) = ("First release", "Second release");
    assert_eq!(
        says,
        [first, first, second, second, second, second, first, second],
        "{done:?}"
    );
    assert!(
        done.stderr.contains("error: two: the release needs"),
        "{done:?}"
    );
}
