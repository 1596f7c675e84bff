"""Dynamic vocabulary pruning: the kept set, its gradient, its bias, and that sampler and trainer agree."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drkernel.rl.maths.logprobs import token_statistics
from drkernel.rl.maths.vocabulary import DEFAULT_RATIO, keep_mask, prune_logits

torch.set_num_threads(1)


def pruned_mass(logits, ratio):
    """Probability outside the kept set, by position."""
    return (logits.softmax(-1) * ~keep_mask(logits, ratio)).sum(-1)


def logits_of(seed, shape=(4, 20), scale=4.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(st.integers(0, 2**16), st.sampled_from([0.0, 1e-4, 0.01, 0.3, 0.9]))
@settings(max_examples=40, deadline=None)
def test_the_kept_set_is_that_of_the_definition(seed, ratio):
    logits = logits_of(seed)
    p = logits.softmax(-1)
    assert torch.equal(keep_mask(logits, ratio), p >= ratio * p.amax(-1, keepdim=True))
    pruned = prune_logits(logits, ratio).softmax(-1)
    expected = p * keep_mask(logits, ratio)
    assert torch.allclose(pruned, expected / expected.sum(-1, keepdim=True))


@given(st.integers(0, 2**16), st.sampled_from([1e-4, 0.01, 0.3]))
@settings(max_examples=40, deadline=None)
def test_the_pruned_mass_is_the_total_variation_distance_and_is_bounded(seed, ratio):
    logits = logits_of(seed)
    p, q = logits.softmax(-1), prune_logits(logits, ratio).softmax(-1)
    mass = pruned_mass(logits, ratio)
    assert torch.allclose(mass, 0.5 * (p - q).abs().sum(-1), atol=1e-12)
    assert (mass <= 19 * ratio).all()


def test_the_objective_bias_is_at_most_the_pruned_mass_times_the_spread_of_rewards():
    for seed in range(20):
        logits, reward = (
            logits_of(seed),
            torch.rand(20, generator=torch.Generator().manual_seed(seed), dtype=torch.float64),
        )
        gap = ((logits.softmax(-1) - prune_logits(logits, 0.05).softmax(-1)) * reward).sum(-1).abs()
        assert (gap <= pruned_mass(logits, 0.05) * (reward.max() - reward.min()) + 1e-12).all()


def test_outside_tokens_get_no_gradient_and_inside_ones_the_renormalised_one():
    logits = logits_of(3).requires_grad_()
    tokens = logits.detach().topk(2, dim=-1).indices[:, 1]
    got = token_statistics(logits, tokens, keep_ratio=1e-3)
    logprobs, kept = got.logprobs, got.kept
    assert kept.all() and not keep_mask(logits, 1e-3).all()
    logprobs.sum().backward()
    q = prune_logits(logits.detach(), 1e-3).softmax(-1)
    expected = torch.nn.functional.one_hot(tokens, 20) - q
    assert torch.allclose(logits.grad, expected, atol=1e-12)
    assert (logits.grad[~keep_mask(logits, 1e-3)] == 0).all()


def test_a_sampled_token_outside_the_set_is_flagged_finite_and_without_gradient():
    logits = torch.tensor([[0.0, -20.0, 1.0]], requires_grad=True)
    got = token_statistics(logits, torch.tensor([1]), keep_ratio=DEFAULT_RATIO)
    logprobs, kept = got.logprobs, got.kept
    assert not kept[0] and math.isfinite(logprobs[0].detach())
    logprobs.sum().backward()
    assert logits.grad.abs().sum() == 0


@given(st.integers(0, 2**16))
@settings(max_examples=20, deadline=None)
def test_the_chunked_trainer_side_prunes_the_same_set(seed):
    logits = logits_of(seed).float()
    tokens = torch.randint(20, (4,), generator=torch.Generator().manual_seed(seed))
    expected = prune_logits(logits, 0.01).log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
    kept = keep_mask(logits, 0.01).gather(-1, tokens[:, None])[:, 0]
    got = token_statistics(logits, tokens, keep_ratio=0.01, chunk=6)
    assert torch.equal(got.kept, kept) and torch.allclose(got.logprobs[kept], expected[kept], atol=1e-5)


def test_the_default_and_its_limits():
    assert pytest.approx(2.26e-6, rel=1e-2) == DEFAULT_RATIO
    with pytest.raises(ValueError, match=r"\[0, 1\)"):
        keep_mask(torch.zeros(3), 1.0)
    constant = torch.zeros(2, 5)
    assert keep_mask(constant, 0.99).all() and pruned_mass(constant, 0.99).abs().max() < 1e-12
