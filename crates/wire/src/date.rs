//! Dates of HTTP (RFC 9110 §5.6.7) and of RFC 3339. All dates are UTC, and no time zone database is needed.

/// Date and time in the civil calendar, UTC.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct HttpDateTime {
    /// Year, 1970 to 9999.
    pub year: u16,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
    /// Hour, 0 to 23.
    pub hour: u8,
    /// Minute, 0 to 59.
    pub minute: u8,
    /// Second, 0 to 59.
    pub second: u8,
    /// Day of the week, 0 = Sunday.
    pub weekday: u8,
}

impl HttpDateTime {
    /// Returns the abbreviated month, `Jan` to `Dec`.
    pub fn month_name(&self) -> &'static str {
        MONTHS[usize::from(self.month - 1) % 12]
    }

    /// Returns the abbreviated day of the week, `Sun` to `Sat`.
    pub fn weekday_name(&self) -> &'static str {
        &WEEKDAYS[usize::from(self.weekday) % 7][..3]
    }
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
const DAY_SECONDS: u64 = 86_400;
/// 9999-12-31 23:59:59, the last second that fits into the four-digit year of the formats.
const LAST_SECOND: u64 = 253_402_300_799;

/// Converts seconds since 1970 to the civil date. Seconds past the year 9999 become its last second.
pub fn civil(unix_seconds: u64) -> HttpDateTime {
    let unix_seconds = unix_seconds.min(LAST_SECOND);
    let days = unix_seconds / DAY_SECONDS;
    let second_of_day = (unix_seconds % DAY_SECONDS) as u32;
    // Howard Hinnant's days-to-civil: a year begins in March, which puts the leap day last.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    HttpDateTime {
        year: year as u16,
        month: month as u8,
        day: day as u8,
        hour: (second_of_day / 3600) as u8,
        minute: (second_of_day / 60 % 60) as u8,
        second: (second_of_day % 60) as u8,
        // 1970-01-01 was a Thursday.
        weekday: ((days + 4) % 7) as u8,
    }
}

/// Formats a date as IMF-fixdate: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub fn format_imf(unix_seconds: u64) -> [u8; 29] {
    let when = civil(unix_seconds);
    let mut text = *b"Sun, 00 Jan 0000 00:00:00 GMT";
    text[..3].copy_from_slice(when.weekday_name().as_bytes());
    put_digits(&mut text[5..7], u16::from(when.day));
    text[8..11].copy_from_slice(when.month_name().as_bytes());
    put_digits(&mut text[12..16], when.year);
    put_digits(&mut text[17..19], u16::from(when.hour));
    put_digits(&mut text[20..22], u16::from(when.minute));
    put_digits(&mut text[23..25], u16::from(when.second));
    text
}

/// Parses any of the three HTTP date formats. `None` if malformed or before 1970. Names of days and months
/// match in any case, as RFC 9111 §4.2 asks of a cache.
///
/// The two-digit year of the RFC 850 format means 1970 to 2069: the fifty-year rule needs a clock, and the
/// format has been out of use for decades.
pub fn parse_http_date(text: &[u8]) -> Option<u64> {
    match text.len() {
        29 => parse_imf(text),
        24 => parse_asctime(text),
        _ => parse_rfc850(text),
    }
}

/// Parses a date and time of RFC 3339 §5.6, such as `2026-11-21T00:42:48.5+01:00`; the fraction is dropped.
/// `None` if malformed or before 1970.
pub fn parse_rfc3339(text: &[u8]) -> Option<u64> {
    let [
        y1,
        y2,
        y3,
        y4,
        b'-',
        o1,
        o2,
        b'-',
        d1,
        d2,
        b'T' | b't',
        rest @ ..,
    ] = text
    else {
        return None;
    };
    let (month, day) = (digits(&[*o1, *o2])?, digits(&[*d1, *d2])?);
    if !(1..=12).contains(&month) {
        return None;
    }
    let date = days(digits(&[*y1, *y2, *y3, *y4])?, month, day)?;
    let (time, mut zone) = rest.split_at_checked(8)?;
    if let Some(fraction) = zone.strip_prefix(b".") {
        let end = fraction.iter().position(|byte| !byte.is_ascii_digit())?;
        zone = fraction.get(end..).filter(|_| end > 0)?;
    }
    let utc = date * DAY_SECONDS + time_of_day(time)?;
    let offset = |h: &[u8], m: &[u8]| Some((digits(h)? * 60 + digits(m)?) * 60);
    match zone {
        [b'Z' | b'z'] => Some(utc),
        [b'+', h1, h2, b':', m1, m2] => utc.checked_sub(offset(&[*h1, *h2], &[*m1, *m2])?),
        [b'-', h1, h2, b':', m1, m2] => utc.checked_add(offset(&[*h1, *h2], &[*m1, *m2])?),
        _ => None,
    }
}

