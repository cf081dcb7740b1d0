//! Pages of a commit and of the difference between two commits.

use crate::git::browse::page_location::PageLocation;
use crate::git::browse::parse::{CommitDetails, FileDiff, NumstatEntry, diff, parse_numstat};
use crate::git::browse::render::frame::Tab;
use crate::git::browse::render::history::framed;
use crate::git::browse::render::html::Html;
use crate::git::browse::url::ObjectId;
use crate::git::limits::GIT_HTML_BYTES_MAX;

/// The difference of two commits, as git printed it.
#[derive(Default)]
pub(crate) struct DiffOutput<'d> {
    /// The patch, or its beginning if `is_cut` is set.
    pub patch: &'d [u8],
    /// True if the patch is longer than `patch`.
    pub is_cut: bool,
    /// The counts of changed lines ([`parse_numstat`]) if the patch is cut; empty if git could not count.
    pub counted: &'d [u8],
    /// True if `parse_numstat` lacks some files.
    pub is_counted_in_part: bool,
}

/// Renders the page of a commit with its changes.
pub(crate) fn commit_page(
    location: &PageLocation,
    commit: &CommitDetails<'_>,
    difference: &DiffOutput<'_>,
) -> String {
    let message = commit.message.trim_ascii();
    let end = message.iter().position(|byte| *byte == b'\n');
    let (subject, rest) = message.split_at(end.unwrap_or(message.len()));
    let mut page = Html::default();
    page.markup("<h1>").text(subject).markup("</h1>\n");
    if !rest.trim_ascii().is_empty() {
        page.markup("<pre class=message>")
            .text(rest.trim_ascii())
            .markup("</pre>\n");
    }
    push_facts(location, commit, &mut page);
    push_patch(
        location,
        &commit.id,
        commit.parents.first(),
        difference,
        &mut page,
    );
    framed(location, Tab::Commit, subject, true, &page)
}

fn push_facts(location: &PageLocation, commit: &CommitDetails<'_>, page: &mut Html) {
    let id = commit.id.digits();
    page.markup("<dl class=facts>");
    let mut who = |role: &str, [name, address, date]: [&[u8]; 3]| {
        page.markup("<dt>")
            .markup(role)
            .markup("</dt><dd>")
            .text(name);
        page.markup(" <span class=soft>&lt;")
            .text(address)
            .markup("&gt; · ");
        page.text(date).markup("</span></dd>");
    };
    who("Author", commit.author);
    if commit.author != commit.committer {
        who("Committer", commit.committer);
    }
    page.markup("<dt>Commit</dt><dd class=id>")
        .text(id)
        .markup("</dd>");
    for parent in &commit.parents {
        let url = location.url("commit", b"", &[("id", parent.digits())]);
        page.markup("<dt>Parent</dt><dd><span class=id>")
            .heavy_link(&url, parent.digits());
        page.markup("</span>");
        // The diff against a single parent is part of the page.
        if commit.parents.len() > 1 {
            let between = [("id", id), ("id2", parent.digits())];
            let url = location.plain_url("diff", b"", &between);
            page.markup(" <span class=soft>· ")
                .heavy_link(&url, "diff")
                .markup("</span>");
        }
        page.markup("</dd>");
    }
    let archive = [location.short_name(), b"-", id.as_bytes(), b".tar.gz"].concat();
    page.markup("<dt>Files</dt><dd>")
        .link(&location.url("tree", b"", &[("id", id)]), "all files");
    page.markup(" · ")
        .heavy_link(&location.plain_url("snapshot", &archive, &[]), "tar.gz");
    page.markup(" · ")
        .heavy_link(&location.plain_url("patch", b"", &[("id", id)]), "patch");
    page.markup("</dd></dl>\n");
}

/// Renders the page of the difference between two commits.
pub(crate) fn difference_page(
    location: &PageLocation,
    from: &ObjectId,
    to: &ObjectId,
    path: &[u8],
    difference: &DiffOutput<'_>,
) -> String {
    let mut page = Html::default();
    let url = |id: &ObjectId| location.plain_url("commit", b"", &[("id", id.digits())]);
    page.markup("<h1>Difference</h1>\n<dl class=facts><dt>From</dt><dd class=id>");
    page.heavy_link(&url(from), from.digits())
        .markup("</dd><dt>To</dt><dd class=id>");
    page.heavy_link(&url(to), to.digits()).markup("</dd>");
    if !path.is_empty() {
        page.markup("<dt>In</dt><dd><code>")
            .text(path)
            .markup("</code></dd>");
    }
    page.markup("</dl>\n");
    push_patch(location, to, Some(from), difference, &mut page);
    framed(location, Tab::Commit, b"difference", true, &page)
}

