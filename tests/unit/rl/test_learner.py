"""The learner without a trainer: what rejection, mismatch and missing grades do to advantages, masks and gradients."""

import copy
import itertools
import math
from typing import get_args

import pytest
import torch

from drkernel.config import ConfigError
from drkernel.episode.records import Trajectory
from drkernel.gym.reward import reward
from drkernel.rl.run.learner import LearnerConfig, Rows, TurnFacts, check_methods
from drkernel.verdict import Finding, Profile, ProfileRow, Speedup, Status, Verdict
from recorded import learner as make_learner
from recorded import turn_of, with_sampled
from tiny import tiny_policy

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def policy():
    return tiny_policy()


def make_turn(number, reward, *, seed, **terms):
    """A turn of three context and four sampled tokens; log-probabilities are filled in by :func:`sampled`."""
    g = torch.Generator().manual_seed(100 * seed + number - 1)
    ids = torch.randint(5, 60, (7,), generator=g).tolist()
    return turn_of(number, ids[:3], ids[3:], reward, **terms)


def trajectory(policy, sample, turns, group=0):
    """Turns that append to each other."""
    made, ids = [], ()
    for number, terms in enumerate(turns, 1):
        turn = make_turn(number, seed=sample, **terms)
        turn = with_sampled(turn, context_ids=ids + turn.sampled.context_ids)
        ids = turn.sampled.context_ids + turn.sampled.token_ids
        made.append(turn)
    return Trajectory.model_construct(task_id="task", group=group, sample=sample, turns=tuple(made))


def with_turns(trajectory, *turns):
    return trajectory.model_copy(update={"turns": turns})


def sampled(policy, trajectories):
    """The trajectories with the policy's own log-probabilities: a sampler without mismatch."""
    rows = Rows.of(trajectories)
    scores = make_learner(policy)._score(policy, rows)[0].tolist()
    filled, row = [], 0
    for t in trajectories:
        turns = []
        for turn in t.turns:
            turns.append(with_sampled(turn, logprobs=tuple(scores[row][: turn.tokens])))
            row += 1
        filled.append(with_turns(t, *turns))
    return filled


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


def test_rejections_compose_and_say_what_each_took(policy):
    """The second sees what the first left; the mean reward of what each keeps and rejects, by hand."""
    prs, few = {"name": "prs"}, {"name": "uninformative", "least": 4}
    trajectories = worked_example(policy)  # rewards 0, 1.5 (lazy); 0, 2.5; 0, 0
    prepared, metrics = make_learner(policy, rejection=["prs", few])._prepare(trajectories, seed=1)
    assert not prepared.mask_BT.any() and metrics["rejected_turns"] == 1
    by_prs = {"fraction": 1 / 6, "reward_kept": 2.5 / 5, "reward_rejected": 1.5}
    by_few = {"fraction": 1.0, "reward_rejected": 2.5 / 5}
    for name, expected in (("prs", by_prs), ("uninformative", by_few), ("mrs", {"fraction": 0.0})):
        got = {k.rpartition("/")[2]: v for k, v in metrics.items() if k.startswith(f"rejected/{name}/")}
        assert got == pytest.approx({**expected, **({"reward_kept": 4 / 6} if name == "mrs" else {})}), name
    turned, metrics = make_learner(policy, rejection=[few, prs])._prepare(trajectories, seed=1)
    assert not turned.mask_BT.any() and metrics["rejected/prs/fraction"] == 0.0, "nothing was left to reject"
    torch.testing.assert_close(turned.advantages_BT, prepared.advantages_BT)


