"""What is run only to be timed: launches are counted by their skeletons, operators by their forms, without values.

What a trial of autotuning writes is written again by the launch that follows, so a trial may leave memory as it is. A
benchmark's launches and PyTorch operators leave their results, so they are *postponed*: carried out when something
looks at what they write, or changes what they read; usually nothing does before that memory is freed. A kernel that
also reads what it writes, or updates it atomically, is executed in both cases; so is the first launch of a kernel, for
its checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch

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
from drkernel.sim.executor.skeleton.kernel import Skeleton, skeleton_of
from drkernel.sim.executor.skeleton.measure import SampleSettings, measure
from drkernel.sim.gpu.heap import Held
from drkernel.sim.gpu.operator_rules import FREE_OPERATORS, OperatorRule
from drkernel.sim.gpu.shapes import forms_of_new
from drkernel.sim.target.compile import KernelResources
from drkernel.sim.wire.commands import LaunchCommand, Ref

if TYPE_CHECKING:
    from drkernel.sim.gpu.engine import DeviceEngine

WORTH_BYTES = 4 << 20
"""a benchmark's launches on less memory are executed: that is quicker than building a skeleton"""
TUNING_BYTES = 1 << 18
"""and a tuner's: most of its kernels are compiled for it alone, which takes as long as building their skeletons"""
TUNING = SampleSettings(full_sectors=4e6, sample_sectors=2e6, max_error=0.1, most_sectors=4e7)
"""a tuner's choice needs no more: it tries many, and what it chose is counted in full where it is timed"""
Purpose = Literal["result", "tuning", "benchmark"]
MAX_POSTPONED = 64
"""launches; a benchmark of more carries out the earlier ones"""


@dataclass(frozen=True)
class _Postponed:
    """A launch or operator whose effect on memory is still to come; storages by address."""

    carry_out: Callable[[], None]
    touched: frozenset[int]
    written: frozenset[int]
    launch: tuple[Any, ...] | None = None
    """kernel, grid and arguments as the kernel takes them: addresses, while an operator holds its tensors itself"""

    def repeats(self, other: _Postponed) -> bool:
        """Whether it is the same launch on the same memory."""
        return self.launch is not None and self.launch == other.launch


