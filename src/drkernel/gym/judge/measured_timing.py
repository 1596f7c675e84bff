"""Measured time on a real GPU: candidate and reference alternate, each in a runner of its own.

Blocks of calls alternate between the two runners, so that drift of clocks and temperature affects both. Before every
call its inputs are copied to the place of the last one's and the caches are flushed, while the host launches ahead:
what a call's launches take beyond that lead counts. The outputs of one secretly chosen call per block are compared with
the oracle. Device time comes from events in the runner, which a candidate could forge. So the judge's own clock around
each block decides where it says more, minus the cost of an empty block, which runs in the reference's runner: a
candidate cannot make it longer. Blocks are long enough for that clock. Where there is no room for so many inputs, calls
have those of earlier ones; they do not count as samples.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

from drkernel.gym.device import gpu_name, title_of
from drkernel.gym.judge import findings as show
from drkernel.gym.judge.checks import arguments_of, raw_output
from drkernel.gym.judge.expected import ExpectedSide
from drkernel.gym.request import EvalSettings
from drkernel.gym.session.protocol import OpensSessions, SessionError, TimedCalls, TimedSession
from drkernel.sim.spec import GPUSpec, spec_called
from drkernel.tasks.correctness import compare
from drkernel.tasks.errors import TaskError
from drkernel.verdict import CandidateError, Finding, NotChecked, Profile, Speedup, Timing

RESAMPLES = 1000
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

    @property
    def samples(self) -> tuple[float, ...]:
        """Device seconds of the calls with inputs of their own."""
        return tuple(seconds for call, seconds in enumerate(self.device_seconds) if call not in self.repeated)

    @property
    def share(self) -> float:
        """One call's share of the judge's time."""
        return self.wall_seconds / len(self.device_seconds)


def median_seconds(blocks: Sequence[Block]) -> float:
    """Return the median over all samples, or over the blocks' shares of the judge's time, whichever is more: events may
    be forged for any calls of any blocks.

    Raises ``ValueError`` without samples: a missing time must never count as a fast one.
    """
    samples = [seconds for block in blocks for seconds in block.samples]
    if not samples:
        raise ValueError("no timed calls")
    if not all(np.isfinite(samples)) or min(samples) <= 0:
        raise ValueError("a timed call has no positive, finite duration")
    return max(float(np.median(samples)), float(np.median([block.share for block in blocks])))


def speedup_interval(
    reference: Sequence[Block], candidate: Sequence[Block], *, confidence: float = 0.95, seed: int = 0
) -> Speedup:
    """Return the ratio of medians, reference over candidate, with its bootstrap interval.

    Blocks are paired in time: block k of one side ran next to block k of the other, and pairs are resampled together.
    Raises ``ValueError`` when the two sides do not have equally many blocks of equally many calls, or no calls.
    """
    value = median_seconds(reference) / median_seconds(candidate)
    count, size = len(reference), len(reference[0].samples)
    if [len(block.samples) for block in candidate] != [size] * count:
        raise ValueError("reference and candidate need equally many blocks of equally many calls, to be paired")
    rng = np.random.default_rng(seed)
    chosen = rng.integers(count, size=(RESAMPLES, count, 1))  # the same pairs for both sides
    ratios = _resampled_medians(reference, chosen, rng) / _resampled_medians(candidate, chosen, rng)
    tail = (1 - confidence) / 2
    low, high = np.quantile(ratios, [tail, 1 - tail])
    return Speedup(
        value=value,
        low=float(min(low, value)),
        high=float(max(high, value)),
        confidence=confidence,
        kind="measured",
    )


def _resampled_medians(blocks: Sequence[Block], chosen: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """:func:`median_seconds` of resamples: the chosen blocks, and within each as many of its samples, drawn with
    replacement."""
    samples, shares = np.asarray([block.samples for block in blocks]), np.asarray([block.share for block in blocks])
    within = rng.integers(samples.shape[1], size=(*chosen.shape[:2], samples.shape[1]))
    medians = np.median(samples[chosen, within].reshape(len(chosen), -1), axis=1)
    whole: np.ndarray = np.maximum(medians, np.median(shares[chosen[:, :, 0]], axis=1))
    return whole


def clocks_disagree(blocks: Sequence[Block]) -> float | None:
    """Return how many times longer the host's clock says than the device's, when launching does not explain the
    difference.

    A candidate whose work escapes the events (another stream, a patched event) still takes host time until the device
    is idle. A busy host makes some blocks long, an escape makes all of them long, so only what three quarters of the
    blocks show counts. None when the clocks agree.
    """
    ratios = []
    for block in blocks:
        device = sum(block.device_seconds)
        wall = block.wall_seconds - len(block.device_seconds) * HOST_OVERHEAD_S
        ratios.append(0.0 if wall <= 0 else wall / device if device > 0 else float("inf"))
    if not ratios:
        return None
    shown = sorted(ratios)[len(ratios) // 4]
    return shown if shown > CLOCK_SLACK else None


def roofline_floor(unique_bytes: float, bandwidth: float) -> float:
    """Return the minimum seconds of a call, by memory traffic alone.

    ``unique_bytes``: inputs read and outputs written, each once, with L2 empty at the start; ``bandwidth``: bytes per
    second of device memory. Arithmetic is not considered, because a clever kernel may need less of it than the
    reference.
    """
    return unique_bytes / bandwidth


BLOCK_SECONDS = 0.05
"""that a block of calls takes at least: against it the host's hiccups and the judge's messages are small"""
BLOCK_CALLS, MOST_CALLS = 5, 2000
WARM_UP_BLOCKS = 2
SET_BYTES, MOST_SETS = 32 << 20, 50
"""of the different inputs of a block, of which there are ``BLOCK_CALLS`` at least"""
FLUSH_BYTES = 512 << 20
"""Written before each call; more than any GPU's caches hold."""
PROFILED_CALLS = 3
FLOOR = "below_roofline"
"""the finding that needs a card of the GPU's name"""
UNKNOWN_CARD = (
    "fit one with `drkernel doctor --calibrate card.yaml --base NEAREST` and give it by `--co-judge sim:card.yaml`"
)
FLOOR_SLACK = 0.8
"""A time below this share of the roofline floor is refused; the margin allows for the clock's error."""
WRAPPERS = {
    "eager": "\nModelNew = Model\n",
    "compile": "\ndef ModelNew(*args, **kwargs):\n    import torch\n    return torch.compile(Model(*args, **kwargs))\n",
}


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


