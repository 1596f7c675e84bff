"""Interference with kernel launches: the device's part of the knock-out experiments.

``skip`` records launches without executing them. ``disturb`` executes them and then changes every element that they
wrote; meanwhile the host's reads (scalars, copies, the clock) return what they returned, in the same order, during the
last call without interference. A candidate can therefore not tell the two calls apart by a flag that its kernel sets,
by a value copied back, or by the time. ``full_products`` keeps the precision of fp32 where a kernel multiplies in TF32.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import torch

from drkernel.sim.gpu.heap import Held
from ttir_executor.launch import LaunchResult

Interference = Literal["none", "skip", "disturb", "full_products"]
"""what is done to kernel launches: nothing, not executing them, changing what they write or how they multiply"""
INTERFERENCES: tuple[Interference, ...] = get_args(Interference)

TF32, IEEE = "inputPrecision = tf32 ", "inputPrecision = ieee "

MAX_RECORDED = 4096
"""host reads of one call that are remembered"""


class HostReads:
    """The host's reads during a call, to be replayed in the next."""

    def __init__(self) -> None:
        self.count = 0
        self._recorded: list[Any] = []

    def begin(self, replay: bool) -> None:
        """Start a call: record it anew, or replay the last recorded one."""
        self.count = 0
        if not replay:
            self._recorded = []

    def pass_on(self, value: Any, replay: bool) -> Any:
        """Record a value that the host reads, or return the value read at this place before if it has the same form."""
        place, self.count = self.count, self.count + 1
        if not replay:
            if place < MAX_RECORDED:
                self._recorded.append(value.clone() if isinstance(value, torch.Tensor) else value)
            return value
        before = self._recorded[place] if place < len(self._recorded) else value
        if isinstance(value, torch.Tensor) or isinstance(before, torch.Tensor):
            same = isinstance(value, torch.Tensor) and isinstance(before, torch.Tensor)
            return before.clone() if same and before.shape == value.shape and before.dtype == value.dtype else value
        return before if type(before) is type(value) else value


def flat_extent(tensor: torch.Tensor) -> torch.Tensor:
    """The memory that a tensor spans, as a vector over the same storage (so that no element appears twice)."""
    if tensor.numel() == 0:
        return tensor.reshape(-1)
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return torch.as_strided(tensor, (last + 1,), (1,), tensor.storage_offset())


def disturbed(run: Callable[[], LaunchResult], held: Sequence[Held], noise: torch.Generator) -> LaunchResult:
    """Execute a launch and change every element that it wrote.

    Bytes that it wrote again as they were, into a buffer that a candidate keeps, show only over other bytes: where it
    reads nothing of an argument, it is executed once more over those.
    """
    kept = [(one.base, flat, flat.clone()) for one in held for flat in [flat_extent(one.tensor)]]
    result = run()
    arguments = Counter(base for base, _, _ in kept)
    alone = {base: size for base, read, size in result.stats.footprint if not read and arguments[base] == 1}
    written = [_changed(flat, old) for _, flat, old in kept]
    again = [
        len(places) * old.itemsize < alone.get(base, 0) for places, (base, _, old) in zip(written, kept, strict=True)
    ]
    if any(again):
        for (_, flat, old), flipped in zip(kept, again, strict=True):
            flat.copy_((~old.view(torch.uint8)).view(old.dtype) if flipped else old)
        before = [flat.clone() for _, flat, _ in kept]
        result = run()
        written = [_changed(flat, put) for (_, flat, _), put in zip(kept, before, strict=True)]
    for (_, flat, old), places, flipped in zip(kept, written, again, strict=True):
        values = _other(flat[places], noise)
        if flipped:
            flat.copy_(old)
        flat[places] = values
    return result


def _changed(flat: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """Places of the elements that are not what they were."""
    differs = flat.view(torch.uint8) != before.view(torch.uint8)
    return differs.reshape(flat.numel(), flat.itemsize).any(-1).nonzero().reshape(-1)


def _other(values: torch.Tensor, noise: torch.Generator) -> torch.Tensor:
    """The values shuffled among themselves and, when floating, scaled each by its own factor; so no plausible use of
    them (a sum, a maximum, a sign) comes out the same."""
    if values.dtype == torch.bool:
        return ~values
    new = values[torch.randperm(values.numel(), generator=noise)]
    if values.is_floating_point() or values.is_complex():
        wide = new.to(torch.complex128 if values.is_complex() else torch.float64)
        factor = 1.2 + 0.6 * torch.rand(values.numel(), generator=noise, dtype=torch.float64)
        return (wide * factor + 0.05).to(values.dtype)
    near = torch.where(values > 0, values - 1, values + 1)  # indices stay in range
    return torch.where(new == values, near, new)
