//! Clock of a worker, read once for each wake-up and formatted once a second.
//!
//! Every request needs the time several times (the Date field, the log line, deadlines), and the time of
//! the wake-up is exact enough. Log lines carry UTC, which has no jumps, and a static binary contains no
//! time zones. The calendar is the proleptic Gregorian calendar from 1970 on.

use crate::sys;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Bytes of the field line `Date: ` + IMF-fixdate + CRLF.
pub const DATE_FIELD_BYTES: usize = 37;
/// Bytes of a log time like `[20/Nov/2026:18:39:14 +0000]`.
pub const LOG_TIME_BYTES: usize = 28;

/// Formatter of Unix seconds as IMF-fixdate (RFC 9110 §5.6.7). The caller supplies the function since
/// `base` has no HTTP.
pub type FormatDate = fn(u64) -> [u8; 29];

/// Clock of one worker, shared within its thread by reference. The type is not `Sync`.
pub struct Clock {
    /// Origin in nanoseconds of the system's monotonic clock; None for a clock of a test.
    origin_nanos: Option<u64>,
    format_date: FormatDate,
    micros: Cell<u64>,
    /// Unix time at `origin` in milliseconds, corrected once a second, since an operator may set the
    /// system's clock.
    unix_ms_at_origin: Cell<u64>,
    /// Unix second of the texts in `date_field` and `log_time`.
    second: Cell<u64>,
    corrected_at_second: Cell<u64>,
    date_field: Cell<[u8; DATE_FIELD_BYTES]>,
    log_time: Cell<[u8; LOG_TIME_BYTES]>,
}

impl Clock {
    /// Makes a clock that follows the system's clock. All clocks of a process take the same `origin`, so
    /// that their monotonic times are comparable.
    pub fn system(origin: Instant, format_date: FormatDate) -> Clock {
        let since = origin.elapsed().as_nanos() as u64;
        let origin_nanos = sys::monotonic_nanos().saturating_sub(since);
        let clock = Clock::new(Some(origin_nanos), format_date);
        clock.correct();
        clock.tick();
        clock.format();
        clock
    }

    /// Makes a clock for tests that stands at `unix_ms` until [`Clock::advance`].
    pub fn standing(unix_ms: u64, format_date: FormatDate) -> Clock {
        let clock = Clock::new(None, format_date);
        clock.unix_ms_at_origin.set(unix_ms);
        clock.format();
        clock
    }

    fn new(origin_nanos: Option<u64>, format_date: FormatDate) -> Clock {
        Clock {
            origin_nanos,
            format_date,
            micros: Cell::new(0),
            unix_ms_at_origin: Cell::new(0),
            second: Cell::new(0),
            corrected_at_second: Cell::new(0),
            date_field: Cell::new([0; DATE_FIELD_BYTES]),
            log_time: Cell::new([0; LOG_TIME_BYTES]),
        }
    }

    /// Reads the system's clock, once each time the worker wakes for a connection. All other methods return
    /// the time of the last tick.
    pub fn tick(&self) {
        if let Some(origin_nanos) = self.origin_nanos {
            self.micros.set(nanos_since(origin_nanos) / 1_000);
            if self.micros.get() / 1_000_000 != self.corrected_at_second.get() {
                self.correct();
            }
        }
        if self.unix_seconds() != self.second.get() {
            self.format();
        }
    }

    /// Advances a clock for tests by `micros`. Has no effect on a clock that follows the system's clock.
    pub fn advance(&self, micros: u64) {
        if self.origin_nanos.is_none() {
            self.micros.set(self.micros.get() + micros);
            self.tick();
        }
    }

    /// Returns milliseconds since the origin, for deadlines. The value never decreases.
    pub fn millis(&self) -> u64 {
        self.micros.get() / 1_000
    }

    /// Returns microseconds since the origin, for durations. The value never decreases.
    pub fn micros(&self) -> u64 {
        self.micros.get()
    }

    /// Returns milliseconds since 1970.
    pub fn unix_ms(&self) -> u64 {
        self.unix_ms_at_origin.get() + self.millis()
    }

    /// Returns seconds since 1970.
    pub fn unix_seconds(&self) -> u64 {
        self.unix_ms() / 1_000
    }

    /// Returns the whole Date field line with CRLF.
    pub fn date_field(&self) -> [u8; DATE_FIELD_BYTES] {
        self.date_field.get()
    }

