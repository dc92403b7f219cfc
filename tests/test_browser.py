"""The built site in real Chromium: complete, quiet, usable, and alone."""

import re
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from conftest import site_pages

from onematrix import figures

PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
AXE = Path(find_spec("axe_playwright_python").origin).parent / "axe.min.js"
COLOURS = ("--om-lookup", "--om-unembed", "--om-ink", "--om-muted")
MOST_BYTES = 500_000  # of a first view: a fifth of what a page of the default theme loads
MOST_REQUESTS = 14
MOST_OF_A_PIECE = 6  # a live piece in view brings its code, its style and its first numbers


class Visit:
    """One page in a fresh browser, with all that it asked for and complained of."""

    def __init__(self, browser, url: str, size: dict = DESKTOP, **context):
        self.requests, self.failures, self.errors, self.bytes = [], [], [], 0
        self.context = browser.new_context(viewport=size, **context)
        self.page = self.context.new_page()
        self.page.on("request", lambda r: self.requests.append(r.url))
        self.page.on("requestfailed", lambda r: self.failures.append(r.url))
        self.page.on("response", self.received)
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))
        self.page.goto(url, wait_until="networkidle")

    def received(self, response) -> None:
        if response.status >= 400:
            self.failures.append(f"{response.status} {response.url}")
        self.bytes += int(response.headers.get("content-length", 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()

    def axe(self, *rules: str) -> list[str]:
        """Violations that axe calls serious or critical, of these rules or of all."""
        options = {"resultTypes": ["violations"]} | ({"runOnly": list(rules)} if rules else {})
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate("options => axe.run(document, options)", options)["violations"]
        return [f"{v['id']}: {v['nodes'][0]['html'][:200]}" for v in found if v["impact"] in ("serious", "critical")]


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("page", site_pages())
def test_page(browser, address, page, size):
    """In light and dark: the reader's system changes while the page is open, and the page follows."""
    theme = "document.documentElement.dataset.theme"
    with Visit(browser, f"{address}/{page}", size, color_scheme="light") as visit:
        assert visit.page.evaluate(theme) == "light"
        assert visit.axe() == []
        visit.page.emulate_media(color_scheme="dark")
        visit.page.wait_for_function(f"{theme} === 'dark'")
        assert visit.axe("color-contrast") == []
        assert visit.errors == []
        assert visit.failures == []
        assert [url for url in visit.requests if not url.startswith(address)] == []
        assert visit.bytes <= MOST_BYTES
        pieces = visit.page.locator(".om-live").count()
        assert len(visit.requests) <= MOST_REQUESTS + MOST_OF_A_PIECE * min(pieces, 1)
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        levels = visit.page.evaluate(
            "[...document.querySelectorAll('main :is(h1,h2,h3,h4,h5,h6)')].map(h => +h.tagName[1])"
        )
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))
        assert visit.page.locator("table:not(:has(th))").count() == 0
        assert visit.page.locator("img:not([alt])").count() == 0
        unnamed = "[...document.querySelectorAll('figure svg')].filter(s => !s.getAttribute('aria-label')).length"
        assert visit.page.evaluate(unnamed) == 0


def test_dark_from_the_first_paint(browser, address):
    with Visit(browser, f"{address}/notebooks/04_dog_drift.html", color_scheme="dark") as visit:
        assert visit.page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert visit.errors == []


def test_front_door_leads_to_the_start_page(browser, address):
    with Visit(browser, f"{address}/index.html") as visit:
        visit.page.wait_for_url("**/book/start.html")


def colour(visit: Visit, variable: str) -> tuple[int, ...]:
    """What a colour of the book is on this page now, as red, green and blue."""
    script = """name => {
      const probe = document.body.appendChild(document.createElement("i"));
      probe.style.color = `var(${name})`;
      const found = getComputedStyle(probe).color;
      probe.remove();
      return found;
    }"""
    return tuple(map(int, re.findall(r"\d+", visit.page.evaluate(script, variable))))


