"""A simulated device in a process of its own, used from host code in this one: ``sim.device(..., isolated=True)``.

The other process owns all memory, executes and counts; host code here holds handles and a socket. That process runs
``python -m drkernel.sim.process.remote``.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from drkernel.sim.gpu.datafree.records import DataFree
from drkernel.sim.gpu.resources import Depth
from drkernel.sim.host.tensor import DeviceLink
from drkernel.sim.process.call_record import CallRecord
from drkernel.sim.process.control_socket import DeviceControl
from drkernel.sim.process.isolated import connect_host, serve_device
from drkernel.sim.spec import GPUSpec
from drkernel.verdict import Profile

SHUTDOWN_SECONDS = 10.0


class RemoteDevice:
    """A device in another process, with the interface of :class:`~drkernel.sim.context.SimDevice`."""

    def __init__(self, spec: GPUSpec, link: DeviceLink, control: DeviceControl, process: subprocess.Popen):
        self.spec = spec
        self.process = process
        self.link = link
        self.control = control

    def record(self) -> CallRecord:
        """Everything since the last reset."""
        return self.control.end_call()

    @property
    def launches(self) -> list:
        """Kernel launches since the last reset."""
        return self.record().launches

    @property
    def operators(self) -> dict[str, int]:
        """ATen operators with device work since the last reset."""
        return self.record().operators

    @property
    def copies(self) -> dict[str, int]:
        """Copies between host and device since the last reset."""
        return self.record().copies

    @property
    def findings(self) -> list:
        """The sanitizer's findings since the last reset."""
        return self.record().findings

    @property
    def prints(self) -> list[str]:
        """Lines that kernels printed since the last reset."""
        return self.record().prints

    def profile(self) -> Profile:
        """Modelled time since the last reset."""
        return self.record().profile

    def reset_counters(self) -> None:
        """Reset all counters."""
        self.control.begin_call()


@contextmanager
def remote_device(
    spec: GPUSpec,
    *,
    checks: str,
    memory_bytes: int | None,
    depth: Depth,
    data_free: DataFree | None = None,
    budget_bytes: int | None = None,
) -> Iterator[RemoteDevice]:
    """Start a device process, run the block on it, and end the process."""
    host, host_there = socket.socketpair()
    control, control_there = socket.socketpair()
    fds = host_there.fileno(), control_there.fileno()
    settings = [spec.name, *map(str, fds), checks, str(memory_bytes or 0), depth]
    settings += [str(budget_bytes or 0), "" if data_free is None else data_free.model_dump_json()]
    command = [sys.executable, "-m", "drkernel.sim.process.remote", *settings]
    process = subprocess.Popen(command, pass_fds=fds, stdin=subprocess.DEVNULL)
    host_there.close()
    control_there.close()
    desk = DeviceControl(control, spec)
    try:
        with connect_host(spec.name, host) as link:
            yield RemoteDevice(spec, link, desk, process)
    finally:
        desk.shutdown()
        host.close()
        control.close()
        try:
            process.wait(SHUTDOWN_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main(arguments: list[str]) -> None:
    """Run as the device. Arguments: spec, file descriptors of both sockets, checks, memory in bytes (0: the GPU's),
    depth, budget in bytes (0: the default), settings of a data-free device (empty: with data)."""
    name, host, control, checks, memory, depth, budget, data_free = arguments
    serve_device(
        name,
        socket.socket(fileno=int(host)),
        socket.socket(fileno=int(control)),
        checks=checks,
        memory_bytes=int(memory) or None,
        depth="full" if depth == "full" else "ttir",
        budget_bytes=int(budget) or None,
        data_free=DataFree.model_validate_json(data_free) if data_free else None,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
