"""One step of reinforcement learning: from graded trajectories to an update of the weights.

The order is that of the released code of Dr. Kernel: rewards, mismatch between sampler and trainer (over all graded
turns: which tokens train, with what weight), rejection (which turns train), advantages over *all* graded turns, loss
over what was kept. A rejected turn leaves only the loss: its reward still counts in returns and baselines. A void turn
(``mask_void_turns``) leaves all of it before the first step, and so does a trajectory that the grader failed. Every
method is looked up by name in :mod:`drkernel.rl.run.registry`. Rows are turns: [B] per turn, [B, T] per token.

:class:`Rows` are those of our own trainer, :class:`TurnRows` of engines that keep one row a trajectory; both make the
same batch of them. Turns that only append to each other share a sequence: with the whole history in the context, a
trajectory is one sequence in which every turn's answer is trained. When a context policy leaves turns out, a new
sequence starts with that turn's own context and answer. Every answer is trained exactly once, after exactly the ids
that the sampler read.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from drkernel.config import Config, ConfigError
from drkernel.episode.records import Sampled, Trajectory, Turn
from drkernel.registry import Method
from drkernel.rl.maths.advantages import broadcast_to_tokens
from drkernel.rl.maths.losses import denominator, policy_loss
from drkernel.rl.maths.mismatch import PolicyMismatch, mismatch
from drkernel.rl.maths.rejection import Reason, void_turns
from drkernel.rl.model.policy import Example, Policy, microbatches
from drkernel.rl.run import registry
from drkernel.rl.run.optimizers import apply_gradient
from drkernel.rl.run.registry import TurnBatch

SEEDS_APART = 500_009
"""Between the seeds of a step's rejections; those of consecutive steps differ by 1."""


class LearnerConfig(Config):
    """The methods and settings that turn trajectories into gradients."""

    lr: float = Field(1e-6, gt=0, description="learning rate (AdamW) before the schedule's factor")
    weight_decay: float = Field(0.0, ge=0)
    clip: float = Field(1.0, gt=0, description="bound of the gradient's norm")
    advantage: Method = Field(
        Method(name="trloo"),
        description="trloo, trloo_best (returns are the best of history), grpo (the paper's: no std; with equal groups "
        "AdamW makes it trloo), grpo_std, rloo, rloo_total, reinforce, kevin, otb (published), otb_loo, otb_tir, "
        "...",
    )
    loss: Method = Field(Method(name="clipped"), description="clipped, reinforce")
    mismatch: tuple[Method, ...] = Field(
        (Method(name="mrs"),),
        description="criteria that a token must all meet: mrs (mask: turn_geometric for the mean over a turn), "
        "trust_region, tis_token, mis_sequence, ...; [] only measures",
    )
    rejection: tuple[Method, ...] = Field(
        (), description="one after the other, each on what those before it left: prs, uninformative (rollout.refill)"
    )
    mask_void_turns: bool = Field(
        False,
        description="turns without a positive reward after one that had it count as never played, in the loss, the "
        "groups and the returns (released recipe: true; biased, so that a recipe must ask for it)",
    )
    schedule: Method = Field(Method(name="constant"), description="constant, cosine")
    aggregation: Literal["token_mean", "seq_mean_token_sum", "seq_mean_token_mean", "fixed_scale_sum"] = Field(
        "fixed_scale_sum", description="how token losses become one number"
    )
    scale: float = Field(1.0, gt=0, description="fixed_scale_sum divides by the planned turns of a step times this")
    updates: int = Field(1, ge=1, description="optimiser steps a pass, each on its share of the trajectories")
    passes: int = Field(
        1, ge=1, description="passes over a batch (PPO's epochs); from the second on the ratio's clip bounds the change"
    )
    kl: Literal["k1", "k2", "k3"] = "k3"
    kl_coefficient: float = Field(0.0, ge=0, description="weight of the KL to the policy that RL started from")
    micro_tokens: int = Field(4096, ge=64, description="tokens of one forward pass: bounds memory")

    @field_validator("mismatch", "rejection", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, (str, dict, Method)) else value


