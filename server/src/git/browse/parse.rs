//! Parsers of git's output: lists of refs and commits, tree entries, file contents and diffs. All functions
//! are pure. The input may be cut at any byte, and names consist of any bytes except NUL.

use crate::git::browse::url::ObjectId;
use crate::git::limits::GIT_LINES_MAX;

/// Format of [`refs`], for `for-each-ref`.
pub(crate) const REF_FORMAT: &str = "--format=%(refname)%00%(objectname)%00%(objecttype)%00\
    %(*objectname)%00%(*objecttype)%00%(HEAD)%00%(creatordate:iso)%00%(subject)%00";
/// Format of [`commits`], for `log`.
pub(crate) const COMMIT_FORMAT: &str =
    "--format=tformat:%H%x00%P%x00%an%x00%ae%x00%ai%x00%aI%x00%s%x00";
/// Format of [`commit`].
pub(crate) const WHOLE_COMMIT_FORMAT: &str =
    "--format=tformat:%H%x00%P%x00%an%x00%ae%x00%ai%x00%cn%x00%ce%x00%ci%x00%B%x00";

/// A branch or tag.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ref<'s> {
    /// Full name, for example `refs/heads/main`.
    pub name: &'s [u8],
    /// Object named by the ref.
    pub id: ObjectId,
    /// Commit of the ref, also through an annotated tag; None if the object is no commit or needs a
    /// further query.
    pub commit: Option<ObjectId>,
    /// True if the ref leads to a commit, or to a tag that may lead to a commit.
    pub may_be_commit: bool,
    /// True if HEAD names the ref.
    pub is_head: bool,
    /// Date of the commit or tag, for example `2026-11-21 06:53:15 +0100`.
    pub date: &'s [u8],
    /// Subject line of the commit or tag.
    pub subject: &'s [u8],
}

impl<'s> Ref<'s> {
    /// Returns the branch name, if the ref is a branch.
    pub(crate) fn branch(&self) -> Option<&'s [u8]> {
        self.name.strip_prefix(b"refs/heads/")
    }

    /// Returns the tag name, if the ref is a tag.
    pub(crate) fn tag(&self) -> Option<&'s [u8]> {
        self.name.strip_prefix(b"refs/tags/")
    }
}

/// Parses the output of `for-each-ref` with [`REF_FORMAT`].
pub(crate) fn refs(output: &[u8]) -> Vec<Ref<'_>> {
    let mut parts = NulFields(output);
    let mut all = Vec::new();
    while let Some([name, id, kind, inner, inner_kind, head, date, subject]) = parts.take() {
        let Some(id) = ObjectId::parse(id) else {
            continue;
        };
        let commit = match (kind, inner_kind) {
            (b"commit", _) => Some(id.clone()),
            (b"tag", b"commit") => ObjectId::parse(inner),
            _ => None,
        };
        all.push(Ref {
            name,
            may_be_commit: commit.is_some() || (kind, inner_kind) == (b"tag", b"tag"),
            id,
            commit,
            is_head: head == b"*",
            date,
            subject,
        });
    }
    all
}

/// Rules for the refs that a repository hides from fetches (`transfer.hideRefs`, `uploadpack.hideRefs`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HiddenRefs(Vec<Vec<u8>>);

impl HiddenRefs {
    /// Parses the rules from the output of `config --list --null`.
    pub(crate) fn read(output: &[u8]) -> HiddenRefs {
        let rules = output.split(|byte| *byte == 0).filter_map(|setting| {
            let end = setting.iter().position(|byte| *byte == b'\n')?;
            let is_it = [&b"transfer.hiderefs"[..], b"uploadpack.hiderefs"];
            let rule = setting[end + 1..].strip_suffix(b"/");
            let rule = rule.unwrap_or(&setting[end + 1..]);
            is_it.contains(&&setting[..end]).then(|| rule.to_vec())
        });
        HiddenRefs(rules.collect())
    }

    /// Returns true if the ref is hidden. The last matching rule decides.
    pub(crate) fn is(&self, name: &[u8]) -> bool {
        for rule in self.0.iter().rev() {
            let (is_shown, rule) = match rule.strip_prefix(b"!") {
                Some(rule) => (true, rule),
                None => (false, rule.as_slice()),
            };
            let rule = rule.strip_prefix(b"^").unwrap_or(rule);
            let fits = name.strip_prefix(rule);
            if fits.is_some_and(|rest| rest.is_empty() || rest[0] == b'/') {
                return !is_shown;
            }
        }
        false
    }
}

