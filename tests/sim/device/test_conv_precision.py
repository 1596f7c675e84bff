"""Convolutions on the simulated GPU: what they are charged for is what they compute."""

import pytest
import torch
import torch.nn.functional as F

from drkernel.sim.gpu.emulated import rounded_to_tf32
from drkernel.sim.gpu.engine import DeviceEngine
from drkernel.sim.spec import get_spec
from drkernel.sim.wire.commands import Ref


def convolve(engine: DeviceEngine, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    operands = [Ref(engine.register(value.clone()).handle) for value in (x, weight)]
    given = [*operands, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1]
    out = engine.op("convolution.default", given, {})
    return engine.tensor(out.handle)


@pytest.mark.parametrize("kernel", [1, 3])
def test_tf32_convolutions_are_faster_and_as_inaccurate_as_tf32(kernel: int) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(4, 256, 24, 24), torch.randn(256, 256, kernel, kernel)
    exact = F.conv2d(x.double(), weight.double())
    scale = exact.square().mean().sqrt()
    errors, seconds = {}, {}
    for tf32 in (True, False):
        engine = DeviceEngine(get_spec("h100"), checks="off")
        engine.accounts.conv_tf32 = tf32
        errors[tf32] = float((convolve(engine, x, weight) - exact).square().mean().sqrt() / scale)
        seconds[tf32] = engine.profile().total_seconds
    assert errors[False] < 1e-6 and 1e-4 < errors[True] < 2e-3
    assert seconds[False] > 1.5 * seconds[True]


def test_convolutions_of_a_script_go_by_pytorchs_switch(monkeypatch) -> None:
    engine = DeviceEngine(get_spec("h100"), checks="off")
    assert not engine.accounts.conv_tf32
    engine.run_script(lazy=False)
    assert engine.accounts.conv_tf32  # as on a GPU
    with torch.backends.cudnn.flags(enabled=False):  # PyTorch's own convolutions are matrix products in fp32
        assert not engine.accounts.conv_tf32
    assert engine.accounts.conv_tf32
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert not engine.accounts.conv_tf32


def test_rounding_to_tf32_keeps_ten_bits_and_what_is_not_finite() -> None:
    values = torch.tensor([1.0, 1 + 2**-10, 1 + 2**-11, 1 + 2**-12, -3.1, 0.0, float("inf"), float("nan"), 1e-42])
    rounded = rounded_to_tf32(values)
    assert rounded[:4].tolist() == [1.0, 1 + 2**-10, 1 + 2**-10, 1.0]
    assert rounded[6] == float("inf") and rounded[7].isnan()
    finite = values[:6]
    assert bool(((rounded[:6] - finite).abs() <= finite.abs() * 2**-11).all())
    assert not bool((rounded[:6].view(torch.int32) & 0x1FFF).any())
    strided = torch.randn(8, 6).t()
    assert rounded_to_tf32(strided).shape == (6, 8)
