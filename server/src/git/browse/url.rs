//! Parser of page addresses: the path behind the repository, and the query. The addresses are compatible
//! with cgit, so existing links to cgit keep working. All functions are pure.

use crate::git::limits::{
    GIT_LOG_OFFSET_MAX, GIT_PATH_BYTES_MAX, GIT_REF_BYTES_MAX, GIT_SEARCH_BYTES_MAX,
};

/// Address of a page of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageUrl {
    /// Kind of the page.
    pub aspect: PageKind,
    /// Branch or tag (`h=`).
    pub head: Option<Vec<u8>>,
    /// Commit (`id=`), as a full hexadecimal object name.
    pub id: Option<ObjectId>,
    /// Commit to compare with (`id2=`).
    pub other: Option<ObjectId>,
    /// Number of commits to skip in a log (`ofs=`).
    pub offset: u64,
    /// Search in a log (`q=` and `qt=`).
    pub search: Option<LogSearch>,
}

/// Search for commits in a log. The text is searched as it stands, without regard to case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogSearch {
    /// Searched part of the commits.
    pub part: CommitPart,
    /// Searched text: not empty, on one line.
    pub text: Vec<u8>,
}

/// Part of a commit that a search looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitPart {
    /// Message.
    Message,
    /// Name and address of the author.
    Author,
    /// Name and address of the committer.
    Committer,
}

impl CommitPart {
    /// All parts, the usual part first.
    pub(crate) const ALL: [CommitPart; 3] = [
        CommitPart::Message,
        CommitPart::Author,
        CommitPart::Committer,
    ];

    /// Returns the value of `qt=`, which is the name of git's option as well.
    pub(crate) fn word(self) -> &'static str {
        match self {
            CommitPart::Message => "grep",
            CommitPart::Author => "author",
            CommitPart::Committer => "committer",
        }
    }
}

/// Kind of a page, with the path within the repository if the kind has a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PageKind {
    /// Branches, tags, the newest commits and the README.
    Summary,
    /// The README alone.
    About,
    /// Commits; restricted to a path if the path is not empty.
    Log(Vec<u8>),
    /// A folder, or a file with line numbers.
    Tree(Vec<u8>),
    /// The raw content of a file.
    Plain(Vec<u8>),
    /// A commit with its changes.
    Commit,
    /// The difference between two commits, or between a commit and its parent.
    Diff(Vec<u8>),
    /// All branches and tags.
    Refs,
    /// A feed of commits.
    Atom,
    /// An archive with the given file name.
    Snapshot(Vec<u8>),
    /// A commit as a patch for `git am`.
    Patch,
}

/// Full object name. Abbreviated names are not accepted, since abbreviations would help to find unpublished
/// objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectId(Box<str>);

impl ObjectId {
    /// Parses the hexadecimal digits of an object name.
    pub(crate) fn parse(text: &[u8]) -> Option<ObjectId> {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_whole = [SHA1_DIGITS, SHA256_DIGITS].contains(&text.len());
        let is_id = is_whole && text.iter().all(is_digit);
        let text = std::str::from_utf8(text).ok().filter(|_| is_id)?;
        Some(ObjectId(text.into()))
    }

    /// Returns all hexadecimal digits.
    pub(crate) fn digits(&self) -> &str {
        &self.0
    }

    /// Returns true for a SHA-256 object name.
    pub(crate) fn is_sha256(&self) -> bool {
        self.0.len() == SHA256_DIGITS
    }

    /// Returns the abbreviated name for display.
    pub(crate) fn short(&self) -> &str {
        &self.0[..self.0.len().min(SHORT_DIGITS)]
    }
}

const SHA1_DIGITS: usize = 40;
const SHA256_DIGITS: usize = 64;
const SHORT_DIGITS: usize = 10;

