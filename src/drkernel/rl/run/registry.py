"""The methods that a recipe selects by name (``advantage: trloo``); one registry for each kind.

To add your own, write a function of the same signature and put one line above it::

    from drkernel.rl.run.registry import advantage

    @advantage.register("mine")
    def mine(batch, *, scale=1.0):
        return scale * batch.returns(gamma=1.0)

The registries and the signatures they hold:

- ``advantage``: ``f(batch: TurnBatch, **options) -> Tensor``, [B] for one advantage a turn or [B, T] for one a token.
- ``loss``: per-token losses, see ``drkernel.rl.maths.losses.TokenLossFunction``.
- ``schedule``: makers of records with ``factor(step)``, see :mod:`drkernel.rl.run.optimizers`.
- ``mismatch``: makers of :class:`drkernel.rl.maths.mismatch.MismatchSettings`. A recipe lists several: all
  must keep a token.
- ``rejection``: ``f(batch: TurnBatch, *, seed: int, **options) -> Tensor`` bool [B]: turns that stay.
  A recipe lists several; each sees in ``keep_B`` what those before it left.

Aggregations and KL penalties are closed sets of names, defined in :mod:`drkernel.rl.maths.losses`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

import torch
from torch import Tensor

from drkernel.registry import Registry
from drkernel.rl.maths import advantages as adv
from drkernel.rl.maths import losses, otb
from drkernel.rl.maths import rejection as reject
from drkernel.rl.maths.mismatch import Divergence, Largest, MismatchSettings
from drkernel.rl.run.optimizers import Constant, Cosine


@dataclass(frozen=True)
class TurnBatch:
    """The inputs of advantages and rejections, one row per turn in any order. Tensors of rows are [B], of tokens [B,
    T]."""

    rewards_B: Tensor
    """Reward of each turn; undefined where not valid."""
    task_B: Tensor
    """Integer id of the task (the group of trajectories that share a prompt)."""
    trajectory_B: Tensor
    """Integer id of the trajectory, unique over the batch."""
    turn_B: Tensor
    """Index of the turn in its trajectory, from 0."""
    valid_B: Tensor
    """bool: the turn has a grade. Rejected turns are valid: their rewards count, only their tokens do not train."""
    keep_B: Tensor | None = None
    """bool: neither mismatch nor rejection has removed the turn so far; None before either ran."""
    correct_B: Tensor | None = None
    """bool: the answer is right and not condemned; PRS needs it."""
    coverage_B: Tensor | None = None
    """Share of device time in own kernels, as the reward counts it (PR); PRS needs it."""
    launch_coverage_B: Tensor | None = None
    """Share of kernel launches that are the candidate's own; PRS by count needs it."""
    speedup_B: Tensor | None = None
    """Reference time over candidate time, 0 where not timed; PRS needs it where a speedup keeps a turn."""
    overlong_B: Tensor | None = None
    """bool: the answer was cut off at its budget of tokens or at the end of the context."""
    logprobs_BT: Tensor | None = None
    """Log-probability of the sampled tokens; OTB needs it."""
    sum_pi_squared_BT: Tensor | None = None
    """Σπ² at each sampled token; OTB needs it."""
    mask_BT: Tensor | None = None
    """1 on sampled tokens; OTB needs it."""
    ratios_BT: Tensor | None = None
    """Rollout importance weights of the loss, where it has any; OTB squares them into its energies."""

    def whole(self) -> Tensor:
        """Return bool [B]: the turn and all others of its trajectory are valid."""
        failed_B = (~self.valid_B.bool()).long()
        return adv.group_sum(failed_B, adv.group_ids(self.trajectory_B)) == 0

    def returns(self, gamma: float = 1.0) -> Tensor:
        """Reward-to-go of every turn, [B]."""
        return adv.flat_turn_returns(self.rewards_B, self.trajectory_B, self.turn_B, self.valid_B, gamma)

    def best_returns(self) -> Tensor:
        """What each turn and those after it add to the best reward so far, [B]."""
        return adv.flat_best_returns(self.rewards_B, self.trajectory_B, self.turn_B, self.valid_B)

    def totals(self, gamma: float = 1.0) -> Tensor:
        """Total (discounted) reward of each row's trajectory, [B]: Σ_t γ^t R_t over valid turns."""
        kept_B = torch.where(self.valid_B.bool(), self.rewards_B, torch.zeros_like(self.rewards_B))
        return adv.group_sum(kept_B * gamma ** self.turn_B.to(kept_B.dtype), adv.group_ids(self.trajectory_B))

    def groups(self) -> Tensor:
        """Group of each row for turn-level baselines: same task, same turn index."""
        return adv.group_ids(self.task_B, self.turn_B)

    def need(self, *names: str) -> list[Tensor]:
        """Return the optional tensors called ``names``. Raises ValueError for those that are missing."""
        missing = [name for name in names if getattr(self, name, None) is None]
        if missing:
            raise ValueError(f"this method needs {', '.join(missing)} in the batch")
        return [getattr(self, name) for name in names]


