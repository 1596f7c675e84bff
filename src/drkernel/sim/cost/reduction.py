"""Reductions, softmax, normalisations and scans: few passes over memory, sometimes few blocks."""

import math
from dataclasses import replace

from drkernel.sim.cost.pointwise import BROADCAST_EFFICIENCY, streaming
from drkernel.sim.cost.records import SECTOR_BYTES, Access, Grid, KernelWork, MetaCall, TensorMeta, read, scratch, write

REDUCE_EFFICIENCY = 0.95
ARG_REDUCE_EFFICIENCY = 0.90
SCAN_EFFICIENCY = 0.61
"""PyTorch's scan loads a row tile into shared memory, synchronises, scans and stores, without overlap of the two."""
WELFORD_INSTRUCTIONS = 66.0
"""Instructions per element of a running mean and variance: a division, its reciprocal chain and the loop around it."""
LAYER_NORM_INSTRUCTIONS = 20.0
"""The same in the row kernel of layer norm, which takes four elements at a time, and its second pass."""
RMS_NORM_INSTRUCTIONS = 6.0
"""A square and a sum, then two products, with conversions: no running moments."""
MOMENTS_OVERLAP = 0.5
"""A row's moments are merged behind a barrier before its second pass begins: some of a block's arithmetic hides nothing
(Liger-Kernel's published rows of PyTorch's layer norm, H100)."""
ROW_INSTRUCTIONS = 300.0
"""Instructions of each thread for a row of its own block: merging moments by shuffles, then through shared memory."""
BLOCK_SUMS_CYCLES = 1520.0
"""Of a block that sums two values a row: 700 to begin and end, and twice ten shuffles and two barriers."""
SOFTMAX_SMEM_BYTES = 48 * 1024
"""Rows up to this size are kept in shared memory by the softmax kernel; longer ones are read three times."""
WARP_SOFTMAX = 1024
"""Rows up to this many elements live in the registers of one warp."""

REDUCE_THREADS = 512
"""Threads of a block of PyTorch's reduction, over the outputs that one takes at a time where it runs along rows."""
SPLIT_ABOVE, LEAST_SPLIT = 256, 16
"""Elements a thread from which one output is divided over blocks, and that each thread of them has at least."""
MERGE_CYCLES = 3300.0
"""From a block's last element to its result: shuffles, then shared memory and a barrier for every halving of 16 warps.
TritonBench's published rows of ``mean`` on A100, of which 4,096 elements take 3 us more than an element-wise pass."""
PAIR_INSTRUCTIONS, PAIR_SHARE = 16.0, 0.7
"""Where the place is wanted, too: instructions of an element, and the share of loads that then are outstanding (the
same source's ``argmax``)."""


def reduce(call: MetaCall) -> list[KernelWork]:
    """``sum``, ``mean``, ``max``, ``norm``, ``argmax``, ...: one pass, plus a second stage when outputs are few."""
    source, outputs = call.inputs[0], call.outputs
    elements, results = float(source.elements), max(1.0, float(outputs[0].elements))
    arg = any(meta.dtype == "int64" for meta in outputs) and source.dtype != "int64"
    efficiency = ARG_REDUCE_EFFICIENCY if arg else REDUCE_EFFICIENCY
    if not source.is_dense:
        efficiency *= BROADCAST_EFFICIENCY
    variance = call.base in ("var", "std", "var_mean", "std_mean")
    per_element = WELFORD_INSTRUCTIONS if variance else (PAIR_INSTRUCTIONS if arg else 3.0)
    blocks, grid, split = _division(call, results, max(1.0, elements / results))
    if arg:
        grid = grid._replace(ahead=grid.ahead * PAIR_SHARE)
    merge = MERGE_CYCLES / call.spec.clock_hz * (2.0 if arg else 1.0)
    return [
        KernelWork(
            call.base,
            (read(source), *[write(meta) for meta in outputs]),
            {"fp32": elements * per_element},
            blocks,
            grid,
            memory_efficiency=efficiency,
            # of a divided output the blocks' counters are cleared first, and the last block reads what the others wrote
            serial_seconds=merge + (2.0 * call.spec.dram_latency if split else 0.0),
            fixed_kernels=2 if split else 1,
        )
    ]