impl PageUrl {
    /// Parses the query and the path behind the repository; the path begins with a slash. Returns None if
    /// no page has the address.
    pub(crate) fn read(rest: &[u8], query: Option<&[u8]>) -> Option<PageUrl> {
        let rest = rest.strip_prefix(b"/")?;
        if rest.len() > GIT_PATH_BYTES_MAX {
            return None;
        }
        let slash = rest.iter().position(|byte| *byte == b'/');
        let (word, path) = match slash {
            Some(slash) => (&rest[..slash], &rest[slash + 1..]),
            None => (rest, &[][..]),
        };
        let within = || path.strip_suffix(b"/").unwrap_or(path).to_vec();
        let aspect = match word {
            b"" if slash.is_none() => PageKind::Summary,
            b"log" => PageKind::Log(within()),
            b"tree" => PageKind::Tree(within()),
            b"plain" => PageKind::Plain(within()),
            b"diff" => PageKind::Diff(within()),
            b"snapshot" if !path.is_empty() => PageKind::Snapshot(path.to_vec()),
            b"about" if path.is_empty() => PageKind::About,
            b"refs" if path.is_empty() => PageKind::Refs,
            b"summary" if path.is_empty() => PageKind::Summary,
            // cgit restricts both pages to the path; here the path is ignored.
            b"commit" => PageKind::Commit,
            b"atom" => PageKind::Atom,
            b"patch" => PageKind::Patch,
            _ => return None,
        };
        let mut search = (CommitPart::Message, Vec::new());
        let mut page = PageUrl {
            aspect,
            head: None,
            id: None,
            other: None,
            offset: 0,
            search: None,
        };
        for (name, value) in pairs(query.unwrap_or_default()) {
            match &*name {
                b"h" if !value.is_empty() => page.head = Some(ref_name(value)?),
                b"id" if !value.is_empty() => page.id = Some(ObjectId::parse(&value)?),
                b"id2" if !value.is_empty() => page.other = Some(ObjectId::parse(&value)?),
                b"ofs" => page.offset = offset(&value)?,
                b"q" => search.1 = searched(value)?,
                b"qt" if !value.is_empty() => {
                    let mut parts = CommitPart::ALL.into_iter();
                    search.0 = parts.find(|part| part.word().as_bytes() == value)?;
                }
                _ => {}
            }
        }
        // A path that looks like a commit must not lead to the newest commit.
        let names_no_commit = page.id.is_none() && page.head.is_none();
        if page.aspect == PageKind::Commit && names_no_commit && is_like_commit(path) {
            return None;
        }
        let (part, text) = search;
        if matches!(page.aspect, PageKind::Log(_)) && !text.is_empty() {
            page.search = Some(LogSearch { part, text });
        }
        // A patch is of one commit. The difference of two commits has a page of its own.
        (page.aspect != PageKind::Patch || page.other.is_none()).then_some(page)
    }

    /// Returns the page that takes the place of a page of cgit which is not offered, with the path of the page. The
    /// query keeps its meaning.
    pub(crate) fn replacement<'r>(
        rest: &'r [u8],
        query: Option<&[u8]>,
    ) -> Option<(&'static str, &'r [u8])> {
        let rest = rest.strip_prefix(b"/")?;
        let slash = rest.iter().position(|byte| *byte == b'/');
        let (word, path) = rest.split_at(slash.unwrap_or(rest.len()));
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let has_other = || pairs(query.unwrap_or_default()).any(|(name, _)| name == b"id2");
        Some(match word {
            b"blame" => ("tree", path),
            b"blob" if !path.is_empty() => ("plain", path),
            b"stats" => ("log", path),
            b"tag" => ("commit", b""),
            b"patch" if has_other() => ("diff", path),
            b"rawdiff" if has_other() || !path.is_empty() => ("diff", path),
            b"rawdiff" => ("patch", b""),
            _ => return None,
        })
    }

    /// Returns the page of a commit named in the path, as other servers of repositories name commits: `commit/ID`,
    /// `commit/ID.patch` and `commit/ID.diff`.
    pub(crate) fn commit_in_path(
        rest: &[u8],
        query: Option<&[u8]>,
    ) -> Option<(&'static str, ObjectId)> {
        if pairs(query.unwrap_or_default()).any(|(name, _)| name == b"id") {
            return None;
        }
        let path = rest.strip_prefix(b"/commit/")?;
        for (view, ending) in [
            ("patch", &b".patch"[..]),
            ("diff", b".diff"),
            ("commit", b""),
        ] {
            if let Some(id) = path.strip_suffix(ending) {
                return ObjectId::parse(id).map(|id| (view, id));
            }
        }
        None
    }

    /// Returns true if the page needs expensive work by git.
    pub(crate) fn is_heavy(&self) -> bool {
        match &self.aspect {
            PageKind::Log(path) => {
                !path.is_empty() || self.offset >= FAR_BACK || self.search.is_some()
            }
            PageKind::Commit
            | PageKind::Diff(_)
            | PageKind::Atom
            | PageKind::Snapshot(_)
            | PageKind::Patch => true,
            _ => false,
        }
    }

    /// Returns true if the content of the page never changes.
    pub(crate) fn is_immutable(&self) -> bool {
        match &self.aspect {
            PageKind::Summary | PageKind::Refs => false,
            _ => self.id.is_some(),
        }
    }
}

