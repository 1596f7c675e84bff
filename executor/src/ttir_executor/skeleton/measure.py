"""The counts of one launch without its data: of the whole grid if that is quick, otherwise from a sample of programs.

First a *survey* runs every program without examining its reads: stores, operations, trips of loops and atomics are then
exact, whatever the programs do. Reads are examined in all programs, or in a sample of them that grows until the
modelled time is known well enough. All decisions are based on counts, so every machine reaches the same answer.

Extrapolates from what groups of programs touched to what the whole grid touches.

The more programs have run, the fewer of the sectors that the next one touches are new. The growth of that count from
group to group determines the total number of sectors, as in estimating the number of species from samples.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from ttir_executor.allocations import MemoryMap
from ttir_executor.launch import LaunchLimits
from ttir_executor.lower.runtime import SECTOR_BYTES
from ttir_executor.results import LaunchStats, ProgramClass, SimFinding
from ttir_executor.skeleton.launch import MAX_GROUPS, Group, SkeletonLaunch, Touched
from ttir_executor.skeleton.slim import Skeleton

_RATES = 48
"""how many degrees of sharing are tried"""
_BETTER = 0.5
"""sectors of two kinds are believed in where they leave less than this share of what one kind leaves unexplained"""
_SURELY = 0.02
"""the same, where one kind is not even believed possible"""


@dataclass(frozen=True)
class Extrapolated:
    """A number that was not counted, and the range that it is in."""

    value: float
    low: float
    high: float

    @staticmethod
    def exact(value: float) -> Extrapolated:
        """A number that was counted."""
        return Extrapolated(value, value, value)

    def at_least(self, low: float) -> Extrapolated:
        """The same, where it is known to be no less than ``low``."""
        return Extrapolated(max(self.value, low), max(self.low, low), max(self.high, low))


def total_of(groups: Sequence[float], sizes: Sequence[int], left: int) -> Extrapolated:
    """Estimate the sum over ``left`` programs from the sums over groups of ``sizes`` of them; two standard errors
    wide."""
    count = sum(sizes)
    if count == 0 or left <= 0:
        return Extrapolated.exact(0.0)
    mean = sum(groups) / count
    means = [amount / size for amount, size in zip(groups, sizes, strict=True) if size]
    spread = 0.0
    if len(means) > 1:
        variance = sum(size * (m - mean) ** 2 for m, size in zip(means, sizes, strict=True)) / count
        spread = 2.0 * math.sqrt(variance / (len(means) - 1) * max(0.0, 1.0 - count / left))
    return Extrapolated(mean * left, max(0.0, mean - spread) * left, (mean + spread) * left)


def distinct_of(last: Sequence[int], sizes: Sequence[int], programs: int, most: float) -> Extrapolated:
    """Distinct sectors that ``programs`` touch, from those that groups of ``sizes`` programs touched.

    ``last[g]`` sectors were touched by group ``g`` and by no later one, so that the sums from the end say how many any
    number of groups touches together. ``most`` bounds the answer.

    The model: some sectors are touched by every group, the others by ``k`` of all programs each. The range: below, all
    sectors are alike (unless that is out of the question); above, as many of them go on being new as were in the later
    half of the groups.
    """
    seen, programs_seen = [0.0], [0.0]
    for count, size in zip(reversed(last), reversed(sizes), strict=True):
        if size:
            seen.append(seen[-1] + count)
            programs_seen.append(programs_seen[-1] + size)
    touched, ran = seen[-1], programs_seen[-1]
    if touched == 0 or ran >= programs:
        return Extrapolated.exact(touched)
    most = max(most, touched)
    curves, counts = _curves(tuple(programs_seen[1:]), programs), np.array(seen[1:])
    mixed, error = _fit(curves, counts, shared=True)
    alike, error_alike = _fit(curves, counts, shared=False)
    if error > _BETTER * error_alike:
        mixed = alike
    elif error < _SURELY * error_alike:
        alike = mixed
    half = len(seen) // 2
    rate = (seen[-1] - seen[half]) / (programs_seen[-1] - programs_seen[half])
    value = min(max(mixed, touched), most)
    high = min(most, max(value, touched + rate * (programs - ran)))
    return Extrapolated(value, max(touched, min(alike, value)), high)


def least_apart(asked: float, touched: float, ran: int, programs: int, total: float) -> float:
    """Least number of distinct sectors among ``total`` that ``programs`` ask for, from ``ran`` of them.

    Those asked for ``asked`` sectors, ``touched`` of them distinct. A pair of programs that asks for the same sector is
    in the sample with a chance of (ran / programs)², so what the sample has twice says how much all programs can have
    twice: exactly where each sector is asked for once or twice, and more than there is where it is asked for more
    often. Three programs' worth, and two standard errors, are added: none in common in the sample may be luck.
    """
    if ran == 0 or asked == 0.0:
        return 0.0
    each, twice = asked / ran, max(0.0, asked - touched)
    at_most = twice + 2.0 * math.sqrt(twice * each) + 3.0 * each
    return max(0.0, total - at_most * (programs / ran) ** 2)


@lru_cache(maxsize=256)
def _curves(ran: tuple[float, ...], programs: int) -> np.ndarray:
    """Share of its sectors that ``ran`` programs have touched, by degree of sharing: (_RATES + 1) × len(ran)."""
    sharing = float(programs) ** (np.arange(_RATES + 1) / _RATES)
    shares = np.minimum(np.array(ran) / programs, 1.0 - 1e-12)
    return -np.expm1(sharing[:, None] * np.log1p(-shares))


def _fit(curves: np.ndarray, seen: np.ndarray, *, shared: bool) -> tuple[float, float]:
    """The number of sectors for the degree of sharing under which the counts are best explained, and what is not."""
    everywhere, elsewhere = _solve(curves, seen, shared=shared)
    errors = (((everywhere[:, None] + elsewhere[:, None] * curves - seen) ** 2) / _variances(seen)).sum(axis=1)
    best, answer = math.inf, float(seen[-1])
    for error, found in zip(errors.tolist(), (everywhere + elsewhere).tolist(), strict=True):
        if error < best * (1.0 - 1e-9):
            best, answer = error, found
    return answer, best


def _solve(curves: np.ndarray, seen: np.ndarray, *, shared: bool) -> tuple[np.ndarray, np.ndarray]:
    """Least squares of ``seen = a + b · curve`` with a, b >= 0 for each curve, each count with the variance of its
    size."""
    weights = 1.0 / _variances(seen)
    cc, cu = (weights * curves**2).sum(axis=1), (weights * seen * curves).sum(axis=1)
    alone = np.divide(cu, cc, out=np.zeros_like(cu), where=cc > 0.0)
    if not shared or len(seen) < 3:
        return np.zeros_like(alone), alone
    ww, cw, uw = float(weights.sum()), (weights * curves).sum(axis=1), float((weights * seen).sum())
    determinant = ww * cc - cw * cw
    solvable = determinant > 1e-12 * ww * cc
    divisor = np.where(solvable, determinant, 1.0)
    a, b = (cc * uw - cw * cu) / divisor, (ww * cu - cw * uw) / divisor
    mixed = solvable & (a >= 0.0)
    flat = mixed & (b < 0.0)
    return np.where(flat, uw / ww, np.where(mixed, a, 0.0)), np.where(flat, 0.0, np.where(mixed, b, alone))


def _variances(seen: np.ndarray) -> np.ndarray:
    """Of counts: their sizes, and of none as of one."""
    return np.maximum(seen, 1.0)


_GROUPS = 8
"""groups of a sample, each representative by itself"""
_LARGEST_GROUP = 512
"""most programs of a group of the first sample: more add little"""


@dataclass(frozen=True)
class SampleSettings:
    """The extent to which a launch runs. Work is counted in 32-byte sectors examined, about 3 ns each."""

    full_sectors: float = 6e7
    """work up to which all programs of a launch run"""
    sample_sectors: float = 1.5e7
    """work of the first sample of a larger launch"""
    max_error: float = 0.05
    """estimated error of a modelled time above which more programs run"""
    most_sectors: float = 3e9
    """work beyond which a sample is taken as it is, with its error"""
    probes: int = 24
    """programs, one of which tells how often a program reads the same bytes"""
    probed_sectors: float = math.inf
    """work after which no further program of those runs"""
    pilot: int = 8
    """most programs of each of the first eight groups"""
    thorough: bool = True
    """whether it must be known, beyond the time, what all programs write and whether all is read"""
    seed: int = 0
    """of the choice of programs"""

    def __post_init__(self) -> None:
        positive = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del positive["thorough"], positive["seed"]
        if wrong := [name for name, value in positive.items() if not value > 0]:
            raise ValueError(f"{wrong[0]} must be more than 0, not {positive[wrong[0]]}")


TUNING = SampleSettings(
    full_sectors=5e5, sample_sectors=1e6, max_error=0.1, most_sectors=4e7, probes=6, probed_sectors=5e5, pilot=1,
    thorough=False,
)  # fmt: skip
"""a tuner's choice needs no more: it tries many, and what it chose is counted in full where it is timed"""

