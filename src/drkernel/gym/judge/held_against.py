"""Compares a call at the task's own sizes with calls that were checked and correct.

A candidate could be honest where it is checked and lazy where it is timed. So whatever it does at the task's own sizes
must have been exercised: the same kernels launched in the same way and the same operators as in one correct call, on as
large a part of each input, into all of each output, with as much work as the sizes require. All quantities come from
the device.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from drkernel.gym.judge.modelled_timing import HALF, ReferenceWork
from drkernel.gym.judge.seen import BETWEEN, UPDATES, WHOLE, Launched, Seen, Signature
from drkernel.sim.gpu.pricing import LOADED, STORED

SLACK = 0.9
"""Shares and totals at sampled sizes are estimates within 5% on either side (``SampleSettings.max_error``)."""
EXACT_SLACK = 0.98
"""the same for shares where all programs were counted: borders"""
WHOLE_SLACK, ADDRESSING = 0.5, 1.0
"""Strides of one and known sizes save address arithmetic: at most half of a program's integer work, and one operation
per byte moved."""
AGREEING = 0.95
"""shares of the reference's arithmetic at two sizes agree from here: samples of programs err by that much"""
TELLING = 0.45
"""a smaller exponent of arithmetic's growth is of sizes within a tile, and says nothing of larger ones"""
PADDING = 0.8
"""the share of a checked call's arithmetic that must remain where only one size was checked: tiles may fit better"""
UNPADDED = 0.95
"""the same for PyTorch's operators, whose operations are counted without padding"""
DIAGONAL = 2 / 3
"""what remains of the share of tiles on one side of a diagonal, from two a side on"""
FASTER = 1.5
"""when the reference's arithmetic grows this much faster than its bytes, bytes cannot show how much of it is done"""
INTENSE = 16.0
"""from this many operations per byte of inputs, weights and outputs, arithmetic decides the reference's time, so bytes
do not show how much is done either"""
PYTORCH = "PyTorch's operators"
"""counted as a unit of its own in comparisons of arithmetic"""
MAIN = 0.25
"""a unit (tensor cores in a format, fp32) with at least this share of the candidate's arithmetic is compared by itself,
so that cheap operations do not replace expensive ones"""
LANES = 0.25
"""share of a launch's used lanes, and of its loops' runs, that there must have been where rows were shorter"""
BESIDE = 0.5
"""share of the sectors for a lane that loads, per lane that writes: masks of the two may differ where tiles end"""
TRIFLE = 0.005
"""below this many elements per byte of inputs and outputs, PyTorch only prepares something (zeros to add to)"""
MOSTLY = 0.75
"""from this share of what the call itself has made, a reader takes no picks of it, and no tiles beside a diagonal"""
NOTABLE = 0.05
"""from this share of the bytes that own kernels read, what the call itself has made must grow with the sizes"""
ADDRESSES = 0.1
"""with fewer other operations for each on whole numbers, these are no addresses alone"""
ADDITIONS = 0.5
"""operations for a byte loaded: one for a number of sixteen bits"""
SHORTCUT, ONCE = 0.1, 2.0
"""an algorithm of at most this share of the reference's arithmetic, with so many operations for a byte that it reads,
takes each byte about once: bytes show how much of it is done"""
FULL, NEARLY_FULL = 0.999, 0.99
"""share of an output's bytes that must be written; the second where the count is the low end of an estimate"""


@dataclass(frozen=True)
class Exercise:
    """A call whose answer was compared with the oracle and correct."""

    seen: Seen
    work: ReferenceWork | None
    """the reference's work at the sizes of that call; None when unknown"""
    kept_rows: bool
    """only axes of independent work were shorter than the task's own"""
    all_steps: bool = False
    """the reference took as many steps as at its own sizes"""


@dataclass(frozen=True)
class OwnCall:
    """A call at the task's own sizes."""

    seen: Seen
    work: ReferenceWork
    covered: tuple[float | None, ...]
    """share of each returned tensor that this call wrote; None for a value that is not a tensor on the device"""
    borrowed: tuple[str | None, ...]
    """the argument that shares its memory"""