/// Returns true for a path that looks like an abbreviated object name, with or without an ending.
fn is_like_commit(path: &[u8]) -> bool {
    let name = path.split(|byte| *byte == b'.').next().unwrap_or_default();
    name.len() >= ABBREVIATED_DIGITS_MIN && name.iter().all(u8::is_ascii_hexdigit)
}

/// Least length of an abbreviated object name, as of git's `core.abbrev`.
const ABBREVIATED_DIGITS_MIN: usize = 4;
/// Number of commits that git skips quickly.
const FAR_BACK: u64 = 1_000;

fn offset(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    let number = if text.is_empty() {
        0
    } else {
        text.parse().ok()?
    };
    (number <= GIT_LOG_OFFSET_MAX).then_some(number)
}

/// Returns the text of a search without white space around the text. git would take each line of a text as a text of
/// its own.
fn searched(value: Vec<u8>) -> Option<Vec<u8>> {
    let text = value.trim_ascii();
    let is_line = text.len() <= GIT_SEARCH_BYTES_MAX && !text.iter().any(u8::is_ascii_control);
    is_line.then(|| text.to_vec())
}

/// Checks a name below `refs/heads` or `refs/tags` by the rules of git-check-ref-format. Names with a
/// special meaning to git, such as `main:secret`, `@{-1}` or `:/text`, are rejected.
fn ref_name(name: Vec<u8>) -> Option<Vec<u8>> {
    let is_plain = |byte: &u8| *byte > b' ' && *byte != 0x7f && !b"~^:?*[\\".contains(byte);
    let has = |part: &[u8]| name.windows(part.len()).any(|it| it == part);
    let is_component = |part: &[u8]| {
        !part.is_empty() && part[0] != b'.' && part[0] != b'-' && !part.ends_with(b".lock")
    };
    let is_name = name.len() <= GIT_REF_BYTES_MAX
        && name.iter().all(is_plain)
        && name.split(|byte| *byte == b'/').all(is_component)
        && !has(b"..")
        && !has(b"@{")
        && !name.ends_with(b".")
        && name != b"@";
    is_name.then_some(name)
}

/// Returns true if `name` is a valid name of a branch or tag.
pub(crate) fn is_ref_name(name: &[u8]) -> bool {
    ref_name(name.to_vec()).is_some()
}

/// Returns the decoded names and values of a query (application/x-www-form-urlencoded).
fn pairs(query: &[u8]) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    let parts = query.split(|byte| *byte == b'&' || *byte == b';');
    parts.filter(|part| !part.is_empty()).map(|part| {
        let equals = part.iter().position(|byte| *byte == b'=');
        let (name, value) = match equals {
            Some(at) => (&part[..at], &part[at + 1..]),
            None => (part, &[][..]),
        };
        (decoded(name), decoded(value))
    })
}

