"""Convolutions as cuDNN and PyTorch run them: implicit GEMM on tensor cores, or direct kernels for depthwise ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

from drkernel.sim.cost.call import Call, read, scratch, write
from drkernel.sim.cost.gemm import gemm_unit, plan_gemm
from drkernel.sim.cost.kernel import Access, KernelWork
from drkernel.sim.cost.pointwise import BROADCAST_EFFICIENCY, streaming
from drkernel.sim.cost.records import TensorMeta

IMPLICIT_GEMM_SHARE = 0.75
"""Share of a plain product's tile rate that an implicit GEMM keeps: index arithmetic and predicated loads."""
LAYOUT_EFFICIENCY = 0.75
"""NCHW <-> NHWC conversion, a tiled transpose through shared memory, against a plain copy."""


@dataclass(frozen=True)
class ConvShape:
    """A convolution as products: per group ``pixels`` x ``depth`` by ``depth`` x ``columns``."""

    groups: int
    pixels: int
    columns: int
    depth: int
    kernel: int
    transposed: bool

    @property
    def flops(self) -> float:
        """Two for each multiply-add."""
        return 2.0 * self.groups * self.pixels * self.columns * self.depth


def conv_shape(
    x: TensorMeta, weight: TensorMeta, out: TensorMeta, stride: list[int], transposed: bool, groups: int
) -> ConvShape:
    """The products of a convolution; a transposed one of stride s has 1/s of the kernel's taps at each output."""
    kernel = math.prod(weight.shape[2:])
    pixels = out.elements // max(1, out.shape[1])
    if transposed:
        taps = math.prod(max(1.0, k / s) for k, s in zip(weight.shape[2:], stride, strict=False))
        depth = max(1, round(weight.shape[0] // groups * taps))
        return ConvShape(groups, pixels, weight.shape[1], depth, kernel, True)
    return ConvShape(groups, pixels, weight.shape[0] // groups, weight.shape[1] * kernel, kernel, False)


def convolution(call: Call) -> list[KernelWork]:
    """The kernels of ``aten.convolution``: conversions, the product, and a bias pass (PyTorch adds it separately)."""
    x, weight, out = call.inputs[0], call.inputs[1], call.outputs[0]
    dims = len(weight.shape) - 2
    stride = call.numbers(3) or [1]
    stride = stride * dims if len(stride) == 1 else stride
    transposed = bool(call.number(6, 0))
    groups = int(call.number(8, 1))
    shape = conv_shape(x, weight, out, stride, transposed, groups)
    work = depthwise(call, shape) if groups > 1 and shape.columns <= 2 else implicit_gemm(call, shape)
    if len(call.inputs) > 2:
        work.append(
            streaming(
                "bias",
                [read(out), read(call.inputs[2]), write(out)],
                float(out.elements),
                {"fp32": float(out.elements), "int": 8.0 * out.elements},
                BROADCAST_EFFICIENCY,
            )
        )
    return work


def implicit_gemm(call: Call, shape: ConvShape) -> list[KernelWork]:
    """Tensor-core implicit GEMM (TF32 for fp32, cuDNN's default under PyTorch), NHWC inside."""
    x, weight, out = call.inputs[0], call.inputs[1], call.outputs[0]
    unit = gemm_unit(x.dtype, tf32=True)
    work: list[KernelWork] = []
    pointwise = shape.kernel == 1
    source, result = read(x), write(out)
    nhwc = _is_channels_last(x)
    if not pointwise and not nhwc and unit.startswith("tensor_"):
        work.append(_convert("nchw_to_nhwc", read(x), scratch(x.nbytes, write=True), x))
        source, result = scratch(x.nbytes), scratch(out.nbytes, write=True)
    plan = plan_gemm(shape.pixels, shape.columns, shape.depth, shape.groups, x.itemsize, unit, call.spec)
    share = IMPLICIT_GEMM_SHARE if not pointwise else 1.0
    work.append(
        KernelWork(
            "implicit_gemm",
            (source, read(weight), result),
            flops={unit: shape.flops},
            blocks=plan.blocks,
            threads=256,
            blocks_per_sm=2,
            bytes_in_flight=96.0,
            compute_seconds=plan.seconds / share,
            fixed_kernels=2 if plan.split > 1 else 1,
        )
    )
    if len(work) == 2:
        work.append(_convert("nhwc_to_nchw", scratch(out.nbytes), write(out), out))
    return work


def depthwise(call: Call, shape: ConvShape) -> list[KernelWork]:
    """PyTorch's direct kernel: a thread an output, taps from L1 and L2, index arithmetic at every tap."""
    x, weight, out = call.inputs[0], call.inputs[1], call.outputs[0]
    taps = shape.flops / 2.0
    return [
        KernelWork(
            "depthwise",
            (read(x), read(weight), write(out)),
            flops={"fp32": taps, "int": 3.0 * taps},
            blocks=max(1.0, out.elements / 256),
            threads=256,
            blocks_per_sm=8,
            bytes_in_flight=16.0,
            memory_efficiency=0.8,
        )
    ]


def _convert(name: str, source: Access, result: Access, meta: TensorMeta) -> KernelWork:
    return streaming(name, [source, result], float(meta.elements), {"int": 8.0 * meta.elements}, LAYOUT_EFFICIENCY)


def _is_channels_last(meta: TensorMeta) -> bool:
    """NHWC or NDHWC in memory."""
    return len(meta.shape) > 3 and meta.stride[1] == 1 and meta.shape[1] > 1 and meta.is_dense
