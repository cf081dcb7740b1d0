//! Wait until the server serves a release: the server acknowledges each release of a site in a file.

use crate::limits::{RECEIVE_SERVED_PAUSE_MILLISECONDS, RECEIVE_SERVED_SECONDS_MAX};
use crate::site::ServedRelease;
use crate::wire::release_pointer::ReleasePointer;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Waits until all workers serve the release of a pointer. Returns false if the server never acknowledged a release of the
/// site, or acknowledges no new one within some seconds.
pub(super) fn wait_until_served(folder: &Path, pointer: &ReleasePointer) -> bool {
    let file = folder.join(&pointer.site);
    let served = ServedRelease {
        release: pointer.release,
        sequence: pointer.sequence,
        time: pointer.time,
    };
    let expected = served.text();
    let end = Instant::now() + Duration::from_secs(RECEIVE_SERVED_SECONDS_MAX);
    while let Ok(text) = fs::read(&file) {
        if text == expected.as_bytes() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        thread::sleep(Duration::from_millis(RECEIVE_SERVED_PAUSE_MILLISECONDS));
    }
    false
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_acknowledgment_ends_the_wait() {
        let folder = tempfile::tempdir().unwrap();
        let pointer = ReleasePointer {
            site: "www".to_owned(),
            release: [0xab; 32],
            sequence: 3,
            time: 0,
            publisher: "ann".to_owned(),
        };
        assert!(!wait_until_served(folder.path(), &pointer), "no server");
        let served = ServedRelease {
            release: pointer.release,
            sequence: 3,
            time: 0,
        };
        fs::write(folder.path().join("www"), served.text()).unwrap();
        assert!(wait_until_served(folder.path(), &pointer));
    }
}
