"""The documents' own figures beside ours, and a reader's run beside the book's."""

import html
import math

from onematrix import expected
from onematrix.pins import PINNED, emit, pin

TITLES = {
    "matrices": "The Two Embedding Matrices",
    "part1": "Weight tying, part 1",
    "part2": "Weight tying, part 2",
    "part3": "Weight tying, part 3",
}
SAME = 1e-4  # relative: fp32 on another machine differs in the sixth digit, a changed prompt in the first
CLOSE = 0.02  # relative: what lower precision in the weights does
NOT_COMPUTED = "not computed"


def document(cell: str) -> None:
    """Show what the document prints for this block, marked as the document's, and pin its figures.

    The n-th figure of block `dog-lens` is pinned as `doc_dog_lens_n`, counted from 1, so that prose can
    cite it: it is the document's, its author's measurement and not this run's.
    """
    block = expected.block("gpt2", cell)
    title = f"{TITLES[block.origin]}, on {block.about}"
    markup = (
        f'<aside class="om-document"><p>The document prints (<cite>{html.escape(title)}</cite>):</p>'
        f"<pre>{html.escape(block.text)}</pre></aside>"
    )
    emit({"text/html": markup, "text/plain": f"The document prints ({title}):\n{block.text}"}, {})
    for n, figure in enumerate(expected.figures(block.text), start=1):
        pin(f"doc_{cell.replace('-', '_')}_{n}", figure.number)


def same(yours: float | int | str, book: float | int | str | expected.Figure) -> bool:
    """Whether a value is the book's: to the places that a document prints, else to what a change of machine may do."""
    if isinstance(yours, str) or isinstance(book, str):
        return yours == book
    if isinstance(book, expected.Figure):
        return book.rounds(yours)
    if isinstance(yours, int) and isinstance(book, int):
        return yours == book  # a count or a rank is right or wrong
    return math.isclose(yours, book, rel_tol=SAME, abs_tol=1e-9)


def book_pins(model: str, chapter: str) -> dict[str, float | int | str | expected.Figure]:
    """What the book has on record for a chapter's pins: measured values, or on GPT-2 the documents' figures."""
    documents = {name: figure for b in expected.blocks(model, chapter) for name, figure in b.pinned().items()}
    return documents | expected.pins(model, chapter)


def your_run(chapter: str) -> None:
    """Show how what this session pinned in a chapter compares with what the book has on record for the model.

    Args:
        chapter: `NN_name`. The model is the one this session opened last.
    """
    from onematrix.models import OPEN

    (model,) = OPEN
    book = book_pins(model.name, chapter)
    rows = [(name, PINNED.get(name, NOT_COMPUTED), value) for name, value in book.items()]
    differ = [(name, mine, its) for name, mine, its in rows if not same(mine, its)]
    if not book:
        says = f"The book has no figures of this chapter on record for {model.title}: yours are the first."
    elif not differ:
        says = f"All {len(rows)} figures are the book's, on {model.title}."
    else:
        says = f"{len(differ)} of {len(rows)} figures differ on {model.title}. {why(differ)}"
    markup = f"<p>{html.escape(says)}</p>"
    if differ:
        head = "".join(f'<th scope="col">{name}</th>' for name in ("Figure", "Yours", "The book’s"))
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(str(v))}</td>' for v in row)}</tr>" for row in differ)
        markup += f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    plain = "".join(f"\n{name}: yours {mine}, the book's {its}" for name, mine, its in differ)
    emit({"text/html": markup, "text/plain": says + plain}, {})


def why(differ: list[tuple]) -> str:
    """The likely reason, judged from how far the values are apart."""
    if all(mine == NOT_COMPUTED for _, mine, _ in differ):
        return "Some cells were not run: run the chapter from the top."
    numbers = [(mine, its) for _, mine, its in differ if isinstance(mine, (int, float)) and not isinstance(its, str)]
    apart = [abs(mine - float(its)) / max(abs(mine), abs(float(its))) for mine, its in numbers]
    if len(numbers) == len(differ) and max(apart) < CLOSE:
        return "They are close: other versions of the libraries, another processor, or weights in lower precision."
    return "They are far apart: another prompt, a changed cell, or a cell that was not run again after a change."
