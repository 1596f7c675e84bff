"""Attaches host code to a simulated GPU: ``torch.cuda``, Triton's driver and operators reach it over any channel."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from drkernel.sim.host.above_autograd import above_autograd
from drkernel.sim.host.cuda_api import cuda_api_on
from drkernel.sim.host.modes import DeviceArgumentMode, OperatorMode
from drkernel.sim.host.tensor import DeviceLink
from drkernel.sim.host.triton_driver import SimDriver
from drkernel.sim.host.triton_kernel import triton_on
from drkernel.sim.spec import GPUSpec
from drkernel.sim.wire.commands import Channel, LaunchCommand, Ref, TensorSpec

_active = threading.Lock()


class BelowModes:
    """Wraps a channel and switches the host's modes off for its calls, so that the modes do not intercept them.

    An in-process engine and a socket's end have the same methods, so both can be wrapped as they are.
    """

    def __init__(self, inner: Any):
        self.inner = inner
        self.free = inner.free  # these touch no tensor
        self.query = inner.query
        self.resources = inner.resources

    def op(self, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            return self.inner.op(name, args, kwargs)

    def launch(self, command: LaunchCommand) -> None:
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            self.inner.launch(command)

    def upload(self, tensor: torch.Tensor) -> TensorSpec:
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            return self.inner.upload(tensor)

    def download(self, ref: Ref) -> torch.Tensor:
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            return self.inner.download(ref)

    def generator(self, number: int, *, seed: int | None = None, state: str | None = None) -> dict[str, Any]:
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            return self.inner.generator(number, seed=seed, state=state)


@contextmanager
def operators_on(link: DeviceLink) -> Iterator[None]:
    """Send operators on device tensors to the device, in this thread."""
    with above_autograd(), OperatorMode(link), DeviceArgumentMode(link):
        yield


@contextmanager
def host_side(spec: GPUSpec, channel: Channel) -> Iterator[DeviceLink]:
    """Set up everything that makes host code see a GPU, over any channel. One device at a time per process."""
    if not _active.acquire(blocking=False):
        raise RuntimeError("a simulated device is already active in this process; leave its 'with' block first")
    link = DeviceLink(channel)
    try:
        with cuda_api_on(spec, link), triton_on(SimDriver(spec, link)), operators_on(link):
            yield link
    finally:
        link.close()
        _active.release()
