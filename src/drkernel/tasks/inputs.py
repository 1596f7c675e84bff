"""Draws a task's inputs: as the task itself does, and in variants that expose shortcuts.

A kernel that is only right on ``torch.randn`` (layer norm as a copy, a mean taken to be zero, softmax without its
maximum) passes a check that only ever uses ``torch.randn``. So besides the task's own distribution (``declared``) there
are variants, with strengths drawn from the seed so that no candidate can recognise a fixed stress suite:

==========  ========================================================================================
declared    what ``get_inputs()`` returns
affine      each free float input scaled by 0.4 to 4 and shifted by up to two standard deviations
heavy       each element multiplied by a log-normal factor: heavy tails, a few elements dominate
large       deviation of at least 40 to 120, shifted, with a peak and a pit in every slice: overflows kernels that drop
            a stabilising term or take it from some blocks alone
mixed       slices differ: zeros, ties, denormals, so faint that an eps decides, heavy tails, a shift of 4 to 8
            deviations, a factor; dealt out like cards, so that each occurs wherever there are slices enough, and
            what only one of them shows does not depend on luck
huge, tiny  the largest beyond what half precision holds, the largest below its smallest normal number: a factor
==========  ========================================================================================

Variants change only free inputs. Integers, booleans and constants stay (problem.py handles constant inputs); so do
inputs named in the source's ``FIXED_INPUTS``. Probabilities stay probabilities, exact zeros (triangles, masks,
sparsity) stay zero, and symmetric matrices stay symmetric. Values in [0, 1] stay there and positive values stay
positive, unless the reference is finite on any value (``widen``): much of KernelBench draws ``torch.rand`` where
nothing needs it, and there ReLU would be the identity. Widened inputs get a deviation of one first.
"""

import hashlib
import math
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Literal

import torch
from torch.utils._pytree import tree_map_only

from drkernel.tasks.reference import Reference

Variant = Literal["declared", "affine", "heavy", "large", "mixed", "huge", "tiny"]
Role = Literal["fixed", "simplex", "unit", "scale_only", "factor_only", "positive", "free"]
VARIANTS: tuple[Variant, ...] = ("declared", "affine", "heavy", "large", "mixed")
"""those that any candidate may meet; ``huge`` and ``tiny`` are for one that computes in a format of less range"""
HUGE, TINY = 17, -22
"""powers of two that the largest element is beyond: half precision ends at 2^16 and, with full precision, at 2^-14"""
TREATMENTS = ("zeros", "ties", "tiny", "faint", "heavy", "shifted", "scaled")
"""Treatments that slices of a ``mixed`` input may get; positive and structured inputs get only those that keep their
nature."""
ZERO_SHARE = 0.002
SIGNED = 32
"""elements that are not all negative by chance"""
SLICES = 12
"""of a vector; of anything else every position along ``slices`` (see :func:`draw_inputs`) is one"""
TREATED = 0.7
"""Share of slices that are given one, at full strength."""


def pick_variant(seed: int, call: int) -> Variant:
    """Return the variant of a checked call: the first is ``declared``, later ones follow from the secret seed."""
    if call == 0:
        return "declared"
    return VARIANTS[1 + (_mix(seed, "variant") + call) % (len(VARIANTS) - 1)]


def draw_inputs(
    reference: Reference,
    seed: int,
    variant: Variant = "declared",
    strength: float = 1.0,
    widen: Collection[int] = (),
    *,
    slices: Mapping[int, tuple[int, ...]] | None = None,
    without: Collection[str] = (),
) -> list[Any]:
    """Draw the arguments of ``forward`` from ``seed``.

    ``strength`` in [0, 1] weakens a variant towards ``declared`` (for references that overflow on it), and ``without``
    names treatments that ``mixed`` inputs are to lack. ``widen`` holds the places of inputs that are merely drawn
    positive, or from [0, 1], and may take any value; name only those on which the reference is finite. ``slices`` holds
    the axes along which an input's slices lie, by place (the first axis where it says nothing).
    """
    inputs = reference.draw_inputs(seed)
    if variant == "declared" or strength <= 0:
        return inputs
    names = reference.argument_names()
    generator = torch.Generator().manual_seed(_mix(seed, variant))
    varied = []
    for index, value in enumerate(inputs):
        name = names[index] if index < len(names) else ""
        if name not in reference.fixed_inputs:
            axes = (slices or {}).get(index, (0,))
            one = partial(
                vary, variant=variant, strength=strength, generator=generator, widen=index in widen,
                axes=axes, without=without,
            )  # fmt: skip
            value = tree_map_only(torch.Tensor, one, value)
        varied.append(value)
    return varied


