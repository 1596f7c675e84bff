"""The journal of a device: a list of entries that can be priced anywhere, with metadata and counts but no times.

The device keeps the journal of a call, and the judge computes the modelled time from it *in its own process*
(:func:`modelled`). A corrupted device process can therefore lie about counts, and about nothing else.

Where the time of a launch goes: its limits, its occupancy, its lines; from its entry in the journal.
"""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from drkernel.sim.cost.lines import source_lines
from drkernel.sim.cost.operators import operator_cost, synchronises
from drkernel.sim.cost.records import CostEstimate, TensorMeta
from drkernel.sim.cost.roofline import L2State, peak_of, residence
from drkernel.sim.cost.timeline import FLUSH_BYTES, Timeline
from drkernel.sim.gpu.pricing import pressure_of, price_launch, profile_of_text
from drkernel.sim.spec import GPUSpec, get_spec
from drkernel.sim.target import KernelResources
from drkernel.sim.wire.commands import GeneratorRef, ProtocolError, Ref, decode, encode
from drkernel.sim.wire.frames import fields_of
from drkernel.verdict import OWN_FILE, LaunchDetail, Profile
from ttir_executor.compiled import LaunchStats, compile_ttir

MAX_ENTRIES = 50_000
"""most entries of one call; a longer journal is not priced"""
MAX_TEXT = 8 << 20
"""characters of an encoded journal; a longer one is not priced"""
WORD_BYTES = 8
"""bytes that the host reads when it waits for the size of a result"""
TOO_LONG = "too long"
_FLUSHED = TensorMeta((FLUSH_BYTES,), (1,), "int8", -1)


@dataclass(frozen=True, slots=True)
class Operator:
    """An ATen operator ran; ``args`` are its arguments in the order of its schema (tensors as handles)."""

    name: str
    label: str
    inputs: tuple[TensorMeta, ...]
    outputs: tuple[TensorMeta, ...]
    args: Any
    conv_tf32: bool = False
    """a convolution of fp32 is priced in TF32"""


