"""Properties that hold for any input, and a fuzz of what reads files: nothing crashes, and nothing wrong passes.

`ONEMATRIX_FUZZ=25000 pytest tests/test_properties.py -k fuzz -rP` tries that many inputs in each of the
five fuzzers and prints how many there were; without it a few hundred.
"""

import copy
import json
import math
import os
import re

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_models import tiny
from test_faults_chapters import notebook

from onematrix import by_autograd, closed_form, cosine, expected, lens, neighbours, pin, pins, rank, top
from onematrix.expected import Block, figures
from press import compare, execute

FUZZ = int(os.environ.get("ONEMATRIX_FUZZ", "300"))
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
quick = settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
fuzz = settings(max_examples=FUZZ, deadline=None, suppress_health_check=SLOW)

NUMBERS = st.floats(-100, 100, width=32)
SCORES = st.lists(st.floats(allow_nan=False, width=32), min_size=1, max_size=40)


@st.composite
def tables(draw) -> torch.Tensor:
    """(V, d) rows of integers, so that equal cosines are equal exactly or far apart."""
    V, d = draw(st.integers(2, 12)), draw(st.integers(1, 5))
    rows = draw(st.lists(st.lists(st.integers(-3, 3), min_size=d, max_size=d), min_size=V, max_size=V))
    return torch.tensor(rows, dtype=torch.float64)


# ------------------------------------------------------------------ the arithmetic


@quick
@given(SCORES, st.data())
def test_a_rank_counts_what_is_larger_infinities_and_ties_included(values, data):
    index = data.draw(st.integers(0, len(values) - 1))
    assert rank(torch.tensor(values), index) == 1 + sum(v > values[index] for v in values)
    (best, score), *_ = top(torch.tensor(values), 1)
    assert score == max(values) == values[best]


@quick
@given(tables(), st.data())
def test_neighbours_are_the_largest_cosines_without_the_row_itself(rows, data):
    index, k = data.draw(st.integers(0, len(rows) - 1)), data.draw(st.integers(1, len(rows) - 1))
    found = neighbours(rows, index, k)

    def plain(a, b) -> float:
        lengths = math.sqrt(sum(v * v for v in a) * sum(v * v for v in b))
        return sum(v * w for v, w in zip(a, b, strict=True)) / lengths if lengths else 0.0

    all_ = {i: plain(row, rows[index].tolist()) for i, row in enumerate(rows.tolist()) if i != index}
    assert index not in dict(found)
    assert [c for _, c in found] == pytest.approx(sorted(all_.values(), reverse=True)[:k])
    assert all(c == pytest.approx(all_[i]) for i, c in found)


@quick
@given(tables(), st.floats(0.01, 100))
def test_a_cosine_lies_between_minus_one_and_one_and_sees_no_length(rows, factor):
    found = cosine(rows, rows)
    assert found.abs().max() <= 1 + 1e-9
    torch.testing.assert_close(found, found.T)
    torch.testing.assert_close(cosine(rows * factor, rows), found)


@quick
@given(st.sampled_from(["gpt2", "llama"]), st.lists(st.integers(0, 60), min_size=1, max_size=12), st.data())
def test_the_lens_ends_at_the_models_own_output_for_any_prompt(family, ids, data):
    model = tiny(family)
    states = model.states(ids)
    position = data.draw(st.integers(-len(ids), len(ids) - 1))
    torch.testing.assert_close(lens(model, states, position)[-1], states.logits[position], atol=1e-4, rtol=1e-4)
    assert 1 <= rank(states.logits[-1], ids[0]) <= model.V


@quick
@given(tables(), st.data())
def test_the_closed_form_is_autograds_for_any_table_vector_and_target(W, data):
    x = torch.tensor(data.draw(st.lists(st.floats(-5, 5), min_size=W.shape[1], max_size=W.shape[1])), dtype=W.dtype)
    target = data.draw(st.integers(0, len(W) - 1))
    step = closed_form(W, x, target)
    dW, dx = by_autograd(W, x, target)
    torch.testing.assert_close(torch.outer(step.rows, x), dW, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(step.x, dx, atol=1e-9, rtol=1e-9)
    assert step.rows.sum().item() == pytest.approx(0, abs=1e-9)


VALUES = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(), st.text(), st.booleans())


