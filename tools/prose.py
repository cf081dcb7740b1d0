#!/usr/bin/env python3
"""Measures the prose of comments and documents, and fails above given limits.

    tools/prose.py [PATH...] [--files N] [--lines N]
                   [--max-pro-forms PERCENT] [--max-people-words PER_THOUSAND] [--max-openings COUNT]

Reads the comments of *.rs, *.sh and *.py and the text of *.md below each PATH (default: the repository), prints
the figures, the worst files and the worst lines, and exits with 1 if a figure is above its limit. Code blocks,
tables and text in backquotes are not counted. CONTRIBUTING.md, "Prose", has the rules behind the figures.
"""

import argparse
import os
import re
import signal
import sys
from collections import Counter

# Words in place of a noun.
PRO_FORMS = frozenset(
    "it its what so those these that this they them their who whom whose which such one ones there then".split()
)
# Words in place of the client, the peer, the operator, the caller.
PEOPLE_WORDS = frozenset(
    "who whom whose nobody somebody anybody everybody others whoever whatever someone anyone".split()
)
# First words of a doc comment that continues the comment of another item.
LEANING_OPENING = re.compile(
    r"(The same|So (many|much|long|often|few)|Of (?!course)|What |Who |Whose |Whoever |And |But for )"
)

ENDINGS = (".rs", ".md", ".sh", ".py")
SKIPPED_FOLDERS = frozenset(("target", ".git", "node_modules", "seeds"))

COMMENT = re.compile(r"\s*(///|//!|//|#(?!\[|!))\s?(.*)")
BACKQUOTED = re.compile(r"`[^`]*`")
WORD = re.compile(r"[a-z']+")


class Figures:
    """Counts of one line, one file or all files."""

    def __init__(self):
        self.words = self.pro_forms = self.people_words = self.openings = 0

    def add(self, other):
        self.words += other.words
        self.pro_forms += other.pro_forms
        self.people_words += other.people_words
        self.openings += other.openings

    def pro_form_percent(self):
        return 100 * self.pro_forms / max(self.words, 1)

    def people_words_per_thousand(self):
        return 1000 * self.people_words / max(self.words, 1)

    def weight(self):
        """Order of the worst files: a person's pro-form or a leaning opening weighs as 30 pro-forms."""
        return self.people_words * 3 + self.openings * 3 + self.pro_forms / 10


def measure(text, is_first_doc_line):
    figures = Figures()
    words = Counter(WORD.findall(BACKQUOTED.sub(" ", text).lower()))
    figures.words = sum(words.values())
    figures.pro_forms = sum(count for word, count in words.items() if word in PRO_FORMS)
    figures.people_words = sum(count for word, count in words.items() if word in PEOPLE_WORDS)
    figures.openings = int(is_first_doc_line and bool(LEANING_OPENING.match(text)))
    return figures


def markdown_lines(lines):
    """Yields the lines outside code blocks and tables as (number, text, False)."""
    in_code_block = False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            in_code_block = not in_code_block
        if not in_code_block and not line.startswith("|"):
            yield number, line.strip(), False


def comment_lines(lines):
    """Yields whole-line comments as (number, text, is the first line of a doc comment)."""
    previous_is_doc = False
    for number, line in enumerate(lines, 1):
        comment = COMMENT.match(line)
        if comment:
            yield number, comment[2].strip(), comment[1] == "///" and not previous_is_doc
        previous_is_doc = line.lstrip().startswith("///")


def source_files(top):
    if os.path.isfile(top):
        yield top
        return
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
        for name in sorted(names):
            if name.endswith(ENDINGS):
                yield os.path.join(folder, name)


def arguments(repository):
    parser = argparse.ArgumentParser(
        usage="%(prog)s [PATH...] [options]",
        description="Measures the prose of comments and documents, and fails above given limits.",
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", default=[repository])
    parser.add_argument("--files", type=int, default=15, metavar="N", help="worst files to print (15)")
    parser.add_argument("--lines", type=int, default=10, metavar="N", help="worst lines to print (10)")
    parser.add_argument("--max-pro-forms", type=float, metavar="PERCENT", help="pro-forms in 100 words")
    parser.add_argument("--max-people-words", type=float, metavar="PER_THOUSAND", help="people-words in 1,000 words")
    parser.add_argument("--max-openings", type=int, metavar="COUNT", help="leaning openings of doc comments")
    return parser.parse_args()


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    repository = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    options = arguments(repository)
    total, files, lines = Figures(), [], []
    for path in (file for top in options.paths for file in source_files(top)):
        with open(path, encoding="utf-8", errors="replace") as file:
            content = file.read().splitlines()
        split = markdown_lines if path.endswith(".md") else comment_lines
        name, sum_of_file = os.path.relpath(path), Figures()
        for number, text, is_first_doc_line in split(content):
            figures = measure(text, is_first_doc_line)
            sum_of_file.add(figures)
            score = 3 * figures.people_words + 3 * figures.openings + figures.pro_forms
            if score > 2:
                lines.append((-score, name, number, text))
        if sum_of_file.words:
            files.append((-sum_of_file.weight(), name, sum_of_file))
        total.add(sum_of_file)

    print(
        f"prose: {total.words} words, pro-forms {total.pro_form_percent():.1f} %, "
        f"people-words {total.people_words_per_thousand():.2f} in 1,000, leaning openings {total.openings}"
    )
    for _, name, figures in sorted(files, key=lambda file: file[:2])[: options.files]:
        print(
            f"  {name:<52} {figures.words:6} words  {figures.pro_form_percent():4.1f} %  "
            f"{figures.people_words:3} people-words  {figures.openings:3} openings"
        )
    for _, name, number, text in sorted(lines)[: options.lines]:
        print(f"  {name}:{number}: {text}")

    limits = [
        ("pro-forms in 100 words", total.pro_form_percent(), options.max_pro_forms),
        ("people-words in 1,000 words", total.people_words_per_thousand(), options.max_people_words),
        ("leaning openings", total.openings, options.max_openings),
    ]
    above = [(name, figure, limit) for name, figure, limit in limits if limit is not None and figure > limit]
    for name, figure, limit in above:
        print(f"prose: {figure:.6g} {name}; the limit is {limit:.6g}", file=sys.stderr)
    if above:
        print(
            "prose: rewrite the new comments and documents: name the client, the peer or the operator as the subject,\n"
            "and let each comment stand alone (CONTRIBUTING.md, \"Prose\"). The worst files and lines are above;\n"
            "`tools/prose.py PATH` measures one file or folder.",
            file=sys.stderr,
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
