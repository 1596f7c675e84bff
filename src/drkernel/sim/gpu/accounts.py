"""What a simulated device counts, and the time it models.

Modelling an operator takes longer than running a small one, and most of what host code does (loading, warming up) is
never asked about. So commands are only noted, in order; their times are worked out when somebody looks.

Each entry is worked out by itself. Where the model fails on one, that entry has no price (its row of the profile says
why, and no speedup is given), and all the others keep theirs: no failure makes a call cheaper.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from drkernel.sim.cost.families import synchronises
from drkernel.sim.cost.operators import operator_cost
from drkernel.sim.cost.records import CostEstimate, TensorMeta
from drkernel.sim.cost.timeline import FLUSH_BYTES, L2State, Timeline
from drkernel.sim.executor.compiled import SimFinding
from drkernel.sim.gpu.heap import Held, meta_of
from drkernel.sim.spec import GPUSpec
from drkernel.sim.wire.commands import TensorSpec
from drkernel.verdict import Profile

MAX_PENDING = 8192
"""commands that may wait for their times to be worked out"""
WORD_BYTES = 8
"""what the host reads when it waits for the size of a result"""
_FLUSHED = TensorMeta((FLUSH_BYTES,), (1,), "int8", -1)


def priced(model: Callable[[], CostEstimate]) -> CostEstimate:
    """What ``model`` gives; where it raises or gives no finite time, an estimate that says so and earns no speedup."""
    try:
        cost = model()
    except Exception as error:
        return CostEstimate(0.0).without_price(f"the cost model failed: {type(error).__name__}: {error}"[:200])
    if not math.isfinite(cost.seconds) or cost.seconds < 0:
        return CostEstimate(0.0).without_price(f"the cost model gave {cost.seconds} seconds")
    return cost


@dataclass(frozen=True)
class LaunchRecord:
    """One launch that happened."""

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
    """what it wrote reaches the call's outputs, as far as storages tell; this and the next two are known at the end"""
    copied: bool = False
    """all that it wrote and that is used is, element for element, another of its arguments"""
    copied_library: bool = False
    """it is a copy of what PyTorch or the host had made"""
    bound: str = "latency"
    """what limits its modelled time: memory, compute or latency"""
    roofline: float = 0.0
    """fraction of the roofline reached"""
    unique_bytes: float = 0.0
    """distinct bytes read plus distinct bytes written, in whole sectors"""
    dram_bytes: float = 0.0
    flops: float = 0.0
    registers: int | None = None
    """per thread; this and what follows are known when the device compiles to depth "full" """
    spills: int | None = None
    shared_bytes: int | None = None
    occupancy: int | None = None
    """programs resident on one SM"""


@dataclass
class Counters:
    """What happened since the last reset."""

    launches: list[LaunchRecord] = field(default_factory=list)
    operators: Counter[str] = field(default_factory=Counter)
    copies: Counter[str] = field(default_factory=Counter)
    findings: list[SimFinding] = field(default_factory=list)
    prints: list[str] = field(default_factory=list)
    host_bytes: int = 0
    """bytes that the host has learnt of contents: by copies, flags, sizes that depend on data, errors, times"""


@dataclass(frozen=True, slots=True)
class _Operator:
    """An operator whose time has not been worked out."""

    name: str
    label: str
    inputs: tuple[tuple[TensorSpec, int], ...]
    outputs: tuple[tuple[TensorSpec, int], ...]
    args: Any


@dataclass(frozen=True, slots=True)
class _Copy:
    name: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class _Freed:
    base: int


_HOST_WORK = object()


class Accounts:
    """Counters and modelled time since the last reset."""

    def __init__(self, spec: GPUSpec):
        self.spec = spec
        self.conv_tf32 = False
        self.reset()

    def reset(self) -> None:
        """Start anew; the L2 state is that of a flushed cache."""
        self.counters = Counters()
        self._l2 = L2State(self.spec)
        self._timeline = Timeline(self.spec)
        self._pending: list[Any] = []

    def allow_conv_tf32(self, on: bool) -> None:
        """Whether later convolutions of fp32 are priced in TF32."""
        self._settle()
        self.conv_tf32 = on

    # ---- noting

    def _note(self, entry: Any) -> None:
        self._pending.append(entry)
        if len(self._pending) >= MAX_PENDING:
            self._settle()

    def host_work(self) -> None:
        """An operator that only makes a view, or memory."""
        self._note(_HOST_WORK)

    def operator(self, name: str, label: str, inputs: list[Held], outputs: list[Held], args: Any) -> None:
        """An ATen operator ran; ``args`` are its arguments in the order of its schema (tensors as handles)."""
        self.counters.operators[label] += 1
        ins, outs = tuple((held.spec, held.base) for held in inputs), tuple((held.spec, held.base) for held in outputs)
        self._note(_Operator(name, label, ins, outs, args))

    def copy(self, direction: str, nbytes: int) -> None:
        """A copy between host and device, for which the host waits."""
        self.counters.copies[direction] += 1
        if direction == "device to host":
            self.counters.host_bytes += nbytes
        self._note(_Copy(f"memcpy {direction}", nbytes))

    def told_host(self, nbytes: int) -> None:
        """The host learns something about values other than by a copy."""
        self.counters.host_bytes += nbytes

    def freed(self, base: int) -> None:
        """A storage is gone: what L2 held of it is worth nothing."""
        self._note(_Freed(base))

    # ---- working out

    def _settle(self) -> None:
        pending, self._pending = self._pending, []
        for entry in pending:
            if entry is _HOST_WORK:
                self._timeline.add_host()
            elif isinstance(entry, _Operator):
                self._timeline.add("library", entry.label, priced(partial(self._cost_of, entry)))
                if synchronises(entry.name, [str(spec.dtype)[6:] for spec, _ in entry.inputs]):
                    self._timeline.add_copy("memcpy device to host", WORD_BYTES, synchronizes=True)
            elif isinstance(entry, _Copy):
                self._timeline.add_copy(entry.name, entry.nbytes, synchronizes=True)
            else:
                self._l2.forget(entry.base)

    def _cost_of(self, entry: _Operator) -> CostEstimate:
        ins, outs = ([meta_of(*one) for one in some] for some in (entry.inputs, entry.outputs))
        return operator_cost(entry.name, ins, outs, entry.args, self.spec, self._l2, conv_tf32=self.conv_tf32)

    @property
    def timeline(self) -> Timeline:
        """The clock, with everything noted so far on it."""
        self._settle()
        return self._timeline

    @property
    def l2(self) -> L2State:
        """The cache, as everything noted so far has left it."""
        self._settle()
        return self._l2

    def launched(self, name: str, model: Callable[[], CostEstimate]) -> CostEstimate:
        """A kernel ran; its cost is worked out at once, as host code may ask for it, and returned."""
        timeline, cost = self.timeline, priced(model)
        timeline.add("custom", name, cost)
        return cost

    def synchronize(self) -> None:
        """The host waits for the device."""
        self.timeline.synchronize()

    def flush(self) -> None:
        """Empty L2 by a fill of :data:`FLUSH_BYTES`, as benchmarks do."""
        fill = operator_cost("zero_.default", [_FLUSHED], [_FLUSHED], [], self.spec, self.l2)
        self._timeline.add("library", "L2 flush (benchmark)", fill)
        self._l2.forget(_FLUSHED.storage)

    def profile(self) -> Profile:
        """Modelled time by kernel and operator."""
        return self.timeline.profile(f"sim:{self.spec.name}")
