"""Operators whose addresses or order are data: sorts, gathers, scatters, embeddings."""

import math
from collections.abc import Sequence
from dataclasses import replace

from drkernel.sim.cost.pointwise import copied, fill, pointwise, streaming
from drkernel.sim.cost.records import (
    SECTOR_BYTES,
    Access,
    Grid,
    KernelWork,
    MetaCall,
    TensorMeta,
    Unpriced,
    read,
    scratch,
    write,
)
from drkernel.sim.cost.roofline import scattered_updates
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
        "sort", [read(meta) for meta in call.outputs], float(winners.elements), {"int": 8.0 * steps * winners.elements}
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


INDEX_TYPES = ("int64", "int32", "bool", "uint8")
SMALL_EMBEDDING = 3072
"""Up to this many indices the gradient of an embedding is accumulated in one pass, without sorting them."""


# ---- gathers


def gather(call: MetaCall) -> list[KernelWork]:
    """``embedding``, ``index_select``, ``gather``, ``index``, ``take``: reads whole sectors where rows are short."""
    source, out = call.inputs[0], call.outputs[0]
    masks = [meta for meta in call.inputs[1:] if meta.dtype in ("bool", "uint8")]
    return [*_positions(masks), _moved(call, _sparse(source, out), [write(out)], float(out.elements))]


def masked_select(call: MetaCall) -> list[KernelWork]:
    """The positions of the mask's true elements, then a gather."""
    source, mask, out = call.inputs[0], call.inputs[1], call.outputs[0]
    indices = [scratch(8.0 * out.elements), write(out)]
    touched = read(source, nbytes=min(float(source.nbytes), SECTOR_BYTES * float(out.elements)))
    work = streaming(call.base, [touched, *indices], float(out.elements), {"int": 16.0 * out.elements}, 0.8)
    return [*_positions([mask]), work]


def nonzero(call: MetaCall) -> list[KernelWork]:
    """A count, a compaction, and positions unfolded to one index a dimension. (The host waits for the count.)"""
    source, out = call.inputs[0], call.outputs[0]
    unfold = streaming(call.base, [read(out), write(out)], float(out.elements), {"int": 40.0 * out.elements})
    return [*_positions([source]), unfold]


def _positions(masks: list[TensorMeta]) -> list[KernelWork]:
    """For each mask a count and a compaction of its true positions."""
    work = []
    for mask in masks:
        elements = float(mask.elements)
        work.append(streaming("count", [read(mask)], elements, {"int": 4.0 * elements}, 0.9))
        compacted = [read(mask), scratch(8.0 * elements / 2, write=True)]
        work.append(streaming("compact", compacted, elements, {"int": 16.0 * elements}, 0.85))
    return work


def _sparse(source: TensorMeta, out: TensorMeta) -> Access:
    """Reads of scattered elements or rows of ``source``: sectors of 32 bytes, no more than the whole of it uniquely."""
    row = (
        source.shape[-1] * source.itemsize
        if source.shape and out.shape and source.shape[-1:] == out.shape[-1:]
        else source.itemsize
    )
    sectors = out.elements * out.itemsize * max(1.0, SECTOR_BYTES / max(row, 1))
    return replace(read(source), nbytes=min(float(source.nbytes), sectors), requested=sectors)


def _moved(call: MetaCall, sparse: Access, others: list[Access], elements: float) -> KernelWork:
    indices = [read(meta) for meta in call.inputs[1:] if meta.dtype in INDEX_TYPES]
    return streaming(call.base, [sparse, *indices, *others], elements, {"int": 16.0 * elements}, 0.8)


def embedding_bag(call: MetaCall) -> list[KernelWork]:
    """Which bag each index is in, then a block a bag that gathers and reduces its rows."""
    weight, indices, outputs = call.inputs[0], call.inputs[1], call.outputs
    width = weight.shape[-1] if weight.shape else 1
    gathered = float(indices.elements) * width
    touched = min(float(weight.nbytes), gathered * weight.itemsize)
    rows = replace(read(weight), nbytes=touched, requested=gathered * 4.0)
    if weight.itemsize != 4:
        rows = replace(rows, requested=gathered * weight.itemsize)
    small = [read(meta) for meta in call.inputs[1:]]
    bags = streaming("offset2bag", [*small, scratch(8.0 * indices.elements, write=True)], float(indices.elements), {})
    reduce_ = KernelWork(
        call.base,
        (rows, *small, *[write(meta) for meta in outputs]),
        {"fp32": 3.0 * gathered, "int": 6.0 * gathered},
        max(1.0, outputs[0].elements / 256),
        Grid(256, 8, 16.0),
        memory_efficiency=0.85,
    )
    return [bags, reduce_]


