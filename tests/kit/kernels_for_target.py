"""Kernels that the target-compile tests compile."""

from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend

from drkernel.sim.host.triton_frontend import front_end
from drkernel.sim.spec import GPUSpec
from kernels_elementwise import add_kernel


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        left = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
        right = tl.load(b + (k + inner)[:, None] * N + columns[None, :])
        acc = tl.dot(left, right, acc)
    tl.store(c + rows[:, None] * N + columns[None, :], acc)


def ttir(spec: GPUSpec, fn: Any, signature: dict[str, str], constants: dict[str, int], **options: Any) -> str:
    """TTIR as a launch with 16-byte aligned pointers and sizes divisible by 16 would give."""
    target = GPUTarget(spec.backend, spec.arch, spec.warp_size)
    attributes = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(signature.values()) if kind != "constexpr"}
    source = ASTSource(fn, signature, constants, attributes)
    return front_end(source, target, make_backend(target).parse_options(options))[0]


def add_ttir(spec: GPUSpec) -> str:
    return ttir(
        spec,
        add_kernel,
        {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"},
        {"BLOCK": 1024},
    )


def matmul_ttir(spec: GPUSpec, block_m: int = 128, block_n: int = 128, block_k: int = 64) -> str:
    signature = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "M": "i32", "N": "i32", "K": "i32"}
    blocks = {"BM": block_m, "BN": block_n, "BK": block_k}
    return ttir(spec, matmul, {**signature, **dict.fromkeys(blocks, "constexpr")}, blocks)
