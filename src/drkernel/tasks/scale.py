"""Shrinks foreign tasks that are too big for the machine.

Sizes in KernelBench's format are integer literals at module level or where inputs are drawn. They are halved,
batch-like ones first, then the other large ones, until the reference's memory and arithmetic, estimated on meta tensors
(nothing is allocated), fit the limits. If the reference no longer runs after a halving, the halving is tried on every
literal of that value, then on all sizes at once, and otherwise undone. The changes are recorded in the task's
``provenance.scaled``, and the shrunk task goes through the admission gate again.
"""

from __future__ import annotations

import contextlib
import math
import re
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import Field
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from drkernel.config import Config
from drkernel.sim.gpu.datafree.recurrent import RECURRENT, recurrent_results
from drkernel.task import Task
from drkernel.tasks.errors import TaskError
from drkernel.tasks.gate import GateReport, admit
from drkernel.tasks.literals import SizeLiteral, rewrite, size_literals
from drkernel.tasks.reference import Reference, load_reference


class ScaleLimits(Config):
    """Limits for one forward of the reference."""

    bytes: int = Field(gt=0, description="inputs, parameters and the outputs of all operators together")
    flops: float = Field(gt=0, description="multiplications and additions of products and convolutions")


LIMITS: dict[str, ScaleLimits] = {
    "tiny": ScaleLimits(bytes=512 << 10, flops=1e7),
    "small": ScaleLimits(bytes=64 << 20, flops=2e9),
    "full": ScaleLimits(bytes=16 << 30, flops=1e13),
}
"""Presets by the name of the built-in suite's profiles that they resemble."""


@dataclass(frozen=True)
class Cost:
    """One forward's estimated cost."""

    bytes: int
    flops: float
    exact: bool
    """False when the forward does not run on meta tensors (data-dependent shapes); only inputs and parameters count
    then."""
    operators: int = 0
    """that write something"""
    weight_bytes: int = 0
    """parameters and buffers, counted in ``bytes``"""

    def over(self, limits: ScaleLimits) -> float:
        """Return the larger of the two ratios of cost to limit; at most 1 means that the task fits."""
        return max(self.bytes / limits.bytes, self.flops / limits.flops)


class ScaleResult(Config):
    """A task that was made to fit, or the reason why it could not be."""

    task: Task = Field(description="the shrunk task; the original when nothing had to be changed")
    fits: bool = Field(description="within the limits")
    report: GateReport | None = Field(None, description="the gate's report on the shrunk task; None if it does not fit")
    reason: str | None = Field(None, description="why it does not fit")

    @property
    def usable(self) -> bool:
        """Whether the task fits and was admitted."""
        return self.fits and self.report is not None and self.report.admitted


# never halved: these are choices of the algorithm, not sizes of data
KEPT = re.compile(
    r"kernel|stride|pad|dilation|group|pool|scale|factor|axis|heads?$|layers?$|depths$|step|block|window|"
    r"seed|version|expan|reduction|ratio|top_?k|chunk|patch|rank|order|num_dim"
)
BATCH = re.compile(r"batch|^bs$|^b$|^n_?samples$|^bsz$")


def scale_task(task: Task, limits: ScaleLimits, seed: int = 0) -> ScaleResult:
    """Shrink a task until it fits, then gate it. A task that fits already is only gated."""
    try:
        source, changed, cost = _shrink(task.reference, limits)
    except TaskError as error:
        return ScaleResult(task=task, fits=False, reason=str(error))
    if changed:
        provenance = task.provenance.model_copy(update={"scaled": {**task.provenance.scaled, **changed}})
        task = task.model_copy(update={"reference": source, "profiles": {}, "provenance": provenance})
    if cost.over(limits) > 1:
        reason = f"still {cost.over(limits):.3g} times over the limits ({cost.bytes:,} bytes, {cost.flops:.3g} flops)"
        return ScaleResult(task=task, fits=False, reason=reason)
    return ScaleResult(task=task, fits=True, report=admit(task, None, seed))


