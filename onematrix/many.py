"""One question asked of many words or many prompts at once: in batches, and in blocks that keep memory small."""

from collections.abc import Callable
from itertools import islice

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import DynamicCache

from onematrix.models import LanguageModel

BLOCK = 64  # vectors met with the whole vocabulary at once: 13 MB of scores at V = 50,000


def is_word(text: str) -> bool:
    """Whether a token looks like a word: a space, then nothing but letters. It may still be the beginning of one."""
    return text[:1] == " " and text[1:].isalpha()


def words_after(model: LanguageModel, frame: str, n: int) -> Tensor:
    """(n,) the most probable tokens after `frame` that look like words, most probable first."""
    order = model.states(frame).logits[-1].argsort(descending=True).tolist()
    return torch.tensor(list(islice((i for i in order if is_word(model.text(i))), n)))


def same_word(a: str, b: str) -> bool:
    """Whether two tokens differ only by a space, by capitals, or by the ending of an English plural.

    >>> same_word(" dog", "Dogs"), same_word(" city", " Cities"), same_word(" dog", " cat")
    (True, True, False)
    """
    short, long = sorted((a.strip().lower(), b.strip().lower()), key=len)
    return long in (short, f"{short}s", f"{short}es") or (short.endswith("y") and long == f"{short[:-1]}ies")


def nearest(model: LanguageModel, words: Tensor, k: int, same: Callable[[str, str], bool] = same_word) -> Tensor:
    """(n, k) the k rows nearest by cosine to each word's row, nearest first, spellings of the word left out.

    Args:
        words: (n,) token ids.
        same: which two tokens are spellings of one word. Fewer than forty of a word's nearest rows may be.
    """
    unit = F.normalize(model.W, dim=1)
    found = []
    for block in words.split(BLOCK):
        around = (unit[block] @ unit.T).topk(k + 40).indices.tolist()
        for word, rows in zip(block.tolist(), around, strict=True):
            others = (j for j in rows if j != word and not same(model.text(word), model.text(j)))
            found.append(list(islice(others, k)))
    return torch.tensor(found)


def last_states(model: LanguageModel, prompts: Tensor) -> tuple[Tensor, Tensor]:
    """The last position of many prompts of equal length.

    Args:
        prompts: (n, T) token ids.

    Returns:
        (blocks, n, d) the stream before the final norm: entry 0 what enters block 1, entry k what leaves block k.
        The last block's is not there, since transformers normalises the last hidden state that it returns.
        (n, d) the vectors that meet the unembedding: that last hidden state.
    """
    streams, ends = [], []
    for batch in prompts.split(BLOCK):
        out = model.network.base_model(batch, output_hidden_states=True, use_cache=False)
        streams.append(torch.stack([hidden[:, -1] for hidden in out.hidden_states[:-1]]))
        ends.append(out.last_hidden_state[:, -1])
    return torch.cat(streams, dim=1), torch.cat(ends)


def ranks(model: LanguageModel, x: Tensor, chosen: Tensor) -> Tensor:
    """(n, c) the 1-based ranks of chosen tokens (n, c) among the predictions of vectors x (n, d)."""
    found = []
    for vectors, tokens in zip(x.split(BLOCK), chosen.split(BLOCK), strict=True):
        scores = model.logits(vectors)
        beaten_by = [(scores > own[:, None]).sum(dim=1) for own in scores.gather(1, tokens).T]
        found.append(1 + torch.stack(beaten_by, dim=1))
    return torch.cat(found)


def gives_way(model: LanguageModel, stream: Tensor, x: Tensor, words: Tensor) -> Tensor:
    """(n,) the first layer at which the lens no longer has the word itself on top; blocks + 1 where it has at all.

    A word that has given way is not asked again, so that few layers cost much.

    Args:
        stream, x: from `last_states`, of prompts that end in the words.
    """
    blocks = len(stream)
    layer = torch.full((len(words),), blocks + 1)
    left = torch.arange(len(words))
    for k in range(blocks + 1):
        read = model.final_norm(stream[k, left]) if k < blocks else x[left]
        beaten = ranks(model, read, words[left, None])[:, 0] > 1
        layer[left[beaten]] = k
        left = left[~beaten]
        if not len(left):
            break
    return layer


def drawn(model: LanguageModel, x: Tensor, generator: torch.Generator) -> Tensor:
    """(n,) a next token for each vector x (n, d), drawn from the model's own probabilities.

    An exponential race: the token with the largest log(u) / p wins. Another machine, whose probabilities differ in the
    last digits, draws the same token unless two are almost level; with cumulated probabilities it often would not.
    """
    found = []
    for vectors in x.split(BLOCK):
        p = model.logits(vectors).softmax(dim=1)
        u = torch.rand(p.shape, generator=generator, dtype=torch.float64)
        found.append(u.log_().div_(p).argmax(dim=1))
    return torch.cat(found)


def continued(model: LanguageModel, prompts: Tensor, steps: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Let the model go on with many prompts of equal length, drawing each next token from its own probabilities.

    Returns:
        (steps, n, d) the vector x at each step, from the prompts' own last position on.
        (steps, n) the token drawn from it, which the next step reads.
    """
    vectors, tokens = [], []
    cache = DynamicCache(config=model.network.config)  # what the network keeps of the tokens it has read
    unread = prompts
    for _ in range(steps):
        x = model.network.base_model(unread, cache=cache, use_cache=True).last_hidden_state[:, -1]
        vectors.append(x)
        tokens.append(drawn(model, x, generator))
        unread = tokens[-1][:, None]
    return torch.stack(vectors), torch.stack(tokens)
