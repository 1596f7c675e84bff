"""The optimal token baseline against loops, autograd and the symmetries it must have."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drkernel.rl.maths import otb
from drkernel.rl.maths.advantages import group_ids

torch.set_num_threads(1)


def batch(seed, rows=9, tokens=7, groups=3):
    """Returns, weights, group and a ragged mask (prefixes, so that rows end at different tokens)."""
    g = torch.Generator().manual_seed(seed)
    returns = torch.randn(rows, tokens, generator=g, dtype=torch.float64)
    weights = torch.rand(rows, tokens, generator=g, dtype=torch.float64) + 0.01
    length = torch.randint(0, tokens + 1, (rows,), generator=g)
    group = torch.tensor([11, -5, 2**40])[torch.randint(groups, (rows,), generator=g)]
    return returns, weights, group, torch.arange(tokens) < length[:, None]


def loop_baseline(returns, weights, group, mask, leave_one_out, epsilon, tail):
    """The definition token by token, in a row's own order so that what it had last can be carried on."""
    out = torch.zeros_like(returns)
    rows = range(returns.shape[0])
    for i in rows:
        last = 0.0
        alone = sum(bool(mask[k].any()) for k in rows if group[k] == group[i]) <= 1
        for j in range(returns.shape[1]):
            there = [k for k in rows if group[k] == group[i] and mask[k, j]]
            others = [k for k in there if k != i]
            members = others if leave_one_out else there
            value = sum(float(returns[k, j] * weights[k, j]) for k in members)
            value /= sum(float(weights[k, j]) for k in members) + epsilon
            if others or (tail == "own" and not alone):
                last = value
            elif tail != "carry" or alone:
                last = 0.0
            out[i, j] = last if mask[i, j] else 0.0
    return out


@pytest.mark.parametrize(
    ("leave_one_out", "tail"), [(True, "carry"), (True, "zero"), (False, "carry"), (False, "zero"), (False, "own")]
)
@given(st.integers(0, 2**16))
@settings(max_examples=25, deadline=None)
def test_the_baseline_is_the_weighted_mean_of_its_definition(leave_one_out, tail, seed):
    """Row by row, so that neither order nor names nor other groups can matter; what is masked may be NaN."""
    returns, weights, group, mask = parts = batch(seed)
    options = {"leave_one_out": leave_one_out, "tail": tail}
    expected = loop_baseline(*parts, leave_one_out, 1e-8, tail)
    dirty = returns.masked_fill(~mask, math.nan), weights.masked_fill(~mask, math.nan), group, mask
    assert torch.allclose(otb.optimal_token_baseline(*dirty, **options), expected, atol=1e-10)
    assert torch.allclose(otb.otb(*dirty, **options), torch.where(mask, returns - expected, 0.0), atol=1e-10)


def test_the_tail_is_carried_for_others_only_and_zero_in_the_published_form():
    parts = batch(1)
    for leave_one_out, tail in ((True, "carry"), (False, "zero")):
        default = otb.optimal_token_baseline(*parts, leave_one_out=leave_one_out)
        assert torch.equal(default, otb.optimal_token_baseline(*parts, leave_one_out=leave_one_out, tail=tail))
    with pytest.raises(ValueError, match="own without leave_one_out"):
        otb.optimal_token_baseline(*parts, leave_one_out=True, tail="own")


