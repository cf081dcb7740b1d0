//! The part of the page that changes by itself: sections, each with an id, and the events that carry the changes to
//! the script of the page.
//!
//! An event has whole sections, each from the line of its opening tag to the line of its closing tag, and changed
//! lines of sections: the id of the section, the number of the line from 0 and the new line, divided by spaces.

use super::gzip::SharedText;
use crate::git::browse::render::html::Html;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Sections in the making.
#[derive(Default)]
pub(super) struct Sections {
    html: Html,
    /// Id of each section, with its place in the text.
    places: Vec<(String, Range<usize>)>,
}

impl Sections {
    /// Appends a section. The id is unique in the page.
    pub(super) fn section(&mut self, id: &str, push: impl FnOnce(&mut Html)) {
        let begin = self.html.len();
        let id = format!("live-{id}");
        let html = &mut self.html;
        html.markup("<section id=").markup(&id).markup(">\n");
        push(html);
        if !html.as_str().ends_with('\n') {
            html.markup("\n");
        }
        html.markup("</section>\n");
        self.places.push((id, begin..html.len()));
    }
}

/// Sections of one snapshot, with the events for the viewers.
pub(super) struct LivePart {
    text: SharedText,
    places: Vec<(String, Range<usize>)>,
    /// Event with all sections.
    whole: OnceLock<SharedText>,
    /// Last difference from earlier sections. Nearly all viewers have the sections of one earlier snapshot.
    difference: Mutex<Option<Difference>>,
}

/// Event with the differences from earlier sections.
type Difference = (Weak<LivePart>, Arc<SharedText>);

impl LivePart {
    /// Returns the sections as HTML.
    pub(super) fn html(&self) -> &SharedText {
        &self.text
    }

    /// Returns the event with all sections.
    pub(super) fn whole(&self) -> &SharedText {
        self.whole.get_or_init(|| event(self.text.as_str()).into())
    }

    /// Returns the event with the differences from earlier sections, computed once for all viewers of the earlier
    /// sections. The event is empty without differences.
    pub(super) fn since(&self, earlier: &Arc<LivePart>) -> Arc<SharedText> {
        let last = self.difference.lock();
        // Poisoning is ignored: the value is replaced whole.
        let mut last = last.unwrap_or_else(PoisonError::into_inner);
        if let Some((known, event)) = &*last
            && known.as_ptr() == Arc::as_ptr(earlier)
        {
            return Arc::clone(event);
        }
        let event: SharedText = event(&self.changes(earlier)).into();
        let event = Arc::new(event);
        *last = Some((Arc::downgrade(earlier), Arc::clone(&event)));
        event
    }

    /// Returns the changed sections and lines.
    fn changes(&self, earlier: &LivePart) -> String {
        let mut out = String::new();
        for (nth, (id, place)) in self.places.iter().enumerate() {
            let now = &self.text.as_str()[place.clone()];
            match earlier.places.get(nth) {
                Some((known, place)) if known == id => {
                    let before = &earlier.text.as_str()[place.clone()];
                    push_changes(&mut out, id, before, now);
                }
                _ => out.push_str(now),
            }
        }
        out
    }
}

impl From<Sections> for LivePart {
    fn from(sections: Sections) -> LivePart {
        LivePart {
            text: sections.html.into_string().into(),
            places: sections.places,
            whole: OnceLock::new(),
            difference: Mutex::default(),
        }
    }
}

/// Appends the changed lines of a section, or the whole section if that is shorter.
fn push_changes(out: &mut String, id: &str, before: &str, now: &str) {
    if before == now {
        return;
    }
    let begin = out.len();
    let (mut old, mut lines) = (before.lines(), now.lines().enumerate());
    let has_changed_lines = loop {
        match (old.next(), lines.next()) {
            (Some(old), Some((_, line))) if old == line => {}
            (Some(_), Some((at, line))) => {
                for part in [id, " ", &at.to_string(), " ", line, "\n"] {
                    out.push_str(part);
                }
            }
            (None, None) => break true,
            _ => break false,
        }
    };
    if !has_changed_lines || out.len() - begin > now.len() {
        out.truncate(begin);
        out.push_str(now);
    }
}

/// Returns lines as a server-sent event; nothing for no lines.
fn event(lines: &str) -> String {
    let mut out = String::with_capacity(lines.len() + lines.len() / 16);
    for line in lines.lines() {
        out.push_str("data: ");
        out.push_str(line);
        out.push('\n');
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(sections: &[(&str, &str)]) -> Arc<LivePart> {
        let mut page = Sections::default();
        for (id, text) in sections {
            page.section(id, |html| {
                html.markup(text);
            });
        }
        Arc::new(page.into())
    }

    #[test]
    fn sections_have_ids_and_lines_of_their_own() {
        let part = part(&[("a", "<p>1</p>"), ("b", "2\n")]);
        let html =
            "<section id=live-a>\n<p>1</p>\n</section>\n<section id=live-b>\n2\n</section>\n";
        assert_eq!(part.html().as_str(), html);
        let whole = html.replace('\n', "\ndata: ");
        let whole = format!("data: {}\n", whole.trim_end_matches("data: "));
        assert_eq!(part.whole().as_str(), whole);
    }

    #[test]
    fn an_event_has_the_changed_lines_and_sections() {
        let rows = "<tr><td>9</td></tr>\n".repeat(9);
        let before = part(&[("a", "<p>1</p>"), ("b", &rows), ("c", "x")]);
        let section = "data: <section id=live-c>\ndata: y\ndata: z\ndata: </section>\n";
        let changed = rows.replacen('9', "8", 1);
        for (b, c, expected) in [
            (&rows, "x", String::new()),
            (
                &changed,
                "x",
                "data: live-b 1 <tr><td>8</td></tr>\n\n".to_owned(),
            ),
            (&rows, "y\nz", format!("{section}\n")),
            (
                &changed,
                "y\nz",
                format!("data: live-b 1 <tr><td>8</td></tr>\n{section}\n"),
            ),
        ] {
            let now = part(&[("a", "<p>1</p>"), ("b", b), ("c", c)]);
            assert_eq!(now.since(&before).as_str(), expected, "{b} {c}");
        }
        let other = part(&[("a", "<p>1</p>"), ("d", "x")]);
        let whole = "data: <section id=live-d>\ndata: x\ndata: </section>\n\n";
        assert_eq!(other.since(&before).as_str(), whole);
    }

    #[test]
    fn viewers_of_one_snapshot_share_the_difference() {
        let [before, now] = ["1", "2"].map(|text| part(&[("a", text)]));
        let first = now.since(&before);
        assert!(Arc::ptr_eq(&first, &now.since(&before)));
        assert_eq!(now.since(&now).as_str(), "");
        assert_eq!(now.since(&before).as_str(), first.as_str());
    }
}
