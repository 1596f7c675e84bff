"""One device queue: launches, operators and copies in order, host time against device time, and the L2 cache."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from drkernel.sim.cost.estimate import CostEstimate
from drkernel.sim.spec import GPUSpec
from drkernel.verdict import Bound, Owner, Profile, ProfileRow

L2_USABLE = 0.7
"""share of L2 that holds data of one stream of kernels between launches"""


class L2State:
    """Which storages the last kernels left in L2: least recently used goes first."""

    def __init__(self, spec: GPUSpec):
        self.capacity = spec.l2_bytes * L2_USABLE
        self._resident: OrderedDict[int, float] = OrderedDict()
        self._used = 0.0

    def touch(self, storage: int, read: float, written: float = 0.0) -> float:
        """Read and write bytes of a storage; returns the bytes that must come from or go to device memory.

        Writes stay in L2 when they fit: they are charged when the storage is larger than the cache.
        """
        resident = self._resident.get(storage, 0.0)
        traffic = max(0.0, read - resident)
        traffic += written if written > self.capacity else 0.0
        keep = max(read, written, resident)
        if keep <= self.capacity:
            self._insert(storage, keep)
        else:
            self.forget(storage)
        return traffic

    def forget(self, storage: int) -> None:
        """Drop a storage (freed, or too large to stay)."""
        self._used -= self._resident.pop(storage, 0.0)

    def _insert(self, storage: int, size: float) -> None:
        self.forget(storage)
        self._resident[storage] = size
        self._used += size
        while self._used > self.capacity:
            _, gone = self._resident.popitem(last=False)
            self._used -= gone


@dataclass
class _Row:
    name: str
    owner: Owner
    calls: int = 0
    seconds: float = 0.0
    bytes: float = 0.0
    flops: float = 0.0
    ideal: float = 0.0
    bound: Bound | None = None
    slowest: float = 0.0


class Timeline:
    """Adds up modelled time. The host runs ahead of the device until a synchronisation."""

    def __init__(self, spec: GPUSpec):
        self.spec = spec
        self.host = 0.0
        self.device_free = 0.0
        self._rows: dict[tuple[Owner, str], _Row] = {}

    @property
    def elapsed_seconds(self) -> float:
        """From the first command to the end of the last: host or device, whichever is later."""
        return max(self.host, self.device_free)

    @property
    def device_seconds(self) -> float:
        """Busy seconds of the device."""
        return sum(row.seconds for row in self._rows.values())

    def add_host(self) -> None:
        """An operator without device work."""
        self.host += self.spec.host_op_overhead

    def add(self, owner: Owner, name: str, cost: CostEstimate, kernels: int = 1) -> None:
        """One kernel launch (or an operator of several)."""
        overhead = self.spec.kernel_launch_overhead if owner == "custom" else self.spec.launch_overhead
        self.host += overhead * kernels
        self.device_free = max(self.device_free, self.host) + cost.seconds
        self._count(owner, name, cost.seconds, cost.dram_bytes, cost.total_flops, cost.roofline, cost.bound)

    def add_copy(self, name: str, nbytes: float, synchronizes: bool) -> None:
        """A copy over the bus; the host waits for it when it synchronizes."""
        seconds = self.spec.copy_latency + nbytes / self.spec.pcie_bandwidth
        self.device_free = max(self.device_free, self.host) + seconds
        if synchronizes:
            self.host = self.device_free
        self._count("copy", name, seconds, nbytes, 0.0, 0.0, "memory")

    def _count(
        self, owner: Owner, name: str, seconds: float, nbytes: float, flops: float, roofline: float, bound: Bound
    ) -> None:
        row = self._rows.setdefault((owner, name), _Row(name, owner))
        row.calls += 1
        row.seconds += seconds
        row.bytes += nbytes
        row.flops += flops
        row.ideal += roofline * seconds
        if seconds > row.slowest:
            row.slowest, row.bound = seconds, bound

    def profile(self, device: str) -> Profile:
        """One row per kernel or operator, the costliest first."""
        total = sum(row.seconds for row in self._rows.values())
        rows = tuple(
            ProfileRow(
                name=row.name,
                owner=row.owner,
                calls=row.calls,
                seconds=row.seconds,
                share=row.seconds / total if total else 0.0,
                bound=row.bound,
                roofline=row.ideal / row.seconds if row.seconds else None,
                bytes=row.bytes,
                flops=row.flops,
            )
            for row in sorted(self._rows.values(), key=lambda row: -row.seconds)
        )
        return Profile(
            kind="modelled", device=device, rows=rows, total_seconds=total, elapsed_seconds=self.elapsed_seconds
        )
