"""The contents of L2: one state shared by launches and operators, so that cached chains cost the same."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from drkernel.sim.spec import GPUSpec

EFFECTIVE_L2_SHARE = 0.6
"""Share of the nominal capacity that one kernel's stream can expect to keep: lines are duplicated between the two
partitions of A100 and H100 and replacement is not exact LRU (Lam 2023: latency on H100 rises well before 50 MB)."""


class L2State:
    """Least-recently-used residency by storage, in bytes.

    The state starts empty, as after a flush. Writes are cached for later reads but cost device-memory bandwidth at
    once: a benchmark's flush leaves the cache full of dirty lines, so every line written evicts one, and on H100
    kernels of any size take (read + written) / bandwidth plus a constant (Liger-Kernel's published rows). What is read
    pushes the flush's lines out as well, as far as the kernels that write have not: on A100 what only reads takes 13 to
    15 us more from 30 MB on (TritonBench's published rows of ``mean``).
    """

    def __init__(self, spec: GPUSpec) -> None:
        self.capacity = spec.l2_bytes * EFFECTIVE_L2_SHARE
        self._held: OrderedDict[int, float] = OrderedDict()
        self._writeback = 0.0
        self._used = 0.0
        self._dirty = self.capacity
        self._read = self._written = 0.0

    def read(self, storage: int, nbytes: float) -> float:
        """Read ``nbytes`` of a storage; returns the bytes that must come from device memory."""
        resident = min(self._held.get(storage, 0.0), nbytes)
        # A stream longer than the cache evicts its own head before it is read again.
        hits = resident if nbytes <= self.capacity else resident * self.capacity / nbytes
        self._insert(storage, nbytes)
        self._read += nbytes - hits
        return nbytes - hits

    def write(self, storage: int, nbytes: float) -> None:
        """Write ``nbytes`` of a storage; the same amount goes to device memory."""
        self._writeback += nbytes
        self._written += nbytes
        self._insert(storage, nbytes)

    def _insert(self, storage: int, nbytes: float) -> None:
        before = self._held.pop(storage, 0.0)
        kept = max(before, min(nbytes, self.capacity))
        self._held[storage] = kept
        self._used += kept - before
        excess = self._used - self.capacity
        while excess > 0 and len(self._held) > 1:
            victim, total = next(iter(self._held.items()))
            if victim == storage:
                break
            out = min(excess, total)
            self._used -= out
            excess -= out
            if total > out:
                self._held[victim] = total - out
            else:
                del self._held[victim]

    def take_writeback(self) -> float:
        """Bytes written to device memory since the last call, those of the flush among them."""
        out = min(self._dirty, self._read)
        pushed, self._dirty = max(0.0, out - self._written), max(0.0, self._dirty - max(out, self._written))
        value, self._writeback, self._read, self._written = self._writeback + pushed, 0.0, 0.0, 0.0
        return value

    def forget(self, storage: int) -> None:
        """Forget a storage whose memory was freed."""
        self._used -= self._held.pop(storage, 0.0)

    def drop(self, is_dead: Callable[[int], bool]) -> None:
        """Forget every storage for which ``is_dead`` holds."""
        for storage in [key for key in self._held if is_dead(key)]:
            self.forget(storage)

    def flush(self) -> None:
        """Empty the cache."""
        self._held.clear()
        self._used = self._writeback = self._read = self._written = 0.0
        self._dirty = self.capacity
