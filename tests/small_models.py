"""Small models for the unit tests: real architectures, random values, nothing that is one or zero by default.

A fresh transformers model has norm weights of one and biases of zero, on which half of all mistakes do not
show. Here every parameter is drawn at random.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from onematrix.models import LanguageModel
from onematrix.weights import Source, gpt2_tokenizer, sha256

MANIFEST = {"name": "tiny", "title": "Tiny", "revision": "1", "sha256": "0" * 64, "trained": False}
SHAPE = {"vocab_size": 61, "tie_word_embeddings": True}


def randomise(network: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """The network with every parameter redrawn: norm weights around one, all else around zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            values = torch.randn(parameter.shape, generator=generator)
            is_norm = parameter.ndim == 1 and "bias" not in name
            parameter.copy_(1 + 0.3 * values if is_norm else 0.3 * values)
    return network


def gpt2_network(**changes) -> GPT2LMHeadModel:
    settings = SHAPE | {"n_positions": 12, "n_embd": 16, "n_layer": 3, "n_head": 2, "eos_token_id": 0} | changes
    return randomise(GPT2LMHeadModel(GPT2Config(**settings, bos_token_id=0)))


def llama_network(**changes) -> LlamaForCausalLM:
    settings = {
        **SHAPE,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 12,
        **changes,
    }
    return randomise(LlamaForCausalLM(LlamaConfig(**settings)))


def tokenizer() -> PreTrainedTokenizerFast:
    """Letters, and " dog", " cat" and "The" as whole tokens; it adds a beginning-of-text token unless told not to."""
    letters = ["<s>", *" abcdefghijklmnopqrstuvwxyzT'"]
    merges = [(" ", "d"), (" d", "o"), (" do", "g"), (" ", "c"), (" c", "a"), (" ca", "t"), ("T", "h"), ("Th", "e")]
    vocabulary = {token: i for i, token in enumerate([*letters, *(a + b for a, b in merges)])}
    fast = Tokenizer(models.BPE(vocabulary, merges))
    fast.pre_tokenizer = pre_tokenizers.Split(Regex(r" ?\w+|."), "isolated")
    fast.decoder = decoders.Fuse()
    fast.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=fast, bos_token="<s>")


real_tokenizer = cache(gpt2_tokenizer)  # GPT-2's own, once for all tests: making it takes seconds


@cache
def tiny(family: str) -> LanguageModel:
    """A tied LanguageModel of three blocks, `gpt2` or `llama`; shared, so that no test may change it."""
    network = {"gpt2": gpt2_network, "llama": llama_network}[family]()
    return LanguageModel(network, tokenizer(), MANIFEST)


def into_hub_cache(hub: Path, source: Source, files: Path) -> Path:
    """Move a folder's files into a Hub client's cache as the client lays it out: blobs, and links to them by revision.

    Returns the snapshot's directory.
    """
    home = hub / f"models--{source.origin.replace('/', '--')}"
    blobs, snapshot = home / "blobs", home / "snapshots" / source.revision
    for directory in (blobs, snapshot, home / "refs"):
        directory.mkdir(parents=True)
    (home / "refs" / "main").write_text(source.revision)
    for file in files.iterdir():
        blob = blobs / sha256(file)
        file.rename(blob)
        (snapshot / file.name).symlink_to(Path("..") / ".." / "blobs" / blob.name)
    return snapshot


def pinned(source: Source, file: Path) -> Source:
    """The source with size and SHA-256 of this file in place of its own."""
    return replace(source, size=file.stat().st_size, sha256=sha256(file))