def check_methods(config: LearnerConfig) -> None:
    """Raise :class:`ConfigError` for a method or an option that does not exist."""
    for kind in ("advantage", "loss", "mismatch", "rejection", "schedule"):
        chosen: Method | tuple[Method, ...] = getattr(config, kind)
        for method in chosen if isinstance(chosen, tuple) else (chosen,):
            getattr(registry, kind).check(f"rl.learner.{kind}", method.name, method.options, given=("seed",))


# ---- Rows: trajectories as tensors, one row a turn, and the id sequences that the model is run on


@dataclass(frozen=True)
class TokenSequence:
    """Ids to run the model on, and which of them are answers."""

    ids: tuple[int, ...]
    owner: int
    """Index of the trajectory."""
    rows: tuple[int, ...]
    """The rows of the batch whose tokens it trains, in order."""
    spans: tuple[tuple[int, int], ...]
    """For each of them the half-open range of its tokens within :attr:`ids`."""


@dataclass(frozen=True)
class TurnFacts:
    """The facts of one turn that travel with its tokens through an engine, as numbers."""

    start: int
    """First token of the answer, counted from the first one after the prompt."""
    end: int
    """The token after its last one."""
    graded: bool
    """Whether the turn has a grade."""
    reward: float = 0.0
    """0 without a grade."""
    correct: bool = False
    coverage: float = 0.0
    """Share of device time in own kernels, as the reward counts it; 0 where unknown."""
    launch_coverage: float = 0.0
    speedup: float = 0.0
    """0 where not timed."""
    turn: int = 0
    """Index of the turn, from 0."""
    overlong: bool = False
    """Whether the answer was cut off."""

    @staticmethod
    def of(turn: Turn, start: int, end: int) -> TurnFacts:
        """Return the facts of a turn whose answer lies at these tokens."""
        graded = gradable(turn)
        return TurnFacts(
            start=start,
            end=end,
            graded=graded,
            reward=float(turn.reward or 0.0) if graded else 0.0,
            correct=turn.correct,
            coverage=known(turn.counted_coverage),
            launch_coverage=known(turn.launch_coverage),
            speedup=known(turn.speedup),
            turn=turn.number - 1,
            overlong=overlong(turn),
        )


def facts_of(trajectory: Trajectory) -> list[TurnFacts]:
    """Return the facts of each turn, for engines that keep one row a trajectory."""
    starts = [len(sampled_of(turn).context_ids) for turn in trajectory.turns]
    spans = [(start - starts[0], turn) for start, turn in zip(starts, trajectory.turns, strict=True)]
    return [TurnFacts.of(turn, start, start + turn.tokens) for start, turn in spans]


def sampled_of(turn: Turn) -> Sampled:
    """Return the turn's token ids. Raises ``ValueError`` for a turn that was not sampled in this process."""
    if turn.sampled is None:
        raise ValueError(f"turn {turn.id} has no token ids: only turns of the training sampler can be trained on")
    return turn.sampled


def gradable(turn: Turn) -> bool:
    """Return whether a turn has a finite reward; only such turns count and train."""
    return turn.reward is not None and math.isfinite(turn.reward)


def overlong(turn: Turn) -> bool:
    """Return whether an answer was cut off: by its budget of tokens or by the end of the context."""
    if turn.sampled is None:
        return turn.reply.finish == "length"
    return turn.sampled.stop in ("length", "context")


def known(value: float | None) -> float:
    """Return a figure of a verdict as a number; a missing one counts as 0: unknown coverage is no coverage."""
    return 0.0 if value is None or math.isnan(value) else float(value)


def _sequences(trajectories: Sequence[Trajectory]) -> list[TokenSequence]:
    """Return the sequences to run the model on, by trajectory and turn."""
    found: list[TokenSequence] = []
    row = 0
    for owner, trajectory in enumerate(trajectories):
        for turn in trajectory.turns:
            drawn = sampled_of(turn)
            ids = drawn.context_ids + drawn.token_ids
            span = (len(drawn.context_ids), len(ids))
            last = found[-1] if found else None
            if last is not None and last.owner == owner and drawn.context_ids[: len(last.ids)] == last.ids:
                found[-1] = TokenSequence(ids, owner, (*last.rows, row), (*last.spans, span))
            else:
                found.append(TokenSequence(ids, owner, (row,), (span,)))
            row += 1
    return found


