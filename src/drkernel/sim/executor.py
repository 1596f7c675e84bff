"""Runs TTIR kernels on the CPU as native code, checked and counted.

``compile_ttir`` reads the text, lowers it (``lower/``) and compiles it; ``CompiledKernel.run`` executes a grid over the
allocations of a :class:`~drkernel.sim.memory.MemoryMap`. No access leaves those allocations, whatever the kernel does.
"""

from __future__ import annotations

import hashlib
import struct
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from drkernel.sim.lower.jit import Native, build
from drkernel.sim.lower.kernel import Lowered, Lowering
from drkernel.sim.lower.runtime import ATOMIC_BUCKETS, FINDING_WORDS, PRINT_WORDS, Ctx, Entry, Kind, Status
from drkernel.sim.memory import Allocation, MemoryMap
from drkernel.sim.ttir.ir import Function, TTIRError, Type, UnsupportedOp, elem_bytes
from drkernel.sim.ttir.parser import parse_ttir

DEFAULT_STEP_LIMIT = 1 << 30
"""work that one program may do in loops before it counts as endless, in strips of 16 elements"""
DEFAULT_TIME_LIMIT = 600.0
"""seconds that one launch may take"""

_MAX_PRINTS = 4096


class StepLimit(RuntimeError):
    """A launch looped longer than its budget: endless, or a lock that is never released."""


@dataclass(frozen=True)
class Checks:
    """Which sanitizers run; bounds and alignment always do."""

    uninitialized: bool = False
    race: bool = False
    max_findings: int = 20


@dataclass(frozen=True)
class SimFinding:
    """Something a kernel did that is an error on a GPU, or luck."""

    kind: str
    """``out_of_bounds``, ``misaligned``, ``uninitialized``, ``race``, ``assert``"""
    message: str
    kernel: str
    file: str | None
    line: int | None
    program: tuple[int, int, int] | None
    arg: str | None
    offset_bytes: int | None
    count: int
    severity: Literal["error", "warning"]


@dataclass(frozen=True)
class LaunchStats:
    """Exact counts over a whole launch."""

    programs: int
    load_sectors: float
    """32-byte sectors that warps asked for, reads"""
    store_sectors: float
    flops: dict[str, float]
    """operations by unit: fp32, fp64, fp16, bf16, int, sfu, tensor_*, fp32_dot"""
    atomics: int
    max_same_address_atomics: int
    footprint: tuple[tuple[int, float, float], ...]
    """(allocation base, unique bytes read, unique bytes written), in whole sectors"""


@dataclass(frozen=True)
class LaunchResult:
    """What one launch did."""

    findings: tuple[SimFinding, ...]
    stats: LaunchStats
    seconds: float
    """host wall time of running"""
    prints: tuple[str, ...]
    written: tuple[int, ...]
    """bases of the allocations that were written"""


@dataclass(frozen=True)
class Param:
    """One parameter of the kernel."""

    name: str
    type: Type


@dataclass
class _Variant:
    """One native build of a kernel."""

    lowered: Lowered
    native: Native


