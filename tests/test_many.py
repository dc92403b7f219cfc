"""What is asked of many at once is what the book's own functions say of one."""

import pytest
import torch
from small_models import tiny

from onematrix import cosine, lens, rank
from onematrix.many import (
    continued,
    drawn,
    gives_way,
    is_word,
    last_states,
    nearest,
    ranks,
    same_word,
    words_after,
)

FAMILIES = pytest.mark.parametrize("family", ["gpt2", "llama"])


def prompts(length: int, n: int = 9) -> torch.Tensor:
    return torch.randint(61, (n, length), generator=torch.Generator().manual_seed(length))


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (" dog", "dog", True),
        (" dog", " Dog", True),
        ("DOGS", " dog", True),
        (" box", " boxes", True),
        (" city", " cities", True),
        (" day", " dais", False),
        (" dog", " cat", False),
        (" dog", " doggy", False),
        (" big", " bigger", False),
    ],
)
def test_spellings_of_a_word(a, b, same):
    assert same_word(a, b) == same_word(b, a) == same


def test_a_word_is_a_space_and_letters():
    assert is_word(" dog")
    assert not any(map(is_word, ("dog", " ", "", " dog's", " 7", "  dog")))


@FAMILIES
def test_words_are_the_most_probable_that_look_like_words(family):
    model = tiny(family)
    logits = model.states("The").logits[-1]
    every = [i for i in range(len(model.tokenizer)) if is_word(model.text(i))]
    assert words_after(model, "The", 4).tolist() == sorted(every, key=lambda i: -logits[i])[:4]


@FAMILIES
@pytest.mark.parametrize("length", [1, 2, 7])
def test_many_prompts_are_each_prompt_alone(family, length, monkeypatch):
    monkeypatch.setattr("onematrix.many.BLOCK", 4)  # so that there are several batches
    model, ids = tiny(family), prompts(length)
    stream, x = last_states(model, ids)
    for n, prompt in enumerate(ids.tolist()):
        alone = model.states(prompt)
        torch.testing.assert_close(stream[:, n], alone.stream[:-1, -1])
        torch.testing.assert_close(x[n], alone.x)


@FAMILIES
def test_ranks_are_those_of_one(family, monkeypatch):
    monkeypatch.setattr("onematrix.many.BLOCK", 4)
    model = tiny(family)
    _, x = last_states(model, prompts(3))
    chosen = prompts(2)
    scores = x @ model.U.T
    expected = [[rank(row, i) for i in columns] for row, columns in zip(scores, chosen.tolist(), strict=True)]
    assert ranks(model, x, chosen).tolist() == expected


@FAMILIES
def test_nearest_rows_leave_the_word_and_its_spellings_out(family):
    model = tiny(family)
    dog = model.id(" dog")
    by_cosine = cosine(model.W, model.W[dog]).argsort(descending=True).tolist()
    second = by_cosine[1]
    assert nearest(model, torch.tensor([dog]), 3, same=lambda a, b: False).tolist() == [by_cosine[1:4]]
    taken = nearest(model, torch.tensor([dog]), 3, same=lambda a, b: b == model.text(second))
    assert taken.tolist() == [[i for i in by_cosine[1:] if model.text(i) != model.text(second)][:3]]


@FAMILIES
def test_a_word_gives_way_where_the_lens_first_has_another_on_top(family):
    model, ids = tiny(family), prompts(2, 40)
    expected = []
    for prompt in ids.tolist():
        on_top = [rank(row, prompt[-1]) == 1 for row in lens(model, model.states(prompt))]
        expected.append(on_top.index(False) if False in on_top else len(on_top))
    assert gives_way(model, *last_states(model, ids), ids[:, -1]).tolist() == expected
    assert len(set(expected)) > 1  # the prompts tell the layers apart


def test_tokens_are_drawn_by_their_probabilities():
    model = tiny("gpt2")
    _, x = last_states(model, prompts(3, 1))
    p = (x[0] @ model.U.T).softmax(dim=0)
    tokens = drawn(model, x.expand(20_000, -1), torch.Generator().manual_seed(0))
    shares = torch.bincount(tokens, minlength=61) / len(tokens)
    assert (shares - p).abs().max() < 0.02


@FAMILIES
def test_a_continuation_reads_what_it_drew(family):
    model, ids = tiny(family), prompts(2, 5)
    vectors, tokens = continued(model, ids, 4, torch.Generator().manual_seed(0))
    for step in range(4):
        _, x = last_states(model, torch.cat([ids, tokens[:step].T], dim=1))
        torch.testing.assert_close(vectors[step], x)
    again = torch.Generator().manual_seed(0)
    assert torch.equal(tokens, torch.stack([drawn(model, x, again) for x in vectors]))
