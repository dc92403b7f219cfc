"""`make watch`: a save makes the site again on kernels that stay warm, an open page follows, nothing outlives it."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from test_faults_chapters import notebook
from test_faults_machine import MODEL, tree  # noqa: F401 (a fixture)

from press import __main__ as press
from press import execute, watch

WAITING = "Save a file to build again"
WHOSE = "import os\nfrom onematrix import pin\nprint('kernel of', os.getppid(), 'cells', os.environ['OMP_NUM_THREADS'])"
NO_LIVE = "\n\ndef build(manifest, into):\n    into.mkdir(parents=True)  # minutes of computing\n"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kernels stay warm on Linux only")


class Watch:
    """A watch of a small book in a process group of its own."""

    def __init__(self, place: Path):
        self.place = place
        with (place / "press" / "live.py").open("a", encoding="utf-8") as live:
            live.write(NO_LIVE)
        (place / "scratch").mkdir()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "press", "watch", "--model", MODEL, "--port", "0"],
            cwd=place,
            env=os.environ | {"ONEMATRIX_CACHE": str(place / "cache é"), "TMPDIR": str(place / "scratch")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.address = re.search(r"http\S+", self.said())[0]

    def said(self) -> str:
        """What it says until it waits for the next save."""
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if WAITING in line:
                return "".join(lines)
        pytest.fail(f"the watch ended:\n{''.join(lines)}")

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.address + path) as answer:
            return answer.read().decode()

    def write(self, source: str) -> None:
        """Save chapter 1 with this code."""
        file = self.place / "notebooks" / "01_one.ipynb"
        file.write_text(json.dumps(notebook({"says": source})), encoding="utf-8")

    def kernel(self) -> psutil.Process:
        """A kernel at work: the warm parent's child."""
        for _ in range(300):
            for process in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if process.parent().cmdline() == process.cmdline() and "press.warm" in process.cmdline():
                        return process
            time.sleep(0.1)
        pytest.fail("no kernel was started")

    def end(self) -> list[psutil.Process]:
        """Ctrl-C, as a terminal sends it; returns what is still there afterwards."""
        family = [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]
        os.killpg(self.process.pid, signal.SIGINT)
        self.process.communicate(timeout=20)
        return psutil.wait_procs(family, timeout=10)[1]


@pytest.fixture(scope="module")
def watched(tree) -> Iterator[Watch]:  # noqa: F811
    found = Watch(tree)
    yield found
    found.process.terminate()
    found.process.communicate(timeout=20)


def whose(page: str) -> str:
    """The process that the chapter's kernel was a fork of."""
    return page.partition("kernel of ")[2].partition(" ")[0]


def test_prose_that_is_saved_is_on_the_page_and_no_chapter_runs(watched):
    before = watched.get("built")
    page = watched.place / "book" / "start.md"
    page.write_text("# A small book\n\nOther words.\n", encoding="utf-8")
    said = watched.said()
    assert "Other words." in watched.get("book/start.html")
    assert watched.get("built") != before
    assert "01_one  " not in said


def test_a_chapter_that_is_saved_runs_on_the_kernels_that_are_there(watched):
    parents = []
    for number in range(2):
        watched.write(f"{WHOSE}\n# {number}")
        said = watched.said()
        assert "01_one  " in said
        assert "02_two  " not in said
        page = watched.get("notebooks/01_one.html")
        assert f"cells {execute.cores()}" in page  # one chapter alone has all cores
        parents.append(whose(page))
    assert parents[0] == parents[1]
    assert psutil.Process(int(parents[0])).cmdline()[1:3] == ["-m", "press.warm"]


def test_a_mistake_is_told_and_the_page_stays_until_it_is_mended(watched):
    watched.write(f"{WHOSE}\nraise ValueError('alas')")
    said = watched.said()
    assert "01_one, cell says, line 4" in said
    assert "ValueError: alas" in said
    assert "kernel of" in watched.get("notebooks/01_one.html")
    watched.write("print('mended')")
    watched.said()
    assert "mended" in watched.get("notebooks/01_one.html")


def test_a_change_of_onematrix_starts_other_kernels(watched):
    watched.write(WHOSE)
    watched.said()
    before = whose(watched.get("notebooks/01_one.html"))
    with (watched.place / "onematrix" / "rows.py").open("a", encoding="utf-8") as module:
        module.write("\n# another version\n")
    said = watched.said()
    assert "Opening the model once" in said
    assert whose(watched.get("notebooks/01_one.html")) != before
    assert not psutil.pid_exists(int(before))


def test_an_open_page_follows_by_itself(watched, browser):
    page = browser.new_page()
    page.goto(f"{watched.address}book/start.html")
    page.wait_for_timeout(1500)
    words = "Words of a third kind."
    (watched.place / "book" / "start.md").write_text(f"# A small book\n\n{words}\n", encoding="utf-8")
    watched.said()
    page.get_by_text(words).wait_for(timeout=10_000)
    page.close()


def test_a_build_that_is_killed_leaves_no_kernel_and_the_watch_goes_on(watched):
    watched.write("import time\ntime.sleep(600)")
    kernel = watched.kernel()
    builds = [p for p in psutil.Process(watched.process.pid).children() if "book" in p.cmdline()]
    assert len(builds) == 1
    builds[0].kill()
    assert psutil.wait_procs([kernel], timeout=10)[1] == []
    watched.said()


def test_ctrl_c_in_the_middle_of_a_chapter_ends_all_of_it(watched):
    watched.write("import time\ntime.sleep(601)")
    kernel = watched.kernel()
    assert watched.end() == []
    assert not kernel.is_running()
    assert len(list((watched.place / "scratch").glob("press-*"))) <= 1  # of the build that was killed
    with pytest.raises(OSError, match="refused"):
        watched.get("built")


def test_a_save_is_seen_once_it_has_come_to_rest(tmp_path, monkeypatch):
    seen = iter(map(frozenset, "abcccd"))
    monkeypatch.setattr(watch, "stamp", lambda: next(seen))
    monkeypatch.setattr(watch, "PAUSE", 0)
    watch.wait_for_a_save(frozenset("a"))
    assert next(seen) == frozenset("d")


def test_a_port_that_is_taken_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(execute, "BUILD", tmp_path)
    (tmp_path / "html").mkdir()
    (tmp_path / "html" / "index.html").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert press.main(["serve", "--port", str(port)]) == 2
    assert capsys.readouterr().err == f"Port {port} is taken. Name another: PORT={port + 1}\n"
