"""The list of claims, and the ledger: what each came to on the model that was run.

`gather(runs, notebooks)` makes the one ledger (`facts.json`) that the pages, the downloads and `make reproduce` read.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml
from nbformat import NotebookNode

from onematrix import expected
from onematrix.expected import Block, pieces
from press import compare
from press.execute import Run

CLAIMS = Path(__file__).resolve().parent.parent / "book" / "claims.yml"
NEEDED = {"id", "origin", "chapter", "said"}
ALLOWED = NEEDED | {"cell", "training", "correction"}

SAME, OTHER_WORDS, NOTHING = "none", "other words", "nothing printed"  # in place of a difference


@dataclass(frozen=True)
class Claim:
    """One thing that a document says and a cell checks.

    Attributes:
        id: of a printed block its cell's id, of a statement `document.name`.
        origin: the document.
        chapter: `NN_name`.
        cell: id of the cell that checks it.
        said: what the document says, in our words.
        needs_training: whether random weights must fail it.
        correction: what the book would say instead.
        block: what the document prints there; None for a statement.
    """

    id: str
    origin: str
    chapter: str
    cell: str
    said: str
    needs_training: bool
    correction: str
    block: Block | None

    @property
    def printed(self) -> bool:
        """Whether the document prints figures for it; otherwise the verdict that the cell computes decides."""
        return self.block is not None and bool(self.block.text)

    @property
    def test(self) -> str:
        """The test that fails when what our own model gives for it changes."""
        if self.printed:
            return f"tests/test_chapters.py::test_cell[{self.chapter}-{self.cell}]"
        return f"tests/test_chapters.py::test_verdict[{self.id}]"


@cache
def claims() -> tuple[Claim, ...]:
    """All claims, in the book's order.

    Raises:
        ValueError: an entry lacks something or has too much; the message names it.
    """
    found = []
    for entry in yaml.safe_load(CLAIMS.read_text(encoding="utf-8")):
        name = entry.get("id", entry)
        if not NEEDED <= entry.keys() <= ALLOWED:
            wrong = ", ".join(sorted((NEEDED - entry.keys()) | (entry.keys() - ALLOWED)))
            raise ValueError(f"{CLAIMS.name}, claim {name}: missing or unknown: {wrong}")
        block = {b.cell: b for b in expected.blocks("gpt2", entry["chapter"])}.get(name)
        if (block is None) != ("cell" in entry) or (block is None) != ("training" in entry):
            raise ValueError(f"{CLAIMS.name}, claim {name}: a statement has a cell and training, a block has neither")
        found.append(
            Claim(
                id=name,
                origin=entry["origin"],
                chapter=entry["chapter"],
                cell=entry.get("cell", name),
                said=entry["said"],
                needs_training=block.needs_training if block else entry["training"],
                correction=entry.get("correction", ""),
                block=block,
            )
        )
    return tuple(found)


def gather(runs: Sequence[Run], notebooks: Mapping[str, NotebookNode]) -> dict:
    """The ledger of these runs, all on one model, and of the notebooks that they left.

    Returns:
        model: the manifest of the weights;
        chapters: by name, what it took and was made with;
        claims: for each its text, lines (document, measured, difference), verdict, cell and test;
        pins: by name, chapter, cell and value.
    """
    said = {chapter: compare.cells(notebook) for chapter, notebook in notebooks.items()}
    return {
        "model": runs[0].model,
        "chapters": {
            run.chapter: {
                "seconds": run.seconds,
                "peak_bytes": run.peak_bytes,
                "date": run.date,
                "versions": run.versions,
            }
            for run in runs
        },
        "claims": [row(claim, said.get(claim.chapter, {}).get(claim.cell)) for claim in claims()],
        "pins": {
            name: {"chapter": chapter, "cell": cell, "value": value}
            for chapter, cells in said.items()
            for cell, content in cells.items()
            for name, value in content.pins
            if compare.ours(name)
        },
    }


def unlisted(notebooks: Mapping[str, Mapping]) -> list[str]:
    """What executed chapters give a verdict on without it being in the list, where no page would show it."""
    known = {claim.id for claim in claims()}
    return [
        f"{chapter}, cell {cell}: claim {name} is not in book/{CLAIMS.name}"
        for chapter, notebook in notebooks.items()
        for cell, content in compare.cells(notebook).items()
        for name in content.claims.keys() - known
    ]


def row(claim: Claim, cell: compare.Cell | None) -> dict:
    """The ledger's entry of one claim."""
    if claim.printed:
        result = compare.outcome(claim.block, cell)
        holds, reading, lines = result.holds, result.reading, side_by_side(claim.block.text, result.text)
    else:
        absent = (False, "there is no such cell" if cell is None else "the cell gives no verdict")
        holds, measured = cell.claims.get(claim.id, absent) if cell else absent
        reading, lines = "", [{"document": claim.said, "measured": measured, "difference": ""}]
    return {
        "id": claim.id,
        "origin": claim.origin,
        "kind": "figures" if claim.printed else "statement",
        "chapter": claim.chapter,
        "cell": claim.cell,
        "said": claim.said,
        "correction": claim.correction,
        "needs_training": claim.needs_training,
        "reading": reading,
        "holds": holds,
        "lines": lines,
        "test": claim.test,
    }


