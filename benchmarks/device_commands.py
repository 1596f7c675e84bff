"""The cost of one command to the simulated device on this machine, in-process and isolated.

    python benchmarks/device_commands.py [--repeat 300] [--json]

A command is one ATen operator, launch or copy on small tensors, so that what is timed is the way there and back and the
accounting, not the arithmetic. Figures are CPU time, of both processes where the device is isolated, so that other
work on the machine hardly shows; an isolated command also waits for two context switches. Modelled times are worked out
when somebody asks for them: that cost is a row of its own. Plain CPU tensors are the floor.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

from drkernel import sim

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kit"))
from device_process import device_process


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


def measure(device: str, repeat: int, clock: Callable[[], float]) -> dict[str, float]:
    """CPU microseconds of each call."""
    found = {}
    with torch.no_grad():
        for name, call in commands(device).items():
            found[name] = _each(call, repeat, clock)
        if device != "cpu":
            found["modelled time of one operator"] = _settling(repeat, clock)
    return found


def _each(call: Callable[[], Any], repeat: int, clock: Callable[[], float]) -> float:
    """The smallest mean of five rounds: other work on the machine only ever adds."""
    for _ in range(10):
        call()
    rounds = []
    for _ in range(5):
        started = clock()
        for _ in range(repeat):
            call()
        rounds.append((clock() - started) / repeat * 1e6)
    return min(rounds)


def _settling(repeat: int, clock: Callable[[], float]) -> float:
    """The modelled time of one operator, when an event asks for the clock."""
    x, event = torch.randn(64, 64, device="cuda"), torch.cuda.Event()
    event.record()
    rounds = []
    for _ in range(5):
        for _ in range(repeat):
            x.add_(1.0)
        started = clock()
        event.record()
        rounds.append((clock() - started) / repeat * 1e6)
    return min(rounds)


def both(pid: int) -> Callable[[], float]:
    """CPU seconds of this process and of another one."""
    path = Path(f"/proc/{pid}/schedstat")
    return lambda: time.process_time() + int(path.read_text().split()[0]) * 1e-9


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=300, help="calls timed of each kind")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with device_process(checks="off") as device:
        isolated = measure("cuda", options.repeat, both(device.process.pid))
    with sim.device("h100", checks="off"):
        local = measure("cuda", options.repeat, time.process_time)
    plain = measure("cpu", options.repeat, time.process_time)
    if options.json:
        print(json.dumps({"cpu": plain, "in_process": local, "isolated": isolated}, indent=2))
        return
    print("| command | plain CPU tensor | in-process | isolated |\n|---|---:|---:|---:|")
    for name in local:
        floor = f"{plain[name]:.0f} us" if name in plain else ""
        print(f"| {name} | {floor} | {local[name]:.0f} us | {isolated[name]:.0f} us |")


if __name__ == "__main__":
    main()
