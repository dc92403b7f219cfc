"""A new chapter to start from: a notebook that runs and keeps every convention, and its place in the contents.

`create(name, title)` is what `make chapter NAME=13_my_question TITLE="My question"` calls.
"""

import re
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from press import UsageError, execute

NAME = re.compile(r"(\d\d)_[a-z0-9]+(_[a-z0-9]+)*")

FIGURE = """\
lengths = W.norm(dim=1)
counts, edges = lengths.histogram(bins=30)

fig, ax = figures.new()
ax.stairs(counts, edges, fill=True, color=figures.LOOKUP)
ax.set(xlabel="length of a row", ylabel="rows")
figures.show(
    fig,
    "lengths",
    caption="How long the rows are. Look at the width of the hill.",
    alt=f"A histogram of {{len(W)}} lengths. Half of them lie between {{lengths.quantile(0.25):.2f}} and "
    f"{{lengths.quantile(0.75):.2f}}.",
    data={{"from": edges[:-1].tolist(), "to": edges[1:].tolist(), "rows": counts.tolist()}},
)"""
EXERCISES = (
    ("Which token has the last row?", "print(model.shown(model.V - 1))"),
    ("Which has the longest?", "print(model.shown(int(lengths.argmax())))"),
    ("Which has the shortest?", "print(model.shown(int(lengths.argmin())))"),
)


def exercise(n: int, asks: str, solves: str) -> tuple[tuple, tuple]:
    """The two cells of an exercise; the second is folded away."""
    prompts = {"code_prompt_show": f"Show solution {n}", "code_prompt_hide": f"Hide solution {n}"}
    return (
        ("markdown", f"exercise-{n}", {}, f"### Exercise {n}\n\n{asks}"),
        ("code", f"solution-{n}", {"tags": ["hide-cell"], "mystnb": prompts}, solves),
    )


# The cells of a new chapter: kind, id, metadata, source. The bootstrap cell comes from a chapter that is there.
CELLS = (
    (
        "markdown",
        "title",
        {},
        "# {title}\n\nThe question, in two sentences: what a reader will know afterwards.\n\nWhat you will see:\n\n"
        "- how many rows the table has, as an example of a printed figure and of one in a sentence\n"
        "- how long they are, as an example of a drawing",
    ),
    ("code", "parameters", {"tags": ["parameters"]}, 'MODEL = "auto"  # gpt2, smollm2-135m or auto'),
    ("code", "bootstrap", {"tags": ["hide-cell"]}, ""),
    (
        "code",
        "setup",
        {"tags": ["hide-input"]},
        "from onematrix import figures, load, pin, your_run\n\nmodel = load(MODEL)\nW = model.W\nprint(model)",
    ),
    (
        "markdown",
        "rows-question",
        {},
        "## How many rows has the table?\n\nA section asks one question, answers it, and says what is seen.",
    ),
    (
        "code",
        "rows",
        {},
        'print(f"{{len(W)}} rows")\nassert len(W) == model.V\npin("c{number}_rows", len(W))',
    ),
    ("markdown", "rows-answer", {}, "There are {{glue:text}}`c{number}_rows` rows, one for each token."),
    (
        "markdown",
        "figure-lengths-question",
        {},
        "## How long are they?\n\nA drawing has axes with names, a caption that says what to look at, and words for "
        "who cannot see it, made from the values that are drawn.",
    ),
    ("code", "figure-lengths", {}, FIGURE),
    ("markdown", "summary", {}, "## Summary\n\n- One line for each thing that was seen."),
    ("markdown", "exercises", {}, "## Exercises"),
    *(cell for n, (asks, solves) in enumerate(EXERCISES, start=1) for cell in exercise(n, asks, solves)),
    (
        "markdown",
        "your-run-title",
        {},
        "## Your run against the book\n\nIf you changed the model or a prompt, this says what moved.",
    ),
    ("code", "your-run", {}, 'your_run("{name}")'),
)


def create(name: str, title: str) -> list[Path]:
    """Write a new chapter's files.

    Args:
        name: `NN_name`, with a number that no chapter has.
        title: its heading.

    Returns:
        the files that were written or changed.

    Raises:
        UsageError: not such a name, no title, or a number that is taken.
    """
    given = NAME.fullmatch(name)
    if not given or not title.strip():
        raise UsageError(f'expected NAME=13_my_question TITLE="My question", got NAME={name} TITLE="{title}"')
    taken = [chapter for chapter in execute.chapters() if chapter.startswith(given[1])]
    if taken:
        raise UsageError(f"chapter {given[1]} is there already: {taken[0]}")
    path = execute.NOTEBOOKS / f"{name}.ipynb"
    nbformat.write(notebook(name, title.strip()), path)
    return [path, add_to_contents(name)]


def notebook(name: str, title: str) -> NotebookNode:
    """The chapter's cells, with the set-up cell that every chapter has."""
    (like, *_) = execute.chapters()
    cells = nbformat.read(execute.NOTEBOOKS / f"{like}.ipynb", as_version=4)
    (bootstrap,) = [cell.source for cell in cells.cells if cell.id == "bootstrap"]
    made = nbformat.v4.new_notebook(metadata=cells.metadata)
    for kind, cell_id, metadata, source in CELLS:
        new = nbformat.v4.new_code_cell if kind == "code" else nbformat.v4.new_markdown_cell
        text = bootstrap if cell_id == "bootstrap" else source.format(name=name, number=int(name[:2]), title=title)
        made.cells.append(new(text, id=cell_id, metadata=metadata))
    return made


def add_to_contents(name: str) -> Path:
    """Name the chapter in `_toc.yml`, behind the last one that is there."""
    toc = execute.ROOT / "_toc.yml"
    lines = toc.read_text(encoding="utf-8").splitlines()
    last = max(n for n, line in enumerate(lines) if "file: notebooks/" in line)
    lines.insert(last + 1, re.sub(r"notebooks/.*", f"notebooks/{name}", lines[last]))
    toc.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return toc
