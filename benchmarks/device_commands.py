"""What one command to the simulated device costs on this machine, in-process and isolated.

    python benchmarks/device_commands.py [--repeat 300] [--json]

A command is one ATen operator, launch or copy on small tensors, so that what is timed is the way there and back and the
accounting, not the arithmetic. Each figure is the 10th percentile of the wall time of ``--repeat`` calls after a
warm-up, so that other work on the machine hardly shows. Modelled times are worked out when somebody asks for them:
that cost is a row of its own. The same calls on plain CPU tensors are the floor.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import triton
import triton.language as tl

from drkernel import sim
from drkernel.sim.control import DeviceControl
from drkernel.sim.isolated import connect_host, serve_device


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + offsets, mask=offsets < n) + tl.load(y_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, total, mask=offsets < n)


def commands(device: str) -> dict[str, Callable[[], Any]]:
    """Small calls by name, on tensors of ``device``."""
    x, y = torch.randn(64, 64, device=device), torch.randn(64, 64, device=device)
    out, host = torch.empty_like(x), torch.randn(64, 64)
    linear = torch.nn.Linear(64, 64).to(device)
    calls: dict[str, Callable[[], Any]] = {
        "add": lambda: x + y,
        "add_ (in place)": lambda: out.add_(1.0),
        "matmul": lambda: x @ y,
        "view (no device work)": lambda: x.view(-1),
        "empty": lambda: torch.empty(64, 64, device=device),
        "softmax": lambda: torch.softmax(x, -1),
        "nn.Linear forward": lambda: linear(x),
        "copy to the device": lambda: host.to(device),
        "item()": lambda: x[0, 0].item(),
    }
    if device != "cpu":
        calls["Triton launch, 4 programs"] = lambda: add_kernel[(4,)](x, y, out, 4096, BLOCK=1024)
    return calls


def measure(device: str, repeat: int) -> dict[str, float]:
    """Microseconds of each call."""
    found = {}
    with torch.no_grad():
        for name, call in commands(device).items():
            for _ in range(10):
                call()
            samples = []
            for _ in range(repeat):
                started = time.perf_counter()
                call()
                samples.append(time.perf_counter() - started)
            found[name] = statistics.quantiles(samples, n=10)[0] * 1e6
        if device != "cpu":
            found["modelled time of one operator"] = _settling(repeat)
    return found


def _settling(repeat: int) -> float:
    """Microseconds that the model takes for one operator, when an event asks for the clock."""
    x, event = torch.randn(64, 64, device="cuda"), torch.cuda.Event()
    samples = []
    for _ in range(20):
        event.record()
        for _ in range(repeat):
            x.add_(1.0)
        started = time.perf_counter()
        event.record()
        samples.append((time.perf_counter() - started) / repeat)
    return min(samples) * 1e6


@contextmanager
def isolated_device(gpu: str) -> Iterator[None]:
    """A device in a process of its own, spoken to over a socket, as the gym does."""
    host_here, host_there = socket.socketpair()
    control_here, control_there = socket.socketpair()
    process = multiprocessing.get_context("fork").Process(
        target=_serve, args=(gpu, host_there, control_there, (host_here, control_here)), daemon=True
    )
    process.start()
    host_there.close(), control_there.close()
    control = DeviceControl(control_here)
    try:
        with connect_host(gpu, host_here):
            yield
    finally:
        control.shutdown()
        process.join(10)


def _serve(gpu: str, host: socket.socket, control: socket.socket, others: tuple[socket.socket, ...]) -> None:
    for other in others:
        other.close()
    torch.set_num_threads(1)
    serve_device(gpu, host, control, checks="off")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=300, help="calls timed of each kind")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with isolated_device("h100"):
        isolated = measure("cuda", options.repeat)
    with sim.device("h100", checks="off"):
        local = measure("cuda", options.repeat)
    plain = measure("cpu", options.repeat)
    if options.json:
        print(json.dumps({"cpu": plain, "in_process": local, "isolated": isolated}, indent=2))
        return
    print("| command | plain CPU tensor | in-process | isolated |\n|---|---:|---:|---:|")
    for name in local:
        floor = f"{plain[name]:.0f} us" if name in plain else ""
        print(f"| {name} | {floor} | {local[name]:.0f} us | {isolated[name]:.0f} us |")


if __name__ == "__main__":
    main()
