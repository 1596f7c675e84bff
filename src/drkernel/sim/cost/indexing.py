"""Pooling, gathers and scatters, sorts, resampling, losses: operators whose addresses are computed."""

from __future__ import annotations

import math

from drkernel.sim.cost.call import Call, read, scratch, write
from drkernel.sim.cost.pointwise import streaming
from drkernel.sim.cost.records import TensorMeta
from drkernel.sim.cost.roofline import Access, KernelWork

SECTOR_BYTES = 32
POOL_BASE, POOL_TAP, POOL_AVERAGE_TAP = 190.0, 26.0, 14.0
"""Instructions per output and per tap of PyTorch's pooling kernels: divisions for the output's position, then bounds,
address, comparison and index of every tap (a two-dimensional average is spared the last two)."""
RADIX_PASSES = 4
"""Eight bits a pass over 32-bit keys."""


def pooling(call: Call) -> list[KernelWork]:
    """A thread an output; the window's taps come from L1 and L2, its index arithmetic from the integer units."""
    source, outputs = call.inputs[0], call.outputs
    taps = window_taps(call)
    elements = float(outputs[0].elements)
    per_tap = POOL_AVERAGE_TAP if "avg" in call.base and "3d" not in call.base else POOL_TAP
    flops = {"fp32": elements * (POOL_BASE + taps * per_tap)}
    accesses = (read(source), *[write(meta) for meta in outputs])
    return [
        KernelWork(
            call.base,
            accesses,
            flops=flops,
            blocks=max(1.0, elements / 256),
            threads=256,
            blocks_per_sm=8,
            bytes_in_flight=min(64.0, 4.0 * taps),
            memory_efficiency=0.85,
        )
    ]


def window_taps(call: Call) -> float:
    """Inputs that each output of a pooling operator looks at."""
    if "adaptive" in call.base:
        return max(1.0, call.first.elements / max(1, call.out.elements))
    window = call.numbers(1) or [1]
    dims = 3 if "3d" in call.base else (1 if "1d" in call.base else 2)
    return float(math.prod(window * dims if len(window) == 1 else window))


def gather(call: Call) -> list[KernelWork]:
    """``embedding``, ``index_select``, ``gather``, ``index``, ``take``: reads whole sectors where rows are short."""
    source, out = call.inputs[0], call.outputs[0]
    return [_moved(call, _sparse(source, out), [write(out)], float(out.elements))]


def scatter(call: Call) -> list[KernelWork]:
    """``scatter``, ``index_put``, ``index_add``: a copy of the target unless in place, then sparse writes."""
    target, source = call.inputs[0], call.inputs[-1]
    out = call.outputs[0] if call.outputs else target
    work: list[KernelWork] = []
    if out.storage != target.storage:
        work.append(streaming("copy", [read(target), write(out)], float(out.elements), {}))
    touched = min(float(out.nbytes), source.elements * max(float(SECTOR_BYTES), float(out.itemsize)))
    sparse = Access(out.storage, touched, write=True)
    work.append(_moved(call, Access(out.storage, touched), [sparse], float(source.elements)))
    return work


def _sparse(source: TensorMeta, out: TensorMeta) -> Access:
    """Reads of scattered elements or rows of ``source``: sectors of 32 bytes, no more than the whole of it uniquely."""
    row = (
        source.shape[-1] * source.itemsize
        if source.shape and out.shape and source.shape[-1:] == out.shape[-1:]
        else source.itemsize
    )
    sectors = out.elements * out.itemsize * max(1.0, SECTOR_BYTES / max(row, 1))
    return Access(source.storage, min(float(source.nbytes), sectors), requested=sectors)


def _moved(call: Call, sparse: Access, others: list[Access], elements: float) -> KernelWork:
    indices = [read(meta) for meta in call.inputs[1:] if meta.dtype in ("int64", "int32", "bool")]
    return streaming(call.base, [sparse, *indices, *others], elements, {"int": 16.0 * elements}, 0.8)


