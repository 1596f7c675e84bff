"""Which memory is still in L2: one state that launches and operators share, so that cached chains cost alike."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from drkernel.sim.spec import GPUSpec

EFFECTIVE_L2_SHARE = 0.6
"""Share of the nominal capacity that one kernel's stream can expect to keep: lines are duplicated between the two
partitions of A100 and H100 and replacement is not exact LRU (Lam 2023: latency on H100 rises well before 50 MB)."""


@dataclass
class _Resident:
    """Bytes of one storage in L2, and how many of them device memory does not have yet."""

    total: float = 0.0
    dirty: float = 0.0


class L2State:
    """Least-recently-used residency by storage, in bytes; writes stay dirty until they are evicted.

    The state starts empty and clean, as after a flush.
    """

    def __init__(self, spec: GPUSpec) -> None:
        self.capacity = spec.l2_bytes * EFFECTIVE_L2_SHARE
        self._held: OrderedDict[int, _Resident] = OrderedDict()
        self._writeback = 0.0
        self._used = 0.0

    def read(self, storage: int, nbytes: float) -> float:
        """Read ``nbytes`` of a storage; returns the bytes that must come from device memory."""
        held = self._held.get(storage)
        resident = min(held.total, nbytes) if held else 0.0
        # A stream longer than the cache evicts its own head before it is read again.
        hits = resident if nbytes <= self.capacity else resident * self.capacity / nbytes
        self._insert(storage, nbytes, dirty=False)
        return nbytes - hits

    def write(self, storage: int, nbytes: float) -> None:
        """Write ``nbytes`` of a storage. What does not fit goes to device memory now, the rest when it is evicted."""
        self._insert(storage, nbytes, dirty=True)

    def _insert(self, storage: int, nbytes: float, dirty: bool) -> None:
        entry = self._held.pop(storage, None) or _Resident()
        kept = min(nbytes, self.capacity)
        before = entry.total
        if dirty:
            self._writeback += nbytes - kept
            entry.dirty = max(entry.dirty, kept)
        entry.total = max(entry.total, kept)
        self._held[storage] = entry
        self._used += entry.total - before
        excess = self._used - self.capacity
        while excess > 0 and len(self._held) > 1:
            victim_id, victim = next(iter(self._held.items()))
            if victim_id == storage:
                break
            out = min(excess, victim.total)
            written = min(victim.dirty, out)  # the oldest lines leave first; dirty ones must be written
            self._writeback += written
            victim.dirty -= written
            victim.total -= out
            self._used -= out
            excess -= out
            if victim.total <= 0:
                del self._held[victim_id]

    def take_writeback(self) -> float:
        """Bytes evicted to device memory since the last call."""
        value, self._writeback = self._writeback, 0.0
        return value

    def forget(self, storage: int) -> None:
        """The memory was freed. Its dirty lines are dropped: a caching allocator hands the block out again at once."""
        held = self._held.pop(storage, None)
        self._used -= held.total if held else 0.0

    def drop(self, is_dead: Callable[[int], bool]) -> None:
        """Forget every storage for which ``is_dead`` holds."""
        for storage in [key for key in self._held if is_dead(key)]:
            self.forget(storage)

    def flush(self) -> None:
        """Empty the cache."""
        self._held.clear()
        self._used = 0.0
        self._writeback = 0.0

    def resident_bytes(self, storage: int) -> float:
        """Bytes of a storage that are in L2."""
        held = self._held.get(storage)
        return held.total if held else 0.0