@dataclass
class CompiledKernel:
    """A kernel, built lazily in the variants that launches need. Safe to use from several threads."""

    name: str
    params: tuple[Param, ...]
    function: Function
    _variants: dict[tuple[bool, bool], _Variant] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def variant(self, checked: bool, fuse: bool) -> _Variant:
        """The build with or without sanitizers, and with or without loads fused into stores."""
        key = (checked, fuse)
        with self._lock:
            if key not in self._variants:
                lowered = self._lower(checked, fuse)
                if fuse and not lowered.needs_disjoint and (checked, False) in self._variants:
                    self._variants[key] = self._variants[(checked, False)]
                else:
                    self._variants[key] = _compiled(lowered)
                    if fuse and not lowered.needs_disjoint:
                        self._variants[(checked, False)] = self._variants[key]
            return self._variants[key]

    def _lower(self, checked: bool, fuse: bool) -> Lowered:
        try:
            return Lowering(self.function, checked=checked, allow_store_fusion=fuse).run()
        except (UnsupportedOp, TTIRError):
            raise
        except RecursionError:
            raise UnsupportedOp(f"an expression as deep as in kernel {self.name}") from None
        except (LookupError, ValueError, TypeError, AttributeError, AssertionError, OverflowError) as error:
            # text that keeps the shape rules can still name attributes or use types that make no sense
            raise TTIRError(f"kernel {self.name} cannot be lowered: {error!r}") from error

    def run(
        self,
        grid: tuple[int, int, int],
        args: Sequence[int | float],
        memory: MemoryMap,
        *,
        checks: Checks | None = None,
        step_limit: int = DEFAULT_STEP_LIMIT,
        time_limit: float = DEFAULT_TIME_LIMIT,
    ) -> LaunchResult:
        """Execute every program of ``grid``; ``args`` has one entry per parameter, addresses for pointers.

        Raises:
            TTIRError: the arguments do not fit the parameters, or the text contradicts itself.
            StepLimit: a program looped beyond ``step_limit``, or the launch ran beyond ``time_limit`` seconds.
            UnsupportedOp: on the first launch, what cannot be simulated.
        """
        checks = checks or Checks()
        if len(args) != len(self.params):
            raise TTIRError(f"kernel {self.name} takes {len(self.params)} arguments, not {len(args)}")
        bases = [
            found.base
            for param, value in zip(self.params, args, strict=True)
            if param.type.elem == "ptr" and (found := memory.find(int(value))) is not None
        ]
        disjoint = len(bases) == len(set(bases))
        variant = self.variant(checks.uninitialized or checks.race, disjoint)
        return _Launch(self, variant, grid, args, memory, checks, step_limit, time_limit).run()


def _compiled(lowered: Lowered) -> _Variant:
    try:
        return _Variant(lowered, build(lowered.text, lowered.symbol))
    except RuntimeError as error:  # LLVM's reader and verifier: element types or values that contradict each other
        raise TTIRError(f"the kernel makes no valid native code: {str(error)[:400]}") from error


