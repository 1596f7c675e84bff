"""Attaches host code to a simulated GPU: ``torch.cuda``, Triton's driver and operators reach it over any channel."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from drkernel.sim.host.above_autograd import above_autograd
from drkernel.sim.host.cuda_api import cuda_api_on
from drkernel.sim.host.fakes import guard_nothing
from drkernel.sim.host.loading import refuse_compile
from drkernel.sim.host.modes import DeviceArgumentMode, OperatorMode
from drkernel.sim.host.tensor import DeviceLink
from drkernel.sim.host.triton_driver import SimDriver
from drkernel.sim.host.triton_kernel import triton_on
from drkernel.sim.spec import GPUSpec
from drkernel.sim.wire.commands import Channel, LaunchCommand, Ref, TensorSpec

_active = threading.Lock()
_inside = threading.local()
"""``.depth`` > 0 while this thread is in a command of the device"""


class BelowModes:
    """Wraps a channel and switches the host's modes off for its calls, so that the modes do not intercept them.

    An in-process engine and a socket's end have the same methods, so both can be wrapped as they are.
    """

    def __init__(self, inner: Any):
        self.inner = inner
        self._lock = threading.RLock()  # of several threads, one command at a time; a free may come amid another

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._lock, torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            _inside.depth = getattr(_inside, "depth", 0) + 1
            try:
                yield
            finally:
                _inside.depth -= 1

    def free(self, handle: int) -> None:
        with self._lock:  # touches no tensor, as the next two
            self.inner.free(handle)

    def query(self, what: str) -> Any:
        with self._lock:
            return self.inner.query(what)

    def resources(self, ttir: str, num_warps: int, num_stages: int) -> tuple[int, int, int]:
        with self._lock:
            return self.inner.resources(ttir, num_warps, num_stages)

    def op(self, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        with self.alone():
            return self.inner.op(name, args, kwargs)

    def launch(self, command: LaunchCommand) -> None:
        with self.alone():
            self.inner.launch(command)

    def upload(self, tensor: torch.Tensor) -> TensorSpec:
        with self.alone():
            return self.inner.upload(tensor)

    def download(self, ref: Ref) -> torch.Tensor:
        with self.alone():
            return self.inner.download(ref)

    def generator(self, number: int, *, seed: int | None = None, state: str | None = None) -> dict[str, Any]:
        with self.alone():
            return self.inner.generator(number, seed=seed, state=state)


@contextmanager
def operators_on(link: DeviceLink) -> Iterator[None]:
    """Send operators on device tensors to the device, in this thread."""
    with above_autograd(), OperatorMode(link), DeviceArgumentMode(link):
        yield


@contextmanager
def _in_new_threads(link: DeviceLink) -> Iterator[None]:
    """Give the threads that host code starts the device, too; not those that a device starts for its own work."""
    original = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if not getattr(_inside, "depth", 0):
            run = thread.run

            def on_device() -> None:
                with operators_on(link):
                    run()

            thread.run = on_device  # type: ignore[method-assign]
        original(thread)

    threading.Thread.start = start  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        threading.Thread.start = original  # type: ignore[method-assign]


@contextmanager
def host_side(
    spec: GPUSpec,
    channel: Channel,
    compiles: Callable[[DeviceLink], Callable[..., Any]] | None = None,
    *,
    threads: bool = False,
) -> Iterator[DeviceLink]:
    """Set up everything that makes host code see a GPU, over any channel. One device at a time per process.

    ``compiles(link)`` gives what takes the place of ``torch.compile``; by default it is refused. ``threads``: also in
    threads that host code starts from now on.
    """
    if not _active.acquire(blocking=False):
        raise RuntimeError("a simulated device is already active in this process; leave its 'with' block first")
    link = DeviceLink(channel)
    guard_nothing()  # host code may make tensors of its own on the device that it sees
    try:
        instead = refuse_compile if compiles is None else compiles(link)
        for_threads = _in_new_threads(link) if threads else nullcontext()
        with cuda_api_on(spec, link, instead), triton_on(SimDriver(spec, link)), operators_on(link), for_threads:
            yield link
    finally:
        link.close()
        _active.release()
