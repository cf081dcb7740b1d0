"""Drives the manager's page in Chromium, and checks the page with axe.

Arguments: the test, the URL of the page, and what the test needs. The folder in SCREENSHOTS, if set, gets pictures.
The script ends with an error at the first difference.
"""

import os
import re
import sys
from contextlib import contextmanager

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

WIDTHS = (360, 1280)
SCHEMES = ("light", "dark")
TIMEOUT_MS = 60_000


class Browser:
    """Chromium, with a fresh profile for each context."""

    def __init__(self, chromium, url):
        self.chromium = chromium
        self.url = url

    @contextmanager
    def page(self, path="/", **options):
        """Opens a page of a new profile. A script error, a failed resource and a refused script are failures; the answer
        409 is the question before an edit."""
        context = self.chromium.new_context(**options)
        context.set_default_timeout(TIMEOUT_MS)
        page = context.new_page()
        problems = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda line: line.type == "error" and "409" not in line.text and problems.append(line.text))
        page.goto(path if path.startswith("http") else self.url + path)
        yield page
        context.close()
        assert not problems, problems


def is_accessible(page, name):
    """Checks the page with axe, and that the page is not wider than the window."""
    violations = Axe().run(page)
    assert violations.violations_count == 0, f"{name}\n{violations.generate_report()}"
    width = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert width == 0, f"{name}: {width} pixels wider than the window"
    folder = os.environ.get("SCREENSHOTS")
    if folder:
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)


def looks(browser, login):
    """The page without a login and with a login, at both widths, in both schemes."""
    with browser.page(login) as page:
        state = page.context.storage_state()
        # The pages have an entry of the history, and a member that is switched off.
        member_row(page).get_by_role("link").click()
        own(page).get_by_role("button", name="Drain").click()
        has_state(page, "draining")
    for scheme in SCHEMES:
        for width in WIDTHS:
            size = {"width": width, "height": 800}
            options = {"viewport": size, "color_scheme": scheme}
            with browser.page("/", **options) as page:
                is_accessible(page, f"reader-{scheme}-{width}")
                table = page.get_by_role("region", name="Table of the members of app")
                hidden = table.evaluate("it => it.scrollWidth - it.clientWidth")
                assert width < 1280 or hidden == 0, f"{hidden} pixels of the table of members are hidden"
            with browser.page("/", storage_state=state, **options) as page:
                is_accessible(page, f"editor-{scheme}-{width}")
                page.get_by_role("table", name="Members of app").get_by_role("link").first.click()
                is_accessible(page, f"member-{scheme}-{width}")


def cards(browser, login):
    """At 360 pixels, the rows of tables are cards: nothing scrolls sideways, each value stands beside its label, and the
    headings have the order of a wide page. Long parts are folded, so that a reader finds each within a few screens."""
    headings = {}
    for width in WIDTHS:
        with browser.page(login if width == WIDTHS[0] else "/", viewport={"width": width, "height": 800}) as page:
            if width == WIDTHS[0]:
                state = page.context.storage_state()
            tops = page.locator("h2, summary").evaluate_all(
                "all => all.map((it) => [it.getBoundingClientRect().top, it.textContent])"
            )
            headings[width] = [re.sub(r"\d+$", "", text) for _, text in sorted(tops)]
    assert headings[360] == headings[1280], headings
    with browser.page("/", storage_state=state, viewport={"width": 360, "height": 800}) as page:
        folds = page.locator("details.fold")
        assert folds.count() >= 3, folds.count()
        assert not folds.evaluate_all("all => all.some((it) => it.open)")
        is_accessible(page, "folded")
        for fold in folds.all():
            fold.locator("summary").click()
        assert folds.evaluate_all("all => all.every((it) => it.open)")
        is_accessible(page, "cards")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        wide = page.evaluate(
            "[...document.querySelectorAll('main *')].filter((it) => it.scrollWidth > it.clientWidth + 1 && "
            "getComputedStyle(it).overflowX !== 'visible').map((it) => it.outerHTML.slice(0, 200))"
        )
        # The title of a chart may be cut.
        assert all(it.startswith("<b title=") for it in wide), wide
        # A label and a short value are on one line, at the two ends of the card.
        lines = page.evaluate(
            """() => {
                const wrong = [];
                for (const cell of document.querySelectorAll('.cards td.n')) {
                    const label = getComputedStyle(cell, '::before').content;
                    const line = parseFloat(getComputedStyle(cell).lineHeight);
                    const height = cell.getBoundingClientRect().height;
                    if (label === 'none' || height > 1.5 * line) wrong.push([label, cell.textContent, height]);
                }
                for (const pair of document.querySelectorAll('.inline > div, .tiles > div')) {
                    const [name, value] = [...pair.children].map((it) => it.getBoundingClientRect());
                    if (name.width && (Math.abs(name.top - value.top) > 4 || value.left < name.right)) {
                        wrong.push([pair.textContent, name.top, value.top]);
                    }
                }
                return wrong;
            }"""
        )
        assert not lines, lines


