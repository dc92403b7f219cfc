"""Every family's adapter against the network itself: a tiny network of the family's real classes, drawn at random.

`python tests/test_families.py` prints how far the lens at the last block is from each network's own logits.
"""

import inspect
from functools import cache

import pytest
import torch
import transformers
from small_models import MANIFEST, randomise, tokenizer
from torch.nn import functional as F

from onematrix import ModelError, closed_form, families, lens, step
from onematrix.models import LanguageModel

PROMPT = [7, 3, 19, 4]
COMMON = {
    **{"vocab_size": 61, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 12},
    **{"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0},
}
PLAIN = {k: v for k, v in COMMON.items() if k not in ("num_key_value_heads", "head_dim")}
GPT = {
    "vocab_size": 61,
    "n_embd": 16,
    "n_layer": 3,
    "n_head": 2,
    "n_positions": 12,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
OPT = PLAIN | {"ffn_dim": 24, "word_embed_proj_dim": 8}

# name -> transformers' prefix of the classes, settings; several of one family where its sizes are built differently
NETWORKS = {
    "bloom": ("Bloom", {"vocab_size": 61, "hidden_size": 16, "n_layer": 3, "n_head": 2}),
    "cohere": ("Cohere", COMMON),
    "cohere2": ("Cohere2", COMMON),
    "falcon": ("Falcon", PLAIN),
    "gemma": ("Gemma", COMMON),
    "gemma2": ("Gemma2", COMMON | {"final_logit_softcapping": 3.0, "sliding_window": 2}),
    "gemma3_text": ("Gemma3", COMMON | {"sliding_window": 2}),
    "gemma3_text capped": ("Gemma3", COMMON | {"final_logit_softcapping": 3.0}),
    "gpt2": ("GPT2", GPT),
    "gpt_neo": ("GPTNeo", PLAIN | {"num_layers": 3, "num_heads": 2, "attention_types": [[["global"], 3]]}),
    "gpt_neox": ("GPTNeoX", PLAIN),
    "gpt_neox sequential": ("GPTNeoX", PLAIN | {"use_parallel_residual": False}),
    "gptj": ("GPTJ", GPT | {"rotary_dim": 4}),
    "granite": ("Granite", COMMON | {"logits_scaling": 2.5, "embedding_multiplier": 3.0, "residual_multiplier": 0.5}),
    "llama": ("Llama", COMMON),
    "mistral": ("Mistral", COMMON),
    "mixtral": ("Mixtral", COMMON),
    "olmo": ("Olmo", COMMON),
    "olmo2": ("Olmo2", COMMON),
    "opt": ("OPT", OPT | {"word_embed_proj_dim": 16}),
    "opt narrow": ("OPT", OPT),
    "opt narrow, no norm": ("OPT", OPT | {"do_layer_norm_before": False}),  # OPT-350M
    "phi": ("Phi", PLAIN),
    "phi3": ("Phi3", COMMON),
    "qwen2": ("Qwen2", COMMON),
    "qwen3": ("Qwen3", COMMON),
}
WITHOUT_ADAPTER = {  # served by the common one
    "olmo3": ("Olmo3", COMMON),
    "smollm3": ("SmolLM3", COMMON),
    "stablelm": ("StableLm", COMMON),
    "starcoder2": ("Starcoder2", PLAIN),
}


def network(prefix: str, settings: dict, tied: bool):
    config = getattr(transformers, f"{prefix}TextConfig", None) or getattr(transformers, f"{prefix}Config")
    kind = getattr(transformers, f"{prefix}ForCausalLM", None) or getattr(transformers, f"{prefix}LMHeadModel")
    return randomise(kind(config(**settings, tie_word_embeddings=tied)))


@cache
def opened(name: str, tied: bool = True) -> LanguageModel:
    return LanguageModel(network(*(NETWORKS | WITHOUT_ADAPTER)[name], tied), tokenizer(), MANIFEST)


@pytest.fixture(params=[*NETWORKS, *WITHOUT_ADAPTER])
def name(request):
    return request.param


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def model(name, request):
    return opened(name, request.param)


@pytest.fixture
def own(model):
    """The network's own logits and hidden states."""
    with torch.no_grad():
        return model.network(torch.tensor([PROMPT]), output_hidden_states=True, use_cache=False)


def test_every_adapter_is_tried():
    assert {name.split()[0] for name in NETWORKS} == families.FAMILIES.keys()
    assert not families.FAMILIES.keys() & WITHOUT_ADAPTER.keys()
    for name in NETWORKS:
        assert opened(name).network.config.model_type == name.split()[0]


def test_the_lens_at_the_last_block_is_the_output(model, own):
    read = lens(model, model.states(PROMPT))
    assert read.shape == (4, 61)
    torch.testing.assert_close(read[-1], own.logits[0, -1], atol=1e-6, rtol=1e-6)
    assert (read[-2] - read[-1]).abs().max() > 1e-3  # the last block is one that counts


def test_the_stream_is_the_networks_raw_hidden_states(model, own):
    states = model.states(PROMPT)
    hidden = [h[0] for h in own.hidden_states]
    assert len(hidden) == len(states.stream) == len(model.blocks) + 1 == 4
    for k in range(3):
        assert torch.equal(states.stream[k], hidden[k]), k
    torch.testing.assert_close(states.normed[3], hidden[3], atol=1e-6, rtol=1e-6)
    assert torch.equal(states.logits, own.logits[0])


def test_both_ends_are_the_networks_own(model, name, request):
    tied = request.node.callspec.params["model"]
    assert model.tied is tied
    assert torch.equal(model.W, model.U) is tied
    assert model.W is model.network.get_input_embeddings().weight
    assert model.U is model.network.get_output_embeddings().weight
    assert (model.V, model.d) == model.W.shape == (61, 8 if "narrow" in name else 16)


def test_logits_are_scores_and_what_the_family_adds(model, name):
    states = model.states(PROMPT)
    scores = states.normed[-1] @ model.U.T
    family = name.split()[0]
    added = {
        "gemma2": lambda z: 3 * torch.tanh(z / 3),
        "cohere": lambda z: z * model.network.config.logit_scale,
        "cohere2": lambda z: z * model.network.config.logit_scale,
        "granite": lambda z: z / 2.5,
        "gptj": lambda z: z + model.network.lm_head.bias,
        "phi": lambda z: z + model.network.lm_head.bias,
    }
    change = added["gemma2"] if "capped" in name else added.get(family, lambda z: z)
    torch.testing.assert_close(change(scores), states.logits, atol=1e-5, rtol=1e-5)
    assert torch.allclose(scores, states.logits, atol=1e-3) is (family not in added and "capped" not in name)


def test_a_step_is_the_gradient_through_the_whole_head(model):
    x, target = model.states(PROMPT).x, 5
    made = step(model, x, target)
    x_leaf = x.clone().requires_grad_()
    model.U.requires_grad_(True)
    try:
        loss = F.cross_entropy(model.head(x_leaf)[None], torch.tensor([target]))
        dU, dx = torch.autograd.grad(loss, (model.U, x_leaf))
    finally:
        model.U.requires_grad_(False)
    torch.testing.assert_close(torch.outer(made.rows, x), dU, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(made.x, dx, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(made.p, model.states(PROMPT).logits[-1].softmax(dim=0), atol=1e-6, rtol=1e-5)
    assert made.loss == pytest.approx(loss.item(), rel=1e-5)
    assert not made.p.requires_grad
    assert not model.network.get_output_embeddings()._forward_hooks


def test_a_step_is_the_closed_form_where_logits_are_scores_alone():
    model = opened("llama")
    x = model.states(PROMPT).x
    made, closed = step(model, x, 5), closed_form(model.U, x, 5)
    for one, other in ((made.p, closed.p), (made.rows, closed.rows), (made.x, closed.x)):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)


def test_gemmas_rows_enter_times_the_root_of_their_width():
    for name in ("gemma", "gemma2", "gemma3_text"):
        model = opened(name)
        torch.testing.assert_close(model.states(PROMPT).stream[0], 4 * model.W[PROMPT], atol=1e-6, rtol=1e-6)


def test_opts_narrow_rows_are_projected_both_ways():
    model = opened("opt narrow")
    decoder, states = model.network.model.decoder, model.states(PROMPT)
    assert states.stream.shape == (4, 4, 16)
    assert states.normed.shape == (4, 4, 8)
    assert states.x.shape == (8,)
    positions = decoder.embed_positions.weight[2:6]  # its positions begin at two
    torch.testing.assert_close(states.stream[0], decoder.project_in(model.W[PROMPT]) + positions, atol=1e-6, rtol=1e-6)
    with pytest.raises(ValueError, match="the raw stream of Tiny is 16 wide and its rows 8"):
        lens(model, states, norm=False)


def test_a_family_without_positions_in_its_configuration_reads_what_its_tokenizer_allows():
    assert opened("bloom").context == tokenizer().model_max_length


# ------------------------------------------------------------------ unknown families


def test_an_unknown_family_under_other_names_is_refused():
    mpt = network("Mpt", {"vocab_size": 61, "d_model": 16, "n_layers": 3, "n_heads": 2}, tied=True)
    known = "there is one for bloom, cohere, .* qwen3. Add a line to FAMILIES in onematrix/families.py: CONTRIBUTING.md"
    with pytest.raises(
        ModelError, match=f"No adapter for the family 'mpt', and the common one does not fit it; {known}"
    ):
        LanguageModel(mpt, tokenizer(), MANIFEST)


@pytest.mark.parametrize("name", ["gemma2", "cohere", "granite"])
def test_an_unknown_family_with_the_common_names_and_another_head_is_refused(monkeypatch, name):
    monkeypatch.delitem(families.FAMILIES, name)
    with pytest.raises(ModelError, match=f"No adapter for the family '{name}'"):
        LanguageModel(network(*NETWORKS[name], tied=True), tokenizer(), MANIFEST)


def test_an_unknown_family_with_the_common_names_and_head_is_served(monkeypatch):
    monkeypatch.delitem(families.FAMILIES, "qwen3")
    model = LanguageModel(network(*NETWORKS["qwen3"], tied=True), tokenizer(), MANIFEST)
    assert not any(block._forward_hooks for block in model.blocks)


def main() -> None:
    print(f"{'network':22s} {'adapter':8s} lines  lens at the last block, largest difference from the logits")
    for name in [*NETWORKS, *WITHOUT_ADAPTER]:
        off = []
        for tied in (True, False):
            model = opened(name, tied)
            states = model.states(PROMPT)
            off.append((model.logits(states.normed[-1]) - states.logits).abs().max().item())
        adapter = families.FAMILIES.get(name.split()[0], families.common)
        lines = len(inspect.getsource(adapter).strip().splitlines())
        print(f"{name:22s} {adapter.__name__:8s} {lines:5d}  {off[0]:.1e} tied, {off[1]:.1e} untied")


if __name__ == "__main__":
    main()
