//! Markdown writer for a README, an issue or a terminal: tables are aligned in the source text. Charts are
//! left to HTML, except for the bar chart of source document 002, which consists of block characters.

use std::fmt::Write;

use crate::report::document::{Bars, Block, Document, Entry, Folded, Row, Section, Table};

/// Returns the complete document.
pub(super) fn document(document: &Document) -> String {
    let mut out = format!("# {}\n", line(&document.title));
    if !document.subtitle.is_empty() {
        let _ = write!(out, "\n{}\n", line(&document.subtitle));
    }
    for part in &document.sections {
        section(&mut out, part, 2);
    }
    out
}

/// Returns sections with headings of the given level.
pub(super) fn sections(sections: &[Section], level: usize) -> String {
    let mut out = String::new();
    for part in sections {
        section(&mut out, part, level);
    }
    out.trim_start_matches('\n').to_owned()
}

fn section(out: &mut String, section: &Section, level: usize) {
    if !section.heading.is_empty() {
        let _ = write!(out, "\n{} {}\n", "#".repeat(level), line(&section.heading));
    }
    for part in &section.blocks {
        block(out, part, level);
    }
}

fn block(out: &mut String, block: &Block, level: usize) {
    match block {
        Block::Text(text) => {
            let _ = write!(out, "\n{}\n", line(text));
        }
        Block::Warning(text) => {
            let _ = write!(out, "\n**Note:** {}\n", line(text));
        }
        Block::Heading(text) => {
            let _ = write!(out, "\n{} {}\n", "#".repeat(level + 1), line(text));
        }
        Block::Table(table) => table_text(out, table),
        Block::Bars(bars) if bars.in_markdown => bars_text(out, bars),
        // The tables contain the figures of the charts.
        Block::Bars(_) | Block::Groups(_) | Block::Curves(_) => {}
        Block::Verbatim(text) => verbatim(out, text),
        Block::Folded(folded) => folded_text(out, folded, level),
    }
}

fn folded_text(out: &mut String, folded: &Folded, level: usize) {
    let mut inner = String::new();
    for part in &folded.blocks {
        block(&mut inner, part, level);
    }
    if !inner.is_empty() {
        let summary = line(&folded.summary);
        let _ = write!(
            out,
            "\n<details><summary>{summary}</summary>\n{inner}\n</details>\n"
        );
    }
}

/// Writes a code block with a fence longer than any run of backticks in the text.
fn verbatim(out: &mut String, text: &str) {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let _ = write!(out, "\n{fence}\n{}\n{fence}\n", text.trim_end());
}

fn bars_text(out: &mut String, bars: &Bars) {
    let longest = bars.bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    let name_width = bars
        .bars
        .iter()
        .map(|bar| bar.name.chars().count())
        .max()
        .unwrap_or(0);
    let text_width = bars
        .bars
        .iter()
        .map(|bar| bar.text.chars().count())
        .max()
        .unwrap_or(0);
    let mut chart = format!("{}\n\n", bars.caption);
    for bar in &bars.bars {
        let blocks = if longest > 0.0 {
            (bar.value / longest * BLOCKS).round() as usize
        } else {
            0
        };
        let drawn = "■".repeat(blocks.max(usize::from(bar.value > 0.0)));
        let _ = writeln!(
            chart,
            "{:>name_width$}: {:>text_width$} {drawn}",
            bar.name, bar.text
        );
    }
    verbatim(out, &chart);
}

