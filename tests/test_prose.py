"""A figure typed into prose is found, and what is not prose is left alone."""

import shutil

import nbformat
import pytest

from press import execute, prose


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The rank is 9 here.", ["9"]),
        ("It gives 0.103, and 88% of it.", ["0.103", "88%"]),
        ("Of 50,257 rows.", ["50,257"]),
        ("It took 12ms on the 9th run.", ["12ms", "9th"]),
        ("A cosine of `0.583`.", ["0.583"]),
        ("A logit of $-15.3$.", ["-15.3"]),
        ("A {lookup}`rank of 8` it is.", ["8"]),
        ("| token | rank |\n|---|---|\n| cat | 149 |", ["149"]),
        ("<p>There are 23 of them.</p>", ["23"]),
        ("[a link with 7 words](page-2.html)", ["7"]),
        ("see\n\n: a definition with 31 words", ["31"]),
    ],
)
def test_a_typed_figure_is_found(text, found):
    assert prose.figures(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "GPT-2, SmolLM2-135M, W2 and layer `h[11]`.",
        "The rank {glue:text}`c4_cat_rank` of {glue:text}`c4_p:.3f`.",
        "# 7 ways to read\n\n## Chapter 2",
        "As chapter 3 says, and chapters 4 and 5.",
        "The sum $x_1 + 2$ and\n\n$$\ny = 3 x\n$$ (eq-c3-sum)\n\nby {eq}`eq-c3-sum`.",
        "```python\nx = 12\n```",
        "1. first\n2. second",
        'A figure <svg viewBox="0 0 360 288"><text x="3">dog</text></svg>.',
        "[link](https://example.org/2017/12) and {cite}`belrose2023`, see {doc}`04_dog_drift`.",
        "The document's `0.15240622` and `0.845`.",
        "A footnote[^3].",
    ],
)
def test_what_is_not_prose_is_left_alone(text):
    assert prose.figures(text) == []


def test_names_and_years_may_be_typed_where_the_list_says():
    assert prose.allowed("50257", "book/start.md")
    assert prose.allowed("2017", "book/start.md")
    assert prose.allowed("42", "notebooks/01_two_matrices.ipynb")
    assert not prose.allowed("42", "notebooks/04_dog_drift.ipynb")
    assert not prose.allowed("1066", "book/start.md")


def test_every_exception_has_a_reason():
    assert all(reason for _, reason in prose.ALLOWED.values())


def test_no_figure_is_typed_in_the_book():
    assert [str(typed) for typed in prose.typed(execute.ROOT)] == []


def test_a_figure_typed_into_any_chapter_is_named_with_file_and_cell(tmp_path):
    shutil.copytree(execute.ROOT / "notebooks", tmp_path / "notebooks")
    shutil.copytree(execute.ROOT / "book", tmp_path / "book")
    for path in (tmp_path / "notebooks").glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        cell = [c for c in notebook.cells if c.cell_type == "markdown"][-1]
        cell.source += "\n\nIt came to 0.987 this time."
        nbformat.write(notebook, path)
        (typed,) = [t for t in prose.typed(tmp_path) if t.file == f"notebooks/{path.name}"]
        assert (typed.cell, typed.figure) == (cell.id, "0.987")
