//! "Did you mean": the known words nearest to what was typed.

/// The words of `known` that `typed` may have meant, the likeliest first.
pub fn nearest<'k>(typed: &str, known: impl IntoIterator<Item = &'k str>) -> Vec<&'k str> {
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

/// What differs in case and signs alone is the same word.
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

/// Letters to change, add or take away (Levenshtein).
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
/// Longer words are no typing mistakes, and the comparison is quadratic.
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
    fn slips_and_parts_of_a_name_are_recognised() {
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
