"""The printed files are read as they are written, and a malformed one says where."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onematrix import expected
from onematrix.expected import Figure, figures, pieces

WHOLE = """\
# a comment
=== dog-cat
reading: 1-based with " dog" itself counted
also: 0-based
also: 1-based without " dog"
slack: rank 2 | two scores are close
slack: " dog" p = 10 | another
pin: c9_rank 1
claim: part2
needs: training
---
rank 9 of 50257

=== empty
claim: part2
---
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.setattr(expected, "PRINTED", tmp_path)
    (tmp_path / "gpt2").mkdir()
    return lambda text: (tmp_path / "gpt2" / "09_tiny.txt").write_text(text)


def test_a_block_is_read_with_its_settings(write):
    write(WHOLE)
    block, empty = expected.blocks("gpt2", "09_tiny")
    assert block.text == "rank 9 of 50257"
    assert block.reading == '1-based with " dog" itself counted'
    assert block.also == ("0-based", '1-based without " dog"')
    assert block.slack == {"rank": (2, "two scores are close"), '" dog" p =': (10, "another")}
    assert block.pinned() == {"c9_rank": Figure("9")}
    assert (block.origin, block.needs_training) == ("part2", True)
    assert (empty.text, empty.needs_training) == ("", False)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("surprise: 1", "line 2: expected reading"),
        ("no colon", "line 2: expected 'key: value'"),
        ("slack: rank 2", "line 2: expected 'slack: WORDS PLACES | REASON'"),
        ("slack: rank many | why", "line 2: expected 'slack"),
        ("pin: c1_rank first", "line 2: expected reading"),
        ("needs: sleep", "line 2: expected reading"),
    ],
)
def test_a_malformed_setting_is_named_with_file_and_line(write, line, told):
    write(f"=== a\n{line}\n---\n1\n")
    with pytest.raises(ValueError, match=r"09_tiny\.txt") as error:
        expected.blocks("gpt2", "09_tiny")
    assert told in str(error.value)


def test_a_block_without_its_line_of_dashes_is_refused(write):
    write("=== a\nclaim: part1\n")
    with pytest.raises(ValueError, match="block a has no line '---'"):
        expected.blocks("gpt2", "09_tiny")


def test_text_before_the_first_block_is_refused(write):
    write("rank 9\n=== a\n---\n1\n")
    with pytest.raises(ValueError, match="line 1: text before the first block"):
        expected.blocks("gpt2", "09_tiny")


def test_what_nobody_recorded_is_empty(write):
    assert expected.blocks("gpt2", "10_none") == []
    assert expected.pins("gpt2", "10_none") == {}
    with pytest.raises(KeyError, match="no block 'none'"):
        expected.block("gpt2", "none")


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ('block  2    " dog" 0.937,  "W2 7"', ["block", 2, '" dog"', 0.937, ",", '"W2 7"']),
        ("GPT-2 124M has 50,257 rows", ["GPT-2", "124M", "has", 50257, "rows"]),
        ("W (768, 1); p = 1.5e-06", ["W", "(", 768, ",", 1, ");", "p", "=", 1.5e-06]),
        ('"""  3', ['"""', 3]),
        ('" ""  3', ['" ""', 3]),
        ("9th and 3.11.4", ["9th", "and", "3.11.4"]),
        ("88% of -93.77", [88, "%", "of", -93.77]),
        ('","      0.085', ['","', 0.085]),
    ],
)
def test_a_line_is_words_and_figures(line, read):
    assert [p if isinstance(p, str) else p.number for p in pieces(line)] == read


@pytest.mark.parametrize(
    ("text", "tolerance"),
    [
        ("0.103", "0.001"),
        ("0.00040", "0.00001"),
        ("0.003", "0"),  # one significant digit: one unit more would be another finding
        ("0.000", "0"),
        ("-93.77", "0.01"),
        ("154.4", "0.1"),
        ("423", "0"),
        ("50,257", "0"),
        ("1.5e-06", "0.0000001"),
    ],
)
def test_a_figure_knows_how_far_another_may_be_off(text, tolerance):
    assert Figure(text).tolerance() == Decimal(tolerance)


def test_slack_widens_and_never_narrows():
    assert Figure("423").tolerance(2) == 2
    assert Figure("0.103").tolerance(0) == Decimal("0.001")
    assert Figure("0.15240622").tolerance(200) == Decimal("0.000002")


@given(st.floats(-1e6, 1e6), st.integers(1, 8))
def test_a_value_rounds_to_its_own_print(value, places):
    assert Figure(f"{value:.{places}f}").rounds(value)


@given(st.text())
def test_any_text_can_be_read(text):
    for figure in figures(text):
        assert figure.tolerance() >= 0


def test_the_committed_files_are_well_formed():
    for model in expected.models():
        for path in (expected.PRINTED / model).glob("*.txt"):
            cells = [block.cell for block in expected.blocks(model, path.stem)]
            assert cells
            assert len(cells) == len(set(cells))
