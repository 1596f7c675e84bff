"""Shapes of operators' results: prepared once, and remembered.

PyTorch's meta functions import half of the compiler on first use. Some are Python that takes longer than the operator
itself (6 ms for a batch norm in training mode), and a network calls the same few on the same few forms.
"""

import gc
import types
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

MOST_KNOWN = 8192
"""most operators on certain forms whose results are remembered"""
_known: dict[Any, tuple[tuple[Any, ...], ...] | None] = {}
"""of an operator and its arguments' forms: its results', or None where they share memory with what was given"""

_SHAPES = ("torch._refs", "torch._prims", "torch._decomp", "torch._meta_registrations")
"""modules that define operators in terms of others"""


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors among arguments or results, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for item in value for leaf in tensors_in(item)] if isinstance(value, (list, tuple)) else []


def mapped(value: Any, of: Callable[[torch.Tensor], Any]) -> Any:
    """Arguments or results with ``of(tensor)`` in place of each tensor."""
    if isinstance(value, torch.Tensor):
        return of(value)
    return type(value)(mapped(item, of) for item in value) if isinstance(value, (list, tuple)) else value


def bare(tensor: torch.Tensor) -> torch.Tensor:
    """A meta tensor of the same form, over a storage of its own."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


@cache
def prepare_shapes() -> None:
    """Import what meta functions need (0.3 s, once per process), without ``torch._dynamo`` (two more).

    Functions that must not be compiled ask ``torch._dynamo`` for a version of themselves at their first call. On meta
    tensors nothing compiles, so each is told that it already is that version. If this build of PyTorch works
    differently, nothing changes except the time of the first call.
    """
    for function in _uncompiled():
        if str(getattr(function, "__module__", "")).startswith(_SHAPES) and not hasattr(function, "__dynamo_disable"):
            function.__dynamo_disable = function  # type: ignore[attr-defined]
    empty = torch.empty(1, 1, device="meta")
    torch.addmm(empty, empty, empty)


def _uncompiled() -> list[types.FunctionType]:
    """Functions around which ``torch._compile._disable_dynamo`` has put a wrapper."""
    from torch import _compile

    maker = getattr(getattr(_compile, "_disable_dynamo", None), "__code__", None)
    codes = {c for c in (maker.co_consts if maker is not None else ()) if isinstance(c, types.CodeType)}
    frozen, found = gc.get_freeze_count(), []
    gc.unfreeze()  # what is frozen is not listed
    for wrapper in gc.get_objects():
        if type(wrapper) is types.FunctionType and wrapper.__code__ in codes:
            cells = dict(zip(wrapper.__code__.co_freevars, wrapper.__closure__ or (), strict=False))
            found += [cells["fn"].cell_contents] if "fn" in cells else []
    if frozen:
        gc.freeze()
    return [function for function in found if type(function) is types.FunctionType]


def on_meta(call: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Return ``call(*args, **kwargs)`` on meta tensors, from memory where an operator that only makes new tensors was
    given the same forms before. What it raises is not remembered."""
    overload: Any = getattr(call, "overload", call)  # halves may be computed in another way
    key = _key(call, args, kwargs) if isinstance(overload, torch._ops.OpOverload) and _only_makes(overload) else None
    forms = _known.get(key) if key is not None else None
    if forms is not None:
        made = [torch.empty_strided(size, stride, dtype=dtype, device="meta") for size, stride, dtype in forms]
        return tuple(made) if len(overload._schema.returns) > 1 else made[0]
    result = call(*args, **kwargs)
    if key is not None and key not in _known:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        _known[key] = _forms(result, (*args, *kwargs.values()))
    return result


def is_missing(error: Exception) -> bool:
    """Whether an error on meta tensors says that values are missing, or a meta function."""
    text = str(error).lower()
    return isinstance(error, NotImplementedError) or "meta tensor" in text or "data-dependent" in text


def forms_of_new(call: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], ...] | None:
    """Return shape, strides and type of each result of an operator that only makes new tensors, from meta tensors;
    None for any other operator, or where shapes alone do not tell."""
    overload: Any = getattr(call, "overload", call)
    if not isinstance(overload, torch._ops.OpOverload) or not _only_makes(overload):
        return None
    try:
        return _forms(on_meta(call, args, kwargs), (*args, *kwargs.values()))
    except (NotImplementedError, RuntimeError):
        return None


@cache
def _only_makes(call: torch._ops.OpOverload) -> bool:
    """Whether an operator's schema has plain tensors as results, and neither writes nor looks into another's memory."""
    schema = call._schema
    if any(argument.alias_info is not None for argument in (*schema.arguments, *schema.returns)):
        return False
    return bool(schema.returns) and all(str(result.type) == "Tensor" for result in schema.returns)


def _key(call: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """A key of everything that the forms of results depend on; None where that is unknown."""
    try:
        return call, torch.get_default_dtype(), _part(args), tuple((name, _part(kwargs[name])) for name in kwargs)
    except TypeError:
        return None


def _part(value: Any) -> Any:
    """An argument in a key. Raises TypeError for what is no plain one."""
    kind = type(value)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        if value.device.type != "meta" or value.layout is not torch.strided or value.is_conj() or value.is_neg():
            raise TypeError
        return value.dtype, tuple(value.shape), value.stride()
    if kind in (list, tuple):
        return kind, tuple(map(_part, value))
    if value is None or kind in (bool, int, float, str, torch.dtype, torch.device, torch.memory_format, torch.layout):
        return kind, value  # equal numbers of several kinds promote differently
    raise TypeError


def _forms(result: Any, given: Any) -> tuple[tuple[Any, ...], ...] | None:
    """Forms of an operator's results; None when they are more than new tensors of exactly their size."""
    made = list(result) if isinstance(result, tuple) else [result]
    seen = {leaf.untyped_storage()._cdata for leaf in tensors_in(given)}
    for one in made:
        if type(one) is not torch.Tensor or one.device.type != "meta" or one.layout is not torch.strided:
            return None
        storage = one.untyped_storage()
        if storage._cdata in seen or storage.nbytes() != bare(one).untyped_storage().nbytes() or one.storage_offset():
            return None
        seen.add(storage._cdata)
    return tuple((tuple(one.shape), one.stride(), one.dtype) for one in made)
