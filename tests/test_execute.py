"""Chapters run to their end or say where they stopped, and what has not changed is not run again."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

import onematrix
from press import execute, warm

MANIFEST = {"name": "gpt2-rehearsal", "title": "none", "sha256": "0"}


@pytest.fixture
def book(tmp_path, monkeypatch):
    """An empty book; call it with cells by id to write the chapter `01_tiny`."""
    for name in ("notebooks", "onematrix", "tests/printed/gpt2"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "requirements.txt").write_text("nothing==1\n")
    monkeypatch.setattr(execute, "ROOT", tmp_path)
    monkeypatch.setattr(execute, "NOTEBOOKS", tmp_path / "notebooks")
    monkeypatch.setattr(execute, "PRINTED", tmp_path / "tests" / "printed")
    monkeypatch.setattr(execute, "BUILD", tmp_path / "_build")

    def write(**cells: str) -> str:
        parameters = new_code_cell('MODEL = "auto"', id="parameters", metadata={"tags": ["parameters"]})
        rest = [new_code_cell(source, id=name.replace("_", "-")) for name, source in cells.items()]
        spec = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        nbformat.write(new_notebook(cells=[parameters, *rest], metadata=spec), tmp_path / "notebooks" / "01_tiny.ipynb")
        return "01_tiny"

    return write


def run(chapter: str) -> execute.Run:
    with execute.environment(threads=1):
        return execute.execute(chapter, MANIFEST, execute.home(MANIFEST), lambda cell: None)


def left_over(folder) -> list[str]:
    return sorted(p.name for p in folder.rglob("*") if p.is_file())


def test_a_chapter_runs_with_the_model_it_is_given_and_is_measured(book):
    result = run(book(says="print(MODEL)"))
    cells = {c["id"]: c for c in nbformat.read(result.path, 4).cells}
    assert cells["says"]["outputs"][0]["text"] == "gpt2-rehearsal\n"
    assert result.peak_bytes > 10e6
    assert "press-measure" not in cells
    assert execute.current("01_tiny", MANIFEST) == result


@pytest.mark.parametrize("changed", ["onematrix/new.py", "requirements.txt", "tests/printed/gpt2/new.txt", "result"])
def test_a_chapter_is_stale_when_anything_it_depends_on_changes(book, tmp_path, changed):
    result = run(book(says="print(1)"))
    target = result.path if changed == "result" else tmp_path / changed
    target.write_text((target.read_text() if target.exists() else "") + " ")
    assert execute.current("01_tiny", MANIFEST) is None


@pytest.mark.parametrize("cells", [{"says": "print(2)"}, {"said": "print(1)"}, {"says": "print(1)", "more": "1"}, {}])
def test_a_chapter_is_stale_when_its_code_changes(book, cells):
    run(book(says="print(1)"))
    book(**cells)
    assert execute.current("01_tiny", MANIFEST) is None


def test_a_chapter_saved_with_its_outputs_is_not_run_again_for_them(book, tmp_path):
    path = tmp_path / "notebooks" / f"{book(says='print(1)')}.ipynb"
    result = run("01_tiny")
    notebook = nbformat.read(path, 4)
    cell = notebook.cells[-1]
    cell.execution_count, cell.outputs = 7, [new_output("stream", text="1\n")]
    nbformat.write(notebook, path)
    assert execute.current("01_tiny", MANIFEST) == result


def test_prose_edited_after_a_chapter_ran_is_what_a_reader_sees(book, tmp_path):
    """A chapter is not run again for its words; they are laid between the cells that ran."""
    path = tmp_path / "notebooks" / f"{book(first='print(MODEL)', second='print(2)')}.ipynb"
    result = run("01_tiny")
    notebook = nbformat.read(path, 4)
    for place, words in ((3, "last"), (2, "between"), (0, "title")):
        notebook.cells.insert(place, new_markdown_cell(words, id=words))
    nbformat.write(notebook, path)
    assert execute.current("01_tiny", MANIFEST) == result
    told = [(cell.id, "".join(o["text"] for o in cell.get("outputs", []))) for cell in execute.read(result).cells]
    model = ("first", "gpt2-rehearsal\n")
    assert [*told[:2], *told[3:]] == [
        ("title", ""),
        ("parameters", ""),
        model,
        ("between", ""),
        ("second", "2\n"),
        ("last", ""),
    ]
    assert "injected-parameters" in execute.read(result).cells[2].metadata["tags"]


def test_what_is_left_out_of_a_chapters_key_is_imported_by_no_chapter():
    plain = TransformerManager().transform_cell  # a cell may call pip
    cells = [cell for name in execute.chapters() for cell in execute.source(name).cells if cell.cell_type == "code"]
    imports = [
        node for cell in cells for node in ast.walk(ast.parse(plain(cell.source))) if isinstance(node, ast.ImportFrom)
    ]
    asked = {node.module.partition(".")[2] for node in imports if node.module.startswith("onematrix.")}
    names = [name.name for node in imports if node.module == "onematrix" for name in node.names]
    asked |= {onematrix.HOMES.get(name, name) for name in names}
    assert {"models", "many", "figures"} <= asked
    assert asked & set(execute.UNUSED) == set()
    load = "import sys, onematrix; onematrix.load('smollm2-135m'); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, check=True).stdout.split()
    assert "onematrix.models" in loaded
    assert {f"onematrix.{name}" for name in execute.UNUSED} & set(loaded) == set()


def test_a_chapter_is_stale_on_other_weights(book):
    run(book(says="print(1)"))
    assert execute.current("01_tiny", MANIFEST | {"sha256": "1"}) is None


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\nraise ValueError('no such row')", r"cell breaks, line 2 raise ValueError.*\n.*no such row"),
        ("import os\nos.kill(os.getpid(), 9)", r"cell breaks\n.*DeadKernelError"),
        ("import time\ntime.sleep(60)", r"cell breaks\n.*CellTimeoutError"),
    ],
    ids=["raises", "kills its kernel", "hangs"],
)
def test_a_failing_cell_is_named_and_leaves_no_half_result(book, tmp_path, monkeypatch, source, message):
    monkeypatch.setattr(execute, "CELL_SECONDS", 4)
    chapter = book(fine="print(1)", breaks=source, never="print(2)")
    with pytest.raises(execute.ChapterError, match=r"(?s)^01_tiny, " + message):
        run(chapter)
    assert left_over(tmp_path / "_build") == []


def test_a_failure_keeps_the_result_that_was_there(book, tmp_path):
    run(book(says="print(1)"))
    before = left_over(tmp_path / "_build")
    book(says="1 / 0")
    with pytest.raises(execute.ChapterError):
        run("01_tiny")
    assert left_over(tmp_path / "_build") == before


def test_a_chapter_sees_no_secret_and_no_network_setting(book, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    result = run(book(looks="import os\nprint('SECRET_TOKEN' in os.environ, os.environ['HF_HUB_OFFLINE'])"))
    assert nbformat.read(result.path, 4).cells[-1]["outputs"][0]["text"] == "False 1\n"
    assert os.environ["SECRET_TOKEN"] == "hunter2"


def test_the_directory_that_chapters_stand_in_outlives_the_run(book):
    """papermill may go back to it in a later run of the same process."""
    result = run(book(looks="import os\nprint(os.getcwd())"))
    desk = Path(nbformat.read(result.path, 4).cells[-1]["outputs"][0]["text"].strip())
    assert desk.is_dir()
    assert desk != Path.cwd()


def test_warm_kernels_are_forks_that_share_nothing_and_leave_nothing(book, monkeypatch):
    """Two chapters in turn from one warm parent: what the first changes, the second does not see."""
    source = (
        "import sys, onematrix\n"
        "print('torch' in sys.modules, hasattr(onematrix, 'changed'))\n"
        "onematrix.changed = True\n"
        "print(onematrix.load('smollm2-135m').W.shape[0])"
    )
    chapter = book(says=source)
    with execute.environment(threads=1), warm.kernels("smollm2-135m") as kernel:
        assert kernel in ("warm", "python3")
        for _ in range(2):
            result = execute.execute(chapter, MANIFEST, execute.home(MANIFEST), lambda cell: None, kernel)
            printed = nbformat.read(result.path, 4).cells[-1]["outputs"][0]["text"]
            assert printed == f"{kernel == 'warm'} False\n49152\n"
    assert [p for p in psutil.Process().children(recursive=True) if "press.warm" in " ".join(p.cmdline())] == []


def test_a_record_names_what_a_page_must_name(book):
    result = run(book(says="print(1)"))
    record = json.loads(result.path.with_suffix(".json").read_text())
    assert set(execute.TELLING) <= set(record["versions"])
    assert record["model"] == MANIFEST