/// Parses `Sun, 06 Nov 1994 08:49:37 GMT`.
fn parse_imf(text: &[u8]) -> Option<u64> {
    let rest = without_weekday(text, 3)?;
    let [
        b',',
        b' ',
        d1,
        d2,
        b' ',
        month @ ..,
        b' ',
        y1,
        y2,
        y3,
        y4,
        b' ',
        _,
        _,
        b':',
        _,
        _,
        b':',
        _,
        _,
        b' ',
        b'G' | b'g',
        b'M' | b'm',
        b'T' | b't',
    ] = rest
    else {
        return None;
    };
    let date = days(
        digits(&[*y1, *y2, *y3, *y4])?,
        month_of(month)?,
        digits(&[*d1, *d2])?,
    )?;
    Some(date * DAY_SECONDS + time_of_day(&text[17..25])?)
}

/// Parses `Sunday, 06-Nov-94 08:49:37 GMT`.
fn parse_rfc850(text: &[u8]) -> Option<u64> {
    let rest = without_weekday(text, usize::MAX)?;
    let [
        b',',
        b' ',
        d1,
        d2,
        b'-',
        month @ ..,
        b'-',
        y1,
        y2,
        b' ',
        _,
        _,
        b':',
        _,
        _,
        b':',
        _,
        _,
        b' ',
        b'G' | b'g',
        b'M' | b'm',
        b'T' | b't',
    ] = rest
    else {
        return None;
    };
    let short = digits(&[*y1, *y2])?;
    let year = if short < 70 {
        2000 + short
    } else {
        1900 + short
    };
    let date = days(year, month_of(month)?, digits(&[*d1, *d2])?)?;
    Some(date * DAY_SECONDS + time_of_day(&rest[rest.len() - 12..rest.len() - 4])?)
}

/// Parses `Sun Nov  6 08:49:37 1994`.
fn parse_asctime(text: &[u8]) -> Option<u64> {
    let rest = without_weekday(text, 3)?;
    let [
        b' ',
        m1,
        m2,
        m3,
        b' ',
        d1,
        d2,
        b' ',
        time @ ..,
        b' ',
        y1,
        y2,
        y3,
        y4,
    ] = rest
    else {
        return None;
    };
    let d1 = if *d1 == b' ' { b'0' } else { *d1 };
    let month = month_of(&[*m1, *m2, *m3])?;
    let date = days(digits(&[*y1, *y2, *y3, *y4])?, month, digits(&[d1, *d2])?)?;
    Some(date * DAY_SECONDS + time_of_day(time)?)
}

/// Strips the name of a weekday, abbreviated to at most `bytes_max` bytes, and returns the rest of the
/// date.
fn without_weekday(text: &[u8], bytes_max: usize) -> Option<&[u8]> {
    WEEKDAYS.iter().find_map(|name| {
        let (first, rest) = text.split_at_checked(name.len().min(bytes_max))?;
        name.as_bytes()[..first.len()]
            .eq_ignore_ascii_case(first)
            .then_some(rest)
    })
}

/// Parses `08:49:37` into seconds; a leap second is allowed.
fn time_of_day(text: &[u8]) -> Option<u64> {
    let [h1, h2, b':', m1, m2, b':', s1, s2] = text else {
        return None;
    };
    let (hour, minute, second) = (
        digits(&[*h1, *h2])?,
        digits(&[*m1, *m2])?,
        digits(&[*s1, *s2])?,
    );
    (hour < 24 && minute < 60 && second <= 60).then_some(hour * 3600 + minute * 60 + second)
}

/// Returns the days since 1970-01-01; `None` for a day missing from the calendar.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let month_days = match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if year < 1970 || day == 0 || day > month_days {
        return None;
    }
    // Inverse of `civil`.
    let march_year = year - u64::from(month <= 2);
    let era = march_year / 400;
    let year_of_era = march_year % 400;
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

fn month_of(name: &[u8]) -> Option<u64> {
    let place = MONTHS
        .iter()
        .position(|month| month.as_bytes().eq_ignore_ascii_case(name))?;
    Some(place as u64 + 1)
}

fn digits(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0, |number, byte| {
        byte.is_ascii_digit()
            .then(|| number * 10 + u64::from(byte - b'0'))
    })
}

