"""One cross-entropy step on the unembedding, in closed form and by autograd.

With p = softmax(W x) and target t, the loss is L = -log p_t and

    dL/dW[i] = (p_i - [i = t]) x        dL/dx = sum_i p_i W[i] - W[t]

(derived in chapter 3; Press and Wolf 2017, section 3, discuss the same two updates).
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from onematrix.models import LanguageModel
from onematrix.rows import in_range


@dataclass(frozen=True)
class Step:
    """The gradients of one loss at one position.

    Attributes:
        p: (V,) predicted probabilities.
        loss: -log p[target], in nats.
        rows: (V,) the scalar that multiplies x in each row's gradient: p_i, and p_t - 1 for the target.
        x: (d,) dL/dx.
    """

    p: Tensor
    loss: float
    rows: Tensor
    x: Tensor


def fitting(W: Tensor, x: Tensor, target: int) -> None:
    """Raise ValueError where W (V, d), x (d,) and a target below V do not fit together."""
    if W.ndim != 2 or x.shape != W.shape[1:]:
        raise ValueError(f"expected W (V, d) and x (d,) of one width, got {tuple(W.shape)} and {tuple(x.shape)}")
    in_range(target, len(W), "rows")


@torch.no_grad()
def closed_form(W: Tensor, x: Tensor, target: int) -> Step:
    """The documents' three formulas: W (V, d), x (d,). The V x d gradient is never stored."""
    fitting(W, x, target)
    log_p = F.log_softmax(W @ x, dim=0)
    p = log_p.exp()
    rows = p.clone()
    rows[target] -= 1
    return Step(p, -log_p[target].item(), rows, p @ W - W[target])


def by_autograd(W: Tensor, x: Tensor, target: int) -> tuple[Tensor, Tensor]:
    """(V, d) dL/dW and (d,) dL/dx through the output projection alone.

    W and x are copies cut from the network, so that a tied matrix does not also collect the
    gradient that reaches it through the lookup.
    """
    fitting(W, x, target)
    W, x = W.detach().clone().requires_grad_(), x.detach().clone().requires_grad_()
    loss = F.cross_entropy(F.linear(x, W)[None], torch.tensor([target]))
    dW, dx = torch.autograd.grad(loss, (W, x))
    return dW, dx


def step(model: LanguageModel, x: Tensor, target: int) -> Step:
    """The same step for any head: what multiplies x in each row's gradient of U, and dL/dx.

    Where logits are `U x` alone this is `closed_form`. A bias, a scale or a soft cap changes p, and a scale or cap
    also how much of the loss reaches `U x`; that part is differentiated, on V numbers.
    """
    scores: list[Tensor] = []  # U x, with the bias if there is one: its gradient is that of U x
    in_range(target, model.V, "rows")
    hook = model.network.get_output_embeddings().register_forward_hook(lambda *call: scores.append(call[2]))
    x = x.detach().clone().requires_grad_()
    try:
        with torch.enable_grad():
            log_p = F.log_softmax(model.head(x), dim=0)
            rows, dx = torch.autograd.grad(-log_p[target], (scores[0], x))
    finally:
        hook.remove()
    log_p = log_p.detach()
    return Step(log_p.exp(), -log_p[target].item(), rows, dx)