Rejected = Literal["stay", "leave"]
"""Whether the tokens of rejected turns weigh in OTB's baselines; they leave them in verl's code."""

advantage: Registry[Callable[..., Tensor]] = Registry("advantage")
loss: Registry[losses.TokenLossFunction] = Registry("loss")
schedule: Registry[Callable[..., Constant | Cosine]] = Registry("schedule", makers=True)
mismatch: Registry[Callable[..., MismatchSettings]] = Registry("mismatch", makers=True)
rejection: Registry[Callable[..., Tensor]] = Registry("rejection")


@advantage.register("trloo")
def _trloo(batch: TurnBatch, *, gamma: float = 1.0, alone: adv.Alone = "return") -> Tensor:
    return adv.trloo(batch.returns(gamma), batch.groups(), batch.valid_B, alone=alone)


@advantage.register("trloo_best")
def _trloo_best(batch: TurnBatch, *, alone: adv.Alone = "return") -> Tensor:
    return adv.trloo(batch.best_returns(), batch.groups(), batch.valid_B, alone=alone)


@advantage.register("grpo")
def _grpo(batch: TurnBatch, *, gamma: float = 1.0, alone: adv.Alone = "return") -> Tensor:
    return adv.grpo(batch.returns(gamma), batch.groups(), batch.valid_B, alone=alone)


@advantage.register("grpo_std")
def _grpo_std(batch: TurnBatch, *, gamma: float = 1.0, alone: adv.Alone = "return") -> Tensor:
    return adv.grpo_std(batch.returns(gamma), batch.groups(), batch.valid_B, alone=alone)


@advantage.register("rloo")
def _rloo(batch: TurnBatch, *, gamma: float = 1.0, alone: adv.Alone = "return") -> Tensor:
    returns_B, totals_B = batch.returns(gamma), batch.totals(gamma)
    return adv.rloo(returns_B, totals_B, batch.task_B, batch.trajectory_B, batch.valid_B, alone=alone)


@advantage.register("rloo_total")
def _rloo_total(batch: TurnBatch, *, gamma: float = 1.0, alone: adv.Alone = "return") -> Tensor:
    totals_B = batch.totals(gamma)
    return adv.rloo(totals_B, totals_B, batch.task_B, batch.trajectory_B, batch.valid_B, alone=alone)


@advantage.register("reinforce")
def _reinforce(batch: TurnBatch, *, gamma: float = 1.0, baseline: str = "mean") -> Tensor:
    return adv.reinforce(batch.returns(gamma), batch.valid_B, baseline=baseline)  # type: ignore[arg-type]


@advantage.register("kevin")
def _kevin(batch: TurnBatch, *, gamma: float = 0.4, std: bool = True) -> Tensor:
    return adv.kevin(batch.returns(gamma), batch.task_B, batch.valid_B, std=std)


def _otb(
    form: Callable[..., Tensor], group: Callable[[TurnBatch], Tensor], leave_one_out: bool
) -> Callable[..., Tensor]:
    """An optimal token baseline of turns or of trajectories; in the published form rejected rows leave the baseline."""
    usual: Rejected = "stay" if leave_one_out else "leave"

    def advantages(
        batch: TurnBatch,
        *,
        gamma: float = 1.0,
        energy: otb.Energy = "cumulative",
        tail: otb.Tail | None = None,
        rejected: Rejected = usual,
    ) -> Tensor:
        parts = _otb_inputs(batch, rejected)
        options: dict[str, Any] = {"kind": energy, "leave_one_out": leave_one_out, "tail": tail}
        rows = (group(batch), batch.trajectory_B, batch.turn_B)
        return form(batch.returns(gamma), *parts, *rows, ratios_BT=batch.ratios_BT, **options)

    return advantages


advantage.register("otb")(_otb(otb.otb_turns, TurnBatch.groups, leave_one_out=False))
advantage.register("otb_loo")(_otb(otb.otb_turns, TurnBatch.groups, leave_one_out=True))
advantage.register("otb_tir")(_otb(otb.otb_tir, attrgetter("task_B"), leave_one_out=False))
advantage.register("otb_tir_loo")(_otb(otb.otb_tir, attrgetter("task_B"), leave_one_out=True))


