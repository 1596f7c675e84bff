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
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from drkernel.gym.judge import findings as show
from drkernel.gym.judge.checks import Checker, arguments_of
from drkernel.gym.judge.expected import ExpectedSide
from drkernel.gym.request import EvalRequest
from drkernel.gym.session.answers import Output, SessionError
from drkernel.gym.session.protocol import RecordedSession
from drkernel.sim.exact.dependence import BoundCall
from drkernel.sim.exact.machine import ExactMachine, TensorForm, earlier_calls, replay
from drkernel.sim.gpu.accounts import LaunchRecord
from drkernel.sim.wire.tape import Tape
from drkernel.tasks.cost import ScaleLimits
from drkernel.tasks.errors import TaskError
from drkernel.tasks.inputs import draw_inputs
from drkernel.tasks.oracle import flatten_outputs
from drkernel.tasks.problem import Problem
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


class ExactCheck:
    """A candidate compared with the reference exactly, and what the answer depends on."""

    def __init__(self, request: EvalRequest, side: ExpectedSide, checker: Checker):
        """Make the comparison. The session is as usable afterwards as after any call."""
        self._side = side
        self._call: _Call | None = None
        start = time.monotonic()
        try:
            self._call = _recorded(request, side, checker)
            self.exactness, self.findings = _compared(self._call, side, start)
            return
        except SessionError as error:
            if error.kind in ("infra_error", "tampering"):
                raise
            why = f"at a small size the candidate fails: {error.detail.type}"
        except (TaskError, Undecided) as error:
            why = str(error)
        except _TROUBLE as error:  # what the evaluation cannot do condemns nobody, and must not cost the verdict
            why = f"the evaluation failed: {type(error).__name__}: {error}"
        self.exactness, self.findings = _open(why, start), list[Finding]()

    def contributes(self) -> bool:
        """Whether the own kernels make the answer, however small their part; False where that is not decided."""
        call = self._call
        if call is None or self.exactness.outcome != "proved":
            return False
        try:
            return call.bound.contributes(call.answered, self._side.seeds("field"), time.thread_time() + SECONDS)
        except (Undecided, *_TROUBLE):
            return False

    def needed(self, idle: Mapping[int, str], launches: Sequence[LaunchRecord]) -> set[int]:
        """Those of a call's ``idle`` launches on which the answer depends all the same, by their places in it."""
        call, names = self._call, [one.name for one in launches]
        if call is None or self.exactness.outcome != "proved" or call.kernels != names:
            return set()
        seed, deadline = self._side.seeds("field"), time.thread_time() + SECONDS
        try:
            return call.bound.needed(call.answered, idle, len(names), seed, deadline)
        except (Undecided, *_TROUBLE):
            return set()


_TROUBLE = (RuntimeError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError)


@dataclass
class _Call:
    """One call, as both sides made it."""

    bound: BoundCall
    """the reference's"""
    tape: Tape
    outputs: Sequence[Output]
    kernels: Sequence[str]
    """names of the launches"""
    earlier: Collection[int]
    """calls before it whose results it may read, by number"""
    earlier_inputs: Mapping[int, torch.Tensor]
    """of calls before it, by handle"""

    def answered(self, machine: ExactMachine) -> list[Any]:
        """What the candidate computes."""
        replay(machine, self.tape, self.earlier, self.earlier_inputs)
        return [
            machine.read(TensorForm(out.address, out.shape, out.stride, out.dtype, out.storage))
            if out.address is not None and out.dtype is not None and out.storage is not None
            else out.value
            for out in self.outputs
        ]


def _open(why: str, start: float) -> Exactness:
    return Exactness(outcome="open", why=why[:200], seconds=time.monotonic() - start)


def _recorded(request: EvalRequest, side: ExpectedSide, checker: Checker) -> _Call:
    """Make the call, at a small size if that has the weights that the candidate has."""
    session = checker.session
    assert isinstance(session, RecordedSession)
    problem = _small(request, side)
    instance = problem.instance(side.build_seed)
    try:
        instance.model.load_state_dict(side.instance.model.state_dict())
    except RuntimeError:  # weights of other shapes
        problem = side.problem
        instance = problem.instance(side.build_seed)
        instance.model.load_state_dict(side.instance.model.state_dict())
    instance.model.train(side.instance.model.training)
    bound = BoundCall(
        lambda given: flatten_outputs(instance.model(*given)),
        draw_inputs(problem.reference, side.seeds("exact")),
        draw_inputs(problem.reference, side.seeds("exact", 1)),
        _state_of(instance.model),
        _state_of(problem.instance(side.seeds("exact", 2)).model),
        side.reference.argument_names(),
    )
    session.record_next()
    result = session.call(arguments_of(bound.inputs), poison="nan")
    kernels, tape = [one.name for one in result.record.launches], session.tape()
    return _Call(bound, tape, result.outputs, kernels, earlier_calls(tape), checker.inputs_by_handle())


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
        sources = call.bound.sources(field)
        machines = [ExactMachine(field, sources, deadline) for _ in range(2)]
        expected, answered = call.bound.values(machines[0]), call.answered(machines[1])
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
    try:
        programs = (call.bound.values, call.answered)
        theirs, mine = call.bound.ignored_by(programs, side.seeds("field"), deadline)
    except Undecided:
        return ()
    return tuple(name for name in call.bound.tensors if name in mine - theirs)


def _words(call: _Call) -> str:
    """The tensors of the call in words."""
    shapes = [
        f"[{', '.join(map(str, value.shape))}]"
        for value in tree_leaves(call.bound.inputs)
        if isinstance(value, torch.Tensor)
    ]
    return ", ".join(shapes)[:200]