def times(browser, login):
    """Times are of the zone of the browser, with UTC as the tooltip; without script they are UTC, and say so."""
    with browser.page(login, timezone_id="Asia/Tokyo") as page:
        state = page.context.storage_state()
        member_row(page).get_by_role("link").click()
        own(page).get_by_role("button", name="Drain").click()
        has_state(page, "draining")
        expect(page.locator(".about")).to_contain_text("times in Asia/Tokyo")
        up = page.locator(".tiles div", has=page.get_by_text("Up", exact=True)).locator("dd")
        for _ in range(2):
            expect(up).not_to_have_text(up.inner_text(), timeout=TIMEOUT_MS)
        for time in page.locator("time").all():
            shown, utc, moment = time.inner_text(), time.get_attribute("title"), time.get_attribute("datetime")
            clock = re.search(r"\d\d:\d\d", utc)[0]
            hour, minute = clock.split(":")
            assert utc.endswith(" UTC") and f"T{clock}" in moment, (utc, moment)
            assert f"{(int(hour) + 9) % 24:02}:{minute}" in shown and "UTC" not in shown, (shown, utc)
        assert page.locator("time").count() > 4
    with browser.page("/", storage_state=state, java_script_enabled=False) as page:
        for time in page.locator("time").all():
            assert time.inner_text().endswith(" UTC"), time.inner_text()


def member_row(page):
    """Returns the row of the first member of the balancer `app`."""
    # Two rows have the names of the columns.
    return page.get_by_role("table", name="Members of app").get_by_role("row").nth(2)


def own(page):
    """Returns the part of the page about the selected member."""
    return page.locator("section.member")


def has_state(page, state):
    """Checks the state of the first member."""
    expect(member_row(page).get_by_role("cell").first).to_have_text(re.compile("^" + state))


def edits(browser, login, script):
    """Reading without a login, an edit by the login of a secret, and the end of the login."""
    options = {"java_script_enabled": script == "script"}
    with browser.page("/", **options) as page:
        expect(page.get_by_role("heading", level=1)).to_have_text("Manager")
        expect(page.get_by_text("Read only")).to_be_visible()
        member_row(page).get_by_role("link").click()
        expect(page.locator("main button")).to_have_count(0)
        page.goto(login)
        expect(page.get_by_text("Logged in: anthill manager login")).to_be_visible()
        assert "secret" not in page.url, page.url
        member_row(page).get_by_role("link").click()
        expect(own(page).get_by_role("button", name="Enable")).to_have_count(0)
        own(page).get_by_role("button", name="Drain").click()
        has_state(page, "draining")
        own(page).get_by_role("button", name="Enable").click()
        has_state(page, "up")
        page.goto(browser.url)
        page.get_by_role("button", name="Undo entry").first.click()
        has_state(page, "draining")
        page.get_by_role("button", name="Undo entry").first.click()
        has_state(page, "up")
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_text("Read only")).to_be_visible()


