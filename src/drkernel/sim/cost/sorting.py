"""Sorts and selections: radix passes over keys, or a block that sorts a row in shared memory."""

from __future__ import annotations

import math

from drkernel.sim.cost.call import MetaCall, read, scratch, write
from drkernel.sim.cost.pointwise import streaming
from drkernel.sim.cost.records import TensorMeta
from drkernel.sim.cost.roofline import Access, Grid, KernelWork
from drkernel.sim.spec import GPUSpec

DIGIT_BYTES = 1
"""A radix pass sorts by eight bits."""
BLOCK_SORT = 4096
"""Rows up to this many elements are sorted by one block."""
MULTI_BLOCK_SELECT = 20_000
"""Rows from this many elements on are searched for their k largest by many blocks, where there are few rows."""
FEW_ROWS = 20
MODE_IN_BLOCK = 2048
"""Rows up to this many elements have their mode found by one block; longer ones are sorted one after another."""
MODE_KERNELS = 10


def sort(call: MetaCall) -> list[KernelWork]:
    """Segmented radix sort of keys and 64-bit positions: a histogram, then a read and a write a pass."""
    source = call.inputs[0]
    dim = source.shape[call.axis(source)] if source.shape else 1
    accesses = [read(source), *[write(meta) for meta in call.outputs]]
    return _sorted(call.base, call.spec, source, dim, accesses)


def _sorted(name: str, spec: GPUSpec, source: TensorMeta, dim: int, accesses: list[Access]) -> list[KernelWork]:
    elements = float(source.elements)
    if dim <= BLOCK_SORT:
        steps = math.log2(max(2, dim)) ** 2 / 2
        return [streaming(name, accesses, elements, {"int": elements * 8.0 * steps}, 0.8)]
    first = streaming(name, accesses, elements, {"int": 20.0 * elements}, 0.8)
    return [first, *radix_sort(spec, elements, source.itemsize, None)]


def radix_sort(spec: GPUSpec, elements: float, itemsize: int, keys: int | None) -> list[KernelWork]:
    """The passes of a device-wide radix sort of pairs (key, 64-bit position); ``keys`` is where the keys come from."""
    pair = elements * (itemsize + 8.0)
    work = []
    if keys is not None:
        histogram = [Access(keys, elements * itemsize)]
        work.append(streaming("histogram", histogram, elements, {"int": 20.0 * elements}, 0.8))
    for _ in range(itemsize // DIGIT_BYTES):
        moved = [scratch(pair), scratch(pair, write=True)]
        work.append(streaming("radix", moved, elements, {"int": 30.0 * elements}, 0.7))
    return work


def topk(call: MetaCall) -> list[KernelWork]:
    """Radix select: a few passes over the row, then a sort of the k winners."""
    select = _select(call, call.inputs[0])
    winners = call.outputs[0]
    per_row = max(2, winners.shape[call.axis(winners)] if winners.shape else 1)
    steps = math.log2(per_row) ** 2 / 2
    sorted_ = streaming(
        "sort",
        [read(meta) for meta in call.outputs],
        float(winners.elements),
        {"int": 8.0 * steps * winners.elements},
    )
    return [select, sorted_]


def kthvalue(call: MetaCall) -> list[KernelWork]:
    """``kthvalue``, ``median`` along a dimension: a radix select by one block a row."""
    return [_select(call, call.inputs[0], one_block=True)]


def median(call: MetaCall) -> list[KernelWork]:
    """``median`` of everything sorts it; along a dimension it selects."""
    source = call.inputs[0]
    if len(call.outputs) > 1:
        return kthvalue(call)
    accesses = [read(source), scratch(float(source.nbytes), write=True), scratch(8.0 * source.elements, write=True)]
    pick = KernelWork("pick", (scratch(32.0), *[write(meta) for meta in call.outputs]), blocks=1.0)
    return [*_sorted(call.base, call.spec, source, source.elements, accesses), pick]


def _select(call: MetaCall, source: TensorMeta, *, one_block: bool = False) -> KernelWork:
    elements = float(source.elements)
    dim = max(1, source.shape[call.axis(source)] if source.shape else 1)
    rows = max(1.0, elements / dim)
    many = not one_block and dim >= MULTI_BLOCK_SELECT and rows <= FEW_ROWS
    return KernelWork(
        call.base,
        (read(source, 5.0), *[write(meta) for meta in call.outputs]),
        {"int": 40.0 * elements},
        max(rows, min(elements / 4096, 8.0 * call.spec.sm_count)) if many else rows,
        Grid(1024 if not many else 256, 2 if not many else 8, 8.0),
        reuse_window=dim * source.itemsize * 2.0 * call.spec.sm_count,
        fixed_kernels=5 if many else 1,
    )


def mode(call: MetaCall) -> list[KernelWork]:
    """A block a short row; long rows one after another, each sorted and reduced by key."""
    source = call.inputs[0]
    dim = max(1, source.shape[call.axis(source)] if source.shape else 1)
    rows = max(1, source.elements // dim)
    accesses = [read(source), *[write(meta) for meta in call.outputs]]
    steps = math.log2(max(2, dim)) ** 2 / 2
    elements = float(source.elements)
    if dim <= MODE_IN_BLOCK:
        return [streaming(call.base, accesses, elements, {"int": elements * 12.0 * steps}, 0.8)]
    first = streaming(call.base, accesses, elements, {"int": 20.0 * elements}, 0.8)
    per_row = MODE_KERNELS * (call.spec.kernel_min + call.spec.dram_latency)
    chain = KernelWork("rows", (scratch(1.0),), serial_seconds=rows * per_row)
    return [first, *radix_sort(call.spec, elements, source.itemsize, None), chain]


def unique(call: MetaCall) -> list[KernelWork]:
    """``unique`` sorts, marks where values change, counts the marks and gathers; the host waits for the count."""
    source = call.inputs[0]
    elements = float(source.elements)
    work: list[KernelWork] = []
    if call.base != "unique_consecutive":
        work += radix_sort(call.spec, elements, source.itemsize, source.storage)
    passes = 2 + call.flag("return_inverse") * 2 + call.flag("return_counts")
    marks = scratch(8.0 * elements, write=True)
    work += [streaming(call.base, [read(source), marks], elements, {"int": 10.0 * elements}) for _ in range(passes)]
    return [*work, streaming("gather", [*map(write, call.outputs)], elements, {})]
