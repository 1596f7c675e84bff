"""Counts launches by running their skeletons, in place of executing them: with the data that is there, or without.

A kernel goes where its arguments and what it reads to *steer* by tell it. On a device with data that is there; on one
without it may be missing, which is a dependence on data. Counts that depend on no contents are kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import string_at
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from drkernel.base.files import Recent
from drkernel.sim.gpu.accounts import ILLEGAL
from drkernel.sim.gpu.datafree import DataDependence, DependsOnData
from drkernel.sim.gpu.heap import Held, plain_arguments
from drkernel.sim.target import KernelResources
from drkernel.sim.wire.commands import LaunchCommand, Ref
from ttir_executor.compiled import DEFAULT_STEP_LIMIT, DEFAULT_TIME_LIMIT, PATIENCE, LaunchResult
from ttir_executor.launch import LaunchLimits
from ttir_executor.skeleton.measure import SampledCounts, SampleSettings, measure
from ttir_executor.skeleton.slim import Skeleton, SteeringRead, skeleton_of

if TYPE_CHECKING:
    from drkernel.sim.gpu.engine import DeviceEngine

_STANDS_FOR = 4
"""programs whose steps one program may make where programs steer one another"""
_REMEMBERED = 512
"""launches whose counts are kept: the same launch on other memory counts the same"""


@dataclass(frozen=True)
class Counted:
    """The counts of a launch that is not executed."""

    measured: SampledCounts
    touched: frozenset[int]
    """storages that it may read or write: those of its arguments, or all, where it takes pointers from memory"""
    rough: bool = False
    """a tuner's trial: counted only as well as its choice needs"""

    @property
    def updates(self) -> bool:
        """Whether it reads what it writes."""
        found = self.measured
        return bool(found.stats.atomics) or any(use.read.value and use.written.value for use in found.uses)

    @property
    def result(self) -> LaunchResult:
        """As of a launch that was executed."""
        written = tuple(use.base for use in self.measured.uses if use.written.value)
        return LaunchResult(self.measured.findings, self.measured.stats, 0.0, (), written)

    @property
    def facts(self) -> dict[str, Any]:
        """How much of it was looked at, for its record."""
        looked_at = min(self.measured.sampled, self.measured.stats.programs)
        return {"looked_at": looked_at, "error": self.measured.error, "rough": self.rough}


class LaunchCounter:
    """Counts launches on the memory of one device."""

    def __init__(self, engine: DeviceEngine):
        self._engine = engine
        self._known: Recent[Any, tuple[tuple[int, ...], SampledCounts]] = Recent(_REMEMBERED)

    def count(
        self, skeleton: Skeleton, command: LaunchCommand, held: Sequence[Held], resources: KernelResources | None,
        settings: SampleSettings, bound: float = math.inf, apart: frozenset[int] = frozenset(),
    ) -> SampledCounts:  # fmt: skip
        """Count one launch, sampling programs of large ones as ``settings`` say.

        What surely takes longer than ``bound`` modelled seconds need not be known better. Of the storages ``apart`` the
        launch gets copies: it changes what tells its programs where to go.

        Raises:
            StepLimit: a program loops beyond its budget, or all of it takes too long here.
        """
        key, bases = _pattern(command, held)
        cacheable = not skeleton.reads and not skeleton.lowered.dynamic_pointers
        if cacheable and (known := self._known.get(key)) is not None:
            return _moved(known[1], dict(zip(known[0], bases, strict=True)))
        steps = PATIENCE if apart else DEFAULT_STEP_LIMIT
        if skeleton.serial and not apart:  # where programs take work from a counter, the first does that of many
            steps *= min(_STANDS_FOR, math.prod(command.grid))
        clock = partial(self._engine.modelled_seconds, command, resources)
        with self._copied(apart):
            found = measure(
                skeleton, command.grid, plain_arguments(command, held), self._engine.heap.memory,
                LaunchLimits(steps, DEFAULT_TIME_LIMIT), settings, clock, self._engine.weights(command), bound,
            )  # fmt: skip
        if cacheable and settings.thorough and not found.findings:
            self._known[key] = (bases, found)
        return found

    def count_forms(
        self, command: LaunchCommand, held: Sequence[Held], resources: KernelResources | None, settings: SampleSettings,
        bound: float, *, rough: bool,
    ) -> Counted:  # fmt: skip
        """Count one launch without data, and note what it lacks. What it writes has no contents any more.

        Raises :class:`DependsOnData` where what it lacks led it to where no storage is.
        """
        heap, skeleton = self._engine.heap, skeleton_of(command.ttir, command.name)
        named = given_to(skeleton, command, held)
        lacks = {one.base for one in held if not heap.has_contents(one)}
        if missing := _dependences(command.name, skeleton, named, lacks):  # what floats decide is done
            skeleton = skeleton_of(command.ttir, command.name, taken=True)
            missing = _dependences(command.name, skeleton, named, lacks)
        found = Counted(
            self.count(skeleton, command, held, resources, settings, bound), frozenset(one.base for one in held), rough
        )
        nowhere = found.measured.without_data
        if nowhere is not None and not missing:
            missing.append(_steered(command.name, nowhere, "an address that it got from memory"))
        for dependence in missing:
            self._engine.counters.missed(dependence)
        if missing and any(finding.kind in ILLEGAL for finding in found.result.findings):
            raise DependsOnData(missing[0].message)  # no fault of the kernel's: its addresses were made up
        for base in set(found.result.written) - _kept(skeleton, named):
            heap.forget(base)
        return found

    @contextmanager
    def _copied(self, bases: frozenset[int]) -> Iterator[None]:
        """Within the block what steers at these addresses is a copy."""
        found = [one for one in map(self._engine.heap.memory.find, bases) if one is not None]
        copies = [np.frombuffer(string_at(one.base, one.nbytes), np.uint8).copy() for one in found]
        try:
            for one, copy in zip(found, copies, strict=True):
                one.contents = copy.ctypes.data
            yield
        finally:
            for one in found:
                one.contents = one.base