def keyboard(browser, login):
    """A member is selected and drained by the keyboard alone, and the focus is always visible."""
    with browser.page(login) as page:
        press_until(page, "127.0.0.1", "Enter")
        expect(own(page).get_by_role("button", name="Drain")).to_be_visible()
        press_until(page, "Drain", "Enter")
        has_state(page, "draining")


def press_until(page, text, key):
    """Moves the focus to the next element whose text begins with `text`, and presses the key."""
    for _ in range(100):
        page.keyboard.press("Tab")
        focus = page.evaluate(
            """() => {
                const it = document.activeElement, style = getComputedStyle(it);
                return [it.innerText || '', style.outlineStyle + style.textDecorationLine, it.tagName];
            }"""
        )
        if focus[2] != "BODY":
            assert focus[1] != "nonenone", f"no visible focus on {focus}"
        if focus[0].startswith(text):
            page.keyboard.press(key)
            page.wait_for_load_state()
            return
    raise AssertionError(f"no element {text} by the keyboard")


def updates(browser, login):
    """The figures change by themselves, and so does an edited state; the focus, an opened list and the place in the
    page stay; updates can pause."""
    with browser.page("/") as page:
        up = page.locator(".tiles div", has=page.get_by_text("Up", exact=True)).locator("dd")
        link = member_row(page).get_by_role("link")
        counters = page.locator("details", has=page.get_by_text("Counters", exact=True))
        counters.locator("summary").click()
        # A part with a heading is open on a wide page, and stays folded after the reader has folded it.
        sites = page.locator("details", has=page.get_by_role("heading", name="Sites"))
        expect(sites).to_have_attribute("open", "")
        sites.locator("summary").click()
        link.focus()
        note = page.get_by_text("older than the newest edit")
        expect(note).to_have_count(0)
        page.evaluate("window.scrollTo(0, 120)")
        for _ in range(2):
            expect(up).not_to_have_text(up.inner_text(), timeout=TIMEOUT_MS)
        expect(link).to_be_focused()
        expect(counters).to_have_attribute("open", "")
        expect(sites).not_to_have_attribute("open", "")
        assert page.evaluate("window.scrollY") == 120
        with browser.page(login) as other:
            for state, button in (("draining", "Drain"), ("up", "Enable")):
                member_row(other).get_by_role("link").click()
                own(other).get_by_role("button", name=button).click()
                has_state(page, state)
        expect(link).to_be_focused()
        expect(counters).to_have_attribute("open", "")
        page.get_by_role("button", name="Pause updates").click()
        with page.expect_request("**/events"):
            page.get_by_role("button", name="Resume updates").click()
        expect(page.locator("#newest-edit")).to_contain_text("entry 2: app")
        expect(page.get_by_role("heading", name="History of edits")).to_have_count(0)
        is_accessible(page, "newer-edit")
        note.get_by_role("link").click()
        expect(page.get_by_role("heading", name="History of edits")).to_be_visible()
        expect(note).to_have_count(0)


def ticks(browser, login, script):
    """Members are ticked, drained and enabled together; the updates keep the ticks, and the enter key in a box edits
    nothing. The last members in service are asked about."""
    options = {"java_script_enabled": script == "script"}
    with browser.page(login, **options) as page:
        boxes = page.get_by_role("table", name="Members of app").get_by_role("checkbox")
        expect(boxes).to_have_count(3)
        expect(boxes.first).to_have_accessible_name(re.compile("^Tick 127.0.0.1:"))
        bar = page.get_by_role("group", name="Ticked members of app")
        first, second = boxes.nth(0), boxes.nth(1)
        # The third member is down.
        boxes.nth(2).check()
        first.press(" ")
        first.press("Enter")
        if script == "script":
            up = page.locator(".tiles div", has=page.get_by_text("Up", exact=True)).locator("dd")
            for _ in range(2):
                expect(up).not_to_have_text(up.inner_text(), timeout=TIMEOUT_MS)
            is_accessible(page, "ticks")
        expect(first).to_be_checked()
        expect(second).not_to_be_checked()
        bar.get_by_role("button", name="Drain").click()
        has_state(page, "draining")
        expect(page.get_by_role("heading", name="History of edits")).to_be_visible()
        expect(page.get_by_role("button", name="Undo entry")).to_have_count(2)
        expect(first).not_to_be_checked()
        second.check()
        bar.get_by_role("button", name="Disable").click()
        question = page.get_by_role("heading", name="Confirm the edit")
        expect(question).to_be_visible()
        expect(page.get_by_role("listitem")).to_have_text(re.compile("state from enabled to disabled"))
        if script == "script":
            is_accessible(page, "question")
        page.locator("section.question button").click()
        expect(page.get_by_role("button", name="Undo entry")).to_have_count(3)
        for box in boxes.all():
            box.check()
        bar.get_by_role("button", name="Enable").click()
        has_state(page, "up")
        page.get_by_role("button", name="Log out").click()
        expect(boxes).to_have_count(0)