@dataclass(frozen=True, slots=True)
class LaunchEntry:
    """A kernel of the host's own ran."""

    name: str
    ttir: str
    num_warps: int
    num_stages: int
    stats: LaunchStats
    resources: KernelResources | None


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy between host and device, for which the host waits."""

    direction: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Freed:
    """A storage was freed."""

    storage: int


@dataclass(frozen=True, slots=True)
class Moment:
    """``host work`` (a view, or memory, was made), ``module`` (one was called), ``synchronize`` or ``flush``."""

    what: str


Entry = Operator | LaunchEntry | Copy | Freed | Moment
HOST_WORK, MODULE, SYNCHRONIZE, FLUSH = map(Moment, ("host work", "module", "synchronize", "flush"))
MODULE_SHARE = 0.6
"""host time of a module's call, from Python, against that of an operator (chosen with the hosts' figures)"""


def priced(model: Callable[[], CostEstimate]) -> CostEstimate:
    """Run ``model``; if it raises or gives no finite time, return an unpriced estimate with the reason."""
    try:
        cost = model()
    except Exception as error:
        return CostEstimate(0.0).without_price(f"the cost model failed: {type(error).__name__}: {error}"[:200])
    if not math.isfinite(cost.seconds) or cost.seconds < 0:
        return CostEstimate(0.0).without_price(f"the cost model gave {cost.seconds} seconds")
    return cost


class JournalPricer:
    """Prices entries in order: the queue of the device and what is in its L2."""

    def __init__(self, spec: GPUSpec):
        self.spec = spec
        self.l2 = L2State(spec)
        self.timeline = Timeline(spec)

    def add(self, entry: Entry) -> CostEstimate | None:
        """Add an entry to the clock; return the cost of a launch."""
        if isinstance(entry, Operator):
            terms = entry.name, entry.inputs, entry.outputs, entry.args, self.spec, self.l2
            cost = priced(partial(operator_cost, *terms, conv_tf32=entry.conv_tf32))
            self.timeline.add("library", entry.label, cost)
            if synchronises(entry.name, entry.inputs):
                self.timeline.add_copy("memcpy device to host", WORD_BYTES)
        elif isinstance(entry, LaunchEntry):
            cost = priced(partial(self._launch, entry))
            self.timeline.add("custom", entry.name, cost)
            return cost
        elif isinstance(entry, Copy):
            self.timeline.add_copy(f"memcpy {entry.direction}", entry.nbytes)
        elif isinstance(entry, Freed):
            self.l2.forget(entry.storage)
        elif entry == HOST_WORK:
            self.timeline.add_host()
        elif entry == MODULE:
            self.timeline.add_host(MODULE_SHARE * self.spec.launch_overhead)
        elif entry == SYNCHRONIZE:
            self.timeline.synchronize()
        else:
            self._flush()
        return None

    def _launch(self, entry: LaunchEntry) -> CostEstimate:
        return price_launch(
            entry.ttir, entry.num_warps, entry.num_stages, entry.stats, entry.resources, self.spec, self.l2
        )

    def _flush(self) -> None:
        """Empty L2 by a fill of :data:`FLUSH_BYTES`, as benchmarks do."""
        fill = operator_cost("zero_.default", [_FLUSHED], [_FLUSHED], [], self.spec, self.l2)
        self.timeline.add("library", "L2 flush (benchmark)", fill)
        self.l2.forget(_FLUSHED.storage)

    def profile(self) -> Profile:
        """Modelled time by kernel and operator."""
        return self.timeline.profile(f"sim:{self.spec.name}")


# ---- across processes


class _Names:
    """Names storages by order of appearance instead of address, so that equal calls have equal journals."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._next = 0

    def __call__(self, address: int) -> int:
        if address < 0:
            return address
        if address not in self._known:
            self._known[address] = self._next = self._next + 1
        return self._known[address]

    def freed(self, address: int) -> int | None:
        """The name of a storage that goes; the address may come back as another's."""
        return self._known.pop(address, None)

    def of(self, addresses: Iterable[int]) -> dict[int, int]:
        """Names of the storages at these addresses, where they have one."""
        return {address: self._known[address] for address in addresses if address in self._known}


def written(entries: Iterable[Entry] | None, addresses: Iterable[int] = ()) -> tuple[str, dict[int, int]]:
    """A journal as text, :data:`TOO_LONG` when it is None or too long to be priced.

    Also the names that it has for the storages that are at these addresses in the end.
    """
    if entries is None:
        return TOO_LONG, {}
    names, kernels = _Names(), dict[str, int]()
    rows = [row for entry in entries if (row := _row(entry, names, kernels)) is not None]
    text = json.dumps({"kernels": list(kernels), "entries": rows}, separators=(",", ":"))
    return (text, names.of(addresses)) if len(text) <= MAX_TEXT else (TOO_LONG, {})


def _row(entry: Entry, names: _Names, kernels: dict[str, int]) -> list[Any] | None:
    if isinstance(entry, Operator):
        ins, outs = (
            [[list(one.shape), list(one.stride), one.dtype, names(one.storage), one.offset] for one in some]
            for some in (entry.inputs, entry.outputs)
        )
        return ["op", entry.name, entry.label, ins, outs, encode(_without_handles(entry.args)), entry.conv_tf32]
    if isinstance(entry, LaunchEntry):
        stats = fields_of(entry.stats)
        stats["footprint"] = [[names(base), *rest] for base, *rest in entry.stats.footprint]
        stats["parts"] = [[names(base), *rest] for base, *rest in entry.stats.parts]
        stats["sites"] = [[number, names(base), *rest] for number, base, *rest in entry.stats.sites]
        resources = None if entry.resources is None else fields_of(entry.resources)
        number = kernels.setdefault(entry.ttir, len(kernels))
        return ["launch", entry.name, number, entry.num_warps, entry.num_stages, stats, resources]
    if isinstance(entry, Copy):
        return ["copy", entry.direction, entry.nbytes]
    if isinstance(entry, Freed):
        name = names.freed(entry.storage)
        return None if name is None else ["freed", name]
    return [entry.what]


