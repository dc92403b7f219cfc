"""Ranks, neighbours and cosines against plain arithmetic, and next to the mistakes that are easy to make."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made import Made

from onematrix import cosine, neighbours, rank, top
from onematrix import rows as module

SCORES = st.lists(st.integers(-5, 5), min_size=1, max_size=30)


@pytest.fixture
def rows() -> torch.Tensor:
    """Forty rows of very different lengths, so that a cosine and a dot product order them differently."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.logspace(-2, 2, 40)
    return torch.randn(40, 7, generator=generator) * lengths[torch.randperm(40, generator=generator), None]


def plain_cosine(a, b) -> float:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def test_cosine_is_the_dot_product_over_both_lengths(rows):
    x = rows[3] + 0.5
    expected = torch.tensor([plain_cosine(r, x.double().tolist()) for r in rows.double().tolist()])
    torch.testing.assert_close(cosine(rows, x).double(), expected.double(), atol=1e-6, rtol=0)
    assert not torch.allclose(rows @ x, expected, atol=0.1)  # a dot product would not pass


def test_cosine_takes_several_vectors_at_once(rows):
    together = cosine(rows, rows[:5])
    assert together.shape == (5, 40)
    for x, row in zip(rows[:5], together, strict=True):
        torch.testing.assert_close(row, cosine(rows, x))


@pytest.mark.parametrize("numbers", [1, 7, 20, 7 * 13, 10_000])
def test_a_cosine_is_the_same_in_blocks_of_any_size(rows, numbers, monkeypatch):
    expected = rows.double() @ rows[:3].double().T
    expected /= rows.double().square().sum(1, keepdim=True).sqrt() * rows[:3].double().square().sum(1).sqrt()
    monkeypatch.setattr(module, "BLOCK", numbers)
    torch.testing.assert_close(cosine(rows, rows[:3]).double(), expected.T, atol=1e-6, rtol=0)
    torch.testing.assert_close(cosine(rows, rows[2]).double(), expected[:, 2], atol=1e-6, rtol=0)


def test_a_change_of_the_rows_is_seen_however_it_is_made(rows):
    x, before = rows[0].clone(), cosine(rows, rows[0])
    rows[5] = rows[0]
    assert cosine(rows, x)[5] == pytest.approx(1)
    rows.data[6] = -rows[0]  # torch's own count of changes does not see this one
    assert cosine(rows, x)[6] == pytest.approx(-1)
    rows.numpy()[7] = 2 * rows[0].numpy()
    assert cosine(rows, x)[7] == pytest.approx(1)
    assert before[5:8].abs().max() < 0.99


def test_no_second_table_is_made(rows, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 5 * 7)
    with Made() as made:
        cosine(rows, rows[0])
    assert max(made.sizes) <= 40  # one number a row; the table has 280


def test_cosine_does_not_see_lengths_and_bears_a_zero_row(rows):
    torch.testing.assert_close(cosine(rows * 1000, rows[0] / 1000), cosine(rows, rows[0]))
    rows[5] = 0
    assert cosine(rows, rows[0])[5] == 0
    assert cosine(rows, rows[5]).isfinite().all()


def test_rank_counts_from_one_and_counts_the_token_itself():
    scores = torch.tensor([0.1, 0.9, -2.0, 0.5])
    assert [rank(scores, i) for i in range(4)] == [3, 1, 4, 2]
    from_zero = [int((scores > s).sum()) for s in scores]
    assert from_zero != [rank(scores, i) for i in range(4)]


def test_equal_scores_share_the_better_rank():
    scores = torch.tensor([1.0, 2.0, 2.0, 0.0])
    assert [rank(scores, i) for i in range(4)] == [3, 1, 1, 4]


@given(SCORES, st.data())
def test_rank_is_the_place_in_the_sorted_list(values, data):
    i = data.draw(st.integers(0, len(values) - 1))
    assert rank(torch.tensor(values), i) == 1 + sorted(values, reverse=True).index(values[i])


@pytest.mark.parametrize("index", [-1, 4])
def test_rank_refuses_an_index_that_is_not_there(index):
    with pytest.raises(ValueError, match=f"index {index} is out of range for 4 scores"):
        rank(torch.zeros(4), index)  # a negative one would count from the end


@given(SCORES, st.data())
def test_top_is_the_head_of_the_sorted_list(values, data):
    k = data.draw(st.integers(1, len(values)))
    found = top(torch.tensor(values), k)
    assert [score for _, score in found] == sorted(values, reverse=True)[:k]
    assert len({i for i, _ in found}) == k
    assert all(values[i] == score for i, score in found)


@pytest.mark.parametrize("k", [0, -1, 5])
def test_top_refuses_a_k_that_cannot_be(k):
    with pytest.raises(ValueError, match=f"k must be 1 to 4, got {k}"):
        top(torch.zeros(4), k)


def test_neighbours_are_by_cosine_without_the_row_itself(rows):
    cosines = {i: plain_cosine(r, rows[8].tolist()) for i, r in enumerate(rows.tolist()) if i != 8}
    expected = sorted(cosines, key=cosines.get, reverse=True)[:6]
    found = neighbours(rows, 8, 6)
    assert [i for i, _ in found] == expected
    assert [c for _, c in found] == pytest.approx([cosines[i] for i in expected], abs=1e-5)
    by_dot = (rows @ rows[8]).topk(7).indices.tolist()
    assert [i for i in by_dot if i != 8][:6] != expected


def test_a_copy_of_the_row_is_a_neighbour_and_the_rows_stay_as_they_were(rows):
    rows[20] = 3 * rows[8]  # cosine one, like the row itself
    before = rows.clone()
    assert neighbours(rows, 8, 1) == [(20, pytest.approx(1))]
    assert torch.equal(rows, before)
