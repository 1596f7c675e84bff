"""Advantage estimators over flat per-turn tensors: TRLOO, GRPO, RLOO, REINFORCE, Kevin.

This file needs torch and nothing else; any training engine can take it as it is.

Shape legend: B turns in the batch (every turn of every trajectory is one row), N trajectories, T turns of the longest
trajectory. Rewards, returns and advantages are in the reward's own unit.

A *group* is a set of rows that share a prompt distribution: for TRLOO the rows of one task at one turn index
(:func:`group_ids` makes the integers). Rows whose ``valid`` is False (the environment failed, the turn was never
played) neither enter any baseline nor get an advantage: theirs is exactly 0.

Sources: TRLOO and the turn-level GRPO are those of *Dr. Kernel* (arXiv 2602.05885; released code, ``trloo`` and
``grpo``); RLOO is arXiv 2402.14740; GRPO with the standard deviation (``grpo_std``) is arXiv 2402.03300; Kevin is arXiv
2507.11948.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

Alone = Literal["return", "zero"]
"""The advantage of a row without companions: its own return (baseline 0, unbiased) or 0."""


def group_ids(*keys_B: Tensor) -> Tensor:
    """Compact integer ids (int64, [B], 0..groups-1) of the distinct tuples of ``keys_B``, e.g. ``group_ids(task_B,
    turn_B)``."""
    if not keys_B:
        raise ValueError("group_ids needs at least one tensor of keys, e.g. group_ids(task_B, turn_B)")
    ids_B: Tensor = torch.unique(keys_B[0], return_inverse=True)[1]
    for key_B in keys_B[1:]:
        _same_rows(ids_B, key_B)
        next_B = torch.unique(key_B, return_inverse=True)[1]
        width = int(next_B.max()) + 1 if next_B.numel() else 1
        ids_B = torch.unique(ids_B * width + next_B, return_inverse=True)[1]
    return ids_B


def floating(values: Tensor) -> Tensor:
    """Return ``values`` unchanged if floating, else cast to the default dtype: integer or boolean rewards are valid,
    but their advantages are fractions."""
    return values if values.is_floating_point() else values.to(torch.get_default_dtype())


def turn_returns(rewards_NT: Tensor, valid_NT: Tensor, gamma: float = 1.0) -> Tensor:
    """Reward-to-go of every turn: G[n, t] = sum over k >= t of gamma^(k-t) * R[n, k]; 0 where the turn is not valid.

    An invalid turn contributes no reward, but still counts as one step of discount, so that dropping the reward of a
    turn does not move the later ones closer. ``gamma`` is 1 in Dr. Kernel and 0.4 in Kevin.
    """
    if rewards_NT.shape != valid_NT.shape or rewards_NT.dim() != 2:
        raise ValueError(
            f"rewards {tuple(rewards_NT.shape)} and valid {tuple(valid_NT.shape)} must both be [trajectories, turns]"
        )
    valid_NT, rewards_NT = valid_NT.bool(), floating(rewards_NT)
    kept_NT = torch.where(valid_NT, rewards_NT, torch.zeros_like(rewards_NT))
    returns_NT = torch.empty_like(kept_NT)
    running_N = torch.zeros_like(kept_NT[:, 0]) if kept_NT.shape[1] else kept_NT.new_zeros(kept_NT.shape[0])
    for turn in reversed(range(kept_NT.shape[1])):
        running_N = kept_NT[:, turn] + gamma * running_N
        returns_NT[:, turn] = running_N
    return torch.where(valid_NT, returns_NT, torch.zeros_like(returns_NT))


def best_returns(rewards_NT: Tensor, valid_NT: Tensor) -> Tensor:
    """What each turn and those after it add to the best reward so far: G[n, t] = max(0, max over k >= t of R[n, k] −
    max over j < t of R[n, j]), at the first turn the best reward itself; 0 where the turn is not valid.

    The best of a trajectory is what came before a turn plus this, and what came before does not depend on the turn's
    answer: a policy gradient with these returns is that of E[max_t R_t], the best of history, where a sum pays for a
    lazy answer once in every turn that repeats it (arXiv 2601.05475, 2510.23393: recalled; proved in
    tests/unit/rl/test_enumeration.py). An invalid turn has no reward.
    """
    if rewards_NT.shape != valid_NT.shape or rewards_NT.dim() != 2:
        raise ValueError(
            f"rewards {tuple(rewards_NT.shape)} and valid {tuple(valid_NT.shape)} must both be [trajectories, turns]"
        )
    valid_NT, rewards_NT = valid_NT.bool(), floating(rewards_NT)
    if not rewards_NT.shape[1]:
        return rewards_NT.clone()
    kept_NT = torch.where(valid_NT, rewards_NT, -torch.inf)
    later_NT = kept_NT.flip(1).cummax(dim=1).values.flip(1)
    before_NT = torch.cat([torch.full_like(kept_NT[:, :1], -torch.inf), kept_NT.cummax(dim=1).values[:, :-1]], dim=1)
    gain_NT = torch.where(before_NT == -torch.inf, later_NT, (later_NT - before_NT).clamp_min(0))
    return torch.where(valid_NT, gain_NT, torch.zeros_like(gain_NT))


def flat_turn_returns(
    rewards_B: Tensor, trajectory_B: Tensor, turn_B: Tensor, valid_B: Tensor, gamma: float = 1.0
) -> Tensor:
    """Compute :func:`turn_returns` for flat rows in any order; ``trajectory_B`` and ``turn_B`` (>= 0) identify each
    row's turn.

    Raises ValueError when two rows claim the same turn of the same trajectory.
    """
    return _by_turn(
        lambda rewards, valid: turn_returns(rewards, valid, gamma), rewards_B, trajectory_B, turn_B, valid_B
    )


def flat_best_returns(rewards_B: Tensor, trajectory_B: Tensor, turn_B: Tensor, valid_B: Tensor) -> Tensor:
    """Compute :func:`best_returns` for flat rows, as :func:`flat_turn_returns`."""
    return _by_turn(best_returns, rewards_B, trajectory_B, turn_B, valid_B)


def _by_turn(
    form: Callable[[Tensor, Tensor], Tensor],
    rewards_B: Tensor,
    trajectory_B: Tensor,
    turn_B: Tensor,
    valid_B: Tensor,
) -> Tensor:
    """Apply a function of [trajectories, turns] to flat rows in any order."""
    _same_rows(rewards_B, trajectory_B, turn_B, valid_B)
    rewards_B = floating(rewards_B)
    if rewards_B.numel() == 0:
        return rewards_B.clone()
    row_B = torch.unique(trajectory_B, return_inverse=True)[1]
    if int(turn_B.min()) < 0:
        raise ValueError("turn indices must be >= 0; leave out rows that are padding")
    shape = (int(row_B.max()) + 1, int(turn_B.max()) + 1)
    seen_NT = torch.zeros(shape, dtype=torch.int64, device=rewards_B.device)
    seen_NT.index_put_((row_B, turn_B), torch.ones_like(turn_B, dtype=torch.int64), accumulate=True)
    if int(seen_NT.max()) > 1:
        raise ValueError("two rows have the same (trajectory, turn); every turn must be one row")
    rewards_NT = rewards_B.new_zeros(shape)
    valid_NT = torch.zeros(shape, dtype=torch.bool, device=rewards_B.device)
    rewards_NT[row_B, turn_B] = rewards_B
    valid_NT[row_B, turn_B] = valid_B.bool()
    return form(rewards_NT, valid_NT)[row_B, turn_B]


def trloo(returns_B: Tensor, group_B: Tensor, valid_B: Tensor, *, alone: Alone = "return") -> Tensor:
    """Turn-level REINFORCE leave-one-out: A = n/(n-1) * (G - mean of the group) = G - mean of the *other* members.

    ``group_B`` is ``group_ids(task_B, turn_B)``; n counts the valid rows of the group. Unbiased for every n and however
    early other trajectories end, because a row's baseline uses independent trajectories only. A row alone in its group
    keeps its return (``alone="return"``, as in the released code; unbiased) or gets 0 (``"zero"``: less variance,
    biased).
    """
    values_B, index_B, valid_B = _prepare(returns_B, group_B, valid_B)
    total_B, count_B = group_sum(values_B, index_B), group_sum(valid_B.to(values_B), index_B)
    others_B = (total_B - values_B) / (count_B - 1).clamp_min(1)
    return _finish(values_B - others_B, values_B, count_B, valid_B, alone, returns_B)


def grpo(returns_B: Tensor, group_B: Tensor, valid_B: Tensor, *, alone: Alone = "return") -> Tensor:
    """Group-relative advantage of Dr. Kernel (Eq. 3): G - mean of the group, the row itself included.

    The expected gradient of a group of n is (n - 1)/n of the true one (Eq. 4). With N members in every group that is a
    constant, :func:`trloo` is N/(N - 1) times this, and AdamW, whose steps do not know the gradient's scale, learns the
    same from both. Where later turns have fewer members the factor differs by turn: biased.
    """
    values_B, index_B, valid_B = _prepare(returns_B, group_B, valid_B)
    centred_B, count_B = _centred(values_B, index_B, valid_B)
    return _finish(centred_B, values_B, count_B, valid_B, alone, returns_B)


def grpo_std(
    returns_B: Tensor, group_B: Tensor, valid_B: Tensor, *, epsilon: float = 1e-6, alone: Alone = "return"
) -> Tensor:
    """Group-relative advantage of arXiv 2402.03300: (G - mean) / (std + epsilon), the row itself included.

    Biased as :func:`grpo`, and its scale also depends on the rewards drawn. ``std`` is the sample deviation (n - 1); a
    group of equal returns gives zeros.
    """
    values_B, index_B, valid_B = _prepare(returns_B, group_B, valid_B)
    centred_B, count_B = _centred(values_B, index_B, valid_B)
    variance_B = group_sum(centred_B.square(), index_B) / (count_B - 1).clamp_min(1)
    return _finish(centred_B / (variance_B.sqrt() + epsilon), values_B, count_B, valid_B, alone, returns_B)


def rloo(
    returns_B: Tensor,
    totals_B: Tensor,
    task_B: Tensor,
    trajectory_B: Tensor,
    valid_B: Tensor,
    *,
    alone: Alone = "return",
) -> Tensor:
    """Trajectory-level REINFORCE leave-one-out: A = G[i, t] - mean total return of the task's *other* trajectories.

    ``totals_B`` is each row's trajectory total (the return at its first turn), repeated on every row. Unbiased, but
    with more variance than TRLOO at later turns, where a total is no longer the natural comparison for a reward-to-go.
    A trajectory takes part when any of its turns is valid. The released code combines reward-to-go with a trajectory
    baseline (``rloo`` in recipes); pass ``totals_B`` as ``returns_B`` for the classic form that credits every turn with
    the whole total (``rloo_total``).
    """
    _same_rows(returns_B, totals_B, trajectory_B)
    values_B, _, valid_B = _prepare(returns_B, task_B, valid_B)
    owner_B = torch.unique(trajectory_B, return_inverse=True)[1]
    trajectories = int(owner_B.max()) + 1 if owner_B.numel() else 0
    total_N = values_B.new_zeros(trajectories)
    task_N = task_B.new_zeros(trajectories)
    played_N = torch.zeros(trajectories, dtype=torch.bool, device=values_B.device)
    total_N[owner_B] = totals_B.to(values_B)
    task_N[owner_B] = task_B
    played_N[owner_B[valid_B]] = True
    total_N = torch.where(played_N, total_N, torch.zeros_like(total_N))
    index_N = torch.unique(task_N, return_inverse=True)[1]
    sum_N, count_N = group_sum(total_N, index_N), group_sum(played_N.to(total_N), index_N)
    others_N = (sum_N - total_N) / (count_N - 1).clamp_min(1)
    return _finish(values_B - others_N[owner_B], values_B, count_N[owner_B], valid_B, alone, returns_B)


def reinforce(
    returns_B: Tensor, valid_B: Tensor, *, baseline: Literal["none", "mean", "leave_one_out"] = "mean"
) -> Tensor:
    """REINFORCE with one baseline for the whole batch: none, the mean of all valid rows, or the mean of the other rows.

    ``"none"`` is unbiased. ``"mean"`` is the textbook batch baseline: including the row itself biases it by (1 - 1/B)
    for single turns. ``"leave_one_out"`` removes this bias for single turns but not for several, because the other
    turns of a trajectory depend on the action taken; use TRLOO there.
    """
    if baseline not in ("none", "mean", "leave_one_out"):
        raise ValueError(f"unknown baseline {baseline!r}; choose none, mean or leave_one_out")
    group_B = torch.zeros(returns_B.shape[0], dtype=torch.int64, device=returns_B.device)
    if baseline == "leave_one_out":
        return trloo(returns_B, group_B, valid_B)
    if baseline == "mean":
        return grpo(returns_B, group_B, valid_B)
    values_B, _, valid_B = _prepare(returns_B, group_B, valid_B)
    return values_B.to(floating(returns_B).dtype)


def kevin(discounted_B: Tensor, task_B: Tensor, valid_B: Tensor, *, std: bool = True, epsilon: float = 1e-6) -> Tensor:
    """Kevin: every turn is a sample of its own, scored by the discounted sum of its own and later rewards, normalised
    per task.

    ``discounted_B`` is :func:`flat_turn_returns` with gamma 0.4. The baseline is the mean over *all* turns of *all*
    trajectories of the task. It therefore includes the row itself and later turns that depend on it, which makes it
    biased, and it compares turns with different expected returns.
    """
    return grpo_std(discounted_B, task_B, valid_B, epsilon=epsilon) if std else grpo(discounted_B, task_B, valid_B)


def broadcast_to_tokens(advantages_B: Tensor, mask_BT: Tensor) -> Tensor:
    """Give every trained token of a turn the turn's advantage: [B] and mask [B, tokens] -> [B, tokens], 0 where
    masked."""
    if advantages_B.shape[0] != mask_BT.shape[0]:
        raise ValueError(f"{advantages_B.shape[0]} advantages for {mask_BT.shape[0]} rows of tokens")
    return advantages_B[:, None] * mask_BT.to(advantages_B.dtype)


def _prepare(returns_B: Tensor, group_B: Tensor, valid_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the returns in float64 (0 on invalid rows), compact group indices, and validity as bool.

    There are few rows (thousands) and sums over a group cancel, so float64 costs nothing and makes the result
    independent of row order.
    """
    _same_rows(returns_B, group_B, valid_B)
    valid_B = valid_B.bool()
    values_B = torch.where(valid_B, returns_B, torch.zeros_like(returns_B)).double()
    if not torch.isfinite(values_B).all():
        raise ValueError("a valid row has a NaN or infinite return; mask the row (valid=False) or fix its reward")
    return values_B, torch.unique(group_B, return_inverse=True)[1], valid_B