def turn_batch(facts: Sequence[TurnFacts], groups: Sequence[int], owner_B: Tensor) -> TurnBatch:
    """Return the inputs of advantages and rejections for rows with these facts."""

    def column(name: str) -> Tensor:
        return torch.tensor([float(getattr(fact, name)) for fact in facts])

    return TurnBatch(
        rewards_B=column("reward"),
        task_B=torch.tensor(groups, dtype=torch.int64),
        trajectory_B=owner_B,
        turn_B=torch.tensor([fact.turn for fact in facts], dtype=torch.int64),
        valid_B=torch.tensor([fact.graded for fact in facts], dtype=torch.bool),
        correct_B=column("correct").bool(),
        coverage_B=column("coverage"),
        launch_coverage_B=column("launch_coverage"),
        speedup_B=column("speedup"),
        overlong_B=column("overlong").bool(),
    )


@dataclass(frozen=True)
class Rows:
    """The turns of a batch of trajectories as padded tensors, one row a turn."""

    trajectories: tuple[Trajectory, ...]
    turns: tuple[Turn, ...]
    """the turn of each row, ordered by trajectory and turn"""
    sequences: tuple[TokenSequence, ...]
    owner_B: Tensor
    """index of the row's trajectory"""
    mask_BT: Tensor
    """True on sampled tokens of turns that have a grade"""
    rollout_BT: Tensor
    """the sampler's log-probabilities"""

    @staticmethod
    def of(trajectories: Sequence[Trajectory]) -> Rows:
        """Build the rows, ordered by trajectory and turn."""
        turns = [(owner, turn) for owner, trajectory in enumerate(trajectories) for turn in trajectory.turns]
        width = max((len(sampled_of(turn).token_ids) for _, turn in turns), default=0)
        mask_BT = torch.zeros(len(turns), width, dtype=torch.bool)
        rollout_BT = torch.zeros(len(turns), width)
        for row, (_, turn) in enumerate(turns):
            where = slice(0, len(sampled_of(turn).token_ids))
            mask_BT[row, where] = gradable(turn)
            rollout_BT[row, where] = torch.tensor(sampled_of(turn).logprobs)
        owner_B = torch.tensor([owner for owner, _ in turns], dtype=torch.int64)
        sequences = tuple(_sequences(trajectories))
        return Rows(tuple(trajectories), tuple(turn for _, turn in turns), sequences, owner_B, mask_BT, rollout_BT)

    def batch(self) -> TurnBatch:
        """Return the inputs of advantages and rejections."""
        groups = [self.trajectories[owner].group for owner in self.owner_B.tolist()]
        facts = [TurnFacts.of(turn, 0, len(sampled_of(turn).token_ids)) for turn in self.turns]
        return dataclasses.replace(turn_batch(facts, groups, self.owner_B), mask_BT=self.mask_BT)

    def graded(self) -> list[int]:
        """Indices of sequences with at least one graded turn; the others need no computation."""
        return [index for index, sequence in enumerate(self.sequences) if any(map(self._trains, sequence.rows))]

    def _trains(self, row: int) -> bool:
        return gradable(self.turns[row]) and bool(sampled_of(self.turns[row]).token_ids)

    def of_trajectories(self, members: Sequence[int]) -> list[int]:
        """Return the sequences of the trajectories with these indices."""
        wanted = set(members)
        return [index for index, sequence in enumerate(self.sequences) if sequence.owner in wanted]

    def examples(self, members: Sequence[int]) -> list[Example]:
        """Return the sequences with these indices, with the answers of graded turns in the mask."""
        return [self._example(self.sequences[index]) for index in members]

    def _example(self, sequence: TokenSequence) -> Example:
        mask = [False] * len(sequence.ids)
        for row, (start, end) in zip(sequence.rows, sequence.spans, strict=True):
            mask[start:end] = [gradable(self.turns[row])] * (end - start)
        return Example(sequence.ids, mask)

    def pick(self, members: Sequence[int]) -> Tensor:
        """Return the row indices of these sequences, in the order of ``members``."""
        return torch.tensor([row for index in members for row in self.sequences[index].rows], dtype=torch.int64)

    def spread(self, values_M: Tensor, rows_R: Tensor) -> Tensor:
        """Scatter flat values of the masked tokens of ``rows_R`` to [R, T], 0 elsewhere; differentiable."""
        mask_RT = self.mask_BT[rows_R].to(values_M.device)
        return values_M.new_zeros(mask_RT.shape).masked_scatter(mask_RT, values_M)