def _without_handles(value: Any) -> Any:
    """Return arguments with all tensors replaced by the same marker; the list of inputs says which they were."""
    if isinstance(value, Ref):
        return Ref(0)
    if isinstance(value, GeneratorRef):
        return None
    return [_without_handles(item) for item in value] if isinstance(value, (list, tuple)) else value


@lru_cache(maxsize=4)
def entries_of(text: str) -> tuple[Entry, ...]:
    """Decode a journal encoded by :func:`written`. Raises :class:`ProtocolError` on anything else."""
    try:
        data = json.loads(text)
        kernels = [str(kernel) for kernel in data["kernels"]]
        return tuple(_entry(row, kernels) for row in data["entries"])
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        raise ProtocolError(f"malformed journal: {type(error).__name__}") from error


def _entry(row: list[Any], kernels: list[str]) -> Entry:
    what, *fields = row
    if what == "op":
        name, label, ins, outs, args, tf32 = fields
        metas = tuple(map(_meta, ins)), tuple(map(_meta, outs))
        return Operator(str(name), str(label), *metas, decode(args), bool(tf32))
    if what == "launch":
        name, number, warps, stages, stats, resources = fields
        kept = None if resources is None else KernelResources(**resources)
        return LaunchEntry(str(name), kernels[int(number)], _count(warps), _count(stages), _stats(stats), kept)
    if what == "copy":
        if fields[0] not in ("host to device", "device to host"):
            raise ValueError("no such direction")
        return Copy(fields[0], _count(fields[1]))
    if what == "freed":
        return Freed(_count(fields[0]))
    moment = Moment(str(what))
    if moment not in (HOST_WORK, MODULE, SYNCHRONIZE, FLUSH):
        raise ValueError("no such entry")
    return moment


def _meta(row: list[Any]) -> TensorMeta:
    shape, stride, dtype, storage, offset = row
    return TensorMeta(tuple(map(_count, shape)), tuple(map(_count, stride)), str(dtype), int(storage), _count(offset))


def _stats(fields: dict[str, Any]) -> LaunchStats:
    stats = LaunchStats(**{name: _tuples(value) for name, value in fields.items()})
    numbers = [*stats.flops.values(), stats.programs, stats.load_sectors, stats.store_sectors]
    numbers += [number for row in stats.footprint for number in row[1:]]
    numbers += [number for _, *parts in stats.parts for part in parts for number in part]
    numbers += [number for programs, entered in stats.classes for pair in ((programs,), *entered) for number in pair]
    if any(not programs for programs, _ in stats.classes):
        raise ValueError("a class without programs")
    if not all(isinstance(number, (int, float)) and math.isfinite(number) and number >= 0 for number in numbers):
        raise ValueError("counts must not be negative")
    if not all(isinstance(value, (int, float)) and math.isfinite(value) for row in stats.sites for value in row):
        raise ValueError("what accesses ask for must be numbers")
    return stats


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError("a size or count must not be negative")
    return value


# ---- in the judge


@dataclass(frozen=True)
class Modelled:
    """A call's time as computed by the judge."""

    profile: Profile
    launches: tuple[CostEstimate, ...]
    """cost of each executed launch, in order"""
    complete: bool = True
    """false when there was too much to price"""


@lru_cache(maxsize=32)
def modelled(spec_name: str, text: str) -> Modelled:
    """Return the modelled time of a journal; equal journals are computed once. Raises :class:`ProtocolError`."""
    clock = JournalPricer(get_spec(spec_name))
    if text == TOO_LONG:
        nothing = CostEstimate(0.0, kernels=1).without_price(f"more than {MAX_ENTRIES} commands in a call")
        clock.timeline.add("library", "commands", nothing)
        return Modelled(clock.profile(), (), False)
    entries = entries_of(text)
    costs = [cost for entry in entries if (cost := clock.add(entry)) is not None]
    return Modelled(clock.profile(), tuple(costs))


