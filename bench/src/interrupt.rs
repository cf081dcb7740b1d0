//! End of a run by a signal. The first SIGINT, SIGTERM or SIGHUP ends the run: all processes are stopped and the
//! figures are kept. A second signal ends the kit at once: the guard processes end the servers, and the work folders
//! are removed.
//!
//! The threads of the kit may create files in a work folder until their last moment, and so may the servers, which the
//! guards end only after the kit. So the process becomes another program (`execve`) that removes the folders: all
//! threads of the kit end, the pipes to the guards close, and the guards and servers are still children to wait for.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{WaitOptions, wait};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::work_folder::WorkFolder;

/// Exit status after Ctrl-C: 128 + SIGINT, as in shells.
pub(crate) const INTERRUPTED: u8 = 130;

/// Command of the program that removes the work folders given as arguments.
pub(crate) const CLEAN_UP: &str = "--clean-up";

/// Sets `stop` on the first SIGINT, SIGTERM or SIGHUP. Calls `leave` and exits on the second.
pub(crate) fn watch(stop: &'static AtomicBool, leave: fn()) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let entered = runtime.enter();
    let signals = signals()?;
    drop(entered);
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(listen(signals, stop, leave));
        })?;
    Ok(())
}

/// Returns the signals that end a run. From then on, the signals no longer end the process by themselves.
fn signals() -> io::Result<[Signal; 3]> {
    Ok([
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
        signal(SignalKind::hangup())?,
    ])
}

async fn listen(
    [mut interrupt, mut terminate, mut hangup]: [Signal; 3],
    stop: &AtomicBool,
    leave: fn(),
) {
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        if stop.swap(true, Ordering::Relaxed) {
            leave();
            std::process::exit(i32::from(INTERRUPTED));
        }
        eprintln!("\nstopping: the figures so far are kept (interrupt again to exit at once)");
    }
}

/// Turns the process into the program that removes the work folders. Returns if there is nothing to remove, or if the
/// program can't be started.
pub(crate) fn leave_nothing() {
    // Held until the end of this program, so that no thread creates another work folder.
    let folders = WorkFolder::all();
    if folders.is_empty() {
        return;
    }
    let mut program = Command::new("/proc/self/exe");
    let error = program.arg(CLEAN_UP).args(folders.iter()).exec();
    eprintln!("the work folders can't be removed: {error}");
}

/// Waits for the guards and the servers, and removes the work folders. Returns the exit status of an interrupted run.
pub(crate) fn clean_up(folders: &[OsString]) -> ExitCode {
    // An impatient operator sends the signal more than twice.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build();
    let entered = runtime.as_ref().map(|runtime| runtime.enter());
    let _signals = signals();
    drop(entered);
    let deadline = Instant::now() + CLEAN_UP_MAX;
    while Instant::now() < deadline {
        // Fails once no child is left.
        let has_children = wait(WaitOptions::NOHANG).is_ok();
        let mut is_gone = true;
        for folder in folders.iter().map(Path::new) {
            let _ = std::fs::remove_dir_all(folder);
            is_gone &= !folder.exists();
        }
        if is_gone && !has_children {
            break;
        }
        thread::sleep(CLEAN_UP_PAUSE);
    }
    ExitCode::from(INTERRUPTED)
}

/// Longest time for the end of the servers. The next run removes a remainder.
const CLEAN_UP_MAX: Duration = Duration::from_secs(5);
const CLEAN_UP_PAUSE: Duration = Duration::from_millis(10);