def test_the_tokens_of_void_turns_leave_the_mean_that_mrs_judges_by(policy):
    """The second turn's answer diverges; void, it takes nothing with it."""
    turns = [{"reward": 1.0}, {"reward": 0.0}]
    trajectories = sampled(policy, [trajectory(policy, n, turns) for n in range(3)])
    first, second = trajectories[0].turns
    off = with_sampled(second, logprobs=tuple(value - 0.1 for value in second.sampled.logprobs))
    trajectories[0] = with_turns(trajectories[0], first, off)
    for void, kept in ((False, [False, False, True, True, True, True]), (True, [True, False] * 3)):
        prepared, _ = make_learner(policy, mask_void_turns=void)._prepare(trajectories, seed=1)
        assert prepared.mask_BT.any(dim=1).tolist() == kept
    per_turn = {"name": "mrs", "mask": "turn_geometric"}
    prepared, metrics = make_learner(policy, mismatch=[per_turn, "trust_region"])._prepare(trajectories, seed=1)
    assert prepared.mask_BT.any(dim=1).tolist() == [True, False, True, True, True, True]
    assert metrics["rejected/mrs/fraction"] == pytest.approx(1 / 6) and metrics["rejected/trust_region/fraction"] == 0
    small = {"name": "trust_region", "bound": 0.004}  # 0.1 of log-ratio is 0.005
    prepared, _ = make_learner(policy, mismatch=[small])._prepare(trajectories, seed=1)
    assert prepared.mask_BT.any(dim=1).tolist() == [False, False, True, True, True, True]


def test_prs_rejects_by_the_coverage_that_the_reward_counts(policy):
    """A kernel that wastes time has a coverage of 0.9, of which the reward counts 0.2 in one form."""
    turn = {"reward": 1.0, "correct": True, "coverage": 0.9}
    trajectories = sampled(policy, [trajectory(policy, n, [turn]) for n in range(2)])
    first = trajectories[0].turns[0]
    trajectories[0] = with_turns(trajectories[0], first.model_copy(update={"pr": 0.2}))
    prepared, _ = make_learner(policy, rejection="prs")._prepare(trajectories, seed=1)
    assert prepared.mask_BT.any(dim=1).tolist() == [False, True]
    assert [TurnFacts.of(t.turns[0], 0, 4).coverage for t in trajectories] == [0.2, 0.9], "verl and TRL, too"


def test_a_fixed_scale_is_that_of_the_plan_however_many_turns_were_played(policy):
    whole = worked_example(policy)
    early = [with_turns(t, *t.turns[: 1 + n]) for n, t in enumerate(whole[:2])]
    for trajectories in (whole, early):
        played = sum(len(t.turns) for t in trajectories)
        plain, planned = make_learner(policy, scale=2.0), make_learner(policy, scale=2.0)
        planned.planned = 12
        norms = [made.learn(trajectories, 0, 1)["grad_norm"] for made in (plain, planned)]
        assert norms[1] == pytest.approx(norms[0] * played / 12, rel=1e-4) and norms[1] > 0
        halves = make_learner(policy, scale=2.0, updates=2)
        halves.planned = 12
        prepared, _ = halves._prepare(trajectories, 1)
        alone, _ = planned._update(prepared, [0], 0.0)
        assert halves._update(prepared, [0], 0.0)[0]["grad_norm"] == pytest.approx(2 * alone["grad_norm"], rel=1e-4)


def test_mismatch_is_judged_over_all_turns_of_a_trajectory_before_rejection(policy):
    """A mismatch that lies in a turn which PRS rejects still rejects its trajectory: order and span of the code."""
    trajectories = worked_example(policy)
    odd = trajectories[0].turns[1]
    odd = with_sampled(odd, logprobs=tuple(value - 0.5 for value in odd.sampled.logprobs))
    first = with_turns(trajectories[0], trajectories[0].turns[0], odd)
    prepared, _ = make_learner(policy, rejection={"name": "prs"})._prepare([first, *trajectories[1:]], seed=1)
    assert prepared.mask_BT.any(dim=1).tolist() == [False, False, True, True, True, True]


@pytest.mark.parametrize(("level", "kept"), [("turn", [True, False]), ("trajectory", [False, False])])
def test_a_veto_reaches_its_turn_or_its_trajectory(policy, level, kept):
    trajectories = worked_example(policy)
    turns = trajectories[1].turns
    # one token that the trainer deems e^-20 times as likely; no bounds, so that only the veto acts
    values = turns[1].sampled.logprobs
    changed = with_turns(trajectories[1], turns[0], with_sampled(turns[1], logprobs=(values[0] + 20.0, *values[1:])))
    options = {"mask": None, "veto_level": level}
    learner = make_learner(policy, mismatch={"name": "mrs", "options": options})
    prepared, _ = learner._prepare([trajectories[0], changed, trajectories[2]], seed=1)
    assert prepared.mask_BT.any(dim=1).tolist() == [True, True, *kept, True, True]


