//! Characters that a text of the configuration has by mistake: invisible characters, wide spaces, dashes in place of hyphens,
//! full-width characters and letters of another script that look like Latin letters.

/// Odd character of a text, with the text as it was probably meant.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OddText {
    /// The character and its place, as a sentence without a full stop.
    pub(super) what: String,
    /// Text without odd characters.
    pub(super) corrected: String,
}

/// Returns the first odd character of a text; `None` for a text without one. Spaces and line ends count at both ends of the
/// text only.
pub(super) fn odd_text(text: &str) -> Option<OddText> {
    let first = text
        .char_indices()
        .find_map(|(at, c)| Some((at, c, replacement(text, at, c)?)));
    let corrected: String = text
        .char_indices()
        .filter_map(|(at, c)| match replacement(text, at, c) {
            Some((_, other)) => other,
            None => Some(c),
        })
        .collect();
    let corrected = corrected.trim().to_owned();
    if corrected.is_empty() {
        return None;
    }
    let what = match first {
        Some((at, c, (name, other))) => {
            let code = code_point(c);
            match other {
                None | Some(' ') => {
                    format!("{name} ({code}) stands {}", place(text, at + c.len_utf8()))
                }
                Some(other) => format!("`{c}` ({code}) is {name} in place of `{other}`"),
            }
        }
        None => {
            let space = |c: Option<char>| match c? {
                ' ' => Some("a space"),
                '\t' => Some("a tab"),
                '\r' => Some("a carriage return"),
                '\n' => Some("a line feed"),
                _ => None,
            };
            match (space(text.chars().next()), space(text.chars().next_back())) {
                (Some(space), _) => format!("the text begins with {space}"),
                (None, Some(space)) => format!("the text ends with {space}"),
                (None, None) => return None,
            }
        }
    };
    Some(OddText { what, corrected })
}

/// Returns an odd character of source text outside of quotes: its position, the sentence about it, and the character to write.
pub(super) fn odd_in_code(line: &str) -> Option<(usize, OddText)> {
    let (at, c, (name, other)) = line.char_indices().find_map(|(at, c)| {
        let (name, other) = replacement(line, at, c)?;
        // Invisible characters, spaces and quotes have messages of their own.
        let other = other.filter(|it| *it != ' ')?;
        let quotes = line[..at].matches(['"', '\'']).count();
        quotes.is_multiple_of(2).then_some((at, c, (name, other)))
    })?;
    let is_part = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    let start = line[..at].rfind(|c| !is_part(c));
    let start = start.map_or(0, |at| {
        at + line[at..].chars().next().map_or(1, char::len_utf8)
    });
    let word = line[start..]
        .split(|c| !is_part(c))
        .next()
        .unwrap_or_default();
    let corrected = if word.contains(c) {
        word.char_indices()
            .filter_map(|(at, c)| replacement(word, at, c).map_or(Some(c), |(_, other)| other))
            .collect()
    } else {
        other.to_string()
    };
    let what = format!("`{c}` ({}) is {name}", code_point(c));
    Some((at, OddText { what, corrected }))
}

/// Returns the name of an odd character at byte `at` of a text, and the character to write instead; `None` for nothing.
fn replacement(text: &str, at: usize, c: char) -> Option<(&'static str, Option<char>)> {
    Some(match c {
        '\u{ad}'
        | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{2064}'
        | '\u{2066}'..='\u{2069}'
        | '\u{feff}' => ("an invisible character", None),
        '\u{a0}' | '\u{2007}' | '\u{202f}' => ("a non-breaking space", Some(' ')),
        '\u{1680}'
        | '\u{2000}'..='\u{2006}'
        | '\u{2008}'..='\u{200a}'
        | '\u{205f}'
        | '\u{3000}' => ("a wide space", Some(' ')),
        '\u{2010}'..='\u{2015}' | '\u{2212}' => ("a dash", Some('-')),
        '\u{3001}' => ("a full-width comma", Some(',')),
        '\u{3002}' => ("a full-width full stop", Some('.')),
        '\u{ff01}'..='\u{ff5e}' => (
            "a full-width character",
            char::from_u32(u32::from(c) - 0xfee0),
        ),
        _ => {
            let (_, latin) = LOOKALIKES.iter().find(|(odd, _)| *odd == c)?;
            if !is_mixed(text, at) {
                return None;
            }
            let name = match c {
                '\u{370}'..='\u{3ff}' => "a Greek letter",
                _ => "a Cyrillic letter",
            };
            (name, Some(*latin))
        }
    })
}

