"""Models ``torch.compile``: point-wise and reduction chains become one kernel each, products stay as they are.

This approximates Inductor's default mode, from a list of traced operators. Chains of element-wise operators, windows,
reductions over the same elements and normalisations become one kernel that reads external inputs once (again for every
dependent statistic, if rows do not fit on chip) and writes what is used later. Products, convolutions, sorts and
scatters stay library calls; images go through convolutions in NHWC. Not modelled: horizontal fusion of independent
chains, autotuned templates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from drkernel.sim.cost import gather, loss_operators, pointwise, products, reduction, sorting, windows
from drkernel.sim.cost.arguments import by_name
from drkernel.sim.cost.arithmetic import arithmetic
from drkernel.sim.cost.call import read, write
from drkernel.sim.cost.convolution import convolution
from drkernel.sim.cost.l2 import L2State
from drkernel.sim.cost.operator_families import base_name, family_of
from drkernel.sim.cost.operators import HOST_FACTOR, make_call, operator_work
from drkernel.sim.cost.records import CostEstimate, TensorMeta, combine
from drkernel.sim.cost.recurrent import recurrent
from drkernel.sim.cost.roofline import KernelWork, kernel_cost
from drkernel.sim.cost.traced import TracedCall
from drkernel.sim.spec import GPUSpec

LIBRARY = (
    products.product, products.attention, convolution, recurrent, sorting.sort, sorting.topk, gather.scatter,
)  # fmt: skip
STATISTICS = {
    reduction.reduce: 1, reduction.softmax: 1, reduction.layer_norm: 1, reduction.rms_norm: 1, reduction.batch_norm: 1,
    reduction.group_norm: 1, reduction.logsumexp: 1, reduction.scan: 1, loss_operators.loss: 1, loss_operators.nll: 1,
}  # fmt: skip
"""reductions that a fused kernel must finish before it can go on with the same elements"""
ON_CHIP_BYTES = 64 * 1024
"""rows up to this size stay in registers and shared memory between a statistic and its use"""
FUSED_EFFICIENCY = 0.95
TILED_TRANSPOSE = 0.85
"""kernels that read one layout and write another go by two-dimensional tiles"""
ENTRY_SECONDS = 3.0e-5
"""host time of entering a compiled module: guards and argument checks"""
LAUNCH_SECONDS = 1.2e-5
"""host time of a launch by generated code, whose launcher knows its arguments' types and skips Triton's"""
STATISTIC_INSTRUCTIONS, CAT_INSTRUCTIONS, WINDOW_BASE, WINDOW_TAP = 14.0, 8.0, 20.0, 6.0
"""instructions per element (per output and tap) of generated code, which knows all sizes and keeps no unused indices"""
STATISTIC_KERNELS = 3
"""launches of a normalisation over long rows: partial statistics, their merge, their use"""


@dataclass
class Group:
    """Operators that become one kernel."""

    calls: list[TracedCall] = field(default_factory=list)
    produced: set[int] = field(default_factory=set)

    def accepts(self, call: TracedCall) -> bool:
        """Return whether the operator continues this chain: it uses a result of it, or reads what it reads."""
        if not self.calls:
            return True
        touched = self.produced | {meta.storage for item in self.calls for meta in item.inputs}
        return any(meta.storage in touched for meta in call.inputs)

    def add(self, call: TracedCall) -> None:
        self.calls.append(call)
        self.produced |= {meta.storage for meta in call.outputs}


def fuse(calls: Iterable[TracedCall]) -> list[Group]:
    """Split a trace into kernels."""
    groups: list[Group] = []
    current = Group()
    for call in calls:
        library = family_of(call.name, call.inputs) in LIBRARY
        if library or not current.accepts(call):
            if current.calls:
                groups.append(current)
            current = Group()
        current.add(call)
        if library:
            groups.append(current)
            current = Group()
    return [*groups, current] if current.calls else groups


def _split_bias(calls: Iterable[TracedCall]) -> Iterable[TracedCall]:
    """A convolution's bias becomes an addition of its own, which fuses with what follows."""
    for call in calls:
        if base_name(call.name) == "convolution" and len(call.inputs) > 2:
            yield replace(call, inputs=call.inputs[:2])
            yield TracedCall("add.Tensor", (call.outputs[0], call.inputs[2]), call.outputs, (), False)
        else:
            yield call


