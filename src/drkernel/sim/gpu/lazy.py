"""When launches and operators are carried out: now, when something looks at what they write, or never.

A launch, by what it is for (:meth:`LazyWork.when`):

- without data: never. It is counted by its skeleton, an operator by its form.
- *tuning*: never, since the launch that follows writes the same again.
- *benchmark*: on read, if its kernel has run with all checks.
- *script* that a person runs: on read, with all checks, if it takes long and its kernel ran before. One that nothing
  looks at is told as not executed.
- *result*: now.

What is not carried out now is counted, and its memory is left as it is. Where that cannot be (a tuner's kernel reads
what it writes, which on a GPU spoils its result; programs wait for later ones), and where little is touched, it is
carried out now.

Of operators a benchmark's wait; wherever they are drawn, so do many random numbers and what operators make of them:
they are inputs, as a rule, and nobody looks at their values. What waits is carried out, all of it and in order, when
something reads what one of them writes or changes what one of them touches; usually nothing does before that memory
goes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch

from drkernel.sim.gpu.accounts import LaunchKey, launch_key
from drkernel.sim.gpu.counting import Counted, LaunchCounter, given_to
from drkernel.sim.gpu.heap import Held, bytes_of, plain_arguments, poison
from drkernel.sim.gpu.operator_rules import FREE_OPERATORS, OperatorRule
from drkernel.sim.gpu.shapes import bare, forms_of_new, mapped
from drkernel.sim.target import KernelResources
from drkernel.sim.wire.commands import LaunchCommand
from ttir_executor.compiled import Checks, LaunchStats, StepLimit, compile_ttir
from ttir_executor.order import IN_ORDER
from ttir_executor.skeleton.measure import TUNING, SampleSettings
from ttir_executor.skeleton.slim import skeleton_of

if TYPE_CHECKING:
    from drkernel.sim.gpu.engine import DeviceEngine

BENCHMARK = SampleSettings(probed_sectors=1e7)
"""the same as for a launch without data, but where programs are long fewer tell how often one reads the same bytes"""
Purpose = Literal["result", "script", "tuning", "benchmark"]
When = Literal["now", "on read", "never"]
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
class _Executed:
    """The last launch of a kernel that ran with all checks."""

    seconds: float
    """what it takes to execute, by its counts"""
    nbytes: int
    """of its arguments' storages"""