@quick
@given(st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True), VALUES)
def test_a_pin_is_read_back_from_what_its_cell_emits(name, value):
    with pytest.MonkeyPatch.context() as patch:
        emitted = []
        patch.setattr(pins, "emit", lambda data, metadata: emitted.append((data, metadata)))
        patch.setattr(pins, "PINNED", {})
        pin(name, value)
    [(data, metadata)] = emitted
    output = {"output_type": "display_data", "data": json.loads(json.dumps(data)), "metadata": metadata}
    executed = {"cells": [{"cell_type": "code", "id": "a", "source": "", "outputs": [output]}]}
    [(found, back)] = compare.cells(executed)["a"].pins
    assert (found, back, type(back)) == (name, value, type(value))


# ------------------------------------------------------------------ fuzz: the comparison

COUNTS: dict[str, int] = {}


@pytest.fixture(autouse=True)
def count(request):
    yield
    if request.node.name in COUNTS:
        print(f"{request.node.name}: {COUNTS[request.node.name]} inputs")


def one_more(name: str) -> None:
    COUNTS[name] = COUNTS.get(name, 0) + 1


PIECES = st.sampled_from(
    [
        "0.104",
        "-93.77",
        "50,257",
        "9th",
        "rank",
        "7",
        '" dog"',
        '""',
        '"',
        "p =",
        "W2",
        "1e-07",
        "3.",
        ".5",
        "%",
        "-",
        "=",
    ]
)
LINES = st.lists(st.one_of(PIECES, st.text("0123456789.,-+e\"' \tabé\u2028\x0c", max_size=5)), max_size=6).map(" ".join)
EDITS = st.tuples(st.sampled_from("dri"), st.integers(0, 60), st.sampled_from("0123456789.,-+e\"' aé\n"))


def edited(line: str, edits: list) -> str:
    for kind, at, c in edits:
        at %= len(line) + 1
        line = line[:at] + ("" if kind == "d" else c) + line[at + (kind != "i") :]
    return line


def shape(line: str) -> str:
    """A line without the value of any digit, without zeros in front and without its spaces."""
    whole = re.sub(r"(?<![.0-9])[0-9]+", "0", line)
    return re.sub(r"\s+", "", re.sub(r"[0-9]", "0", whole))


@fuzz
@given(LINES, st.lists(EDITS, min_size=1, max_size=3), st.integers(0, 3))
def test_fuzz_what_passes_the_comparison_is_what_was_expected(want, edits, slack):
    one_more("test_fuzz_what_passes_the_comparison_is_what_was_expected")
    have = edited(want, edits)
    allowed = {"rank": (slack, "why")} if slack else {}
    block = Block("a", "01_a", want, slack=allowed)
    assert compare.text_differs(block, want) == []
    if compare.text_differs(block, have):
        return
    assert shape(have) == shape(want), "another word, sign or form passed"
    for line_a, line_b in zip(want.splitlines(), have.splitlines(), strict=True):
        a, b = figures(line_a), figures(line_b)
        assert all(abs(x.value - y.value) <= max(1, slack) * x.unit for x, y in zip(a, b, strict=True))
        words = [[p for p in expected.pieces(line) if isinstance(p, str)] for line in (line_a, line_b)]
        assert words[0] == words[1], "a digit within a word or a token passed"


@fuzz
@given(LINES, st.data())
def test_fuzz_a_figure_that_moves_by_two_units_never_passes(line, data):
    one_more("test_fuzz_a_figure_that_moves_by_two_units_never_passes")
    found = [p for p in expected.pieces(line) if not isinstance(p, str)]
    if not found:
        return
    figure = data.draw(st.sampled_from(found))
    by = data.draw(st.integers(2, 50)) * data.draw(st.sampled_from([1, -1])) * figure.unit
    other = f"{figure.value + by:{',' if ',' in figure.text else ''}f}"
    if line.count(figure.text) == 1 and not re.search("e", figure.text):
        assert compare.line_differs(line, line.replace(figure.text, other), {})


