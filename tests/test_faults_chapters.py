"""Chapters that go wrong in real kernels: each is named with its cell and line, the others' results and the site stay.

All of them are one book, built once by the command that authors use.
"""

import json
import os

import nbformat
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from small_models import gpt2_network, tokenizer

from onematrix import weights
from press import __main__ as press
from press import execute

LOOP = "while True:\n    "
CHAPTERS = {  # cells by id; what the message says of the chapter, or nothing where it runs to its end
    "fine": ({"says": "print(MODEL)"}, ""),
    "raises": (
        {"says": "print(1)", "looks": "x = 1\nraise ValueError('no such row')", "never": "print(2)"},
        ", cell looks, line 2 raise ValueError('no such row')\n  ValueError: no such row\n",
    ),
    "hangs": ({"waits": "import time\ntime.sleep(600)"}, ", cell waits\n  CellTimeoutError: it did not end within 6 s"),
    "prints": (
        {"loud": LOOP + "print('x' * 1000)"},
        "\n  it printed more than 1 MB and was stopped (",  # at which line, a busy machine may not get to say
    ),
    "prints_on": (
        {"deaf": LOOP + "try:\n        while True: print('x' * 1000)\n    except KeyboardInterrupt:\n        pass"},
        ", cell deaf\n  it printed more than 1 MB and was stopped (CellTimeoutError)",
    ),
    "fills": (
        {"takes": "import numpy\nkept = []\n" + LOOP + "kept.append(numpy.empty(50_000_000))"},
        ", cell takes, line 4     kept.append(numpy.empty(50_000_000))\n  MemoryError: Unable to allocate",
    ),
    "fills_torch": (
        {"takes": "import torch\nkept = torch.zeros(3_000_000_000)"},
        ", cell takes, line 2 kept = torch.zeros(3_000_000_000)\n  RuntimeError: ",
    ),
    "dies": (
        {"ends": "import os\nos.kill(os.getpid(), 9)"},
        ", cell ends\n  DeadKernelError: its kernel ended in the middle: killed, out of memory, or told to exit",
    ),
    "exits": ({"ends": "import os\nos._exit(0)"}, ", cell ends\n  DeadKernelError"),
    "mutes": (
        {"says": "import builtins\nbuiltins.print = lambda *_, **__: None", "more": "print(1)"},
        "\n  it has replaced print or sys.stdout, so that nothing it says can be trusted",
    ),
    "allows": ({"fails": "1 / 0"}, ""),  # tagged so that the kernel goes on; see below
    "nan": (
        {"pins": "from onematrix import pin\npin('c', float('nan'))"},
        ", cell pins, line 2 pin('c', float('nan'))\n  ValueError: pin 'c' is nan: only finite values are pinned",
    ),
    "infinite": (
        {"pins": "from onematrix import pin\npin('c', -1e999)"},
        ", cell pins, line 2 pin('c', -1e999)\n",
    ),
    "leaves": (
        {"starts": "import subprocess\nprint(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)"},
        "",
    ),
    "leaves_and_dies": (
        {
            "starts": "import os, subprocess\npid = subprocess.Popen(['sleep', '601']).pid",
            "ends": "os.kill(os.getpid(), 9)",
        },
        ", cell ends\n  DeadKernelError",
    ),
    "changes": (
        {
            "all": "import os, sys, torch\ntorch.set_default_dtype(torch.float16)\nos.environ['CHANGED'] = '1'\n"
            "import onematrix\nonematrix.load = None\nopen('left', 'w').close()\nos.chdir('/')\nsys.path.clear()"
        },
        "",
    ),
    "sees": (
        {
            "nothing": "import os, torch, onematrix\nprint(torch.get_default_dtype(), 'CHANGED' in os.environ, "
            "os.getcwd() == '/', onematrix.load(MODEL).name)"
        },
        "",
    ),
}
BROKEN = {  # whole files, and what is said of them
    "not_json": ("{", ": it is not JSON (Expecting property name"),
    "empty": ("", ": it is not JSON (Expecting value"),
    "list": ("[]", ": it is JSON, but no notebook"),
    "deep": ('{"cells": ' + "[" * 100_000, ": it is not JSON"),
    "no_cells": ('{"nbformat": 4}', ": it is JSON, but no notebook"),
}


