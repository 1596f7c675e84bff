"""The admission gate: a task must be able to fail a wrong answer.

Controls are answers that are wrong by construction: zeros, a constant, another seed's outputs, an input passed through,
the first row repeated, the reference in the next lower precision, the reference without its parameters. Each replaces
one output at a time, with the other outputs right, and is judged on several calls exactly as a candidate is. If a
control passes all of them, the task is *ill-conditioned*, and the report names the control with its numbers. A task is
also ill-conditioned when its reference fails against itself, or fails when computed honestly in another order
(reorder.py), or when its answer is a constant. Parameters and inputs on which the answer does not depend, which exact
arithmetic shows, or hardly, are noted by name: leaving the first out is a correct simplification.
"""

import math
import time
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest import mock

import torch
from pydantic import Field
from torch import nn
from torch.utils._pytree import tree_map

from drkernel.config import Config
from drkernel.sim.exact.dependence import BoundCall
from drkernel.sim.gpu.heap import default_budget, size_in_words
from drkernel.task import Task, TaskError
from drkernel.tasks.correctness import compare, same_answer
from drkernel.tasks.cost import ScaleLimits, judged_bytes
from drkernel.tasks.inputs import Variant
from drkernel.tasks.oracle import MANTISSA_BITS, ExpectedOutput, RawOutput, flatten_outputs, is_finite
from drkernel.tasks.problem import Instance, ReferenceCall, load_problem, random_by, same_values
from drkernel.tasks.promote import cloned, copied, run_rounded
from drkernel.tasks.reference import Reference
from drkernel.tasks.reorder import Reordered
from drkernel.tasks.thin import thin_sizing

CALLS: tuple[Variant, ...] = ("declared", "affine", "heavy")
"""Variants of the calls that a control must all pass to mark a task: as many as the judge makes by default."""

GATED = ScaleLimits(bytes=2 << 20, flops=4e7)
"""limits of a call for a task without size profile: the controls call the reference about a hundred times"""

MOST_PARAMETERS = 64
"""Up to so many parameters are tried one by one for influence: each costs a forward."""

SECONDS = 2.0
"""of processor time, for what an answer does not depend on in one call"""

_LOWER_DTYPE = {"fp64": torch.float32, "fp32": torch.float16, "tf32": torch.bfloat16, "fp16": torch.bfloat16}


class ControlResult(Config):
    """The result of one control."""

    control: str = Field(
        description="'zeros', 'constant', 'stale', 'pass_through', 'first_row', 'lower_precision', ..."
    )
    output: int = Field(ge=0, description="the output that the control replaced")
    passed: bool = Field(description="the wrong answer was accepted on every call: the task is ill-conditioned")
    error: float = Field(description="worst |difference| over tolerance on any call; > 1 fails, infinite for integers")
    detail: str = Field("", description="what the control was, where it has variants")


class GateReport(Config):
    """The gate's findings about one task at one size profile."""

    task_id: str
    profile: str | None
    changed: dict[str, tuple[int, int]] = Field(
        default_factory=dict, description="sizes that differ from the task's own: label -> (own, used)"
    )
    admitted: bool = Field(description="every wrong answer failed, the reference itself passed")
    ill_conditioned_by: tuple[str, ...] = Field((), description="controls that passed, or other reasons in words")
    controls: tuple[ControlResult, ...] = ()
    notes: tuple[str, ...] = Field((), description="inert parameters or inputs, an oracle that is not double, ...")
    error: str | None = Field(None, description="why the task could not be run at all")
    seconds: float = Field(0.0, ge=0, description="wall seconds that the gate took")


def admit(task: Task, profile: str | None, seed: int = 0, budget: int | None = None) -> GateReport:
    """Run every control against a task. Faults of the task never raise; they are in the report.

    A task whose weights, inputs and outputs, as declared and in fp64, would take more than ``budget`` bytes (default: a
    quarter of the machine's memory) is refused before any of them is allocated.
    """
    start = time.perf_counter()
    try:
        problem = load_problem(task, profile)
        _require_room(problem.reference, default_budget() if budget is None else budget)
        instance = problem.instance(seed)
        calls = [instance.draw_call(seed + 1 + index, variant) for index, variant in enumerate(CALLS)]
        reasons = _input_faults(problem.reference, seed + 1) + _reference_faults(instance, calls)
        controls = tuple(_run_controls(instance, calls, seed))
        reasons += _constant_answer(instance, calls, seed)
        notes = tuple(_notes(instance, calls, seed))
    except TaskError as error:
        return _unusable(task, profile, str(error), start)
    except (Exception, SystemExit) as error:  # a reference may raise anything; the report carries it
        return _unusable(task, profile, f"the reference raised {type(error).__name__}: {error}", start)
    reasons += [name for name in dict.fromkeys(result.control for result in controls if result.passed)]
    return GateReport(
        task_id=task.id,
        profile=profile,
        admitted=not reasons,
        ill_conditioned_by=tuple(reasons),
        controls=controls,
        notes=notes,
        seconds=time.perf_counter() - start,
    )