def ragged_turns(seed, tasks=2, samples=3, turns=3, tokens=4):
    """Rows of trajectories that end at different turns, in shuffled order, some turns without tokens."""
    g = torch.Generator().manual_seed(seed)
    rows = [
        (n // samples, n, t)
        for n in range(tasks * samples)
        for t in range(int(torch.randint(1, turns + 1, (1,), generator=g)))
    ]
    rows = [rows[i] for i in torch.randperm(len(rows), generator=g).tolist()]
    task, trajectory, turn = (torch.tensor(part) for part in zip(*rows, strict=True))
    length = torch.randint(0, tokens + 1, (len(rows),), generator=g)
    mask = torch.arange(tokens) < length[:, None]
    logprobs = -torch.rand(len(rows), tokens, generator=g, dtype=torch.float64)
    rest = torch.rand(len(rows), tokens, generator=g, dtype=torch.float64) * (1 - logprobs.exp()).square()
    square = logprobs.exp().square() + rest
    returns = torch.randn(len(rows), generator=g, dtype=torch.float64)
    return returns, logprobs, square, mask, task, trajectory, turn


def joined(parts):
    """The definition of the tool-integrated form: lists of (return, cumulated energy, row, column) a trajectory."""
    returns, logprobs, square, mask, _, trajectory, turn = parts
    energy = 1 - 2 * logprobs.exp() + square
    lists = {}
    for row in sorted(range(len(turn)), key=lambda r: (int(trajectory[r]), int(turn[r]))):
        tokens = lists.setdefault(int(trajectory[row]), [])
        for column in range(mask.shape[1]):
            if mask[row, column]:
                before = tokens[-1][1] if tokens else 0.0
                tokens.append((float(returns[row]), before + max(0.0, float(energy[row, column])), row, column))
    return lists


@pytest.mark.parametrize("leave_one_out", [True, False])
@given(st.integers(0, 2**16))
@settings(max_examples=25, deadline=None)
def test_the_tool_integrated_form_lines_tokens_up_over_turns(leave_one_out, seed):
    parts = ragged_turns(seed)
    task, lists = parts[4], joined(parts)
    owner = {int(n): int(t) for n, t in zip(parts[5], task, strict=True)}
    expected = torch.zeros_like(parts[1])
    for n, tokens in lists.items():
        for position, (value, _, row, column) in enumerate(tokens):
            there = [m for m, other in lists.items() if owner[m] == owner[n] and len(other) > position]
            if there == [n]:
                baseline = 0.0
            else:
                there = [m for m in there if m != n] if leave_one_out else there
                weights = [lists[m][position][1] for m in there]
                baseline = sum(w * lists[m][position][0] for w, m in zip(weights, there, strict=True))
                baseline /= sum(weights) + 1e-8
            expected[row, column] = value - baseline
    got = otb.otb_tir(*parts, leave_one_out=leave_one_out, tail="zero")
    assert torch.allclose(got, expected, atol=1e-8)


def test_blocks_of_columns_do_not_show(monkeypatch):
    parts = batch(3, tokens=40)
    whole = otb.optimal_token_baseline(*parts)
    monkeypatch.setattr(otb, "_COLUMNS", 3)
    assert torch.equal(otb.optimal_token_baseline(*parts), whole)


def test_light_companions_of_a_heavy_row_keep_their_say_in_float32():
    returns = torch.tensor([[5.0], [1.0], [2.0]])
    weights = torch.tensor([[1e6], [1e-3], [3e-3]])
    got = otb.optimal_token_baseline(
        returns, weights, torch.zeros(3), torch.ones(3, 1), leave_one_out=True, epsilon=0.0
    )
    assert float(got[0]) == pytest.approx((1e-3 + 2 * 3e-3) / 4e-3, rel=1e-5)


def test_tokens_without_energy_have_no_baseline():
    # nothing flows through them either: their gradient is 0 whatever the advantage
    returns = torch.tensor([[6.0], [1.0], [2.0]])
    got = otb.otb(returns, torch.zeros(3, 1), torch.zeros(3), torch.ones(3, 1))
    assert got[:, 0].tolist() == [6.0, 1.0, 2.0]


@given(st.integers(0, 2**16), st.integers(2, 30))
@settings(max_examples=25, deadline=None)
def test_the_energy_is_the_squared_norm_of_the_logit_gradient(seed, vocabulary):
    g = torch.Generator().manual_seed(seed)
    logits = (3 * torch.randn(6, vocabulary, generator=g, dtype=torch.float64)).requires_grad_()
    tokens = torch.randint(vocabulary, (6,), generator=g)
    logprobs = logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0]
    (gradient,) = torch.autograd.grad(logprobs.sum(), logits)
    square = logits.detach().softmax(-1).square().sum(-1)
    assert torch.allclose(otb.token_energy(logprobs.detach(), square), gradient.square().sum(-1), atol=1e-12)