def notebook(cells: dict[str, str]) -> nbformat.NotebookNode:
    parameters = new_code_cell('MODEL = "auto"', id="parameters", metadata={"tags": ["parameters"]})
    code = [new_code_cell(source, id=name) for name, source in cells.items()]
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return new_notebook(cells=[new_markdown_cell("# A title", id="title"), parameters, *code], metadata=spec)


def broken_notebooks() -> dict[str, tuple[str, str]]:
    """Files that are notebooks but for one thing."""
    found = dict(BROKEN)

    def add(name: str, told: str, change) -> None:
        content = notebook({"one": "print(1)", "two": "print(2)"})
        change(content)
        found[name] = json.dumps(content), told

    add("no_id", ": cell 3 has no id", lambda n: n.cells[2].pop("id"))
    add("same_id", ": cells 3 and 4 both have the id one", lambda n: n.cells[3].update(id="one"))
    add("no_parameters", ': no cell tagged "parameters"', lambda n: n.cells.pop(1))
    add("more_parameters", ": cells parameters, one tagged", lambda n: n.cells[2].metadata.update(tags=["parameters"]))
    add("other_kind", ": it is not a valid notebook", lambda n: n.cells[2].update(cell_type="other"))
    add("old", ": it is written in notebook format 4.4, expected 4.5", lambda n: n.update(nbformat_minor=4))
    add("no_source", ": it is not a valid notebook", lambda n: n.cells[2].pop("source"))
    return found


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A book of its own, with a small model in the place of the rehearsal's, and a site that is there already."""
    root = tmp_path_factory.mktemp("book")
    for name in ("notebooks", "onematrix", "tests/printed/gpt2", "_build/html"):
        (root / name).mkdir(parents=True)
    (root / "requirements.txt").write_text("nothing==1\n")
    (root / "_build" / "html" / "index.html").write_text("the site that was there")

    def make(source, into) -> None:
        gpt2_network().save_pretrained(into)
        tokenizer().save_pretrained(into)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONEMATRIX_CACHE", str(root / "cache"))
        small = weights.Source("gpt2-rehearsal", "Small", "here", "seed 0", None, None, make, trained=False)
        patch.setitem(weights.SOURCES, "gpt2-rehearsal", small)
        weights.folder("gpt2-rehearsal")
        patch.setattr(execute, "ROOT", root)
        patch.setattr(execute, "NOTEBOOKS", root / "notebooks")
        patch.setattr(execute, "PRINTED", root / "tests" / "printed")
        patch.setattr(execute, "BUILD", root / "_build")
        patch.setattr(execute, "CELL_SECONDS", 6)
        patch.setattr(execute, "OUTPUT_BYTES", 1 << 20)
        patch.setattr(execute, "MEMORY_BYTES", 4 << 30)
        yield root


def write(root, number: int, name: str, content: str) -> str:
    chapter = f"{number:02d}_{name}"
    (root / "notebooks" / f"{chapter}.ipynb").write_text(content)
    return chapter


@pytest.fixture(scope="module")
def built(tree):
    """Chapter by name -> what the build said of it; and its executed notebook, where it has one."""
    names = {}
    for number, (name, (cells, _)) in enumerate(CHAPTERS.items(), start=1):
        content = notebook(cells)
        if name == "allows":
            content.cells[-1].metadata["tags"] = ["raises-exception"]
        names[name] = write(tree, number, name, json.dumps(content))
    for number, (name, (text, _)) in enumerate(broken_notebooks().items(), start=50):
        names[name] = write(tree, number, name, text)
    stored = notebook({"new": "print('fresh')", "skipped": "print('never')"})
    for cell in stored.cells[-2:]:
        cell.outputs = [new_output("stream", name="stdout", text="stale\n")]
    stored.cells[-1].metadata["tags"] = ["skip-execution"]
    names["stored"] = write(tree, 80, "stored", json.dumps(stored))
    before = {p.pid for p in psutil.process_iter()}
    with pytest.MonkeyPatch.context() as patch:
        said = []
        patch.setattr("builtins.print", lambda *words, **_: said.append(" ".join(map(str, words))))
        code = press.main(["book", "--model", "gpt2-rehearsal"])
    assert code == 1
    told = dict.fromkeys(names, "")
    for part in said[-1].strip().split("\n\n"):
        told[part[3:].partition(":")[0].partition(",")[0]] = part
    executed = {
        name: nbformat.read(path, 4)
        for name, chapter in names.items()
        if (path := execute.BUILD / "executed" / "gpt2-rehearsal" / f"{chapter}.ipynb").is_file()
    }
    return told, executed, before


