"""What the executed chapters print, pin and decide on our own model is what is on record, cell by cell."""

import re
from pathlib import Path

import nbformat
import pytest

from onematrix import expected
from press import claims, compare, execute

MODEL = "smollm2-135m"
BLOCKS = [block for chapter in execute.chapters() for block in expected.blocks(MODEL, chapter)]


@pytest.fixture(scope="module")
def notebooks() -> dict[str, nbformat.NotebookNode]:
    """Every chapter as it comes out; `make book` has executed them, and what has not changed is not run again."""
    return execute.read_all(execute.execute_all(execute.prepare(MODEL)))


@pytest.fixture(scope="module")
def said(notebooks) -> dict[str, dict[str, compare.Cell]]:
    return {chapter: compare.cells(notebook) for chapter, notebook in notebooks.items()}


def told(differences) -> str:
    return "\n".join(map(str, differences))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.chapter}-{block.cell}")
def test_cell(said, block):
    """One cell prints what is on record."""
    assert not (found := compare.outcome(block, said[block.chapter].get(block.cell)).differences), told(found)


@pytest.mark.parametrize("claim", [c.id for c in claims.claims() if not c.printed])
def test_verdict(said, claim):
    """One statement of the documents holds on our own model, or does not, as it did."""
    verdicts = {
        name: holds for cells in said.values() for cell in cells.values() for name, (holds, _) in cell.claims.items()
    }
    assert verdicts[claim] == expected.verdicts(MODEL)[claim]


@pytest.mark.parametrize("chapter", execute.chapters())
def test_nothing_is_printed_or_pinned_that_is_not_on_record(notebooks, chapter):
    assert not (found := compare.check(MODEL, chapter, notebooks[chapter])), told(found)


def test_pins_are_unique_finite_and_cited_where_they_are_pinned(notebooks):
    assert compare.pin_faults(notebooks) == []


@pytest.mark.parametrize("chapter", execute.chapters())
def test_a_reader_with_the_books_model_is_told_that_all_is_the_same(notebooks, chapter):
    (cell,) = [cell for cell in notebooks[chapter].cells if cell.id == "your-run"]
    (output,) = cell.outputs
    assert output.data["text/plain"].startswith(f"All {len(expected.pins(MODEL, chapter))} figures are the book's")


@pytest.mark.parametrize("chapter", execute.chapters())
def test_a_chapter_is_committed_without_outputs(chapter):
    notebook = nbformat.read(Path(execute.NOTEBOOKS) / f"{chapter}.ipynb", as_version=4)
    assert not [cell.id for cell in notebook.cells if cell.get("outputs") or cell.get("execution_count")]


@pytest.mark.parametrize("chapter", execute.chapters())
def test_a_chapter_closes_with_a_summary_three_exercises_and_the_run_against_the_book(chapter):
    code = [cell.id for cell in execute.source(chapter).cells if cell.cell_type == "code"]
    headings = re.findall(r"^## (.+)$", "\n".join(c.source for c in execute.source(chapter).cells), flags=re.M)
    assert {"solution-1", "solution-2", "solution-3"} <= set(code)
    assert code[-1] == "your-run"
    assert [name for name in headings if name in ("Summary", "Exercises")] == ["Summary", "Exercises"]
