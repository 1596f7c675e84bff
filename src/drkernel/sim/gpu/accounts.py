"""The counters of a simulated device, and its modelled time.

Modelling an operator takes longer than running a small one, and the time of most host code (loading, warming up) is
never asked for. Commands are therefore only recorded, in order; their times are computed on request.

Each entry is priced independently. If the model fails on one, that entry has no price (its row of the profile says why,
and no speedup is given), and all others keep theirs: no failure makes a call cheaper.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from drkernel.sim.cost.records import CostEstimate
from drkernel.sim.cost.roofline import L2State
from drkernel.sim.cost.timeline import Timeline
from drkernel.sim.gpu.datafree import DataDependence
from drkernel.sim.gpu.device_journal import (
    FLUSH,
    HOST_WORK,
    MAX_ENTRIES,
    MODULE,
    SYNCHRONIZE,
    Copy,
    Entry,
    Freed,
    JournalPricer,
    LaunchEntry,
    Operator,
    written,
)
from drkernel.sim.gpu.heap import Held
from drkernel.sim.gpu.operator_rules import TELLS_A_FLAG, OperatorRule
from drkernel.sim.spec import GPUSpec
from drkernel.sim.wire.commands import LaunchCommand
from drkernel.verdict import Profile
from ttir_executor.compiled import SimFinding

MAX_DEPENDENCES = 256
"""most places of one run at which data is missed that are remembered"""
MAX_PENDING = 8192
"""most commands whose times have not been computed yet"""


@dataclass(frozen=True)
class LaunchRecord:
    """One executed launch; what its price says is there once times were asked for (:attr:`Accounts.launches`)."""

    name: str
    identity: str
    grid: tuple[int, int, int]
    num_warps: int
    num_stages: int
    constexprs: dict[str, str]
    seconds: float
    suppressed: bool
    written: tuple[int, ...] = ()
    """addresses of the storages that the kernel wrote"""
    reaches: bool = True
    """whether its stores reach the call's outputs, as far as storages show; this and the next two are known at the
    end"""
    copied: bool = False
    """whether everything it wrote that is used equals, element for element, another of its arguments"""
    copied_library: bool = False
    """whether it copies something that PyTorch or the host had made"""
    bound: str = "latency"
    """what limits its modelled time: memory, compute or latency"""
    roofline: float = 0.0
    """fraction of the roofline reached"""
    unique_bytes: float = 0.0
    """distinct bytes read plus distinct bytes written, in whole sectors"""
    dram_bytes: float = 0.0
    flops: float = 0.0
    registers: int | None = None
    """per thread; this and the following fields are known when the device compiles to depth "full" """
    spills: int | None = None
    shared_bytes: int | None = None
    occupancy: int | None = None
    """programs resident on one SM"""
    looked_at: int | None = None
    """of a launch that was counted without executing it: the programs whose reads were examined"""
    error: float = 0.0
    """estimated relative error of its modelled time by sampling programs; 0 where all were counted"""
    rough: bool = False
    """a tuner's trial that was counted only as well as its choice needs"""

    @property
    def programs(self) -> int:
        """Programs of its grid."""
        return math.prod(self.grid)


LaunchKey = tuple[str, tuple[int, int, int], int, int, tuple[tuple[str, str], ...]]


ILLEGAL = {
    "out_of_bounds": "an illegal memory access was encountered",
    "use_after_free": "an illegal memory access was encountered",
    "misaligned": "misaligned address",
}
"""finding -> what a GPU calls it"""


def launch_key(launch: LaunchRecord | LaunchCommand) -> LaunchKey:
    """Equal for launches of one kernel with the same grid, warps, stages and constexprs."""
    constexprs = tuple(sorted(launch.constexprs.items()))
    return launch.identity, launch.grid, launch.num_warps, launch.num_stages, constexprs


@dataclass
class Counters:
    """The counts since the last reset."""

    launches: list[LaunchRecord] = field(default_factory=list)
    operators: Counter[str] = field(default_factory=Counter)
    executed: Counter[str] = field(default_factory=Counter)
    """kernels and operators, by name, that were carried out here; what is only timed is counted and priced without"""
    copies: Counter[str] = field(default_factory=Counter)
    findings: list[SimFinding] = field(default_factory=list)
    prints: list[str] = field(default_factory=list)
    host_bytes: int = 0
    """bytes that the host has learnt of contents: by copies, flags, sizes that depend on data, errors, times"""
    dependences: list[DataDependence] = field(default_factory=list)
    """where data was missed on a device without; no repeats, the first :data:`MAX_DEPENDENCES`"""

    def missed(self, dependence: DataDependence) -> None:
        """Note a dependence on data."""
        if dependence not in self.dependences and len(self.dependences) < MAX_DEPENDENCES:
            self.dependences.append(dependence)


