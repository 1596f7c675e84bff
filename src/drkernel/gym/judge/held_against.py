"""A call at the task's own sizes, held against calls that were compared and right.

A candidate could be honest where it is checked and lazy where it is timed. So what it does at its own sizes must have
been exercised: the same kernels launched the same way and the same operators as in one right call, on as much of each
input, into all of each output, with the work that the sizes ask for. All quantities are the device's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from drkernel.gym.judge.block_work import LOADED, STORED, kept
from drkernel.gym.judge.live_share import HALF
from drkernel.gym.judge.reference_at_size import Work
from drkernel.gym.judge.seen import WHOLE, Launched, Seen, Signature

SLACK = 0.9
"""Shares and totals at sampled sizes are estimates within 5% on either side (``SampleSettings.max_error``)."""
EXACT_SLACK = 0.98
"""the same for shares where all programs were looked at and only axes of independent work were shorter: borders"""
WHOLE_SLACK, ADDRESSING = 0.5, 1.0
"""Strides of one and known sizes take some arithmetic of addresses away: at most half of a program's
whole-number work, and one operation for each byte that it moves."""
ALL_OF_IT = 0.9
"""a candidate that does so much of the reference's own arithmetic where it is checked does it by the same algorithm"""
MOST_OF_IT = 0.5
"""the same where an axis is shorter whose positions belong together (the keys of attention): nothing else tells there
whether a loop over that axis has grown with it"""
PADDING = 0.8
"""of that, what must be left at its own sizes, where tiles fit better"""
UNPADDED = 0.95
"""the same of PyTorch's operators, whose operations are counted without padding"""
FASTER = 1.5
"""growth of the reference's arithmetic over that of its bytes from which bytes cannot tell how much of it is done"""
INTENSE = 16.0
"""operations of the reference for each byte of inputs, weights and outputs from which arithmetic decides its time, so
that bytes do not tell either"""
PYTORCH = "PyTorch's operators"
"""a unit of its own in comparisons of arithmetic"""
MAIN = 0.25
"""share of a candidate's arithmetic from which a unit (tensor cores in a format, fp32) is held against itself, so that
cheaper operations do not stand for dearer ones"""
TRIFLE = 0.005
"""elements for each byte of inputs and outputs below which PyTorch only prepares something (zeros to add to)"""
FULL, NEARLY_FULL = 0.999, 0.99
"""share of an output's bytes that must be written; the second where the count is the low end of an estimate"""


@dataclass(frozen=True)
class Exercise:
    """A call that was compared with the oracle, and right."""

    seen: Seen
    work: Work | None
    """of the reference at the sizes of that call; None where it cannot be told"""
    kept_rows: bool
    """only axes of independent work were shorter than the task's own"""
    live: float = HALF
    """share of what the reference computes at the sizes of that call that its masks leave, where it has any"""


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
        if share is not None and share < (FULL if own.seen.exact else NEARLY_FULL):
            yield f"{share:.1%} of output {place} is written"


def _of_quantities(own: OwnCall, one: Exercise) -> Iterator[str]:
    yield from _of_inputs(own, one)
    yield from _of_launches(own, one)
    yield from _of_arithmetic(own, one)
    yield from _of_elements(own, one)


def _of_elements(own: OwnCall, one: Exercise) -> Iterator[str]:
    """PyTorch's operators work on as many more elements as the sizes ask for, where these come from what is larger."""
    if one.work is None:
        return
    larger = frozenset(name for name, size in own.seen.sizes.items() if size != one.seen.sizes.get(name))
    here, there = own.seen.elements(larger), one.seen.elements(larger)
    if there < TRIFLE * (one.work.input_bytes + one.work.output_bytes):
        return
    asked = least_growth(own.work, one.work)
    if here < SLACK * asked * there:
        yield f"{PYTORCH} work on {here / there:.3g} times as many elements, the reference on {asked:.3g} times"


def _of_inputs(own: OwnCall, one: Exercise) -> Iterator[str]:
    """As large a part of each input is read as where it was checked, or as much more as the sizes ask for."""
    asked = least_growth(own.work, one.work) if one.work is not None and not one.kept_rows else None
    slack = _slack(own, one)
    for name, before in one.seen.read.items():
        here, there = own.seen.share(name), one.seen.share(name)
        grown = own.seen.read.get(name, 0.0) / before if before else 1.0
        if here < slack * there and (asked is None or grown < SLACK * asked):
            yield f"{here:.1%} of {name} is read; {there:.1%} where it was checked"
    for name in sorted(own.seen.written - one.seen.written):
        yield f"{name} is written into, which it was not where it was checked"


