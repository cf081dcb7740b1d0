//! Work of a server that starts, by the time of processors that the server has used. A start may read any number of files, and
//! a start that hangs uses no processor, so the time says more than a clock and needs no word of the server.

use super::limits::WORK_MILLISECONDS_MIN;
use std::fs;
use std::time::Duration;

/// Milliseconds of a tick in the files of /proc: the kernel shows 100 ticks a second on every machine (USER_HZ).
const TICK_MILLISECONDS: u64 = 10;

/// Work of a start, as seen by the supervisor.
#[derive(Debug, Default)]
pub(super) struct StartWork {
    /// Ticks at the last progress.
    counted: u64,
    /// Time of the last look.
    looked: Duration,
}

impl StartWork {
    /// Creates the record of a start at the time `now`.
    pub(super) fn new(now: Duration) -> StartWork {
        StartWork {
            counted: 0,
            looked: now,
        }
    }

    /// Returns true once in each interval: a usual start is over before the first look.
    pub(super) fn is_due(&mut self, now: Duration, interval: Duration) -> bool {
        let is_due = now.saturating_sub(self.looked) >= interval;
        if is_due {
            self.looked = now;
        }
        is_due
    }

    /// Returns true if the process `pid` has used the processor for [`WORK_MILLISECONDS_MIN`] since the last progress. A
    /// container without /proc shows nothing, and then every start counts as work.
    pub(super) fn has_gone_on(&mut self, pid: u32) -> bool {
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            return true;
        };
        let Some(ticks) = used_ticks(&stat) else {
            return true;
        };
        let goes_on =
            ticks.saturating_sub(self.counted) * TICK_MILLISECONDS >= WORK_MILLISECONDS_MIN;
        if goes_on {
            self.counted = ticks;
        }
        goes_on
    }
}

/// Returns the time of a process and of its ended children in user and system mode, from the text of /proc/PID/stat. The name
/// of the process, in parentheses, may have blanks and parentheses.
fn used_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    // `utime`, `stime`, `cutime` and `cstime` are the fields 14 to 17, and the state after the name is field 3.
    let times = fields.split_whitespace().skip(11).take(4);
    let ticks = times.map(str::parse::<u64>).collect::<Result<Vec<_>, _>>();
    ticks
        .ok()
        .filter(|ticks| ticks.len() == 4)
        .map(|ticks| ticks.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_a_process_are_added() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 10 20 300 4000 20 0 9 0 5";
        assert_eq!(used_ticks(stat), Some(4_330));
        for bad in [
            "",
            "7 (a) S 1 7",
            "7 (a) S 1 7 7 0 -1 4 1 2 3 4 10 x 300 4000 20",
        ] {
            assert_eq!(used_ticks(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_look_is_due_once_in_an_interval() {
        let second = Duration::from_secs;
        let mut work = StartWork::new(second(5));
        let looks = [5, 14, 15, 16, 24, 30, 39, 40].map(|now| work.is_due(second(now), second(10)));
        assert_eq!(looks, [false, false, true, false, false, true, false, true]);
    }

    #[test]
    fn a_process_that_computes_goes_on() {
        let mut work = StartWork::default();
        let own = std::process::id();
        // The sum of the loop depends on the clock of the processor alone, and ends when the kernel has counted enough.
        let mut sum = 0_u64;
        while !work.has_gone_on(own) {
            sum = (0..100_000).fold(sum, |sum, it| sum.wrapping_mul(3) ^ it);
        }
        assert!(sum != 1 && work.counted >= WORK_MILLISECONDS_MIN / TICK_MILLISECONDS);
        assert!(StartWork::default().has_gone_on(u32::MAX), "without /proc");
    }
}
