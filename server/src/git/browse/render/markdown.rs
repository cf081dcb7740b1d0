//! Renderer of Markdown to HTML for untrusted input. Embedded HTML is shown as text.

use crate::git::browse::render::html::Html;
use crate::git::browse::render::links::InnerLinks;
use crate::git::limits::{GIT_HTML_BYTES_MAX, GIT_README_NESTING_MAX};
use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};
use std::collections::HashMap;
use std::fmt::{self, Write};

/// Appends `content` as HTML, or as plain text if rendering would take too long or the result would be too
/// large.
pub(in crate::git) fn push_markdown(content: &[u8], inner: InnerLinks<'_>, page: &mut Html) {
    if is_deep(content) {
        page.preformatted(content);
        return;
    }
    let text = String::from_utf8_lossy(content);
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_FOOTNOTES;
    let parser = Parser::new_ext(&text, options);
    let events = HeadingAnchors::new(parser).map(|event| harmless(inner, event));
    let mut bounded = BoundedText(String::new());
    // Writing fails at the size limit.
    let is_whole = html::write_html_fmt(&mut bounded, events).is_ok();
    if is_whole {
        page.markup(&bounded.0)
    } else {
        page.preformatted(content)
    };
}

/// Returns true if quotes and lists may be nested too deeply. The parser checks every open block on each
/// line, so a few lines of markers alone could occupy the parser for seconds. The depth of a line is
/// bounded by the number of markers plus half the number of columns before the markers.
fn is_deep(content: &[u8]) -> bool {
    let mut lines = content.split(|byte| matches!(byte, b'\n' | b'\r'));
    lines.any(|line| nesting(line) > GIT_README_NESTING_MAX)
}

/// Returns an upper bound of the nesting depth of a line; 0 if the line opens no block.
fn nesting(line: &[u8]) -> usize {
    let (mut rest, mut columns, mut markers) = (line, 0, 0);
    while let Some((first, after)) = rest.split_first() {
        let length = match first {
            b' ' | b'\t' => {
                columns += if *first == b'\t' { 4 } else { 1 };
                rest = after;
                continue;
            }
            b'>' => 1,
            b'-' | b'*' | b'+' => 1,
            b'0'..=b'9' => {
                let digits = rest.iter().take_while(|it| it.is_ascii_digit()).count();
                match rest.get(digits) {
                    Some(b'.' | b')') => digits + 1,
                    _ => break,
                }
            }
            b'[' if after.starts_with(b"^") => match rest.windows(2).position(|it| it == b"]:") {
                Some(end) => end + 2,
                None => break,
            },
            _ => break,
        };
        let is_spaced = |rest: &[u8]| matches!(rest.first(), None | Some(b' ' | b'\t'));
        rest = rest.get(length..).unwrap_or_default();
        // A list marker without a following space is text, for example in a line of hyphens.
        if !matches!(first, b'>' | b'[') && !is_spaced(rest) {
            break;
        }
        markers += 1;
    }
    match markers {
        0 => 0,
        _ => markers + columns / 2,
    }
}

/// Returns the event with embedded HTML as text and links restricted to safe targets.
fn harmless<'e>(inner: InnerLinks<'_>, event: Event<'e>) -> Event<'e> {
    let led = |url: &CowStr<'e>, is_image| {
        CowStr::from(link_target(url, is_image, inner).unwrap_or_default())
    };
    match event {
        Event::Html(html) | Event::InlineHtml(html) => Event::Text(html),
        Event::Start(Tag::HtmlBlock) => Event::Start(Tag::Paragraph),
        Event::End(TagEnd::HtmlBlock) => Event::End(TagEnd::Paragraph),
        Event::Start(Tag::Link {
            link_type,
            dest_url,
            title,
            id,
        }) => Event::Start(Tag::Link {
            link_type: match link_type {
                // The renderer would add a second `mailto:` to an email link.
                pulldown_cmark::LinkType::Email => pulldown_cmark::LinkType::Inline,
                other => other,
            },
            dest_url: match link_type {
                pulldown_cmark::LinkType::Email => format!("mailto:{dest_url}").into(),
                _ => led(&dest_url, false),
            },
            title,
            id,
        }),
        Event::Start(Tag::Image {
            link_type,
            dest_url,
            title,
            id,
        }) => Event::Start(Tag::Image {
            link_type,
            dest_url: led(&dest_url, true),
            title,
            id,
        }),
        other => other,
    }
}