def _shrink(source: str, limits: ScaleLimits) -> tuple[str, dict[str, tuple[int, int]], Cost]:
    """Return the shrunk source, its changes (label -> original, used), and its cost. Raises TaskError if it does not
    run."""
    literals = {literal.label: literal for literal in size_literals(source)}
    values = {label: literal.value for label, literal in literals.items()}
    cost = estimate(load_reference(source))
    for number, (labels, floor) in enumerate(_stages(values)):
        if number == 1 and cost.over(limits) > 1:
            values = _fewer_groups(source, literals, values)
        frozen: set[str] = set()
        while cost.over(limits) > 1:
            open_labels = [label for label in labels if label not in frozen and values[label] > floor]
            if not open_labels:
                break
            label = max(open_labels, key=lambda name: values[name])
            # cost is at most linear in a batch and about quadratic in other sizes: halve as often at once as is safe
            times = max(1, int(math.log2(cost.over(limits)) / (1 if number == 0 else 2)))
            attempt = None
            for by in sorted({times, 1}, reverse=True):
                attempt = attempt or _smaller(source, literals, values, label, open_labels, by, floor)
            if attempt is None or attempt[1].over(limits) >= cost.over(limits):
                frozen.add(label)
            else:
                values, cost = attempt
    changed = {
        label: (literal.value, values[label]) for label, literal in literals.items() if literal.value != values[label]
    }
    return rewrite(source, literals.values(), values), changed, cost


def _fewer_groups(source: str, literals: dict[str, SizeLiteral], values: dict[str, int]) -> dict[str, int]:
    """Reduce groups of channels to 8 at most, so that fewer channels still leave several to a group."""
    groups = {label: 8 for label in values if "group" in label.lower() and values[label] > 8 and values[label] % 8 == 0}
    attempt = {**values, **groups}
    try:
        estimate(load_reference(rewrite(source, literals.values(), attempt)))
    except TaskError:
        return values
    return attempt


def _smaller(
    source: str,
    literals: dict[str, SizeLiteral],
    values: dict[str, int],
    label: str,
    others: list[str],
    halvings: int,
    floor: int,
) -> tuple[dict[str, int], Cost] | None:
    """Halve one literal ``halvings`` times; if that does not run, all literals of its value; else all ``others``; None
    if none runs."""
    equal = [name for name in values if values[name] == values[label]]
    for names in ([label], equal, others):
        attempt = {**values, **{name: max(floor, values[name] >> halvings) for name in names}}
        try:
            return attempt, estimate(load_reference(rewrite(source, literals.values(), attempt)))
        except TaskError:
            continue
    return None


def _stages(values: dict[str, int]) -> list[tuple[list[str], int]]:
    """Return which literals to halve in turn, and how far: batches to 2, large sizes to 16, then all but the
    algorithm's to 4."""
    name = {label: label.partition("[")[0].lower() for label in values}
    batch = [label for label in values if BATCH.search(name[label])]
    sizes = [label for label in values if label not in batch and not KEPT.search(name[label])]
    return [(batch, 2), (sizes, 16), (sizes, 4)]


def estimate(reference: Reference) -> Cost:
    """Estimate the cost of one forward by running it on meta tensors. Raises TaskError when the reference does not
    run."""
    return cost_of(*on_meta(reference))[0]


def cost_of(model: nn.Module, inputs: list[Any]) -> tuple[Cost, Any]:
    """Cost of ``model(*inputs)`` on meta tensors, and what it returns; None where it does not run on them.

    Raises TaskError when the model refuses inputs of these shapes.
    """
    held = sum(map(_size, [*model.parameters(), *model.buffers(), *tree_leaves(inputs)]))
    written = _Written()
    inputs = [value.to("meta") if isinstance(value, torch.Tensor) else value for value in inputs]
    try:
        with torch.no_grad(), torch.device("meta"), _Layers(written), written:
            result = model(*inputs)
    except (NotImplementedError, torch._subclasses.fake_tensor.DataDependentOutputException):
        return Cost(held, 0.0, False), None
    except Exception as error:  # a reference may raise anything: at this size it does not run
        if "meta" in str(error):
            return Cost(held, 0.0, False), None
        raise TaskError(f"the reference does not run at this size: {type(error).__name__}: {error}") from error
    weights = sum(map(_size, [*model.parameters(), *model.buffers()]))
    return Cost(held + written.bytes, written.flops, True, written.operators, weights), result


