"""Kernel launches without data: counted by running their skeletons, cached, and checked for missing steering data."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from drkernel.sim.gpu.datafree.addresses import AddressHeap
from drkernel.sim.gpu.datafree.records import DataDependence, DataFree, LaunchSample, SampledUse
from drkernel.sim.gpu.heap import Held
from drkernel.sim.wire.commands import LaunchCommand, Ref
from ttir_executor.compiled import DEFAULT_STEP_LIMIT, DEFAULT_TIME_LIMIT
from ttir_executor.launch import LaunchLimits
from ttir_executor.skeleton.kernel import Skeleton, SteeringRead, skeleton_of
from ttir_executor.skeleton.measure import Clock, SampledCounts, SampleSettings, measure

_STANDS_FOR = 4
"""programs whose steps one program may make where programs steer one another"""
_REMEMBERED = 512
"""launches whose counts are kept: the same launch on other memory counts the same"""


@dataclass(frozen=True)
class Counted:
    """A launch, counted."""

    measured: SampledCounts
    dependences: tuple[DataDependence, ...]
    written: tuple[int, ...]
    """addresses of the storages that the launch wrote"""


class LaunchCounter:
    """Counts launches on the memory of one data-free device."""

    def __init__(self, heap: AddressHeap, settings: DataFree):
        self.heap, self.settings = heap, settings
        self._known: OrderedDict[Any, tuple[tuple[int, ...], SampledCounts]] = OrderedDict()

    def count(
        self,
        command: LaunchCommand,
        clock: Clock,
        weights: Sequence[float],
        rough: SampleSettings | None = None,
        bound: float = math.inf,
    ) -> Counted:
        """Count one launch. What it wrote has no contents any more. ``weights``: what entering each block costs a
        program; ``rough``: how well to count it, if not as any launch, and ``bound``: modelled seconds beyond which
        its time need not be known.

        Raises:
            StepLimit: a program loops beyond its budget, or all of it takes too long here.
        """
        skeleton = skeleton_of(command.ttir, command.name)
        held = [self.heap.held(arg.handle) if isinstance(arg, Ref) else None for arg in command.args]
        dependences = list(self._dependences(skeleton, command, held))
        measured = self._measured(skeleton, command, held, clock, weights, rough, bound)
        if measured.without_data is not None and not dependences:
            dependences.append(_steered(command.name, measured.without_data, "an address that it got from memory"))
        written = tuple(use.base for use in measured.uses if use.written.value)
        kept = self._kept(skeleton, held)
        for base in written:
            if base not in kept:
                self.heap.forget(base)
        return Counted(measured, tuple(dependences), written)

    # ---- counting once

    def _measured(
        self,
        skeleton: Skeleton,
        command: LaunchCommand,
        held: Sequence[Held | None],
        clock: Clock,
        weights: Sequence[float],
        rough: SampleSettings | None,
        bound: float,
    ) -> SampledCounts:
        args = [
            one.spec.address if one is not None else arg for one, arg in zip(held, command.args, strict=True)
        ]  # fmt: skip
        key, bases = _pattern(command, held)
        cacheable = not skeleton.reads and not skeleton.lowered.dynamic_pointers
        if cacheable and key in self._known:
            self._known.move_to_end(key)
            before, measured = self._known[key]
            return _moved(measured, dict(zip(before, bases, strict=True)))
        # where programs take work from a counter, the first to run here does that of many
        share = min(_STANDS_FOR, math.prod(command.grid)) if skeleton.serial else 1
        limits = LaunchLimits(DEFAULT_STEP_LIMIT * share, DEFAULT_TIME_LIMIT)
        terms = skeleton, command.grid, args, self.heap.memory, limits
        if rough is not None:
            return measure(*terms, rough, clock, weights, bound)
        found = measure(*terms, self.settings.sample, clock, weights)
        if cacheable and not found.findings:
            self._known[key] = (bases, found)
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return found

    # ---- what steers

    def _dependences(
        self, skeleton: Skeleton, command: LaunchCommand, held: Sequence[Held | None]
    ) -> list[DataDependence]:
        """Return loads and atomics that decide control flow or addresses and read missing contents."""
        named = {param.name: one for param, one in zip(skeleton.kernel.params, held, strict=True)}
        written = {named[name].base for name in skeleton.loose if name in named and named[name] is not None}  # type: ignore[union-attr]
        found = []
        for read in skeleton.reads:
            one = named.get(read.argument) if read.argument is not None else None
            if one is not None and (not self.heap.has_contents(one) or one.base in written):
                by = f"argument {read.argument!r}"
                found.append(_steered(command.name, _place(read), by, read.decides, one.base))
        return list(dict.fromkeys(found))

    def _kept(self, skeleton: Skeleton, held: Sequence[Held | None]) -> set[int]:
        """Return the storages into which the launch writes only steering data, so that their contents are right."""
        named = {param.name: one for param, one in zip(skeleton.kernel.params, held, strict=True)}
        followed = {one.base for name, one in named.items() if one is not None and name in skeleton.followed}
        loose = {one.base for name, one in named.items() if one is not None and name in skeleton.loose}
        return set() if None in skeleton.loose else followed - loose


def sample_of(measured: SampledCounts, sizes: dict[int, int], *, rough: bool) -> LaunchSample:
    """Build the report of a launch; ``sizes`` are those of storages, by address."""
    stats = measured.stats
    return LaunchSample(
        programs=stats.programs,
        looked_at=min(measured.sampled, stats.programs),
        error=measured.error,
        load_bytes=stats.load_sectors * 32.0,
        store_bytes=stats.store_sectors * 32.0,
        operations=dict(stats.flops),
        atomics=stats.atomics,
        uses=tuple(
            SampledUse(
                use.base, sizes.get(use.base, use.nbytes), use.read.value, use.written.value, use.written.low
            )
            for use in measured.uses
        ),
        rough=rough,
    )  # fmt: skip


def _steered(kernel: str, place: str, by: str, decides: str = "where it goes", base: int = 0) -> DataDependence:
    message = f"kernel {kernel} depends on data: {place} of {by} decides {decides}, and reads what has no contents"
    return DataDependence("steering", f"{kernel}, {place}", message, base)


def _place(read: SteeringRead) -> str:
    what = "an atomic" if "atomic" in read.operation else "a load"
    line = read.loc.rpartition("/")[2]
    return f"{what} at {line}" if line else what


def _pattern(command: LaunchCommand, held: Sequence[Held | None]) -> tuple[Any, tuple[int, ...]]:
    """Return what a launch's counts depend on besides contents, and its storages, which appear there by number."""
    bases: list[int] = []
    args: list[Any] = []
    for one, arg in zip(held, command.args, strict=True):
        if one is None:
            args.append((type(arg).__name__, arg))
            continue
        if one.base not in bases:
            bases.append(one.base)
        args.append((bases.index(one.base), one.spec.address - one.base, one.nbytes))
    key = (command.ttir, command.grid, command.num_warps, command.num_stages, tuple(args))
    return key, tuple(bases)


def _moved(measured: SampledCounts, places: dict[int, int]) -> SampledCounts:
    """Return the same counts for other storages."""
    uses = tuple(replace(use, base=places[use.base]) for use in measured.uses)
    footprint = tuple((places[base], read, written) for base, read, written in measured.stats.footprint)
    sites = tuple((n, places.get(base, base), asked, lanes) for n, base, asked, lanes in measured.stats.sites)
    return replace(measured, uses=uses, stats=replace(measured.stats, footprint=footprint, sites=sites))
