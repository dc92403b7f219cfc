"""A model opened at both ends: the documents' GPT-2 path at full size, and both families on small networks.

GPT-2's own weights cannot be had everywhere, so the full-size model has GPT-2's exact configuration and
file layout with random values, and only the pinned size and hash are replaced by its own.
"""

import gc
import json
import shutil

import pytest
import torch
from huggingface_hub import constants
from safetensors import safe_open
from safetensors.torch import save_file
from small_models import MANIFEST, gpt2_network, into_hub_cache, llama_network, pinned, real_tokenizer, tiny, tokenizer
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from onematrix import ModelError, load, models, weights
from onematrix.models import LanguageModel

# ------------------------------------------------------------------ GPT-2 at full size

CONFIG = {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "bos_token_id": 50256,
    "embd_pdrop": 0.1,
    "eos_token_id": 50256,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "resid_pdrop": 0.1,
    "vocab_size": 50257,
}


def write_gpt2(into) -> None:
    """The files of the Hub's GPT-2 repository with random values.

    Its weights are an old checkpoint's: no `transformer.` before the names, no `lm_head.weight`, and the
    causal masks saved as if they were weights.
    """
    with torch.device("meta"):
        shapes = GPT2LMHeadModel(GPT2Config(**CONFIG)).transformer.state_dict()
    generator = torch.Generator().manual_seed(0)
    tensors = {name: 0.02 * torch.randn(value.shape, generator=generator) for name, value in shapes.items()}
    for name in tensors:
        if "ln_" in name and name.endswith("weight"):
            tensors[name] += 1
    mask = torch.ones(1024, 1024).tril()[None, None]
    tensors |= {f"h.{k}.attn.bias": mask.clone() for k in range(12)}
    save_file(tensors, into / "model.safetensors", metadata={"format": "pt"})
    (into / "config.json").write_text(json.dumps(CONFIG))
    real_tokenizer().save_pretrained(into)
    parts = json.loads((into / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    (into / "vocab.json").write_text(json.dumps(parts["vocab"]), encoding="utf-8")
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in parts["merges"]]
    (into / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]), encoding="utf-8")
    (into / "tokenizer_config.json").write_text('{"model_max_length": 1024}')


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """An empty machine: a Hub client's cache with the snapshot of GPT-2's shape, no network, no model opened yet."""
    home = tmp_path_factory.mktemp("gpt2")
    (home / "files").mkdir()
    write_gpt2(home / "files")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONEMATRIX_CACHE", str(home / "onematrix"))
        patch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        source = pinned(weights.SOURCES["gpt2"], home / "files" / "model.safetensors")
        patch.setitem(weights.SOURCES, "gpt2", source)
        patch.setattr(models, "OPEN", [])
        yield home, into_hub_cache(home / "hub", source, home / "files")
    shutil.rmtree(home)  # half a gigabyte that pytest would keep for three runs


@pytest.fixture(scope="module")
def gpt2(place):
    yield load("gpt2")
    models.OPEN.clear()
    gc.collect()


@pytest.fixture(scope="module")
def pass_(gpt2):
    """One pass over "The dog": transformers' hidden states, and ours."""
    return gpt2.network(torch.tensor([[464, 3290]]), output_hidden_states=True), gpt2.states("The dog")


def saved(snapshot, name: str) -> torch.Tensor:
    with safe_open(snapshot / "model.safetensors", "pt") as file:
        return file.get_tensor(name)


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    x = x.double()
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt() * weight + bias


def test_the_snapshot_has_the_layout_and_nearly_the_size_of_the_real_one(place):
    _, snapshot = place
    assert (snapshot / "model.safetensors").is_symlink()
    size = (snapshot / "model.safetensors").stat().st_size
    assert abs(size - 548105171) < 100  # same names, same shapes: only the padding of the header differs


def test_gpt2_is_opened_from_the_snapshot_by_its_name(gpt2, place):
    _, snapshot = place
    assert repr(gpt2) == "GPT-2 124M: V = 50257, d = 768, 12 blocks, tied"
    assert type(gpt2.network) is GPT2LMHeadModel
    assert (gpt2.name, gpt2.revision) == ("gpt2", snapshot.name)
    assert gpt2.sha256 == weights.SOURCES["gpt2"].sha256
    assert torch.equal(gpt2.W, saved(snapshot, "wte.weight"))
    assert torch.equal(gpt2.final_norm.bias, saved(snapshot, "ln_f.bias"))
    assert torch.equal(gpt2.blocks[11].mlp.c_fc.weight, saved(snapshot, "h.11.mlp.c_fc.weight"))


def test_auto_takes_gpt2_where_its_weights_are_and_opens_it_once(gpt2):
    assert load("auto") is gpt2
    assert load("gpt2") is gpt2


def test_the_weights_are_not_copied(place, gpt2):
    home, snapshot = place
    assert (home / "onematrix" / "gpt2" / "model.safetensors").samefile(snapshot / "model.safetensors")


