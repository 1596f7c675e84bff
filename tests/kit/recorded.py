"""A recorded batch of a tiny policy: ragged turns, rejected ones, failed graders; as our trainer holds it and as verl's
queue would."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from drkernel.episode.records import Reply, Sampled, Trajectory, Turn
from drkernel.rl.maths.losses import denominator, policy_loss
from drkernel.rl.model.policy import Policy
from drkernel.rl.run.learner import Learner, LearnerConfig, Rows, TurnFacts, facts_of
from drkernel.rl.run.registry import TurnBatch, advantage

PLAN = (  # per trajectory its prompt, and per turn: tokens, reward (None: the grader failed), correct, coverage
    (0, ((5, 1.5, True, 0.9), (3, 0.2, False, 0.0))),
    (0, ((4, 0.5, True, 0.05), (6, 1.9, True, 1.0), (2, 0.0, False, 0.0))),  # lazy: PRS rejects its first turn
    (0, ((7, None, False, 0.0),)),
    (0, ((2, 0.0, False, 0.0), (5, 0.8, True, 0.34))),
    (1, ((6, 0.3, False, 0.0), (4, 1.1, True, 0.8))),
    (1, ((3, 0.7, True, 0.6), (4, None, False, 0.0))),
    (1, ((1, 0.9, True, 0.1),)),
)


def turn_of(
    number: int, context: Sequence[int], ids: Sequence[int], reward: float | None, correct: bool = False,
    coverage: float | None = None, launch_coverage: float | None = None, speedup: float | None = None,
) -> Turn:  # fmt: skip
    """A turn with these ids. Its verdict is not validated: the learner must stand what no judge says."""
    verdict = SimpleNamespace(
        status="correct" if correct else "incorrect",
        is_correct=correct,
        speedup=None if speedup is None else SimpleNamespace(value=speedup),
        coverage=coverage,
        profile=None if launch_coverage is None else SimpleNamespace(launch_coverage=launch_coverage),
    )
    reply = Reply(text="", sampled=Sampled(tuple(context), tuple(ids), (0.0,) * len(ids), "end"))
    return Turn.model_construct(id=".".join("0" * number), reply=reply, verdict=verdict, reward=reward)


def with_sampled(turn: Turn, **changes: Any) -> Turn:
    """The turn with other ids or log-probabilities."""
    drawn = dataclasses.replace(turn.sampled, **changes)
    return turn.model_copy(update={"reply": turn.reply.model_copy(update={"sampled": drawn})})


def trajectories(policy: Policy, noise: float = 1e-4) -> list[Trajectory]:
    """Trajectories whose sampling log-probabilities differ from the policy's by a little, and in one token by much."""
    g = torch.Generator().manual_seed(7)
    made = []
    for sample, (group, plan) in enumerate(PLAN):
        prompts = torch.Generator().manual_seed(100 + group)
        context = tuple(torch.randint(5, 250, (6 + group,), generator=prompts).tolist())
        turns = []
        for number, terms in enumerate(plan, 1):
            ids = tuple(torch.randint(5, 250, (terms[0],), generator=g).tolist())
            turns.append(turn_of(number, context, ids, *terms[1:]))
            context = (*context, *ids, *torch.randint(5, 250, (3,), generator=g).tolist())
        made.append(Trajectory.model_construct(task_id="t", group=group, sample=sample, turns=tuple(turns)))
    scores = iter(scored(policy, made)[0])
    for index, play in enumerate(made):
        turns = []
        for turn in play.turns:
            exact = next(scores)[: turn.tokens]
            heard = exact + noise * torch.randn(exact.shape, generator=g)
            if index == 4 and turn.number == 2:
                heard[0] += 12.0  # a token that the trainer thinks impossible: MRS vetoes the turn
            turns.append(with_sampled(turn, logprobs=tuple(heard.tolist())))
        made[index] = play.model_copy(update={"turns": tuple(turns)})
    return made


def learner(policy: Policy, reference: Policy | None = None, **config) -> Learner:
    optimizer = torch.optim.SGD(policy.trainable(), lr=0.0)
    return Learner(policy, optimizer, LearnerConfig(**config), reference=reference)