def admit_thin(task: Task, limits: ScaleLimits = GATED, seed: int = 0, budget: int | None = None) -> GateReport:
    """:func:`admit` at thin sizes of the task (``tasks/thin.py``), which the report names in ``changed``.

    A task that cannot be made as small as ``limits`` is gated at the least sizes that were found.
    """
    start = time.perf_counter()
    try:
        sizing = thin_sizing(task, limits)
    except TaskError as error:
        return _unusable(task, None, str(error), start)
    sized = task.model_copy(update={"reference": sizing.source, "profiles": {}})
    return admit(sized, None, seed, budget).model_copy(update={"changed": sizing.changed})


def _input_faults(reference: Reference, seed: int) -> list[str]:
    """Objections to inputs that the seed alone does not determine: a verdict's inputs could not be drawn again."""
    first = reference.draw_inputs(seed)
    later = time.time() + 1e6
    with mock.patch("time.time", lambda: later), mock.patch("time.time_ns", lambda: int(later * 1e9)):
        again = reference.draw_inputs(seed)
    if same_values(first, again):
        return []
    return ["the inputs are not the seed's: drawn twice with one seed they differ (by the clock, or unset memory)"]


def _require_room(reference: Reference, budget: int) -> None:
    """Raise TaskError where running the reference is known to take more than ``budget`` bytes."""
    needed = judged_bytes(reference)
    if needed > budget:
        raise TaskError(
            f"running the reference takes at least {size_in_words(needed)} of memory (weights, inputs and outputs, as "
            f"declared and in fp64), and the budget is {size_in_words(budget)}. Take a smaller size profile, "
            "or raise the budget (--memory-gib)"
        )


def _unusable(task: Task, profile: str | None, error: str, start: float) -> GateReport:
    seconds = time.perf_counter() - start
    return GateReport(task_id=task.id, profile=profile, admitted=False, error=error, seconds=seconds)


def _reference_faults(instance: Instance, calls: list[ReferenceCall]) -> list[str]:
    """Describe the faults of the reference itself."""
    if not calls[0].oracle.outputs:
        return ["the reference returns no output"]
    if (cause := random_by(instance, calls[0].inputs)) is not None:
        return [f"the reference is random: on the same inputs and weights its answer changes with {cause}"]
    faults = []
    for call in calls:
        if not call.oracle.finite:
            faults.append(f"the reference's outputs are not finite on {call.variant} inputs")
        if call.oracle.unstable_fraction > 0.01:
            faults.append(f"rounding flips {call.oracle.unstable_fraction:.1%} of an output on {call.variant} inputs")
        result = compare(instance.run(call.inputs), call.oracle, instance.rule)
        if result.passed_calls == 0:
            faults.append(f"the reference fails itself on {call.variant} inputs: {result.message}")
            continue
        with Reordered():
            result = compare(instance.run(call.inputs), call.oracle, instance.rule)
        if result.passed_calls == 0:
            faults.append(f"an honest reordering fails on {call.variant} inputs: {result.message}")
    return list(dict.fromkeys(faults))


def _constant_answer(instance: Instance, calls: list[ReferenceCall], seed: int) -> list[str]:
    """Object to an answer that is the same whatever the inputs and weights are."""
    other = instance.problem.instance(seed + 7).oracle(calls[0].inputs)
    if not same_answer([*(call.oracle for call in calls), other], instance.rule):
        return []
    return [f"the answer is a constant, for the {len(calls) + 1} draws that were taken: it earns no speedup"]