def unexercised(own: Seen, exercises: Sequence[Exercise]) -> list[Signature]:
    """Signatures of the call that occur in no correct call."""
    known = frozenset[Signature]().union(*(one.seen.signatures for one in exercises))
    return [signature for signature in own.launched if signature not in known]


def fitting(own: Seen, exercises: Sequence[Exercise]) -> list[Exercise]:
    """The correct calls with the same launches and operators, in any number; those that go as far, if there are any."""
    facts = own.signatures, own.operators  # of calls of all steps only the rounds are known to be as many
    alike = [one for one in exercises if not one.all_steps and facts == (one.seen.signatures, one.seen.operators)]
    lanes = [(signature, LANES * launched.unmasked(LOADED)) for signature, launched in own.launched.items()]
    same = [  # where a row is shorter than a block, lanes are unused, and a loop over blocks runs once in any case
        one
        for one in alike
        if one.kept_rows or all(one.seen.launched[name].unmasked(LOADED) >= least for name, least in lanes)
    ]
    return [one for one in same if goes_as_far(own, one)] or same


def goes_as_far(own: Seen, one: Exercise) -> bool:
    """Whether loops ran about as often for each run of what is around them."""
    pairs = [(one.seen.launched.get(signature), here) for signature, here in own.launched.items()]
    return one.kept_rows or all(there and there.kept(here, LOADED) >= LANES for there, here in pairs)


def differences(
    own: OwnCall, exercises: Sequence[Exercise], views: frozenset[int] = frozenset(), *, left: float = PADDING
) -> list[str]:
    """Mismatches between the two runs, one sentence each; empty when the call's time may be used.

    ``views`` are places of outputs that the reference returns as views of its arguments; ``left`` is the share of a
    checked call's arithmetic that must remain where no two sizes say what is to be expected.
    """
    same = fitting(own.seen, exercises)
    if not same:
        return list(_other_work(own.seen, exercises))
    found = [list(_of_quantities(own, one, same, left)) for one in same]
    return [*_of_outputs(own, views), *_of_rounds(own, exercises), *min(found, key=len)]


def _of_rounds(own: OwnCall, exercises: Sequence[Exercise]) -> Iterator[str]:
    """Programs run no fewer rounds than in calls with whole rows, or all of the reference's steps: where one waits for
    the one before, more programs cannot take over the rounds of one."""
    whole = [one for one in exercises if one.kept_rows or one.all_steps]
    for signature, here in own.seen.launched.items() if not own.work.discards else ():
        there = [one.seen.launched[signature] for one in whole if signature in one.seen.launched]
        if there and max(here.kept(each, LOADED) for each in there) < SLACK:
            yield f"{here.name} runs fewer rounds a program than in whole rows, or all steps"
        looped = any(block.parent is not None and block.work for block in here.blocks)
        if looped and not there and any(one.all_steps for one in whole):
            yield f"{here.words} was launched in no call with whole rows, or all steps"


def unclear(own: OwnCall, exercises: Sequence[Exercise], views: frozenset[int]) -> bool:
    """Whether all that differs is what small sizes may not show: kernels for larger ones, lanes that are not filled,
    arithmetic whose share does not yet fall within a tile."""
    if fitting(own.seen, exercises):
        return bool(differences(own, exercises, views)) and not differences(own, exercises, views, left=0.0)
    return any(own.seen.operators == one.seen.operators for one in exercises) and not any(_of_outputs(own, views))


def _other_work(own: Seen, exercises: Sequence[Exercise]) -> Iterator[str]:
    unknown = unexercised(own, exercises)
    for signature in unknown[:4]:
        yield f"{own.launched[signature].words} was launched in no call that was compared"
    known = [one.seen.operators for one in exercises]
    if own.operators not in known:
        theirs = " or ".join(dict.fromkeys(", ".join(one) or "none" for one in known))
        mine = ", ".join(own.operators) or "none"
        yield f"PyTorch's operators are {mine}; in calls that were compared: {theirs}"[:600]
    elif not unknown:
        yield "no call that was compared launched just these kernels together"