def side_by_side(document: str, measured: str) -> list[dict]:
    """The document's lines, each with what was measured in its place."""
    wanted, got = document.splitlines(), measured.splitlines()
    got += [""] * (len(wanted) - len(got))
    return [
        {"document": want, "measured": have, "difference": difference(want, have)}
        for want, have in zip(wanted, got, strict=False)
    ]


def difference(document: str, measured: str) -> str:
    """Measured minus the document's, figure by figure, where the two lines have the same words.

    A number after "block" names a line, it is no finding.

    >>> difference('" was"   0.143', '" was"   0.144')
    '+0.001'
    """
    wanted, got = pieces(document), pieces(measured)
    if [p for p in wanted if isinstance(p, str)] != [p for p in got if isinstance(p, str)] or len(wanted) != len(got):
        return OTHER_WORDS if measured else NOTHING
    pairs = zip(["", *wanted], wanted, got, strict=False)
    found = [have.value - want.value for before, want, have in pairs if before != "block" and not isinstance(want, str)]
    if not any(found):
        return SAME
    return ", ".join(f"{d:+f}" if d else "0" for d in found)


def table(facts: dict) -> str:
    """The ledger for a terminal: claim, document, measured, reading that matched, verdict; then the counts."""
    rows = [("claim", "document", "measured", "verdict", "reading")]
    for claim in facts["claims"]:
        for at, line in enumerate(claim["lines"]):
            first = at == 0
            rows.append(
                (
                    claim["id"] if first else "",
                    textwrap.shorten(line["document"], 60) if claim["kind"] == "statement" else line["document"],
                    textwrap.shorten(line["measured"], 60) if claim["kind"] == "statement" else line["measured"],
                    verdict(claim) if first else "",
                    claim["reading"] if first and claim["holds"] else "",
                )
            )
    widths = [max(len(cells[column]) for cells in rows) for column in range(4)]
    lines = [
        "  ".join([*(c.ljust(w) for c, w in zip(cells, widths, strict=False)), cells[4]]).rstrip() for cells in rows
    ]
    lines.insert(1, "-" * max(len(line) for line in lines))
    return "\n".join([*lines, "", *counts(facts)])


def verdict(claim: dict) -> str:
    return "holds" if claim["holds"] else "FAILS"


def counts(facts: dict) -> list[str]:
    """How many claims hold, and what random weights do to them."""
    rows = facts["claims"]
    held = [c["id"] for c in rows if c["holds"]]
    lines = [f"{len(rows)} claims on {facts['model']['title']}: {len(held)} hold, {len(rows) - len(held)} fail."]
    if not facts["model"]["trained"]:
        free = [c["id"] for c in rows if not c["needs_training"]]
        fixed = [c["id"] for c in rows if c["needs_training"]]
        broken, lucky = [c for c in free if c not in held], [c for c in fixed if c in held]
        lines.append(f"{len(free)} need no trained weights: {len(free) - len(broken)} hold." + named(broken, "fail"))
        lines.append(f"{len(fixed)} need trained weights: {len(fixed) - len(lucky)} fail." + named(lucky, "hold"))
    return lines


def named(ids: list[str], what: str) -> str:
    return f" These {what} and should not: {', '.join(ids)}." if ids else ""


def as_it_must(facts: dict) -> bool:
    """Whether every claim holds; in a rehearsal, whether exactly those hold that need no trained weights."""
    trained = facts["model"]["trained"]
    return all(claim["holds"] == (trained or not claim["needs_training"]) for claim in facts["claims"])
