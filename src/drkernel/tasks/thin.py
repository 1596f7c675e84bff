"""A task at its own sizes, and at *thin* sizes that can be checked here.

Time needs no data and is modelled at a task's own sizes; correctness needs data. So checks run at sizes that keep
whatever code specialises on: axes with independent positions (``axes.py``) are shortened first, and no more than the
limits require, and a multiple of 16 remains one. For a product these are the rows and columns of the result; the row
length of a softmax, or the K of a product, stays. Other axes are shortened only where that is not enough, and then the
sizing says so (``kept_rows``).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch

from drkernel.task import Task, TaskError, override_constants
from drkernel.tasks.axes import GROUP, Knob, SizedSource, smaller
from drkernel.tasks.cost import KEPT, Cost, ScaleLimits
from drkernel.tasks.reference import load_reference, remembered

FEW_STEPS = 32
"""fewer operators, or steps of recurrent layers, are no recurrence worth the name"""
LEAST = 2
"""fewest positions of a shortened axis of independent work"""
LEAST_TILE = 16
"""fewest positions of each side of a product, and of other axes as long as anything else can be shortened"""
LEAST_SIZE, OVER = 4, 4
"""fewest positions where a call costs more than so many times its limits; kernels that multiply need tiles"""
WORTHWHILE = 0.5
"""other weights are used when they leave at most this share of the cost"""
WORTH = 0.97
"""a step leaves at most this share of a call's excess over its limits"""
OTHERS = 4
"""most further sizings besides the best one"""
MOST_OPERATORS = 64
"""a reference with more operators is not sized in other ways: that takes long, and says little about one kernel"""


@dataclass(frozen=True)
class Sizing:
    """A reference at certain sizes."""

    source: str
    """the reference's text with these sizes"""
    changed: dict[str, tuple[int, int]]
    """label of the size -> (the task's own, used here); empty: the task's own sizes"""
    cost: Cost
    """cost of one call; may exceed the limits where nothing more can be shortened"""
    kept_rows: bool
    """whether only axes of independent work were shortened"""
    inputs_only: bool
    """whether weights, constructor arguments and the module's code are as at the task's sizes"""


def own_source(task: Task) -> str:
    """The reference at the task's own sizes: profile ``full`` if it has one, else as written."""
    return override_constants(task.reference, task.profiles["full"]) if "full" in task.profiles else task.reference


def thin_sizing(task: Task, limits: ScaleLimits) -> Sizing:
    """The best sizes at which a call stays within ``limits``.

    They may be over the limits (``sizing.cost.over(limits) > 1``) where weights or the module's own numbers leave
    nothing to shorten; it is then the least that was found. Raises :class:`TaskError` when the reference does not run.
    """
    return _best(own_source(task), limits)


def thin_sizings(task: Task, limits: ScaleLimits) -> tuple[Sizing, ...]:
    """The sizing of :func:`thin_sizing`, others within the limits that keep other axes whole, and a thinner one; raises
    as that does."""
    return _thin(own_source(task), limits)


def with_all_steps(task: Task, limits: ScaleLimits, most: ScaleLimits) -> tuple[Sizing, ...]:
    """The best sizes within ``most`` at which a reference runs as many operators, one for each step, as at its own; ()
    where there are none, or it does so at :func:`thin_sizing`'s within ``limits``."""
    return _of_all_steps(own_source(task), limits, most)


def goes_in_steps(task: Task) -> bool:
    """Whether the reference runs fewer operators, or steps of a recurrent layer, where some axis is half as long."""
    return _goes_in_steps(own_source(task))


def of_one_piece(task: Task, labels: Iterable[str]) -> list[str]:
    """Those of the sizes whose axes have positions that belong together, the last first."""
    knobs = _sized(own_source(task)).knobs
    return [label for label in knobs if label in labels and not knobs[label].parallel][::-1]


@lru_cache(maxsize=16)
def _sized(source: str) -> SizedSource:
    return SizedSource(source)


