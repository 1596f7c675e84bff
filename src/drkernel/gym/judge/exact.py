"""Exact verification: whether what the candidate computes is what was asked, without a tolerance.

After the answers of all checked calls were right, the candidate is called at a small size, and the device's record of
its commands is read; at the checked sizes if it does there what it does not do in calls that are timed. Where the
answer needs what earlier calls did, or that call is another, it is in a session of its own. The judge evaluates the
reference and those commands in two finite fields at random points (``ttir_executor.exact``). Equal residues mean equal
expressions, but for a chance near one in a million an element.
Unequal ones are conclusive only if no artefact of the fields explains them (the sign of a square root): an element
that is unequal at every one of several points, at two of them without such roots, while hardly any changes between
equal and unequal, *differs*. Anything else is *open*, which condemns nobody: then calls in which small parts of the
answer are large show what a tolerance hides (:func:`left_out`). Precision is not looked at here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

from drkernel.gym.judge import findings as show
from drkernel.gym.judge.checks import Checker, arguments_of
from drkernel.gym.judge.contribution import timed_calls
from drkernel.gym.judge.expected import ExpectedSide
from drkernel.gym.judge.held_against import Exercise, OwnCall, differences
from drkernel.gym.judge.other_calls import wrong_answer
from drkernel.gym.judge.own_sizes import facts_of, placed_weights, places_of, work_at
from drkernel.gym.judge.seen import Place, Seen, seen
from drkernel.gym.request import EvalRequest
from drkernel.gym.session.base import OpensSessions
from drkernel.gym.session.protocol import BEFORE_AN_ANSWER, CandidateFailed, Output
from drkernel.gym.session.simulated import SimulatedSession
from drkernel.sim.exact.dependence import MOST_ARGUMENTS, BoundCall, Evaluate
from drkernel.sim.exact.machine import ExactMachine, TensorForm, earlier_calls, replay
from drkernel.sim.gpu.accounts import LaunchRecord
from drkernel.sim.wire.frames import Tape
from drkernel.task import TaskError
from drkernel.tasks.cost import ScaleLimits, estimate
from drkernel.tasks.inputs import draw_inputs
from drkernel.tasks.oracle import flatten_outputs, unit_roundoff
from drkernel.tasks.problem import ReferenceCall, usable
from drkernel.tasks.promote import PromoteToDouble, copied, promoted_inputs
from drkernel.tasks.thin import thin_sizing
from drkernel.verdict import Exactness, Finding
from ttir_executor.exact.field import Field
from ttir_executor.exact.memory import Undecided
from ttir_executor.exact.values import Exact, compare

SMALL, LESS = ScaleLimits(bytes=64 << 10, flops=2e7), ScaleLimits(bytes=512 << 10, flops=1e8)
"""sizes of the call that is verified, if only inputs have to be shortened for it; the second where the first would
shorten, besides rows, what kernels are specialised on, or is not like calls that are timed"""
POINTS = 5
"""random points at which unequal answers are compared before they are said to differ"""
CLEAN_POINTS = 2
"""of these, points at which no root of a value without one can have made them unequal"""
COINCIDENCES = 1e-3
"""share of an output's elements that may be equal at one point by chance; a root of the other sign turns about half"""
SECONDS = 2.0
"""of processor time, for everything"""
ABSORBED = unit_roundoff("fp32")
"""constants below, which guard a division, are lost in what fp32 adds them to, unless that is tiny"""
SMALL_PART = 3.0
"""relative tolerances that a part of the answer is small below, beside the usual one: it might be left out"""
SOME = 0.1
"""share of an argument's elements from which such are looked at"""
LARGEST = 1e12
"""most times that an element is made larger"""
HALF_RANGE = torch.finfo(torch.float16).max
"""magnitude up to which it is where fp16 is accurate enough; beyond, fp16 overflows"""
PATIENCE_S = 20.0
"""wall seconds that the candidate has for its calls of one size"""


