"""A language model as the book needs it: its two matrices, its residual stream, its tokens."""

from __future__ import annotations

import operator
import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from onematrix import families, places
from onematrix.tokens import shown
from onematrix.weights import ModelError

MANY = 12  # tokens that a message shows

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class States:
    """What one forward pass leaves at every position of a prompt.

    Attributes:
        ids: (T,) token ids.
        stream: (blocks + 1, T, d) the residual stream: entry 0 is what enters block 1, entry k what
            leaves block k. All before the final norm. (In some sizes of OPT the stream is wider than d.)
        normed: (blocks + 1, T, d) the final norm of each of them.
        logits: (T, V) the model's own.
    """

    ids: Tensor
    stream: Tensor
    normed: Tensor
    logits: Tensor

    @property
    def x(self) -> Tensor:
        """(d,) the vector that meets the unembedding at the last position: `normed[-1, -1]`."""
        return self.normed[-1, -1]


class LanguageModel:
    """A causal language model opened at both ends.

    Attributes:
        name, title, revision, sha256, trained: which weights these are (see `onematrix.weights.Source`).
        network: the transformers model, fp32, in eval mode.
        tokenizer: the transformers tokenizer.
        W: (V, d) the embedding matrix, one row per token, as the table holds it. What enters block 1 is
            `states(prompt).stream[0]`: some families scale the row, project it, or add a position.
        U: (V, d) the unembedding matrix; the same tensor as W where the model is tied.
        blocks, final_norm: the transformer blocks and the norm before the unembedding.
    """

    def __init__(self, network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, manifest: dict):
        self.network = network.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.name, self.title = manifest["name"], manifest["title"]
        self.revision, self.sha256 = manifest["revision"], manifest["sha256"]
        self.trained = manifest["trained"]
        parts = families.parts(network)
        self.blocks, self.final_norm, self.head = parts.blocks, parts.final_norm, parts.head
        self.W = network.get_input_embeddings().weight
        self.U = network.get_output_embeddings().weight
        if not (torch.isfinite(self.W).all() and torch.isfinite(self.U).all()):
            raise ModelError(f"The embedding of {self.title} holds values that are not finite.")

    def __repr__(self) -> str:
        tie = "tied" if self.tied else "untied"
        return f"{self.title}: V = {self.V}, d = {self.d}, {len(self.blocks)} blocks, {tie}"

    @property
    def tied(self) -> bool:
        """Whether both ends read one and the same storage (equal values are not enough)."""
        return self.W.data_ptr() == self.U.data_ptr() and self.W.shape == self.U.shape

    @property
    def V(self) -> int:
        """Vocabulary size: the number of rows."""
        return self.W.shape[0]

    @property
    def d(self) -> int:
        """Width: the number of columns."""
        return self.W.shape[1]

    @cached_property
    def context(self) -> int:
        """The longest prompt, in tokens."""
        config = self.network.config.get_text_config()
        return getattr(config, "max_position_embeddings", self.tokenizer.model_max_length)

    def ids(self, text: str) -> list[int]:
        """Token ids of a text, with no beginning-of-text token."""
        return self.tokenizer.encode(text, add_special_tokens=False)

    def text(self, index: int) -> str:
        """The text of one token, leading space included."""
        if not 0 <= index < self.V:
            raise ValueError(f"token id {index} is out of range: {self.title} has ids 0 to {self.V - 1}")
        return self.tokenizer.decode([index], clean_up_tokenization_spaces=False)

    def shown(self, index: int) -> str:
        """The token as the book prints it: quoted, so that a leading space is seen."""
        return shown(self.text(index))

    def id(self, text: str) -> int:
        """The id of a text that is exactly one token; ValueError shows the tokens where it is not."""
        found = self.ids(text)
        if len(found) != 1:
            pieces = ", ".join(self.shown(i) for i in found[:MANY]) or "nothing"
            pieces += f" and {len(found) - MANY} more" if len(found) > MANY else ""
            hint = ". A space belongs in front of the word." if text.strip() and text.endswith(" ") else ""
            raise ValueError(f"{shown(text[:80])} is not one token of {self.title}: it reads {pieces}{hint}")
        return found[0]

    def has(self, text: str) -> bool:
        """Whether a text is exactly one token of this model."""
        return len(self.ids(text)) == 1

    @torch.no_grad()
    def logits(self, x: Tensor) -> Tensor:
        """(..., V) logits of vectors x (..., d): `x @ U.T`, and what the family adds (a bias, a scale, a soft cap)."""
        return self.head(x)

    @torch.no_grad()
    def states(self, prompt: str | list[int]) -> States:
        """Run a prompt once and keep the residual stream at the embedding and after every block.

        Args:
            prompt: a text, or token ids.

        Returns:
            States; `stream` is taken with hooks, since transformers normalises the last hidden
            state it returns.

        Raises:
            TypeError: neither a text nor whole numbers.
            ValueError: empty prompt, ids out of range, or more tokens than the context holds.
            ModelError: the pass gives values that are not finite.
        """
        try:
            ids = self.ids(prompt) if isinstance(prompt, str) else [operator.index(i) for i in prompt]
        except TypeError as wrong:
            given = " ".join(f"{prompt!r}"[:80].split())
            raise TypeError(f"a prompt is a text or a list of token ids, got {given}") from wrong
        if not ids:
            raise ValueError("the prompt is empty: give at least one token")
        if min(ids) < 0 or max(ids) >= self.V:
            raise ValueError(f"token ids must be 0 to {self.V - 1}, got {min(ids)} to {max(ids)}")
        if len(ids) > self.context:
            raise ValueError(f"the prompt has {len(ids)} tokens; {self.title} reads at most {self.context}")
        entered: list[Tensor] = []
        left: list[Tensor] = []
        hooks = [b.register_forward_pre_hook(lambda _, args: entered.append(args[0])) for b in self.blocks]
        hooks.append(self.blocks[-1].register_forward_hook(lambda *call: left.append(call[2])))
        try:
            logits = self.network(torch.tensor([ids]), use_cache=False).logits[0]
        finally:
            for hook in hooks:
                hook.remove()
        if not torch.isfinite(logits).all():
            raise ModelError(f"{self.title} gives logits that are not finite: its weights are damaged.")
        stream = torch.cat([*entered, families.leaving(left[0])])
        return States(torch.tensor(ids), stream, self.final_norm(stream), logits)


