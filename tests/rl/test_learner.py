"""The learner without a trainer: what rejection, mismatch and missing grades do to advantages, masks and gradients."""

import itertools
import math

import pytest
import torch
from tiny import tiny_policy

from drkernel.config import ConfigError
from drkernel.rl.run.learner import Learner, LearnerConfig, Rows, check_methods
from drkernel.rl.run.records import Trajectory, Turn

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def policy():
    return tiny_policy()


def make_turn(policy, index, reward, *, correct=False, coverage=None, seed=0, **fields):
    """A turn of three context and four sampled tokens; log-probabilities are filled in by :func:`sampled`."""
    g = torch.Generator().manual_seed(100 * seed + index)
    ids = torch.randint(5, 60, (7,), generator=g).tolist()
    return Turn(
        index=index,
        context_ids=tuple(ids[:3]),
        token_ids=tuple(ids[3:]),
        logprobs=(0.0,) * 4,
        stop="end",
        text="",
        prompt="",
        reward=reward,
        status="correct" if correct else "incorrect",
        coverage=coverage,
        **fields,
    )


def trajectory(policy, sample, turns, group=0):
    turns = [make_turn(policy, index, seed=sample, **turn) for index, turn in enumerate(turns)]
    return Trajectory("task", None, group, sample, 0, tuple(turns))


def sampled(policy, trajectories):
    """The trajectories with the policy's own log-probabilities: a sampler without mismatch."""
    rows = Rows.of(trajectories)
    scores = make_learner(policy)._score(policy, rows)[0]
    filled, row = [], 0
    for t in trajectories:
        turns = []
        for turn in t.turns:
            turns.append(Turn(**{**vars(turn), "logprobs": tuple(scores[row, : len(turn.token_ids)].tolist())}))
            row += 1
        filled.append(Trajectory(**{**vars(t), "turns": tuple(turns)}))
    return filled


def make_learner(policy, **config):
    optimizer = torch.optim.SGD([p for p in policy.model.parameters() if p.requires_grad], lr=0.0)
    return Learner(policy, optimizer, LearnerConfig(**config))


def worked_example(policy):
    """METHODS: 3 trajectories x 2 turns; the second turn of the first is correct, lazy, and rejected for certain."""
    lazy = {"reward": 1.5, "correct": True, "coverage": 0.0}
    whole = {"reward": 2.5, "correct": True, "coverage": 1.0}
    wrong = {"reward": 0.0}
    return sampled(policy, [trajectory(policy, n, [wrong, last]) for n, last in enumerate((lazy, whole, wrong))])


def test_a_rejected_turn_leaves_the_loss_and_nothing_else(policy):
    """The worked example: returns 1.5, 2.5, 0; TRLOO [0.25, 1.75, -2.0] at both turns, the rejected turn masked."""
    learner = make_learner(policy, rejection={"name": "prs"})
    prepared, metrics = learner._prepare(worked_example(policy), seed=1)
    first, second = prepared.advantages_BT[0::2], prepared.advantages_BT[1::2]
    for column in range(4):
        assert first[:, column].tolist() == pytest.approx([0.25, 1.75, -2.0])
        assert second[:, column].tolist() == pytest.approx([0.25, 1.75, -2.0])
    assert prepared.mask_BT.any(dim=1).tolist() == [True, False, True, True, True, True]
    assert metrics["rejected_turns"] == pytest.approx(1 / 6) and metrics["trained_tokens"] == 20


def test_erasing_rewards_of_rejected_turns_is_an_option_and_turns_the_sign(policy):
    learner = make_learner(policy, rejection={"name": "prs"}, rejected="erase")
    prepared, _ = learner._prepare(worked_example(policy), seed=1)
    assert prepared.advantages_BT[0::2, 0].tolist() == pytest.approx([-1.25, 2.5, -1.25])
    assert prepared.advantages_BT[1::2, 0].tolist() == pytest.approx([0.0, 2.5, -2.5])


def test_mismatch_is_judged_over_all_turns_of_a_trajectory_before_rejection(policy):
    """A mismatch that lies in a turn which PRS rejects still rejects its trajectory: order and span of the code."""
    trajectories = worked_example(policy)
    odd = trajectories[0].turns[1]
    odd = Turn(**{**vars(odd), "logprobs": tuple(value - 0.5 for value in odd.logprobs)})
    first = Trajectory(**{**vars(trajectories[0]), "turns": (trajectories[0].turns[0], odd)})
    prepared, _ = make_learner(policy, rejection={"name": "prs"})._prepare([first, *trajectories[1:]], seed=1)
    assert prepared.mask_BT.any(dim=1).tolist() == [False, False, True, True, True, True]


