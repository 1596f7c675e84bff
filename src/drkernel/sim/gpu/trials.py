"""What is run only to be timed: launches are counted by their skeletons, operators by their forms, without values.

What a trial of autotuning writes is written again by the launch that follows, so a trial may leave memory as it is. A
benchmark's launches and PyTorch operators leave their results, so they are *postponed*: carried out when something
looks at what they write, or changes what they read; usually nothing does before that memory is freed. The first launch
of a kernel is executed, for its checks; so are a tuner's trials of a kernel that reads what it writes or updates it
atomically, which on a GPU spoil its result. Many random numbers, and what operators make of them, are postponed
wherever they are drawn: they are a benchmark's inputs, as a rule, and nobody looks at their values.

Where a person runs a script (:attr:`Trials.lazy`), long launches of kernels that ran before are postponed, too, and
executed with all checks when something looks; one that nothing looks at is told as not executed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from ctypes import string_at
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from drkernel.sim.gpu.accounts import LaunchKey, launch_key
from drkernel.sim.gpu.heap import Held, bytes_of, poison
from drkernel.sim.gpu.operator_rules import FREE_OPERATORS, OperatorRule
from drkernel.sim.gpu.shapes import bare, forms_of_new, mapped
from drkernel.sim.target.shared_memory import KernelResources
from drkernel.sim.wire.commands import LaunchCommand, Ref
from ttir_executor.allocations import MemoryMap
from ttir_executor.compiled import (
    DEFAULT_STEP_LIMIT,
    DEFAULT_TIME_LIMIT,
    PATIENCE,
    Checks,
    LaunchResult,
    LaunchStats,
    StepLimit,
    compile_ttir,
)
from ttir_executor.launch import LaunchLimits
from ttir_executor.order import IN_ORDER
from ttir_executor.skeleton.measure import TUNING, Clock, SampledCounts, SampleSettings, measure
from ttir_executor.skeleton.slim import Skeleton, skeleton_of

if TYPE_CHECKING:
    from drkernel.sim.gpu.engine import DeviceEngine

BENCHMARK = SampleSettings(probed_sectors=1e7)
"""the same as for a launch without data, but where programs are long fewer tell how often one reads the same bytes"""
Purpose = Literal["result", "tuning", "benchmark"]
POINTERS_MADE = "tt.int_to_ptr"
"""in a kernel's text where it makes pointers of numbers"""
ASSERTS = "tt.assert"
"""in its text where it asserts"""
SERIAL_BYTES = 64 << 20
"""what may be copied for a launch whose programs tell each other where to go"""
_NANOSECONDS = {"sfu": 2.0, "tensor": 0.09, "other": 0.6, "sector": 3.0}
"""what executing an operation, or reading or writing 32 bytes, takes here, roughly: it is the same on every machine"""
MAX_POSTPONED = 64
"""launches; a benchmark of more carries out the earlier ones"""


@dataclass(frozen=True)
class Worth:
    """From which size on it pays not to execute, or not yet."""

    benchmark_bytes: float = 4 << 20
    """a benchmark's launches on less memory are executed: that is quicker than building a skeleton"""
    tuning_bytes: float = 1 << 18
    """and a tuner's: most of its kernels are compiled for it alone, which takes as long as building their skeletons"""
    drawn_bytes: float = 16 << 20
    """random numbers that are not drawn, and fresh memory that is not filled, before something looks at them"""
    long_seconds: float = 1.0
    """of an ordinary launch's execution; one that takes longer is postponed where scripts allow that"""


Execution = Literal["auto", "late", "at once"]
WORTH: dict[Execution, Worth] = {
    "auto": Worth(),
    "late": Worth(0, 0, 0, 0),
    "at once": Worth(math.inf, math.inf, math.inf, math.inf),
}
"""what may wait does from some size on, at any size, or never"""


@dataclass(frozen=True)
class _Postponed:
    """A launch or operator whose effect on memory is still to come; storages by address."""

    carry_out: Callable[[], None]
    touched: frozenset[int]
    written: frozenset[int]
    launch: tuple[Any, ...] | None = None
    """kernel, grid and arguments as the kernel takes them: addresses, while an operator holds its tensors itself"""
    updates: bool = False
    """whether a launch reads what it writes, so that it does something else the second time"""

    def repeats(self, other: _Postponed) -> bool:
        """Whether it is the same launch on the same memory, to the same effect."""
        return self.launch is not None and self.launch == other.launch and not self.updates


