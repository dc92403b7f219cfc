"""Questions asked of a set of V row vectors: which are near, and at which rank one stands."""

import torch
from torch import Tensor

BLOCK = 1 << 20  # numbers taken at once: 4 MB in fp32, which stay in a processor's cache between two readings


def cosine(rows: Tensor, x: Tensor) -> Tensor:
    """(V,) cosine of every row of `rows` (V, d) with `x` (d,); (n, V) for x (n, d).

    A product with the whole table and then its norms would fetch it from memory twice, and torch's own
    `cosine_similarity` would write out a V x d table for each x; block by block it is fetched once. Norms kept
    from an earlier call would be faster still, and wrong after a change that torch does not count (`W.data`).
    A zero vector has cosine 0 with everything.
    """
    smallest = torch.finfo(rows.dtype).tiny
    x_length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    found = x.new_empty(*x.shape[:-1], len(rows))
    size = max(1, BLOCK // rows.shape[1])
    for some, place in zip(rows.split(size), found.split(size, dim=-1), strict=True):
        lengths = torch.linalg.vector_norm(some, dim=1) * x_length
        place.copy_(x @ some.T).div_(lengths.clamp_min_(smallest))
    return found


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