def _run_controls(instance: Instance, calls: list[ReferenceCall], seed: int) -> Iterator[ControlResult]:
    """Run every control on every output it applies to."""
    stale = instance.run(instance.problem.reference.draw_inputs(seed + 1000))
    lower = [reference_in_lower_precision(instance, call) for call in calls]
    for index, first in enumerate(calls[0].oracle.outputs):
        expected = [call.oracle.outputs[index] for call in calls]
        answers: dict[str, list[RawOutput]] = {
            "zeros": [torch.zeros_like(want.value) for want in expected],
            "constant": [_constant(want) for want in expected],
            "stale": [stale[index] if _alike(stale, want, index) else None for want in expected],
            "first_row": [_first_row(want) for want in expected],
        }
        if first.floating:
            answers["lower_precision"] = [outputs[index] for outputs in lower]
        for name, answer in answers.items():
            if all(value is not None for value in answer):
                yield _judge(instance, calls, name, [{index: value} for value in answer])
        for place in _same_shape_inputs(calls[0], index):
            yield _judge(instance, calls, "pass_through", [{index: c.inputs[place]} for c in calls], f"input {place}")
    for name, model in _parameter_controls(instance).items():
        # all outputs at once: a single output may not depend on any parameter
        yield _judge(instance, calls, name, [dict(enumerate(_run(model, call.inputs))) for call in calls])


def _judge(
    instance: Instance, calls: list[ReferenceCall], name: str, wrong: list[dict[int, RawOutput]], detail: str = ""
) -> ControlResult:
    """Judge wrong outputs (by index, one set per call) among right ones, until one call fails."""
    worst, passed = 0.0, True
    for call, replaced in zip(calls, wrong, strict=True):
        expected = call.oracle.outputs
        outputs = [_in_form_of(replaced.get(index, want.value), want) for index, want in enumerate(expected)]
        result = compare(outputs, call.oracle, instance.rule)
        worst = max(worst, math.inf if result.max_error is None else result.max_error)
        if result.passed_calls == 0:
            passed = False
            break
    return ControlResult(control=name, output=min(wrong[0]), passed=passed, error=worst, detail=detail)


def _in_form_of(value: RawOutput, expected: ExpectedOutput) -> RawOutput:
    """Cast a value to the dtype and Python type of an output, so that only its content can be wrong."""
    if expected.python_type == "NoneType":
        return None
    if expected.python_type != "Tensor":
        number = value.item() if isinstance(value, torch.Tensor) else value
        return {"float": float, "int": int, "bool": bool}[expected.python_type](number)  # type: ignore[arg-type]
    return torch.as_tensor(value).to(expected.declared.dtype)


def _constant(expected: ExpectedOutput) -> RawOutput:
    """Return the oracle's mean everywhere (the most frequent value for integers); no control for a single number."""
    if expected.value.numel() < 2:
        return None
    if not expected.floating:
        return torch.full_like(expected.value, expected.value.flatten().mode().values.item())
    finite = expected.value[torch.isfinite(expected.value)]
    return torch.full_like(expected.value, finite.mean().item()) if finite.numel() else None


def _first_row(expected: ExpectedOutput) -> RawOutput:
    """Return the first slice along the first dimension longer than one, repeated; None for a single number."""
    for dim, length in enumerate(expected.value.shape):
        if length > 1:
            return expected.value.narrow(dim, 0, 1).expand_as(expected.value)
    return None


def _alike(stale: list[RawOutput], want: ExpectedOutput, index: int) -> bool:
    """Return whether another seed's outputs fit in shape; outputs of data-dependent shape cannot be exchanged."""
    if len(stale) <= index or stale[index] is None:
        return False
    return torch.as_tensor(stale[index]).shape == want.value.shape


def _same_shape_inputs(call: ReferenceCall, index: int) -> list[int]:
    shape = call.oracle.outputs[index].value.shape
    return [
        place
        for place, value in enumerate(call.inputs)
        if isinstance(value, torch.Tensor) and value.shape == shape and value.numel() > 0
    ]


def reference_in_lower_precision(instance: Instance, call: ReferenceCall) -> list[RawOutput]:
    """Compute the reference in the next lower precision.

    This is real arithmetic in the lower dtype. Where that does not run or overflows, and below bf16 (CPUs have no fp8
    arithmetic), it is the double run with operands rounded to the lower precision's mantissa.
    """
    precision = instance.problem.task.precision
    dtype = _LOWER_DTYPE.get(precision)
    if dtype is not None:
        model = copied(instance.model).to(dtype)
        inputs = tree_map(lambda leaf: _cast(leaf, dtype), call.inputs)
        try:
            outputs = _run(model, inputs)
        except (RuntimeError, NotImplementedError):
            outputs = []
        finite = all(is_finite(one) for one in outputs if isinstance(one, torch.Tensor))
        if finite and len(outputs) == len(call.oracle.outputs):
            return outputs
    bits = MANTISSA_BITS["fp8" if precision == "bf16" else "bf16" if precision in ("tf32", "fp16") else "tf32"]
    return flatten_outputs(run_rounded(instance.model, call.inputs, bits))