def sort(call: Call) -> list[KernelWork]:
    """Segmented radix sort of keys and 64-bit positions: a histogram, then a read and a write a pass."""
    source = call.inputs[0]
    elements = float(source.elements)
    pair = elements * (source.itemsize + 8.0)
    dim = source.shape[int(call.number(1, -1)) if call.overload != "stable" else -1] if source.shape else 1
    accesses = [read(source), *[write(meta) for meta in call.outputs]]
    if dim <= 4096:  # one block sorts a row in shared memory
        steps = math.log2(max(2, dim)) ** 2 / 2
        return [streaming(call.base, accesses, elements, {"int": elements * 8.0 * steps}, 0.8)]
    passes = RADIX_PASSES * max(1, source.itemsize // 4)
    work = [streaming(call.base, accesses, elements, {"int": 20.0 * elements}, 0.8)]
    for _ in range(passes):
        work.append(
            streaming("radix", [scratch(pair), scratch(pair, write=True)], elements, {"int": 30.0 * elements}, 0.7)
        )
    return work


def topk(call: Call) -> list[KernelWork]:
    """Radix select: a few passes over the row, then a sort of the k winners."""
    source = call.inputs[0]
    elements = float(source.elements)
    rows = max(1.0, elements / max(1, source.shape[-1]))
    return [
        KernelWork(
            call.base,
            (read(source, 5.0), *[write(meta) for meta in call.outputs]),
            flops={"int": 40.0 * elements},
            blocks=rows,
            threads=1024,
            blocks_per_sm=2,
            bytes_in_flight=8.0,
            reuse_window=source.shape[-1] * source.itemsize * 2.0 * call.spec.sm_count,
        ),
        streaming("sort", [read(meta) for meta in call.outputs], float(call.outputs[0].elements), {}),
    ]


def resample(call: Call) -> list[KernelWork]:
    """Interpolation and grid sampling: a thread an output, a few taps each."""
    source, out = call.inputs[0], call.outputs[0]
    taps = 1.0 if "nearest" in call.base else (16.0 if "bicubic" in call.base else 4.0)
    flops = {"fp32": out.elements * 4.0 * taps, "int": out.elements * (20.0 + 4.0 * taps)}
    return [streaming(call.base, [read(source), write(out)], float(out.elements), flops, 0.8)]


def loss(call: Call) -> list[KernelWork]:
    """An element-wise pass into a temporary (or straight out, unreduced), then a reduction of it."""
    source = call.inputs[0]
    elements = float(source.elements)
    inputs = [read(meta) for meta in call.inputs]
    if call.outputs[0].elements == source.elements:
        return [streaming(call.base, [*inputs, write(call.outputs[0])], elements, {"fp32": 8.0 * elements})]
    temporary = streaming(call.base, [*inputs, scratch(source.nbytes, write=True)], elements, {"fp32": 8.0 * elements})
    total = KernelWork(
        "sum",
        (scratch(source.nbytes), write(call.outputs[0])),
        flops={"fp32": 2.0 * elements},
        blocks=max(1.0, min(4.0 * call.spec.sm_count, elements / 8192)),
        threads=512,
        blocks_per_sm=4,
        bytes_in_flight=16.0,
    )
    return [temporary, total]


def nll(call: Call) -> list[KernelWork]:
    """One element a row, chosen by its target, summed by a single warp that has a few rows in flight."""
    source, target = call.inputs[0], call.inputs[1]
    rows = float(target.elements)
    touched = Access(source.storage, min(float(source.nbytes), rows * SECTOR_BYTES))
    return [
        KernelWork(
            call.base,
            (touched, read(target), write(call.outputs[0])),
            flops={"fp32": 4.0 * rows},
            blocks=1.0,
            threads=32,
            blocks_per_sm=1,
            bytes_in_flight=SECTOR_BYTES * 4.0,
        )
    ]