@pytest.mark.parametrize("others", [1, 5, 1000])
def test_the_energy_does_not_cancel_where_a_token_is_nearly_certain(others):
    """In float32, against float64: 1 − 2π + Σπ² is all rounding there, or 0."""
    for gap in (8.0, 12.0, 14.0):
        exact = torch.zeros(1 + others, dtype=torch.float64)
        exact[0] = gap
        true = float(1 - exact.softmax(0)[0]) ** 2 + float(exact.softmax(0)[1:].square().sum())
        logits = exact.float()
        square = logits.softmax(0).square().sum()
        got = otb.token_energy(logits.log_softmax(0)[0], square)
        assert true / 2.5 <= float(got) <= 2.5 * true, "the others' squares are at most their sum's square"
        assert float(otb.token_energy(logits.log_softmax(0)[1], square)) <= 2


def test_energy_runs_over_turns_and_skips_what_the_environment_wrote():
    energy = torch.tensor([[1.0, 2.0, 4.0], [8.0, math.nan, 16.0], [32.0, 64.0, 128.0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 1], [1, 1, 1]])
    # Rows 2 and 0 are turns 0 and 1 of trajectory 7; row 1 is another trajectory.
    got = otb.realized_energy(
        energy, mask, trajectory_B=torch.tensor([7, 3, 7]), turn_B=torch.tensor([1, 0, 0]), kind="cumulative"
    )
    assert got.tolist() == [[225.0, 227.0, 0.0], [8.0, 0.0, 24.0], [32.0, 96.0, 224.0]]
    assert otb.realized_energy(energy, mask, kind="token").tolist() == [[1, 2, 0], [8, 0, 16], [32, 64, 128]]
    ratios = torch.tensor([[2.0, 1.0, 1.0], [1.0, math.nan, 1.0], [1.0, 1.0, 1.0]])
    assert otb.realized_energy(energy, mask, ratios_BT=ratios)[0].tolist() == [4.0, 6.0, 0.0]


@given(st.integers(0, 2**16))
@settings(max_examples=20, deadline=None)
def test_one_row_a_trajectory_and_one_row_a_turn_accumulate_the_same_energy(seed):
    g = torch.Generator().manual_seed(seed)
    energy, mask = torch.rand(4, 3, 5, generator=g), torch.rand(4, 3, 5, generator=g) < 0.7
    joined = otb.realized_energy(energy.reshape(4, 15), mask.reshape(4, 15)).reshape(12, 5)
    order = torch.randperm(12, generator=g)
    rows = otb.realized_energy(
        energy.reshape(12, 5)[order],
        mask.reshape(12, 5)[order],
        trajectory_B=torch.arange(4).repeat_interleave(3)[order],
        turn_B=torch.arange(3).repeat(4)[order],
    )
    assert torch.allclose(rows, joined[order], atol=1e-5)


def test_otb_turns_is_the_composition_of_its_parts():
    g = torch.Generator().manual_seed(5)
    task, trajectory = torch.tensor([0, 0, 0, 0, 0]), torch.tensor([0, 0, 1, 1, 2])
    turn = torch.tensor([0, 1, 0, 1, 0])
    logprobs, mask = -torch.rand(5, 6, generator=g), torch.rand(5, 6, generator=g) < 0.8
    square, returns = torch.rand(5, 6, generator=g), torch.randn(5, generator=g)
    got = otb.otb_turns(returns, logprobs, square, mask, group_ids(task, turn), trajectory, turn)
    weights = otb.realized_energy(otb.token_energy(logprobs, square), mask, trajectory_B=trajectory, turn_B=turn)
    expected = otb.otb(returns[:, None].expand(5, 6), weights, group_ids(task, turn), mask)
    assert torch.equal(got, expected) and (got[~mask] == 0).all()


def test_errors_name_the_cause():
    returns, weights, group, mask = batch(0)
    with pytest.raises(ValueError, match="must all be"):
        otb.otb(returns, weights[:, :3], group, mask)
    with pytest.raises(ValueError, match=">= 0"):
        otb.otb(returns, -weights, group, mask)
    with pytest.raises(ValueError, match="NaN return"):
        otb.otb(returns.masked_fill(mask, math.nan), weights, group, mask)
    with pytest.raises(ValueError, match="unknown energy"):
        otb.realized_energy(weights, mask, kind="sum")
    with pytest.raises(ValueError, match="both"):
        otb.realized_energy(weights, mask, trajectory_B=group)
