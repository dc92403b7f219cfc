"""The chapter that `make chapter` makes runs, and keeps what every chapter must keep."""

import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import papermill
import pytest
import yaml

from press import UsageError, chapter, compare, execute, prose

ROOT = Path(__file__).resolve().parent.parent
NAME = "98_my_question"


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A copy of what the command writes into."""
    for place in ("notebooks", "book"):
        shutil.copytree(ROOT / place, tmp_path / place)
    shutil.copy(ROOT / "_toc.yml", tmp_path)
    monkeypatch.setattr(execute, "ROOT", tmp_path)
    monkeypatch.setattr(execute, "NOTEBOOKS", tmp_path / "notebooks")
    return tmp_path


def test_it_runs_and_its_pins_are_its_own(tree, tmp_path):
    chapter.create(NAME, "My question")
    result = tmp_path / "result.ipynb"
    source = tree / "notebooks" / f"{NAME}.ipynb"
    papermill.execute_notebook(source, result, parameters={"MODEL": "smollm2-135m"}, progress_bar=False)
    executed = nbformat.read(result, as_version=4)
    assert compare.pin_faults({NAME: executed}) == []
    assert compare.cells(executed)["rows"].text == "49152 rows"
    assert 'id="figure-lengths"' in str(executed)


def test_it_stands_in_the_contents_behind_the_last_chapter(tree):
    before = yaml.safe_load((tree / "_toc.yml").read_text(encoding="utf-8"))
    written = chapter.create(NAME, "My question")
    assert {path.relative_to(tree).as_posix() for path in written} == {f"notebooks/{NAME}.ipynb", "_toc.yml"}
    after = yaml.safe_load((tree / "_toc.yml").read_text(encoding="utf-8"))
    before["parts"][0]["chapters"].append({"file": f"notebooks/{NAME}"})
    assert after == before


def test_it_keeps_the_conventions_of_every_chapter(tree):
    chapter.create(NAME, "My question")
    made = nbformat.read(tree / "notebooks" / f"{NAME}.ipynb", as_version=4)
    nbformat.validate(made)
    like = nbformat.read(ROOT / "notebooks" / f"{chapter.execute.chapters()[0]}.ipynb", as_version=4)
    assert made.metadata == like.metadata
    ids = [cell.id for cell in made.cells]
    assert len(set(ids)) == len(ids)
    assert {"title", "parameters", "bootstrap", "setup", "summary", "solution-3", "your-run"} <= set(ids)
    assert [str(t) for t in prose.typed(tree) if NAME in t.file] == []
    assert not [cell.id for cell in made.cells if "{" in cell.source and "}}" in cell.source]  # every brace was filled


@pytest.mark.parametrize(
    ("name", "title", "told"),
    [
        ("my_question", "My question", "expected NAME="),
        ("98_My_Question", "My question", "expected NAME="),
        ("../98_x", "My question", "expected NAME="),
        (NAME, " ", "expected NAME="),
        ("01_another", "Another", "chapter 01 is there already: 01_two_matrices"),
    ],
)
def test_what_cannot_be_used_is_said_and_nothing_is_written(tree, name, title, told):
    before = sorted(tree.rglob("*"))
    with pytest.raises(UsageError, match=told):
        chapter.create(name, title)
    assert sorted(tree.rglob("*")) == before


def test_the_command_says_so_in_one_line():
    done = subprocess.run([sys.executable, "-m", "press", "chapter", "", ""], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("expected NAME=13_my_question")
    assert len(done.stderr.splitlines()) == 1
