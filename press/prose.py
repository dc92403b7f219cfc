"""No typed figures: a number in prose is pinned by a cell, quoted from a document, or on a short list with its reason.

`typed(ROOT)` reads every Markdown cell of the chapters and every page of the book.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat

from onematrix import expected

# Figure -> where it may stand, and why. An empty place is anywhere.
ALLOWED = {
    "124M": ("", "the name of the smallest GPT-2"),
    "135M": ("", "part of the name SmolLM2-135M"),
    "50257": ("", "GPT-2's vocabulary, fixed before it was trained"),
    "768": ("", "GPT-2's width, fixed before it was trained"),
    "42": ("notebooks/01_two_matrices.ipynb", "the token whose row the document looks up, an arbitrary id"),
    "0.1": ("notebooks/03_gradient_signs.ipynb", "the gain that a step is made to promise: the cell's choice"),
}
YEAR = re.compile(r"(19|20)\d\d")

# What is not prose, each with what stands in its place. The order counts.
NOT_PROSE = (
    (re.compile(r"^(```|:::+\{math)(.*\n)*?(```|:::)\s*$", re.M), " "),  # fenced code
    (re.compile(r"<!--.*?-->|<[^<>]*>", re.S), " "),  # markup; the text between tags stays
    (re.compile(r"\$\$.*?\$\$", re.S), " "),  # a formula on its own lines
    (re.compile(r"^#+ .*$|^(?=.).*\n(===+|---+)$", re.M), " "),  # headings
    (re.compile(r"\{(lookup|unembed)\}`([^`]*)`"), r" \2 "),  # roles that only colour a word
    (re.compile(r"\{[\w:]+\}`[^`]*`"), " "),  # pins, citations, references
    (re.compile(r"\]\([^)]*\)|\[\^\w+\]|https?://\S+"), "] "),  # where a link leads, footnotes
    (re.compile(r"^\s*\d+[.)] ", re.M), " "),  # numbers of a list
    (re.compile(r"\b[Cc]hapters? \d+(( to | and |, )\d+)*"), " "),  # references
)
# A short quotation of code, or a formula inside a line: its numbers are part of it, unless it is nothing but one.
QUOTED = re.compile(r"`([^`]*)`|\$([^$]*)\$")
BARE = re.compile(r"[-+]?\d[\d,]*\.\d+%?|[-+]?\d[\d,]*%|[-+]?\d{2,}")
FIGURE = re.compile(r"(?<!\w)(?<!\w-)[-+]?\d[\w,.]*%?")


@dataclass(frozen=True)
class Typed:
    """A figure that a person typed into prose."""

    file: str
    cell: str
    figure: str

    def __str__(self) -> str:
        place = f"{self.file}, cell {self.cell}" if self.cell else self.file
        return f"{place}: {self.figure} is typed; pin it, or give a reason in press/prose.py"


def typed(root: Path) -> list[Typed]:
    """Every typed figure in the chapters and pages of a checkout."""
    return [
        Typed(file, cell, figure)
        for path, cell, text in prose(root)
        for figure in figures(text)
        if not allowed(figure, file := str(path.relative_to(root)))
    ]


def allowed(figure: str, file: str) -> bool:
    """Whether a person may type this figure in this file."""
    if figure in ALLOWED:
        place, _ = ALLOWED[figure]
        return file.startswith(place)
    return bool(YEAR.fullmatch(figure))


def prose(root: Path) -> Iterator[tuple[Path, str, str]]:
    """Each Markdown cell and page: file, cell id (empty for a page), text."""
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "markdown":
                yield path, cell.id, cell.source
    for path in sorted((root / "book").glob("*.md")):
        yield path, "", path.read_text(encoding="utf-8")


def figures(text: str) -> list[str]:
    """The figures that stand in the prose of a Markdown text."""
    for pattern, instead in NOT_PROSE:
        text = pattern.sub(instead, text)
    documents = document_figures()
    bare = [(a or b).strip() for a, b in QUOTED.findall(text)]
    found = [figure for figure in bare if BARE.fullmatch(figure) and figure.lstrip("+") not in documents]
    return found + [match.rstrip(".,") for match in FIGURE.findall(QUOTED.sub(" ", text))]


def document_figures() -> set[str]:
    """The documents' own figures, which a page may quote in `code`."""
    chapters = [path.stem for path in (expected.PRINTED / "gpt2").glob("*.txt")]
    blocks = [block for chapter in chapters for block in expected.blocks("gpt2", chapter)]
    return {figure.text.lstrip("+") for block in blocks for figure in expected.figures(block.text)}


def main() -> int:
    """Print every typed figure; 1 where there is one."""
    found = typed(Path(__file__).resolve().parent.parent)
    print("\n".join(map(str, found)) or "No typed figure in the prose.")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