/// Returns true if a repository refuses fetches (`http.uploadpack`), according to the output of `config
/// --list --null`.
pub(crate) fn refuses_fetches(output: &[u8]) -> bool {
    let settings = output.split(|byte| *byte == 0);
    let mut last = settings.rev().filter_map(|setting| {
        let rest = setting.strip_prefix(b"http.uploadpack")?;
        match rest.split_first() {
            // A setting without a value is true.
            None => Some(false),
            Some((b'\n', value)) => {
                let no: [&[u8]; 5] = [b"false", b"no", b"off", b"0", b""];
                Some(no.iter().any(|it| value.eq_ignore_ascii_case(it)))
            }
            Some(_) => None,
        }
    });
    last.next().unwrap_or(false)
}

/// A commit of a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Commit<'s> {
    /// Object name of the commit.
    pub id: ObjectId,
    /// Parent commits.
    pub parents: Vec<ObjectId>,
    /// Name of the author.
    pub author: &'s [u8],
    /// Email address of the author.
    pub email: &'s [u8],
    /// Author date, for example `2026-11-21 06:53:15 +0100`.
    pub date: &'s [u8],
    /// Author date in strict ISO 8601 format, for example `2026-11-21T06:53:15+01:00`.
    pub strict_date: &'s [u8],
    /// First line of the message.
    pub subject: &'s [u8],
}

/// Parses the output of `log` with [`COMMIT_FORMAT`].
pub(crate) fn commits(output: &[u8]) -> Vec<Commit<'_>> {
    let mut parts = NulFields(output);
    let mut all = Vec::new();
    while let Some([id, parents, author, email, date, strict_date, subject]) = parts.take() {
        let Some(id) = ObjectId::parse(id) else {
            continue;
        };
        all.push(Commit {
            id,
            parents: ids(parents),
            author,
            email,
            date,
            strict_date,
            subject,
        });
    }
    all
}

/// A commit with the full message and the patch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommitDetails<'s> {
    /// Object name of the commit.
    pub id: ObjectId,
    /// Parent commits.
    pub parents: Vec<ObjectId>,
    /// Name, email address and date of the author.
    pub author: [&'s [u8]; 3],
    /// Name, email address and date of the committer.
    pub committer: [&'s [u8]; 3],
    /// Commit message.
    pub message: &'s [u8],
    /// Patch of the commit, parsed by [`diff`].
    pub patch: &'s [u8],
}

/// Parses the output of `log -p` for one commit, with [`WHOLE_COMMIT_FORMAT`].
pub(crate) fn commit(output: &[u8]) -> Option<CommitDetails<'_>> {
    let mut parts = NulFields(output);
    let [
        id,
        parents,
        author,
        email,
        date,
        committer,
        address,
        committed,
        message,
    ] = parts.take()?;
    Some(CommitDetails {
        id: ObjectId::parse(id)?,
        parents: ids(parents),
        author: [author, email, date],
        committer: [committer, address, committed],
        message,
        patch: parts.0.trim_ascii_start(),
    })
}

fn ids(text: &[u8]) -> Vec<ObjectId> {
    text.split(|byte| *byte == b' ')
        .filter_map(ObjectId::parse)
        .collect()
}

/// Reader of NUL-terminated fields. A record of fields may start with a line feed.
struct NulFields<'s>(&'s [u8]);

impl<'s> NulFields<'s> {
    fn take<const COUNT: usize>(&mut self) -> Option<[&'s [u8]; COUNT]> {
        let mut all = [&[][..]; COUNT];
        let mut rest = self.0.strip_prefix(b"\n").unwrap_or(self.0);
        for part in &mut all {
            let end = rest.iter().position(|byte| *byte == 0)?;
            *part = &rest[..end];
            rest = &rest[end + 1..];
        }
        self.0 = rest;
        Some(all)
    }
}

