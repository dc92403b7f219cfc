"""The documents' own figures beside ours, and a reader's run beside the book's."""

import html
import math
import re

from onematrix import expected
from onematrix.pins import PINNED, emit, pin

TITLES = {
    "matrices": "The Two Embedding Matrices",
    "part1": "Weight tying, part 1",
    "part2": "Weight tying, part 2",
    "part3": "Weight tying, part 3",
}
# a figure, not a number inside a word such as W2 or a quoted token
FIGURE = re.compile(r'(?<![\w."])[-+]?\d+(?:\.\d+)?(?![\w"])')
SAME = 1e-4  # relative: fp32 on another machine differs in the sixth digit, a changed prompt in the first


def document(cell: str) -> None:
    """Show what the document prints for this block, marked as the document's, and pin its figures.

    The n-th figure of block `dog-lens` is pinned as `doc_dog_lens_n`, counted from 1, so that prose can
    cite it: it is the document's, measured by its author on GPT-2 124M and not by this run.
    """
    block = expected.block("gpt2", cell)
    title = f"{TITLES[block.origin]}, on GPT-2 124M"
    markup = (
        f'<aside class="om-document"><p>The document prints (<cite>{html.escape(title)}</cite>):</p>'
        f"<pre>{html.escape(block.text)}</pre></aside>"
    )
    emit({"text/html": markup, "text/plain": f"The document prints ({title}):\n{block.text}"}, {})
    for n, figure in enumerate(FIGURE.findall(block.text), start=1):
        name = f"doc_{cell.replace('-', '_').replace('.', '_')}_{n}"
        pin(name, float(figure) if "." in figure else int(figure))


def same(yours: float | int | str, book: float | int | str) -> bool:
    """Whether two pinned values are the same to what a change of machine may do."""
    if isinstance(yours, str) or isinstance(book, str):
        return yours == book
    return math.isclose(yours, book, rel_tol=SAME, abs_tol=1e-9)


def your_run(chapter: str) -> None:
    """Compare what this session pinned in a chapter with what the book has on record for the model.

    Args:
        chapter: `NN_name`. The model is the one this session opened last.
    """
    from onematrix.models import OPEN

    (model,) = OPEN
    book = expected.pins(model.name, chapter)
    yours = {name: value for name, value in PINNED.items() if not name.startswith("doc_")}
    if not book:
        print(f"The book has no figures of this chapter on record for {model.title}: yours are the first.")
        return
    rows = [(name, yours.get(name, "not computed"), value) for name, value in book.items()]
    differ = [row for row in rows if not same(row[1], row[2])]
    if not differ:
        print(f"All {len(rows)} figures are the book's, on {model.title}.")
        return
    body = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(str(mine))}</td><td>{html.escape(str(its))}</td></tr>"
        for name, mine, its in differ
    )
    markup = (
        '<table><thead><tr><th scope="col">Figure</th><th scope="col">Yours</th><th scope="col">The book’s</th></tr>'
        f"</thead><tbody>{body}</tbody></table>"
    )
    lines = [f"{len(differ)} of {len(rows)} figures differ on {model.title}.", why(differ)]
    print("\n".join(lines))
    plain = "\n".join(f"{name}: yours {mine}, the book's {its}" for name, mine, its in differ)
    emit({"text/html": markup, "text/plain": plain}, {})


def why(differ: list[tuple]) -> str:
    """The likely reason, judged from how far the values are apart."""
    missing = [row for row in differ if row[1] == "not computed"]
    if len(missing) == len(differ):
        return "Some cells were not run: run the chapter from the top."
    numbers = [(a, b) for _, a, b in differ if not isinstance(a, str) and not isinstance(b, str)]
    if numbers and all(math.isclose(a, b, rel_tol=0.02) for a, b in numbers) and not missing:
        return "They are close: other versions of the libraries, another processor, or weights in lower precision."
    return "They are far apart: a changed prompt or cell, or a cell that was not run again after a change."
