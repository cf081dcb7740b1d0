"""Makes every page of the site: templates and XML in, HTML out.

REQUEST_URI has the requested page. The program looks for the page among the existing articles, and never
makes a file name from the URI. In a template {{name}} is escaped; {{{name}}} is for HTML of the program or of
an author.
"""
import os
import re
import sys
from html import escape, unescape
from xml.etree import ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
MONTHS = ("January February March April May June July August September October November "
          "December").split()
QUERY_MAX = 100


class NotFound(Exception):
    """The requested page does not exist."""


class Moved(Exception):
    """The page is at another path."""


def read(*names):
    with open(os.path.join(HERE, *names), encoding="utf-8") as file:
        return file.read()


def fill(template, **values):
    """Returns a template with its values: {{{raw}}} unchanged, {{text}} escaped."""
    def value(match):
        raw, text = match.groups()
        return str(values[raw]) if raw else escape(str(values[text]))
    return re.sub(r"\{\{\{(\w+)\}\}\}|\{\{(\w+)\}\}", value, read("templates", template))


class Site:
    """content/site.xml: the title, the categories, the author."""

    def __init__(self):
        root = ElementTree.fromstring(read("content", "site.xml"))
        self.title = root.findtext("title", "").strip()
        self.about = root.findtext("about", "").strip()
        self.author = root.findtext("author", "").strip()
        self.categories = {}
        for category in root.iter("category"):
            self.categories[category.get("name")] = (
                category.findtext("title", "").strip(), category.findtext("about", "").strip())


class Article:
    """An article: content/articles/NAME.xml has the metadata, NAME.html the text."""

    def __init__(self, name):
        root = ElementTree.fromstring(read("content", "articles", name + ".xml"))
        field = lambda key: " ".join(root.findtext(key, "").split())
        self.name = name
        self.title, self.summary = field("title"), field("summary")
        self.category, self.date = field("category"), field("date")
        self.image, self.image_text = field("image"), field("image-text")
        if not DATE.fullmatch(self.date):
            raise ValueError(f"{name}.xml: date is no YYYY-MM-DD")

    @property
    def path(self):
        return f"/{self.category}/{self.name}"

    @property
    def day(self):
        year, month, day = self.date.split("-")
        return f"{int(day)} {MONTHS[int(month) - 1]} {year}"

    def html(self):
        return read("content", "articles", self.name + ".html")

    def text(self):
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", self.html())).split())


def names():
    """Yields the names of all articles."""
    for file in os.listdir(os.path.join(HERE, "content", "articles")):
        name, ending = os.path.splitext(file)
        if ending == ".xml" and NAME.fullmatch(name):
            yield name


def articles():
    """Returns all articles, the newest first."""
    return sorted(map(Article, names()), key=lambda one: (one.date, one.name), reverse=True)


def page(site, *, here, title, content, query="", about="", views=True):
    """Returns a page with the common frame."""
    links = "".join(
        f'<a href="/{escape(name)}/"{current(here, f"/{name}/")}>{escape(words)}</a>'
        for name, (words, _) in site.categories.items())
    return fill("page.html", site=site.title, about=about or site.about, query=query,
                title=f"{title} · {site.title}" if title else site.title,
                links=links, content=content,
                views='<span id="views"></span>' if views else "")


def current(here, path):
    return ' aria-current="page"' if here == path else ' class="in"' if here.startswith(path) else ""


def items(site, found, words=None):
    return "".join(
        fill("item.html", path=one.path, title=one.title, date=one.date, day=one.day,
             category=site.categories.get(one.category, ("",))[0],
             summary=words(one) if words else escape(one.summary))
        for one in found)


def start(site):
    found = articles()
    first, *rest = found or [None]
    if first is None:
        return page(site, here="/", title="", content="<p>Nothing is written yet.</p>")
    content = fill("start.html", path=first.path, title=first.title, date=first.date,
                   day=first.day, summary=first.summary, picture=picture(first),
                   site_about=site.about, items=items(site, rest))
    return page(site, here="/", title="", content=content)


def category(site, name):
    title, about = site.categories[name]
    found = [one for one in articles() if one.category == name]
    content = fill("list.html", title=title, about=about, items=items(site, found))
    return page(site, here=f"/{name}/", title=title, content=content, about=about)


def article(site, name):
    one = Article(name)
    content = fill("article.html", title=one.title, date=one.date, day=one.day,
                   summary=one.summary, category_path=f"/{one.category}/",
                   category=site.categories.get(one.category, ("",))[0],
                   picture=picture(one), body=one.html())
    return page(site, here=one.path, title=one.title, content=content, about=one.summary)


def picture(one):
    if not re.fullmatch(r"[a-z0-9-]+\.svg", one.image):
        return ""
    return f'<img src="/static/{one.image}" width="720" height="300" alt="{escape(one.image_text)}">'