# ------------------------------------------------------------------ fuzz: what reads files

ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=8,
)
WORDS = (
    "cells",
    "id",
    "cell_type",
    "metadata",
    "tags",
    "source",
    "outputs",
    "nbformat",
    "nbformat_minor",
    "parameters",
)
STEPS = st.tuples(
    st.lists(st.integers(0, 6), min_size=1, max_size=6), ANYTHING, st.sampled_from(["set", "drop", "copy"])
)


def changed(content, way: list[int], value, how: str):
    """The content with one place of it, which the way leads to, set to a value, dropped or written twice."""
    whole = copy.deepcopy(content)
    at = whole
    for step in way:
        if not isinstance(at, dict | list) or not at:
            break
        keys = sorted(at) if isinstance(at, dict) else range(len(at))
        parent, key = at, list(keys)[step % len(keys)]
        at = at[key]
    else:
        at = parent
    if at is whole:
        return value
    match how:
        case "set":
            parent[key] = value
        case "drop":
            del parent[key]
        case "copy" if isinstance(parent, list):
            parent.append(copy.deepcopy(parent[key]))
        case "copy":
            parent[WORDS[key.__hash__() % len(WORDS)]] = parent[key]
    return whole


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "NOTEBOOKS", tmp_path)
    return tmp_path


def read(folder, content: bytes) -> None:
    """Either the chapter is refused by name, or it is one that runs on the model it is given and hides nothing."""
    (folder / "01_a.ipynb").write_bytes(content)
    try:
        chapter = execute.source("01_a")
    except execute.ChapterError as told:
        assert str(told).startswith("01_a: ")  # noqa: PT017 - most inputs are refused, and some are not
        return
    ids = [cell.id for cell in chapter.cells]
    assert len(set(ids)) == len(ids)
    assert sum("parameters" in cell.metadata.get("tags", []) for cell in chapter.cells) == 1
    assert not any(cell.get("outputs") for cell in chapter.cells)
    assert execute.length("01_a") == len(ids) + 1


@fuzz
@given(content=st.one_of(st.binary(max_size=60), ANYTHING.map(lambda value: json.dumps(value).encode())))
def test_fuzz_any_bytes_and_any_json_are_refused_as_a_chapter(folder, content):
    one_more("test_fuzz_any_bytes_and_any_json_are_refused_as_a_chapter")
    read(folder, content)


@fuzz
@given(steps=st.lists(STEPS, min_size=1, max_size=3))
def test_fuzz_a_notebook_that_is_damaged_is_refused_or_harmless(folder, steps):
    one_more("test_fuzz_a_notebook_that_is_damaged_is_refused_or_harmless")
    content = json.loads(json.dumps(notebook({"one": "print(1)", "two": "print(2)"})))
    for way, value, how in steps:
        content = changed(content, way, value, how)
    read(folder, json.dumps(content).encode())


@fuzz
@given(
    text=st.lists(
        st.one_of(
            st.sampled_from(
                [
                    "=== a",
                    "---",
                    "slack: rank 2 | why",
                    "slack: x",
                    "also: b",
                    "reading:",
                    "pin: c 1",
                    "pin: c",
                    "claim: d",
                    "needs: training",
                    "needs:",
                    "# note",
                    "",
                    "a 0.5",
                    "=== ",
                    ":",
                ]
            ),
            st.text(max_size=12),
        ),
        max_size=8,
    ).map("\n".join)
)
def test_fuzz_a_file_of_what_must_be_printed_is_read_or_refused_by_line(tmp_path_factory, text):
    one_more("test_fuzz_a_file_of_what_must_be_printed_is_read_or_refused_by_line")
    place = tmp_path_factory.getbasetemp() / "printed"
    (place / "m").mkdir(parents=True, exist_ok=True)
    (place / "m" / "01_a.txt").write_text(text, encoding="utf-8", errors="ignore")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expected, "PRINTED", place)
        try:
            blocks = expected.blocks("m", "01_a")
        except ValueError as told:
            assert "01_a.txt" in str(told)  # noqa: PT017 - half of the inputs are refused
            return
    for block in blocks:
        assert compare.text_differs(block, block.text) == []
