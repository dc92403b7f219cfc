"""Break figures and code on purpose: every break must be caught, and by the claim that it concerns.

Two kinds:

1. Figures. Each digit of each expected figure is changed, one at a time, by more than its tolerance. The comparison
   with the unchanged print must tell.
2. Code. A chapter is run on our own model with one thing wrong in `onematrix` or in its own source, up to the cells
   of the claims that must break. An assertion in one of these cells must fail, or the comparison with the record must
   name one of them.
"""

import argparse
import ast
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import nbformat
import papermill
import yaml
from nbformat import NotebookNode
from tqdm import tqdm

from onematrix import documents, expected
from onematrix.expected import Block, Figure, pieces
from press import compare, execute, warm

MODEL = "smollm2-135m"
LIST = Path(__file__).with_suffix(".yml")
REFUSALS = ("AssertionError", "ValueError")  # what a check raises; anything else is a mutant that does not run

# What a patch may use. It runs before the chapter's own imports, so that these get what it puts in place.
TOOLS = """\
import dataclasses

import torch

from onematrix import gradients, logit_lens, models, pins, rows
from onematrix.models import LanguageModel, States


def on_loading(change):
    read = models.read

    def broken(name):
        model = read(name)
        change(model)
        return model

    models.read = broken
    models.OPEN.clear()


def on_states(change):
    true = LanguageModel.states

    @torch.no_grad()
    def broken(model, prompt):
        states = true(model, prompt)
        return dataclasses.replace(states, **change(model, states))

    LanguageModel.states = broken


"""


# ---------------------------------------------------------------- figures


def change_figures() -> tuple[list[str], list[str]]:
    """Change every digit of every printed figure and every pin on record, one at a time.

    Returns:
        the names of the changes that the comparison tells, and of those it does not.
    """
    killed: list[str] = []
    survived: list[str] = []
    for model in expected.models():
        for path in sorted((expected.PRINTED / model).glob("*.txt")):
            for block in expected.blocks(model, path.stem):
                for name, line, changed in changes(block):
                    told = compare.line_differs(changed, line, block.slack)
                    (killed if told else survived).append(f"{model}, {name}")
            for name, value in expected.pins(model, path.stem).items():
                told = not documents.same(value, beyond(value))
                (killed if told else survived).append(f"{model}, {path.stem}, pin {name}: {value} -> {beyond(value)}")
    return killed, survived


def changes(block: Block) -> list[tuple[str, str, str]]:
    """Every change of one digit of a block that is more than its figure's tolerance: name, line, changed line."""
    found = []
    for number, line in enumerate(block.text.splitlines(), start=1):
        for digit in re.finditer(r"[0-9]", line):
            at = digit.start()
            for other in "0123456789".replace(digit[0], ""):
                changed = line[:at] + other + line[at + 1 :]
                if not tolerated(line, changed, block):
                    name = f"{block.chapter}, cell {block.cell}, line {number}: {line.strip()} -> {changed.strip()}"
                    found.append((name, line, changed))
    return found


def tolerated(line: str, changed: str, block: Block) -> bool:
    """Whether a change stays within what its figure may be off: such a one must not be told."""
    before, after = pieces(line), pieces(changed)
    for at, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            if isinstance(old, Figure) and isinstance(new, Figure):
                slack = compare.allowance(before[:at], block.slack)
                # The changed figure is the expected one here, so its own places decide.
                return abs(old.value - new.value) <= new.tolerance(slack)
            return False
    return True


def beyond(value: float | int | str) -> float | int | str:
    """A pin's value changed by a little more than is accepted."""
    if isinstance(value, str):
        return f"{value}."
    return value + 1 if isinstance(value, int) else value * (1 + 2 * documents.SAME) + 2e-9


# ---------------------------------------------------------------- code


@dataclass(frozen=True)
class Mutant:
    """One thing wrong in the code; press/mutants.yml explains the rest."""

    name: str
    chapter: str
    cells: tuple[str, ...]
    patch: str = ""
    swap: dict[str, str] | None = None


def mutants() -> list[Mutant]:
    """All of them, in the file's order."""
    entries = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    return [Mutant(**entry | {"cells": tuple(entry["cells"])}) for entry in entries]


