//! Service of runit: a folder with the scripts `run` and `check`, and a link to the folder in the folder of services.
//!
//! runsvdir looks for new services every 5 s, and runsv writes its own files to the folder of the service.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::init_system::runit_folder;
use crate::config::{OperatorError, reason};

/// Longest wait until runsvdir has found a new service, 20 s: several of its intervals.
const FOUND_SECONDS_MAX: u64 = 20;
/// Pause between two looks for the found service, 100 ms.
const LOOK_MILLISECONDS: u64 = 100;

/// Returns the script that tells runit whether the server is ready.
pub(super) fn check_file(name: &str) -> PathBuf {
    folder(name).join("check")
}

/// Has runit find the service, and waits until a runsv runs for the service.
pub(super) fn register(name: &str) -> Result<(), OperatorError> {
    let services = runit_folder().ok_or_else(|| {
        OperatorError::failure("runit has no folder of services: /etc/service does not exist")
            .help("make the folder for which runsvdir runs, or link /etc/sv/NAME to it by hand")
    })?;
    let link = services.join(name);
    let target = folder(name);
    if fs::read_link(&link).ok().as_ref() != Some(&target) {
        std::os::unix::fs::symlink(&target, &link).map_err(|error| failed(&link, &error))?;
    }
    let begun = Instant::now();
    while !is_supervised(&target) {
        if begun.elapsed() > Duration::from_secs(FOUND_SECONDS_MAX) {
            let what = format!(
                "runit has not found the service {} in {FOUND_SECONDS_MAX} s",
                link.display()
            );
            let help = format!("start runsvdir for {}", services.display());
            return Err(OperatorError::failure(what).help(help));
        }
        std::thread::sleep(Duration::from_millis(LOOK_MILLISECONDS));
    }
    Ok(())
}

/// Takes the link away, so that runsvdir does not start the service again.
pub(super) fn unregister(name: &str) -> Result<(), OperatorError> {
    let link = runit_folder().map(|services| services.join(name));
    let ours = link.filter(|link| fs::read_link(link).is_ok_and(|it| it == folder(name)));
    ours.map_or(Ok(()), |link| {
        fs::remove_file(&link).map_err(|error| failed(&link, &error))
    })
}

/// Removes the remaining files of the service. Files of the operator stay, such as a script for a log.
pub(super) fn clear(name: &str) -> Result<(), OperatorError> {
    let folder = folder(name);
    let _ = fs::remove_file(folder.join("check"));
    let own = folder.join("supervise");
    // Debian's runit keeps its files below /run, and has a link here.
    let _ = fs::remove_file(&own).or_else(|_| fs::remove_dir_all(&own));
    match fs::remove_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        removed => removed.map_err(|error| failed(&folder, &error)),
    }
}

fn folder(name: &str) -> PathBuf {
    Path::new("/etc/sv").join(name)
}

/// Returns true if a runsv runs for the folder. sv(8) has the exit status 0 for a service that runsv controls.
fn is_supervised(folder: &Path) -> bool {
    let mut status = Command::new("sv");
    status.arg("status").arg(folder);
    let quiet = status.stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

fn failed(path: &Path, error: &io::Error) -> OperatorError {
    OperatorError::failure(format!("{}: {}", path.display(), reason(error)))
}
