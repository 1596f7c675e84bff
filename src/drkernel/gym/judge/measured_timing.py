"""Measured time on a real GPU: candidate and reference alternate, each in a runner of its own.

Blocks of calls alternate between the two runners, so that drift of clocks and temperature affects both. Before every
call its inputs are copied to the place of the last one's and the caches are flushed, while the host launches ahead:
what a call's launches take beyond that lead counts. The outputs of one secretly chosen call per block are compared with
the oracle. Device time comes from events in the runner, which a candidate could forge. So the judge's own clock around
each block decides where it says more, minus the cost of an empty block, which runs in the reference's runner: a
candidate cannot make it longer. Blocks are long enough for that clock. Where there is no room for so many inputs, calls
have those of earlier ones; they do not count as samples.

A pair of blocks whose clocks differ, by NVML, is measured again, a few times; where they never agree the speedup counts
as though all of the candidate's time hung on the clock.

Where a task's own sizes are not those that were checked, both sides are timed there in sessions of their own. Inputs of
such a size are drawn once; on the card each call finds their elements moved on by a secret share of the length. The
reference's runner, in which nothing of the candidate runs, answers the same call, and elements at secret places are
compared at the declared precision: how precise the candidate is, the checked calls have shown.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

from drkernel.gym.device import ClockReading, gpu_name, title_of
from drkernel.gym.judge import findings as show
from drkernel.gym.judge.checks import arguments_of, raw_output
from drkernel.gym.judge.expected import ExpectedSide
from drkernel.gym.judge.memory import default_budget, is_no_room, shown
from drkernel.gym.judge.modelled_timing import bytes_among, forms_of
from drkernel.gym.judge.own_sizes import Untimed
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.gym.session.base import OpensSessions
from drkernel.gym.session.cuda import CudaSession
from drkernel.gym.session.protocol import Output, SessionError, TimedCalls
from drkernel.sim.spec import spec_called
from drkernel.sim.wire.frames import same_bytes
from drkernel.task import TaskError
from drkernel.tasks.correctness import compare
from drkernel.tasks.inputs import role_of
from drkernel.tasks.oracle import Oracle, RawOutput, ToleranceRule, expected_output
from drkernel.tasks.reference import Reference, load_reference
from drkernel.verdict import CandidateError, Correctness, Finding, NotChecked, Profile, Speedup, Timing

RESAMPLES = 1000
SESSION_S = 0.1e-6
"""standard deviation of what one session's process adds to every call: on an H100 the medians of a reference in two
sessions differed by 0.14 us (root mean square of 17 pairs, kernels of 4 to 180 us), the same in all their blocks"""
CLOCK_SLACK = 1.5
"""Device time may be this many times shorter than host time before the two are said to disagree..."""
HOST_OVERHEAD_S = 20e-6
"""...beyond what a host needs per call for what no event sees. What an empty block costs is subtracted already."""


@dataclass(frozen=True)
class Block:
    """Calls of one module, timed back to back."""

    device_seconds: tuple[float, ...]
    """one per call, by events on the device"""
    wall_seconds: float
    """host time around all calls of the block, on the judge's clock, minus that of a block without calls"""
    repeated: frozenset[int] = frozenset()
    """places of the calls whose inputs an earlier call of the block had: a result might be remembered"""
    floor: float = 0.0
    """device seconds between two events with nothing between them"""
    clocks: tuple[ClockReading, ...] = ()
    """the GPU's around the block, where they can be read"""

    @property
    def samples(self) -> tuple[float, ...]:
        """Device seconds of the calls with inputs of their own; none is less than nothing takes."""
        calls = enumerate(self.device_seconds)
        return tuple(max(seconds, self.floor) for call, seconds in calls if call not in self.repeated)

    @property
    def share(self) -> float:
        """One call's share of the judge's time."""
        return self.wall_seconds / len(self.device_seconds)

    @property
    def mhz(self) -> float:
        """The GPU's clock; 0 where it could not be read before and after."""
        return sum(reading.mhz for reading in self.clocks) / 2 if len(self.clocks) == 2 else 0.0