@dataclass(frozen=True)
class _Trial:
    """The counts of a launch that is not executed."""

    result: LaunchResult
    touched: frozenset[int]
    """storages that it may read or write: those of its arguments, or all, where it takes pointers from memory"""
    updates: bool
    """whether it reads what it writes"""


@dataclass(frozen=True)
class _Executed:
    """The last launch of a kernel that ran with all checks."""

    seconds: float
    """what it takes to execute, by its counts"""
    nbytes: int
    """of its arguments' storages"""


class Trials:
    """Decides, by their current purpose, whether launches and operators are executed, counted or postponed."""

    def __init__(self, engine: DeviceEngine):
        self.purpose: Purpose = "result"
        self._engine = engine
        self.worth = WORTH["auto"]
        self.lazy = False
        """whether long launches wait until something looks at what they write"""
        self.unexecuted: Counter[LaunchKey] = Counter()
        """ordinary launches that have not been executed, since nothing looked"""
        self._executed: dict[str, _Executed] = {}
        """kernels that ran with all checks, by identity"""
        self._postponed: list[_Postponed] = []
        self._freed: set[int] = set()
        """storages that the host has dropped, and that postponed operators hold"""
        self._kept: dict[int, int] = {}
        """storages that the host has dropped, and that postponed launches need -> the last handle over each"""
        self._waits: set[str] = set()
        """kernels whose programs wait for later ones"""
        self._fastest: dict[tuple[Any, ...], float] = {}
        """kernel and arguments -> modelled seconds of the fastest trial of the tuning that is under way"""
        engine.heap.make_room = self._carry_out

    @contextmanager
    def running_for(self, purpose: Purpose) -> Iterator[None]:
        """Within the block launches have this purpose."""
        before, self.purpose = self.purpose, purpose
        try:
            yield
        finally:
            self.purpose = before

    def begin(self) -> None:
        """A launch begins. One that is no trial ends the tuning before it."""
        if self.purpose != "tuning":
            self._fastest.clear()

    def bound(self, command: LaunchCommand) -> float:
        """Modelled seconds beyond which the time of a tuner's trial does not matter: those of the fastest so far."""
        return self._fastest.get((command.name, *command.args), math.inf)

    def timed(self, command: LaunchCommand, clock: Clock, stats: LaunchStats) -> None:
        """Remember the time of a tuner's trial; other launches are not timed for that."""
        if self.purpose == "tuning":
            self._fastest[command.name, *command.args] = min(self.bound(command), clock(stats))

    def counted(
        self, command: LaunchCommand, held: Sequence[Held], resources: KernelResources | None, place: int
    ) -> bool:
        """Count a launch without executing it, where its purpose and its kernel allow that. ``place``: its number."""
        trial, waits = None, self.purpose == "benchmark" and command.identity in self._executed
        long = self.purpose == "result" and self.lazy and self._may_be_long(command, held)
        long = long and ASSERTS not in command.ttir  # the host asks about them when it synchronises
        if self.purpose == "tuning" or waits or long:
            seconds = partial(self._engine.modelled_seconds, command, resources)
            trial = self._trial(command, held, seconds)
        if long and trial is not None and (trial.updates or self._is_short(trial)):
            trial = None  # what one that updates reads of memory that nothing wrote cannot be told later
        if trial is None:
            self._carry_out()  # its pointers may come from memory
            return False
        self._engine.finish_launch(command, list(held), trial.result, resources)
        if waits or long:
            self._postpone(self._launch(command, held, trial, place if long else None))
        return True

    def executed(self, command: LaunchCommand, held: Sequence[Held], stats: LaunchStats) -> None:
        """Remember that a kernel ran with all checks, and how long that takes."""
        self._executed[command.identity] = _Executed(execution_seconds(stats), bytes_of(held))

    def _is_short(self, trial: _Trial) -> bool:
        return execution_seconds(trial.result.stats) < self.worth.long_seconds

    def _may_be_long(self, command: LaunchCommand, held: Sequence[Held]) -> bool:
        """Whether executing takes long if it grows with the square of the arguments' bytes."""
        before = self._executed.get(command.identity)
        if before is None or not before.nbytes:
            return False
        return before.seconds * max(1.0, bytes_of(held) / before.nbytes) ** 2 >= self.worth.long_seconds

    def _trial(self, command: LaunchCommand, held: Sequence[Held], seconds: Clock) -> _Trial | None:
        tuning = self.purpose == "tuning"
        worth = self.worth.tuning_bytes if tuning else self.worth.benchmark_bytes
        nbytes = bytes_of(held)
        if POINTERS_MADE in command.ttir:  # its arguments may be tables that lead anywhere
            nbytes = self._engine.heap.used_bytes
        if nbytes < worth:
            return None
        skeleton = skeleton_of(command.ttir, command.name)
        own, anywhere = frozenset(one.base for one in held), skeleton.lowered.dynamic_pointers
        if skeleton.serial and anywhere:
            skeleton = skeleton_of(command.ttir, command.name, apart=True)
        steering = _steering(skeleton, command, held)
        if steering is None or (skeleton.serial and not self._may_copy(command, held, steering, anywhere)):
            return None
        if skeleton.reads:
            self.before(own if anywhere else steering, changes=False)
        weights = self._engine.weights(command)
        bound = self.bound(command)
        apart, settings = steering if skeleton.serial else frozenset(), TUNING if tuning else BENCHMARK
        try:
            found = trial_of(skeleton, command, held, self._engine.memory, seconds, weights, settings, bound, apart)
        except StepLimit:
            if not skeleton.serial:
                raise
            self._waits.add(command.identity)  # for programs after it
            return None
        updates = bool(found.stats.atomics) or any(use.read.value and use.written.value for use in found.uses)
        if (tuning and updates) or (
            anywhere and not steering.isdisjoint(use.base for use in found.uses if use.written.high)
        ):
            return None
        self.timed(command, seconds, found.stats)
        touched = self._engine.heap.bases() if anywhere else own
        if not tuning and not touched.issuperset(use.base for use in found.uses):
            return None  # it was given addresses: what happens to storages behind them is not seen from here
        if not tuning and anywhere and not found.stores_known:
            return None
        written = tuple(use.base for use in found.uses if use.written.value)
        return _Trial(LaunchResult(found.findings, found.stats, 0.0, (), written), touched, updates)

    def _may_copy(self, command: LaunchCommand, held: Sequence[Held], steering: frozenset[int], anywhere: bool) -> bool:
        """Whether a kernel whose programs tell each other where to go may be counted, on copies of what they tell."""
        told = bytes_of([one for one in held if one.base in steering])
        known = command.identity not in self._waits and not anywhere
        return self.purpose == "benchmark" and known and told <= SERIAL_BYTES

    def operator(
        self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any], inputs: Sequence[Held]
    ) -> torch.Tensor | tuple[torch.Tensor, ...] | None:
        """Return tensors for the results of an operator that is postponed; None where it must run.

        A benchmark's is postponed; besides, many random numbers that are drawn, and what is made of what is still to
        come. An operator must run where it does more than make tensors from floating-point ones, or change one
        element by element (as gradients are added up), and where that is quick.
        """
        bases = frozenset[int]() if rule.by_form else frozenset(one.base for one in inputs)
        if rule.draws:  # in place, it may be made at any later time: nothing before it may still need what is there
            needed = any(not one.touched.isdisjoint(bases) for one in self._postponed)
            made = None if needed else self._drawn(rule, args, kwargs)
        elif self.purpose == "benchmark" or any(not one.written.isdisjoint(bases) for one in self._postponed):
            made = _results(rule, args, kwargs) if self._may_wait(rule, inputs) else None
        else:
            made = None
        if made is None:
            return None
        random = self._engine.random
        draw = random.drawing(rule, args, kwargs) if rule.draws else partial(self._engine.computed, rule, args, kwargs)

        def carry_out() -> None:
            if rule.draws:
                self._engine.counters.executed[rule.base] += 1
            found = draw()
            for result, value in zip(made, [found] if isinstance(found, torch.Tensor) else found, strict=True):
                if result is not value:
                    result.copy_(value)

        written = frozenset(one.untyped_storage().data_ptr() for one in made)
        self._postpone(_Postponed(carry_out, bases | written, written))
        return tuple(made) if len(made) > 1 else made[0]

    def _may_wait(self, rule: OperatorRule, inputs: Sequence[Held]) -> bool:
        return not (
            rule.allocates
            or rule.base in FREE_OPERATORS
            or bytes_of(inputs) < self.worth.benchmark_bytes
            or not all(one.tensor.dtype.is_floating_point for one in inputs)
        )

    def _drawn(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any]) -> list[torch.Tensor] | None:
        """The tensor that will hold random numbers, if those are many and its form is known."""
        if self._engine.interference != "none" or self.purpose == "tuning":
            return None
        if rule.base in ("uniform_", "normal_"):
            made = args[0]
        elif rule.base in ("rand", "randn") and kwargs.keys() <= {"dtype", "generator"}:
            made = torch.empty(args[0], dtype=kwargs.get("dtype"))
        elif rule.base in ("rand_like", "randn_like") and kwargs.keys() <= {"dtype"}:
            made = torch.empty_like(args[0], dtype=kwargs.get("dtype"))
        else:
            return None
        if made.nbytes < self.worth.drawn_bytes or not made.dtype.is_floating_point:
            return None
        if made is args[0]:  # what it says about its numbers it says now
            rule.call(torch.empty(0, dtype=made.dtype), *args[1:], generator=torch.Generator())
        return [made]

    def poison(self, tensor: torch.Tensor) -> None:
        """Fill fresh memory with values that nothing must rely on; much of it when something looks."""
        heap = self._engine.heap
        fill = partial(poison, tensor, heap.poison_policy, heap.noise)
        waits = self.lazy or self.purpose != "result"
        if not waits or tensor.nbytes < self.worth.drawn_bytes or heap.poison_policy == "random":
            fill()
            return
        base = frozenset([tensor.untyped_storage().data_ptr()])
        self._postpone(_Postponed(fill, base, base))

    def _launch(self, command: LaunchCommand, held: Sequence[Held], trial: _Trial, place: int | None) -> _Postponed:
        """A counted launch that waits; ``place``: its number, if it is to be checked, as nothing was before."""
        args = plain_arguments(command, held)
        key = launch_key(command)
        if place is not None:
            self.unexecuted[key] += 1

        def carry_out() -> None:  # the host may have dropped the tensors, but not their storages
            kernel = compile_ttir(command.ttir, name=command.name)
            if place is None:
                nothing = Checks(uninitialized=False, race=False)
                self._engine.run_kernel(kernel, command.grid, args, nothing, IN_ORDER)
            else:
                self._engine.run_late(kernel, command, args, held, place)
                self.unexecuted[key] -= 1

        launch = command.ttir, command.grid, tuple(args)
        return _Postponed(carry_out, trial.touched, frozenset(trial.result.written), launch, trial.updates)

    def _postpone(self, one: _Postponed) -> None:
        changed = {base for earlier in self._postponed for base in earlier.written}
        if changed.isdisjoint(one.touched - one.written):  # it reads the same again: one that nobody read is void
            self._forget(lambda earlier: earlier.repeats(one))
        if len(self._postponed) >= MAX_POSTPONED:
            self._carry_out()
        self._postponed.append(one)

    def before(self, bases: Collection[int], *, changes: bool) -> None:
        """Carry out what is postponed before storages are read or, if ``changes``, written."""
        for one in self._postponed:
            if not (one.touched if changes else one.written).isdisjoint(bases):
                self._carry_out()
                return

    def keeps(self, handle: int) -> bool:
        """Forget what nobody will see when the host drops a handle. Return whether its storage stays for a launch that
        is still to come; it goes with that."""
        base = self._engine.heap.last_over(handle)
        if base is None or not self._postponed:
            return False
        freed = self._freed | {base}
        self._forget(lambda one: one.written <= freed)
        self._freed = freed & {base for one in self._postponed for base in one.written}
        stays = any(base in one.touched and one.launch is not None for one in self._postponed)
        if stays:
            self._engine.heap.drop(handle)
            self._kept[base] = handle
        self._release()
        return stays

    def _forget(self, void: Callable[[_Postponed], bool]) -> None:
        """Drop what is void, but for what later ones read."""
        kept, needed = list[_Postponed](), set[int]()
        for one in reversed(self._postponed):
            if not void(one) or not needed.isdisjoint(one.written):
                kept.append(one)
                needed |= one.touched
        self._postponed = kept[::-1]

    def _carry_out(self) -> None:
        postponed, self._postponed = self._postponed, []
        self._freed.clear()
        for one in postponed:
            one.carry_out()
        self._release()

    def _release(self) -> None:
        """Let storages go that no postponed launch needs any more."""
        needed = {base for one in self._postponed if one.launch is not None for base in one.touched}
        for base in self._kept.keys() - needed:
            self._engine.release(self._kept.pop(base))


