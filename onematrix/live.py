"""The data behind the live pieces: what the pages' JavaScript shows, computed on the page's model.

`write(model, into)` writes gzipped JSON files; `python -m onematrix.live NAME FOLDER` does it for a model by name.

    lens-N, lens-N-ranks-K    a prompt's cells, and its likeliest tokens' ranks, some in each file
    walks-K                   how every token of a shard fares at the last position of each prompt, in rounded ranks
    slot, slot-K              where each shard of the sorted vocabulary begins, and the shards
    step-N                    a prompt's vectors

A probability or a cosine is stored in thousandths, which is what the chapters print.
"""

import copy
import functools
import gzip
import json
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm
from transformers import DynamicCache

from onematrix.logit_lens import layer, lens
from onematrix.many import is_word
from onematrix.models import LanguageModel, load
from onematrix.rows import cosine, top
from onematrix.tokens import shown

K = 10  # how many tokens a list shows

LENS_PROMPTS = (
    "The dog",
    "The dog chased the cat",
    "The sky is",
    "I ate an",
    "The keys to the house by the river",
)
RANKS_IN_A_FILE = 18_000  # numbers: less than 50 KB
STEPS = 250  # a rounded rank is one of 251 steps from 1 to V, all by the same factor: exact below 20, else within 3 %

FRAMES = ("The", "A", "She saw the")
WORDS = 5000  # words that get predictions after each frame
BLOCK = 128  # rows compared with all others at once: 25 MB of scores at V = 50,000, which the allocator reuses
SHARD = 144  # tokens in one file of the sorted vocabulary

STEP_PROMPTS = {
    "The sky is": (" blue", " clear", " green"),
    "I ate an": (" apple", " egg", " elephant"),
    "The dog": (" barked", " is", " cat"),
    "She opened the": (" door", " book", " sky"),
}
ROWS = 1024  # rows kept one by one; all others count together
DRAWN = 6  # rows drawn beside the target


def write(model: LanguageModel, into: Path) -> None:
    """Write every file of the three pieces into an existing directory."""
    with torch.no_grad():
        write_lens(model, into)
        write_walks(model, into)
        write_step(model, into)
        write_slot(model, into)


