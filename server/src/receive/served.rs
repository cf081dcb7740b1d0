//! Wait until the server serves a release: the server acknowledges each release of a site in a file.

use crate::limits::{
    RECEIVE_FIRST_SERVED_MILLISECONDS_MAX, RECEIVE_SERVED_MILLISECONDS_MAX,
    RECEIVE_SERVED_PAUSE_MILLISECONDS,
};
use crate::site::ServedRelease;
use crate::wire::release_pointer::ReleasePointer;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Waits until all workers serve the release of a pointer. Returns false if the server acknowledges no new release of
/// the site within some seconds.
pub(super) fn wait_until_served(folder: &Path, pointer: &ReleasePointer) -> bool {
    let file = folder.join(&pointer.site);
    let served = ServedRelease {
        release: pointer.release,
        sequence: pointer.sequence,
        time: pointer.time,
    };
    let expected = served.text();
    let begin = Instant::now();
    loop {
        let text = fs::read(&file);
        if text.as_ref().is_ok_and(|text| text == expected.as_bytes()) {
            return true;
        }
        let bound = match text {
            Ok(_) => RECEIVE_SERVED_MILLISECONDS_MAX,
            Err(_) => RECEIVE_FIRST_SERVED_MILLISECONDS_MAX,
        };
        if begin.elapsed() >= Duration::from_millis(bound) {
            return false;
        }
        thread::sleep(Duration::from_millis(RECEIVE_SERVED_PAUSE_MILLISECONDS));
    }
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
