//! Wait until the server serves a release: after each publication, the server states the release and the sequence of a
//! site in a file.

use crate::base::digest::hex;
use crate::limits::{RECEIVE_SERVED_PAUSE_MILLISECONDS, RECEIVE_SERVED_SECONDS_MAX};
use crate::wire::release_pointer::ReleasePointer;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Returns the text by which the server states that all workers serve the release of a pointer.
pub fn served_text(pointer: &ReleasePointer) -> String {
    let release = hex(&pointer.release);
    format!("release {release}\nsequence {}\n", pointer.sequence)
}

/// Waits until all workers serve the release of a pointer. Returns false if the server never stated a release of the
/// site, or states no new one within some seconds.
pub(super) fn wait_until_served(folder: &Path, pointer: &ReleasePointer) -> bool {
    let file = folder.join(&pointer.site);
    let expected = served_text(pointer);
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
    fn the_statement_names_the_release_and_the_sequence() {
        let folder = tempfile::tempdir().unwrap();
        let pointer = ReleasePointer {
            site: "www".to_owned(),
            release: [0xab; 32],
            sequence: 3,
            time: 0,
            publisher: "ann".to_owned(),
        };
        assert!(!wait_until_served(folder.path(), &pointer), "no server");
        fs::write(folder.path().join("www"), served_text(&pointer)).unwrap();
        assert!(wait_until_served(folder.path(), &pointer));
    }
}
