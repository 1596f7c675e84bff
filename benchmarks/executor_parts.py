"""Where the executor's time goes, and what the ways not taken would cost, on this machine's CPU.

    python benchmarks/executor_parts.py

First table: milliseconds from TTIR to native code, by step, and of one launch in either tier. Second table: scratch
memory of a program with and without reuse. Third: one softmax of 4096x1024 by the alternatives that were weighed:
whole-grid tensors in PyTorch, C through the system's compiler, Triton's interpreter.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import triton

import sim_speed
from drkernel import sim
from drkernel.sim.executor.compiled import clear_cache, compile_ttir
from drkernel.sim.executor.lower import jit
from drkernel.sim.executor.lower.function import Lowering
from drkernel.sim.executor.lower.lifetime import Arena
from drkernel.sim.executor.ttir.parser import parse_ttir

NAMES = ("add 4M", "softmax 4096x1024", "layer norm 4096x1024", "matmul 512 fp16", "flash attention 8x512x64 fp16")

SOFTMAX_IN_C = """
#include <math.h>
void run(const float *x, float *out, long rows, long cols) {
    for (long r = 0; r < rows; r++) {
        const float *from = x + r * cols; float *to = out + r * cols;
        float top = -INFINITY, total = 0;
        for (long k = 0; k < cols; k++) top = from[k] > top ? from[k] : top;
        for (long k = 0; k < cols; k++) { to[k] = expf(from[k] - top); total += to[k]; }
        for (long k = 0; k < cols; k++) to[k] /= total;
    }
}
"""


def clock(call: Callable[[], object], times: int = 3) -> float:
    """Milliseconds of the fastest call."""
    best = float("inf")
    for _ in range(times):
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
    return best * 1e3


def texts() -> dict[str, str]:
    """TTIR of the benchmark's kernels, as launched."""
    found = {}
    from drkernel.sim.host.triton_kernel import SimKernel

    original = SimKernel.run

    def keep(self: SimKernel, *args: object) -> None:
        found[name] = self.asm["ttir"]

    SimKernel.run = keep  # type: ignore[method-assign]
    try:
        with sim.device("h100", checks="off"):
            for workload in sim_speed.WORKLOADS:
                if (name := workload.name) in NAMES:
                    workload.make("cuda")[0]()
    finally:
        SimKernel.run = original  # type: ignore[method-assign]
    return found


def launch(name: str, promote: float) -> float:
    """Milliseconds of a launch on one thread, in the quick tier (``promote`` infinite) or optimised (0)."""
    workload = next(w for w in sim_speed.WORKLOADS if w.name == name)
    jit.PROMOTE_AFTER = promote
    clear_cache()
    with sim.device("h100", checks="off"):
        call, _ = workload.make("cuda")
        call()
        return clock(call)


def parts(found: dict[str, str]) -> None:
    """First two tables."""
    print("| kernel | read TTIR | lower | LLVM quick | LLVM optimised | launch quick | launch optimised |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    memory = ["| kernel | values in memory, own place each | with reuse |", "|---|---:|---:|"]
    for name, text in found.items():
        lowered = Lowering(parse_ttir(text), checked=False, allow_store_fusion=True).run()
        cells = [
            clock(lambda text=text: parse_ttir(text)),
            clock(lambda text=text: Lowering(parse_ttir(text), checked=False, allow_store_fusion=True).run()),
            *(clock(lambda l=lowered, o=o: jit.build(l.text, l.symbol, optimise=o)) for o in (False, True)),
            launch(name, float("inf")),
            launch(name, 0.0),
        ]
        cells[1] -= cells[0]
        print(f"| {name} | " + " | ".join(f"{cell:.1f}" for cell in cells) + " |")
        reused, take = lowered.arena_bytes, Arena.take
        Arena.take = _apart  # type: ignore[method-assign]
        apart = Lowering(parse_ttir(text), checked=False, allow_store_fusion=True).run().arena_bytes
        Arena.take = take  # type: ignore[method-assign]
        memory.append(f"| {name} | {apart / 1024:.0f} KiB | {reused / 1024:.0f} KiB |")
    print("\n" + "\n".join(memory))


def _apart(arena: Arena, nbytes: int, now: int, last: int) -> int:
    arena.size += nbytes
    return arena.size - nbytes


def alternatives(ttir: str) -> None:
    """Third table: softmax by each way."""
    rows, cols = 4096, 1024
    x, out = torch.randn(rows, cols), torch.zeros(rows, cols)
    print("\n| way | to get ready, ms | softmax 4096x1024, ms |\n|---|---:|---:|")

    def compiled() -> None:
        clear_cache()
        compile_ttir(ttir).variant(False, False)

    print(f"| LLVM, quick | {clock(compiled):.0f} | {launch(NAMES[1], float('inf')):.1f} |")
    lowered = Lowering(parse_ttir(ttir), checked=False, allow_store_fusion=True).run()
    ready = clock(lambda: jit.build(lowered.text, lowered.symbol, optimise=True))
    print(f"| LLVM, optimised | {clock(compiled) + ready:.0f} | {launch(NAMES[1], 0.0):.1f} |")

    def whole_grid() -> None:  # every operation of the kernel on the blocks of all programs at once
        place = torch.arange(rows)[:, None] * cols + torch.arange(cols)[None, :]
        value = torch.take(x, place)
        numerator = torch.exp(value - value.amax(1, keepdim=True))
        out.view(-1)[place.view(-1)] = (numerator / numerator.sum(1, keepdim=True)).view(-1)

    print(f"| whole-grid tensors in PyTorch | 0 | {clock(whole_grid):.1f} |")
    folder = Path(tempfile.mkdtemp())
    (folder / "k.c").write_text(SOFTMAX_IN_C)
    for flags in ("-O1", "-O3 -march=native -ffast-math"):
        library = folder / f"{len(flags)}.so"
        command = ["cc", *flags.split(), "-shared", "-fPIC", str(folder / "k.c"), "-o", str(library), "-lm"]
        ready = clock(lambda command=command: subprocess.run(command, check=True))
        run = ctypes.CDLL(str(library)).run
        arguments = (ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_long(rows))
        spent = clock(lambda run=run, a=arguments: run(*a, ctypes.c_long(cols)))
        print(f"| C, cc {flags} | {ready:.0f} | {spent:.1f} |")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    child = [
        sys.executable,
        str(Path(__file__).with_name("sim_speed.py")),
        "--child",
        "interpreter",
        "--only",
        NAMES[1],
    ]
    done = subprocess.run(child, env=environment, capture_output=True, text=True, check=True)
    seconds = json.loads(done.stdout.splitlines()[-1])["interpreter"]
    print(f"| Triton's interpreter | 0 | {seconds * 1e3:.0f} |")


def main() -> None:
    """Print the three tables."""
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    print(f"torch {torch.__version__}, Triton {triton.__version__}, one thread; milliseconds, best of three.\n")
    found = texts()
    parts(found)
    alternatives(found[NAMES[1]])


if __name__ == "__main__":
    main()