@dataclass(frozen=True)
class Told:
    """What came of a mutant: whether one of its cells told, the line that says so or says why not, whether it ran."""

    killed: bool
    line: str
    runs: bool = True

    @property
    def verdict(self) -> str:
        return "killed" if self.killed else "SURVIVED" if self.runs else "DOES NOT RUN"


def run_with(mutant: Mutant | None, chapter: str, cells: tuple[str, ...], kernel: str) -> Told:
    """Run what these cells of a chapter need, with one thing wrong, and see which of them tells."""
    notebook = nbformat.read(execute.NOTEBOOKS / f"{chapter}.ipynb", as_version=4)
    notebook.cells = needed([cell for cell in notebook.cells if cell.cell_type == "code"], cells)
    if mutant and mutant.swap:
        change_source(notebook, mutant)
    if mutant and mutant.patch:
        at = next(i for i, cell in enumerate(notebook.cells) if cell.id == "setup")
        notebook.cells.insert(at, nbformat.v4.new_code_cell(TOOLS + mutant.patch, id="mutant"))
    with tempfile.TemporaryDirectory() as scratch:
        source, result = Path(scratch) / "source.ipynb", Path(scratch) / "result.ipynb"
        nbformat.write(notebook, source)
        try:
            papermill.execute_notebook(
                source, result, parameters={"MODEL": MODEL}, kernel_name=kernel, progress_bar=False
            )
        except papermill.PapermillExecutionError as error:
            stopped = nbformat.read(result, as_version=4)
            (cell,) = {c.id for c in stopped.cells for o in c.get("outputs", []) if o.output_type == "error"}
            refused = error.ename in REFUSALS
            line = f"{chapter}, cell {cell}: {error.ename} {error.evalue}".strip()
            return Told(cell in cells and refused, line, runs=refused)
        said = compare.cells(nbformat.read(result, as_version=4))
    found = [told for told in differences(chapter, said) if told.cell in cells]
    return Told(bool(found), str(found[0]).splitlines()[0] if found else "")


def needed(code: Sequence[NotebookNode], cells: tuple[str, ...]) -> list[NotebookNode]:
    """These cells and, of the cells before them, those that define what they use, directly or not.

    A name that a cell gives itself it does not take from another.
    """
    kept, wanted = [], set()
    for cell in reversed(code):
        if cell.id == "bootstrap":  # installs the package where there is none
            continue
        nodes = list(ast.walk(ast.parse(cell.source)))
        names = [node for node in nodes if isinstance(node, ast.Name)]
        given = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        given |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
        if cell.id in (*cells, "parameters", "setup") or given & wanted:
            kept.insert(0, cell)
            wanted = (wanted - given) | {node.id for node in names} - given
    return kept


def change_source(notebook: NotebookNode, mutant: Mutant) -> None:
    """Change the text that the mutant names; it must be there once."""
    old, new = mutant.swap["old"], mutant.swap["new"]
    found = [cell for cell in notebook.cells if old in cell.source]
    if len(found) != 1:
        raise ValueError(f"mutant {mutant.name!r}: its text is in {len(found)} cells of {mutant.chapter}")
    found[0].source = found[0].source.replace(old, new)


def differences(chapter: str, said: dict[str, compare.Cell]) -> list[compare.Difference]:
    """What a run that stopped early says differently from the record, in the cells that it reached."""
    blocks = [block for block in expected.blocks(MODEL, chapter) if block.cell in said]
    pins = {name for cell in said.values() for name, _ in cell.pins}
    record = {name: value for name, value in expected.pins(MODEL, chapter).items() if name in pins}
    found = [told for block in blocks for told in compare.outcome(block, said[block.cell]).differences]
    return found + compare.pins_differ(chapter, said, record) + compare.verdicts_differ(MODEL, chapter, said)