@pytest.mark.parametrize("rejected", ["stay", "leave"])
def test_rejected_turns_leave_the_token_baseline_only_when_asked(policy, rejected):
    options = {"rejected": rejected}
    learner = make_learner(policy, advantage={"name": "otb", "options": options}, rejection={"name": "prs"})
    prepared, _ = learner._prepare(worked_example(policy), seed=1)
    without = worked_example(policy)
    without[0] = with_turns(without[0], without[0].turns[0])
    dropped, _ = make_learner(policy, advantage="otb")._prepare(without, seed=1)
    same = torch.allclose(prepared.advantages_BT[3::2], dropped.advantages_BT[2::2])
    assert same == (rejected == "leave")


VALUES = (None, 0.0, 0.7, math.nan, math.inf)


@pytest.mark.parametrize("advantage", ["trloo", "grpo", "grpo_std", "rloo", "kevin", "otb", "otb_loo", "otb_tir"])
@pytest.mark.parametrize("coverage", ["time", "launches"])
def test_no_verdict_stops_training(policy, advantage, coverage):
    """Every combination of fields that are missing, not numbers or endless gives finite weights, right or wrong."""
    cases = list(itertools.product((True, False), VALUES, VALUES[:4], (None, 0.0, math.inf)))
    trajectories = []
    for number in range(0, len(cases), 3):
        turns = []
        for correct, earned, share, speedup in cases[number : number + 3]:
            terms = {"coverage": share, "launch_coverage": share, "speedup": speedup}
            turns.append({"reward": earned, "correct": correct, **terms})
        trajectories.append(trajectory(policy, number, turns, group=number % 7))
    assert_learns(policy, trajectories, advantage, coverage)


def assert_learns(policy, trajectories, advantage, coverage):
    options = {"coverage": coverage, "speedup_keeps": 1.5, "level": "geometric" if coverage == "time" else "turn"}
    learner = make_learner(policy, advantage=advantage, rejection={"name": "prs", "options": options})
    metrics = learner.learn(sampled(policy, trajectories), step=0, seed=3)
    assert metrics["skipped"] == 0 and metrics["trained_tokens"] > 0
    assert all(math.isfinite(value) for value in metrics.values()), metrics
    assert all(bool(p.isfinite().all()) for p in policy.model.parameters())


def every_verdict():
    """Every status with every part of a verdict there or missing, and findings of every severity."""
    fast = Speedup(value=2.0, low=1.5, high=2.5, kind="modelled")
    row = ProfileRow(name="kernel", owner="custom", calls=2, seconds=1e-5, share=1.0)
    profile = Profile(kind="modelled", device="sim:h200", total_seconds=1e-5, elapsed_seconds=1e-5, rows=(row,))
    empty = Profile(kind="modelled", device="sim:h200", total_seconds=0.0, elapsed_seconds=0.0, rows=())
    found = [()] + [(Finding(kind=k, severity=s, message=k),) for k, s in (
        ("decoy_kernel", "hack"), ("race", "bug"), ("host_compute", "note"), ("size_dependent", "note"),
    )]  # fmt: skip
    parts = itertools.product(get_args(Status), (None, fast), (None, 0.0, 0.35), (None, profile, empty), found)
    for status, speedup, coverage, shown, findings in parts:
        yield Verdict(
            status=status, task_id="task", candidate_sha256="0" * 64, device="sim:h200", speedup=speedup,
            coverage=coverage, profile=shown, reference_profile=shown, findings=findings,
        )  # fmt: skip


@pytest.mark.parametrize("advantage", ["trloo", "otb_tir"])
@pytest.mark.parametrize("coverage", ["time", "launches"])
def test_no_verdict_of_the_judge_stops_training(policy, advantage, coverage):
    verdicts = list(every_verdict())
    trajectories = []
    for number in range(0, len(verdicts), 3):
        terms = [{"reward": reward(verdict).total} for verdict in verdicts[number : number + 3]]
        one = trajectory(policy, number, terms, group=number % 7)
        pairs = zip(one.turns, verdicts[number : number + 3], strict=True)
        trajectories.append(with_turns(one, *[turn.model_copy(update={"verdict": v}) for turn, v in pairs]))
    assert_learns(policy, trajectories, advantage, coverage)
    masked = [turn for t in trajectories for turn in t.turns if not turn.valid]
    assert {turn.status for turn in masked} == {"infra_error", "invalid_request"}