def compiled_costs(
    calls: Sequence[TracedCall], results: Iterable[int], spec: GPUSpec, l2: L2State
) -> Iterable[tuple[str, CostEstimate]]:
    """Name and modelled time of every kernel of the compiled module, in order; ``results`` are returned storages."""
    busy = list(_split_bias(call for call in calls if not call.free))
    groups = fuse(_convert_layouts(busy, set(results)) if _wants_channels_last(busy) else busy)
    last_use: dict[int, int] = dict.fromkeys(results, len(groups))
    for index, group in enumerate(groups):
        for call in group.calls:
            for meta in call.inputs:
                last_use[meta.storage] = max(last_use.get(meta.storage, 0), index)
    for index, group in enumerate(groups):
        first = group.calls[0]
        if family_of(first.name, first.inputs) in LIBRARY:
            name, work = base_name(first.name), operator_work(first.name, first.inputs, first.outputs, first.args, spec)
            host = HOST_FACTOR.get(name, 1.0) * spec.launch_overhead
        else:
            live = {storage for storage in group.produced if last_use.get(storage, -1) > index}
            name, work = _fused_name(group), _fused_work(group, live, spec)
            host = LAUNCH_SECONDS * sum(item.fixed_kernels for item in work)
        cost = combine(kernel_cost(item, spec, l2) for item in work)
        yield name, cost.with_host(host)
        for storage in group.produced:
            if last_use.get(storage, -1) <= index:
                l2.forget(storage)


# ---- layouts


def _is_image(meta: TensorMeta) -> bool:
    return len(meta.shape) == 4 and meta.shape[1] > 1


def _wants_channels_last(calls: Sequence[TracedCall]) -> bool:
    """Inductor runs two-dimensional convolutions in NHWC unless grouped ones dominate (its ``decide_layout_opt``)."""
    images = [
        call for call in calls if family_of(call.name, call.inputs) is convolution and len(call.inputs[1].shape) == 4
    ]
    grouped = sum(1 for call in images if by_name(call.name, call.args)["groups"] > 1 and call.inputs[1].shape[1] > 1)
    return bool(images) and 2 * grouped <= len(images)


def _channels_last(meta: TensorMeta) -> TensorMeta:
    _, channels, height, width = meta.shape
    return replace(meta, stride=(height * width * channels, 1, width * channels, channels))


def _convert_layouts(calls: Sequence[TracedCall], results: set[int]) -> Iterable[TracedCall]:
    """Return the calls with images in NHWC from the first convolution on, and conversions where NCHW enters or
    leaves."""
    nhwc: set[int] = set()
    last: dict[int, TensorMeta] = {}
    for call in calls:
        inputs = call.inputs
        if family_of(call.name, inputs) is convolution and _is_image(inputs[0]):
            x = _channels_last(inputs[0])
            if x.storage not in nhwc:
                converted = replace(x, storage=~x.storage)
                yield TracedCall("clone.default", (inputs[0],), (converted,), (), False)
                x = converted
            inputs = (x, *inputs[1:])
            nhwc |= {meta.storage for meta in call.outputs}
        else:
            if any(meta.storage in nhwc for meta in inputs):
                nhwc |= {meta.storage for meta in call.outputs if _is_image(meta)}
            inputs = tuple(_channels_last(m) if m.storage in nhwc and _is_image(m) else m for m in inputs)
        outputs = tuple(_channels_last(m) if m.storage in nhwc and _is_image(m) else m for m in call.outputs)
        last.update({meta.storage: plain for meta, plain in zip(outputs, call.outputs, strict=True)})
        yield replace(call, inputs=inputs, outputs=outputs)
    for storage in results & nhwc:
        if storage in last:
            yield TracedCall("clone.default", (_channels_last(last[storage]),), (last[storage],), (), False)