def printed(notebook: nbformat.NotebookNode, cell_id: str) -> str:
    (cell,) = (cell for cell in notebook.cells if cell.id == cell_id)
    return "".join(output.get("text", "") for output in cell.outputs)


@pytest.mark.parametrize("name", [name for name, (_, told) in CHAPTERS.items() if told])
def test_a_chapter_that_goes_wrong_is_named_with_cell_line_and_what_to_do(built, name):
    told, executed, _ = built
    print(told[name])
    assert CHAPTERS[name][1] in told[name]
    assert f"Open notebooks/{told[name].partition(',')[0]}.ipynb and run it up to this cell." in told[name]
    assert "Traceback" not in told[name]
    assert name not in executed


@pytest.mark.parametrize("name", broken_notebooks())
def test_a_file_that_is_no_chapter_is_named_with_what_is_wrong(built, name):
    told, executed, _ = built
    print(told[name])
    assert broken_notebooks()[name][1] in told[name]
    assert "  Mend notebooks/" in told[name]
    assert name not in executed


def test_the_other_chapters_results_are_kept_and_current(built, tree):
    told, executed, _ = built
    manifest = weights.manifest(weights.cache() / "gpt2-rehearsal")
    assert told["fine"] == ""
    assert printed(executed["fine"], "says") == "gpt2-rehearsal\n"
    for name in ("fine", "leaves", "changes", "sees", "stored"):
        (chapter,) = (c for c in execute.chapters() if c[3:] == name)
        assert execute.current(chapter, manifest)


def test_nothing_half_written_is_left_and_the_site_that_was_there_stays(built, tree):
    _, executed, _ = built
    assert (tree / "_build" / "html" / "index.html").read_text() == "the site that was there"
    results = [p.stem for p in execute.home({"name": "gpt2-rehearsal"}).iterdir()]
    assert sorted(set(results)) == sorted(c for c in execute.chapters() if c[3:] in executed)
    assert not (tree / "_build" / "facts.json").exists()


def test_no_process_outlives_its_chapter(built):
    told, _, before = built
    assert told["leaves"] == ""
    started = (["sleep", "600"], ["sleep", "601"])  # by the two chapters that leave a process; others may sleep, too
    left = [p for p in psutil.process_iter(["cmdline"]) if p.pid not in before and p.info["cmdline"] in started]
    assert left == []


def test_what_a_chapter_changes_no_other_sees(built):
    _, executed, _ = built
    assert printed(executed["sees"], "nothing") == "torch.float32 False False gpt2-rehearsal\n"


def test_what_a_run_leaves_in_the_directory_of_chapters_the_next_does_not_find(built):
    assert [p.name for p in (execute.BUILD / "desk").iterdir()] == ["left"]
    with execute.environment(1):
        assert os.listdir() == []


def test_outputs_that_a_file_holds_are_never_shown(built):
    _, executed, _ = built
    assert printed(executed["stored"], "new") == "fresh\n"
    assert printed(executed["stored"], "skipped") == ""


def test_an_error_that_a_tag_allows_is_an_error(built):
    told, executed, _ = built
    assert ", cell fails, line 1 1 / 0\n  ZeroDivisionError: division by zero" in told["allows"]
    assert "allows" not in executed


def test_a_pin_that_is_used_twice_or_missing_stops_the_build(built, tree, capsys):
    for path in (tree / "notebooks").iterdir():
        path.unlink()
    pins = {"pins": "from onematrix import pin\npin('c_same', 1)"}
    write(tree, 1, "one", json.dumps(notebook(pins)))
    second = notebook(pins)
    second.cells.append(new_markdown_cell("It is {glue:text}`c_absent:.3f`.", id="cites"))
    write(tree, 2, "two", json.dumps(second))
    assert press.main(["book", "--model", "gpt2-rehearsal"]) == 1
    said = capsys.readouterr().err
    assert "01_one, cell pins and 02_two, cell pins: c_same is pinned twice" in said
    assert "02_two, cell cites: its prose cites c_absent, which no cell pins" in said
    assert (tree / "_build" / "html" / "index.html").read_text() == "the site that was there"
