#!/usr/bin/env python3
# Page of a content management system, assembled from metadata in two XML files and from HTML snippets.
import os
import sys
from xml.dom import minidom

content = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "content")


def snippet(name, **words):
    with open(os.path.join(content, name + ".html"), encoding="utf-8") as file:
        text = file.read()
    for word, value in words.items():
        text = text.replace("@" + word + "@", value)
    return text


def text_of(element, name):
    return element.getElementsByTagName(name)[0].firstChild.data


site = minidom.parse(os.path.join(content, "site.xml")).documentElement
pages = minidom.parse(os.path.join(content, "pages.xml")).documentElement
wanted = "cluster"
page = next(p for p in pages.getElementsByTagName("page") if p.getAttribute("name") == wanted)

links = "".join(
    '<li><a href="%s">%s</a></li>\n' % (link.getAttribute("path"), link.firstChild.data)
    for link in site.getElementsByTagName("link")
)
parts = [
    snippet("head", title=text_of(page, "title"), site=text_of(site, "name"), keywords=text_of(page, "keywords")),
    snippet("menu", links=links),
]
parts += [snippet(part.firstChild.data) for part in page.getElementsByTagName("part")]
parts += [snippet("footer", date=text_of(page, "date"))]
sys.stdout.write("Content-Type: text/html\r\n\r\n" + "".join(parts))
