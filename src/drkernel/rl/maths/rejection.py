"""Rejection of turns that would teach little: PRS by coverage, void turns, and prompts that teach nothing.

This file needs torch and nothing else; any training engine can take it as it is.

PRS (*Dr. Kernel*, arXiv 2602.05885; released code): a *correct* turn whose own kernels take only a small share of the
device time ("coverage") is a lazy optimisation; it is kept with probability clip((coverage − τ)/s, 0, 1). Turns that
are not correct always stay, so that failures keep their gradient. Biased on purpose: the result is the policy gradient
of the kept turns.

Rejection affects only the loss's mask: group statistics and reward-to-go are computed over all graded turns, with the
rewards of the rejected ones (released code, kernel_trainer.py 2613-2690). A turn that is never rejected therefore keeps
its exact gradient whatever happens to later turns (proved in tests/unit/rl/test_enumeration_rejection.py).

Shape legend: B turns.
"""

from typing import Literal

import torch
from torch import Tensor


def keep_probability(coverage_B: Tensor, *, threshold: float = 0.3, width: float = 0.1) -> Tensor:
    """Return clip((coverage − threshold)/width, 0, 1) in float64; a hard step at ``threshold`` when ``width`` is 0.

    The defaults are the released recipe's.
    """
    if width < 0:
        raise ValueError(f"width must be >= 0, got {width}")
    coverage_B = coverage_B.double()
    if width == 0:
        return (coverage_B >= threshold).double()
    return ((coverage_B - threshold) / width).clamp(0, 1)


@torch.no_grad()
def prs(
    coverage_B: Tensor,
    correct_B: Tensor,
    valid_B: Tensor,
    *,
    seed: int,
    threshold: float = 0.3,
    width: float = 0.1,
    speedup_B: Tensor | None = None,
    speedup_keeps: float | None = None,
    key_B: Tensor | None = None,
) -> Tensor:
    """PRS over flat turns: bool [B], those that stay. ``coverage_B`` is the share of device time or of launches in the
    candidate's own kernels.

    ``seed`` fixes the draws. With ``key_B`` (integers that identify the turns, for example trajectory number times
    turns per trajectory plus turn) a turn's draw depends on seed and key alone, not on the other rows, so batches can
    be split or shuffled. Without it, rows draw in order. ``speedup_keeps`` keeps every correct turn that is at least
    that fast whatever its coverage (an option of the released code, off in its recipe). Raises ValueError for a correct
    turn whose coverage is NaN (not measured), because neither keeping nor dropping it would be right: mask it or supply
    a value.
    """
    shapes = {tuple(part.shape) for part in (coverage_B, correct_B, valid_B)}
    if len(shapes) != 1 or coverage_B.dim() != 1:
        raise ValueError(f"coverage, correct and valid must all be [B], got {sorted(shapes)}")
    valid_B, candidate_B = valid_B.bool(), correct_B.bool() & valid_B.bool()
    probability_B = keep_probability(coverage_B, threshold=threshold, width=width)
    if speedup_keeps is not None:
        if speedup_B is None:
            raise ValueError("speedup_keeps needs speedup_B")
        probability_B = torch.where(speedup_B >= speedup_keeps, 1.0, probability_B)
    probability_B = torch.where(candidate_B, probability_B, valid_B.double())
    if bool(probability_B.isnan().any()):
        raise ValueError("a correct turn has no coverage (NaN); give a measured coverage or mark the turn invalid")
    return (_uniform(seed, coverage_B, key_B) < probability_B) & valid_B


def geometric_coverage(coverage_B: Tensor, trajectory_B: Tensor, valid_B: Tensor) -> Tensor:
    """Geometric mean of the coverage over the valid turns of each trajectory, float64 [B], equal on all its rows.

    A coverage below 1e-8 counts as 1e-8 (released code, ``coverage_rs="geometric"``). Every valid turn counts, correct
    or not; rows of a trajectory without a valid turn get 1.
    """
    valid_B = valid_B.bool()
    owner_B = torch.unique(trajectory_B, return_inverse=True)[1]
    size = int(owner_B.max()) + 1 if owner_B.numel() else 0
    logs_B = torch.where(valid_B, coverage_B.double().clamp_min(1e-8).log(), 0.0)
    sums_N = logs_B.new_zeros(size).index_add_(0, owner_B, logs_B)
    counts_N = logs_B.new_zeros(size).index_add_(0, owner_B, valid_B.double())
    return (sums_N / counts_N.clamp_min(1)).exp()[owner_B]


