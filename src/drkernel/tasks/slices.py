"""Finds the axes of an input along which the reference works independently: rows of a layer norm, channels of a batch
norm.

Inputs whose *slices* differ (inputs.py) show a shortcut only where a slice is a whole unit of work: rows of a batch
norm that differ leave the statistics of every channel alike. An axis is independent when no element of an output
follows both from its first position and from the others; that is tried by changing one and then the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from drkernel.tasks.inputs import role_of
from drkernel.tasks.oracle import OracleMaker, RawOutput
from drkernel.tasks.reference import Reference

ENOUGH = 10
"""slices, so that each treatment has its own; no further axis is cut then"""
TRIED_ELEMENTS = 1 << 23
"""Most elements of all inputs for a trial, which holds several copies of them."""


def slice_axes(reference: Reference, maker: OracleMaker) -> dict[int, tuple[int, ...]]:
    """Return, by place, the axes along which slices of a free input are to lie: as many independent ones as give
    :data:`ENOUGH` slices, the first first. Inputs are left out where the first axis alone serves, or none is found."""
    inputs, others = reference.draw_inputs(0), reference.draw_inputs(1)
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if sum(value.numel() for value in tensors) > TRIED_ELEMENTS:
        return {}
    places = [place for place, value in enumerate(inputs) if isinstance(value, torch.Tensor) and _is_mixed(value)]
    found = {}
    try:
        outputs = maker.run(inputs) if places else []
        for place in places:
            axes = _axes(inputs, others, place, outputs, maker)
            if axes and axes != (0,):
                found[place] = axes
    except Exception:  # a reference may refuse mixtures of two of its draws with any exception
        return {}
    return found


def _is_mixed(tensor: torch.Tensor) -> bool:
    """Whether slices of this input may differ, as it is or widened."""
    return tensor.dim() > 1 and role_of(tensor) not in ("fixed", "simplex", "scale_only")


def _axes(
    inputs: list[Any], others: list[Any], place: int, outputs: Sequence[RawOutput], maker: OracleMaker
) -> tuple[int, ...]:
    """Return the independent axes of one input, up to :data:`ENOUGH` slices; never all of its axes."""
    shape = inputs[place].shape
    chosen: list[int] = []
    count = 1
    for axis in range(len(shape)):
        if count >= ENOUGH or len(chosen) == len(shape) - 1:
            break
        if shape[axis] > 1 and _is_independent(inputs, others, place, axis, outputs, maker):
            chosen.append(axis)
            count *= shape[axis]
    return tuple(chosen)


def _is_independent(
    inputs: list[Any],
    others: list[Any],
    place: int,
    axis: int,
    outputs: Sequence[RawOutput],
    maker: OracleMaker,
) -> bool:
    """Whether no output element follows from the axis's first position and from another, and some from the first."""
    value, other = inputs[place], others[place]
    if other.shape != value.shape:
        return False
    length = value.shape[axis]
    first = torch.cat([other.narrow(axis, 0, 1), value.narrow(axis, 1, length - 1)], axis)
    rest = torch.cat([value.narrow(axis, 0, 1), other.narrow(axis, 1, length - 1)], axis)
    moved = [maker.run([*inputs[:place], changed, *inputs[place + 1 :]]) for changed in (first, rest)]
    by_first, by_rest = ([_changed(a, b) for a, b in zip(outputs, run, strict=True)] for run in moved)
    if any(a.shape != b.shape for a, b in zip(by_first, by_rest, strict=True)):
        return False
    apart = not any(bool((a & b).any()) for a, b in zip(by_first, by_rest, strict=True))
    return apart and any(bool(a.any()) for a in by_first)


def _changed(before: RawOutput, after: RawOutput) -> torch.Tensor:
    """Which elements differ; a single True where the forms do."""
    if isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor) and before.shape == after.shape:
        return (before != after) & ~(before.isnan() & after.isnan())
    return torch.tensor(not isinstance(before, torch.Tensor) and before != after)
