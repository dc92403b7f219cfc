"""Build, show the site on loopback, and build again at each save, with kernels that stay warm in between.

Each build is a `press book` of its own, so that it runs the press as it stands now; only the warm parent
(`press.warm`) lives on, until `onematrix`, which it has imported, changes. A page that is open reloads itself.
"""

import functools
import http.server
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from press import execute, unchanged, warm

PAUSE = 0.3  # seconds between two looks at the files
RELOAD = b"""<script type="module">
let before;
setInterval(async () => {
  const now = await fetch("/built").then((answer) => answer.text()).catch(() => before);
  if (before && now !== before) location.reload();
  before = now;
}, 500);
</script></body>"""


def stamp(within: str = "") -> frozenset:
    """The site's sources, or those in one folder of them, by time and size: differs after every save."""
    found = []
    for path in unchanged.files(execute.ROOT):
        if path.is_relative_to(execute.ROOT / within):
            try:
                status = path.stat()
            except FileNotFoundError:  # between the list and the look: an editor puts a new file in place of the old
                continue
            found.append((path, status.st_mtime_ns, status.st_size))
    return frozenset(found)


def wait_for_a_save(before: frozenset) -> None:
    """Wait until the sources differ from `before` and have come to rest."""
    now = before
    while now == before or stamp() != now:
        now = stamp()
        time.sleep(PAUSE)


def watch(model: str, html: Path, port: int) -> None:
    """Build and show the book until interrupted.

    Args:
        model: a name of `onematrix.weights.SOURCES`.
        html: where the site lies.
        port: on loopback; 0 for any that is free.

    Raises:
        onematrix.ModelError: the model cannot be had.
        OSError: the port is taken.
    """
    execute.prepare(model)
    around = dict(os.environ)
    command = [sys.executable, "-m", "press", "book", "--model", model]
    with serving(html, port) as address:
        while True:
            package = stamp("onematrix")
            print("Opening the model once for all builds ...", flush=True)
            with execute.environment(execute.cores()), warm.kernels(model) as kernel:
                kept = {warm.KEPT: os.environ["JUPYTER_PATH"]} if kernel == "warm" else {}
                while stamp("onematrix") == package:
                    seen = stamp()
                    build(command, around | kept)
                    print(f"\n{address}   Save a file to build again; Ctrl-C ends.", flush=True)
                    wait_for_a_save(seen)


def build(command: list[str], settings: dict[str, str]) -> None:
    """Run one build to its end; interrupted, wait until it has cleared away what it had begun."""
    with subprocess.Popen(command, cwd=execute.ROOT, env=settings, start_new_session=True) as process:
        try:
            process.wait()
        except KeyboardInterrupt:  # which reached this process alone
            process.terminate()
            process.wait()
            raise


@contextmanager
def serving(html: Path, port: int) -> Iterator[str]:
    """The site on loopback, its pages with the lines that reload them; gives the address."""
    handler = functools.partial(Reloading, directory=html)
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class Reloading(http.server.SimpleHTTPRequestHandler):
    """Serves files, adds the lines that reload to each page, and says at `/built` which build the site is."""

    def do_GET(self) -> None:
        page = Path(self.translate_path(self.path))
        if self.path == "/built":
            index = Path(self.directory) / "index.html"
            self.answer(f"{index.stat().st_mtime_ns if index.is_file() else ''}".encode(), "text/plain")
        elif page.suffix == ".html" and page.is_file():
            self.answer(page.read_bytes().replace(b"</body>", RELOAD, 1), "text/html; charset=utf-8")
        else:
            super().do_GET()

    def answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_) -> None:
        """A line for each file would hide what the builds say."""