def _division(call: MetaCall, results: float, depth: float) -> tuple[float, Grid, bool]:
    """Blocks, what one is, and whether an output is divided over several: the rules of PyTorch's ``Reduce.cuh``."""
    source = call.inputs[0]
    axes = call.numbers("dim") or []
    along = not axes or any(source.stride[axis] == 1 for axis in axes if -len(source.shape) <= axis < len(source.shape))
    if along:  # a warp or more along each row, four elements a load
        rows = min(16.0, 2.0 ** math.floor(math.log2(results)))
        grid = Grid(REDUCE_THREADS, 4, 4.0 * source.itemsize)
        if depth * rows / REDUCE_THREADS >= min(SPLIT_ABOVE, 16.0 * rows):
            rows = 1.0
    else:  # four outputs a thread, four of their rows at a time
        rows, grid = 128.0, Grid(128, 16, 16.0 * source.itemsize)
    each = depth * rows / REDUCE_THREADS
    blocks = max(1.0, results / rows)
    most = call.spec.sm_count * call.spec.max_threads_per_sm / grid.threads
    if each < SPLIT_ABOVE or blocks > most:
        return blocks, grid, False
    parts = max(min(math.ceil(most / blocks), math.ceil(each / LEAST_SPLIT)), math.ceil(each / SPLIT_ABOVE))
    return blocks * parts, grid, parts > 1


def logsumexp(call: MetaCall) -> list[KernelWork]:
    """As ATen composes it: a maximum, a difference, its exponential in place, a sum, then small operators."""
    source, out = call.inputs[0], call.outputs[0]
    elements = float(source.elements)
    difference = scratch(source.nbytes, write=True)
    small = streaming(call.base, [read(out), write(out)], float(out.elements), {"fp32": 10.0 * out.elements})
    maximum, total = (reduce(replace(call, base=name))[0] for name in ("amax", "sum"))
    return [
        maximum,
        streaming("sub", [read(source), difference], elements, {"int": 8.0 * elements}, BROADCAST_EFFICIENCY),
        streaming("exp", [scratch(source.nbytes), difference], elements, {"fp32": 4.0 * elements, "sfu": elements}),
        replace(total, accesses=(scratch(source.nbytes), write(out))),
        *[small] * 5,
    ]


def softmax(call: MetaCall) -> list[KernelWork]:
    """One kernel: in registers (short rows), shared memory (middling rows) or three reads (long or strided rows)."""
    source, out = call.inputs[0], call.outputs[0]
    axis = call.axis(source)
    dim = source.shape[axis] if source.shape else 1
    rows = source.elements / max(dim, 1)
    inner = math.prod(source.shape[axis + 1 :]) if source.shape else 1
    elements = float(source.elements)
    flops = {"fp32": 10.0 * elements, "sfu": 2.0 * elements}
    if inner > 1:
        return [_spatial_softmax(call, source, out, dim, inner, flops)]
    if dim <= WARP_SOFTMAX:  # a warp a row (two short ones), every element loaded before the first is used
        rows_per_block = 8 if dim <= 128 else 4
        return [
            KernelWork(
                call.base,
                (read(source), write(out)),
                flops,
                max(1.0, rows / rows_per_block),
                Grid(128, 16, max(4.0, dim * source.itemsize * rows_per_block / 128.0)),
                memory_efficiency=1.0 if dim >= 128 else 0.8,
            )
        ]
    row_bytes = dim * source.itemsize
    passes = 1.0 if row_bytes <= SOFTMAX_SMEM_BYTES else 3.0
    return [
        KernelWork(
            call.base,
            (read(source, passes), write(out)),
            flops,
            max(1.0, rows),
            Grid(1024, 2, 16.0),
            reuse_window=row_bytes * 2.0 * call.spec.sm_count,
        )
    ]


def _spatial_softmax(
    call: MetaCall, source: TensorMeta, out: TensorMeta, dim: int, inner: int, flops: dict[str, float]
) -> KernelWork:
    """Softmax over an outer dimension: threads along the inner one, three strided reads of which L2 keeps what fits."""
    blocks = max(1.0, source.elements / dim / 256)
    window = 256.0 * dim * source.itemsize * min(blocks, 8.0 * call.spec.sm_count)
    return KernelWork(
        call.base,
        (read(source, 3.0), write(out)),
        flops,
        blocks,
        Grid(256, 8, 8.0),
        reuse_window=window,
        memory_efficiency=0.9,
    )


def row_norm(call: MetaCall) -> list[KernelWork]:
    """Layer norm, and the fused kernel of ``F.rms_norm``, which has no moments: one block of four warps a row.

    A pass for statistics, then one that writes (its reads hit when rows are short). Between the two all resident blocks
    read a row and write one.
    """
    moments = call.base == "native_layer_norm"
    instructions = LAYER_NORM_INSTRUCTIONS if moments else RMS_NORM_INSTRUCTIONS
    source, out = call.inputs[0], call.outputs[0]
    rows = max(1.0, float(call.outputs[1].elements)) if len(call.outputs) > 1 else source.elements / source.shape[-1]
    row = source.elements / rows
    others = tuple(read(meta) for meta in call.inputs[1:])
    work = KernelWork(
        call.base,
        (read(source, 2.0), *others, write(out)),
        {"fp32": source.elements * instructions + rows * 128 * ROW_INSTRUCTIONS},
        rows,
        Grid(128, 16, 29.6),
        reuse_window=row * (source.itemsize + out.itemsize) * 16.0 * call.spec.sm_count,
        ilp=0.5,
        overlap=MOMENTS_OVERLAP if moments else 1.0,
    )
    return [work]