def median_seconds(blocks: Sequence[Block], *, by_clock: bool = True) -> float:
    """Return the median over all samples, or, ``by_clock``, over the blocks' shares of the judge's time, if that is
    more.

    Raises ``ValueError`` without samples: a missing time must never count as a fast one.
    """
    seconds = [seconds for block in blocks for seconds in block.device_seconds]
    if not seconds:
        raise ValueError("no timed calls")
    if not all(np.isfinite(seconds)) or min(seconds) <= 0:
        raise ValueError("a timed call has no positive, finite duration")
    by_events = float(np.median([sample for block in blocks for sample in block.samples]))
    return max(by_events, float(np.median([block.share for block in blocks]))) if by_clock else by_events


def clock_noise(reference: Sequence[Block]) -> float:
    """By how much a call's share of the judge's time ever differs from events that nobody forges."""
    return max(abs(block.share - float(np.median(block.samples))) for block in reference)


def clock_decides(reference: Sequence[Block], candidate: Sequence[Block]) -> bool:
    """Whether the judge's clock says more than the candidate's events, which may be forged for any calls, by more than
    its noise, in every block: an escape makes all of them long, a busy host some."""
    least = min(block.share for block in candidate)
    return least > median_seconds(candidate, by_clock=False) + clock_noise(reference)


def speedup_interval(reference: Sequence[Block], candidate: Sequence[Block], *, seed: int = 0) -> Speedup:
    """Return the ratio of medians, reference over candidate, with its 95% bootstrap interval.

    Where the judge's clock decides the candidate's time, it does the reference's, too. Blocks are paired in time: block
    k of one side ran next to block k of the other, and pairs are resampled together; what all blocks of a session share
    (:data:`SESSION_S`) is drawn. Raises ``ValueError`` for sides of unequally many blocks or calls, or without calls.
    """
    by_clock = clock_decides(reference, candidate)
    value = median_seconds(reference, by_clock=by_clock) / median_seconds(candidate, by_clock=by_clock)
    count, size = len(reference), len(reference[0].samples)
    if [len(block.samples) for block in candidate] != [size] * count:
        raise ValueError("reference and candidate need equally many blocks of equally many calls, to be paired")
    rng = np.random.default_rng(seed)
    chosen = rng.integers(count, size=(RESAMPLES, count, 1))  # the same pairs for both sides
    theirs, ours = (_resampled_medians(blocks, chosen, rng, by_clock) for blocks in (reference, candidate))
    ratios = theirs / ours
    low, high = np.quantile(ratios, [0.025, 0.975])
    return Speedup(
        value=value,
        low=float(min(low, value)),
        high=float(max(high, value)),
        confidence=0.95,
        kind="measured",
    )


def _resampled_medians(
    blocks: Sequence[Block], chosen: np.ndarray, rng: np.random.Generator, by_clock: bool
) -> np.ndarray:
    """:func:`median_seconds` of resamples: the chosen blocks, within each as many of its samples, drawn with
    replacement, and what their session adds."""
    samples, shares = np.asarray([block.samples for block in blocks]), np.asarray([block.share for block in blocks])
    within = rng.integers(samples.shape[1], size=(*chosen.shape[:2], samples.shape[1]))
    medians: np.ndarray = np.median(samples[chosen, within].reshape(len(chosen), -1), axis=1)
    if by_clock:
        medians = np.maximum(medians, np.median(shares[chosen[:, :, 0]], axis=1))
    return np.maximum(medians + rng.normal(0, SESSION_S, len(medians)), 0.1 * medians)


