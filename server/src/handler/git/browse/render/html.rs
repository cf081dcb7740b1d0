//! HTML as it is written here: text is escaped wherever it comes from, and nothing else gets in. What
//! isn't UTF-8 is shown with replacement characters, and what would turn or hide text is named.

use crate::base::digest::{hex, sha256};
use crate::handler::git::browse::page_location::{PageLocation, Tab};
use crate::limits::GIT_LINE_BYTES_MAX;
use std::fmt::Write;

/// A piece of a page.
#[derive(Default)]
pub struct Html(String);

impl Html {
    /// Markup.
    pub fn markup(&mut self, markup: &str) -> &mut Html {
        self.0.push_str(markup);
        self
    }

    /// Text, or the value of an attribute between double quotes.
    pub fn text(&mut self, text: impl AsRef<[u8]>) -> &mut Html {
        push_escaped(text.as_ref(), &mut self.0);
        self
    }

    /// A line of a file; a long one is cut.
    pub fn line(&mut self, line: &[u8]) -> &mut Html {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match line.get(..GIT_LINE_BYTES_MAX) {
            Some(cut) if line.len() > cut.len() => self.text(cut).markup(" <i class=soft>…</i>"),
            _ => self.text(line),
        }
    }

    /// `<a href="url">text</a>`
    pub fn link(&mut self, url: &str, text: impl AsRef<[u8]>) -> &mut Html {
        self.markup("<a href=\"").text(url).markup("\">");
        self.text(text).markup("</a>")
    }

    /// The same to what is much work, where crawlers have no business.
    pub fn heavy_link(&mut self, url: &str, text: impl AsRef<[u8]>) -> &mut Html {
        self.markup("<a rel=nofollow href=\"")
            .text(url)
            .markup("\">");
        self.text(text).markup("</a>")
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All of it.
    pub fn into_string(self) -> String {
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
            // As their pictures.
            '\0'..='\x1f' => out.extend(char::from_u32(0x2400 + u32::from(character))),
            '\x7f' => out.push('\u{2421}'),
            // They would show a text in another order than it has.
            '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                let _ = write!(out, "[U+{:04X}]", u32::from(character));
            }
            // XML can't say these, and a feed is XML.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
}

/// What a page says beside its content.
pub struct PageFrame<'p> {
    /// Where it is.
    pub place: &'p PageLocation,
    /// Of the window.
    pub title: &'p [u8],
    /// The part of the repository that it belongs to; None for lists of repositories.
    pub tab: Option<Tab>,
    /// Crawlers are to leave it.
    pub is_heavy: bool,
}

impl PageFrame<'_> {
    /// The page with this content.
    pub fn around(&self, content: &Html) -> String {
        let mut page = Html(String::with_capacity(content.len() + 2_048));
        page.markup("<!doctype html>\n<html lang=en><meta charset=utf-8>")
            .markup("<meta name=viewport content=\"width=device-width,initial-scale=1\"><title>")
            .text(self.title)
            .markup("</title>");
        if self.is_heavy {
            page.markup("<meta name=robots content=\"noindex,nofollow\">");
        }
        page.markup("<link rel=stylesheet href=\"")
            .text(self.place.style())
            .markup("\">");
        if self.tab.is_some() {
            page.markup("<link rel=alternate type=\"application/atom+xml\" href=\"")
                .text(self.place.url_of_branch("atom", b"", &[]))
                .markup("\">");
        }
        page.markup("\n<header>");
        self.place.push_path(&mut page);
        if let Some(tab) = self.tab {
            self.place.push_tabs(tab, &mut page);
        }
        page.markup("</header>\n<main>\n")
            .markup(&content.0)
            .markup("</main>\n<footer>anthill</footer>\n</html>\n");
        page.into_string()
    }
}

/// The style sheet of all pages.
pub const STYLE: &str = include_str!("style.css");

/// The style sheet's name, which changes with its content. No repository is called so.
pub fn style_name() -> String {
    let digest = sha256(STYLE.as_bytes());
    format!(".style-{}.css", &hex(&digest)[..12])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_text() {
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
