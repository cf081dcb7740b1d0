//! Pages of what changed: a commit, and the difference of two.

use super::html::Html;
use super::place::{Place, Tab};
use super::said_by_git::{Changed, WholeCommit, diff};
use super::shown::framed;
use super::wanted_page::Id;
use crate::limits::GIT_HTML_BYTES_MAX;

/// A commit with what it changed.
pub fn commit(place: &Place, commit: &WholeCommit<'_>, is_cut: bool) -> String {
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
    push_facts(place, commit, &mut page);
    push_patch(
        place,
        &commit.id,
        commit.parents.first(),
        commit.patch,
        is_cut,
        &mut page,
    );
    framed(place, Tab::Commit, subject, true, &page)
}

fn push_facts(place: &Place, commit: &WholeCommit<'_>, page: &mut Html) {
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
        let url = place.url("commit", b"", &[("id", parent.digits())]);
        page.markup("<dt>Parent</dt><dd><span class=id>")
            .heavy_link(&url, parent.digits());
        page.markup("</span>");
        // Of one alone it stands below.
        if commit.parents.len() > 1 {
            let between = [("id", id), ("id2", parent.digits())];
            let url = place.plain_url("diff", b"", &between);
            page.markup(" <span class=soft>· ")
                .heavy_link(&url, "diff")
                .markup("</span>");
        }
        page.markup("</dd>");
    }
    let archive = [place.short_name(), b"-", id.as_bytes(), b".tar.gz"].concat();
    page.markup("<dt>Files</dt><dd>")
        .link(&place.url("tree", b"", &[("id", id)]), "all files");
    page.markup(" · ")
        .heavy_link(&place.plain_url("snapshot", &archive, &[]), "tar.gz");
    page.markup("</dd></dl>\n");
}

/// What lies between two commits.
pub fn between(
    place: &Place,
    from: &Id,
    to: &Id,
    path: &[u8],
    patch: &[u8],
    is_cut: bool,
) -> String {
    let mut page = Html::default();
    let url = |id: &Id| place.plain_url("commit", b"", &[("id", id.digits())]);
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
    push_patch(place, to, Some(from), patch, is_cut, &mut page);
    framed(place, Tab::Commit, b"difference", true, &page)
}

fn push_patch(
    place: &Place,
    after: &Id,
    before: Option<&Id>,
    patch: &[u8],
    is_cut: bool,
    page: &mut Html,
) {
    let (files, is_whole) = diff(patch);
    if files.is_empty() {
        page.markup("<p class=note>No file changed.</p>\n");
        return;
    }
    push_list(&files, page);
    for (nth, file) in files.iter().enumerate() {
        if page.len() > GIT_HTML_BYTES_MAX {
            return push_cut(page);
        }
        let (id, name) = match (&file.after, before) {
            (None, Some(before)) => (before, file.name()),
            _ => (after, file.name()),
        };
        page.markup("<section class=file id=f")
            .markup(&nth.to_string())
            .markup("><h3><code>");
        match name.contains(&b'\\') {
            true => page.text(name),
            false => page.link(&place.url("tree", name, &[("id", id.digits())]), name),
        };
        page.markup("</code>");
        push_stat(file, page);
        page.markup("<span class=soft>")
            .text(what_happened(file))
            .markup("</span></h3>\n");
        if !push_hunks(file, page) {
            page.markup("</section>\n");
            return push_cut(page);
        }
        page.markup("</section>\n");
    }
    if is_cut || !is_whole {
        push_cut(page);
    }
}

fn push_cut(page: &mut Html) {
    page.markup("<p class=note>More changed than a page can show: git diff shows all of it.</p>\n");
}

fn push_list(files: &[Changed<'_>], page: &mut Html) {
    let (mut plus, mut minus) = (0, 0);
    for file in files {
        let counts = file.counts();
        plus += counts.0;
        minus += counts.1;
    }
    let word = if files.len() == 1 { "file" } else { "files" };
    let said = format!(
        "<h2>{} {word} changed <span class=stat><b>+{plus}</b> <i>−{minus}</i></span></h2>\n",
        files.len()
    );
    page.markup(&said).markup("<ul class=rows>\n");
    for (nth, file) in files.iter().enumerate() {
        if page.len() > GIT_HTML_BYTES_MAX / 4 {
            break;
        }
        page.markup("<li><span class=main><code>");
        page.link(&format!("#f{nth}"), file.name());
        page.markup("</code></span><span class=side>");
        page.text(what_happened(file));
        push_stat(file, page);
        page.markup("</span>\n");
    }
    page.markup("</ul>\n");
}

fn push_stat(file: &Changed<'_>, page: &mut Html) {
    let (plus, minus) = file.counts();
    if (plus, minus) != (0, 0) {
        let said = format!("<span class=stat><b>+{plus}</b> <i>−{minus}</i></span>");
        page.markup(&said);
    }
}

fn what_happened(file: &Changed<'_>) -> Vec<u8> {
    match (&file.before, &file.after, file.modes) {
        (None, _, _) => b"new".to_vec(),
        (_, None, _) => b"deleted".to_vec(),
        (Some(before), Some(after), _) if before != after => [b"was ", before.as_slice()].concat(),
        (_, _, Some([before, after])) => [b"mode ", before, b" to ", after].concat(),
        _ => Vec::new(),
    }
}

/// False if the page became too long.
fn push_hunks(file: &Changed<'_>, page: &mut Html) -> bool {
    if file.is_binary {
        page.markup("<p class=soft>No text.</p>\n");
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
