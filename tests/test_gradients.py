"""The three formulas against finite differences and autograd, and next to their near misses."""

import math

import pytest
import torch
from made import Made
from small_models import gpt2_network

from onematrix import by_autograd, closed_form

V, d, TARGET = 23, 9, 5


@pytest.fixture
def W() -> torch.Tensor:
    return torch.randn(V, d, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(d, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def loss(W: list[list[float]], x: list[float]) -> float:
    """-log p[TARGET], in plain Python."""
    z = [sum(a * b for a, b in zip(row, x, strict=True)) for row in W]
    return math.log(sum(math.exp(v) for v in z)) - z[TARGET]


def slope(function, values: torch.Tensor) -> torch.Tensor:
    """The gradient by central differences."""
    out, step = torch.empty_like(values), 1e-5
    for i in range(values.numel()):
        ends = []
        for sign in (1, -1):
            moved = values.clone()
            moved.view(-1)[i] += sign * step
            ends.append(function(moved.tolist()))
        out.view(-1)[i] = (ends[0] - ends[1]) / (2 * step)
    return out


def test_closed_form_is_the_slope_of_the_loss(W, x):
    step = closed_form(W, x, TARGET)
    assert step.loss == pytest.approx(loss(W.tolist(), x.tolist()), rel=1e-12)
    assert step.loss == pytest.approx(-math.log(step.p[TARGET]))
    torch.testing.assert_close(torch.outer(step.rows, x), slope(lambda w: loss(w, x.tolist()), W), atol=1e-8, rtol=1e-6)
    torch.testing.assert_close(step.x, slope(lambda v: loss(W.tolist(), v), x), atol=1e-8, rtol=1e-6)


def test_closed_form_is_what_autograd_says(W, x):
    step = closed_form(W, x, TARGET)
    dW, dx = by_autograd(W, x, TARGET)
    torch.testing.assert_close(torch.outer(step.rows, x), dW)
    torch.testing.assert_close(step.x, dx)


def test_the_pushes_balance_the_pull(W, x):
    step = closed_form(W, x, TARGET)
    assert step.rows[TARGET] < 0
    others = torch.cat([step.rows[:TARGET], step.rows[TARGET + 1 :]])
    assert (others > 0).all()
    assert others.sum().item() == pytest.approx(-step.rows[TARGET].item())
    assert step.p.sum().item() == pytest.approx(1)


def test_the_near_misses_would_not_pass(W, x):
    step = closed_form(W, x, TARGET)
    dW, dx = by_autograd(W, x, TARGET)
    p, without = step.p, step.p.clone()
    without[TARGET] = 0
    wrong_rows = {"p_t for p_t - 1": p, "sign": -step.rows, "target moved by one": step.rows.roll(1)}
    wrong_x = {
        "target left out of the average": without @ W - W[TARGET],
        "average left out": -W[TARGET],
        "W[t] left out": p @ W,
        "sign": -step.x,
    }
    for name, rows in wrong_rows.items():
        assert (torch.outer(rows, x) - dW).abs().max() > 1e-3, name
    for name, gradient in wrong_x.items():
        assert (gradient - dx).abs().max() > 1e-3, name


@pytest.mark.parametrize("scale", [1e3, -1e3])
def test_scores_too_large_for_exp_give_finite_gradients(W, x, scale):
    step = closed_form(W, scale * x, TARGET)
    assert math.isfinite(step.loss)
    assert step.rows.isfinite().all()
    assert step.x.isfinite().all()


def test_a_step_leaves_its_inputs_alone(W, x):
    before = W.clone(), x.clone()
    closed_form(W, x, TARGET)
    by_autograd(W.requires_grad_(), x, TARGET)
    assert torch.equal(W, before[0])
    assert torch.equal(x, before[1])
    assert W.grad is None


def test_a_step_makes_nothing_as_large_as_the_table(W, x):
    with Made() as made:
        closed_form(W, x, TARGET)
    assert max(made.sizes) == V
    with Made() as made:
        by_autograd(W, x, TARGET)
    assert max(made.sizes) == V * d


def test_a_tied_models_own_gradient_holds_the_lookups_part_too():
    network, prompt = gpt2_network().eval(), torch.tensor([[7, 3, 19]])
    hidden = network(prompt, output_hidden_states=True).hidden_states[-1][0, -1]
    torch.nn.functional.cross_entropy(network.lm_head(hidden)[None], torch.tensor([TARGET])).backward()
    W = network.lm_head.weight
    output_only, _ = by_autograd(W, hidden, TARGET)
    both = W.grad - output_only
    touched = set(both.abs().amax(dim=1).gt(1e-6).nonzero().flatten().tolist())
    assert touched == {7, 3, 19}  # only the rows that were looked up differ
