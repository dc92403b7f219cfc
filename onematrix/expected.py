"""What each chapter must print, read from `tests/printed/MODEL/NN_name.txt`. Pure Python: no torch.

A file holds one block a printed cell:

    === dog-cat-neighbour-rank
    reading: 1-based with " dog" itself counted
    also: 0-based
    slack: rank 2 | two cosines next to it differ in the seventh digit
    pin: c4_cat_near 1
    needs: training
    ---
    rank 9 of 50257

For `gpt2` these are the documents' own blocks, and `claim: part2` names the document. `about:` names what a block is
about where that is not GPT-2 124M.
"""

import json
import re
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

HERE = Path(__file__).resolve().parent
# a checkout keeps the files beside its tests, an installed wheel inside the package
PRINTED = next((p for p in (HERE / "printed", HERE.parent / "tests" / "printed") if p.is_dir()), HERE / "printed")

# A token in quotes, or a number that stands alone: `W2`, `9th`, `GPT-2` and what a token holds are words.
PIECES = re.compile(
    r"""("[^\n]*?"(?=[\s,.:;)\]]|$)"""
    r"""|(?<![\w.])(?<![A-Za-z]-)[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?(?!\w|\.\d))"""
)


@dataclass(frozen=True)
class Figure:
    """A number as it is printed: "0.103", "-94", "50,257"."""

    text: str

    @property
    def value(self) -> Decimal:
        return Decimal(self.text.replace(",", ""))

    @property
    def unit(self) -> Decimal:
        """One in the last place that is printed."""
        return Decimal(1).scaleb(int(self.value.as_tuple().exponent))

    @property
    def whole(self) -> bool:
        return int(self.value.as_tuple().exponent) >= 0

    @property
    def number(self) -> int | float:
        return int(self.value) if self.whole else float(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __str__(self) -> str:
        return self.text

    @property
    def significant(self) -> int:
        """How many digits it shows after its leading zeros."""
        return len(self.value.as_tuple().digits) if self.value else 0

    @property
    def form(self) -> str:
        """What is compared as words are: the sign, the separators, how many places."""
        mantissa, e, _ = self.text.partition("e")
        whole, _, places = mantissa.partition(".")
        return f"{re.sub(r'[0-9]+', '0', whole)}.{'0' * len(places)}{e}"

    def tolerance(self, slack: int = 0) -> Decimal:
        """How far another figure in its place may be off.

        One unit in the last place for a decimal that shows two significant digits; nothing for an integer or a
        decimal that shows fewer, since there one unit would be another finding.

        Args:
            slack: what the block allows, in units of the last place, where that is more.
        """
        units = 1 if not self.whole and self.significant >= 2 else 0
        return max(units, slack) * self.unit

    def rounds(self, value: float) -> bool:
        """Whether an unrounded value could be printed as this figure, or as one within its tolerance."""
        return abs(Decimal(value) - self.value) <= max(
            self.tolerance(), self.unit / 2 if not self.whole else Decimal(0)
        )


def pieces(line: str) -> list[str | Figure]:
    """A printed line as words and figures. Spaces outside quotes only separate.

    >>> [p if isinstance(p, str) else p.value for p in pieces('" dog 2"  0.997, rank 3')]
    ['" dog 2"', Decimal('0.997'), ',', 'rank', Decimal('3')]
    """
    found: list[str | Figure] = []
    for at, part in enumerate(PIECES.split(line)):
        if at % 2 == 0:
            found += part.split()
        else:
            found.append(part if part.startswith('"') else Figure(part))
    return found


def figures(text: str) -> list[Figure]:
    """The figures of a printed text, in order."""
    return [piece for line in text.splitlines() for piece in pieces(line) if isinstance(piece, Figure)]


@dataclass(frozen=True)
class Block:
    """What one cell must print.

    Attributes:
        cell: the cell's id.
        chapter: `NN_name`.
        text: the lines; empty where the document states something and prints nothing.
        reading: the convention the figures follow.
        also: other conventions that the document leaves open.
        slack: words -> how far a figure after them may be off, in units of its last place, and why.
        pins: pin -> which figure of the block (from 1) is this value rounded.
        origin: which document prints it; empty for our own files.
        about: what the document measured.
        needs_training: whether random weights must fail it.
    """

    cell: str
    chapter: str
    text: str
    reading: str = ""
    also: tuple[str, ...] = ()
    slack: dict[str, tuple[int, str]] = field(default_factory=dict)
    pins: dict[str, int] = field(default_factory=dict)
    origin: str = ""
    about: str = "GPT-2 124M"
    needs_training: bool = False

    def pinned(self) -> dict[str, Figure]:
        """The figures that a pin of the chapter holds unrounded."""
        found = figures(self.text)
        return {name: found[number - 1] for name, number in self.pins.items()}


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
    key, colon, value = (part.strip() for part in line.partition(":"))
    if not colon:
        raise ValueError(f"{where}: expected 'key: value' or '---', got {line!r}")
    match key, value.split():
        case "reading", [*_]:
            settings["reading"] = value
        case "about", [*_]:
            settings["about"] = value
        case "also", [*_]:
            settings["also"] = (*settings.get("also", ()), value)
        case "slack", [*_]:
            amount, _, reason = (part.strip() for part in value.partition("|"))
            words, _, places = amount.rpartition(" ")
            if not (words and places.isdigit() and reason):
                raise ValueError(f"{where}: expected 'slack: WORDS PLACES | REASON', got {line!r}")
            settings.setdefault("slack", {})[words.strip()] = (int(places), reason)
        case "pin", [name, number] if number.isdigit():
            settings.setdefault("pins", {})[name] = int(number)
        case "claim", [origin]:
            settings["origin"] = origin
        case "needs", ["training"]:
            settings["needs_training"] = True
        case _:
            raise ValueError(f"{where}: expected reading, about, also, slack, pin, claim or needs, got {line!r}")


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


def verdicts(model: str) -> dict[str, bool]:
    """The verdicts on record for a model, by claim; empty where there are none."""
    path = PRINTED / model / "claims.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
