//! Content of the site's pages. The content is the same in every run, because results would not be
//! comparable otherwise, and consists of words, so that compression has a realistic effect.

/// The hello page: 228 bytes, the same length as the page of the nine-server comparison.
pub(super) const HELLO: &str = "<!DOCTYPE html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<title>Hello World</title>
</head>
<body>
<h1>Hello World</h1>
<p>The same page from all those servers, two hundred and twenty-eight bytes long.</p>
</body>
</html>
";

/// Error page for missing files, for the contenders configured with an error page.
pub(super) const NOT_FOUND: &str = "<!DOCTYPE html>
<html lang=\"en\"><head><title>Not found</title></head><body><h1>Not found</h1></body></html>
";

/// Returns a page of exactly `bytes` bytes. Very short pages are plain text without HTML tags.
pub(super) fn page(bytes: u64) -> String {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let frame = PAGE_HEAD.len() + PAGE_TAIL.len();
    let Some(inside) = bytes.checked_sub(frame) else {
        return words(bytes);
    };
    [PAGE_HEAD, &words(inside), PAGE_TAIL].concat()
}

/// Returns words in a pseudo-random order, always the same (linear congruential generator).
fn words(bytes: usize) -> String {
    let mut state: u32 = 7;
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.push_str(WORDS[(state >> 24) as usize % WORDS.len()]);
        text.push(if (state >> 16).is_multiple_of(10) {
            '\n'
        } else {
            ' '
        });
    }
    text.truncate(bytes);
    text
}

/// Returns the page that `complex.py` builds from [`CONTENT`].
pub(super) fn complex_page() -> String {
    let head = HEAD
        .replace("@title@", "Raspberry Pi Cluster")
        .replace("@site@", "An Ant Hill");
    let head = head.replace("@keywords@", "cluster, server, pi");
    let links: String = [
        ("/", "Home"),
        ("/journal/", "Journal"),
        ("/cluster", "Cluster"),
    ]
    .map(|(path, title)| format!("<li><a href=\"{path}\">{title}</a></li>\n"))
    .concat();
    let menu = MENU.replace("@links@", &links);
    let footer = FOOTER.replace("@date@", "2013-10-13");
    [head.as_str(), &menu, INTRODUCTION, NODES, SIDEBAR, &footer].concat()
}

/// Input files of `complex.py`.
pub(super) const CONTENT: [(&str, &str); 8] = [
    (
        "site.xml",
        include_str!("../../programs/cgi/content/site.xml"),
    ),
    (
        "pages.xml",
        include_str!("../../programs/cgi/content/pages.xml"),
    ),
    ("head.html", HEAD),
    ("menu.html", MENU),
    ("introduction.html", INTRODUCTION),
    ("nodes.html", NODES),
    ("sidebar.html", SIDEBAR),
    ("footer.html", FOOTER),
];

const HEAD: &str = include_str!("../../programs/cgi/content/head.html");
const MENU: &str = include_str!("../../programs/cgi/content/menu.html");
const INTRODUCTION: &str = include_str!("../../programs/cgi/content/introduction.html");
const NODES: &str = include_str!("../../programs/cgi/content/nodes.html");
const SIDEBAR: &str = include_str!("../../programs/cgi/content/sidebar.html");
const FOOTER: &str = include_str!("../../programs/cgi/content/footer.html");

const PAGE_HEAD: &str = "<!DOCTYPE html>\n<html><head><title>Journal</title></head><body><pre>\n";
const PAGE_TAIL: &str = "\n</pre></body></html>\n";

const WORDS: [&str; 18] = [
    "the",
    "of",
    "and",
    "a",
    "web",
    "ant",
    "hill",
    "mountain",
    "server",
    "tiny",
    "journal",
    "setup",
    "configuration",
    "apache",
    "httpd",
    "watched",
    "left",
    "over",
];
