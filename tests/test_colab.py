"""A chapter runs from nothing but its notebook, where libraries are installed and the book is not, as on Colab."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from press import execute, site

ADDRESS = "https://book.invalid/someone/book"


@pytest.fixture(scope="session")
def clone(tmp_path_factory) -> Path:
    """A clone of this repository, which git takes in place of its address."""
    clone = tmp_path_factory.mktemp("address") / "book"
    subprocess.run(["git", "clone", "-q", execute.ROOT, clone], check=True)
    return clone


@pytest.fixture(scope="session")
def python(tmp_path_factory) -> Path:
    """An interpreter that sees the libraries of this environment and not the book.

    A path that a .pth file adds is searched for packages, but the .pth files in it are not read: the
    book's own, which makes it importable here, is one of them.
    """
    place = tmp_path_factory.mktemp("colab")
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    (found,) = place.glob("lib/python*/site-packages")
    (found / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    return place / "bin" / "python"


@pytest.fixture
def folder(tmp_path, python, clone, monkeypatch) -> Path:
    """An empty folder, and a kernel of the interpreter without the book."""
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.file://{clone}.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", ADDRESS)
    subprocess.run([python, "-m", "pip", "uninstall", "-q", "-y", "onematrix"], check=True, capture_output=True)
    spec = tmp_path / "jupyter" / "kernels" / "colab"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(
        f'{{"argv": ["{python}", "-m", "ipykernel_launcher", "-f", "{{connection_file}}"],'
        '"display_name": "colab", "language": "python"}'
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    empty = tmp_path / "empty"
    empty.mkdir()
    return empty


def alone(chapter: str, tmp_path: Path) -> nbformat.NotebookNode:
    """The chapter's notebook by itself, with the address set and our own model named."""
    root = tmp_path / "book"
    (root / "notebooks").mkdir(parents=True)
    (root / "_config.yml").write_bytes((execute.ROOT / "_config.yml").read_bytes())
    (root / "notebooks" / f"{chapter}.ipynb").write_bytes((execute.NOTEBOOKS / f"{chapter}.ipynb").read_bytes())
    site.set_address(ADDRESS, root)
    notebook = nbformat.read(root / "notebooks" / f"{chapter}.ipynb", as_version=4)
    (parameters,) = [cell for cell in notebook.cells if cell.id == "parameters"]
    parameters.source = 'MODEL = "smollm2-135m"'
    return notebook


def run(notebook: nbformat.NotebookNode, folder: Path) -> dict[str, str]:
    """Execute it in that folder; what each cell printed, by id."""
    NotebookClient(notebook, kernel_name="colab", timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    return {
        cell.id: "".join(output.get("text", "") for output in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    }


def test_the_set_up_cells_install_the_book_and_open_the_model(folder, tmp_path):
    """One chapter after the other in one kernel: they install the book with the same words, so once is enough."""
    notebooks = [alone(chapter, tmp_path / chapter) for chapter in execute.chapters()]
    installs, set_ups = ([cell for n in notebooks for cell in n.cells if cell.id == i] for i in ("bootstrap", "setup"))
    assert len(set_ups) == len(installs) == len(notebooks)
    assert len({cell.source for cell in installs}) == 1
    first = notebooks[0]
    first.cells = [*(cell for cell in first.cells if cell.id == "parameters"), installs[0], *set_ups]
    run(first, folder)
    for chapter, cell in zip(execute.chapters(), set_ups, strict=True):
        said = "".join(output.get("text", "") for output in cell.outputs)
        assert "SmolLM2-135M-Instruct: V = 49152" in said, chapter
    assert os.listdir(folder) == []


def test_a_whole_chapter_runs_from_its_notebook_alone(folder, tmp_path):
    printed = run(alone("02_lookup_and_unembedding", tmp_path), folder)
    assert "W[i]" in printed["axes"]


def test_without_an_address_the_set_up_cell_says_what_to_do(folder):
    notebook = nbformat.read(execute.NOTEBOOKS / "01_two_matrices.ipynb", as_version=4)
    notebook.cells = [cell for cell in notebook.cells if cell.id in ("parameters", "bootstrap")]
    with pytest.raises(Exception, match="make book"):
        run(notebook, folder)