class TurnRows:
    """The turns of a batch in the rows of an engine that keeps one row a trajectory, feedback among the answers: where
    they lie, and the way there and back.

    Shape legend: B trajectories, T tokens of a trajectory after its prompt, R turns of all trajectories, J tokens of
    the longest turn, pushed to the left.
    """

    def __init__(self, trajectories: Sequence[Sequence[TurnFacts]], groups: Sequence[int], length: int):
        """``groups`` says which trajectories have the same prompt; ``length`` is T."""
        self.facts = [fact for turns in trajectories for fact in turns]
        self.groups = groups
        self.size, self.length = len(trajectories), length
        owners = [b for b, turns in enumerate(trajectories) for _ in turns]
        self.owner_R = torch.tensor(owners, dtype=torch.int64)
        start_R = torch.tensor([fact.start for fact in self.facts], dtype=torch.int64)
        length_R = torch.tensor([fact.end - fact.start for fact in self.facts], dtype=torch.int64)
        step_J = torch.arange(int(length_R.max()) if self.facts else 0)
        self.inside_RJ = step_J[None, :] < length_R[:, None]
        self.at_RJ = (start_R[:, None] + step_J[None, :]).clamp_max(max(0, length - 1))

    def take(self, values_BT: Tensor) -> Tensor:
        """Return the values of the turns' own tokens, [R, J], 0 after a turn's end."""
        return values_BT[self.owner_R].gather(1, self.at_RJ).masked_fill(~self.inside_RJ, 0)

    def put_back(self, values_RJ: Tensor) -> Tensor:
        """Return values of turns in the engine's layout, [B, T], 0 outside of answers."""
        kept_RJ = torch.where(self.inside_RJ, values_RJ, torch.zeros_like(values_RJ))
        wide_RT = values_RJ.new_zeros(len(self.facts), self.length).scatter_add_(1, self.at_RJ, kept_RJ)
        return values_RJ.new_zeros(self.size, self.length).index_add_(0, self.owner_R, wide_RT)

    def batch(self, old_BT: Tensor | None = None, square_BT: Tensor | None = None) -> TurnBatch:
        """Return the inputs of our methods; ``old_BT`` are the trainer's log-probabilities, ``square_BT`` their Σπ².
        A method that needs what is not given says so."""
        batch = turn_batch(self.facts, [self.groups[b] for b in self.owner_R.tolist()], self.owner_R)
        return dataclasses.replace(
            batch,
            logprobs_BT=None if old_BT is None else self.take(old_BT),
            sum_pi_squared_BT=None if square_BT is None else self.take(square_BT),
            mask_BT=self.inside_RJ & batch.valid_B[:, None],
        )


# ---- Credit: which tokens train, and how much


@dataclass(frozen=True)
class Credit:
    """The lesson of a graded batch, per token: advantage, weight, and whether it trains. [B, T], rows are turns."""

    advantages_BT: Tensor
    """0 outside of graded turns."""
    mismatch: PolicyMismatch
    """Weights of the tokens in the loss, and which of them the mismatch between sampler and trainer leaves."""
    mask_BT: Tensor
    """bool: tokens that train."""
    metrics: dict[str, float]