def test_parameters_are_those_of_gpt2_tied_and_untied(gpt2):
    assert sum(p.numel() for p in gpt2.network.parameters()) == 124439808
    with torch.device("meta"):
        untied = GPT2LMHeadModel(GPT2Config(**CONFIG, tie_word_embeddings=False))
    assert sum(p.numel() for p in untied.parameters()) == 163037184
    assert 163037184 - 124439808 == gpt2.W.numel() == 50257 * 768


def test_both_ends_are_one_storage(gpt2):
    assert gpt2.U is gpt2.W
    assert gpt2.tied
    kept = gpt2.W[42].clone()
    gpt2.network.lm_head.weight[42] += 1
    try:
        looked_up = gpt2.network.transformer.wte(torch.tensor(42))
        assert torch.equal(looked_up, kept + 1)
    finally:
        gpt2.network.lm_head.weight[42] = kept


def test_the_first_hidden_state_is_token_plus_position(pass_, place):
    out, states = pass_
    _, snapshot = place
    wte, wpe = saved(snapshot, "wte.weight"), saved(snapshot, "wpe.weight")
    expected = wte[[464, 3290]] + wpe[:2]
    torch.testing.assert_close(out.hidden_states[0][0], expected, atol=0, rtol=0)
    torch.testing.assert_close(states.stream[0], expected, atol=0, rtol=0)
    assert not torch.allclose(states.stream[0], wte[[464, 3290]], atol=1e-3)  # wte alone is not it


def test_hidden_states_are_raw_blocks_and_the_last_is_normed_already(gpt2, pass_, place):
    out, states = pass_
    _, snapshot = place
    hidden = [h[0] for h in out.hidden_states]
    assert len(hidden) == 13
    assert states.stream.shape == (13, 2, 768)
    torch.testing.assert_close(torch.stack(hidden[:-1]), states.stream[:-1], atol=0, rtol=0)

    raw = gpt2.blocks[11](hidden[11][None])
    raw = raw[0][0] if isinstance(raw, tuple) else raw[0]
    torch.testing.assert_close(states.stream[12], raw, atol=1e-5, rtol=1e-5)

    ln_f = saved(snapshot, "ln_f.weight").double(), saved(snapshot, "ln_f.bias").double()
    normed = layer_norm(states.stream[12], *ln_f)
    torch.testing.assert_close(hidden[12].double(), normed, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(states.normed[12].double(), normed, atol=1e-5, rtol=1e-5)
    assert (hidden[12] - states.stream[12]).abs().max() > 0.1
    assert (layer_norm(normed, *ln_f) - normed).abs().max() > 1e-2  # applied twice it would show


def test_logits_are_the_last_hidden_state_times_the_embedding(pass_, place):
    out, states = pass_
    _, snapshot = place
    expected = out.hidden_states[12][0].double() @ saved(snapshot, "wte.weight").double().T
    torch.testing.assert_close(states.logits.double(), expected, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(out.logits[0], states.logits, atol=0, rtol=0)
    assert torch.equal(states.x, states.normed[12, 1])


def test_gpt2s_tokens_are_the_documents(gpt2):
    assert gpt2.ids("The dog") == [464, 3290]
    assert gpt2.ids("The sky is") == [464, 6766, 318]
    assert (gpt2.id(" blue"), gpt2.id(" the"), gpt2.id(" cat"), gpt2.id(" was")) == (4171, 262, 3797, 373)
    assert gpt2.text(3290) == " dog"
    assert gpt2.context == 1024


# ------------------------------------------------------------------ both families, small


@pytest.fixture(params=["gpt2", "llama"])
def model(request):
    return tiny(request.param)


PROMPT = [7, 3, 19, 4]


def test_the_stream_is_what_enters_and_leaves_the_blocks(model):
    states = model.states(PROMPT)
    hidden = model.network(torch.tensor([PROMPT]), output_hidden_states=True).hidden_states
    assert states.stream.shape == states.normed.shape == (4, 4, 16)
    for k in range(3):
        torch.testing.assert_close(states.stream[k], hidden[k][0], atol=0, rtol=0)
    torch.testing.assert_close(states.normed[3], hidden[3][0], atol=1e-6, rtol=1e-6)
    # the last hidden state of transformers is normed: taking it for the stream would show
    assert (states.stream[3] - hidden[3][0]).abs().max() > 0.1
    assert (model.final_norm(states.normed[3]) - hidden[3][0]).abs().max() > 0.01
    # and so would a stream that is one block off
    assert (states.stream[1:] - states.stream[:-1]).abs().amax(dim=(1, 2)).min() > 0.1


def test_the_embedding_enters_as_the_family_has_it(model):
    states, rows = model.states(PROMPT), model.W[PROMPT]
    if model.network.config.model_type == "gpt2":
        rows = rows + model.network.transformer.wpe.weight[:4]
    torch.testing.assert_close(states.stream[0], rows, atol=0, rtol=0)


def test_x_meets_the_unembedding_at_the_last_position(model):
    states = model.states(PROMPT)
    torch.testing.assert_close(states.x @ model.U.T, states.logits[-1], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(states.normed[-1, 0] @ model.U.T, states.logits[-1], atol=0.1)  # the first position


def test_a_later_token_changes_nothing_before_it(model):
    one, two = model.states(PROMPT), model.states([*PROMPT, 11])
    torch.testing.assert_close(one.stream, two.stream[:, :4], atol=1e-5, rtol=1e-5)


def test_a_pass_is_repeatable_and_leaves_no_trace(model):
    hooks = [len(b._forward_hooks) + len(b._forward_pre_hooks) for b in model.blocks]
    one, two = model.states(PROMPT), model.states(PROMPT)
    assert torch.equal(one.logits, two.logits)  # no dropout
    assert not one.logits.requires_grad
    assert hooks == [len(b._forward_hooks) + len(b._forward_pre_hooks) for b in model.blocks]


def test_a_pass_that_fails_leaves_no_hooks():
    model = LanguageModel(gpt2_network(), tokenizer(), MANIFEST)
    model.blocks[1].forward = None
    with pytest.raises(TypeError):
        model.states(PROMPT)
    assert all(not b._forward_hooks and not b._forward_pre_hooks for b in model.blocks)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "the prompt is empty"),
        ([], "the prompt is empty"),
        ([3, 61], "token ids must be 0 to 60, got 3 to 61"),
        ([-1, 3], "token ids must be 0 to 60, got -1 to 3"),
        ([1] * 13, "the prompt has 13 tokens; Tiny reads at most 12"),
    ],
)
def test_a_prompt_that_cannot_be_run_is_refused_before_any_work(model, monkeypatch, prompt, message):
    monkeypatch.setattr(model.network, "forward", None)
    with pytest.raises(ValueError, match=message):
        model.states(prompt)