def execution_seconds(stats: LaunchStats) -> float:
    """What executing a launch with these counts takes on a machine like the one that this was written on."""
    nanoseconds = (stats.load_sectors + stats.store_sectors) * _NANOSECONDS["sector"]
    for unit, count in stats.flops.items():
        kind = "tensor" if unit.startswith("tensor") else "sfu" if unit == "sfu" else "other"
        nanoseconds += count * _NANOSECONDS[kind]
    return nanoseconds * 1e-9


def _results(rule: OperatorRule, args: list[Any], kwargs: dict[str, Any]) -> list[torch.Tensor] | None:
    """The tensors that will hold an operator's results: new ones, or the one that it changes element by element; None
    for other operators. Raises what the operator raises about forms."""
    given, named = mapped(args, bare), {key: mapped(value, bare) for key, value in kwargs.items()}
    overload = getattr(rule.call, "overload", rule.call)
    if rule.written == {0} and torch.Tag.pointwise in getattr(overload, "tags", ()):
        rule.call(*given, **named)
        return [args[0]]
    forms = forms_of_new(rule.call, given, named)
    return None if forms is None else [torch.empty_strided(size, stride, dtype=dtype) for size, stride, dtype in forms]


def trial_of(
    skeleton: Skeleton,
    command: LaunchCommand,
    held: Sequence[Held],
    memory: MemoryMap,
    clock: Clock,
    weights: Sequence[float],
    settings: SampleSettings,
    bound: float = math.inf,
    apart: frozenset[int] = frozenset(),
) -> SampledCounts:
    """Count a trial launch, sampling programs of large ones.

    ``clock`` gives the modelled seconds of a launch with these counts; ``weights`` what entering each block costs a
    program. What surely takes longer than ``bound`` seconds need not be known better. Of the storages ``apart`` the
    launch gets copies: it changes what tells its programs where to go.

    Raises:
        StepLimit: a program loops beyond its budget.
    """
    copies = []
    for one in held:
        allocation = memory.find(one.base)
        if allocation is not None:  # where programs go, and what they address, may be told by data, which is there
            allocation.contents = allocation.base
            if one.base in apart:
                copies.append(
                    (allocation, np.frombuffer(string_at(allocation.base, allocation.nbytes), np.uint8).copy())
                )
                allocation.contents = copies[-1][1].ctypes.data
    args = plain_arguments(command, held)
    limits = LaunchLimits(PATIENCE if apart else DEFAULT_STEP_LIMIT, DEFAULT_TIME_LIMIT)
    try:
        return measure(skeleton, command.grid, args, memory, limits, settings, clock, weights, bound)
    finally:
        for allocation, _ in copies:
            allocation.contents = allocation.base


def _steering(skeleton: Skeleton, command: LaunchCommand, held: Sequence[Held]) -> frozenset[int] | None:
    """Storages of the arguments whose contents decide where programs go; None if it is not known which those are."""
    bases = {one.spec.handle: one.base for one in held}
    names = {read.argument for read in skeleton.reads}
    params = zip(skeleton.kernel.params, command.args, strict=True)
    given = {param.name: bases[value.handle] for param, value in params if isinstance(value, Ref)}
    return frozenset(given[name] for name in names if name is not None) if names <= given.keys() else None


def plain_arguments(command: LaunchCommand, held: Sequence[Held]) -> list[Any]:
    """A launch's arguments with addresses for tensors."""
    addresses = {one.spec.handle: one.spec.address for one in held}
    return [addresses[arg.handle] if isinstance(arg, Ref) else arg for arg in command.args]
