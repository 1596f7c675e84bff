"""``torch.cuda`` on the simulated device: the queries that host code makes, answered from the spec and the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from drkernel.sim.protocol import UnsupportedOp
from drkernel.sim.spec import GPUSpec
from drkernel.sim.tensor import CUDA, DeviceGenerator, is_cuda

if TYPE_CHECKING:
    from drkernel.sim.tensor import DeviceLink


class Stream:
    """A CUDA stream. The device runs every stream in issue order, as one queue."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any):
        self.device = CUDA
        self.cuda_stream = 0

    def synchronize(self) -> None: ...

    def wait_stream(self, stream: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def query(self) -> bool:
        return True

    def record_event(self, event: Any = None) -> Any:
        event = event or torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None: ...


def _event_class(link: DeviceLink) -> type:
    class Event:
        """A CUDA event: ``elapsed_time`` is modelled milliseconds."""

        def __init__(self, enable_timing: bool = False, **_: Any):
            self._seconds: float | None = None

        def record(self, stream: Any = None) -> None:
            self._seconds = link.channel.query("elapsed_seconds")

        def synchronize(self) -> None: ...

        def wait(self, stream: Any = None) -> None: ...

        def query(self) -> bool:
            return True

        def elapsed_time(self, end: Any) -> float:
            if self._seconds is None or end._seconds is None:
                raise RuntimeError("Both events must be recorded before calculating elapsed time.")
            return (end._seconds - self._seconds) * 1e3

    return Event


class _DeviceContext:
    """``torch.cuda.device(0)``: there is one device."""

    def __init__(self, device: Any = None): ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: Any) -> None: ...


def _refuse(name: str) -> Any:
    def refuse(*_: Any, **__: Any) -> Any:
        raise UnsupportedOp(f"torch.cuda.{name} is not offered on the simulated device")

    return refuse


def _replacements(spec: GPUSpec, link: DeviceLink) -> dict[str, Any]:
    query = link.channel.query
    stream = Stream()

    def seed(value: int) -> None:
        torch.default_generator.manual_seed(int(value))  # torch.manual_seed itself calls this function

    properties = SimpleNamespace(
        name=spec.full_name,
        major=spec.capability[0],
        minor=spec.capability[1],
        total_memory=spec.hbm_bytes,
        multi_processor_count=spec.sm_count,
        warp_size=spec.warp_size,
        max_threads_per_multi_processor=spec.max_threads_per_sm,
        shared_memory_per_block_optin=spec.max_smem_per_block,
        shared_memory_per_block=49152,
        shared_memory_per_multiprocessor=spec.smem_per_sm,
        regs_per_multiprocessor=spec.regs_per_sm,
        L2_cache_size=spec.l2_bytes,
        is_integrated=False,
        gcnArchName=str(spec.arch),
    )
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "synchronize": lambda device=None: query("synchronize") and None,
        "get_device_name": lambda device=None: spec.full_name,
        "get_device_capability": lambda device=None: spec.capability,
        "get_device_properties": lambda device=None: properties,
        "is_bf16_supported": lambda including_emulation=True: True,
        "mem_get_info": lambda device=None: (query("memory_bytes") - query("used_bytes"), query("memory_bytes")),
        "memory_allocated": lambda device=None: query("used_bytes"),
        "max_memory_allocated": lambda device=None: query("peak_bytes"),
        "memory_reserved": lambda device=None: query("used_bytes"),
        "empty_cache": lambda: None,
        "reset_peak_memory_stats": lambda device=None: None,
        "manual_seed": seed,
        "manual_seed_all": seed,
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "stream": lambda stream: stream if stream is not None else Stream(),
        "set_stream": lambda stream: None,
        "Stream": Stream,
        "Event": _event_class(link),
        "device": _DeviceContext,
        "device_of": _DeviceContext,
        "CUDAGraph": _refuse("CUDAGraph"),
        "graph": _refuse("graph"),
        "make_graphed_callables": _refuse("make_graphed_callables"),
    }


@contextmanager
def cuda_api_on(spec: GPUSpec, link: DeviceLink) -> Iterator[None]:
    """Replace what host code calls of ``torch.cuda``; everything is put back on the way out."""
    missing = object()
    saved: dict[str, Any] = {}
    replacements = _replacements(spec, link)
    saved_generator = torch.Generator

    class Generator(saved_generator):  # type: ignore[valid-type, misc]
        """``torch.Generator`` that also accepts the GPU."""

        def __new__(cls, device: Any = "cpu") -> Any:
            return DeviceGenerator() if is_cuda(device) else saved_generator(device)

    try:
        for name, value in replacements.items():
            saved[name] = getattr(torch.cuda, name, missing)
            setattr(torch.cuda, name, value)
        torch.Generator = Generator  # type: ignore[misc]
        yield
    finally:
        torch.Generator = saved_generator  # type: ignore[misc]
        for name, value in saved.items():
            if value is missing:
                delattr(torch.cuda, name)
            else:
                setattr(torch.cuda, name, value)
