"""The logit lens: the final norm once, with each layer's own scale, on the right entry of the stream."""

import pytest
import torch
from made import Made
from small_models import tiny

from onematrix import layer, lens

PROMPT = [7, 3, 19, 4]


@pytest.fixture(params=["gpt2", "llama"])
def model(request):
    return tiny(request.param)


def norm64(model, x: torch.Tensor, scale_of: torch.Tensor | None = None) -> torch.Tensor:
    """The model's final norm in float64, written out; `scale_of` lends its statistics to `x`."""
    norm, x = model.final_norm, x.double()
    y = x if scale_of is None else scale_of.double()
    if hasattr(norm, "bias"):
        centred = x - x.mean(-1, keepdim=True)
        return centred / (y.var(-1, correction=0, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias
    return x / (y.square().mean(-1, keepdim=True) + norm.variance_epsilon).sqrt() * norm.weight


def stream64(model, prompt, position: int) -> torch.Tensor:
    """(blocks + 1, d) the raw stream at one position: transformers' hidden states, and a hook for the last block."""
    seen = []
    hook = model.blocks[-1].register_forward_hook(lambda _m, _i, out: seen.append(out))
    hidden = model.network(torch.tensor([prompt]), output_hidden_states=True).hidden_states
    hook.remove()
    last = seen[0][0] if isinstance(seen[0], tuple) else seen[0]
    return torch.stack([h[0, position] for h in (*hidden[:-1], last)]).double()


@pytest.mark.parametrize("position", [-1, 0, 2])
def test_every_layer_is_normed_once_by_itself_and_scored_against_every_row(model, position):
    stream = stream64(model, PROMPT, position)
    expected = norm64(model, stream) @ model.W.T.double()
    found = lens(model, model.states(PROMPT), position).double()
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_without_norm_the_raw_stream_is_scored(model):
    expected = stream64(model, PROMPT, -1) @ model.W.T.double()
    torch.testing.assert_close(lens(model, model.states(PROMPT), norm=False).double(), expected, atol=1e-5, rtol=1e-5)


def test_the_last_layer_is_the_models_own_output(model):
    states = model.states(PROMPT)
    own = model.network(torch.tensor([PROMPT])).logits[0]
    torch.testing.assert_close(states.logits, own)
    for position in range(len(PROMPT)):
        torch.testing.assert_close(lens(model, states, position)[-1], own[position], atol=1e-5, rtol=1e-5)


def test_the_mistakes_that_are_easy_to_make_would_not_pass(model):
    stream = stream64(model, PROMPT, -1)
    W = model.W.double()
    right = lens(model, model.states(PROMPT)).double()
    wrong = {
        "norm left out": stream @ W.T,
        "norm applied twice": norm64(model, norm64(model, stream)) @ W.T,
        "the last block's scale": norm64(model, stream, scale_of=stream[-1]) @ W.T,
        "one layer off": norm64(model, stream.roll(1, 0)) @ W.T,
        "the first position": norm64(model, stream64(model, PROMPT, 0)) @ W.T,
        "cosine for dot product": torch.nn.functional.normalize(norm64(model, stream))
        @ torch.nn.functional.normalize(W).T,
        "wrong sign": -right,
    }
    for name, values in wrong.items():
        assert (values - right).abs().max() > 0.05, name
    # on the last block itself its own scale is the right one
    torch.testing.assert_close(wrong["the last block's scale"][-1], right[-1], atol=1e-5, rtol=1e-5)


def test_all_layers_are_read_in_one_product_that_makes_nothing_but_its_result(model):
    states = model.states(PROMPT)
    with Made() as made:
        found = lens(model, states)
    assert [name for name in made.operations if "mm" in name or "mv" in name] == ["mm"]
    assert sorted(made.sizes)[-1] == found.numel()
    assert sum(made.sizes) <= found.numel() + states.stream.numel()


def test_layers_are_named_from_the_embedding():
    assert [layer(k) for k in (0, 1, 12)] == ["embedding", "block  1", "block 12"]
