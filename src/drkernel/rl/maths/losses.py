"""Policy-gradient losses per token, KL penalties, and aggregation over tokens.

This file needs torch and nothing else; any training engine can take it as it is.

A loss is three independent choices: the *kind* (what a token contributes), an optional *KL penalty* against a reference
policy, and the *aggregation* (how contributions become one number). :func:`policy_loss` combines them by name.

Shape legend: B rows (one turn or one trajectory each), T tokens. ``mask_BT`` is 1 on tokens that train. Values where
the mask is 0 may be anything, including NaN: they reach neither the loss nor a gradient.

Every loss is to be *minimised*. ``old`` holds the log-probabilities at the parameters that sampled, under the trainer's
own numerics; with the same parameters, ratios are 1 and every kind has the gradient −A ∇log π.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Aggregation = Literal["token_mean", "seq_mean_token_sum", "seq_mean_token_mean", "fixed_scale_sum"]
KL = Literal["k1", "k2", "k3"]


class Loss(NamedTuple):
    """A differentiable scalar and metrics of the step."""

    loss: Tensor
    """Differentiable scalar."""
    metrics: dict[str, Tensor]
    """Detached scalars over trained tokens: ``ratio_mean``, ``ratio_max``, ``clip_fraction``, ``dual_clip_fraction``,
    ``policy_kl`` (k3 estimate of KL(old ‖ policy)), ``tokens``, and ``kl`` (to the reference) where there is a
    penalty."""


class TokenLoss(NamedTuple):
    """Per-token result of one kind of loss."""

    loss_BT: Tensor
    """Contribution of every token, before weights, mask and aggregation."""
    clipped_BT: Tensor
    """bool: tokens whose gradient was cut."""
    dual_BT: Tensor
    """bool: tokens caught by the dual clip."""


TokenLossFunction = Callable[..., TokenLoss]


def clipped(
    logprobs_BT: Tensor,
    old_BT: Tensor,
    advantages_BT: Tensor,
    mask_BT: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    dual_clip: float | None = 3.0,
) -> TokenLoss:
    """PPO's clipped ratio (arXiv 1707.06347), asymmetric (DAPO, arXiv 2503.14476), with dual clip (arXiv 1912.09729).

    −min(ρA, clip(ρ, 1 − low, 1 + high)A); for A < 0 no worse than −cA with c = ``dual_clip`` > 1. Defaults of the clip:
    Dr. Kernel's full recipe; c = 3 is verl's default.
    """
    del mask_BT
    if not (0 <= clip_low <= 1 and clip_high >= 0) or (dual_clip is not None and dual_clip <= 1):
        raise ValueError(
            f"need 0 <= clip_low <= 1, clip_high >= 0, dual_clip > 1; got {clip_low}, {clip_high}, {dual_clip}"
        )
    ratio_BT = _ratio(logprobs_BT - old_BT)
    plain_BT = -advantages_BT * ratio_BT
    bound_BT = -advantages_BT * ratio_BT.clamp(1 - clip_low, 1 + clip_high)
    loss_BT = torch.maximum(plain_BT, bound_BT)
    clipped_BT = bound_BT > plain_BT
    dual_BT = torch.zeros_like(clipped_BT)
    if dual_clip is not None:
        limit_BT = -advantages_BT * dual_clip
        dual_BT = (advantages_BT < 0) & (loss_BT > limit_BT)
        loss_BT = torch.where(dual_BT, limit_BT, loss_BT)
    return TokenLoss(loss_BT, clipped_BT, dual_BT)


def reinforce(logprobs_BT: Tensor, old_BT: Tensor, advantages_BT: Tensor, mask_BT: Tensor) -> TokenLoss:
    """−A log π: the policy gradient itself, unclipped. Unbiased on policy; off policy give importance weights."""
    del old_BT, mask_BT
    none_BT = torch.zeros_like(logprobs_BT, dtype=torch.bool)
    return TokenLoss(-advantages_BT * logprobs_BT, none_BT, none_BT)


def kl_penalty(logprobs_BT: Tensor, reference_BT: Tensor, kind: KL = "k3") -> Tensor:
    """Per-token penalty towards a reference policy, from samples of the policy; d = log π − log π_ref.

    Values: k1 = d and k3 = e^(−d) − 1 + d estimate KL(π ‖ ref) without bias, k2 = d²/2 with a small one. Gradients,
    when added to a loss on policy (shown by enumeration in test_losses.py): k1 gives none on average, k2 gives
    exactly that of KL(π ‖ ref), k3 gives that of KL(ref ‖ π).
    """
    gap_BT = logprobs_BT - reference_BT
    if kind == "k1":
        return gap_BT
    if kind == "k2":
        return gap_BT.square() / 2
    if kind == "k3":
        return torch.expm1(-gap_BT) + gap_BT
    raise ValueError(f"unknown KL penalty {kind!r}; choose k1, k2 or k3")


def denominator(mask_BT: Tensor, aggregation: Aggregation) -> Tensor:
    """Return the divisor of an aggregation: the number of tokens, or of rows with at least one token.

    Compute it over the *whole* batch and all devices, and pass it to :func:`aggregate` for each micro-batch, so that
    the parts add up to the loss of the whole.
    """
    if aggregation == "token_mean":
        return mask_BT.bool().sum()
    if aggregation in ("seq_mean_token_sum", "seq_mean_token_mean"):
        return mask_BT.bool().any(dim=1).sum()
    raise ValueError(f"{aggregation!r} has no denominator of the data; pass its fixed scale as denominator")


def aggregate(
    loss_BT: Tensor, mask_BT: Tensor, aggregation: Aggregation, total: Tensor | float | None = None
) -> Tensor:
    """Reduce per-token losses [B, T] to one scalar; 0 when no token trains.

    - ``token_mean``: Σ over tokens / tokens. Every token has the same weight, so long rows dominate.
    - ``seq_mean_token_sum``: Σ over tokens / rows. The policy gradient up to a factor, as long as no row is rejected.
    - ``seq_mean_token_mean``: mean over a row's tokens, then over rows. Tokens of a long row weigh less: biased towards
      long failures.
    - ``fixed_scale_sum``: Σ over tokens / ``total``, a constant such as rows sampled × token budget. The policy
      gradient up to a factor that never depends on the data, even when rows are rejected; the recipe's choice.

    ``total`` replaces the denominator (see :func:`denominator`); ``fixed_scale_sum`` requires it.
    """
    mask_BT = mask_BT.bool()
    kept_BT = torch.where(mask_BT, loss_BT, torch.zeros_like(loss_BT))
    if aggregation == "seq_mean_token_mean":
        kept_BT = kept_BT / mask_BT.sum(dim=1, keepdim=True).clamp_min(1)
    if aggregation == "fixed_scale_sum" and total is None:
        raise ValueError("fixed_scale_sum needs its scale, e.g. total=rows_sampled * token_budget")
    if total is None:
        total = denominator(mask_BT, aggregation).clamp_min(1)
    elif aggregation not in ("token_mean", "seq_mean_token_sum", "seq_mean_token_mean", "fixed_scale_sum"):
        raise ValueError(f"unknown aggregation {aggregation!r}")
    return kept_BT.sum() / total


def policy_loss(
    logprobs_BT: Tensor,
    old_BT: Tensor,
    advantages_BT: Tensor,
    mask_BT: Tensor,
    *,
    kind: TokenLossFunction = clipped,
    aggregation: Aggregation = "fixed_scale_sum",
    total: Tensor | float | None = None,
    weights_BT: Tensor | None = None,
    reference_BT: Tensor | None = None,
    kl: KL = "k3",
    kl_coefficient: float = 0.0,
    **options: float | None,
) -> Loss:
    """Compute the complete loss: ``kind`` per token, times ``weights_BT`` (constant importance weights), plus KL,
    aggregated.

    ``options`` are passed to ``kind`` (clip ranges). ``advantages_BT`` [B, T] may be broadcast from one advantage per
    row.
    """
    parts = {
        "logprobs": logprobs_BT,
        "old": old_BT,
        "advantages": advantages_BT,
        "mask": mask_BT,
        "weights": weights_BT,
    }
    wrong = {name: tuple(p.shape) for name, p in parts.items() if p is not None and p.shape != logprobs_BT.shape}
    if wrong or logprobs_BT.dim() != 2:
        raise ValueError(f"all must be [B, T] like logprobs {tuple(logprobs_BT.shape)}: {wrong}")
    mask_BT = mask_BT.bool()
    logprobs_BT, old_BT, advantages_BT = (
        torch.where(mask_BT, part, torch.zeros_like(part))
        for part in (logprobs_BT, old_BT.detach(), advantages_BT.detach())
    )
    token = kind(logprobs_BT, old_BT, advantages_BT, mask_BT, **options)
    loss_BT = token.loss_BT
    if weights_BT is not None:
        loss_BT = loss_BT * torch.where(mask_BT, weights_BT.detach(), torch.zeros_like(weights_BT))
    metrics = _metrics(logprobs_BT.detach(), old_BT, mask_BT, token)
    if kl_coefficient:
        if reference_BT is None:
            raise ValueError("a KL penalty needs reference_BT, the reference policy's log-probabilities")
        reference_BT = torch.where(mask_BT, reference_BT.detach(), torch.zeros_like(reference_BT))
        penalty_BT = kl_penalty(logprobs_BT, reference_BT, kl)
        loss_BT = loss_BT + kl_coefficient * penalty_BT
        metrics["kl"] = _masked_mean(penalty_BT.detach(), mask_BT)
    return Loss(aggregate(loss_BT, mask_BT, aggregation, total), metrics)


@torch.no_grad()
def _metrics(logprobs_BT: Tensor, old_BT: Tensor, mask_BT: Tensor, token: TokenLoss) -> dict[str, Tensor]:
    """Metrics of a step over the trained tokens; 0 where there are none."""
    gap_BT = (logprobs_BT - old_BT).clamp_max(20.0)
    ratio_BT = gap_BT.exp()
    return {
        "tokens": mask_BT.sum(),
        "ratio_mean": _masked_mean(ratio_BT, mask_BT),
        "ratio_max": ratio_BT.masked_fill(~mask_BT, 0.0).amax() if mask_BT.numel() else ratio_BT.new_zeros(()),
        "clip_fraction": _masked_mean(token.clipped_BT.float(), mask_BT),
        "dual_clip_fraction": _masked_mean(token.dual_BT.float(), mask_BT),
        "policy_kl": _masked_mean(torch.expm1(gap_BT) - gap_BT, mask_BT),
    }


def _ratio(gap: Tensor) -> Tensor:
    """Return e^gap, limited to e^20: infinity times an advantage of 0 would be NaN."""
    return gap.clamp_max(20.0).exp()


def _masked_mean(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mean over trained tokens; 0 when there are none."""
    return values_BT.masked_fill(~mask_BT, 0.0).sum() / mask_BT.sum().clamp_min(1)
