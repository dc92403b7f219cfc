"""Does it come out the same? Run the chapters several ways and report every printed figure that moves."""

import math
import re
import shutil
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import nbformat

from onematrix.pins import GLUE
from press import execute

FIGURE = re.compile(r"(?<![\w.])[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?(?![\w])")


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


def printed(notebook: Path) -> dict[str, list[str]]:
    """The lines each cell printed, by cell id."""
    cells = [c for c in nbformat.read(notebook, as_version=4).cells if c.cell_type == "code"]
    streams = {c.id: "".join(o.text for o in c.outputs if o.output_type == "stream") for c in cells}
    return {cell: text.splitlines() for cell, text in streams.items() if text}


def differences(chapter: str, way: str, first: dict[str, list[str]], then: dict[str, list[str]]) -> list[Moved]:
    """Every line of `then` that is not as in `first`."""
    moved = []
    for cell in sorted(first.keys() | then.keys()):
        before, after = first.get(cell, []), then.get(cell, [])
        for i in range(max(len(before), len(after))):
            a, b = (lines[i] if i < len(lines) else "(no line)" for lines in (before, after))
            if a != b:
                moved.append(Moved(chapter, cell, way, a, b))
    return moved


def edge(value: float, figure: str) -> float | None:
    """How far `value` is from the nearest point where it would print as another figure than `figure`.

    Returns:
        a distance in units of the last place, at most 0.5; None where the figure is not this value rounded.

    >>> edge(0.55049, "0.550")
    0.01
    """
    number = Decimal(figure.replace(",", ""))
    places = -number.as_tuple().exponent
    if places <= 0:
        return None
    offset = abs(Decimal(value) - number).scaleb(places)
    return round(float(Decimal("0.5") - offset), 3) if offset <= Decimal("0.5") else None


def close_calls(chapter: str, notebook: Path) -> list[Close]:
    """For each pinned float that its cell also prints: how near the value is to printing as another figure."""
    found = []
    for cell in nbformat.read(notebook, as_version=4).cells:
        if cell.cell_type != "code":
            continue
        figures = FIGURE.findall("".join(o.text for o in cell.outputs if o.output_type == "stream"))
        for output in cell.outputs:
            if GLUE not in output.get("data", {}):
                continue
            try:
                value = float(output.data[GLUE])
            except ValueError:
                continue
            edges = [(e, f) for f in figures if (e := edge(value, f)) is not None]
            if edges and math.isfinite(value):
                distance, figure = min(edges)
                found.append(Close(chapter, cell.id, output.metadata.scrapbook.name, value, figure, distance))
    return sorted(found, key=lambda c: c.distance)


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
    first: dict[str, dict[str, list[str]]] = {}
    calls: list[Close] = []
    for number, way in enumerate(WAYS):
        print(f"{way.name} ...", flush=True)
        into = base / str(number)
        execute.execute_fresh(manifest, names, into, way.side_by_side, way.threads, ONEMATRIX_DTYPE=way.precision)
        for name in names:
            lines = printed(into / f"{name}.ipynb")
            moved += differences(name, way.name, first.setdefault(name, lines), lines)
            if way.precision == "float64":
                calls += close_calls(name, into / f"{name}.ipynb")
    figures = sum(len(FIGURE.findall("\n".join(lines))) for cells in first.values() for lines in cells.values())
    shutil.rmtree(base)
    return len(WAYS), figures, moved, sorted(calls, key=lambda c: c.distance)


def report(runs: int, figures: int, moved: list[Moved], calls: list[Close]) -> str:
    """What `repeat` found, for a terminal."""
    lines = [f"{runs} runs, {figures} printed figures compared in each, {len(moved)} lines moved."]
    lines += [f"  {m.chapter}, cell {m.cell}, {m.way}\n    was {m.first}\n    now {m.then}" for m in moved]
    lines.append("Closest calls in float64 (distance to the rounding edge, in units of the last place):")
    lines += [
        f"  {c.distance:.3f}  {c.chapter}, cell {c.cell}: {c.pin} = {c.value!r} prints {c.printed}" for c in calls[:5]
    ]
    return "\n".join(lines)