def scored(policy: Policy, plays: list[Trajectory]) -> tuple[Tensor, Tensor]:
    """Log-probabilities and Σπ² of every turn's tokens, [turns, tokens]; those without a grade included."""
    whole = [
        play.model_copy(update={"turns": tuple(t.model_copy(update={"reward": 0.0}) for t in play.turns)})
        for play in plays
    ]
    with torch.no_grad():
        old, square, _ = learner(policy)._score(policy, Rows.of(whole))
    return old, square


@dataclass
class Columns:
    """The batch as verl holds it: trajectories [B, T], T tokens after the prompt, feedback among them."""

    prompts: list[list[int]]
    responses: list[list[int]]
    facts: list[list[TurnFacts]]
    groups: list[int]
    mask: Tensor
    """1 on sampled tokens of graded turns"""
    rollout: Tensor
    old: Tensor
    square: Tensor


def columns(policy: Policy, plays: list[Trajectory]) -> Columns:
    old_RJ, square_RJ = scored(policy, plays)
    prompts, responses, facts = [], [], []
    for play in plays:
        first = len(play.turns[0].sampled.context_ids)
        last = play.turns[-1].sampled
        prompts.append(list(last.context_ids[:first]))
        responses.append([*last.context_ids[first:], *last.token_ids])
        facts.append(facts_of(play))
    size = (len(plays), max(map(len, responses)))
    mask, rollout, old, square = torch.zeros(size), torch.zeros(size), torch.zeros(size), torch.zeros(size)
    row = 0
    for b, play in enumerate(plays):
        for fact, turn in zip(facts[b], play.turns, strict=True):
            where, count = slice(fact.start, fact.end), fact.end - fact.start
            mask[b, where] = float(fact.graded)
            rollout[b, where] = torch.tensor(turn.sampled.logprobs)
            old[b, where], square[b, where] = old_RJ[row, :count], square_RJ[row, :count]
            row += 1
    return Columns(prompts, responses, facts, [play.group for play in plays], mask, rollout, old, square)


def own_loss(ours, prepared, now_RJ):
    """Our trainer's loss of a whole batch, at given log-probabilities."""
    config, mask = ours.config, prepared.mask_BT
    total = mask.shape[0] * config.scale if config.aggregation == "fixed_scale_sum" else denominator(
        mask, config.aggregation)  # fmt: skip
    return policy_loss(
        now_RJ,
        prepared.old_BT,
        prepared.advantages_BT.float(),
        mask,
        kind=ours.loss,
        aggregation=config.aggregation,
        total=total,
        weights_BT=prepared.mismatch.weights_BT,
        reference_BT=prepared.reference_BT,
        kl=config.kl,
        kl_coefficient=config.kl_coefficient,
    ).loss


def random_turns() -> TurnBatch:
    """Three tasks, four trajectories each, three turns; some have no grade."""
    g = torch.Generator().manual_seed(0)
    task = torch.arange(3).repeat_interleave(12)
    trajectory = torch.arange(12).repeat_interleave(3)
    valid = torch.rand(36, generator=g) < 0.85
    return TurnBatch(
        rewards_B=torch.rand(36, generator=g),
        task_B=task,
        trajectory_B=trajectory,
        turn_B=torch.arange(3).repeat(12),
        valid_B=valid,
        correct_B=torch.rand(36, generator=g) < 0.6,
        coverage_B=torch.rand(36, generator=g),
        launch_coverage_B=torch.rand(36, generator=g),
        speedup_B=3 * torch.rand(36, generator=g),
        logprobs_BT=-torch.rand(36, 5, generator=g),
        sum_pi_squared_BT=torch.rand(36, 5, generator=g),
        mask_BT=torch.rand(36, 5, generator=g) < 0.8,
    )


def check_advantage(name: str, batch: TurnBatch) -> None:
    """Assert what holds for every advantage: finite, 0 on invalid turns, whatever the order of rows."""
    got = advantage.get(name)(batch)
    assert got.shape in ((36,), (36, 5)) and torch.isfinite(got).all() and got.abs().sum() > 0
    assert (got[~batch.valid_B] == 0).all()
    order = torch.randperm(36, generator=torch.Generator().manual_seed(1))
    shuffled = type(batch)(**{k: v[order] for k, v in vars(batch).items() if v is not None})
    assert torch.allclose(advantage.get(name)(shuffled), got[order], atol=1e-5)
