"""Losses: element-wise passes and, where they reduce, PyTorch's reduction over many blocks."""

from __future__ import annotations

import math
from dataclasses import replace

from drkernel.sim.cost.call import MetaCall, read, scratch, write
from drkernel.sim.cost.pointwise import BROADCAST_EFFICIENCY, streaming
from drkernel.sim.cost.records import TensorMeta
from drkernel.sim.cost.reduction import reduce
from drkernel.sim.cost.roofline import Access, Grid, KernelWork

SECTOR_BYTES = 32
SHARED_SUM_CYCLES = 30.0
"""A number from shared memory, added to the sum of those before."""


def loss(call: MetaCall) -> list[KernelWork]:
    """An element-wise pass into a temporary (or straight out, unreduced), then a reduction of it."""
    source = call.inputs[0]
    elements = float(source.elements)
    inputs = [read(meta) for meta in call.inputs]
    flops = {"fp32": (16.0 if "entropy" in call.base else 8.0) * elements}
    if "entropy" in call.base:
        flops["sfu"] = 2.0 * elements
    if not reduces(call):
        return [streaming(call.base, [*inputs, write(call.outputs[0])], elements, flops)]
    return [
        streaming(call.base, [*inputs, scratch(source.nbytes, write=True)], elements, flops),
        *total_of(call, source),
    ]


def reduces(call: MetaCall) -> bool:
    """Whether a loss gives one number (its default) rather than one an element."""
    return int(call.number("reduction", 1)) != 0


def total_of(call: MetaCall, source: TensorMeta) -> list[KernelWork]:
    """The sum or mean of a temporary that has the form of ``source``: as ``sum`` reduces anything else."""
    total = reduce(replace(call, base="sum", inputs=(source,), outputs=call.outputs[:1]))
    return [replace(work, accesses=(scratch(source.nbytes), write(call.outputs[0]))) for work in total]


def _temporary(name: str, source: TensorMeta, extra: list[Access], instructions: float, sfu: float = 0) -> KernelWork:
    """One pass over a temporary, in place, and what else it reads."""
    elements = float(source.elements)
    flops = {"fp32": instructions * elements, "sfu": sfu * elements}
    moved = [scratch(source.nbytes), *extra, scratch(source.nbytes, write=True)]
    return streaming(name, moved, elements, flops)


def bce_with_logits(call: MetaCall) -> list[KernelWork]:
    """As ATen composes it: the log of a sigmoid, ``1 - target``, a product, a difference, then the reduction."""
    source, target = call.inputs[:2]
    made = scratch(source.nbytes, write=True)
    elements = float(source.elements)
    work = [
        streaming("log_sigmoid", [read(source), made], elements, {"fp32": 20.0 * elements, "sfu": 2.0 * elements}),
        streaming("rsub", [read(target), made], elements, {"fp32": 2.0 * elements}),
        _temporary("mul", source, [read(source)], 2.0),
        _temporary("sub", source, [scratch(source.nbytes)], 2.0),
    ]
    for weight in call.inputs[2:]:  # broadcast factors
        work.append(replace(_temporary("mul", source, [read(weight)], 10.0), memory_efficiency=BROADCAST_EFFICIENCY))
    if reduces(call):
        return [*work, *total_of(call, source)]
    last = work[-1]
    return [*work[:-1], replace(last, accesses=(*last.accesses[:-1], write(call.outputs[0])))]


def soft_margin(call: MetaCall) -> list[KernelWork]:
    """As ATen composes it: a negation, a product, an exponential, a logarithm, then the reduction."""
    source, target = call.inputs[:2]
    work = [
        streaming("neg", [read(source), scratch(source.nbytes, write=True)], float(source.elements), {}),
        _temporary("mul", source, [read(target)], 2.0),
        _temporary("exp", source, [], 4.0, 1.0),
        _temporary("log1p", source, [], 14.0, 1.0),
    ]
    if reduces(call):
        return [*work, *total_of(call, source)]
    return [*work[:-1], replace(work[-1], accesses=(scratch(source.nbytes), write(call.outputs[0])))]


def margin_loss(call: MetaCall) -> list[KernelWork]:
    """``multi_margin_loss`` and ``multilabel_margin_loss``: a block of 128 threads a sample, then a sum of them."""
    source = call.inputs[0]
    classes = source.shape[-1] if source.shape else 1
    samples = max(1.0, source.elements / max(1, classes))
    # a multi-label sample compares every class with every target: at least its own share of both
    pairs = float(source.elements) * (4.0 if call.base.startswith("multilabel") else 1.0)
    block = KernelWork(
        call.base,
        (*[read(meta) for meta in call.inputs], *[write(meta) for meta in call.outputs]),
        {"fp32": 12.0 * pairs},
        samples,
        Grid(128, 16, 8.0),
    )
    if not reduces(call):
        return [block]
    per_sample = replace(source, shape=(int(samples),), stride=(1,), storage=-2)
    return [block, *total_of(call, per_sample)]


