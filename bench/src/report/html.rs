//! HTML writer: a self-contained page with embedded styles and charts, without scripts. The page's
//! Content-Security-Policy forbids all requests.

use std::fmt::Write;

use crate::report::chart::{self, escape};
use crate::report::document::{Block, Document, Entry, Folded, Row, Section, Table};

/// Returns the complete page.
pub(super) fn document(document: &Document) -> String {
    let title = escape(&document.title);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n"
    );
    if !document.subtitle.is_empty() {
        let _ = writeln!(out, "<p>{}</p>", escape(&document.subtitle));
    }
    contents(&mut out, &document.sections);
    out.push_str("</header>\n<main>\n");
    for (number, part) in document.sections.iter().enumerate() {
        section(&mut out, number, part);
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

/// Writes links to the sections, from four sections on.
fn contents(out: &mut String, sections: &[Section]) {
    if sections.len() < 4 {
        return;
    }
    out.push_str("<nav><ul>");
    for (number, section) in sections.iter().enumerate() {
        let _ = write!(
            out,
            "<li><a href=\"#s{number}\">{}</a></li>",
            escape(&section.heading)
        );
    }
    out.push_str("</ul></nav>\n");
}

fn section(out: &mut String, number: usize, section: &Section) {
    let _ = writeln!(out, "<section id=\"s{number}\">");
    if !section.heading.is_empty() {
        let _ = writeln!(out, "<h2>{}</h2>", escape(&section.heading));
    }
    blocks(out, &section.blocks);
    out.push_str("</section>\n");
}

/// Writes blocks. Charts of bars that follow one another stand side by side on a wide screen.
fn blocks(out: &mut String, blocks: &[Block]) {
    let is_bars = |it: &Block| matches!(it, Block::Bars(_));
    for group in blocks.chunk_by(|a, b| is_bars(a) && is_bars(b)) {
        let is_side_by_side = group.len() > 1;
        if is_side_by_side {
            out.push_str("<div class=\"side\">\n");
        }
        group.iter().for_each(|part| block(out, part));
        if is_side_by_side {
            out.push_str("</div>\n");
        }
    }
}

fn block(out: &mut String, block: &Block) {
    match block {
        Block::Text(text) => {
            let _ = writeln!(out, "<p>{}</p>", escape(text));
        }
        Block::Warning(text) => {
            let _ = writeln!(out, "<p class=\"warning\">{}</p>", escape(text));
        }
        Block::Heading(text) => {
            let _ = writeln!(out, "<h3>{}</h3>", escape(text));
        }
        Block::Table(table) => table_html(out, table),
        Block::Bars(bars) => out.push_str(&chart::bars(bars)),
        Block::Groups(groups) => out.push_str(&chart::groups(groups)),
        Block::Curves(curves) => out.push_str(&chart::curves(curves)),
        Block::Verbatim(text) => {
            let _ = writeln!(out, "<pre>{}</pre>", escape(text));
        }
        Block::Folded(folded) => folded_html(out, folded),
    }
}

fn folded_html(out: &mut String, folded: &Folded) {
    let _ = writeln!(
        out,
        "<details><summary>{}</summary>",
        escape(&folded.summary)
    );
    blocks(out, &folded.blocks);
    out.push_str("</details>\n");
}

fn table_html(out: &mut String, table: &Table) {
    out.push_str("<div class=\"scroll\"><table>\n");
    if !table.caption.is_empty() {
        let _ = writeln!(out, "<caption>{}</caption>", escape(&table.caption));
    }
    out.push_str("<thead><tr>");
    for (column, title) in table.head.iter().enumerate() {
        let class = if table.our_columns.contains(&column) {
            " class=\"ours\""
        } else if title.chars().count() > LONG_TITLE {
            " class=\"long\""
        } else {
            ""
        };
        let _ = write!(out, "<th scope=\"col\"{class}>{}</th>", escape(title));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        row_html(out, row, &table.our_columns);
    }
    out.push_str("</tbody></table></div>\n");
}

fn row_html(out: &mut String, row: &Row, our_columns: &[usize]) {
    out.push_str(match (row.ours, row.published) {
        (true, _) => "<tr class=\"ours\">",
        (_, true) => "<tr class=\"published\">",
        _ => "<tr>",
    });
    for (column, entry) in row.cells.iter().enumerate() {
        let class = if our_columns.contains(&column) {
            " class=\"ours\""
        } else {
            ""
        };
        let text = entry_html(entry);
        let _ = match column {
            0 => write!(out, "<th scope=\"row\">{text}</th>"),
            _ => write!(out, "<td{class}>{text}</td>"),
        };
    }
    out.push_str("</tr>\n");
}

fn entry_html(entry: &Entry) -> String {
    match entry.detail.as_str() {
        "" => escape(&entry.text),
        detail => format!("{} <small>{}</small>", escape(&entry.text), escape(detail)),
    }
}

/// Number of characters from which a column title gets a wider column, to avoid one word per line.
const LONG_TITLE: usize = 30;

const STYLE: &str = include_str!("style.css");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_in_all_blocks() {
        let bad = "<script>alert(\"1\")</script>'&";
        let table = Table {
            caption: bad.into(),
            head: vec![bad.into()],
            rows: vec![Row {
                cells: vec![Entry::with(bad, bad)],
                ..Row::default()
            }],
            our_columns: Vec::new(),
        };
        let folded = Folded {
            summary: bad.into(),
            blocks: vec![Block::Verbatim(bad.into())],
        };
        let blocks = vec![
            Block::Text(bad.into()),
            Block::Warning(bad.into()),
            Block::Heading(bad.into()),
            Block::Table(table),
            Block::Folded(folded),
        ];
        let section = Section {
            heading: bad.into(),
            blocks,
        };
        let page = document(&Document {
            title: bad.into(),
            subtitle: bad.into(),
            sections: vec![section.clone(), section.clone(), section.clone(), section],
        });
        assert!(
            !page.contains("<script") && !page.contains("alert(\""),
            "{page}"
        );
    }

    #[test]
    fn charts_of_bars_stand_side_by_side() {
        let bars = || Block::Bars(Default::default());
        let mut out = String::new();
        let text = || Block::Text("a".into());
        blocks(&mut out, &[bars(), text(), bars(), bars(), text()]);
        assert_eq!(out.matches("<figure").count(), 3);
        let (_, side) = out.split_once("<div class=\"side\">").expect("a pair");
        let (side, rest) = side.split_once("</div>\n<p>").expect("the end of the pair");
        assert_eq!(side.matches("<figure").count(), 2, "{out}");
        assert!(!rest.contains("class=\"side\""), "{out}");
    }

    #[test]
    fn nothing_is_fetched() {
        let page = document(&Document::default());
        for word in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(word), "{word}");
        }
    }
}