def save(path: Path, data) -> None:
    """JSON without spaces, gzipped; the same data give the same bytes."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    path.with_name(path.name + ".json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


@functools.cache
def names(model: LanguageModel) -> list[str]:
    """One string a token, no two alike: what the book prints between the quotes, and the row where that is not enough.

    Several tokens can read the same, above all pieces of letters, which all read as a replacement character.
    """
    read = [shown(model.text(i))[1:-1] for i in range(model.V)]
    seen = Counter(read)
    return [text if seen[text] == 1 else f"{text}#{i}" for i, text in enumerate(read)]


def thousandths(values: Tensor) -> list:
    return (values.double() * 1000).round().int().tolist()


def ranks(scores: Tensor, chosen: list[list[int]]) -> list[list[int]]:
    """The 1-based ranks of some columns of `scores` (n, V): for each row those that `chosen` names.

    The same as `onematrix.rank`, in the form that counts a hundred thousand of them in a second.
    """
    table = scores.numpy()
    return [
        [1 + int(np.count_nonzero(row > row[i])) for i in columns] for row, columns in zip(table, chosen, strict=True)
    ]


class Strings:
    """The tokens that one file names: each once, and referred to by its place."""

    def __init__(self, names: list[str], first: Sequence[int] = ()):
        self.names, self.place = names, {i: n for n, i in enumerate(first)}

    def __call__(self, ids: list[int]) -> list[int]:
        return [self.place.setdefault(i, len(self.place)) for i in ids]

    def texts(self) -> list[str]:
        return [self.names[i] for i in self.place]


# ------------------------------------------------------------------ the lens


def write_lens(model: LanguageModel, into: Path) -> None:
    of_all = {"prompts": LENS_PROMPTS, "size": model.V, "steps": STEPS}
    for n, prompt in enumerate(tqdm(LENS_PROMPTS, desc="live: lens", unit="prompt", disable=None)):
        cells, followed = lens_of(model, prompt)
        in_one = RANKS_IN_A_FILE // len(followed[0])
        own = followed[cells["positions"][-1]]  # followed first, so that a first look needs no second file
        save(into / f"lens-{n}", cells | {"own": own, "together": in_one} | of_all)
        for k in range(0, len(followed), in_one):
            save(into / f"lens-{n}-ranks-{k // in_one}", followed[k : k + in_one])


def lens_of(model: LanguageModel, prompt: str) -> tuple[dict, list[list[int]]]:
    """The lens on one prompt.

    Returns:
        what every cell shows, with and without the norm, layers by positions, and for each token that can be
        followed its rank in every cell, in the order: norm, layer, position.
    """
    states = model.states(prompt)
    tokens = states.ids.tolist()
    strings = Strings(names(model))
    strings(tokens)
    for i in tokens:
        strings([j for j, _ in top(cosine(model.W, model.W[i]), K)])
    tables = [
        torch.stack([lens(model, states, t, norm=norm) for t in range(len(tokens))], dim=1).flatten(0, 1)
        for norm in (True, False)
    ]
    best = [table.softmax(dim=-1).topk(K) for table in tables]
    cells = {
        "prompt": prompt,
        "positions": strings(tokens),
        "layers": [layer(k).replace("  ", " ") for k in range(len(states.stream))],
        "top": [[strings(row) for row in b.indices.tolist()] for b in best],
        "p": [thousandths(b.values) for b in best],
    }
    followed = list(strings.place)
    by_cell = np.array([row for table in tables for row in ranks(table, [followed] * len(table))])
    return cells | {"tokens": strings.texts()}, by_cell.T.tolist()


def write_walks(model: LanguageModel, into: Path) -> None:
    """Every token's way through the layers of each prompt, read at the last position with the norm.

    The exact ranks of all tokens in all cells are a hundred megabytes. Rounded to steps of a few percent and written as
    the differences between one layer and the next, those of the last positions are five.
    """
    codes = np.stack([walks(model, prompt) for prompt in LENS_PROMPTS], axis=1)  # (V, prompts, layers)
    codes[:, :, 1:] -= codes[:, :, :-1].copy()
    order = sorted_vocabulary(model)
    for k in range(0, model.V, SHARD):
        save(into / f"walks-{k // SHARD}", codes[order[k : k + SHARD]].tolist())


def walks(model: LanguageModel, prompt: str) -> np.ndarray:
    """(V, layers): the rank of every token in every layer, as the nearest of `STEPS` equal steps in its logarithm."""
    order = lens(model, model.states(prompt)).argsort(dim=1, descending=True)
    places = torch.arange(1, model.V + 1).expand_as(order)
    rank = torch.empty_like(order).scatter_(1, order, places)
    return (rank.double().log() * STEPS / np.log(model.V)).round().int().T.numpy()


# ------------------------------------------------------------------ right meaning, wrong slot


def write_slot(model: LanguageModel, into: Path) -> None:
    """Every token's nearest rows, and what the model predicts after a frame and each of the `WORDS`."""
    called = names(model)
    unit = F.normalize(model.W, dim=1)
    near = nearest(unit)
    following = predictions(model, unit, near)
    order = sorted_vocabulary(model)
    starts = []
    for k in range(0, model.V, SHARD):
        own = order[k : k + SHARD]
        strings = Strings(called, own)
        data = {
            "near": [[strings(near[i][0]), near[i][1]] for i in own],
            "next": [
                [[own_rank, of_near, strings(ids), p, in_near] for own_rank, of_near, ids, p, in_near in following[i]]
                if i in following
                else None
                for i in own
            ],
        }
        save(into / f"slot-{k // SHARD}", {"own": len(own), "tokens": strings.texts()} | data)
        starts.append(called[own[0]].lstrip(" ").lower())
    save(into / "slot", {"frames": FRAMES, "words": len(following), "size": model.V, "starts": starts})


def sorted_vocabulary(model: LanguageModel) -> list[int]:
    """All rows in the order of the shards."""
    called = names(model)
    return sorted(range(model.V), key=lambda i: sort_key(called[i]))


def sort_key(name: str) -> tuple[bytes, str]:
    """The vocabulary's order in the shards: spaces and capitals left aside, as JavaScript compares strings."""
    return name.lstrip(" ").lower().encode("utf-16-be", "surrogatepass"), name


def nearest(unit: Tensor) -> list[tuple[list[int], list[int]]]:
    """For every row its K nearest by cosine, itself left out, with the cosines in thousandths.

    Args:
        unit: (V, d) the rows at length one, so that one product gives all cosines of a block.
    """
    found: list[tuple[list[int], list[int]]] = []
    for block in tqdm(torch.arange(len(unit)).split(BLOCK), desc="live: neighbours", unit="block", disable=None):
        scores = unit[block] @ unit.T
        scores[torch.arange(len(block)), block] = -torch.inf
        best = scores.topk(K)
        found += zip(best.indices.tolist(), thousandths(best.values), strict=True)
    return found


