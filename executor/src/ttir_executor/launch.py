"""One execution of a compiled kernel over a grid: builds the native context, runs it, reads the counts back.

Reads what native code has recorded in its tables during a launch: findings of the sanitizers, and printed lines.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import mmap
import os
import struct
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from ttir_executor.allocations import Allocation, MemoryMap
from ttir_executor.lower.block_cost import BlockCost
from ttir_executor.lower.function import Lowered, Site
from ttir_executor.lower.jit import Code, Native, helper_address
from ttir_executor.lower.runtime import (
    ATOMIC_BITS,
    CLASSES,
    CONFLICT_WORDS,
    FINDING_WORDS,
    PRINT_WORDS,
    RECENT_BITS,
    SECTOR_BITS,
    SITE_WORDS,
    SYNC_WORDS,
    Ctx,
    EntryWord,
    Kind,
    Status,
)
from ttir_executor.order import (
    IN_ORDER,
    MAX_INTERLEAVED,
    PATIENT_UNDER_WAY,
    UNDER_WAY,
    Order,
    Ordered,
    Run,
    Turns,
    others,
    sampled_runs,
)
from ttir_executor.results import (
    Checks,
    LaunchResult,
    LaunchStats,
    Param,
    SimFinding,
    StepLimit,
    asked_by_site,
    classes_of,
    most_updates,
    passes_of,
    work_of,
)

MAX_PRINTS = 4096
"""most printed values of one thread that are kept"""
_running: weakref.WeakSet[KernelRun] = weakref.WeakSet()


def stop_running() -> None:
    """Let every launch under way in this process run out of time."""
    for launch in list(_running):
        for context in launch.contexts:
            context[Ctx.DEADLINE] = 0


@dataclass
class RecordingThread:
    """The context of one thread and the tables it points to."""

    ctx: np.ndarray
    blocks: np.ndarray
    findings: np.ndarray
    prints: np.ndarray
    arena: np.ndarray
    zero: np.ndarray
    sectors: np.ndarray
    syncs: np.ndarray
    conflicts: np.ndarray
    recent: np.ndarray
    sites: np.ndarray
    weights: np.ndarray
    sorted: np.ndarray
    classes: np.ndarray
    """``[CLASSES, 1 + counters]``"""


@dataclass(frozen=True)
class RecordedLaunch:
    """One launch, as far as reading its tables needs it."""

    name: str
    grid: tuple[int, int, int]
    sites: tuple[Site, ...]
    memory: MemoryMap
    most_findings: int

    def _program(self, linear: int) -> tuple[int, int, int]:
        x, y, _ = self.grid
        return linear % x, linear // x % y, linear // (x * y)

    def _rows(self, worker: RecordingThread) -> tuple[int, list[list[int]]]:
        """How many findings a worker had, and those that were kept: its own and the conflicts that nothing orders."""
        total, most = int(worker.ctx[Ctx.N_FINDINGS]), self.most_findings
        rows: list[list[int]] = worker.findings[: min(total, most)].tolist()
        noted = worker.conflicts[: min(int(worker.ctx[Ctx.N_CONFLICTS]), len(worker.conflicts))].tolist()
        if noted:
            ordered = Ordered(worker.syncs[: int(worker.ctx[Ctx.N_SYNCS])])
            for *row, earlier, segment, first in noted:
                if len(rows) >= most:
                    break
                if not ordered.before(earlier, segment, first):
                    rows.append(row)
                    total += 1
        return total, rows

    def findings(self, workers: Sequence[RecordingThread]) -> tuple[SimFinding, ...]:
        """The findings of all workers, one for each kind and place."""
        found = [self._rows(worker) for worker in workers]
        total = sum(count for count, _ in found)
        rows = [row for _, some in found for row in some]
        if len(found) > 1:
            rows.sort(key=lambda row: row[2])  # by program, as one thread would have met them
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
        place = self.sites[site]
        file, _, line = place.loc.rpartition(":")
        _, _, program, address, base, size = row
        coordinates = self._program(program)
        allocation: Allocation | None = self.memory.find(base)
        offset = address - base if allocation is not None else None
        name, severity, text = _WORDS[kind]
        if kind is Kind.OUT_OF_BOUNDS and self.memory.was_freed(address) and (allocation is None or not place.argument):
            name, text, allocation, offset = "use_after_free", "use after free", None, None
        if kind is Kind.ASSERT:
            detail = f"{text}: {place.message}"
        elif kind in (Kind.DIVISION, Kind.HINT):
            detail = text
        else:
            what = f"{size}-byte {'store' if place.op == 'tt.store' else 'access' if 'atomic' in place.op else 'load'}"
            target = f" of argument {place.argument!r}" if place.argument else ""
            if offset is not None and allocation is not None:
                where = f" at byte {offset}{target} ({allocation.nbytes} bytes long)"
            else:
                where = f" at address {address:#x}{target}"
            detail = f"{text}: {what}{where}"
        source = f", {file.rpartition('/')[2]}:{line}" if line else ""
        message = f"{detail}; kernel {self.name}{source}, program {coordinates}, {count} time{'s' * (count != 1)}"
        return SimFinding(
            name, message, self.name, file or None, int(line) if line.isdigit() else None, coordinates,
            place.argument, offset, count, severity,
        )  # fmt: skip

    def prints(self, worker: RecordingThread) -> tuple[str, ...]:
        """Lines as Triton prints them on a GPU."""
        lines = []
        total = int(worker.ctx[Ctx.N_PRINTS])
        for site, program, flat, bits in worker.prints[: min(total, MAX_PRINTS)].tolist():
            place = self.sites[site]
            pid = ", ".join(map(str, self._program(program)))
            lines.append(f"pid ({pid}){_index(flat, place.shape)}{place.message}{_number(place, bits)}")
        if total > MAX_PRINTS:
            lines.append(f"... {total - MAX_PRINTS} more values printed")
        return tuple(lines)


def _index(flat: int, shape: tuple[int, ...] | None) -> str:
    """The index of a printed element, each number as wide as its axis's last; nothing for a text alone."""
    if shape is None:
        return ""
    index = np.unravel_index(flat, shape) if shape else ()
    return f" idx ({', '.join(f'{int(k):{len(str(size - 1))}}' for k, size in zip(index, shape, strict=True))})"