def _fused_name(group: Group) -> str:
    names = list(dict.fromkeys(base_name(call.name) for call in group.calls))
    return "fused_" + "_".join(names[:4]) + ("_..." if len(names) > 4 else "")


def _fused_work(group: Group, live: set[int], spec: GPUSpec) -> list[KernelWork]:
    """The kernel of a group: outside inputs in, live results out."""
    inputs: dict[TensorMeta, None] = {}
    outputs: dict[int, TensorMeta] = {}
    produced: set[int] = set()
    flops: dict[str, float] = {}
    for call in group.calls:
        for meta in call.inputs:
            if meta.storage not in produced:
                inputs[meta] = None
        for meta in call.outputs:
            produced.add(meta.storage)
            if meta.storage in live:
                outputs[meta.storage] = meta
        for unit, count in _generated_flops(call, spec).items():
            flops[unit] = flops.get(unit, 0.0) + count
    everything = [*inputs, *outputs.values()]
    if not everything:
        return []
    largest = max(everything, key=lambda meta: meta.elements)
    efficiency = FUSED_EFFICIENCY if _one_axis(inputs, outputs.values()) else TILED_TRANSPOSE
    row, stages = _statistics(group)
    passes = 1.0 + stages if row > ON_CHIP_BYTES else 1.0
    work = pointwise.streaming(
        "fused",
        [read(meta, passes if 2 * meta.elements > largest.elements else 1.0) for meta in inputs]
        + [write(meta) for meta in outputs.values()],
        float(largest.elements),
        flops,
        efficiency,
    )
    if passes == 1:
        return [work]
    return [replace(work, reuse_window=row * 8.0 * spec.sm_count, fixed_kernels=STATISTIC_KERNELS)]


def _generated_flops(call: TracedCall, spec: GPUSpec) -> dict[str, float]:
    """Arithmetic of one operator inside generated code."""
    family, out = family_of(call.name, call.inputs), (call.outputs or call.inputs)[0]
    elements = float(max(meta.elements for meta in (*call.inputs, *call.outputs)))
    if family in STATISTICS:
        return {"fp32": STATISTIC_INSTRUCTIONS * elements, "sfu": elements}
    if family is pointwise.concatenate:
        return {"fp32": CAT_INSTRUCTIONS * elements}
    if family is windows.pooling:
        made = make_call(call.name, call.inputs, call.outputs, call.args, spec)
        return {"fp32": out.elements * (WINDOW_BASE + WINDOW_TAP * windows.window_taps(made))}
    return arithmetic(base_name(call.name), elements, out.dtype)


def _statistics(group: Group) -> tuple[float, int]:
    """Bytes of the longest reduced row, and after how many statistics the same elements are needed again."""
    row, stages = 0.0, 0
    for index, call in enumerate(group.calls):
        if family_of(call.name, call.inputs) not in STATISTICS:
            continue
        source = call.inputs[0]
        small = min((meta.elements for meta in call.outputs if meta.elements), default=1)
        same_size = any(meta.elements == source.elements for meta in call.outputs)
        rows = small if small < source.elements else max(1, source.elements // max(1, source.shape[-1]))
        row = max(row, source.elements / max(1, rows) * source.itemsize)
        again = any(meta.elements == source.elements for later in group.calls[index + 1 :] for meta in later.outputs)
        stages += same_size or again
    return row, stages


def _one_axis(inputs: Iterable[TensorMeta], outputs: Iterable[TensorMeta]) -> bool:
    """Whether the large tensors agree on the contiguous dimension ."""
    tensors = [*inputs, *outputs]
    largest = max((meta.elements for meta in tensors), default=0)
    whole = [meta for meta in tensors if 2 * meta.elements > largest and math.prod(meta.shape) > 1]
    return len({_axis(meta) for meta in whole}) <= 1


def _axis(meta: TensorMeta) -> int | None:
    for back, (size, stride) in enumerate(zip(reversed(meta.shape), reversed(meta.stride), strict=True)):
        if size > 1 and stride == 1:
            return back
    return None
