"""Calls that a task's own draws never make but callers may: other sizes, NaN and infinity, the other mode.

They come after everything else was right. Failures are reported, and refuse the candidate if the task requires these
calls. Each is made only where the reference itself defines the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from drkernel.task import Precision
from drkernel.tasks.axes import rewrite, size_literals
from drkernel.tasks.correctness import compare
from drkernel.tasks.cost import cost_of, on_meta
from drkernel.tasks.inputs import role_of
from drkernel.tasks.oracle import ExpectedOutput, Oracle, OracleMaker, expected_output, flatten_outputs, tolerance_for
from drkernel.tasks.problem import Instance, ReferenceCall, same_values, usable
from drkernel.tasks.promote import cloned, copied, promoted_copy, promoted_inputs, run_double
from drkernel.tasks.reference import Reference, load_reference, remembered

MOST_LITERALS = 12
"""Size literals of a source that are tried."""
MOST_SIZES = 3
"""most sizes that shapes allow that are drawn, until the reference has a usable answer to one"""
SPECIAL_SHARE = 200
"""One in this many elements of an input (at least one) becomes NaN or infinite."""
DEFINED_SHARE = 0.1
"""Share of the output that has to stay finite for a call with NaN or infinity to say anything."""


# ---- other sizes


@dataclass(frozen=True)
class OtherSize:
    """An input size that can be changed without any other change."""

    label: str
    original: int
    used: int
    source: str
    """The reference's text with ``used`` in its place; only its ``get_inputs`` counts."""