def vary(
    tensor: torch.Tensor,
    variant: Variant,
    strength: float,
    generator: torch.Generator,
    widen: bool = False,
    *,
    axes: tuple[int, ...] = (0,),
    without: Collection[str] = (),
) -> torch.Tensor:
    """Apply a variant to ``tensor``, keeping shape, strides, dtype and :func:`role_of` (except for ``widen``, see
    above). Its slices lie along ``axes``. What is negative throughout, as logarithms of decays are, stays so."""
    varied = _varied(tensor, variant, strength, generator, widen, axes, without)
    if role_of(tensor) != "free" or tensor.numel() < SIGNED or not bool((tensor.double() < 0).all()):
        return varied
    return _like(-varied.double().abs(), tensor)


def _varied(
    tensor: torch.Tensor,
    variant: Variant,
    strength: float,
    generator: torch.Generator,
    widen: bool,
    axes: tuple[int, ...],
    without: Collection[str],
) -> torch.Tensor:
    role = role_of(tensor)
    if role == "fixed":
        return tensor
    values = tensor.to(torch.float64)
    widened = widen and role in ("unit", "positive") and not has_zeros(tensor)
    if widened:
        role, values = "free", (values - values.mean()) / values.std().clamp_min(1e-30)
    # drawn in a fixed order whatever the role, so that one input's role does not change another's draw
    first, second = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
    if variant in ("huge", "tiny"):
        reach, most = math.log2(max(float(values.abs().max()), 1e-30)), math.ceil(4 * first)
        by = max(0.0, HUGE + most - reach) if variant == "huge" else min(0.0, TINY - most - reach)
        return tensor if role in ("simplex", "unit") else _like(values * 2.0 ** round(strength * by), tensor)
    if role in ("simplex", "unit"):
        power = math.exp(strength * (2 * first - 1) * (1.2 if variant == "heavy" else 0.9))
        values = values**power
        if role == "simplex":
            values = values / values.sum(-1, keepdim=True)
        return _like(values, tensor)
    if variant == "mixed" and role != "scale_only":
        allowed = {"free": TREATMENTS, "factor_only": ("heavy", "scaled")}.get(role, ("heavy",))
        allowed = tuple(treatment for treatment in allowed if treatment not in without)
        return _like(_mixed(values, allowed, strength, tensor.dtype, generator, axes), tensor)
    if variant == "heavy" and role != "scale_only":
        spread = 0.5 + 0.5 * first
        values = values * torch.exp(strength * spread * torch.randn(values.shape, generator=generator).double())
        return _like(values, tensor)
    low, high = (40.0, 120.0) if variant == "large" else (0.4, 4.0)
    deviation = float(values.std())
    if variant == "large" and role == "free" and 0 < deviation < 1:  # large is large, however small the draw
        low, high = low / deviation, high / deviation
    scale = math.exp(strength * (math.log(low) + first * (math.log(high) - math.log(low))))
    shift: torch.Tensor | float = 0.0
    if role == "free":
        # widened inputs are shifted by less than their own deviation, so that both signs remain
        shift = strength * (2 * second - 1) * deviation * (scale if widened else 2.0)
        if variant == "large":
            shift = shift + strength * PEAK * deviation * scale * _peaks(values.shape, generator)
    return _like(values * scale + shift, tensor)


PEAK = 12.0
"""Deviations by which one element of each slice lies above the others, and one below: exp overflows without it."""


