"""Mismatch between the policy that sampled and the policy that trains: weights, rejection and diagnostics.

This file needs torch and nothing else; any training engine can take it as it is.

The sampler runs in lower precision, with other kernels, or a few updates behind, so the trainer's own policy assigns
other probabilities to the sampled tokens. With the per-token log-ratio r_j = log π_train(y_j) − log π_rollout(y_j):

- *importance weights* exp(r_j) (token), exp(Σ r_j) (sequence) or exp(mean r_j) (geometric), truncated at a bound (TIS)
  or masked outside bounds (MIS). Only the untruncated sequence weight is unbiased; everything else trades bias for
  variance.
- *MRS*, mismatch rejection sampling (*Dr. Kernel*, arXiv 2602.05885; released code, full recipe): keep a sequence only
  when its geometric mean ratio lies in [0.999, 1.001], and veto on any token whose ratio is below 1e-4. In the released
  code the veto rejects the turn of that token; the paper's "entire sequence" may mean the whole trajectory, which
  ``veto_level="trajectory"`` implements; in the paper, each turn is a sample, so that its mean may run over a turn
  (``turn_geometric``) instead of the trajectory (``geometric``, the released recipe). Biased: it trains on the
  sequences where the two policies agree.
- *Trust-region masking* (arXiv 2512.23075, of the same authors): the error of the surrogate objective is bounded by
  the *largest* divergence of a token, so that a sequence is kept only when no token's is above a bound (``largest``).
  The divergence is estimated from the sampled token; its abstract and verl's ``seq_max_k2`` were read.

Criteria may be chained: a token trains when every one keeps it, each judged on all tokens, as in verl.

Shape legend: B sequences, T tokens. A *sequence* is a row, or, with ``sequence_B``, all rows that share an id (the
turns of one trajectory; the released recipe judges whole trajectories). ``mask_BT`` is 1 on sampled tokens. Everything
here is computed without gradient.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

Level = Literal["token", "sequence", "geometric", "turn_geometric"]
"""What a ratio is of: a token, or all tokens of a sequence (their product, or their geometric mean), or of a row."""
Largest = Literal["largest", "turn_largest"]
"""The greatest divergence of a token, of a sequence or of a row."""
Divergence = Literal["k1", "k2", "k3"]
VetoLevel = Literal["turn", "trajectory"]
Bounds = tuple[float, float]


class PolicyMismatch(NamedTuple):
    """The loss's weights and mask, and metrics for the log."""

    weights_BT: Tensor
    """Importance weights to multiply the loss by: 1 without weighting, 0 where masked or rejected."""
    keep_BT: Tensor
    """bool: tokens that train, that is the given mask minus the rejected tokens. Use it as the loss's mask."""
    metrics: dict[str, float]
    """Diagnostics by name; see :func:`diagnostics` and :func:`mismatch`."""
    keeps: tuple[Tensor, ...] = ()
    """bool [B, T] for each criterion: the tokens that it keeps, by itself."""


@dataclass(frozen=True)
class MismatchSettings:
    """Which correction to apply. The defaults are the released full recipe: MRS and no weights."""

    weight: Level | None = None
    """Level of the importance weights that multiply the loss; None for none."""
    truncate: float | None = 2.0
    """Upper bound of the weights (TIS; 2.0 in the released code); None leaves them as they are."""
    mask: Level | Largest | None = "geometric"
    """Level of the ratio, or the divergence, that is compared with ``bounds``; None rejects nothing by bounds."""
    bounds: Bounds = (0.999, 1.001)
    """Closed interval of ratios that are kept (released full recipe, geometric)."""
    veto: float | None = 1e-4
    """A token with a ratio below this rejects the unit named by ``veto_level`` (released full recipe); None for no
    veto."""
    veto_level: VetoLevel = "turn"
    """How far a veto reaches: the row of the token (released code) or all rows of its trajectory."""
    divergence: Divergence = "k2"
    """Estimate of a token's divergence for ``largest``: |r|, r²/2 or e^r − 1 − r."""

    def __post_init__(self) -> None:
        for name, known in (("weight", get_args(Level)), ("mask", (*get_args(Level), *get_args(Largest)))):
            if getattr(self, name) not in (None, *known):
                raise ValueError(f"{name} is {getattr(self, name)!r}; choose {', '.join(known)} or None")
        if self.divergence not in get_args(Divergence):
            raise ValueError(f"divergence is {self.divergence!r}; choose {', '.join(get_args(Divergence))}")
        if self.veto_level not in ("turn", "trajectory"):
            raise ValueError(f"veto_level is {self.veto_level!r}; choose turn or trajectory")
        if not 0 <= self.bounds[0] <= self.bounds[1]:
            raise ValueError(f"bounds {self.bounds} are not 0 <= lower <= upper")
        if (self.truncate is not None and not self.truncate > 0) or (self.veto is not None and not self.veto > 0):
            raise ValueError("truncate and veto are ratios and must be > 0; use None to switch them off")


