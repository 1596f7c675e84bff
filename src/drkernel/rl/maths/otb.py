"""OTB, the optimal token baseline: one baseline per token, weighted by gradient energy computed from forward passes
alone.

This file needs torch and nothing else; any training engine can take it as it is.

Shape legend: B rows (one turn of one trajectory each, or one whole trajectory), T tokens, V vocabulary. ``mask_BT`` is
1 on tokens the policy sampled and 0 on padding and on the environment's tokens; only the former have energy or
advantage.

For logits z and a sampled token y, the gradient of log π(y) with respect to z is onehot(y) − π; its squared norm is the
*energy* w = 1 − 2π(y) + Σ_v π(v)², known from the forward pass alone (arXiv 2602.07078, "logit-gradient proxy"; its
abstract and verl's code and docs/algo/otb.md were read). The baseline at token j is the energy-weighted mean of the
group's returns. There are two kinds of energy, and one to compare with:

- ``cumulative`` (the paper's): W_j = Σ_{k<=j} w_k, the squared norm of the running sum S_j of token gradients when
  tokens do not share parameters. It minimises E‖S_j (G_j − b)‖², the spread accumulated up to j.
- ``token``: w_j alone. It minimises the variance of the whole gradient estimate, exactly so when tokens at different
  positions do not share parameters (proved by enumeration in tests/unit/rl/test_enumeration.py).
- ``uniform``: the same for all, a control: the plain mean over the members that have the token.

OTB is the published form (``otb`` in recipes): its baseline includes the sample itself, which biases the gradient.
``leave_one_out=True`` (``otb_loo``) weights only the *other* members. It is unbiased, because given the tokens before
it a token is independent of other trajectories.

There are also two ways of aligning members. :func:`otb_turns` compares turns of the same index, token by token within
the turn (released code of Dr. Kernel, ``token_optimal_baseline``). :func:`otb_tir` joins the turns of a trajectory and
compares tokens at the same position among all that the policy wrote (verl's ``tir_optimal_token_baseline``).
"""

from typing import Literal, get_args

import torch
from torch import Tensor

Tail = Literal["carry", "zero", "own"]
"""The baseline where no other member of the group still has tokens: the last one the row had, 0, or the row's own
return (verl with ``handle_zero_tail=False``: such tokens get no advantage)."""
Energy = Literal["cumulative", "token", "uniform"]
"""Which energy weights the returns at a token: all of the trajectory up to it (the paper's), its own, or none."""

_COLUMNS = 256  # tokens per block: bounds the float64 temporaries to a few times B x 256


def token_energy(logprobs: Tensor, sum_pi_squared: Tensor) -> Tensor:
    """w = 1 − 2π(y) + Σπ² (any shape): the squared norm of d log π(y) / d logits; in [0, 2].

    As (1 − π(y))² + (Σπ² − π(y)²), which does not cancel where π(y) is near 1: its first term is exact there, and its
    second, the others' squares, lies between 0 and the first, however Σπ² was rounded.
    """
    rest = -torch.expm1(logprobs)
    return rest.square() + torch.minimum((sum_pi_squared - logprobs.exp().square()).clamp_min(0), rest.square())