fn push_patch(
    location: &PageLocation,
    after: &ObjectId,
    before: Option<&ObjectId>,
    difference: &DiffOutput<'_>,
    page: &mut Html,
) {
    let (files, is_whole) = diff(difference.patch);
    let counted = parse_numstat(difference.counted);
    if files.is_empty() && counted.is_empty() {
        page.markup("<p class=note>No file changed.</p>\n");
        return;
    }
    let mut is_cut = difference.is_cut || !is_whole;
    let mut all = DiffStat {
        is_least: is_cut && (counted.is_empty() || difference.is_counted_in_part),
        rows: rows(&files, &counted),
        shown: 0,
    };
    let mut sections = Html::default();
    for (nth, file) in files.iter().enumerate() {
        if sections.len() > GIT_HTML_BYTES_MAX {
            is_cut = true;
            break;
        }
        all.shown = nth + 1;
        let (id, name) = match (&file.after, before) {
            (None, Some(before)) => (before, file.name()),
            _ => (after, file.name()),
        };
        sections
            .markup("<section class=file id=f")
            .markup(&nth.to_string())
            .markup("><h3><code>");
        if name.contains(&b'\\') {
            sections.text(name)
        } else {
            sections.link(&location.url("tree", name, &[("id", id.digits())]), name)
        };
        sections.markup("</code>");
        push_stat(all.rows[nth].lines, &mut sections);
        sections
            .markup("<span class=soft>")
            .text(what_happened(file))
            .markup("</span></h3>\n");
        let is_all = push_hunks(file, &mut sections);
        sections.markup("</section>\n");
        if !is_all {
            is_cut = true;
            break;
        }
    }
    push_list(&all, is_cut, page);
    page.markup(&sections.into_string());
    if is_cut {
        page.markup("<p class=soft>The diff is cut here.</p>\n");
    }
}

/// The list of changed files above their diffs.
struct DiffStat<'r> {
    rows: Vec<DiffStatRow<'r>>,
    /// True if the commits may differ in more files and lines than `rows` lists.
    is_least: bool,
    /// The number of files, from the first, with a diff on the page.
    shown: usize,
}

struct DiffStatRow<'r> {
    name: &'r [u8],
    what: Vec<u8>,
    lines: (u64, u64),
}

/// Returns the files of the patch, then the files that git counted beyond the patch. git sorts both
/// lists alike.
fn rows<'r>(files: &'r [FileDiff<'_>], counted: &'r [NumstatEntry<'_>]) -> Vec<DiffStatRow<'r>> {
    let mut left = counted;
    let mut before: &[u8] = b"";
    let of_file = |file: &'r FileDiff<'_>| {
        let lines = match left.split_first() {
            Some((first, rest)) if first.name == file.name() => {
                left = rest;
                first.lines
            }
            // A file that became a link is two files in the patch and one in git's count.
            _ if !counted.is_empty() && before == file.name() => (0, 0),
            _ => file.counts(),
        };
        before = file.name();
        DiffStatRow {
            name: file.name(),
            what: what_happened(file),
            lines,
        }
    };
    let mut all: Vec<_> = files.iter().map(of_file).collect();
    all.extend(left.iter().map(|it| {
        DiffStatRow {
            name: it.name,
            what: it
                .before
                .map_or(Vec::new(), |before| [b"was ", before].concat()),
            lines: it.lines,
        }
    }));
    all
}

fn push_list(files: &DiffStat<'_>, is_cut: bool, page: &mut Html) {
    let rows = &files.rows;
    let sum = |(plus, minus), row: &DiffStatRow<'_>| (plus + row.lines.0, minus + row.lines.1);
    let (plus, minus) = rows.iter().fold((0, 0), sum);
    let least = if files.is_least { "At least " } else { "" };
    let word = if rows.len() == 1 { "file" } else { "files" };
    let output = format!(
        "<h2>{least}{} {word} changed <span class=stat><b>+{plus}</b> <i>−{minus}</i></span></h2>\n",
        rows.len()
    );
    page.markup(&output);
    if is_cut {
        page.markup("<p class=note>More changed than a page can show. The diff below is cut; git diff shows the rest.</p>\n");
    }
    page.markup("<ul class=rows>\n");
    for (nth, row) in rows.iter().enumerate() {
        if page.len() > GIT_HTML_BYTES_MAX / 4 {
            let left = format!("<li>and {} more\n", rows.len() - nth);
            page.markup(&left);
            break;
        }
        page.markup("<li><span class=main><code>");
        if nth < files.shown {
            page.link(&format!("#f{nth}"), row.name)
        } else {
            page.text(row.name)
        };
        page.markup("</code></span><span class=side>");
        page.text(&row.what);
        push_stat(row.lines, page);
        page.markup("</span>\n");
    }
    page.markup("</ul>\n");
}

fn push_stat((plus, minus): (u64, u64), page: &mut Html) {
    if (plus, minus) != (0, 0) {
        let output = format!("<span class=stat><b>+{plus}</b> <i>−{minus}</i></span>");
        page.markup(&output);
    }
}

fn what_happened(file: &FileDiff<'_>) -> Vec<u8> {
    match (&file.before, &file.after, file.modes) {
        (None, _, _) => b"new".to_vec(),
        (_, None, _) => b"deleted".to_vec(),
        (Some(before), Some(after), _) if before != after => [b"was ", before.as_slice()].concat(),
        (_, _, Some([before, after])) => [b"mode ", before, b" to ", after].concat(),
        _ => Vec::new(),
    }
}

/// Appends the hunks of a file. Returns false if the page became too long.
fn push_hunks(file: &FileDiff<'_>, page: &mut Html) -> bool {
    if file.is_binary {
        page.markup("<p class=soft>Not a text.</p>\n");
    }
    if file.hunks.is_empty() {
        return true;
    }
    page.markup("<div class=scroll><pre class=diff>");
    let mut is_whole = true;
    for hunk in &file.hunks {
        page.markup("<span class=h>")
            .line(hunk.head)
            .markup("\n</span>");
        for line in &hunk.lines {
            let class = match line.first() {
                Some(b'+') => "<span class=p>",
                Some(b'-') => "<span class=m>",
                Some(b'\\') => "<span class=soft>",
                _ => "<span>",
            };
            page.markup(class).line(line).markup("\n</span>");
            if page.len() > GIT_HTML_BYTES_MAX {
                is_whole = false;
                break;
            }
        }
    }
    page.markup("</pre></div>\n");
    is_whole
}