fn table_text(out: &mut String, table: &Table) {
    if !table.caption.is_empty() {
        let _ = write!(out, "\n{}\n", line(&table.caption));
    }
    let head: Vec<String> = table.head.iter().map(|title| line(title)).collect();
    let rows: Vec<Vec<String>> = table.rows.iter().map(row_texts).collect();
    let width = |column: usize| {
        let cells = rows
            .iter()
            .map(|row| row.get(column).map_or(0, |cell| cell.chars().count()));
        cells
            .chain([head[column].chars().count(), 3])
            .max()
            .unwrap_or(3)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    out.push('\n');
    table_line(out, &head, &widths);
    for (column, width) in widths.iter().enumerate() {
        // The first column, with names, is left-aligned; figures are right-aligned.
        let rule = "-".repeat(width - 1);
        let _ = if column == 0 {
            write!(out, "| {rule}- ")
        } else {
            write!(out, "| {rule}: ")
        };
    }
    out.push_str("|\n");
    for row in &rows {
        table_line(out, row, &widths);
    }
}

fn table_line(out: &mut String, cells: &[String], widths: &[usize]) {
    for (column, width) in widths.iter().enumerate() {
        let cell = cells.get(column).map_or("", String::as_str);
        let _ = if column == 0 {
            write!(out, "| {cell:<width$} ")
        } else {
            write!(out, "| {cell:>width$} ")
        };
    }
    out.push_str("|\n");
}

fn row_texts(row: &Row) -> Vec<String> {
    let texts = row.cells.iter().map(entry_text);
    texts
        .enumerate()
        .map(|(column, text)| match (column, row.ours, row.published) {
            (0, true, _) => format!("**{text}**"),
            (0, _, true) => format!("*{text}*"),
            _ => text,
        })
        .collect()
}

fn entry_text(entry: &Entry) -> String {
    match entry.detail.as_str() {
        "" => line(&entry.text),
        detail => format!("{} ({})", line(&entry.text), line(detail)),
    }
}

/// Escapes a text for a line or a cell: no character remains Markdown or HTML markup.
fn line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = ' ';
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let in_word =
            before.is_alphanumeric() && characters.peek().is_some_and(|c| c.is_alphanumeric());
        before = character;
        match character {
            // Underscores inside words are not markup, and stay unescaped for readability on a terminal.
            '_' if in_word => out.push('_'),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' => out.extend(['\\', character]),
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            '\n' | '\r' => out.push(' '),
            _ => out.push(character),
        }
    }
    out
}

/// Number of block characters of the longest bar.
const BLOCKS: f64 = 50.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::document::Bar;

    #[test]
    fn a_table_is_aligned_in_the_text_itself() {
        let row = |name: &str, figure: &str, ours| Row {
            cells: vec![name.into(), Entry::with(figure, "1–2")],
            ours,
            ..Row::default()
        };
        let table = Table {
            head: vec!["server".into(), "requests/s".into()],
            rows: vec![row("anthill", "12,000", true), row("a|b", "7", false)],
            ..Table::default()
        };
        let mut out = String::new();
        table_text(&mut out, &table);
        let expected = "
| server      |   requests/s |
| ----------- | -----------: |
| **anthill** | 12,000 (1–2) |
| a\\|b        |      7 (1–2) |
";
        assert_eq!(out, expected);
    }

    #[test]
    fn bars_are_blocks_as_in_002() {
        let bar = |name: &str, value: f64| Bar {
            name: name.into(),
            value,
            text: format!("{value:.1}"),
            ..Bar::default()
        };
        let bars = Bars {
            caption: "requests/s".into(),
            bars: vec![bar("Nginx", 351.5), bar("Perl/Mojolicious", 17.6)],
            in_markdown: true,
            ..Bars::default()
        };
        let mut out = String::new();
        bars_text(&mut out, &bars);
        assert!(
            out.contains(&format!("           Nginx: 351.5 {}\n", "■".repeat(50))),
            "{out}"
        );
        assert!(out.contains("Perl/Mojolicious:  17.6 ■■■\n"), "{out}");
    }

    #[test]
    fn nothing_in_a_text_is_markup() {
        assert_eq!(line("<b>_a_b*|`\n&"), "&lt;b>\\_a_b\\*\\|\\` &amp;");
        let mut out = String::new();
        verbatim(&mut out, "```\nnot the end\n```");
        assert!(out.starts_with("\n````\n```\n"), "{out}");
    }
}