class ExactCheck:
    """A candidate compared with the reference exactly, and what the answer depends on."""

    def __init__(
        self,
        request: EvalRequest,
        side: ExpectedSide,
        checker: Checker,
        weights: Mapping[str, Place],
        factory: OpensSessions,
        revive: Callable[[ExpectedSide, Checker], bool],
    ):
        """Make the comparison. ``weights``: their addresses in the checker's session, where known; ``revive`` starts
        another session, where a small size, which nobody asks for, has broken the device of that one."""
        self._request, self._side, self._checker, self._factory = request, side, checker, factory
        self._weights, self._timed = weights, _TimedCalls(side, checker, weights)
        self._compared: RecordedCall | None = None
        self._least = 0.0
        start = time.monotonic()
        self.exactness, self.findings = _open("nothing was recorded", start), list[Finding]()
        for at in chain(_smaller(request, side), (side,)):
            try:
                call = self._recorded(at)
                made = _decided(call, at, self._timed, start)
                if made[0].outcome == "differs" and at is not side and not self._is_right(at):
                    made = _open("at a small size the answer is wrong by any comparison", start), []
            except CandidateFailed as error:
                self.exactness = _open(f"at a small size the candidate fails: {error.detail.type}", start)
                if (error.detail.type == "DeviceFault" or checker.session.over) and not revive(side, checker):
                    return
                continue
            except TaskError as error:
                self.exactness = _open(str(error), start)
                continue
            self.exactness, self.findings = made
            self._compared, proved = call, self.exactness.outcome == "proved"
            self._least = ABSORBED if proved and self.exactness.why else 0.0
            if self.exactness.outcome != "open":
                return
        if names := tuple(left_out(side, checker)):
            self.exactness = self.exactness.model_copy(update={"outcome": "differs", "ignored": names, "why": None})
            self.findings = [show.left_out(names)]

    def _recorded(self, at: ExpectedSide) -> RecordedCall:
        """Two more calls of the checker's session; of a fresh one, if that is over, or the second needs what calls
        before these did, or does otherwise than calls that are timed: it comes later than any of them."""
        session = self._checker.session
        assert isinstance(session, SimulatedSession)
        if not session.over:
            session.prefer(self._timed.choices)
            session.record(inputs=True)
            call = self._second_call(session, at, self._weights)
            session.record(inputs=False)
            # at a small size it may be the size that makes it do otherwise, and the next is tried
            if call.is_alone and (at is not self._side or self._timed.apart(call.facts, at) is None):
                return call
        with self._factory.open(self._request.settings) as fresh:
            assert isinstance(fresh, SimulatedSession)
            fresh.record()
            if (weights := placed_weights(fresh, at, self._timed.choices)) is None:
                raise TaskError("weights do not fit")
            return self._second_call(fresh, at, weights)

    def _second_call(self, session: SimulatedSession, at: ExpectedSide, weights: Mapping[str, Place]) -> RecordedCall:
        """A first one may prepare things, as for calls that are timed."""
        session.limit(PATIENCE_S)
        bound, before = _bound(at, self._timed.changed), draw_inputs(at.reference, at.seeds("exact", 3))
        session.call(arguments_of(before), poison="nan")
        result = session.call(arguments_of(bound.inputs), poison="nan")
        tape, record = session.tape(), result.record.device
        facts = None if record is None else seen(record, {**places_of(session, result.arguments), **weights})
        changed = [(session.region(result.arguments[n]), bound.inputs[n].dtype) for n in self._timed.changed]
        kernels = [one.name for one in result.record.launches]
        forms = [TensorForm(m.address, m.shape, m.stride, dtype, m.storage) for m, dtype in changed if m is not None]
        return RecordedCall(bound, tape, result.outputs, forms, kernels, earlier_calls(tape), before, facts)

    def _is_right(self, at: ExpectedSide) -> bool:
        """Whether the candidate's answer is right within tolerance at a size other than those that were checked."""
        with self._factory.open(self._request.settings) as session:
            placed = placed_weights(session, at, self._timed.choices)
            return placed is not None and Checker(at, session).run("fresh")

    def contributes(self) -> bool:
        """Whether the own kernels make the answer, however small their part; False where that is not decided."""
        return self.exactness.outcome == "proved" and self._shown(BoundCall.contributes)

    def in_vain(self) -> bool:
        """Whether PyTorch makes the answer as it is, whatever the own kernels compute before; False where that is not
        decided."""
        return self._shown(BoundCall.in_vain)

    def _shown(self, question: Callable[[BoundCall, Evaluate, int, float, float], bool]) -> bool:
        call = self._compared
        with _condemning_nobody():
            deadline = time.thread_time() + SECONDS
            return call is not None and question(
                call.bound, call.answered, self._side.seeds("field"), deadline, self._least
            )
        return False

    def needed(self, idle: Mapping[int, str], launches: Sequence[LaunchRecord]) -> set[int]:
        """Those of a call's ``idle`` launches on which the answer depends all the same, by their places in it."""
        call, names = self._compared, [one.name for one in launches]
        if self.exactness.outcome != "proved" or call is None or call.kernels != names:
            return set()
        seed, deadline = self._side.seeds("field"), time.thread_time() + SECONDS
        with _condemning_nobody():
            return call.bound.needed(call.answered, idle, len(names), seed, deadline, self._least)
        return set()


