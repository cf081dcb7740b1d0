//! Tests of the start of processes with real programs.

use super::*;
use rustix::process::getrlimit;
use std::fs::File;
use std::io::{PipeReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;

/// Starts a program with standard output to a pipe.
fn start(
    file: &CStr,
    arguments: &[u8],
    folder: &CStr,
    limits: ResourceLimits,
) -> io::Result<(Pid, PipeReader)> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let (output, write) = io::pipe()?;
    let pid = spawn(&SpawnOptions {
        file,
        arguments,
        variables: b"COLOUR=red\0SIZE=4 mm\0",
        folder,
        standard: [null.as_fd(), write.as_fd(), null.as_fd()],
        limits,
    })?;
    Ok((pid, output))
}

/// Runs a program to its end. Returns its output.
fn run(file: &CStr, arguments: &[u8], limits: ResourceLimits) -> String {
    let (pid, mut output) = start(file, arguments, c"/", limits).unwrap();
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    let (_, status) = rustix::process::waitpid(Some(pid), WaitOptions::empty())
        .unwrap()
        .unwrap();
    assert_eq!(status.exit_status(), Some(0), "{file:?}: {text}");
    text
}

fn run_shell(script: &str, limits: ResourceLimits) -> String {
    let arguments = format!("sh\0-c\0{script}\0first\0");
    run(c"/bin/sh", arguments.as_bytes(), limits)
}

/// Returns the values of a line `name values` of /proc/PID/limits or /proc/PID/status.
fn values(text: &str, name: &str) -> Vec<String> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let line = line.unwrap_or_else(|| panic!("no {name}: {text}"));
    line.split_ascii_whitespace().map(str::to_owned).collect()
}

/// The first process of a program to read its limits is the program itself, or a child started at once.
#[test]
fn no_instruction_of_a_program_runs_without_its_limits() {
    let limits = ResourceLimits {
        memory_bytes: Some(256 << 20),
        processor_seconds: Some(1_234),
    };
    // Busy threads delay the parent process behind the child.
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        for _ in 0..50 {
            let text = run(c"/bin/cat", b"cat\0/proc/self/limits\0", limits);
            assert_eq!(values(&text, "Max data size")[..2], ["268435456"; 2]);
            assert_eq!(values(&text, "Max cpu time")[..2], ["1234"; 2]);
            let text = run_shell("(ulimit -d; ulimit -t)", limits);
            assert_eq!(text, "262144\n1234\n");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_program_without_limits_has_those_of_the_server_but_the_usual_number_of_files() {
    let text = run(
        c"/bin/cat",
        b"cat\0/proc/self/limits\0",
        ResourceLimits::default(),
    );
    let server = std::fs::read_to_string("/proc/self/limits").unwrap();
    for name in ["Max data size", "Max cpu time", "Max stack size"] {
        assert_eq!(values(&text, name), values(&server, name), "{name}");
    }
    let hard = getrlimit(Resource::Nofile).maximum;
    let soft = hard.map_or(NOFILE_USUAL, |hard| hard.min(NOFILE_USUAL));
    let hard = hard.map_or("unlimited".to_owned(), |hard| hard.to_string());
    assert_eq!(
        values(&text, "Max open files")[..2],
        [soft.to_string(), hard]
    );
}

#[test]
fn a_lower_limit_of_the_server_stays() {
    for (hard, limit) in [(None, 50), (Some(60), 50), (Some(50), 50), (Some(40), 40)] {
        let bounded = bounded_limit(50, hard);
        assert_eq!(bounded.maximum, Some(limit), "{hard:?}");
        assert_eq!(bounded.current, Some(limit), "{hard:?}");
    }
}

#[test]
fn a_program_has_its_arguments_variables_folder_and_descriptors() {
    let text = run_shell(
        "echo \"$0\" \"$COLOUR\" \"$SIZE\" $#; pwd",
        Default::default(),
    );
    assert_eq!(text, "first red 4 mm 0\n/\n");
    // Closed on exec, like all descriptors that Rust opens.
    let file = File::open("/dev/null").unwrap();
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    let script = format!(
        "[ -e {own} ] || echo closed; for fd in 0 1 2; do [ -e /proc/self/fd/$fd ] && echo $fd; done"
    );
    assert_eq!(run_shell(&script, Default::default()), "closed\n0\n1\n2\n");
}

#[test]
fn a_program_has_a_session_and_no_signal_ignored_or_blocked() {
    let blocked = 1 << (libc::SIGUSR2 - 1);
    // The test's own thread blocks a signal, and Rust ignores SIGPIPE.
    let before = set_signal_mask(blocked);
    let text = run(c"/bin/cat", b"cat\0/proc/self/status\0", Default::default());
    assert_eq!(set_signal_mask(before), blocked, "the mask of the server");
    for name in ["SigBlk:", "SigIgn:", "SigCgt:"] {
        assert_eq!(values(&text, name), ["0000000000000000"], "{name}");
    }
    let text = run(c"/bin/cat", b"cat\0/proc/self/stat\0", Default::default());
    let fields: Vec<&str> = text.split(' ').collect();
    assert_eq!([fields[4], fields[5]], [fields[0]; 2], "group and session");
}

#[test]
fn a_file_that_is_no_program_is_an_error_and_leaves_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        std::ffi::CString::new(path.into_os_string().into_encoded_bytes()).unwrap()
    };
    let missing = std::ffi::CString::new(format!("{}/none", folder.path().display())).unwrap();
    let interpreter = file("interpreter", "#!/no/such/interpreter\n", 0o755);
    for (program, place, error) in [
        (missing.as_c_str(), c"/", libc::ENOENT),
        (&interpreter, c"/", libc::ENOENT),
        (&file("plain", "#!/bin/sh\n", 0o644), c"/", libc::EACCES),
        (&file("text", "no program\n", 0o755), c"/", libc::ENOEXEC),
        (c"/bin/sh", &missing, libc::ENOENT),
        (c"/bin/sh/x", c"/", libc::ENOTDIR),
    ] {
        let refused = start(program, b"x\0", place, ResourceLimits::default());
        let refused = refused.err().and_then(|error| error.raw_os_error());
        assert_eq!(refused, Some(error), "{program:?} in {place:?}");
    }
    // Linux lists the children that this thread has started and nobody has waited for.
    let children = std::fs::read_to_string("/proc/thread-self/children").unwrap();
    assert_eq!(children, "");
}

/// A standard descriptor in its own place stays open after exec.
#[test]
fn standard_descriptors_may_be_those_of_the_server() {
    let null = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .unwrap();
    let stdin = rustix::stdio::stdin();
    let flags = rustix::io::fcntl_getfd(stdin).unwrap();
    rustix::io::fcntl_setfd(stdin, FdFlags::CLOEXEC).unwrap();
    let pid = spawn(&SpawnOptions {
        file: c"/bin/sh",
        arguments: b"sh\0-c\0[ -e /proc/self/fd/0 ]\0",
        variables: b"",
        folder: c"/",
        standard: [stdin, null.as_fd(), null.as_fd()],
        limits: ResourceLimits::default(),
    })
    .unwrap();
    rustix::io::fcntl_setfd(stdin, flags).unwrap();
    let waited = rustix::process::waitpid(Some(pid), WaitOptions::empty()).unwrap();
    assert_eq!(waited.unwrap().1.exit_status(), Some(0));
}
