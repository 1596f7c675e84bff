"""Small programs whose time depends on one figure of a card. They run on any ``cuda`` device, simulated or not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
import triton
import triton.language as tl
from pydantic import Field

from drkernel.config import Config
from drkernel.sim.spec import GPUSpec, get_spec, known_gpus, spec_called

REPEATS = 5
"""timings of a program; the median counts"""
FEW, MANY = 8, 40
"""calls of a program; the difference of two timings excludes the start and end of a timing"""
LARGE = 1 << 28
"""elements of an array that fits into no L2: 1 GiB of fp32"""
SIDE = 8192
"""rows and columns of a product's matrices"""
INNER = 64
"""rounds of a loop inside a kernel"""

Prepared = Callable[[], Any]


@dataclass(frozen=True)
class Probe:
    """One program, and the figure that it tests."""

    name: str
    field: str
    """field of the card, or ``peak.UNIT``"""
    inverse: bool
    """whether a larger value makes it faster"""
    prepare: Callable[[int], Prepared]
    """maps the L2's size in bytes to the program to time; allocates its arrays"""
    on_host: bool = False
    """times the host: nothing keeps the device busy meanwhile"""


def seconds_of(probe: Probe, l2_bytes: int, repeats: int = REPEATS) -> float:
    """Seconds of one call of a program on the current device, by its events; a model needs no repeats."""
    call = probe.prepare(l2_bytes)
    lead = None if probe.on_host else _lead()
    call()
    torch.cuda.synchronize()
    times = [_seconds(call, MANY, lead) - _seconds(call, FEW, lead) for _ in range(repeats)]
    return median(times) / (MANY - FEW)


