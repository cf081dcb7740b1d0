//! Tables and short numbers for a terminal. Pure.

use crate::admin::limits::HISTORY_INTERVAL_SECONDS;
use std::fmt::Write;

/// Table with a title for each column. Lines stay within a width: a row with a long first cell is broken
/// after the cell.
pub(super) struct TextTable<'a> {
    titles: &'a [&'a str],
    /// Columns with text at the left. Other columns are numbers, at the right.
    left: &'a [usize],
    width_max: usize,
    rows: Vec<TableRow>,
}

struct TableRow {
    cells: Vec<String>,
    /// Lines below the row.
    details: Vec<String>,
}

/// Widest line of a table, in characters.
pub(super) const LINE_WIDTH: usize = 100;
/// Indentation of the table, and of the lines below a row.
const INDENT: &str = "  ";

impl<'a> TextTable<'a> {
    /// Returns a table without rows.
    pub(super) fn new(titles: &'a [&'a str], left: &'a [usize], width_max: usize) -> TextTable<'a> {
        TextTable {
            titles,
            left,
            width_max,
            rows: Vec::new(),
        }
    }

    /// Adds a row with a cell for each column, and the lines below the row.
    pub(super) fn add(&mut self, cells: Vec<String>, details: Vec<String>) {
        self.rows.push(TableRow { cells, details });
    }

    /// Returns the lines of the table.
    pub(super) fn text(&self) -> String {
        let widths = self.widths();
        let mut out = String::new();
        let titles: Vec<String> = self
            .titles
            .iter()
            .map(|title| (*title).to_owned())
            .collect();
        self.push_row(&mut out, &widths, &titles);
        for row in &self.rows {
            self.push_row(&mut out, &widths, &row.cells);
            for line in &row.details {
                let _ = writeln!(out, "{INDENT}{INDENT}{line}");
            }
        }
        out
    }

    /// Returns the widths of the columns. The first column is as wide as its widest cell that leaves room
    /// for the other columns.
    fn widths(&self) -> Vec<usize> {
        let cells = |column: usize| self.rows.iter().map(move |row| width(&row.cells[column]));
        let titles = self.titles.iter().map(|title| width(title)).enumerate();
        let mut widths: Vec<usize> = titles
            .map(|(column, title)| cells(column).fold(title, usize::max))
            .collect();
        let others: usize = widths[1..].iter().map(|width| width + 1).sum();
        let room = self.width_max.saturating_sub(others + INDENT.len());
        let fitting = cells(0).filter(|cell| *cell <= room);
        widths[0] = fitting.fold(width(self.titles[0]), usize::max);
        widths
    }

    fn push_row(&self, out: &mut String, widths: &[usize], cells: &[String]) {
        let mut line = INDENT.to_owned();
        for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
            if column > 0 {
                line.push(' ');
            }
            let padding = " ".repeat(width.saturating_sub(self::width(cell)));
            let is_long = column == 0 && self::width(cell) > *width;
            match (is_long, self.left.contains(&column)) {
                (true, _) => line = format!("{line}{cell}\n{INDENT}{}", " ".repeat(*width)),
                (false, true) => line = format!("{line}{cell}{padding}"),
                (false, false) => line = format!("{line}{padding}{cell}"),
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// Returns a number in at most 7 characters, with a decimal unit from 10 million on.
pub(crate) fn count(number: u64) -> String {
    match number {
        ..10_000_000 => number.to_string(),
        _ => scaled(number, 1_000, &["k", "M", "G", "T", "P", "E"]),
    }
}

/// Returns a number of bytes in at most 5 characters, with a binary unit.
pub(crate) fn bytes(number: u64) -> String {
    match number {
        ..1_024 => number.to_string(),
        _ => scaled(number, 1_024, &["K", "M", "G", "T", "P", "E"]),
    }
}

fn scaled(number: u64, base: u64, units: &[&str]) -> String {
    let (mut tenths, mut unit) = (u128::from(number) * 10 / u128::from(base), 0);
    while tenths >= 10 * u128::from(base) && unit + 1 < units.len() {
        tenths /= u128::from(base);
        unit += 1;
    }
    match tenths {
        ..100 => format!("{}.{}{}", tenths / 10, tenths % 10, units[unit]),
        _ => format!("{}{}", tenths / 10, units[unit]),
    }
}

/// Returns a duration with its two largest units.
pub(crate) fn duration(seconds: u64) -> String {
    match (
        seconds / 86_400,
        seconds / 3_600 % 24,
        seconds / 60 % 60,
        seconds % 60,
    ) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, _, _) => format!("{days} d {hours} h"),
    }
}

/// Returns a count of an interval in hundredths per second.
pub(crate) fn per_second(number: u32) -> u64 {
    u64::from(number) * 100 / HISTORY_INTERVAL_SECONDS
}

/// Returns a rate in hundredths per second as text.
pub(crate) fn rate(hundredths: u64) -> String {
    match hundredths {
        0 => "0/s".to_owned(),
        1..1_000 => format!("{}.{:02}/s", hundredths / 100, hundredths % 100),
        _ => format!("{}/s", count(hundredths / 100)),
    }
}

/// Returns a duration in microseconds as text; a hyphen for 0, the latency without requests.
pub(crate) fn micros(micros: u64) -> String {
    match micros {
        0 => "-".to_owned(),
        1..10_000 => format!("{}.{} ms", micros / 1_000, micros / 100 % 10),
        10_000..10_000_000 => format!("{} ms", micros / 1_000),
        _ => duration(micros / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let counts = [0, 999, 9_999_999, 10_000_000, 123_456_789_012, u64::MAX].map(count);
        assert_eq!(counts, ["0", "999", "9999999", "10M", "123G", "18E"]);
        let sizes = [
            0,
            1_023,
            1_024,
            10_239,
            10_240,
            1_048_575,
            1 << 20,
            u64::MAX,
        ]
        .map(bytes);
        assert_eq!(
            sizes,
            ["0", "1023", "1.0K", "9.9K", "10K", "1023K", "1.0M", "15E"]
        );
    }

    #[test]
    fn durations_have_their_two_largest_units() {
        let shown = [5, 65, 3_700, 90_000].map(duration);
        assert_eq!(shown, ["5 s", "1 min 5 s", "1 h 1 min", "1 d 1 h"]);
    }

    #[test]
    fn a_long_first_cell_has_a_line_of_its_own() {
        let mut table = TextTable::new(&["NAME", "STATE", "N"], &[0, 1], 20);
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        table.add(row(["short", "up", "7"]), Vec::new());
        table.add(
            row(["a-very-long-name", "down", "12"]),
            vec!["why".to_owned()],
        );
        assert_eq!(
            table.text(),
            "  NAME  STATE  N\n  short up     7\n  a-very-long-name\n        down  12\n    why\n"
        );
    }
}
