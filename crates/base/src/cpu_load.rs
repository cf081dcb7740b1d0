//! Load of the processors, for work that may be done less thoroughly while no processor is idle.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Time between two looks at the load, in milliseconds.
const LOOK_MILLISECONDS: u64 = 250;
/// Idle share of the processors, in percent, below which they count as busy.
const IDLE_PERCENT_MIN: u64 = 10;

/// Load of the processors of the machine, shared by all threads.
pub struct CpuLoad {
    /// Monotonic time of the last look, in milliseconds.
    looked_ms: AtomicU64,
    is_busy: AtomicBool,
    last: Mutex<CpuTicks>,
}

/// Time of the processors since the start of the system, in ticks.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
struct CpuTicks {
    idle: u64,
    all: u64,
}

impl Default for CpuLoad {
    fn default() -> CpuLoad {
        CpuLoad::new()
    }
}

impl CpuLoad {
    /// Makes the load before the first look.
    pub const fn new() -> CpuLoad {
        CpuLoad {
            looked_ms: AtomicU64::new(0),
            is_busy: AtomicBool::new(false),
            last: Mutex::new(CpuTicks { idle: 0, all: 0 }),
        }
    }

    /// Returns true if hardly any processor was idle lately. Looks at the load at most every 250 ms, since that costs a
    /// system call of some microseconds. Where the system does not report the load, the processors count as idle.
    pub fn is_busy(&self, now_ms: u64) -> bool {
        let looked_ms = self.looked_ms.load(Relaxed);
        let is_due = now_ms >= looked_ms.saturating_add(LOOK_MILLISECONDS) || looked_ms == 0;
        if is_due
            && self
                .looked_ms
                .compare_exchange(looked_ms, now_ms.max(1), Relaxed, Relaxed)
                .is_ok()
        {
            let ticks = std::fs::read_to_string("/proc/stat")
                .ok()
                .and_then(|text| CpuTicks::parse(&text));
            if let (Some(ticks), Ok(mut last)) = (ticks, self.last.lock()) {
                // A look long ago says nothing about the present.
                let is_recent = now_ms < looked_ms.saturating_add(8 * LOOK_MILLISECONDS);
                self.is_busy
                    .store(is_recent && ticks.is_busy_since(*last), Relaxed);
                *last = ticks;
            }
        }
        self.is_busy.load(Relaxed)
    }
}

impl CpuTicks {
    /// Reads the first line of `/proc/stat`: `cpu  user nice system idle iowait irq softirq steal …` (proc_stat(5)).
    fn parse(text: &str) -> Option<CpuTicks> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let mut ticks = CpuTicks::default();
        // The ticks of guests are part of `user` and `nice`.
        for (nth, word) in line.split_ascii_whitespace().take(8).enumerate() {
            let count: u64 = word.parse().ok()?;
            ticks.all = ticks.all.saturating_add(count);
            if matches!(nth, 3 | 4) {
                ticks.idle = ticks.idle.saturating_add(count);
            }
        }
        Some(ticks)
    }

    fn is_busy_since(self, last: CpuTicks) -> bool {
        let all = self.all.saturating_sub(last.all);
        let idle = self.idle.saturating_sub(last.idle);
        all > 0 && idle.saturating_mul(100) < all.saturating_mul(IDLE_PERCENT_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_idle_share_decides() {
        let parse = |line: &str| CpuTicks::parse(&format!("{line}\ncpu0 1 2 3 4\n"));
        let last = parse("cpu  100 0 50 800 50 0 0 0 0 0").unwrap();
        assert_eq!(
            last,
            CpuTicks {
                idle: 850,
                all: 1_000
            }
        );
        for (line, is_busy) in [
            ("cpu  180 0 60 809 50 0 0 1 0 0", true),
            ("cpu  180 0 60 810 50 0 0 0 0 0", false),
            ("cpu  190 0 60 800 50 0 0 0 90 0", true),
            ("cpu  100 0 50 800 50 0 0 0 0 0", false),
        ] {
            let ticks = parse(line).unwrap();
            assert_eq!(ticks.is_busy_since(last), is_busy, "{line}");
        }
        assert_eq!(parse("intr 1 2"), None);
        assert_eq!(parse("cpu  x"), None);
    }

    #[test]
    fn a_look_is_taken_at_most_every_250_ms() {
        let load = CpuLoad::default();
        load.is_busy(1_000);
        load.is_busy(1_249);
        assert_eq!(load.looked_ms.load(Relaxed), 1_000);
        load.is_busy(1_250);
        assert_eq!(load.looked_ms.load(Relaxed), 1_250);
    }
}
