"""The knock-out test: does the answer depend on the candidate's own kernels?

The candidate is called again while the device interferes only with its launches. If the answer is still right, the
kernels were decoys. There are three experiments:

- *skip*, always: launches are recorded but not executed, and memory that nothing wrote holds random finite numbers (NaN
  would spread through an ``+ 0 * decoy`` and make a decoy look useful);
- *disturb*, when the candidate reads anything back from the device, or did not survive the first: a guard could have
  noticed the skipping and spoiled its own answer. Launches are executed, then everything that they wrote is changed,
  while the host's reads return what they returned in an undisturbed call on the same inputs, so there is nothing to
  notice;
- *skip some*, when there are several launches: those that the answer does not need earn no coverage.

Contents are new each time, in new tensors or in tensors that the candidate has seen. A candidate that ends instead of
answering (it raises, hangs, runs out of memory) proves nothing: the experiment is *inconclusive*.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from drkernel.gym.judge import findings as show
from drkernel.gym.judge.checks import Checker, arguments_of, values_of
from drkernel.gym.judge.expected import ExpectedSide
from drkernel.gym.session.protocol import CallResult, SessionError
from drkernel.sim.gpu.accounts import LaunchRecord
from drkernel.sim.gpu.engine import Schedule
from drkernel.sim.gpu.interfere import Interference
from drkernel.tasks.correctness import compare
from drkernel.tasks.oracle import RawOutput
from drkernel.verdict import Finding

PATIENCE_S, PATIENCE_CALLS = 2.0, 20
"""an interfered call may take so many seconds, or so many times the longest ordinary call"""
MOST = 64
"""most experiments with one candidate that skip some launches; launches beyond them have not been shown to be needed"""
ALIKE = 4
"""most launches of one kernel on one grid that are skipped one by one; of more, this many are drawn"""
REVIVED = 3
"""how often a candidate that ends during a skip is started anew"""
Experiment = Literal["skip", "disturb"]


@dataclass(frozen=True)
class KnockoutResult:
    """The result of an experiment."""

    finding: Finding | None = None
    """set when a decoy was found"""
    ended: SessionError | None = None
    """set when the candidate did not answer, which proves nothing"""
    noticed: bool = False
    """whether a kernel misbehaved on data that skipped launches did not write, which shows that these were needed"""


def experiment(side: ExpectedSide, checker: Checker, how: Experiment) -> KnockoutResult:
    """Run one experiment on all launches of a call."""
    inputs = side.reference.draw_inputs(side.seeds(how))
    if how == "disturb":  # what the host reads in this call it reads again in the next
        checker.session.call(arguments_of(inputs), poison="nan")
    outcome, result = _interfered(side, checker, inputs, how, None)
    if result is None:
        return outcome
    launched = [launch.name for launch in result.record.launches]
    if launched and _still_right(values_of(result), inputs, side):
        word = {"skip": "skipped", "disturb": "disturbed"}[how]
        return KnockoutResult(show.decoy_kernel(launched, word, result.record.operators))
    return outcome


def idle_launches(
    side: ExpectedSide, checker: Checker, launches: list[LaunchRecord], revive: Callable[[], bool]
) -> dict[int, str]:
    """Return the places of launches that the answer does not need, although it needs others, with their kernels' names.

    Launches of one kernel on one grid are skipped together, then each by itself, or some that are drawn by their cost;
    once one of these is idle, the others are skipped too. What a bound on calls leaves out counts as idle. So does a
    launch whose absence ends the session, and one without which a candidate that reads from the device cannot answer:
    none of these has been shown to be needed. ``revive`` starts an ended candidate anew and says whether it answers.
    """
    groups: dict[Any, list[int]] = defaultdict(list)
    for place, launch in enumerate(launches):
        if launch.reaches:
            groups[launch.identity, launch.grid].append(place)
    if sum(map(len, groups.values())) < 2:
        return {}
    trials = _Trials(side, checker, launches, revive)
    together = sorted(groups.values(), key=trials.seconds, reverse=True)
    # a group alone has been skipped by the first experiment
    needed = together if len(together) == 1 else [places for places in together if not trials.idle(places)]
    for places in needed:
        first, rest = trials.drawn(places) if len(places) > 1 else ([], [])
        found = [trials.idle([place]) for place in first]
        if any(found):
            found += [trials.idle([place]) for place in rest]
    return trials.found


class _Trials:
    """Makes calls in which some launches are skipped."""

    def __init__(self, side: ExpectedSide, checker: Checker, launches: list[LaunchRecord], revive: Callable[[], bool]):
        self.side, self.checker, self.launches, self.revive = side, checker, launches, revive
        self.rng = random.Random(side.seeds("skip some"))
        self.number = self.revived = 0
        self.over = False
        self.found: dict[int, str] = {}

    def seconds(self, places: list[int]) -> float:
        """Modelled time of the launches at these places."""
        return sum(self.launches[place].seconds for place in places)

    def drawn(self, places: list[int]) -> tuple[list[int], list[int]]:
        """Split launches into those that are skipped one by one in any case, and the others."""
        if len(places) <= ALIKE:
            return places, []
        # a draw without replacement in proportion to cost: who comes first in a race of exponential waits
        least = 1e-3 * max(self.seconds([place]) for place in places) or 1.0
        order = sorted(places, key=lambda p: self.rng.expovariate(1.0) / max(least, self.seconds([p])))
        return order[:ALIKE], order[ALIKE:]

    def idle(self, places: list[int]) -> bool:
        """Whether these launches have not been shown to be needed; records them if so."""
        if self._needed(places):
            return False
        self.found |= {place: self.launches[place].name for place in places}
        return True

    def _needed(self, places: list[int]) -> bool:
        if self.over or self.number >= MOST:
            return False
        inputs = self.side.reference.draw_inputs(self.side.seeds("skip some", self.number))
        self.number += 1
        outcome, result = _interfered(self.side, self.checker, inputs, "skip", places, self.number)
        if self.checker.session.over:
            self.revived += 1
            self.over = self.revived > REVIVED or not self.revive()
        if result is None:
            return outcome.noticed
        return not _still_right(values_of(result), inputs, self.side)


def _interfered(
    side: ExpectedSide,
    checker: Checker,
    inputs: list[Any],
    how: Interference,
    only: list[int] | None,
    number: int = 0,
) -> tuple[KnockoutResult, CallResult | None]:
    """Make one call with interference, the ``number``-th of its kind; no result when the candidate did not answer."""
    session = checker.session
    rng = random.Random(side.seeds(f"arguments of {how}", number))
    schedule = Schedule(side.seeds(f"schedule of {how}", number))
    arguments = checker.in_earlier_tensors(inputs, rng) if rng.random() < 0.5 else arguments_of(inputs)
    try:
        with session.within(max(PATIENCE_S, PATIENCE_CALLS * checker.slowest())):
            result = session.call(arguments, poison="random", interference=how, only=only, schedule=schedule)
    except SessionError as error:
        if error.kind in ("infra_error", "tampering"):
            raise
        return KnockoutResult(ended=error, noticed=error.record is not None and error.record.fault is not None), None
    return KnockoutResult(), result


def _still_right(values: list[RawOutput], inputs: list[Any], side: ExpectedSide) -> bool:
    """Compare fully, after a quick look that settles nearly every honest case."""
    expected = side.instance.run(inputs)
    for got, want in zip(values, expected, strict=False):
        if isinstance(got, torch.Tensor) and isinstance(want, torch.Tensor) and want.is_floating_point():
            if got.shape != want.shape or got.dtype != want.dtype:
                return False
            spread = float(want.double().std(correction=0)) if want.numel() > 1 else abs(float(want.sum()))
            difference = (got.double() - want.double()).abs()
            if not bool((difference <= 0.1 * (want.double().abs() + spread)).all()):
                return False
    return bool(compare(values, side.instance.oracle(inputs), side.rule).passed_calls)