def _cast(leaf: Any, dtype: torch.dtype) -> Any:
    return leaf.to(dtype) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf


def _parameter_controls(instance: Instance) -> dict[str, nn.Module]:
    """Return the reference without its parameters: as the constructor made them, and all zero."""
    controls: dict[str, nn.Module] = {}
    if instance.randomized:
        controls["default_parameters"] = instance.problem.instance(instance.seed, randomize=False).model
    if any(True for _ in instance.model.parameters()):
        empty = copied(instance.model)
        for parameter in empty.parameters():
            nn.init.zeros_(parameter)
        controls["zero_parameters"] = empty
    return controls


def _notes(instance: Instance, calls: list[ReferenceCall], seed: int) -> Iterator[str]:
    """Yield notes about the task that do not make it ill-conditioned."""
    call = calls[0]
    if call.oracle.fallback:
        yield call.oracle.fallback
    constants = instance.problem.constants
    for name in constants.changed.values():
        yield f"constant_input: {name} is the same in every draw; checked calls change it"
    for name in constants.kept.values():
        yield f"constant_input: {name} is the same in every draw, and nothing else is known to be valid"
    for weakened in calls:
        if weakened.strength < 1:
            yield f"{weakened.variant} inputs used at strength {weakened.strength:g}: the reference is fragile beyond"
        elif weakened.without:
            lacking = " or ".join(weakened.without)
            yield f"{weakened.variant} inputs used without {lacking}: the reference is fragile there"
    yield from _insensitive(instance, calls, seed)


def _insensitive(instance: Instance, calls: list[ReferenceCall], seed: int) -> Iterator[str]:
    """Name what the answer does not depend on, exactly or within tolerance, in any of the calls."""
    other = instance.problem.instance(seed + 7)
    parameters = {name: value for name, value in instance.model.named_parameters() if value.numel()}
    if len(parameters) > MOST_PARAMETERS:
        yield f"its {len(parameters)} parameters were not tried one by one"
        parameters = {}
    quiet: dict[str, str] = {}
    for name in parameters:
        changed = copied(instance.model)
        with torch.no_grad():
            changed.get_parameter(name).copy_(other.model.get_parameter(name))
        if all(_no_influence(instance, changed, call, call.inputs) for call in calls):
            quiet[name] = f"parameter {name}"
    reference = instance.problem.reference
    names = dict(enumerate(reference.argument_names()))
    fresh = [reference.draw_inputs(seed + 2000 + number) for number in range(len(calls))]
    for place, value in enumerate(calls[0].inputs):
        if not isinstance(value, torch.Tensor) or value.numel() == 0 or torch.equal(value, fresh[0][place]):
            continue
        swapped = [[*c.inputs[:place], one[place], *c.inputs[place + 1 :]] for c, one in zip(calls, fresh, strict=True)]
        pairs = zip(calls, swapped, strict=True)
        if all(_no_influence(instance, instance.model, call, inputs) for call, inputs in pairs):
            quiet[names.get(place, str(place))] = f"input {names.get(place, place)}"
    ignored, draws = set(quiet), f"the {len(calls)} draws that were taken"
    for number, (call, others) in enumerate(zip(calls, fresh, strict=True)):
        state, drawn = (dict(one.model.named_parameters()) for one in (instance, other))
        bound = BoundCall(partial(_run, instance.model), call.inputs, others, state, drawn, [*names.values()])
        try:
            ignored &= bound.ignored_by([bound.values], seed + number, time.thread_time() + SECONDS, ignored)[0]
        except Exception:  # what cannot be evaluated is not known to be ignored
            ignored.clear()
    for name, what in quiet.items():
        if name in ignored:
            yield f"the answer does not depend on {what}, exactly, for {draws}"
        else:
            yield f"{what} moves the answer by less than the tolerance, for {draws}"


def _no_influence(instance: Instance, model: nn.Module, call: ReferenceCall, inputs: list[Any]) -> bool:
    return compare(_run(model, inputs), call.oracle, instance.rule).passed_calls == 1


def _run(model: nn.Module, inputs: list[Any]) -> list[RawOutput]:
    """Run a copy of the module on copies of the inputs, so that no state is kept or changed."""
    with torch.no_grad():
        return flatten_outputs(copied(model)(*cloned(inputs)))