def _number(place: Site, bits: int) -> str:
    """A printed number as C's printf gives it on a card, from the 64 bits that a kernel has recorded."""
    if place.shape is None:
        return ""
    unsigned = bits % (1 << 64)
    match place.printed:
        case "float":
            return f"{struct.unpack('<d', struct.pack('<q', bits))[0]:f}"
        case "hex":
            return f"0x{unsigned:0{max(1, place.bits // 4)}x}"
        case "pointer":
            return f"{unsigned:#x}"
        case "unsigned":
            return str(unsigned)
        case "signed":
            return str(bits)


_WORDS: dict[Kind, tuple[str, Literal["error", "warning"], str]] = {
    Kind.OUT_OF_BOUNDS: ("out_of_bounds", "error", "out of bounds"),
    Kind.MISALIGNED: ("misaligned", "error", "misaligned address"),
    Kind.UNINITIALIZED: ("uninitialized", "error", "read of memory that nothing wrote"),
    Kind.RACE_WRITE: ("race", "error", "two programs write the same bytes with different values"),
    Kind.RACE_READ: ("race", "error", "one program reads what another writes in the same launch"),
    Kind.RACE_SAME_VALUE: ("race", "warning", "two programs write the same bytes with the same value"),
    Kind.RACE_ATOMIC: ("race", "error", "one program updates atomically what another accesses without atomics"),
    Kind.READ_ONLY: ("read_only", "error", "store to read-only memory"),
    Kind.ASSERT: ("assert", "error", "device assertion failed"),
    Kind.RACE_LANES: ("race", "error", "two elements of one store go to the same bytes with different values"),
    Kind.DIVISION: ("division_by_zero", "warning", "integer division by zero"),
    Kind.HINT: ("false_hint", "warning", "tl.multiple_of or tl.max_contiguous does not hold"),
}


_MAX_SYNCS = 1 << 20
_MAX_CONFLICTS = 1 << 14
_MAX_SAVED = 256 << 20
"""most bytes that are kept in order to restart a launch"""
_MAX_ARENAS = 1 << 30
"""most bytes of scratch memory of all running programs together"""
_WORTH_THREADS = 1e-3
"""seconds of work below which threads cost more than they save"""
_MANY_CELLS = 4 << 20
"""cells from which on they are not taken from memory that was used before, all of which would have to be cleared"""


