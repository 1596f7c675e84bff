"""The executor against Triton's interpreter and torch eager, on this machine's CPU, in one run.

    python benchmarks/sim_speed.py                  # prints the table
    python benchmarks/sim_speed.py --out docs/results/sim_speed.csv

Each of ours and the interpreter runs in a process of its own (``TRITON_INTERPRET`` is read at import). ``run`` is the
best of several launches with native code built and sanitizers off, ``checked`` the same with every sanitizer on,
``first`` the first launch: Triton's front end, lowering and native compilation included. The interpreter has no
compile step; its time is one launch. ``eager`` is torch on the same CPU tensors with the same number of threads.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import triton
import triton.language as tl

from extrapolation_kernels.rows import gelu_kernel, layer_norm_kernel, softmax_kernel
from surveys import markdown, parser_of, write_table


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa, pb = a + rm[:, None] * K + rk[None, :], b + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        x = tl.load(pa, mask=rk[None, :] < K - k * BK, other=0.0)
        y = tl.load(pb, mask=rk[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(x, y, acc)
        pa += BK
        pb += BK * N
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(c.dtype.element_ty), mask=mask)


@triton.jit
def attention_kernel(q, k, v, out, scale, length, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    base = tl.program_id(1) * length * D
    rm, rd = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    query = tl.load(q + base + rm[:, None] * D + rd[None, :])
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, length, BN):
        rn = start + tl.arange(0, BN)
        key = tl.load(k + base + rn[None, :] * D + rd[:, None])
        scores = tl.dot(query, key) * (scale * 1.44269504)
        higher = tl.maximum(top, tl.max(scores, 1))
        p = tl.math.exp2(scores - higher[:, None])
        shrink = tl.math.exp2(top - higher)
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None]
        value = tl.load(v + base + rn[:, None] * D + rd[None, :])
        acc = tl.dot(p.to(tl.float16), value, acc)
        top = higher
    tl.store(out + base + rm[:, None] * D + rd[None, :], (acc / total[:, None]).to(tl.float16))


Call = Callable[[], object]


@dataclass(frozen=True)
class Workload:
    """One row of the table: makes (launch, eager) on a device."""

    name: str
    make: Callable[[str], tuple[Call, Call]]
    target: float | None
    """the ratio to the interpreter that the project promises"""


def _elementwise(n: int, block: int) -> Callable[[str], tuple[Call, Call]]:
    def make(device: str) -> tuple[Call, Call]:
        x, y = torch.randn(n), torch.randn(n)
        on = [t.to(device) for t in (x, y, torch.zeros(n))]
        grid = (triton.cdiv(n, block),)
        return lambda: add_kernel[grid](*on, n, BLOCK=block), lambda: torch.add(x, y)

    return make


def _gelu(device: str) -> tuple[Call, Call]:
    n = 1 << 22
    x = torch.randn(n)
    on = [x.to(device), torch.zeros(n).to(device)]
    return lambda: gelu_kernel[(n // 1024,)](*on, n, BLOCK=1024), lambda: torch.nn.functional.gelu(x)


def _rows(kind: str, rows: int, cols: int) -> Callable[[str], tuple[Call, Call]]:
    def make(device: str) -> tuple[Call, Call]:
        x, w, b = torch.randn(rows, cols), torch.randn(cols), torch.randn(cols)
        on, out = [t.to(device) for t in (x, w, b)], torch.zeros(rows, cols).to(device)
        if kind == "softmax":
            return lambda: softmax_kernel[(rows,)](on[0], out, cols, BLOCK=cols), lambda: x.softmax(1)
        return (
            lambda: layer_norm_kernel[(rows,)](*on, out, cols, BLOCK=cols),
            lambda: torch.nn.functional.layer_norm(x, (cols,), w, b),
        )

    return make


def _matmul(size: int, dtype: torch.dtype) -> Callable[[str], tuple[Call, Call]]:
    def make(device: str) -> tuple[Call, Call]:
        a, b = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
        on = [t.to(device) for t in (a, b, torch.zeros_like(a))]
        grid = (size // 64, size // 64)
        return lambda: matmul_kernel[grid](*on, size, size, size, BM=64, BN=64, BK=32), lambda: a @ b

    return make


def _attention(device: str) -> tuple[Call, Call]:
    heads, length, d = 8, 512, 64
    q, k, v = (torch.randn(heads, length, d).half() for _ in range(3))
    on = [t.to(device) for t in (q, k, v, torch.zeros_like(q))]
    return (
        lambda: attention_kernel[(length // 64, heads)](*on, d**-0.5, length, D=d, BM=64, BN=64),
        lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v),
    )


WORKLOADS = (
    Workload("add 4M", _elementwise(1 << 22, 1024), 50),
    Workload("gelu 4M", _gelu, None),
    Workload("softmax 4096x1024", _rows("softmax", 4096, 1024), 50),
    Workload("layer norm 4096x1024", _rows("layer_norm", 4096, 1024), 50),
    Workload("matmul 512 fp16", _matmul(512, torch.float16), 20),
    Workload("matmul 512 fp32", _matmul(512, torch.float32), None),
    Workload("flash attention 8x512x64 fp16", _attention, 20),
    Workload("small: add, 64 programs", _elementwise(64 * 256, 256), 1),
    Workload("small: softmax, 64 rows of 256", _rows("softmax", 64, 256), 1),
    Workload("small: layer norm, 64 rows of 256", _rows("layer_norm", 64, 256), 1),
    Workload("small: matmul 512, 64 programs", _matmul(512, torch.float16), 1),
    Workload("small: attention, 64 programs", _attention, 1),
)


def clock(call: Call) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def best(call: Call, budget: float = 1.5) -> float:
    """The shortest of the calls that fit into ``budget`` seconds (at least three)."""
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - started < budget and len(times) < 200):
        times.append(clock(call))
    return min(times)


def child(who: str, name: str) -> dict[str, float]:
    """Measure one workload in this process."""
    workload = next(w for w in WORKLOADS if w.name == name)
    torch.manual_seed(0)
    if who == "interpreter":
        launch, _ = workload.make("cpu")
        return {"interpreter": clock(launch)}
    from drkernel import sim

    with sim.device("h100", checks="off"):
        launch, _ = workload.make("cuda")
        found = {"first": clock(launch), "run": best(launch)}
    with sim.device("h100", checks="full"):
        launch, _ = workload.make("cuda")
        launch()
        found["checked"] = best(launch)
    _, eager = workload.make("cpu")
    eager()
    return {**found, "eager": best(eager)}


def measure(who: str, name: str) -> dict[str, float]:
    """Run :func:`child` in a fresh process."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"} if who == "interpreter" else os.environ
    command = [sys.executable, __file__, "--child", who, name]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    if done.returncode:
        raise RuntimeError(f"{who} failed on {name}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


HEAD = ["workload", "interpreter", "first", "run", "checked", "eager", "interpreter / ours", "run / eager"]


def row(workload: Workload, found: dict[str, float]) -> list[str]:
    """The cells below :data:`HEAD`."""
    shown = [f"{found[key] * 1e3:.1f}" for key in HEAD[1:6]]
    ratio = f"{found['interpreter'] / found['first' if workload.name.startswith('small') else 'run']:.1f}x"
    ratio += f" ({workload.target:g}x)" if workload.target else ""
    return [workload.name, *shown, ratio, f"{found['run'] / found['eager']:.1f}"]


def main() -> None:
    """Parse, measure, print."""
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, help="CSV file to write")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(*options.child)))
        return
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__} with "
        f"{torch.get_num_threads()} threads, Triton {triton.__version__}. Milliseconds; small launches are compared by "
        "their first call, the others by `run`.",
        *("", *markdown([HEAD], 7)), sep="\n", flush=True,
    )  # fmt: skip
    table = [HEAD]
    for workload in WORKLOADS:
        found = measure("ours", workload.name) | measure("interpreter", workload.name)
        table.append(row(workload, found))
        print(markdown(table)[-1], flush=True)
    if options.out is not None:
        write_table(options.out, table)


if __name__ == "__main__":
    main()