    /// Returns the time in the format of the combined log, with brackets.
    pub fn log_time(&self) -> [u8; LOG_TIME_BYTES] {
        self.log_time.get()
    }

    fn correct(&self) {
        let Some(origin_nanos) = self.origin_nanos else {
            return;
        };
        let unix_ms = unix_ms_now();
        let elapsed = nanos_since(origin_nanos);
        self.unix_ms_at_origin
            .set(unix_ms.saturating_sub(elapsed / 1_000_000));
        self.corrected_at_second.set(elapsed / 1_000_000_000);
    }

    fn format(&self) {
        let second = self.unix_seconds();
        let mut field = *b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n";
        field[6..35].copy_from_slice(&(self.format_date)(second));
        self.date_field.set(field);
        self.log_time.set(log_time(second));
        self.second.set(second);
    }
}

/// Returns the nanoseconds since `origin_nanos` on the system's monotonic clock.
fn nanos_since(origin_nanos: u64) -> u64 {
    sys::monotonic_nanos().saturating_sub(origin_nanos)
}

/// Returns seconds since 1970 by the system's clock.
pub fn unix_seconds_now() -> u64 {
    unix_ms_now() / 1_000
}

/// Returns milliseconds since 1970 by the system's clock, or 0 for a clock set to an earlier time.
pub fn unix_ms_now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

/// Date and time in UTC.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UtcDateTime {
    /// Year, 1970 or later.
    pub year: u32,
    /// Month, 1 to 12.
    pub month: u32,
    /// Day of the month, 1 to 31.
    pub day: u32,
    /// Hour, 0 to 23.
    pub hour: u32,
    /// Minute, 0 to 59.
    pub minute: u32,
    /// Second, 0 to 59: Unix time has no leap seconds.
    pub second: u32,
}

/// Converts Unix seconds to date and time. The algorithm counts days in 400-year eras that begin in March,
/// so that the leap day comes last.
pub fn civil(unix_seconds: u64) -> UtcDateTime {
    let days = unix_seconds / 86_400 + 719_468;
    let second_of_day = (unix_seconds % 86_400) as u32;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
    let month = (if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    }) as u32;
    let year = (era * 400 + year_of_era + u64::from(month <= 2)) as u32;
    UtcDateTime {
        year,
        month,
        day,
        hour: second_of_day / 3_600,
        minute: second_of_day / 60 % 60,
        second: second_of_day % 60,
    }
}

/// Formats a time as `2026-11-21 00:42 UTC`.
pub fn format_utc(unix_seconds: u64) -> String {
    let at = civil(unix_seconds);
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02} UTC",
        at.year, at.month, at.day, at.hour, at.minute
    )
}

/// Formats the time of a day as `12:03:15 UTC`.
pub fn format_utc_time(unix_seconds: u64) -> String {
    let at = civil(unix_seconds);
    format!("{:02}:{:02}:{:02} UTC", at.hour, at.minute, at.second)
}

/// Formats a log time like `[20/Nov/2026:18:39:14 +0000]`.
pub fn log_time(unix_seconds: u64) -> [u8; LOG_TIME_BYTES] {
    let at = civil(unix_seconds);
    let mut out = *b"[00/Jan/0000:00:00:00 +0000]";
    digits(&mut out[1..3], at.day);
    out[4..7].copy_from_slice(MONTHS[at.month as usize - 1]);
    digits(&mut out[8..12], at.year);
    digits(&mut out[13..15], at.hour);
    digits(&mut out[16..18], at.minute);
    digits(&mut out[19..21], at.second);
    out
}

/// Formats a time like `2026-11-20T18:39:14.123Z` (RFC 3339).
pub fn rfc3339_ms(unix_ms: u64) -> [u8; 24] {
    let at = civil(unix_ms / 1_000);
    let mut out = *b"0000-00-00T00:00:00.000Z";
    digits(&mut out[0..4], at.year);
    digits(&mut out[5..7], at.month);
    digits(&mut out[8..10], at.day);
    digits(&mut out[11..13], at.hour);
    digits(&mut out[14..16], at.minute);
    digits(&mut out[17..19], at.second);
    digits(&mut out[20..23], (unix_ms % 1_000) as u32);
    out
}

fn digits(out: &mut [u8], mut number: u32) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// Returns milliseconds on a monotonic clock of the process, for times shared by threads. The value begins
/// above 0 and never decreases.
pub fn monotonic_ms() -> u64 {
    monotonic_ms_at(Instant::now())
}

