"""Runs a module in double precision, or with its operands rounded to a lower precision.

The fp64 oracle of a reference is the same module with parameters, buffers and inputs in double. Sources also name
dtypes themselves (``x.float()``, ``torch.zeros(n, dtype=torch.bfloat16)``, a plain tensor kept as an attribute), so the
promoted run happens under :class:`PromoteToDouble`, which turns every such request into double.
"""

import copy
import types
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map


def copied(model: nn.Module, *, same_parameters: bool = False) -> nn.Module:
    """Return a deep copy of ``model`` whose functions also use the copy; ``same_parameters``: with the original's.

    ``copy.deepcopy`` shares functions, so a module that keeps ``lambda x: inner(x)`` in an attribute would go on using
    the original's ``inner``. Here, functions in attributes are rebuilt over the copies of what they hold.
    """
    memo: dict[int, Any] = {id(one): one for one in model.parameters()} if same_parameters else {}
    fresh = copy.deepcopy(model, memo)
    for module in fresh.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, types.FunctionType) and value.__closure__:
                vars(module)[name] = _rebound(value, memo)
    return fresh


def _rebound(function: types.FunctionType, memo: dict[int, Any]) -> types.FunctionType:
    """Return the function with each copied object of its closure replaced by the copy."""
    cells = function.__closure__ or ()
    if not any(id(cell.cell_contents) in memo for cell in cells if _filled(cell)):
        return function
    held = tuple(
        types.CellType(memo.get(id(cell.cell_contents), cell.cell_contents)) if _filled(cell) else cell
        for cell in cells
    )
    fresh = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, held)
    fresh.__kwdefaults__ = function.__kwdefaults__
    return fresh


def _filled(cell: types.CellType) -> bool:
    """Return whether a closure cell holds a value yet."""
    try:
        cell.cell_contents  # noqa: B018 (asking is the point)
    except ValueError:
        return False
    return True


DOUBLE = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}
_CASTS = {"float", "half", "bfloat16"}


FIRST = ("argmax", "argmin", "max", "min")
"""operators that return the place of the first of equal elements along an axis"""
PICKS = {"topk": 2, "kthvalue": 2} | dict.fromkeys((*FIRST, "sort", "argsort", "median", "mode"), 1)
"""these, and others, which promise no order unless they are to be stable, by the position of the axis' argument"""
JITTER_BLOCK = 99_991
"""elements (a prime, so that rows of no matrix fall on blocks) after which factors repeat"""
LARGE = 8 << 20
"""most elements of parameters for which a module has a copy in double; beyond it each is converted where it is used"""


@dataclass(frozen=True)
class Picked:
    """Elements that an operator picked along an axis."""

    values: torch.Tensor
    places: torch.Tensor
    axis: int
    any_of_equals: bool
    """whether the operator leaves open which of equal elements it picks"""
    room: tuple[float, float]
    """relative and absolute difference of elements that rounding may make equal"""

    def equals(self, others: torch.Tensor) -> torch.Tensor:
        """Where other places, none of them twice, hold elements equal to those that were picked."""
        theirs = others.long().reshape(self.places.shape)
        inside = (theirs >= 0) & (theirs < self.values.shape[self.axis])
        picked, held = (self.values.gather(self.axis, at) for at in (self.places, theirs.where(inside, 0)))
        once = (theirs.sort(self.axis).values.diff(dim=self.axis) != 0).all(self.axis, keepdim=True)
        return (inside & once & torch.isclose(held, picked, *self.room)).reshape(others.shape)


class PromoteToDouble(TorchFunctionMode):
    """Within the block, half and single precision tensors and dtype requests become double. Thread-local."""

    def __init__(self, room: tuple[float, float] | None = None) -> None:
        """``room``: of what operators pick, which is kept then."""
        super().__init__()
        self._room, self.picked = room, list[Picked]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name == "__get__":  # a shape or a dtype needs no elements
            found = func(*args)
            if not isinstance(found, torch.Tensor):
                return self._carried(found)
        args = self._carried(args)
        kwargs = {key: self._carried(value) for key, value in (kwargs or {}).items()}
        if name in _CASTS and len(args) == 1 and isinstance(args[0], torch.Tensor):
            return args[0].double()
        found = self._carried(func(*args, **kwargs))
        if self._room is not None and name in PICKS and (isinstance(found, tuple) or name.startswith("arg")):
            self.picked.append(self._pick(name, args, kwargs, found, self._room))
        return found

    def _pick(self, name: str, args: Any, kwargs: Any, found: Any, room: tuple[float, float]) -> Picked:
        """What an operator has just picked, in memory of its own: a reference may change what it has."""
        axis = kwargs.get("dim", args[PICKS[name]] if len(args) > PICKS[name] else None)
        values, places = (args[0] if args else kwargs["input"]), found[1] if isinstance(found, tuple) else found
        if axis is None and name.startswith("argm"):
            values, places = values.flatten(), places.flatten()
        axis = -1 if axis is None else axis
        places = places if places.dim() == values.dim() else places.unsqueeze(axis)
        free = name not in FIRST and not kwargs.get("stable")
        room = room if free and values.is_floating_point() else (0.0, 0.0)
        return Picked(values.clone(), places.clone(), axis, free, room)

    def _carried(self, value: Any) -> Any:
        """Apply :meth:`_leaf` to every leaf; tree_map alone would take most of a tiny task's time."""
        if isinstance(value, (torch.Tensor, torch.dtype)):
            return self._leaf(value)
        if value is None or isinstance(value, (int, float, str)):
            return value
        if type(value) in (tuple, list):
            return type(value)(map(self._carried, value))
        return tree_map(self._leaf, value)

    def _leaf(self, value: Any) -> Any:
        return _promoted(value)