@pytest.mark.parametrize(("level", "kept"), [("turn", [True, False]), ("trajectory", [False, False])])
def test_a_veto_reaches_its_turn_or_its_trajectory(policy, level, kept):
    trajectories = worked_example(policy)
    turns = trajectories[1].turns
    # one token that the trainer deems e^-20 times as likely; no bounds, so that only the veto acts
    values = turns[1].logprobs
    odd = Turn(**{**vars(turns[1]), "logprobs": (values[0] + 20.0, *values[1:])})
    changed = Trajectory(**{**vars(trajectories[1]), "turns": (turns[0], odd)})
    options = {"mask": None, "veto_level": level}
    learner = make_learner(policy, mismatch={"name": "mrs", "options": options})
    prepared, _ = learner._prepare([trajectories[0], changed, trajectories[2]], seed=1)
    assert prepared.mask_BT.any(dim=1).tolist() == [True, True, *kept, True, True]


def test_void_turns_leave_the_loss_when_asked(policy):
    good, bad = {"reward": 1.0, "correct": True, "coverage": 1.0}, {"reward": 0.0}
    trajectories = sampled(
        policy, [trajectory(policy, 0, [bad, good, bad, good]), trajectory(policy, 1, [good, bad, bad, bad])]
    )
    masks = {}
    for void in ("train", "mask"):
        prepared, _ = make_learner(policy, void_turns=void)._prepare(trajectories, seed=0)
        masks[void] = prepared.mask_BT.any(dim=1).tolist()
    assert masks["train"] == [True] * 8
    assert masks["mask"] == [True, True, False, True, True, False, False, False]


@pytest.mark.parametrize("rejected", ["stay", "leave"])
def test_rejected_turns_leave_the_token_baseline_only_when_asked(policy, rejected):
    options = {"leave_one_out": False, "rejected": rejected}
    learner = make_learner(policy, advantage={"name": "otb", "options": options}, rejection={"name": "prs"})
    prepared, _ = learner._prepare(worked_example(policy), seed=1)
    without = worked_example(policy)
    alone = Turn(**{**vars(without[0].turns[1]), "reward": None})
    without[0] = Trajectory(**{**vars(without[0]), "turns": (without[0].turns[0], alone)})
    dropped, _ = make_learner(policy, advantage={"name": "otb", "options": {"leave_one_out": False}})._prepare(
        without, seed=1
    )
    same = torch.allclose(prepared.advantages_BT[3::2], dropped.advantages_BT[3::2])
    assert same == (rejected == "leave")


STATUSES = ("correct", "incorrect", "hack", "infra_error")
VALUES = (None, 0.0, 0.7, math.nan, math.inf)


@pytest.mark.parametrize("advantage", ["trloo", "grpo", "rloo", "kevin", "otb", "otb_tir"])
@pytest.mark.parametrize("coverage", ["time", "launches"])
def test_no_verdict_stops_training(policy, advantage, coverage):
    """Every combination of status and of fields that are missing, not numbers or endless gives finite weights."""
    cases = list(itertools.product(STATUSES, VALUES, VALUES[:4], (None, 0.0, math.inf)))
    trajectories = []
    for number in range(0, len(cases), 3):
        turns = []
        for status, reward, share, speedup in cases[number : number + 3]:
            terms = {"coverage": share, "launch_coverage": share, "speedup": speedup}
            turns.append({"reward": reward, "correct": status == "correct", **terms})
        trajectories.append(trajectory(policy, number, turns, group=number % 7))
    options = {"coverage": coverage, "speedup_keeps": 1.5, "level": "geometric" if coverage == "time" else "turn"}
    learner = make_learner(policy, advantage=advantage, rejection={"name": "prs", "options": options})
    metrics = learner.learn(sampled(policy, trajectories), step=0, seed=3)
    assert metrics["skipped"] == 0 and metrics["trained_tokens"] > 0
    assert all(math.isfinite(value) for value in metrics.values()), metrics
    assert all(bool(p.isfinite().all()) for p in policy.model.parameters())


def test_options_are_checked_by_name():
    check_methods(LearnerConfig(advantage={"name": "otb_tir", "options": {"tail": "zero", "rejected": "leave"}}))
    check_methods(LearnerConfig(schedule={"name": "length_triggered_at_surge", "options": {"period": 2.0}}))
    with pytest.raises(ConfigError, match="prs has no option 'tau'"):
        check_methods(LearnerConfig(rejection={"name": "prs", "options": {"tau": 0.3}}))
