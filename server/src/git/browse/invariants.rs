//! Invariants of page generation, for the fuzz target and the tests: arbitrary output of git is parsed
//! without a panic, and the resulting page contains nothing executable by a browser.

use crate::git::browse::page_location::PageLocation;
use crate::git::browse::parse;
use crate::git::browse::render::commit::DiffOutput;
use crate::git::browse::render::history::{LogPage, SEARCH_FORM, SummaryPage, about, atom, refs};
use crate::git::browse::render::{commit, readme, tree};
use crate::git::browse::url::{CommitPart, LogSearch, ObjectId, PageUrl};
use crate::git::limits::GIT_HTML_BYTES_MAX;

/// Checks all pages with `bytes` as the output of git and as a request address.
pub fn pages(bytes: &[u8]) {
    let cut = bytes.len() / 2;
    if let Some(url) = PageUrl::read(bytes, Some(&bytes[cut..])) {
        assert!(url.head.is_none_or(|name| !name.starts_with(b"-")));
    }
    let Some(id) = ObjectId::parse(b"0123456789abcdef0123456789abcdef01234567") else {
        return;
    };
    let location = PageLocation {
        prefix: bytes[..cut].to_vec(),
        name: bytes.to_vec(),
        head: Some(bytes.to_vec()),
        id: Some(id.clone()),
        origin: b"https://example.org".to_vec(),
        description: bytes.to_vec(),
        is_repository: true,
    };
    let all_refs = parse::refs(bytes);
    let commits = parse::commits(bytes);
    let entries = parse::entries(bytes);
    parse::parse_batch_check(bytes);
    parse::contents(bytes);
    let text = readme::rendered(&location, &id, "README", bytes);
    let markdown = readme::rendered(&location, &id, "README.md", bytes);
    let search = LogSearch {
        part: CommitPart::Message,
        text: bytes.to_vec(),
    };
    let log = LogPage {
        location: &location,
        path: bytes,
        offset: 50,
        search: Some(&search),
        commits: &commits,
    };
    let summary = SummaryPage {
        location: &location,
        refs: &all_refs,
        commits: &commits,
        readme: Some(markdown),
        at: Some(&id),
    };
    let difference = DiffOutput {
        patch: bytes,
        counted: bytes,
        ..DiffOutput::default()
    };
    let mut made = vec![
        summary.page(),
        about(&location, Some(text)),
        refs(&location, &all_refs, false),
        log.page(),
        atom(&location, bytes, &commits),
        tree::folder(&location, &bytes[..cut], &entries, true),
        commit::difference_page(&location, &id, &id, bytes, &difference),
    ];
    for entry in &entries {
        made.push(tree::file(&location, entry, bytes, false));
    }
    if let Some(commit) = parse::commit(bytes) {
        made.push(commit::commit_page(&location, &commit, &difference));
    }
    for page in &made {
        is_harmless(page);
    }
}

fn is_harmless(page: &str) {
    // Each of the page's parts is bounded separately.
    assert!(page.len() <= 4 * GIT_HTML_BYTES_MAX);
    // The form for searches; no text of a repository or a client can make a tag.
    let page = page.to_ascii_lowercase().replacen(SEARCH_FORM, "", 1);
    for word in [
        "<script", "<style", "<iframe", "<object", "<embed", "<svg", "<base", "<form", "<!--",
    ] {
        assert!(!page.contains(word), "{word}: {page}");
    }
    for scheme in ["\"javascript:", "\"data:", "\"vbscript:"] {
        assert!(!page.contains(&format!("href={scheme}")), "{page}");
        assert!(!page.contains(&format!("src={scheme}")), "{page}");
    }
    // An event handler attribute starts with a space and an event name inside a tag.
    for tag in page
        .split('<')
        .skip(1)
        .filter_map(|rest| rest.split('>').next())
    {
        let mut outside = tag.split('"').step_by(2);
        assert!(!outside.any(|part| part.contains(" on")), "{tag}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_output_of_git(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            pages(&bytes);
        }

        #[test]
        fn output_of_git_made_of_known_words(words in proptest::collection::vec(0..WORDS.len(), 0..80)) {
            let bytes: Vec<u8> = words.iter().flat_map(|nth| WORDS[*nth].iter().copied()).collect();
            pages(&bytes);
        }
    }

    const WORDS: [&[u8]; 44] = [
        b"\0",
        b"\0",
        b"\0",
        b"\n",
        b"\n",
        b" ",
        b"\t",
        b"/",
        b"refs/heads/",
        b"refs/tags/",
        b"commit",
        b"tag",
        b"blob",
        b"0123456789abcdef0123456789abcdef01234567",
        b"100644 blob ",
        b"120000 blob ",
        b"160000 commit ",
        b"040000 tree ",
        b"diff --git a/x b/x\n",
        b"diff --git \"a/\\303\" \"b/",
        b"@@ -1,2 +1,3 @@ x\n",
        b"+<script>\n",
        b"-x\n",
        b"--- a/x\n",
        b"+++ b/y\n",
        b"rename from ",
        b"rename to ",
        b"Binary files ",
        b"<script>alert(1)</script>",
        b"<img src=x onerror=y>",
        b"\"",
        b"'",
        b"[a](javascript:x)",
        b"![b](data:x)",
        b"[c](<d e>\"f\")",
        b"# ",
        b"* ",
        b"> ",
        b"`",
        b"|a|b|\n|-|-|\n",
        b"[^1]",
        b"[^1]: ",
        b"&lt;",
        b"\xff\xe2\x80\xae",
    ];
}