@torch.no_grad()
def give_credit(batch: TurnBatch, rollout_BT: Tensor, config: LearnerConfig, seed: int) -> Credit:
    """Decide from grades and log-probabilities which tokens train, and how much: mismatch, rejection, advantages.

    ``batch`` holds the trainer's log-probabilities at the sampling parameters, Σπ² and the mask of graded tokens,
    ``rollout_BT`` the sampler's log-probabilities of the same tokens. Every engine that trains on our methods calls
    this function.
    """
    batch, left_out = _counted(batch, config)
    old_BT, mask_BT = batch.need("logprobs_BT", "mask_BT")
    settings = [registry.mismatch.get(method.name)(**method.options) for method in config.mismatch]
    gap = mismatch(old_BT, rollout_BT, mask_BT, settings, sequence_B=batch.trajectory_B)
    batch = dataclasses.replace(
        batch, keep_B=gap.keep_BT.any(dim=1), ratios_BT=gap.weights_BT if any(s.weight for s in settings) else None
    )
    graded_B = kept_B = batch.valid_B
    left_B = gap.keep_BT.any(dim=1)
    quality: dict[str, float] = {}
    left_BT = mask_BT
    for method, keeps_BT in zip(config.mismatch, gap.keeps, strict=True):
        quality |= _quality(method.name, batch.rewards_B, left_BT.any(dim=1), (left_BT & keeps_BT).any(dim=1))
        left_BT = left_BT & keeps_BT
    for number, method in enumerate(config.rejection):
        stay_B = registry.rejection.get(method.name)(batch, seed=seed + number * SEEDS_APART, **method.options)
        _check_returned(f"rl.learner.rejection: {method.name}", stay_B, graded_B)
        before_B, left_B, kept_B = left_B, left_B & stay_B, kept_B & stay_B
        batch = dataclasses.replace(batch, keep_B=left_B)
        quality |= _quality(method.name, batch.rewards_B, before_B, left_B)
    advantages = registry.advantage.get(config.advantage.name)(batch, **config.advantage.options)
    _check_returned(f"rl.learner.advantage: {config.advantage.name}", advantages, batch.rewards_B, old_BT)
    advantages_BT = broadcast_to_tokens(advantages, mask_BT) if advantages.dim() == 1 else advantages
    trained_BT = gap.keep_BT & kept_B[:, None]
    metrics = {f"mismatch/{name}": value for name, value in gap.metrics.items()} | {
        **left_out,
        **quality,
        "rejected_turns": float((graded_B & ~kept_B).sum()) / max(1, int(graded_B.sum())),
        "advantage_abs": float(advantages_BT[mask_BT].abs().sum()) / max(1, int(mask_BT.sum())),
        "trained_tokens": float(trained_BT.sum()),
    }
    return Credit(advantages_BT, gap, trained_BT, metrics)


def _check_returned(method: str, value: Any, *like: Tensor) -> None:
    """Raise :class:`ConfigError` for what is no tensor of one of these kinds and shapes: it would broadcast."""

    def words(one: Any) -> str:
        kind = one.dtype if isinstance(one, Tensor) and not one.is_floating_point() else "float"
        return f"{kind} {[*one.shape]}" if isinstance(one, Tensor) else type(one).__name__

    wanted = [words(one) for one in like]
    if words(value) not in wanted:
        raise ConfigError(f"{method} returned {words(value)}, not {' or '.join(wanted)}")


def _quality(name: str, rewards_B: Tensor, before_B: Tensor, after_B: Tensor) -> dict[str, float]:
    """Return what a rejection took from the turns before it: their share, and the mean reward of those that it kept and
    of those that it rejected, each where there are any."""
    gone_B = before_B & ~after_B
    found = {"fraction": float(gone_B.sum()) / max(1, int(before_B.sum()))}
    for label, rows_B in (("reward_kept", before_B & after_B), ("reward_rejected", gone_B)):
        if bool(rows_B.any()):
            found[label] = float(rewards_B[rows_B].double().mean())
    return {f"rejected/{name}/{label}": value for label, value in found.items()}


