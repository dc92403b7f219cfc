"""The logit lens: read a middle of the stream with the model's own last step.

Source: nostalgebraist, *interpreting GPT: the logit lens* (2020). The final norm is applied to each
layer with its own statistics, once; the last layer then gives the model's own output.
"""

from torch import Tensor

from onematrix.models import LanguageModel, States


def lens(model: LanguageModel, states: States, position: int = -1, *, norm: bool = True) -> Tensor:
    """(blocks + 1, V) logits of the stream at one position, from the embedding to the last block.

    Args:
        model: whose final norm and head read the stream.
        states: what `model.states(prompt)` returned.
        position: which token of the prompt.
        norm: apply the final norm to each layer first (the usual reading); False reads the raw stream.

    Raises:
        ValueError: a position that is not in the prompt, or the raw stream of a model whose rows are narrower than
            its stream (some sizes of OPT).
    """
    length = len(states.ids)
    if not -length <= position < length:
        raise ValueError(f"position {position} is out of range for a prompt of {length} tokens")
    stream = states.normed if norm else states.stream
    if stream.shape[-1] != model.d:
        raise ValueError(
            f"the raw stream of {model.title} is {stream.shape[-1]} wide and its rows {model.d}: use norm=True"
        )
    return model.logits(stream[:, position])


def layer(k: int) -> str:
    """How the book names entry k of the stream."""
    return "embedding" if k == 0 else f"block {k:2d}"
