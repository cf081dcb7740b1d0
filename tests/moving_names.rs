//! Members with a host name that moves to another address under steady traffic. The server has its own file of host names,
//! and a clock that the test sets forward, since a name is looked up every 30 s.

use std::fs::OpenOptions;
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Duration;

use crate::lifecycle::is_root;
use crate::support::h2_member::{self, H2Member};
use crate::support::member::{Member, ok};
use crate::support::wire::{Wire, wait_until};
use crate::support::{Folder, Server, run, server_table, site_table, tool};

/// Library for LD_PRELOAD: the monotonic clock of the process is ahead by the seconds in the file `$CLOCK`.
const CLOCK: &str = r#"
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile uint64_t *ahead;

__attribute__((constructor)) static void map(void) {
    ahead = mmap(0, sizeof *ahead, PROT_READ, MAP_SHARED, open(getenv("CLOCK"), O_RDONLY), 0);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    long failed = syscall(SYS_clock_gettime, clock, time);
    if (!failed && clock == CLOCK_MONOTONIC && ahead != MAP_FAILED && ahead)
        time->tv_sec += *ahead;
    return failed;
}
"#;

/// Starts a member with the content `text` on an address and a port; 0 for a free port. Returns the port.
fn member(address: &str, port: u16, is_http2: bool, text: &'static str) -> u16 {
    let listener = TcpListener::bind((address, port)).expect("a port");
    if is_http2 {
        H2Member::start_on(listener, move |request| h2_member::ok(request, text)).port
    } else {
        Member::start_on(listener, move |_| ok(text)).port
    }
}

#[test]
fn requests_follow_the_host_name_of_a_member() {
    for is_http2 in [false, true] {
        let port = member("127.0.0.1", 0, is_http2, "former");
        member("127.0.0.2", port, is_http2, "present");
        let folder = Folder::new()
            .with("public/index.html", "hello")
            .with("hosts", "127.0.0.1 moving.test\n")
            .with("clock", [0; 8])
            .with("clock.c", CLOCK);
        let path = |name: &str| folder.path(name).display().to_string();
        let source = path("clock.c");
        let built = run(
            "cc",
            &["-shared", "-fPIC", "-o", &path("clock.so"), &source],
            b"",
        );
        assert!(built.success, "{}", built.errors());
        let mut command = Command::new(tool("unshare"));
        command.arg("--mount");
        if !is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        let script =
            "mount --bind \"$HOSTS\" /etc/hosts\nexport LD_PRELOAD=\"$LIBRARY\"\nexec \"$@\"";
        command.args(["sh", "-euc", script, "sh", crate::support::program()]);
        for (name, file) in [
            ("HOSTS", "hosts"),
            ("LIBRARY", "clock.so"),
            ("CLOCK", "clock"),
        ] {
            command.env(name, path(file));
        }
        let route = format!(
            "[[site.route]]\npath = \"/\"\nproxy = {{ url = \"http://moving.test:{port}\", http2 = {is_http2} }}\n"
        );
        let config = server_table("") + &site_table("http = \"serve\"") + &route;
        let server = Server::start_by(command, folder, &config);
        let get = || Wire::plain(&server).get("/", "").text();
        assert_eq!(get(), "former", "{is_http2}");
        server.folder.write("hosts", "127.0.0.2 moving.test\n");
        let clock = OpenOptions::new()
            .write(true)
            .open(server.folder.path("clock"));
        let clock = clock.expect("the clock");
        clock
            .write_all_at(&30_u64.to_le_bytes(), 0)
            .expect("a later time");
        wait_until(Duration::from_secs(60), "the present member", || {
            (get() == "present").then_some(())
        });
        for _ in 0..20 {
            assert_eq!(get(), "present", "{is_http2}");
        }
    }
}
