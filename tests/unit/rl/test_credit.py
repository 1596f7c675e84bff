"""Which turns a batch's credit is made of: void turns, and trajectories that the grader failed."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drkernel.config import ConfigError
from drkernel.rl.run import registry
from drkernel.rl.run.learner import LearnerConfig, give_credit
from drkernel.rl.run.registry import TurnBatch
from rl_tree import Tree

torch.set_num_threads(1)


def credit(rewards, order=None, **config):
    """Credit of trajectories of one task, each a list of rewards (None: no grade), one token a turn."""
    rows = [(i, t, value) for i, turns in enumerate(rewards) for t, value in enumerate(turns)]
    rows = rows if order is None else [rows[k] for k in order]
    valid = torch.tensor([value is not None for _, _, value in rows])
    nothing = torch.zeros(len(rows), 1, dtype=torch.float64)
    batch = TurnBatch(
        rewards_B=torch.tensor([value or 0.0 for _, _, value in rows], dtype=torch.float64),
        task_B=torch.zeros(len(rows), dtype=torch.int64),
        trajectory_B=torch.tensor([i for i, _, _ in rows]),
        turn_B=torch.tensor([t for _, t, _ in rows]),
        valid_B=valid,
        logprobs_BT=nothing,
        mask_BT=valid[:, None],
    )
    given_ = give_credit(batch, nothing, LearnerConfig(mismatch=[], **config), seed=0)
    advantages, trains = given_.advantages_BT[:, 0].tolist(), given_.mask_BT[:, 0].tolist()
    found = [[None] * len(turns) for turns in rewards]
    for (i, t, _), value, kept in zip(rows, advantages, trains, strict=True):
        assert kept or value == 0
        found[i][t] = value if kept else None
    return found, given_.metrics


def by_hand(rewards):
    """TRLOO's advantages by definition, without void turns; None where a turn counts for nothing."""
    counts = [
        [turn is not None and not (turn <= 0 and any((r or 0) > 0 for r in turns[:t])) for t, turn in enumerate(turns)]
        for turns in rewards
    ]
    found = []
    for i, turns in enumerate(rewards):
        found.append([None] * len(turns))
        for t in range(len(turns)):
            if not counts[i][t]:
                continue
            togo = {
                k: sum(r for r, c in zip(other[t:], counts[k][t:], strict=True) if c)
                for k, other in enumerate(rewards)
                if t < len(other) and counts[k][t]
            }
            others = [value for k, value in togo.items() if k != i]
            found[i][t] = togo[i] - (sum(others) / len(others) if others else 0.0)
    return found


def near(got, expected):
    flat = [value for turns in got for value in turns], [value for turns in expected for value in turns]
    return all((a is None) == (b is None) and (a is None or abs(a - b) < 1e-9) for a, b in zip(*flat, strict=True))


def test_the_worked_example_of_void_turns():
    rewards = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.5]]
    got, metrics = credit(rewards, mask_void_turns=True)
    assert near(got, [[-0.75, None], [-0.75, -0.5], [1.5, 0.5]]), got
    assert metrics["void_turns"] == pytest.approx(1 / 6) and metrics["trained_tokens"] == 5
    without, metrics = credit(rewards)
    assert near(without, [[-0.75, -1.25], [-0.75, 0.25], [1.5, 1.0]]), "void turns train, and are in the baselines"
    assert metrics["void_turns"] == 0


REWARDS = st.lists(
    st.lists(st.sampled_from([-0.5, 0.0, 0.5, 1.0, 2.25]), min_size=1, max_size=4), min_size=1, max_size=5
)


