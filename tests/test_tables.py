"""Two tables of rows compared, on tables whose likeness is known."""

import pytest
import torch
from small_models import MANIFEST, gpt2_network, tokenizer

from onematrix import common_tokens, likeness
from onematrix.models import LanguageModel


@pytest.fixture
def rows():
    return torch.randn(400, 24, generator=torch.Generator().manual_seed(1)) * torch.linspace(0.5, 3, 400)[:, None]


def test_a_table_is_like_itself_and_like_itself_in_other_lengths(rows):
    for other in (rows, rows * torch.linspace(1, 9, 400)[:, None]):
        alike = likeness(rows, other)
        assert alike.tokens == 400
        assert alike.cosine == pytest.approx(1)
        assert abs(alike.strangers) < 0.1
        assert alike.neighbours == 1
        assert alike.chance == 10 / 399


def test_a_turned_table_keeps_its_neighbours_and_loses_its_cosines(rows):
    turn, _ = torch.linalg.qr(torch.randn(24, 24, generator=torch.Generator().manual_seed(2)))
    alike = likeness(rows, rows @ turn)
    assert alike.neighbours == pytest.approx(1, abs=1e-3)
    assert abs(alike.cosine) < 0.3


def test_tables_that_have_nothing_to_do_with_each_other_share_what_chance_gives(rows):
    alike = likeness(rows, torch.randn(400, 24, generator=torch.Generator().manual_seed(3)))
    assert alike.neighbours == pytest.approx(alike.chance, abs=0.01)


def test_tables_of_other_widths_have_no_cosine(rows):
    alike = likeness(rows, torch.cat([rows, torch.zeros(400, 3)], dim=1), k=5)
    assert (alike.cosine, alike.strangers) == (None, None)
    assert alike.neighbours == 1


def test_neighbours_are_counted_as_a_loop_would_count_them(rows):
    few, other = rows[:30], rows[:30] + 0.7 * rows[100:130]
    unit = [torch.nn.functional.normalize(table, dim=1) for table in (few, other)]
    shared = 0
    for i in range(30):
        near = [[j for j in (u @ u[i]).argsort(descending=True).tolist() if j != i][:3] for u in unit]
        shared += len(set(near[0]) & set(near[1]))
    assert likeness(few, other, k=3).neighbours == pytest.approx(shared / 90)


@pytest.mark.parametrize(("n", "k"), [(399, 10), (400, 0), (400, 400)])
def test_what_cannot_be_compared_is_refused(rows, n, k):
    with pytest.raises(ValueError, match=f"got 400 and {n} rows and k = {k}"):
        likeness(rows, rows[:n], k)


def test_common_tokens_are_found_by_their_text_and_only_where_it_is_theirs_alone():
    a = LanguageModel(gpt2_network(), tokenizer(), MANIFEST)
    b = LanguageModel(gpt2_network(vocab_size=50), tokenizer(), MANIFEST)
    ids = common_tokens(a, b)
    assert ids.shape[1] == 2
    assert all(a.text(i) == b.text(j) for i, j in ids.tolist())
    texts = [a.text(i) for i in ids[:, 0].tolist()]
    assert " dog" in texts
    assert "" not in texts  # what the ids beyond the tokenizer's read as
    assert len(set(texts)) == len(texts)