/// Type of a tree entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// A directory.
    Tree,
    /// A regular file.
    File {
        /// True if the mode of the file is executable.
        is_executable: bool,
    },
    /// A symbolic link.
    Link,
    /// A submodule: a commit of another repository.
    Submodule,
}

/// An entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreeEntry<'s> {
    /// Type of the entry.
    pub kind: EntryKind,
    /// Object of the entry.
    pub id: ObjectId,
    /// Size in bytes, for a file or symbolic link.
    pub size: Option<u64>,
    /// Path from the root of the repository.
    pub path: &'s [u8],
}

/// Parses the output of `ls-tree -l -z`.
pub(crate) fn entries(output: &[u8]) -> Vec<TreeEntry<'_>> {
    let whole = output.iter().rposition(|byte| *byte == 0).unwrap_or(0);
    output[..whole]
        .split(|byte| *byte == 0)
        .filter_map(entry)
        .collect()
}

/// Parses an entry, for example `100644 blob 789819…       2<TAB>dir/a`.
fn entry(line: &[u8]) -> Option<TreeEntry<'_>> {
    let tab = line.iter().position(|byte| *byte == b'\t')?;
    let words = line[..tab].split(|byte| *byte == b' ');
    let mut words = words.filter(|word| !word.is_empty());
    let (mode, _, id, size) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let kind = match mode {
        b"040000" => EntryKind::Tree,
        b"120000" => EntryKind::Link,
        b"160000" => EntryKind::Submodule,
        mode => EntryKind::File {
            is_executable: mode == b"100755",
        },
    };
    Some(TreeEntry {
        kind,
        id: ObjectId::parse(id)?,
        size: number(size),
        path: &line[tab + 1..],
    })
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Parses the output of `cat-file --batch-check`: for each queried name the commit, or None if the name
/// leads to no commit.
pub(crate) fn parse_batch_check(output: &[u8]) -> Vec<Option<ObjectId>> {
    let lines = output.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.is_empty());
    let commit = |line: &[u8]| {
        let mut words = line.split(|byte| *byte == b' ');
        let id = ObjectId::parse(words.next()?)?;
        (words.next()? == b"commit").then_some(id)
    };
    lines.map(commit).collect()
}

/// Parses the output of `cat-file --batch`. Returns the content of each file, possibly cut short, with the
/// index of the queried name. Objects other than files are left out.
pub(crate) fn contents(output: &[u8]) -> Vec<(usize, &[u8])> {
    let mut all = Vec::new();
    let mut rest = output;
    let mut nth = 0;
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let (line, after) = (&rest[..end], &rest[end + 1..]);
        let mut words = line.rsplit(|byte| *byte == b' ');
        let (size, kind) = (words.next(), words.next());
        // Answers without a size, for example `<name> missing`.
        let size = size.and_then(number).filter(|_| words.next().is_some());
        rest = after;
        if let Some(size) = size {
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            let content = &after[..size.min(after.len())];
            if kind == Some(b"blob") {
                all.push((nth, content));
            }
            let next = size.saturating_add(1).min(after.len());
            rest = &after[next..];
        }
        nth += 1;
    }
    all
}

/// Changes of one file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FileDiff<'s> {
    /// Former name; None for a new file.
    pub before: Option<Vec<u8>>,
    /// New name; None for a deleted file.
    pub after: Option<Vec<u8>>,
    /// Former and new mode, if the mode changed.
    pub modes: Option<[&'s [u8]; 2]>,
    /// True if the content is not text.
    pub is_binary: bool,
    /// Changed parts of the file.
    pub hunks: Vec<Hunk<'s>>,
}

/// A changed part of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hunk<'s> {
    /// Head line, for example `@@ -1,2 +1,3 @@ fn main()`.
    pub head: &'s [u8],
    /// Lines of the hunk; each starts with `+`, `-`, a space or a backslash.
    pub lines: Vec<&'s [u8]>,
}

impl FileDiff<'_> {
    /// Returns the numbers of added and removed lines.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let lines = || self.hunks.iter().flat_map(|hunk| &hunk.lines);
        let begin = |with: u8| lines().filter(|line| line.first() == Some(&with)).count() as u64;
        (begin(b'+'), begin(b'-'))
    }

    /// Returns the new name, or the former name of a deleted file.
    pub(crate) fn name(&self) -> &[u8] {
        let name = self.after.as_ref().or(self.before.as_ref());
        name.map_or(b"", Vec::as_slice)
    }
}

