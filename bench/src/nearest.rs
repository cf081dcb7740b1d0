//! "Did you mean" suggestions: the known words nearest to a mistyped word.

/// Returns up to three of the `known` words most similar to `typed`, the likeliest first.
pub(crate) fn nearest<'k>(typed: &str, known: impl IntoIterator<Item = &'k str>) -> Vec<&'k str> {
    let typed = plain(typed);
    let near = |word: &&str| {
        let word = plain(word);
        let edits = distance(&typed, &word);
        let holds = typed.len() >= 3 && holds(&word, &typed);
        (edits <= typed.len().min(word.len()).div_ceil(3) || holds).then_some((!holds, edits))
    };
    let mut found: Vec<_> = known
        .into_iter()
        .filter_map(|word| Some((near(&word)?, word)))
        .collect();
    found.sort();
    found
        .into_iter()
        .map(|(_, word)| word)
        .take(SUGGESTIONS_MAX)
        .collect()
}

/// Normalises a word for comparison: differences in case and punctuation are ignored.
fn plain(word: &str) -> Vec<char> {
    word.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .take(WORD_MAX)
        .collect()
}

fn holds(word: &[char], part: &[char]) -> bool {
    word.windows(part.len()).any(|window| window == part)
}

/// Returns the Levenshtein distance: letters to change, add or remove.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, to) in b.iter().enumerate() {
            let changed = last[j] + usize::from(from != to);
            row.push(changed.min(last[j + 1] + 1).min(row[j] + 1));
        }
        last = row;
    }
    last[b.len()]
}

const SUGGESTIONS_MAX: usize = 3;
/// Letters compared per word: longer words are no typing mistakes, and the comparison is quadratic.
const WORD_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::nearest;

    const KNOWN: [&str; 5] = [
        "nginx",
        "apache",
        "stunnel-busybox",
        "socat-busybox",
        "perl-dancer",
    ];

    #[test]
    fn misspelt_and_partial_names_are_recognised() {
        assert_eq!(nearest("ngnix", KNOWN), ["nginx"]);
        assert_eq!(nearest("Apache2", KNOWN), ["apache"]);
        assert_eq!(
            nearest("busybox", KNOWN),
            ["socat-busybox", "stunnel-busybox"]
        );
        assert_eq!(nearest("dancer", KNOWN), ["perl-dancer"]);
        assert_eq!(nearest("iis", KNOWN), [""; 0]);
        assert_eq!(nearest("", KNOWN), [""; 0]);
    }
}