def measure(
    side: ExpectedSide, candidate: TimedSession, factory: OpensSessions, settings: EvalSettings, launched: set[str]
) -> Measured:
    """Time the (already checked) candidate against the reference; ``launched`` are the names of its own kernels.

    Raises :class:`WrongWhenTimed` when a timed call of the candidate is wrong, :class:`SessionError` when one fails,
    and :class:`TaskError` when the reference does.
    """
    with factory.open(settings) as reference:
        assert isinstance(reference, TimedSession), "a device whose times are measured"
        _load_reference(side, reference, settings.baseline)
        pairs = _Pairs(side, candidate, reference)
        for number in range(-WARM_UP_BLOCKS, max(2, -(-settings.trials // BLOCK_CALLS))):
            pairs.measure(number)
        with _reference_at_work():
            reference_profile = reference.profile(_profiled_arguments(side, reference), calls=PROFILED_CALLS)
    profile = owned(candidate.profile(_profiled_arguments(side, candidate), calls=PROFILED_CALLS), launched)
    return _conclude(side, pairs.ours, pairs.theirs, profile, owned(reference_profile, set()), settings)


def _load_reference(side: ExpectedSide, session: TimedSession, baseline: str) -> None:
    """The reference in a runner of its own, with the weights that the seed builds: values do not change its time."""
    instance = side.instance
    source = side.reference.source + WRAPPERS[baseline]
    with _reference_at_work():
        session.load(source, instance.init_args, instance.init_kwargs, seed=side.build_seed, conv_tf32=side.conv_tf32)
        session.call(arguments_of(side.reference.draw_inputs(side.seeds("reference warm-up"))))


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


class _Pairs:
    """Blocks of the candidate's calls and of the reference's, one of each at a time."""

    def __init__(self, side: ExpectedSide, candidate: TimedSession, reference: TimedSession):
        self._side, self._candidate, self._reference = side, candidate, reference
        self._calls = BLOCK_CALLS
        self._repeated: frozenset[int] = frozenset()
        self.ours: list[Block] = []
        self.theirs: list[Block] = []

    def measure(self, number: int) -> None:
        """Measure a pair; by one of a negative number, a warm-up, only how many calls a block needs is known."""
        # which of the two goes first alternates, so that neither always finds the GPU warm
        if number % 2:
            theirs, empty = self._reference_block(number)
            ours = self._candidate_block(number)
        else:
            ours = self._candidate_block(number)
            theirs, empty = self._reference_block(number)
        if number < 0:
            shortest = min(ours.wall_seconds, theirs.wall_seconds) / self._calls
            self._calls = min(MOST_CALLS, max(BLOCK_CALLS, math.ceil(BLOCK_SECONDS / shortest)))
            return
        self.ours.append(Block(ours.device_seconds, max(0.0, ours.wall_seconds - empty), self._repeated))
        self.theirs.append(Block(theirs.device_seconds, max(0.0, theirs.wall_seconds - empty), self._repeated))

    def _reference_block(self, number: int) -> tuple[TimedCalls, float]:
        """A block of the reference's calls, and the wall seconds of one without calls."""
        with _reference_at_work():
            inputs, order = self._inputs("timed reference", number)
            sets = [_put(self._reference, values) for values in inputs]
            self._reference.time(sets, order=[0], flush_bytes=FLUSH_BYTES, dry=True)
            empty = self._reference.time(sets, order=order, flush_bytes=FLUSH_BYTES, dry=True)
            timed = self._reference.time(sets, order=order, flush_bytes=FLUSH_BYTES)
            _release(self._reference, sets)
            return timed, empty.wall_seconds

    def _candidate_block(self, number: int) -> TimedCalls:
        """A block of the candidate's calls, one of which is checked."""
        inputs, order = self._inputs("timed candidate", number)
        keep = random.Random(self._side.seeds("kept", number)).randrange(len(order))
        sets = [_put(self._candidate, values) for values in inputs]
        self._candidate.time(sets, order=[0], flush_bytes=FLUSH_BYTES, dry=True)  # the GPU changes to this process
        timed = self._candidate.time(sets, order=order, flush_bytes=FLUSH_BYTES, keep=keep)
        _release(self._candidate, sets)
        values = [raw_output(output) for output in timed.kept]
        result = compare(values, self._side.instance.oracle(inputs[order[keep]]), self._side.rule)
        if not result.passed_calls:
            raise WrongWhenTimed(result.message)
        return timed

    def _inputs(self, purpose: str, number: int) -> tuple[list[list[Any]], list[int]]:
        """The different inputs of a block, and which of them each call has."""
        seeds, draw = self._side.seeds, self._side.reference.draw_inputs
        first = (number + WARM_UP_BLOCKS) * MOST_SETS
        inputs = [draw(seeds(purpose, first))]
        room = SET_BYTES // max(1, bytes_of_inputs(inputs[0]))
        count = min(self._calls, MOST_SETS, max(BLOCK_CALLS, room))
        inputs += [draw(seeds(purpose, first + k)) for k in range(1, count)]
        order = [call % count for call in range(self._calls)]
        random.Random(seeds("order", number)).shuffle(order)
        first_calls = {chosen: call for call, chosen in reversed([*enumerate(order)])}
        self._repeated = frozenset(range(len(order))) - frozenset(first_calls.values())
        return inputs, order


def _release(session: TimedSession, sets: list[list[Any]]) -> None:
    session.release([leaf for leaf in tree_leaves(sets) if isinstance(leaf, int)])


def _put(session: TimedSession, inputs: list[Any]) -> list[Any]:
    return [
        tree_map(lambda leaf: session.put(leaf) if isinstance(leaf, torch.Tensor) else leaf, value)
        for value in arguments_of(inputs)
    ]


def _profiled_arguments(side: ExpectedSide, session: TimedSession) -> list[Any]:
    return _put(session, side.reference.draw_inputs(side.seeds("profiled")))


def owned(profile: Profile, launched: set[str]) -> Profile:
    """``profile`` with a kernel counted as the candidate's own only if the launch hook saw it launched by that name."""
    rows = tuple(
        row.model_copy(update={"owner": "library"}) if row.owner == "custom" and row.name not in launched else row
        for row in profile.rows
    )
    return profile.model_copy(update={"rows": rows})


def _conclude(
    side: ExpectedSide,
    ours: list[Block],
    theirs: list[Block],
    profile: Profile,
    reference_profile: Profile,
    settings: EvalSettings,
) -> Measured:
    """Times and speedup, and the findings of the clocks and the roofline."""
    name = title_of(settings.place)
    seconds, reference_seconds = median_seconds(ours), median_seconds(theirs)
    found = Measured(
        profile=profile,
        reference_profile=reference_profile,
        timing=_timing(name, seconds, ours),
        reference_timing=_timing(name, reference_seconds, theirs),
        speedup=speedup_interval(theirs, ours, seed=side.seeds("bootstrap") % 2**32),
    )
    disagreement = clocks_disagree(ours)
    if disagreement is not None:
        found.findings.append(show.clock_disagreement(disagreement))
    floor = floor_of(side, spec_called(gpu_name(settings.place)))
    if floor is not None and seconds < FLOOR_SLACK * floor <= reference_seconds:
        found.findings.append(show.below_roofline(seconds, floor))
    return found


def without_floor(settings: EvalSettings) -> list[NotChecked]:
    """What no time of a GPU without a card is held against, and why."""
    name = gpu_name(settings.place)
    if settings.place.simulated or spec_called(name) is not None:
        return []
    return [NotChecked(check=FLOOR, why=f"no card is called {name!r}; {UNKNOWN_CARD}")]


def _timing(name: str, seconds: float, blocks: list[Block]) -> Timing:
    samples = tuple(sample for block in blocks for sample in block.samples)
    return Timing(kind="measured", device=name, seconds=seconds, samples=samples)


def floor_of(side: ExpectedSide, spec: GPUSpec | None) -> float | None:
    """Return the seconds needed to read every input once from device memory, with flushed caches."""
    if spec is None:
        return None
    return roofline_floor(bytes_of_inputs(side.reference.draw_inputs(side.seeds("floor"))), spec.dram_bandwidth)


def bytes_of_inputs(inputs: list[Any]) -> int:
    """Return the bytes of all tensors among the inputs."""
    return sum(leaf.numel() * leaf.element_size() for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor))
