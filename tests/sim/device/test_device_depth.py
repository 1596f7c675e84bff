"""Kernels compiled for the target GPU: registers and shared memory, and what a GPU refuses."""

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.errors import OutOfResources

from drkernel import sim


@triton.jit
def product(a, b, c, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, n, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        total += tl.dot(tl.load(a + rows[:, None] * n + inner), tl.load(b + inner[:, None] * n + columns))
    tl.store(c + rows[:, None] * n + columns, total)


@triton.jit
def doubled(x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)


def operands(n: int = 128):
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.float16) for _ in range(2))
    return a, b, torch.empty(n, n, device="cuda"), n


def test_full_depth_records_what_the_target_needs():
    with sim.device("h100", depth="full") as dev:
        x = torch.ones(1000, device="cuda")
        kernel = doubled[(4,)](x, 1000, BLOCK=256)
        (launch,) = dev.launches
        assert launch.registers is not None and 8 <= launch.registers <= 64
        assert launch.spills == 0 and launch.shared_bytes == 0 and launch.occupancy == 16
        assert (kernel.n_regs, kernel.n_spills, kernel.metadata.shared) == (launch.registers, 0, 0)


def test_host_code_may_ask_for_registers_at_the_usual_depth(dev):
    """As the softmax tutorial does, to choose how many programs to launch."""
    x = torch.ones(1000, device="cuda")
    kernel = doubled.warmup(x, 1000, BLOCK=256, grid=(1,))
    kernel._init_handles()
    occupancy = dev.spec.regs_per_sm // (kernel.n_regs * dev.spec.warp_size * 4)
    assert occupancy >= 8 and kernel.metadata.shared == 0
    doubled[(4,)](x, 1000, BLOCK=256)
    assert dev.launches[0].registers is None and x.sum().item() == 2000


@pytest.mark.slow
def test_too_much_shared_memory_is_out_of_resources_and_autotune_goes_around_it():
    with sim.device("a100", depth="full") as dev:
        a, b, c, n = operands()
        with pytest.raises(OutOfResources, match=r"shared memory, Required: \d+, Hardware limit: 166912"):
            product[(1, 1)](a, b, c, n, BLOCK=128, num_stages=8)
        assert dev.launches == []
        configs = [triton.Config({"BLOCK": 128}, num_stages=8), triton.Config({"BLOCK": 32}, num_stages=2)]
        tuned = triton.autotune(configs, key=["n"])(product)
        tuned[lambda meta: (n // meta["BLOCK"], n // meta["BLOCK"])](a, b, c, n)
        assert tuned.best_config.kwargs == {"BLOCK": 32}
        torch.testing.assert_close(c.cpu(), a.cpu().float() @ b.cpu().float(), rtol=1e-2, atol=1e-2)
        assert all(launch.shared_bytes > 0 for launch in dev.launches)


def test_too_much_shared_memory_is_refused_at_the_usual_depth_too():
    with (
        sim.device("a100"),
        pytest.raises(OutOfResources, match=r"shared memory, Required: \d+, Hardware limit: 166912"),
    ):
        a, b, c, n = operands()
        product[(1, 1)](a, b, c, n, BLOCK=128, num_stages=8)