def distance(call: MetaCall) -> list[KernelWork]:
    """``dist``: the difference into a temporary, then its norm."""
    source = call.inputs[0] if call.inputs[0].elements >= call.inputs[1].elements else call.inputs[1]
    made = [*[read(meta) for meta in call.inputs[:2]], scratch(source.nbytes, write=True)]
    return [streaming("sub", made, float(source.elements), {"fp32": 2.0 * source.elements}), *total_of(call, source)]


def trace(call: MetaCall) -> list[KernelWork]:
    """The sum of a diagonal, of which every element is a sector of its own."""
    source = call.inputs[0]
    size = float(min(source.shape)) if source.shape else 1.0
    touched = Access(source.storage, min(float(source.nbytes), size * SECTOR_BYTES))
    copied = streaming("diag", [touched, scratch(size * source.itemsize, write=True)], size, {"int": 8.0 * size})
    diagonal = replace(source, shape=(int(size),), stride=(1,), storage=-2)
    return [copied, *total_of(call, diagonal)]


def nll(call: MetaCall) -> list[KernelWork]:
    """One element a row, chosen by its target; reduced over rows it is summed by one block, whose threads wait for the
    target of a row and then for its element; the first of them adds up what all have.

    Images, and losses that are not reduced, go to a kernel with a thread a place.
    """
    source, target = call.inputs[0], call.inputs[1]
    rows = float(target.elements)
    touched = Access(source.storage, min(float(source.nbytes), rows * SECTOR_BYTES))
    others = [read(meta) for meta in call.inputs[1:]]
    if call.base == "nll_loss2d_forward" or not reduces(call):
        accesses = [touched, *others, *[write(meta) for meta in call.outputs]]
        work = streaming(call.base, accesses, rows, {"int": 16.0 * rows, "fp32": 4.0 * rows}, 0.8)
        atomics = reduces(call) * min(rows / 1024, 4096.0) * call.spec.atomic_same_address
        return [replace(work, atomic_seconds=atomics)]
    threads = min(1024.0, max(32.0, 2.0 ** round(math.log2(max(1.0, rows / 16.0)))))  # as ``NLLLoss.cu`` has it
    chain = rows / threads * (call.spec.l2_latency + call.spec.dram_latency)
    chain += threads * SHARED_SUM_CYCLES / call.spec.clock_hz
    work = streaming(call.base, [touched, *others, *map(write, call.outputs)], rows, {"fp32": 4.0 * rows})
    return [replace(work, blocks=1.0, grid=Grid(int(threads), 1, 64.0), serial_seconds=chain)]


def nll_backward(call: MetaCall) -> list[KernelWork]:
    """A cleared gradient, then one element a row."""
    target, out = call.inputs[2], call.outputs[0]
    rows = float(target.elements)
    clear = streaming("zero", [write(out)], float(out.elements), {})
    touched = Access(out.storage, min(float(out.nbytes), rows * SECTOR_BYTES), write=True)
    return [clear, streaming(call.base, [read(target), touched], rows, {"int": 16.0 * rows}, 0.8)]


CTC_STEP_SECONDS = 1.5e-6
"""A step of the forward variables: a barrier, a few dependent loads and three exponentials."""


def ctc(call: MetaCall) -> list[KernelWork]:
    """The forward variables: steps in time one after another, a block over targets of one sample each."""
    log_probs, alphas = call.inputs[0], call.outputs[-1]
    steps = log_probs.shape[0] if log_probs.shape else 1
    states = float(alphas.elements)
    touched = Access(log_probs.storage, min(float(log_probs.nbytes), states * SECTOR_BYTES))
    targets = [read(meta) for meta in call.inputs[1:]]
    return [
        streaming("fill", [write(alphas)], states, {}),
        KernelWork(
            call.base,
            (touched, *targets, *[write(meta) for meta in call.outputs]),
            {"fp32": 30.0 * states, "sfu": 4.0 * states},
            max(1.0, float(log_probs.shape[1] if len(log_probs.shape) > 2 else 1)),
            Grid(256, 4, 16.0),
            serial_seconds=steps * CTC_STEP_SECONDS,
        ),
    ]
