//! HTML writer. Text from any source is escaped, and no other content enters a page. Bytes that are not
//! UTF-8 appear as replacement characters. Characters that reorder or hide text appear as code points.

use crate::git::limits::GIT_LINE_BYTES_MAX;
use base::digest::{hex, sha256};
use data_plane::site::{FRAME_STYLE, PAGE_STYLE};
use std::fmt::Write;

/// A fragment of a page.
#[derive(Default)]
pub(crate) struct Html(String);

impl Html {
    /// Creates an empty fragment with room for `bytes` bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Html {
        Html(String::with_capacity(bytes))
    }

    /// Appends markup without escaping.
    pub(crate) fn markup(&mut self, markup: &str) -> &mut Html {
        self.0.push_str(markup);
        self
    }

    /// Appends escaped text, or the value of an attribute in double quotes.
    pub(crate) fn text(&mut self, text: impl AsRef<[u8]>) -> &mut Html {
        push_escaped(text.as_ref(), &mut self.0);
        self
    }

    /// Appends a line of a file; a long line is cut.
    pub(crate) fn line(&mut self, line: &[u8]) -> &mut Html {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match line.get(..GIT_LINE_BYTES_MAX) {
            Some(cut) if line.len() > cut.len() => self.text(cut).markup(" <i class=soft>…</i>"),
            _ => self.text(line),
        }
    }

    /// Appends `<a href="url">text</a>`.
    pub(crate) fn link(&mut self, url: &str, text: impl AsRef<[u8]>) -> &mut Html {
        self.markup("<a href=\"").text(url).markup("\">");
        self.text(text).markup("</a>")
    }

    /// Appends a link to an expensive page, with `rel=nofollow` for crawlers.
    pub(crate) fn heavy_link(&mut self, url: &str, text: impl AsRef<[u8]>) -> &mut Html {
        self.markup("<a rel=nofollow href=\"")
            .text(url)
            .markup("\">");
        self.text(text).markup("</a>")
    }

    /// Appends preformatted text.
    pub(crate) fn preformatted(&mut self, text: &[u8]) -> &mut Html {
        self.markup("<pre class=plain>").text(text).markup("</pre>")
    }

    /// Appends the day of a date such as `2026-11-21 06:53:15 +0100`, with the full date as a tooltip.
    pub(crate) fn day(&mut self, date: &[u8]) -> &mut Html {
        let day = date.get(..10).unwrap_or(date);
        self.markup("<time title=\"").text(date).markup("\">");
        self.text(day).markup("</time>")
    }

    /// Returns the fragment as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the whole fragment.
    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

fn push_escaped(text: &[u8], out: &mut String) {
    for character in String::from_utf8_lossy(text).chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' => out.push(character),
            // Control characters are shown as Unicode control pictures.
            '\0'..='\x1f' => out.extend(char::from_u32(0x2400 + u32::from(character))),
            '\x7f' => out.push('\u{2421}'),
            // Bidirectional controls would display text in a different order.
            '\u{80}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => {
                let _ = write!(out, "[U+{:04X}]", u32::from(character));
            }
            // XML cannot contain the noncharacters, and a feed is XML.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
}

/// The style sheet of all pages, in parts. The first two parts are the common style of generated pages.
pub(crate) const STYLE: [&str; 3] = [PAGE_STYLE, FRAME_STYLE, include_str!("style.css")];

/// Returns the style sheet of all pages.
pub(crate) fn style_sheet() -> Vec<u8> {
    STYLE.concat().into_bytes()
}

/// Returns the file name of the style sheet, which changes with the content. No repository can have the
/// name.
pub(crate) fn style_name() -> String {
    let digest = sha256(&style_sheet());
    format!(".style-{}.css", &hex(&digest)[..12])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let mut html = Html::default();
        html.text("<script>\"&'</script>\t\n")
            .text(b"\xff\x00\x1b\x7f");
        html.text("a\u{202e}b\u{2066}c\u{85}\u{e9}\u{fffe}\u{ffff}");
        assert_eq!(
            html.into_string(),
            "&lt;script&gt;&quot;&amp;&#39;&lt;/script&gt;\t\n\u{fffd}\u{2400}\u{241b}\u{2421}\
             a[U+202E]b[U+2066]c[U+0085]\u{e9}\u{fffd}\u{fffd}"
        );
        let mut html = Html::default();
        html.link("/a?b=1&c=\"", "<b>");
        assert_eq!(
            html.into_string(),
            "<a href=\"/a?b=1&amp;c=&quot;\">&lt;b&gt;</a>"
        );
        let mut html = Html::default();
        html.line(&[b'a'; GIT_LINE_BYTES_MAX + 1]).line(b"b\r");
        assert!(html.into_string().ends_with("a <i class=soft>…</i>b"));
    }
}
