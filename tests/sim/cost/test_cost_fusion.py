"""What a compiled module would run: which operators become one kernel, and what that saves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F

from drkernel.sim.cost.fusion import fuse
from drkernel.sim.module_cost import model_module
from drkernel.sim.spec import get_spec
from tracing import trace

H100 = get_spec("h100")


def empty(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, device="meta")


def kernels(call: Callable[..., object], inputs: Sequence[torch.Tensor]) -> list[str]:
    _, profile = model_module(call, inputs, H100, baseline="compile")
    return [row.name for row in profile.rows for _ in range(row.calls)]


def test_a_pointwise_chain_is_one_kernel_that_moves_two_tensors() -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(F.gelu(x * 2 + 1)) * x

    x = empty(2**27)
    eager, _ = model_module(chain, [x], H100)
    compiled, profile = model_module(chain, [x], H100, baseline="compile")
    (row,) = profile.rows
    assert row.calls == 1 and row.name.startswith("fused_mul_add_gelu")
    assert row.bytes == pytest.approx(2 * 4 * 2**27, rel=0.1)
    assert 4 < eager.device_seconds / compiled.device_seconds < 6


def test_products_and_convolutions_stay_library_calls() -> None:
    w, x = empty(256, 256), empty(512, 256)
    assert sorted(kernels(lambda x: F.relu(x @ w) @ w, [x])) == ["fused_relu", "mm", "mm"]
    image, weight, bias = empty(8, 16, 32, 32), empty(32, 16, 3, 3), empty(32)
    names = kernels(lambda x: F.relu(F.conv2d(x, weight, bias)), [image])
    assert sorted(names) == ["convolution", "fused_add_relu_clone", "fused_clone"]  # NHWC inside


def test_results_and_values_used_later_are_written_and_others_are_not() -> None:
    def one(x: torch.Tensor) -> torch.Tensor:
        return (x + 1) * 2

    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x + 1
        return y, y * 2

    sizes = [model_module(call, [empty(2**28)], H100, baseline="compile")[1].rows[0].bytes for call in (one, both)]
    assert sizes[0] is not None and sizes[1] == pytest.approx(1.5 * sizes[0], rel=0.05)


def test_a_normalisation_over_rows_that_do_not_fit_reads_again() -> None:
    def norm(x: torch.Tensor) -> torch.Tensor:
        return x / x.pow(2).mean(-1, keepdim=True).sqrt()

    def traffic(rows: int, columns: int) -> float:
        _, profile = model_module(norm, [empty(rows, columns)], H100, baseline="compile")
        (row,) = profile.rows
        assert row.bytes is not None
        return row.bytes / (4 * rows * columns)

    assert traffic(2**17, 2**10) == pytest.approx(2, abs=0.15)
    assert traffic(2**7, 2**20) == pytest.approx(3, abs=0.15)


def test_unrelated_chains_are_separate_kernels() -> None:
    calls = trace(lambda: (empty(8).sin(), empty(9).cos()))
    assert len(fuse(call for call in calls if not call.free)) == 2


def test_a_compiled_module_of_many_small_operators_is_less_bound_by_the_host() -> None:
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Sigmoid()) for _ in range(100)])
    eager, _ = model_module(model, [empty(64)], H100)
    compiled, _ = model_module(model, [empty(64)], H100, baseline="compile")
    assert compiled.elapsed_seconds < 0.1 * eager.elapsed_seconds
