"""Runs a module in double precision, or with its operands rounded to a lower precision.

The fp64 oracle of a reference is the same module with parameters, buffers and inputs in double. Sources also name
dtypes themselves (``x.float()``, ``torch.zeros(n, dtype=torch.bfloat16)``, a plain tensor kept as an attribute), so the
promoted run happens under :class:`PromoteToDouble`, which turns every such request into double.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from drkernel.tasks.module_copy import copied

DOUBLE = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}
_CASTS = {"float", "half", "bfloat16"}


class PromoteToDouble(TorchFunctionMode):
    """Within the block, half and single precision tensors and dtype requests become double. Thread-local."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args = _carried(args)
        kwargs = {key: _carried(value) for key, value in (kwargs or {}).items()}
        if getattr(func, "__name__", "") in _CASTS and len(args) == 1 and isinstance(args[0], torch.Tensor):
            return args[0].double()
        return _carried(func(*args, **kwargs))


def _carried(value: Any) -> Any:
    """Apply :func:`_promoted` to every leaf; tree_map alone would take most of a tiny task's time."""
    if isinstance(value, (torch.Tensor, torch.dtype)):
        return _promoted(value)
    if value is None or isinstance(value, (int, float, str)):
        return value
    if type(value) in (tuple, list):
        return type(value)(map(_carried, value))
    return tree_map(_promoted, value)


def _promoted(value: Any) -> Any:
    """Return double for a lower floating tensor or dtype, and anything else unchanged."""
    if isinstance(value, torch.dtype):
        return DOUBLE.get(value, value)
    if isinstance(value, torch.Tensor) and value.dtype in DOUBLE:
        with torch._C.DisableTorchFunction():
            return value.to(DOUBLE[value.dtype])
    return value


def promoted_copy(model: nn.Module) -> nn.Module:
    """Return a deep copy of ``model`` with floating parameters and buffers in double."""
    return copied(model).double()


def run_promoted(model: nn.Module, inputs: list[Any]) -> Any:
    """Return ``model(*inputs)`` in double; ``model`` is a :func:`promoted_copy`. Inputs are not modified."""
    return run_double(model, promoted_inputs(inputs))


def promoted_inputs(inputs: list[Any]) -> list[Any]:
    """Return copies of the inputs in double."""
    return [cloned(_promoted(value)) for value in inputs]


def run_double(model: nn.Module, doubled: list[Any]) -> Any:
    """Return ``model(*doubled)`` under :class:`PromoteToDouble`; the module may change its arguments."""
    with torch.no_grad(), PromoteToDouble():
        return model(*doubled)


def cloned(value: Any) -> Any:
    """Return nested lists, tuples and dicts with every tensor cloned."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if type(value) is list:
        return [cloned(item) for item in value]
    return tree_map(lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf, value)


def round_mantissa(tensor: torch.Tensor, bits: int) -> torch.Tensor:
    """Return ``tensor`` in double with its mantissa rounded to ``bits`` stored bits, to nearest even; exponents are
    unbounded."""
    mantissa, exponent = torch.frexp(tensor.to(torch.float64))
    scale = 2.0 ** (bits + 1)
    return torch.ldexp(torch.round(mantissa * scale) / scale, exponent)


def run_rounded(model: nn.Module, inputs: list[Any], bits: int) -> Any:
    """Return the double run with parameters and floating inputs first rounded to ``bits`` mantissa bits.

    This is the error of a kernel that reads its operands at the lower precision and is exact from there on, as a tensor
    core with a wide accumulator nearly is: the smallest error that such a downgrade can have.
    """
    lowered = copied(model)
    with torch.no_grad():
        for tensor in [*lowered.parameters(), *lowered.buffers()]:
            if tensor.is_floating_point():
                tensor.copy_(round_mantissa(tensor, bits))
    return run_promoted(lowered, tree_map(lambda leaf: _rounded(leaf, bits), inputs))


def jittered_copy(double_model: nn.Module, amount: float, generator: torch.Generator) -> nn.Module:
    """Return a copy of a :func:`promoted_copy` with every parameter and floating buffer changed by up to ``amount``,
    relative.

    The distance of its outputs from the unchanged run is the error that a backward-stable implementation may have
    (Higham, Accuracy and Stability of Numerical Algorithms, ch. 1): the conditioning of the task at these inputs.
    """
    shaken = copied(double_model)
    with torch.no_grad():
        for tensor in [*shaken.parameters(), *shaken.buffers()]:
            if tensor.is_floating_point():
                tensor.copy_(_jitter(tensor, amount, generator))
    return shaken


def jittered_inputs(inputs: list[Any], amount: float, generator: torch.Generator) -> list[Any]:
    """Return the inputs in double with every floating tensor changed by up to ``amount``, relative."""

    def jittered(value: Any) -> Any:
        return _jitter(value, amount, generator) if _is_floating(value) else value

    return [jittered(v) if isinstance(v, torch.Tensor) else tree_map(jittered, v) for v in inputs]


def _jitter(tensor: torch.Tensor, amount: float, generator: torch.Generator) -> torch.Tensor:
    noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) * 2 - 1
    return tensor.detach().to(torch.float64) * (1 + amount * noise)


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _rounded(value: Any, bits: int) -> Any:
    return round_mantissa(value, bits) if _is_floating(value) else value