def _of_outputs(own: OwnCall, views: frozenset[int]) -> Iterator[str]:
    for place, (share, argument) in enumerate(zip(own.covered, own.borrowed, strict=True)):
        if argument is not None and place not in views:
            yield f"output {place} lies in the memory of {argument}"
        if share is not None and place not in views and share < (FULL if own.seen.exact else NEARLY_FULL):
            yield f"{share:.1%} of output {place} is written"


def _of_quantities(own: OwnCall, one: Exercise, same: Sequence[Exercise], left: float) -> Iterator[str]:
    yield from _of_inputs(own, one, same)
    yield from _of_launches(own, one, same, left)
    yield from _of_arithmetic(own, one, same, left)
    yield from _of_elements(own, one)


def _of_elements(own: OwnCall, one: Exercise) -> Iterator[str]:
    """PyTorch's operators go along the same axes, and work on as many more elements as the sizes require, where these
    derive from larger inputs. One makes up for no other: each does no more than the sizes allow, and where only
    independent axes are longer, no less than they ask for."""
    for label, calls, known in zip(own.seen.operators, own.seen.calls, one.seen.calls, strict=True):
        if not all(any(call.as_much_as(other) for other in known) for call in calls):
            yield f"{label.partition('(')[0]} goes along other or shorter axes than where it was checked"
    for label, share in one.seen.parts.items():
        if _is_used(own, share) and own.seen.parts.get(label, 0.0) < SLACK * share:
            yield f"{label} reads {_often(own.seen.parts.get(label, 0.0))} of {BETWEEN}; {_often(share)} when checked"
    if one.work is None:
        return
    larger = frozenset(name for name, size in own.seen.sizes.items() if size != one.seen.sizes.get(name))
    trifle = TRIFLE * (one.work.input_bytes + one.work.output_bytes)
    here, there = own.seen.elements(larger), one.seen.elements(larger)
    asked, most = least_growth(own.work, one.work), max(growths(own.work, one.work))
    if own.work.output_bytes >= own.work.input_bytes:  # what is made of inputs may grow as outputs do, then
        asked = min(asked, own.work.output_bytes / max(1, one.work.output_bytes))
    labels = [label.partition("(")[0] for label in own.seen.operators]
    mine, theirs = ([work.elements.get(label, 0.0) for label in labels] for work in (own.work, one.work))
    if labels and all(theirs):  # it leaves to PyTorch what the reference does so
        asked = min(asked, sum(mine) / sum(theirs))
    grown = sum(min(here[label], most * amount) for label, amount in there.items()) / (there.total() or 1.0)
    if there.total() >= trifle and grown < SLACK * asked:
        yield f"{PYTORCH} work on {grown:.3g} times as many elements, the reference on {asked:.3g} times"
    here, there = own.seen.elements(larger, alone=True), one.seen.elements(larger, alone=True)
    least = least_size_growth(own, one)
    for label, amount in there.items() if one.kept_rows else ():
        if amount >= trifle and here[label] < SLACK * least * amount:
            yield f"{label} works on {here[label] / amount:.3g} times as many elements, the sizes are {least:.3g} times"


def _of_inputs(own: OwnCall, one: Exercise, same: Sequence[Exercise]) -> Iterator[str]:
    """Each input is read to the same extent as when checked, or by as much more as the sizes require, or as tiles along
    a diagonal do."""
    slack = EXACT_SLACK if own.seen.exact else SLACK
    for name, before in one.seen.read.items():
        here, there = own.seen.share(name), one.seen.share(name)
        grown = own.seen.read.get(name, 0.0) / before if before else 1.0
        least = _least_share(own, name, [(each.seen.sizes, {name: each.seen.share(name)}) for each in same])
        if here < slack * there and grown < slack * _growth_of(own, one, name) and here < least:
            yield f"{_often(here)} of {name} is read; {_often(there)} where it was checked"
    for name in sorted(own.seen.written - one.seen.written):
        yield f"{name} is written into, which it was not where it was checked"


