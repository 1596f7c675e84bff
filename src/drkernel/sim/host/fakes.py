"""Fake tensors that host code makes itself, as compilers do: they are on ``cuda:0``, and the device is not involved."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import torch

from drkernel.sim.host.tensor import CUDA

GUARDS = "_ZN3c104impl26device_guard_impl_registryE"
CUDA_TYPE, META_TYPE = 1, 14
"""numbers of kinds of devices in c10"""
_FAKE = torch._C._TorchDispatchModeKey.FAKE


def faking() -> bool:
    """Whether a ``FakeTensorMode`` is on in this thread; other modes are asked before it, whatever came first."""
    return torch._C._get_dispatch_mode(_FAKE) is not None


def faked(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Hand an operator on to the fake mode, with the device that host code named."""
    guard_nothing()
    return func(*[told(value) for value in args], **{key: told(value) for key, value in kwargs.items()})


def told(value: Any) -> Any:
    """Return what host code is told for an argument: the GPU, where the device's modes wrote "meta"."""
    return CUDA if isinstance(value, torch.device) and value.type == "meta" else value


@functools.cache
def guard_nothing() -> None:
    """Let C++ code that sets the current device around an operator on ``cuda:0`` do nothing, as it does for meta.

    A CPU build has no guard for CUDA devices and raises where fake tensors meet one (batch norm, autograd's metadata).
    The table of guards is libc10's own; where it is not found, such modules stay uncompiled.
    """
    folder = Path(torch.__file__).parent / "lib"
    try:
        table = (ctypes.c_void_p * (META_TYPE + 1)).in_dll(ctypes.CDLL(str(folder / "libc10.so")), GUARDS)
    except (OSError, ValueError):
        return
    if not table[CUDA_TYPE]:
        table[CUDA_TYPE] = table[META_TYPE]