@torch.no_grad()
def uninformative(batch: TurnBatch, config: LearnerConfig) -> dict[int, Reason]:
    """Return the groups that the recipe's rejection ``uninformative`` will drop, and why, from the grades alone."""
    chosen = [method for method in config.rejection if method.name == "uninformative"]
    if not chosen or not len(batch.task_B):
        return {}
    return registry.uninformative_prompts(_counted(batch, config)[0], **chosen[0].options)


def _counted(batch: TurnBatch, config: LearnerConfig) -> tuple[TurnBatch, dict[str, float]]:
    """Return the batch with only those turns valid that take part in anything, and the shares of the graded turns that
    do not, by cause."""
    graded_B = batch.valid_B.bool()
    whole_B = batch.whole()
    void_B = torch.zeros_like(whole_B)
    if config.mask_void_turns:
        void_B = void_turns(batch.rewards_B, batch.trajectory_B, batch.turn_B, whole_B)
    valid_B = whole_B & ~void_B
    graded = max(1, int(graded_B.sum()))
    shares = {
        "void_turns": float(void_B.sum()) / graded,
        "turns_beside_failures": float((graded_B & ~whole_B).sum()) / graded,
    }
    (mask_BT,) = batch.need("mask_BT")
    counted = dataclasses.replace(batch, valid_B=valid_B, mask_BT=mask_BT & valid_B[:, None])
    return counted, shares


# ---- The update


@dataclass(frozen=True)
class _Prepared:
    """The parts of a batch that stay constant while it is trained on."""

    rows: Rows
    old_BT: Tensor
    reference_BT: Tensor | None
    advantages_BT: Tensor
    mismatch: PolicyMismatch
    mask_BT: Tensor