def load(name: str = "auto") -> LanguageModel:
    """Open a model.

    Weights are read from safetensors only, and no code that comes with them is run; those of the book's own models are
    checked by size and SHA-256 first. The last model opened is kept: asking for it again returns the same object.

    Args:
        name: `gpt2`, `smollm2-135m`, or `auto`, which takes GPT-2 where it can be had; a local folder as
            `save_pretrained` writes it; or a model of the Hub as `owner/name@revision`.

    Raises:
        onematrix.ModelError: the model is unknown, out of reach, or not what it should be.
    """
    resolved = places.resolve(name)
    if not OPEN or OPEN[0].name != resolved:
        OPEN[:] = [read(resolved)]
    return OPEN[0]


OPEN: list[LanguageModel] = []  # the one model this session holds


def precision() -> torch.dtype:
    """fp32, or what `ONEMATRIX_DTYPE` says: `python -m press repeat` runs the chapters in float64 to see what moves."""
    return getattr(torch, os.environ.get("ONEMATRIX_DTYPE", "float32"))


def read(name: str) -> LanguageModel:
    """The model of a resolved name."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    directory, manifest = places.locate(name)
    logging.disable_progress_bar()  # a second's work; on a page its bar would be an error message
    try:
        network, loading = AutoModelForCausalLM.from_pretrained(
            directory,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            dtype=precision(),
            output_loading_info=True,
        )
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    except Exception as failure:  # transformers raises whatever its many parts do
        told = " ".join(f"{type(failure).__name__}: {failure}".split())
        raise ModelError(f"{manifest['title']} could not be opened from {directory}. {told}") from failure
    if missing := sorted(loading["missing_keys"]):
        raise ModelError(f"{directory} holds no values for {', '.join(missing[:3])}: they would be random.")
    return LanguageModel(network, tokenizer, manifest)