@remembered
def _best(source: str, limits: ScaleLimits) -> Sizing:
    """The best sizing at which the reference runs on data, and whole numbers among its inputs still fit their axes.

    What is tried costs a call of the reference, and only where there are such numbers.
    """
    sized = _sized(source)
    first = sizing = _Search(sized, limits).run()
    whole: frozenset[str] = frozenset()
    while sizing.changed and any(map(_is_whole, sized.inputs)):
        bound, runs = _bounds(sized, sizing)
        if runs and (not bound - whole or sizing.cost.over(limits) > 1):
            return sizing if sizing.cost.over(limits) <= 1 else first if _bounds(sized, first)[1] else sizing
        whole |= bound - whole or frozenset(sizing.changed)
        sizing = _Search(sized, limits, whole).run()
    return sizing


def _is_whole(value: Any) -> bool:
    """Whether it is a tensor of whole numbers: indices, lengths."""
    if not isinstance(value, torch.Tensor) or value.dtype == torch.bool:
        return False
    return not (value.is_floating_point() or value.is_complex())


def _bounds(sized: SizedSource, sizing: Sizing) -> tuple[frozenset[str], bool]:
    """The shortened axes that some input's whole numbers seem to count positions of, beyond their new end; and whether
    the reference runs."""
    reference = load_reference(sizing.source)
    inputs = reference.draw_inputs(0)
    ends = [int(value.max()) for value in inputs if _is_whole(value) and value.numel()]
    found = {
        label
        for label, (own, used) in sizing.changed.items()
        if sized.knobs[label].axes and any(used < end <= own < 2 * end for end in ends)
    }
    try:
        with torch.no_grad():
            reference.build(0)(*inputs)
    except Exception:  # a reference may raise anything
        return frozenset(found), False
    return frozenset(found), True


@remembered
def _thin(source: str, limits: ScaleLimits) -> tuple[Sizing, ...]:
    sized, best = _sized(source), _best(source, limits)
    found = [best]
    if best.changed and best.cost.over(limits) <= 1 and sized.operators <= MOST_OPERATORS:
        shortened = sorted(best.changed, key=lambda label: best.changed[label][1] / best.changed[label][0])
        groups = {label for label in best.changed if _is_of_groups(label)}  # as many channels to each, too
        for whole in dict.fromkeys(
            frozenset(kept) for label in shortened[:OTHERS] for kept in ([label], [label, *groups])
        ):
            other = _Search(sized, limits, whole).run()
            if other.cost.over(limits) <= 1 and all(other.changed != sizing.changed for sizing in found):
                found.append(other)
        changed = {label: (own, smaller(used, sized.block)) for label, (own, used) in best.changed.items()}
        values = {label: used for label, (_, used) in changed.items()}  # about half as long once more
        if changed != best.changed and (cost := _Search(sized, limits, values=values)._cost({})) is not None:
            found.append(Sizing(sized.text(values), changed, cost, best.kept_rows, best.inputs_only))
    return tuple(found)


