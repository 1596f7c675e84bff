"""Exact verification: whether what the candidate computes is what was asked, without a tolerance.

After the answers of all checked calls were right, the candidate is called once more at a small size, and the device
records its commands. The judge evaluates the reference and those commands in two finite fields at random points
(``ttir_executor.exact``). Equal residues mean equal expressions, but for a chance near one in a million an element.
Unequal ones are conclusive only if no artefact of the fields explains them (the sign of a square root): an element
that is unequal at every one of several points, at two of them without such roots, while hardly any changes between
equal and unequal, *differs*. Anything else is *open*, which condemns nobody. Precision is not looked at here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from drkernel.gym.judge import findings as show
from drkernel.gym.judge.checks import Checker, arguments_of
from drkernel.gym.judge.expected import ExpectedSide
from drkernel.gym.request import EvalRequest
from drkernel.gym.session.answers import Output, SessionError
from drkernel.gym.session.protocol import RecordedSession
from drkernel.sim.exact.machine import ExactMachine, Sources, TensorForm, Watched, form_of, replay, without_onednn
from drkernel.sim.wire.tape import Tape, digest_of
from drkernel.tasks.cost import ScaleLimits
from drkernel.tasks.errors import TaskError
from drkernel.tasks.inputs import draw_inputs
from drkernel.tasks.oracle import flatten_outputs
from drkernel.tasks.problem import Instance, Problem
from drkernel.tasks.reference import load_reference
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


def verify(request: EvalRequest, side: ExpectedSide, checker: Checker) -> tuple[Exactness, list[Finding]]:
    """Compare the candidate with the reference exactly; the session is as usable afterwards as after any call."""
    start = time.monotonic()
    session = checker.session
    assert isinstance(session, RecordedSession)
    try:
        call = _recorded(request, side, session)
    except SessionError as error:
        if error.kind in ("infra_error", "tampering"):
            raise
        return _open(f"at a small size the candidate fails: {error.detail.type}", start), []
    except TaskError as error:
        return _open(str(error), start), []
    try:
        return _compared(call, side, start)
    except Undecided as why:
        return _open(str(why), start), []
    except (RuntimeError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
        # what the evaluation cannot do condemns nobody, and must not cost the verdict
        return _open(f"the evaluation failed: {type(error).__name__}: {error}", start), []


def _open(why: str, start: float) -> Exactness:
    return Exactness(outcome="open", why=why[:200], seconds=time.monotonic() - start)


def _recorded(request: EvalRequest, side: ExpectedSide, session: RecordedSession) -> _Call:
    """Make the call, at a small size if that has the weights that the candidate has."""
    problem = _small(request, side)
    instance = problem.instance(side.build_seed)
    try:
        instance.model.load_state_dict(side.instance.model.state_dict())
    except RuntimeError:  # weights of other shapes
        problem = side.problem
        instance = problem.instance(side.build_seed)
        instance.model.load_state_dict(side.instance.model.state_dict())
    instance.model.train(side.instance.model.training)
    inputs = draw_inputs(problem.reference, side.seeds("exact"))
    others = draw_inputs(problem.reference, side.seeds("exact", 1))
    state = _state_of(problem.instance(side.seeds("exact", 2)).model)
    result = session.call(arguments_of(inputs), poison="nan", tape=True)
    return _Call(instance, inputs, others, state, session.tape(), result.outputs)


def _state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers, those that are not saved too."""
    return {name: value.detach() for name, value in (*model.named_parameters(), *model.named_buffers())}


def _small(request: EvalRequest, side: ExpectedSide) -> Problem:
    task = request.task
    try:
        sizing = thin_sizing(task, SMALL)
        if inputs_only(task, sizing):
            return Problem(task, None, load_reference(sizing.source))
    except TaskError:
        pass
    return side.problem


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
