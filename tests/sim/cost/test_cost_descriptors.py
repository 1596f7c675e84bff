"""Loads by descriptors that the host makes: tiles whose last side lies along memory, as by pointers."""

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from drkernel.sim import device
from drkernel.sim.gpu.datafree import DataFree


@triton.jit
def by_descriptors(a, b, c, n, k, SIDE: tl.constexpr, K: tl.constexpr):
    rows, columns = tl.program_id(0) * SIDE, tl.program_id(1) * SIDE
    total = tl.zeros((SIDE, SIDE), tl.float32)
    for at in range(0, k, K):
        total = tl.dot(a.load([rows, at]), b.load([columns, at]).T, total)
    places = (rows + tl.arange(0, SIDE))[:, None] * n + columns + tl.arange(0, SIDE)[None, :]
    tl.store(c + places, total.to(tl.bfloat16))


@triton.jit
def by_pointers(a, b, c, n, k, SIDE: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    columns, inner = tl.program_id(1) * SIDE + tl.arange(0, SIDE), tl.arange(0, K)
    total = tl.zeros((SIDE, SIDE), tl.float32)
    for at in range(0, k, K):
        left = tl.load(a + rows[:, None] * k + at + inner[None, :])
        total = tl.dot(left, tl.load(b + columns[:, None] * k + at + inner[None, :]).T, total)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.bfloat16))


@pytest.mark.parametrize("gpu", ["h100", "b200"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn])
def test_tiles_by_a_hosts_descriptors_cost_what_tiles_by_pointers_do(gpu: str, dtype: torch.dtype) -> None:
    n, side, inner = 4096, 128, 64
    seconds = []
    with device(gpu, data_free=DataFree()) as dev, torch.device("cuda"):
        a, b = (torch.empty(n, n, dtype=dtype) for _ in range(2))
        described = [TensorDescriptor(one, [n, n], [n, 1], [side, inner]) for one in (a, b)]
        for kernel, operands in ((by_pointers, (a, b)), (by_descriptors, described)):
            dev.reset_counters()
            out = torch.empty(n, n, dtype=torch.bfloat16)
            kernel[n // side, n // side](*operands, out, n, n, SIDE=side, K=inner, num_warps=8)
            seconds.append(dev.profile().total_seconds)
    assert 0.5 < seconds[1] / seconds[0] < 1.5