def _of_launches(own: OwnCall, one: Exercise) -> Iterator[str]:
    """A program does as much as where it was checked, or all of them together as much as the sizes ask for."""
    asked = least_growth(own.work, one.work) if one.work is not None else None
    for signature, launched in own.seen.launched.items():
        before = one.seen.launched[signature]
        yield from _of_shares(launched, before, _slack(own, one), None if one.kept_rows else asked)
        for unit, amount in before.work.items():
            if _does_enough(launched, before, unit):
                continue
            grown = own.seen.total(unit) / one.seen.total(unit) if amount else 0.0
            if asked is None or grown < SLACK * asked:
                yield _less_work(launched, before, unit)


def _does_enough(launched: Launched, before: Launched, unit: str) -> bool:
    """A program does as much, and not by going through more with less for each piece of it."""
    here, there = launched.per_program(unit), before.per_program(unit)
    if not _as_often(launched, before, unit):
        return False
    if here >= SLACK * there or unit != WHOLE:
        return here >= SLACK * there
    moved = before.per_program(LOADED) + before.per_program(STORED)
    return here >= WHOLE_SLACK * there and there - here <= ADDRESSING * moved


def _less_work(launched: Launched, before: Launched, unit: str) -> str:
    here, there = launched.per_program(unit), before.per_program(unit)
    if here >= SLACK * there:
        return f"{launched.name} does fewer {_of(unit)} for each run of the loops around them than where it was checked"
    return f"{launched.name}: {here:.4g} {_of(unit)} a program, {there:.4g} where it was checked"


def _as_often(launched: Launched, before: Launched, unit: str) -> bool:
    """Whether blocks with work in this unit run as often for each run of the blocks around them, and masks keep no more
    of what is loaded and stored away."""
    if len(launched.blocks) != len(before.blocks):
        return False
    left = kept(before.blocks, launched.entered, launched.programs, before.entered, before.programs, unit)
    if left < SLACK:
        return False
    return unit not in (LOADED, STORED) or launched.unmasked(unit) >= SLACK * before.unmasked(unit)


def _slack(own: OwnCall, one: Exercise) -> float:
    return EXACT_SLACK if one.kept_rows and own.seen.exact else SLACK


def _of_shares(launched: Launched, before: Launched, slack: float, asked: float | None) -> Iterator[str]:
    """A kernel itself reads as large a part of each input, and of what others had made, as where it was checked.

    That all of an input is read by the kernels together says little: one may look at the same few columns in every
    program while another reads them all. Where an axis was shortened whose positions belong together, parts have
    another meaning; there it is enough that it reads ``asked`` times as much.
    """
    for name, there in before.shares.items():
        here, grown = launched.shares.get(name, 0.0), launched.read.get(name, 0.0) / before.read[name]
        if here < slack * there and (asked is None or grown < SLACK * asked):
            yield f"{launched.name} reads {here:.1%} of {name}; {there:.1%} where it was checked"


def _of_arithmetic(own: OwnCall, one: Exercise) -> Iterator[str]:
    """What did all of the reference's arithmetic where it was checked does so here, on the same units.

    Shares are of the reference's operations at the same sizes; PyTorch's operators are counted with the kernels, as one
    unit. Bytes cannot tell: programs that take a part of the keys each, in turns, read every input whole and do a
    fraction of the work.
    """
    if one.work is None or min(one.work.flops, own.work.flops) <= 0:
        return
    faster = own.work.flops / one.work.flops >= FASTER * least_growth(own.work, one.work)
    if not faster and own.work.flops_per_byte < INTENSE:
        return  # it grows with the bytes, which tell more: at few elements most of a tile's operations are padding
    here = {unit: count / own.work.flops for unit, count in _arithmetic(own.seen).items()}
    there = {unit: count / one.work.flops for unit, count in _arithmetic(one.seen).items()}
    done = sum(there.values())
    if done < (ALL_OF_IT if one.kept_rows else MOST_OF_IT):
        return
    left = PADDING * one.live if own.work.discards else PADDING  # a kernel skips what a mask discards
    least = left / max(1.0, done)
    if sum(here.values()) < least * done:
        yield f"{sum(here.values()):.1%} of the reference's arithmetic is done; {done:.1%} where it was checked"
    for unit, share in there.items():
        left = UNPADDED if unit == PYTORCH and not own.work.discards else least
        if one.kept_rows and share >= MAIN * done and here.get(unit, 0.0) < left * share:
            yield f"{here.get(unit, 0.0):.1%} of the reference's arithmetic in {unit}; {share:.1%} where it was checked"


def _arithmetic(call: Seen) -> Counter[str]:
    """Operations on floating-point numbers, by unit: of own kernels, and of PyTorch's operators."""
    found: Counter[str] = Counter({PYTORCH: call.library_flops} if call.library_flops else {})
    for launched in call.launched.values():
        for unit, count in launched.work.items():
            if not unit.startswith("bytes") and unit not in ("sfu", WHOLE):
                found[unit] += count  # type: ignore[assignment]
    return found


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