class Trials:
    """Decides, by their current purpose, whether launches and operators are executed, counted or postponed."""

    def __init__(self, engine: DeviceEngine):
        self.purpose: Purpose = "result"
        self._engine = engine
        self._executed: set[str] = set()
        """kernels that ran with all checks"""
        self._postponed: list[_Postponed] = []
        self._freed: set[int] = set()
        """storages that the host has dropped, and that postponed operators hold"""

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
        if self.purpose == "tuning" or (self.purpose == "benchmark" and command.identity in self._executed):
            seconds = partial(self._engine.modelled_seconds, command, resources)
            trial = self._trial(command, held, seconds)
        touched = frozenset(one.base for one in held)
        if trial is not None and self.purpose == "benchmark":
            if touched.issuperset(base for base, _, _ in trial.stats.footprint):
                self._postpone(self._launch(command, _plain(command, held), touched, frozenset(trial.written)))
            else:  # it was given addresses: what happens to storages behind them is not seen from here
                trial = None
        if trial is None:
            self._carry_out()  # its pointers may come from memory
            self._executed.add(command.identity)
            return False
        self._engine.finish_launch(command, list(held), trial, resources)
        return True

    def _trial(
        self, command: LaunchCommand, held: Sequence[Held], seconds: Callable[[LaunchStats], float]
    ) -> LaunchResult | None:
        worth, settings = (TUNING_BYTES, TUNING) if self.purpose == "tuning" else (WORTH_BYTES, SampleSettings())
        if sum({one.base: one.nbytes for one in held}.values()) < worth:
            return None
        skeleton = skeleton_of(command.ttir, command.name)
        if skeleton.serial or skeleton.lowered.dynamic_pointers:
            return None
        if skeleton.reads:
            self.before([one.base for one in held], changes=False)
        return trial_of(skeleton, command, held, self._engine.memory, seconds, self._engine.weights(command), settings)

    def operator(
        self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any], inputs: Sequence[Held]
    ) -> torch.Tensor | tuple[torch.Tensor, ...] | None:
        """Return new tensors for the results of a benchmark's operator, which is postponed; None where it must run.

        It must where it does more than make tensors from floating-point ones, and where that is quick.
        """
        bases = frozenset(one.base for one in inputs)
        if (
            self.purpose != "benchmark"
            or rule.written
            or rule.draws
            or rule.allocates
            or rule.base in FREE_OPERATORS
            or sum({one.base: one.nbytes for one in inputs}.values()) < WORTH_BYTES
            or not all(one.tensor.dtype.is_floating_point for one in inputs)
            or any(one.launch is not None and not one.written.isdisjoint(bases) for one in self._postponed)
        ):
            return None
        forms = forms_of_new(rule.call, [_form(one) for one in args], {key: _form(one) for key, one in kwargs.items()})
        if forms is None:
            return None
        made = [torch.empty_strided(size, stride, dtype=dtype) for size, stride, dtype in forms]

        def carry_out() -> None:
            found = self._engine.computed(rule, args, kwargs)
            for result, value in zip(made, [found] if isinstance(found, torch.Tensor) else found, strict=True):
                result.copy_(value)

        written = frozenset(one.untyped_storage().data_ptr() for one in made)
        self._postpone(_Postponed(carry_out, bases | written, written))
        return tuple(made) if len(made) > 1 else made[0]

    def _launch(
        self, command: LaunchCommand, args: list[Any], touched: frozenset[int], written: frozenset[int]
    ) -> _Postponed:
        def carry_out() -> None:  # the host may have dropped the tensors, but not their storages
            kernel = compile_ttir(command.ttir, name=command.name)
            nothing = Checks(uninitialized=False, race=False)
            self._engine.run_kernel(kernel, command.grid, args, nothing, IN_ORDER)

        return _Postponed(carry_out, touched, written, (command.ttir, command.grid, tuple(args)))

    def _postpone(self, one: _Postponed) -> None:
        changed = {base for earlier in self._postponed for base in earlier.written}
        if changed.isdisjoint(one.touched - one.written):  # it reads the same again: the earlier one is void
            self._postponed = [earlier for earlier in self._postponed if not earlier.repeats(one)]
        if len(self._postponed) >= MAX_POSTPONED:
            self._carry_out()
        self._postponed.append(one)

    def before(self, bases: Sequence[int], *, changes: bool) -> None:
        """Carry out what is postponed before storages are read or, if ``changes``, written."""
        for one in self._postponed:
            if not (one.touched if changes else one.written).isdisjoint(bases):
                self._carry_out()
                return

    def before_free(self, base: int | None) -> None:
        """Forget what nobody will see when a storage goes; carry out launches that still need it."""
        if base is None or not self._postponed:
            return
        freed, kept, needed = self._freed | {base}, list[_Postponed](), set[int]()
        for one in reversed(self._postponed):
            if one.written <= freed and needed.isdisjoint(one.written):
                continue
            kept.append(one)
            needed |= one.touched
        if any(base in one.touched and one.launch is not None for one in kept):
            self._carry_out()
            return
        self._postponed = kept[::-1]
        self._freed = freed & {base for one in kept for base in one.written}

    def _carry_out(self) -> None:
        postponed, self._postponed = self._postponed, []
        self._freed.clear()
        for one in postponed:
            one.carry_out()


def _form(value: Any) -> Any:
    """An operator's argument with meta tensors in place of tensors."""
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    return [_form(item) for item in value] if isinstance(value, (list, tuple)) else value


def trial_of(
    skeleton: Skeleton,
    command: LaunchCommand,
    held: Sequence[Held],
    memory: MemoryMap,
    clock: Callable[[LaunchStats], float],
    weights: Sequence[float],
    settings: SampleSettings,
) -> LaunchResult | None:
    """Count a trial launch, sampling programs of large ones; None for a launch that must be executed.

    ``clock`` gives the modelled seconds of a launch with these counts; ``weights`` what entering each block costs a
    program.

    Raises:
        StepLimit: a program loops beyond its budget.
    """
    for one in held:
        allocation = memory.find(one.base)
        if allocation is not None:  # where programs go, and what they address, may be told by data, which is there
            allocation.contents = allocation.base
    args = _plain(command, held)
    limits = Limits(DEFAULT_STEP_LIMIT, DEFAULT_TIME_LIMIT)
    found = measure(skeleton, command.grid, args, memory, limits, settings, clock, weights)
    if found.stats.atomics or any(use.read.value and use.written.value for use in found.uses):
        return None
    written = tuple(use.base for use in found.uses if use.written.value)
    return LaunchResult(found.findings, found.stats, 0.0, (), written)


def _plain(command: LaunchCommand, held: Sequence[Held]) -> list[Any]:
    """A launch's arguments with addresses for tensors."""
    addresses = {one.spec.handle: one.spec.address for one in held}
    return [addresses[arg.handle] if isinstance(arg, Ref) else arg for arg in command.args]