/// Letters of Cyrillic and Greek that look like a Latin letter, each with the Latin letter.
static LOOKALIKES: &[(char, char)] = &[
    ('а', 'a'),
    ('с', 'c'),
    ('е', 'e'),
    ('о', 'o'),
    ('р', 'p'),
    ('х', 'x'),
    ('у', 'y'),
    ('і', 'i'),
    ('ѕ', 's'),
    ('ј', 'j'),
    ('А', 'A'),
    ('В', 'B'),
    ('Е', 'E'),
    ('К', 'K'),
    ('М', 'M'),
    ('Н', 'H'),
    ('О', 'O'),
    ('Р', 'P'),
    ('С', 'C'),
    ('Т', 'T'),
    ('Х', 'X'),
    ('ο', 'o'),
    ('ν', 'v'),
    ('Α', 'A'),
    ('Ο', 'O'),
];

/// Returns true if the word around byte `at` has Latin letters, and no letter of another script without a Latin likeness.
fn is_mixed(text: &str, at: usize) -> bool {
    let before = text[..at].rfind(|c: char| !c.is_alphanumeric());
    let start = before.map_or(0, |at| {
        at + text[at..].chars().next().map_or(1, char::len_utf8)
    });
    let word = text[start..].split(|c: char| !c.is_alphanumeric()).next();
    let word = word.unwrap_or_default();
    let is_known = |c: char| c.is_ascii() || LOOKALIKES.iter().any(|(odd, _)| *odd == c);
    word.chars().any(|c| c.is_ascii_alphabetic()) && word.chars().all(is_known)
}

/// Returns the place in front of byte `next` in words.
fn place(text: &str, next: usize) -> String {
    let rest = &text[next..];
    let word = rest
        .split(|c: char| !c.is_alphanumeric())
        .find(|word| !word.is_empty());
    match word {
        Some(word) => format!(
            "before `{}`",
            word.chars().take(WORD_CHARACTERS).collect::<String>()
        ),
        None => "at the end of the text".to_owned(),
    }
}

/// Returns the number of a character in the notation of Unicode.
fn code_point(c: char) -> String {
    format!("U+{:04X}", u32::from(c))
}

/// Characters of a word that a message repeats.
const WORD_CHARACTERS: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_characters_are_named_and_replaced() {
        for (text, what, corrected) in [
            (
                "www.\u{200b}example.org",
                "an invisible character (U+200B) stands before `example`",
                "www.example.org",
            ),
            (
                "www.example.org\u{a0}",
                "a non-breaking space (U+00A0) stands at the end of the text",
                "www.example.org",
            ),
            (
                "my\u{2013}site.org",
                "`\u{2013}` (U+2013) is a dash in place of `-`",
                "my-site.org",
            ),
            (
                "\u{ff1a}8443",
                "`\u{ff1a}` (U+FF1A) is a full-width character in place of `:`",
                ":8443",
            ),
            (
                "ex\u{430}mple.org",
                "`\u{430}` (U+0430) is a Cyrillic letter in place of `a`",
                "example.org",
            ),
            (" a.org", "the text begins with a space", "a.org"),
            ("a.org\t", "the text ends with a tab", "a.org"),
            ("public\r", "the text ends with a carriage return", "public"),
        ] {
            let odd = odd_text(text).unwrap_or_else(|| panic!("{text:?}"));
            assert_eq!(
                (odd.what.as_str(), odd.corrected.as_str()),
                (what, corrected),
                "{text:?}"
            );
        }
        for text in [
            "",
            " ",
            "www.example.org",
            "b\u{fc}cher.de",
            "\u{43c}\u{43e}\u{439}.\u{440}\u{444}",
            "a b",
        ] {
            assert_eq!(odd_text(text), None, "{text:?}");
        }
    }

    #[test]
    fn odd_characters_of_code_stand_outside_of_quotes() {
        let (at, odd) = odd_in_code("https \u{ff1d} \":8443\"").expect("a full-width sign");
        assert_eq!((at, odd.corrected.as_str()), (6, "="));
        let (_, odd) = odd_in_code("n\u{430}mes = [\"a\"]").expect("a Cyrillic letter");
        assert_eq!(odd.corrected, "names");
        assert!(odd_in_code("a = \"\u{ff1d}\"").is_none());
    }
}