/// Parses a patch; the flag is true if all lines were read.
pub(crate) fn diff(output: &[u8]) -> (Vec<FileDiff<'_>>, bool) {
    let mut reading = PatchParser::default();
    let mut lines = output.split(|byte| *byte == b'\n');
    let mut taken = 0;
    for line in lines.by_ref() {
        taken += 1;
        if taken > GIT_LINES_MAX {
            reading.end();
            return (reading.all, false);
        }
        reading.take(line);
    }
    reading.end();
    (reading.all, true)
}

/// Returns true if a patch has more lines than [`diff`] reads.
pub(crate) fn is_too_long(patch: &[u8]) -> bool {
    patch.iter().filter(|byte| **byte == b'\n').count() >= GIT_LINES_MAX
}

/// The number of changed lines of one file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NumstatEntry<'s> {
    /// The former name of a file that was renamed or copied.
    pub before: Option<&'s [u8]>,
    /// The name of the file; for a deleted file, its last name.
    pub name: &'s [u8],
    /// The numbers of added and removed lines; 0 and 0 for a binary file.
    pub lines: (u64, u64),
}

/// Parses the output of `diff-tree --numstat -z`. An entry that was cut off is left out.
pub(crate) fn parse_numstat(output: &[u8]) -> Vec<NumstatEntry<'_>> {
    let mut parts = NulFields(output);
    let mut all = Vec::new();
    while let Some([entry]) = parts.take() {
        // An entry is `1<TAB>2<TAB>name`. The name of a renamed file is empty there, and the former and
        // the new name follow.
        let mut words = entry.splitn(3, |byte| *byte == b'\t');
        let (Some(plus), Some(minus), Some(name)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let lines = (number(plus).unwrap_or(0), number(minus).unwrap_or(0));
        let (before, name) = if name.is_empty() {
            match parts.take() {
                Some([before, name]) => (Some(before), name),
                None => break,
            }
        } else {
            (None, name)
        };
        all.push(NumstatEntry {
            before,
            name,
            lines,
        });
    }
    all
}

/// Parser state of a partly read patch.
#[derive(Default)]
struct PatchParser<'s> {
    all: Vec<FileDiff<'s>>,
    now: Option<FileDiff<'s>>,
    /// Outstanding lines of the current hunk: former file, new file.
    left: (u64, u64),
    mode_before: &'s [u8],
}

impl<'s> PatchParser<'s> {
    fn end(&mut self) {
        self.all.extend(self.now.take());
    }

    fn take(&mut self, line: &'s [u8]) {
        if let Some(names) = line.strip_prefix(b"diff --git ")
            && self.left == (0, 0)
        {
            self.end();
            let (before, after) = names_of(names);
            self.now = Some(FileDiff {
                before,
                after,
                ..FileDiff::default()
            });
            return;
        }
        let Some(now) = &mut self.now else { return };
        if self.left != (0, 0) || line.first() == Some(&b'\\') {
            let (before, after) = &mut self.left;
            match line.first() {
                Some(b'+') => *after = after.saturating_sub(1),
                Some(b'-') => *before = before.saturating_sub(1),
                Some(b'\\') => {}
                _ => {
                    *before = before.saturating_sub(1);
                    *after = after.saturating_sub(1);
                }
            }
            if let Some(hunk) = now.hunks.last_mut() {
                hunk.lines.push(line);
            }
            return;
        }
        if line.starts_with(b"@@ ") {
            self.left = lengths(line).unwrap_or_default();
            now.hunks.push(Hunk {
                head: line,
                lines: Vec::new(),
            });
            return;
        }
        now.take_head_line(line, &mut self.mode_before);
    }
}