fn decoded(text: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let mut all = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        match (first, after) {
            (b'+', _) => all.push(b' '),
            (b'%', [high, low, ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => {
                    all.push(high << 4 | low);
                    rest = &after[2..];
                }
                _ => all.push(b'%'),
            },
            _ => all.push(first),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = "0123456789abcdef0123456789abcdef01234567";

    fn read(rest: &str, query: &str) -> Option<PageUrl> {
        PageUrl::read(rest.as_bytes(), Some(query.as_bytes()))
    }

    fn view(rest: &str) -> Option<PageKind> {
        read(rest, "").map(|page| page.aspect)
    }

    #[test]
    fn addresses_of_cgit_are_parsed() {
        for (rest, expected) in [
            ("/", Some(PageKind::Summary)),
            ("/summary/", Some(PageKind::Summary)),
            ("/about/", Some(PageKind::About)),
            ("/log/", Some(PageKind::Log(b"".to_vec()))),
            ("/log", Some(PageKind::Log(b"".to_vec()))),
            ("/log/a/b.c", Some(PageKind::Log(b"a/b.c".to_vec()))),
            ("/tree/a/", Some(PageKind::Tree(b"a".to_vec()))),
            ("/plain/.a", Some(PageKind::Plain(b".a".to_vec()))),
            ("/commit/", Some(PageKind::Commit)),
            ("/commit/a/b", Some(PageKind::Commit)),
            ("/diff/a", Some(PageKind::Diff(b"a".to_vec()))),
            ("/refs/", Some(PageKind::Refs)),
            ("/atom/", Some(PageKind::Atom)),
            (
                "/snapshot/a-b/c.tar.gz",
                Some(PageKind::Snapshot(b"a-b/c.tar.gz".to_vec())),
            ),
            ("/snapshot/", None),
            ("", None),
            ("/HEAD", None),
            ("/config", None),
            ("/refs/heads/main", None),
            ("/objects/info/packs", None),
            ("//", None),
        ] {
            assert_eq!(view(rest), expected, "{rest}");
        }
        assert!(view(&("/log/".to_owned() + &"a/".repeat(2_000))).is_some());
        assert_eq!(view(&("/log/".to_owned() + &"a/".repeat(3_000))), None);
    }

    #[test]
    fn queries_are_parsed() {
        let page = read("/log/", &format!("h=a%2Fb&id={FULL}&ofs=50&x=y&z")).expect("a page");
        assert_eq!(page.head.as_deref(), Some(&b"a/b"[..]));
        assert_eq!(
            page.id.map(|id| id.digits().to_owned()).as_deref(),
            Some(FULL)
        );
        assert_eq!(page.offset, 50);
        assert_eq!(read("/log/", "h=&id=&ofs=").expect("a page").head, None);
        let names = [
            "-x", "a:b", "a^", "a~1", "@{-1}", "a@{1}", ":/text", "a..b", "a%00b", "a+b", "%",
            "a%", "@", "x/.y", "x//y", "/x", "x/", "x.lock", "x.lock/y", "a%0ab", "a*", "a?",
            "a%5Bb", "a%5Cb", "--all", "x/-y", "a.",
        ];
        for name in names {
            let is_right = matches!(name, "%" | "a%");
            assert_eq!(
                read("/log/", &format!("h={name}")).is_some(),
                is_right,
                "{name}"
            );
        }
        for id in [
            "HEAD",
            "abc",
            "ABCDEF12",
            "abcd1234",
            &FULL[..39],
            "abcd^",
            "abcd:x",
            "--all",
            &"a".repeat(65),
        ] {
            assert_eq!(read("/commit/", &format!("id={id}")), None, "{id}");
        }
        for ofs in ["-1", "x", "99999999999999999999"] {
            assert_eq!(read("/log/", &format!("ofs={ofs}")), None, "{ofs}");
        }
    }

    #[test]
    fn searches_are_parsed() {
        let search = |query: &str| read("/log/", query).map(|page| page.search);
        let found = |part, text: &str| {
            Some(Some(LogSearch {
                part,
                text: text.into(),
            }))
        };
        assert_eq!(search("q=fix+it"), found(CommitPart::Message, "fix it"));
        assert_eq!(
            search("qt=author&q=A%26B"),
            found(CommitPart::Author, "A&B")
        );
        assert_eq!(
            search("q=--x&qt=committer"),
            found(CommitPart::Committer, "--x")
        );
        assert_eq!(search("q=&qt=author"), Some(None));
        assert_eq!(search("q=+%20+"), Some(None));
        for refused in ["q=a%0ab", "q=a%00b", "qt=range&q=a", "q=a&qt=--all"] {
            assert_eq!(search(refused), None, "{refused}");
        }
        let long = |bytes| search(&format!("q={}", "x".repeat(bytes)));
        assert!(long(GIT_SEARCH_BYTES_MAX).is_some());
        assert_eq!(long(GIT_SEARCH_BYTES_MAX + 1), None);
        assert!(read("/log/", "q=a").expect("a page").is_heavy());
        assert_eq!(read("/tree/", "q=a").expect("a page").search, None);
    }

    #[test]
    fn pages_that_cgit_alone_has_lead_to_other_pages() {
        for (rest, query, expected) in [
            ("/blame/a/b.c", "", Some(("tree", "a/b.c"))),
            ("/blob/a", "", Some(("plain", "a"))),
            ("/blob/", "", None),
            ("/stats/", "", Some(("log", ""))),
            ("/tag/", "h=v1.0", Some(("commit", ""))),
            ("/rawdiff/", "id=a", Some(("patch", ""))),
            ("/rawdiff/", "id=a&id2=b", Some(("diff", ""))),
            ("/rawdiff/a", "id=a", Some(("diff", "a"))),
            ("/patch/", "id=a&id2=b", Some(("diff", ""))),
            ("/patch/", "id=a", None),
            ("/log/", "", None),
            ("/HEAD", "", None),
            ("", "", None),
        ] {
            let found = PageUrl::replacement(rest.as_bytes(), Some(query.as_bytes()));
            let expected = expected.map(|(view, path)| (view, path.as_bytes()));
            assert_eq!(found, expected, "{rest}?{query}");
        }
        assert_eq!(view("/patch/"), Some(PageKind::Patch));
        assert_eq!(read("/patch/", &format!("id={FULL}&id2={FULL}")), None);
    }

    #[test]
    fn commits_in_the_path_lead_to_the_pages_of_the_commits() {
        let found = |path: &str| {
            let found = PageUrl::commit_in_path(format!("/commit/{path}").as_bytes(), None);
            found.map(|(view, id)| (view, id.digits().to_owned()))
        };
        for (ending, page) in [("", "commit"), (".patch", "patch"), (".diff", "diff")] {
            let expected = Some((page, FULL.to_owned()));
            assert_eq!(found(&format!("{FULL}{ending}")), expected);
            // An abbreviated name is unknown, and never the newest commit.
            assert_eq!(found(&format!("0123abc{ending}")), None);
            assert_eq!(view(&format!("/commit/0123abc{ending}")), None);
        }
        assert_eq!(found(""), None);
        assert_eq!(view("/commit/src/main.c"), Some(PageKind::Commit));
    }

    #[test]
    fn pages_of_full_object_names_are_immutable() {
        let is = |rest: &str, query: String| read(rest, &query).expect("a page").is_immutable();
        assert!(is("/commit/", format!("id={FULL}")));
        assert!(is("/tree/a", format!("h=main&id={FULL}")));
        assert!(is("/tree/a", format!("id={FULL}{}", &FULL[..24])));
        assert!(is("/diff/", format!("id={FULL}&id2={FULL}")));
        assert!(!is("/commit/", "h=main".to_owned()));
        assert!(!is("/tree/", String::new()));
        assert!(!is("/", format!("id={FULL}")));
        assert!(!is("/refs/", format!("id={FULL}")));
    }
}