def _otb_inputs(batch: TurnBatch, rejected: Rejected) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-probabilities, Σπ² and mask of the tokens that form baselines, with or without rejected turns."""
    if rejected not in ("stay", "leave"):
        raise ValueError(f"rejected is {rejected!r}; choose stay or leave")
    logprobs_BT, square_BT, mask_BT = batch.need("logprobs_BT", "sum_pi_squared_BT", "mask_BT")
    members_B = batch.valid_B.bool()
    if rejected == "leave" and batch.keep_B is not None:
        members_B = members_B & batch.keep_B.bool()
    return logprobs_BT, square_BT, mask_BT.bool() & members_B[:, None]


loss.register("clipped")(losses.clipped)
loss.register("reinforce")(losses.reinforce)

schedule.register("constant")(Constant)
schedule.register("cosine")(Cosine)


mismatch.register("mrs")(MismatchSettings)


@mismatch.register("trust_region")
def _trust_region(bound: float = 0.02, divergence: Divergence = "k2", level: Largest = "largest") -> MismatchSettings:
    return MismatchSettings(mask=level, bounds=(0.0, bound), divergence=divergence, veto=None)


@mismatch.register("tis_token")
def _tis_token(truncate: float = 2.0) -> MismatchSettings:
    return MismatchSettings(weight="token", truncate=truncate, mask=None, veto=None)


@mismatch.register("tis_sequence")
def _tis_sequence(truncate: float = 2.0) -> MismatchSettings:
    return MismatchSettings(weight="sequence", truncate=truncate, mask=None, veto=None)


@mismatch.register("mis_token")
def _mis_token(lower: float = 0.5, upper: float = 2.0) -> MismatchSettings:
    return MismatchSettings(weight="token", truncate=None, mask="token", bounds=(lower, upper), veto=None)


@mismatch.register("mis_sequence")
def _mis_sequence(lower: float = 0.5, upper: float = 2.0) -> MismatchSettings:
    return MismatchSettings(weight="sequence", truncate=None, mask="sequence", bounds=(lower, upper), veto=None)


@rejection.register("prs")
def _prs(
    batch: TurnBatch,
    *,
    seed: int,
    threshold: float = 0.3,
    width: float = 0.1,
    speedup_keeps: float | None = None,
    level: Literal["turn", "geometric"] = "turn",
    coverage: Literal["time", "launches"] = "time",
) -> Tensor:
    """``level`` and ``coverage`` are the released code's ``coverage_rs`` and ``coverage_rs_key``."""
    if level not in ("turn", "geometric") or coverage not in ("time", "launches"):
        raise ValueError(f"prs knows level turn or geometric, coverage time or launches; got {level!r}, {coverage!r}")
    coverage_B, correct_B = batch.need("coverage_B" if coverage == "time" else "launch_coverage_B", "correct_B")
    if level == "geometric":
        counted_B = batch.valid_B if batch.keep_B is None else batch.valid_B.bool() & batch.keep_B.bool()
        coverage_B = reject.geometric_coverage(coverage_B, batch.trajectory_B, counted_B)
    turns = int(batch.turn_B.max()) + 1 if batch.turn_B.numel() else 1
    return reject.prs(
        coverage_B,
        correct_B,
        batch.valid_B,
        seed=seed,
        threshold=threshold,
        width=width,
        speedup_B=batch.speedup_B,
        speedup_keeps=speedup_keeps,
        key_B=batch.trajectory_B * turns + batch.turn_B,
    )


@rejection.register("uninformative")
def _uninformative(
    batch: TurnBatch,
    *,
    seed: int,
    tolerance: float = 1e-3,
    least: int | None = None,
    turns: Literal["last", "any"] = "last",
) -> Tensor:
    del seed
    dropped = uninformative_prompts(batch, tolerance=tolerance, least=least, turns=turns)
    return batch.valid_B.bool() & ~torch.isin(batch.task_B, torch.tensor(sorted(dropped), dtype=batch.task_B.dtype))


def uninformative_prompts(batch: TurnBatch, **options: Any) -> dict[int, reject.Reason]:
    """Return the prompts of a batch that the rejection ``uninformative`` drops, and why."""
    rows = (batch.rewards_B, batch.task_B, batch.trajectory_B, batch.turn_B, batch.valid_B, batch.overlong_B)
    return reject.uninformative_prompts(*rows, **options)
