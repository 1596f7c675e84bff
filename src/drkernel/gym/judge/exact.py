"""Exact verification: whether what the candidate computes is what was asked, without a tolerance.

After the answers of all checked calls were right, the candidate is called in a session of its own at a small size, and
the device records its commands; at the checked sizes if it does there what it does not do in calls that are timed. The
judge evaluates the reference and those commands in two finite fields at random points
(``ttir_executor.exact``). Equal residues mean equal expressions, but for a chance near one in a million an element.
Unequal ones are conclusive only if no artefact of the fields explains them (the sign of a square root): an element
that is unequal at every one of several points, at two of them without such roots, while hardly any changes between
equal and unequal, *differs*. Anything else is *open*, which condemns nobody. Precision is not looked at here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from drkernel.gym.judge import findings as show
from drkernel.gym.judge.checks import Checker, arguments_of
from drkernel.gym.judge.contribution import timed_calls
from drkernel.gym.judge.expected import ExpectedSide
from drkernel.gym.judge.held_against import Exercise, OwnCall, differences
from drkernel.gym.judge.own_sizes import places_of
from drkernel.gym.judge.own_timing import facts_of, places_of_weights, work_at
from drkernel.gym.judge.seen import Place, Seen, seen
from drkernel.gym.request import EvalRequest
from drkernel.gym.session.answers import CallResult, Choice, Output, SessionError
from drkernel.gym.session.protocol import OpensSessions, RecordedSession
from drkernel.sim.exact.machine import ExactMachine, Sources, TensorForm, Watched, form_of, replay, without_onednn
from drkernel.sim.wire.tape import Tape, digest_of
from drkernel.tasks.cost import ScaleLimits
from drkernel.tasks.errors import TaskError
from drkernel.tasks.inputs import draw_inputs
from drkernel.tasks.oracle import flatten_outputs
from drkernel.tasks.problem import Instance
from drkernel.tasks.thin import inputs_only, thin_sizing
from drkernel.verdict import Exactness, Finding
from ttir_executor.exact.field import Field
from ttir_executor.exact.memory import Undecided
from ttir_executor.exact.values import Exact, compare

SMALL = ScaleLimits(bytes=64 << 10, flops=2e7)
"""size of the call that is verified, if only inputs have to be shortened for it"""
POINTS = 5
"""random points at which unequal answers are compared before they are said to differ"""
CLEAN_POINTS = 2
"""of these, points at which no root of a value without one can have made them unequal"""
COINCIDENCES = 1e-3
"""share of an output's elements that may be equal at one point by chance; a root of the other sign turns about half"""
SECONDS = 2.0
"""of processor time, for everything"""
READ = 0.9
"""share of the elements in which the reference's answer has a slope that a call must have read"""
FLAT = 1e-9
"""of an input's largest slope: what is less may be a sum that cancels"""
PATIENCE_S = 20.0
"""wall seconds that the candidate has for its calls of one size"""
MOST_ARGUMENTS = 16
"""inputs and weights that are tried one by one for what an answer does not depend on"""