class _Launch:
    """One execution: builds the native context, runs, reads the counters back."""

    def __init__(
        self,
        kernel: CompiledKernel,
        variant: _Variant,
        grid: tuple[int, int, int],
        args: Sequence[int | float],
        memory: MemoryMap,
        checks: Checks,
        step_limit: int,
        time_limit: float,
    ):
        self.kernel, self.variant, self.grid, self.memory = kernel, variant, grid, memory
        self.checks, self.step_limit, self.time_limit = checks, step_limit, time_limit
        self.args = args
        self.lowered = variant.lowered
        # races are only looked for where programs cannot have agreed on an order through atomics
        self.race = checks.race and not self.lowered.has_atomics

    def run(self) -> LaunchResult:
        programs = self.grid[0] * self.grid[1] * self.grid[2]
        self._entries()
        ctx = np.zeros(Ctx.SIZE, np.int64)
        self.blocks = np.zeros(max(1, len(self.lowered.blocks)), np.int64)
        self.findings = np.zeros((max(1, self.checks.max_findings), FINDING_WORDS), np.int64)
        self.prints = np.zeros((_MAX_PRINTS, PRINT_WORDS), np.int64)
        self.atomics = np.zeros(ATOMIC_BUCKETS, np.uint32)
        zero = np.zeros(64, np.uint8)
        arena = np.empty(self.lowered.arena_bytes + 64, np.uint8)
        ctx[Ctx.STEP_LIMIT] = self.step_limit
        ctx[Ctx.GRID_X : Ctx.GRID_Z + 1] = self.grid
        ctx[Ctx.ENTRIES], ctx[Ctx.N_ENTRIES] = self.entries.ctypes.data, len(self.entries)
        ctx[Ctx.FINDINGS], ctx[Ctx.MAX_FINDINGS] = self.findings.ctypes.data, self.checks.max_findings
        ctx[Ctx.ATOMIC_TABLE], ctx[Ctx.ZERO] = self.atomics.ctypes.data, zero.ctypes.data
        ctx[Ctx.PRINTS], ctx[Ctx.MAX_PRINTS] = self.prints.ctypes.data, _MAX_PRINTS
        ctx[Ctx.BLOCKS] = self.blocks.ctypes.data
        ctx[Ctx.ARENA] = -(-arena.ctypes.data // 64) * 64
        arg_words, arg_entries = self._arguments()
        ctx[Ctx.ARGS], ctx[Ctx.ARG_ENTRIES] = arg_words.ctypes.data, arg_entries.ctypes.data
        ctx[Ctx.RACE_SHIFT] = self.race_shift
        ctx[Ctx.DEADLINE] = time.monotonic_ns() + int(self.time_limit * 1e9)
        started = time.perf_counter()
        self.variant.native.call(ctx.ctypes.data, 0, programs)
        seconds = time.perf_counter() - started
        self._raise_if_stopped(Status(int(ctx[Ctx.STATUS])))
        self._keep_initialized()
        return LaunchResult(
            findings=self._read_findings(int(ctx[Ctx.N_FINDINGS])),
            stats=self._stats(ctx, programs),
            seconds=seconds,
            prints=self._read_prints(int(ctx[Ctx.N_PRINTS])),
            written=tuple(a.base for a, (_, w) in zip(self.allocations, self.maps, strict=True) if w.any()),
        )

    def _raise_if_stopped(self, status: Status) -> None:
        if status is Status.STEPS:
            raise StepLimit(
                f"a program of kernel {self.kernel.name} looped beyond its budget of {self.step_limit} steps: an "
                "endless loop, or a lock that no program releases"
            )
        if status is Status.TIME:
            raise StepLimit(f"kernel {self.kernel.name} ran for more than {self.time_limit:g} seconds")

    def _entries(self) -> None:
        """Native entries of the allocations the kernel may touch, sorted by address."""
        if self.lowered.dynamic_pointers:
            self.allocations = self.memory.all()
        else:
            found = {}
            for param, value in zip(self.kernel.params, self.args, strict=True):
                if param.type.elem == "ptr":
                    allocation = self.memory.find(int(value))
                    if allocation is not None:
                        found[allocation.base] = allocation
            self.allocations = [found[base] for base in sorted(found)]
        self.maps = [(np.zeros(a.sectors + 8, np.uint8), np.zeros(a.sectors + 8, np.uint8)) for a in self.allocations]
        self.race_shift = self._cell_shift()
        cells = [(a.nbytes >> self.race_shift) + 20 if self.race else 0 for a in self.allocations]
        self.shadows = [(np.zeros(n, np.int32), np.zeros(n, np.int32)) for n in cells]
        self.entries = np.zeros((len(self.allocations) + 1, Entry.SIZE), np.int64)
        for row, allocation, (read, write), (writers, readers) in zip(
            self.entries, self.allocations, self.maps, self.shadows, strict=False
        ):
            row[Entry.BASE], row[Entry.END] = allocation.base, allocation.end
            row[Entry.READ_MAP], row[Entry.WRITE_MAP] = read.ctypes.data, write.ctypes.data
            if self.checks.uninitialized and allocation.initialized is not None:
                row[Entry.INIT] = allocation.initialized.ctypes.data
            if self.race:
                row[Entry.WRITERS], row[Entry.READERS] = writers.ctypes.data, readers.ctypes.data
        # the last row is empty: base = end = the top of the address space, for pointers into nothing
        self.entries[-1, Entry.BASE] = self.entries[-1, Entry.END] = 1 << 62
        self.nowhere = np.zeros(8, np.uint8)
        self.entries[-1, Entry.READ_MAP] = self.entries[-1, Entry.WRITE_MAP] = self.nowhere.ctypes.data

    def _cell_shift(self) -> int:
        """log2 of the bytes a cell of the race shadow stands for: the smallest element the kernel may touch."""
        if self.lowered.dynamic_pointers:
            return 0
        pointees = [p.type.pointee for p in self.kernel.params if p.type.pointee is not None]
        return min((elem_bytes(name).bit_length() - 1 for name in pointees), default=0)

    def _arguments(self) -> tuple[np.ndarray, np.ndarray]:
        words = np.zeros(max(1, len(self.args)), np.int64)
        entries = np.zeros(max(1, len(self.args)), np.int64)
        index = {a.base: k for k, a in enumerate(self.allocations)}
        for k, (param, value) in enumerate(zip(self.kernel.params, self.args, strict=True)):
            if param.type.is_float:
                words[k] = struct.unpack("<q", struct.pack("<d", float(value)))[0]
                continue
            number = int(value) & 0xFFFFFFFFFFFFFFFF
            words[k] = number - (1 << 64) if number >> 63 else number
            if param.type.elem == "ptr":
                allocation = self.memory.find(int(value))
                row = index[allocation.base] if allocation is not None else len(self.allocations)
                entries[k] = self.entries[row].ctypes.data
        return words, entries

    def _keep_initialized(self) -> None:
        """Without the shadow check, whole sectors written count as initialised."""
        for allocation, (_, write) in zip(self.allocations, self.maps, strict=True):
            if allocation.initialized is None:
                continue
            if not self.checks.uninitialized:
                touched = np.repeat(write[: allocation.sectors], 32)[: allocation.nbytes]
                allocation.initialized |= touched
            if write.any() and allocation.initialized.all():
                allocation.initialized = None

    def _stats(self, ctx: np.ndarray, programs: int) -> LaunchStats:
        flops: Counter[str] = Counter()
        loads, stores, atomics = int(ctx[Ctx.LOAD_BYTES]), int(ctx[Ctx.STORE_BYTES]), 0
        for cost, count in zip(self.lowered.blocks, self.blocks.tolist(), strict=False):
            for unit, amount in cost.flops.items():
                flops[unit] += amount * count
            loads += cost.load_bytes * count
            stores += cost.store_bytes * count
            atomics += cost.atomics * count
        footprint = []
        for allocation, (read, write) in zip(self.allocations, self.maps, strict=True):
            touched = (int(np.count_nonzero(read)) * 32.0, int(np.count_nonzero(write)) * 32.0)
            if any(touched):
                read_bytes, written_bytes = (min(t, float(allocation.nbytes)) for t in touched)
                footprint.append((allocation.base, read_bytes, written_bytes))
        return LaunchStats(
            programs=programs,
            load_sectors=max(0.0, loads / 32),
            store_sectors=max(0.0, stores / 32),
            flops={unit: float(count) for unit, count in flops.items()},
            atomics=atomics,
            max_same_address_atomics=int(self.atomics.max()) if atomics else 0,
            footprint=tuple(footprint),
        )

    # ---- findings and prints

    def _program(self, linear: int) -> tuple[int, int, int]:
        x, y = self.grid[0], self.grid[1]
        return linear % x, linear // x % y, linear // (x * y)

    def _read_findings(self, total: int) -> tuple[SimFinding, ...]:
        rows = self.findings[: min(total, self.checks.max_findings)].tolist()
        groups: OrderedDict[tuple[int, int], list[list[int]]] = OrderedDict()
        for row in rows:
            groups.setdefault((row[0], row[1]), []).append(row)
        findings = []
        for (kind, site), members in groups.items():
            # beyond the kept ones nobody knows where they fell: the total goes to a single group
            count = total if len(groups) == 1 else len(members)
            findings.append(self._finding(Kind(kind), site, members[0], count))
        return tuple(findings)

    def _finding(self, kind: Kind, site: int, row: list[int], count: int) -> SimFinding:
        place = self.lowered.sites[site]
        file, _, line = place.loc.rpartition(":")
        _, _, program, address, base, size = row
        coordinates = self._program(program)
        allocation: Allocation | None = self.memory.find(base)
        offset = address - base if allocation is not None else None
        name, severity, text = _WORDS[kind]
        if kind is Kind.ASSERT:
            detail = f"{text}: {place.message}"
        else:
            what = f"{size}-byte {'store' if place.op == 'tt.store' else 'access' if 'atomic' in place.op else 'load'}"
            target = f" of argument {place.argument!r}" if place.argument else ""
            if offset is not None and allocation is not None:
                where = f" at byte {offset}{target} ({allocation.nbytes} bytes long)"
            else:
                where = f" at address {address:#x}{target}"
            detail = f"{text}: {what}{where}"
        source = f", {file.rpartition('/')[2]}:{line}" if line else ""
        message = (
            f"{detail}; kernel {self.kernel.name}{source}, program {coordinates}, {count} time{'s' * (count != 1)}"
        )
        return SimFinding(
            name, message, self.kernel.name, file or None, int(line) if line.isdigit() else None, coordinates,
            place.argument, offset, count, severity,
        )  # fmt: skip

    def _read_prints(self, total: int) -> tuple[str, ...]:
        """Lines as Triton prints them on a GPU."""
        lines = []
        for site, program, flat, bits in self.prints[: min(total, _MAX_PRINTS)].tolist():
            place = self.lowered.sites[site]
            pid = ", ".join(map(str, self._program(program)))
            index = ", ".join(str(int(k)) for k in np.unravel_index(flat, place.shape)) if place.shape else ""
            value = struct.unpack("<d", struct.pack("<q", bits))[0]
            number = "" if place.shape is None else f"{int(value)}" if place.integer else f"{value:g}"
            lines.append(f"pid ({pid}) idx ({index}){place.message}{number}")
        if total > _MAX_PRINTS:
            lines.append(f"... {total - _MAX_PRINTS} more values printed")
        return tuple(lines)


_WORDS: dict[Kind, tuple[str, Literal["error", "warning"], str]] = {
    Kind.OUT_OF_BOUNDS: ("out_of_bounds", "error", "out of bounds"),
    Kind.MISALIGNED: ("misaligned", "error", "misaligned address"),
    Kind.UNINITIALIZED: ("uninitialized", "error", "read of memory that nothing wrote"),
    Kind.RACE_WRITE: ("race", "error", "two programs write the same bytes with different values"),
    Kind.RACE_READ: ("race", "error", "one program reads what another writes in the same launch"),
    Kind.RACE_SAME_VALUE: ("race", "warning", "two programs write the same bytes with the same value"),
    Kind.READ_ONLY: ("read_only", "error", "store to read-only memory"),
    Kind.ASSERT: ("assert", "error", "device assertion failed"),
}

_CACHE_SIZE = 256
_cache: OrderedDict[str, CompiledKernel] = OrderedDict()
_cache_lock = threading.Lock()


def compile_ttir(text: str, *, name: str | None = None) -> CompiledKernel:
    """Read a kernel's TTIR; cached by content. Native code is built at the first launch.

    Raises:
        TTIRError: malformed text.
        UnsupportedOp: a construct that is not simulated.
    """
    key = hashlib.sha256(text.encode()).hexdigest()
    with _cache_lock:
        if key in _cache:
            _cache.move_to_end(key)
            return _cache[key]
    function = parse_ttir(text)
    params = tuple(Param(a.name.lstrip("%"), a.type) for a in function.args)
    kernel = CompiledKernel(name or function.name, params, function)
    with _cache_lock:
        _cache[key] = kernel
        while len(_cache) > _CACHE_SIZE:
            _cache.popitem(last=False)
    return kernel


__all__ = [
    "Checks", "CompiledKernel", "LaunchResult", "LaunchStats", "SimFinding", "StepLimit", "TTIRError", "UnsupportedOp",
    "compile_ttir",
]  # fmt: skip
