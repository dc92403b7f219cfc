"""What each chapter must print, read from `tests/printed/MODEL/NN_name.txt`. Pure Python: no torch.

A file holds one block a printed cell:

    === dog-cat-neighbour-rank
    reading: 1-based with " dog" itself counted
    also: 0-based
    ---
    rank 9 of 50257

For `gpt2` these are the documents' own blocks.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
# a checkout keeps the files beside its tests, an installed wheel inside the package
PRINTED = next((p for p in (HERE / "printed", HERE.parent / "tests" / "printed") if p.is_dir()), HERE / "printed")


@dataclass(frozen=True)
class Block:
    """What one cell must print.

    Attributes:
        cell: the cell's id.
        chapter: `NN_name`.
        text: the lines.
        reading: the convention the figures follow.
        also: other conventions that the document leaves open.
        slack: word -> how far the integer after it may be off, and why.
        origin: which document prints it; empty for our own files.
        needs_training: whether random weights must fail it.
    """

    cell: str
    chapter: str
    text: str
    reading: str = ""
    also: tuple[str, ...] = ()
    slack: dict[str, tuple[int, str]] = field(default_factory=dict)
    origin: str = ""
    needs_training: bool = False


def models() -> list[str]:
    """Names of the models whose printed figures are on record."""
    return sorted(p.name for p in PRINTED.iterdir() if p.is_dir())


def blocks(model: str, chapter: str) -> list[Block]:
    """The blocks of one chapter on one model, in order; none where nothing is on record.

    Raises:
        ValueError: a malformed file; the message names file and line.
    """
    path = PRINTED / model / f"{chapter}.txt"
    if not path.is_file():
        return []
    found: list[Block] = []
    settings: dict = {}
    lines: list[str] = []
    part = "before"  # of a block: before the first one, its head, its body

    def close() -> None:
        if part == "head":
            raise ValueError(f"{path.name}: block {settings['cell']} has no line '---'")
        if part == "body":
            found.append(Block(chapter=chapter, text="\n".join(lines).strip("\n"), **settings))

    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.startswith("=== "):
            close()
            settings, lines, part = {"cell": line[4:].strip()}, [], "head"
        elif part == "head" and line == "---":
            part = "body"
        elif part == "head":
            read_setting(settings, line, f"{path.name}, line {number}")
        elif part == "body":
            lines.append(line)
        elif line and not line.startswith("#"):
            raise ValueError(f"{path.name}, line {number}: text before the first block: {line!r}")
    close()
    return found


def read_setting(settings: dict, line: str, where: str) -> None:
    """Add one `key: value` line of a block's head to its settings."""
    key, colon, value = line.partition(":")
    value = value.strip()
    if key == "reading" and colon:
        settings["reading"] = value
    elif key == "also" and colon:
        settings["also"] = (*settings.get("also", ()), value)
    elif key == "slack" and colon:
        amount, _, reason = value.partition("|")
        word, places = amount.split()
        if not reason.strip():
            raise ValueError(f"{where}: a slack needs its reason after '|'")
        settings.setdefault("slack", {})[word] = (int(places), reason.strip())
    elif key == "claim" and colon:
        settings["origin"] = value
    elif key == "needs" and value == "training":
        settings["needs_training"] = True
    else:
        raise ValueError(f"{where}: expected reading, also, slack, claim or needs, got {line!r}")


def block(model: str, cell: str) -> Block:
    """The block of a cell, whichever chapter it is in; KeyError where there is none."""
    for path in sorted((PRINTED / model).glob("*.txt")):
        for candidate in blocks(model, path.stem):
            if candidate.cell == cell:
                return candidate
    raise KeyError(f"{model} has no block {cell!r} on record")


def pins(model: str, chapter: str) -> dict:
    """The pinned values on record for one chapter on one model, by name; empty where there are none."""
    path = PRINTED / model / f"{chapter}.pins.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
