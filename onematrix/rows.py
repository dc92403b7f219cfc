"""Questions asked of a set of V row vectors: which are near, and at which rank one stands."""

import torch
from torch import Tensor

BLOCK = 2 << 20  # numbers taken at once: 8 MB in fp32, which stay in a processor's cache between two readings


def cosine(rows: Tensor, x: Tensor) -> Tensor:
    """(V,) cosine of every row of `rows` (V, d) with `x` (d,); (n, V) for x (n, d).

    A product with the whole table and then its norms would fetch it from memory twice, and torch's own
    `cosine_similarity` would write out a V x d table for each x; block by block it is fetched once. Norms kept
    from an earlier call would be faster still, and wrong after a change that torch does not count (`W.data`).
    A zero vector has cosine 0 with everything.

    Raises:
        ValueError: shapes that do not fit.
    """
    if rows.ndim != 2 or not 1 <= x.ndim <= 2 or x.shape[-1] != rows.shape[1]:
        raise ValueError(
            f"expected rows (V, d) and x (d,) or (n, d) of one width, got {tuple(rows.shape)} and {tuple(x.shape)}"
        )
    smallest = torch.finfo(rows.dtype).tiny
    x_length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    found = x.new_empty(*x.shape[:-1], len(rows))
    size = max(1, BLOCK // rows.shape[1])
    for some, place in zip(rows.split(size), found.split(size, dim=-1), strict=True):
        lengths = torch.linalg.vector_norm(some, dim=1) * x_length
        place.copy_(x @ some.T).div_(lengths.clamp_min_(smallest))
    return found


def comparable(scores: Tensor) -> None:
    """Raise ValueError unless scores are one row of numbers: nothing is larger than NaN, whose rank would be 1."""
    if scores.ndim != 1:
        raise ValueError(f"expected scores of shape (V,), got {tuple(scores.shape)}")
    if scores.isnan().any():
        raise ValueError(f"{int(scores.isnan().sum())} of {len(scores)} scores are not numbers (NaN)")


def in_range(index: int, rows: int, what: str) -> None:
    """Raise ValueError for an index that is not there; a negative one would silently count from the end."""
    if not 0 <= index < rows:
        raise ValueError(f"index {index} is out of range for {rows} {what}")


def rank(scores: Tensor, index: int) -> int:
    """The 1-based rank of `scores[index]` among `scores` (V,): one more than the number that beat it.

    Raises:
        ValueError: an index that is not there, scores that are not one row, or NaN among them.
    """
    comparable(scores)
    in_range(index, len(scores), "scores")
    return 1 + int((scores > scores[index]).sum())


def top(scores: Tensor, k: int) -> list[tuple[int, float]]:
    """The k largest of `scores` (V,) as (index, score), largest first.

    Raises:
        ValueError: a k that cannot be, scores that are not one row, or NaN among them.
    """
    comparable(scores)
    if not 1 <= k <= len(scores):
        raise ValueError(f"k must be 1 to {len(scores)}, got {k}")
    values, indices = scores.topk(k)
    return list(zip(indices.tolist(), values.tolist(), strict=True))


def neighbours(rows: Tensor, index: int, k: int) -> list[tuple[int, float]]:
    """The k rows nearest to row `index` by cosine, itself left out, as (index, cosine).

    Raises:
        ValueError: an index that is not there, a k that cannot be, or NaN in the rows.
    """
    in_range(index, len(rows), "rows")
    if not 1 <= k < len(rows):
        raise ValueError(f"k must be 1 to {len(rows) - 1}, the number of other rows, got {k}")
    scores = cosine(rows, rows[index])
    scores[index] = -torch.inf
    return top(scores, k)