impl<'s> FileDiff<'s> {
    /// Parses a line between the `diff` line of a file and the first hunk.
    fn take_head_line(&mut self, line: &'s [u8], mode_before: &mut &'s [u8]) {
        let word = |word: &str| line.strip_prefix(word.as_bytes());
        if let Some(name) = word("--- ") {
            self.before = one_name(name, b"a/");
        } else if let Some(name) = word("+++ ") {
            self.after = one_name(name, b"b/");
        } else if let Some(name) = word("rename from ").or(word("copy from ")) {
            self.before = Some(unquoted(name));
        } else if let Some(name) = word("rename to ").or(word("copy to ")) {
            self.after = Some(unquoted(name));
        } else if word("new file mode ").is_some() {
            self.before = None;
        } else if word("deleted file mode ").is_some() {
            self.after = None;
        } else if let Some(mode) = word("old mode ") {
            *mode_before = mode;
        } else if let Some(mode) = word("new mode ") {
            self.modes = Some([*mode_before, mode]);
        } else if word("Binary files ").is_some() {
            self.is_binary = true;
        }
    }
}

/// Returns the line counts of a hunk's head line; for `@@ -1,2 +3 @@`: 2 and 1.
fn lengths(head: &[u8]) -> Option<(u64, u64)> {
    let mut words = head.split(|byte| *byte == b' ').skip(1);
    let mut length = |sign: &[u8]| {
        let word = words.next()?.strip_prefix(sign)?;
        match word.iter().position(|byte| *byte == b',') {
            Some(comma) => number(&word[comma + 1..]),
            None => Some(1),
        }
    };
    Some((length(b"-")?, length(b"+")?))
}

type FileNames = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Parses the former and new name of a `diff --git` line, for example `a/x b/x`. Later lines may override
/// the names.
fn names_of(names: &[u8]) -> FileNames {
    if names.first() == Some(&b'"') {
        let (first, rest) = quoted(names);
        let second = rest.strip_prefix(b" ").map(|rest| one_name(rest, b"b/"));
        return (without(first, b"a/"), second.flatten());
    }
    if names.last() == Some(&b'"')
        && let Some(at) = names.windows(2).position(|two| two == b" \"")
    {
        return (
            one_name(&names[..at], b"a/"),
            one_name(&names[at + 1..], b"b/"),
        );
    }
    // Both names are equal, so the space between the names is in the middle.
    let middle = names.len() / 2;
    match names.get(middle) {
        Some(b' ') => (
            one_name(&names[..middle], b"a/"),
            one_name(&names[middle + 1..], b"b/"),
        ),
        _ => (Some(names.to_vec()), Some(names.to_vec())),
    }
}

/// Parses a name of a patch and removes the prefix `side`; None for `/dev/null`.
fn one_name(name: &[u8], side: &[u8]) -> Option<Vec<u8>> {
    if name == b"/dev/null" {
        return None;
    }
    without(unquoted(name), side)
}

fn without(name: Vec<u8>, side: &[u8]) -> Option<Vec<u8>> {
    Some(name.strip_prefix(side).map_or(name.clone(), <[u8]>::to_vec))
}

/// Decodes a file name as written by git: quoted if necessary, or followed by a tab.
fn unquoted(name: &[u8]) -> Vec<u8> {
    match name.first() {
        Some(b'"') => quoted(name).0,
        _ => name.strip_suffix(b"\t").unwrap_or(name).to_vec(),
    }
}

/// Decodes a C-style quoted string; returns the string and the rest of `text`.
fn quoted(text: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut all = Vec::new();
    let mut rest = text.strip_prefix(b"\"").unwrap_or(text);
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'"' => break,
            b'\\' => {
                let (byte, used) = escape(after);
                all.push(byte);
                rest = &after[used..];
            }
            _ => all.push(first),
        }
    }
    (all, rest)
}