def batch_norm(call: MetaCall) -> list[KernelWork]:
    """Training: one block per channel gathers statistics, then an element-wise pass. Evaluation: the latter alone."""
    source, out = call.inputs[0], call.outputs[0]
    channels = source.shape[1] if len(source.shape) > 1 else 1
    training = call.base != "_native_batch_norm_legit_no_training" and call.flag("training", True)
    small = [read(meta) for meta in call.inputs[1:]]
    elements = float(source.elements)
    work: list[KernelWork] = []
    if training:
        work.append(_moments(call.base, source, float(channels)))
    flops = {"fp32": 8.0 * elements, "int": 2.0 * elements}
    apply = streaming(call.base, [read(source), *small, write(out)], elements, flops, 0.95)
    if not training:  # PyTorch's own kernel: a block a channel and sample, whose threads load one element at a time
        blocks = max(1.0, elements / max(1, math.prod(source.shape[2:])))
        apply = replace(apply, blocks=blocks, grid=Grid(512, 4, float(source.itemsize)))
    work.append(apply)
    return work


def _moments(name: str, source: TensorMeta, rows: float) -> KernelWork:
    """A mean-and-variance pass with one block of 512 threads per row or channel (of a warp where rows are shorter).

    Of 16 warps one takes part in the second half of the merging.
    """
    threads = 512 if source.elements >= 512 * rows else 32
    return KernelWork(
        name,
        (read(source), scratch(8.0 * rows, write=True)),
        {"fp32": source.elements * WELFORD_INSTRUCTIONS + rows * threads * ROW_INSTRUCTIONS / 2.0},
        max(1.0, rows),
        Grid(threads, 4, 16.0),
    )


def group_norm(call: MetaCall) -> list[KernelWork]:
    """Statistics per (sample, group), the fused scale and shift per channel, then an element-wise pass."""
    source, out = call.inputs[0], call.outputs[0]
    rows = max(1.0, float(call.outputs[1].elements)) if len(call.outputs) > 1 else float(source.shape[0])
    elements = float(source.elements)
    per_channel = float(source.shape[0] * source.shape[1]) if len(source.shape) > 1 else rows
    apply = streaming(
        call.base,
        [read(source), scratch(8 * per_channel), write(out)],
        elements,
        {"fp32": 4 * elements, "int": 8 * elements},
        BROADCAST_EFFICIENCY,
    )
    fuse = streaming(call.base, [scratch(8 * rows), scratch(8 * per_channel, write=True)], per_channel, {})
    return [_moments(call.base, source, rows), fuse, apply]


def scan(call: MetaCall) -> list[KernelWork]:
    """``cumsum`` and its kin: rows are scanned tile by tile, one or a few rows a block."""
    source, outputs = call.inputs[0], call.outputs
    axis = call.axis(source)
    dim = source.shape[axis] if source.shape else 1
    rows = max(1.0, source.elements / max(dim, 1))
    inner = math.prod(source.shape[axis + 1 :]) if source.shape else 1
    accesses: tuple[Access, ...] = (read(source), *[write(meta) for meta in outputs])
    if rows == 1 and dim > 4096:  # one long row goes to a device-wide scan
        return [streaming(call.base, list(accesses), float(dim), {"fp32": 8.0 * dim}, 0.85)]
    blocks = rows / 512 if inner > 1 else rows / 2
    return [
        KernelWork(
            call.base,
            accesses,
            {"fp32": source.elements * 10.0},
            max(1.0, blocks),
            Grid(512 if inner > 1 else 256, 4, 8.0),
            memory_efficiency=SCAN_EFFICIENCY,
        )
    ]


# ---- gradients


def softmax_backward(call: MetaCall) -> list[KernelWork]:
    """As the forward kernel, with two tensors to read."""
    gradient, output = call.inputs[:2]
    (work, *_) = softmax(replace(call, inputs=(output,)))
    also = [replace(access, storage=gradient.storage) for access in work.accesses if not access.write]
    return [replace(work, accesses=(*also, *work.accesses))]


