"""NVML on the simulated device: the queries with which libraries ask for a GPU before they touch ``torch.cuda``.

``pynvml`` (alone, or the copy that a library brings) and PyTorch load ``libnvidia-ml.so.1`` with ``ctypes``. On the
simulated device they get the functions below, which answer from the spec. Any other function is missing, as in the
library of an older driver: ``pynvml`` raises ``NVMLError_FunctionNotFound``, which names it.
"""

from __future__ import annotations

import ctypes
import functools
import uuid
from collections.abc import Callable
from typing import Any

from drkernel.sim.spec import GPUSpec

LIBRARIES = ("libnvidia-ml.so.1", "libnvidia-ml.so")
DRIVER = b"570.00"
"""the driver that came with CUDA 12.8, which ``torch.version.cuda`` names here"""
CUDA = 12080
SUCCESS, INVALID_ARGUMENT, NOT_FOUND = 0, 2, 6
ERRORS = {SUCCESS: b"The operation was successful", INVALID_ARGUMENT: b"Invalid argument", NOT_FOUND: b"Not found"}


def library_on(spec: GPUSpec, query: Callable[[str], Any], original: Callable[..., None]) -> Callable[..., None]:
    """Return ``ctypes.CDLL.__init__`` that gives this GPU's library for the names of NVML."""

    class Library(ctypes.CDLL):
        """NVML of the simulated device."""

        def __getattr__(self, name: str) -> Any:
            try:
                return functions[name]
            except KeyError:
                raise AttributeError(f"the simulated device has no function {name} of NVML") from None

    functions = _functions(spec, query)

    @functools.wraps(original)
    def load(self: ctypes.CDLL, name: Any, *args: Any, **kwargs: Any) -> None:
        if name in LIBRARIES:
            self.__class__ = Library
            self._name = name
        else:
            original(self, name, *args, **kwargs)

    return load


def _plain(value: Any) -> Any:
    """What a number or a text of ``ctypes`` holds, or what was passed as it is."""
    return getattr(value, "value", value)


def _functions(spec: GPUSpec, query: Callable[[str], Any]) -> dict[str, Callable[..., Any]]:
    """The functions by name. They take what ``ctypes`` passes: numbers, buffers, and references to what they fill."""
    identity = f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, spec.full_name)}".encode()

    def done(*_: Any) -> int:
        return SUCCESS

    def number(value: int) -> Callable[..., int]:
        def give(*args: Any) -> int:
            args[-1]._obj.value = value
            return SUCCESS

        return give

    def text(value: bytes) -> Callable[..., int]:
        def give(*args: Any) -> int:
            args[-2].value = value
            return SUCCESS

        return give

    def handle(found: bool, missing: int, reference: Any) -> int:
        if not found:
            return missing
        ctypes.cast(reference, ctypes.POINTER(ctypes.c_void_p))[0] = 1
        return SUCCESS

    def by_index(index: Any, reference: Any) -> int:
        return handle(_plain(index) == 0, INVALID_ARGUMENT, reference)

    def by_uuid(wanted: Any, reference: Any) -> int:
        return handle(_plain(wanted) == identity, NOT_FOUND, reference)

    def capability(device: Any, major: Any, minor: Any) -> int:
        major._obj.value, minor._obj.value = spec.capability
        return SUCCESS

    def memory(device: Any, reference: Any) -> int:
        found, total, used = reference._obj, query("memory_bytes"), query("used_bytes")
        found.total, found.used, found.free = total, used, total - used
        return SUCCESS

    return {
        "nvmlInit": done,
        "nvmlInit_v2": done,
        "nvmlInitWithFlags": done,
        "nvmlShutdown": done,
        "nvmlErrorString": lambda code: ERRORS.get(_plain(code), b"Unknown error"),
        "nvmlSystemGetDriverVersion": text(DRIVER),
        "nvmlSystemGetNVMLVersion": text(b"12." + DRIVER),
        "nvmlSystemGetCudaDriverVersion": number(CUDA),
        "nvmlSystemGetCudaDriverVersion_v2": number(CUDA),
        "nvmlDeviceGetCount_v2": number(1),
        "nvmlDeviceGetHandleByIndex_v2": by_index,
        "nvmlDeviceGetHandleByUUID": by_uuid,
        "nvmlDeviceGetIndex": number(0),
        "nvmlDeviceGetName": text(spec.full_name.encode()),
        "nvmlDeviceGetUUID": text(identity),
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetMemoryInfo_v2": memory,
        "nvmlDeviceGetCudaComputeCapability": capability,
    }