def embedding_backward(call: MetaCall) -> list[KernelWork]:
    """The gradient of the table: cleared whole, then rows added, by sorted indices where there are many."""
    gradient, indices, out = call.inputs[0], call.inputs[1], call.outputs[0]
    elements = float(gradient.elements)
    touched = min(float(out.nbytes), float(gradient.nbytes))
    accesses = [read(gradient), read(indices), read(out, nbytes=touched), write(out, touched)]
    add = streaming(call.base, accesses, elements, {"fp32": 2 * elements, "int": 10 * elements}, 0.8)
    work = fill(replace(call, base="zero", inputs=()))
    if indices.elements <= SMALL_EMBEDDING:
        return [*work, add]
    partial = scratch(float(gradient.nbytes), write=True)
    segments = streaming("partial_sums", [read(gradient), partial], elements, {"fp32": 3 * elements}, 0.8)
    merge = [scratch(float(gradient.nbytes)), write(out, touched)]
    return [
        *work,
        *radix_sort(call.spec, float(indices.elements), 8, indices.storage),
        *_segments(float(indices.elements)),
        segments,
        streaming(call.base, merge, elements, {"fp32": 2 * elements}, 0.8),
    ]


def _segments(count: float) -> list[KernelWork]:
    """Where runs of equal indices start: a difference, a scan and a compaction."""
    keys, marks = scratch(8.0 * count), scratch(8.0 * count, write=True)
    return [streaming("segments", [keys, marks], count, {"int": 8.0 * count}) for _ in range(3)]


# ---- scatters


def scatter(call: MetaCall) -> list[KernelWork]:
    """``scatter``, ``index_put``, ``index_add``: a copy of the target unless in place, then sparse writes."""
    target, out = call.inputs[0], call.outputs[0] if call.outputs else call.inputs[0]
    if call.base in ("index_put", "_index_put_impl") and not call.flag("accumulate") and fills_by_mask(call.inputs):
        return pointwise(replace(call, base="masked_fill", inputs=(target, *call.inputs[1:-1]), outputs=(out,)))
    source = _source(call)
    masks = [meta for meta in call.inputs[1:-1] if meta.dtype in ("bool", "uint8")]
    work = [*copied(target, out), *_positions(masks)]
    updates = _updates(call, target, source)
    if call.base in ("index_put", "_index_put_impl") and call.flag("accumulate"):
        return [*work, *_accumulate(call, out, source, updates)]
    others = [] if source is None else [read(source)]
    if adds(call):
        access, busiest = scattered_updates(out, updates, call.spec)
        moved = _moved(call, access, others, updates)
        return [*work, replace(moved, atomic_seconds=busiest)]
    touched = min(float(out.nbytes), updates * max(float(SECTOR_BYTES), float(out.itemsize)))
    sparse = write(out, touched)
    return [*work, _moved(call, read(out, nbytes=touched), [*others, sparse], updates)]


def fills_by_mask(inputs: Sequence[TensorMeta]) -> bool:
    """Whether ``x[mask] = value`` has a mask of x's form and one value: PyTorch runs ``masked_fill`` for it."""
    return len(inputs) == 3 and inputs[1].dtype == "bool" and inputs[1].shape == inputs[0].shape and not inputs[2].shape


def adds(call: MetaCall) -> bool:
    """Whether elements that meet at one place are combined, which takes atomics."""
    return call.base in ("scatter_add", "index_add", "scatter_reduce", "index_reduce") or (
        call.base == "scatter" and "reduce" in call.overload
    )


def _source(call: MetaCall) -> TensorMeta | None:
    """The tensor whose elements are written; None for a scalar."""
    last = call.inputs[-1] if len(call.inputs) > 1 else None
    scalar = call.overload in ("value", "value_reduce", "int_Scalar") or call.base == "index_fill"
    return None if scalar else last