def clocks_disagree(blocks: Sequence[Block], noise: float = 0.0) -> float | None:
    """Return how many times longer the host's clock says than the device's, when launching does not explain the
    difference.

    A candidate whose work escapes the events (another stream, a patched event) still takes host time until the device
    is idle. A busy host makes some blocks long, an escape makes all of them long, so only what three quarters of the
    blocks show counts. None when the clocks agree.
    """
    ratios = []
    for block in blocks:
        device = sum(block.device_seconds)
        wall = block.wall_seconds - len(block.device_seconds) * max(HOST_OVERHEAD_S, noise)
        ratios.append(0.0 if wall <= 0 else wall / device if device > 0 else float("inf"))
    if not ratios:
        return None
    shown = sorted(ratios)[len(ratios) // 4]
    return shown if shown > CLOCK_SLACK else None


def clock_gain(reference: Sequence[Block], candidate: Sequence[Block]) -> float | None:
    """How many times faster the GPU's clock was in the candidate's blocks; None where it could not be read in one."""
    pairs = [(ours.mhz, theirs.mhz) for theirs, ours in zip(reference, candidate, strict=True)]
    return float(np.median([ours / theirs for ours, theirs in pairs])) if all(map(all, pairs)) else None


CLOCKS_APART, MOST_REFUSED = 0.03, 6
"""share by which the clocks of two blocks side by side may differ (a step is 15 MHz, 1% at the most), and pairs that
are measured again for it"""
CLOCKS = "clocks_differ"
SPIN_SECONDS = 0.02
"""for which the GPU flushes its caches before a block: while the judge compares, its clock goes down"""
BLOCK_SECONDS = 0.05
"""that a block of calls takes at least: against it the host's hiccups and the judge's messages are small"""
BLOCK_CALLS, MOST_CALLS, FEWEST_BLOCKS = 5, 2000, 4
WARM_UP_BLOCKS = 2
SET_BYTES, MOST_SETS = 32 << 20, 50
"""of the different inputs of a block, of which there are ``BLOCK_CALLS`` at least"""
FLUSH_BYTES = 512 << 20
"""Written before each call; more than any GPU's caches hold."""
PROFILED_CALLS = 3
FLOOR = "below_roofline"
"""the finding that needs a card of the GPU's name"""
UNKNOWN_CARD = "write one over its nearest relative (`base: h100`) and give it by `--co-judge sim:card.yaml`"
MOVABLE = ("free", "positive", "unit")
"""roles of inputs whose elements may change places"""
FLIPPED = 1e-3
"""share of the compared whole numbers of a large output that may be wrong: rounding flips a choice now and then"""
FLOOR_SLACK = 0.8
"""A time below this share of the roofline floor is refused; the margin allows for the clock's error."""
WRAPPERS = {
    "eager": "\nModelNew = Model\n",
    "compile": "\ndef ModelNew(*args, **kwargs):\n    import torch\n    return torch.compile(Model(*args, **kwargs))\n",
}

PREFIX = {"eager": "", "compile": "_orig_mod."}
"""before the names of the wrapped reference's state"""


class WrongWhenTimed(Exception):
    """A timed call's outputs are wrong; ``str`` says how."""


@dataclass
class Measured:
    """The result of measuring."""

    profile: Profile
    reference_profile: Profile
    timing: Timing
    reference_timing: Timing
    speedup: Speedup
    findings: list[Finding] = field(default_factory=list)
    not_checked: list[NotChecked] = field(default_factory=list)


class LargeInputs:
    """A task's constructor arguments, weights and inputs at its own sizes, on the host, each drawn once."""

    def __init__(self, side: ExpectedSide, source: str, most_bytes: int):
        """Raises :class:`Untimed` where they cannot be drawn or take more than ``most_bytes``."""
        try:
            forms = forms_of(source)
            held = [leaf.nbytes for leaf in tree_leaves(forms.inputs) if isinstance(leaf, torch.Tensor)]
            held += [torch.Size(shape).numel() * dtype.itemsize for shape, dtype in forms.state.values()]
            if sum(held) > most_bytes:
                raise Untimed(f"inputs and weights take {shown(sum(held))}, and the judge may take {shown(most_bytes)}")
            self.reference = load_reference(source)
            self.init_args, self.init_kwargs = self.reference.draw_init(side.build_seed)
            self.state = self.reference.build(side.build_seed).state_dict()
            self.values = arguments_of(self.reference.draw_inputs(side.seeds("timed at own sizes")))
        except TaskError as error:
            raise Untimed(str(error)) from error
        except (MemoryError, RuntimeError) as error:
            if not is_no_room(error):
                raise
            raise Untimed(f"inputs and weights take more memory than there was ({error})") from error
        self.moved = _may_be_moved(side)


def _may_be_moved(side: ExpectedSide) -> list[int]:
    """Places of the tensors among a call's arguments whose elements may change places: drawn ones without structure."""
    names, draws = side.reference.argument_names(), [side.reference.draw_inputs(side.seeds("roles", n)) for n in (0, 1)]
    found: list[bool] = []
    for place, pair in enumerate(zip(*draws, strict=True)):
        fixed = place < len(names) and names[place] in side.reference.fixed_inputs
        leaves = zip(*(_tensors(value) for value in pair), strict=True)
        found += [not (fixed or same_bytes(one, two) or role_of(one) not in MOVABLE) for one, two in leaves]
    return [place for place, movable in enumerate(found) if movable]


def measure(
    side: ExpectedSide, candidate: CudaSession, factory: OpensSessions, settings: EvalSettings, launched: set[str]
) -> Measured:
    """Time the (already checked) candidate against the reference; ``launched`` are the names of its own kernels.

    Raises :class:`WrongWhenTimed` when a timed call of the candidate is wrong, :class:`SessionError` when one fails,
    and :class:`TaskError` when the reference does.
    """
    with factory.open(settings) as reference:
        assert isinstance(reference, CudaSession), "a device whose times are measured"
        given = side.instance
        with _reference_at_work():
            _load_reference(side, reference, settings.baseline, side.reference, given.init_args, given.init_kwargs)
            reference.call(arguments_of(side.reference.draw_inputs(side.seeds("reference warm-up"))))
        return _measured(_Pairs(side, candidate, reference), settings, launched)


def measure_at_own_sizes(
    request: EvalRequest, source: str, side: ExpectedSide, factory: OpensSessions, launched: set[str]
) -> Measured:
    """Time the candidate, right where it was checked, at its task's own sizes: those of ``source``.

    Raises what :func:`measure` does, and :class:`Untimed` when inputs of that size cannot be drawn here.
    """
    settings, given = request.settings, LargeInputs(side, source, default_budget())
    with factory.open(settings) as reference, factory.open(settings) as candidate:
        assert isinstance(reference, CudaSession) and isinstance(candidate, CudaSession), "times are measured here"
        terms = given.init_args, given.init_kwargs
        with _reference_at_work():
            _load_reference(side, reference, settings.baseline, given.reference, *terms)
            reference.starts_from = {f"{PREFIX[settings.baseline]}{name}": given.state[name] for name in side.changing}
        candidate.load(request.candidate, *terms, seed=side.build_seed, conv_tf32=side.conv_tf32)
        for group in [list(side.pairs)] if side.loads_itself else [[theirs] for theirs in side.pairs]:
            state = {theirs: given.state[side.pairs[theirs]] for theirs in group}
            candidate.load_state(state)
            candidate.starts_from |= state if any(side.pairs[theirs] in side.changing for theirs in group) else {}
        return _measured(_OwnPairs(side, candidate, reference, given), settings, launched)


def _measured(pairs: _Pairs, settings: EvalSettings, launched: set[str]) -> Measured:
    numbers, wanted = itertools.count(-WARM_UP_BLOCKS), max(FEWEST_BLOCKS, -(-settings.trials // BLOCK_CALLS))
    while len(pairs.ours) < wanted:
        pairs.measure(next(numbers))
    pairs.subtract_empty()
    with _reference_at_work():
        theirs = pairs.reference.profile(pairs.profiled(pairs.reference), calls=PROFILED_CALLS)
    ours = pairs.candidate.profile(pairs.profiled(pairs.candidate), calls=PROFILED_CALLS)
    return _conclude(pairs, owned(ours, launched), owned(theirs, set()), settings)


def _load_reference(
    side: ExpectedSide, session: CudaSession, baseline: str, of: Reference, args: list[Any], kwargs: dict[str, Any]
) -> None:
    """The reference in a runner of its own, with the weights that the seed builds: values do not change its time."""
    session.load(of.source + WRAPPERS[baseline], args, kwargs, seed=side.build_seed, conv_tf32=side.conv_tf32)


@contextmanager
def _reference_at_work() -> Iterator[None]:
    """An error in the reference's session is never the candidate's fault.

    A reference that does not run here is refused for good. But free GPU memory may depend on others, the candidate's
    runner among them: where it does not suffice, trying again may help.
    """
    try:
        yield
    except SessionError as error:
        if error.kind == "infra_error":
            raise
        if error.kind == "out_of_memory":
            why = f"the reference found no memory on the GPU, which others use too: {error.detail.message}"
            raise SessionError("infra_error", CandidateError(type="ReferenceOutOfMemory", message=why)) from error
        message = f"the reference does not run on the GPU: {error.detail.type}: {error.detail.message}"
        raise TaskError(message) from error


@dataclass
class _Work:
    """What the calls of a block are made with."""

    sets: list[list[Any]]
    """different arguments, tensors by their handles"""
    order: list[int]
    """the set of each call"""
    inputs: list[list[Any]]
    """the same on the host"""
    moves: list[float] = field(default_factory=list)
    """by which share of their length each call's inputs are moved on"""
    sample: int | None = None
    """seed of the places at which outputs are compared; None: at all"""


class _Pairs:
    """Blocks of the candidate's calls and of the reference's, one of each at a time."""

    moved: Sequence[int] = ()
    """places of the tensors among a call's arguments that may be moved on"""

    def __init__(self, side: ExpectedSide, candidate: CudaSession, reference: CudaSession):
        self.side, self.candidate, self.reference = side, candidate, reference
        self._calls = BLOCK_CALLS
        self._repeated: frozenset[int] = frozenset()
        self.ours: list[Block] = []
        self.theirs: list[Block] = []
        self._empty: list[float] = []
        """seconds of the blocks without calls"""
        self.refused = 0
        """pairs whose clocks differed"""
        self.no_clock = "nothing was timed"
        """why they are not known, where they are not"""

    def measure(self, number: int) -> None:
        """Measure a pair; of one whose clocks differ nothing is kept, and by one of a negative number, a warm-up, only
        how many calls a block needs is known."""
        # which of the two goes first alternates, so that neither always finds the GPU warm
        if number % 2:
            theirs, empty = self._reference_block(number)
            ours = self._candidate_block(number)
        else:
            ours = self._candidate_block(number)
            theirs, empty = self._reference_block(number)
        floor = float(np.median(empty.device_seconds))
        if number < 0:
            shortest = min(ours.wall_seconds, theirs.wall_seconds) / self._calls
            self._calls = min(MOST_CALLS, max(BLOCK_CALLS, math.ceil(BLOCK_SECONDS / shortest)))
            return
        self.no_clock = self.candidate.no_clock or self.reference.no_clock or ""
        pair = [Block(c.device_seconds, c.wall_seconds, self._repeated, floor, c.clocks) for c in (ours, theirs)]
        gain = clock_gain(pair[1:], pair[:1])
        if gain is not None and abs(gain - 1) > CLOCKS_APART and self.refused < MOST_REFUSED:
            self.refused += 1
            return
        self._empty.append(empty.wall_seconds)
        for blocks, block in zip((self.ours, self.theirs), pair, strict=True):
            blocks.append(block)

    def subtract_empty(self) -> None:
        """Leave the calls' part of the blocks' host time: of the blocks without calls, a busy host makes some long."""
        empty = float(np.median(self._empty))
        for blocks in (self.ours, self.theirs):
            blocks[:] = [replace(block, wall_seconds=max(0.0, block.wall_seconds - empty)) for block in blocks]

    def profiled(self, session: CudaSession) -> list[Any]:
        """Arguments of a session for its profile."""
        return _put(session, self.draw("profiled"))

    def draw(self, purpose: str, number: int = 0) -> list[Any]:
        """Inputs as the task draws them."""
        return self.side.reference.draw_inputs(self.side.seeds(purpose, number))

    def input_bytes(self) -> int:
        """Of all tensors among the inputs of a call."""
        return bytes_among(self.draw("floor"))

    def _reference_block(self, number: int) -> tuple[TimedCalls, TimedCalls]:
        """A block of the reference's calls, and one without calls; nothing of the candidate runs meanwhile."""
        with (
            self.candidate.stopped(),
            _reference_at_work(),
            self._work("timed reference", number, self.reference) as work,
        ):
            empty = self._timed(self.reference, work, dry=True)
            return self._timed(self.reference, work), empty

    def _candidate_block(self, number: int) -> TimedCalls:
        """A block of the candidate's calls, one of which is checked."""
        with self._work("timed candidate", number, self.candidate) as work:
            keep = random.Random(self.side.seeds("kept", number)).randrange(len(work.order))
            timed = self._timed(self.candidate, work, keep)
        result = self._compared(timed.kept, work, keep)
        if not result.passed_calls:
            raise WrongWhenTimed(result.message)
        return timed

    def _timed(self, session: CudaSession, work: _Work, keep: int | None = None, *, dry: bool = False) -> TimedCalls:
        """A block; dry calls before it have the GPU change to this process, and raise its clock, in nobody's time."""

        def timed(calls: int, keep: int | None, dry: bool) -> TimedCalls:
            return session.time(
                work.sets, order=work.order[:calls], flush_bytes=FLUSH_BYTES, keep=keep, dry=dry,
                moves=work.moves[:calls], moved=self.moved, sample=work.sample,
            )  # fmt: skip

        until = time.perf_counter() + SPIN_SECONDS
        timed(1, None, True)
        while time.perf_counter() < until:
            timed(1, None, True)
        return timed(len(work.order), keep, dry)

    def _compared(self, kept: Sequence[Output], work: _Work, keep: int) -> Correctness:
        values = [raw_output(output) for output in kept]
        return compare(values, self.side.instance.oracle(work.inputs[work.order[keep]]), self.side.rule)

    @contextmanager
    def _work(self, purpose: str, number: int, session: CudaSession) -> Iterator[_Work]:
        """The different inputs of a block, as many as have room, and which of them each call has."""
        first = (number + WARM_UP_BLOCKS) * MOST_SETS
        inputs = [self.draw(purpose, first)]
        room = SET_BYTES // max(1, bytes_among(inputs[0]))
        count = min(self._calls, MOST_SETS, max(BLOCK_CALLS, room))
        inputs += [self.draw(purpose, first + k) for k in range(1, count)]
        order = [call % count for call in range(self._calls)]
        random.Random(self.side.seeds("order", number)).shuffle(order)
        first_calls = {chosen: call for call, chosen in reversed([*enumerate(order)])}
        self._repeated = frozenset(range(len(order))) - frozenset(first_calls.values())
        sets = [_put(session, values) for values in inputs]
        yield _Work(sets, order, inputs)
        session.release([leaf for leaf in tree_leaves(sets) if isinstance(leaf, int)])


class _OwnPairs(_Pairs):
    """Blocks at the task's own sizes, whose inputs stay on the card."""

    def __init__(self, side: ExpectedSide, candidate: CudaSession, reference: CudaSession, given: LargeInputs):
        super().__init__(side, candidate, reference)
        self.moved = given.moved
        self._given = given
        with _reference_at_work():
            self._theirs = _put(reference, given.values, in_parts=True)
        self._ours = _put(candidate, given.values, in_parts=True)

    def profiled(self, session: CudaSession) -> list[Any]:
        """The inputs that are there."""
        return self._ours if session is self.candidate else self._theirs

    def input_bytes(self) -> int:
        """Of all tensors among the inputs of a call."""
        return bytes_among(self._given.values)

    @contextmanager
    def _work(self, purpose: str, number: int, session: CudaSession) -> Iterator[_Work]:
        """The inputs that are there, moved on by another share for each call."""
        shares = random.Random(self.side.seeds(purpose, number))
        if not self.moved:
            self._repeated = frozenset(range(1, self._calls))
        moves = [shares.random() for _ in range(self._calls)]
        yield _Work([self.profiled(session)], [0] * self._calls, [], moves, shares.getrandbits(62))

    def _compared(self, kept: Sequence[Output], work: _Work, keep: int) -> Correctness:
        """Compare elements with the reference's, which gets the same inputs on the card."""
        with _reference_at_work():
            one = _Work([self._theirs], [0], [], [work.moves[keep]], work.sample)
            expected = self._timed(self.reference, one, 0).kept
        shapes, wanted = ([(one.shape, one.dtype) for one in outputs] for outputs in (kept, expected))
        if shapes != wanted:
            message = f"at the task's own sizes outputs are {shapes}, the reference's {wanted}"
            return Correctness(checked_calls=1, passed_calls=0, message=message)
        return compare_samples(
            [raw_output(output) for output in kept], [raw_output(output) for output in expected], self.side.rule
        )


def compare_samples(values: Sequence[RawOutput], expected: Sequence[RawOutput], rule: ToleranceRule) -> Correctness:
    """Compare elements of large outputs at the declared precision; an index that rounding flips is no mistake."""
    outputs = tuple(expected_output(one, one, one, rule.precision) for one in expected)
    result = compare(values, Oracle(outputs, rule.precision, "declared"), replace(rule, explicit=True))
    whole = not any(isinstance(one, torch.Tensor) and one.is_floating_point() for one in expected)
    if whole and result.mismatch is not None and result.mismatch.wrong_fraction <= FLIPPED:
        return result.model_copy(update={"passed_calls": 1})
    return result


def _put(session: CudaSession, inputs: list[Any], *, in_parts: bool = False) -> list[Any]:
    put = session.put_in_parts if in_parts else session.put
    return [
        tree_map(lambda leaf: put(leaf) if isinstance(leaf, torch.Tensor) else leaf, value)
        for value in arguments_of(inputs)
    ]


def owned(profile: Profile, launched: set[str]) -> Profile:
    """``profile`` with a kernel counted as the candidate's own only if the launch hook saw it launched by that name."""
    rows = tuple(
        row.model_copy(update={"owner": "library"}) if row.owner == "custom" and row.name not in launched else row
        for row in profile.rows
    )
    return profile.model_copy(update={"rows": rows})


def _conclude(pairs: _Pairs, profile: Profile, reference_profile: Profile, settings: EvalSettings) -> Measured:
    """Times and speedup, and the findings of the clocks and the roofline."""
    ours, theirs = pairs.ours, pairs.theirs
    name = title_of(settings.place)
    by_clock = clock_decides(theirs, ours)
    seconds, reference_seconds = (median_seconds(blocks, by_clock=by_clock) for blocks in (ours, theirs))
    found = Measured(
        profile=profile,
        reference_profile=reference_profile,
        timing=_timing(name, seconds, ours),
        reference_timing=_timing(name, reference_seconds, theirs),
        speedup=speedup_interval(theirs, ours, seed=pairs.side.seeds("bootstrap") % 2**32),
    )
    _weigh_clocks(found, pairs)
    disagreement = clocks_disagree(ours, clock_noise(theirs))
    if disagreement is not None:
        found.findings.append(show.clock_disagreement(disagreement))
    spec = spec_called(gpu_name(settings.place))
    if spec is not None:
        floor = pairs.input_bytes() / spec.dram_bandwidth  # of memory alone: a clever kernel may do less arithmetic
        if seconds < FLOOR_SLACK * floor <= reference_seconds:
            found.findings.append(show.below_roofline(seconds, floor))
    return found


def _weigh_clocks(found: Measured, pairs: _Pairs) -> None:
    """Take from the speedup what a faster clock may have given it."""
    gain = clock_gain(pairs.theirs, pairs.ours)
    if gain is None:
        found.not_checked.append(NotChecked(check=CLOCKS, why=pairs.no_clock))
    elif abs(gain - 1) > CLOCKS_APART:
        found.findings.append(show.clocks_differ(found.timing, found.reference_timing, gain, pairs.refused))
        ends = {name: getattr(found.speedup, name) / max(1.0, gain) for name in ("value", "low", "high")}
        found.speedup = found.speedup.model_copy(update=ends)


def without_floor(settings: EvalSettings) -> list[NotChecked]:
    """What no time of a GPU without a card is held against, and why."""
    name = gpu_name(settings.place)
    if settings.place.simulated or spec_called(name) is not None:
        return []
    return [NotChecked(check=FLOOR, why=f"no card is called {name!r}; {UNKNOWN_CARD}")]


def _timing(name: str, seconds: float, blocks: list[Block]) -> Timing:
    samples = tuple(sample for block in blocks for sample in block.samples)
    slowed = tuple(sorted({why for block in blocks for reading in block.clocks for why in reading.slowed_by}))
    clocks = tuple(block.mhz for block in blocks if block.mhz)
    return Timing(kind="measured", device=name, seconds=seconds, samples=samples, clocks_mhz=clocks, slowed_by=slowed)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
