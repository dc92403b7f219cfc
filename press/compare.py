"""Compare what executed chapters print and pin with what is on record in `tests/printed/MODEL/`.

Words must be the same, figures the same by the places that are printed (`onematrix.expected.Figure`). On GPT-2 the
record is the documents' blocks, which no command rewrites; on our own model `record` writes it.
"""

import ast
import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onematrix import documents, expected
from onematrix.expected import Block, Figure, pieces
from onematrix.pins import GLUE, RECORD

RECORDED = ("smollm2-135m",)  # whose files `record` writes; the documents' own are written by hand
GLUED = re.compile(r"\{glue:[a-z]*\}`([a-z][a-z0-9_]*)")


@dataclass(frozen=True)
class Cell:
    """What one executed cell said.

    Attributes:
        prints: whether its source prints, so that its output must be on record.
        text: what went to stdout.
        readings: convention -> what the cell would have printed under it.
        pins: name and value, in order.
        claims: claim's id -> (verdict, measurement in one line).
    """

    prints: bool
    text: str
    readings: dict[str, str] = field(default_factory=dict)
    pins: tuple[tuple[str, float | int | str], ...] = ()
    claims: dict[str, tuple[bool, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    """One place where the print is not what is on record."""

    chapter: str
    cell: str
    line: int  # of the cell's output, from 1; 0 where it concerns the whole cell
    expected: str
    printed: str
    why: str

    def __str__(self) -> str:
        place = f"{self.chapter}, cell {self.cell}" + (f", line {self.line}" if self.line else "")
        return f"{place}: {self.why}\n  expected {self.expected}\n  printed  {self.printed}"


@dataclass(frozen=True)
class Outcome:
    """How one block came out.

    Attributes:
        reading: the convention whose text agrees; where none does, the block's own.
        text: what was printed under that reading.
        differences: none where the block holds.
    """

    block: Block
    reading: str
    text: str
    differences: tuple[Difference, ...]

    @property
    def holds(self) -> bool:
        return not self.differences


def cells(notebook: Mapping) -> dict[str, Cell]:
    """What every code cell of an executed notebook said, by cell id."""
    found = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        text, pins, readings, claims = [], [], {}, {}
        for output in cell["outputs"]:
            data = output.get("data", {})
            record = data.get(RECORD, {})
            if output["output_type"] == "stream" and output["name"] == "stdout":
                text.append(joined(output["text"]))
            elif GLUE in data:
                pins.append((output["metadata"]["scrapbook"]["name"], value(joined(data[GLUE]))))
            elif "reading" in record:
                readings[record["reading"]] = record["text"]
            elif "claim" in record:
                claims[record["claim"]] = (record["holds"], record["measured"])
        found[cell["id"]] = Cell(bool(text), "".join(text).strip("\n"), readings, tuple(pins), claims)
    return found


def joined(text: str | list[str]) -> str:
    """nbformat keeps text as one string or as lines."""
    return text if isinstance(text, str) else "".join(text)


def value(shown: str) -> float | int | str:
    """A pin's value from the `repr` that its cell emitted."""
    return float(shown) if shown in ("inf", "-inf", "nan") else ast.literal_eval(shown)


def line_differs(expected_line: str, printed_line: str, slack: Mapping[str, tuple[int, str]]) -> str:
    """Why a printed line is not the expected one; empty where it is.

    Args:
        slack: words -> (units in the last place, reason) for a figure that follows these words.
    """
    wanted, got = pieces(expected_line), pieces(printed_line)
    if len(wanted) != len(got):
        return f"{len(got)} words and figures where {len(wanted)} are expected"
    for at, (want, have) in enumerate(zip(wanted, got, strict=True)):
        if isinstance(want, str) or isinstance(have, str):
            if want != have:
                return f"{have} in place of {want}"
            continue
        if want.form != have.form:
            return f"{have} is not written like {want}"
        if abs(want.value - have.value) > want.tolerance(allowance(wanted[:at], slack)):
            return f"{have} in place of {want}"
    return ""


def allowance(before: Sequence[str | Figure], slack: Mapping[str, tuple[int, str]]) -> int:
    """The slack, in units of the last place, of a figure before which these pieces stand; its words must come last."""
    line = " " + " ".join(map(str, before))
    return max((units for words, (units, _) in slack.items() if line.endswith(f" {words}")), default=0)


def text_differs(block: Block, printed: str) -> list[Difference]:
    """Every line of a printed text that is not as the block has it."""
    wanted, got = block.text.splitlines(), printed.splitlines()
    found = []
    for at in range(max(len(wanted), len(got))):
        want, have = (lines[at] if at < len(lines) else "(no line)" for lines in (wanted, got))
        if why := line_differs(want, have, block.slack):
            found.append(Difference(block.chapter, block.cell, at + 1, want, have, why))
    return found


def outcome(block: Block, cell: Cell | None) -> Outcome:
    """Compare a block with what its cell printed, then with the other readings that the block lists."""
    if cell is None:
        missing = Difference(block.chapter, block.cell, 0, block.text, "", "there is no such cell")
        return Outcome(block, block.reading, "", (missing,))
    if not block.text:
        return verdict(block, cell)
    texts = {block.reading: cell.text} | {name: cell.readings[name] for name in block.also if name in cell.readings}
    found = {name: text_differs(block, text) for name, text in texts.items()}
    best = next((name for name, differences in found.items() if not differences), block.reading)
    return Outcome(block, best, texts[best], tuple(found[best]))


def verdict(block: Block, cell: Cell) -> Outcome:
    """A block without a printed text holds where its cell says so."""
    holds, measured = cell.claims.get(block.cell, (False, "the cell gives no verdict"))
    failed = () if holds else (Difference(block.chapter, block.cell, 0, "the claim holds", measured, "it does not"),)
    return Outcome(block, block.reading, measured, failed)


def outcomes(model: str, chapter: str, notebook: Mapping) -> list[Outcome]:
    """How every block on record for a chapter came out on a model."""
    said = cells(notebook)
    return [outcome(block, said.get(block.cell)) for block in expected.blocks(model, chapter)]


def check(model: str, chapter: str, notebook: Mapping) -> list[Difference]:
    """Everything in which an executed chapter is not what our own model's record says: prints, cells, pins."""
    said = cells(notebook)
    blocks = expected.blocks(model, chapter)
    found = [difference for block in blocks for difference in outcome(block, said.get(block.cell)).differences]
    for name in said.keys() - {block.cell for block in blocks}:
        if said[name].prints:
            found.append(
                Difference(chapter, name, 0, "(nothing on record)", said[name].text, "new print: run `make record`")
            )
    return found + pins_differ(chapter, said, expected.pins(model, chapter)) + verdicts_differ(model, chapter, said)


def pins_differ(chapter: str, said: Mapping[str, Cell], record: Mapping) -> list[Difference]:
    """Every pin whose unrounded value is not the recorded one."""
    now = {name: (cell, value) for cell, content in said.items() for name, value in content.pins if ours(name)}
    found = []
    for name in sorted(now.keys() | record.keys()):
        cell, have = now.get(name, ("?", "(not pinned)"))
        want = record.get(name, "(not on record)")
        if not documents.same(have, want):
            found.append(Difference(chapter, cell, 0, f"{name} = {want}", f"{name} = {have}", "a pin differs"))
    return found


def verdicts_differ(model: str, chapter: str, said: Mapping[str, Cell]) -> list[Difference]:
    """Every claim of a chapter whose verdict is not the recorded one."""
    record = expected.verdicts(model)
    return [
        Difference(
            chapter, cell, 0, f"{name}: {record.get(name, 'not on record')}", f"{name}: {holds}", "a verdict differs"
        )
        for cell, content in said.items()
        for name, (holds, _) in content.claims.items()
        if record.get(name) != holds
    ]


def ours(name: str) -> bool:
    """Whether a pin is measured, not a document's figure."""
    return not name.startswith("doc_")


def pin_faults(notebooks: Mapping[str, Mapping]) -> list[str]:
    """What is wrong with the pins of all executed chapters together: pinned twice, not finite, missing in prose."""
    found = []
    places: dict[str, list[str]] = defaultdict(list)
    for chapter, notebook in notebooks.items():
        here = set()
        for cell, content in cells(notebook).items():
            for name, v in content.pins:
                if isinstance(v, float) and not math.isfinite(v):
                    found.append(f"{chapter}, cell {cell}: pin {name} is {v}")
                if name in here or ours(name):  # a document's figure may be quoted in two chapters
                    places[name].append(f"{chapter}, cell {cell}")
                here.add(name)
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                missing = [name for name in GLUED.findall(joined(cell["source"])) if name not in here]
                found += [
                    f"{chapter}, cell {cell['id']}: its prose cites {name}, which no cell pins" for name in missing
                ]
    found += [f"{' and '.join(at)}: {name} is pinned twice" for name, at in places.items() if len(at) > 1]
    return found


def record(model: str, notebooks: Mapping[str, Mapping]) -> list[tuple[Path, bool]]:
    """Write what all chapters print, pin and decide as the model's record. What a person wrote in a block's head stays.

    Returns:
        the files that changed, and whether each is new.

    Raises:
        ValueError: no command writes this model's files, the documents' own above all.
    """
    if model not in RECORDED:
        raise ValueError(f"tests/printed/{model} is not written by a command; {', '.join(RECORDED)} is")
    files: dict[str, str] = {}
    verdicts = {}
    for chapter, notebook in notebooks.items():
        said = cells(notebook)
        heads = {block.cell: block for block in expected.blocks(model, chapter)}
        printed = [block_text(name, cell, heads.get(name)) for name, cell in said.items() if cell.prints]
        title = (
            f"# What {chapter} prints on {model}. `make record` writes this file and keeps the heads of its blocks.\n\n"
        )
        files[f"{chapter}.txt"] = title + "\n".join(printed)
        files[f"{chapter}.pins.json"] = as_json({n: v for c in said.values() for n, v in c.pins if ours(n)})
        verdicts |= {name: holds for cell in said.values() for name, (holds, _) in cell.claims.items()}
    files["claims.json"] = as_json(dict(sorted(verdicts.items())))
    folder = expected.PRINTED / model
    folder.mkdir(exist_ok=True)
    before = {name: (folder / name).read_text(encoding="utf-8") for name in files if (folder / name).exists()}
    changed = [name for name, text in files.items() if before.get(name) != text]
    for name in changed:
        (folder / name).write_text(files[name], encoding="utf-8")
    return [(folder / name, name not in before) for name in changed]


def block_text(name: str, cell: Cell, before: Block | None) -> str:
    """A cell's print as a block of a printed file."""
    if re.search(r"^=== ", cell.text, flags=re.M):
        raise ValueError(f"cell {name}: a printed line must not start with '=== '")
    return f"=== {name}\n{head(before)}---\n{cell.text}\n"


def as_json(content: dict) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def head(block: Block | None) -> str:
    """The settings of a block as its file has them."""
    if block is None:
        return ""
    lines = [f"reading: {block.reading}"] if block.reading else []
    lines += [f"also: {name}" for name in block.also]
    lines += [f"slack: {words} {units} | {reason}" for words, (units, reason) in block.slack.items()]
    return "".join(f"{line}\n" for line in lines)