class Learner:
    """Turns batches of trajectories into updates of a policy."""

    def __init__(
        self,
        policy: Policy,
        optimizer: torch.optim.Optimizer,
        config: LearnerConfig,
        *,
        temperature: float = 1.0,
        reference: Policy | None = None,
        planned: int | None = None,
    ):
        """``planned`` is the number of turns that a step is to have; None: as many as it has, which is no constant
        where trajectories end early."""
        self.policy, self.optimizer, self.config = policy, optimizer, config
        self.temperature, self.reference = temperature, reference
        self.planned = planned
        self.schedule = registry.schedule.get(config.schedule.name)(**config.schedule.options)
        self.loss = registry.loss.get(config.loss.name)
        if config.kl_coefficient and reference is None:
            raise ValueError("kl_coefficient needs a reference policy")

    def learn(self, trajectories: Sequence[Trajectory], step: int, seed: int) -> dict[str, float]:
        """Update the policy on one batch and return the metrics of the step.

        ``skipped`` counts updates left out because nothing was left to train on or the gradient was not finite.
        """
        lr = self.config.lr * self.schedule.factor(step)
        if not any(gradable(turn) for trajectory in trajectories for turn in trajectory.turns):
            return {"lr": lr, "skipped": float(self.config.updates * self.config.passes), "trained_tokens": 0.0}
        prepared, metrics = self._prepare(trajectories, seed)
        metrics["lr"] = lr
        skipped = 0
        shares = [range(k, len(trajectories), self.config.updates) for k in range(self.config.updates)]
        shares *= self.config.passes
        for members in shares:
            part, left_out = self._update(prepared, list(members), lr)
            skipped += left_out
            for name, value in part.items():
                metrics[name] = metrics.get(name, 0.0) + value / len(shares)
        metrics["skipped"] = float(skipped)
        return metrics

    @torch.no_grad()
    def _prepare(self, trajectories: Sequence[Trajectory], seed: int) -> tuple[_Prepared, dict[str, float]]:
        """Compute log-probabilities at the sampling parameters, then what they and the grades decide."""
        rows = Rows.of(trajectories)
        old_BT, square_BT, entropy_BT = self._score(self.policy, rows)
        reference_BT = None if self.reference is None else self._score(self.reference, rows)[0]
        batch = dataclasses.replace(rows.batch(), logprobs_BT=old_BT, sum_pi_squared_BT=square_BT)
        found = give_credit(batch, rows.rollout_BT, self.config, seed)
        metrics = {**found.metrics, "entropy": float(entropy_BT[rows.mask_BT].sum()) / max(1, int(rows.mask_BT.sum()))}
        prepared = _Prepared(rows, old_BT, reference_BT, found.advantages_BT, found.mismatch, found.mask_BT)
        return prepared, metrics

    def _score(self, policy: Policy, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities, Σπ² and entropy of all graded tokens, [B, T] on the CPU."""
        parts = [torch.zeros_like(rows.rollout_BT) for _ in range(3)]
        world = self.policy.world
        for members, counts in world.share(self._micro(rows, rows.graded())):
            rows_R = rows.pick(members)
            statistics = policy.statistics(rows.examples(members), self.temperature)
            for part, values_M in zip(
                parts, (statistics.logprobs, statistics.sum_pi_squared, statistics.entropy), strict=True
            ):
                if counts:
                    part[rows_R] = rows.spread(values_M.float().cpu(), rows_R)
        old_BT, square_BT, entropy_BT = (world.sum_tensor(part) for part in parts)
        return old_BT, square_BT, entropy_BT

    def _micro(self, rows: Rows, members: list[int]) -> list[list[int]]:
        lengths = [len(rows.sequences[index].ids) for index in members]
        return [[members[i] for i in batch] for batch in microbatches(lengths, self.config.micro_tokens)]

    def _update(self, prepared: _Prepared, members: list[int], lr: float) -> tuple[dict[str, float], bool]:
        """Take one optimiser step on a share of the trajectories; return its metrics, and whether the step was
        skipped."""
        rows, config = prepared.rows, self.config
        sequences = rows.of_trajectories(members)
        share_BT = prepared.mask_BT[rows.pick(sequences)]
        if not bool(share_BT.any()):
            return {"loss": 0.0, "grad_norm": 0.0}, True
        if config.aggregation == "fixed_scale_sum":
            turns = share_BT.shape[0] if self.planned is None else self.planned / config.updates
            total: float | Tensor = turns * config.scale
        else:
            total = denominator(share_BT, config.aggregation)
        world = self.policy.world
        sums: dict[str, float] = {"loss": 0.0}
        tokens = float(share_BT.sum())
        trained = [index for index in sequences if bool(prepared.mask_BT[rows.pick([index])].any())]
        for batch, counts in world.share(self._micro(rows, trained)):
            loss, metrics = self._loss(prepared, batch, rows.pick(batch), total)
            (loss * (world.size if counts else 0)).backward()  # sharding takes the mean over ranks
            weight = float(metrics.pop("tokens")) / tokens
            del metrics["ratio_max"]  # the only one that is not a mean over tokens
            for name, value in metrics.items():
                sums[name] = sums.get(name, 0.0) + (weight * float(value) if counts else 0.0)
            sums["loss"] += float(loss.detach()) if counts else 0.0
        sums = {name: world.sum(value) for name, value in sorted(sums.items())}
        norm, skipped = apply_gradient(self.policy, self.optimizer, lr, config.clip)
        return {"grad_norm": norm, **sums}, skipped

    def _loss(
        self, prepared: _Prepared, batch: list[int], rows_R: Tensor, total: float | Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of one micro-batch, scaled so that micro-batches add up."""
        rows, config, device = prepared.rows, self.config, self.policy.device
        statistics = self.policy.statistics(rows.examples(batch), self.temperature)
        logprobs_RT = rows.spread(statistics.logprobs, rows_R)
        reference = prepared.reference_BT
        result = policy_loss(
            logprobs_RT,
            prepared.old_BT[rows_R].to(device),
            prepared.advantages_BT[rows_R].to(device),
            prepared.mask_BT[rows_R].to(device),
            kind=self.loss,
            aggregation=config.aggregation,
            total=total,
            weights_BT=prepared.mismatch.weights_BT[rows_R].to(device),
            reference_BT=None if reference is None else reference[rows_R].to(device),
            kl=config.kl,
            kl_coefficient=config.kl_coefficient,
            **config.loss.options,
        )
        return result.loss, dict(result.metrics)