class Accounts:
    """Counters and modelled time since the last reset. The journal is kept only where it may be requested."""

    def __init__(self, spec: GPUSpec):
        self.spec = spec
        self.keep_journal = False
        self._conv_tf32: bool | None = False
        self.reset()

    def reset(self) -> None:
        """Start anew; the L2 state is that of a flushed cache."""
        self.counters = Counters()
        self._clock = JournalPricer(self.spec)
        self._pending: list[tuple[Entry, int | None]] = []
        """what has no time yet, launches with their places"""
        self._journal: list[Entry] | None = []
        self.slowest: dict[LaunchKey, tuple[LaunchEntry, CostEstimate]] = {}
        """for each key, the slowest of its launches that were priced here"""
        self.after_flush: Counter[LaunchKey] = Counter()
        """for each key, the number of launches right after L2 was emptied, as tuning and benchmarks do"""
        self._flushed = False

    @property
    def conv_tf32(self) -> bool:
        """Whether fp32 convolutions multiply, and are priced, in TF32; None set: as PyTorch's switches say."""
        cudnn: Any = torch.backends.cudnn  # a switch an operator since PyTorch 2.9
        switch = cudnn.conv.fp32_precision == "tf32" if hasattr(cudnn, "conv") else cudnn.allow_tf32
        return bool(cudnn.enabled and switch if self._conv_tf32 is None else self._conv_tf32)

    @conv_tf32.setter
    def conv_tf32(self, on: bool | None) -> None:
        self._conv_tf32 = on

    # ---- noting

    def _note(self, entry: Entry, place: int | None = None) -> None:
        self._pending.append((entry, place))
        if len(self._pending) >= MAX_PENDING:
            self._settle()
        if self.keep_journal and self._journal is not None:
            self._journal.append(entry)
            if len(self._journal) > MAX_ENTRIES:
                self._journal = None

    def host_work(self) -> None:
        """Record an operator that only makes a view, or memory."""
        self._note(HOST_WORK)

    def module(self) -> None:
        """Record that the host called a module."""
        self._note(MODULE)

    def operator(self, name: str, label: str, inputs: list[Held], outputs: list[Held], args: Any) -> None:
        """Record an ATen operator; ``args`` are its arguments in the order of its schema (tensors as handles)."""
        self.counters.operators[label] += 1
        ins, outs = (tuple(held.meta() for held in some) for some in (inputs, outputs))
        self._note(Operator(name, label, ins, outs, args, self.conv_tf32))

    def copy(self, direction: str, nbytes: int) -> None:
        """Record a copy between host and device, for which the host waits."""
        self.counters.copies[direction] += 1
        if direction == "device to host":
            self.counters.host_bytes += nbytes
        self._note(Copy(direction, nbytes))

    def told_host(self, nbytes: int) -> None:
        """Record that the host learns something about values other than by a copy."""
        self.counters.host_bytes += nbytes

    def freed(self, base: int) -> None:
        """Record that a storage is freed: its contents in L2 no longer count."""
        self._note(Freed(base))

    def launched(self, launch: LaunchEntry, record: LaunchRecord) -> None:
        """Record a launch."""
        if self._flushed:
            self.after_flush[launch_key(record)] += 1
            self._flushed = False
        self.counters.launches.append(record)
        self._note(launch, len(self.counters.launches) - 1)

    def synchronize(self) -> None:
        """The host waits for the device."""
        self._note(SYNCHRONIZE)

    def flush(self) -> None:
        """Empty L2, as benchmarks do."""
        self._note(FLUSH)
        self._flushed = True

    # ---- working out

    def _settle(self) -> None:
        pending, self._pending = self._pending, []
        for entry, place in pending:
            cost = self._clock.add(entry)
            if isinstance(entry, LaunchEntry) and place is not None and cost is not None:
                self._enter(entry, place, cost)

    def _enter(self, launch: LaunchEntry, place: int, cost: CostEstimate) -> None:
        """Enter what a launch costs into its record."""
        record = replace(self.counters.launches[place], seconds=cost.seconds, **cost.facts)
        self.counters.launches[place] = record
        key = launch_key(record)
        if key not in self.slowest or self.slowest[key][1].seconds < cost.seconds:
            self.slowest[key] = launch, cost

    @property
    def launches(self) -> list[LaunchRecord]:
        """Return the launches since the last reset, with their prices."""
        self._settle()
        return self.counters.launches

    @property
    def timeline(self) -> Timeline:
        """Return the clock after everything recorded so far."""
        self._settle()
        return self._clock.timeline

    @property
    def l2(self) -> L2State:
        """Return the cache state after everything recorded so far."""
        self._settle()
        return self._clock.l2

    @property
    def entries(self) -> list[Entry] | None:
        """Return everything since the last reset; None when there is too much of it."""
        return self._journal

    def journal(self) -> str:
        """Return everything since the last reset, to be priced elsewhere."""
        return self.named_journal(())[0]

    def named_journal(self, addresses: Iterable[int]) -> tuple[str, dict[int, int]]:
        """Return the same, with its names of the storages that are at these addresses now."""
        return written(self._journal, addresses)

    @property
    def sampling_error(self) -> float:
        """Estimated relative error of all modelled device time, without rough trials, by sampling programs."""
        launches = self.launches
        total = self.timeline.device_seconds - sum(one.seconds for one in launches if one.rough)
        wrong = sum(one.error * one.seconds for one in launches if not one.rough)
        return wrong / total if total else 0.0

    def profile(self) -> Profile:
        """Modelled time by kernel and operator."""
        self._settle()
        return self._clock.profile()


def bytes_told(rule: OperatorRule, inputs: list[Held], outputs: list[Held]) -> int:
    """Return the bytes that an operator's result reveals to the host: a flag, or a size that depends on values."""
    if rule.base in TELLS_A_FLAG:
        return 1
    if not rule.sized_by_data:
        return 0
    if "index" in rule.base and all(held.spec.dtype not in (torch.bool, torch.uint8) for held in inputs[1:]):
        return 0
    return 8 * len(outputs)
