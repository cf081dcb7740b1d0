//! Characters that terminals obey, or that display text in another order than stored, and texts without such
//! characters. Texts of the operator's files and of peers may contain any character.

use std::fmt::Write;

/// Returns true for a control character, or for a mark or an isolate that changes the direction of text (Unicode
/// standard annex 9).
pub fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// Returns lines with all hidden characters but tabs and line feeds as `\uHHHH`. JSON and TOML stay valid, because
/// both have hidden characters only in strings, where the escape stands for the character.
pub fn visible_lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' => out.push(character),
            hidden if is_hidden(hidden) => {
                let _ = write!(out, "\\u{:04x}", u32::from(hidden));
            }
            visible => out.push(visible),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_escaped() {
        let text = "a\tb\n\u{1b}[2J\u{7f}\u{9b}\r\u{202e}c\u{2069}\u{200f}\u{e9}\u{2603}";
        let expected = "a\tb\n\\u001b[2J\\u007f\\u009b\\u000d\\u202ec\\u2069\\u200f\u{e9}\u{2603}";
        assert_eq!(visible_lines(text), expected);
    }
}