_DECIDING = 2.0
"""as much work as runs in full, times this, may go into telling whether all of a storage is read or written"""
WHOLE = 0.99
"""share of a storage that is all of it but for what sampling leaves open"""


@dataclass(frozen=True)
class StorageUse:
    """A launch's use of one storage, in bytes of whole sectors."""

    base: int
    read: Extrapolated
    written: Extrapolated
    nbytes: int
    """size of the storage"""

    @property
    def half_seen(self) -> bool:
        """Whether all of the storage may be read, which is not what the sample says, or written, which it does not
        say for sure."""
        whole = WHOLE * self.nbytes
        return self.read.value < whole <= self.read.high or self.written.low < whole <= self.written.high

    @property
    def coverage(self) -> float:
        """Share of the storage that is written for sure: by counting where all programs ran, else the low estimate."""
        return min(1.0, self.written.low / self.nbytes) if self.nbytes else 1.0


@dataclass(frozen=True)
class SampledCounts:
    """The counts of a launch, and their uncertainty."""

    stats: LaunchStats
    sampled: int
    """programs whose reads were examined"""
    error: float
    """estimated relative error of the modelled time; 0 where all was counted"""
    uses: tuple[StorageUse, ...]
    findings: tuple[SimFinding, ...]
    without_data: str | None
    """where the launch is steered by memory without contents, beyond what the kernel's arguments tell"""

    surveyed: bool = False
    """whether all programs ran, if without their reads"""
    least: float = 0.0
    """modelled seconds by the low counts; 0 where all was counted"""

    @property
    def exact(self) -> bool:
        """Whether all programs ran."""
        return self.sampled >= self.stats.programs

    @property
    def stores_known(self) -> bool:
        """Whether it is known what is written, down to the last program."""
        return self.exact or self.surveyed


