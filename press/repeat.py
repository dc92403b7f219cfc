"""Does it come out the same? Run the chapters several ways and report every printed figure that moves."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path

import nbformat

from onematrix.expected import Figure, figures
from press import compare, execute
from press.compare import Cell
from press.pages import PAPERMILL_TAG


@dataclass(frozen=True)
class Way:
    """One way to run all chapters."""

    name: str
    side_by_side: int
    threads: int
    precision: str = "float32"


WAYS = (
    Way("one at a time, 1 thread", 1, 1),
    Way("one at a time, 2 threads", 1, 2),
    Way("two at a time, 1 thread each", 2, 1),
    Way("two at a time, again", 2, 1),
    Way("float64", 2, 1, "float64"),
)


@dataclass(frozen=True)
class Moved:
    """A printed line that is not the same in every run."""

    chapter: str
    cell: str
    way: str
    first: str
    then: str


@dataclass(frozen=True)
class Close:
    """How near an unrounded value lies to the edge where its printed figure would tip.

    Attributes:
        distance: in units of the figure's last printed place; 0.5 is as far as can be, 0 is on the edge.
    """

    chapter: str
    cell: str
    pin: str
    value: float
    printed: str
    distance: float


def said(notebook: Path) -> dict[str, Cell]:
    """What each cell of an executed chapter printed and pinned, by cell id.

    Not papermill's own cell: it has another id in every run.
    """
    executed = nbformat.read(notebook, as_version=4)
    executed.cells = [cell for cell in executed.cells if PAPERMILL_TAG not in cell.metadata.get("tags", [])]
    return compare.cells(executed)


def differences(chapter: str, way: str, first: Mapping[str, Cell], then: Mapping[str, Cell]) -> list[Moved]:
    """Every printed line of `then` that is not as in `first`."""
    moved = []
    for cell, before in first.items():
        pairs = zip_longest(before.text.splitlines(), then[cell].text.splitlines(), fillvalue="(no line)")
        moved += [Moved(chapter, cell, way, a, b) for a, b in pairs if a != b]
    return moved


def edge(value: float, figure: Figure) -> float | None:
    """How far `value` is from the nearest point where it would print as another figure than `figure`.

    Returns:
        a distance in units of the last place, at most 0.5; None where the figure is not this value rounded.

    >>> round(edge(0.55049, Figure("0.550")), 3)
    0.01
    """
    distance = Decimal("0.5") - abs(Decimal(value) - figure.value) / figure.unit
    return float(distance) if distance >= 0 else None


def close_calls(chapter: str, cells: Mapping[str, Cell]) -> list[Close]:
    """For each pinned float that its cell also prints: how near the value is to printing as another figure."""
    found = []
    for name, cell in cells.items():
        decimals = [figure for figure in figures(cell.text) if not figure.whole]
        for pin, value in cell.pins:
            if isinstance(value, float):
                edges = [(e, str(f)) for f in decimals if (e := edge(value, f)) is not None]
                found += [Close(chapter, name, pin, value, figure, e) for e, figure in sorted(edges)[:1]]
    return found


def repeat(manifest: dict) -> tuple[int, int, list[Moved], list[Close]]:
    """Run every chapter each way.

    Returns:
        the number of runs, of printed figures compared in each, what moved against the first way, and the
        close calls of the float64 run, nearest first.
    """
    base = execute.BUILD / "repeat"
    shutil.rmtree(base, ignore_errors=True)
    names = execute.chapters()
    moved: list[Moved] = []
    first: dict[str, dict[str, Cell]] = {}
    calls: list[Close] = []
    for number, way in enumerate(WAYS):
        print(f"{way.name} ...", flush=True)
        into = base / str(number)
        execute.execute_fresh(manifest, names, into, way.side_by_side, way.threads, ONEMATRIX_DTYPE=way.precision)
        for name in names:
            cells = said(into / f"{name}.ipynb")
            moved += differences(name, way.name, first.setdefault(name, cells), cells)
            if way.precision == "float64":
                calls += close_calls(name, cells)
    compared = sum(len(figures(cell.text)) for cells in first.values() for cell in cells.values())
    shutil.rmtree(base)
    return len(WAYS), compared, moved, sorted(calls, key=lambda call: call.distance)


def unsteady(moved: list[Moved]) -> list[Moved]:
    """What moved at the book's own precision. Other digits in float64 are expected, and only reported."""
    own = {way.name for way in WAYS if way.precision == "float32"}
    return [m for m in moved if m.way in own]


def report(runs: int, compared: int, moved: list[Moved], calls: list[Close]) -> str:
    """What `repeat` found, for a terminal."""
    lines = [
        f"{runs} runs, {compared} printed figures compared in each: {len(unsteady(moved))} lines moved in fp32, "
        f"{len(moved) - len(unsteady(moved))} are other in float64."
    ]
    lines += [f"  {m.chapter}, cell {m.cell}, {m.way}\n    was {m.first}\n    now {m.then}" for m in moved]
    lines.append("Closest calls in float64 (distance to the rounding edge, in units of the last place):")
    lines += [
        f"  {c.distance:.3f}  {c.chapter}, cell {c.cell}: {c.pin} = {c.value!r} prints {c.printed}" for c in calls[:5]
    ]
    return "\n".join(lines)
