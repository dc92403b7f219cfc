"""A build with nothing to do does nothing, and anything the site is made of counts as something to do."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import needed

from onematrix import weights
from press import __main__ as press
from press import execute, live, unchanged

ROOT = Path(__file__).resolve().parent.parent
MODEL = "smollm2-135m"


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A small tree whose site was just made: one chapter, one page, a theme, live data."""
    for place in unchanged.SOURCES:
        path = tmp_path / place
        if path.suffix:
            path.write_text("a", encoding="utf-8")
        else:
            path.mkdir(parents=True)
            (path / "file.md").write_text("a", encoding="utf-8")
    (tmp_path / "notebooks" / "01_one.ipynb").write_text("a", encoding="utf-8")
    manifest = {"name": "a-model", "sha256": "0" * 64}
    places = {"ROOT": tmp_path, "BUILD": tmp_path / "_build", "NOTEBOOKS": tmp_path / "notebooks"}
    for name, path in (places | {"PRINTED": tmp_path / "tests" / "printed"}).items():
        monkeypatch.setattr(execute, name, path)
    (tmp_path / "tests" / "printed" / "gpt2").mkdir()
    executed = execute.home(manifest)
    executed.mkdir(parents=True)
    (executed / "01_one.json").write_text("{}", encoding="utf-8")
    chapter_key = execute.key("01_one", manifest)
    monkeypatch.setattr(execute, "current", lambda name, m: execute.key(name, m) == chapter_key or None)
    live.kept(manifest).mkdir(parents=True)
    (live.kept(manifest) / live.KEY).write_text(live.key(manifest), encoding="utf-8")
    html = tmp_path / "_build" / "html"
    html.mkdir()
    (html / "index.html").write_text("site", encoding="utf-8")
    unchanged.note(html, unchanged.key(manifest), "made")
    return tmp_path, html, manifest


def test_nothing_changed(scratch):
    _, html, manifest = scratch
    assert unchanged.said(html, manifest) == "made"


@pytest.mark.parametrize("place", unchanged.SOURCES)
def test_an_edit_is_seen(scratch, place):
    root, html, manifest = scratch
    path = root / place
    (path if path.is_file() else path / "file.md").write_text("b", encoding="utf-8")
    assert unchanged.said(html, manifest) is None


@pytest.mark.parametrize("place", ["book/new.md", "press/theme/new.css", "notebooks/02_two.ipynb"])
def test_a_new_file_is_seen(scratch, place):
    root, html, manifest = scratch
    (root / place).parent.mkdir(exist_ok=True)
    (root / place).write_text("a", encoding="utf-8")
    assert unchanged.said(html, manifest) is None


def test_a_chapter_that_must_run_is_seen(scratch):
    root, html, manifest = scratch
    (root / "notebooks" / "01_one.ipynb").write_text("b", encoding="utf-8")
    assert unchanged.key(manifest) is None
    assert unchanged.said(html, manifest) is None


def test_what_is_edited_while_the_site_is_made_counts_as_changed(scratch):
    root, html, manifest = scratch
    before = unchanged.key(manifest)
    unchanged.forget(html)
    (root / "book" / "file.md").write_text("edited meanwhile", encoding="utf-8")
    unchanged.note(html, before, "made")
    assert unchanged.said(html, manifest) is None


def test_another_model_or_a_lost_site_is_seen(scratch):
    _, html, manifest = scratch
    assert unchanged.said(html, manifest | {"sha256": "1" * 64}) is None
    (html / "index.html").unlink()
    assert unchanged.said(html, manifest) is None


def test_a_build_that_fails_half_way_is_not_current(scratch):
    _, html, manifest = scratch
    unchanged.forget(html)
    assert unchanged.said(html, manifest) is None


def test_lost_live_data_are_seen(scratch):
    _, html, manifest = scratch
    shutil.rmtree(live.kept(manifest))
    assert unchanged.said(html, manifest) is None


def test_a_press_in_a_tree_of_its_own_has_its_site_there(tmp_path, monkeypatch):
    """A test that ran one in its process took the real build's note away."""
    monkeypatch.setattr(execute, "BUILD", tmp_path)
    assert press.html() == tmp_path / "html"


def test_make_book_after_make_book_touches_nothing():
    """The real command on the real tree."""
    html = ROOT / "_build" / "html"
    folder = weights.cache() / MODEL
    if not folder.is_dir() or unchanged.said(html, weights.manifest(folder)) is None:
        needed("the site is not there or not current: `make book MODEL=smollm2-135m` builds it")
    before = json.dumps({str(p): os.stat(p).st_mtime_ns for p in sorted(html.rglob("*"))})
    done = subprocess.run(
        [sys.executable, "-m", "press", "book", "--model", MODEL], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Nothing changed since the last build.\nMeasured on ")
    assert before == json.dumps({str(p): os.stat(p).st_mtime_ns for p in sorted(html.rglob("*"))})
