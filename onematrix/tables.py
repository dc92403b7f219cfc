"""Two tables of rows for the same tokens, compared: the two ends of an untied model, or the tables of two models."""

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from onematrix.models import LanguageModel

DRAWN = 500  # tokens whose neighbours are asked for


@dataclass(frozen=True)
class Likeness:
    """How alike two tables are.

    Attributes:
        tokens: n, how many rows were compared.
        cosine: median cosine of a token's two rows; None where the tables have different widths.
        strangers: the same for the rows of two different tokens, the baseline of `cosine`.
        neighbours: share of a token's k nearest rows by cosine that both tables name, on average. It needs no common
            axes: two tables can agree on it whose rows cannot be compared.
        chance: what `neighbours` would be if the tables had nothing to do with each other.
    """

    tokens: int
    cosine: float | None
    strangers: float | None
    neighbours: float
    chance: float


@torch.no_grad()
def likeness(A: Tensor, B: Tensor, k: int = 10) -> Likeness:
    """Compare row i of A (n, d) with row i of B (n, e), for all i.

    Args:
        k: how many nearest rows, of up to 500 tokens drawn with a fixed seed.

    Raises:
        ValueError: tables of different lengths, or not more than k rows.
    """
    n = len(A)
    if len(B) != n or not 1 <= k < n:
        raise ValueError(f"expected two tables of equal length and k below it, got {n} and {len(B)} rows and k = {k}")
    unit_A, unit_B = F.normalize(A, dim=1), F.normalize(B, dim=1)
    chosen = torch.randperm(n, generator=torch.Generator().manual_seed(0))[:DRAWN]
    both = []
    for block in chosen.split(100):
        near = [(unit[block] @ unit.T).scatter_(1, block[:, None], -2).topk(k).indices for unit in (unit_A, unit_B)]
        both.append((near[0][:, :, None] == near[1][:, None, :]).sum(dim=(1, 2)))
    same = strangers = None
    if A.shape == B.shape:
        same = (unit_A * unit_B).sum(dim=1).median().item()
        strangers = (unit_A * unit_B.roll(n // 2, dims=0)).sum(dim=1).median().item()
    return Likeness(n, same, strangers, torch.cat(both).double().mean().item() / k, k / (n - 1))


def common_tokens(a: LanguageModel, b: LanguageModel) -> Tensor:
    """(n, 2) ids of the tokens that both models have, found by their text; one that two tokens share is left out."""
    ids = [by_text(model) for model in (a, b)]
    return torch.tensor([[i, ids[1][text]] for text, i in ids[0].items() if text in ids[1]]).reshape(-1, 2)


def by_text(model: LanguageModel) -> dict[str, int]:
    """The id of each token that alone has its text."""
    texts = [model.text(i) for i in range(model.V)]
    often = Counter(texts)
    return {text: i for i, text in enumerate(texts) if often[text] == 1}