def test_as_many_tokens_as_the_context_holds_are_read(model):
    assert model.states([1] * 12).logits.shape == (12, 61)


@pytest.mark.parametrize("network", [gpt2_network, llama_network])
def test_equal_values_in_two_places_are_not_tied(network):
    untied = network(tie_word_embeddings=False)
    with torch.no_grad():
        untied.get_output_embeddings().weight.copy_(untied.get_input_embeddings().weight)
    model = LanguageModel(untied, tokenizer(), MANIFEST)
    assert torch.equal(model.W, model.U)
    assert not model.tied
    assert "untied" in repr(model)
    assert tiny("gpt2").tied
    assert tiny("llama").tied


def test_an_untied_model_reads_at_one_end_and_scores_at_the_other():
    untied = llama_network(tie_word_embeddings=False)
    model = LanguageModel(untied, tokenizer(), MANIFEST)
    states = model.states(PROMPT)
    assert torch.equal(states.stream[0], model.W[PROMPT])
    torch.testing.assert_close(states.x @ model.U.T, states.logits[-1], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(model.W, model.U, atol=0.1)


def test_values_that_are_not_finite_are_refused():
    network = gpt2_network()
    with torch.no_grad():
        network.transformer.wte.weight[5, 2] = torch.nan
    with pytest.raises(ModelError, match="The embedding of Tiny holds values that are not finite"):
        LanguageModel(network, tokenizer(), MANIFEST)


def test_shapes_and_parts_are_the_networks_own(model):
    assert (model.V, model.d, model.context) == (61, 16, 12)
    assert isinstance(model.blocks, nn.ModuleList)
    assert len(model.blocks) == 3
    assert not model.network.training
    assert not any(p.requires_grad for p in model.network.parameters())


# ------------------------------------------------------------------ tokens


def test_one_token_is_found_and_several_are_shown(model):
    assert model.has(" dog")
    assert model.text(model.id(" dog")) == " dog"
    assert model.shown(model.id(" dog")) == '" dog"'
    assert not model.has("dog")  # without its leading space it is three letters here
    with pytest.raises(ValueError, match='"dog" is not one token of Tiny: it reads "d", "o", "g"'):
        model.id("dog")
    with pytest.raises(ValueError, match='"" is not one token of Tiny: it reads nothing'):
        model.id("")


def test_no_beginning_of_text_token_is_added(model):
    assert model.tokenizer.encode("The dog")[0] == 0  # the tokenizer would
    assert [model.text(i) for i in model.ids("The dog")] == ["The", " dog"]
    assert model.states("The dog").ids.tolist() == model.ids("The dog")


@pytest.mark.parametrize("index", [-1, 61])
def test_a_token_id_that_does_not_exist_is_refused(model, index):
    with pytest.raises(ValueError, match=f"token id {index} is out of range: Tiny has ids 0 to 60"):
        model.text(index)
