//! Characters that terminals obey, that display text in another order than stored, or that leave no mark on a screen, and
//! texts without such characters. Texts of the operator's files and of peers may contain any character.

use crate::limits::QUOTED_CHARACTERS_MAX;
use std::fmt::Write;

/// Returns true for a control character, a separator of lines, a character without width, a tag character, or a mark or an
/// isolate that changes the direction of text (Unicode standard annex 9). The joiners U+200C and U+200D are not hidden,
/// since words of some languages need them.
pub fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'
                | '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}'
        )
}

/// Returns lines with all hidden characters but tabs and line feeds as `\uHHHH`, and as a surrogate pair above U+FFFF.
/// JSON stays valid, because JSON has hidden characters only in strings, where the escape stands for the character; TOML
/// stays valid up to U+FFFF.
pub fn visible_lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' => out.push(character),
            hidden if is_hidden(hidden) => {
                for unit in hidden.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            visible => out.push(visible),
        }
    }
    out
}

/// Returns a text of a less trusted party as quoted in a log line, a status or an error: at most 80 characters with an
/// ellipsis for the rest, and without hidden characters. A log line of a foreign text is then one line of a bounded length.
pub fn shortened(text: impl AsRef<[u8]>) -> String {
    let text = text.as_ref();
    // A character has at most 4 bytes. Longer texts are not decoded as a whole.
    let most = 4 * (QUOTED_CHARACTERS_MAX + 1);
    let decoded = String::from_utf8_lossy(&text[..text.len().min(most)]);
    let mut characters = decoded.chars();
    let mut quoted: String = characters.by_ref().take(QUOTED_CHARACTERS_MAX).collect();
    let is_cut = characters.next().is_some() || text.len() > most;
    if quoted.contains(is_hidden) {
        quoted = visible_lines(&quoted)
            .replace('\n', "\\n")
            .replace('\t', "\\t");
    }
    if is_cut {
        quoted.push('\u{2026}');
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_escaped() {
        let text = "a\tb\n\u{1b}[2J\u{7f}\u{9b}\r\u{202e}c\u{2069}\u{200f}\u{e9}\u{2603}\
                    \u{2028}\u{2029}\u{200b}\u{feff}\u{e0041}\u{200d}";
        let expected = "a\tb\n\\u001b[2J\\u007f\\u009b\\u000d\\u202ec\\u2069\\u200f\u{e9}\u{2603}\
                        \\u2028\\u2029\\u200b\\ufeff\\udb40\\udc41\u{200d}";
        assert_eq!(visible_lines(text), expected);
    }

    #[test]
    fn a_quoted_text_has_at_most_80_visible_characters() {
        assert_eq!(shortened("/a b"), "/a b");
        assert_eq!(shortened("a".repeat(80)), "a".repeat(80));
        assert_eq!(shortened("a".repeat(81)), "a".repeat(80) + "\u{2026}");
        assert_eq!(
            shortened("\u{1f41c}".repeat(10_000)),
            "\u{1f41c}".repeat(80) + "\u{2026}"
        );
        assert_eq!(
            shortened(b"a\n\tb\x1b[2J\xff"),
            "a\\n\\tb\\u001b[2J\u{fffd}"
        );
    }
}
