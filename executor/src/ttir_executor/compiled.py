"""Runs TTIR kernels on the CPU as native code, checked and counted.

``compile_ttir`` reads the text, lowers it (``lower/``) and compiles it; ``CompiledKernel.run`` executes a grid over the
allocations of a :class:`~.allocations.MemoryMap`. No access leaves those allocations, whatever the kernel does.

Decides whether unwritten memory affected a launch, by running it again on other contents.

A kernel may load unwritten bytes and discard them: ``tl.where`` on the upper triangle of a block, a masked sum. The
load is noticed when it happens. Whether it matters shows when the unwritten bytes hold something else: if every byte
written, every print and every other finding is then the same, the values reached no store, no branch and no address,
and there is nothing to report.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from ttir_executor.allocations import Allocation, MemoryMap
from ttir_executor.launch import KernelRun, LaunchLimits, pointed_at
from ttir_executor.lower.function import Lowered, Lowering, Site
from ttir_executor.lower.jit import Code, prepare
from ttir_executor.order import IN_ORDER, Order
from ttir_executor.results import Checks, LaunchResult, LaunchStats, Param, SimFinding, StepLimit
from ttir_executor.ttir.ir import Function, TTIRError, UnsupportedTTIR
from ttir_executor.ttir.parser import parse_ttir

OTHER_CONTENTS = (0x7B, 0xF7, 0x3C)
"""bytes placed in unwritten memory: floats that are large, large and negative, and about one or less"""
FILL = 0x7B7B7B7B7B7B7B7B
"""large numbers of every type"""
MOST_BYTES = 64 << 20
"""most bytes of memory that are kept in order to run again; a larger launch reports every load"""


@dataclass(frozen=True)
class _State:
    allocation: Allocation
    contents: np.ndarray
    initialized: np.ndarray | None

    @staticmethod
    def of(allocation: Allocation) -> _State:
        known = allocation.initialized
        return _State(allocation, _bytes(allocation).copy(), None if known is None else known.copy())

    def restore(self, pattern: int | None = None) -> None:
        """Put everything back, with ``pattern`` where nothing was written."""
        memory = _bytes(self.allocation)
        memory[:] = self.contents
        self.allocation.initialized = None if self.initialized is None else self.initialized.copy()
        if pattern is not None and self.initialized is not None:
            memory[self.initialized == 0] = pattern

    def same_as_now(self) -> bool:
        """Whether the allocation has the same contents where it was written, and was written in the same places."""
        now, known = self.allocation.initialized, self.initialized
        if known is None or now is None:
            return known is now and np.array_equal(_bytes(self.allocation), self.contents)
        written = known != 0
        return np.array_equal(written, now != 0) and np.array_equal(
            _bytes(self.allocation)[written], self.contents[written]
        )


def _bytes(allocation: Allocation) -> np.ndarray:
    """The memory itself."""
    return np.asarray((ctypes.c_uint8 * allocation.nbytes).from_address(allocation.base))


def run_defined(run: Callable[[], LaunchResult], allocations: Sequence[Allocation]) -> LaunchResult:
    """``run`` a launch that touches ``allocations``, and drop findings of reads that had no effect."""
    if sum(allocation.nbytes for allocation in allocations) > MOST_BYTES:
        return run()
    before = [_State.of(allocation) for allocation in allocations]
    result = run()
    if not any(finding.kind == "uninitialized" for finding in result.findings):
        return result
    after = [_State.of(allocation) for allocation in allocations]
    try:
        matters = any(_differs(run, result, before, after, pattern) for pattern in OTHER_CONTENTS)
    finally:
        for state in after:
            state.restore()
    return result if matters else replace(result, findings=_others(result))


def run_filled(
    first: Callable[[], LaunchResult],
    run: Callable[[int], LaunchResult],
    allocations: Sequence[Allocation],
    kernel: str,
    sites: Sequence[Site],
) -> LaunchResult:
    """The ``first`` run of a launch, and a finding if one with other values in the inactive lanes of masked loads
    without ``other`` writes anything else: a GPU leaves in their registers what was there."""
    if sum(allocation.nbytes for allocation in allocations) > MOST_BYTES // 4:
        return first()
    before = [_State.of(allocation) for allocation in allocations]
    result = first()
    after = [_State.of(allocation) for allocation in allocations]
    for state in before:
        state.restore()
    try:
        second = run(FILL)
        same = _others(second) == _others(result) and second.prints == result.prints
        same = same and all(state.same_as_now() for state in after)
    except StepLimit:  # it may take long anyway
        same = True
    finally:
        for state in after:
            state.restore()
    if same:
        return result
    file, _, line = sites[0].loc.rpartition(":")
    place = f", {file.rpartition('/')[2]}:{line}" if line else ""
    several = f" (or of the {len(sites) - 1} after it)" if len(sites) > 1 else ""
    message = (
        f"what is stored depends on inactive lanes of a masked load without other{several}; kernel {kernel}{place}"
    )
    number = int(line) if line.isdigit() else None
    found = SimFinding("undefined_value", message, kernel, file or None, number, None, None, None, 1, "warning")
    return replace(result, findings=(*result.findings, found))


def _differs(
    run: Callable[[], LaunchResult], first: LaunchResult, before: list[_State], after: list[_State], pattern: int
) -> bool:
    """Whether another run, with ``pattern`` in unwritten memory, differs in any result."""
    for state in before:
        state.restore(pattern)
    try:
        second = run()
    except StepLimit:
        return True
    same = _others(first) == _others(second) and first.prints == second.prints
    return not (same and all(state.same_as_now() for state in after))


def _others(result: LaunchResult) -> tuple[SimFinding, ...]:
    return tuple(finding for finding in result.findings if finding.kind != "uninitialized")


DEFAULT_STEP_LIMIT = 1 << 30
"""work that one program may do in loops before it counts as endless, in strips of 16 elements"""
PATIENCE = 1 << 22
"""the same where programs may wait for each other and their order is not that of their numbers"""
MOST_FILLED = 4
"""grids of a kernel with which undefined values are tried"""
DEFAULT_TIME_LIMIT = 600.0
"""seconds that one launch may take"""


@dataclass
class _Variant:
    """One native build of a kernel."""

    lowered: Lowered
    code: Code


@dataclass
class CompiledKernel:
    """A kernel, built lazily in the variants that launches need. Safe to use from several threads."""

    name: str
    params: tuple[Param, ...]
    function: Function = field(repr=False)
    _variants: dict[tuple[bool, bool], _Variant] = field(default_factory=dict, repr=False)
    _filled: set[tuple[int, int, int]] = field(default_factory=set, repr=False)
    """grids whose launches ran again with other values in what masked loads leave undefined"""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

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
        except (UnsupportedTTIR, TTIRError):
            raise
        except RecursionError:
            raise UnsupportedTTIR(f"an expression as deep as in kernel {self.name}") from None
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
        threads: int | None = None,
        order: Order = IN_ORDER,
        processors: int = 1,
        weights: Sequence[float] = (),
    ) -> LaunchResult:
        """Execute every program of ``grid``; ``args`` has one entry per parameter, addresses for pointers.

        Programs run one after another in the given ``order``, or take turns in it. If that makes one wait for another
        that has not run, all start over, together. Long unchecked launches without atomics or prints are split
        over ``threads`` (default: ``OMP_NUM_THREADS``, or every core this process may use). ``processors`` is the
        number of the GPU's multiprocessors, for programs that ask where they run. ``weights`` say what entering each
        block costs a program, by which programs are counted in classes (``LaunchStats.classes``).

        Raises:
            TTIRError: the arguments do not fit the parameters, or the text contradicts itself.
            StepLimit: a program looped beyond ``step_limit``, or the launch ran beyond ``time_limit`` seconds.
            UnsupportedTTIR: on the first launch, for operations that cannot be simulated.
        """
        checks = checks or Checks()
        if len(args) != len(self.params):
            raise TTIRError(f"kernel {self.name} takes {len(self.params)} arguments, not {len(args)}")
        bases = [found.base for _, found in pointed_at(self.params, args, memory)]
        disjoint = len(bases) == len(set(bases))
        variant = self.variant(checks.uninitialized or checks.race, disjoint)
        plain = None
        if checks.sample is not None and checks.sample < math.prod(grid) and not variant.lowered.synchronises:
            other = self.variant(False, disjoint)
            plain = (other.lowered, other.code)
        limits = LaunchLimits(step_limit, time_limit, threads, processors)

        def launch(order: Order, limits: LaunchLimits) -> KernelRun:
            return KernelRun(
                self.name, self.params, variant.lowered, variant.code, grid, args, memory, checks, limits, order, plain,
                weights,
            )  # fmt: skip

        alone = replace(order, turns=None) if not variant.lowered.waits else IN_ORDER
        trial = launch(order, replace(limits, steps=min(step_limit, PATIENCE)))
        if not variant.lowered.waits and (order == IN_ORDER or not trial.takes_turns):
            return launch(order, limits).run()
        saved = trial.saved()
        if saved is None:
            return launch(alone, limits).run()
        try:
            return trial.run()
        except StepLimit:  # a program waits for what comes later in this order, or for very long
            trial.restore(saved)
        if not variant.lowered.waits:
            return launch(alone, limits).run()
        return self._waiting(grid, args, memory, checks, limits, disjoint, weights)

    def watched(
        self,
        grid: tuple[int, int, int],
        args: Sequence[int | float],
        memory: MemoryMap,
        *,
        checks: Checks,
        order: Order,
        processors: int,
        weights: Sequence[float] = (),
    ) -> LaunchResult:
        """:meth:`run`, without findings of unwritten memory whose values had no effect; with one where values that a
        load leaves undefined had some."""

        def run(fill: int = 0) -> LaunchResult:
            given, limit = (replace(checks, fill=fill), PATIENCE) if fill else (checks, DEFAULT_STEP_LIMIT)
            return self.run(
                grid, args, memory, checks=given, order=order, processors=processors, weights=weights, step_limit=limit
            )  # fmt: skip

        touched = self._reads_unwritten(args, memory) if checks.uninitialized else []
        again = self._leaves_undefined(grid, args, memory) if checks.uninitialized else []
        first = run if not touched else partial(run_defined, run, touched)
        return run_filled(first, run, again, self.name, self._unfilled()) if again else first()

    def _unfilled(self) -> tuple[Site, ...]:
        return self.variant(True, True).lowered.unfilled

    def _leaves_undefined(
        self, grid: tuple[int, int, int], args: Sequence[int | float], memory: MemoryMap
    ) -> list[Allocation]:
        """The allocations that a launch may touch, if it has masked loads without ``other`` and is one of the kernel's
        first of another grid."""
        if grid in self._filled or len(self._filled) >= MOST_FILLED or not self._unfilled():
            return []
        self._filled.add(grid)
        if self.variant(True, True).lowered.dynamic_pointers:
            return []
        return list({allocation.base: allocation for _, allocation in pointed_at(self.params, args, memory)}.values())

    def _reads_unwritten(self, args: Sequence[int | float], memory: MemoryMap) -> list[Allocation]:
        """The allocations that a launch may touch, if some that it may read from hold bytes that nothing wrote."""
        touched = pointed_at(self.params, args, memory)
        allocations = {allocation.base: allocation for _, allocation in touched}
        lowered = self.variant(True, len(allocations) == len(touched)).lowered
        loads = {site.argument for site in lowered.sites if site.op != "tt.store"}
        unwritten = any(
            allocation.initialized is not None and (name in loads or None in loads) for name, allocation in touched
        )
        return list(allocations.values()) if unwritten and not lowered.dynamic_pointers else []

    def _waiting(
        self,
        grid: tuple[int, int, int],
        args: Sequence[int | float],
        memory: MemoryMap,
        checks: Checks,
        limits: LaunchLimits,
        disjoint: bool,
        weights: Sequence[float],
    ) -> LaunchResult:
        """Run programs that wait for later ones, as those of a grid barrier do: all are under way, and take turns."""
        chosen = self.variant(True, disjoint)  # unchecked code does not stop where programs synchronise
        order = Order(turns=0, patient=True)
        launch = KernelRun(
            self.name, self.params, chosen.lowered, chosen.code, grid, args, memory, checks, limits, order, None,
            weights,
        )  # fmt: skip
        return launch.run()


def _compiled(lowered: Lowered) -> _Variant:
    code = Code(lowered.text, lowered.symbol)
    try:
        code.now()
    except RuntimeError as error:  # LLVM's reader and verifier: element types or values that contradict each other
        raise TTIRError(f"the kernel makes no valid native code: {str(error)[:400]}") from error
    return _Variant(lowered, code)


_CACHE_SIZE = 256
_cache: OrderedDict[str, CompiledKernel] = OrderedDict()
_cache_lock = threading.Lock()


def compile_ttir(text: str, *, name: str | None = None) -> CompiledKernel:
    """Read a kernel's TTIR; cached by content. Native code is built at the first launch.

    Raises:
        TTIRError: malformed text.
        UnsupportedTTIR: a construct that is not simulated.
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


def clear_cache() -> None:
    """Clear the cache of kernels; those still referenced keep working."""
    with _cache_lock:
        _cache.clear()


__all__ = [
    "Checks", "CompiledKernel", "LaunchResult", "LaunchStats", "Param", "SimFinding", "StepLimit", "TTIRError",
    "UnsupportedTTIR", "clear_cache", "compile_ttir", "prepare",
]  # fmt: skip