def realized_energy(
    energy_BT: Tensor,
    mask_BT: Tensor,
    *,
    ratios_BT: Tensor | None = None,
    trajectory_B: Tensor | None = None,
    turn_B: Tensor | None = None,
    kind: Energy = "cumulative",
) -> Tensor:
    """The weights of :func:`optimal_token_baseline`: energy up to each token (or of each), 0 where masked; [B, T].

    With ``ratios_BT``, rollout importance weights ρ (truncated as the loss truncates them), energy is multiplied by
    ρ². With ``trajectory_B`` and ``turn_B`` the rows are turns and energy accumulates over the trajectory's earlier
    turns too.
    """
    energy_BT = torch.where(mask_BT.bool(), energy_BT, torch.zeros_like(energy_BT))
    if kind == "uniform":
        return mask_BT.to(energy_BT.dtype)
    if ratios_BT is not None:
        energy_BT = energy_BT * torch.where(mask_BT.bool(), ratios_BT, torch.zeros_like(ratios_BT)).square()
    if kind == "token":
        return energy_BT
    if kind not in get_args(Energy):
        raise ValueError(f"unknown energy {kind!r}; choose {', '.join(get_args(Energy))}")
    running_BT = energy_BT.cumsum(dim=1)
    if (trajectory_B is None) != (turn_B is None):
        raise ValueError("give both trajectory_B and turn_B, or neither")
    if trajectory_B is not None and turn_B is not None and running_BT.shape[1]:
        running_BT = running_BT + _earlier_turns(running_BT[:, -1], trajectory_B, turn_B)[:, None]
    return running_BT * mask_BT.to(running_BT.dtype)


def optimal_token_baseline(
    returns_BT: Tensor,
    weights_BT: Tensor,
    group_B: Tensor,
    mask_BT: Tensor,
    *,
    leave_one_out: bool = False,
    epsilon: float = 1e-8,
    tail: Tail | None = None,
) -> Tensor:
    """Return B*_j = Σ_i G_ij W_ij / (Σ_i W_ij + ε) over the group's members that have token j: [B, T], 0 where masked.

    ``leave_one_out`` excludes row i from its own sums (unbiased); False is the published form. ``epsilon``
    appears in the denominator only, as in verl, so tokens without energy have baseline 0. ``tail`` selects the baseline
    where no other member reaches token j. None means "carry" with ``leave_one_out`` (which still uses other
    trajectories only) and "zero" without, verl's default since 2026-08 (``handle_zero_tail``). A row alone in its group
    gets baseline 0.
    """
    _check(returns_BT, weights_BT, group_B, mask_BT)
    tail = tail or ("carry" if leave_one_out else "zero")
    if tail not in ("carry", "zero", "own") or (tail == "own" and leave_one_out):
        raise ValueError(f"tail is {tail!r}; choose carry or zero, or own without leave_one_out")
    index_B = torch.unique(group_B, return_inverse=True)[1]
    mask_BT = mask_BT.bool()
    baseline_BT, defined_BT = torch.empty_like(returns_BT), torch.empty_like(mask_BT)
    for start in range(0, returns_BT.shape[1], _COLUMNS):
        span = slice(start, start + _COLUMNS)
        parts = (returns_BT[:, span], weights_BT[:, span], mask_BT[:, span])
        baseline_BT[:, span], defined_BT[:, span] = _block(*parts, index_B, leave_one_out, epsilon)
    lonely_B = (mask_BT & ~defined_BT).any(dim=1).nonzero()[:, 0]
    if len(lonely_B):
        rows_LT, defined_LT = baseline_BT[lonely_B], defined_BT[lonely_B]
        if tail == "carry":
            rows_LT = _carry_forward(rows_LT, defined_LT)
        elif tail == "zero":
            rows_LT = torch.where(defined_LT, rows_LT, 0.0)
        else:
            rows_LT = rows_LT * (_members(mask_BT, index_B)[lonely_B] > 1)[:, None]
        baseline_BT[lonely_B] = rows_LT
    return baseline_BT.mul_(mask_BT)


def otb(
    returns_BT: Tensor,
    weights_BT: Tensor,
    group_B: Tensor,
    mask_BT: Tensor,
    *,
    leave_one_out: bool = False,
    epsilon: float = 1e-8,
    tail: Tail | None = None,
) -> Tensor:
    """Advantages A = (G − B*) · mask [B, T] with the baseline of :func:`optimal_token_baseline`."""
    baseline_BT = optimal_token_baseline(
        returns_BT, weights_BT, group_B, mask_BT, leave_one_out=leave_one_out, epsilon=epsilon, tail=tail
    )
    return torch.where(mask_BT.bool(), returns_BT - baseline_BT, torch.zeros_like(returns_BT))