@cache
def _histogram() -> Any:
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    return prototype(helper_address("dk_histogram"))


def marks_of(sectors: np.ndarray) -> tuple[np.ndarray, tuple[float, float]]:
    """Cells of a sector map by mark, and the first byte of those that are marked and the end of the last; 0 and 0
    when there is none. A map has eight cells more than sectors, so that whole words can be read."""
    counts, span = np.zeros(256, np.int64), np.full(2, -1, np.int64)
    _histogram()(sectors.ctypes.data, len(sectors) & ~7, counts.ctypes.data, span.ctypes.data)
    first, last = span.tolist()
    return counts, (32.0 * first, 32.0 * (last + 1)) if first >= 0 else (0.0, 0.0)


def _cells(number: int) -> np.ndarray:
    """Cells of a byte, all 0. Many come fresh from the system, in large pages: what nothing marks takes no time."""
    if number < _MANY_CELLS:
        return np.zeros(number, np.uint8)
    try:
        fresh = mmap.mmap(-1, number, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no {number} bytes for the marks of a launch") from error
    with contextlib.suppress(AttributeError, OSError):  # a system without large pages
        fresh.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(fresh, np.uint8)


def split_runs(runs: list[Run], size: int) -> tuple[list[Run], list[Run]]:
    """``runs`` cut in two after ``size`` places."""
    head: list[Run] = []
    tail: list[Run] = []
    for start, stop in runs:
        cut = min(stop, start + size)
        size -= cut - start
        head += [(start, cut)] if start < cut else []
        tail += [(cut, stop)] if cut < stop else []
    return head, tail


@dataclass(frozen=True)
class LaunchLimits:
    """The limits of a launch."""

    steps: int
    """work of one program in loops"""
    seconds: float
    threads: int | None = None
    processors: int = 1
    """of the GPU"""


def pointed_at(params: Sequence[Param], args: Sequence[int | float], memory: MemoryMap) -> list[tuple[str, Allocation]]:
    """The pointer arguments that point to something: name and allocation."""
    return [
        (param.name, found)
        for param, value in zip(params, args, strict=False)
        if param.is_pointer and (found := memory.find(int(value))) is not None
    ]


class KernelRun:
    """One execution of a native kernel."""

    def __init__(
        self,
        name: str,
        params: tuple[Param, ...],
        lowered: Lowered,
        code: Code,
        grid: tuple[int, int, int],
        args: Sequence[int | float],
        memory: MemoryMap,
        checks: Checks,
        limits: LaunchLimits,
        order: Order = IN_ORDER,
        unchecked: tuple[Lowered, Code] | None = None,
        weights: Sequence[float] = (),
    ):
        """``weights``: what entering each block of the function costs a program, to tell long programs from short."""
        self.order, self.unchecked, self.weights = order, unchecked, weights
        self.name, self.params, self.lowered, self.code = name, params, lowered, code
        self.grid, self.args, self.memory, self.checks, self.limits = grid, args, memory, checks, limits
        self._pointed = pointed_at(params, args, memory)
        self._bases = {name: allocation.base for name, allocation in self._pointed}
        self.recorded = RecordedLaunch(name, grid, lowered.sites, memory, checks.max_findings)
        self.race = checks.race
        self.own_passes: float | None = None
        self.alone_bytes: float | None = None
        """asked for by the program that :attr:`own_passes` is of; None where that one was chosen with care"""
        self.contexts: list[np.ndarray] = []
        """of all workers"""

    def run(self) -> LaunchResult:
        """Execute every program; :func:`stop_running` stops it.

        Raises:
            StepLimit: a limit was passed; what was written until then stays.
        """
        programs = self.grid[0] * self.grid[1] * self.grid[2]
        self._prepare()
        _running.add(self)
        try:
            started = time.perf_counter()
            if self.takes_turns:
                workers = self._take_turns(programs)
            elif self.checks.sample is None or self.unchecked is None or programs <= self.checks.sample:
                workers = self._execute([(0, programs)])
            else:
                looked_at = sampled_runs(programs, self.checks.sample, self.checks.seed)
                workers = self._execute(looked_at)
                if not any(worker.ctx[Ctx.STATUS] for worker in workers):
                    workers += self._without_shadows(*self.unchecked)._execute(others(looked_at, programs))
            seconds = time.perf_counter() - started
        finally:
            _running.discard(self)
        self._raise_if_stopped(max(int(worker.ctx[Ctx.STATUS]) for worker in workers))
        self._keep_initialized()
        stats = self._stats(workers, programs)
        return LaunchResult(
            findings=self.recorded.findings(workers),
            stats=stats,
            seconds=seconds,
            prints=tuple(line for worker in workers for line in self.recorded.prints(worker)),
            written=tuple(base for base, _, written in stats.footprint if written),
        )

    @property
    def takes_turns(self) -> bool:
        """Whether programs are switched where they synchronise."""
        programs = self.grid[0] * self.grid[1] * self.grid[2]
        wanted = self.order.turns is not None and (self.race or self.order.patient) and self.lowered.synchronises
        return wanted and 1 < programs <= MAX_INTERLEAVED

    def saved(self) -> list[tuple[Allocation, bytes, np.ndarray | None]] | None:
        """Save what the kernel may change; None when that is too much to keep."""
        self._entries()
        if sum(allocation.nbytes for allocation in self.allocations) > _MAX_SAVED:
            return None
        return [
            (a, ctypes.string_at(a.base, a.nbytes), None if a.initialized is None else a.initialized.copy())
            for a in self.allocations
        ]

    @staticmethod
    def restore(saved: list[tuple[Allocation, bytes, np.ndarray | None]]) -> None:
        """Restore the state saved by :meth:`saved`."""
        for allocation, contents, initialized in saved:
            ctypes.memmove(allocation.base, contents, allocation.nbytes)
            allocation.initialized = initialized

    # ---- running

    def _prepare(self) -> None:
        """Build the tables, and start the launch's clock."""
        self._entries()
        self.atomics = np.zeros(1 << ATOMIC_BITS, np.uint32)
        self.arg_words, self.arg_entries = self._arguments()
        self.deadline = time.monotonic_ns() + int(self.limits.seconds * 1e9)

    def _worker(self, syncs: np.ndarray | None = None) -> RecordingThread:
        """``syncs``: the log that it shares with others; None for one of its own."""
        agree = self.race and self.lowered.synchronises
        counters = len(self.lowered.blocks)
        worker = RecordingThread(
            ctx=np.zeros(Ctx.SIZE, np.int64),
            blocks=np.zeros(max(1, counters), np.int64),
            findings=np.zeros((max(1, self.checks.max_findings), FINDING_WORDS), np.int64),
            prints=np.zeros((MAX_PRINTS if self.lowered.has_prints else 1, PRINT_WORDS), np.int64),
            arena=np.empty(self.lowered.arena_bytes + 64, np.uint8),
            zero=np.zeros(64, np.uint8),
            sectors=np.zeros(1 << SECTOR_BITS, np.int64),
            syncs=np.empty((_MAX_SYNCS if agree else 1, SYNC_WORDS), np.int64) if syncs is None else syncs,
            conflicts=np.empty((_MAX_CONFLICTS if agree else 1, CONFLICT_WORDS), np.int64),
            recent=np.zeros(1 << RECENT_BITS if agree else 1, np.int64),
            sites=np.zeros((max(1, len(self.lowered.sites)), SITE_WORDS), np.int64),
            weights=self._counter_weights(),
            sorted=np.zeros(max(1, counters), np.int64),
            classes=np.zeros((CLASSES if self.weights else 1, counters + 1), np.int64),
        )
        ctx = worker.ctx
        ctx[Ctx.CLOCK] = max((int(other[Ctx.CLOCK]) for other in self.contexts), default=0)  # programs may run in parts
        self.contexts.append(ctx)
        ctx[Ctx.STEP_LIMIT], ctx[Ctx.DEADLINE] = self.limits.steps, self.deadline
        ctx[Ctx.GRID_X : Ctx.GRID_Z + 1] = self.grid
        ctx[Ctx.PROCESSORS], ctx[Ctx.FILL] = self.limits.processors, self.checks.fill
        ctx[Ctx.ENTRIES], ctx[Ctx.N_ENTRIES] = self.entries.ctypes.data, len(self.entries)
        ctx[Ctx.FINDINGS], ctx[Ctx.MAX_FINDINGS] = worker.findings.ctypes.data, self.checks.max_findings
        ctx[Ctx.ATOMIC_TABLE], ctx[Ctx.ZERO] = self.atomics.ctypes.data, worker.zero.ctypes.data
        ctx[Ctx.PRINTS], ctx[Ctx.MAX_PRINTS] = worker.prints.ctypes.data, len(worker.prints)
        ctx[Ctx.SECTORS] = worker.sectors.ctypes.data
        ctx[Ctx.BLOCKS] = worker.blocks.ctypes.data
        ctx[Ctx.ARENA] = -(-worker.arena.ctypes.data // 64) * 64
        ctx[Ctx.ARGS], ctx[Ctx.ARG_ENTRIES] = self.arg_words.ctypes.data, self.arg_entries.ctypes.data
        ctx[Ctx.RACE_SHIFT] = self.race_shift
        ctx[Ctx.ORDER_FACTOR], ctx[Ctx.ORDER_SHIFT] = self.order.factor, self.order.shift
        ctx[Ctx.SYNCS], ctx[Ctx.MAX_SYNCS] = worker.syncs.ctypes.data, len(worker.syncs) if agree else 0
        ctx[Ctx.CONFLICTS], ctx[Ctx.MAX_CONFLICTS] = worker.conflicts.ctypes.data, len(worker.conflicts)
        ctx[Ctx.RECENT], ctx[Ctx.SITES] = worker.recent.ctypes.data, worker.sites.ctypes.data
        ctx[Ctx.SORTED], ctx[Ctx.CLASSES] = worker.sorted.ctypes.data, worker.classes.ctypes.data
        ctx[Ctx.WEIGHTS] = worker.weights.ctypes.data if self.weights else 0
        return worker

    def _counter_weights(self) -> np.ndarray:
        """:attr:`weights` by counter, each of which may stand for several blocks of the function."""
        blocks = self.lowered.blocks if self.weights else ()
        sums = [sum(self.weights[block] * times for block, times in cost.entered.items()) for cost in blocks]
        return np.array([*sums, 0.0])

    def _take_turns(self, programs: int) -> list[RecordingThread]:
        assert self.order.turns is not None
        most = min(PATIENT_UNDER_WAY, _MAX_ARENAS // self.lowered.arena_bytes) if self.order.patient else UNDER_WAY
        first = self._worker()
        # one log of who has synchronised, in order: each takes 32 MB
        workers = [first, *(self._worker(first.syncs) for _ in range(min(programs, most) - 1))]
        Turns(self.code.now().call, workers, programs, self.order.turns, patient=self.order.patient).run()
        for worker in workers:
            worker.ctx[Ctx.N_SYNCS] = max(int(other.ctx[Ctx.N_SYNCS]) for other in workers)
        return workers

    def _without_shadows(self, lowered: Lowered, code: Code) -> KernelRun:
        """Return the same launch, sharing its counts, for programs that no sanitizer examines."""
        other = copy.copy(self)
        other.lowered, other.code, other.race = lowered, code, False
        other.checks = Checks(max_findings=self.checks.max_findings)
        other.entries = self.entries.copy()
        for place in (EntryWord.INIT, EntryWord.WRITERS, EntryWord.READERS):
            other.entries[:, place] = 0
        _, other.arg_entries = other._arguments()
        return other

    def _execute(self, runs: list[tuple[int, int]]) -> list[RecordingThread]:
        """Run the programs at these places: a few first; by what they took, the rest in optimised code or threads."""
        first, threads = self._worker(), self._threads()
        native, programs = self.code.now(), sum(stop - start for start, stop in runs)
        head, tail = split_runs(runs, max(1, programs // 32))
        ran, spent = sum(stop - start for start, stop in head), 0.0
        for start, stop in self._first_alone(head):
            if not first.ctx[Ctx.STATUS]:
                started = time.perf_counter()
                native.call(first.ctx.ctypes.data, start, stop)
                spent += time.perf_counter() - started
            if self.own_passes is None:
                self.alone_bytes = float(self._work([first]).load_bytes)
                self.own_passes = passes_of(self.alone_bytes, (read for read, _ in self.maps))
        self.code.spend(spent)
        if not tail or first.ctx[Ctx.STATUS]:
            return [first]
        expected = spent * (programs / ran - 1)
        native = self.code.for_work(expected)
        started = time.perf_counter()
        if threads == 1 or expected < _WORTH_THREADS:
            for start, stop in tail:
                if not first.ctx[Ctx.STATUS]:
                    native.call(first.ctx.ctypes.data, start, stop)
            workers = [first]
        else:
            workers = self._in_parallel(native, first, tail, threads)
        self.code.spend(time.perf_counter() - started)
        return workers

    def _first_alone(self, runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The runs with the very first program of the launch by itself, so that its own reads can be told."""
        (start, stop), *rest = runs
        if self.own_passes is not None or stop - start == 1:
            return runs
        return [(start, start + 1), (start + 1, stop), *rest]

    def _in_parallel(
        self, native: Native, first: RecordingThread, runs: list[tuple[int, int]], threads: int
    ) -> list[RecordingThread]:
        chunk = max(1, sum(stop - start for start, stop in runs) // (8 * threads))
        parts = iter([(k, min(stop, k + chunk)) for start, stop in runs for k in range(start, stop, chunk)])
        guard = threading.Lock()

        def work(worker: RecordingThread) -> None:
            while not worker.ctx[Ctx.STATUS]:
                with guard:
                    part = next(parts, None)
                if part is None:
                    return
                native.call(worker.ctx.ctypes.data, *part)

        workers = [first, *(self._worker() for _ in range(threads - 1))]
        helpers = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in workers[1:]]
        for helper in helpers:
            helper.start()
        work(first)
        for helper in helpers:
            helper.join()
        return workers

    def _threads(self) -> int:
        """Return the number of threads that may share this launch; sanitizers, atomics and prints need a single
        order."""
        one_order = self.lowered.has_atomics or self.lowered.has_prints or self.lowered.reads_clock
        if self.checks.race or self.checks.uninitialized or one_order:
            return 1
        if self.limits.threads is not None:
            return max(1, self.limits.threads)
        named = os.environ.get("OMP_NUM_THREADS", "")
        return max(1, int(named)) if named.isdigit() else len(os.sched_getaffinity(0))

    def _raise_if_stopped(self, status: int) -> None:
        if status == Status.STEPS:
            raise StepLimit(
                f"a program of kernel {self.name} looped beyond its budget of {self.limits.steps} steps: an "
                "endless loop, or a lock that no program releases"
            )
        if status == Status.TIME:
            raise StepLimit(f"kernel {self.name} ran for more than {self.limits.seconds:g} seconds")

    # ---- tables

    def _entries(self) -> None:
        """Native entries of the allocations the kernel may touch, sorted by address."""
        if self.lowered.dynamic_pointers:
            self.allocations = self.memory.all()
        else:
            found = {allocation.base: allocation for _, allocation in self._pointed}
            self.allocations = [found[base] for base in sorted(found)]
        self.maps = self._sector_maps()
        self.race_shift = self._cell_shift()
        cells = [(a.nbytes >> self.race_shift) + 20 if self.race else 0 for a in self.allocations]
        self.shadows = [(_cells(4 * n).view(np.int32), _cells(4 * n).view(np.int32)) for n in cells]
        self.entries = np.zeros((len(self.allocations) + 1, EntryWord.SIZE), np.int64)
        for row, allocation, (read, write), (writers, readers) in zip(
            self.entries, self.allocations, self.maps, self.shadows, strict=False
        ):
            row[EntryWord.BASE], row[EntryWord.END] = allocation.base, allocation.end
            row[EntryWord.READ_MAP], row[EntryWord.WRITE_MAP] = read.ctypes.data, write.ctypes.data
            if self.checks.uninitialized and allocation.initialized is not None:
                row[EntryWord.INIT] = allocation.initialized.ctypes.data
            if self.race:
                row[EntryWord.WRITERS], row[EntryWord.READERS] = writers.ctypes.data, readers.ctypes.data
        # the last row is empty: base = end = the top of the address space, for pointers into nothing
        self.entries[-1, EntryWord.BASE] = self.entries[-1, EntryWord.END] = 1 << 62
        self.nowhere = np.zeros(8, np.uint8)
        self.entries[-1, EntryWord.READ_MAP] = self.entries[-1, EntryWord.WRITE_MAP] = self.nowhere.ctypes.data

    def _sector_maps(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """A byte for each 32-byte sector of the allocations, of what is read and of what is written."""
        return [(_cells(a.sectors + 8), _cells(a.sectors + 8)) for a in self.allocations]

    def _cell_shift(self) -> int:
        """log2 of the bytes a cell of the race shadow stands for: the smallest element the kernel may touch."""
        if self.lowered.dynamic_pointers:
            return 0
        return min((p.element_bytes.bit_length() - 1 for p in self.params if p.element_bytes is not None), default=0)

    def _arguments(self) -> tuple[np.ndarray, np.ndarray]:
        words = np.zeros(max(1, len(self.args)), np.int64)
        entries = np.zeros(max(1, len(self.args)), np.int64)
        index = {a.base: k for k, a in enumerate(self.allocations)}
        for k, (param, value) in enumerate(zip(self.params, self.args, strict=True)):
            if param.is_float:
                words[k] = struct.unpack("<q", struct.pack("<d", float(value)))[0]
                continue
            number = int(value) & 0xFFFFFFFFFFFFFFFF
            words[k] = number - (1 << 64) if number >> 63 else number
            if param.is_pointer:
                allocation = self.memory.find(int(value))
                row = index[allocation.base] if allocation is not None else len(self.allocations)
                entries[k] = self.entries[row].ctypes.data
        return words, entries

    def _keep_initialized(self) -> None:
        """Without the shadow check, whole sectors written count as initialised."""
        for allocation, (_, write) in zip(self.allocations, self.maps, strict=True):
            if allocation.initialized is None or not write.any():
                continue
            sectors = write[: allocation.sectors]
            if self.checks.uninitialized:
                if self.unchecked is not None:
                    allocation.initialized |= np.repeat(sectors, 32)[: allocation.nbytes]
                if allocation.initialized.all():
                    allocation.initialized = None
            elif sectors.all():
                allocation.initialized = None
            else:
                allocation.initialized |= np.repeat(sectors, 32)[: allocation.nbytes]

    # ---- what happened

    def _work(self, workers: list[RecordingThread]) -> BlockCost:
        """What the programs did; bytes asked for by loads and by stores are in whole sectors."""
        total = work_of(self.lowered.blocks, np.sum([worker.blocks for worker in workers], axis=0).tolist())
        total.load_bytes = max(0, total.load_bytes + sum(int(worker.ctx[Ctx.LOAD_BYTES]) for worker in workers))
        total.store_bytes = max(0, total.store_bytes + sum(int(worker.ctx[Ctx.STORE_BYTES]) for worker in workers))
        return total

    def _stats(self, workers: list[RecordingThread], programs: int) -> LaunchStats:
        work = self._work(workers)
        footprint, parts = [], []
        for allocation, (read, write) in zip(self.allocations, self.maps, strict=True):
            (reads, read_ends), (writes, write_ends) = marks_of(read), marks_of(write)
            touched = [min(32.0 * int(marks[1:].sum()), float(allocation.nbytes)) for marks in (reads, writes)]
            if any(touched):
                footprint.append((allocation.base, touched[0], touched[1]))
                parts.append((allocation.base, read_ends, write_ends))
        return LaunchStats(
            programs=programs,
            load_sectors=work.load_bytes / 32,
            store_sectors=work.store_bytes / 32,
            flops={unit: float(count) for unit, count in work.flops.items()},
            atomics=self._updates(),
            max_same_address_atomics=most_updates(self.atomics, sum(written for _, _, written in footprint)),
            footprint=tuple(footprint),
            executed=tuple((block, float(count)) for block, count in sorted(work.entered.items()) if count),
            own_passes=self._passes(work.load_bytes / programs),
            parts=tuple(parts),
            sites=asked_by_site(self.lowered.sites, [worker.sites for worker in workers], self._bases),
            classes=classes_of(self.lowered.blocks, [worker.classes for worker in workers]),
        )

    def _passes(self, mean_bytes: float) -> float:
        """Passes of a program over its own data. A first program that reads little says nothing about the others."""
        little = self.alone_bytes is not None and 2.0 * self.alone_bytes < mean_bytes
        return 1.0 if little else self.own_passes or 1.0

    def _updates(self) -> int:
        """Atomic updates so far."""
        return int(self.atomics.sum(dtype=np.int64))