def judged_bytes(reference: Reference) -> int:
    """Return the minimum bytes that judging holds: weights, inputs and the widest operator's output, each also in fp64.

    Computed from meta tensors; for a forward that does not run on them, weights and inputs alone. Raises TaskError when
    the reference cannot be built.
    """
    model, inputs = on_meta(reference)
    held = sum(map(_judged_size, [*model.parameters(), *model.buffers(), *tree_leaves(inputs)]))
    written = _Written()
    inputs = [value.to("meta") if isinstance(value, torch.Tensor) else value for value in inputs]
    with contextlib.suppress(Exception), torch.no_grad(), torch.device("meta"), _Layers(written), written:
        model(*inputs)  # whatever it raises comes out again when it is run for real
    return held + written.widest


def on_meta(reference: Reference) -> tuple[nn.Module, list[Any]]:
    """Return the reference and its inputs as meta tensors; the module is built for real first if its constructor reads
    values."""
    with torch.device("meta"):
        inputs = reference.draw_inputs(0)
        try:
            return reference.build(0), inputs
        except TaskError as error:
            if "meta tensors" not in str(error):
                raise
    return reference.build(0).to("meta"), inputs


def describe(source: str) -> dict[str, Any]:
    """Describe inputs, outputs, parameters and cost of one forward, from meta tensors. Raises TaskError."""
    reference = load_reference(source)
    model, inputs = on_meta(reference)
    cost = estimate(reference)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {
        "inputs": [f"{name} {_form(value)}" for name, value in zip(reference.argument_names(), inputs, strict=False)],
        "parameters": f"{parameters:,}",
        "memory": f"{cost.bytes:,} bytes: inputs, parameters and every operator's output",
        "flops": f"{cost.flops:.4g} in products and convolutions" if cost.exact else "unknown: shapes depend on data",
    }


def _form(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"


class _Written(TorchDispatchMode):
    """Adds up the bytes of every operator's outputs; views cost nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.operators = 0
        self.flops = 0.0
        """of products, convolutions and attention"""
        self.widest = 0
        """the largest outputs of one operator, as judged"""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports all of dynamo at the first operator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if (count := flop_registry.get(func.overloadpacket)) is not None:
            self.flops += float(count(*args, **(kwargs or {}), out_val=result))
        if not func.is_view:
            self.add(result)
        return result

    def add(self, result: Any) -> None:
        """Count what one operator wrote."""
        self.operators += 1
        self.bytes += sum(map(_size, tree_leaves(result)))
        self.widest = max(self.widest, sum(map(_judged_size, tree_leaves(result))))


class _Layers(TorchFunctionMode):
    """Recurrent layers as one operator each: taken apart on meta tensors, one takes a minute."""

    def __init__(self, written: _Written) -> None:
        super().__init__()
        self.written = written

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kind = getattr(func, "__name__", "")
        if kind not in RECURRENT or len(args) != 9 or kwargs or args[0].device.type != "meta":
            return func(*args, **(kwargs or {}))
        steps = args[0].shape[:-1].numel()
        self.written.flops += 2.0 * steps * sum(weight.numel() for weight in args[2] if weight.dim() == 2)
        result = recurrent_results(kind, *args)
        self.written.add(result)
        return result


def _judged_size(value: Any) -> int:
    """Return the bytes of a value and, if it is floating, of its copy in fp64."""
    floating = isinstance(value, torch.Tensor) and value.is_floating_point()
    return _size(value) + (8 * value.numel() if floating else 0)


def _size(value: Any) -> int:
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0
