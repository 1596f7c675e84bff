"""Pooling and resampling, and their gradients: windows of inputs whose addresses are computed."""

from __future__ import annotations

import math
from dataclasses import replace

from drkernel.sim.cost.call import MetaCall, read, write
from drkernel.sim.cost.contention import scattered_updates
from drkernel.sim.cost.pointwise import fill, streaming
from drkernel.sim.cost.records import TensorMeta
from drkernel.sim.cost.roofline import Access, Grid, KernelWork

DEPENDENT_CYCLES = 4.0
POOL_BASE, POOL_TAP, POOL_AVERAGE_TAP = 190.0, 26.0, 14.0
"""Instructions per output and per tap of PyTorch's pooling kernels: divisions for the output's position, then bounds,
address, comparison and index of every tap (a two-dimensional average is spared the last two)."""


def pooling(call: MetaCall) -> list[KernelWork]:
    """A thread an output; the window's taps come from L1 and L2, its index arithmetic from the integer units."""
    source, outputs = call.inputs[0], call.outputs
    taps = window_taps(call)
    elements = float(outputs[0].elements)
    per_tap = POOL_AVERAGE_TAP if "avg" in call.base and "3d" not in call.base else POOL_TAP
    flops = {"fp32": elements * (POOL_BASE + taps * per_tap)}
    if call.base == "_adaptive_avg_pool2d":
        return [_adaptive_average(call, taps, flops)]
    accesses = (read(source), *[write(meta) for meta in outputs])
    return [
        KernelWork(
            call.base,
            accesses,
            flops,
            max(1.0, elements / 256),
            Grid(256, 8, min(64.0, 4.0 * taps)),
            memory_efficiency=0.85,
        )
    ]


