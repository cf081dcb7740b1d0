//! The command `hits`: prints the hit counts of the running server, of all days or of a range of days.

use super::name_or_place::ask_about;
use crate::admin::command::{Command, HitsFormat};
use crate::cli::arguments::ParsedArguments;
use crate::cli::shared_options::{CLIENT_DETAILS, CONTROL, CommandSpec, JSON, STATE, WHAT};
use crate::config::OperatorError;
use cli::{CommandOption, Operand, ValueKind};
use data_plane::hits::{DayRange, format_day, parse_day, today};
use data_plane::limits::HITS_DAYS_MAX;
use std::process::ExitCode;
use std::time::Duration;

/// The command `hits`.
pub(super) const HITS: CommandSpec = CommandSpec {
    name: "hits",
    about: "Print hit counts of a site",
    details: &[
        "SITE is a name of the site as written in the configuration; without SITE, all sites \
         are counted, and DIR|FILE may follow directly. Views are listed by day (UTC) and by page, with separate figures for \
         bots and assets.",
        "A range of days has the sums of the days, and the views of each page within the range. \
         A site keeps its last 400 days, and a page its last 31 days with views.",
        CLIENT_DETAILS,
    ],
    operands: &[
        Operand {
            name: "SITE",
            required: false,
            values: ValueKind::Any,
        },
        WHAT,
    ],
    options: &[
        CommandOption {
            long: "days",
            short: None,
            value: Some(("NUMBER", ValueKind::Any)),
            about: "Print the last days, with today",
        },
        CommandOption {
            long: "from",
            short: None,
            value: Some(("DAY", ValueKind::Any)),
            about: "Print the days from DAY on, such as 2026-11-01",
        },
        CommandOption {
            long: "to",
            short: None,
            value: Some(("DAY", ValueKind::Any)),
            about: "Print the days up to DAY, instead of up to today",
        },
        JSON,
        STATE,
        CONTROL,
    ],
    run: hits,
};

fn hits(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let format = match typed.has("json") {
        true => HitsFormat::Json,
        false => HitsFormat::Text,
    };
    let text = |name| typed.text(name);
    let (days, from, to) = (text("days")?, text("from")?, text("to")?);
    let range = day_range([&days, &from, &to].map(Option::as_deref), today())?;
    let command = |site: Option<&str>| {
        let command = Command::hits(format, site, range);
        command.ok_or_else(|| {
            OperatorError::new("SITE is not a host name")
                .help("write a name of the site as in the configuration")
        })
    };
    ask_about(typed, 0, "site", command, Duration::from_secs(30))
}

/// Returns the range of days of the options `--days`, `--from` and `--to`; None without the options.
fn day_range(
    [days, from, to]: [Option<&str>; 3],
    today: u32,
) -> Result<Option<DayRange>, OperatorError> {
    if days.is_some() && (from.is_some() || to.is_some()) {
        let what = "`--days` can't be given together with `--from` or `--to`";
        let help = "`--days 7` is the last 7 days with today; `--from` and `--to` name the first and the last day";
        return Err(OperatorError::new(what).help(help));
    }
    if let Some(days) = days {
        let number = days.parse().ok();
        let number = number.filter(|number| (1..=HITS_DAYS_MAX as u32).contains(number));
        let number = number.ok_or_else(|| {
            let what = format!("`--days {}` is not a number of days", days.escape_debug());
            let help =
                format!("write a number from 1 to {HITS_DAYS_MAX}, the days that a site keeps");
            OperatorError::new(what).help(help)
        })?;
        return Ok(Some(DayRange {
            first: today.saturating_sub(number - 1),
            last: today,
        }));
    }
    if from.is_none() && to.is_none() {
        return Ok(None);
    }
    let last = to.map_or(Ok(today), |to| day("--to", to))?;
    let oldest = today.saturating_sub(HITS_DAYS_MAX as u32 - 1);
    let first = from.map_or(Ok(oldest.min(last)), |from| day("--from", from))?;
    if first > last {
        let what = format!(
            "the range begins on {}, after its end on {}",
            format_day(first),
            format_day(last)
        );
        let help = match to {
            Some(_) => "exchange the days of `--from` and `--to`",
            None => "without `--to`, the range ends today (UTC): begin today or before",
        };
        return Err(OperatorError::new(what).help(help));
    }
    Ok(Some(DayRange { first, last }))
}

fn day(option: &str, text: &str) -> Result<u32, OperatorError> {
    parse_day(text).ok_or_else(|| {
        let what = format!("`{option} {}` is not a day", text.escape_debug());
        OperatorError::new(what).help("write year, month and day, such as 2026-11-01")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TODAY: &str = "2026-11-28";

    fn range(days: Option<&str>, from: Option<&str>, to: Option<&str>) -> Result<String, String> {
        let today = parse_day(TODAY).expect("a day");
        let range = day_range([days, from, to], today).map_err(|error| error.to_string())?;
        let range = range.expect("a range");
        Ok(format!(
            "{} {}",
            format_day(range.first),
            format_day(range.last)
        ))
    }

    #[test]
    fn a_range_ends_today_unless_told_otherwise() {
        for (days, from, to, expected) in [
            (Some("1"), None, None, "2026-11-28 2026-11-28"),
            (Some("7"), None, None, "2026-11-22 2026-11-28"),
            (Some("400"), None, None, "2025-10-25 2026-11-28"),
            (None, Some("2026-11-01"), None, "2026-11-01 2026-11-28"),
            (
                None,
                Some("2026-11-01"),
                Some("2026-11-07"),
                "2026-11-01 2026-11-07",
            ),
            (None, None, Some("2026-11-07"), "2025-10-25 2026-11-07"),
        ] {
            let found = range(days, from, to);
            assert_eq!(found.as_deref(), Ok(expected), "{days:?} {from:?} {to:?}");
        }
        assert_eq!(day_range([None; 3], 100).ok(), Some(None));
    }

    #[test]
    fn a_wrong_range_is_refused_with_the_correction() {
        for (days, from, to, expected) in [
            (Some("0"), None, None, "a number from 1 to 400"),
            (Some("401"), None, None, "a number from 1 to 400"),
            (
                Some("week"),
                None,
                None,
                "`--days week` is not a number of days",
            ),
            (
                Some("7"),
                Some("2026-11-01"),
                None,
                "can't be given together",
            ),
            (
                None,
                Some("1.11.2026"),
                None,
                "`--from 1.11.2026` is not a day",
            ),
            (
                None,
                Some("2026-11-01"),
                Some("2026-11-31"),
                "`--to 2026-11-31` is not a day",
            ),
            (
                None,
                Some("2026-11-07"),
                Some("2026-11-01"),
                "exchange the days",
            ),
            (None, Some("2026-12-01"), None, "begin today or before"),
        ] {
            let error = range(days, from, to).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
    }
}