class LazyWork:
    """Decides when launches and operators are carried out, and keeps those that are still to come."""

    def __init__(self, engine: DeviceEngine):
        self.purpose: Purpose = "result"
        self._engine = engine
        self._counter = LaunchCounter(engine)
        self.worth = WORTH["auto"]
        self.unexecuted: Counter[LaunchKey] = Counter()
        """a script's launches that have not been executed, since nothing looked"""
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

    # ---- launches

    def when(self, command: LaunchCommand, held: Sequence[Held]) -> When:
        """When a launch should be carried out, by what it is for."""
        if self.purpose == "tuning" or self._engine.data_free is not None:
            return "never"
        if self.purpose == "benchmark":
            return "on read" if command.identity in self._executed else "now"
        waits = self.purpose == "script" and self._may_be_long(command, held)
        return "on read" if waits and ASSERTS not in command.ttir else "now"  # the host asks about them when it waits

    def launch(
        self, command: LaunchCommand, held: Sequence[Held], resources: KernelResources | None, place: int
    ) -> bool:
        """Count a launch, to be carried out later or never, where that can be; else return False, and it is to be
        carried out now. ``place``: its number."""
        if self.purpose != "tuning":
            self._fastest.clear()
        when = self.when(command, held)
        found = None if when == "now" else self._counted(command, held, resources)
        if found is None:
            self._carry_out()  # its pointers may come from memory
            return False
        self._engine.finish_launch(command, held, found.result, resources, found)
        if self.purpose == "tuning":
            seconds = self._engine.accounts.launches[-1].seconds
            self._fastest[command.name, *command.args] = min(self._bound(command), seconds)
        if when == "on read":
            self._postpone(self._launch(command, held, found, place if self.purpose == "script" else None))
        return True

    def _bound(self, command: LaunchCommand) -> float:
        """Modelled seconds beyond which the time of a tuner's trial does not matter: those of the fastest so far."""
        return self._fastest.get((command.name, *command.args), math.inf)

    def _counted(
        self, command: LaunchCommand, held: Sequence[Held], resources: KernelResources | None
    ) -> Counted | None:
        """The counts of a launch, None where it has to be executed."""
        tuning, settings = self.purpose == "tuning", self._engine.data_free
        if settings is None:
            return self._with_data(command, held, resources)
        rough = settings.tuning if tuning else None
        bound = self._bound(command) if rough else math.inf
        terms = command, held, resources, rough or settings.sample, bound
        try:
            return self._counter.count_forms(*terms, rough=rough is not None)
        except StepLimit as error:
            self._engine.fault = str(error)
            raise

    def executed(self, command: LaunchCommand, held: Sequence[Held], stats: LaunchStats) -> None:
        """Remember that a kernel ran with all checks, and how long that takes."""
        self._executed[command.identity] = _Executed(execution_seconds(stats), bytes_of(held))

    def _may_be_long(self, command: LaunchCommand, held: Sequence[Held]) -> bool:
        """Whether executing takes long if it grows with the square of the arguments' bytes."""
        before = self._executed.get(command.identity)
        if before is None or not before.nbytes:
            return False
        return before.seconds * max(1.0, bytes_of(held) / before.nbytes) ** 2 >= self.worth.long_seconds

    def _with_data(
        self, command: LaunchCommand, held: Sequence[Held], resources: KernelResources | None
    ) -> Counted | None:
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
        named, names = given_to(skeleton, command, held), {read.argument for read in skeleton.reads}
        if not names <= named.keys():
            return None  # what steers it is not known
        steering = frozenset(one.base for name, one in named.items() if name in names)
        if skeleton.serial and not self._may_copy(command, held, steering, anywhere):
            return None
        if skeleton.reads:
            self.before(own if anywhere else steering, changes=False)
        settings, apart = TUNING if tuning else BENCHMARK, steering if skeleton.serial else frozenset[int]()
        try:
            counts = self._counter.count(skeleton, command, held, resources, settings, self._bound(command), apart)
        except StepLimit:
            if not skeleton.serial:
                raise
            self._waits.add(command.identity)  # for programs after it
            return None
        if anywhere and not steering.isdisjoint(use.base for use in counts.uses if use.written.high):
            return None
        found = Counted(counts, self._engine.heap.bases() if anywhere else own, rough=tuning)
        return found if self._may_wait(found, anywhere) else None

    def _may_wait(self, found: Counted, anywhere: bool) -> bool:
        """Whether nothing is lost if a launch with these counts is not carried out now. ``anywhere``: it takes pointers
        from memory."""
        if self.purpose == "tuning":
            return not found.updates
        if not found.touched.issuperset(use.base for use in found.measured.uses):
            return False  # it was given addresses: what happens to storages behind them is not seen from here
        if anywhere and not found.measured.stores_known:
            return False
        if self.purpose == "benchmark":
            return True
        # what one that updates reads of memory that nothing wrote cannot be told later
        return not found.updates and execution_seconds(found.measured.stats) >= self.worth.long_seconds

    def _may_copy(self, command: LaunchCommand, held: Sequence[Held], steering: frozenset[int], anywhere: bool) -> bool:
        """Whether a kernel whose programs tell each other where to go may be counted, on copies of what they tell."""
        told = bytes_of([one for one in held if one.base in steering])
        known = command.identity not in self._waits and not anywhere
        return self.purpose == "benchmark" and known and told <= SERIAL_BYTES

    # ---- operators

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
            made = _results(rule, args, kwargs) if self._is_worth(rule, inputs) else None
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

    def _is_worth(self, rule: OperatorRule, inputs: Sequence[Held]) -> bool:
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
        if not heap.has_data:
            return
        fill = partial(poison, tensor, heap.poison_policy, heap.noise)
        if self.purpose == "result" or tensor.nbytes < self.worth.drawn_bytes or heap.poison_policy == "random":
            fill()
            return
        base = frozenset([tensor.untyped_storage().data_ptr()])
        self._postpone(_Postponed(fill, base, base))

    def _launch(self, command: LaunchCommand, held: Sequence[Held], found: Counted, place: int | None) -> _Postponed:
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
        return _Postponed(carry_out, found.touched, frozenset(found.result.written), launch, found.updates)

    # ---- what is still to come

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
