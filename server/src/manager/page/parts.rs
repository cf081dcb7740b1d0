//! Pieces of markup that several parts of the page share.

use crate::git::browse::render::html::Html;

/// Opening tag of the head of a column with text at the left.
pub(super) const LEFT: &str = "th scope=col";
/// Opening tag of the head of a column with numbers at the right.
pub(super) const RIGHT: &str = "th scope=col class=n";

/// Table with a row of heads. On a narrow screen each row is a card, with the heads as labels beside the values.
pub(super) struct Table {
    /// Class of the table, for the labels of its cards.
    pub(super) class: &'static str,
    /// Heads of the columns, each with the opening tag.
    pub(super) columns: &'static [(&'static str, &'static str)],
    /// True if the first column names the rows, and is the title of a card.
    pub(super) has_titles: bool,
}

impl Table {
    /// Opens the table in a box that scrolls sideways.
    pub(super) fn open(&self, page: &mut Html, label: &str, columns: usize) {
        open_scroll(page, &format!("Table: {label}"));
        page.markup("<table class=\"cards ").markup(self.class);
        page.markup("\" aria-label=\"").text(label);
        page.markup("\"><thead><tr>");
        for (name, open) in &self.columns[..columns.min(self.columns.len())] {
            push_column(page, name, open);
        }
        page.markup("</tr></thead><tbody>\n");
    }

    /// Returns the rules with the labels of the cards.
    pub(super) fn label_rules(&self) -> String {
        let titles = usize::from(self.has_titles);
        let labels = self.columns[titles..].iter().map(|(name, _)| *name);
        label_rules(self.class, labels)
    }
}

/// Closes a table of [`Table::open`].
pub(super) fn close_table(page: &mut Html) {
    page.markup("</tbody></table></div>\n");
}

/// Returns the rules of the style sheet with the labels of the cells of a table on cards.
pub(super) fn label_rules<'l>(class: &str, labels: impl Iterator<Item = &'l str>) -> String {
    let rule = |(nth, label): (usize, &str)| {
        let nth = nth + 1;
        format!(".{class} td:nth-of-type({nth})::before{{content:\"{label}\"}}")
    };
    labels.enumerate().map(rule).collect()
}

/// Opens a box around a wide table. The box scrolls sideways, also by the keyboard.
pub(super) fn open_scroll(page: &mut Html, label: &str) {
    page.markup("<div class=scroll role=region tabindex=0 aria-label=\"");
    page.text(label).markup("\">");
}

/// Appends the head of a column.
pub(super) fn push_column(page: &mut Html, name: &str, open: &str) {
    page.markup("<").markup(open).markup(">").text(name);
    page.markup("</th>");
}

/// Appends a cell with a number.
pub(super) fn push_number(page: &mut Html, number: &str) {
    page.markup("<td class=n>").text(number).markup("</td>");
}

/// Appends a hidden field of a form.
pub(super) fn push_hidden(page: &mut Html, name: &str, value: &str) {
    page.markup("<input type=hidden name=").markup(name);
    page.markup(" value=\"").text(value).markup("\">");
}