@remembered
def _goes_in_steps(source: str) -> bool:
    sized = _sized(source)
    if sized.cost.steps < FEW_STEPS:
        return False
    search = _Search(sized, ScaleLimits(bytes=1, flops=1))
    halves = (search._cost({label: knob.value // 2}) for label, knob in sized.knobs.items() if knob.value > 1)
    return any(cost is not None and cost.steps < sized.cost.steps for cost in halves)


@remembered
def _of_all_steps(source: str, limits: ScaleLimits, most: ScaleLimits) -> tuple[Sizing, ...]:
    sized, best = _sized(source), _best(source, limits)
    short, steps = {label: used for label, (_, used) in best.changed.items()}, set()
    for label in short:
        longer = _Search(sized, limits, values=short | {label: sized.knobs[label].value})._cost({})
        steps |= {label} if longer is not None and longer.steps > best.cost.steps else set()
    found = _Search(sized, most, frozenset(steps)).run() if steps else best
    return (found,) if steps and found.cost.over(most) <= 1 else ()


@dataclass
class _Search:
    """Shortens axes in order until a call fits."""

    sized: SizedSource
    limits: ScaleLimits
    whole: frozenset[str] = frozenset()
    """labels that keep their size"""
    values: dict[str, int] = field(default_factory=dict)
    weights_stay: bool = True
    """whether only inputs are being shortened"""
    beside: dict[str, dict[str, int]] = field(default_factory=dict)
    """label of an axis shortened in turn -> the sizes of all others for which its size is the longest that fits"""

    def run(self) -> Sizing:
        """The sizing found so far; the smallest when none fits."""
        self.values = {label: knob.value for label, knob in self.sized.knobs.items()}
        self.cost = self.sized.cost
        knobs = [knob for knob in self.sized.knobs.values() if knob.label not in self.whole]
        parallel = [knob for knob in knobs if knob.parallel]
        shared = sorted(filter(self._is_shared, parallel), key=lambda knob: min(place for _, place in knob.axes))
        inputs = [knob for knob in knobs if knob.inputs_only and knob.axes and not knob.parallel]
        first = [knob for knob in inputs if all(dimension == 0 for _, dimension in knob.axes)]
        last = [knob for knob in knobs if knob not in parallel and not _is_choice(knob)]
        self.weights_stay = True
        self._in_turn(shared, LEAST)
        self._in_balance([knob for knob in parallel if knob not in shared], LEAST_TILE)
        # rows of an output of one fixed size (a loss) are the terms of a sum
        self._in_turn(first, LEAST if any(knob.outputs for knob in self.sized.knobs.values()) else LEAST_TILE)
        self._in_balance([knob for knob in inputs if knob not in first], LEAST_TILE)
        before = self.values, self.cost
        self.weights_stay = False
        self._with_other_weights(last, parallel)
        if not self._fits() and self.cost.over(self.limits) > WORTHWHILE * before[1].over(self.limits):
            self.values, self.cost = before  # a module that cannot be made small is checked as it is, or not at all
        for knob in reversed(shared):
            self._longer(knob)
        return self._sizing()

    def _with_other_weights(self, last: list[Knob], parallel: list[Knob]) -> None:
        """Shorten constructor arguments, then anything."""
        weights = [knob for knob in last if not knob.inputs_only]
        if not self._fits() and weights:
            self._fewer_groups()
        if not self.sized.together:
            self._in_balance([knob for knob in weights if not knob.axes], 4 * LEAST_TILE)
        self._in_balance(weights, LEAST_TILE)
        if self.cost.weight_bytes <= self.limits.bytes:
            self._in_balance(last, LEAST_TILE)
            if self.cost.over(self.limits) > OVER:
                self._in_balance(last + parallel, LEAST_SIZE)

    def _sizing(self) -> Sizing:
        knobs = self.sized.knobs
        changed = {label: value for label, value in self.values.items() if value != knobs[label].value}
        return Sizing(
            self.sized.text(changed),
            {label: (knobs[label].value, value) for label, value in changed.items()},
            self.cost,
            all(knobs[label].parallel for label in changed),
            all(knobs[label].inputs_only for label in changed),
        )

    # ---- steps

    def _fits(self) -> bool:
        return self._over(self.cost) <= 1

    def _over(self, cost: Cost) -> float:
        """The excess of a cost over the limits. While only inputs are shortened, weights leave them at least a
        quarter."""
        if not self.weights_stay:
            return cost.over(self.limits)
        left = max(self.limits.bytes - cost.weight_bytes, self.limits.bytes // 4)
        return max((cost.bytes - cost.weight_bytes) / left, cost.flops / self.limits.flops)

    def _longer(self, knob: Knob) -> None:
        """Lengthen shortened axes again as far as fits after others have been shortened."""
        if not self._fits() or self.beside.get(knob.label) == self._others(knob):
            return
        own = knob.value
        for size in [own, *self._sizes_below(knob.label, own, self.values[knob.label] + 1)]:
            cost = self._cost({knob.label: size})
            if cost is not None and self._over(cost) <= 1:
                self.values, self.cost = {**self.values, knob.label: size}, cost
                return

    def _others(self, knob: Knob) -> dict[str, int]:
        return {label: value for label, value in self.values.items() if label != knob.label}

    def _in_turn(self, knobs: Iterable[Knob], least: int) -> None:
        """Keep each axis as long as fits; shorten the next only when this one is at its least."""
        for knob in knobs:
            if self._fits():
                return
            sizes = self._sizes_below(knob.label, self.values[knob.label], least)
            low, high = 0, len(sizes) - 1  # costs grow with sizes: the first that fits is found by halving
            while low < high:
                middle = (low + high) // 2
                cost = self._cost({knob.label: sizes[middle]})
                low, high = (low, middle) if cost is not None and self._over(cost) <= 1 else (middle + 1, high)
            for size in sizes[low:]:
                if self._take({knob.label: size}):
                    if self._fits():
                        self.beside[knob.label] = self._others(knob)
                    break

    def _in_balance(self, knobs: list[Knob], least: int) -> None:
        """Halve the largest axis repeatedly; where the reference refuses, all axes of its size, or all axes."""
        stuck: set[str] = set()
        while not self._fits():
            open_labels = [knob.label for knob in knobs if knob.label not in stuck and self._next(knob.label, least)]
            if not open_labels:
                return
            label = max(open_labels, key=lambda one: self.values[one])
            equal = [one for one in open_labels if self.values[one] == self.values[label]]
            groups = dict.fromkeys(tuple(group) for group in ([label], equal, open_labels))
            if (self.sized.operators > MOST_OPERATORS or self.sized.together) and len(equal) > 1:
                groups.pop((label,))  # every try takes long: equal axes go together
            if not any(self._take({one: self._next(one, least) for one in group}) for group in groups):
                stuck.add(label)

    def _next(self, label: str, least: int) -> int:
        """The next size of a knob; 0 when that is below the least."""
        return next(iter(self._sizes_below(label, self.values[label], least)), 0)

    def _sizes_below(self, label: str, value: int, least: int) -> list[int]:
        """Ever smaller sizes of a knob down to the least."""
        found, axes = [], self.sized.knobs[label].axes
        first = self.sized.grouped and axes and all(dimension == 0 for _, dimension in axes)
        while least <= (size := smaller(value, self.sized.block * (GROUP if first else 1))) < value:
            found.append(value := size)
        return found

    def _fewer_groups(self) -> None:
        """Cut groups of channels to at most 8, so that fewer channels still leave several per group."""
        groups = [label for label in self.sized.knobs if _is_of_groups(label) and label not in self.whole]
        self._take({one: 8 for one in groups if self.values[one] > 8 and self.values[one] % 8 == 0}, always=True)

    def _take(self, sizes: dict[str, int], always: bool = False) -> bool:
        """Adopt these sizes if the reference runs at them and costs less."""
        cost = self._cost(sizes) if sizes else None
        if cost is None or (self._over(cost) > WORTH * self._over(self.cost) and not always):
            return False
        self.values, self.cost = {**self.values, **sizes}, cost
        return True

    def _cost(self, sizes: dict[str, int]) -> Cost | None:
        try:
            return self.sized.cost_at({**self.values, **sizes})
        except TaskError:
            return None

    # ---- what the knobs are

    def _is_shared(self, knob: Knob) -> bool:
        """Whether it is an axis of every input, small ones aside: a batch, not one side of a product."""
        elements = [value.numel() if hasattr(value, "numel") else 0 for value in self.sized.inputs]
        return {n for n, count in enumerate(elements) if 16 * count >= max(elements)} <= {n for n, _ in knob.axes}


def _is_of_groups(label: str) -> bool:
    """Whether it is named as a number of groups, not as the size of one."""
    return "group" in label.lower() and re.search("size|len|width|dim", label.lower()) is None


def _is_choice(knob: Knob) -> bool:
    """Whether its name marks a choice of the algorithm (kernel size, stride, heads) rather than a size of data."""
    return not knob.inputs_only and KEPT.search(knob.label.partition("[")[0].lower()) is not None
