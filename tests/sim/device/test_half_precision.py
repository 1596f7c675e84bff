"""Operators on fp16 and bf16 are as accurate as CUDA's, which compute in fp32 and round once."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from drkernel import sim
from drkernel.sim.gpu.operator_rules import rule_of
from drkernel.sim.wire.commands import UnsupportedOp
from places import KIT

CALLS = json.loads((KIT / "operator_calls.json").read_text())
NOT_CONTINUOUS = {
    "nextafter.default": "the next number of the operand's own dtype",
    "div.Tensor_mode": "rounds to whole numbers: a step may fall to either side",
    "fractional_max_pool2d.default": "picks elements by fractions, which have the dtype of the input",
}


def built(value: Any, dtype: torch.dtype, generator: torch.Generator) -> Any:
    """Recorded arguments with random contents; floating tensors hold values of ``dtype``."""
    if isinstance(value, dict) and "t" in value:
        shape, kind = value["t"][:2]
        if kind == "float32":
            return torch.randn(shape, generator=generator).to(dtype)
        return torch.zeros(shape, dtype=getattr(torch, kind))
    if isinstance(value, dict) and "d" in value:
        return getattr(torch, value["d"])
    return [built(item, dtype, generator) for item in value] if isinstance(value, list) else value


def cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value.clone()
    return [cast(item, dtype) for item in value] if isinstance(value, list) else value


def leaves(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, (list, tuple)) else []


def results(call: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], dtype: torch.dtype) -> Any:
    return leaves(call(*[cast(a, dtype) for a in args], **{k: cast(v, dtype) for k, v in kwargs.items()}))


def ulps(value: torch.Tensor, truth: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    info = torch.finfo(dtype)
    return ((value.double() - truth).abs() / truth.abs().clamp_min(info.tiny)) / info.eps


def calls_of(name: str, dtype: torch.dtype) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    generator = torch.Generator().manual_seed(7)
    for args, kwargs in CALLS[name]:
        made = built(args, dtype, generator), {k: built(v, dtype, generator) for k, v in kwargs.items()}
        if any(t.dtype == dtype for t in leaves([*made[0], *made[1].values()])):
            yield made


@pytest.fixture
def one_thread() -> Iterator[None]:
    """A second thread for matrices of a few elements only spins: fifteen times the processor time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_no_operator_is_less_accurate_than_fp32_rounded_once(dtype: torch.dtype) -> None:
    worse: dict[str, float] = {}
    compared = set()
    for name in CALLS:
        try:
            rule = rule_of(name)
        except UnsupportedOp:
            continue
        if rule.draws or rule.allocates or rule.written or name in NOT_CONTINUOUS:
            continue
        plain = getattr(getattr(torch.ops.aten, rule.base), name.partition(".")[2])
        for args, kwargs in calls_of(name, dtype):
            try:
                ours = results(rule.call, args, kwargs, dtype)
                wide = results(plain, args, kwargs, torch.float32)
                truth = results(plain, args, kwargs, torch.float64)
            except (RuntimeError, NotImplementedError):
                continue  # refused in this dtype, or for these contents
            for value, rounded, exact in zip(ours, wide, truth, strict=True):
                if value.dtype != dtype or value.shape != exact.shape or not value.numel():
                    continue
                error, best = ulps(value, exact.double(), dtype), ulps(rounded.to(dtype), exact.double(), dtype)
                fine = error.isfinite() & best.isfinite()
                if fine.any():
                    compared.add(rule.base)
                    if error[fine].max() > max(0.75, 1.5 * best[fine].max()):
                        worse[name] = max(worse.get(name, 0.0), error[fine].max().item())
    assert not worse
    assert len(compared) > 200


def test_gradients_of_normalisations_sum_in_fp32(dev: sim.SimDevice) -> None:
    rows, columns = 1151, 512
    x = torch.randn(rows, columns, dtype=torch.float16, device="cuda")
    upstream = 0.1 * torch.randn_like(x)
    weight, bias = (torch.rand(columns, dtype=torch.float16, device="cuda").requires_grad_() for _ in range(2))
    torch.nn.functional.layer_norm(x, (columns,), weight, bias).backward(upstream)
    truth = upstream.cpu().double().sum(0)
    assert weight.grad is not None and bias.grad is not None
    assert weight.grad.dtype == torch.float16
    assert (bias.grad.cpu().double() - truth).abs().max() < truth.abs().max() * 2**-11


def test_products_and_accumulation_of_halves(dev: sim.SimDevice) -> None:
    assert torch.full((4096,), 1.001, device="cuda").half().prod().item() == 54.5
    places = torch.zeros(3000, dtype=torch.long, device="cuda")
    total = torch.zeros(4, device="cuda", dtype=torch.bfloat16)
    total.index_put_((places,), torch.ones(3000, device="cuda", dtype=torch.bfloat16), accumulate=True)
    assert total.tolist() == [3008.0, 0.0, 0.0, 0.0]  # the nearest bf16; adding in bf16 stops at 256
    assert torch.ones(4, device="cuda").half().prod(dtype=torch.float32).dtype == torch.float32


def test_results_land_in_the_tensors_they_were_meant_for(dev: sim.SimDevice) -> None:
    ones, out = torch.ones(3, 3, device="cuda").half(), torch.empty(3, 3, device="cuda").half()
    assert torch.mm(ones, ones, out=out) is out
    assert out.tolist() == [[3.0] * 3] * 3
    grown = torch.empty(0, device="cuda").half()
    torch.mm(ones, ones, out=grown)
    assert grown.shape == (3, 3) and grown.dtype == torch.float16
    vector = torch.ones(3, device="cuda").half()
    assert vector.addmv_(ones, vector) is vector and vector.tolist() == [4.0] * 3
    norm = torch.nn.BatchNorm1d(3).cuda().half()
    x = torch.tensor([[1.0, 2, 3], [3, 4, 5]], device="cuda").half().requires_grad_()
    norm(x).sum().backward()
    assert norm.running_mean.dtype == torch.float16
    assert torch.allclose(norm.running_mean.cpu().float(), torch.tensor([0.2, 0.3, 0.4]), atol=1e-3)
    assert norm.weight.grad is not None and norm.weight.grad.dtype == torch.float16


@pytest.mark.usefixtures("one_thread")
def test_a_product_of_fp16_takes_as_long_as_one_of_fp32() -> None:
    def seconds(dtype: torch.dtype) -> float:
        x = torch.randn(768, 768, device="cuda").to(dtype)
        best = float("inf")
        for _ in range(3):
            started = time.thread_time()
            x @ x
            best = min(best, time.thread_time() - started)
        return best

    with sim.device("h100"):
        assert seconds(torch.float16) < 10 * seconds(torch.float32)  # 100 times, by PyTorch's own kernel here