def trained(policy, calls=1, **config):
    """The weights after ``calls`` calls of the learner with one batch, and the metrics of the last."""
    mine = copy.deepcopy(policy)
    learner = make_learner(mine, lr=0.05, mismatch=[], updates=2, **config)
    metrics = [learner.learn(worked_example(policy), 0, seed=1) for _ in range(calls)]
    return torch.cat([p.detach().reshape(-1) for p in mine.model.parameters()]), metrics[-1]


def test_a_second_pass_goes_over_the_batch_again_with_the_ratio_of_the_first(policy):
    start = torch.cat([p.detach().reshape(-1) for p in policy.model.parameters()])
    twice, _ = trained(policy, calls=2, loss={"name": "reinforce"})
    passed, _ = trained(policy, passes=2, loss={"name": "reinforce"})  # its gradient knows no ratio
    once, before = trained(policy, loss={"name": "clipped"})
    ratio, after = trained(policy, passes=2, loss={"name": "clipped"})
    assert torch.allclose(passed, twice, atol=1e-7) and not torch.allclose(passed, start, atol=1e-5)
    assert not torch.allclose(ratio, once, atol=1e-5) and after["policy_kl"] > before["policy_kl"]


def test_options_are_checked_by_name():
    check_methods(LearnerConfig(advantage={"name": "otb_tir", "options": {"tail": "zero", "rejected": "leave"}}))
    check_methods(LearnerConfig(schedule={"name": "cosine", "options": {"total": 10, "floor": 0.1}}))
    with pytest.raises(ConfigError, match="prs has no option 'tau'"):
        check_methods(LearnerConfig(rejection={"name": "prs", "options": {"tau": 0.3}}))


def test_turns_that_append_share_a_sequence_and_a_cut_begins_another(policy):
    """Ids of each answer's context are exactly those that the sampler read; every answer is in one sequence."""
    whole = trajectory(policy, 1, [{"reward": 1.0}, {"reward": 0.0}, {"reward": 2.0}])
    (alone,) = Rows.of([whole]).sequences
    assert alone.rows == (0, 1, 2) and len(alone.ids) == 21 and alone.spans == ((3, 7), (10, 14), (17, 21))
    # the third turn was shown the second alone: its context is another
    kept = whole.turns[1].sampled
    cut = with_sampled(whole.turns[2], context_ids=(*whole.turns[0].sampled.context_ids, *kept.token_ids, 9, 9))
    first, second = Rows.of([with_turns(whole, *whole.turns[:2], cut)]).sequences
    assert (
        first.rows == (0, 1) and second.rows == (2,) and second.ids == cut.sampled.context_ids + cut.sampled.token_ids
    )

    # an equal answer to an equal context is another answer all the same
    twin = with_sampled(whole.turns[1], context_ids=whole.turns[0].sampled.context_ids)
    twin = with_sampled(twin, token_ids=whole.turns[0].sampled.token_ids)
    assert [one.rows for one in Rows.of([with_turns(whole, whole.turns[0], twin)]).sequences] == [(0,), (1,)]


def test_what_a_cut_conversation_trains_on_is_what_was_sampled(policy):
    """Scores of rows under a cut equal those of each turn scored alone after its own context."""
    whole = trajectory(policy, 2, [{"reward": 1.0}, {"reward": 0.5}, {"reward": 2.0}])
    cut = with_sampled(whole.turns[2], context_ids=(*whole.turns[0].sampled.context_ids, 7, 8, 9))
    mixed = with_turns(whole, *whole.turns[:2], cut)
    learner = make_learner(policy)
    scores = learner._score(policy, Rows.of([mixed]))[0]
    apart = [learner._score(policy, Rows.of([with_turns(whole, turn)]))[0][0] for turn in mixed.turns]
    assert torch.allclose(scores, torch.stack(apart), atol=1e-5)
    prepared, metrics = learner._prepare(sampled(policy, [mixed, trajectory(policy, 3, [{"reward": 0.0}] * 3)]), seed=0)
    assert metrics["trained_tokens"] == 24 and prepared.mask_BT.all()