def _of_launches(own: OwnCall, one: Exercise, same: Sequence[Exercise], left: float) -> Iterator[str]:
    """A program does as much work as when checked, or all programs together do as much as the sizes require.

    Without ``left`` lanes and sectors are open: where rows were short, tiles were not filled, and sectors shared.
    """
    asked = least_growth(own.work, one.work) if one.work is not None else None
    for signature, launched in own.seen.launched.items():
        before = one.seen.launched[signature]
        parts = [(each.seen.sizes, each.seen.launched[signature].shares) for each in same]
        least = {name: _least_share(own, name, parts) for name in before.shares}
        yield from _of_shares(launched, before, own, one, least)
        yield from _of_results(own, launched, one, before)
        checked = [each.seen.launched[signature] for each in same]
        yield from _of_loops(launched, checked)
        yield from (*_of_lanes(launched, checked), *_of_updates(own, launched, same, checked)) if left else ()
        adds = _adds_sheets(launched) and _adds_sheets(before)
        if adds and sum(launched.wrote.values()) >= SLACK * least_size_growth(own, one) * sum(before.wrote.values()):
            continue
        for unit, amount in before.work.items():
            if _does_enough(launched, before, unit) or (unit == STORED and not left):
                continue
            grown = own.seen.total(unit) / one.seen.total(unit) if amount else 0.0
            if asked is None or grown < SLACK * asked * (DIAGONAL if own.work.discards else 1):
                what = unit if unit.startswith("bytes") or unit == UPDATES else f"{unit} operations"
                yield f"{launched.name} does fewer {what} a program, or a run of its loops, than where it was checked"


def _of_lanes(launched: Launched, checked: Sequence[Launched]) -> Iterator[str]:
    """Lanes write no more than where it was checked, where masks may have hidden work in vain, and what lay far apart
    for each of them does not lie side by side, in fewer sectors. Products are held against the reference's; masks keep
    away what they load along one axis or the other, which may be as long as tiles, and what they write along two.
    """
    every = (launched, *checked)
    filled, *known = [one.filled for one in every]
    if SLACK * filled > max(known) and not launched.products:
        yield f"{launched.name} writes with {filled:.1%} of its lanes; {max(known):.1%} where it was checked"
    stores, *known = [one.work[STORED] / (sum(one.wrote.values()) or 1.0) for one in every]
    if stores < SLACK * min(known):
        yield f"{launched.name} stores {stores:.3g} times what it touches; {min(known):.3g} where it was checked"
    loads, *known = [one.unmasked(LOADED) / (1.0 if one.products else one.filled or 1.0) for one in every]
    if loads < BESIDE * min(known):
        yield f"{launched.name} loads {loads:.3g} times its lanes; {min(known):.3g} where it was checked"


def _of_updates(
    own: OwnCall, launched: Launched, same: Sequence[Exercise], checked: Sequence[Launched]
) -> Iterator[str]:
    """As many atomic updates meet in a place as is to be expected: by how that grew with updates for a byte of output
    from one checked size to a larger one; with all updates where it grew more than so."""
    pairs = [(it, each.work or own.work) for it, each in zip(checked, same, strict=True)]
    counted = {(it.work[UPDATES], work.output_bytes or 1): it.meeting for it, work in pairs if it.meeting}
    if not counted or not launched.meeting:
        return
    ((less, fewer), before), ((more, outputs), met) = (2 * sorted(counted.items()))[-2:]
    if before < SLACK * met / max(1.0, more * fewer / (less * outputs)):
        fewer = outputs = own.work.output_bytes  # places do not grow as outputs do
    grown, power = more * fewer / (less * outputs), 1.0
    if grown > 1:
        power = min(1.0, max(0.0, math.log(met / before) / math.log(grown)))
    grown = launched.work[UPDATES] * outputs / (more * max(1, own.work.output_bytes))
    if launched.meeting < BESIDE * (expected := met * max(1.0, grown) ** power):
        yield f"{launched.meeting:.3g} of {launched.name}'s updates meet in a byte; {expected:.3g} are expected"