@dataclass
class RecordedCall:
    """One call, as both sides made it."""

    bound: BoundCall
    """the reference's"""
    tape: Tape
    outputs: Sequence[Output]
    changed: Sequence[TensorForm]
    """arguments that are results too"""
    kernels: Sequence[str]
    """names of the launches"""
    calls: frozenset[int]
    """it and the calls before it whose results it may read, by number; 0: what ran outside of calls"""
    before: Sequence[Any]
    """inputs of the call before it"""
    facts: Seen | None = None
    """what it did on the device"""

    @property
    def is_alone(self) -> bool:
        """Whether it needs no call but the one before it."""
        return self.tape.whole and self.calls <= {0, max(self.calls) - 1, max(self.calls)}

    def answered(self, machine: ExactMachine) -> list[Any]:
        """What the candidate computes."""
        for value in tree_leaves(list(self.before)):
            if isinstance(value, torch.Tensor):
                machine.sources.give(value)
        replay(machine, self.tape, self.calls)
        return [
            machine.read(TensorForm(out.address, out.shape, out.stride, out.dtype, out.storage))
            if out.address is not None and out.dtype is not None and out.storage is not None
            else out.value
            for out in self.outputs
        ] + [machine.read(form) for form in self.changed]


def _decided(
    call: RecordedCall, side: ExpectedSide, timed: _TimedCalls, start: float
) -> tuple[Exactness, list[Finding]]:
    """The outcome of one call, which counts only if the calls that are timed do the same."""
    apart = timed.apart(call.facts, side)
    record, found = _open(f"calls that are timed do otherwise: {apart}", start), list[Finding]()
    with _condemning_nobody() as why:
        if apart is None:
            record, found = compared(call, side.seeds, start)
    if why:
        record = _open(why[0], start)
    return record, found


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
        calls = timed_calls([call for call in checker.calls[checker.began :] if call.passed])
        self.work = work_at(side.reference.source)
        self.facts = facts_of(calls, checker.session, dict(weights))
        oracle = checker.calls[0].case.oracle
        returned = {other for _, kind, other in oracle.shared if kind == "input"}
        self.changed = sorted(set(oracle.mutated) - returned)
        """places of arguments that are results too"""
        self.choices = [one.choice for facts in self.facts for one in facts.launched.values()]
        """configurations of their kernels"""

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


def _bound(at: ExpectedSide, changed: Sequence[int]) -> BoundCall:
    """The reference's side of a call, on a model of its own: the evaluation may write into it."""
    instance = at.problem.instance(at.build_seed)
    instance.model.load_state_dict(at.instance.model.state_dict())
    instance.model.train(at.instance.model.training)
    return BoundCall(
        lambda given: [*flatten_outputs(instance.model(*given)), *(given[place] for place in changed)],
        draw_inputs(at.reference, at.seeds("exact")),
        draw_inputs(at.reference, at.seeds("exact", 1)),
        _state_of(instance.model),
        _state_of(at.problem.instance(at.seeds("exact", 2)).model),
        at.reference.argument_names(),
    )


def _state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers, those that are not saved too."""
    return {name: value.detach() for name, value in (*model.named_parameters(), *model.named_buffers())}


def _smaller(request: EvalRequest, side: ExpectedSide) -> Iterator[ExpectedSide]:
    """The reference at smaller sizes with the candidate's weights, those with whole rows first; none where it was
    checked at the smallest, or others fit."""
    with suppress(TaskError):
        cost = estimate(side.reference)
        below = [thin_sizing(request.task, most) for most in (SMALL, LESS) if cost.over(most) > 1]
        sizings = {one.source: one for one in below}
        for source, one in sorted(sizings.items(), key=lambda item: not item[1].kept_rows):
            if not one.inputs_only or source == side.reference.source:
                continue
            found, state = ExpectedSide(request, source), side.instance.state_dict()
            if all(state[name].shape == value.shape for name, value in found.instance.state_dict().items()):
                found.instance.model.load_state_dict(state)
                yield found


def compared(
    call: RecordedCall, seeds: Callable[[str, int], int], start: float, least: float = 0
) -> tuple[Exactness, list[Finding]]:
    """Compare at one point, and, where answers are unequal, at more; then without the candidate's own constants below
    :data:`ABSORBED`. ``least``: without those below already."""
    deadline = time.thread_time() + SECONDS
    equal: list[np.ndarray] = []
    unequal: list[np.ndarray] = []
    clean: list[np.ndarray] = []
    changed = False
    reasons: list[str] = []
    for point in range(POINTS):
        field = Field(seeds("field", point))
        sources = call.bound.sources(field)
        machines = [ExactMachine(field, sources, deadline) for _ in range(2)]
        expected = call.bound.values(machines[0])
        field.least = least
        answered = call.answered(machines[1])
        changed = changed or any(machine.guesses for machine in machines)
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
    facts = {"elements": elements, "equal": proved, "differ": differ, "inputs": _words(call.bound)}
    if differ:
        if not least and (again := compared(call, seeds, start, ABSORBED)[0]).outcome == "proved":
            return again.model_copy(update={"why": f"but for constants below {ABSORBED:.0e}"}), []
        theirs, mine = set[str](), set[str]()
        with suppress(Undecided):
            theirs, mine = call.bound.ignored_by((call.bound.values, call.answered), seeds("field", 0), deadline)
        ignored = tuple(name for name in call.bound.tensors if name in mine - theirs)
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


# ---- where a comparison is open: small parts of the answer, made as large as others


def left_out(side: ExpectedSide, checker: Checker) -> list[str]:
    """Names of inputs and weights with elements whose part in the answer is small enough for a tolerance to hide it,
    where the candidate is wrong in a call with these so much larger that their part is as large as others'."""
    first, found = checker.calls[0].case, []
    inputs, names = first.inputs, side.reference.argument_names()
    for name, larger in _larger_parts(side, inputs, names, first.oracle.mutated):
        instance, given = side.instance, list(inputs)
        if name in names[: len(given)]:
            given[names.index(name)] = larger
        else:
            instance = side.problem.instance(side.build_seed)
            instance.model.load_state_dict(side.instance.state_dict() | {name: larger})
        try:
            oracle = instance.oracle(given)
            side.hand_over(checker.session, instance)
            if usable(oracle) and wrong_answer(checker, ReferenceCall(given, oracle, "declared", 1.0)) is not None:
                found.append(name)
        except TaskError:
            continue
        except CandidateFailed as error:
            return [*found, *([name] if error.kind not in BEFORE_AN_ANSWER else [])]
    side.hand_over(checker.session)
    return found


