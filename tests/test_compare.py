"""The comparison accepts what is within the printed places, and nothing else."""

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onematrix import expected
from onematrix.expected import Block, figures
from onematrix.pins import GLUE, RECORD
from press import compare, mutants


def says(text="", pins=(), readings=(), claims=()):
    """The outputs of an executed cell."""
    outputs = [{"output_type": "stream", "name": "stdout", "text": text}] if text else []
    outputs += [
        {"output_type": "display_data", "data": {GLUE: repr(v)}, "metadata": {"scrapbook": {"name": n}}}
        for n, v in pins
    ]
    records = [{"reading": name, "text": other} for name, other in readings]
    records += [{"claim": name, "holds": holds, "measured": "so"} for name, holds in claims]
    outputs += [{"output_type": "display_data", "data": {RECORD: r}, "metadata": {}} for r in records]
    return outputs


def notebook(markdown="", **cells):
    """An executed notebook with these cells' outputs."""
    code = [{"cell_type": "code", "id": n.replace("_", "-"), "outputs": o, "source": ""} for n, o in cells.items()]
    return {"cells": [{"cell_type": "markdown", "id": "prose", "source": markdown}, *code]}


def same(want: str, have: str, **slack) -> bool:
    return not compare.line_differs(want, have, slack)


@pytest.mark.parametrize(
    ("want", "have"),
    [
        ("p = 0.104", "p = 0.103"),
        ("p = 0.104", "p   =  0.105"),
        ("-93.77", "-93.78"),
        ("9.99e-07", "1.00e-06"),
        ("the same", "the same"),
    ],
)
def test_a_unit_in_the_last_place_and_spaces_are_no_difference(want, have):
    assert same(want, have)


@pytest.mark.parametrize(
    ("want", "have", "told"),
    [
        ("0.104", "0.106", "0.106 in place of 0.104"),
        ("0.000", "0.001", "0.001 in place of 0.000"),
        ("0.003", "0.004", "0.004 in place of 0.003"),
        ("rank 9", "rank 10", "10 in place of 9"),
        ("50,257", "50257", "50257 is not written like 50,257"),
        ("0.845", "-0.845", "-0.845 is not written like 0.845"),
        ("0.50", "0.5", "0.5 is not written like 0.50"),
        ("88%", "88", "1 words and figures where 2 are expected"),
        ('" dog" 0.9', '"dog" 0.9', '"dog" in place of " dog"'),
        ('"W 2"', '"W 3"', '"W 3" in place of "W 2"'),
        ("9th", "8th", "8th in place of 9th"),
        ("True", "False", "False in place of True"),
        ("rank 9", "rank nine", "nine in place of 9"),
    ],
)
def test_anything_else_is_told(want, have, told):
    assert compare.line_differs(want, have, {}) == told


def test_slack_holds_only_after_its_words():
    slack = {"rank": (2, "close")}
    assert compare.line_differs("p 7 rank 423", "p 7 rank 425", slack) == ""
    assert compare.line_differs("p 7 rank 423", "p 7 rank 426", slack) == "426 in place of 423"
    assert compare.line_differs("p 7 rank 423", "p 8 rank 423", slack) == "8 in place of 7"
    assert compare.line_differs("crank 4", "crank 5", slack) == "5 in place of 4"


def test_slack_can_name_one_figure_of_many():
    slack = {'" the" p =': (200, "fp32")}
    assert compare.line_differs('" the" p = 0.15240622', '" the" p = 0.15240800', slack) == ""
    assert compare.line_differs('" the" p = 0.15240622', '" the" p = 0.15240823', slack)
    assert compare.line_differs('" cat" p = 0.00000641', '" cat" p = 0.00000643', slack)


@given(st.integers(-(10**9), 10**9), st.integers(2, 7))
def test_a_decimal_may_be_one_unit_off_and_not_two(digits, places):
    want = Decimal(digits).scaleb(-places)
    unit = Decimal(1).scaleb(-places)
    shown = expected.Figure(f"{want:f}")
    for steps in (1, -1, 2, -2):
        have = want + steps * unit
        if (want < 0) != (have < 0):
            continue
        assert same(shown.text, f"{have:f}") == (abs(steps) <= 1 and shown.significant >= 2)


@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_every_text_agrees_with_itself(text):
    block = Block("a", "01_a", text)
    assert compare.text_differs(block, text) == []


@given(st.text("\" 0123456789.,%-+eW'", max_size=12), st.text("\" 0123456789.,%-+eW'", max_size=12))
def test_two_lines_that_pass_have_the_same_words_and_close_figures(want, have):
    """No false pass: what passes is the same but for spaces and figures, and the figures are close."""
    if not compare.line_differs(want, have, {}):
        a, b = figures(want), figures(have)
        assert len(a) == len(b)
        assert all(abs(x.value - y.value) <= x.tolerance() for x, y in zip(a, b, strict=True))
        rest = [[p for p in expected.pieces(line) if isinstance(p, str)] for line in (want, have)]
        assert rest[0] == rest[1]


def test_a_difference_names_chapter_cell_line_expected_and_printed():
    block = Block("dog-next", "04_dog_drift", '" was"  0.143\n" is"  0.073')
    (told,) = compare.outcome(block, compare.Cell(True, '" was"  0.143\n" is"  0.099')).differences
    assert str(told) == (
        '04_dog_drift, cell dog-next, line 2: 0.099 in place of 0.073\n  expected " is"  0.073\n  printed  " is"  0.099'
    )


@pytest.mark.parametrize("printed", ["a 1", "a 1\nb 2\nc 3", ""])
def test_a_line_too_few_or_too_many_is_told(printed):
    assert not compare.outcome(Block("x", "01_a", "a 1\nb 2"), compare.Cell(True, printed)).holds