def _of_loops(launched: Launched, checked: Sequence[Launched]) -> Iterator[str]:
    """Loops and branches were run by programs that made much of the answer, and do as much for each byte that they
    write; what a program prepares before may serve more rows."""
    for number, block in enumerate(launched.blocks):
        if not block.work or not launched.entered.get(number):
            continue
        ran = max(one.written_with(number) for one in checked)
        if ran < min(LANES, SLACK * launched.written_with(number)):  # the last of a few programs makes a share of it
            yield f"{launched.name} runs code that made {ran:.1%} of the answer where it was checked"
    here, *before = [{} if one.products else one.inner for one in (launched, *checked)]
    for unit in before[0]:
        now, least = here.get(unit, 0.0), min(one.get(unit, 0.0) for one in before)
        if now < SLACK * least:
            yield f"{launched.name} does {now:.3g} {unit} operations in loops a byte; {least:.3g} where it was checked"


def _adds_sheets(launched: Launched) -> bool:
    """Whether a kernel does no more than add up what products have made.

    There are as many sheets as the card has room for, so fewer for each program where there are more programs.
    """
    operations = sum(count for unit, count in launched.work.items() if unit not in (LOADED, STORED, WHOLE, UPDATES))
    return launched.sheets and operations <= ADDITIONS * launched.work.get(LOADED, 0.0)


def _does_enough(launched: Launched, before: Launched, unit: str) -> bool:
    """A program does as much work as the busiest one did, and not by visiting more pieces with less work for each."""
    here, there, often = launched.per_program(unit), before.most(unit), _as_often(launched, before, unit)
    if here >= SLACK * there or unit != WHOLE or not often:
        return often and here >= SLACK * there
    moved = before.per_program(LOADED) + before.per_program(STORED)
    return here >= WHOLE_SLACK * there and there - here <= ADDRESSING * moved


def _as_often(launched: Launched, before: Launched, unit: str) -> bool:
    """Whether blocks with work in this unit run as often for each run of their enclosing blocks, and masks keep no more
    away from what is loaded and stored."""
    if len(launched.blocks) != len(before.blocks) or launched.kept(before, unit) < SLACK:
        return False
    if unit == LOADED and _beside_stores(launched) < SLACK * min(1.0, _beside_stores(before)):
        return False
    return unit not in (LOADED, STORED) or launched.unmasked(unit) >= SLACK * before.unmasked(unit)


def _beside_stores(launched: Launched) -> float:
    """The share of loads that masks let through over that of stores: a program beyond the end does neither."""
    return launched.unmasked(LOADED) / max(TRIFLE, launched.unmasked(STORED))


def _of_shares(
    launched: Launched, before: Launched, own: OwnCall, one: Exercise, least: Mapping[str, float]
) -> Iterator[str]:
    """Each kernel reads as large a part of each input, and of intermediate results, as when it was checked, in as many
    of its launches, and writes as large a part.

    That all kernels together read all of an input says little: one may look at the same few columns in every program
    while another reads them all, or one launch reads it all and the next ones hardly any. Where a shortened axis has
    positions that belong together, parts have another meaning; there it is enough that the kernel reads as many times
    as much as the reference, but for results that it read where it was checked: nobody makes them in vain.
    """
    slack = EXACT_SLACK if own.seen.exact else SLACK
    for name, there in before.shares.items():
        here, grown = launched.shares.get(name, 0.0), launched.read.get(name, 0.0) / before.read[name]
        asked = math.inf if name == BETWEEN and _is_used(own, there) else _growth_of(own, one, name)
        if here < slack * there and grown < slack * asked and here < least[name]:
            yield f"{launched.name} reads {_often(here)} of {name}; {_often(there)} where it was checked"
    for name, there in before.written.items():
        here = launched.written.get(name, 0.0)
        if here < slack * there and math.isinf(_growth_of(own, one, name)):
            yield f"{launched.name} writes {_often(here)} of {name}; {_often(there)} where it was checked"


