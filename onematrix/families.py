"""Where each family of `transformers` keeps the parts the book looks at: its blocks, its final norm, its head.

tokens -> W -> (scale, projection, positions) -> block 1 ... block n -> final norm (projection) -> U x (+ bias, cap)
                                             the stream             the stream                x
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from onematrix.weights import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Parts:
    """One network's parts.

    Attributes:
        blocks: the transformer blocks, first one first.
        final_norm: all that lies between the last block and the unembedding: (..., width of the stream) -> (..., d).
        head: all that makes logits of x: (..., d) -> (..., V). `U x`, and what the family adds to it.
    """

    blocks: nn.ModuleList
    final_norm: nn.Module
    head: Callable[[Tensor], Tensor]


Adapter = Callable[["PreTrainedModel"], Parts]


def named(blocks: str, final_norm: str) -> Adapter:
    """The adapter of a family whose decoder has blocks and a norm under these names, and an ordinary head."""

    def adapter(network: PreTrainedModel) -> Parts:
        decoder: Any = network.get_decoder()
        return Parts(getattr(decoder, blocks), getattr(decoder, final_norm), unembedding(network))

    return adapter


common = named("layers", "norm")  # LLaMA's names, which most families took over


def unembedding(network: PreTrainedModel) -> Callable[[Tensor], Tensor]:
    """The network's output layer: `U x`, with a bias where the family has one (Phi, GPT-J)."""
    head: Any = network.get_output_embeddings()
    return head


def opt(network: PreTrainedModel) -> Parts:
    """Rows may be narrower than the stream, which is projected back after the norm; one size has no norm at all."""
    decoder: Any = network.get_decoder()
    last = [module for module in (decoder.final_layer_norm, decoder.project_out) if module is not None]
    return Parts(decoder.layers, nn.Sequential(*last), unembedding(network))


def gemma(network: PreTrainedModel) -> Parts:
    """Logits are squeezed into -cap to cap where there is a cap. (Rows enter the stream times sqrt(d).)"""
    plain, cap, head = common(network), network.config.get_text_config().final_logit_softcapping, unembedding(network)
    return Parts(plain.blocks, plain.final_norm, (lambda x: cap * torch.tanh(head(x) / cap)) if cap else head)


def scaled(factor: Callable[[Any], float]) -> Adapter:
    """The adapter of a family that multiplies its logits by a fixed factor."""

    def adapter(network: PreTrainedModel) -> Parts:
        plain, by, head = common(network), factor(network.config), unembedding(network)
        return Parts(plain.blocks, plain.final_norm, lambda x: by * head(x))

    return adapter


# transformers' `model_type` -> the adapter that finds the parts
FAMILIES: dict[str, Adapter] = {
    **dict.fromkeys(("llama", "mistral", "mixtral", "qwen2", "qwen3", "phi3", "gemma", "olmo", "olmo2"), common),
    **dict.fromkeys(("gpt2", "gpt_neo", "gptj", "bloom", "falcon"), named("h", "ln_f")),
    **dict.fromkeys(("gemma2", "gemma3_text"), gemma),
    **dict.fromkeys(("cohere", "cohere2"), scaled(lambda config: config.logit_scale)),
    "granite": scaled(lambda config: 1 / config.logits_scaling),
    "gpt_neox": named("layers", "final_layer_norm"),
    "opt": opt,
    "phi": named("layers", "final_layernorm"),
}


def parts(network: PreTrainedModel) -> Parts:
    """The parts of a causal model: by its family's adapter, or under the common names where those prove right.

    Raises:
        ModelError: an unknown family that is not built as most families are.
    """
    family = network.config.get_text_config().model_type
    if family in FAMILIES:
        return FAMILIES[family](network)
    try:
        found = common(network)
    except AttributeError:
        found = None
    if found is None or not proves_right(network, found):
        raise ModelError(
            f"No adapter for the family {family!r}, and the common one does not fit it; "
            f"there is one for {', '.join(sorted(FAMILIES))}. "
            "Add a line to FAMILIES in onematrix/families.py: CONTRIBUTING.md, Add a model."
        )
    return found


@torch.no_grad()
def proves_right(network: PreTrainedModel, found: Parts) -> bool:
    """Whether norm and head, applied to what leaves the last of these blocks, give the network's own output."""
    left: list[Tensor] = []
    hook = found.blocks[-1].register_forward_hook(lambda *call: left.append(leaving(call[2])))
    try:
        own = network(torch.tensor([[0, 1]]), use_cache=False).logits
    finally:
        hook.remove()
    return len(left) == 1 and torch.allclose(found.head(found.final_norm(left[0])), own, atol=1e-3, rtol=1e-3)


def leaving(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    """The stream in what a block returns: alone, or first of several things."""
    return output[0] if isinstance(output, tuple) else output
