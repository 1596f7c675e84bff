"""The limit on this machine's memory for a simulated device, and estimates of what an operator will take."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import torch

from drkernel.sim.gpu.operator_rules import OperatorRule
from drkernel.sim.gpu.shapes import on_meta, prepare_shapes

SHARE = 0.25
"""of the machine's memory that a device takes by default at most"""
SCRIPT_SHARE = 0.5
"""the same for a script that a person runs: nothing else runs beside it, as judges do"""
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_LARGEST_ELEMENT = 16


class OverBudget(torch.OutOfMemoryError):
    """Simulating this exceeds the device's share of this machine's memory: our limit, not the GPU's."""


@cache
def machine_bytes() -> int:
    """Return the total memory, in bytes, of this machine or of the container that this process is in."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _LIMITS:
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return total


def default_budget(share: float = SHARE) -> int:
    """Return this share of the machine's memory, in bytes."""
    return int(machine_bytes() * share)


def over_budget(wanted: int, used: int, budget: int) -> OverBudget:
    """Return the error for ``wanted`` more bytes; it says what to do."""
    return OverBudget(
        f"CUDA out of memory. Simulating this takes {size_in_words(wanted)} more of this machine's memory, and "
        f"{size_in_words(used)} of the budget of {size_in_words(budget)} are in use. Run it without data "
        "(drkernel sim --no-data, sim.device(data_free=DataFree())), on smaller tensors, or raise the budget "
        "(--memory-budget, sim.device(budget_bytes=...))."
    )


def size_in_words(nbytes: int) -> str:
    """Bytes in a unit that people read."""
    return f"{nbytes / (1 << 30):.2f} GiB" if nbytes >= 1 << 30 else f"{nbytes / (1 << 20):.1f} MiB"


# ---- what is about to be taken


def foresee(rule: OperatorRule, args: list[Any], kwargs: dict[str, Any], headroom: int) -> int:
    """Estimate the bytes of the storages that an operator would create, if they may exceed ``headroom``; else 0.

    Shapes are computed on meta tensors, and only when the sizes of operands and the numbers among the arguments do not
    rule an excess out. Temporary memory of the operator is not counted.
    """
    if _at_most(rule, [*args, *kwargs.values()]) * _LARGEST_ELEMENT <= headroom:
        return 0
    prepare_shapes()
    known: dict[int, torch.Tensor] = {}
    metas, named = _forms(args, known), {key: _forms(value, known) for key, value in kwargs.items()}
    named.pop("generator", None)
    if rule.takes_device:
        named["device"] = torch.device("meta")
    try:
        result = on_meta(rule.call, metas, named)
    except (NotImplementedError, RuntimeError, TypeError, ValueError):
        return 0  # the operator itself will tell
    given = {form.untyped_storage()._cdata for form in known.values()}
    made = {out.untyped_storage()._cdata: out.untyped_storage().nbytes() for out in _tensors(result)}
    return sum(nbytes for storage, nbytes in made.items() if storage not in given)


def _at_most(rule: OperatorRule, values: list[Any]) -> int:
    """Return an upper bound on the number of elements of any result, from the sizes of the operands."""
    tensors = _tensors(values)
    shapes = {tensor.shape for tensor in tensors if tensor.dim()}
    # an operator that the device fuses itself is a plain function, which says nothing of its kind
    if torch.Tag.pointwise in getattr(rule.call, "tags", ()) and len(shapes) <= 1:
        return max((tensor.numel() for tensor in tensors), default=1)
    product = 1
    for tensor in tensors:
        product *= max(1, tensor.numel())
    for number in _numbers(values):
        product *= max(1, abs(number))
    return product


def _numbers(value: Any) -> list[int]:
    if isinstance(value, bool):
        return []
    if isinstance(value, int):
        return [value]
    return [number for item in value for number in _numbers(item)] if isinstance(value, (list, tuple)) else []


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for item in value for tensor in _tensors(item)] if isinstance(value, (list, tuple)) else []


def _forms(value: Any, known: dict[int, torch.Tensor]) -> Any:
    """The same with meta tensors; tensors over one storage need not share it here."""
    if isinstance(value, torch.Tensor):
        if id(value) not in known:
            form = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
            known[id(value)] = form
        return known[id(value)]
    return [_forms(item, known) for item in value] if isinstance(value, (list, tuple)) else value
