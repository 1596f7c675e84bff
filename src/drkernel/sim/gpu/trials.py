"""Launches that are run only to be timed, as those of autotuning: counted by their skeletons, without their values.

What a trial writes is written again by the launch that follows, so a trial may leave memory as it is. A kernel that
also reads what it writes, or updates it atomically, is different: its trials have an effect, and are executed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from drkernel.sim.cost.l2 import L2State
from drkernel.sim.cost.records import CostEstimate
from drkernel.sim.executor.allocations import MemoryMap
from drkernel.sim.executor.compiled import DEFAULT_STEP_LIMIT, DEFAULT_TIME_LIMIT, LaunchResult, LaunchStats
from drkernel.sim.executor.launch import Limits
from drkernel.sim.executor.skeleton.kernel import skeleton_of
from drkernel.sim.executor.skeleton.measure import SampleSettings, measure
from drkernel.sim.gpu.heap import Held
from drkernel.sim.gpu.journal import priced
from drkernel.sim.wire.commands import LaunchCommand, Ref

WORTH_BYTES = 4 << 20
"""launches on less memory are executed: that is quicker than building a skeleton"""
Price = Callable[[LaunchStats, L2State], CostEstimate]


def trial_of(
    command: LaunchCommand, held: Sequence[Held], memory: MemoryMap, l2: L2State, price: Price
) -> LaunchResult | None:
    """Count a trial launch, of large ones a sample of programs; None for one that has to be executed.

    Raises:
        StepLimit: a program loops beyond its budget.
    """
    if sum({one.base: one.nbytes for one in held}.values()) < WORTH_BYTES:
        return None
    skeleton = skeleton_of(command.ttir, command.name)
    if skeleton.reads or skeleton.serial or skeleton.lowered.dynamic_pointers:
        return None
    addresses = {one.spec.handle: one.spec.address for one in held}
    args = [addresses[arg.handle] if isinstance(arg, Ref) else arg for arg in command.args]

    def clock(stats: LaunchStats) -> float:
        return priced(lambda: price(stats, copy.deepcopy(l2))).seconds

    limits = Limits(DEFAULT_STEP_LIMIT, DEFAULT_TIME_LIMIT)
    found = measure(skeleton, command.grid, args, memory, limits, SampleSettings(), clock)
    if found.stats.atomics or any(use.read.value and use.written.value for use in found.uses):
        return None
    written = tuple(use.base for use in found.uses if use.written.value)
    return LaunchResult(found.findings, found.stats, 0.0, (), written)
