"""Inputs that are the same in every draw of a task: masks, ``arange``, tables, ones.

A candidate that ignores such an input, or hard-codes its contents, is right on every draw and wrong as soon as a caller
passes something else. Checked calls of any variant but ``declared`` therefore change these inputs within their kind, if
the reference accepts it; if not, the input is named in the task's notes and in the verdict. Plain numbers and lists of
them have a call of their own, in which nothing else is new.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from drkernel.tasks.reference import Reference

SEEDS = (0, 1, 2)
"""Draws that are compared."""
FEWEST = 16
"""Elements that a mask of two numbers has at least."""
CHANGED = 0.25
"""Share of a mask's elements that are drawn anew."""


@dataclass(frozen=True)
class Constants:
    """A task's constant inputs, by place and name."""

    changed: dict[int, str]
    """Inputs that checked calls change."""
    kept: dict[int, str]
    """Inputs that stay, because no other value of their kind is known or the reference refuses it."""
    numbers: dict[int, str]
    """Plain numbers, and lists of them, that the reference accepts others for."""


@lru_cache(maxsize=256)
def constant_places(reference: Reference) -> dict[int, str]:
    """Return places and names of tensors that are the same in every draw and that the source does not declare fixed."""
    first, *others = (reference.draw_inputs(seed) for seed in SEEDS)
    names = reference.argument_names()
    found: dict[int, str] = {}
    for place, value in enumerate(first):
        name = names[place] if place < len(names) else str(place)
        same = all(len(draw) > place and _same(value, draw[place]) for draw in others)
        if isinstance(value, torch.Tensor) and value.numel() and same and name not in reference.fixed_inputs:
            found[place] = name
    return found


@lru_cache(maxsize=256)
def number_places(reference: Reference) -> dict[int, str]:
    """Return places and names of plain numbers, and lists of them, that are the same in every draw and not declared
    fixed."""
    first, *others = (reference.draw_inputs(seed) for seed in SEEDS)
    names = reference.argument_names()
    found: dict[int, str] = {}
    for place, value in enumerate(first):
        leaves, name = tree_leaves(value), names[place] if place < len(names) else str(place)
        plain = bool(leaves) and all(isinstance(leaf, (bool, int, float)) for leaf in leaves)
        if plain and all(draw[place] == value for draw in others) and name not in reference.fixed_inputs:
            found[place] = name
    return found


def other_numbers(value: Any, generator: torch.Generator) -> Any:
    """Return a number, or a structure of numbers, with each changed: a flag is negated, a power of two halved."""
    return tree_map(lambda number: _other_number(number, generator), value)


def _other_number(number: bool | int | float, generator: torch.Generator) -> bool | int | float:
    if isinstance(number, bool):
        return not number
    if isinstance(number, int):
        halves = number >= 4 and number & (number - 1) == 0
        return number // 2 if halves else number - 1 if number > 1 or number < 0 else number + 1
    spread = 0.25 + 0.5 * float(torch.rand(1, generator=generator, dtype=torch.float64))
    return number * (1 + spread) if number else spread


def _same(left: Any, right: Any) -> bool:
    return (
        isinstance(left, torch.Tensor)
        and isinstance(right, torch.Tensor)
        and left.shape == right.shape
        and left.dtype == right.dtype
        and torch.equal(left.nan_to_num(), right.nan_to_num())
    )


def perturbed(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor | None:
    """Return another tensor of the same kind, shape, strides and dtype; None if no other value of its kind is known.

    ==================  ====================================================================================== booleans
    a quarter of the elements redrawn; every row keeps at least one of its True elements two values          (a mask in
    floats or integers) a quarter of the elements redrawn, both values stay in each row ``arange``          the same
    numbers in another order sorted integers     other sorted integers between the same ends (offsets, lengths) other
    integers      the same numbers in another order floats              each times a log-normal factor near one; zeros
    become small normal numbers ==================
    ======================================================================================
    """
    flat = tensor.detach().reshape(-1).clone()
    kinds = torch.unique(flat[: 1 << 16])
    if tensor.dtype == torch.bool:
        changed = _flipped(flat, generator)
    elif tensor.is_floating_point() and (len(kinds) == 1 or not len(kinds) <= 2):
        changed = _scaled(flat, generator)
    elif len(kinds) == 2:
        if tensor.numel() < FEWEST:  # offsets or sizes rather than a mask
            return None
        changed = _redrawn(flat, generator)
    elif tensor.is_floating_point() or tensor.is_complex() or len(kinds) < 2:
        return None
    else:
        changed = _reordered(flat, generator)
    rows = changed.reshape(tensor.shape)
    if tensor.dim() and (tensor.dtype == torch.bool or len(kinds) == 2):
        rows = _keep_rows_alive(rows, tensor)
    if torch.equal(rows, tensor):
        return None
    return torch.empty_like(tensor).copy_(rows)


def _flipped(flat: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return flat ^ (torch.rand(flat.shape, generator=generator) < CHANGED)


def _redrawn(flat: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    drawn = flat[torch.randperm(flat.numel(), generator=generator)]
    return torch.where(torch.rand(flat.shape, generator=generator) < CHANGED, drawn, flat)


def _keep_rows_alive(rows: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """Restore rows (along the last axis) that lost every True, or one of two values."""
    if rows.dtype == torch.bool:
        dead = before.any(-1, keepdim=True) & ~rows.any(-1, keepdim=True)
    else:
        varied = (before != before[..., :1]).any(-1, keepdim=True)
        dead = varied & ~(rows != rows[..., :1]).any(-1, keepdim=True)
    return torch.where(dead, before, rows)


def _scaled(flat: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    noise = torch.randn(flat.shape, generator=generator, dtype=torch.float64)
    values = torch.where(flat == 0, 0.3 * noise, flat.double() * (0.3 * noise).exp())
    return values.to(flat.dtype)


def _reordered(flat: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    steps = flat[1:].long() - flat[:-1].long()
    if bool((steps >= 0).all()) and not bool((steps == 1).all()):
        low, high = int(flat[0]), int(flat[-1])
        inner = torch.randint(low, high + 1, (flat.numel() - 2,), generator=generator).sort().values
        return torch.cat([flat[:1].long(), inner, flat[-1:].long()]).to(flat.dtype)
    return flat[torch.randperm(flat.numel(), generator=generator)]