def _is_used(own: OwnCall, share: float) -> bool:
    """Whether a reader of so much of what a call has made needs as much at any size."""
    return share >= MOSTLY and not own.work.discards


def _growth_of(own: OwnCall, one: Exercise, name: str) -> float:
    """The growth of what the reference reads of an argument; for anything else that of its work or, if this is more, of
    the argument that grows least. No bound where only independent axes were shorter, or where it is not known."""
    if one.work is None or one.kept_rows:
        return math.inf
    mine, theirs = own.work.elements, one.work.elements
    grown = {place: mine[place] / theirs[place] for place in own.seen.sizes if place in mine and theirs.get(place)}
    least = min((growth for growth in grown.values() if growth > 1), default=1.0)
    return grown.get(name, max(least, least_growth(own.work, one.work)))


def _of_results(own: OwnCall, launched: Launched, one: Exercise, before: Launched) -> Iterator[str]:
    """What the call itself makes and reads again grows with the sizes, where that is much of what is moved.

    A few partial sums need not grow, and the sheets of a product are as many as the card has room for.
    """
    if one.work is None or before.between < NOTABLE * one.seen.traffic:
        return
    asked = least_size_growth(own, one)
    if launched.between < SLACK * asked * before.between:
        grown = launched.between / before.between
        yield f"{launched.name} moves {grown:.3g} times as much of {BETWEEN}; the sizes are {asked:.3g} times as large"


def _often(share: float) -> str:
    """A part, or times over, in words."""
    return f"{share:.1%}" if share < 1.005 else f"{share:.3g} times all"


def _of_arithmetic(own: OwnCall, one: Exercise, same: Sequence[Exercise], left: float) -> Iterator[str]:
    """A candidate does the share of the reference's arithmetic that it did when it was checked, on the same units.

    Shares are of the reference's operations at the same sizes; PyTorch's operators are counted with the kernels, as one
    unit. Bytes cannot tell: programs that take a part of the keys each, in turns, read every input whole and do a
    fraction of the work. A smaller share than when checked must follow from how it shrinks from one checked size to a
    larger one, as that of tiles above a diagonal does.
    """
    if one.work is None or min(one.work.operations, own.work.operations) <= 0:
        return
    faster = own.work.operations / one.work.operations >= FASTER * least_growth(own.work, one.work)
    if not faster and own.work.operations_per_byte < INTENSE:
        return  # it grows with the bytes, which tell more: at few elements most of a tile's operations are padding
    here, there = _shares(_arithmetic, own.seen, own.work), _shares(_arithmetic, one.seen, one.work)
    done, doing = sum(there.values()), sum(here.values())
    for_a_byte = [sum(_arithmetic(call).values()) / max(1.0, sum(call.read.values())) for call in (one.seen, own.seen)]
    if done <= SHORTCUT and SLACK * for_a_byte[0] <= min(ONCE, for_a_byte[1]):
        return
    kept = one.work.live if own.work.discards else 1.0  # a kernel skips what a mask discards
    if (scores := own.work.scores) < min(HALF, kept):  # nothing but a window: what is in it is asked for
        if doing < AGREEING * scores * min(1.0, done / kept):
            yield f"{doing:.1%} of the reference's arithmetic is done; masks keep {scores:.1%}"
        kept *= scores
    elif doing < AGREEING * min(done, kept) and not _all_products(own, kept):
        expected = _extrapolated(own, [(one, sum(_arithmetic(one.seen).values())) for one in same])
        if expected is None:
            expected = left * min(done, kept)
        if doing < expected:
            yield f"{doing:.1%} of the reference's arithmetic is done; {done:.1%} where it was checked"
    least = _products_asked(one, same, min(left, PADDING) * kept, 1.0 - here.get(PYTORCH, 0.0))
    if one.kept_rows and there.get(PYTORCH, 0.0) >= MAIN * done:
        least[PYTORCH] = there[PYTORCH] * (PADDING * kept / max(1.0, done) if own.work.discards else UNPADDED)
    yield from _in_units(own, same, _products, least)
    if not _products(own.seen):
        yield from _in_units(own, same, _on_vectors, _vectors_asked(own, one, left * kept))


