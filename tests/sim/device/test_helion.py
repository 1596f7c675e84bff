"""Helion's kernels: the package traces Python on fake tensors, writes Triton, and launches it on the device."""

from __future__ import annotations

import pytest
import torch

from drkernel import sim

helion = pytest.importorskip("helion", reason="needs helion")
hl = pytest.importorskip("helion.language", reason="needs helion")


@helion.kernel(config=helion.Config(block_sizes=[64, 32], num_warps=4))
def scaled_sum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(out.size()):
        out[tile] = x[tile] + 2 * y[tile]
    return out


@helion.kernel(config=helion.Config(block_sizes=[4]))
def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        row = x[tile, :]
        e = torch.exp(row - torch.amax(row, dim=1, keepdim=True))
        out[tile, :] = e / torch.sum(e, dim=1, keepdim=True)
    return out


@helion.kernel(config=helion.Config(block_sizes=[32, 32, 16]), static_shapes=False)
def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    m, k = a.size()
    out = torch.empty([m, b.size(1)], dtype=a.dtype, device=a.device)
    for rows, columns in hl.tile([m, b.size(1)]):
        total = hl.zeros([rows, columns], dtype=torch.float32)
        for inner in hl.tile(k):
            total = torch.addmm(total, a[rows, inner], b[inner, columns])
        out[rows, columns] = total
    return out


def test_what_helion_writes_runs() -> None:
    with sim.device("h100") as device:
        x, y = torch.randn(100, 96, device="cuda"), torch.randn(100, 96, device="cuda")
        torch.testing.assert_close(scaled_sum(x, y), x + 2 * y)
        torch.testing.assert_close(softmax(x), torch.softmax(x, 1))
        a, b = x.half(), y.half().T.contiguous()
        torch.testing.assert_close(product(a, b), a @ b, atol=2e-2, rtol=1e-2)
        torch.testing.assert_close(product(a[:50], b), a[:50] @ b, atol=2e-2, rtol=1e-2)
        names = [record.name for record in device.launches]
        assert names == ["_helion_scaled_sum", "_helion_softmax", "_helion_product", "_helion_product"]
        assert not device.findings


def test_fake_tensors_of_host_code_are_on_the_gpu_and_not_on_the_device() -> None:
    with sim.device("h100") as device, torch._subclasses.FakeTensorMode() as mode:
        before = dict(device.operators)
        made = torch.empty(3, 4, device="cuda")
        moved = torch.empty(4, 5).to("cuda")
        product = made @ moved
        assert all(mode.is_our_fake(one) and one.device.type == "cuda" for one in (made, moved, product))
        assert product.shape == (3, 5) and torch.empty(2, device="meta").device.type == "meta"
        assert dict(device.operators) == before
