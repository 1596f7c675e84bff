"""PRS, and which prompts teach nothing."""

import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drkernel.rl.maths.rejection import keep_probability, prs, uninformative_prompts

torch.set_num_threads(1)


def test_the_probability_is_the_clipped_ramp():
    got = keep_probability(torch.tensor([0.0, 0.3, 0.325, 0.35, 0.4, 1.0]))
    assert got.tolist() == pytest.approx([0.0, 0.0, 0.25, 0.5, 1.0, 1.0], abs=1e-6)
    assert keep_probability(torch.tensor([0.29, 0.3, 0.31]), width=0).tolist()[::2] == [0.0, 1.0]


def test_only_correct_turns_are_ever_rejected_and_invalid_ones_never_kept():
    coverage = torch.tensor([0.0, 0.0, 1.0, math.nan, 0.0])
    got = prs(coverage, torch.tensor([1, 0, 1, 0, 1]), torch.tensor([1, 1, 1, 1, 0]), seed=0)
    assert got.tolist() == [False, True, True, True, False]


@pytest.mark.parametrize("keyed", [True, False])
def test_the_share_kept_is_the_probability_and_the_seed_decides(keyed):
    n = 40_000
    coverage, ones = torch.full((n,), 0.325, dtype=torch.float64), torch.ones(n)
    key = torch.arange(n) * 7 - 1000 if keyed else None
    first, again, other = (prs(coverage, ones, ones, seed=s, key_B=key) for s in (3, 3, 4))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert float(first.float().mean()) == pytest.approx(0.25, abs=4 * math.sqrt(0.1875 / n))
    both = float((first & other).float().mean())
    assert both == pytest.approx(0.0625, abs=4 * math.sqrt(0.0586 / n)), "seeds must be independent"
    neighbours = float((first[1:] & first[:-1]).float().mean())
    assert neighbours == pytest.approx(0.0625, abs=6 * math.sqrt(0.0586 / n)), "rows must be independent"


@given(st.integers(0, 2**16), st.integers(-(2**70), 2**70))
@settings(max_examples=30, deadline=None)
def test_with_keys_neither_order_nor_batching_matters(seed, draw_seed):
    g = torch.Generator().manual_seed(seed)
    coverage, correct, valid = (
        torch.rand(30, generator=g),
        torch.rand(30, generator=g) < 0.7,
        torch.rand(30, generator=g) < 0.9,
    )
    key = torch.randperm(10_000, generator=g)[:30]
    whole = prs(coverage, correct, valid, seed=draw_seed, key_B=key)
    order = torch.randperm(30, generator=g)
    parts = [prs(coverage[i], correct[i], valid[i], seed=draw_seed, key_B=key[i]) for i in order.split(7)]
    assert torch.equal(torch.cat(parts), whole[order])


def test_a_fast_turn_stays_whatever_its_coverage_when_asked():
    coverage, speedup, ones = torch.zeros(2), torch.tensor([1.4, 1.6]), torch.ones(2)
    got = prs(coverage, ones, ones, seed=0, speedup_B=speedup, speedup_keeps=1.5)
    assert got.tolist() == [False, True]


def test_errors_name_the_cause():
    ones = torch.ones(2)
    with pytest.raises(ValueError, match="no coverage"):
        prs(torch.tensor([0.5, math.nan]), ones, ones, seed=0)
    with pytest.raises(ValueError, match=r"\[B\]"):
        prs(ones, torch.ones(3), ones, seed=0)
    with pytest.raises(ValueError, match="speedup_B"):
        prs(ones, ones, ones, seed=0, speedup_keeps=1.0)
    with pytest.raises(ValueError, match="width"):
        keep_probability(ones, width=-1.0)
    with pytest.raises(ValueError, match="one integer"):
        prs(ones, ones, ones, seed=0, key_B=torch.ones(3))


def why_by_definition(prompts, tolerance, least, turns):
    """Reasons by definition; a prompt is a list of trajectories, each a list of (reward, valid, overlong)."""
    found = {}
    for task, trajectories in enumerate(prompts):
        last = max(map(len, trajectories)) - 1
        counted = [t for t in trajectories if any(valid for _, valid, _ in t)]
        table = [[r if v else 0.0 for r, v, _ in t] + [0.0] * (last + 1 - len(t)) for t in counted]
        ends = [t[last][2] for t in counted if len(t) == last + 1 and t[last][1]]
        columns = range(last + 1) if turns == "any" else [last]
        spread = [statistics.stdev(row[k] for row in table) if len(table) > 1 else 0.0 for k in columns]
        if len(counted) < (len(trajectories) // 2 + 1 if least is None else least):
            found[task] = "few"
        elif ends and all(ends):
            found[task] = "overlong"
        elif max(spread) < tolerance:
            found[task] = "equal"
    return found


TURNS = st.tuples(st.sampled_from([0.0, 0.0005, 1.0, 1.5]), st.sampled_from([True, True, True, False]), st.booleans())
PROMPTS = st.lists(st.lists(st.lists(TURNS, min_size=1, max_size=3), min_size=1, max_size=4), min_size=1, max_size=4)


@given(PROMPTS, st.sampled_from([None, 0, 2]), st.sampled_from(["last", "any"]), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_prompts_that_teach_nothing_are_those_of_the_definition_in_any_order(prompts, least, turns, random):
    rows = [
        (float(reward), task, 10 * task + i, t, valid, overlong)
        for task, trajectories in enumerate(prompts)
        for i, played in enumerate(trajectories)
        for t, (reward, valid, overlong) in enumerate(played)
    ]
    random.shuffle(rows)
    columns = [torch.tensor(column) for column in zip(*rows, strict=True)]
    got = uninformative_prompts(*columns, least=least, turns=turns)
    assert got == why_by_definition(prompts, 1e-3, least, turns)


def test_sixteen_samples_need_nine_that_are_valid():
    task, trajectory, turn = torch.zeros(16, dtype=torch.int64), torch.arange(16), torch.zeros(16, dtype=torch.int64)
    rewards = torch.arange(16.0)
    for valid, expected in ((9, {}), (8, {0: "few"})):
        assert uninformative_prompts(rewards, task, trajectory, turn, torch.arange(16) < valid) == expected
    with pytest.raises(ValueError, match="last or any"):
        uninformative_prompts(rewards, task, trajectory, turn, rewards >= 0, turns="first")
