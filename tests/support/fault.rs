//! Faults of system calls of a running server, by strace.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};

use super::{Server, eventually, tool};

/// strace with a fault injected into one system call of the control plane.
pub struct Fault {
    strace: Child,
    log: PathBuf,
    /// Status of the server's process.
    status: PathBuf,
}

impl Fault {
    /// Attaches strace to the main thread of the server. `fault` happens at the call number `nth` of `call` on one of
    /// the paths.
    pub fn inject(server: &Server, call: &str, nth: u32, fault: &str, paths: &[PathBuf]) -> Fault {
        let log = server.folder.path("strace");
        let mut strace = Command::new(tool("strace"));
        strace
            .args(["-q", "-o"])
            .arg(&log)
            .args(["-e", &format!("trace={call}")])
            .args(["-e", &format!("inject={call}:{fault}:when={nth}")]);
        for path in paths {
            strace.arg("-P").arg(path);
        }
        strace.args(["-p", &server.pid().to_string()]);
        let strace = strace.spawn().expect("strace");
        let status = PathBuf::from(format!("/proc/{}/status", server.pid()));
        eventually("the tracer", || {
            let status = fs::read_to_string(&status).expect("a status");
            (!status.contains("TracerPid:\t0\n")).then_some(())
        });
        Fault {
            strace,
            log,
            status,
        }
    }

    /// Returns true once the fault has happened, or the server has ended.
    pub fn happened(&self) -> bool {
        let has = |file: &PathBuf, part: &str| {
            fs::read_to_string(file).is_ok_and(|text| text.contains(part))
        };
        has(&self.log, "INJECTED") || has(&self.status, "State:\tZ")
    }

    /// Ends strace. Returns true if the fault happened.
    pub fn end(mut self) -> bool {
        let pid = self.strace.id().to_string();
        let _ = Command::new("kill").arg(pid).status();
        let _ = self.strace.wait();
        self.happened()
    }
}