def _seconds(call: Prepared, calls: int, lead: Prepared | None) -> float:
    """Seconds of several calls; a long copy in front of them lets the host run ahead."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    if lead is not None:
        lead()
    for _ in range(calls):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e-3


def _lead() -> Prepared:
    source = torch.empty(LARGE, device="cuda")
    target = torch.empty_like(source)
    return lambda: [target.copy_(source) for _ in range(4)]


# ---- the programs


@triton.jit
def _exponentials(out, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = at.to(tl.float32) * 1e-9
    for _ in range(ROUNDS):
        value = tl.exp2(value - 1.0)
    tl.store(out + at, value)


@triton.jit
def _one_address(out):
    tl.atomic_add(out, 1)


@triton.jit
def _nothing(out):
    tl.store(out + tl.program_id(0), 0.0)


def _copy(l2_bytes: int) -> Prepared:
    source = torch.empty(LARGE, device="cuda")
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _within_l2(l2_bytes: int) -> Prepared:
    source = torch.zeros(l2_bytes // 16, device="cuda")  # a quarter to read, a quarter to write
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _small(l2_bytes: int) -> Prepared:
    target = torch.zeros(32, device="cuda")
    return lambda: target.zero_()


def _views(l2_bytes: int) -> Prepared:
    target = torch.zeros(32, 32, device="cuda")
    return lambda: target.t().t().t().t()


def _launches(l2_bytes: int) -> Prepared:
    out = torch.zeros(32, device="cuda")
    return lambda: _nothing[(1,)](out)


def _from_host(size: int) -> Callable[[int], Prepared]:
    def prepare(l2_bytes: int) -> Prepared:
        source = torch.zeros(size, pin_memory=True)
        target = torch.empty(size, device="cuda")
        return lambda: target.copy_(source)

    return prepare


def _product(dtype: torch.dtype) -> Callable[[int], Prepared]:
    def prepare(l2_bytes: int) -> Prepared:
        # zeros draw less power, at a higher clock
        left, right = (torch.randn(SIDE, SIDE, dtype=dtype, device="cuda") for _ in range(2))
        return lambda: left @ right

    return prepare


def _special(l2_bytes: int) -> Prepared:
    out = torch.empty(1 << 22, device="cuda")
    return lambda: _exponentials[(out.numel() // 1024,)](out, ROUNDS=INNER, BLOCK=1024)


def _atomics(l2_bytes: int) -> Prepared:
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    return lambda: _one_address[(1 << 14,)](out)


PROBES = (
    Probe("eager operators on the host", "launch_overhead", False, _small, on_host=True),
    Probe("views on the host", "host_op_overhead", False, _views, on_host=True),
    Probe("Triton launches on the host", "kernel_launch_overhead", False, _launches, on_host=True),
    Probe("copy of one number from the host", "copy_latency", False, _from_host(1), on_host=True),
    Probe("copy of 4 MiB from the host", "pcie_bandwidth", True, _from_host(1 << 20), on_host=True),
    Probe("smallest kernel in a busy stream", "kernel_min", False, _small),
    Probe("copy of 1 GiB", "hbm_efficiency", True, _copy),
    Probe("copy within L2", "l2_bandwidth", True, _within_l2),
    Probe("product of 8192 cubed, fp16", "peak.tensor_fp16", True, _product(torch.float16)),
    Probe("product of 8192 cubed, bf16", "peak.tensor_bf16", True, _product(torch.bfloat16)),
    Probe("product of 8192 cubed, fp32", "peak.fp32", True, _product(torch.float32)),
    Probe("exponentials", "peak.sfu", True, _special),
    Probe("atomics on one address", "atomic_same_address", False, _atomics),
)


# ---- the host


DRIVER_SECONDS = 3.8e-6
"""the driver's part of a launch, where there is no GPU to measure it: launches of a short kernel one after the other
take the host 3.8 us each (NVIDIA's developer blog, Getting Started with CUDA Graphs, 2019)"""


class HostSeconds(Config):
    """What one small operator takes the host of this machine."""

    seconds: float
    how: str = Field(description="what was measured")


def this_host() -> HostSeconds:
    """Measure small eager operators: launches on a CUDA device, or without one their dispatch on the CPU."""
    if torch.cuda.is_available():
        seconds = seconds_of(PROBES[0], int(torch.cuda.get_device_properties(0).L2_cache_size))
        return HostSeconds(seconds=seconds, how=f"measured on {torch.cuda.get_device_name(0)}")
    target = torch.zeros(32)
    times = []
    for _ in range(40):
        begin = time.perf_counter()
        for _ in range(1000):
            target.add(1.0)
        times.append((time.perf_counter() - begin) / 1000)
    dispatch = min(times)  # others at work on this machine only add
    how = f"at least: {dispatch * 1e6:.2f}us on the CPU, {DRIVER_SECONDS * 1e6:g}us for a driver that only a GPU shows"
    return HostSeconds(seconds=dispatch + DRIVER_SECONDS, how=how)


# ---- times of a card


class CalibrationTimes(Config):
    """Times of one machine."""

    gpu: str = Field(description="what torch.cuda.get_device_name returned")
    where: str = Field(description="GPU, versions and date in words")
    seconds: dict[str, float] = Field(description="name of the probe -> seconds of one call")


def measure() -> CalibrationTimes:
    """Time every probe on the current GPU. Raises :class:`RuntimeError` when there is none."""
    if not torch.cuda.is_available():
        raise RuntimeError(
            "there is no GPU here (torch.cuda.is_available() is False); --recorded fits to earlier times"
        )
    l2_bytes = int(torch.cuda.get_device_properties(0).L2_cache_size)
    gpu = torch.cuda.get_device_name(0)
    seconds = {}
    for probe in PROBES:
        seconds[probe.name] = seconds_of(probe, l2_bytes)
        torch.cuda.empty_cache()
    where = f"{gpu}, PyTorch {torch.__version__}, {time.strftime('%Y-%m-%d')}"
    return CalibrationTimes(gpu=gpu, where=where, seconds=seconds)


def base_card(gpu: str, name: str | None) -> GPUSpec:
    """The built-in card for a GPU: the named one, or the one whose full name it is.

    Raises:
        ValueError: there is none, or no card of that name.
    """
    if name is not None:
        return get_spec(name)
    found = spec_called(gpu)
    if found is None:
        raise ValueError(f"no built-in card is called {gpu!r}: name one with --base ({', '.join(known_gpus())})")
    return found