def _centred(values_B: Tensor, index_B: Tensor, valid_B: Tensor) -> tuple[Tensor, Tensor]:
    """Return each valid row's distance from the mean of its group, and the valid members of its group."""
    count_B = group_sum(valid_B.to(values_B), index_B)
    mean_B = group_sum(values_B, index_B) / count_B.clamp_min(1)
    return torch.where(valid_B, values_B - mean_B, torch.zeros_like(values_B)), count_B


def _finish(
    advantages_B: Tensor, values_B: Tensor, count_B: Tensor, valid_B: Tensor, alone: Alone, like_B: Tensor
) -> Tensor:
    """Apply the rule for groups of one, zero the invalid rows, and return to the caller's dtype."""
    if alone not in ("return", "zero"):
        raise ValueError(f"unknown rule for a group of one {alone!r}; choose return or zero")
    single_B = values_B if alone == "return" else torch.zeros_like(values_B)
    advantages_B = torch.where(count_B > 1, advantages_B, single_B)
    return torch.where(valid_B, advantages_B, torch.zeros_like(advantages_B)).to(floating(like_B).dtype)


def group_sum(values_B: Tensor, index_B: Tensor) -> Tensor:
    """For every row the sum of ``values_B`` over its group, [B]; ``index_B`` are compact ids."""
    groups = int(index_B.max()) + 1 if index_B.numel() else 0
    return values_B.new_zeros(groups).index_add_(0, index_B, values_B)[index_B]


def _same_rows(first_B: Tensor, *others: Tensor) -> None:
    """Raise ValueError when per-row tensors disagree in shape."""
    shapes: Sequence[tuple[int, ...]] = [tuple(tensor.shape) for tensor in (first_B, *others)]
    if len(shapes[0]) != 1 or any(shape != shapes[0] for shape in shapes):
        raise ValueError(f"per-row tensors must all be [B], got {', '.join(map(str, shapes))}")