def test_theme_switch_changes_the_figures(browser, address):
    fill = "getComputedStyle(document.querySelector('.om-figure svg text')).fill"
    with Visit(browser, f"{address}/notebooks/04_dog_drift.html", color_scheme="light") as visit:
        light = visit.page.evaluate(fill)
        visit.page.get_by_role("button", name="Light, dark or as the system").click()
        assert visit.page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert visit.page.evaluate(fill) != light
        assert visit.page.evaluate(fill) in ("rgb({}, {}, {})".format(*colour(visit, v)) for v in COLOURS)
        visit.page.reload()  # the choice is kept
        assert visit.page.evaluate("document.documentElement.dataset.theme") == "dark"


def luminance(rgb: tuple[int, ...]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in rgb)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("variable", COLOURS)
def test_colours_can_be_read(browser, address, scheme, variable):
    with Visit(browser, f"{address}/book/glossary.html", color_scheme=scheme) as visit:
        pair = sorted((luminance(colour(visit, v)) for v in (variable, "--om-paper")), reverse=True)
    assert (pair[0] + 0.05) / (pair[1] + 0.05) >= 4.5


def test_light_colours_are_the_figures_own(browser, address):
    """A figure looks the same in a plain notebook and on the light page."""
    with Visit(browser, f"{address}/book/glossary.html", color_scheme="light") as visit:
        for colours, variable in figures.VARIABLES.items():
            assert colour(visit, variable) == tuple(bytes.fromhex(colours[1:]))


def search(visit: Visit, words: str) -> None:
    visit.page.keyboard.press("Control+k")
    visit.page.locator("#pst-search-dialog input").fill(words)
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_selector("#search-results li")


def test_search_finds_a_term(browser, address):
    with Visit(browser, f"{address}/book/start.html") as visit:
        search(visit, "residual")
        hits = visit.page.locator("#search-results li a").all_inner_texts()
        assert any("Glossary" in hit or "residual" in hit for hit in hits)
        assert visit.errors == []


def test_works_as_files(browser, built):
    """A page and the search, opened from the disk with no server."""
    with Visit(browser, (built / "book" / "start.html").as_uri()) as visit:
        search(visit, "unembedding")
        assert visit.page.locator("#search-results li a").count() >= 1
        assert visit.errors == []
        assert {urlsplit(url).scheme for url in visit.requests} == {"file"}


@pytest.mark.parametrize("page", ["book/start.html", "notebooks/04_dog_drift.html"])
def test_reads_without_scripts(browser, address, page):
    with Visit(browser, f"{address}/{page}", PHONE, java_script_enabled=False) as visit:
        assert visit.page.locator("h1").is_visible()
        assert visit.page.locator("main figure svg").first.is_visible()
        assert not visit.page.locator(".theme-switch-button").is_visible()
        assert visit.page.locator(".bd-links a").first.is_visible()


def test_keyboard_reaches_the_text_first(browser, address):
    with Visit(browser, f"{address}/notebooks/04_dog_drift.html") as visit:
        visit.page.keyboard.press("Tab")
        assert visit.page.evaluate("document.activeElement.textContent") == "Skip to main content"
        box = visit.page.evaluate("document.activeElement.getBoundingClientRect().top")
        assert box >= 0
        visit.page.keyboard.press("Enter")
        assert visit.page.url.endswith("#main-content")


@pytest.mark.parametrize(("button", "drawer"), [("All pages", ".bd-links"), ("On this page", ".page-toc")])
def test_drawers_on_a_phone(browser, address, button, drawer):
    with Visit(browser, f"{address}/notebooks/04_dog_drift.html", PHONE) as visit:
        assert not visit.page.locator(drawer).is_visible()
        visit.page.get_by_role("button", name=button).click()
        assert visit.page.locator(drawer).is_visible()
        assert visit.axe() == []
        visit.page.keyboard.press("Escape")
        assert not visit.page.locator(drawer).is_visible()
