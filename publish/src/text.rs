//! Numbers, sizes, times and paths as text.

use std::io::ErrorKind;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use wire::date::civil;

/// Returns a size with a unit: `512 B`, `1.4 KB`, `23 MB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KB", "MB", "GB", "TB", "PB"];
    if count < 1_000 {
        return format!("{count} B");
    }
    let mut size = count as f64;
    let mut unit = "B";
    for next in UNITS {
        // 999.5 would be shown as 1000.
        if size < 999.5 {
            break;
        }
        size /= 1_000.0;
        unit = next;
    }
    if size < 9.95 {
        format!("{size:.1} {unit}")
    } else {
        format!("{size:.0} {unit}")
    }
}

/// Returns a count with a noun: `1 file`, `2 files`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        number => format!("{number} {noun}s"),
    }
}

/// Returns a time in UTC: `2026-03-01 09:30:00 UTC`.
pub(crate) fn time(unix_seconds: u64) -> String {
    let at = civil(unix_seconds);
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC",
        at.year, at.month, at.day, at.hour, at.minute, at.second
    )
}

/// Returns a duration in seconds: `0.8 s`, `12 s`, `3 min`.
pub(crate) fn seconds(seconds: f64) -> String {
    match seconds {
        ..9.95 => format!("{seconds:.1} s"),
        ..120.0 => format!("{seconds:.0} s"),
        _ => format!("{:.0} min", seconds / 60.0),
    }
}

/// Returns a path of a release or of the source for messages.
pub(crate) fn path(path: &[u8]) -> String {
    String::from_utf8_lossy(path).escape_debug().to_string()
}

/// Returns a path of the file system for messages.
pub(crate) fn file(path: &Path) -> String {
    path.display().to_string()
}

/// Returns a text without control characters, which could write over the lines of a terminal.
pub(crate) fn visible(text: &str) -> String {
    let escaped = |character: char| match character {
        character if character.is_control() => character.escape_default().to_string(),
        // Signs that change the direction of a text hide a part of a command.
        '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            character.escape_unicode().to_string()
        }
        character => character.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// Returns the reason of a failed system call in words, without its number.
pub(crate) fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "there is no such file or folder".to_owned(),
        ErrorKind::PermissionDenied => "this account has no permission".to_owned(),
        ErrorKind::NotADirectory => "a part of the path is no folder".to_owned(),
        ErrorKind::StorageFull => "the disk is full".to_owned(),
        ErrorKind::ReadOnlyFilesystem => "the file system is read-only".to_owned(),
        _ => {
            let text = error.to_string();
            let words = text.split_once(" (os error ").map(|(words, _)| words);
            words.unwrap_or(&text).to_owned()
        }
    }
}

/// Returns the time in seconds since 1970.
pub(crate) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_units() {
        for (count, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 KB"),
            (12_345, "12 KB"),
            (999_600, "1.0 MB"),
            (5_000_000_000, "5.0 GB"),
        ] {
            assert_eq!(bytes(count), text);
        }
        assert_eq!(time(1_763_899_200), "2025-11-23 12:00:00 UTC");
        assert_eq!(count(1, "file"), "1 file");
        assert_eq!(seconds(0.04), "0.0 s");
        assert_eq!(seconds(300.0), "5 min");
    }

    #[test]
    fn errors_of_the_system_are_told_in_words() {
        let of = |code: i32| reason(&std::io::Error::from_raw_os_error(code));
        assert_eq!(of(2), "there is no such file or folder");
        assert_eq!(of(13), "this account has no permission");
        assert_eq!(of(40), "Too many levels of symbolic links");
    }
}
