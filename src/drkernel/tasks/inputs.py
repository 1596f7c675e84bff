"""Drawing a task's inputs: as the task draws them, and in variants that shortcuts do not survive.

A kernel that is only right on ``torch.randn`` (layer norm as a copy, a mean taken to be zero, softmax without its
maximum) passes a check that only ever uses ``torch.randn``. So besides the task's own distribution (``declared``) there
are variants, with strengths drawn from the seed so that no candidate can recognise a fixed stress suite:

==========  ========================================================================================
declared    what ``get_inputs()`` returns
affine      each free float input scaled by 0.4 to 4 and shifted by up to two standard deviations
heavy       each element multiplied by a log-normal factor: heavy tails, a few elements dominate
large       scaled by 40 to 120 and shifted: overflows whatever drops a stabilising term
==========  ========================================================================================

Only what may vary varies. Integers, booleans and constants stay; so do inputs named in the source's ``FIXED_INPUTS``;
probabilities stay probabilities, exact zeros (triangles, masks, sparsity) stay zero, and symmetric matrices stay
symmetric. Values in [0, 1] stay there and positive values stay positive, unless the reference is finite on any value
(``widen``): much of KernelBench draws ``torch.rand`` where nothing needs it, and there ReLU would be the identity.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, Literal

import torch

from drkernel.tasks.reference import Reference

Variant = Literal["declared", "affine", "heavy", "large"]
Role = Literal["fixed", "simplex", "unit", "scale_only", "factor_only", "positive", "free"]
VARIANTS: tuple[Variant, ...] = ("declared", "affine", "heavy", "large")


def pick_variant(seed: int, call: int) -> Variant:
    """Which variant a checked call uses: the first is ``declared``, later ones follow from the secret seed."""
    if call == 0:
        return "declared"
    return VARIANTS[1 + (_mix(seed, "variant") + call) % (len(VARIANTS) - 1)]


def draw_inputs(
    reference: Reference, seed: int, variant: Variant = "declared", strength: float = 1.0, widen: bool = False
) -> list[Any]:
    """Arguments of ``forward``, drawn from ``seed``.

    ``strength`` in [0, 1] weakens a variant towards ``declared`` (for references that overflow on it). ``widen`` lets
    inputs that are merely drawn positive, or from [0, 1], take any value; ask for it only where the reference is
    finite on such inputs.
    """
    inputs = reference.draw_inputs(seed)
    if variant == "declared" or strength <= 0:
        return inputs
    names = reference.argument_names()
    generator = torch.Generator().manual_seed(_mix(seed, variant))
    varied = []
    for index, value in enumerate(inputs):
        name = names[index] if index < len(names) else ""
        if isinstance(value, torch.Tensor) and name not in reference.fixed_inputs:
            value = vary(value, variant, strength, generator, widen)
        varied.append(value)
    return varied


def vary(
    tensor: torch.Tensor, variant: Variant, strength: float, generator: torch.Generator, widen: bool = False
) -> torch.Tensor:
    """``tensor`` under a variant, of the same shape, strides, dtype and :func:`role_of` (see ``widen`` above)."""
    role = role_of(tensor)
    if role == "fixed":
        return tensor
    values = tensor.to(torch.float64)
    widened = widen and role in ("unit", "positive")
    if widened:
        role, values = "free", values - values.mean()
    # drawn in a fixed order whatever the role, so that one input's role does not change another's draw
    first, second = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
    if role in ("simplex", "unit"):
        power = math.exp(strength * (2 * first - 1) * (1.2 if variant == "heavy" else 0.9))
        values = values**power
        if role == "simplex":
            values = values / values.sum(-1, keepdim=True)
        return _like(values, tensor)
    if variant == "heavy" and role != "scale_only":
        spread = 0.5 + 0.5 * first
        values = values * torch.exp(strength * spread * torch.randn(values.shape, generator=generator).double())
        return _like(values, tensor)
    low, high = (40.0, 120.0) if variant == "large" else (0.4, 4.0)
    scale = math.exp(strength * (math.log(low) + first * (math.log(high) - math.log(low))))
    shift = 0.0
    if role == "free":
        # widened inputs are shifted by less than their own deviation, so that both signs remain
        shift = strength * (2 * second - 1) * float(values.std()) * (scale if widened else 2.0)
    return _like(values * scale + shift, tensor)


def role_of(tensor: torch.Tensor) -> Role:
    """What may be done to an input without leaving its domain, inferred from its values (module's docstring)."""
    if not tensor.is_floating_point() or tensor.numel() < 2:
        return "fixed"
    values = tensor.detach().to(torch.float64)
    if not bool(torch.isfinite(values).all()) or torch.unique(values.flatten()[:4096]).numel() <= 4:
        return "fixed"
    low, high = float(values.min()), float(values.max())
    tolerance = 4 * torch.finfo(tensor.dtype).eps
    if high <= 0 and float(values.logsumexp(-1).abs().max()) < 16 * tolerance:
        return "fixed"  # log-probabilities
    if low >= 0 and float((values.sum(-1) - 1).abs().max()) < 16 * tolerance:
        return "simplex"
    if low >= 0 and high <= 1:
        return "unit"
    if _is_symmetric(values):
        return "scale_only"
    if float((values == 0).double().mean()) > 0.005:
        return "factor_only"  # a factor per element keeps zeros and signs
    return "positive" if low >= 0 else "free"


def _is_symmetric(values: torch.Tensor) -> bool:
    return (
        values.dim() >= 2
        and values.shape[-1] == values.shape[-2]
        and values.shape[-1] > 1
        and torch.equal(values, values.transpose(-1, -2))
    )


def _like(values: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """``values`` in the dtype and with the strides of ``tensor``."""
    return torch.empty_like(tensor).copy_(values)


def _mix(seed: int, purpose: str) -> int:
    """A 63-bit seed for another purpose, unrelated to the first by any simple rule."""
    digest = hashlib.sha256(f"{seed}:{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
