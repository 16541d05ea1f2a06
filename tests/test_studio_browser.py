"""The studio in a real browser: Playwright with the system's chromium. `make studio-test` installs both.

With FAIRVEIL_SCREENSHOTS=FOLDER every screen is written there, at 1280 and 390 pixels, for the documentation.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers import people

pytest.importorskip("starlette", reason="the studio is not installed")
pytest.importorskip("playwright", reason="playwright is not installed: make studio-test")

from playwright.sync_api import sync_playwright

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: make studio-test")
SIZES = ((1280, 900), (390, 844))
PATIENCE = 600_000


class Server:
    """A studio in a process of its own."""

    def __init__(self, folder, file):
        self.folder, self.file = folder, file
        self.process = None
        self.start()

    def start(self, port=0):
        command = [sys.executable, "-m", "fairveil", "studio", self.file, "--no-browser", "--port", str(port)]
        self.log = self.folder.parent / "server.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stderr=log, stdout=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while "token=" not in self.log.read_text():
            assert time.monotonic() < end, "the studio did not start"
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)
        self.address = next(word for word in self.log.read_text().split() if word.startswith("http"))

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(120)


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    frame, s, y = people(900)
    odd = "town" if os.environ.get("FAIRVEIL_SCREENSHOTS") else "<script>alert(1)</script>"
    frame.rename(columns={"town": odd}).assign(sex=s["sex"], hired=y).to_csv(folder / "staff.csv", index=False)
    found = Server(folder, "staff.csv")
    yield found
    found.stop()


@pytest.fixture
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visitor:
    """A tab that counts clicks, notes errors, and looks at every screen at both widths."""

    def __init__(self, page):
        self.page, self.clicks, self.errors = page, 0, []
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: self.errors.append(f"dialog: {dialog.message}"))

    def click(self, where):
        self.clicks += 1
        where.click()

    def look(self, name):
        """No screen is wider than the window, every control has a name; a screenshot if wanted."""
        for width, height in SIZES:
            self.page.set_viewport_size({"width": width, "height": height})
            wider = self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
            assert not wider, f"{name} is cut at {width} pixels"
            if os.environ.get("FAIRVEIL_SCREENSHOTS"):
                folder = Path(os.environ["FAIRVEIL_SCREENSHOTS"])
                self.page.screenshot(path=folder / f"{name}-{width}.png")
        self.page.set_viewport_size({"width": 1280, "height": 900})
        unnamed = self.page.evaluate(
            """[...document.querySelectorAll("input:not([type=hidden]), select, button, a")].filter(
            part => !(part.labels && part.labels.length) && !part.getAttribute("aria-label") &&
            !part.textContent.trim()).length"""
        )
        assert unnamed == 0, f"{name} has controls without a name"


@pytest.mark.timeout(1800)
def test_from_a_table_to_a_report_in_under_ten_clicks(server, chromium):
    context = chromium.new_context()
    tab = Visitor(context.new_page())
    page = tab.page
    page.goto(server.address)
    assert "token" not in page.url
    tab.look("hide")
    page.keyboard.press("Tab")  # the skip link is the first stop
    assert page.evaluate("document.activeElement.className") == "skip"
    tab.click(page.get_by_label("Hide sex"))
    tab.click(page.get_by_label("Keep hired predictable"))
    tab.click(page.get_by_role("button", name="Inspect the columns"))
    page.wait_for_selector("select[name=role]")
    tab.look("columns")
    tab.click(page.get_by_role("button", name="Save and continue"))
    page.get_by_label("Budgets, separated by commas").fill("0.001, 8")
    tab.look("learn")
    tab.click(page.get_by_label("trial"))
    tab.click(page.get_by_role("button", name="Learn"))
    page.wait_for_selector("#job progress")
    page.reload()  # in mid-fit
    tab.look("learning")
    second = Visitor(context.new_page())  # a second tab shows the same job
    second.page.goto(page.url)
    second.page.wait_for_selector("#job, #budget")
    _restart(server, tab, context)
    page.wait_for_selector("#budget")
    page.wait_for_selector("#preview table")
    assert page.get_by_role("slider").get_attribute("aria-valuetext") == "Budget 8, recommended"
    tab.look("choose")
    page.get_by_role("slider").focus()
    page.keyboard.press("ArrowLeft")  # the slider works with the keyboard
    assert page.get_by_role("slider").get_attribute("aria-valuetext") == "Budget 0.001, not met"
    assert page.get_by_role("button", name="Release and audit").is_disabled()
    page.keyboard.press("ArrowRight")
    tab.click(page.get_by_role("button", name="Release and audit"))
    page.get_by_text("Its card, to publish with it").wait_for()
    tab.look("report")
    with context.expect_page() as opened:
        tab.click(page.get_by_role("link", name="Open staff.audit.html"))
    opened.value.get_by_text("What attackers still find").wait_for()
    assert tab.clicks < 10
    with context.expect_page() as opened:
        page.get_by_role("link", name="Open frontier.html").click()
    slider = opened.value.get_by_role("slider")  # its script runs, in a sandbox
    assert slider.get_attribute("aria-valuetext") == "Budget 8, recommended"
    slider.press("ArrowLeft")
    assert slider.get_attribute("aria-valuetext") == "Budget 0.001, not met"
    assert not tab.errors
    assert {path.name for path in server.folder.iterdir()} >= {
        "staff.censored.csv", "staff.censored.csv.card.md", "staff.audit.html", "staff.schema.yaml", "staff-veils",
    }  # fmt: skip
    told = server.log.read_text() + page.url + str(context.cookies())
    assert not [word for word in ("wife", "husband", "sex", "hired", "alert") if word in told]


def _restart(server, tab, context):
    """Stop the server while the job runs, and start it again: the work goes on."""
    address = tab.page.url
    server.stop()
    server.start()
    tab.page.goto(server.address)
    port = server.address.split(":")[2].split("/")[0]
    tab.page.goto(address.replace(address.split(":")[2].split("/")[0], port))
    tab.errors.clear()  # the page noticed that the server was away


def test_dark_pages_have_contrast(server, chromium):
    """Text against its background, in both colour schemes (WCAG AA: 4.5)."""
    page = chromium.new_context().new_page()
    page.goto(server.address)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for name in ("body", "button", "nav li", ".skip"):
            ratio = page.evaluate(_CONTRAST, name)
            assert ratio >= 4.5, f"{name} in {scheme}: {ratio:.2f}"


_CONTRAST = """name => {
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255).map(
      v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const part = document.querySelector(name);
  let under = part, back = getComputedStyle(part).backgroundColor;
  while (/, 0\\)$|transparent/.test(back) && under.parentElement) {
    under = under.parentElement; back = getComputedStyle(under).backgroundColor;
  }
  const [a, b] = [light(getComputedStyle(part).color), light(back)].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
}"""