def search(site, query):
    words = query.casefold().split()
    found = []
    for one in articles() if words else []:
        title, whole = one.title.casefold(), f"{one.title} {one.summary} {one.text()}".casefold()
        if all(word in whole for word in words):
            found.append((not any(word in title for word in words), one))
    found = [one for _, one in sorted(found, key=lambda pair: pair[0])]
    said = "" if not words else {0: "Nothing was found.", 1: "One article."}.get(
        len(found), f"{len(found)} articles.")
    content = fill("search.html", query=query, said=said,
                   items=items(site, found, lambda one: excerpt(one, words)))
    return page(site, here="/search", title="Search", content=content, query=query, views=False)


def excerpt(one, words):
    """Returns some text around the first searched word, with the words marked."""
    text = f"{one.summary} {one.text()}"
    pattern = re.compile("|".join(map(re.escape, words)), re.IGNORECASE)
    first = pattern.search(text)
    begin = max(0, first.start() - 60) if first else 0
    begin = text.find(" ", begin) + 1 if begin else 0
    piece = text[begin:begin + 180]
    marked, at = [], 0
    for match in pattern.finditer(piece):
        marked += [escape(piece[at:match.start()]), "<mark>", escape(match.group()), "</mark>"]
        at = match.end()
    more = " …" if begin + 180 < len(text) else ""
    return ("… " if begin else "") + "".join(marked) + escape(piece[at:].rstrip()) + more


def feed(site):
    """Returns the Atom feed (RFC 4287)."""
    host = re.sub(r"[^A-Za-z0-9.:\[\]-]", "", os.environ.get("HTTP_HOST", "")) or "localhost"
    base = f"{'https' if os.environ.get('HTTPS') else 'http'}://{host}"
    found = articles()
    entries = "".join(
        fill("entry.xml", url=base + one.path, title=one.title, date=one.date,
             summary=one.summary, body=one.html().replace(' href="/', f' href="{base}/'))
        for one in found)
    return fill("feed.xml", base=base, title=site.title, about=site.about, author=site.author,
                date=found[0].date if found else "1970-01-01", entries=entries)


def decoded(text):
    """Decodes percent signs. Loading urllib takes longer than making a page."""
    raw = re.sub(rb"%([0-9A-Fa-f]{2})", lambda code: bytes([int(code.group(1), 16)]),
                 text.encode("utf-8", "surrogateescape"))
    return raw.decode("utf-8", "replace")


def asked():
    """Returns the parameter `q` of the query, at most QUERY_MAX characters."""
    for part in os.environ.get("QUERY_STRING", "").split("&"):
        key, _, value = part.partition("=")
        if key == "q":
            text = decoded(value.replace("+", " "))
            return "".join(c for c in text if c.isprintable())[:QUERY_MAX].strip()
    return ""


def answer(site, path):
    """Returns the content of a path, its type, and whether a cache may store the content."""
    html, parts = "text/html", path.strip("/").split("/")
    if path == "/":
        return start(site), html, True
    if path == "/search":
        return search(site, asked()), html, False
    if path == "/feed.atom":
        return feed(site), "application/atom+xml", True
    if len(parts) == 1 and parts[0] in site.categories:
        if path != f"/{parts[0]}/":
            raise Moved(f"/{parts[0]}/")
        return category(site, parts[0]), html, True
    if len(parts) == 2 and parts[0] in site.categories and parts[1] in set(names()):
        one = Article(parts[1])
        if one.category != parts[0] or path != one.path:
            raise Moved(one.path)
        return article(site, parts[1]), html, True
    raise NotFound


def say(status, content, kind="text/html", *fields):
    head = [f"Status: {status}", f"Content-Type: {kind}; charset=utf-8",
            "Content-Security-Policy: default-src 'self'; frame-ancestors 'none'",
            "X-Content-Type-Options: nosniff", "Referrer-Policy: same-origin", *fields]
    body = content.encode("utf-8", "replace")
    head.append(f"Content-Length: {len(body)}")
    sys.stdout.buffer.write("\r\n".join([*head, "", ""]).encode("ascii", "replace") + body)
    sys.stdout.buffer.flush()


def main():
    path = decoded(os.environ.get("REQUEST_URI", "/").partition("?")[0])
    site = Site()
    try:
        if os.environ.get("REQUEST_METHOD", "GET") not in ("GET", "HEAD"):
            content = fill("error.html", title="That can’t be done here",
                           words="Pages can be read, and that is all.")
            say("405 Method Not Allowed",
                page(site, here=path, title="Not allowed", content=content, views=False),
                "text/html", "Allow: GET, HEAD")
            return
        content, kind, may_be_kept = answer(site, path)
        say("200 OK", content, kind, *([] if may_be_kept else ["Cache-Control: no-store"]))
    except Moved as moved:
        say("308 Permanent Redirect", "", "text/html", f"Location: {moved}", "Cache-Control: max-age=3600")
    except NotFound:
        content = fill("error.html", title="Nothing here",
                       words="There is no page at this address, and perhaps there never was.")
        say("404 Not Found", page(site, here=path, title="Nothing here", content=content, views=False))


# Any other exception goes to standard error and so to the server's error log; the client gets the old page from
# the page cache, or a 502.
main()