def _adaptive_average(call: MetaCall, taps: float, flops: dict[str, float]) -> KernelWork:
    """Few blocks a channel, at least 16 a sample, whose threads take one output after another: a row of its window is
    waited for before the next, and its place is made by dependent divisions."""
    source, out, spec = call.inputs[0], call.out, call.spec
    channels = source.shape[-3] if len(source.shape) > 2 else 1
    blocks = source.elements / math.prod(source.shape[-2:]) * max(16 // channels, 1)
    each = math.ceil(out.elements / blocks / 256)
    cycles = DEPENDENT_CYCLES * (POOL_BASE + taps * POOL_AVERAGE_TAP)
    chain = each * (math.sqrt(taps) * spec.dram_latency + cycles / spec.clock_hz)
    idle = max(0.0, 1.0 - blocks / (8.0 * spec.sm_count))  # more blocks hide each other's waiting
    accesses = (read(source), write(out))
    return KernelWork(call.base, accesses, flops, max(1.0, blocks), Grid(256, 8, 16.0), serial_seconds=idle * chain)


def window_taps(call: MetaCall) -> float:
    """Inputs that each output of a pooling operator looks at."""
    if "adaptive" in call.base:
        return max(1.0, call.first.elements / max(1, call.out.elements))
    window = call.numbers("kernel_size") or [1]
    dims = 3 if "3d" in call.base else (1 if "1d" in call.base else 2)
    return float(math.prod(window * dims if len(window) == 1 else window))


def resample(call: MetaCall) -> list[KernelWork]:
    """Interpolation and grid sampling: a thread an output, a few taps each."""
    out = call.outputs[0]
    taps = resampled_taps(call)
    flops = {"fp32": out.elements * 4.0 * taps, "int": out.elements * (20.0 + 4.0 * taps)}
    accesses = [*map(read, call.inputs), write(out)]
    return [streaming(call.base, accesses, float(out.elements), flops, 0.8)]


def resampled_taps(call: MetaCall) -> float:
    """Inputs that each output of an interpolation is made of."""
    if "grid_sampler" in call.base:
        mode = int(call.number("interpolation_mode", 0))
        corners = 8.0 if "3d" in call.base else 4.0
        return (corners, 1.0, 16.0)[mode] if 0 <= mode < 3 else 16.0
    if "nearest" in call.base:
        return 1.0
    if "aa" in call.base.split("_"):  # antialiasing: as many as the sizes shrink by, in both directions
        ratio = max(1.0, call.first.elements / max(1, call.out.elements))
        return (16.0 if "bicubic" in call.base else 4.0) * ratio
    return 16.0 if "bicubic" in call.base else 8.0 if "trilinear" in call.base else 2.0 if "1d" in call.base else 4.0


# ---- gradients


def pooling_backward(call: MetaCall) -> list[KernelWork]:
    """The gradient is cleared, then each input looks at the windows that it lies in (overlapping ones by atomics)."""
    gradient, out = call.inputs[0], call.outputs[0]
    taps = backward_taps(call)
    elements = float(out.elements)
    per_tap = POOL_AVERAGE_TAP if "avg" in call.base and "3d" not in call.base else POOL_TAP
    work = KernelWork(
        call.base,
        (*[read(meta) for meta in gradient_inputs(call)], write(out)),
        {"fp32": gradient.elements * taps * per_tap + elements * POOL_BASE / 4},
        max(1.0, elements / 256),
        Grid(256, 8, 16.0),
        memory_efficiency=0.85,
    )
    return [*fill(replace(call, base="zero", inputs=())), work]


def gradient_inputs(call: MetaCall) -> tuple[TensorMeta, ...]:
    """The inputs that a pooling gradient reads: never the forward's input, of which it only needs the shape."""
    return tuple(meta for k, meta in enumerate(call.inputs) if k != 1)


def backward_taps(call: MetaCall) -> float:
    """Inputs under each window of the forward operator."""
    if "adaptive" in call.base:
        return max(1.0, call.outputs[0].elements / max(1, call.inputs[0].elements))
    return 1.0 if "max" in call.base else window_taps(call)


def resample_backward(call: MetaCall) -> list[KernelWork]:
    """Every output's gradient is added to the inputs that it was made of, by atomics into a cleared tensor."""
    gradient, outputs = call.inputs[0], call.outputs
    taps = resampled_taps(replace(call, base=call.base.removesuffix("_backward")))
    updates = float(gradient.elements) * taps
    access, busiest = scattered_updates(outputs[0], updates, call.spec)
    elements = float(gradient.elements)
    flops = {"fp32": elements * 6.0 * taps, "int": elements * (20.0 + 4.0 * taps)}
    accesses = [*map(read, call.inputs), access, *map(write, outputs[1:])]
    work = streaming(call.base, accesses, elements, flops, 0.8)
    return [*fill(replace(call, base="zero", inputs=(), outputs=outputs[:1])), replace(work, atomic_seconds=busiest)]


def unpool(call: MetaCall) -> list[KernelWork]:
    """``max_unpool``: a cleared tensor, then each value to its index."""
    source, out = call.inputs[0], call.outputs[0]
    elements = float(source.elements)
    part = Access(out.storage, min(float(out.nbytes), 32.0 * elements), write=True)
    work = streaming(call.base, [*map(read, call.inputs), part], elements, {"int": 16.0 * elements}, 0.8)
    return [*fill(replace(call, base="zero", inputs=())), work]


def columns(call: MetaCall) -> list[KernelWork]:
    """``im2col`` and ``col2im``: a copy with the arithmetic of a window for every element of the larger side."""
    source, out = call.inputs[0], call.outputs[0]
    elements = float(max(source.elements, out.elements))
    flops = {"int": 30.0 * elements, "fp32": float(source.elements)}
    return [streaming(call.base, [read(source), write(out)], elements, flops, 0.8)]


def pad_backward(call: MetaCall) -> list[KernelWork]:
    """Reflection and replication: border elements are added to, so all go by atomics into a cleared tensor."""
    gradient, out = call.inputs[0], call.outputs[0]
    elements = float(gradient.elements)
    access, busiest = scattered_updates(out, elements, call.spec)
    work = streaming(call.base, [read(gradient), access], elements, {"int": 16.0 * elements}, 0.8)
    return [*fill(replace(call, base="zero", inputs=())), replace(work, atomic_seconds=busiest)]
