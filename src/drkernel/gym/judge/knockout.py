"""The knock-out test: does the answer depend on the candidate's own kernels?

The candidate is called again while the device interferes only with its launches. If the answer is still right, the
kernels were decoys. There are three experiments:

- *skip*, always: launches are recorded but not executed, and memory that nothing wrote holds random finite numbers (NaN
  would spread through an ``+ 0 * decoy`` and make a decoy look useful);
- *disturb*, when the candidate reads anything back from the device, or did not survive the first: a guard could have
  noticed the skipping and spoiled its own answer. Launches are executed, then everything that they wrote is changed,
  while the host's reads return what they returned in an undisturbed call on the same inputs, so there is nothing to
  notice;
- *skip some*, when there are several kernels: those that the answer does not need earn no coverage.

Contents are new each time, in new tensors or in tensors that the candidate has seen. A candidate that ends instead of
answering (it raises, hangs, runs out of memory) proves nothing: the experiment is *inconclusive*.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Literal

import torch

from drkernel.gym.judge import findings as show
from drkernel.gym.judge.checks import Checker, arguments_of, values_of
from drkernel.gym.judge.expected import ExpectedSide
from drkernel.gym.session.answers import CallResult, SessionError
from drkernel.sim.gpu.accounts import LaunchRecord
from drkernel.sim.gpu.interfere import Interference
from drkernel.tasks.correctness import compare
from drkernel.tasks.oracle import RawOutput
from drkernel.verdict import Finding

PATIENCE_S, PATIENCE_CALLS = 2.0, 20
"""an interfered call may take so many seconds, or so many times the longest ordinary call"""
MAX_GROUPS = 4
"""kernels that are skipped one at a time"""
Experiment = Literal["skip", "disturb"]


@dataclass(frozen=True)
class Outcome:
    """The result of an experiment."""

    finding: Finding | None = None
    """set when a decoy was found"""
    ended: SessionError | None = None
    """set when the candidate did not answer, which proves nothing"""
    noticed: bool = False
    """whether a kernel went astray on data that others did not write, which shows that these were needed"""


def experiment(side: ExpectedSide, checker: Checker, how: Experiment) -> Outcome:
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
        return Outcome(show.decoy_kernel(launched, word, result.record.operators))
    return outcome


def idle_launches(side: ExpectedSide, checker: Checker, launches: list[LaunchRecord]) -> dict[int, str]:
    """Return the places of launches that the answer does not need, although it needs others, with their kernels' names.

    The costliest kernels are skipped, one at a time. A launch whose absence ends the session counts as idle, and so
    does one without which a candidate that reads from the device cannot answer: neither has been shown to be needed.
    """
    groups: dict[Any, list[int]] = defaultdict(list)
    for place, launch in enumerate(launches):
        if launch.reaches:
            groups[launch.identity, launch.grid].append(place)
    idle: dict[int, str] = {}
    if len(groups) < 2:
        return idle
    costly = sorted(groups.values(), key=lambda places: -sum(launches[place].seconds for place in places))
    for number, places in enumerate(costly[:MAX_GROUPS]):
        if checker.session.over:
            break
        inputs = side.reference.draw_inputs(side.seeds("skip some", number))
        outcome, result = _interfered(side, checker, inputs, "skip", places)
        unknown = outcome.ended is not None and not outcome.noticed
        if unknown or (result is not None and _still_right(values_of(result), inputs, side)):
            idle |= {place: launches[place].name for place in places}
    return idle


def _interfered(
    side: ExpectedSide, checker: Checker, inputs: list[Any], how: Interference, only: list[int] | None
) -> tuple[Outcome, CallResult | None]:
    """Make one call with interference; no result when the candidate did not answer."""
    session = checker.session
    rng = random.Random(side.seeds(f"arguments of {how}", len(only or ())))
    arguments = checker.in_earlier_tensors(inputs, rng) if rng.random() < 0.5 else arguments_of(inputs)
    try:
        with session.within(max(PATIENCE_S, PATIENCE_CALLS * checker.slowest())):
            result = session.call(arguments, poison="random", interference=how, only=only)
    except SessionError as error:
        if error.kind in ("infra_error", "tampering"):
            raise
        return Outcome(ended=error, noticed=error.record is not None and error.record.fault is not None), None
    return Outcome(), result


def _still_right(values: list[RawOutput], inputs: list[Any], side: ExpectedSide) -> bool:
    """The full comparison, after a quick look that settles nearly every honest case."""
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
