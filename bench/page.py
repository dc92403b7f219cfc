"""Opening a chapter on a slow phone: the book's page beside the one that jupyter-book makes of the same chapter."""

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import build, common

NETWORK = {"offline": False, "latency": 150, "downloadThroughput": 1.6e6 / 8, "uploadThroughput": 750e3 / 8}
SLOWER = 4  # the processor, by this factor
QUIET_MS = 2000  # interactive is when nothing long runs, and nothing follows for this long
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
SCREEN = {"viewport": {"width": 360, "height": 740}, "device_scale_factor": 3, "is_mobile": True, "has_touch": True}

WATCH = """
window.long = [];
new PerformanceObserver(list => { for (const e of list.getEntries()) long.push(e.startTime + e.duration); })
  .observe({type: "longtask", buffered: true});
"""
TIMES = """() => {
  const paint = performance.getEntriesByName("first-contentful-paint")[0].startTime;
  const ready = performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd;
  return {paint, interactive: Math.max(paint, ready, ...window.long), now: performance.now()};
}"""
NOTE = f"""\
Chromium, a phone's screen, the processor slowed {SLOWER} times, 1.6 Mbit/s with 150 ms a request, an empty cache,
chapter {build.CHAPTER}. Interactive: the last task of over 50 ms has ended and the document is read, and none follows
for two seconds. Other hosts are not found: jupyter-book's page asks for mathematics and icons there, which would only
add to its time. Bytes: what the server sent, uncompressed for both."""


def measure(repeat: int | None) -> dict:
    ours, theirs = common.WORK / "tree", common.WORK / "force"
    if not chapter(ours).is_file():
        build.press(ours)
    if not chapter(theirs).is_file():
        build.peer(theirs, "force")
        build.jupyter_book(theirs)
    with browser() as chromium, served(ours) as here, served(theirs) as there:
        seen = [(open_page(chromium, here), open_page(chromium, there)) for _ in range(repeat or 7)]
    names = ("first contentful paint", "interactive", "bytes of the page")
    found = {name: [mine[i] for mine, _ in seen] for i, name in enumerate(names)}
    found |= {f"jupyter-book's page, {name}": [other[i] for _, other in seen] for i, name in enumerate(names)}
    return {"series": found, "notes": [NOTE]}


def chapter(place: Path) -> Path:
    return place / "_build" / "html" / "notebooks" / f"{build.CHAPTER}.html"


class Counting(http.server.SimpleHTTPRequestHandler):
    """Serves files and counts their bytes."""

    def copyfile(self, source, outputfile) -> None:
        data = source.read()
        self.server.sent += len(data)
        outputfile.write(data)

    def log_message(self, *args) -> None:
        pass


@contextmanager
def served(place: Path) -> Iterator[http.server.ThreadingHTTPServer]:
    """The tree's site on loopback."""
    handler = functools.partial(Counting, directory=place / "_build" / "html")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.sent = 0
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@contextmanager
def browser():
    from playwright.sync_api import sync_playwright

    from press import site

    executable = next(filter(None, map(shutil.which, site.BROWSERS)), None)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield chromium
        chromium.close()


def open_page(chromium, server) -> tuple[float, float, float]:
    """Seconds to the first contentful paint, seconds to interactive, bytes sent."""
    sent = server.sent
    context = chromium.new_context(**SCREEN)
    context.add_init_script(WATCH)
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.emulateNetworkConditions", NETWORK)
    session.send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
    page.goto(
        f"http://127.0.0.1:{server.server_port}/notebooks/{build.CHAPTER}.html", wait_until="load", timeout=180_000
    )
    times = page.evaluate(TIMES)
    while times["now"] < times["interactive"] + QUIET_MS:
        page.wait_for_timeout(500)
        times = page.evaluate(TIMES)
    context.close()
    return times["paint"] / 1e3, times["interactive"] / 1e3, server.sent - sent