def otb_turns(
    returns_B: Tensor,
    logprobs_BT: Tensor,
    sum_pi_squared_BT: Tensor,
    mask_BT: Tensor,
    group_B: Tensor,
    trajectory_B: Tensor,
    turn_B: Tensor,
    *,
    ratios_BT: Tensor | None = None,
    kind: Energy = "cumulative",
    leave_one_out: bool = False,
    epsilon: float = 1e-8,
    tail: Tail | None = None,
) -> Tensor:
    """OTB on top of TRLOO's reward-to-go: rows are turns, ``group_B`` is (task, turn), energy accumulates over the
    trajectory.

    ``returns_B`` is the turn's reward-to-go, the same for all its tokens. Rows to leave out have an all-zero mask.
    Returns advantages [B, T].
    """
    weights_BT = realized_energy(
        token_energy(logprobs_BT, sum_pi_squared_BT),
        mask_BT,
        ratios_BT=ratios_BT,
        trajectory_B=trajectory_B,
        turn_B=turn_B,
        kind=kind,
    )
    returns_BT = returns_B[:, None].to(weights_BT.dtype).expand_as(weights_BT)
    return otb(returns_BT, weights_BT, group_B, mask_BT, leave_one_out=leave_one_out, epsilon=epsilon, tail=tail)


def otb_tir(
    returns_B: Tensor,
    logprobs_BT: Tensor,
    sum_pi_squared_BT: Tensor,
    mask_BT: Tensor,
    task_B: Tensor,
    trajectory_B: Tensor,
    turn_B: Tensor,
    *,
    ratios_BT: Tensor | None = None,
    kind: Energy = "cumulative",
    leave_one_out: bool = False,
    epsilon: float = 1e-8,
    tail: Tail | None = None,
) -> Tensor:
    """OTB over whole trajectories (tool-integrated form): rows are turns, and advantages are returned per row, [B, T].

    The tokens that the policy wrote in a trajectory are joined over its turns, without the environment's, and compared
    with those at the same position in the other trajectories of ``task_B``. ``returns_B`` is the reward-to-go of each
    row's turn. Source: verl ``compute_multi_turn_optimal_token_baseline_advantage``.
    """
    mask_BT = mask_BT.bool()
    energy_BT = token_energy(logprobs_BT, sum_pi_squared_BT)
    weights_BT = realized_energy(
        energy_BT, mask_BT, ratios_BT=ratios_BT, trajectory_B=trajectory_B, turn_B=turn_B, kind=kind
    )
    owner_B = torch.unique(trajectory_B, return_inverse=True)[1]
    count = int(owner_B.max()) + 1 if owner_B.numel() else 0
    before_B = _earlier_turns(mask_BT.sum(1), trajectory_B, turn_B)
    row_M, column_M = mask_BT.nonzero(as_tuple=True)
    position_M = before_B[row_M] + mask_BT.long().cumsum(1)[row_M, column_M] - 1
    place_M = (owner_B[row_M], position_M)
    width = int(position_M.max()) + 1 if position_M.numel() else 0
    weights_M = weights_BT[row_M, column_M]
    returns_NL, weights_NL, mask_NL = (
        weights_BT.new_zeros(count, width).index_put_(place_M, values_M)
        for values_M in (returns_B[row_M].to(weights_BT.dtype), weights_M, torch.ones_like(weights_M))
    )
    task_N = task_B.new_zeros(count).index_put_((owner_B,), task_B)
    advantages_NL = otb(
        returns_NL, weights_NL, task_N, mask_NL, leave_one_out=leave_one_out, epsilon=epsilon, tail=tail
    )
    return torch.zeros_like(weights_BT).index_put_((row_M, column_M), advantages_NL[place_M])


