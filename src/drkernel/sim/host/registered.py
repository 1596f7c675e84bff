"""Kernels for the GPU that host code registers in Python, with ``Library.impl(..., "CUDA")``.

They run through PyTorch's dispatcher, which on a GPU hands ``x - 2.5`` to them with the number as it is. It arrives
here as a number, too, and redispatching refuses one in place of a tensor: with such operands they are called directly.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

ON_CUDA = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
_functions: dict[str, Callable[..., Any]] = {}
"""by the entries of ``torch.library``; those registered while a device was there"""


def impl_on(original: Callable[..., None]) -> Callable[..., None]:
    """Return ``torch.library.Library.impl`` that remembers the functions."""

    @functools.wraps(original)
    def impl(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> None:
        original(self, op_name, fn, dispatch_key, **options)
        name = op_name if isinstance(op_name, str) else op_name.name()
        if callable(fn) and fn is not torch.library.fallthrough_kernel and not options.get("with_keyset"):
            _functions[f"{self.ns}/{name.rpartition('::')[2]}/{dispatch_key or self.dispatch_key}"] = fn

    return impl


def registered_kernel(func: Any) -> Callable[..., Any] | None:
    """Return what runs an operator on the GPU, if Python code registered a kernel for it."""
    entries = _entries(func) & torch.library._impls
    if not entries:
        return None
    functions = [_functions[entry] for entry in entries if entry in _functions]

    def run(*args: Any, **kwargs: Any) -> Any:
        if functions and any(isinstance(args[place], (int, float, complex)) for place in _tensors(func, len(args))):
            return functions[0](*args, **kwargs)
        return func.redispatch(ON_CUDA, *args, **kwargs)

    return run


@functools.lru_cache(maxsize=4096)
def _entries(func: Any) -> frozenset[str]:
    """The entries of ``torch.library`` that say that Python code has a kernel for an operator on the GPU."""
    namespace, _, rest = func.name().partition("::")
    keys = ("CUDA",) if namespace == "aten" else ("CUDA", "CompositeExplicitAutograd")
    return frozenset(f"{namespace}/{rest}/{key}" for key in keys)


@functools.lru_cache(maxsize=4096)
def _tensors(func: Any, count: int) -> tuple[int, ...]:
    """The places, among the first ``count`` arguments, at which an operator takes a tensor."""
    return tuple(k for k, one in enumerate(func._schema.arguments[:count]) if str(one.type) == "Tensor")
