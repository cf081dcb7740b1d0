//! Long tests of a supervised server, for `make test-service`: what a minute of crashes costs, and that no moment of a crash
//! refuses a connection. Without the variable ANTHILL_TEST_LONG the tests do nothing.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::lifecycle::is_root;
use crate::supervisor::{config, get, kill, supervised, supervised_by};
use crate::support::{Server, eventually, program, run, tool};

/// Time of a crash loop. The pauses of the supervisor let about seven servers start in a minute.
const MINUTE: Duration = Duration::from_secs(60);
/// Milliseconds of a tick in /proc/PID/stat (USER_HZ).
const TICK_MILLISECONDS: u64 = 10;

fn is_asked_for() -> bool {
    let is_asked_for = std::env::var_os("ANTHILL_TEST_LONG").is_some();
    if !is_asked_for {
        eprintln!("nothing is tested: `make test-service` runs the long tests");
    }
    is_asked_for
}

/// Returns the process of the server below a supervisor, or None between two servers.
fn child_of(process: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    text.split_whitespace().next().map(str::to_owned)
}

/// Returns the time of processors of a supervisor and of its ended servers.
fn used_milliseconds(process: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("a process");
    let (_, fields) = stat.rsplit_once(')').expect("the name");
    let times = fields.split_whitespace().skip(11).take(4);
    let ticks: u64 = times.map(|it| it.parse::<u64>().expect("ticks")).sum();
    ticks * TICK_MILLISECONDS
}

/// Kills each server as soon as it is ready, for a minute, and returns their number.
fn kill_each_ready_server(server: &Server) -> usize {
    let begun = Instant::now();
    let mut killed = 0;
    while begun.elapsed() < MINUTE {
        let is_ready = |lines: &[String]| {
            let count = lines.iter().filter(|it| it.starts_with("ready")).count();
            (count > killed || begun.elapsed() >= MINUTE).then_some(count)
        };
        let lines = server.errors.wait_until(2 * MINUTE, "a server", is_ready);
        if lines > killed {
            killed = lines;
            if let Some(process) = child_of(server.pid()) {
                kill("KILL", &process);
            }
        }
    }
    killed
}

#[test]
fn a_minute_of_crashes_costs_one_percent_of_a_processor() {
    if !is_asked_for() {
        return;
    }
    let server = supervised(&config());
    let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", server.pid()));
    let rollup = rollup.expect("the memory of the supervisor");
    let dirty = rollup.lines().find(|it| it.starts_with("Private_Dirty"));
    let before = used_milliseconds(server.pid());
    let killed = kill_each_ready_server(&server);
    let used = used_milliseconds(server.pid()) - before;
    println!("{killed} servers, {used} ms of processors in 60 s; supervisor: {dirty:?}");
    assert!(killed >= 5, "{killed} servers");
    assert!(used <= 600, "{used} ms in 60 s");
}

#[test]
fn a_minute_of_refused_configurations_costs_one_percent_of_a_processor() {
    if !is_asked_for() {
        return;
    }
    let server = supervised(&config());
    let mistake = config() + "lisiting = true\n";
    server.folder.write("anthill.toml", mistake);
    let before = used_milliseconds(server.pid());
    kill("KILL", &child_of(server.pid()).expect("a server"));
    thread::sleep(MINUTE);
    let used = used_milliseconds(server.pid()) - before;
    println!("{used} ms of processors in 60 s");
    assert!(used <= 600, "{used} ms in 60 s");
}

/// Milliseconds from the beginning of a server's process to its end.
const MOMENTS: [u64; 9] = [0, 1, 3, 10, 20, 40, 80, 200, 1_000];

#[test]
fn a_kill_at_any_moment_refuses_no_connection() {
    if !is_asked_for() {
        return;
    }
    let server = supervised(&config());
    let (done, refused, answered) = (
        AtomicBool::new(false),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    match get(server.http_port, "/") {
                        Ok(_) => answered.fetch_add(1, Ordering::Relaxed),
                        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                            refused.fetch_add(1, Ordering::Relaxed)
                        }
                        // The killed server had accepted the connection.
                        Err(_) => 0,
                    };
                }
            });
        }
        let mut former = String::new();
        for moment in MOMENTS {
            let process = eventually("the next server", || {
                child_of(server.pid()).filter(|process| *process != former)
            });
            thread::sleep(Duration::from_millis(moment));
            kill("KILL", &process);
            former = process;
        }
        let before = answered.load(Ordering::Relaxed);
        eventually("answers after the last kill", || {
            (answered.load(Ordering::Relaxed) > before + 100).then_some(())
        });
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(refused.into_inner(), 0);
    assert!(TcpStream::connect(("127.0.0.1", server.http_port)).is_ok());
}

#[test]
fn a_thousand_orphans_leave_no_zombie() {
    if !is_asked_for() {
        return;
    }
    if !is_root() {
        eprintln!("nothing is tested: a PID namespace needs root (sudo -E make test-service)");
        return;
    }
    let mut command = Command::new(tool("unshare"));
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    command.arg(program());
    let server = supervised_by(command, &config());
    let first = child_of(server.pid()).expect("the supervisor");
    let served = child_of(first.parse().expect("a number")).expect("a server");
    let orphans = "for i in $(seq 1000); do (sleep 0.5 &) ; done";
    let arguments = ["--target", &first, "--pid", "--mount", "sh", "-c", orphans];
    assert!(run("nsenter", &arguments, b"").success);
    eventually("no zombie", || {
        let text = fs::read_to_string(format!("/proc/{first}/task/{first}/children"));
        (text.expect("a process").trim() == served).then_some(())
    });
    assert!(get(server.http_port, "/").is_ok());
}
