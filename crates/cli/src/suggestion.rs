//! Suggestions for misspelt words ("did you mean …").

/// Returns the word of `known` nearest to `typed`, or `None` if no word is near enough: a third of the letters may
/// differ, or one word may begin with the other.
pub fn suggest<'k>(typed: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let plain = |word: &str| word.to_ascii_lowercase().replace('-', "_");
    let typed: Vec<char> = plain(typed).chars().collect();
    if typed.len() > WORD_MAX {
        return None;
    }
    let near = known.into_iter().filter_map(|word| {
        let letters: Vec<char> = plain(word).chars().collect();
        let distance = distance(&typed, &letters);
        let is_near = distance <= (letters.len().max(typed.len()) / 3).max(1);
        let is_begun = letters.len().min(typed.len()) >= BEGINNING_MIN
            && (letters.starts_with(&typed) || typed.starts_with(&letters));
        let fits = is_begun || (is_near && distance < typed.len());
        fits.then_some((distance, word))
    });
    near.min_by_key(|&(distance, _)| distance)
        .map(|(_, word)| word)
}

/// Counts the edits between two words; a swap of two neighbouring characters is a single edit (optimal
/// string alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before_last: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let changed = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + changed);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// Maximum length of a typed word in characters. A longer word is no likely typing mistake, and the
/// comparison takes quadratic time.
const WORD_MAX: usize = 40;
/// Minimum length of a word that the other word begins with.
const BEGINNING_MIN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_suggested() {
        let known = [
            "names",
            "root",
            "errors",
            "certificate",
            "key",
            "client_ca",
            "listing",
        ];
        for (typed, meant) in [
            ("eror", Some("errors")),
            ("naems", Some("names")),
            ("rot", Some("root")),
            ("Client-CA", Some("client_ca")),
            ("cert", Some("certificate")),
            ("keyfile", Some("key")),
            ("list", Some("listing")),
            ("x", None),
            ("zebra", None),
            ("", None),
        ] {
            assert_eq!(suggest(typed, known), meant, "{typed}");
        }
    }
}
