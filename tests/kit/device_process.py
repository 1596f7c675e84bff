"""A simulated device in a forked process, reached over the two sockets that the gym's runner and judge use."""

import multiprocessing
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkProcess
from typing import Any

from drkernel.sim.host.tensor import DeviceLink
from drkernel.sim.process.control_socket import DeviceControl
from drkernel.sim.process.device_server import connect_host, serve_device
from drkernel.sim.spec import get_spec


@dataclass(frozen=True)
class DeviceProcess:
    """The host's link, the judge's end, and the process."""

    link: DeviceLink
    control: DeviceControl
    process: ForkProcess


@contextmanager
def device_process(name: str = "h100", **settings: Any) -> Iterator[DeviceProcess]:
    """Run the block on a device in a process of its own; ``settings`` are those of ``serve_device``."""
    host, host_there = socket.socketpair()
    control, control_there = socket.socketpair()

    def serve() -> None:
        host.close()
        control.close()
        serve_device(name, host_there, control_there, **settings)

    process = multiprocessing.get_context("fork").Process(target=serve)
    process.start()
    host_there.close()
    control_there.close()
    judge = DeviceControl(control, get_spec(name))
    try:
        with connect_host(name, host) as link:
            yield DeviceProcess(link, judge, process)
    finally:
        judge.shutdown()
        host.close()
        control.close()
        process.join(10)
        process.kill()
        process.join()
