"""What a chapter asks of the two matrices, beside the usual ways and beside one plain `W @ x`.

Measured in a process of the peers' environment: `python -m bench.compute REPEAT` prints the series.
"""

import json
import sys
from collections.abc import Callable

from bench import common

WARM = 3  # calls before the first that counts
PROMPT = "The dog"


def measure(repeat: int | None) -> dict:
    said = common.run(
        [common.python(libraries=True), "-m", "bench.compute", str(repeat or 30)],
        cwd=common.tree(),
        env=common.quiet(),
    )
    return {"series": json.loads(said.splitlines()[-1]), "notes": [NOTE]}


NOTE = """\
All in fp32 on SmolLM2-135M's own W (49152 x 576). `W @ x` is the floor: what reading W once costs here. From the
prompt: the forward pass and the lens of all blocks. A difference is from the same computed in float64, over the
largest value there; plain: by torch's `cosine_similarity`, by the loop, by autograd, in fp32 too. Memory is what
torch's allocator holds at its height, by torch.profiler."""


def series(repeat: int) -> dict[str, list[float]]:
    import torch
    from torch.nn import functional as F

    from onematrix import by_autograd, closed_form, lens, load, neighbours, rank

    model = load(common.MODEL)
    W, states, (dog, target) = model.W.detach(), model.states(PROMPT), (model.id(" dog"), model.id(" is"))
    x, logits = states.x.clone(), states.logits[-1].clone()
    theirs = transformer_lens(model)
    near, similar = scikit_learn(W, dog), gensim(W, dog)

    def block_by_block():
        return [W @ model.final_norm(h) for h in states.stream[:, -1]]

    def no_copy():
        free_W, free_x = W.detach().requires_grad_(), x.clone().requires_grad_()
        loss = F.cross_entropy(F.linear(free_x, free_W)[None], torch.tensor([target]))
        return torch.autograd.grad(loss, (free_W, free_x))

    ways: dict[str, Callable] = {
        "W @ x": lambda: W @ x,
        "logits": lambda: states.x @ model.U.T,
        "neighbours": lambda: neighbours(W, dog, 10),
        "scikit-learn": near,
        "gensim": similar,
        "lens": lambda: lens(model, states),
        "lens, block by block": block_by_block,
        "lens, from the prompt": lambda: lens(model, model.states(PROMPT)),
        "TransformerLens, from the prompt": theirs,
        "step": lambda: closed_form(W, x, target),
        "step by autograd": lambda: by_autograd(W, x, target),
        "step by autograd, W not copied": no_copy,
        "rank": lambda: rank(logits, target),
        "rank by sorting": lambda: (logits.argsort(descending=True) == target).nonzero().item() + 1,
    }
    with torch.no_grad():
        for _ in range(WARM):
            for way in (w for name, w in ways.items() if "autograd" not in name):
                way()

    def timed(name: str) -> float:
        with torch.set_grad_enabled("autograd" in name):
            return common.seconds(ways[name])

    found = common.in_turn({name: lambda name=name: timed(name) for name in ways}, repeat)
    found |= differences(model, states.stream[:, -1], dog, x, target, ways)
    found["extra memory of a step"] = [common.height(lambda: closed_form(W, x, target))]
    found["extra memory of a step by autograd"] = [common.height(lambda: by_autograd(W, x, target))]
    return found


def differences(model, stream, index: int, x, target: int, ways: dict[str, Callable]) -> dict[str, list[float]]:
    """How far each result is from the same in float64, ours and the plain way's in fp32."""
    import torch
    from torch.nn import functional as F

    from onematrix import by_autograd, closed_form, cosine

    W = model.W.detach()
    big, big_x = W.double(), x.double()
    p = (big @ big_x).softmax(0)
    gradient_x = p @ big - big[target]
    p[target] -= 1
    nearest, lens = F.cosine_similarity(big, big[index], dim=1), norm64(model, stream) @ big.T
    step, (dW, dx) = closed_form(W, x, target), by_autograd(W, x, target)
    with torch.no_grad():
        pairs = {
            "neighbours": (cosine(W, W[index]), nearest),
            "neighbours, plain": (F.cosine_similarity(W, W[index], dim=1), nearest),
            "lens": (ways["lens"](), lens),
            "lens, plain": (torch.stack(ways["lens, block by block"]()), lens),
            "TransformerLens's lens": (ways["TransformerLens, from the prompt"](), lens),
            "gradient of x": (step.x, gradient_x),
            "gradient of x, plain": (dx, gradient_x),
            "gradient of W": (torch.outer(step.rows, x), torch.outer(p, big_x)),
            "gradient of W, plain": (dW, torch.outer(p, big_x)),
        }
        return {f"largest difference: {name}": [difference(*pair)] for name, pair in pairs.items()}


def transformer_lens(model) -> Callable:
    """The same question in TransformerLens: every layer's accumulated stream, normed and unembedded."""
    import torch
    from transformer_lens import TransformerBridge
    from transformers import AutoModelForCausalLM

    from onematrix import weights

    network = AutoModelForCausalLM.from_pretrained(weights.cache() / model.name, attn_implementation="eager")
    bridge = TransformerBridge.boot_transformers(
        "HuggingFaceTB/SmolLM2-135M-Instruct", hf_model=network, tokenizer=model.tokenizer, dtype=torch.float32
    )

    @torch.no_grad()
    def way():
        _, cache = bridge.run_with_cache(torch.tensor([model.ids(PROMPT)]))
        stream = cache.accumulated_resid(layer=None, pos_slice=-1)
        return bridge.ln_final(stream)[:, 0] @ bridge.W_U

    return way


def scikit_learn(W, index: int) -> Callable:
    from sklearn.neighbors import NearestNeighbors

    table = W.numpy()
    fitted = NearestNeighbors(n_neighbors=11, metric="cosine", algorithm="brute").fit(table)
    return lambda: fitted.kneighbors(table[index : index + 1])


def gensim(W, index: int) -> Callable:
    from gensim.models import KeyedVectors

    vectors = KeyedVectors(W.shape[1])
    vectors.add_vectors(list(map(str, range(len(W)))), W.numpy())
    return lambda: vectors.most_similar(str(index), topn=10)


def norm64(model, stream):
    """LLaMA's final norm in float64."""
    stream, norm = stream.double(), model.final_norm
    return stream / (stream.square().mean(-1, keepdim=True) + norm.variance_epsilon).sqrt() * norm.weight


def difference(found, exact) -> float:
    """The largest difference over the largest value."""
    return ((found.double() - exact).abs().max() / exact.abs().max()).item()


if __name__ == "__main__":
    print(json.dumps(series(int(sys.argv[1]))))
