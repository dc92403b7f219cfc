"""Building the book: the press beside jupyter-book's own execution and nbmake, each in a tree of its own."""

import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
import yaml

from bench import common
from bench.table import WEIGHTS_BYTES

CHAPTER = "04_dog_drift"  # the one that is edited
PAGE = "book/conventions.md"
CONFIG = """\
title: "One Matrix, Two Meanings"
only_build_toc_files: true
execute: {{execute_notebooks: {execute}, timeout: 600}}
parse: {{myst_enable_extensions: [amsmath, colon_fence, deflist, dollarmath, substitution]}}
bibtex_bibfiles: [book/references.bib]
"""

NOTE = f"""\
The press and its peers build the same commit on the same model. The peers have jupyter-book's default configuration and
the chapters as they are committed, with the model's name in the parameters cell; the press also writes its ledger and
pages of checks. The data of the live pieces, which depend on the weights and not on a chapter, are kept. The chapter
edited is {CHAPTER}, by one comment in its set-up cell; its prose, by a line in its first cell; the other page is
{PAGE}. Watched: from the save to the new site under `make watch`, whose kernels have the imports and the model."""


def measure(repeat: int | None) -> dict:
    with tempfile.TemporaryDirectory(prefix="bench-") as outside:  # nbmake passes over all that lies in a `_build`
        return compare(repeat or 2, common.tree(), common.WORK / "force", common.WORK / "cache", Path(outside))


def compare(repeat: int, tree: Path, force: Path, cache: Path, plain: Path) -> dict:
    print("The press's first build, which is not measured ...", flush=True)
    press(tree)
    print("The first build with jupyter-book's cache, which is not measured ...", flush=True)
    for place, execute in ((force, "force"), (cache, "cache"), (plain, "off")):
        peer(place, execute)
    jupyter_book(cache)
    edits = map(str, range(1000))
    stages: list[dict[str, float]] = []
    again: list[float] = []

    def clean() -> float:
        for path in (tree / "_build").iterdir():
            if path.name != "live":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        seconds, said = press(tree)
        stages.append(took(said))
        return seconds

    def tested() -> float:
        before = records(tree)
        press(tree)
        common.run([common.python(), "-m", "pytest", "-q", "tests/test_chapters.py"], cwd=tree, env=common.quiet())
        return sum(record["date"] != before[name]["date"] for name, record in records(tree).items())

    def edited(build, place: Path, kind: str) -> float:
        edit(place, kind, next(edits))
        return build(place)[0]

    ways = {
        "clean": clean,
        "jupyter-book, force": lambda: jupyter_book(force, clean=True)[0],
        "one chapter edited": lambda: edited(press, tree, "code"),
        "one chapter edited, watched": lambda: watched(tree, "code", next(edits)),
        "jupyter-book's cache, one chapter edited": lambda: edited(jupyter_book, cache, "code"),
        "nothing changed": lambda: press(tree)[0],
        "jupyter-book's cache, nothing changed": lambda: jupyter_book(cache)[0],
        "prose of a chapter edited": lambda: edited(press, tree, "prose"),
        "prose of a chapter edited, watched": lambda: watched(tree, "prose", next(edits)),
        "prose of another page edited": lambda: edited(press, tree, "page"),
        "nbmake": lambda: nbmake(plain),
    }
    found = common.in_turn(ways, repeat)
    again.append(tested())
    found["chapters only, clean"] = [stage["chapters"] for stage in stages]
    found["chapters that `make test` executes again"] = again
    peaks = {name: record["peak_bytes"] for name, record in records(tree).items()}
    found["a chapter's peak memory beyond the weights"] = [max(peaks.values()) - WEIGHTS_BYTES]
    return {"series": found, "stages": stages, "notes": [NOTE, largest(peaks)]}


def largest(peaks: dict[str, int]) -> str:
    return "Peak memory of each chapter: " + ", ".join(f"{n} {b / 1e6:,.0f} MB" for n, b in peaks.items()) + "."