def moved(browser, login):
    """A tick follows its member to another row, and leaves with its member."""
    with browser.page(login) as page:
        boxes = page.get_by_role("table", name="Members of app").get_by_role("checkbox")
        last = boxes.nth(2).get_attribute("value")
        boxes.nth(0).check()
        boxes.nth(2).check()
        with browser.page(browser.url, storage_state=page.context.storage_state()) as other:
            member_row(other).get_by_role("link").click()
            own(other).get_by_role("button", name="Remove the member").click()
            other.locator("section.question button").click()
        expect(boxes).to_have_count(2)
        expect(boxes.nth(0)).not_to_be_checked()
        expect(boxes.nth(1)).to_have_attribute("value", last)
        expect(boxes.nth(1)).to_be_checked()


def copies(browser, login):
    """A button copies the lines for anthill.toml, and is missing without script."""
    with browser.page(login, permissions=["clipboard-read", "clipboard-write"]) as page:
        member_row(page).get_by_role("link").click()
        own(page).get_by_role("textbox", name="Weight").fill("7")
        own(page).get_by_role("button", name="Change").click()
        lists = page.locator("details", has=page.locator(".copy"))
        lists.locator("summary").click()
        is_accessible(page, "differences")
        lists.get_by_role("button", name="Copy the lines").click()
        expect(lists.get_by_role("button", name="Copied")).to_be_visible()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert "weight = 7" in copied and "lines for" not in copied and "entry" not in copied, copied
        state = page.context.storage_state()
        with browser.page("/", storage_state=state, java_script_enabled=False) as other:
            other.locator("summary", has_text="Differences").click()
            expect(other.locator("pre", has_text="weight = 7").last).to_be_visible()
            expect(other.locator(".copy")).to_be_hidden()


def passwords(browser):
    """A wrong password is refused in words, a viewer reads, and an editor edits."""
    wrong = {"username": "ann", "password": "secret of bob"}
    context = browser.chromium.new_context(http_credentials=wrong)
    page = context.new_page()
    answer = page.goto(browser.url + "/login")
    assert answer.status == 401, answer.status
    assert answer.headers["x-frame-options"] == "DENY", answer.headers
    assert page.evaluate("getComputedStyle(document.querySelector('h1')).fontWeight") == "600"
    is_accessible(page, "wrong-login")
    context.close()
    viewer = {"username": "bob", "password": "secret of bob"}
    with browser.page("/login", http_credentials=viewer) as page:
        expect(page.get_by_text("Logged in: bob")).to_be_visible()
        member_row(page).get_by_role("link").click()
        expect(page.locator("main button")).to_have_count(0)
    editor = {"username": "ann", "password": "secret of ann"}
    with browser.page("/", http_credentials=editor) as page:
        page.get_by_role("link", name="Log in").click()
        expect(page.get_by_text("Logged in: ann")).to_be_visible()
        member_row(page).get_by_role("link").click()
        own(page).get_by_role("button", name="Disable").click()
        has_state(page, "disabled")


def main():
    test, url, *needs = sys.argv[1:]
    with sync_playwright() as playwright:
        # Chromium's sandbox needs an ordinary user.
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        chromium = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
        globals()[test](Browser(chromium, url), *needs)
        chromium.close()


if __name__ == "__main__":
    main()
