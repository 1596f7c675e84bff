"""Do the candidate's own kernels make its answer, in which calls, and what share of time counts?

Only the calls that may be timed are considered: a candidate cannot identify them by counting, and would have to launch
its kernels in them if it could. The *knock-out test* asks by experiment. The candidate is called again while the device
interferes only with its launches. If the answer is still right, the kernels were decoys. There are three experiments:

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

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from drkernel.gym.judge import findings as show
from drkernel.gym.judge.checks import Checked, Checker, arguments_of, values_of
from drkernel.gym.judge.expected import ExpectedSide
from drkernel.gym.judge.seen import work_of
from drkernel.gym.session.protocol import CallResult, CandidateFailed, SessionError
from drkernel.sim.gpu.accounts import LaunchRecord
from drkernel.sim.gpu.device_journal import TOO_LONG, LaunchEntry, entries_of
from drkernel.sim.gpu.engine import Schedule
from drkernel.sim.gpu.interfere import Interference
from drkernel.sim.process.control_socket import CallRecord
from drkernel.tasks.correctness import compare
from drkernel.tasks.cost import cost_of, on_meta
from drkernel.tasks.reference import Reference
from drkernel.verdict import Finding, Profile

COPYING = ("aten.clone", "aten._to_copy", "aten.copy_", "aten.contiguous")
"""operators whose work an own kernel that copies may have taken over"""
STABLE = 1.05
"""a modelled time that varies by more than this factor between calls is not reported as one time"""
MORE = 1.1
"""times the work of own kernels that another number may ask for"""
REPLACED_AT_LEAST = 0.02
"""share of the reference's time that PyTorch spends no longer where none is condemned for nearly passing on results"""


def timed_calls(calls: list[Checked]) -> list[Checked]:
    """Return the calls that may be timed; the first one, which compiles and tunes, only if there is no other."""
    return [call for call in calls if call.timed] or calls[:1]


def device_records(calls: list[Checked]) -> list[CallRecord]:
    """Return what the judge's own device observed in each call; empty on a real GPU."""
    return [call.result.record.device for call in calls if call.result.record.device is not None]


def slowest(profiles: list[Profile]) -> Profile:
    """Return the profile to report: that of the slowest quarter, or the slowest of all when they differ."""
    ordered = sorted(profiles, key=lambda profile: profile.elapsed_seconds)
    return ordered[-1] if spread(profiles) > STABLE else ordered[math.ceil(0.75 * len(ordered)) - 1]


def spread(profiles: list[Profile]) -> float:
    """Return the ratio of longest to shortest time; 1 when there is none."""
    seconds = [profile.elapsed_seconds for profile in profiles]
    return max(seconds) / min(seconds) if seconds and min(seconds) > 0 else 1.0


def eased_by_numbers(calls: list[Checked], reference: Reference) -> tuple[str, ...]:
    """Return the plain numbers with other values of which own kernels work more, and the reference does not."""
    for call in calls:
        if call.mode != "renumbered":
            continue
        usual, other = [_work(one) for one in timed_calls(calls)], _work(call)
        inputs = calls[0].case.inputs, call.case.inputs
        if any(amount > MORE * max(one[unit] for one in usual) for unit, amount in other.items()):
            model = on_meta(reference)[0]
            if len({cost_of(model, given)[0] for given in inputs}) == 1:
                return call.case.changed
    return ()


def _work(call: Checked) -> Counter[str]:
    """Bytes and operations of a call's own launches, by unit."""
    done: Counter[str] = Counter()
    record = call.result.record.device
    for entry in entries_of(record.journal) if record is not None and record.journal != TOO_LONG else ():
        if isinstance(entry, LaunchEntry):
            done.update(work_of(entry))
    return done


@dataclass
class Contribution:
    """The result of examining the timed calls."""

    findings: list[Finding] = field(default_factory=list)
    credited: bool = True
    """whether speedup and coverage may be given"""
    copies_count: bool = False
    """whether copies of PyTorch's results replace copies that the reference makes"""
    adds_little: bool = False
    """whether the answer is nearly what PyTorch made, and is not that without own kernels"""


def contribution(
    calls: list[Checked], reference: Callable[[], Profile | None], makes_the_answer: Callable[[], bool]
) -> Contribution:
    """Determine whether own kernels contributed to the calls that may be timed; only for right answers.

    ``reference`` returns the reference's profile where times are modelled, ``makes_the_answer`` whether exact
    arithmetic shows that own kernels do; both are called only when copies are in doubt.
    """
    timed = timed_calls(calls)
    operators: Counter[str] = Counter()
    for call in timed:
        operators.update(call.result.record.operators)
    if not any(call.result.record.launches for call in timed):
        return Contribution([show.no_custom_kernel(dict(operators))], credited=False)
    records = device_records(timed)
    if not records:
        return Contribution()  # a real GPU, where nobody sees what reaches what
    launched = [record.launches for record in records]
    working = [[one for one in some if one.reaches] for some in launched]
    if not any(working):
        names = [one.name for some in launched for one in some]
        return Contribution([show.decoy_kernel(names, "unreached", dict(operators))], credited=False)
    if not all(working):
        idle = [call.index for call, some in zip(timed, working, strict=True) if not some]
        return Contribution([show.kernels_missing_when_timed(idle)], credited=False)
    return _of_copies(records, working, dict(operators), reference, makes_the_answer)


