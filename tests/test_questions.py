"""A question that cannot be answered gets one short error, expected and given, before any heavy work."""

import dataclasses

import numpy as np
import pytest
import torch
from small_models import MANIFEST, gpt2_network, llama_network, tiny, tokenizer
from torch.nn import Module

from onematrix import ModelError, by_autograd, closed_form, cosine, lens, load, models, neighbours, rank, top
from onematrix.gradients import step
from onematrix.models import LanguageModel

NAN = float("nan")
ROWS = torch.eye(5)
HOLED = torch.tensor([0.1, NAN, 0.3])


@pytest.fixture
def model(monkeypatch):
    """A small model whose network must not be run."""
    small = tiny("gpt2")
    monkeypatch.setattr(small.network, "forward", None)
    return small


def short(error: Exception) -> str:
    told = str(error)
    assert len(told) < 300
    assert "\n" not in told
    return told


QUESTIONS = {
    "an unknown model": (lambda m: load("gtp2"), ModelError, r"There is no model 'gtp2' here. Did you mean gpt2"),
    "a word of several tokens": (
        lambda m: m.id(" dogs"),
        ValueError,
        '" dogs" is not one token of Tiny: it reads " dog"',
    ),
    "a word of thousands": (lambda m: m.id("a" * 9999), ValueError, r'it reads "a", .*"a" and 9987 more$'),
    "no word": (lambda m: m.id(""), ValueError, "reads nothing"),
    "an empty prompt": (lambda m: m.states(""), ValueError, "the prompt is empty"),
    "no ids": (lambda m: m.states(()), ValueError, "the prompt is empty"),
    "a prompt past the context": (lambda m: m.states("a" * 13), ValueError, "has 13 tokens; Tiny reads at most 12"),
    "an id below": (lambda m: m.states([-1]), ValueError, "token ids must be 0 to 60, got -1 to -1"),
    "an id above": (lambda m: m.states([3, 61]), ValueError, "token ids must be 0 to 60, got 3 to 61"),
    "a half id": (lambda m: m.states([1.5]), TypeError, r"a text or a list of token ids, got \[1.5\]"),
    "words for ids": (lambda m: m.states([" dog"]), TypeError, r"a text or a list of token ids, got \[' dog'\]"),
    "no prompt": (lambda m: m.states(None), TypeError, "a text or a list of token ids, got None"),
    "one id": (lambda m: m.states(3), TypeError, "a text or a list of token ids, got 3"),
    "a batch": (lambda m: m.states(torch.ones(2, 3, dtype=torch.long)), TypeError, "a text or a list of token ids"),
    "an unknown token": (lambda m: m.text(61), ValueError, "token id 61 is out of range: Tiny has ids 0 to 60"),
    "a negative token": (lambda m: m.text(-1), ValueError, "token id -1 is out of range"),
    "a rank beyond": (lambda m: rank(ROWS[0], 5), ValueError, "index 5 is out of range for 5 scores"),
    "a rank from the end": (lambda m: rank(ROWS[0], -1), ValueError, "index -1 is out of range for 5 scores"),
    "a rank in a table": (lambda m: rank(ROWS, 1), ValueError, r"expected scores of shape \(V,\), got \(5, 5\)"),
    "a rank of NaN": (lambda m: rank(HOLED, 1), ValueError, "1 of 3 scores are not numbers"),
    "a rank among NaN": (lambda m: rank(HOLED, 0), ValueError, "1 of 3 scores are not numbers"),
    "the top among NaN": (lambda m: top(HOLED, 1), ValueError, "1 of 3 scores are not numbers"),
    "k of more than all": (lambda m: top(ROWS[0], 6), ValueError, "k must be 1 to 5, got 6"),
    "k of none": (lambda m: top(ROWS[0], 0), ValueError, "k must be 1 to 5, got 0"),
    "neighbours of nobody": (lambda m: neighbours(ROWS, 5, 1), ValueError, "index 5 is out of range for 5 rows"),
    "neighbours from the end": (lambda m: neighbours(ROWS, -1, 1), ValueError, "index -1 is out of range for 5 rows"),
    "more neighbours than rows": (lambda m: neighbours(ROWS, 0, 5), ValueError, "k must be 1 to 4, .* got 5"),
    "neighbours among NaN": (lambda m: neighbours(ROWS / 0, 0, 1), ValueError, "scores are not numbers"),
    "cosine of other widths": (lambda m: cosine(ROWS, ROWS[0, :3]), ValueError, r"got \(5, 5\) and \(3,\)"),
    "cosine of no table": (lambda m: cosine(ROWS[0], ROWS[0]), ValueError, r"expected rows \(V, d\) .* got \(5,\)"),
    "a step to nowhere": (lambda m: closed_form(ROWS, ROWS[0], 5), ValueError, "index 5 is out of range for 5 rows"),
    "a step from the end": (lambda m: closed_form(ROWS, ROWS[0], -1), ValueError, "index -1 is out of range"),
    "a step of other widths": (lambda m: closed_form(ROWS, ROWS[0, :3], 1), ValueError, r"got \(5, 5\) and \(3,\)"),
    "autograd to nowhere": (lambda m: by_autograd(ROWS, ROWS[0], -100), ValueError, "index -100 is out of range"),
    "a model's step to nowhere": (lambda m: step(m, m.W[0], 61), ValueError, "index 61 is out of range for 61 rows"),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_that_cannot_be_answered_says_what_was_expected_and_given(model, name):
    ask, kind, message = QUESTIONS[name]
    with pytest.raises(kind, match=message) as caught:
        ask(model)
    print(f"{name}: {short(caught.value)}")


@pytest.mark.parametrize("position", [2, -3, 100])
def test_a_position_that_is_not_in_the_prompt_is_refused(position):
    small = tiny("gpt2")
    with pytest.raises(ValueError, match=f"position {position} is out of range for a prompt of 2 tokens"):
        lens(small, small.states([1, 2]), position)


def broken(where: str, value: float) -> Module:
    network = gpt2_network()
    with torch.no_grad():
        network.get_parameter(where)[0] = value
    return network


@pytest.mark.parametrize("value", [NAN, float("inf")])
def test_weights_that_are_not_finite_are_found_wherever_they_are(value):
    with pytest.raises(ModelError, match="not finite"):
        LanguageModel(broken("transformer.wte.weight", value), tokenizer(), MANIFEST)
    inside = LanguageModel(broken("transformer.h.1.mlp.c_fc.weight", value), tokenizer(), MANIFEST)
    with pytest.raises(ModelError, match="Tiny gives logits that are not finite: its weights are damaged"):
        inside.states([1, 2])


def test_ids_of_any_whole_number_type_are_taken():
    small = tiny("gpt2")
    for ids in ([1, 2], (1, 2), torch.tensor([1, 2]), np.array([1, 2]), iter([1, 2]), [True, np.int8(2)]):
        assert small.states(ids).ids.tolist() == [1, 2]


def test_an_untied_model_is_never_taken_for_a_tied_one():
    """Equal values, equal shapes, even views of one storage that begin elsewhere: only one tensor is tied."""
    untied = LanguageModel(llama_network(tie_word_embeddings=False), tokenizer(), MANIFEST)
    assert not untied.tied
    assert repr(untied).endswith("untied")
    scores = lens(untied, untied.states([1, 2]))[-1]
    torch.testing.assert_close(scores, untied.network(torch.tensor([[1, 2]])).logits[0, -1])
    assert not torch.allclose(scores, untied.states([1, 2]).x @ untied.W.T, atol=0.1)


def test_an_error_leaves_the_session_as_it_was(monkeypatch):
    """After a question that failed the same model answers the next."""
    small = tiny("gpt2")
    monkeypatch.setattr(models, "OPEN", [small])
    before = small.states([1, 2]).logits
    for bad in ([], [99], None, "a" * 50):
        with pytest.raises((ValueError, TypeError)):
            small.states(bad)
    with pytest.raises(ModelError):
        load("nobody")
    assert [small] == models.OPEN
    assert torch.equal(small.states([1, 2]).logits, before)
    assert dataclasses.is_dataclass(small.states([1]))