/// Iterator that adds anchors to headings for links within the text.
struct HeadingAnchors<'t, P> {
    inner: P,
    /// Events of a heading read ahead, in reverse order.
    ahead: Vec<Event<'t>>,
    /// Anchor names with the number of uses.
    seen: HashMap<String, usize>,
}

impl<'t, P: Iterator<Item = Event<'t>>> HeadingAnchors<'t, P> {
    fn new(inner: P) -> HeadingAnchors<'t, P> {
        HeadingAnchors {
            inner,
            ahead: Vec::new(),
            seen: HashMap::new(),
        }
    }

    /// Returns the anchor name of a heading, in the form used by large forges: lower case, words joined by
    /// hyphens, a number from the second use.
    fn name(&mut self, text: &str) -> String {
        let mut name = String::new();
        for character in text.trim().chars() {
            match character {
                ' ' | '-' => name.push('-'),
                '_' => name.push('_'),
                it if it.is_alphanumeric() => name.extend(it.to_lowercase()),
                _ => {}
            }
        }
        let times = self.seen.entry(name.clone()).or_default();
        *times += 1;
        if *times > 1 {
            let _ = write!(name, "-{}", *times - 1);
        }
        name
    }
}

impl<'t, P: Iterator<Item = Event<'t>>> Iterator for HeadingAnchors<'t, P> {
    type Item = Event<'t>;

    fn next(&mut self) -> Option<Event<'t>> {
        if let Some(event) = self.ahead.pop() {
            return Some(event);
        }
        let first = self.inner.next()?;
        let Event::Start(Tag::Heading { level, .. }) = first else {
            return Some(first);
        };
        let mut text = String::new();
        for event in self.inner.by_ref() {
            if let Event::Text(part) | Event::Code(part) = &event {
                text.push_str(part);
            }
            let is_end = matches!(event, Event::End(TagEnd::Heading(_)));
            self.ahead.push(event);
            if is_end {
                break;
            }
        }
        self.ahead.reverse();
        let name = self.name(&text);
        Some(Event::Start(Tag::Heading {
            level,
            id: (!name.is_empty()).then(|| name.into()),
            classes: Vec::new(),
            attrs: Vec::new(),
        }))
    }
}

/// Output buffer with a size limit.
struct BoundedText(String);

impl fmt::Write for BoundedText {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.0.len() + part.len() <= GIT_HTML_BYTES_MAX {
            self.0.write_str(part)
        } else {
            Err(fmt::Error)
        }
    }
}