def norm_backward(call: MetaCall) -> list[KernelWork]:
    """Layer and RMS norm: a block a row for the input's gradient, and column sums of both tensors for the weights'."""
    gradient, source, outputs = call.inputs[0], call.inputs[1], call.outputs
    features = max(1, math.prod(call.numbers("normalized_shape") or source.shape[-1:]))
    rows = max(1.0, source.elements / features)
    small = [read(meta) for meta in call.inputs[2:]]
    same = [meta for meta in outputs if meta.elements == source.elements and meta.shape == source.shape]
    sums = [meta for meta in outputs if meta not in same]
    work: list[KernelWork] = []
    if same:
        work.append(
            KernelWork(
                call.base,
                (read(gradient, 2.0), read(source, 2.0), *small, write(same[0])),
                {"fp32": source.elements * 16.0 + rows * 128 * ROW_INSTRUCTIONS},
                rows,
                Grid(128, 16, 24.0),
                reuse_window=2 * features * source.itemsize * 16.0 * call.spec.sm_count,
                ilp=0.5,
            )
        )
    if sums:
        blocks = max(1.0, min(features / 32 * max(1.0, rows / 512), 8.0 * call.spec.sm_count))
        partial = scratch(8.0 * blocks * 32, write=True)
        accesses = (read(gradient), read(source), *small, partial, *[write(meta) for meta in sums])
        work.append(
            KernelWork(
                "weight_sums",
                accesses,
                {"fp32": source.elements * 8.0},
                blocks,
                Grid(256, 8, 16.0),
                memory_efficiency=0.85,
                fixed_kernels=2,
            )
        )
    return work


def channel_norm_backward(call: MetaCall) -> list[KernelWork]:
    """Batch and group norm: sums of the gradient and of its product with the input, then an element-wise pass."""
    gradient, source, outputs = call.inputs[0], call.inputs[1], call.outputs
    small = [read(meta) for meta in call.inputs[2:]]
    elements = float(source.elements)
    channels = float(source.shape[1]) if len(source.shape) > 1 else 1.0
    rows = channels if "batch" in call.base else channels * source.shape[0]
    grid = Grid(512, 4, 16.0) if elements >= 512 * rows else Grid(32, 32, 16.0)  # a block a row
    alone = call.spec.dram_latency + BLOCK_SUMS_CYCLES / call.spec.clock_hz
    chain = math.ceil(rows / (call.spec.sm_count * grid.resident)) * alone
    streamed = 2.0 * elements * source.itemsize / call.spec.dram_bandwidth
    sums = KernelWork(
        "sums", (read(gradient), read(source), *small, scratch(16.0 * rows, write=True)), {"fp32": elements * 10.0},
        max(1.0, rows), grid, serial_seconds=max(0.0, chain - streamed),
    )  # fmt: skip
    moved = [read(gradient), read(source), *small, *[write(meta) for meta in outputs]]
    counted = {"fp32": 8.0 * elements, "int": 8.0 * elements}
    return [sums, streaming(call.base, moved, elements, counted, BROADCAST_EFFICIENCY)]


def weight_norm(call: MetaCall) -> list[KernelWork]:
    """``_weight_norm_interface`` and its gradient: a block a row, which reads it for the norm and for the scaling."""
    passes = [read(meta, 2.0 if k == 0 else 1.0) for k, meta in enumerate(call.inputs)]
    source = max(call.inputs, key=lambda meta: meta.elements)
    rows = float(min(meta.elements for meta in call.inputs))
    return [
        KernelWork(
            call.base,
            (*passes, *[write(meta) for meta in call.outputs]),
            {"fp32": source.elements * 8.0 + rows * 128 * ROW_INSTRUCTIONS},
            max(1.0, rows),
            Grid(256, 8, 16.0),
            reuse_window=source.nbytes / max(1.0, rows) * 8.0 * call.spec.sm_count,
        )
    ]


def equal(call: MetaCall) -> list[KernelWork]:
    """``equal``: a comparison, then a reduction of it. (The host waits for the answer.)"""
    source = call.inputs[0]
    elements = float(source.elements)
    compared = [*[read(meta) for meta in call.inputs], scratch(elements, write=True)]
    return [
        streaming("eq", compared, elements, {"fp32": 2.0 * elements}),
        streaming("all", [scratch(elements)], elements, {"fp32": 3.0 * elements}, REDUCE_EFFICIENCY),
    ]


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
    touched = read(source, nbytes=min(float(source.nbytes), size * SECTOR_BYTES))
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
    touched = read(source, nbytes=min(float(source.nbytes), rows * SECTOR_BYTES))
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
    touched = write(out, min(float(out.nbytes), rows * SECTOR_BYTES))
    return [clear, streaming(call.base, [read(target), touched], rows, {"int": 16.0 * rows}, 0.8)]


CTC_STEP_SECONDS = 1.5e-6
"""A step of the forward variables: a barrier, a few dependent loads and three exponentials."""


def ctc(call: MetaCall) -> list[KernelWork]:
    """The forward variables: steps in time one after another, a block over targets of one sample each."""
    log_probs, alphas = call.inputs[0], call.outputs[-1]
    steps = log_probs.shape[0] if log_probs.shape else 1
    states = float(alphas.elements)
    touched = read(log_probs, nbytes=min(float(log_probs.nbytes), states * SECTOR_BYTES))
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
