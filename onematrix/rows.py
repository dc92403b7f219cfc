"""Questions asked of a set of V row vectors: which are near, and at which rank one stands."""

import torch
from torch import Tensor


def cosine(rows: Tensor, x: Tensor) -> Tensor:
    """(V,) cosine of every row of `rows` (V, d) with `x` (d,); (n, V) for x (n, d).

    One product and one norm: torch's own `cosine_similarity` would write out a V x d table for each x.
    A zero vector has cosine 0 with everything.
    """
    lengths = torch.linalg.vector_norm(rows, dim=1) * torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x @ rows.T / lengths.clamp_min(torch.finfo(rows.dtype).tiny)


def rank(scores: Tensor, index: int) -> int:
    """The 1-based rank of `scores[index]` among `scores` (V,): one more than the number that beat it."""
    if not 0 <= index < len(scores):
        raise ValueError(f"index {index} is out of range for {len(scores)} scores")
    return 1 + int((scores > scores[index]).sum())


def top(scores: Tensor, k: int) -> list[tuple[int, float]]:
    """The k largest of `scores` (V,) as (index, score), largest first."""
    if not 1 <= k <= len(scores):
        raise ValueError(f"k must be 1 to {len(scores)}, got {k}")
    values, indices = scores.topk(k)
    return list(zip(indices.tolist(), values.tolist(), strict=True))


def neighbours(rows: Tensor, index: int, k: int) -> list[tuple[int, float]]:
    """The k rows nearest to row `index` by cosine, itself left out, as (index, cosine)."""
    scores = cosine(rows, rows[index])
    scores[index] = -torch.inf
    return top(scores, k)
