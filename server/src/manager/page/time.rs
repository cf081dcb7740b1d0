//! Times on the page. The server sends UTC and says so; the script of the page shows the time of the browser's zone,
//! with UTC as the tooltip.

use crate::admin::balancers::BalancerList;
use crate::git::browse::render::html::Html;
use base::clock::{civil, format_utc};
use wire::date::parse_rfc3339;

/// Appends a time as its date and time of the day.
pub(super) fn push_time(page: &mut Html, unix_seconds: u64) {
    push_element(page, unix_seconds, &format_utc(unix_seconds));
}

/// Appends a time on the monotonic clock of a list, in the words of the list.
pub(super) fn push_list_time(page: &mut Html, list: &BalancerList, at_ms: u64) {
    let unix_seconds = (list.origin_unix_ms + at_ms) / 1_000;
    push_element(page, unix_seconds, &list.time(at_ms));
}

/// Appends a text for terminals, with the times of [`format_utc`] in the text as elements.
pub(super) fn push_timed(page: &mut Html, text: &str) {
    let mut rest = text;
    while let Some(end) = rest.find(UTC) {
        let (before, after) = rest.split_at(end + UTC.len());
        let begin = before.len().checked_sub(FORMATTED_BYTES);
        let time = begin.and_then(|begin| Some((begin, parse(before.get(begin..)?)?)));
        match time {
            Some((begin, unix_seconds)) => {
                page.text(&before[..begin]);
                push_time(page, unix_seconds);
            }
            None => {
                page.text(before);
            }
        }
        rest = after;
    }
    page.text(rest);
}

/// End of a formatted time.
const UTC: &str = " UTC";
/// Bytes of a time such as `2026-11-21 00:42 UTC`.
const FORMATTED_BYTES: usize = 20;

/// Parses a time of [`format_utc`].
fn parse(text: &str) -> Option<u64> {
    let time = text.strip_suffix(UTC)?.replace(' ', "T");
    parse_rfc3339(format!("{time}:00Z").as_bytes())
}

fn push_element(page: &mut Html, unix_seconds: u64, text: &str) {
    let at = civil(unix_seconds);
    page.markup(&format!(
        "<time datetime=\"{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z\">",
        at.year, at.month, at.day, at.hour, at.minute, at.second
    ));
    page.text(text).markup("</time>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_a_text_are_elements() {
        let shown = |text: &str| {
            let mut page = Html::default();
            push_timed(&mut page, text);
            page.into_string()
        };
        assert_eq!(
            shown("<failed> at 2026-11-21 00:42 UTC: no, until 2026-11-22 00:00 UTC"),
            "&lt;failed&gt; at <time datetime=\"2026-11-21T00:42:00Z\">2026-11-21 00:42 UTC</time>: no, until \
             <time datetime=\"2026-11-22T00:00:00Z\">2026-11-22 00:00 UTC</time>"
        );
        for plain in [
            "",
            "no time",
            "5 UTC",
            " UTC",
            "ä 2026-13-21 00:42 UTC",
            "äääääääääää UTC",
        ] {
            assert_eq!(shown(plain), plain);
        }
    }
}
