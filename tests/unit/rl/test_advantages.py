"""Advantage estimators against loop-per-sample references, by hand, and under the symmetries they must have."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drkernel.rl.maths import advantages as adv

torch.set_num_threads(1)


def loop_trloo(returns, group, valid):
    """The definition, one row at a time: G minus the mean of the other valid members; alone keeps G; invalid gets 0."""
    out = []
    for i in range(len(returns)):
        others = [returns[j] for j in range(len(returns)) if j != i and group[j] == group[i] and valid[j]]
        out.append(0.0 if not valid[i] else returns[i] - (sum(others) / len(others) if others else 0.0))
    return out


def loop_grpo(returns, group, valid, std, epsilon=1e-6):
    out = []
    for i in range(len(returns)):
        members = [returns[j] for j in range(len(returns)) if group[j] == group[i] and valid[j]]
        if not valid[i]:
            out.append(0.0)
        elif len(members) == 1:
            out.append(returns[i])
        else:
            mean = sum(members) / len(members)
            deviation = math.sqrt(sum((m - mean) ** 2 for m in members) / (len(members) - 1))
            out.append((returns[i] - mean) / (deviation + epsilon if std else 1.0))
    return out


@st.composite
def batches(draw, max_rows=24):
    rows = draw(st.integers(1, max_rows))
    values = draw(st.lists(st.floats(-4, 4, width=32), min_size=rows, max_size=rows))
    groups = draw(st.lists(st.sampled_from([3993, -7, 0, 1, 2**40]), min_size=rows, max_size=rows))
    valid = torch.tensor(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
    return torch.tensor(values, dtype=torch.float64).masked_fill(~valid, math.nan), torch.tensor(groups), valid


DEFINITIONS = {
    "trloo": (adv.trloo, loop_trloo),
    "grpo": (adv.grpo, partial(loop_grpo, std=False)),
    "grpo_std": (adv.grpo_std, partial(loop_grpo, std=True)),
    "kevin": (adv.kevin, partial(loop_grpo, std=True)),
    "kevin without std": (partial(adv.kevin, std=False), partial(loop_grpo, std=False)),
}
ESTIMATORS = {name: estimator for name, (estimator, _) in DEFINITIONS.items()}
by_group = pytest.mark.parametrize("name", ESTIMATORS)


@by_group
@given(batches())
@settings(max_examples=60, deadline=None)
def test_advantages_are_those_of_the_definition_whatever_groups_are_called_and_invalid_rows_hold(name, batch):
    """Row by row, so that neither order nor padding nor other groups can matter."""
    estimator, definition = DEFINITIONS[name]
    expected = definition(*(part.tolist() for part in batch))
    # Deviations near 0 divide rounding noise by epsilon; 1e-6 is far below any real advantage.
    assert torch.allclose(estimator(*batch), torch.tensor(expected, dtype=torch.float64), atol=1e-6)


@given(st.integers(1, 5), st.integers(1, 6), st.floats(0, 1), st.integers(0, 2**16))
@settings(max_examples=40, deadline=None)
def test_turn_returns_is_the_sum_of_its_definition_in_either_layout(rows, turns, gamma, seed):
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.randn(rows, turns, generator=generator, dtype=torch.float64)
    valid = torch.rand(rows, turns, generator=generator) < 0.7
    got = adv.turn_returns(rewards.masked_fill(~valid, math.nan), valid, gamma)
    for n in range(rows):
        for t in range(turns):
            terms = [gamma ** (k - t) * rewards[n, k] * valid[n, k] for k in range(t, turns)]
            assert got[n, t] == pytest.approx(float(sum(terms)) if valid[n, t] else 0.0, abs=1e-12)
    order = torch.randperm(rows * turns, generator=generator)
    trajectory = torch.arange(rows).repeat_interleave(turns)[order]
    turn = torch.arange(turns).repeat(rows)[order]
    flat = adv.flat_turn_returns(rewards.reshape(-1)[order], trajectory, turn, valid.reshape(-1)[order], gamma)
    assert torch.equal(flat, got.reshape(-1)[order])


def test_two_rows_for_one_turn_are_refused():
    one = torch.ones(2)
    with pytest.raises(ValueError, match="same \\(trajectory, turn\\)"):
        adv.flat_turn_returns(one, torch.tensor([3, 3]), torch.tensor([0, 0]), one.bool())


def test_ragged_groups_and_groups_of_one():
    # Task 0: three trajectories with 2, 2 and 1 turns; task 1: one trajectory.
    task, turn = torch.tensor([0, 0, 0, 0, 0, 1]), torch.tensor([0, 1, 0, 1, 0, 0])
    group = adv.group_ids(task, turn)
    assert group[[0, 2, 4]].unique().numel() == 1 and group.unique().numel() == 3
    returns = torch.tensor([3.0, 1.0, 2.0, 5.0, 1.0, 7.0])
    valid = torch.ones(6, dtype=torch.bool)
    assert adv.trloo(returns, group, valid).tolist() == [1.5, -4.0, 0.0, 4.0, -1.5, 7.0]
    assert adv.trloo(returns, group, valid, alone="zero")[-1] == 0
    assert adv.grpo(returns, group, valid, alone="zero").tolist() == [1.0, -2.0, 0.0, 2.0, -1.0, 0.0]


def test_equal_returns_get_no_advantage():
    returns, group = torch.full((4,), 0.1), torch.zeros(4, dtype=torch.int64)
    for name, estimator in ESTIMATORS.items():
        assert estimator(returns, group, torch.ones(4)).abs().max() < 1e-6, name


def test_rloo_uses_the_totals_of_the_other_trajectories():
    # Two turns of trajectory 10, one of 11, one of 12 (failed: valid False) and one of task 1.
    task, trajectory = torch.tensor([0, 0, 0, 0, 1]), torch.tensor([10, 10, 11, 12, 13])
    returns, totals = torch.tensor([3.0, 2.0, 1.0, 9.0, 4.0]), torch.tensor([3.0, 3.0, 1.0, 9.0, 4.0])
    valid = torch.tensor([1, 1, 1, 0, 1])
    got = adv.rloo(returns, totals, task, trajectory, valid)
    assert got.tolist() == [3.0 - 1.0, 2.0 - 1.0, 1.0 - 3.0, 0.0, 4.0]
    classic = adv.rloo(totals, totals, task, trajectory, valid)
    assert classic.tolist() == [2.0, 2.0, -2.0, 0.0, 4.0]


def test_reinforce_baselines():
    returns, valid = torch.tensor([1.0, 2.0, 6.0, 100.0]), torch.tensor([1, 1, 1, 0])
    assert adv.reinforce(returns, valid, baseline="none").tolist() == [1.0, 2.0, 6.0, 0.0]
    assert adv.reinforce(returns, valid).tolist() == [-2.0, -1.0, 3.0, 0.0]
    assert adv.reinforce(returns, valid, baseline="leave_one_out").tolist() == [-3.0, -1.5, 4.5, 0.0]
    with pytest.raises(ValueError, match="unknown baseline"):
        adv.reinforce(returns, valid, baseline="median")


@by_group
def test_empty_batches_are_empty(name):
    empty = torch.zeros(0)
    assert ESTIMATORS[name](empty, empty.long(), empty.bool()).shape == (0,)


@by_group
def test_float32_rows_do_not_lose_small_differences_beside_a_large_mean(name):
    returns = torch.tensor([1000.0, 1000.25, 1000.5, 1000.75])
    exact = ESTIMATORS[name](returns.double(), torch.zeros(4, dtype=torch.int64), torch.ones(4))
    assert torch.allclose(
        ESTIMATORS[name](returns, torch.zeros(4, dtype=torch.int64), torch.ones(4)), exact.float(), atol=1e-7
    )


def test_errors_name_the_cause():
    one = torch.ones(2)
    with pytest.raises(ValueError, match="NaN"):
        adv.trloo(torch.tensor([1.0, math.nan]), torch.zeros(2), one)
    with pytest.raises(ValueError, match="unknown rule"):
        adv.trloo(one, torch.zeros(2), one, alone="mean")
    with pytest.raises(ValueError, match=r"\[B\]"):
        adv.trloo(one, torch.zeros(3), one)
    with pytest.raises(ValueError, match="trajectories, turns"):
        adv.turn_returns(one, one)


def test_broadcast_to_tokens_is_zero_where_masked():
    got = adv.broadcast_to_tokens(torch.tensor([2.0, -1.0]), torch.tensor([[1, 0], [1, 1]]))
    assert got.tolist() == [[2.0, 0.0], [-1.0, -1.0]]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool])
def test_integer_rewards_have_fractional_advantages(dtype):
    rewards = torch.tensor([0, 1, 1, 0, 1]).to(dtype)
    group, valid = torch.zeros(5, dtype=torch.int64), torch.ones(5, dtype=torch.bool)
    for estimator in (adv.trloo, adv.grpo, adv.grpo_std):
        got = estimator(rewards, group, valid)
        assert got.dtype == torch.float32 and torch.equal(got, estimator(rewards.float(), group, valid))
        assert got.abs().min() > 0
    turns = torch.arange(5)
    assert torch.equal(
        adv.flat_turn_returns(rewards, group, turns, valid, 0.4),
        adv.flat_turn_returns(rewards.float(), group, turns, valid, 0.4),
    )
    for baseline in ("none", "mean", "leave_one_out"):
        assert torch.equal(
            adv.reinforce(rewards, valid, baseline=baseline), adv.reinforce(rewards.float(), valid, baseline=baseline)
        )


def after_20_steps(estimator, valid):
    """Parameters of a small model after 20 steps of AdamW on groups of 4 that it samples nothing from: rewards and
    features are drawn once, ``valid`` [4, 3] says who reaches which turn."""
    g = torch.Generator().manual_seed(3)
    weights = torch.randn(6, 5, generator=g, dtype=torch.float64).requires_grad_()
    optimizer = torch.optim.AdamW([weights], lr=1e-2, eps=1e-30, weight_decay=0.1)
    trajectory, turn = torch.arange(4).repeat_interleave(3), torch.arange(3).repeat(4)
    for _ in range(20):
        features = torch.randn(12, 6, generator=g, dtype=torch.float64)
        actions = torch.randint(5, (12,), generator=g)
        rewards = torch.rand(12, generator=g, dtype=torch.float64)
        advantages = estimator(adv.flat_turn_returns(rewards, trajectory, turn, valid), turn, valid)
        logprobs = (features @ weights).log_softmax(-1)[torch.arange(12), actions]
        optimizer.zero_grad()
        (-(advantages * logprobs).sum()).backward()
        optimizer.step()
    return weights.detach()


def test_with_equal_groups_and_adamw_trloo_and_the_papers_grpo_are_the_same_algorithm():
    """The factor N/(N - 1) is cancelled; where groups are ragged it differs by turn and is not."""
    equal = torch.ones(12, dtype=torch.bool)
    ragged = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 0], [1, 0, 0]]).bool().flatten()
    apart = {name: (after_20_steps(adv.trloo, valid) - after_20_steps(adv.grpo, valid)).abs().max()
             for name, valid in (("equal", equal), ("ragged", ragged))}  # fmt: skip
    assert apart["equal"] < 1e-12 and apart["ragged"] > 1e-3, apart
    normalised = after_20_steps(adv.grpo_std, equal)
    assert (normalised - after_20_steps(adv.trloo, equal)).abs().max() > 1e-3, "std is another method"


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 2**16))
@settings(max_examples=50, deadline=None)
def test_best_returns_are_those_of_the_definition_in_either_layout(rows, turns, seed):
    g = torch.Generator().manual_seed(seed)
    rewards = torch.randn(rows, turns, generator=g, dtype=torch.float64)
    valid = torch.rand(rows, turns, generator=g) < 0.7
    got = adv.best_returns(rewards.masked_fill(~valid, math.nan), valid)
    for n in range(rows):
        for t in range(turns):
            before = [float(rewards[n, k]) for k in range(t) if valid[n, k]]
            later = [float(rewards[n, k]) for k in range(t, turns) if valid[n, k]]
            expected = 0.0
            if valid[n, t]:
                expected = max(0.0, max(later) - max(before)) if before else max(later)
            assert float(got[n, t]) == pytest.approx(expected, abs=1e-12)
    order = torch.randperm(rows * turns, generator=g)
    trajectory, turn = torch.arange(rows).repeat_interleave(turns)[order], torch.arange(turns).repeat(rows)[order]
    flat = adv.flat_best_returns(rewards.reshape(-1)[order], trajectory, turn, valid.reshape(-1)[order])
    assert torch.equal(flat, got.reshape(-1)[order])
