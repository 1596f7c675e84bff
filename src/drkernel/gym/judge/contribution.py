"""The contribution of a candidate's own kernels: whether they contribute, in which calls, and what share of time
counts.

Only the calls that may be timed are considered. A candidate cannot identify them by counting; if it could, it would
still have to launch its kernels in them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from drkernel.gym.judge import findings as show
from drkernel.gym.judge.checks import Checked
from drkernel.gym.judge.seen import work_of
from drkernel.sim.gpu.accounts import LaunchRecord
from drkernel.sim.gpu.device_journal import TOO_LONG, LaunchEntry, entries_of
from drkernel.sim.process.call_record import CallRecord
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
"""share of the reference's device time that PyTorch must no longer spend where outputs are nearly what it computed"""


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
        if all_copies or record.passed_on == "exact" or _replaced(theirs, record.profile) < REPLACED_AT_LEAST:
            names = [one.name for one in launches]
            return Contribution([show.copy_kernel(names, operators)], credited=False)
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
