//! Machine with systemd as process 1: a Debian system in namespaces of its own, with ports 80 and 443, accounts, sshd and
//! php-fpm. `tools/setup.sh` makes the system once, in target/tools.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::release_store::publisher;
use super::{Done, Folder, eventually, finish, program, spawn, tool, tools_folder};

/// A running machine. Drop ends all its processes, and removes its files and its control group.
pub struct SystemdMachine {
    /// Number of systemd's process, as seen by the test.
    process: u32,
    /// The script that starts and ends the machine.
    script: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    _folder: Folder,
}

impl SystemdMachine {
    /// Boots a machine with the programs of the project in /usr/local/bin.
    pub fn boot() -> SystemdMachine {
        let folder = Folder::new();
        let programs = folder.path("programs");
        std::fs::create_dir(&programs).expect("a folder");
        std::fs::create_dir(folder.path("work")).expect("a folder");
        let server = std::fs::canonicalize(program()).expect("the program");
        for (name, program) in [("anthill", server), ("anthill-publish", publisher())] {
            std::os::unix::fs::symlink(&program, programs.join(name)).expect("a link");
        }
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/support");
        let mut command = Command::new(tool("unshare"));
        command
            .args(["--mount", "--propagation", "private", "sh"])
            .arg(here.join("systemd_machine.sh"))
            .args([folder.path("work"), system(), programs])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut script = spawn(&mut command).expect("unshare");
        let input = script.stdin.take();
        let output = BufReader::new(script.stdout.take().expect("a pipe"));
        let mut machine = SystemdMachine {
            process: 0,
            script,
            input,
            output,
            _folder: folder,
        };
        machine.start();
        machine
    }

    /// Shuts the machine down in an orderly way, and boots it again with the same files.
    pub fn reboot(&mut self) {
        // The command may be ended by the shutdown.
        let _ = self.shell("systemctl reboot");
        assert_eq!(self.ask("wait"), "down");
        self.start();
    }

    /// Runs a shell script as root of the machine.
    pub fn shell(&self, script: &str) -> Done {
        let mut command = Command::new(tool("nsenter"));
        let process = self.process.to_string();
        command
            .args(["--target", &process])
            .args(["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"])
            .args(["--root", "--wd"])
            .args(["env", "-i", "HOME=/root", "LANG=C.UTF-8"])
            .arg("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .args(["sh", "-euc", script]);
        finish(command, b"")
    }

    fn start(&mut self) {
        let process = self.ask("boot");
        self.process = process
            .parse()
            .expect("the number of a process; the errors of systemd_machine.sh tell what failed");
        eventually("the bus of systemd", || {
            let done =
                self.shell("[ -S /run/systemd/private ] && [ -S /run/dbus/system_bus_socket ]");
            (done.code == Some(0)).then_some(())
        });
        let done =
            self.shell("systemctl is-system-running --wait || systemctl --failed --no-pager");
        assert_eq!(done.stdout, "running\n", "{}", done.stderr);
    }

    /// Sends a command to the script, and returns its answer.
    fn ask(&mut self, command: &str) -> String {
        let input = self.input.as_mut().expect("a pipe");
        writeln!(input, "{command}").expect("a running script");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }
}

impl Drop for SystemdMachine {
    fn drop(&mut self) {
        self.input = None;
        let status = self.script.wait().expect("the end of the script");
        if !std::thread::panicking() {
            assert!(status.success(), "{status}, signal {:?}", status.signal());
        }
    }
}

/// Returns the folder of the Debian system.
fn system() -> PathBuf {
    let folder = tools_folder().join("debian");
    assert!(
        folder.join("lib/systemd/systemd").exists(),
        "{} has no Debian system with systemd: `make test` makes the folder as root (setup_debian in tools/setup.sh, with \
         Debian's package mmdebstrap)",
        folder.display()
    );
    folder
}
