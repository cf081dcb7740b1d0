#!/usr/bin/env python3
"""Checks the guide in HTML: each page of SUMMARY.md is in the index of the search, and each link leads to a page and a
heading that exist.

    tools/guide_check.py FOLDER
"""

import glob
import html.parser
import json
import os
import re
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    """Anchors and links of a page."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors.add(attributes.get("id"))
        if tag == "a" and "href" in attributes:
            self.links.append(attributes["href"])


def searched_pages(folder):
    """Returns the pages in the index of the search."""
    [index] = glob.glob(os.path.join(folder, "searchindex-*.js"))
    text = open(index, encoding="utf-8").read()
    literal = re.search(r"JSON\.parse\('(.*)'\)", text, re.DOTALL).group(1)
    # The text is a literal of JavaScript in single quotes.
    urls = json.loads(literal.replace("\\\\", "\\").replace("\\'", "'"))["doc_urls"]
    return {url.split("#")[0] for url in urls}


def main(folder):
    summary = open("docs/src/SUMMARY.md", encoding="utf-8").read()
    wanted = {f"{name}.html" for name in re.findall(r"\(([\w-]+)\.md\)", summary)}
    mistakes = [f"the search does not know {page}" for page in sorted(wanted - searched_pages(folder))]
    names = [os.path.basename(path) for path in glob.glob(os.path.join(folder, "*.html"))]
    pages = {name: Page(open(os.path.join(folder, name), encoding="utf-8").read()) for name in names}
    for name in sorted(wanted):
        if name not in pages:
            mistakes.append(f"there is no {name}")
            continue
        for link in pages[name].links:
            url = urllib.parse.urlsplit(link)
            if url.scheme or url.netloc or url.path.endswith((".svg", ".png")):
                continue
            target = url.path or name
            if target not in pages and not os.path.isfile(os.path.join(folder, target)):
                mistakes.append(f"{name}: {link} leads to no page")
            elif url.fragment and urllib.parse.unquote(url.fragment) not in pages[target].anchors:
                mistakes.append(f"{name}: {link} leads to no heading")
    for mistake in mistakes:
        print(f"guide: {mistake}", file=sys.stderr)
    return 1 if mistakes or len(wanted) < 30 else 0


sys.exit(main(sys.argv[1]))
