"""What tests share: a machine without models; and for the browser the built site, served on loopback, and Chromium."""

import functools
import http.server
import os
import shutil
import threading
from pathlib import Path

import pytest
import yaml

from press import execute, site

SITE = execute.BUILD / "html"
WITHOUT_NETWORK = (
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"),
    *("--disable-quic", "--no-sandbox", "--disable-gpu"),
)


def site_pages() -> list[str]:
    """Every page a reader can reach, from the table of contents."""
    toc = yaml.safe_load((execute.ROOT / "_toc.yml").read_text(encoding="utf-8"))
    files = [toc["root"], *(chapter["file"] for part in toc["parts"] for chapter in part["chapters"])]
    return [f"{name}.html" for name in files] + ["search.html"]


def needed(reason: str) -> None:
    """Skip a test that this machine cannot run, except in CI, where all of them must run."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def machine(tmp_path, monkeypatch) -> Path:
    """A machine with no models and no network; nothing outside `tmp_path` is read or written."""
    from huggingface_hub import constants

    from onematrix import models

    monkeypatch.setenv("ONEMATRIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(models, "OPEN", [])
    return tmp_path


@pytest.fixture(scope="session")
def built() -> Path:
    """The built site's directory."""
    if not (SITE / "index.html").is_file():
        needed("there is no site in _build/html: `make book` builds it")
    return SITE


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args) -> None:
        pass


@pytest.fixture(scope="session")
def address(built: Path):
    """The site's address on loopback."""
    handler = functools.partial(Silent, directory=built)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="session")
def browser():
    """Chromium, the system's own."""
    api = pytest.importorskip("playwright.sync_api")
    executable = next(filter(None, map(shutil.which, site.BROWSERS)), None)
    if executable is None:
        needed("there is no Chromium")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=WITHOUT_NETWORK)
        yield chromium
        chromium.close()