def void_turns(rewards_B: Tensor, trajectory_B: Tensor, turn_B: Tensor, valid_B: Tensor) -> Tensor:
    """Return bool [B]: valid turns without a positive reward that follow a turn of their trajectory that had one.

    The released code of Dr. Kernel (``mask_void_turn``, core_algos.py 447-464) lets them count for nothing: they leave
    the loss and their groups, and their reward is 0 in the returns of earlier turns, which is what ``valid`` without
    them does. Once something worked, later failures do not train. Biased, because which turns count depends on what the
    policy did.
    """
    earned_B = (rewards_B > 0) & valid_B.bool()
    owner_B = torch.unique(trajectory_B, return_inverse=True)[1]
    size = int(owner_B.max()) + 1 if owner_B.numel() else 0
    never = torch.iinfo(torch.int64).max
    first_N = torch.full((size,), never, device=turn_B.device, dtype=torch.int64)
    first_N.scatter_reduce_(0, owner_B, torch.where(earned_B, turn_B.long(), never), "amin")
    return valid_B.bool() & ~earned_B & (turn_B.long() > first_N[owner_B])


Reason = Literal["equal", "overlong", "few"]
"""Why a prompt teaches nothing: its rewards are equal, all its answers were cut off, or too few of it are valid."""


@torch.no_grad()
def uninformative_prompts(
    rewards_B: Tensor,
    task_B: Tensor,
    trajectory_B: Tensor,
    turn_B: Tensor,
    valid_B: Tensor,
    overlong_B: Tensor | None = None,
    *,
    tolerance: float = 1e-3,
    least: int | None = None,
    turns: Literal["last", "any"] = "last",
) -> dict[int, Reason]:
    """Return the prompts that teach nothing, and why: ids of ``task_B`` (released code, unified_filter.py; DAPO, arXiv
    2503.14476, for one turn).

    - ``few``: fewer than ``least`` of its trajectories have a valid turn; None: more than half must (9 of 16).
    - ``overlong``: every valid answer to its last turn was cut off.
    - ``equal``: the rewards of its last turn deviate by less than ``tolerance`` (sample deviation, n - 1). A trajectory
      that ended before that turn, or whose answer is void there, counts with 0, as the released code pads. Earlier
      turns of such a prompt may differ and would teach something: ``turns="any"`` keeps it then.

    Trajectories without a valid turn count for nothing, and so does a prompt's size: what it is judged by does not
    depend on the other prompts of the batch. Dropping by outcome is biased where early turns differ.
    """
    if turns not in ("last", "any"):
        raise ValueError(f"turns is {turns!r}; choose last or any")
    valid_B = valid_B.bool()
    found: dict[int, Reason] = {}
    for task in torch.unique(task_B).tolist():
        here_R = (task_B == task).nonzero()[:, 0]
        owner_R = torch.unique(trajectory_B[here_R], return_inverse=True)[1]
        turn_R, valid_R = turn_B[here_R].long(), valid_B[here_R]
        counted_N = torch.zeros(int(owner_R.max()) + 1, dtype=torch.bool).index_put_(
            (owner_R[valid_R],), torch.tensor(True)
        )
        last = int(turn_R.max())
        rewards_NT = torch.zeros(len(counted_N), last + 1, dtype=torch.float64)
        # stretches of one answer share a place, and all but the last of them carry 0
        rewards_NT.index_put_((owner_R[valid_R], turn_R[valid_R]), rewards_B[here_R][valid_R].double(), accumulate=True)
        rewards_MT = rewards_NT[counted_N]
        ends_R = valid_R & (turn_R == last)
        if int(counted_N.sum()) < (len(counted_N) // 2 + 1 if least is None else least):
            found[task] = "few"
        elif overlong_B is not None and bool(ends_R.any()) and bool(overlong_B[here_R][ends_R].all()):
            found[task] = "overlong"
        elif len(rewards_MT) < 2 or not bool((rewards_MT.std(0)[0 if turns == "any" else last :] >= tolerance).any()):
            found[task] = "equal"
    return found


def _uniform(seed: int, like_B: Tensor, key_B: Tensor | None) -> Tensor:
    """Return uniform draws in [0, 1), float64, from the CPU generator or hashed from keys; the same on every device."""
    if key_B is None:
        generator = torch.Generator().manual_seed(seed)
        return torch.rand(like_B.shape, generator=generator, dtype=torch.float64).to(like_B.device)
    if key_B.shape != like_B.shape:
        raise ValueError(f"key_B {tuple(key_B.shape)} must have one integer for each of {tuple(like_B.shape)} turns")
    # SplitMix64 (Steele, Lea, Flood 2014) on wrapping int64: seed, then key, each mixed fully.
    start = torch.full_like(key_B, _wrap(seed), dtype=torch.int64)
    bits_B = _mix(_mix(start) + key_B.long())
    return _shift(bits_B, 11).double() / 2.0**53


def _mix(state: Tensor) -> Tensor:
    """One output of SplitMix64 for every state."""
    state = state + _wrap(0x9E3779B97F4A7C15)
    state = (state ^ _shift(state, 30)) * _wrap(0xBF58476D1CE4E5B9)
    state = (state ^ _shift(state, 27)) * _wrap(0x94D049BB133111EB)
    return state ^ _shift(state, 31)


def _shift(state: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64 (torch's is arithmetic)."""
    return (state >> bits) & ((1 << (64 - bits)) - 1)


def _wrap(value: int) -> int:
    """The int64 with the same low 64 bits."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value
