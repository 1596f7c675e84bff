"""The allocations of a simulated device, with the shadow state that the sanitizer keeps."""

import bisect
from collections import deque
from dataclasses import dataclass, field

import numpy as np

MOST_FREED = 4096
"""regions that are remembered when they are gone"""


@dataclass
class Allocation:
    """One live region. ``initialized`` is None when every byte is known to be written."""

    base: int
    nbytes: int
    label: str = ""
    initialized: np.ndarray | None = field(default=None, repr=False)
    """one byte per byte: 1 where something was written"""
    contents: int = 0
    """address of what skeletons read: ``base``, elsewhere on a device without data, or 0 if there is nothing"""

    @property
    def end(self) -> int:
        """The first address after the region."""
        return self.base + self.nbytes

    @property
    def sectors(self) -> int:
        """32-byte sectors that the region touches."""
        return (self.nbytes + 31) // 32


class MemoryMap:
    """Allocations by address; disjoint, found by binary search."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._allocations: list[Allocation] = []
        self._freed: deque[tuple[int, int]] = deque(maxlen=MOST_FREED)

    def add(self, base: int, nbytes: int, *, label: str = "", initialized: bool = False, contents: int = 0) -> None:
        """Add a region; ``contents``: where its bytes are for skeletons.

        Raises:
            ValueError: it is empty or overlaps a live one.
        """
        if nbytes <= 0:
            raise ValueError("an allocation needs at least one byte")
        position = bisect.bisect_right(self._bases, base)
        if position and self._allocations[position - 1].end > base:
            raise ValueError(
                f"allocation at {base:#x} overlaps {self._allocations[position - 1].label or 'a live one'}"
            )
        if position < len(self._bases) and self._bases[position] < base + nbytes:
            raise ValueError(f"allocation at {base:#x} overlaps a live one")
        shadow = None if initialized else np.zeros(nbytes, np.uint8)
        self._bases.insert(position, base)
        self._allocations.insert(position, Allocation(base, nbytes, label, shadow, contents))

    def remove(self, base: int) -> None:
        """Forget the region that begins at ``base``.

        Raises:
            KeyError: there is none.
        """
        position = bisect.bisect_left(self._bases, base)
        if position == len(self._bases) or self._bases[position] != base:
            raise KeyError(f"no allocation begins at {base:#x}")
        gone = self._allocations[position]
        self._freed.append((gone.base, gone.end))
        del self._bases[position], self._allocations[position]

    def was_freed(self, address: int) -> bool:
        """Whether an address lay in a region that is gone (of the last few thousand), and lies in none now."""
        return self.find(address) is None and any(base <= address < end for base, end in self._freed)

    def find(self, address: int) -> Allocation | None:
        """The region that contains ``address``."""
        position = bisect.bisect_right(self._bases, address) - 1
        if position < 0 or address >= self._allocations[position].end:
            return None
        return self._allocations[position]

    def mark_initialized(self, base: int, nbytes: int) -> None:
        """Note that [base, base + nbytes) has been written."""
        allocation = self.find(base)
        if allocation is None or allocation.initialized is None:
            return
        start = base - allocation.base
        if start <= 0 and nbytes >= allocation.nbytes:
            allocation.initialized = None
        else:
            allocation.initialized[start : start + nbytes] = 1

    def all(self) -> list[Allocation]:
        """Every live region, by address."""
        return list(self._allocations)