Clock = Callable[[LaunchStats], float]
"""modelled seconds of a launch with these counts"""


def measure(
    skeleton: Skeleton,
    grid: Grid,
    args: Sequence[int | float],
    memory: MemoryMap,
    limits: LaunchLimits,
    settings: SampleSettings,
    clock: Clock,
    weights: Sequence[float] = (),
    bound: float = math.inf,
) -> SampledCounts:
    """Count one launch. ``weights`` say what entering each block of the kernel costs a program.

    What surely takes longer than ``bound`` modelled seconds need not be known better than that.

    Raises:
        StepLimit: a program looped beyond its budget, or what had to run took longer than the limit.
    """
    return _Measuring(skeleton, grid, args, memory, limits, settings, clock, weights, bound).run()


class _Measuring:
    def __init__(
        self, skeleton: Skeleton, grid: Grid, args: Sequence[int | float], memory: MemoryMap, limits: LaunchLimits,
        settings: SampleSettings, clock: Clock, weights: Sequence[float], bound: float,
    ):  # fmt: skip
        self.weights, self.bound = weights, bound
        self.skeleton, self.grid, self.args, self.memory = skeleton, grid, args, memory
        self.limits, self.settings, self.clock = limits, settings, clock
        self.programs = grid[0] * grid[1] * grid[2]
        self.corners = corners(grid)
        self.passes: float | None = None
        self.classes: tuple[ProgramClass, ...] = ()
        self.survey: LaunchStats | None = None
        self.surveyed: tuple[SimFinding, ...] = ()

    def _launch(self, *, loads: bool = True, after: SkeletonLaunch | None = None) -> SkeletonLaunch:
        where = self.skeleton, self.grid, self.args, self.memory, self.limits
        return SkeletonLaunch(*where, weights=self.weights, loads=loads, after=after)

    def run(self) -> SampledCounts:
        if self.skeleton.serial or self.programs <= 2 * len(self.corners):
            return self._everything()
        launch = self._launch()
        launch.own_passes = self._own_passes()
        spread = EvenSample(self.grid, self.corners, self.settings.seed)
        launch.run_group(self.corners)
        pilot = [launch.run_group(spread.group(self._pilot_size())) for _ in range(_GROUPS)]
        work = sum(group.work for group in pilot) / max(1, sum(group.programs for group in pilot)) * self.programs
        if work <= self.settings.full_sectors or not spread.left:
            return self._everything(after=launch)
        if self.settings.thorough:
            self._survey()
        elif self._enough(found := self._estimate(launch)):
            return found
        return self._sample(launch, spread, work / self.programs)

    def _pilot_size(self) -> int:
        return min(self.settings.pilot, max(1, self.programs // 64))

    def _enough(self, found: SampledCounts) -> bool:
        """Whether the time is known as well as it needs to be."""
        return found.error <= self.settings.max_error or found.least > self.bound

    def _own_passes(self) -> float:
        """How often a program asks for each byte that it reads.

        By one that is drawn by what it reads, so that none that reads little, and none at a place that is known
        beforehand, stands for the others.
        """
        params = zip(self.skeleton.kernel.params, self.args, strict=True)
        numbers = [value for param, value in params if param.type.elem != "ptr"]
        rng = random.Random(f"{self.settings.seed} {self.grid} {numbers} {self.skeleton.lowered.text}")
        probe = self._launch()
        probe.own_passes = 1.0  # of none of these
        programs = rng.sample(range(self.programs), min(self.settings.probes, self.programs))
        reads: list[float] = []
        for program in programs:
            if sum(reads) > self.settings.probed_sectors * SECTOR_BYTES:
                break
            reads.append(probe.run_group([program]).load_bytes)
        if not any(reads):
            return 1.0
        alone = self._launch()
        alone.run_group(rng.choices(programs[: len(reads)], reads))
        return alone.own_passes or 1.0

    def _everything(self, after: SkeletonLaunch | None = None) -> SampledCounts:
        launch = self._launch(after=after)
        result = launch.run()
        uses = tuple(
            StorageUse(base, Extrapolated.exact(read), Extrapolated.exact(written), self._size(base))
            for base, read, written in result.stats.footprint
        )
        return SampledCounts(result.stats, self.programs, 0.0, uses, result.findings, _words(launch))

    def _size(self, base: int) -> int:
        allocation = self.memory.find(base)
        return allocation.nbytes if allocation is not None else 0

    # ---- all but reads

    def _survey(self) -> None:
        """Run every program without its reads, where that is quick."""
        launch = self._launch(loads=False)
        spread = EvenSample(self.grid, self.corners, self.settings.seed + 1)
        pilot = [launch.run_group(spread.group(self._pilot_size())) for _ in range(_GROUPS)]
        stores = sum(group.store_bytes / SECTOR_BYTES + 8.0 * group.blocks + 16.0 * group.programs for group in pilot)
        if stores / sum(group.programs for group in pilot) * self.programs > self.settings.full_sectors:
            return
        result = self._launch(loads=False, after=launch).run()
        self.survey, self.surveyed = result.stats, result.findings

    # ---- a sample of programs

    def _sample(self, launch: SkeletonLaunch, spread: EvenSample, work: float) -> SampledCounts:
        wanted = self.settings.sample_sectors
        size = max(self._pilot_size(), min(_LARGEST_GROUP, math.ceil(wanted / work / _GROUPS)))
        while True:
            if 2 * size * _GROUPS > spread.left or len(launch.groups) + _GROUPS > MAX_GROUPS:
                return self._everything(after=launch)
            launch.expect(size * _GROUPS * work * 3e-9)
            for _ in range(_GROUPS):
                launch.run_group(spread.group(size))
            found = self._estimate(launch)
            ran = sum(group.work for group in launch.groups)
            undecided = self.settings.thorough and any(use.half_seen for use in found.uses)
            if undecided and ran > _DECIDING * self.settings.full_sectors:
                undecided = False
            if (self._enough(found) and not undecided) or 2.0 * ran > self.settings.most_sectors:
                return found
            size *= 2

    def _estimate(self, launch: SkeletonLaunch) -> SampledCounts:
        """The whole grid by what ran: point, low and high counts, and what they make of the modelled time."""
        border, *rest = launch.groups
        self.passes = launch.own_passes
        totals = _Totals(border, rest, self.programs - border.programs)
        touched = launch.touched()
        uses = self._uses(touched, rest, totals)
        if self.survey is None:
            self.classes = launch.classes_of(self.programs)
        contention = launch.contention()
        stats = self._stats(totals, uses, lambda e: e.value, contention)
        parts = tuple((base, read.ends, written.ends) for base, read, written in touched)
        stats = dataclasses.replace(stats, parts=parts, sites=launch.asked_of(self.programs))
        times = [
            self.clock(self._stats(totals, uses, pick, contention))
            for pick in (lambda e: e.value, lambda e: e.low, lambda e: e.high)
        ]
        error = max(abs(times[1] - times[0]), abs(times[2] - times[0])) / times[0] if times[0] else 0.0
        ran = sum(group.programs for group in launch.groups)
        findings = launch.findings() or self.surveyed
        return SampledCounts(
            stats, ran, error, uses, findings, _words(launch), self.survey is not None, min(times)
        )  # fmt: skip

    def _uses(
        self, touched: list[tuple[int, Touched, Touched]], groups: list[Group], totals: _Totals
    ) -> tuple[StorageUse, ...]:
        sizes = [group.programs for group in groups]
        alone = sum(written.total > 0 for _, _, written in touched) == 1  # what is stored is of one storage
        exact = {place: nbytes for place, _, nbytes in self.survey.footprint} if self.survey else {}
        uses = []
        for base, read, written in touched:
            nbytes = self._size(base)
            reads = self._distinct(read, sizes, nbytes, totals.loads.high)
            writes = self._distinct(written, sizes, nbytes, totals.stores.high)
            if alone and written.total:
                stored = sum(group.store_bytes for group in groups) / SECTOR_BYTES
                apart = least_apart(
                    stored, sum(written.last[1:]), sum(sizes), self.programs, totals.stores.low / SECTOR_BYTES
                )
                writes = writes.at_least(min(float(nbytes), apart * SECTOR_BYTES))
            uses.append(StorageUse(base, reads, Extrapolated.exact(exact[base]) if base in exact else writes, nbytes))
        known = {use.base for use in uses}
        for base, counted in exact.items():
            if base not in known and counted:
                uses.append(StorageUse(base, Extrapolated.exact(0.0), Extrapolated.exact(counted), self._size(base)))
        return tuple(sorted(uses, key=lambda use: use.base))

    def _distinct(self, touched: Touched, sizes: list[int], nbytes: int, asked: float) -> Extrapolated:
        """Bytes of one storage; the first group is the corners', which is no fair sample."""
        span = (touched.ends[1] - touched.ends[0]) / SECTOR_BYTES
        found = distinct_of(touched.last[1:], sizes, self.programs, min(span, asked / SECTOR_BYTES))
        total = float(touched.total)
        parts = (found.value, found.low, found.high)
        value, low, high = (min(float(nbytes), max(total, n) * SECTOR_BYTES) for n in parts)
        return Extrapolated(value, low, high)

    def _stats(
        self, totals: _Totals, uses: tuple[StorageUse, ...], pick: Callable[[Extrapolated], float], contention: int
    ) -> LaunchStats:
        footprint = tuple((use.base, pick(use.read), pick(use.written)) for use in uses)
        if self.survey is not None:  # reads are a share of what all programs would read in runs, which is known
            loads = self.survey.load_sectors * pick(totals.load_share)
            passes = self.passes or 1.0
            return dataclasses.replace(self.survey, load_sectors=loads, footprint=footprint, own_passes=passes)
        scale = self.programs / totals.ran
        return LaunchStats(
            programs=self.programs,
            load_sectors=pick(totals.loads) / SECTOR_BYTES,
            store_sectors=pick(totals.stores) / SECTOR_BYTES,
            flops={unit: pick(count) for unit, count in totals.flops.items()},
            atomics=int(pick(totals.atomics)),
            max_same_address_atomics=math.ceil(contention * scale),
            footprint=footprint,
            executed=tuple((block, pick(count)) for block, count in totals.entered.items()),
            own_passes=self.passes or 1.0,
            classes=self.classes,
        )


class _Totals:
    """Sums over the whole grid: what the corners did, plus what the rest did by its sample."""

    def __init__(self, border: Group, groups: list[Group], left: int):
        sizes = [group.programs for group in groups]
        self.ran = border.programs + sum(sizes)

        def of(amount: Callable[[Group], float]) -> Extrapolated:
            rest, known = total_of([amount(group) for group in groups], sizes, left), amount(border)
            return Extrapolated(rest.value + known, rest.low + known, rest.high + known)

        self.loads = of(lambda group: group.load_bytes)
        self.stores = of(lambda group: group.store_bytes)
        self.atomics = of(lambda group: group.atomics)
        units = sorted({unit for group in (border, *groups) for unit in group.flops})
        self.flops = {unit: of(lambda group, unit=unit: group.flops.get(unit, 0.0)) for unit in units}  # type: ignore[misc]
        numbers = sorted({block for group in (border, *groups) for block in group.entered})
        self.entered = {block: of(lambda group, block=block: group.entered.get(block, 0.0)) for block in numbers}  # type: ignore[misc]
        shares = [group.load_bytes / group.run_bytes for group in groups if group.run_bytes]
        runs = sum(group.run_bytes for group in groups)
        middle = sum(group.load_bytes for group in groups) / runs if runs else 1.0
        deviation = math.sqrt(sum((s - middle) ** 2 for s in shares) / max(1, len(shares) - 1)) if shares else 0.0
        off = 2.0 * deviation / math.sqrt(max(1, len(shares)))
        self.load_share = Extrapolated(middle, max(0.0, middle - off), middle + off)
        """sectors asked for, over those that runs of memory would ask for"""


def _words(launch: SkeletonLaunch) -> str | None:
    site = launch.without_data()
    if site is None:
        return None
    place = site.loc.rpartition("/")[2]
    return f"{site.op} at {place}" if place else site.op


# ---- which programs are looked at


Grid = tuple[int, int, int]

_STRIDES = ((5**0.5 - 1) / 2, 2**0.5 - 1, 3**0.5 - 1)
"""through each axis, as parts of it: irrational, as rows of a tensor return at powers of two and their like; any two
axes are covered evenly, too"""
_BATCH = 4096
"""programs drawn at a time"""


def corners(grid: Grid) -> list[int]:
    """Programs at the corners of the grid, and in the middle of its borders; by linear number, without repeats."""
    places = [sorted({0, size // 2, size - 1}) for size in grid]
    found = set()
    for place in product(*places):
        inside = sum(0 < at < size - 1 for at, size in zip(place, grid, strict=True))
        if inside <= 1:
            found.add(linear(grid, place))
    return sorted(found)


def linear(grid: Grid, place: tuple[Any, ...]) -> Any:
    """Number of a program, or of many: x runs fastest."""
    x, y, z = place
    return x + grid[0] * (y + grid[1] * z)


class EvenSample:
    """An endless supply of programs, each at most once, in groups that each cover the whole grid evenly.

    Programs step through the axes by irrational strides, from a random place. Each group continues where the previous
    one ended. It is a fair sample by itself, all groups together are a better one, and the differences between groups
    bound the error.
    """

    def __init__(self, grid: Grid, taken: list[int], seed: int):
        self.grid = grid
        self.left = grid[0] * grid[1] * grid[2] - len(taken)
        self._taken = set(taken)
        self._random = random.Random(seed)
        self._places = self._steps()

    def group(self, size: int) -> list[int]:
        """The next group: ``size`` programs, fewer where none are left."""
        chosen: list[int] = []
        size = min(size, self.left)
        while len(chosen) < size:
            program = next(self._places)
            if program not in self._taken:
                self._taken.add(program)
                chosen.append(program)
        self.left -= len(chosen)
        return sorted(chosen)

    def _steps(self) -> Iterator[int]:
        starts, numbers = [self._random.random() for _ in self.grid], np.arange(_BATCH)
        while True:
            along = zip(self.grid, _STRIDES, starts, strict=True)
            places = [((numbers * stride + start) % 1.0 * size).astype(np.int64) for size, stride, start in along]
            yield from linear(self.grid, tuple(places)).tolist()
            numbers = numbers + _BATCH