@given(REWARDS, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_void_turns_count_for_nothing_by_definition_in_any_order(rewards, random):
    order = list(range(sum(map(len, rewards))))
    random.shuffle(order)
    got, _ = credit(rewards, order, mask_void_turns=True)
    assert near(got, by_hand(rewards)), (got, by_hand(rewards))


@given(REWARDS)
@settings(max_examples=30, deadline=None)
@pytest.mark.parametrize("advantage", ["trloo", "grpo", "kevin", "reinforce"])
def test_what_a_void_turn_earned_does_not_matter(advantage, rewards):
    """Any other reward that is not positive gives the same credit to all the others."""
    lower = []
    for turns in rewards:
        first = next((t for t, value in enumerate(turns) if value > 0), len(turns))
        lower.append([value - 7.0 if t > first and value <= 0 else value for t, value in enumerate(turns)])
    options = {"advantage": advantage, "mask_void_turns": True}
    assert near(credit(rewards, **options)[0], credit(lower, **options)[0])


def gradient_with_faults(tree, n, fault):
    """E of TRLOO's gradient by turn, [turns, P], over all groups of n and all faults of the grader.

    Each turn's grade fails with probability ``fault``, whatever the answer, and ends the trajectory."""
    members, weights = tree.groups(n)
    groups, turns = members.shape[0], tree.turns
    lengths = list(itertools.product(range(turns + 1), repeat=n))  # graded turns of each trajectory before the fault
    ends = [(1 - fault) ** k * (fault if k < turns else 1.0) for k in range(turns + 1)]
    chance = torch.tensor(ends, dtype=torch.float64)
    lived = torch.tensor(lengths)
    cases = len(lengths)
    turn = torch.arange(turns).expand(cases, groups, n, turns)
    played = turn <= lived[:, None, :, None]
    valid = turn < lived[:, None, :, None]
    trajectory = torch.arange(cases * groups * n).reshape(cases, groups, n, 1).expand_as(turn)
    nothing = torch.zeros(int(played.sum()), 1, dtype=torch.float64)
    batch = TurnBatch(
        rewards_B=tree.rewards()[members].expand(cases, groups, n, turns)[played],
        task_B=(trajectory // n)[played],
        trajectory_B=trajectory[played],
        turn_B=turn[played],
        valid_B=valid[played],
        logprobs_BT=nothing,
        mask_BT=valid[played][:, None],
    )
    given_ = give_credit(batch, nothing, LearnerConfig(mismatch=[]), seed=0)
    advantages = torch.zeros(cases, groups, n, turns, dtype=torch.float64)
    advantages[played] = given_.advantages_BT[:, 0] * given_.mask_BT[:, 0]
    weighted = advantages * chance[lived].prod(1)[:, None, None, None] * weights[None, :, None, None] / n
    return torch.einsum("cgnt,gntp->tp", weighted, tree.scores()[members])


def test_masking_a_trajectory_for_a_fault_is_not_biased():
    tree, fault = Tree(4, actions=2, turns=3, end=0.0), 0.05
    true, lives = tree.turn_gradients(), 1 - fault
    whole = gradient_with_faults(tree, 2, fault)
    assert float((whole - lives**3 * true).abs().max()) < 1e-12, "it only removes data"


@given(st.lists(st.lists(st.sampled_from([None, 0.0, 1.0, 2.5]), min_size=1, max_size=4), min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_a_fault_removes_its_trajectory_as_if_it_had_not_been_drawn(rewards):
    intact = [turns for turns in rewards if None not in turns]
    got, metrics = credit(rewards, mask_void_turns=True)
    assert near([g for g, turns in zip(got, rewards, strict=True) if None not in turns], by_hand(intact))
    assert all(value is None for g, turns in zip(got, rewards, strict=True) if None in turns for value in g)
    graded = sum(value is not None for turns in rewards for value in turns)
    lost = sum(value is not None for turns in rewards if None in turns for value in turns)
    assert metrics["turns_beside_failures"] == pytest.approx(lost / max(1, graded))


@pytest.mark.parametrize(
    ("kind", "returned", "said"),
    [
        ("advantage", torch.zeros(1), r"returned float \[1\], not float \[2\] or float \[2, 1\]"),
        ("advantage", 0.5, "returned float, not"),
        ("rejection", torch.ones(2), r"returned float \[2\], not torch.bool \[2\]"),
        ("rejection", [True, True], "returned list, not"),
    ],
)
def test_what_a_plug_in_returns_in_another_shape_or_kind_is_refused_by_its_name(monkeypatch, kind, returned, said):
    monkeypatch.setattr(getattr(registry, kind), "get", lambda name: lambda batch, **options: returned)
    method = {"advantage": {"name": "grpo"}} if kind == "advantage" else {"rejection": ["prs"], "advantage": "grpo"}
    with pytest.raises(ConfigError, match=f"rl.learner.{kind}: (grpo|prs) {said}"):
        credit([[1.0], [0.0]], **method)