def given_to(skeleton: Skeleton, command: LaunchCommand, held: Sequence[Held]) -> dict[str, Held]:
    """The tensors of a launch by the names of its kernel's parameters."""
    handles = {one.spec.handle: one for one in held}
    params = zip(skeleton.kernel.params, command.args, strict=True)
    return {param.name: handles[value.handle] for param, value in params if isinstance(value, Ref)}


def _pattern(command: LaunchCommand, held: Sequence[Held]) -> tuple[Any, tuple[int, ...]]:
    """Return what a launch's counts depend on besides contents, and its storages, which appear there by number."""
    handles, bases, args = {one.spec.handle: one for one in held}, list[int](), list[Any]()
    for arg in command.args:
        if not isinstance(arg, Ref):
            args.append((type(arg).__name__, arg))
            continue
        one = handles[arg.handle]
        if one.base not in bases:
            bases.append(one.base)
        args.append((bases.index(one.base), one.spec.address - one.base, one.nbytes))
    key = (command.ttir, command.grid, command.num_warps, command.num_stages, tuple(args))
    return key, tuple(bases)


def _moved(measured: SampledCounts, places: dict[int, int]) -> SampledCounts:
    """Return the same counts for other storages."""
    uses = tuple(replace(use, base=places[use.base]) for use in measured.uses)
    footprint = tuple((places[base], read, written) for base, read, written in measured.stats.footprint)
    parts = tuple((places[base], read, written) for base, read, written in measured.stats.parts)
    sites = tuple((n, places.get(base, base), asked, lanes) for n, base, asked, lanes in measured.stats.sites)
    return replace(measured, uses=uses, stats=replace(measured.stats, footprint=footprint, parts=parts, sites=sites))


# ---- what steers, without data


def _dependences(kernel: str, skeleton: Skeleton, named: dict[str, Held], lacks: set[int]) -> list[DataDependence]:
    """Return loads and atomics that decide control flow or addresses, and read one of the storages that ``lacks``
    contents, or what other stores of the kernel may have changed."""
    written = {named[name].base for name in skeleton.loose if name in named}
    found = []
    for read in skeleton.reads:
        one = named.get(read.argument) if read.argument is not None else None
        if one is not None and (one.base in lacks or one.base in written):
            found.append(_steered(kernel, _place(read), f"argument {read.argument!r}", read.decides, one.base))
    return list(dict.fromkeys(found))


def _kept(skeleton: Skeleton, named: dict[str, Held]) -> set[int]:
    """Return the storages into which the launch writes only steering data, so that their contents are right."""
    followed, loose = (
        {one.base for name, one in named.items() if name in names} for names in (skeleton.followed, skeleton.loose)
    )
    return set() if None in skeleton.loose else followed - loose


def _steered(kernel: str, place: str, by: str, decides: str = "where it goes", base: int = 0) -> DataDependence:
    message = f"kernel {kernel} depends on data: {place} of {by} decides {decides}, and reads what has no contents"
    return DataDependence("steering", f"{kernel}, {place}", message, base)


def _place(read: SteeringRead) -> str:
    what = "an atomic" if "atomic" in read.operation else "a load"
    line = read.loc.rpartition("/")[2]
    return f"{what} at {line}" if line else what
