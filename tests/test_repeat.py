"""What moves between two runs is named, and how near a figure is to tipping is measured from its unrounded value."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from onematrix.expected import Figure
from press import repeat
from press.compare import Cell


def cell(text: str, **pins: float) -> Cell:
    return Cell(prints=True, text=text, pins=tuple(pins.items()))


def test_a_line_that_moves_is_named_with_chapter_cell_and_way():
    first, then = {"a": cell("p 0.143\nrank 9"), "b": cell("1")}, {"a": cell("p 0.144\nrank 9"), "b": cell("1")}
    assert repeat.differences("01_x", "float64", first, first) == []
    assert repeat.differences("01_x", "float64", first, then) == [
        repeat.Moved("01_x", "a", "float64", "p 0.143", "p 0.144")
    ]


def test_a_line_that_is_missing_or_new_is_named():
    short, long = {"a": cell("one")}, {"a": cell("one\ntwo")}
    assert [(m.first, m.then) for m in repeat.differences("c", "w", short, long)] == [("(no line)", "two")]
    assert [(m.first, m.then) for m in repeat.differences("c", "w", long, short)] == [("two", "(no line)")]


@pytest.mark.parametrize(
    ("value", "figure", "distance"),
    [(0.55, "0.550", 0.5), (0.5504, "0.550", 0.1), (0.5496, "0.550", 0.1), (-0.5504, "-0.550", 0.1)],
)
def test_the_distance_to_the_edge_is_in_units_of_the_last_place(value, figure, distance):
    assert repeat.edge(value, Figure(figure)) == pytest.approx(distance)


def test_a_figure_that_is_not_this_value_rounded_has_no_edge():
    assert repeat.edge(0.5506, Figure("0.550")) is None


def test_a_close_call_is_a_pinned_float_that_its_own_cell_prints():
    cells = {
        "a": cell("cosine 0.550, rank 9", near=0.55049, elsewhere=0.9, whole=9),
        "b": cell("nothing", near=0.55049),
    }
    (call,) = repeat.close_calls("04_x", cells)
    assert (call.cell, call.pin, call.printed) == ("a", "near", "0.550")
    assert call.distance == pytest.approx(0.01)
    assert "04_x, cell a: near" in repeat.report(5, 2, [], [call])


def test_only_what_moves_at_the_books_own_precision_is_a_failure():
    fp32, other = (repeat.Moved("c", "a", way, "1", "2") for way in ("two at a time, again", "float64"))
    assert repeat.unsteady([fp32, other]) == [fp32]
    assert "1 lines moved in fp32, 1 are other in float64" in repeat.report(5, 9, [fp32, other], [])


def test_papermills_own_cell_is_left_out(tmp_path):
    prints = new_output("stream", text="1\n")
    cells = [
        new_code_cell("MODEL = 1", id="7b86897c", metadata={"tags": ["injected-parameters"]}),
        new_code_cell("print(1)", id="prints", outputs=[prints]),
    ]
    nbformat.write(new_notebook(cells=cells), tmp_path / "a.ipynb")
    assert list(repeat.said(tmp_path / "a.ipynb")) == ["prints"]