def _of_copies(
    records: list[CallRecord],
    working: list[list[LaunchRecord]],
    operators: dict[str, int],
    reference: Callable[[], Profile | None],
    makes_the_answer: Callable[[], bool],
) -> Contribution:
    """Judge candidates whose kernels may only copy what PyTorch or the host computed."""
    for record, launches in zip(records, working, strict=True):
        if not (record.reaching or record.uploads_reach):
            continue
        all_copies = all(one.copied for one in launches)
        if not all_copies and record.passed_on is None:
            continue
        theirs = reference()
        if theirs is None:
            continue
        if (all_copies and _copies(theirs) > _copies(record.profile)) or makes_the_answer():
            return Contribution(copies_count=all_copies, adds_little=True)
        exact = all_copies or record.passed_on == "exact"
        # another operator of PyTorch's may have replaced the reference's: what is no copy to the bit condemns nobody
        condemns = exact or _replaced(theirs, record.profile) < REPLACED_AT_LEAST
        names = [one.name for one in launches]
        how = "bit for bit" if exact else "but for less than the tolerance"
        return Contribution([show.copy_kernel(names, operators, how, condemns)], credited=False)
    return Contribution()


def _copies(profile: Profile) -> int:
    return sum(row.calls for row in profile.rows if row.name in COPYING)


def _replaced(reference: Profile, candidate: Profile) -> float:
    """Return the share of the reference's device time that PyTorch and copies no longer spend."""
    left = sum(row.seconds for row in candidate.rows if row.owner != "custom")
    return 1.0 - left / reference.total_seconds if reference.total_seconds > 0 else 0.0


def same_places(
    idle: Mapping[int, str], checked: Sequence[LaunchRecord], own: Sequence[LaunchRecord]
) -> dict[int, str]:
    """Map the idle launches of a checked call to those of a call at other sizes.

    By place among the launches of the same name when both calls have equally many; otherwise every launch whose name
    has an idle one.
    """
    found: dict[int, str] = {}
    for name in set(idle.values()):
        before = [place for place, one in enumerate(checked) if one.name == name]
        here = [place for place, one in enumerate(own) if one.name == name]
        alike = len(before) == len(here)
        found |= {there: name for n, there in enumerate(here) if not alike or before[n] in idle}
    return found


def counted_coverage(record: CallRecord, idle: Collection[int], part: Contribution) -> float:
    """Return the share of a call's device time in own launches that count.

    A launch counts if its stores reach the outputs. Copies of what PyTorch computed do not count (unless they replaced
    a copy of the reference's), nor do launches that the answer does not need (``idle``, by place).
    """
    if record.profile.total_seconds <= 0 or (record.passed_on is not None and not part.adds_little):
        return 0.0
    seconds = sum(
        one.seconds
        for place, one in enumerate(record.launches)
        if one.reaches and place not in idle and not one.suppressed and (part.copies_count or not one.copied_library)
    )
    return min(1.0, seconds / record.profile.total_seconds)


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
    record = result.record.device
    if how == "disturb" and record is not None and record.uploads_reach and not record.of_given:
        return outcome  # kernels may reach it through what the host read, and now read again; it earns nothing
    if launched and _still_right(checker, result, inputs):
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
        return not _still_right(self.checker, result, inputs)


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
            checker.hold(inputs, result)
    except CandidateFailed as error:
        return KnockoutResult(ended=error, noticed=error.record is not None and error.record.fault is not None), None
    return KnockoutResult(), result


def _still_right(checker: Checker, result: CallResult, inputs: list[Any]) -> bool:
    """Compare fully, after a quick look that settles nearly every honest case."""
    side, values = checker.side, values_of(result)
    expected = side.instance.run(inputs)
    for got, want in zip(values, expected, strict=False):
        if isinstance(got, torch.Tensor) and isinstance(want, torch.Tensor) and want.is_floating_point():
            if got.shape != want.shape or got.dtype != want.dtype:
                return False
            spread = float(want.double().std(correction=0)) if want.numel() > 1 else abs(float(want.sum()))
            difference = (got.double() - want.double()).abs()
            if not bool((difference <= 0.1 * (want.double().abs() + spread)).all()):
                return False
    oracle = side.instance.oracle(inputs)
    right = bool(compare(values, oracle, side.rule).passed_calls)
    return right and not any(place in oracle.mutated for place, _ in checker.wrong_arguments(oracle, result))
