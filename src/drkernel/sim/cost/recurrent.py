"""Recurrent networks as cuDNN runs them: input products for all steps at once, then a chain of small steps."""

from __future__ import annotations

from drkernel.sim.cost.call import Call, read, write
from drkernel.sim.cost.gemm import gemm_work
from drkernel.sim.cost.kernel import Access, KernelWork

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def recurrent(call: Call) -> list[KernelWork]:
    """Arguments: (kind, x, state, weights, steps, batch, features, width, layers, directions)."""
    kind, _, _, _, steps, batch, features, width, layers, directions = call.args
    gates = GATES[kind]
    x, out = call.inputs[0], call.outputs[0]
    item = x.itemsize
    work: list[KernelWork] = []
    for layer in range(layers):
        depth = features if layer == 0 else width * directions
        source = read(x) if layer == 0 else Access(out.storage, out.nbytes)
        columns = gates * width
        weights = Access(-3, columns * depth * item)
        product = gemm_work(
            "input_product", steps * batch, columns, depth, 1, item, "fp32", source, weights,
            (Access(-4, steps * batch * columns * item, write=True),), call.spec,
        )  # fmt: skip
        work += [product] * directions
        work.append(_steps(call, steps * directions, batch, width, columns, item))
    work.append(KernelWork("store", (write(out),), blocks=64.0))
    return work


def _steps(call: Call, steps: int, batch: int, width: int, columns: int, item: int) -> KernelWork:
    """The dependent chain of a layer: each step is a small product and the gates' arithmetic, two kernels deep."""
    spec = call.spec
    weights = float(columns * width * item)
    per_step = weights / spec.l2_bandwidth + 2.0 * batch * columns * width / spec.peak["fp32"]
    latency = 2.0 * (spec.kernel_min + spec.dram_latency)
    return KernelWork(
        "steps", (Access(-4, steps * batch * columns * item),), flops={"fp32": 0.0}, blocks=float(spec.sm_count),
        serial_seconds=steps * (per_step + latency), fixed_kernels=1,
    )  # fmt: skip