# ------------------------------------------------------------------ the builders


def timed(command: list, place: Path) -> tuple[float, str]:
    start = time.perf_counter()
    said = common.run(command, cwd=place, env=common.quiet())
    return time.perf_counter() - start, said


def press(place: Path) -> tuple[float, str]:
    return timed([common.python(), "-m", "press", "book", "--model", common.MODEL], place)


def watched(place: Path, kind: str, mark: str) -> float:
    """Seconds from an author's save to the new site, where `press watch` runs; its start is not counted."""
    command = [common.python(), "-m", "press", "watch", "--model", common.MODEL, "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=place, env=common.quiet(), **pipes) as process:

        def built() -> None:
            while "Save a file" not in (line := process.stdout.readline()):
                if not line:
                    raise RuntimeError("the watch ended")

        try:
            built()
            start = time.perf_counter()
            edit(place, kind, mark)
            built()
            return time.perf_counter() - start
        finally:
            process.terminate()


def took(said: str) -> dict[str, float]:
    """The seconds of each stage, as the press tells them: `Took model 0.3 s, chapters 20.1 s, ...`."""
    line = next(line for line in said.splitlines() if line.startswith("Took "))
    return {
        name: float(seconds) for name, seconds in re.findall(r"([a-z][a-z ]*) ([\d.]+) s", line.removeprefix("Took "))
    }


def jupyter_book(place: Path, clean: bool = False) -> tuple[float, str]:
    """jupyter-book's own build; a chapter that fails is a failure, which jupyter-book only warns of."""
    if clean:
        shutil.rmtree(place / "_build", ignore_errors=True)
    main = "from jupyter_book.cli.main import main; main()"
    seconds, said = timed([common.python(), "-c", main, "build", "."], place)
    if failed := re.findall(r".*(?:CellExecutionError|Executing notebook failed).*", said):
        raise RuntimeError("\n".join(failed))
    return seconds, said


def nbmake(place: Path) -> float:
    return timed([common.python(), "-m", "pytest", "-q", "--nbmake", "--nbmake-timeout=600", "notebooks"], place)[0]


# ------------------------------------------------------------------ the trees


def chapters(place: Path) -> Iterator[Path]:
    yield from sorted((place / "notebooks").glob("[0-9][0-9]_*.ipynb"))


def peer(place: Path, execute: str) -> None:
    """Lay out a tree that jupyter-book builds by itself."""
    common.lay_out(place)
    (place / "_config.yml").write_text(CONFIG.format(execute=execute), encoding="utf-8")
    for path in chapters(place):
        notebook = nbformat.read(path, as_version=4)
        parameters = next(c for c in notebook.cells if "parameters" in c.metadata.get("tags", []))
        parameters.source = re.sub(r"^MODEL = .*", f'MODEL = "{common.MODEL}"', parameters.source, flags=re.M)
        nbformat.write(notebook, path)
    contents = yaml.safe_load((place / "_toc.yml").read_text(encoding="utf-8"))
    for entry in (page for part in contents["parts"] for page in part["chapters"]):
        if not list(place.glob(f"{entry['file']}.*")):  # one that the press writes
            (place / f"{entry['file']}.md").write_text("# A page that the press writes\n", encoding="utf-8")


def edit(place: Path, kind: str, mark: str) -> None:
    """Change a chapter's code, its prose, or another page."""
    if kind == "page":
        with (place / PAGE).open("a", encoding="utf-8") as page:
            page.write(f"\nEdit {mark}.\n")
        return
    path = place / "notebooks" / f"{CHAPTER}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    cell = next(c for c in notebook.cells if c.id == {"code": "setup", "prose": "title"}[kind])
    cell.source += f"\n# edit {mark}" if kind == "code" else f"\n\nAn edit, number {mark} of many."
    nbformat.write(notebook, path)


def records(place: Path) -> dict[str, dict]:
    """What the press noted of each executed chapter."""
    home = place / "_build" / "executed" / common.MODEL
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(home.glob("*.json"))}
