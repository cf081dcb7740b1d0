//! State of the threads of a silent server, for the log: what each thread does, and where in the kernel it waits.

use super::limits::{THREAD_FILE_BYTES_MAX, THREADS_SHOWN_MAX};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// Returns a line for each thread of the process `pid`, at most [`THREADS_SHOWN_MAX`] and a line about the rest.
pub(super) fn thread_lines(pid: u32) -> Vec<String> {
    let folder = format!("/proc/{pid}/task");
    let threads = match fs::read_dir(&folder) {
        Ok(threads) => threads,
        Err(error) => return vec![format!("{folder}: {error}")],
    };
    let numbers = threads.filter_map(|it| it.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    let left = numbers.len().saturating_sub(THREADS_SHOWN_MAX);
    let shown = numbers.iter().take(THREADS_SHOWN_MAX);
    let mut lines: Vec<String> = shown
        .map(|number| {
            let thread = Path::new(&folder).join(number.to_string());
            let status = start_of(&thread.join("status"));
            line(*number, &status, start_of(&thread.join("wchan")).trim())
        })
        .collect();
    if left > 0 {
        lines.push(format!("and {left} more threads"));
    }
    lines
}

/// Returns the line of a thread from the text of its files. The kernel names the place of a wait to root alone, and `0`
/// otherwise.
fn line(number: u32, status: &str, place: &str) -> String {
    let field = |name| {
        let value = status.lines().find_map(|line| line.strip_prefix(name));
        value.map_or("?", str::trim)
    };
    let mut line = format!("thread {number} {}: {}", field("Name:"), field("State:"));
    if !matches!(place, "" | "0") {
        line += &format!(", waits in {place}");
    }
    line
}

/// Returns the first [`THREAD_FILE_BYTES_MAX`] of a file; an empty text for a thread that has ended.
fn start_of(file: &Path) -> String {
    let mut text = Vec::new();
    if let Ok(file) = File::open(file) {
        let _ = file.take(THREAD_FILE_BYTES_MAX).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_a_line() {
        let status = "Name:\tanthill-0\nUmask:\t0022\nState:\tD (disk sleep)\n";
        let expected = "thread 7 anthill-0: D (disk sleep), waits in io_schedule";
        assert_eq!(line(7, status, "io_schedule"), expected);
        assert_eq!(line(7, status, "0"), "thread 7 anthill-0: D (disk sleep)");
        assert_eq!(line(7, "", ""), "thread 7 ?: ?");
    }

    #[test]
    fn threads_of_a_process_are_listed() {
        let lines = thread_lines(std::process::id());
        assert!(lines[0].starts_with("thread "), "{lines:?}");
        assert!(thread_lines(u32::MAX)[0].starts_with("/proc/4294967295/task: "));
    }
}