/// Returns the target of a link in a README: `inner` of a relative link, or an external address. None if the link is not
/// allowed.
fn link_target(link: &str, is_image: bool, inner: InnerLinks<'_>) -> Option<String> {
    // Browsers ignore control characters in addresses.
    let link: String = link.chars().filter(|it| !it.is_control()).collect();
    let link = link.trim();
    if link.starts_with('#') {
        return (!is_image).then(|| link.to_owned());
    }
    let end = link.find(['/', '?', '#']).unwrap_or(link.len());
    if let Some((scheme, rest)) = link
        .split_once(':')
        .filter(|(scheme, _)| scheme.len() < end)
    {
        let is_web = ["http", "https"]
            .iter()
            .any(|it| scheme.eq_ignore_ascii_case(it));
        let is_mail = scheme.eq_ignore_ascii_case("mailto") && !is_image;
        return ((is_web && rest.starts_with("//")) || is_mail).then(|| link.to_owned());
    }
    // Excludes `//host/path` and variants accepted by browsers, and paths of the site outside the
    // repository.
    if link.starts_with('/') || link.contains('\\') {
        return None;
    }
    inner(link, is_image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::browse::page_location::PageLocation;
    use crate::git::browse::render::links::file_of_commit;
    use crate::git::browse::url::ObjectId;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    fn shown(text: &str) -> String {
        let location = PageLocation {
            prefix: b"/git".to_vec(),
            name: b"a.git".to_vec(),
            head: Some(b"main".to_vec()),
            id: None,
            origin: Vec::new(),
            description: Vec::new(),
            is_repository: true,
        };
        let commit = ObjectId::parse(COMMIT.as_bytes()).expect("an id");
        let mut page = Html::default();
        let inner = |link: &str, is_image| file_of_commit(&location, &commit, link, is_image);
        push_markdown(text.as_bytes(), &inner, &mut page);
        page.into_string()
    }

    #[test]
    fn markdown_is_rendered() {
        let page = shown("# A *b* `c`!\n\n# A b c\n\n|x|\n|-|\n|y|\n\n~~z~~ <ant@example.org>\n");
        assert!(page.contains("<h1 id=\"a-b-c\">"), "{page}");
        assert!(page.contains("<h1 id=\"a-b-c-1\">"), "{page}");
        assert!(
            page.contains("<table>") && page.contains("<del>z</del>"),
            "{page}"
        );
        assert!(page.contains("href=\"mailto:ant@example.org\""), "{page}");
    }

    #[test]
    fn links_lead_to_the_same_commit_or_to_the_web() {
        for (link, led) in [
            (
                "docs/a.md",
                "/git/a.git/tree/docs/a.md?h=main&amp;id=0123456789abcdef0123456789abcdef01234567",
            ),
            (
                "./docs/../b.md#x",
                "/git/a.git/tree/b.md?h=main&amp;id=0123456789abcdef0123456789abcdef01234567#x",
            ),
            ("#x", "#x"),
            ("https://example.org/?a", "https://example.org/?a"),
            ("HTTP://example.org", "HTTP://example.org"),
            ("mailto:a@b", "mailto:a@b"),
            ("../../etc", ""),
            ("/etc", ""),
            ("//example.org", ""),
            ("javascript:alert(1)", ""),
            ("JaVaScRiPt:alert(1)", ""),
            ("java&#10;script:alert(1)", ""),
            ("&#1;javascript:alert(1)", ""),
            ("data:text/html,x", ""),
            ("vbscript:x", ""),
            ("https:x", ""),
            ("file:///etc/passwd", ""),
        ] {
            let page = shown(&format!("[x](<{link}>)"));
            assert!(
                page.contains(&format!("<a href=\"{led}\">")),
                "{link}: {page}"
            );
        }
        let page = shown("![x](b.png) ![y](javascript:1) ![z](https://example.org/z.png)");
        assert!(
            page.contains("src=\"/git/a.git/plain/b.png?h=main&amp;id=0123456789abcdef0123456789abcdef01234567\""),
            "{page}"
        );
        assert!(
            page.contains("src=\"\"") && page.contains("src=\"https://example.org/z.png\""),
            "{page}"
        );
    }

    #[test]
    fn embedded_html_is_text() {
        for text in [
            "<script>alert(1)</script>",
            "a <img src=x onerror=alert(1)> b",
            "<div\nonclick=x>\n\n*a*\n\n</div>",
            "```<script>\nx\n```",
            "[a](b \"\\\"><script>\")",
            "# x {#\"><script> onclick=x}",
            "[^\"><script>]\n\n[^\"><script>]: x",
            "<!-- <script> -->",
        ] {
            let page = shown(text);
            let is_bad = |part: &str| page.to_ascii_lowercase().contains(part);
            assert!(
                !is_bad("<script") && !is_bad("<img") && !is_bad("<div\n"),
                "{text}: {page}"
            );
            assert!(!is_bad("<!--"), "{text}: {page}");
        }
        // The stack size equals the stack size of a thread in the pool.
        let small = std::thread::Builder::new().stack_size(512 * 1024);
        let shown_all = || {
            for part in ["[", "![", "[a](", "*a _b ", "> a\n", "`", "|a|b|\n|-|-|\n"] {
                shown(&part.repeat(20_000));
            }
        };
        small
            .spawn(shown_all)
            .expect("a thread")
            .join()
            .expect("shown");
    }

    #[test]
    fn expensive_markdown_is_shown_as_text() {
        let quotes = ">".repeat(128_000) + "a\n" + &"a\n".repeat(64_000);
        let tabs: String = (0..400)
            .map(|nth| "\t".repeat(nth) + &"- ".repeat(60) + "\n")
            .collect();
        for text in [
            quotes,
            "- ".repeat(120_000),
            "> ".repeat(20_000),
            "1. ".repeat(2_000),
            "2)\t* > ".repeat(2_000),
            "[^1]: ".repeat(2_000),
            tabs,
        ] {
            assert!(
                shown(&text).starts_with("<pre class=plain>"),
                "{}",
                &text[..9]
            );
        }
        let headings = "# a\n".repeat(60_000);
        assert!(shown(&headings).contains("<h1 id=\"a-59999\">"));
    }

    #[test]
    fn nesting_depth_of_a_line() {
        for (line, depth) in [
            ("", 0),
            ("text > - *", 0),
            (&*"-".repeat(200), 0),
            (&*"*".repeat(200), 0),
            ("    1.5 apples", 0),
            ("> a", 1),
            (">>> a", 3),
            ("- * + 12. 3) a", 6),
            ("    - a", 3),
            ("-", 1),
        ] {
            assert!(nesting(line.as_bytes()).abs_diff(depth) <= 2, "{line}");
        }
    }
}
