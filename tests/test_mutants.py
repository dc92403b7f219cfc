"""The mutants can still be made from the chapters as they are; `make mutants` runs them."""

import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell

from press import claims, execute, mutants

ALL = mutants.mutants()


def code(chapter: str) -> list[nbformat.NotebookNode]:
    notebook = nbformat.read(execute.NOTEBOOKS / f"{chapter}.ipynb", as_version=4)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("mutant", ALL, ids=lambda m: m.name)
def test_a_mutant_breaks_cells_that_exist_by_text_that_is_there(mutant):
    cells = code(mutant.chapter)
    assert set(mutant.cells) <= {cell.id for cell in cells}
    assert bool(mutant.patch) != bool(mutant.swap)
    if mutant.swap:
        notebook = nbformat.v4.new_notebook(cells=cells)
        mutants.change_source(notebook, mutant)
        assert any(mutant.swap["new"] in cell.source for cell in notebook.cells)
    compile(mutants.TOOLS + mutant.patch, mutant.name, "exec")


def test_names_are_unique_and_each_chapter_of_the_documents_is_broken():
    assert len({m.name for m in ALL}) == len(ALL)
    assert {m.chapter for m in ALL} >= {c.chapter for c in claims.claims()}


def test_only_what_the_cells_need_is_run():
    sources = {
        "bootstrap": "%pip install x",
        "setup": "W = 1",
        "first": "a = W",
        "apart": "b = 2",
        "figure-x": "fig = a",
        "last": "for a2 in [a]:\n    print(a2)",
        "after": "a = 3",
    }
    cells = [new_code_cell(source, id=name) for name, source in sources.items()]
    assert [cell.id for cell in mutants.needed(cells, ("last",))] == ["setup", "first", "last"]


def test_a_text_that_is_not_there_is_told():
    notebook = nbformat.v4.new_notebook(cells=[new_code_cell("x = 1", id="a")])
    mutant = mutants.Mutant("none", "01_a", ("a",), swap={"old": "y = 1", "new": "y = 2"})
    with pytest.raises(ValueError, match="its text is in 0 cells"):
        mutants.change_source(notebook, mutant)


@pytest.mark.parametrize("value", [1, 0, 0.0, 0.5, -3.25, 1e-12, "word"])
def test_a_pin_is_changed_beyond_what_is_accepted(value):
    assert not mutants.documents.same(value, mutants.beyond(value))


@pytest.mark.parametrize("name", mutants.AROUND)
def test_what_lies_around_the_chapters_is_told_too(name):
    assert mutants.AROUND[name]()


def test_a_mutant_that_does_not_run_is_told_as_such_and_one_chapter_can_be_broken_alone(monkeypatch, capsys):
    asked = []
    told = {
        "caught": mutants.Told(True, "here"),
        "missed": mutants.Told(False, ""),
        "typo": mutants.Told(False, "NameError", runs=False),
    }
    monkeypatch.setattr(mutants, "break_code", lambda some: asked.extend(some) or told)
    assert mutants.main(["03_gradient_signs"]) == 1
    assert {mutant.chapter for mutant in asked} == {"03_gradient_signs"}
    said = capsys.readouterr().out
    assert "3 things made wrong, 2 not killed." in said
    assert re.findall(r"(killed|SURVIVED|DOES NOT RUN) +(\w+)$", said, flags=re.M) == [
        ("killed", "caught"),
        ("SURVIVED", "missed"),
        ("DOES NOT RUN", "typo"),
    ]
    with pytest.raises(SystemExit):
        mutants.main(["no_such_chapter"])