def break_code(broken: Sequence[Mutant]) -> dict[str, Told]:
    """Run every mutant, and before them each chapter as it is.

    Returns:
        for each mutant's name what came of it.

    Raises:
        ValueError: a chapter is not as its record even unbroken, so that no mutant could be judged.
    """
    manifest = execute.prepare(MODEL)
    cells: dict[str, tuple[str, ...]] = {}
    for mutant in broken:
        cells[mutant.chapter] = cells.get(mutant.chapter, ()) + mutant.cells
    jobs = [(f"{chapter} unbroken", (None, chapter, asked)) for chapter, asked in cells.items()]
    jobs += [(mutant.name, (mutant, mutant.chapter, mutant.cells)) for mutant in broken]
    side_by_side = execute.workers()
    with (
        execute.environment(max(1, execute.cores() // side_by_side)),
        warm.kernels(manifest["name"]) as kernel,
        ThreadPoolExecutor(side_by_side) as pool,
    ):
        running = [(name, pool.submit(run_with, *job, kernel)) for name, job in jobs]
        told = {name: done.result() for name, done in tqdm(running, unit="mutant", disable=None)}
    for chapter in cells:
        if (unbroken := told.pop(f"{chapter} unbroken")).line:
            raise ValueError(f"{chapter} is not as its record before anything is broken:\n{unbroken.line}")
    return told


# ---------------------------------------------------------------- what lies around the chapters


def stale_chapter_is_run_again() -> bool:
    """Whether an executed chapter is taken for current while its source is as it was, and no longer once it changes."""
    manifest = execute.prepare(MODEL)
    run = execute.execute_all(manifest, execute.chapters()[:1])[0]
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        for part in ("notebooks", "onematrix", "tests/printed"):
            shutil.copytree(execute.ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(execute.ROOT / "requirements.txt", root)
        home = root / "_build" / "executed" / MODEL
        home.mkdir(parents=True)
        for path in (run.path, run.path.with_suffix(".json")):
            shutil.copy(path, home)
        places = {"ROOT": root, "BUILD": root / "_build", "NOTEBOOKS": root / "notebooks"}
        with mock.patch.multiple(execute, PRINTED=root / "tests" / "printed", **places):
            before = execute.current(run.chapter, manifest)
            source = root / "notebooks" / f"{run.chapter}.ipynb"
            edited = source.read_text(encoding="utf-8").replace("load(MODEL)", "load(MODEL) ")
            source.write_text(edited, encoding="utf-8")
            return before is not None and execute.current(run.chapter, manifest) is None


def pin_of_another_page_is_told() -> bool:
    """Whether prose that cites a value which another chapter pins is refused."""
    pin = {
        "output_type": "display_data",
        "data": {compare.GLUE: "9"},
        "metadata": {"scrapbook": {"name": "c1_rank"}},
    }
    owner = {"cells": [{"cell_type": "code", "id": "a", "outputs": [pin]}]}
    other = {"cells": [{"cell_type": "markdown", "id": "b", "source": "rank {glue:text}`c1_rank`"}]}
    return bool(compare.pin_faults({"01_a": owner, "02_b": other}))


AROUND = {
    "a stale executed chapter": stale_chapter_is_run_again,
    "a pinned value of another page": pin_of_another_page_is_told,
}


def main(argv: list[str] | None = None) -> int:
    """Run the mutants and print by name what came of each; 1 where one was not killed."""
    parser = argparse.ArgumentParser(prog="press.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("chapters", nargs="*", metavar="NN_name", help="break these alone; everything if none is named")
    chapters = parser.parse_args(argv).chapters
    if unknown := set(chapters) - set(execute.chapters()):
        parser.error(f"there is no chapter {', '.join(sorted(unknown))}; choose from {', '.join(execute.chapters())}")
    survived = []
    if not chapters:
        print("Figures ...", flush=True)
        killed, survived = change_figures()
        print(f"{len(killed)} changes of one digit or one pin, {len(survived)} survived.")
        print("".join(f"  SURVIVED  {name}\n" for name in survived), end="")
    print("Code ...", flush=True)
    told = break_code([mutant for mutant in mutants() if not chapters or mutant.chapter in chapters])
    told |= {} if chapters else {name: Told(check(), "") for name, check in AROUND.items()}
    lost = sum(not t.killed for t in told.values())
    print(f"{len(told)} things made wrong, {lost} not killed.")
    for name, t in told.items():
        print(f"  {t.verdict:<12}  {name}" + (f"\n{'':16}{t.line}" if t.line else ""))
    return 1 if survived or lost else 0


if __name__ == "__main__":
    sys.exit(main())
