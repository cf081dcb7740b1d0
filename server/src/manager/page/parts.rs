//! Pieces of markup that several parts of the page share.

use crate::git::browse::render::html::Html;

/// Opening tag of the head of a column with text at the left.
pub(super) const LEFT: &str = "th scope=col";
/// Opening tag of the head of a column with numbers at the right.
pub(super) const RIGHT: &str = "th scope=col class=n";

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

/// Appends a hidden field of a form.
pub(super) fn push_hidden(page: &mut Html, name: &str, value: &str) {
    page.markup("<input type=hidden name=").markup(name);
    page.markup(" value=\"").text(value).markup("\">");
}