def _updates(call: MetaCall, target: TensorMeta, source: TensorMeta | None) -> float:
    """Elements written."""
    indices = [meta for meta in call.inputs[1:] if meta.dtype in INDEX_TYPES and meta is not source]
    if call.base in ("index_put", "_index_put_impl"):
        count = max((float(meta.elements) for meta in indices), default=1.0)
        tail = target.shape[len(indices) :] if all(meta.dtype != "bool" for meta in indices) else ()
        for size in tail:
            count *= size
        return min(max(count, float(source.elements) if source else 0.0), 4.0 * max(1.0, count))
    if call.base == "index_fill":
        rows = float(indices[0].elements) if indices else 1.0
        return rows * target.elements / max(1, target.shape[call.axis(target)] if target.shape else 1)
    if source is not None and call.base in ("index_add", "index_copy", "index_reduce"):
        return float(source.elements)
    return float(max((meta.elements for meta in indices), default=source.elements if source else 1))


def _accumulate(call: MetaCall, out: TensorMeta, source: TensorMeta | None, updates: float) -> list[KernelWork]:
    """``index_put(accumulate=True)``: linear indices, a sort of them, then rows added one after another."""
    rows = max((float(meta.elements) for meta in call.inputs[1:] if meta.dtype in INDEX_TYPES), default=1.0)
    indices = [read(meta) for meta in call.inputs[1:] if meta.dtype in INDEX_TYPES]
    linear = streaming("linear_index", [*indices, scratch(8.0 * rows, write=True)], rows, {"int": 20.0 * rows})
    touched = min(float(out.nbytes), updates * out.itemsize)
    accesses = [read(out, nbytes=touched), write(out, touched)]
    if source is not None:
        accesses.append(read(source))
    add = streaming(call.base, accesses, updates, {"fp32": 2 * updates, "int": 10 * updates}, 0.8)
    longest = updates / max(1.0, float(out.elements)) * call.spec.l2_latency  # a warp adds equal indices one by one
    return [linear, *radix_sort(call.spec, rows, 8, -5), replace(add, serial_seconds=longest)]


def masked_scatter(call: MetaCall) -> list[KernelWork]:
    """A running count of the mask, then each true place takes its element."""
    target, mask, source = call.inputs[:3]
    out = call.outputs[0] if call.outputs else target
    elements = float(mask.elements)
    work = copied(target, out)
    work.append(streaming("scan", [read(mask), scratch(8.0 * elements, write=True)], elements, {"int": 10 * elements}))
    part = [write(out), read(source), read(mask), scratch(8.0 * elements)]
    return [*work, streaming(call.base, part, elements, {"int": 10.0 * elements}, 0.8)]


def put(call: MetaCall) -> list[KernelWork]:
    """``put``: flat places; with ``accumulate`` as ``index_put`` has it."""
    if call.flag("accumulate"):
        raise Unpriced("put with accumulate=True")
    return scatter(call)


def counts(call: MetaCall) -> list[KernelWork]:
    """``histc`` and ``bincount``: the range by a reduction where it is not given, then atomics into shared memory."""
    source, out = call.inputs[0], call.outputs[0]
    elements = float(source.elements)
    work = fill(replace(call, base="zero", inputs=()))
    given = call.base == "histc" and call.number("min", 0) != call.number("max", 0)
    if not given:
        work.append(streaming("aminmax", [read(source)], elements, {"fp32": 6.0 * elements}, 0.95))
    blocks = max(1.0, min(8.0 * call.spec.sm_count, elements / 4096))
    merged = out.elements * blocks
    contended = elements / blocks / max(1.0, float(out.elements)) * call.spec.atomic_same_address
    return [
        *work,
        KernelWork(
            call.base,
            (*[read(meta) for meta in call.inputs], write(out)),
            {"int": 24.0 * elements + 4.0 * merged},
            blocks,
            Grid(512, 4, 16.0),
            memory_efficiency=0.85,
            atomic_seconds=contended + blocks * call.spec.atomic_same_address,
        ),
    ]


def search(call: MetaCall) -> list[KernelWork]:
    """``searchsorted`` and ``bucketize``: a thread a value, which halves the boundaries until it is there."""
    out = call.outputs[0]
    boundaries = call.inputs[0] if call.base == "searchsorted" else call.inputs[-1]
    row = boundaries.shape[-1] if boundaries.shape else 1
    steps = max(1.0, float(max(2, row).bit_length()))
    elements = float(out.elements)
    work = streaming(call.base, [*map(read, call.inputs), write(out)], elements, {"int": 12.0 * steps * elements}, 0.8)
    return [replace(work, serial_seconds=steps * call.spec.l2_latency, grid=work.grid._replace(ahead=8.0))]