@remembered
def other_sizes(reference: Reference, precision: Precision) -> tuple[OtherSize, ...]:
    """Return size literals that change inputs and nothing else, each with another size that the reference accepts, odd
    if possible."""
    found = []
    literals = {literal.label: literal for literal in size_literals(reference.source)}
    model, inputs = on_meta(reference)
    shapes = _shapes(inputs)
    for label, literal in list(literals.items())[:MOST_LITERALS]:
        size = literal.value
        for other in dict.fromkeys((size + 1 + size % 2, size - 1 + size % 2 * 2, size // 2, 2 * size)):
            if other < 1 or other == size:
                continue
            source = rewrite(reference.source, [literal], {label: other})
            if _takes(source, reference, model, shapes, precision):
                found.append(OtherSize(label, size, other, source))
                break
    return tuple(found)


def _takes(source: str, reference: Reference, model: nn.Module, shapes: list[Any], precision: Precision) -> bool:
    """Return whether the unchanged module runs on the inputs of the changed source, which differ in shape.

    ``model``: the module on meta tensors, where a try costs nothing; what does not run on those is run for real.
    """
    try:
        changed = load_reference(source)
        with torch.device("meta"):
            inputs = changed.draw_inputs(1)
        if _shapes(inputs) == shapes or len(inputs) != len(shapes):
            return False
        cost, _ = cost_of(model, inputs)
        return cost.exact or usable(OracleMaker(reference.build(0), precision)(changed.draw_inputs(1)))
    except Exception:  # the source or the module may refuse another size with any exception
        return False


def _shapes(inputs: Sequence[Any]) -> list[Any]:
    return [tuple(value.shape) if isinstance(value, torch.Tensor) else value for value in inputs]


def call_at_other_size(instance: Instance, seed: int) -> tuple[ReferenceCall, OtherSize] | None:
    """Return a call at one of the other sizes; None if there are none."""
    problem = instance.problem
    sizes = other_sizes(problem.reference, problem.task.precision)
    for turn in range(min(len(sizes), MOST_SIZES)):
        chosen = sizes[(seed + turn) % len(sizes)]
        try:
            inputs = load_reference(chosen.source).draw_inputs(seed)
            oracle = instance.oracle(inputs)
        except Exception:  # the module may refuse it, with any exception, where shapes alone did not show that
            continue
        if usable(oracle):
            return ReferenceCall(inputs, oracle, "declared", 1.0), chosen
    return None


# ---- NaN and infinity


def call_with_special_values(instance: Instance, seed: int) -> ReferenceCall | None:
    """Return a declared call with NaN and infinities in one input; None if the reference does not define the result."""
    reference = instance.problem.reference
    inputs = reference.draw_inputs(seed)
    names = reference.argument_names()
    places = [
        place
        for place, value in enumerate(inputs)
        if isinstance(value, torch.Tensor)
        and (place >= len(names) or names[place] not in reference.fixed_inputs)
        and role_of(value) in ("free", "positive", "unit")
    ]
    if not places:
        return None
    generator = torch.Generator().manual_seed(seed)
    place = places[int(torch.randint(len(places), (1,), generator=generator))]
    value = inputs[place].clone()
    count = max(1, value.numel() // SPECIAL_SHARE)
    kinds = [float("nan"), float("inf"), -float("inf")][: 3 if role_of(value) == "free" else 2]
    at = torch.randperm(value.numel(), generator=generator)[:count]
    which = torch.randint(len(kinds), (count,), generator=generator)
    flat = value.reshape(-1)
    flat[at] = torch.tensor(kinds, dtype=value.dtype)[which]
    inputs[place] = torch.empty_like(inputs[place]).copy_(flat.reshape(value.shape))
    try:
        oracle = instance.oracle(inputs)
    except Exception:  # a reference may refuse them
        return None
    return ReferenceCall(inputs, oracle, "declared", 1.0) if _defines(oracle) else None


def _defines(oracle: Oracle) -> bool:
    """Return whether every honest run has NaN and infinities in the same places, and enough of the output is finite."""
    if oracle.kind != "fp64":
        return False
    for out in oracle.outputs:
        if not out.floating or out.value.is_complex():
            if out.value.is_complex() or not torch.equal(out.value, out.jittered):
                return False
            continue
        exact, *others = (run.to(out.declared.dtype).double() for run in (out.value, out.declared, out.jittered))
        special = ~exact.isfinite()
        if not all(torch.equal(special, ~run.isfinite()) for run in others):
            return False
        if not all(torch.equal(exact[special].nan_to_num(0.0), run[special].nan_to_num(0.0)) for run in others):
            return False
        if out.value.numel() and float(out.value.isfinite().double().mean()) < DEFINED_SHARE:
            return False
    return True


# ---- the other mode, and what the call leaves in buffers


def call_in_other_mode(instance: Instance, inputs: list[Any]) -> ReferenceCall | None:
    """Return a call in eval mode (train mode if the module is built in eval mode); None if it makes no difference."""
    model = copied(instance.model, same_parameters=True)
    model.train(not model.training)
    try:
        maker = OracleMaker(model, instance.problem.task.precision, instance.seed)
        oracle, again = maker(inputs), maker.run(inputs)
    except Exception:  # a mode that nobody uses may not work
        return None
    pairs = zip(oracle.outputs, again, strict=True)
    same = all(torch.equal(out.declared, value) for out, value in pairs if isinstance(value, torch.Tensor))
    return ReferenceCall(inputs, oracle, "declared", 1.0) if same and usable(oracle) else None


@remembered
def has_modes(reference: Reference, precision: Precision) -> bool:
    """Return whether the module's answer differs in the other mode."""
    model, inputs = reference.build(0), reference.draw_inputs(0)
    twin, flipped = (copied(model, same_parameters=True) for _ in range(2))
    flipped.train(not model.training)
    try:
        with torch.no_grad():
            own, other = (flatten_outputs(one(*cloned(inputs))) for one in (twin, flipped))
        if same_values(own, other):
            return False
        oracle = OracleMaker(model, precision)(inputs)
    except Exception:  # as above
        return False
    return not compare(other, oracle, tolerance_for(precision)).passed_calls


def changed_by_a_call(instance: Instance, inputs: list[Any]) -> dict[str, torch.Tensor]:
    """Return the buffers that one call changes, with their contents after it."""
    model = copied(instance.model, same_parameters=True)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    if before:
        with torch.no_grad():
            model(*cloned(inputs))
    return {name: buffer for name, buffer in model.named_buffers() if not torch.equal(buffer, before[name])}


def buffers_after(instance: Instance, inputs: list[Any]) -> dict[str, ExpectedOutput]:
    """Return the floating buffers of the state dict that one call changes (running statistics), as they should be."""
    found, kept = changed_by_a_call(instance, inputs), instance.state_dict()
    after = {name: buffer for name, buffer in found.items() if name in kept and buffer.is_floating_point()}
    if not after:
        return {}
    double = promoted_copy(instance.model)
    try:
        run_double(double, promoted_inputs(inputs))
        exact = dict(double.named_buffers())
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        exact = after
    precision = instance.problem.task.precision
    return {name: expected_output(now, exact[name], exact[name], precision) for name, now in after.items()}
