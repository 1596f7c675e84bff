"""Decides whether unwritten memory affected a launch, by running it again on other contents.

A kernel may load unwritten bytes and discard them: ``tl.where`` on the upper triangle of a block, a masked sum. The
load is noticed when it happens. Whether it matters shows when the unwritten bytes hold something else: if every byte
written, every print and every other finding is then the same, the values reached no store, no branch and no address,
and there is nothing to report.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ttir_executor.allocations import Allocation
from ttir_executor.lower.function import Site
from ttir_executor.results import LaunchResult, SimFinding, StepLimit

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
    return np.ctypeslib.as_array((ctypes.c_uint8 * allocation.nbytes).from_address(allocation.base))


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