def _larger_parts(
    side: ExpectedSide, inputs: Sequence[Any], names: Sequence[str], changed: Collection[int]
) -> list[tuple[str, torch.Tensor]]:
    """Inputs and weights in which some elements have a small part in the answer, with these so much larger."""
    values = {name: value for name, value in side.instance.state_dict().items() if name in side.pairs.values()}
    values |= dict(zip(names, inputs, strict=False))
    parts: dict[str, torch.Tensor] = {}
    with _condemning_nobody():
        slopes = _slopes(side.instance.model, inputs, names, changed)
        parts = {name: (slope * values[name]).abs() for name, slope in slopes.items() if name in values}
    usual = max((float(part[part > 0].median()) for part in parts.values() if bool((part > 0).any())), default=0.0)
    found = []
    for name, part in parts.items():
        small = (part > usual / LARGEST) & (part < SMALL_PART * side.rule.rtol * usual)
        if float(small.double().mean()) > SOME:
            factor = torch.where(small, usual / part, 1.0)
            larger = values[name] * factor
            larger = larger.clamp(-HALF_RANGE, HALF_RANGE) if side.rule.precision in ("tf32", "fp16") else larger
            found.append((name, torch.empty_like(values[name]).copy_(larger)))
    return random.Random(side.seeds("larger")).sample(found, min(len(found), MOST_ARGUMENTS))


def _slopes(
    model: torch.nn.Module, inputs: Sequence[Any], names: Sequence[str], changed: Collection[int]
) -> dict[str, torch.Tensor]:
    """What a sum of randomly weighted outputs and ``changed`` arguments changes by for each element of floating inputs
    and weights. In double, so that hardly anything remains of a sum that cancels."""
    model, inputs = copied(model).double(), promoted_inputs(list(inputs))
    state = {**dict(model.named_buffers()), **dict(model.named_parameters())}
    for value in (*inputs, *state.values()):
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            value.requires_grad_()
    varied = {name: value for name, value in (*zip(names, inputs, strict=False), *state.items())}
    varied = {name: value for name, value in varied.items() if getattr(value, "requires_grad", False)}
    with torch.enable_grad(), torch.autograd.graph.allow_mutation_on_saved_tensors(), PromoteToDouble():
        given = tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, inputs)
        outputs = flatten_outputs(model(*given))
        results = [one for one in (*outputs, *map(given.__getitem__, changed)) if isinstance(one, torch.Tensor)]
        chances = torch.Generator().manual_seed(0)
        total = sum((one * torch.rand(one.shape, generator=chances)).sum() for one in results if one.requires_grad)
        if not isinstance(total, torch.Tensor):
            return {}
        slopes = torch.autograd.grad(total, list(varied.values()), allow_unused=True)
    found = zip(varied, slopes, strict=True)
    return {name: slope for name, slope in found if slope is not None}


def _words(bound: BoundCall) -> str:
    """The tensors of the call in words."""
    shapes = [
        f"[{', '.join(map(str, value.shape))}]"
        for value in tree_leaves(bound.inputs)
        if isinstance(value, torch.Tensor)
    ]
    return ", ".join(shapes)[:200]
