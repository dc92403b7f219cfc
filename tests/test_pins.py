"""A value that is pinned leaves the cell exactly, under a name that prose can cite, or not at all."""

import math

import IPython.display
import numpy as np
import pytest
import torch

from onematrix import claim, pin, pins, reading


@pytest.fixture
def shown(monkeypatch):
    """What the cell has shown, as (data, metadata), in an IPython that is not there; pins start empty."""
    sent = []

    def display(data, *, metadata, raw):
        assert raw
        sent.append((data, metadata))

    monkeypatch.setattr(IPython, "get_ipython", object)
    monkeypatch.setattr(IPython.display, "display", display)
    monkeypatch.setattr(pins, "PINNED", {})
    return sent


def test_a_pin_has_the_form_that_glue_reads(shown):
    from myst_nb.ext.glue import GLUE_PREFIX

    pin("cat_rank", 8)
    [(data, metadata)] = shown
    assert data == {f"{GLUE_PREFIX}text/plain": "8"}
    assert metadata == {"scrapbook": {"name": "cat_rank", "mime_prefix": GLUE_PREFIX}}
    assert dict(pins.PINNED) == {"cat_rank": 8}


@pytest.mark.parametrize("value", [0.1, 1 / 3, -2.5e-300, 10**18, "a 'word'"])
def test_a_pinned_value_comes_back_exactly(shown, value):
    pin("value", value)
    [(data, _)] = shown
    assert eval(data[pins.GLUE]) == value


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (torch.tensor(3), 3),
        (torch.tensor(0.5, dtype=torch.float64), 0.5),
        (np.int64(7), 7),
        (np.float32(0.25), 0.25),
    ],
)
def test_scalars_of_torch_and_numpy_become_plain_numbers(shown, value, plain):
    pin("value", value)
    assert dict(pins.PINNED) == {"value": plain}
    assert type(pins.PINNED["value"]) is type(plain)
    assert shown[0][0] == {pins.GLUE: repr(plain)}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, torch.tensor(math.nan), np.float64("inf")])
def test_a_value_that_is_not_finite_is_refused(shown, value):
    with pytest.raises(ValueError, match=r"pin 'bad' is -?(nan|inf): only finite"):
        pin("bad", value)
    assert shown == []
    assert dict(pins.PINNED) == {}


@pytest.mark.parametrize("value", [None, [1.0], {"a": 1}, b"1", 1j])
def test_what_is_not_one_number_or_word_is_refused(shown, value):
    with pytest.raises(TypeError, match="pin 'bad' takes an int, a float or a str"):
        pin("bad", value)
    assert shown == []


def test_a_tensor_of_several_values_is_refused(shown):
    with pytest.raises((RuntimeError, ValueError)):
        pin("bad", torch.ones(2))
    assert shown == []


@pytest.mark.parametrize("name", ["", "Cat", "1st", "cat-rank", "cat rank", "_cat", "kätzchen", "cat\n"])
def test_a_name_that_prose_could_not_cite_is_refused(shown, name):
    with pytest.raises(ValueError, match="lower_snake_case"):
        pin(name, 1)
    assert shown == []


def test_a_claim_carries_its_verdict_as_a_plain_bool(shown):
    claim("part2.step", torch.tensor(3) > 2, "three")
    claim("part2.step", np.bool_(False), "none")
    assert [data[pins.RECORD] for data, _ in shown] == [
        {"claim": "part2.step", "holds": True, "measured": "three"},
        {"claim": "part2.step", "holds": False, "measured": "none"},
    ]
    assert all(type(data[pins.RECORD]["holds"]) is bool for data, _ in shown)


def test_a_reading_carries_the_text_of_another_convention(shown):
    reading("0-based", "rank 8")
    assert shown == [({pins.RECORD: {"reading": "0-based", "text": "rank 8"}}, {})]


def test_outside_a_notebook_nothing_is_shown_and_the_pin_is_kept(monkeypatch, capsys):
    monkeypatch.setattr(pins, "PINNED", {})
    pin("quiet", 1)
    claim("part2.step", True, "")
    assert dict(pins.PINNED) == {"quiet": 1}
    assert capsys.readouterr().out == ""