def _all_products(own: OwnCall, kept: float) -> bool:
    """Whether own kernels make all the products that nearly all of the reference's arithmetic is for."""
    mine = sum(_products(own.seen).values()) - own.seen.library_flops
    return own.work.products >= PADDING * own.work.flops and mine >= AGREEING * kept * own.work.products


def _products_asked(one: Exercise, same: Sequence[Exercise], left: float, unpadded: float) -> dict[str, float]:
    """Products stay in their units; beside longer sums what vector units do is less.

    A unit's part is that of the size where least of the others is padding, and no more than what PyTorch's operators,
    which do not pad, leave ``unpadded`` of the reference's arithmetic.
    """
    assert one.work is not None
    parts: dict[str, float] = {}
    for each in same:
        whole = sum(_arithmetic(each.seen).values()) or 1.0
        for unit, count in _products(each.seen).items():
            parts[unit] = max(count / whole, parts.get(unit, 0.0))
    done = min(1.0, sum(_shares(_arithmetic, one.seen, one.work).values()))
    asked = {unit: done * part for unit, part in parts.items() if part >= MAIN and unit != PYTORCH}
    return {unit: left * min(part, max(MAIN, unpadded)) for unit, part in asked.items()}


def _vectors_asked(own: OwnCall, one: Exercise, left: float) -> dict[str, float]:
    """Without products each unit does the share that it did, but for lanes masked off along two axes."""
    assert one.work is not None
    there = _shares(_on_vectors, one.seen, one.work)
    pairs = ((one.seen.launched[signature], launched) for signature, launched in own.seen.launched.items())
    used = min([1.0, *(before.unmasked(LOADED) / max(TRIFLE, now.unmasked(LOADED)) for before, now in pairs)])
    return {unit: left * used**2 * share for unit, share in there.items() if share >= NOTABLE * sum(there.values())}


def _in_units(
    own: OwnCall, same: Sequence[Exercise], count: Callable[[Seen], Counter[str]], asked: Mapping[str, float]
) -> Iterator[str]:
    """``asked``: the least share of the reference's arithmetic in each unit."""
    here = _shares(count, own.seen, own.work)
    for unit, share in asked.items():
        if here.get(unit, 0.0) < share:
            expected = _extrapolated(own, [(one, count(one.seen)[unit]) for one in same])
            if expected is None or here.get(unit, 0.0) < expected:
                yield f"{here.get(unit, 0.0):.1%} of the reference's arithmetic in {unit}; {share:.1%} is expected"


def _shares(count: Callable[[Seen], Counter[str]], call: Seen, work: ReferenceWork) -> dict[str, float]:
    """What a call does in each unit, over the reference's arithmetic."""
    return {unit: amount / work.operations for unit, amount in count(call).items()}


def _extrapolated(own: OwnCall, counted: Sequence[tuple[Exercise, float]]) -> float | None:
    """The least share of the reference's arithmetic that is to be expected at the task's own sizes.

    With tiles of one size, n is the square root of the reference's arithmetic, the cube root where all axes of a
    product grow. Where fewer axes grow, this expects too little, not too much.
    """
    done = {one.work.operations: (count, one.work) for one, count in counted if one.work is not None}
    works = [done[operations][1] for operations in sorted(done)]
    root = -1 / 3 if all(_is_cube(*pair) for pair in pairwise([*works, own.work])) else -1 / 2
    return _expected({size: count for size, (count, _) in done.items()}, own.work.operations, root)