def test_an_alternative_reading_is_accepted_only_where_the_block_lists_it():
    cell = compare.Cell(True, "rank 10", {"0-based": "rank 9", "other": "rank 9"})
    listed = compare.outcome(Block("x", "01_a", "rank 9", reading="1-based", also=("0-based",)), cell)
    assert (listed.holds, listed.reading, listed.text) == (True, "0-based", "rank 9")
    unlisted = compare.outcome(Block("x", "01_a", "rank 9", reading="1-based"), cell)
    assert (unlisted.holds, unlisted.reading, unlisted.text) == (False, "1-based", "rank 10")


def test_a_block_without_figures_holds_by_the_verdict_of_its_cell():
    block = Block("tie", "01_a", "")
    verdicts = {verdict: compare.Cell(True, "x", claims={"tie": (verdict, "so")}) for verdict in (True, False)}
    assert compare.outcome(block, verdicts[True]).holds
    assert not compare.outcome(block, verdicts[False]).holds
    assert not compare.outcome(block, compare.Cell(True, "x")).holds
    assert not compare.outcome(block, None).holds


@pytest.fixture
def printed(tmp_path, monkeypatch):
    monkeypatch.setattr(expected, "PRINTED", tmp_path)
    return tmp_path


def test_what_was_recorded_agrees_and_a_change_is_told(printed):
    first = notebook(says=says("p = 0.104\n", [("c1_p", 0.1039)]), quiet=says(pins=[("c1_n", 3)]))
    written = compare.record("smollm2-135m", {"01_a": first})
    assert [(path.name, new) for path, new in written] == [
        ("01_a.txt", True),
        ("01_a.pins.json", True),
        ("claims.json", True),
    ]
    assert compare.record("smollm2-135m", {"01_a": first}) == []
    assert compare.check("smollm2-135m", "01_a", first) == []
    changed = {
        "a figure": notebook(says=says("p = 0.204\n", [("c1_p", 0.1039)]), quiet=says(pins=[("c1_n", 3)])),
        "a pin": notebook(says=says("p = 0.104\n", [("c1_p", 0.1036)]), quiet=says(pins=[("c1_n", 3)])),
        "a pin that is gone": notebook(says=says("p = 0.104\n", [("c1_p", 0.1039)]), quiet=[]),
        "a new pin": notebook(
            says=says("p = 0.104\n", [("c1_p", 0.1039), ("c1_new", 1)]), quiet=says(pins=[("c1_n", 3)])
        ),
        "a cell that is gone": notebook(quiet=says(pins=[("c1_p", 0.1039), ("c1_n", 3)])),
        "a new print": notebook(says=says("p = 0.104\n", [("c1_p", 0.1039)]), quiet=says("x", [("c1_n", 3)])),
    }
    for what, then in changed.items():
        assert len(compare.check("smollm2-135m", "01_a", then)) == 1, what


def test_recording_keeps_what_a_person_wrote_and_the_documents_figures_out(printed):
    (printed / "smollm2-135m").mkdir()
    path = printed / "smollm2-135m" / "01_a.txt"
    path.write_text("=== says\nslack: p = 5 | measured\n---\np = 0.104\n")
    written = compare.record(
        "smollm2-135m", {"01_a": notebook(says=says("p = 0.207\n", [("doc_a_1", 1), ("c1_p", 0.2)]))}
    )
    assert (path, False) in written
    (block,) = expected.blocks("smollm2-135m", "01_a")
    assert (block.text, block.slack) == ("p = 0.207", {"p =": (5, "measured")})
    assert expected.pins("smollm2-135m", "01_a") == {"c1_p": 0.2}


def test_verdicts_are_recorded(printed):
    compare.record("smollm2-135m", {"01_a": notebook(says=says(claims=[("part2.step", True), ("part2.not", False)]))})
    assert json.loads((printed / "smollm2-135m" / "claims.json").read_text()) == {
        "part2.not": False,
        "part2.step": True,
    }


@pytest.mark.parametrize("model", ["gpt2", "gpt2-rehearsal", "other"])
def test_no_command_writes_the_documents_files(printed, model):
    with pytest.raises(ValueError, match="is not written by a command"):
        compare.record(model, {"01_a": notebook(says=says("1"))})
    assert list(printed.iterdir()) == []


def test_pins_are_unique_finite_and_cited_where_they_are_pinned():
    faults = compare.pin_faults(
        {
            "01_a": notebook("cites {glue:text}`c1_gone:.3f`", one=says(pins=[("c1_p", 1.0), ("c1_q", float("nan"))])),
            "02_b": notebook("cites {glue:text}`c2_r`", two=says(pins=[("c1_p", 2.0), ("c2_r", 1), ("doc_a_1", 1)])),
            "03_c": notebook("cites {glue:text}`c2_r`", three=says(pins=[("doc_a_1", 1), ("c3_s", 1), ("c3_s", 1)])),
        }
    )
    assert faults == [
        "01_a, cell one: pin c1_q is nan",
        "01_a, cell prose: its prose cites c1_gone, which no cell pins",
        "03_c, cell prose: its prose cites c2_r, which no cell pins",
        "01_a, cell one and 02_b, cell two: c1_p is pinned twice",
        "03_c, cell three and 03_c, cell three: c3_s is pinned twice",
    ]


@pytest.mark.parametrize("value", [1, -2, 0.1, 1e-30, "a word", 'with "quotes"', "it's", True])
def test_a_pin_is_read_back_as_it_was(value):
    assert compare.value(repr(value)) == value


def test_no_digit_of_an_expected_figure_can_change_unseen():
    killed, survived = mutants.change_figures()
    assert survived == []
    assert len(killed) > 500