def _block(
    returns_BC: Tensor, weights_BC: Tensor, mask_BC: Tensor, index_B: Tensor, leave_one_out: bool, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Return weighted means of a block of columns in float64, and where they are defined (another member has the
    token).

    Float64, because a row's own weight is subtracted from a sum: in float32 a heavy row would drown out its light
    companions.
    """
    present_BC = mask_BC.double()
    # where, not a product: what lies under the mask may be NaN.
    weights_BC = torch.where(mask_BC, weights_BC, 0.0).double()
    product_BC = torch.where(mask_BC, returns_BC, 0.0).double().mul_(weights_BC)
    groups = int(index_B.max()) + 1 if index_B.numel() else 0
    sums = []
    for part_BC, others in ((product_BC, leave_one_out), (weights_BC, leave_one_out), (present_BC, True)):
        total_GC = part_BC.new_zeros(groups, part_BC.shape[1]).index_add_(0, index_B, part_BC)
        if bool(total_GC.isnan().any()):
            raise ValueError("a token under the mask has a NaN return or weight; mask its row or fix its reward")
        total_BC = total_GC.index_select(0, index_B)
        sums.append(total_BC.sub_(part_BC) if others else total_BC)
    product_BC, weights_BC, others_BC = sums
    # Sums without the row itself may be slightly below 0 by rounding. With epsilon 0 all weights may be 0, and 0/0 must
    # not escape.
    weights_BC = weights_BC.clamp_min_(0.0).add_(epsilon)
    return product_BC.div_(weights_BC).nan_to_num_(0.0, 0.0, 0.0), others_BC > 0.5


def _members(mask_BT: Tensor, index_B: Tensor) -> Tensor:
    """For every row, how many rows of its group have any token, [B]."""
    present_B = mask_BT.any(dim=1).long()
    size = int(index_B.max()) + 1 if index_B.numel() else 0
    return present_B.new_zeros(size).index_add_(0, index_B, present_B)[index_B]


def _carry_forward(values_BT: Tensor, defined_BT: Tensor) -> Tensor:
    """Fill undefined entries with the last defined one to their left, 0 where there is none."""
    columns = torch.arange(values_BT.shape[1], device=values_BT.device)
    last_BT = torch.where(defined_BT, columns, -1).cummax(dim=1).values
    return torch.where(last_BT >= 0, values_BT.gather(1, last_BT.clamp_min(0)), 0.0)


def _earlier_turns(total_B: Tensor, trajectory_B: Tensor, turn_B: Tensor) -> Tensor:
    """For every row the sum of ``total_B`` over earlier turns of the same trajectory, [B]."""
    if not total_B.numel():
        return total_B
    owner_B = torch.unique(trajectory_B, return_inverse=True)[1]
    order_B = torch.argsort(owner_B * (int(turn_B.max()) + 1) + turn_B, stable=True)
    sorted_B, owner_sorted_B = total_B[order_B].double(), owner_B[order_B]
    before_B = sorted_B.cumsum(0) - sorted_B
    first_B = torch.searchsorted(owner_sorted_B, owner_sorted_B)
    out_B = torch.empty_like(before_B)
    # differences of running sums may come out a rounding below 0, which no sum of energies is
    out_B[order_B] = (before_B - before_B[first_B]).clamp_min(0)
    return out_B.to(total_B.dtype)


def _check(returns_BT: Tensor, weights_BT: Tensor, group_B: Tensor, mask_BT: Tensor) -> None:
    """Raise ValueError for shapes that would broadcast wrongly and for weights that are negative or not finite."""
    shape = returns_BT.shape
    if returns_BT.dim() != 2 or weights_BT.shape != shape or mask_BT.shape != shape or group_B.shape != shape[:1]:
        raise ValueError(
            f"returns {tuple(shape)}, weights {tuple(weights_BT.shape)} and mask {tuple(mask_BT.shape)} "
            f"must all be [B, T], group {tuple(group_B.shape)} must be [B]"
        )
    if bool((weights_BT < 0).any()):
        raise ValueError("weights must be >= 0; they are energies, see token_energy")
