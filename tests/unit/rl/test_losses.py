"""Losses against their definitions token by token, their gradients, masks, KL penalties by enumeration, aggregation."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drkernel.rl.maths import losses

torch.set_num_threads(1)
KINDS = {"clipped": losses.clipped, "reinforce": losses.reinforce}
AGGREGATIONS = ("token_mean", "seq_mean_token_sum", "seq_mean_token_mean", "fixed_scale_sum")
every_kind = pytest.mark.parametrize("kind", KINDS)
every_aggregation = pytest.mark.parametrize("aggregation", AGGREGATIONS)


def example(seed, rows=5, tokens=6, spread=0.4):
    g = torch.Generator().manual_seed(seed)
    old = -2 * torch.rand(rows, tokens, generator=g, dtype=torch.float64) - 0.1
    new = old + spread * torch.randn(rows, tokens, generator=g, dtype=torch.float64)
    advantages = torch.randn(rows, tokens, generator=g, dtype=torch.float64)
    return new, old, advantages, torch.rand(rows, tokens, generator=g) < 0.7


def loop_loss(kind, new, old, advantages, mask):
    """Value and gradient by log π of every token, from the formulas, one at a time."""
    value, gradient = torch.zeros_like(new), torch.zeros_like(new)
    for i, j in mask.nonzero().tolist():
        a, rho = float(advantages[i, j]), math.exp(float(new[i, j] - old[i, j]))
        if kind == "reinforce":
            value[i, j], gradient[i, j] = -a * float(new[i, j]), -a
        else:
            low, high, limit = 0.8, 1.28, 3.0
            free = rho * a <= min(max(rho, low), high) * a
            value[i, j] = -min(rho * a, min(max(rho, low), high) * a)
            gradient[i, j] = -rho * a if free else 0.0
            if a < 0 and value[i, j] > -a * limit:
                value[i, j], gradient[i, j] = -a * limit, 0.0
    return value, gradient


@every_kind
@given(st.integers(0, 2**16), st.sampled_from([0.05, 0.4, 2.0]))
@settings(max_examples=30, deadline=None)
def test_value_and_gradient_are_those_of_the_formula(kind, seed, spread):
    """Weights multiply and are constants."""
    new, old, advantages, mask = example(seed, spread=spread)
    new.requires_grad_()
    weights = torch.rand_like(old).requires_grad_()
    got = losses.policy_loss(new, old, advantages, mask, kind=KINDS[kind], total=1.0, weights_BT=weights)
    got.loss.backward()
    value, gradient = loop_loss(kind, new.detach(), old, advantages, mask)
    assert float(got.loss.detach()) == pytest.approx(float((value * weights).sum().detach()), abs=1e-9)
    assert weights.grad is None and torch.allclose(new.grad, gradient * weights.detach(), atol=1e-9)


@every_kind
def test_a_ratio_beyond_float32_stays_finite(kind):
    new = torch.tensor([[-0.1, -0.1, -900.0]], requires_grad=True)
    old = torch.tensor([[-200.0, -200.0, -0.1]])
    got = losses.policy_loss(new, old, torch.tensor([[0.0, 1.0, 1.0]]), torch.ones(1, 3), kind=KINDS[kind], total=1.0)
    got.loss.backward()
    assert torch.isfinite(got.loss) and torch.isfinite(new.grad).all()
    assert all(torch.isfinite(value) for value in got.metrics.values())


def test_clipping_by_hand():
    old = torch.zeros(1, 6)
    ratio = torch.tensor([[1.5, 0.5, 1.5, 0.5, 5.0, 1.1]])
    advantages = torch.tensor([[1.0, 1.0, -1.0, -1.0, -1.0, 1.0]])
    new = ratio.log().requires_grad_()
    got = losses.policy_loss(new, old, advantages, torch.ones(1, 6), total=1.0)
    got.loss.backward()
    assert new.grad[0].tolist() == pytest.approx([0.0, -0.5, 1.5, 0.0, 0.0, -1.1])
    assert float(got.metrics["clip_fraction"]) == pytest.approx(2 / 6)
    assert float(got.metrics["dual_clip_fraction"]) == pytest.approx(1 / 6)
    assert float(got.metrics["ratio_max"]) == 5.0
    free = losses.policy_loss(new, old, advantages, torch.ones(1, 6), total=1.0, dual_clip=None)
    assert float(free.metrics["dual_clip_fraction"]) == 0


@every_kind
@every_aggregation
@given(st.integers(0, 2**16))
@settings(max_examples=10, deadline=None)
def test_masked_values_may_be_nan_and_padding_changes_nothing(kind, aggregation, seed):
    new, old, advantages, mask = example(seed)
    total = 3.0 if aggregation == "fixed_scale_sum" else None
    base = new.clone().requires_grad_()
    expected = losses.policy_loss(
        base, old, advantages, mask, kind=KINDS[kind], aggregation=aggregation, total=total
    ).loss
    expected.backward()
    dirty = [torch.where(mask, x, math.nan) for x in (new, old, advantages)]
    dirty = [torch.nn.functional.pad(x, (0, 2, 0, 3), value=math.nan) for x in dirty]
    padded_mask = torch.nn.functional.pad(mask.long(), (0, 2, 0, 3))
    leaf = dirty[0].requires_grad_()
    weights = torch.where(padded_mask.bool(), 1.0, math.nan)
    got = losses.policy_loss(
        leaf, *dirty[1:], padded_mask, kind=KINDS[kind], aggregation=aggregation, total=total, weights_BT=weights
    )
    got.loss.backward()
    assert float(got.loss.detach()) == pytest.approx(float(expected.detach()), abs=1e-12)
    assert torch.allclose(leaf.grad[:5, :6], base.grad, atol=1e-12)
    assert (leaf.grad[~padded_mask.bool()] == 0).all()
    assert all(math.isfinite(v) for v in got.metrics.values())


@every_aggregation
@given(st.integers(0, 2**16), st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_micro_batches_add_up_to_the_whole(aggregation, seed, size):
    new, old, advantages, mask = example(seed)
    total = 11.0 if aggregation == "fixed_scale_sum" else losses.denominator(mask, aggregation).clamp_min(1)
    given_total = total if aggregation == "fixed_scale_sum" else None
    whole = losses.policy_loss(new, old, advantages, mask, aggregation=aggregation, total=given_total).loss
    pieces = zip(*(x.split(size) for x in (new, old, advantages, mask)), strict=True)
    parts = [losses.policy_loss(*piece, aggregation=aggregation, total=total).loss for piece in pieces]
    assert float(sum(parts)) == pytest.approx(float(whole), abs=1e-12)


def test_aggregations_by_hand():
    loss = torch.tensor([[1.0, 2.0, 9.0], [6.0, 9.0, 9.0], [9.0, 9.0, 9.0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]])
    got = {a: float(losses.aggregate(loss, mask, a, 10.0 if a == "fixed_scale_sum" else None)) for a in AGGREGATIONS}
    assert got == pytest.approx(
        {"token_mean": 3.0, "seq_mean_token_sum": 4.5, "seq_mean_token_mean": 3.75, "fixed_scale_sum": 0.9}
    )
    nothing = torch.zeros_like(mask)
    assert all(float(losses.aggregate(loss, nothing, a, 1.0)) == 0 for a in AGGREGATIONS)
    assert all(float(losses.aggregate(loss, nothing, a)) == 0 for a in AGGREGATIONS[:3])


def enumerated(kind):
    """E under π of the penalty and of its gradient by the logits, exactly, and π's own numbers."""
    logits = torch.tensor([0.3, -1.0, 0.8, 0.0], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([0.0, 0.5, 0.2, -0.7], dtype=torch.float64).log_softmax(-1)
    logp = logits.log_softmax(-1)
    value = (logp.detach().exp() * losses.kl_penalty(logp, reference, kind)).sum()
    (gradient,) = torch.autograd.grad(value, logits, retain_graph=True)
    forward = (logp.exp() * (logp - reference)).sum()
    backward = (reference.exp() * (reference - logp)).sum()
    exact = [torch.autograd.grad(x, logits, retain_graph=True)[0] for x in (forward, backward)]
    return float(value.detach()), gradient, float(forward.detach()), *exact


def test_kl_values_and_gradients_by_enumeration():
    for kind in ("k1", "k3"):
        (
            value,
            *_,
        ) = enumerated(kind)
        assert value == pytest.approx(enumerated(kind)[2], abs=1e-12), "k1 and k3 are unbiased estimates of KL(π ‖ ref)"
    _, nothing, _, to_reference, from_reference = enumerated("k1")
    assert nothing.abs().max() < 1e-12 < to_reference.abs().max()
    assert torch.allclose(enumerated("k2")[1], to_reference, atol=1e-12)
    assert torch.allclose(enumerated("k3")[1], from_reference, atol=1e-12)
    assert not torch.allclose(to_reference, from_reference, atol=1e-2)


def test_the_kl_penalty_joins_the_loss():
    new, old, advantages, mask = example(6)
    plain = losses.policy_loss(new, old, advantages, mask, aggregation="token_mean").loss
    got = losses.policy_loss(
        new, old, advantages, mask, aggregation="token_mean", reference_BT=old, kl="k2", kl_coefficient=0.1
    )
    expected = 0.05 * float(((new - old) ** 2)[mask].mean())
    assert float(got.loss - plain) == pytest.approx(expected)
    assert float(got.metrics["kl"]) == pytest.approx(10 * expected)


def test_errors_name_the_cause():
    new, old, advantages, mask = example(0)
    with pytest.raises(ValueError, match="advantages"):
        losses.policy_loss(new, old, advantages[0], mask, total=1.0)
    with pytest.raises(ValueError, match="needs its scale"):
        losses.policy_loss(new, old, advantages, mask)
    with pytest.raises(ValueError, match="reference_BT"):
        losses.policy_loss(new, old, advantages, mask, total=1.0, kl_coefficient=0.1)
    with pytest.raises(ValueError, match="unknown KL"):
        losses.kl_penalty(new, old, "k4")
    with pytest.raises(ValueError, match="unknown aggregation"):
        losses.aggregate(new, mask, "sum", 1.0)
    with pytest.raises(ValueError, match="dual_clip > 1"):
        losses.policy_loss(new, old, advantages, mask, total=1.0, dual_clip=0.5)
