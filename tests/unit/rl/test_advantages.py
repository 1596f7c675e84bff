"""Advantage estimators against loop-per-sample references, by hand, and under the symmetries they must have."""

import math

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
    groups = draw(st.lists(st.integers(0, 4), min_size=rows, max_size=rows))
    valid = draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
    return torch.tensor(values, dtype=torch.float64), torch.tensor(groups), torch.tensor(valid)


ESTIMATORS = {
    "trloo": adv.trloo,
    "grpo": adv.grpo,
    "grpo_std": adv.grpo_std,
    "kevin": adv.kevin,
}
by_group = pytest.mark.parametrize("name", ESTIMATORS)


@given(batches())
@settings(max_examples=60, deadline=None)
def test_trloo_is_the_return_minus_the_mean_of_the_others(batch):
    returns, group, valid = batch
    expected = loop_trloo(returns.tolist(), group.tolist(), valid.tolist())
    assert torch.allclose(adv.trloo(*batch), torch.tensor(expected, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("std", [True, False])
@given(batches())
@settings(max_examples=60, deadline=None)
def test_grpo_is_the_centred_return_normalised_with_std(std, batch):
    returns, group, valid = batch
    expected = loop_grpo(returns.tolist(), group.tolist(), valid.tolist(), std)
    got = (adv.grpo_std if std else adv.grpo)(returns, group, valid)
    # Deviations near 0 divide rounding noise by epsilon; 1e-6 is far below any real advantage.
    assert torch.allclose(got, torch.tensor(expected, dtype=torch.float64), atol=1e-6)


@by_group
@given(batches(), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_permuting_rows_permutes_advantages(name, batch, random):
    order = list(range(len(batch[0])))
    random.shuffle(order)
    shuffled = ESTIMATORS[name](*(part[order] for part in batch))
    assert torch.allclose(shuffled, ESTIMATORS[name](*batch)[order], atol=1e-6)


@by_group
@given(batches(), st.permutations(range(5)))
@settings(max_examples=40, deadline=None)
def test_names_of_groups_do_not_matter(name, batch, names):
    returns, group, valid = batch
    renamed = torch.tensor([names[g] * 1000 - 7 for g in group.tolist()])
    assert torch.equal(ESTIMATORS[name](returns, renamed, valid), ESTIMATORS[name](*batch))


@by_group
@given(batches(), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_padding_rows_change_nothing_even_when_they_hold_nan(name, batch, extra):
    returns, group, valid = batch
    padded = (
        torch.cat([returns, torch.full((extra,), math.nan, dtype=returns.dtype)]),
        torch.cat([group, torch.zeros(extra, dtype=group.dtype)]),
        torch.cat([valid, torch.zeros(extra, dtype=torch.bool)]),
    )
    got = ESTIMATORS[name](*padded)
    assert torch.allclose(got[: len(returns)], ESTIMATORS[name](*batch), atol=1e-9)
    assert torch.equal(got[len(returns) :], torch.zeros(extra, dtype=torch.float64))


@by_group
@given(batches(), st.floats(-3, 3))
@settings(max_examples=40, deadline=None)
def test_a_constant_added_to_a_group_cancels_unless_the_row_is_alone(name, batch, constant):
    returns, group, valid = batch
    moved = ESTIMATORS[name](returns + constant * (group == 1), group, valid)
    still = ESTIMATORS[name](*batch)
    counts = torch.tensor([int((valid & (group == g)).sum()) for g in group])
    # Deviations near 0 amplify the rounding of the shifted sum.
    assert torch.allclose(moved[counts > 1], still[counts > 1], atol=1e-4)
    lonely = (counts == 1) & valid & (group == 1)
    assert torch.allclose(moved[lonely], still[lonely] + constant, atol=1e-12)


@by_group
@given(batches(), batches())
@settings(max_examples=40, deadline=None)
def test_splitting_a_batch_between_groups_changes_nothing(name, left, right):
    right = (right[0], right[1] + 5, right[2])
    joined = ESTIMATORS[name](*(torch.cat(parts) for parts in zip(left, right, strict=True)))
    apart = torch.cat([ESTIMATORS[name](*left), ESTIMATORS[name](*right)])
    assert torch.allclose(joined, apart, atol=1e-9)


def test_turn_returns_by_hand_with_a_gap_and_a_discount():
    rewards = torch.tensor([[1.0, 2.0, 4.0], [1.0, math.nan, 4.0]])
    valid = torch.tensor([[1, 1, 1], [1, 0, 1]])
    assert adv.turn_returns(rewards, valid).tolist() == [[7.0, 6.0, 4.0], [5.0, 0.0, 4.0]]
    half = adv.turn_returns(rewards, valid, gamma=0.5)
    assert half.tolist() == [[3.0, 4.0, 4.0], [2.0, 0.0, 4.0]]


@given(st.integers(1, 5), st.integers(1, 6), st.floats(0, 1), st.integers(0, 2**16))
@settings(max_examples=40, deadline=None)
def test_turn_returns_is_the_sum_of_its_definition_in_either_layout(rows, turns, gamma, seed):
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.randn(rows, turns, generator=generator, dtype=torch.float64)
    valid = torch.rand(rows, turns, generator=generator) < 0.7
    got = adv.turn_returns(rewards, valid, gamma)
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


def test_kevin_compares_all_turns_of_a_task():
    discounted, task = torch.tensor([1.0, 3.0, 5.0]), torch.zeros(3, dtype=torch.int64)
    assert adv.kevin(discounted, task, torch.ones(3), std=False).tolist() == [-2.0, 0.0, 2.0]
    assert torch.allclose(adv.kevin(discounted, task, torch.ones(3)), torch.tensor([-1.0, 0.0, 1.0]), atol=1e-5)


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


def test_repeating_a_lazy_answer_earns_nothing_by_the_best():
    """Lazy, lazy, fused earns 4.55 by the sum, fused at once 2.20; by the best both earn 2.20."""
    rewards = torch.tensor([[1.175, 1.175, 2.2], [2.2, 0.0, 0.0], [2.2, 1.0, 1.175]])
    valid = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 1]])
    assert adv.turn_returns(rewards, valid)[:2, 0].tolist() == pytest.approx([4.55, 2.2])
    best = adv.best_returns(rewards, valid)
    assert best[0].tolist() == pytest.approx([2.2, 1.025, 1.025])
    assert best[1].tolist() == pytest.approx([2.2, 0, 0]) and best[2].tolist() == pytest.approx([2.2, 0, 0])


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
