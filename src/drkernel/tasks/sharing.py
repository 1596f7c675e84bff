"""Finds tensors that share memory: outputs with themselves (expanded views), with each other, and with inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

import numpy as np
import torch

Share = tuple[int, str, int]
"""(output, 'itself' | 'output' | 'input', the other's place)"""
MOST_CELLS = 1 << 29
"""compared one by one; views spread over more, as a candidate may over all of a card, count as meeting"""


@dataclass(frozen=True)
class TensorMemory:
    """The memory of one tensor."""

    storage: int
    """address of the tensor's storage"""
    address: int
    """address of the tensor's first element"""
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    """in elements"""
    itemsize: int

    @property
    def count(self) -> int:
        """Number of elements, counting those that an expanded view repeats."""
        return prod(self.shape)

    @property
    def end(self) -> int:
        """Address after the last byte."""
        last = sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        return self.address + (last + 1) * self.itemsize if self.count else self.address

    def marked(self, base: int, end: int, unit: int) -> np.ndarray:
        """Which cells of ``unit`` bytes between two addresses it has, however often; of too many, one for all."""
        if (cells := (end - base) // unit) > MOST_CELLS:
            return np.ones(1, np.bool_)
        marks, first = np.zeros(cells, np.bool_), (self.address - base) // unit
        marks[first : first + self.itemsize // unit] = True
        for size, step in zip(self.shape, self.stride, strict=True):
            done = 1
            while done < size:
                more = min(done, size - done)
                if shift := more * step * self.itemsize // unit:
                    marks[shift:] |= marks[:-shift]
                done += more
        return marks


def region_of(tensor: torch.Tensor) -> TensorMemory:
    """Return the memory region of a tensor of this process."""
    where = tensor.untyped_storage().data_ptr(), tensor.data_ptr()
    return TensorMemory(*where, tuple(tensor.shape), tuple(tensor.stride()), tensor.element_size())


def overlaps_itself(region: TensorMemory) -> bool:
    """Return whether two elements of a tensor share memory."""
    reach = 0
    for step, size in sorted((step, size) for step, size in zip(region.stride, region.shape, strict=True) if size > 1):
        if step <= reach:  # only a step beyond all that smaller ones reach keeps elements apart for sure
            distinct = region.marked(region.address, region.end, region.itemsize).sum() if region.count else 0
            return bool(distinct < region.count)
        reach += (size - 1) * step
    return False


def overlap(left: TensorMemory, right: TensorMemory) -> bool:
    """Return whether some element is in both regions."""
    apart = left.storage != right.storage or left.end <= right.address or right.end <= left.address
    if apart or not left.count or not right.count:
        return False
    base, end = min(left.address, right.address), max(left.end, right.end)
    unit = gcd(left.itemsize, right.itemsize, left.address - right.address)
    return bool((left.marked(base, end, unit) & right.marked(base, end, unit)).any())


def shared(outputs: Sequence[TensorMemory | None], inputs: Mapping[int, TensorMemory]) -> frozenset[Share]:
    """Return everything that outputs share; None stands for an output that is not a tensor."""
    found: set[Share] = set()
    known = {place: region for place, region in enumerate(outputs) if region is not None}
    for place, region in known.items():
        if overlaps_itself(region):
            found.add((place, "itself", place))
        found |= {(place, "output", other) for other in known if other < place and overlap(region, known[other])}
        found |= {(place, "input", other) for other, given in inputs.items() if overlap(region, given)}
    return frozenset(found)


def shared_by(outputs: Sequence[Any], inputs: Sequence[Any]) -> frozenset[Share]:
    """Do the same for tensors of this process; anything else is ignored."""
    given = {place: region_of(value) for place, value in enumerate(inputs) if isinstance(value, torch.Tensor)}
    return shared([region_of(out) if isinstance(out, torch.Tensor) else None for out in outputs], given)