/// Returns the milliseconds of [`monotonic_ms`] at `now`, for a caller that has read the clock already.
pub fn monotonic_ms_at(now: Instant) -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let origin = *ORIGIN.get_or_init(|| now);
    1_000 + now.saturating_duration_since(origin).as_millis() as u64
}

/// Returns the Unix time in milliseconds at which [`monotonic_ms`] was 0. The value stays the same until the system's
/// clock is set to another time, so an event in the past has the same time in each report.
pub fn monotonic_origin_unix_ms() -> u64 {
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    let known = KNOWN.load(Ordering::Relaxed);
    let present = unix_ms_now().saturating_sub(monotonic_ms());
    if known.abs_diff(present) < CLOCK_STEP_MS {
        return known;
    }
    KNOWN.store(present, Ordering::Relaxed);
    present
}

/// Difference of the two clocks in milliseconds, 1 s, from which the system's clock counts as set. Two readings one
/// after the other differ by less.
const CLOCK_STEP_MS: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn format(second: u64) -> [u8; 29] {
        let mut out = *b"date of second 00000000000000";
        digits(&mut out[20..29], second as u32);
        out
    }

    #[test]
    fn times_are_formatted() {
        assert_eq!(format_utc_time(1_795_199_954), "18:39:14 UTC");
        assert_eq!(&log_time(0), b"[01/Jan/1970:00:00:00 +0000]");
        assert_eq!(&log_time(1_795_199_954), b"[20/Nov/2026:18:39:14 +0000]");
        assert_eq!(&rfc3339_ms(1_795_199_954_123), b"2026-11-20T18:39:14.123Z");
        assert_eq!(&rfc3339_ms(951_782_400_000), b"2000-02-29T00:00:00.000Z");
        assert_eq!(&rfc3339_ms(4_107_542_399_999), b"2100-02-28T23:59:59.999Z");
        assert_eq!(&rfc3339_ms(4_107_542_400_000), b"2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn an_event_in_the_past_keeps_its_time() {
        let origin_ms = monotonic_origin_unix_ms();
        assert_eq!(monotonic_origin_unix_ms(), origin_ms);
        let now_ms = origin_ms + monotonic_ms();
        assert!(now_ms.abs_diff(unix_ms_now()) <= 2 * CLOCK_STEP_MS);
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut last = civil(0);
        for day in 1..146_097_u64 {
            let next = civil(day * 86_400);
            let next_day = next.day == last.day + 1 && next.month == last.month;
            let next_month = next.day == 1
                && last.day >= 28
                && (next.month == last.month + 1 && next.year == last.year
                    || next.month == 1 && last.month == 12 && next.year == last.year + 1);
            assert!(next_day || next_month, "{last:?} {next:?}");
            last = next;
        }
        assert_eq!((last.year, last.month, last.day), (2369, 12, 31));
    }

    #[test]
    fn a_virtual_clock_moves_only_by_advance() {
        let clock = Clock::standing(1_795_199_954_900, format);
        assert_eq!((clock.millis(), clock.unix_ms()), (0, 1_795_199_954_900));
        assert_eq!(&clock.log_time(), b"[20/Nov/2026:18:39:14 +0000]");
        let first = clock.date_field();
        assert!(first.starts_with(b"Date: date of") && first.ends_with(b"\r\n"));
        clock.tick();
        assert_eq!(clock.date_field(), first);
        clock.advance(100_500);
        assert_eq!((clock.millis(), clock.micros()), (100, 100_500));
        assert_eq!(clock.unix_seconds(), 1_795_199_955);
        assert_eq!(&clock.log_time(), b"[20/Nov/2026:18:39:15 +0000]");
        assert_ne!(clock.date_field(), first);
    }

    #[test]
    fn the_systems_clock_agrees_with_the_system() {
        let before = unix_ms_now();
        let clock = Clock::system(Instant::now(), format);
        clock.tick();
        let after = unix_ms_now();
        // The time is rounded to milliseconds twice.
        assert!(clock.unix_ms() + 2 >= before && clock.unix_ms() <= after + 2);
        assert_eq!(clock.log_time(), log_time(clock.unix_seconds()));
        let micros = clock.micros();
        clock.tick();
        assert!(clock.micros() >= micros);
    }
}
