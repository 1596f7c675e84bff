"""Estimates what one forward of a reference costs, from meta tensors: bytes, operations, and the memory that judging
holds.
"""

import contextlib
import re
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import Field
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from drkernel.base.modes import DispatchMode
from drkernel.config import Config
from drkernel.sim.gpu.datafree import RECURRENT, recurrent_results
from drkernel.sim.gpu.shapes import on_meta as on_meta_tensors
from drkernel.task import TaskError
from drkernel.tasks.promote import is_large
from drkernel.tasks.reference import Reference, load_reference

# never halved: these are choices of the algorithm, not sizes of data
KEPT = re.compile(
    r"kernel|stride|pad|dilation|group|pool|scale|factor|axis|heads?$|layers?$|depths$|step|block|window|"
    r"seed|version|expan|reduction|ratio|top_?k|chunk|page|patch|rank|order|num_dim"
)
BATCH = re.compile(r"batch|^bs$|^b$|^n_?samples$|^bsz$")


class ScaleLimits(Config):
    """Limits for one forward of the reference."""

    bytes: int = Field(gt=0, description="inputs, parameters and the outputs of all operators together")
    flops: float = Field(gt=0, description="multiplications and additions of products and convolutions")


@dataclass(frozen=True)
class Cost:
    """One forward's estimated cost."""

    bytes: int
    flops: float
    exact: bool
    """False when the forward does not run on meta tensors (data-dependent shapes); only inputs and parameters count
    then."""
    operators: int = 0
    """number of operators that write something"""
    weight_bytes: int = 0
    """parameters and buffers, counted in ``bytes``"""
    steps: int = 0
    """the same number as ``operators`` with a recurrent layer counted at each of its steps"""

    def over(self, limits: ScaleLimits) -> float:
        """Return the larger of the two ratios of cost to limit; at most 1 means that the task fits."""
        return max(self.bytes / limits.bytes, self.flops / limits.flops)


def estimate(reference: Reference) -> Cost:
    """Estimate the cost of one forward by running it on meta tensors. Raises TaskError when the reference does not
    run."""
    return cost_of(*on_meta(reference))[0]


def cost_of(model: nn.Module, inputs: list[Any]) -> tuple[Cost, Any]:
    """Return the cost of ``model(*inputs)`` on meta tensors, and its results; None where it does not run on them.

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
    return Cost(held + written.bytes, written.flops, True, written.operators, weights, written.steps), result


def judged_bytes(reference: Reference) -> int:
    """Return the minimum bytes that judging holds: inputs and the widest operator's output, each also in fp64, and
    weights, also in fp64 or (large ones, which are converted where they are used) as a message.

    Computed from meta tensors; for a forward that does not run on them, weights and inputs alone. Raises TaskError when
    the reference cannot be built.
    """
    model, inputs = on_meta(reference)
    held = sum(map(_judged_size, [*model.buffers(), *tree_leaves(inputs)]))
    held += sum(2 * _size(one) if is_large(model) else _judged_size(one) for one in model.parameters())
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
    return tensor_form(value) if isinstance(value, torch.Tensor) else repr(value)


def tensor_form(tensor: torch.Tensor) -> str:
    """Return dtype and shape in words: ``float32[4096, 1024]``."""
    return f"{str(tensor.dtype).removeprefix('torch.')}[{', '.join(map(str, tensor.shape))}]"


class _Written(DispatchMode):
    """Adds up the bytes of every operator's outputs; views cost nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.operators = self.steps = 0
        self.flops = 0.0
        """operations of products, convolutions and attention"""
        self.widest = 0
        """bytes of the largest outputs of one operator, as judged"""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = on_meta_tensors(func, args, kwargs or {})
        if (count := flop_registry.get(func.overloadpacket)) is not None:
            self.flops += float(count(*args, **(kwargs or {}), out_val=result))
        if not func.is_view:
            self.add(result)
        return result

    def add(self, result: Any, steps: int = 1) -> None:
        """Count what one operator wrote."""
        self.operators, self.steps = self.operators + 1, self.steps + steps
        self.bytes += sum(map(_size, tree_leaves(result)))
        self.widest = max(self.widest, sum(map(_judged_size, tree_leaves(result))))


class _Layers(TorchFunctionMode):
    """Treats recurrent layers as one operator each: decomposed on meta tensors, one takes a minute."""

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
        self.written.add(result, args[0].shape[1 if args[8] and args[0].dim() == 3 else 0])
        return result


def _judged_size(value: Any) -> int:
    """Return the bytes of a value and, if it is floating, of its copy in fp64."""
    floating = isinstance(value, torch.Tensor) and value.is_floating_point()
    return _size(value) + (8 * value.numel() if floating else 0)


def _size(value: Any) -> int:
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0