def _expected(counted: Mapping[float, float], size: float, root: float = -1 / 2) -> float | None:
    """The least share of a size to be expected, from what was counted at the two largest that were checked; None where
    there is but one, or they are no larger than a tile.

    With tiles, the share is a + b/n, n being a root of the size; one that falls as 1/n alone is of another algorithm.
    More than all counts as all: else work that is done in vain at a small size would excuse less at a large one.
    """
    if len(counted) < 2:
        return None
    (less, before), (more, after) = sorted(counted.items())[-2:]
    if more < FASTER * less or min(before, after) <= 0 or math.log(after / before) < TELLING * math.log(more / less):
        return None
    near, far, there = (math.pow(one, root) for one in (less, more, size))
    last = min(1.0, after / more)
    return AGREEING * (last + (min(1.0, before / less) - last) * (there - far) / (near - far))


def _least_share(own: OwnCall, name: str, checked: Sequence[tuple[Mapping[str, int], Mapping[str, float]]]) -> float:
    """The least share of an argument to be read where the reference discards results, from sizes and shares, or by what
    its lengths ask for, or indices name, where some was left out; else any smaller one is too small."""
    asked = own.work.asked or own.work.named
    if name in own.seen.sizes and asked < 1.0 and min(shares.get(name, 0.0) for _, shares in checked) < FULL:
        return asked
    if not own.work.discards or name not in own.seen.sizes:
        return math.inf
    counted = {float(sizes[name]): sizes[name] * shares.get(name, 0.0) for sizes, shares in checked if name in sizes}
    return _expected(counted, own.seen.sizes[name]) or math.inf


def _is_cube(less: ReferenceWork, more: ReferenceWork) -> bool:
    """Whether operations grow as those of square products do, by the power 3/2 of the bytes."""
    grown, intenser = more.operations / less.operations, more.operations_per_byte / less.operations_per_byte
    return grown > FASTER and abs(math.log(grown) - 1.5 * math.log(grown / intenser)) < 0.05 * math.log(grown)


def _arithmetic(call: Seen) -> Counter[str]:
    """Operations by unit: of own kernels on floating-point numbers, or on whole ones where hardly any are others, and
    of PyTorch's operators."""
    found = _on_vectors(call) + Counter({PYTORCH: call.library_flops})
    del found["sfu"]
    return found


def _on_vectors(call: Seen) -> Counter[str]:
    """The same of own kernels alone, special functions among them."""
    found: Counter[str] = Counter()
    for launched in call.launched.values():
        found.update({unit: n for unit, n in launched.work.items() if not unit.startswith("bytes") and unit != UPDATES})
    if found.total() > (1 + ADDRESSES) * found[WHOLE]:
        del found[WHOLE]
    return found


def _products(call: Seen) -> Counter[str]:
    """The part of it that own kernels do for ``tl.dot``, and PyTorch's operators."""
    found: Counter[str] = Counter({PYTORCH: call.library_flops} if call.library_flops else {})
    for launched in call.launched.values():
        found.update(launched.products)
    return found


def least_size_growth(own: OwnCall, one: Exercise) -> float:
    """The growth of that input, among those that grow, or of the outputs, that grows least."""
    assert one.work is not None
    inputs = [size / one.seen.sizes[name] for name, size in own.seen.sizes.items() if one.seen.sizes.get(name)]
    outputs = own.work.output_bytes / max(1, one.work.output_bytes)
    return max(1.0, min([outputs, *(grown for grown in inputs if grown > 1)]))


def least_growth(own: ReferenceWork, other: ReferenceWork) -> float:
    """The growth of the reference's work at its own sizes, by the quantity that grows least."""
    return min(growths(own, other))


def growths(own: ReferenceWork, other: ReferenceWork) -> list[float]:
    """The growth of each quantity of the reference's work."""
    pairs = [
        (own.flops, other.flops),
        (own.read, other.read),
        (own.input_bytes + own.weight_bytes, other.input_bytes + other.weight_bytes),
    ]
    return [mine / theirs for mine, theirs in pairs if theirs > 0] or [1.0]
