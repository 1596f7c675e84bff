"""Measured time on a real GPU: candidate and reference alternate, each in a runner of its own.

Blocks of calls alternate between the two runners, so that drift of clocks and temperature affects both. Before every
call its inputs are copied to the place of the last one's, the caches are flushed and the device is idle; the outputs of
one secretly chosen call per block are compared with the oracle. Device time comes from events in the runner, which a
candidate could forge. So the judge's own clock around each block decides where it says more, minus the cost of an empty
block, which runs in the reference's runner: a candidate cannot make it longer. Blocks are long enough for that clock.
Where there is no room for so many inputs, calls have those of earlier ones; they do not count as samples.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from drkernel.gym.device import gpu_name, title_of
from drkernel.gym.judge import findings as show
from drkernel.gym.judge.checks import arguments_of, raw_output
from drkernel.gym.judge.expected import ExpectedSide
from drkernel.gym.judge.facts import Facts
from drkernel.gym.judge.measured_statistics import (
    Block,
    clocks_disagree,
    median_seconds,
    roofline_floor,
    speedup_interval,
)
from drkernel.gym.request import EvalSettings
from drkernel.gym.session.protocol import OpensSessions, SessionError, TimedCalls, TimedSession
from drkernel.sim.spec import GPUSpec, spec_called
from drkernel.tasks.correctness import compare
from drkernel.tasks.errors import TaskError
from drkernel.verdict import CandidateError, Finding, Profile, Speedup, Timing

BLOCK_SECONDS = 0.05
"""that a block of calls takes at least: against it the host's hiccups and the judge's messages are small"""
BLOCK_CALLS, MOST_CALLS = 5, 2000
WARM_UP_BLOCKS = 2
SET_BYTES, MOST_SETS = 32 << 20, 50
"""of the different inputs of a block, of which there are ``BLOCK_CALLS`` at least"""
FLUSH_BYTES = 512 << 20
"""Written before each call; more than any GPU's caches hold."""
PROFILED_CALLS = 3
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

    def tell(self, facts: Facts) -> None:
        """Set the verdict's fields."""
        facts.profile, facts.reference_profile = self.profile, self.reference_profile
        facts.timing, facts.reference_timing = self.timing, self.reference_timing
        facts.speedup, facts.coverage = self.speedup, self.profile.coverage


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
            empty = self._reference.time(sets, order=order, flush_bytes=FLUSH_BYTES, dry=True)
            timed = self._reference.time(sets, order=order, flush_bytes=FLUSH_BYTES)
            _release(self._reference, sets)
            return timed, empty.wall_seconds

    def _candidate_block(self, number: int) -> TimedCalls:
        """A block of the candidate's calls, one of which is checked."""
        inputs, order = self._inputs("timed candidate", number)
        keep = random.Random(self._side.seeds("kept", number)).randrange(len(order))
        sets = [_put(self._candidate, values) for values in inputs]
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
