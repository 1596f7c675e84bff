"""Prepares shape computation: PyTorch's meta functions import half of the compiler on first use."""

from __future__ import annotations

import gc
import types
from functools import cache

import torch

_SHAPES = ("torch._refs", "torch._prims", "torch._decomp", "torch._meta_registrations")
"""modules that say what operators do in terms of others"""


@cache
def prepare_shapes() -> None:
    """Import what meta functions need (0.3 s, once per process), without ``torch._dynamo`` (another second).

    Functions that must not be compiled ask ``torch._dynamo`` for a version of themselves at their first call. On meta
    tensors nothing compiles, so each is told that it already is that version. If this build of PyTorch works
    differently, nothing changes except the time of the first call.
    """
    for function in _uncompiled():
        if str(getattr(function, "__module__", "")).startswith(_SHAPES) and not hasattr(function, "__dynamo_disable"):
            function.__dynamo_disable = function  # type: ignore[attr-defined]
    empty = torch.empty(1, 1, device="meta")
    torch.mm(empty, empty)
    torch.addmm(empty, empty, empty)


def _uncompiled() -> list[types.FunctionType]:
    """Functions around which ``torch._compile._disable_dynamo`` has put a wrapper."""
    from torch import _compile

    maker = getattr(getattr(_compile, "_disable_dynamo", None), "__code__", None)
    codes = {c for c in (maker.co_consts if maker is not None else ()) if isinstance(c, types.CodeType)}
    found = []
    for wrapper in gc.get_objects():
        if type(wrapper) is not types.FunctionType or wrapper.__code__ not in codes:
            continue
        cells = dict(zip(wrapper.__code__.co_freevars, wrapper.__closure__ or (), strict=False))
        function = cells["fn"].cell_contents if "fn" in cells else None
        if type(function) is types.FunctionType:
            found.append(function)
    return found
