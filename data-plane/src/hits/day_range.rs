//! Range of days for a report on hit counts. Pure.

use base::clock::civil;
use wire::date::parse_rfc3339;

/// Days from `first` to `last`, both included. A day is counted from 1970-01-01 UTC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DayRange {
    /// First day.
    pub first: u32,
    /// Last day, not before the first.
    pub last: u32,
}

impl DayRange {
    /// Returns true if the range has the day.
    pub(super) fn has(self, day: u32) -> bool {
        (self.first..=self.last).contains(&day)
    }
}

/// Parses a day such as `2026-11-21`, from 1970 on; None for any other text.
pub fn parse_day(text: &str) -> Option<u32> {
    let is_date = text.len() == 10 && text.is_ascii();
    let seconds = is_date.then(|| parse_rfc3339(format!("{text}T00:00:00Z").as_bytes()))??;
    u32::try_from(seconds / 86_400).ok()
}

/// Formats a day as `2026-11-21`.
pub fn format_day(day: u32) -> String {
    let at = civil(u64::from(day) * 86_400);
    format!("{:04}-{:02}-{:02}", at.year, at.month, at.day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_parsed_as_it_is_formatted() {
        for day in [0, 59, 789, 20_780, 40_000] {
            assert_eq!(parse_day(&format_day(day)), Some(day), "{day}");
        }
        for wrong in [
            "",
            "2026-11",
            "2026-11-31",
            "2026-13-01",
            "21.11.2026",
            "2026-11-1",
            "2026-11-01Z",
            "2026-1é-1",
        ] {
            assert_eq!(parse_day(wrong), None, "{wrong}");
        }
    }
}
