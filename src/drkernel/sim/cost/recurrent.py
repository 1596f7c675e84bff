"""Recurrent networks as cuDNN runs them: input products for all steps at once, then a chain of small steps."""

from __future__ import annotations

from drkernel.sim.cost.call import MetaCall, read, write
from drkernel.sim.cost.gemm import Product, gemm_work
from drkernel.sim.cost.roofline import Access, KernelWork

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
KERNELS_PER_STEP = {"lstm": 2, "gru": 3, "rnn_tanh": 2, "rnn_relu": 2}
RAW_LAUNCH_SHARE = 0.55
"""A launch from C++ against an eager operator from Python: the chain of steps is bound by the host that feeds it."""


def recurrent(call: MetaCall) -> list[KernelWork]:
    """``aten::lstm.input`` and kin."""
    kind, x, out = call.base, call.inputs[0], call.outputs[0]
    layers, directions, batch_first = (
        int(call.number("num_layers", 1)),
        1 + call.flag("bidirectional"),
        call.flag("batch_first"),
    )
    steps, batch = (x.shape[1], x.shape[0]) if batch_first else (x.shape[0], x.shape[1])
    features, width = x.shape[-1], out.shape[-1] // directions
    gates = GATES[kind]
    item = x.itemsize
    work: list[KernelWork] = []
    for layer in range(layers):
        depth = features if layer == 0 else width * directions
        source = read(x) if layer == 0 else Access(out.storage, out.nbytes)
        columns = gates * width
        weights = Access(-3, columns * depth * item)
        intermediate = Access(-4, steps * batch * columns * item, write=True)
        shape = Product(steps * batch, columns, depth, 1, item, "fp32")
        product = gemm_work("input_product", shape, source, weights, (intermediate,), call.spec)
        work += [product] * directions
        work.append(_steps(call, steps * directions, batch, width, columns, item))
    work.append(KernelWork("store", (write(out),), blocks=64.0))
    return work


def _steps(call: MetaCall, steps: int, batch: int, width: int, columns: int, item: int) -> KernelWork:
    """The dependent chain of a layer: each step is a small product, then the gates' arithmetic."""
    spec = call.spec
    weights = float(columns * width * item)
    per_step = weights / spec.l2_bandwidth + 2.0 * batch * columns * width / spec.peak["fp32"]
    kernels = KERNELS_PER_STEP[call.base]
    chain = kernels * max(spec.kernel_min + spec.dram_latency, RAW_LAUNCH_SHARE * spec.launch_overhead)
    return KernelWork(
        "steps",
        (Access(-4, steps * batch * columns * item),),
        flops={"fp32": 0.0},
        blocks=float(spec.sm_count),
        serial_seconds=steps * (per_step + chain),
        fixed_kernels=1,
    )