MAX_DETAILED_TEXT = 200
"""most characters of a line that are kept"""


def detail_of(entry: LaunchEntry, cost: CostEstimate, spec: GPUSpec) -> LaunchDetail:
    """Break down a launch that took ``cost``."""
    threads = entry.num_warps * spec.warp_size
    registers = pressure_of(entry.ttir, threads).registers
    shared = 0
    if entry.resources is not None:
        registers, shared = entry.resources.registers or registers, entry.resources.shared_bytes or 0
    room = residence(spec, entry.num_warps, shared, registers)
    limited_by = min(room, key=lambda name: room[name])
    resident = max(1, room[limited_by])
    there = -(-entry.stats.programs // spec.sm_count)
    if there < resident:
        resident, limited_by = there, "the grid"
    lines = source_lines(
        compile_ttir(entry.ttir).function, profile_of_text(entry.ttir).blocks, entry.stats, cost.parts, cost.seconds,
        threads=threads, spec=spec, price=lambda stats: _price(entry, stats, spec),
    )  # fmt: skip
    flops = {unit: count for unit, count in cost.flops.items() if unit not in ("int", "sfu")}
    return LaunchDetail(
        kernel=entry.name, programs=entry.stats.programs, num_warps=entry.num_warps, num_stages=entry.num_stages,
        seconds=cost.seconds, limits=cost.parts, resident=resident,
        occupancy=min(1.0, resident * threads / spec.max_threads_per_sm), limited_by=limited_by, registers=registers,
        shared_bytes=shared, dram_bytes=cost.dram_bytes, operations=cost.total_flops,
        unit=max(flops, key=lambda unit: flops[unit] / peak_of(unit, spec), default="fp32"), lines=lines,
    )  # fmt: skip


def _price(entry: LaunchEntry, stats: LaunchStats, spec: GPUSpec) -> float:
    cost = price_launch(entry.ttir, entry.num_warps, entry.num_stages, stats, entry.resources, spec, L2State(spec))
    return cost.seconds


@lru_cache(maxsize=8)
def details(spec_name: str, text: str) -> dict[str, LaunchDetail]:
    """The slowest launch of each kernel in a journal, by name. Raises :class:`ProtocolError` for what is no journal."""
    if text == TOO_LONG:
        return {}
    spec = get_spec(spec_name)
    clock, slowest = JournalPricer(spec), dict[str, tuple[LaunchEntry, CostEstimate]]()
    for entry in entries_of(text):
        cost = clock.add(entry)
        if isinstance(entry, LaunchEntry) and cost is not None and not cost.unpriced:
            known = slowest.get(entry.name)
            slowest[entry.name] = known if known is not None and known[1].seconds >= cost.seconds else (entry, cost)
    return {name: detail_of(entry, cost, spec) for name, (entry, cost) in slowest.items()}


def detailed(profile: Profile, spec_name: str, text: str, source: str) -> Profile:
    """``profile`` of a journal with the details of own kernels, whose lines are those of a module :data:`OWN_FILE` with
    the text ``source``, or of installed packages."""
    found, lines = details(spec_name, text), source.splitlines()
    rows = tuple(
        row.model_copy(update={"detail": _quoted(found[row.name], lines)})
        if row.owner == "custom" and row.name in found
        else row
        for row in profile.rows
    )
    return profile.model_copy(update={"rows": rows})


def _quoted(detail: LaunchDetail, source: list[str]) -> LaunchDetail:
    lines = []
    for line in detail.lines:
        if line.file.rpartition("/")[2] == OWN_FILE:
            text = source[line.line - 1].strip()[:MAX_DETAILED_TEXT] if 0 < line.line <= len(source) else ""
            line = line.model_copy(update={"file": OWN_FILE, "text": text})
        lines.append(line)
    return detail.model_copy(update={"lines": tuple(lines)})
