"""Operators whose addresses come from a tensor: gathers, scatters, selections, embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from drkernel.sim.cost.call import MetaCall, Unpriced, read, scratch, write
from drkernel.sim.cost.contention import scattered_updates
from drkernel.sim.cost.pointwise import fill, pointwise, streaming
from drkernel.sim.cost.records import TensorMeta
from drkernel.sim.cost.roofline import Access, Grid, KernelWork
from drkernel.sim.cost.sorting import radix_sort

SECTOR_BYTES = 32
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
    touched = Access(source.storage, min(float(source.nbytes), SECTOR_BYTES * float(out.elements)))
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
    return Access(source.storage, min(float(source.nbytes), sectors), requested=sectors)


def _moved(call: MetaCall, sparse: Access, others: list[Access], elements: float) -> KernelWork:
    indices = [read(meta) for meta in call.inputs[1:] if meta.dtype in INDEX_TYPES]
    return streaming(call.base, [sparse, *indices, *others], elements, {"int": 16.0 * elements}, 0.8)


def embedding_bag(call: MetaCall) -> list[KernelWork]:
    """Which bag each index is in, then a block a bag that gathers and reduces its rows."""
    weight, indices, outputs = call.inputs[0], call.inputs[1], call.outputs
    width = weight.shape[-1] if weight.shape else 1
    gathered = float(indices.elements) * width
    rows = Access(weight.storage, min(float(weight.nbytes), gathered * weight.itemsize), requested=gathered * 4.0)
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
    accesses = [read(gradient), read(indices), Access(out.storage, touched), Access(out.storage, touched, write=True)]
    add = streaming(call.base, accesses, elements, {"fp32": 2 * elements, "int": 10 * elements}, 0.8)
    work = fill(replace(call, base="zero", inputs=()))
    if indices.elements <= SMALL_EMBEDDING:
        return [*work, add]
    partial = scratch(float(gradient.nbytes), write=True)
    segments = streaming("partial_sums", [read(gradient), partial], elements, {"fp32": 3 * elements}, 0.8)
    merge = [scratch(float(gradient.nbytes)), Access(out.storage, touched, write=True)]
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
    work: list[KernelWork] = []
    if out.storage != target.storage:
        work.append(streaming("copy", [read(target), write(out)], float(out.elements), {}))
    work += _positions(masks)
    updates = _updates(call, target, source)
    if call.base in ("index_put", "_index_put_impl") and call.flag("accumulate"):
        return [*work, *_accumulate(call, out, source, updates)]
    others = [] if source is None else [read(source)]
    if adds(call):
        access, busiest = scattered_updates(out, updates, call.spec)
        moved = _moved(call, access, others, updates)
        return [*work, replace(moved, atomic_seconds=busiest)]
    touched = min(float(out.nbytes), updates * max(float(SECTOR_BYTES), float(out.itemsize)))
    sparse = Access(out.storage, touched, write=True)
    return [*work, _moved(call, Access(out.storage, touched), [*others, sparse], updates)]


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
    accesses = [Access(out.storage, touched), Access(out.storage, touched, write=True)]
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
    work: list[KernelWork] = []
    if out.storage != target.storage:
        work.append(streaming("copy", [read(target), write(out)], float(out.elements), {}))
    work.append(streaming("scan", [read(mask), scratch(8.0 * elements, write=True)], elements, {"int": 10 * elements}))
    part = [Access(out.storage, float(out.nbytes), write=True), read(source), read(mask), scratch(8.0 * elements)]
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
