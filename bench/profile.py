"""Where the seconds of a clean build go: each chapter in a process of its own, and as the press runs them.

`python -m bench.profile` runs the chapters the first way and prints seconds by kind as JSON.
"""

import json
import tempfile
import time
from collections import Counter
from pathlib import Path

import nbformat

from bench import build, common

KINDS = ("interpreter and kernel", "imports and weights", "computing", "drawing")
IMPORTS = "import torch, transformers, matplotlib, onematrix.models; from transformers import AutoModelForCausalLM"

NOTE = """\
Before: papermill, one fresh kernel a chapter, one after the other. After: the press's clean build, whose chapters run
side by side, so that their seconds add up to more than the clock's. Cells are sorted by what they do: the set-up cell
imports and opens the model; one that shows a figure draws (and may compute what it draws); the others compute."""


def measure(repeat: int | None) -> dict:
    tree = common.tree()
    interpreter = timed("pass")
    imports = timed(IMPORTS) - interpreter
    said = common.run([common.python(), "-m", "bench.profile"], cwd=tree, env=common.quiet())
    before = json.loads(said.splitlines()[-1])
    build.press(tree)  # so that all there is is made
    for path in (tree / "_build" / "executed" / common.MODEL).glob("*"):
        path.unlink()
    wall, told = build.press(tree)
    stages = build.took(told)
    after = kinds((tree / "_build" / "executed" / common.MODEL).glob("*.ipynb"))
    number = sum(1 for _ in build.chapters(tree))
    body = [[kind, f"{before.get(kind, 0):.1f}", f"{after.get(kind, 0):.1f}"] for kind in KINDS]
    body += [["all chapters, by the clock", f"{before['clock']:.1f}", f"{stages['chapters']:.1f}"]]
    body += [[name, "", f"{seconds:.1f}"] for name, seconds in stages.items() if name != "chapters"]
    body += [["staging, ledger, start of the press", "", f"{wall - sum(stages.values()):.1f}"]]
    body += [["the whole build, by the clock", "", f"{wall:.1f}"]]
    one = f"One fresh process: interpreter {interpreter:.2f} s, imports {imports:.2f} s; {number} chapters."
    return {
        "series": {},
        "notes": [NOTE, one],
        "tables": {"Seconds of a clean build": {"head": ["", "before", "after"], "body": body}},
    }


def timed(code: str) -> float:
    start = time.perf_counter()
    common.run([common.python(), "-c", code], cwd=common.tree(), env=common.quiet())
    return time.perf_counter() - start


def kinds(executed) -> dict[str, float]:
    """Seconds of executed chapters by kind, as papermill noted them cell by cell."""
    spent: Counter[str] = Counter()
    for path in executed:
        notebook = nbformat.read(path, as_version=4)
        cells = [c for c in notebook.cells if c.cell_type == "code" and "papermill" in c.metadata]
        for cell in cells:
            spent[kind(cell)] += cell.metadata.papermill.duration or 0
        inside = sum(cell.metadata.papermill.duration or 0 for cell in cells)
        spent["interpreter and kernel"] += notebook.metadata.papermill.duration - inside
    return dict(spent)


def kind(cell) -> str:
    if cell.id == "setup":
        return "imports and weights"
    return "drawing" if "figures.show(" in cell.source else "computing"


def plainly() -> dict[str, float]:
    """Every chapter with papermill, one after the other."""
    import papermill
    from tqdm import tqdm

    with tempfile.TemporaryDirectory() as scratch:
        start = time.perf_counter()
        for path in tqdm(list(build.chapters(Path.cwd())), unit="chapter"):
            papermill.execute_notebook(
                path, Path(scratch) / path.name, {"MODEL": common.MODEL}, kernel_name="python3", progress_bar=False
            )
        clock = time.perf_counter() - start
        return kinds(Path(scratch).glob("*.ipynb")) | {"clock": clock}


if __name__ == "__main__":
    print(json.dumps(plainly()))