@dataclass
class _Call:
    """One call, as both sides made it."""

    instance: Instance
    inputs: list[Any]
    others: list[Any]
    """another draw of the inputs"""
    other_state: dict[str, torch.Tensor]
    tape: Tape
    outputs: Sequence[Output]
    facts: Seen | None
    """what it did on the device"""

    def named(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        """The inputs and weights, by name."""
        places = [names[place] if place < len(names) else str(place) for place in range(len(self.inputs))]
        inputs = {
            name: value for name, value in zip(places, self.inputs, strict=True) if isinstance(value, torch.Tensor)
        }
        return {**inputs, **_state_of(self.instance.model)}

    def sources(self, field: Field, changed: torch.Tensor | None = None) -> Sources:
        """Residues of the inputs and weights; ``changed`` gets others than at this field's ordinary point."""
        sources = Sources(field, None if changed is None else digest_of(changed))
        for value, other in zip(self.inputs, self.others, strict=True):
            if isinstance(value, torch.Tensor):
                sources.give(value, other if isinstance(other, torch.Tensor) else None)
        for name, value in _state_of(self.instance.model).items():
            sources.give(value, self.other_state.get(name))
        return sources

    def expected(self, sources: Sources, deadline: float) -> list[Any]:
        """What the reference computes."""
        machine = ExactMachine(sources.field, sources, deadline)
        given = [value.clone() if isinstance(value, torch.Tensor) else value for value in self.inputs]
        for value in (*given, *_state_of(self.instance.model).values()):
            if isinstance(value, torch.Tensor):
                machine.give(form_of(value), digest_of(value), value)
        with torch.no_grad(), without_onednn(), Watched(machine):
            outputs = flatten_outputs(self.instance.model(*given))
        return [machine.read(form_of(out)) if isinstance(out, torch.Tensor) else out for out in outputs]

    def answered(self, sources: Sources, deadline: float) -> list[Any]:
        """What the candidate computes."""
        machine = ExactMachine(sources.field, sources, deadline)
        replay(machine, self.tape)
        return [
            machine.read(TensorForm(out.address, out.shape, out.stride, out.dtype, out.storage))
            if out.address is not None and out.dtype is not None and out.storage is not None
            else out.value
            for out in self.outputs
        ]


def verify(
    request: EvalRequest, side: ExpectedSide, checker: Checker, weights: Mapping[str, Place], factory: OpensSessions
) -> tuple[Exactness, list[Finding]]:
    """Compare the candidate with the reference exactly. ``weights``: their addresses in the checker's session, where
    known."""
    start = time.monotonic()
    record = _open("nothing was recorded", start)
    timed, none = _TimedCalls(side, checker, weights), list[Finding]()
    for at in filter(None, (_small(request, side), side)):
        try:
            call = _recorded(request, at, timed, factory)
        except SessionError as error:
            if error.kind in ("infra_error", "tampering"):
                raise
            record = _open(f"at a small size the candidate fails: {error.detail.type}", start)
            continue
        except TaskError as error:
            record = _open(str(error), start)
            continue
        apart = timed.apart(call.facts, at)
        record, found = _open(f"calls that are timed do otherwise: {apart}", start), none
        with _condemning_nobody() as why:
            if apart is None:
                record, found = _compared(call, at, start)
        if why:
            record = _open(why[0], start)
        if record.outcome == "open":
            with _condemning_nobody():
                record, found = _without(call, at, timed.unread(), record, apart is None, start)
        if record.outcome != "open":
            return record, found
    return record, none


@contextmanager
def _condemning_nobody() -> Iterator[list[str]]:
    """What the evaluation in the block cannot do condemns nobody, and must not cost the verdict; says what it was."""
    why: list[str] = []
    try:
        yield why
    except Undecided as error:
        why.append(str(error))
    except (RuntimeError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
        why.append(f"the evaluation failed: {type(error).__name__}: {error}")


class _TimedCalls:
    """What the calls did that may be timed."""

    def __init__(self, side: ExpectedSide, checker: Checker, weights: Mapping[str, Place]):
        self.side = side
        calls = timed_calls([call for call in checker.calls[checker.began :] if call.passed])
        self.work = work_at(side.reference.source)
        self.facts = facts_of(calls, checker.session, dict(weights))
        self.weights = bool(weights)
        counts = [len(call.result.record.launches) for call in checker.calls[checker.began :]]
        self.tuned = counts[:1] != counts[1:2]
        """the first call of a session launches other kernels than those that follow"""
        self.each = [(call, facts_of([call], checker.session, {})) for call in calls]

    @property
    def choices(self) -> list[Choice]:
        """Configurations of their kernels."""
        return [one.choice for facts in self.facts for one in facts.launched.values()]

    def unread(self) -> frozenset[str]:
        """Names of inputs of which a call reads less than what the reference's answer has a slope in."""
        names, found = self.side.reference.argument_names(), set()
        for call, facts in self.each:
            record, inputs = call.result.record.device, call.case.inputs
            nested = any(isinstance(value, (list, tuple, dict)) for value in inputs)
            if record is None or record.host_reads or nested or not facts:
                continue
            for place, share in _slopes(self.side.instance, inputs).items():
                if place < len(names) and facts[0].share(f"input {place}") < READ * share:
                    found.add(names[place])
        return frozenset(found)

    def apart(self, there: Seen | None, at: ExpectedSide) -> str | None:
        """How they differ from a call at other sizes, if they do."""
        work = work_at(at.reference.source)
        if there is None or not self.facts:
            return "there are too many commands to compare"
        for one in self.facts:
            if self.work is None or work is None:
                same = one.signatures == there.signatures and one.operators == there.operators
                said = [] if same else ["other kernels or operators"]
            else:
                said = differences(OwnCall(one, self.work, (), ()), [Exercise(there, work, False)])
            if said:
                return said[0]
        return None


def _open(why: str, start: float) -> Exactness:
    return Exactness(outcome="open", why=why[:200], seconds=time.monotonic() - start)


def _slopes(instance: Instance, inputs: Sequence[Any]) -> dict[int, float]:
    """The share of each floating input's elements in which the reference's outputs have a slope, by place."""
    given = [
        value.detach().clone().requires_grad_()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
        else value
        for value in inputs
    ]
    varied = [(place, value) for place, value in enumerate(given) if getattr(value, "requires_grad", False)]
    with torch.enable_grad():
        outputs = [out for out in flatten_outputs(instance.model(*given)) if isinstance(out, torch.Tensor)]
        chances = torch.Generator().manual_seed(0)
        total = sum((out * torch.rand(out.shape, generator=chances)).sum() for out in outputs if out.requires_grad)
        if not isinstance(total, torch.Tensor):
            return {}
        slopes = torch.autograd.grad(total, [value for _, value in varied], allow_unused=True)
    return {
        place: float((slope.abs() > FLAT * slope.abs().max()).double().mean())
        for (place, _), slope in zip(varied, slopes, strict=True)
        if slope is not None and slope.numel()
    }


def _recorded(request: EvalRequest, at: ExpectedSide, timed: _TimedCalls, factory: OpensSessions) -> _Call:
    """The second call of a fresh session, as the calls that are timed come after a first one that may prepare things;
    what the first one prepared is recorded, too, unless it tunes."""
    inputs, others = draw_inputs(at.reference, at.seeds("exact")), draw_inputs(at.reference, at.seeds("exact", 1))
    state = _state_of(at.problem.instance(at.seeds("exact", 2)).model)
    with factory.open(request.settings) as session:
        assert isinstance(session, RecordedSession)
        loaded = session.load(
            request.candidate, at.instance.init_args, at.instance.init_kwargs, seed=at.build_seed,
            conv_tf32=at.conv_tf32, preferred=timed.choices,
        )  # fmt: skip
        session.limit(PATIENCE_S)
        if at.bind(loaded.parameters) is not None:
            raise TaskError("weights do not fit")
        if at.pairs:
            session.load_state(at.state())
        places = places_of_weights(session, loaded) if timed.weights else {}
        before = draw_inputs(at.reference, at.seeds("exact", 3))
        session.call(arguments_of(before), poison="nan", tape=not timed.tuned)
        result = session.call(arguments_of(inputs), poison="nan", tape=True)
        tape, facts = session.tape(), _facts(session, result, places)
    return _Call(at.instance, inputs, others, state, tape, result.outputs, facts)


def _facts(session: RecordedSession, result: CallResult, weights: dict[str, Place]) -> Seen | None:
    record = result.record.device
    return None if record is None else seen(record, {**places_of(session, result.arguments), **weights})


def _state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers, those that are not saved too."""
    return {name: value.detach() for name, value in (*model.named_parameters(), *model.named_buffers())}


def _small(request: EvalRequest, side: ExpectedSide) -> ExpectedSide | None:
    """The reference at a small size, if that has the weights of the task's own."""
    try:
        sizing = thin_sizing(request.task, SMALL)
        if inputs_only(request.task, sizing) and sizing.source != side.reference.source:
            return ExpectedSide(request, sizing.source)
    except TaskError:
        pass
    return None


def _compared(call: _Call, side: ExpectedSide, start: float) -> tuple[Exactness, list[Finding]]:
    """Compare at one point, and, where answers are unequal, at more."""
    deadline = time.thread_time() + SECONDS
    equal: list[np.ndarray] = []
    unequal: list[np.ndarray] = []
    clean: list[np.ndarray] = []
    changed = False
    reasons: list[str] = []
    for point in range(POINTS):
        field = Field(side.seeds("field", point))
        sources = call.sources(field)
        expected, answered = call.expected(sources, deadline), call.answered(sources, deadline)
        if len(expected) != len(answered):
            return _open("another number of outputs", start), []
        found = [_of_output(want, got) for want, got in zip(expected, answered, strict=True)]
        if point == 0:
            equal, unequal = [one for one, _, _ in found], [other for _, other, _ in found]
            clean = [one.astype(int) for _, _, one in found]
            reasons = [name for name, _ in field.reasons.most_common()]
        else:
            for n, (same, other, sure) in enumerate(found):
                turned = (unequal[n] & same) | (equal[n] & other)
                changed = changed or int(turned.sum()) > COINCIDENCES * turned.size
                equal[n], unequal[n], clean[n] = equal[n] | same, unequal[n] & other, clean[n] + sure
        if not any(one.any() for one in (unequal if point == 0 else clean)):
            break
    unequal = [one & (times >= CLEAN_POINTS) for one, times in zip(unequal, clean, strict=True)]
    elements, proved = sum(one.size for one in equal), sum(int(one.sum()) for one in equal)
    differ = 0 if changed else sum(int(one.sum()) for one in unequal)
    facts = {"elements": elements, "equal": proved, "differ": differ, "inputs": _words(call)}
    if differ:
        ignored = _ignored(call, side, deadline)
        place = next(n for n, one in enumerate(unequal) if one.any())
        where = tuple(int(i) for i in np.argwhere(unequal[place])[0])
        seconds = time.monotonic() - start
        record = Exactness(outcome="differs", **facts, ignored=ignored, seconds=seconds)
        return record, [show.not_equivalent(elements, differ, place, where, ignored)]
    outcome = "proved" if proved == elements else "open"
    why = (
        None
        if outcome == "proved"
        else f"{elements - proved} of {elements} elements: {', '.join(reasons[:3]) or 'unknown values'}"
    )
    return Exactness(outcome=outcome, **facts, why=why, seconds=time.monotonic() - start), []


def _of_output(want: Any, got: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where an output is equal, where it is unequal, and where that is for certain at this point."""
    if isinstance(want, Exact) and isinstance(got, Exact) and want.shape == got.shape:
        found = compare(want, got)
        return found.equal, found.unequal, found.differ
    if isinstance(want, Exact | torch.Tensor) or isinstance(got, Exact):
        shape = want.shape if isinstance(want, Exact) else ()
        return np.zeros(shape, bool), np.zeros(shape, bool), np.zeros(shape, bool)
    same = np.asarray(np.equal(want, got))
    return same, np.zeros(same.shape, bool), np.zeros(same.shape, bool)  # a choice of floats, which no residue confirms


def _ignored(call: _Call, side: ExpectedSide, deadline: float) -> tuple[str, ...]:
    """Names of inputs and weights on which the reference's answer depends and the candidate's does not."""
    field_seed = side.seeds("field", 0)
    names = call.named(side.reference.argument_names())
    found: list[str] = []
    try:
        base = call.sources(Field(field_seed))
        expected, answered = call.expected(base, deadline), call.answered(base, deadline)
        for name, tensor in list(names.items())[:MOST_ARGUMENTS]:
            if not tensor.is_floating_point():
                continue
            other = call.sources(Field(field_seed), tensor)
            if _all_equal(answered, call.answered(other, deadline)) and not _all_equal(
                expected, call.expected(other, deadline)
            ):
                found.append(name)
    except Undecided:
        pass
    return tuple(found)


def _without(
    call: _Call, side: ExpectedSide, unread: frozenset[str], record: Exactness, evaluated: bool, start: float
) -> tuple[Exactness, list[Finding]]:
    """Of an open comparison: an input or weight on which the reference's answer certainly depends, and the candidate's
    does not, because it is the same in exact arithmetic, or because a call that may be timed leaves it unread."""
    deadline = time.thread_time() + SECONDS
    fields = [side.seeds("field", point) for point in range(CLEAN_POINTS)]
    expected = [call.expected(call.sources(Field(seed)), deadline) for seed in fields]
    answered: list[Any] | None = None
    for name, tensor in list(call.named(side.reference.argument_names()).items())[:MOST_ARGUMENTS]:
        if not tensor.is_floating_point():
            continue
        changes: list[np.ndarray] | None = None
        for seed, base in zip(fields, expected, strict=True):
            other = call.expected(call.sources(Field(seed), tensor), deadline)
            sure = [_of_output(x, y)[2] for x, y in zip(base, other, strict=True)]
            changes = sure if changes is None else [x & y for x, y in zip(changes, sure, strict=True)]
        if changes is None or not any(one.any() for one in changes):
            continue
        if name not in unread:
            if not evaluated:
                continue
            try:
                answered = answered or call.answered(call.sources(Field(fields[0])), deadline)
                if not _all_equal(answered, call.answered(call.sources(Field(fields[0]), tensor), deadline)):
                    continue
            except Undecided:
                evaluated = False
                continue
        place = next(n for n, one in enumerate(changes) if one.any())
        where = tuple(int(i) for i in np.argwhere(changes[place])[0])
        elements, differ = sum(one.size for one in changes), sum(int(one.sum()) for one in changes)
        seconds = time.monotonic() - start
        facts = {"elements": elements, "equal": 0, "differ": differ, "inputs": _words(call), "ignored": (name,)}
        found = [show.not_equivalent(elements, differ, place, where, (name,))]
        return Exactness(outcome="differs", **facts, seconds=seconds), found
    return record, []


def _all_equal(left: list[Any], right: list[Any]) -> bool:
    return all(
        bool(np.all(compare(x, y).equal))
        for x, y in zip(left, right, strict=True)
        if isinstance(x, Exact) and isinstance(y, Exact)
    )


def _words(call: _Call) -> str:
    """The tensors of the call in words."""
    shapes = [f"[{', '.join(map(str, value.shape))}]" for value in call.inputs if isinstance(value, torch.Tensor)]
    return ", ".join(shapes)[:200]
