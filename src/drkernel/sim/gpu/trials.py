"""Launches that are run only to be timed: counted by their skeletons, without their values.

What a trial of autotuning writes is written again by the launch that follows, so a trial may leave memory as it is. A
benchmark's launches leave their results, so they are *postponed*: carried out when something looks at what they write,
or changes what they read; usually nothing does before that memory is freed. A kernel that also reads what it writes,
or updates it atomically, is executed in both cases; so is the first launch of a kernel, for its checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from drkernel.sim.executor.allocations import MemoryMap
from drkernel.sim.executor.compiled import (
    DEFAULT_STEP_LIMIT,
    DEFAULT_TIME_LIMIT,
    Checks,
    LaunchResult,
    LaunchStats,
    compile_ttir,
)
from drkernel.sim.executor.launch import Limits
from drkernel.sim.executor.order import IN_ORDER
from drkernel.sim.executor.skeleton.kernel import skeleton_of
from drkernel.sim.executor.skeleton.measure import SampleSettings, measure
from drkernel.sim.gpu.heap import Held
from drkernel.sim.target.compile import KernelResources
from drkernel.sim.wire.commands import LaunchCommand, Ref

if TYPE_CHECKING:
    from drkernel.sim.gpu.engine import DeviceEngine

WORTH_BYTES = 4 << 20
"""launches on less memory are executed: that is quicker than building a skeleton"""
Purpose = Literal["result", "tuning", "benchmark"]
MAX_POSTPONED = 64
"""launches; a benchmark of more carries out the earlier ones"""


@dataclass(frozen=True)
class _Postponed:
    """A launch whose effect on memory is still to come; storages by address."""

    command: LaunchCommand
    args: tuple[Any, ...]
    """as the kernel takes them: the host may have dropped the tensors, but not their storages"""
    touched: frozenset[int]
    written: frozenset[int]

    def repeats(self, other: _Postponed) -> bool:
        """Whether it is the same launch on the same memory."""
        mine, others = self.command, other.command
        return self.args == other.args and mine.grid == others.grid and mine.ttir == others.ttir


class Trials:
    """Decides, by the current purpose of launches, whether they are executed, counted or postponed."""

    def __init__(self, engine: DeviceEngine):
        self.purpose: Purpose = "result"
        self._engine = engine
        self._executed: set[str] = set()
        """kernels that ran with all checks"""
        self._postponed: list[_Postponed] = []

    @contextmanager
    def running_for(self, purpose: Purpose) -> Iterator[None]:
        """Within the block launches have this purpose."""
        before, self.purpose = self.purpose, purpose
        try:
            yield
        finally:
            self.purpose = before

    def counted(self, command: LaunchCommand, held: Sequence[Held], resources: KernelResources | None) -> bool:
        """Count a launch without executing it, where its purpose and its kernel allow that."""
        trial = None
        if self.purpose == "tuning" or (self.purpose == "benchmark" and command.ttir in self._executed):
            seconds = partial(self._engine.modelled_seconds, command, resources)
            trial = trial_of(command, held, self._engine.memory, seconds, self._engine.weights(command))
        touched = frozenset(one.base for one in held)
        if trial is not None and self.purpose == "benchmark":
            if touched.issuperset(base for base, _, _ in trial.stats.footprint):
                self._postpone(_Postponed(command, tuple(_plain(command, held)), touched, frozenset(trial.written)))
            else:  # it was given addresses: what happens to storages behind them is not seen from here
                trial = None
        if trial is None:
            self._carry_out()  # its pointers may come from memory
            self._executed.add(command.ttir)
            return False
        self._engine.finish_launch(command, list(held), trial, resources)
        return True

    def _postpone(self, launch: _Postponed) -> None:
        changed = {base for one in self._postponed for base in one.written}
        if changed.isdisjoint(launch.touched - launch.written):  # it reads the same again: the earlier one is void
            self._postponed = [one for one in self._postponed if not one.repeats(launch)]
        if len(self._postponed) >= MAX_POSTPONED:
            self._carry_out()
        self._postponed.append(launch)

    def before(self, bases: Sequence[int], *, changes: bool) -> None:
        """Carry out what is postponed before storages are read or, if ``changes``, written."""
        for one in self._postponed:
            if not (one.touched if changes else one.written).isdisjoint(bases):
                self._carry_out()
                return

    def before_free(self, base: int | None) -> None:
        """Forget launches whose results go away with a storage, if one does; carry out those that still need it."""
        if base is None or not self._postponed:
            return
        kept = [one for one in self._postponed if not one.written <= {base}]
        if any(base in one.touched for one in kept):
            self._carry_out()
        else:
            self._postponed = kept

    def _carry_out(self) -> None:
        launches, self._postponed = self._postponed, []
        for one in launches:
            kernel = compile_ttir(one.command.ttir, name=one.command.name)
            nothing = Checks(uninitialized=False, race=False)
            self._engine.run_kernel(kernel, one.command.grid, list(one.args), nothing, IN_ORDER)


def trial_of(
    command: LaunchCommand,
    held: Sequence[Held],
    memory: MemoryMap,
    clock: Callable[[LaunchStats], float],
    weights: Sequence[float],
) -> LaunchResult | None:
    """Count a trial launch, sampling programs of large ones; None for a launch that must be executed.

    ``clock`` gives the modelled seconds of a launch with these counts; ``weights`` what entering each block costs a
    program.

    Raises:
        StepLimit: a program loops beyond its budget.
    """
    if sum({one.base: one.nbytes for one in held}.values()) < WORTH_BYTES:
        return None
    skeleton = skeleton_of(command.ttir, command.name)
    if skeleton.reads or skeleton.serial or skeleton.lowered.dynamic_pointers:
        return None
    args = _plain(command, held)
    limits = Limits(DEFAULT_STEP_LIMIT, DEFAULT_TIME_LIMIT)
    found = measure(skeleton, command.grid, args, memory, limits, SampleSettings(), clock, weights)
    if found.stats.atomics or any(use.read.value and use.written.value for use in found.uses):
        return None
    written = tuple(use.base for use in found.uses if use.written.value)
    return LaunchResult(found.findings, found.stats, 0.0, (), written)


def _plain(command: LaunchCommand, held: Sequence[Held]) -> list[Any]:
    """A launch's arguments with addresses for tensors."""
    addresses = {one.spec.handle: one.spec.address for one in held}
    return [addresses[arg.handle] if isinstance(arg, Ref) else arg for arg in command.args]
