"""``with device("h200") as dev:`` makes host code written for a GPU run on a simulated one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

import torch

from drkernel.sim.above import above_autograd
from drkernel.sim.cuda_api import cuda_api_on
from drkernel.sim.driver import SimDriver, triton_on
from drkernel.sim.engine import Depth, DeviceEngine
from drkernel.sim.interfere import Interference
from drkernel.sim.modes import DeviceArgumentMode, OperatorMode
from drkernel.sim.protocol import Channel, LaunchCommand, Ref, TensorSpec
from drkernel.sim.spec import GPUSpec, get_spec
from drkernel.sim.tensor import DeviceLink
from drkernel.verdict import Profile

_active = threading.Lock()


class BelowModes:
    """Any channel, reached with the host's modes switched off: the way to the device must not be caught by them.

    An engine (in-process) and a socket's end have the same methods, so both are used as they are.
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


class SimDevice:
    """A simulated GPU as the person debugging a kernel sees it."""

    def __init__(self, spec: GPUSpec, engine: DeviceEngine, link: DeviceLink):
        self.spec = spec
        self.engine = engine
        self.link = link

    @property
    def launches(self) -> list:
        """Kernel launches since the last reset."""
        return self.engine.counters.launches

    @property
    def operators(self) -> dict[str, int]:
        """ATen operators with device work since the last reset."""
        return dict(self.engine.counters.operators)

    @property
    def copies(self) -> dict[str, int]:
        """Copies between host and device since the last reset."""
        return dict(self.engine.counters.copies)

    @property
    def findings(self) -> list:
        """What the sanitizer found since the last reset."""
        return self.engine.counters.findings

    @property
    def prints(self) -> list[str]:
        """Lines that kernels printed since the last reset."""
        return self.engine.counters.prints

    def profile(self) -> Profile:
        """Modelled time since the last reset."""
        return self.engine.profile()

    def reset_counters(self) -> None:
        """Start counting anew."""
        self.engine.reset_counters()

    def interfere(self, how: Interference) -> None:
        """From now on "skip" kernel launches, or "disturb" what they write; "none" lets them be."""
        self.engine.interference = how


@contextmanager
def operators_on(link: DeviceLink) -> Iterator[None]:
    """Operators on device tensors reach the device, in this thread."""
    with above_autograd(), OperatorMode(link), DeviceArgumentMode(link):
        yield


@contextmanager
def host_side(spec: GPUSpec, channel: Channel) -> Iterator[DeviceLink]:
    """Everything that makes host code see a GPU, over any channel. One device at a time in a process."""
    if not _active.acquire(blocking=False):
        raise RuntimeError("a simulated device is already active in this process; leave its 'with' block first")
    link = DeviceLink(channel)
    try:
        with cuda_api_on(spec, link), triton_on(SimDriver(spec, link)), operators_on(link):
            yield link
    finally:
        link.close()
        _active.release()


def device(
    name: str = "h200",
    *,
    isolated: bool = False,
    checks: str = "auto",
    memory_bytes: int | None = None,
    depth: Depth = "ttir",
) -> AbstractContextManager[SimDevice]:
    """``with device("h200") as dev:`` runs host code on a simulated GPU.

    Args:
        name: ``h100``, ``h200``, ``a100``, ``b200``, ``mi300x``, ...
        isolated: put the device into a process of its own, out of the reach of host code; slower per command.
        checks: "auto" (sanitize small launches), "full" or "off". Bounds and alignment are always checked.
        memory_bytes: device memory; by default the GPU's.
        depth: "ttir" runs Triton's front end alone, "full" compiles every kernel for the GPU too.

    Raises:
        ValueError: an unknown GPU, or a value that is not one of those above.
        RuntimeError: a device is already active in this process.
    """
    spec = get_spec(name)
    engine = DeviceEngine(spec, checks=checks, memory_bytes=memory_bytes, depth=depth)
    if not isolated:
        return _in_process(engine)
    from drkernel.sim.remote import remote_device

    return cast(
        AbstractContextManager[SimDevice],
        remote_device(spec, checks=checks, memory_bytes=memory_bytes, depth=depth),
    )


@contextmanager
def _in_process(engine: DeviceEngine) -> Iterator[SimDevice]:
    with host_side(engine.spec, BelowModes(engine)) as link:
        yield SimDevice(engine.spec, engine, link)
