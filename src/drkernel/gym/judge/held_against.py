"""A call at the task's own sizes, held against calls that were compared and right.

A candidate could be honest where it is checked and lazy where it is timed. So what it does at its own sizes must have
been exercised: the same kernels launched the same way and the same operators as in one right call, on as much of each
input, into all of each output, with the work that the sizes ask for. All quantities are the device's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from drkernel.gym.judge.reference_at_size import Work
from drkernel.gym.judge.seen import Seen, Signature

SLACK = 0.9
"""Shares and totals at sampled sizes are estimates within 5% on either side (``SampleSettings.max_error``)."""
ALL_OF_IT = 0.9
"""a candidate that does so much of the reference's own arithmetic where it is checked does it by the same algorithm"""
PADDING = 0.8
"""of that, what must be left at its own sizes, where tiles fit better"""
FULL = 0.999
"""share of an output's bytes that must be written"""


@dataclass(frozen=True)
class Exercise:
    """A call that was compared with the oracle, and right."""

    seen: Seen
    work: Work | None
    """of the reference at the sizes of that call; None where it cannot be told"""
    kept_rows: bool
    """only axes of independent work were shorter than the task's own"""


@dataclass(frozen=True)
class OwnCall:
    """A call at the task's own sizes."""

    seen: Seen
    work: Work
    covered: tuple[float | None, ...]
    """share of each returned tensor that was written in this call; None for what is no tensor on the device"""
    borrowed: tuple[str | None, ...]
    """name of the argument in whose memory it lies"""


def unexercised(own: Seen, exercises: Sequence[Exercise]) -> list[Signature]:
    """Signatures of the call that no right call has shown."""
    known = frozenset[Signature]().union(*(one.seen.signatures for one in exercises))
    return [signature for signature in own.launched if signature not in known]


def fitting(own: Seen, exercises: Sequence[Exercise]) -> list[Exercise]:
    """The right calls that did what this call does: the same launches and operators, in whatever numbers."""
    return [one for one in exercises if _does_the_same(own, one.seen)]


def _does_the_same(own: Seen, other: Seen) -> bool:
    return own.signatures == other.signatures and own.operators == other.operators


def differences(own: OwnCall, exercises: Sequence[Exercise], views: frozenset[int] = frozenset()) -> list[str]:
    """What does not fit, a sentence each; empty when the call's time may be given.

    ``views`` are places of outputs that the reference returns as views of its arguments.
    """
    same = fitting(own.seen, exercises)
    if not same:
        return list(_other_work(own.seen, exercises))
    found = [list(_of_quantities(own, one)) for one in same]
    return [*_of_outputs(own, views), *min(found, key=len)]


def _other_work(own: Seen, exercises: Sequence[Exercise]) -> Iterator[str]:
    unknown = unexercised(own, exercises)
    for signature in unknown[:4]:
        yield f"{own.launched[signature].words} was launched in no call that was compared"
    known = [one.seen.operators for one in exercises]
    if own.operators not in known:
        theirs = " or ".join(dict.fromkeys(", ".join(one) or "none" for one in known))
        yield f"PyTorch's operators are {', '.join(own.operators) or 'none'}; in calls that were compared: {theirs}"[
            :600
        ]
    elif not unknown:
        yield "no call that was compared launched just these kernels together"


def _of_outputs(own: OwnCall, views: frozenset[int]) -> Iterator[str]:
    for place, (share, argument) in enumerate(zip(own.covered, own.borrowed, strict=True)):
        if place in views:
            continue
        if argument is not None:
            yield f"output {place} lies in the memory of {argument}"
        if share is not None and share < FULL:
            yield f"{share:.1%} of output {place} is written"


def _of_quantities(own: OwnCall, one: Exercise) -> Iterator[str]:
    yield from _of_inputs(own, one)
    yield from _of_launches(own, one)
    yield from _of_arithmetic(own, one)
    if one.work is not None and one.seen.elements:
        grown, asked = own.seen.elements / one.seen.elements, least_growth(own.work, one.work)
        if grown < SLACK * asked:
            yield f"PyTorch's operators work on {grown:.3g} times as many elements, the reference on {asked:.3g} times"


def _of_inputs(own: OwnCall, one: Exercise) -> Iterator[str]:
    """As large a part of each input is read as where it was checked, or as much more as the sizes ask for."""
    asked = least_growth(own.work, one.work) if one.work is not None and not one.kept_rows else None
    for name, before in one.seen.read.items():
        here, there = own.seen.share(name), one.seen.share(name)
        grown = own.seen.read.get(name, 0.0) / before if before else 1.0
        if here < SLACK * there and (asked is None or grown < SLACK * asked):
            yield f"{here:.1%} of {name} is read; {there:.1%} where it was checked"
    for name in sorted(own.seen.written - one.seen.written):
        yield f"{name} is written into, which it was not where it was checked"


def _of_launches(own: OwnCall, one: Exercise) -> Iterator[str]:
    """A program does as much as where it was checked, or all of them together as much as the sizes ask for."""
    asked = least_growth(own.work, one.work) if one.work is not None else None
    for signature, launched in own.seen.launched.items():
        before = one.seen.launched[signature]
        for unit, amount in before.work.items():
            if launched.per_program(unit) >= SLACK * before.per_program(unit):
                continue
            grown = own.seen.total(unit) / one.seen.total(unit) if amount else 0.0
            if asked is None or grown < SLACK * asked:
                yield (
                    f"{launched.name}: {launched.per_program(unit):.4g} {_of(unit)} a program, "
                    f"{before.per_program(unit):.4g} where it was checked"
                )


def _of_arithmetic(own: OwnCall, one: Exercise) -> Iterator[str]:
    """What did all of the reference's arithmetic at shorter axes of independent work does so here."""
    if one.work is None or not one.kept_rows or min(one.work.flops, own.work.flops) <= 0:
        return
    here, there = (_arithmetic(seen) / work.flops for seen, work in ((own.seen, own.work), (one.seen, one.work)))
    if there >= ALL_OF_IT and here < PADDING:
        yield f"{here:.1%} of the reference's arithmetic is done; {there:.1%} where it was checked"


def _arithmetic(call: Seen) -> float:
    """Operations of own kernels on floating-point numbers."""
    return sum(
        count
        for launched in call.launched.values()
        for unit, count in launched.work.items()
        if not unit.startswith("bytes") and unit != "sfu"
    )


def least_growth(own: Work, other: Work) -> float:
    """How much more the reference has to do at its own sizes, by the quantity that grows least."""
    pairs = [
        (own.flops, other.flops),
        (own.read, other.read),
        (own.input_bytes + own.weight_bytes, other.input_bytes + other.weight_bytes),
    ]
    return min((mine / theirs for mine, theirs in pairs if theirs > 0), default=1.0)


def _of(unit: str) -> str:
    return unit if unit.startswith("bytes") else f"{unit} operations"