def _peaks(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    """Return 1 and -1 at two random places of every slice along the longest axis, if that is 8 or more, else 0; of one
    that is alone away from both ends."""
    peaks, axis = torch.zeros(shape, dtype=torch.float64), max(range(len(shape)), key=shape.__getitem__)
    across = [1 if other == axis else size for other, size in enumerate(shape)]
    edge = shape[axis] // 4 if math.prod(across) == 1 else 0
    for sign in (-1.0, 1.0) if shape[axis] >= 8 else ():
        peaks.scatter_(axis, torch.randint(edge, shape[axis] - edge, across, generator=generator), sign)
    return peaks


def _mixed(
    values: torch.Tensor,
    allowed: tuple[str, ...],
    strength: float,
    dtype: torch.dtype,
    generator: torch.Generator,
    axes: tuple[int, ...],
) -> torch.Tensor:
    """Give every slice along ``axes`` (every twelfth of a vector) a treatment of its own, or none."""
    if values.dim() > 1:
        order = [*axes, *(axis for axis in range(values.dim()) if axis not in axes)]
        moved = values.permute(order)
        slices = torch.arange(math.prod(moved.shape[: len(axes)]))
        rows = moved.reshape(len(slices), -1).clone()
    else:
        order, moved = [0], values
        slices = torch.arange(len(values)) * min(SLICES, len(values)) // len(values)
        rows = values.reshape(-1, 1).clone()
    deviation = float(values.std())
    which, how = _dealt(int(slices[-1]) + 1, len(allowed), TREATED * strength, generator)
    which, how = which[slices], how[slices]
    for number, treatment in enumerate(allowed):
        places = torch.nonzero(which == number).flatten()
        if len(places):
            rows[places] = _treated(rows[places], treatment, how[places, None], deviation, dtype, generator)
    back = [order.index(axis) for axis in range(values.dim())]
    return rows.reshape(moved.shape).permute(back)


def _dealt(slices: int, treatments: int, share: float, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Deal treatments out to ``share`` of the slices, in a random order; -1 is none.

    Each is dealt as often as any other (or once more), at strengths spread over [0, 1): the k-th of n lies in the k-th
    n-th of it.
    """
    which, how = torch.full((slices,), -1), torch.zeros(slices, dtype=torch.float64)
    if not treatments:
        return which, how
    order, deck = torch.randperm(slices, generator=generator), torch.randperm(treatments, generator=generator)
    draws = torch.rand(slices + 1, generator=generator, dtype=torch.float64)
    count = min(slices, int(share * slices + float(draws[-1])))
    turns = torch.arange(count)
    kinds = turns % treatments
    which[order[:count]] = deck[kinds]
    how[order[:count]] = (turns // treatments + draws[:count]) / torch.bincount(kinds, minlength=treatments)[kinds]
    return which, how


def _treated(
    part: torch.Tensor,
    treatment: str,
    how: torch.Tensor,
    deviation: float,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> torch.Tensor:
    """Treat slices (double, one a row); ``how`` (rows, 1) in [0, 1) sets the strength of each."""
    if treatment == "zeros":
        return torch.zeros_like(part)
    if treatment == "ties":  # at both ends most of all; some are apart by little more than roundings
        middle, step = part.mean(1, keepdim=True), max(0.5 * deviation, 1e-30) * (1 + how)
        apart = torch.randint(-2, 3, part.shape, generator=generator) * 16 * torch.finfo(dtype).eps
        return (torch.floor(part.clamp(middle - step, middle + step) / step) + 0.5) * step * (1 + apart)
    if treatment == "tiny":  # one in two of them denormal
        smallest = math.log2(torch.finfo(dtype).smallest_normal)
        return part * 2.0 ** torch.where(how < 0.5, 2 * how * smallest, smallest - 2 - 6 * (how - 0.5))
    if treatment == "faint":  # variances about the usual eps of normalisations: where it is added shows
        return part / max(deviation, 1e-30) * 10.0 ** (-2 - 2 * how)
    if treatment == "heavy":
        return part * torch.exp((0.5 + how) * torch.randn(part.shape, generator=generator).double())
    if treatment == "shifted":
        return part + (8 * how + torch.where(how >= 0.5, 4.0, -8.0)) * deviation
    return part * 4.0 ** (2 * how)


def role_of(tensor: torch.Tensor) -> Role:
    """Return how an input may vary without leaving its domain, inferred from its values (see the module's
    docstring)."""
    if not tensor.is_floating_point() or tensor.numel() < 2:
        return "fixed"
    values = tensor.detach()
    values = values if values.element_size() > 1 else values.float()
    low, high = map(float, values.aminmax())
    if not (math.isfinite(low) and math.isfinite(high)) or _few_values(values):  # NaN is handed on to both ends
        return "fixed"
    tolerance = 4 * torch.finfo(tensor.dtype).eps
    if high <= 0 and float(values.double().logsumexp(-1).abs().max()) < 16 * tolerance:
        return "fixed"  # log-probabilities
    if low >= 0 and float((values.sum(-1, dtype=torch.float64) - 1).abs().max()) < 16 * tolerance:
        return "simplex"
    if low >= 0 and high <= 1:
        return "unit"
    if _is_symmetric(values):
        return "scale_only"
    if has_zeros(values):
        return "factor_only"  # a factor per element keeps zeros and signs
    return "positive" if low >= 0 else "free"


def has_zeros(values: torch.Tensor) -> bool:
    """Whether more elements are exactly zero than by chance: a triangle, a mask, a sparse matrix."""
    return values.numel() - int(torch.count_nonzero(values)) > ZERO_SHARE * values.numel()


def _few_values(values: torch.Tensor) -> bool:
    """At most four among the first 4096 elements; the first few nearly always settle it."""
    flat = values.flatten()
    return len(set(flat[:32].tolist())) <= 4 and torch.unique(flat[:4096]).numel() <= 4


def _is_symmetric(values: torch.Tensor) -> bool:
    square = values.dim() >= 2 and values.shape[-1] == values.shape[-2] > 1
    return square and torch.equal(values, values.transpose(-1, -2))


def _like(values: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return ``values`` with the dtype and strides of ``tensor``."""
    return torch.empty_like(tensor).copy_(values)


def _mix(seed: int, purpose: str) -> int:
    """Derive a 63-bit seed for another purpose, unrelated to the first by any simple rule."""
    digest = hashlib.sha256(f"{seed}:{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