class JitterWhereUsed(PromoteToDouble):
    """Besides, each parameter of a module is changed by up to ``amount``, relative, in the same way at every use."""

    def __init__(self, model: nn.Module, amount: float, seed: int) -> None:
        super().__init__()
        self._amount, self._seed = amount, seed
        self._places = {id(one): place for place, one in enumerate(model.parameters()) if one.is_floating_point()}

    def _leaf(self, value: Any) -> Any:
        place = self._places.get(id(value)) if isinstance(value, nn.Parameter) else None
        if place is None:
            return _promoted(value)
        with torch._C.DisableTorchFunction():
            return _jitter(value, self._amount, torch.Generator().manual_seed(self._seed + place))


def _promoted(value: Any) -> Any:
    """Return double for a lower floating tensor or dtype, and anything else unchanged."""
    if isinstance(value, torch.dtype):
        return DOUBLE.get(value, value)
    if isinstance(value, torch.Tensor) and value.dtype in DOUBLE:
        with torch._C.DisableTorchFunction():
            return value.to(DOUBLE[value.dtype])
    return value


def is_large(model: nn.Module) -> bool:
    """Whether a module's parameters are converted where they are used."""
    return sum(one.numel() for one in model.parameters()) > LARGE


def promoted_copy(model: nn.Module) -> nn.Module:
    """Return a deep copy of ``model`` with floating parameters and buffers in double.

    The copy of a large one (:data:`LARGE`) has the parameters of ``model``, which :func:`run_double` converts.
    """
    if not is_large(model):
        return copied(model).double()
    double = copied(model, same_parameters=True)
    for buffer in double.buffers():
        buffer.data = _promoted(buffer.data)
    return double


def promoted_inputs(inputs: list[Any]) -> list[Any]:
    """Return copies of the inputs in double."""
    doubled = [_promoted(value) for value in inputs]
    return [cloned(value) if value is given else value for value, given in zip(doubled, inputs, strict=True)]


def run_double(model: nn.Module, doubled: list[Any], mode: PromoteToDouble | None = None) -> Any:
    """Return ``model(*doubled)`` under :class:`PromoteToDouble`; the module, a :func:`promoted_copy`, may change its
    arguments."""
    with torch.no_grad(), mode or PromoteToDouble():
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
    return run_double(lowered, promoted_inputs(tree_map(lambda leaf: _rounded(leaf, bits), inputs)))


def jittered_copy(double_model: nn.Module, amount: float, generator: torch.Generator) -> nn.Module:
    """Return a copy of a :func:`promoted_copy` with every parameter and floating buffer changed by up to ``amount``,
    relative; the parameters of a large one are left to :class:`JitterWhereUsed`.

    The distance of its outputs from the unchanged run is the error that a backward-stable implementation may have
    (Higham, Accuracy and Stability of Numerical Algorithms, ch. 1): the conditioning of the task at these inputs.
    """
    large = is_large(double_model)
    shaken = copied(double_model, same_parameters=large)
    with torch.no_grad():
        for tensor in [*(() if large else shaken.parameters()), *shaken.buffers()]:
            if tensor.is_floating_point():
                tensor.copy_(_jitter(tensor, amount, generator))
    return shaken


def jittered_inputs(inputs: list[Any], amount: float, generator: torch.Generator) -> list[Any]:
    """Return copies of the inputs in double with every floating tensor changed by up to ``amount``, relative."""

    def jittered(value: Any) -> Any:
        return _jitter(value, amount, generator) if _is_floating(value) else cloned(_promoted(value))

    return [jittered(v) if isinstance(v, torch.Tensor) else tree_map(jittered, v) for v in inputs]


def _jitter(tensor: torch.Tensor, amount: float, generator: torch.Generator) -> torch.Tensor:
    """A new tensor with the strides of ``tensor``; in one, as each further one of its size would cost as much again."""
    given = tensor.detach()
    if given.numel() > JITTER_BLOCK and given.is_contiguous():
        return _jitter_in_blocks(given, amount, generator)
    factors = torch.empty_like(given, dtype=torch.float64).uniform_(1 - amount, 1 + amount, generator=generator)
    return factors.mul_(given if given.element_size() > 1 else given.to(torch.float64))  # fp8 has no arithmetic


def _jitter_in_blocks(given: torch.Tensor, amount: float, generator: torch.Generator) -> torch.Tensor:
    """The same changes for each block of a contiguous tensor, up or down: drawing them takes longer than all else.

    The direction is drawn for each block, so that changes add up over blocks as independent ones do.
    """
    up = torch.empty(JITTER_BLOCK, dtype=torch.float64).uniform_(1 - amount, 1 + amount, generator=generator)
    down = 2 - up
    jittered = given.to(torch.float64, copy=True)
    blocks = jittered.view(-1).split(JITTER_BLOCK)
    directions = torch.randint(2, (len(blocks),), generator=generator).tolist()
    for block, direction in zip(blocks, directions, strict=True):
        block.mul_((up if direction else down)[: len(block)])
    return jittered


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _rounded(value: Any, bits: int) -> Any:
    return round_mantissa(value, bits) if _is_floating(value) else value