/// Decodes the escape sequence behind a backslash; returns the byte and the number of bytes read.
fn escape(text: &[u8]) -> (u8, usize) {
    let octal = |byte: u8| (b'0'..=b'7').contains(&byte).then(|| byte - b'0');
    if let [first, second, third, ..] = text
        && let (Some(first), Some(second), Some(third)) =
            (octal(*first), octal(*second), octal(*third))
    {
        return (first << 6 | second << 3 | third, 3);
    }
    let Some(first) = text.first() else {
        return (b'\\', 0);
    };
    let byte = match first {
        b'a' => 7,
        b'b' => 8,
        b't' => b'\t',
        b'n' => b'\n',
        b'v' => 11,
        b'f' => 12,
        b'r' => b'\r',
        other => *other,
    };
    (byte, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "1111111111111111111111111111111111111111";
    const TWO: &str = "2222222222222222222222222222222222222222";

    #[test]
    fn refs_with_their_objects_are_parsed() {
        let line = |name: &str, rest: &str| format!("{name}\0{ONE}\0{rest}\0words, \u{e9}\0\n");
        let output = [
            line(
                "refs/heads/a/b",
                "commit\0\0\0*\x002026-11-21 06:53:15 +0100",
            ),
            line("refs/tags/v1", &format!("tag\0{TWO}\0commit\0 \0")),
            line("refs/tags/v2", &format!("tag\0{TWO}\0tag\0 \0")),
            line("refs/tags/tree", "tree\0\0\0 \0"),
        ]
        .concat();
        let all = refs(output.as_bytes());
        assert_eq!(all.len(), 4);
        assert_eq!(all[0].branch(), Some(&b"a/b"[..]));
        assert!(all[0].is_head && !all[1].is_head);
        assert_eq!(all[0].date, b"2026-11-21 06:53:15 +0100");
        let commits: Vec<_> = all.iter().map(|it| it.commit.clone()).collect();
        assert_eq!(commits[0], ObjectId::parse(ONE.as_bytes()));
        assert_eq!(commits[1], ObjectId::parse(TWO.as_bytes()));
        assert_eq!(commits[2..], [None, None]);
        let may: Vec<_> = all.iter().map(|it| it.may_be_commit).collect();
        assert_eq!(may, [true, true, true, false]);
        assert_eq!(all[3].tag(), Some(&b"tree"[..]));
        assert_eq!(all[3].subject, "words, \u{e9}".as_bytes());
        for cut in 0..output.len() {
            refs(&output.as_bytes()[..cut]);
        }
    }

    #[test]
    fn hidden_refs_are_recognised() {
        let output = b"core.bare\ntrue\0transfer.hiderefs\nrefs/heads/x\0uploadpack.hiderefs\n!refs/heads/x/y\0\
            transfer.hiderefs\n^refs/tags/\0receive.hiderefs\nrefs/heads/z\0core.flag\0";
        let hidden = HiddenRefs::read(output);
        for (name, is) in [
            ("refs/heads/x", true),
            ("refs/heads/x/z", true),
            ("refs/heads/x/y", false),
            ("refs/heads/x/y/z", false),
            ("refs/heads/xy", false),
            ("refs/heads/z", false),
            ("refs/tags/v1", true),
        ] {
            assert_eq!(hidden.is(name.as_bytes()), is, "{name}");
        }
        assert!(!HiddenRefs::default().is(b"refs/heads/x"));
    }

    #[test]
    fn commits_and_a_commit_with_a_patch_are_parsed() {
        let output =
            format!("{ONE}\0{TWO} {ONE}\0A B\0a@b\0date\0strict\0subject\0\n{TWO}\0\0\0\0\0\0\0\n");
        let all = commits(output.as_bytes());
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].parents.len(), 2);
        assert_eq!(all[0].subject, b"subject");
        assert_eq!(all[1].parents, []);
        let output = format!(
            "{ONE}\0{TWO}\0A\0a@b\0d\0C\0c@d\0e\0first\n\nmore\n\0\n\ndiff --git a/x b/x\n"
        );
        let whole = commit(output.as_bytes()).expect("a commit");
        assert_eq!(whole.message, b"first\n\nmore\n");
        assert_eq!(whole.patch, b"diff --git a/x b/x\n");
        assert_eq!(commit(&output.as_bytes()[..50]), None);
    }

    #[test]
    fn entries_of_a_tree_are_parsed() {
        let output = format!(
            "040000 tree {ONE}       -\tdir\0100644 blob {TWO}       2\tdir/a\tb\nc\0\
             100755 blob {TWO} 123456789\tdir/run\0120000 blob {TWO}       7\tdir/link\0\
             160000 commit {ONE}       -\tdir/sub\0100644 blob {TWO}      12\tcut"
        );
        let all = entries(output.as_bytes());
        let kinds: Vec<_> = all.iter().map(|it| it.kind).collect();
        assert_eq!(
            kinds,
            [
                EntryKind::Tree,
                EntryKind::File {
                    is_executable: false
                },
                EntryKind::File {
                    is_executable: true
                },
                EntryKind::Link,
                EntryKind::Submodule
            ]
        );
        assert_eq!(all[1].path, b"dir/a\tb\nc");
        assert_eq!((all[0].size, all[2].size), (None, Some(123_456_789)));
        assert_eq!(entries(b""), []);
    }

    #[test]
    fn output_of_cat_file_is_parsed() {
        let output = format!("{ONE} commit 200\nabcd missing\n{TWO} tree 5\n");
        let one = ObjectId::parse(ONE.as_bytes());
        assert_eq!(parse_batch_check(output.as_bytes()), [one, None, None]);
        let output =
            format!("x y missing\n{ONE} blob 5\na\nb\nc\n{ONE} tree 3\nabc\n{TWO} blob 9\ncut");
        let all = contents(output.as_bytes());
        assert_eq!(all, [(1, &b"a\nb\nc"[..]), (3, b"cut")]);
        assert_eq!(contents(b"a b missing\nb missing\n"), []);
        let huge = format!("{ONE} blob 18446744073709551615\nabc");
        assert_eq!(contents(huge.as_bytes()), [(0, &b"abc"[..])]);
    }

    #[test]
    fn line_counts_are_parsed() {
        let output = b"3\t0\ta\tb\nc\0-\t-\tpicture\x001\t20\t\x00old\x00new\x00400\t5\tlast\0";
        let all = parse_numstat(output);
        let entry = |before, name, lines| NumstatEntry {
            before,
            name,
            lines,
        };
        assert_eq!(
            all,
            [
                entry(None, &b"a\tb\nc"[..], (3, 0)),
                entry(None, b"picture", (0, 0)),
                entry(Some(&b"old"[..]), b"new", (1, 20)),
                entry(None, b"last", (400, 5)),
            ]
        );
        for cut in 0..output.len() {
            let whole = output[..cut].split(|byte| *byte == 0).count() - 1;
            // A renamed file's entry consists of three fields.
            let expected = whole.min(2) + usize::from(whole > 4);
            assert_eq!(parse_numstat(&output[..cut]).len(), expected, "{cut}");
        }
    }

    #[test]
    fn patches_are_parsed() {
        let output = b"diff --git a/x y b/x y\nindex 1..2 100644\n--- a/x y\t\n+++ b/x y\t\n\
            @@ -1,2 +1,2 @@ fn\n--- gone\n same\n+++ come\n\\ No newline at end of file\n\
            diff --git a/old b/new\nsimilarity index 90%\nrename from old\nrename to new\n\
            diff --git \"a/\\303\\251\\n\\\"\" \"b/\\303\\251\\n\\\"\"\nnew file mode 100644\nindex 0..1\n\
            Binary files /dev/null and \"b/\\303\\251\\n\\\"\" differ\n\
            diff --git a/mode b/mode\nold mode 100644\nnew mode 100755\n\
            diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n";
        let (all, is_whole) = diff(output);
        assert!(is_whole);
        let names: Vec<_> = all
            .iter()
            .map(|it| (it.before.clone(), it.after.clone()))
            .collect();
        let some = |name: &str| Some(name.as_bytes().to_vec());
        assert_eq!(
            names,
            [
                (some("x y"), some("x y")),
                (some("old"), some("new")),
                (None, some("\u{e9}\n\"")),
                (some("mode"), some("mode")),
                (some("gone"), None),
            ]
        );
        assert_eq!(all[0].counts(), (1, 1));
        assert_eq!(all[0].hunks[0].lines.len(), 4);
        assert!(all[2].is_binary);
        assert_eq!(all[3].modes, Some([&b"100644"[..], b"100755"]));
        assert_eq!(all[4].counts(), (0, 1));
        for cut in 0..output.len() {
            diff(&output[..cut]);
        }
        let long = b"diff --git a/x b/x\n".repeat(GIT_LINES_MAX - 1);
        assert!(!is_too_long(&long) && diff(&long).1);
        let long = b"diff --git a/x b/x\n".repeat(GIT_LINES_MAX);
        assert!(is_too_long(&long) && !diff(&long).1);
        let long = b"diff --git a/x b/x\n".repeat(GIT_LINES_MAX + 1);
        let (all, is_whole) = diff(&long);
        assert_eq!((all.len(), is_whole), (GIT_LINES_MAX, false));
    }
}
