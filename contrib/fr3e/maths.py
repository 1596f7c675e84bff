"""FR3E: advantages of partial rollouts that start from uncertain places of an earlier answer.

This file needs torch and nothing else; any training engine can take it as it is.

FR3E (*First Return, Entropy-Eliciting Explore*, arXiv 2507.07017) answers a task a few times, finds the places where
the policy was least certain, and draws several *partial rollouts* from each of these *states* and from the task itself.
Rollouts of one state are compared with each other; the part before the state is not trained.

In leave-one-out form and without modulation, every state's part is the exact gradient of that state's value with
respect to what follows it (test_enumeration_explore.py). The task's own part is then TRLOO. The other states'
parts are policy gradients of states that were *chosen*, so their sum is not a gradient of the task's expected reward:
later decisions at uncertain places weigh more than they do there. That is the method's intent, and its bias.

Shape legend: B rows (turns of partial rollouts), S states of the batch.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from drkernel.rl.maths.advantages import floating, group_ids, grpo, trloo

Modulation = Literal["code", "paper", "none"]
"""How a state's gain in value over the state before it scales its advantages."""


def fr3e(
    returns_B: Tensor,
    state_B: Tensor,
    before_B: Tensor,
    task_B: Tensor,
    trajectory_B: Tensor,
    turn_B: Tensor,
    valid_B: Tensor,
    *,
    modulation: Modulation = "code",
    leave_one_out: bool = False,
    low: float | None = None,
    high: float | None = None,
) -> Tensor:
    """Advantages [B]: return minus the mean over the state's rollouts at the same turn, modulated by state.

    ``state_B`` numbers states over the batch; ``before_B`` is the state before on the same answer, -1 for a task
    itself. A state whose rollouts all return the same is dropped: it has no advantages, and the next one is compared
    with the state before it. ``leave_one_out`` takes the mean over the others and removes the own-sample bias, (M−1)/M
    for M rollouts; a rollout without others then keeps its return.

    V of a state is the mean return of its rollouts where they begin, scaled so that ``low`` is 0 and ``high`` is 1
    (None: the least and the greatest of the task's rollouts in the batch): kernels' rewards are not binary. With Δ = 1
    − V for a task itself and Δ = V − V(state before) else, ``"code"`` divides advantages by exp(sign(Δ)|Δ|^1.5 / Σ
    |Δ|^1.5), the sum over the task's states; ``"paper"`` divides by exp(Δ) for all states but the task itself.
    """
    if modulation not in ("code", "paper", "none"):
        raise ValueError(f"unknown modulation {modulation!r}; choose code, paper or none")
    valid_B = valid_B.bool()
    group_B = group_ids(state_B, turn_B)
    plain_B = trloo(returns_B, group_B, valid_B) if leave_one_out else grpo(returns_B, group_B, valid_B)
    if not valid_B.any():
        return plain_B
    value_S, task_S, before_S, kept_S = _values(returns_B, state_B, before_B, task_B, trajectory_B, turn_B, valid_B)
    plain_B = torch.where(kept_S[state_B], plain_B, torch.zeros_like(plain_B))
    if modulation == "none":
        return plain_B
    value_S = _scaled(value_S, returns_B, task_S, task_B, valid_B, low, high)
    gain_S = torch.zeros_like(value_S)
    for state in kept_S.nonzero()[:, 0].tolist():
        before = int(before_S[state])
        while before >= 0 and not kept_S[before]:
            before = int(before_S[before])
        if before >= 0:
            gain_S[state] = value_S[state] - value_S[before]
        elif modulation == "code":
            gain_S[state] = 1 - value_S[state]
    if modulation == "code":
        power_S = torch.where(kept_S, gain_S.abs() ** 1.5, torch.zeros_like(gain_S))
        whole_T = power_S.new_zeros(int(task_S.max()) + 1).index_add_(0, task_S, power_S)
        tiny = torch.finfo(power_S.dtype).tiny
        gain_S = gain_S.sign() * power_S / whole_T[task_S].clamp_min(tiny)
    return plain_B * (-gain_S[state_B]).exp().to(plain_B.dtype)


def _values(
    returns_B: Tensor,
    state_B: Tensor,
    before_B: Tensor,
    task_B: Tensor,
    trajectory_B: Tensor,
    turn_B: Tensor,
    valid_B: Tensor,
) -> tuple[Tensor, ...]:
    """Return for every state: mean return of its rollouts at their first valid turn (float64), compact task, state
    before, and whether those returns differ."""
    size = int(state_B.max()) + 1
    owner_B = torch.unique(trajectory_B, return_inverse=True)[1]
    never = torch.iinfo(torch.int64).max
    first_N = torch.full((int(owner_B.max()) + 1,), never, dtype=torch.int64, device=turn_B.device)
    first_N.scatter_reduce_(0, owner_B, torch.where(valid_B, turn_B.long(), never), "amin")
    first = (valid_B & (turn_B == first_N[owner_B])).nonzero()[:, 0]
    values, states = floating(returns_B)[first].double(), state_B[first]
    sums_S = values.new_zeros(size).index_add_(0, states, values)
    counts_S = torch.bincount(states, minlength=size).clamp_min(1)
    least_S = values.new_full((size,), torch.inf).scatter_reduce_(0, states, values, "amin")
    most_S = values.new_full((size,), -torch.inf).scatter_reduce_(0, states, values, "amax")
    task_S = state_B.new_zeros(size)
    before_S = state_B.new_full((size,), -1)
    task_S[state_B] = torch.unique(task_B, return_inverse=True)[1]
    before_S[state_B] = before_B
    return sums_S / counts_S, task_S, before_S, most_S > least_S


def _scaled(
    value_S: Tensor,
    returns_B: Tensor,
    task_S: Tensor,
    task_B: Tensor,
    valid_B: Tensor,
    low: float | None,
    high: float | None,
) -> Tensor:
    """Scale values to [0, 1] by the given bounds, or by the task's own."""
    tasks = torch.unique(task_B, return_inverse=True)[1]
    size = int(tasks.max()) + 1
    values_B = floating(returns_B).double()
    low_T = values_B.new_full((size,), torch.inf if low is None else low)
    high_T = values_B.new_full((size,), -torch.inf if high is None else high)
    if low is None:
        low_T.scatter_reduce_(0, tasks, values_B.masked_fill(~valid_B, torch.inf), "amin")
    if high is None:
        high_T.scatter_reduce_(0, tasks, values_B.masked_fill(~valid_B, -torch.inf), "amax")
    span_T = torch.where((high_T > low_T) & (high_T - low_T).isfinite(), high_T - low_T, 1.0)
    return ((value_S - low_T[task_S]) / span_T[task_S]).clamp(0, 1)