def words(model: LanguageModel) -> list[int]:
    """The words that get predictions: a space and letters, the best `WORDS` by their best rank after any frame."""
    best = torch.full((model.V,), model.V)
    for frame in FRAMES:
        order = model.states(frame).logits[-1].argsort(descending=True)
        best[order] = torch.minimum(best[order], torch.arange(model.V))
    return list(islice((i for i in best.argsort(stable=True).tolist() if is_word(model.text(i))), WORDS))


def predictions(model: LanguageModel, unit: Tensor, near: list) -> dict[int, list]:
    """What follows each frame and word.

    Returns:
        word -> for each frame: the word's own rank, the ranks of its nearest rows, the K best predictions,
        their probabilities, and their ranks among the rows near the word.
    """
    found: dict[int, list] = {i: [] for i in words(model)}
    begun = [read_once(model, frame) for frame in FRAMES]
    with tqdm(total=len(found) * len(FRAMES), desc="live: predictions", unit="prompt", disable=None) as bar:
        for ids in torch.tensor(list(found)).split(2 * BLOCK):
            chunk = ids.tolist()
            to_word = unit[ids] @ unit.T
            for frame in begun:
                logits = after(model, frame, ids)
                best = logits.softmax(dim=-1).topk(K)
                indices = best.indices.tolist()
                out = ranks(logits, [[i, *near[i][0]] for i in chunk])
                back = ranks(to_word, indices)
                for i, (own, *of_near), *rest in zip(chunk, out, indices, thousandths(best.values), back, strict=True):
                    found[i].append((own, of_near, *rest))
                bar.update(len(chunk))
    return found


def read_once(model: LanguageModel, frame: str) -> DynamicCache:
    """What the network keeps of a frame, for every word that is put after it."""
    cache = DynamicCache(config=model.network.config)
    model.network(torch.tensor([model.ids(frame)]), cache=cache, use_cache=True)
    return cache


def after(model: LanguageModel, frame: DynamicCache, ids: Tensor) -> Tensor:
    """(n, V) logits after a frame and each of n tokens."""
    cache = copy.deepcopy(frame)
    cache.batch_repeat_interleave(len(ids))
    return model.network(ids[:, None], cache=cache, use_cache=True).logits[:, -1]


# ------------------------------------------------------------------ one step


def write_step(model: LanguageModel, into: Path) -> None:
    for n, (prompt, targets) in enumerate(STEP_PROMPTS.items()):
        data = step_of(model, prompt, list(dict.fromkeys(model.ids(word)[0] for word in targets)))
        save(into / f"step-{n}", data | {"prompts": list(STEP_PROMPTS)})


def step_of(model: LanguageModel, prompt: str, targets: list[int]) -> dict:
    """The vectors of one prompt, written in a basis of the few directions in which they move.

    The step on x is the target's row minus the average of all rows, and the steps on the rows are multiples of x: so x
    stays in the span of x, the average and the targets' rows, and only what a row has in that span meets it. The
    rows beyond the first `ROWS` are one more entry: their average, with a bias that gives it their joint score.
    """
    W, x = model.W.double(), model.states(prompt).x.double()
    p = torch.softmax(W @ x, dim=0)
    others = [model.ids(prompt)[-1], *model.ids(" cat")[:1]]
    order = p.argsort(descending=True).tolist()
    drawn = list(dict.fromkeys([*targets, *order[: DRAWN - 1], *others]))
    kept = list(dict.fromkeys([*drawn, *order[:ROWS]]))
    rest = torch.ones(model.V, dtype=torch.bool)
    rest[kept] = False
    average = p[rest] @ W[rest] / p[rest].sum()
    basis = torch.linalg.qr(torch.stack([x, p @ W, *(W[t] for t in targets)]).T).Q  # (d, few)
    basis *= torch.sign(basis.T @ x)[0]  # the first direction is that of x itself
    bias = (torch.logsumexp(W[rest] @ x, dim=0) - average @ x).item()
    vectors = torch.vstack([W[kept], average]) @ basis
    return {
        "prompt": prompt,
        "targets": len(targets),
        "drawn": len(drawn),
        "tokens": [names(model)[i] for i in drawn],
        "x": rounded(x @ basis),
        "rows": [rounded(row) for row in vectors],
        "bias": bias,
        "others": model.V - len(kept),
    }


def rounded(vector: Tensor) -> list[float]:
    return [round(v, 7) for v in vector.tolist()]


if __name__ == "__main__":
    write(load(sys.argv[1]), Path(sys.argv[2]))