@torch.no_grad()
def log_ratios(train_BT: Tensor, rollout_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return r = log π_train − log π_rollout in float32 (float64 stays), 0 where masked.

    −inf is allowed (a token that is impossible under the trainer): its ratio is 0 and MRS vetoes it. Raises ValueError
    on NaN or +inf under the mask.
    """
    if not train_BT.shape == rollout_BT.shape == mask_BT.shape or mask_BT.dim() != 2:
        raise ValueError(
            f"train {tuple(train_BT.shape)}, rollout {tuple(rollout_BT.shape)} and mask {tuple(mask_BT.shape)} "
            "must all be [sequences, tokens]"
        )
    wide = torch.promote_types(train_BT.dtype, torch.float32)
    ratio_BT = (train_BT.to(wide) - rollout_BT.to(wide)).masked_fill(~mask_BT.bool(), 0.0)
    if bool((ratio_BT.isnan() | (ratio_BT == math.inf)).any()):
        raise ValueError(
            "a sampled token has a NaN or infinite log-ratio: its rollout log-probability is NaN or -inf; "
            "check that sampling stores the log-probability of the token it drew"
        )
    return ratio_BT


@torch.no_grad()
def ratios(log_ratio_BT: Tensor, mask_BT: Tensor, level: Level, sequence_B: Tensor | None = None) -> Tensor:
    """Return the importance ratio of every token [B, T] at a level: its own, its sequence's product or geometric mean,
    or its row's; 0 where masked.

    Products are limited to 1e30 so that float32 never overflows.
    """
    mask_BT = mask_BT.bool()
    if level == "token":
        log_BT = log_ratio_BT
    elif level in get_args(Level):
        sums_B, counts_B = _sequence_sums(log_ratio_BT, mask_BT, None if level == "turn_geometric" else sequence_B)
        log_B = sums_B if level == "sequence" else sums_B / counts_B.clamp_min(1)
        log_BT = log_B[:, None].expand_as(log_ratio_BT).to(log_ratio_BT.dtype)
    else:
        raise ValueError(f"unknown level {level!r}; choose {', '.join(get_args(Level))}")
    return log_BT.clamp_max(69.0).exp().masked_fill(~mask_BT, 0.0)


@torch.no_grad()
def largest_divergence(
    log_ratio_BT: Tensor, mask_BT: Tensor, kind: Divergence = "k2", sequence_B: Tensor | None = None
) -> Tensor:
    """Return the greatest divergence of a token of each row's sequence, for every token, [B, T]; 0 where masked. A
    token that is impossible under the trainer diverges without bound."""
    mask_BT = mask_BT.bool()
    r = log_ratio_BT
    token_BT = {"k1": r.abs(), "k2": r.square() / 2, "k3": torch.expm1(r.clamp_max(69.0)) - r}[kind]
    row_B = token_BT.masked_fill(~mask_BT, 0.0).amax(dim=1) if mask_BT.shape[1] else token_BT.new_zeros(len(mask_BT))
    index_B = _sequence_ids(mask_BT, sequence_B)
    size = int(index_B.max()) + 1 if index_B.numel() else 0
    most_B = row_B.new_zeros(size).scatter_reduce_(0, index_B, row_B, "amax")[index_B]
    return most_B[:, None].expand_as(token_BT).masked_fill(~mask_BT, 0.0)


class _Criterion(NamedTuple):
    """The tokens that one criterion rejects, bool [B, T]."""

    below_BT: Tensor
    above_BT: Tensor
    vetoed_BT: Tensor


def _criterion(log_BT: Tensor, mask_BT: Tensor, settings: MismatchSettings, sequence_B: Tensor | None) -> _Criterion:
    """Judge every token by one criterion."""
    below_BT, above_BT, vetoed_BT = (torch.zeros_like(mask_BT) for _ in range(3))
    if settings.mask is not None:
        if settings.mask in ("largest", "turn_largest"):
            reach_B = sequence_B if settings.mask == "largest" else None
            value_BT = largest_divergence(log_BT, mask_BT, settings.divergence, reach_B)
        else:
            value_BT = ratios(log_BT, mask_BT, settings.mask, sequence_B)  # type: ignore[arg-type]
        below_BT, above_BT = (value_BT < settings.bounds[0]) & mask_BT, (value_BT > settings.bounds[1]) & mask_BT
    if settings.veto is not None:
        low_BT = (log_BT < math.log(settings.veto)) & mask_BT
        reach_B = sequence_B if settings.veto_level == "trajectory" else None
        hit_B = _sequence_sums(low_BT.float(), mask_BT, reach_B)[0] > 0
        vetoed_BT = hit_B[:, None] & mask_BT
    return _Criterion(below_BT, above_BT, vetoed_BT)


@torch.no_grad()
def mismatch(
    train_BT: Tensor,
    rollout_BT: Tensor,
    mask_BT: Tensor,
    settings: MismatchSettings | Sequence[MismatchSettings] | None = None,
    *,
    sequence_B: Tensor | None = None,
) -> PolicyMismatch:
    """Compute weights, keep-mask and metrics from log-probabilities of the same tokens under trainer and sampler, both
    [B, T].

    Both must be taken at the parameters that sampled; otherwise the ratio also contains the policy's progress. With
    several ``settings`` a token is kept when each of them keeps it; at most one of them may have weights. Metrics are
    those of :func:`diagnostics` plus ``rejected_token_fraction``, ``rejected_sequence_fraction``,
    ``vetoed_sequence_fraction``, ``below_fraction`` and ``above_fraction`` (tokens outside a bound),
    ``truncated_fraction`` and ``weight_mean``.
    """
    chain = [settings or MismatchSettings()] if settings is None or isinstance(settings, MismatchSettings) else settings
    weighing = [one for one in chain if one.weight is not None]
    if len(weighing) > 1:
        raise ValueError("several criteria have weights; let one of them weigh, and the others mask")
    mask_BT = mask_BT.bool()
    log_BT = log_ratios(train_BT, rollout_BT, mask_BT)
    metrics = diagnostics(log_BT, mask_BT, rollout_BT, sequence_B)
    found = [_criterion(log_BT, mask_BT, one, sequence_B) for one in chain]
    none_BT = torch.zeros_like(mask_BT)
    below_BT, above_BT, vetoed_BT = none_BT, none_BT, none_BT
    for part in found:
        below_BT, above_BT, vetoed_BT = below_BT | part.below_BT, above_BT | part.above_BT, vetoed_BT | part.vetoed_BT
    keeps = tuple(mask_BT & ~(part.below_BT | part.above_BT | part.vetoed_BT) for part in found)
    keep_BT = mask_BT & ~(below_BT | above_BT | vetoed_BT)
    weights_BT = keep_BT.to(log_BT.dtype)
    truncated = 0.0
    for one in weighing:
        assert one.weight is not None
        weights_BT = ratios(log_BT, mask_BT, one.weight, sequence_B) * keep_BT
        if one.truncate is not None:
            truncated = _share(weights_BT > one.truncate, keep_BT)
            weights_BT = weights_BT.clamp_max(one.truncate)
    sequences_B = _sequence_ids(mask_BT, sequence_B)
    metrics |= {
        "rejected_token_fraction": _share(mask_BT & ~keep_BT, mask_BT),
        "rejected_sequence_fraction": _sequence_share(mask_BT & ~keep_BT, mask_BT, sequences_B),
        "vetoed_sequence_fraction": _sequence_share(vetoed_BT, mask_BT, sequences_B),
        "below_fraction": _share(below_BT, mask_BT),
        "above_fraction": _share(above_BT, mask_BT),
        "truncated_fraction": truncated,
        "weight_mean": _mean(weights_BT, keep_BT),
    }
    return PolicyMismatch(weights_BT, keep_BT, metrics, keeps)


@torch.no_grad()
def diagnostics(
    log_ratio_BT: Tensor, mask_BT: Tensor, rollout_BT: Tensor | None = None, sequence_B: Tensor | None = None
) -> dict[str, float]:
    """Measure how far apart the two policies are, from log-ratios r = log π_train − log π_rollout on sampled tokens.

    ``k1``, ``k2``, ``k3``: estimates of KL(rollout ‖ train) in nats per token, −r, r²/2 and e^r − 1 − r; k1 and k3 are
    unbiased, k3 is never negative. ``max_abs_log_ratio``. ``chi2_token`` and ``chi2_sequence``: χ²(train ‖ rollout) =
    E[ρ²] − 1. ``ess_token`` and ``ess_sequence``: effective sample size (Σρ)²/(nΣρ²) as a fraction (0..1).
    ``geometric_mean_min`` and ``_max`` over sequences. With ``rollout_BT`` also ``rollout_perplexity`` and
    ``train_perplexity``. An empty mask gives {"tokens": 0}.
    """
    mask_BT = mask_BT.bool()
    if not bool(mask_BT.any()):
        return {"tokens": 0.0}
    r = log_ratio_BT[mask_BT].double()
    # e^30 ** 2 still fits float64 with room; a single impossible token must not turn the log into inf.
    rho = r.clamp(-30, 30).exp()
    sums_B, counts_B = _sequence_sums(log_ratio_BT, mask_BT, sequence_B)
    first_B = _first_rows(mask_BT, sequence_B)
    total, geometric = sums_B[first_B], (sums_B / counts_B.clamp_min(1))[first_B]
    rho_sequence = total.clamp(-30, 30).exp()
    finite = r.clamp_min(-30)
    result: dict[str, Tensor] = {
        "tokens": mask_BT.sum(),
        "k1": -finite.mean(),
        "k2": finite.square().mean() / 2,
        "k3": (rho - 1 - finite.clamp_max(30)).mean(),
        "max_abs_log_ratio": r.abs().max(),
        "chi2_token": rho.square().mean() - 1,
        "chi2_sequence": rho_sequence.square().mean() - 1,
        "ess_token": rho.sum().square() / (len(rho) * rho.square().sum()),
        "ess_sequence": rho_sequence.sum().square() / (len(rho_sequence) * rho_sequence.square().sum()),
        "geometric_mean_min": geometric.min().exp(),
        "geometric_mean_max": geometric.max().clamp_max(30).exp(),
    }
    if rollout_BT is not None:
        sampled = rollout_BT[mask_BT].double().mean()
        result["rollout_perplexity"] = (-sampled).exp()
        result["train_perplexity"] = (-sampled - finite.mean()).exp()
    return {name: float(value) for name, value in result.items()}


def _sequence_ids(mask_BT: Tensor, sequence_B: Tensor | None) -> Tensor:
    """Compact sequence index of every row, [B]."""
    if sequence_B is None:
        return torch.arange(mask_BT.shape[0], device=mask_BT.device)
    if sequence_B.shape != mask_BT.shape[:1]:
        raise ValueError(f"sequence_B {tuple(sequence_B.shape)} must have one id for each of {mask_BT.shape[0]} rows")
    ids_B: Tensor = torch.unique(sequence_B, return_inverse=True)[1]
    return ids_B


def _sequence_sums(values_BT: Tensor, mask_BT: Tensor, sequence_B: Tensor | None) -> tuple[Tensor, Tensor]:
    """Sum over each row's sequence of values and of mask, float64 [B]; rows of one sequence hold the same numbers."""
    index_B = _sequence_ids(mask_BT, sequence_B)
    values_B = values_BT.masked_fill(~mask_BT, 0.0).sum(dim=1, dtype=torch.float64)
    parts = (values_B, mask_BT.sum(dim=1, dtype=torch.float64))
    size = int(index_B.max()) + 1 if index_B.numel() else 0
    sums, counts = (part.new_zeros(size).index_add_(0, index_B, part)[index_B] for part in parts)
    return sums, counts


def _first_rows(mask_BT: Tensor, sequence_B: Tensor | None) -> Tensor:
    """Index of one row that has tokens for every sequence that has any."""
    index_B = _sequence_ids(mask_BT, sequence_B)
    rows = mask_BT.any(dim=1).nonzero()[:, 0]
    size = int(index_B.max()) + 1 if index_B.numel() else 0
    first = torch.full((size,), -1, device=mask_BT.device, dtype=rows.dtype)
    first[index_B[rows]] = rows
    return first[first >= 0]


def _share(hit_BT: Tensor, mask_BT: Tensor) -> float:
    """Fraction of masked-in tokens that are hit; 0 when there are none."""
    return float((hit_BT & mask_BT).sum() / mask_BT.sum().clamp_min(1))


def _mean(values_BT: Tensor, mask_BT: Tensor) -> float:
    """Mean over masked-in tokens; 0 when there are none."""
    return float(values_BT.masked_fill(~mask_BT, 0.0).sum() / mask_BT.sum().clamp_min(1))


def _sequence_share(hit_BT: Tensor, mask_BT: Tensor, index_B: Tensor) -> float:
    """Fraction of the sequences with tokens in which some token is hit."""
    size = int(index_B.max()) + 1 if index_B.numel() else 0
    present, hit = (torch.zeros(size, device=mask_BT.device) for _ in range(2))
    present.index_add_(0, index_B, mask_BT.any(dim=1).float())
    hit.index_add_(0, index_B, hit_BT.any(dim=1).float())
    return float((hit > 0).sum() / (present > 0).sum().clamp_min(1))