fn put_digits(place: &mut [u8], mut number: u16) {
    for byte in place.iter_mut().rev() {
        *byte = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3339_dates_are_parsed() {
        for (text, unix) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2026-11-21T00:42:48Z", Some(1_795_221_768)),
            ("2026-11-21t01:42:48.123456789+01:00", Some(1_795_221_768)),
            ("2026-11-20T23:12:48-01:30", Some(1_795_221_768)),
            ("2026-11-21T00:42:48", None),
            ("2026-11-21T00:42:48.Z", None),
            ("2026-11-21 00:42:48Z", None),
            ("2026-02-30T00:00:00Z", None),
            ("2026-13-01T00:00:00Z", None),
            ("1969-12-31T23:59:59Z", None),
            ("1970-01-01T00:00:00+01:00", None),
            ("2026-11-21T00:42:48.", None),
            ("2026-11-21T00", None),
        ] {
            assert_eq!(parse_rfc3339(text.as_bytes()), unix, "{text}");
        }
    }
    use proptest::prelude::*;

    #[test]
    fn known_dates_are_formatted_and_parsed() {
        let table = [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (951_868_799, "Tue, 29 Feb 2000 23:59:59 GMT"),
            (951_868_800, "Wed, 01 Mar 2000 00:00:00 GMT"),
            (1_000_000_000, "Sun, 09 Sep 2001 01:46:40 GMT"),
            (1_234_567_890, "Fri, 13 Feb 2009 23:31:30 GMT"),
            (1_709_164_800, "Thu, 29 Feb 2024 00:00:00 GMT"),
            (2_147_483_647, "Tue, 19 Jan 2038 03:14:07 GMT"),
            (4_102_444_800, "Fri, 01 Jan 2100 00:00:00 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (LAST_SECOND, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ];
        for (seconds, text) in table {
            assert_eq!(String::from_utf8_lossy(&format_imf(seconds)), text);
            assert_eq!(parse_http_date(text.as_bytes()), Some(seconds), "{text}");
        }
        assert_eq!(format_imf(u64::MAX), format_imf(LAST_SECOND));
    }

    #[test]
    fn obsolete_formats_are_parsed() {
        let table = [
            ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
            ("Sun Nov  6 08:49:37 1994", 784_111_777),
            ("Thursday, 01-Jan-70 00:00:00 GMT", 0),
            ("Tuesday, 31-Dec-69 23:59:59 GMT", 3_155_759_999),
            ("Wednesday, 09-Nov-94 08:49:37 GMT", 784_370_977),
            ("Wed Nov 16 08:49:37 1994", 784_975_777),
            // The day of the week is not checked against the date.
            ("Mon, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Sat, 31 Dec 2016 23:59:60 GMT", 1_483_228_800),
            // Names of days, months and the time zone match in any case.
            ("Sun, 06 Nov 1994 08:49:37 gmt", 784_111_777),
            ("sUN, 06 nOV 1994 08:49:37 Gmt", 784_111_777),
            ("sunday, 06-NOV-94 08:49:37 gMT", 784_111_777),
            ("SUN nov  6 08:49:37 1994", 784_111_777),
        ];
        for (text, seconds) in table {
            assert_eq!(parse_http_date(text.as_bytes()), Some(seconds), "{text}");
        }
    }

    #[test]
    fn malformed_dates_are_refused() {
        let table = [
            "",
            "0",
            "784111777",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 29 Feb 1900 08:49:37 GMT",
            "Thu, 29 Feb 2023 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 06 Nov 1994 08-49-37 GMT",
            "Sun, 06 Nov 1969 08:49:37 GMT",
            "Xyz, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            " Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sunday, 06 Nov 94 08:49:37 GMT",
            "Sun, 06-Nov-94 08:49:37 GMT",
            "Sun Nov 6 08:49:37 1994",
            "Sun Nov  6 08:49:37 94",
            "Sun Nov  6 08:49:37 1994 GMT",
            "Sun Nov  0 08:49:37 1994",
            "Sunday, 06-Nov-94 08:49:37 GMT, Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT, Sun, 06 Nov 1994 08:49:37 GMT",
        ];
        for text in table {
            assert_eq!(parse_http_date(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn formatted_dates_are_parsed_back(seconds in 0..=LAST_SECOND) {
            prop_assert_eq!(parse_http_date(&format_imf(seconds)), Some(seconds));
        }

        #[test]
        fn arbitrary_bytes_never_panic(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            parse_http_date(&text);
        }

        #[test]
        fn near_dates_never_panic(text in "(Sun|Sunday|Sun,) ?[0-9 A-Za-z:-]{15,30}(GMT)?") {
            parse_http_date(text.as_bytes());
        }
    }
}
